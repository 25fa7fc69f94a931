#!/usr/bin/perl

# Apple throttles, while calls go on at a steady pace: after 429 there are none
# until the moment that it gave, in each of its forms, and then there are again,
# never more at once than "inflight".  It is no failure, and as an answer to a
# probe no success either.
#
# Runs beside others that wait.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(sleep);

use IapGuard::AtOnce;
use IapGuard::Loop;
use IapGuard::Nginx;
use IapGuard::PacedLoad;
use IapGuard::StandInApple;

use constant {
    WORKERS   => 4,
    INFLIGHT  => 20,
    PROBES    => 3,
    OPEN      => 0.5,       # seconds
    TAKES     => 0.05,      # a call
    HOLD      => 2,         # as Apple gives it
    SETTLED   => 0.4,       # when calls have ended that were under way
    BEFORE    => 0.5,
    AFTER     => 0.7,
    EARLY     => 0.1,       # by the grain of nginx's clock, and of our look
    LATE      => 3,         # a date's seconds, and on a busy machine
    AT_ONCE   => 500,
};

# What Apple gives for that, in each form: a date is in whole seconds, and
# nginx looks at whole seconds of its own clock.

my %hold = (seconds => HOLD, ms => HOLD, date => HOLD + 1);

my %paths = IapGuard::Nginx->options;
my $apple = IapGuard::StandInApple->new->start;

my $nginx = IapGuard::Nginx->new(%paths, workers => WORKERS,
    listen => 'reuseport', http => <<"END", server => <<"ENDS");
    iap_guard_zone     iap 1m;
    iap_guard_breaker  apple min=10 open=@{[ 1000 * OPEN ]}ms
                       probes=@{[ PROBES ]} inflight=@{[ INFLIGHT ]}
                       classify=apple;
END
        location = /verify {
            iap_guard_breaker  apple;
            proxy_pass         @{[ $apple->url('/verifyReceipt') ]};
        }
ENDS

under_load($_) foreach qw(seconds ms date);
herd();
probes();

$apple->stop;
done_testing;


sub now     { return IapGuard::Loop::now() }
sub breaker { return $nginx->api_json('GET', 'breakers/apple') }


# Another zone each time.

sub afresh {
    $nginx->stop;
    $apple->behave(mode => 'slow', seconds => TAKES);
    $nginx->start;
    $apple->reset_counts;

    return;
}


# Apple says 429, and is well again at once: a call that is made all the same
# would be a success.

sub throttled {
    my ($form) = @_;

    $apple->behave(mode => '429', retry_after => $form,
                   seconds => $hold{$form});
    $nginx->wait_for(5, sub { $apple->report->{by_mode}{429} })
        or die "no call reached Apple\n";
    $apple->behave(mode => 'slow', seconds => TAKES);

    return now();
}


sub under_load {
    my ($form) = @_;

    afresh();

    my $load  = IapGuard::PacedLoad->start(port => $nginx->port,
        connections => 48, pause => 0.05, paths => ['/verify']);
    my $begun = now();
    sleep BEFORE;
    my $said  = throttled($form);
    sleep SETTLED;

    my $first = $apple->report;
    is $first->{waiting}, 0, "429 in $form: calls that were under way end";
    $apple->reset_counts;

    ok $nginx->wait_for(HOLD + LATE, sub { $apple->report->{calls} }),
        "429 in $form: calls reach Apple again";
    my $back = now() - $said;
    cmp_ok $back, '>', HOLD - EARLY, "429 in $form: not before it is over";
    sleep AFTER;

    my $after = $apple->report;
    my $is = breaker();
    $load->stop;

    cmp_ok $after->{most}, '<=', INFLIGHT, "429 in $form: so many at once";
    is $is->{state}, 'closed', "429 in $form: it stays closed";
    is $is->{transitions}{open}, 0, "429 in $form: and was";
    is $is->{failures}, 0, "429 in $form: it is no failure";
    is $is->{outcomes}{hold}, $first->{by_mode}{429},
        "429 in $form: each is a hold";

    clients($form, $load, $said, $back);
    note sprintf '429 in %s: %d calls/s before, %d answers of 429; no call for '
        . '%.2f s, then %d calls/s, %d at once at most', $form,
        $load->part('/verify', $begun, $said)->{statuses}{200}
            / ($said - $begun),
        $first->{by_mode}{429}, $back, $after->{calls} / AFTER, $after->{most};

    return;
}


# What they were told: they are sent away, and none of them waits.

sub clients {
    my ($form, $load, $said, $back) = @_;

    my $held = $load->part('/verify', $said + SETTLED, $said + HOLD - EARLY);
    my $then = $load->part('/verify', $said + $back, now());

    is_deeply $held->{errors}, [], "429 in $form: everybody is answered";
    is_deeply [keys %{ $held->{statuses} }], [503],
        "429 in $form: with 503";
    cmp_ok $held->{n}, '>', 50, "429 in $form: they go on coming";
    cmp_ok $then->{statuses}{200} || 0, '>', 0,
        "429 in $form: then they are served again";

    return;
}


# All who were sent away come back at the same moment.

sub herd {
    afresh();
    throttled_by_one();

    $nginx->wait_for(HOLD + LATE, sub { !defined breaker()->{retry_after} })
        or fail 'the hold is over';

    $apple->behave(mode => 'slow', seconds => 0.5);
    $apple->reset_counts;

    my %seen;
    $seen{$_}++ foreach at_once($nginx, '/verify', AT_ONCE);
    my $report = $apple->report;

    is $report->{most}, INFLIGHT, 'after a hold as many at once as "inflight"';
    is $seen{200}, $report->{calls}, 'they are served';
    is $seen{503}, AT_ONCE - $report->{calls}, 'the others are sent away';
    note sprintf '%d at once when the hold ends: %d calls at once, %d in all',
        AT_ONCE, $report->{most}, $report->{calls};

    return;
}


sub throttled_by_one {
    $apple->behave(mode => '429', retry_after => 'seconds', seconds => HOLD);
    is join(' ', at_once($nginx, '/verify', 1)), 429, 'a call is throttled';
    is join(' ', at_once($nginx, '/verify', 2)), '503 503', 'it is on hold';

    return;
}


# All probes are throttled: it has neither failed nor passed.

sub probes {
    afresh();

    $apple->behave(mode => '5xx');
    at_once($nginx, '/verify', 10);
    is breaker()->{state}, 'open', 'it is open';

    $nginx->wait_for(5, sub { breaker()->{state} eq 'half-open' });
    $apple->reset_counts;
    $apple->behave(mode => '429', retry_after => 'seconds', seconds => HOLD);
    at_once($nginx, '/verify', 100);

    my $calls = $apple->report->{calls};
    my $is = breaker();

    cmp_ok $calls, '<=', PROBES, 'no more probes than there may be';
    is $is->{state}, 'half-open', '429 to a probe: still half-open';
    is $is->{inflight}, 0, '429 to a probe: it is given back';
    is $is->{transitions}{open}, 1, '429 to a probe: it had opened once';
    cmp_ok $is->{retry_after}, '>', OPEN, '429 to a probe: on hold';

    $apple->behave(mode => 'slow', seconds => 0.5);
    sleep 1;
    at_once($nginx, '/verify', 20);
    is $apple->report->{calls}, $calls, '429 to a probe: no more calls';

    $nginx->wait_for(HOLD + LATE, sub { !defined breaker()->{retry_after} });
    $apple->reset_counts;
    at_once($nginx, '/verify', 100);

    my $report = $apple->report;
    is $report->{most}, PROBES, 'after the hold as many at once as "probes"';
    is breaker()->{state}, 'closed', 'which pass';
    note "after 429 to $calls probes: $report->{most} at once";

    return;
}
