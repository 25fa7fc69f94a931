#!/usr/bin/perl

# Who drains: one worker at any time, however workers come and go; and what it
# had begun when it went.
#
# Runs beside others that wait.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(sleep);

use IapGuard::Child;
use IapGuard::DrainTest;
use IapGuard::Loop;

my %paths = IapGuard::Nginx->options;

killed();
quits();
ends_often();
poison();
replaced();
done_testing;


sub test {
    my (%options) = @_;

    return IapGuard::DrainTest->new(paths => \%paths, workers => 3,
        breaker => undef, %options,
        queue => join ' ', 'rate=500r/s attempts=5 retry_min=50ms',
                 'retry_max=200ms timeout=20s', $options{queue} || '');
}


sub holder {
    my ($test, $other) = @_;
    my @holders;

    $test->nginx->wait_for(5, sub {
        @holders = $test->holders;
        return @holders && $holders[0] != ($other || 0);
    });

    return $holders[0];
}


# a leader that is killed, with calls under way

sub killed {
    my $test = test();
    my $nginx = $test->nginx;
    my @gaps;

    foreach my $round (1 .. 4) {
        my $leader = holder($test);

        my @tickets = $test->put_many(6, user => sub { "k$round.$_[0]" },
            body => sub { { id => "k$round.$_[0]", verify => ['slow:1'] } });
        $nginx->wait_for(5, sub {
            6 <= grep { $_->{id} =~ /^k$round\./ } $test->peers->calls('/verify')
        });

        kill 'KILL', $leader;
        my $begun = IapGuard::Loop::now();
        my $next  = holder($test, $leader);
        push @gaps, IapGuard::Loop::now() - $begun;

        isnt $next, $leader, "round $round: another one drains";

        my @statuses = map { $test->ended($_)->{status} } @tickets;
        is "@statuses", 'verified ' x 5 . 'verified',
           "round $round: what it had begun is verified";
        cmp_ok IapGuard::Loop::now() - $begun, '<', 6,
            "round $round: without a wait for its leases";
    }

    cmp_ok $gaps[-1], '<', 1, sprintf 'the lock was free for %s ms',
        join ' ', map { sprintf '%.0f', 1000 * $_ } @gaps;

    # a whole nginx, master and all

    my @tickets = $test->put_many(6, user => sub { "m$_[0]" },
        body => sub { { id => "m$_[0]", verify => ['slow:1', 'ok'] } });
    $nginx->wait_for(5, sub {
        6 <= grep { $_->{id} =~ /^m/ } $test->peers->calls('/verify')
    });

    kill 'KILL', $nginx->master, $nginx->all_workers;
    sleep 0.3;
    delete $nginx->{keeper};
    unlink $nginx->file('nginx.pid');
    $nginx->start;

    my $begun = IapGuard::Loop::now();
    my @statuses = map { $test->ended($_)->{status} } @tickets;
    is "@statuses", 'verified ' x 5 . 'verified',
       'killed as a whole and started anew: verified';
    cmp_ok IapGuard::Loop::now() - $begun, '<', 6,
        'without a wait for the leases of its former self';

    $test->end(qr/exited on signal 9/);

    return;
}


# told to quit while a call hangs: it is given back, not kept for 15 seconds

sub quits {
    foreach my $signal (qw(QUIT TERM)) {
        my $test  = test();
        my $nginx = $test->nginx;

        holder($test);
        my $ticket = $test->put({ id => 'hangs', verify => ['hang', 'ok'] });
        $nginx->wait_for(5, sub { $test->peers->count('/verify') == 1 });

        my $begun = IapGuard::Loop::now();
        my $master = $nginx->master;
        kill $signal, $master;
        ok $nginx->wait_for(10, sub { !IapGuard::Child->alive($master) }), "$signal: it ends";
        cmp_ok IapGuard::Loop::now() - $begun, '<', 5,
            sprintf '%s: after %.1f s', $signal, IapGuard::Loop::now() - $begun;

        delete $nginx->{keeper};
        $nginx->start;
        $begun = IapGuard::Loop::now();
        is $test->ended($ticket)->{status}, 'verified',
            "$signal: the next one verifies it";
        cmp_ok IapGuard::Loop::now() - $begun, '<', 3, "$signal: at once";

        $test->end;
    }

    return;
}


# an entry that was given back was not leased in vain, however often

sub ends_often {
    my $test  = test();
    my $nginx = $test->nginx;
    my $times = 7;

    my $ticket = $test->put({ id => 'often',
                              verify => [('hang') x $times, 'ok'] });

    foreach my $n (1 .. $times) {
        $nginx->wait_for(5, sub { $test->peers->count('/verify') == $n });

        my $master = $nginx->master;
        kill 'TERM', $master;
        $nginx->wait_for(10, sub { !IapGuard::Child->alive($master) });
        delete $nginx->{keeper};
        $nginx->start;
    }

    is $test->ended($ticket)->{status}, 'verified',
       "not put aside after nginx was ended $times times";

    $test->end;

    return;
}


# What kills its worker again and again is put off, and put aside in the end; who
# was there by accident has its turn.

sub poison {
    my $test  = test();
    my $nginx = $test->nginx;
    my $lines = sub { scalar @{[ $nginx->log_lines($_[0]) ]} };
    my $honest = $test->put({ id => 'honest', verify => [('hang') x 6, 'ok'] });

    is kills($test, $honest), 6, 'an honest one was there six times';
    is $test->ended($honest)->{status}, 'verified', 'and is verified';
    is $lines->(qr/entry \d+ is put off: it was leased 6 times/), 1,
       'after it was put off, which the log says';

    my $ticket = $test->put({ id => 'poison', verify => ['hang'] });
    my $kills  = kills($test, $ticket);

    is $test->ended($ticket)->{status}, 'parked',
       "parked after it was leased by $kills workers that did not come back";
    is $kills, 15, 'which is what is bearable, five at a time';
    is $lines->(qr/entry \d+ is put off: it was leased/), 3,
       'it was put off in between';
    is $lines->(qr/entry \d+ is parked: it was leased 6 times/), 1,
       'with a line in the log';
    is $test->ended($test->put({ id => 'well' }))->{status}, 'verified',
       'others go on';

    $test->end(qr/exited on signal 9/);

    return;
}


# Kills the leader whenever it has begun a call, as long as calls hang; how often

sub kills {
    my ($test, $ticket) = @_;
    my $nginx = $test->nginx;
    my $kills = 0;
    my $seen  = $test->peers->count('/verify');
    my $over  = sub { $test->ticket($ticket)->{status} ne 'pending' };

    while ($kills < 20 && !$over->()) {
        $nginx->wait_for(5, sub {
            $test->peers->count('/verify') > $seen || $over->()
        });

        my @calls = $test->peers->ended('/verify');

        last if @calls <= $seen || $calls[-1]{step} ne 'hang';

        kill 'KILL', holder($test);
        $seen = @calls;
        $kills++;
        sleep 0.1;
    }

    return $kills;
}


# the lock's file is gone, and there is another one

sub replaced {
    my $test  = test();
    my $nginx = $test->nginx;
    my $first = holder($test);
    my $file  = $nginx->file('ledger/ledger.drain');

    is sprintf('%o', (stat $file)[2] & 0777), '600', 'the lock is 0600';
    unlink $file or die "$file: $!\n";

    ok $nginx->wait_for(5, sub { -e $file && $test->holders == 1 }),
       'removed: another one is made, and one process has it';
    ok $nginx->wait_for(3, sub {
        $nginx->log_lines(qr/ledger\.drain" has been removed/)
    }), 'the former one says so';
    is $test->ended($test->put({ id => 'after' }))->{status}, 'verified',
       'and it goes on';

    my @led = map { /\] (\d+)#/ ? $1 : () }
              $nginx->log_lines(qr/drains the queues now/);
    cmp_ok scalar @led, '>=', 2, 'led by ' . join ', then ', @led;

    $test->end;

    return;
}
