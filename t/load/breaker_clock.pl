#!/usr/bin/perl

# The wall clock is set by an hour, ahead and back, while a breaker is closed,
# open, half-open and on hold: none of it lasts longer or shorter, nothing that
# was counted is lost, and the times that are shown are the clock's of then.
#
# Runs beside others that wait.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(sleep);

use IapGuard::Child;
use IapGuard::Loop;
use IapGuard::Nginx;
use IapGuard::StandInApple;
use IapGuard::SteppedClock;

use constant {
    HOUR    => 3600,
    WINDOW  => 4,           # seconds
    OPEN    => 2,
    SLOW    => 3,
    PROBE   => 1,           # that it takes
    HOLD    => 2,
    EARLY   => 0.1,         # by the grain of nginx's clock, and of our look
    LATE    => 2,
    MIN     => 10,
};

my %paths = IapGuard::Nginx->options;
my $apple = IapGuard::StandInApple->new->start;
my $clock = IapGuard::SteppedClock->new;

my $nginx = IapGuard::Nginx->new(%paths, workers => 2,
    http => <<"END", server => <<"ENDS");
    iap_guard_zone     iap 1m;
    iap_guard_breaker  apple failures=50% min=@{[ MIN ]} window=@{[ WINDOW ]}s
                       open=@{[ 1000 * OPEN ]}ms probes=1 slow=@{[ SLOW ]}s
                       slow_ratio=50% classify=apple;
END
        location = /verify {
            iap_guard_breaker  apple;
            proxy_pass         @{[ $apple->url('/verifyReceipt') ]};
        }
ENDS

foreach my $by (HOUR, -&HOUR) {
    my $name = $by > 0 ? 'an hour ahead' : 'an hour back';

    $clock->set(0);
    $clock->during(sub { $nginx->start });

    it_is_set($name, $by);
    closed($name, $by);
    open_time($name, $by);
    half_open($name, $by);
    window($name, $by);
    hold($name, $by);

    is_deeply [$nginx->complaints], [], "$name: nothing else in the log";
    $nginx->stop;
}

$apple->stop;
done_testing;


sub breaker { return $nginx->api_json('GET', 'breakers/apple') }
sub now     { return IapGuard::Loop::now() }


# so many calls, one after the other; their statuses

sub calls {
    my ($n, %how) = @_;

    $apple->behave(%how) if %how;

    return join ' ', map { $nginx->get('/verify')->{status} } 1 .. $n;
}


sub is_about {
    my ($got, $expected, $early, $late, $name) = @_;

    return ok($got >= $expected - $early && $got <= $expected + $late, $name)
        || diag "got $got, expected $expected";
}


# seconds since 1970, by the clock that nginx had then; the hour is the point

sub is_dated {
    my ($got, $wall, $name) = @_;
    return is_about($got, $wall, 5, 5, $name);
}


sub takes {
    my ($from, $condition, $expected, $name) = @_;

    $nginx->wait_for(10, $condition);

    return is_about(now() - $from, $expected, EARLY, LATE, $name);
}


# or all of this would show nothing

sub it_is_set {
    my ($name, $by) = @_;

    foreach my $ahead ($by, 0) {
        $clock->set($ahead);

        my $date = $nginx->get('/none')->{headers}{date};
        my ($h, $m, $s) = $date =~ / (\d\d):(\d\d):(\d\d) /;
        my $off = (3600 * $h + 60 * $m + $s - $clock->time) % 86_400;

        ok $off <= 5 || $off >= 86_395, "$name: nginx has what is set";
    }

    return;
}


# What was counted stays counted, and what comes is added to it.

sub closed {
    my ($name, $by) = @_;

    calls(4, mode => 'ok');
    calls(3, mode => '5xx');
    $clock->set($by);

    is breaker()->{calls}, 7, "$name, closed: all calls are in the window";
    is_about(breaker()->{failures}, 3 / 7, 0.001, 0.001,
             "$name, closed: failures");

    calls(2, mode => '5xx');
    is breaker()->{state}, 'closed', "$name, closed: it is";
    calls(1, mode => '5xx');

    my $is = breaker();
    is $is->{state}, 'open', "$name, closed: opens with the call that it would";
    is $is->{reason}, 'failures', "$name, closed: says why";

    return;
}


# It was opened a moment ago, in the hour that is set.

sub open_time {
    my ($name, $by) = @_;
    my $opened = now();
    my $wall   = $clock->time;

    is_dated(breaker()->{opened}, $wall, "$name, open: dated by the clock");
    $clock->set(0);
    sleep OPEN / 4;

    my $is = breaker();
    is $is->{state}, 'open', "$name, open: still, when the clock is set back";
    is_dated($is->{opened}, $wall, "$name, open: the date stays");
    cmp_ok $is->{retry_after}, '<=', OPEN, "$name, open: as long as it was to be";
    is calls(1), '503', "$name, open: nobody is let by";

    takes($opened, sub { breaker()->{state} ne 'open' }, OPEN,
          "$name, open: lasts its time");

    $is = breaker();
    is $is->{state}, 'half-open', "$name, open: then half-open";
    is_dated($is->{changed}, $clock->time, "$name, open: dated by the clock");
    is_dated($is->{opened}, $wall, "$name, open: the former date stays");

    return;
}


# A probe is under way.

sub half_open {
    my ($name, $by) = @_;

    $apple->behave(mode => 'slow', seconds => PROBE);

    my $probe = IapGuard::Child->start(sub {
        return $nginx->get('/verify')->{status} != 200;
    });

    ok $nginx->wait_for(PROBE, sub { breaker()->{inflight} }),
        "$name, half-open: a probe is under way";
    $clock->set($by);

    my $is = breaker();
    is $is->{state}, 'half-open', "$name, half-open: it stays";
    is $is->{inflight}, 1, "$name, half-open: the probe stays";
    is calls(1), '503', "$name, half-open: nobody else is let by";

    ok $nginx->wait_for(5, sub { !$probe->running }), 'the probe ends';
    is $probe->stop, 0, "$name, half-open: the probe has got its answer";

    $is = breaker();
    is $is->{state}, 'closed', "$name, half-open: it closes";
    is $is->{reason}, 'probes passed', "$name, half-open: as the probe passed";
    is $is->{transitions}{open}, 1, "$name, half-open: it had opened once";
    is_dated($is->{changed}, $clock->time, "$name, half-open: dated so");

    $clock->set(0);

    return;
}


# Calls leave the window when it is over.

sub window {
    my ($name, $by) = @_;

    calls(4, mode => 'ok');

    my $begun = now();
    $clock->set($by);
    is breaker()->{calls}, 4, "$name, window: calls are counted";

    # nine to ten tenths of it are looked at

    takes($begun, sub { breaker()->{calls} == 0 }, 0.9 * WINDOW,
          "$name, window: as long as it is");
    $clock->set(0);

    return;
}


# Apple gave a moment, by its own clock, which was nginx's then.  nginx looks
# at whole seconds of it.

sub hold {
    my ($name, $by) = @_;

    calls(1, mode => '429', retry_after => 'ms', seconds => HOLD);

    my $begun = now();
    $clock->set($by);
    $apple->behave(mode => 'ok');

    my $is = breaker();
    cmp_ok $is->{retry_after}, '>=', 1, "$name, hold: lasts";
    cmp_ok $is->{retry_after}, '<=', HOLD + 1, "$name, hold: not longer";
    is calls(2), '503 503', "$name, hold: nobody is let by";

    takes($begun, sub { calls(1) eq '200' }, HOLD,
          "$name, hold: as long as Apple said");
    $clock->set(0);

    return;
}
