#!/usr/bin/perl

# Two nginx and one Redis, asked for more than they let pass: what passes
# through both of them together is what the limit says, within 1 %, for a
# window that is everybody's and for the bucket of one user.
#
#   --seconds=N     how long each measurement lasts (6)

use strict;
use warnings;

use Getopt::Long ();
use List::Util qw(min sum);
use Test::More;
use Time::HiRes qw(sleep);

use IapGuard::Loop;
use IapGuard::Nginx;
use IapGuard::RedisServer;
use IapGuard::Wrk;

use constant {
    MACHINES    => 2,
    CONNECTIONS => 64,      # to each of them
    WINDOW      => 500,     # requests a second
    RATE        => 200,     # of the user
    WITHIN      => 0.01,
};

my $seconds = 6;

Getopt::Long::Configure('pass_through');
Getopt::Long::GetOptions('seconds=i' => \$seconds);
Getopt::Long::Configure('no_pass_through');

my %paths = IapGuard::Nginx->options;
my $redis = IapGuard::RedisServer->new;

together($_) foreach 1, 4;

done_testing;


sub together {
    my ($workers) = @_;
    my @nginx = map { machine($workers) } 1 .. MACHINES;
    my @wrk;

    $redis->command('FLUSHALL');

    foreach my $nginx (@nginx) {
        push @wrk, map {
            IapGuard::Wrk->start(
                url => $nginx->url("/$_"), connections => CONNECTIONS / 2,
                seconds => $seconds + 10,
                send => { header => 'X-User-Id:u%d', first => 1, last => 1 })
        } qw(global user);
    }

    # Windows start with whole seconds of this machine's clock.  In the middle
    # of one there is nothing left in it.

    sleep 1;
    my @marks = (mark(@nginx));
    sleep $seconds - 1;
    push @marks, mark(@nginx);

    my @results = map { $_->stop } @wrk;
    my %passed  = map { my $guard = $_;
                        $guard => $marks[1]{$guard} - $marks[0]{$guard} }
                  qw(global user);

    my $windows = $marks[1]{window} - $marks[0]{window};

    within("$workers workers each, a window", $passed{global},
           WINDOW * $windows, WINDOW * $windows);
    within("$workers workers each, a user", $passed{user},
           RATE * ($marks[1]{begun} - $marks[0]{ended}),
           RATE * ($marks[1]{ended} - $marks[0]{begun}));

    foreach my $guard (qw(global user)) {
        my @parts = map { $marks[1]{by}[$_]{$guard} - $marks[0]{by}[$_]{$guard} }
                    0 .. MACHINES - 1;

        cmp_ok min(@parts), '>', 0, "$workers workers each: both let pass ($guard)";
        note "$workers workers each, $guard: ", join ' + ', @parts;
    }

    is sum(map { IapGuard::Wrk->failures($_) } @results), 0,
        "$workers workers each: every request was answered";
    is sum(map { $_->metric('iap_guard_store_fallbacks_total') } @nginx), 0,
        "$workers workers each: all by the store";
    note sum(map { $_->{requests} } @results), ' requests';

    foreach my $nginx (@nginx) {
        my @complaints = $nginx->complaints;
        $nginx->stop;
        is_deeply [@complaints, $nginx->complaints], [],
            "$workers workers each: no complaint in the error log";
    }

    return;
}


sub machine {
    my ($workers) = @_;

    # a deadline that no moment of a busy machine is beyond

    return IapGuard::Nginx->new(%paths, workers => $workers, http => <<"END",
    iap_guard_zone   iap 16m;
    iap_guard_redis  redis://${\$redis->node} timeout=1s;
END
        server => <<"END")->start;
        location = /global {
            iap_guard         global;
            iap_guard_global  rate=@{[ WINDOW ]}r/s window=1s;
            empty_gif;
        }

        location = /user {
            iap_guard       user;
            iap_guard_user  \$http_x_user_id capacity=50 rate=@{[ RATE ]}r/s;
            empty_gif;
        }
END
}


# What has passed so far, and when: somewhere between two moments

sub mark {
    my (@nginx) = @_;
    my $now = Time::HiRes::time();

    sleep int($now) + 1.5 - $now;

    my %mark = (begun => IapGuard::Loop::now(), window => int time,
                global => 0, user => 0);

    foreach my $nginx (@nginx) {
        my $metrics = $nginx->metrics;
        my %passed  = map {
            my $name = "iap_guard_requests_total{guard=\"$_\",verdict=\"passed\"}";
            $_ => $metrics->{$name} || 0
        } qw(global user);

        push @{ $mark{by} }, \%passed;
        $mark{$_} += $passed{$_} foreach keys %passed;
    }

    $mark{ended} = IapGuard::Loop::now();

    return \%mark;
}


sub within {
    my ($name, $passed, $least, $most) = @_;

    cmp_ok $passed, '>=', $least * (1 - WITHIN), "$name: not less than the limit";
    cmp_ok $passed, '<=', $most * (1 + WITHIN), "$name: nor more";

    note sprintf '%s: %d passed of %.0f to %.0f, %+.2f %% to %+.2f %%', $name,
        $passed, $least, $most, map { 100 * ($passed / $_ - 1) } $most, $least;

    return;
}
