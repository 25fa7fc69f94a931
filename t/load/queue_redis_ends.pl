#!/usr/bin/perl

# What ends while the ledger in Redis is asked: a Redis that sleeps, is killed
# and comes back, workers that quit or are killed, an nginx that is terminated,
# clients that leave.  What was accepted is verified in the end, and told of by
# one id.  Also for a build with AddressSanitizer.
#
#   --rounds=N      of accidents (14)
#   --seed=N        which ones, and when

use strict;
use warnings;

use Getopt::Long ();
use IO::Socket::INET;
use Socket qw(SOL_SOCKET SO_LINGER);
use Test::More;
use Time::HiRes qw(sleep);

use IapGuard::DrainTest;
use IapGuard::Loop;
use IapGuard::Nginx;
use IapGuard::RedisServer;

use constant {
    PUTS    => 25,          # at each machine, in each round
    LEAVING => 10,          # clients that don't wait for the answer
    MOVED   => 30,          # seconds, until all files are empty
    ENDED   => 60,          # and all is verified
};

my ($rounds, $seed) = (14, time);

Getopt::Long::Configure('pass_through');
Getopt::Long::GetOptions('rounds=i' => \$rounds, 'seed=i' => \$seed);
Getopt::Long::Configure('no_pass_through');

my %paths = IapGuard::Nginx->options;
my $redis = IapGuard::RedisServer->new(options => [
    '--appendonly', 'yes', '--appendfsync', 'always' ]);

note "--seed=$seed";
srand $seed;

my @machines = (machine());
push @machines, machine($machines[0]->peers);

my @accidents = (\&sleeps, \&killed, \&reloaded, \&worker_killed, \&terminated,
                 \&both, \&moves);
my (@tickets, $refused);

sleep 1;

foreach my $round (1 .. $rounds) {
    my $accident = $accidents[ $round <= @accidents ? $round - 1
                                                    : rand @accidents ];
    my $machine  = $machines[rand 2];

    $accident->($round, $machine);
    put($round, $_) foreach @machines;
}

ends();
done_testing;


sub machine {
    my ($peers) = @_;

    return IapGuard::DrainTest->new(
        paths => \%paths, workers => 2, breaker => undef,
        (defined $peers ? (peers => $peers) : ()),
        http  => 'iap_guard_redis redis://' . $redis->node . ' timeout=1s;',
        queue => 'rate=2000r/s concurrency=32 attempts=1000 retry_min=100ms '
               . 'retry_max=400ms');
}


# What is refused was not accepted: it may be in the queue all the same

sub put {
    my ($round, $machine) = @_;
    my $name = "$round." . ($machine == $machines[0] ? 'a' : 'b');

    leave("$name.left", $machine);

    my @accepted = grep { defined } $machine->put_many(PUTS,
        body => sub { { id => "$name.$_[0]", verify => ['slow:0.1'] } },
        user => sub { 'u' . $_[0] % 7 });

    push @tickets, @accepted;
    $refused += PUTS - @accepted;

    return;
}


# Requests whose clients have gone before they are answered

sub leave {
    my ($name, $machine) = @_;
    my @sockets;

    foreach my $i (1 .. LEAVING) {
        my $body   = qq({"id":"$name.$i"});
        my $socket = IO::Socket::INET->new(
            PeerAddr => '127.0.0.1', PeerPort => $machine->nginx->port)
            or next;

        setsockopt $socket, SOL_SOCKET, SO_LINGER, pack 'ii', 1, 0;
        print {$socket} "POST /accept HTTP/1.1\r\nHost: a\r\nX-User-Id: l\r\n",
            'Content-Length: ' . length($body) . "\r\n\r\n$body";
        $socket->flush;
        push @sockets, $socket;
    }

    sleep 0.005 * rand 3;
    close $_ foreach @sockets;

    return;
}


# what is asked while it sleeps is on its way when the next round begins

sub sleeps {
    my ($round) = @_;

    $redis->freeze;
    put("$round.asleep", $_) foreach @machines;
    $redis->thaw;

    return;
}


sub killed {
    my ($round) = @_;

    $redis->kill;
    put("$round.away", $_) foreach @machines;
    $redis->start;

    return;
}


sub reloaded {
    my ($round, $machine) = @_;

    kill 'HUP', $machine->nginx->master;
    put("$round.reload", $machine);
    kill 'HUP', $machine->nginx->master;

    return;
}


sub worker_killed {
    my ($round, $machine) = @_;
    my @workers = $machine->nginx->workers;

    leave("$round.dying", $machine);
    kill 'KILL', $workers[rand @workers];

    return;
}


# with puts, takes and looks that nobody answers

sub terminated {
    my ($round, $machine) = @_;

    $redis->freeze;
    leave("$round.term", $machine);
    kill 'TERM', $machine->nginx->master;
    IapGuard::Nginx->wait_for(10, sub { !$machine->nginx->all_workers });
    $redis->thaw;
    $machine->nginx->stop;
    $machine->nginx->start;

    return;
}


sub both {
    my ($round, $machine) = @_;

    $redis->freeze;
    kill 'HUP', $machine->nginx->master;
    put("$round.both", $machine);
    $redis->kill;
    put("$round.both2", $machine);
    $redis->start;

    return;
}


# in the middle of a move

sub moves {
    my ($round, $machine) = @_;

    $redis->kill;
    put("$round.$_.file", $machine) foreach 1 .. 4;
    $redis->start;

    IapGuard::Nginx->wait_for(5, sub {
        sleep 0.02;
        return $machine->nginx->log_lines(qr/(?:ledger|drain): redis.*is up again/);
    });

    if (rand() < 0.5) {
        $redis->freeze;
        kill 'HUP', $machine->nginx->master;
        sleep 0.3;
        $redis->thaw;

    } else {
        kill 'KILL', $_ foreach $machine->nginx->workers;
        sleep 0.2;
    }

    return;
}


sub ends {
    my ($one, $two) = @machines;
    my %left = map { $_ => 1 } @tickets;
    my (%ids, %keys);

    note scalar @tickets, ' accepted, ', $refused || 0, ' refused';

    ok(IapGuard::Nginx->wait_for(MOVED, sub {
        return !grep { (eval { $_->queue->{spooled} } // 1) != 0 } @machines;
    }), 'all files are emptied');

    IapGuard::Nginx->wait_for(ENDED, sub {
        foreach my $ticket (keys %left) {
            delete $left{$ticket}
                if $one->ticket($ticket)->{status} eq 'verified';
        }
        return !%left;
    });

    is join(' ', map { "$_:" . $one->ticket($_)->{status} } keys %left), '',
        'what was accepted is verified';

    my %seen = map { $_ => 1 } @tickets;
    my ($n, $missing) = (0, '');

    IapGuard::Nginx->wait_for(ENDED, sub {
        %ids = map { $_->{id} => 1 } $one->hooks;
        $missing = join ' ', grep { !$ids{"msg_$_"} } keys %seen;
        return $missing eq '';
    });

    is $missing, '', 'and told of';

    foreach my $hook ($one->hooks) {
        $keys{ $hook->{told}{data}{key} }{ $hook->{id} } = 1;
    }

    is join(' ', grep { keys %{ $keys{$_} } > 1 } keys %keys), '',
        'by one id each';

    foreach my $machine (@machines) {
        $machine->nginx->stop;
        is join('', $machine->nginx->complaints(
            qr/exited on signal 9/, qr/open socket #\d+ left/)), '',
            'nothing in the log that should not be';
    }

    $one->peers->stop;

    return;
}
