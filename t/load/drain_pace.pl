#!/usr/bin/perl

# How fast a queue is drained: at once, if there is little; in an outage that
# nobody sees but the queue itself; not at all while its target asks for it; and
# what live traffic and users have to say to it.  An outage with thousands
# queued is drain_ten_thousand.pl's.
#
# Runs beside others that wait.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(sleep);

use IapGuard::DrainTest;
use IapGuard::Loop;

use constant {
    RATE => 40,
};

my %paths = IapGuard::Nginx->options;

at_once();
short_outage();
by_hand();
nothing_due();
hold();
users();
done_testing;


sub test {
    my (%options) = @_;

    return IapGuard::DrainTest->new(paths => \%paths, workers => 2,
        breaker => 'open=1s min=5 window=10s probes=3 consecutive=5',
        %options, queue => join ' ', 'retry_min=200ms retry_max=2s timeout=2s',
                          'rate=' . RATE . 'r/s',
                          $options{queue} || 'attempts=20');
}


# with a target that is well, what is accepted is verified soon

sub at_once {
    my $test = test();
    my @took;

    # the first of a pace that starts slowly

    $test->ended($test->put({ id => 'first' }));
    sleep 1.1;

    foreach my $n (1 .. 8) {
        my $begun  = IapGuard::Loop::now();
        my $ticket = $test->put({ id => "soon$n" }, 'X-User-Id' => "s$n");
        $test->ended($ticket);
        push @took, IapGuard::Loop::now() - $begun;
        sleep 0.6;
    }

    my $median = (sort { $a <=> $b } @took)[@took / 2];
    cmp_ok $median, '<', 0.5, sprintf 'verified %.0f ms after it was accepted'
        . ', of 8 in the middle', 1000 * $median;

    $test->end;

    return;
}


# calls in each second since a moment

sub per_second {
    my ($from, $seconds, @calls) = @_;
    my @table = (0) x $seconds;

    foreach my $call (@calls) {
        my $second = int($call->{time} - $from);
        $table[$second]++ if $call->{time} >= $from && $second < $seconds;
    }

    return @table;
}


# an outage that its breaker would be slow to see, for it looks back for long;
# and one without a breaker

sub short_outage {
    foreach my $breaker ('open=1s min=20 window=60s', undef) {
        my $test  = test(breaker => $breaker, queue => 'attempts=50');
        my $peers = $test->peers;
        my $name  = $breaker ? 'a breaker of 60 s' : 'no breaker';

        $test->put_many(500);
        $test->nginx->wait_for(20, sub { $peers->count('/verify') > 120 });

        $peers->always('/verify', 'http:503');
        my $down = IapGuard::Loop::now();
        sleep 5;
        my @failing = per_second($down, 5, $peers->calls('/verify'));
        note "second since it is down, $name: ", join ' ', @failing;
        cmp_ok $failing[1] + $failing[2] + $failing[3] + $failing[4], '<=', 6,
            "an outage, $name: it stops within a second";

        $peers->always('/verify', undef);
        my $up = IapGuard::Loop::now();
        sleep 8;
        my @well = per_second($up, 8, grep { $_->{step} eq 'ok' }
                                      $peers->calls('/verify'));
        note "second since it is up again, $name: ", join ' ', @well;
        cmp_ok $well[7], '>', 0.8 * RATE, "$name: and soon has its rate again";

        $test->end;
    }

    return;
}


# a breaker that was opened for another reason than failures

sub by_hand {
    my $test  = test();
    my $peers = $test->peers;

    $test->put_many(400);
    $test->nginx->wait_for(20, sub { $peers->count('/verify') > 120 });

    $test->nginx->api('PUT', 'breakers/apple', '{"mode":"forced-open"}');
    sleep 0.5;
    my $cut = $peers->count('/verify');
    sleep 1;
    is $peers->count('/verify'), $cut, 'forced open: no calls';

    $test->nginx->api('PUT', 'breakers/apple', '{"mode":"auto"}');
    my $up = IapGuard::Loop::now();
    sleep 4;
    my @calls = per_second($up, 4, $peers->calls('/verify'));
    note "second since it is in auto again: @calls";
    cmp_ok $calls[0] + $calls[1], '<=', 6, 'and slow start after it';

    $test->end;

    return;
}


# where nothing is queued, a live request is the probe

sub nothing_due {
    my $test = test(queue => 'attempts=9', server => 'location = /alone {
        iap_guard          alone;
        iap_guard_user     $http_x_user_id;
        iap_guard_breaker  apple;
        proxy_pass         PEERS/verify;
    }');
    my $peers = $test->peers;

    # of a queue that has an entry, but for later

    $test->configure(queue => $test->{queue} =~ s/retry_min=\S+/retry_min=2m/r
                                             =~ s/retry_max=\S+/retry_max=2m/r);
    $test->nginx->reload;
    $test->put({ id => 'later', verify => ['http:503'] });
    $test->nginx->wait_for(5, sub { $peers->count('/verify') == 1 });
    sleep 0.2;

    $peers->always('/verify', 'http:503');
    $test->post('/alone', { id => "a$_" }) foreach 1 .. 6;
    is $test->nginx->api_json('GET', 'breakers/apple')->{state}, 'open',
       'a breaker opened by live requests';
    $peers->always('/verify', undef);

    my $begun = IapGuard::Loop::now();
    ok $test->nginx->wait_for(6, sub {
        $test->post('/alone', { id => 'b' });
        $test->nginx->api_json('GET', 'breakers/apple')->{state} eq 'closed';
    }), 'with nothing due in its queue it is closed by live ones';
    cmp_ok IapGuard::Loop::now() - $begun, '<', 3,
        sprintf 'after %.1f s', IapGuard::Loop::now() - $begun;
    is $test->queue->{pending}, 1, 'while one waits for later';

    $test->end;

    return;
}


# 429: nothing at all, until it says; no attempt is used up

sub hold {
    foreach my $breaker (undef, 'open=1s min=5') {
        my $test  = test(breaker => $breaker, queue => 'attempts=2');
        my $peers = $test->peers;
        my $name  = $breaker ? 'with a breaker' : 'without a breaker';

        $peers->always('/verify', 'http:429:3');
        $test->put_many(30);
        $test->nginx->wait_for(5, sub { $peers->count('/verify') });
        sleep 0.5;

        my $first = $peers->count('/verify');
        cmp_ok $first, '<=', 3, "429, $name: $first calls";
        sleep 1.5;
        is $peers->count('/verify'), $first, "429, $name: then none";
        $peers->always('/verify', undef);

        my ($call) = $peers->calls('/verify');
        $test->nginx->wait_for(5, sub { $peers->count('/verify') > $first });
        my $next = ($peers->calls('/verify'))[$first];
        cmp_ok $next->{time} - $call->{time}, '>=', 2.9,
            "429, $name: until it says";
        ok $test->nginx->wait_for(20, sub { $test->queue->{verified} == 30 }),
            "429, $name: and no attempt was used up";

        $test->end;
    }

    # Apple's milliseconds

    my $test  = test(breaker => undef);
    my $peers = $test->peers;
    my $at    = int((time + 3) * 1000);

    $peers->always('/verify', "http:429:$at");
    $test->put({ id => 'ms' });
    $test->nginx->wait_for(5, sub { $peers->count('/verify') == 1 });
    sleep 1;
    $peers->always('/verify', undef);
    is $peers->count('/verify'), 1, '429 with a UNIX time in milliseconds';
    $test->nginx->wait_for(6, sub { $peers->count('/verify') == 2 });
    cmp_ok time, '>=', $at / 1000 - 1, 'is understood';

    $test->end;

    return;
}


# one user's thousand does not keep the others waiting

sub users {
    my $test = test();

    $test->nginx->api('PUT', 'breakers/apple', '{"mode":"forced-open"}');
    $test->put_many(200, user => sub { 'flood' },
                    body => sub { { id => "f$_[0]" } });
    my @tickets = $test->put_many(10, user => sub { "payer$_[0]" },
                                  body => sub { { id => "p$_[0]" } });
    $test->nginx->api('PUT', 'breakers/apple', '{"mode":"auto"}');

    $test->nginx->wait_for(20, sub {
        10 == grep { $_->{id} =~ /^p/ } $test->peers->calls('/verify');
    });

    my @before = $test->peers->calls('/verify');
    my ($last) = grep { $before[$_]{id} =~ /^p/ } reverse 0 .. $#before;

    cmp_ok $last, '<', 24, '10 users behind 200 requests of one: the last of '
        . "them is call $last";

    $test->end;

    return;
}
