#!/usr/bin/perl

# Promo codes, rule by rule, before several workers and with many submissions at
# once: a unit of a failed one is back at once, a user gets one, the last one has
# one winner, whoever guesses is stopped, and what is sold out costs the store
# next to nothing.
#
# Runs beside others.

use strict;
use warnings;

use List::Util qw(max);
use Test::More;
use Time::HiRes qw(sleep);

use IapGuard::CodeBackend;
use IapGuard::CodeTest;
use IapGuard::LoadClient;
use IapGuard::Loop;
use IapGuard::Nginx;
use IapGuard::RedisServer;

use constant {
    USERS    => 60,
    PARALLEL => 50,         # submissions of one user
    ROUNDS   => 25,         # of two users for the last unit
    SOLD_OUT => 10_000,     # submissions of a code that is
    HANDFUL  => 24,         # commands; there are eight workers
    ACCOUNTS => 60,         # of one device that guesses
};

my %paths = IapGuard::Nginx->options;

foreach my $store (qw(file redis)) {
    my $redis = $store eq 'file' ? undef : IapGuard::RedisServer->new(
        options => ['--appendonly', 'yes', '--maxmemory-policy', 'noeviction']);

    my $backend = IapGuard::CodeBackend->new->start->asked;

    my @machines = map {
        IapGuard::CodeTest->new(paths => \%paths, workers => 4,
            backend => $backend, redis => $redis, code => 'lease=20s attempts=5r/h',
            listen => 'reuseport', connections => 4096,
            guard => 'iap_guard_device $http_x_device_id;')
    } 1 .. ($redis ? 2 : 1);

    failed($store, @machines);
    one_user($store, @machines);
    last_unit($store, @machines);
    guesses($store, @machines);
    sold_out($store, $redis, @machines);

    $_->end foreach @machines;
    $backend->stop;
}

done_testing;


# Submissions that go to the machines in turn, all at once

sub redeem_all {
    my ($machines, @submissions) = @_;
    my $loop = IapGuard::Loop->new;
    my $left = @submissions;
    my @answers;

    my @clients = map {
        IapGuard::LoadClient->new(loop => $loop, port => $_->nginx->port,
                                  timeout => 30, connections => 128)
    } @$machines;

    foreach my $i (0 .. $#submissions) {
        $clients[$i % @clients]->request(
            $machines->[0]->request(@{ $submissions[$i] }),
            sub { $answers[$i] = shift; $left-- });
    }

    $loop->run_until(sub { !$left });
    $_->shut foreach @clients;

    return @answers;
}


sub seen { return IapGuard::CodeTest->statuses(@_) }


# As many units as users; each is refused by the service first, and asks again
# with its next request, maybe of another machine.

sub failed {
    my ($store, @machines) = @_;
    my $test = $machines[0];

    $test->stock('FAILED', 1);

    foreach my $user (qw(u1 u2)) {
        is $machines[-1]->redeem('FAILED', $user, outcome => '500')->{status},
           500, "$store: a failure is passed on";
        is $test->code('FAILED')->{free}, 1, "$store: the unit is back";
    }

    is $test->redeem('FAILED', 'u1')->{status}, 200,
       "$store: the same user may try again at once";
    is $machines[-1]->redeem('FAILED', 'u2')->{status}, 409,
       "$store: and then it is gone";

    $test->stock('EACH', USERS);

    my $loop = IapGuard::Loop->new;
    my $left = USERS;
    my @statuses;

    my @clients = map {
        IapGuard::LoadClient->new(loop => $loop, port => $_->nginx->port,
                                  timeout => 30)
    } @machines;

    foreach my $i (1 .. USERS) {
        $clients[$i % @clients]->request(
            $test->request('EACH', "e$i", outcome => '500'), sub {
                push @statuses, $_[0];
                $clients[($i + 1) % @clients]->request(
                    $test->request('EACH', "e$i", outcome => 'ok'),
                    sub { push @statuses, $_[0]; $left-- });
            });
    }

    $loop->run_until(sub { !$left });
    $_->shut foreach @clients;

    is_deeply seen(@statuses), { 500 => USERS, 200 => USERS },
        "$store: so many units, so many users: each fails once, and gets one";
    $test->is_balanced('EACH', $store, sold => USERS, reserved => 0, free => 0);

    return;
}


sub one_user {
    my ($store, @machines) = @_;
    my $test = $machines[0];

    $test->stock('MINE', 100);

    my @answers = redeem_all(\@machines,
        (['MINE', 'greedy', outcome => 'slow:0.5']) x PARALLEL);

    is_deeply seen(@answers), { 200 => 1, 409 => PARALLEL - 1 },
        "$store: of so many submissions of one user one is let through";
    is scalar(grep { $_->{body} =~ /"error":"in_progress"/ } @answers),
       PARALLEL - 1, "$store: the others are told why";
    $test->is_balanced('MINE', "$store: one user", sold => 1, reserved => 0,
                       free => 99);

    @answers = redeem_all(\@machines, (['MINE', 'greedy']) x PARALLEL);

    is_deeply seen(@answers), { 200 => PARALLEL },
        "$store: afterwards all are told the same";
    is scalar(grep { $_->{headers}{'x-verdict'} ne 'duplicate'
                     || $_->{body} !~ /^\{"status":"redeemed"\}/ } @answers),
       0, "$store: that it is redeemed already";
    is $test->code('MINE')->{sold}, 1, "$store: and it was one unit";
    is $test->backend->granted->{MINE}{greedy}, 1,
       "$store: which was given once";

    return;
}


sub last_unit {
    my ($store, @machines) = @_;
    my $test = $machines[0];
    my @wrong;

    foreach my $round (1 .. ROUNDS) {
        $test->stock("LAST$round", 1);

        my $seen = seen(redeem_all(\@machines,
            map { ["LAST$round", "r$round-$_"] } 1, 2));

        push @wrong, $seen
            if ($seen->{200} || 0) != 1 || ($seen->{409} || 0) != 1;
    }

    is_deeply \@wrong, [], "$store: of two for the last unit one gets it, "
        . 'each time';
    is_deeply [grep { $_->{sold} != 1 || IapGuard::CodeTest->unbalanced($_) }
                    map { $test->audit("LAST$_") } 1 .. ROUNDS], [],
        "$store: and one is sold";

    return;
}


# Each account asks once, and slowly, so that no other layer minds

sub guesses {
    my ($store, @machines) = @_;
    my $test = $machines[0];

    $test->stock('SECRET', 5);

    foreach my $i (1 .. ACCOUNTS) {
        $machines[$i % @machines]->redeem("GUESS$i", "g$i", device => 'bad');
        sleep 0.02;
    }

    is $machines[-1]->redeem('SECRET', 'lucky', device => 'bad')->{status},
       409, "$store: who guesses learns nothing, not even by being right";
    is $test->code('SECRET')->{free}, 5, "$store: and gets nothing";
    is $test->redeem('SECRET', 'honest', device => 'good')->{status}, 200,
       "$store: another device does";
    is $test->redeem('SECRET', 'g1', device => 'other')->{status}, 200,
       "$store: and so does one of the accounts, elsewhere";

    return;
}


sub sold_out {
    my ($store, $redis, @machines) = @_;
    my $test = $machines[0];

    $test->stock('GONE', 1);
    is $test->redeem('GONE', 'first')->{status}, 200, "$store: the only unit";

    my $before = commands($redis);
    my $begun  = IapGuard::Loop::now();

    my @answers = redeem_all(\@machines,
        map { ['GONE', "s$_"] } 1 .. SOLD_OUT);

    my $took   = IapGuard::Loop::now() - $begun;
    my $asked  = commands($redis) - $before;

    is_deeply seen(@answers), { 409 => SOLD_OUT },
        "$store: all are told that there is none";

    # on a slow machine they have to ask once more

    cmp_ok $asked, '<=', HANDFUL * max(1, $took / 3),
        "$store: " . SOLD_OUT . " submissions of it, $asked commands";
    note sprintf '%s: that took %.1f s', $store, $took;

    return;
}


# Scripts that Redis was asked to run, but for the look into the log of bans

sub commands {
    my ($redis) = @_;
    return 0 unless $redis;

    my $calls = $redis->calls;
    my $n = 0;

    $n += $calls->{$_} || 0 foreach qw(eval evalsha fcall);

    return $n - ($calls->{xrange} || 0);
}
