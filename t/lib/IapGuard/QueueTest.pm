package IapGuard::QueueTest;

# What the tests of the ledger in Redis have in common: machines that share a
# Redis, each with a file of its own, and what has to be true of them.
#
#   my ($one, $two) = machines(2, redis());     # IapGuard::DrainTest
#   my @tickets = $one->put_many(20, bodies('a'));
#   is spooled($one), 0; is in_redis($redis, 'pending'), 20;
#   verified_all('name', $one, @tickets);
#   told_once('name', $one, 20);
#   end($one, $two);

use strict;
use warnings;

use Exporter qw(import);
use Test::More;
use Time::HiRes qw(sleep);

use IapGuard::DrainTest;
use IapGuard::Nginx;
use IapGuard::RedisServer;

# seconds, in which what was spooled has to be moved
use constant MOVED => 15;

our @EXPORT = qw(MOVED paths redis machines settled bodies statuses
                 verified_all told_once in_redis spooled lines end);

my %paths;


sub paths {
    %paths = IapGuard::Nginx->options if !%paths;
    return wantarray ? %paths : \%paths;
}


sub redis {
    my (@options) = @_;

    return IapGuard::RedisServer->new(options => [
        '--appendonly', 'yes', '--appendfsync', 'always', @options ]);
}


# Machines that share a Redis and what they call.  An answer of the target is
# waited for; one that fails is tried again and again.

sub machines {
    my ($n, $redis, %options) = @_;
    my $words = delete $options{redis} || '';
    my $queue = delete $options{queue} || '';
    my @machines;

    foreach (1 .. $n) {
        push @machines, IapGuard::DrainTest->new(
            paths => scalar paths(), workers => 2, breaker => undef,
            (@machines ? (peers => $machines[0]->peers) : ()),
            http => 'iap_guard_redis redis://' . $redis->node
                  . " timeout=1s $words;",
            queue => 'rate=2000r/s concurrency=32 attempts=1000 '
                   . "retry_min=100ms retry_max=400ms $queue", %options);
    }

    # until it is known what the server promises

    sleep 0.5;

    return @machines;
}


sub settled {
    my ($seconds, $condition) = @_;
    return IapGuard::Nginx->wait_for($seconds, $condition);
}


sub bodies {
    my ($name, @more) = @_;
    return (body => sub { { id => "$name$_[0]", @more } },
            user => sub { "$name." . $_[0] % 7 });
}


# the words of tickets at a machine, each as often as it is said: "pending:20"

sub statuses {
    my ($machine, @tickets) = @_;
    my %seen;

    $seen{ $machine->ticket($_)->{status} }++ foreach @tickets;

    return join ' ', map { "$_:$seen{$_}" } sort keys %seen;
}


sub verified_all {
    my ($name, $machine, @tickets) = @_;
    my $all = 'verified:' . @tickets;
    my $statuses = '';

    settled(30, sub { ($statuses = statuses($machine, @tickets)) eq $all });
    is $statuses, $all, "$name: all are verified";

    return;
}


# how often each callback came that has been delivered: all ids, once each

sub told_once {
    my ($name, $machine, $expected) = @_;
    my (%ids, %keys);

    settled(15, sub {
        %ids = ();
        $ids{ $_->{id} }++ foreach $machine->hooks;
        return keys %ids >= $expected;
    });

    sleep 0.5;
    %ids = ();
    foreach my $hook ($machine->hooks) {
        $ids{ $hook->{id} }++;
        $keys{ $hook->{told}{data}{key} }{ $hook->{id} } = 1;
    }

    is scalar keys %ids, $expected, "$name: so many were told of";
    is join(' ', grep { keys %{ $keys{$_} } > 1 } sort keys %keys), '',
        "$name: none by two ids";
    is join(' ', grep { !$_->{good} } $machine->hooks), '',
        "$name: and signed";

    return \%ids;
}


sub in_redis {
    my ($redis, $what) = @_;
    return $redis->command('ZCARD', "iap:{q:receipts}:$what");
}


sub spooled { return $_[0]->queue->{spooled} }

sub lines {
    my ($machine, $pattern) = @_;
    return scalar @{[ $machine->nginx->log_lines($pattern) ]};
}


sub end {
    my (@machines) = @_;

    $_->nginx->stop foreach @machines;

    is join('', map { $_->nginx->complaints(qr/exited on signal 9/) } @machines),
        '', 'nothing in the log that should not be';
    $machines[0]->peers->stop;

    return;
}


1;
