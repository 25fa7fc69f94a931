#!/usr/bin/perl

# Workers killed under load, reloads under load, a binary upgrade under load:
# what was decided before stays decided, and somebody always answers.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(sleep);

use IapGuard::Child;
use IapGuard::Loop;
use IapGuard::Nginx;
use IapGuard::Wrk;

use constant {
    WORKERS      => 4,
    SPENT        => 100,        # users without a token left
    KILLS        => 400,        # rounds
    KILL_SECONDS => 20,         # that they may take together
    RELOADS      => 20,

    ANSWER       => 1,          # seconds
    LOAD_LIMIT   => 60,
};

# what nginx itself says, as an alert, of a process that was killed; and of
# one that held the lock of a zone, which it then opens

my $KILLED = qr/worker process \d+ exited on signal 9/;
my $LOCKED = qr/shared memory zone "iap#\d+" was locked by \d+/;

my $slowest = 0;

my $nginx = IapGuard::Nginx->new(IapGuard::Nginx->options,
    workers => WORKERS, http => '    iap_guard_zone  iap 16m;',
    server => <<'END')->start;
        location = /redeem {
            iap_guard          redeem;
            iap_guard_segment  users=100000 window=1h
                               address=$http_x_address;
            iap_guard_user     $http_x_user_id capacity=2 rate=1r/h;
            empty_gif;
        }

        location = /switched {
            iap_guard        switched;
            iap_guard_user   $http_x_user_id capacity=1 rate=1r/d;
            empty_gif;
        }

        # much to do under the lock

        location = /load {
            iap_guard          load;
            iap_guard_segment  users=1000000 window=1m;
            iap_guard_segment  ipv4=24 ipv6=48 users=1000000 window=1m;
            iap_guard_segment  ipv4=16 ipv6=32 users=1000000 window=1m;
            iap_guard_user     $http_x_user_id   capacity=100 rate=100r/s;
            iap_guard_device   $http_x_device_id capacity=100 rate=100r/s;
            iap_guard_bucket   agent $http_x_user_id$http_x_device_id
                               capacity=100 rate=100r/s;
            iap_guard_global   rate=100000r/s window=1m;
            empty_gif;
        }
END

prepare();
killed_workers();
reloads();
binary_upgrade();

my @complaints = $nginx->complaints($KILLED, $LOCKED);
$nginx->stop;
is_deeply [@complaints, $nginx->complaints($KILLED, $LOCKED)], [],
    'the error log has no complaint but of what was killed';

done_testing;


sub prepare {
    $nginx->ban('redeem', 'segment', '203.0.113.0/24', 3600);
    $nginx->ban('redeem', 'user', 'banned-user', 3600);
    $nginx->api('PUT', 'guards/switched', '{"mode":"off"}');

    my @answers = $nginx->ask(map { ([spent($_)]) x 3 } 1 .. SPENT);

    is scalar(grep { $_->{status} == 200 } @answers), 2 * SPENT,
        'before: ' . SPENT . ' users spend their tokens';
    is_deeply [broken(1 .. SPENT)], [],
        'before: a ban, a user\'s ban, a switched guard, no token left';

    return;
}


sub spent {
    my ($i) = @_;
    return '/redeem', 'X-User-Id' => "spent$i",
           'X-Address' => '198.51.100.7';
}


# What does not hold any more: one text each.

sub broken {
    my (@users) = @_;
    my @broken;

    my @expected = (
        (map { [ [spent($_)], 429, 'user' ] } @users),
        [ ['/redeem', 'X-User-Id' => 'new', 'X-Address' => '203.0.113.77'],
          429, 'ban' ],
        [ ['/redeem', 'X-User-Id' => 'banned-user',
           'X-Address' => '198.51.100.8'], 429, 'ban' ],
        ([ ['/switched', 'X-User-Id' => 'same'], 200 ]) x 2,
    );

    foreach my $case (@expected) {
        my ($request, $status, $layer) = @$case;
        my $answer = answer(@$request);

        push @broken, join ' ', @$request, '->',
                      $answer->{status} || $answer->{error}, $answer->{body}
            unless ($answer->{status} || 0) == $status
                   && (!$layer || $answer->{body} =~ /"layer":"$layer"/);
    }

    return @broken;
}


# A connection may have been accepted by a worker that died with it, so a
# request without an answer is made again; both have a second together.

sub answer {
    my (@request) = @_;
    my $begun = IapGuard::Loop::now();
    my ($answer, $seconds);

    do {
        $answer  = $nginx->get(@request);
        $seconds = IapGuard::Loop::now() - $begun;
    } while $answer->{error} && $seconds < ANSWER;

    $slowest = $seconds if $seconds > $slowest;

    return $answer;
}


sub load {
    my (%send) = @_;

    return IapGuard::Wrk->start(
        url => $nginx->url('/load'), threads => 2, connections => 32,
        seconds => LOAD_LIMIT,
        send => { header => 'X-User-Id:u%d', header2 => 'X-Device-Id:d%d',
                  last => 50_000, %send });
}


sub killed_workers {
    my $wrk   = load(order => 'random', prepare => 1);
    my $until = IapGuard::Loop::now() + KILL_SECONDS;
    my ($rounds, $killed, %broken) = (0, 0);

    # readers of the bans take the lock, too

    while ($rounds < KILLS && IapGuard::Loop::now() < $until) {
        my @workers = $nginx->workers;
        my $n = $rounds % 10 == 0 ? @workers : 1;       # at times all

        foreach (1 .. $n) {
            my $victim = splice @workers, rand @workers, 1 or last;
            $killed += kill 'KILL', $victim;
        }

        $broken{$_}++ foreach broken(1 + int rand SPENT);
        $nginx->api('GET', 'bans') if $rounds % 10 == 5;
        $rounds++;
    }

    ok $wrk->running, 'kills: the load lasted';
    my $result = $wrk->stop;

    is_deeply \%broken, {}, "kills: nothing was lost in any of $rounds rounds";
    is_deeply [broken(1 .. SPENT)], [], 'kills: nor after them';
    cmp_ok $slowest, '<', ANSWER, 'kills: an answer within a second, always';

    ok $nginx->wait_for(5, sub { $nginx->workers == WORKERS }),
        'kills: all workers are there again';
    is mode_of('switched'), 'off', 'kills: the kill switch is kept';

    cmp_ok $killed, '>=', 20, 'kills: there were some';

    my $locked = () = $nginx->log_lines($LOCKED);
    note "$killed workers killed, $locked of them in the lock; "
        . "$result->{requests} requests meanwhile";
    note sprintf 'slowest answer: %.3f s', $slowest;

    return;
}


# Each request has a connection of its own: a kept one may be closed by the
# old worker in the moment in which the next request is sent on it.

sub reloads {
    my $wrk    = load(close => 1, delay => '2-6');
    my $failed = 0;
    my %broken;

    $slowest = 0;

    foreach my $i (1 .. RELOADS) {
        $failed++ unless $nginx->reload;
        $broken{$_}++ foreach broken(1 + int rand SPENT);
    }

    no_failure('reloads', $wrk);

    is $failed, 0, 'reloads: ' . RELOADS . ' times there were new workers';
    is_deeply \%broken, {}, 'reloads: nothing was lost meanwhile';
    is_deeply [broken(1 .. SPENT)], [], 'reloads: nor after them';
    cmp_ok $slowest, '<', ANSWER, 'reloads: an answer within a second, always';
    is mode_of('switched'), 'off', 'reloads: the kill switch is kept';
    is scalar($nginx->log_lines(qr/is a fresh one/)), 0,
        'reloads: the zone is the same';

    return;
}


sub binary_upgrade {
    my $wrk = load(close => 1, delay => '2-6');
    my $old = $nginx->master;

    sleep 0.5;
    kill 'USR2', $old;

    ok $nginx->wait_for(10, sub {
        my $new = $nginx->master;
        return $new && $new != $old && $nginx->master('.oldbin') == $old
               && $nginx->workers($new) == WORKERS;
    }), 'upgrade: a new master has workers';

    sleep 0.5;
    kill 'WINCH', $old;

    ok $nginx->wait_for(10, sub { !$nginx->all_workers($old) }),
        'upgrade: the old workers went';

    kill 'QUIT', $old;

    ok $nginx->wait_for(10, sub { !IapGuard::Child->alive($old) }),
        'upgrade: the old master went';

    sleep 0.5;
    no_failure('upgrade', $wrk);

    # nginx repeats it on its stderr, which a daemon has made the log

    is scalar($nginx->log_lines(
                  qr/^\d.* is a fresh one, because of a binary upgrade/)), 1,
        'upgrade: the log says once that the zone is a fresh one';
    is mode_of('switched'), 'on', 'upgrade: as a fresh one it serves';

    my @answers = $nginx->ask(map { ([spent($_)]) x 3 } 1 .. SPENT);
    is scalar(grep { $_->{status} == 429 } @answers), SPENT,
        'upgrade: and counts anew';

    ok $nginx->reload, 'upgrade: the new master reloads';
    is_deeply [grep { $_->{status} != 429 }
                    $nginx->ask(map { [spent($_)] } 1 .. SPENT)], [],
        'upgrade: and keeps its zone';
    is scalar($nginx->log_lines(qr/^\d.* is a fresh one/)), 1,
        'upgrade: of which there is no more to say';

    return;
}


sub no_failure {
    my ($when, $wrk) = @_;

    ok $wrk->running, "$when: the load lasted";
    my $result = $wrk->stop;

    is(IapGuard::Wrk->failures($result), 0, "$when: no request failed")
        or diag join ' ', map { "$_=$result->{$_}" } sort keys %$result;
    is $result->{status}, 0, "$when: none was refused";
    cmp_ok $result->{requests}, '>', 500, "$when: there were many";

    note "$when: $result->{requests} requests";
    return;
}


sub mode_of {
    my ($guard) = @_;
    return $nginx->api_json('GET', "guards/$guard")->{mode};
}
