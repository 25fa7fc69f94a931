#!/usr/bin/perl

# A breaker before a stand-in for Apple, in each of its modes: what opens it,
# after how many calls, what clients see, when it closes again; who gets a
# probe when the open time ends; and that nothing is left behind by clients
# that leave and workers that are killed.
#
# Runs beside others that wait.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(sleep);

use IapGuard::AtOnce;
use IapGuard::Loop;
use IapGuard::Nginx;
use IapGuard::StandInApple;

use constant {
    OPEN     => 1.2,        # seconds
    PROBES   => 3,
    MIN      => 10,
    SLOW     => 0.4,        # seconds
    INFLIGHT => 40,
    AT_ONCE  => 500,
};

my %paths = IapGuard::Nginx->options;
my $apple = IapGuard::StandInApple->new->start;

my $HTTP = <<"END";
    iap_guard_zone     iap 4m;
    iap_guard_breaker  apple failures=50% min=@{[ MIN ]} window=60s
                       open=@{[ OPEN * 1000 ]}ms probes=@{[ PROBES ]}
                       slow=@{[ SLOW * 1000 ]}ms slow_ratio=60%
                       inflight=@{[ INFLIGHT ]} classify=apple;
END

my $SERVER = <<"END";
        location = /verify {
            iap_guard             verify;
            iap_guard_user        \$http_x_user_id capacity=10000 rate=1000r/s;
            iap_guard_breaker     apple;
            proxy_connect_timeout 1s;
            proxy_read_timeout    900ms;
            proxy_pass            @{[ $apple->url('/verifyReceipt') ]};
        }

        location = /other {
            iap_guard       other;
            iap_guard_user  \$http_x_user_id capacity=10000 rate=1000r/s;
            empty_gif;
        }
END

# what Apple does, whether it opens the breaker, and why

my @modes = (
    [ 'ok',                      { mode => 'ok' },                       0 ],
    [ '503',                     { mode => '5xx' },           'failures' ],
    [ '200 with HTML',           { mode => 'html' },          'failures' ],
    [ 'half of the body',        { mode => 'cut' },           'failures' ],
    [ 'reset',                   { mode => 'reset' },         'failures' ],
    [ 'slow',                    { mode => 'slow', seconds => 0.6 }, 'slow' ],
    [ 'hangs',                   { mode => 'hang' },              'slow' ],
    [ '21005',                   { mode => 'json', status => 21005 },
                                                              'failures' ],
    [ '21009, one in two',       { mode => 'json', status => 21009,
                                   percent => 50 },           'failures' ],
    [ '21199, to be retried',    { mode => 'json', status => 21199,
                                   is_retryable => \1 },      'failures' ],
    [ '21199, not to be',        { mode => 'json', status => 21199,
                                   is_retryable => \0 },               0 ],
    [ '21002 only',              { mode => 'json', status => 21002 },
                                                              'failures' ],
    [ '21002, one in three',     { mode => 'json', status => 21002,
                                   percent => 33 },                    0 ],
    [ '21003',                   { mode => 'json', status => 21003 },    0 ],
    [ '21007',                   { mode => 'json', status => 21007 },    0 ],
    [ '21010',                   { mode => 'json', status => 21010 },    0 ],
);

foreach my $workers (1, 4) {
    my $nginx = IapGuard::Nginx->new(%paths, workers => $workers,
        http => $HTTP, server => $SERVER, listen => 'reuseport')->start;

    note sprintf '%-22s %-11s %6s %-22s %s', "$workers workers", 'opened by',
        'calls', 'clients saw', 'closed after, s';

    mode($nginx, @$_) foreach @modes;

    if ($workers > 1) {
        hold($nginx);
        probes($nginx);
        january($nginx);
        hanging($nginx);
        killed($nginx);
    }

    my @complaints = $nginx->complaints(qr{signal 9|was locked by});
    $nginx->stop;
    is_deeply \@complaints, [], "$workers workers: nothing else in the log";
}

$apple->stop;
done_testing;


sub breaker {
    my ($nginx) = @_;
    return $nginx->api_json('GET', 'breakers/apple');
}


# From a closed breaker with an empty window; it is another zone each time.

sub afresh {
    my ($nginx) = @_;

    $apple->behave(mode => 'ok');
    $nginx->stop;
    $nginx->start;
    $apple->reset_counts;

    return;
}


sub mode {
    my ($nginx, $name, $how, $reason) = @_;
    my (%seen, $state);

    afresh($nginx);
    $apple->behave(%$how);

    # ten at a time: calls that hang are slow before they end

    foreach (1 .. 3) {
        $seen{$_}++ foreach at_once($nginx, '/verify', 10);
        $state = breaker($nginx);
        last if $state->{state} ne 'closed';
    }

    my $calls = $apple->report->{calls};

    if (!$reason) {
        is $state->{state}, 'closed', "$name: stays closed";
        row($name, '-', $calls, \%seen, '-');
        return;
    }

    is $state->{state}, 'open', "$name: opens";
    is $state->{reason}, $reason, "$name: and says why";
    cmp_ok $calls, '<=', 3 * MIN, "$name: within a few calls";

    my @cut = at_once($nginx, '/verify', 5);
    is "@cut", '503 503 503 503 503', "$name: then nobody waits";
    is $apple->report->{calls}, $calls, "$name: and Apple is not called";

    row($name, $reason, $calls, \%seen, recovered($nginx, $name));

    return;
}


# how long it takes until it is closed, once Apple is well again

sub recovered {
    my ($nginx, $name) = @_;

    $apple->behave(mode => 'ok');
    my $begun = IapGuard::Loop::now();

    while (breaker($nginx)->{state} ne 'closed') {
        last if IapGuard::Loop::now() - $begun > 10;
        at_once($nginx, '/verify', 1);
        sleep 0.05;
    }

    my $passed = IapGuard::Loop::now() - $begun;

    is breaker($nginx)->{state}, 'closed', "$name: it closes again";
    cmp_ok $passed, '<', OPEN + 3, "$name: soon after the open time";

    return sprintf '%.1f', $passed;
}


sub row {
    my ($name, $reason, $calls, $seen, $closed) = @_;

    note sprintf '%-22s %-11s %6d %-22s %s', $name, $reason, $calls,
        join(', ', map { "$seen->{$_} x $_" } sort keys %$seen), $closed;

    return;
}


# 429 is no failure: no calls until the time that Apple gave, in each form

sub hold {
    my ($nginx) = @_;

    foreach my $form (qw(seconds ms date)) {
        afresh($nginx);
        $apple->behave(mode => '429', retry_after => $form, seconds => 3);
        at_once($nginx, '/verify', 1);

        my $calls = $apple->report->{calls};
        at_once($nginx, '/verify', 5);

        is $apple->report->{calls}, $calls, "429 in $form: no more calls";
        is breaker($nginx)->{outcomes}{hold}, $calls, "429 in $form: a hold";
        is breaker($nginx)->{failures}, 0, "429 in $form: not a failure";
        is breaker($nginx)->{state}, 'closed', "429 in $form: not open";
    }

    return;
}


# when the open time ends, so many calls at once, and no more, reach Apple

sub probes {
    my ($nginx) = @_;

    opened($nginx);
    $apple->reset_counts;
    $apple->behave(mode => 'slow', seconds => 0.3);

    wait_for($nginx, 'half-open');

    # those that come when it has closed again are calls like any other: they
    # are told apart by the time that a probe takes

    found_at_once($nginx, '/verify', AT_ONCE);

    my $report = $apple->report;
    is breaker($nginx)->{state}, 'closed', 'probes passed: closed';
    is $report->{calls}, PROBES,
        'of ' . AT_ONCE . ' at once as many reached Apple as there are probes';

    # probes that hang, and whose clients leave

    opened($nginx);
    $apple->behave(mode => 'hang');
    wait_for($nginx, 'half-open');
    leave($nginx, 10);
    is breaker($nginx)->{inflight}, 0, 'clients that left hold no probe';

    recovered($nginx, 'after clients that left');

    return;
}


sub opened {
    my ($nginx) = @_;

    afresh($nginx);
    $apple->behave(mode => '5xx');
    at_once($nginx, '/verify', MIN) foreach 1 .. 2;
    is breaker($nginx)->{state}, 'open', 'opened';

    return;
}


sub wait_for {
    my ($nginx, $state) = @_;
    my $until = IapGuard::Loop::now() + 10;

    sleep 0.01 while breaker($nginx)->{state} ne $state
                     && IapGuard::Loop::now() < $until;
    return;
}


# the outage of January 2020: first 45 % of the answers are 50x, which with
# the rest being well is below the threshold of 50 %; so here it is 40 %

sub january {
    my ($nginx) = @_;

    $nginx->change(http => $HTTP =~ s/failures=50%/failures=40%/r);

    foreach my $half ({ mode => '5xx', percent => 45 }, { mode => 'html' }) {
        $nginx->stop;
        $nginx->start;
        $apple->behave(%$half);

        foreach (1 .. 4) {
            at_once($nginx, '/verify', 10);
            last if breaker($nginx)->{state} ne 'closed';
        }

        is breaker($nginx)->{state}, 'open', "January 2020, $half->{mode}: open";
    }

    $nginx->change(http => $HTTP);

    return;
}


# Apple hangs: no more than so many calls reach it, and nobody else waits

sub hanging {
    my ($nginx) = @_;

    $nginx->change(http => $HTTP =~ s/slow=.*?60%//sr);
    afresh($nginx);
    $apple->behave(mode => 'hang');

    my $verify = ask($nginx, '/verify', 300);
    sleep 0.3;

    cmp_ok $apple->report->{waiting}, '<=', INFLIGHT,
        'no more calls at once than "inflight"';
    is breaker($nginx)->{inflight}, INFLIGHT, 'and that many';

    my $begun = IapGuard::Loop::now();
    my @others = at_once($nginx, '/other', 20);
    cmp_ok IapGuard::Loop::now() - $begun, '<', 0.5, 'others do not wait';
    is scalar(grep { $_ == 200 } @others), 20, 'and are served';

    close $_ foreach @$verify;
    sleep 0.3;
    is breaker($nginx)->{inflight}, 0, 'those that left hold nothing';

    $nginx->change(http => $HTTP);

    return;
}


# a worker that is killed leaves no call and no probe behind

sub killed {
    my ($nginx) = @_;

    afresh($nginx);
    $apple->behave(mode => 'hang');

    my $hang = ask($nginx, '/verify', 20);
    sleep 0.2;
    cmp_ok breaker($nginx)->{inflight}, '>', 0, 'calls are under way';

    kill 'KILL', $nginx->workers;
    sleep 1;
    is breaker($nginx)->{inflight}, 0, 'killed workers hold no call';
    close $_ foreach @$hang;

    opened($nginx);
    $apple->behave(mode => 'hang');
    wait_for($nginx, 'half-open');
    $hang = ask($nginx, '/verify', PROBES);
    sleep 0.2;
    kill 'KILL', $nginx->workers;
    sleep 1;
    close $_ foreach @$hang;

    is breaker($nginx)->{inflight}, 0, 'nor a probe';
    recovered($nginx, 'after killed workers');

    return;
}


sub leave {
    my ($nginx, $n) = @_;
    my $sockets = ask($nginx, '/verify', $n);

    sleep 0.2;
    close $_ foreach @$sockets;
    sleep 0.3;

    return;
}
