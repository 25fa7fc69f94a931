#!/usr/bin/perl

# Bans of several machines with one store: two nginx, each with its zone, as
# two machines would have, and one redis-server that goes away, comes back,
# is flushed, and holds something else.  What one of them bans or lifts holds
# on the other within two seconds, and survives all of that.
#
# Runs beside others.

use strict;
use warnings;

use File::Temp ();
use FindBin;
use Test::More;
use Time::HiRes qw(sleep time);

use IapGuard::Loop;
use IapGuard::Nginx;
use IapGuard::RedisServer;

use constant {
    WORKERS  => 4,
    WITHIN   => 2,          # seconds, the promise
    BACK     => 4,          # the same, when the store has just come back
    LONGER   => 3,          # seconds after which nothing more is on its way
    LOG      => 'iap:{bans}:log',
    WATCHED  => 5,          # seconds
    READINGS => [8, 12],    # of one machine in these
};

my $root    = "$FindBin::Bin/../..";
my %options = IapGuard::Nginx->options;
my $redis   = IapGuard::RedisServer->new;
my ($one, $two) = map { machine() } 1 .. 2;
my @all = ($one, $two);

by_a_segment();
by_the_api();
identities();
with_a_secret();
lifted_in_many_ways();
many();
remaining_time();
fresh_zone();
readings();
reloaded();
killed_workers();
store_away();
answer_too_late();
store_hangs();
flushed();
another_type();
counted();

foreach my $nginx (@all) {
    my @killed = qr/worker process \d+ exited on signal 9/;
    my @complaints = $nginx->complaints(@killed);

    $nginx->stop;
    is_deeply [@complaints, $nginx->complaints(@killed)], [],
        'no complaint in the error log';
}

done_testing;


sub machine {
    my (%more) = @_;
    my $node = $redis->node;

    my $http = $more{http} || '';

    return IapGuard::Nginx->new(%options, workers => WORKERS, level => 'info',
        http => <<"END", server => <<'END')->start;
    iap_guard_zone   iap 4m;
    iap_guard_redis  redis://$node timeout=500ms nodes=2;
    $http
END
        location = /redeem {
            iap_guard          redeem;
            iap_guard_segment  ipv4=24 users=2 window=1h ban=1h
                               address=$http_x_address;
            iap_guard_user     $http_x_user_id;
            empty_gif;
        }

        location = /verify {
            iap_guard         verify;
            iap_guard_user    $http_x_user_id;
            iap_guard_device  $http_x_device_id;
            empty_gif;
        }
END
}


# "200", or "429 ban"

sub answer {
    my ($nginx, $path, %headers) = @_;
    my $answer = $nginx->get($path, %headers);

    return $answer->{error} if $answer->{error};
    return $answer->{status} == 200 ? '200'
        : $answer->{status} . ' ' . ($answer->{body} =~ /"layer":"(\w+)"/)[0];
}


sub redeem {
    my ($nginx, $user, $address) = @_;
    return answer($nginx, '/redeem', 'X-User-Id' => $user,
                  'X-Address' => $address);
}


sub verify {
    my ($nginx, $user) = @_;
    return answer($nginx, '/verify', 'X-User-Id' => $user);
}


# All bans of a guard: "layer key", sorted

sub bans {
    my ($nginx, $guard) = @_;

    return join ', ', sort map { "$_->{layer} $_->{key}" }
                      grep { $_->{guard} eq $guard }
                      @{ $nginx->api_json('GET', 'bans') };
}


# The seconds that are left of the ban of a key; 0: there is none

sub left {
    my ($nginx, $key) = @_;
    my ($ban) = grep { $_->{key} eq $key } @{ $nginx->api_json('GET', 'bans') };

    return $ban ? $ban->{seconds} : 0;
}


sub lift {
    my ($nginx, $arguments) = @_;
    return $nginx->api_json('DELETE', "bans?$arguments")->{lifted};
}


sub in_time {
    my ($name, $condition, $seconds) = @_;
    my $begun = IapGuard::Loop::now();

    ok(IapGuard::Nginx->wait_for($seconds || WITHIN, $condition), $name);
    note sprintf '%.1f s: %s', IapGuard::Loop::now() - $begun, $name;

    return;
}


# Leaves nothing behind, on any machine

sub clear {
    foreach my $guard (qw(redeem verify)) {
        lift($one, "guard=$guard");
    }

    IapGuard::Nginx->wait_for(BACK, sub {
        return !grep { bans($_, 'redeem') . bans($_, 'verify') } @all;
    }) or fail('all bans are lifted');

    return;
}


sub by_a_segment {
    is redeem($one, 'u1', '10.0.0.1'), '200', 'segment: the first user';
    is redeem($two, 'u2', '10.0.0.2'), '200',
        'segment: the second, on the other machine';
    is redeem($one, 'u3', '10.0.0.3'), '429 segment', 'segment: one too many';
    is redeem($one, 'u1', '10.0.0.1'), '429 ban', 'segment: banned there';

    in_time('segment: and on the other machine',
            sub { redeem($two, 'u2', '10.0.0.2') eq '429 ban' });
    is redeem($two, 'u2', '10.0.1.2'), '200', 'segment: its neighbours are not';

    my $left = left($two, '10.0.0.0/24');
    ok $left > 3590 && $left <= 3600, "segment: for as long: $left";

    # lifted where it was not made; what the store has counted is forgotten,
    # and what the other one remembers of the store's refusal as well

    is lift($two, 'guard=redeem&layer=segment&key=10.0.0.0/24'), 1,
        'segment: lifted on the other machine';
    in_time('segment: forgotten in the store', sub {
        !@{ $redis->command('KEYS', 'iap:redeem:segment/*:10.0.0.0/24') } });
    is redeem($two, 'u4', '10.0.0.4'), '200',
        'segment: there, a new user passes at once';
    in_time('segment: lifted on the first machine',
            sub { bans($one, 'redeem') eq '' });
    is redeem($one, 'u3', '10.0.0.3'), '200',
        'segment: there, who was refused passes';

    clear();

    return;
}


# Nobody asks for it: what is in the list is in the zone

sub by_the_api {
    $one->ban('redeem', 'segment', '10.1.0.0/16', 600);
    in_time('API: a ban', sub { redeem($two, 'u1', '10.1.9.9') eq '429 ban' });
    is bans($two, 'redeem'), 'segment 10.1.0.0/16', 'API: as it is listed';
    is bans($two, 'verify'), '', 'API: not for another guard';

    $two->ban('redeem', 'segment', '10.1.0.0/16', 6000);
    in_time('API: prolonged', sub { left($one, '10.1.0.0/16') > 5000 });

    is lift($one, 'key=10.1.0.0/16'), 1, 'API: lifted';
    in_time('API: a lift', sub { bans($two, 'redeem') eq '' });
    is redeem($two, 'u1', '10.1.9.9'), '200', 'API: passes again';

    $two->ban('redeem', 'segment', '2001:db8::/40', 600);
    in_time('API: IPv6, the other way',
            sub { bans($one, 'redeem') eq 'segment 2001:db8::/40' });
    is redeem($one, 'u1', '2001:db8:1::1'), '429 ban', 'API: and holds';

    clear();

    return;
}


sub identities {
    my $long = 'x' x 100;

    $one->ban('verify', 'user', 'mallory', 600);
    $one->ban('verify', 'device', 'mallory', 600);
    $one->ban('verify', 'user', $long, 600);

    in_time('identities: banned', sub { verify($two, 'mallory') eq '429 ban' });
    in_time('identities: by its hash', sub { verify($two, $long) eq '429 ban' });
    is answer($two, '/verify', 'X-User-Id' => 'u',
              'X-Device-Id' => 'mallory'), '429 ban', 'identities: a device';
    is verify($two, 'alice'), '200', 'identities: nobody else';
    is redeem($two, 'mallory', '10.9.9.9'), '200',
        'identities: nor in another guard';

    is lift($two, "key=$long"), 1, 'identities: lifted by what it was';
    in_time('identities: lifted', sub { verify($one, $long) eq '200' });
    is verify($one, 'mallory'), '429 ban', 'identities: that one only';

    clear();

    return;
}


# Identities are hashed, so that what is lifted by a key has two texts

sub with_a_secret {
    my $file = File::Temp->new(TEMPLATE => 'iap_guard-secret-XXXXXX',
                               TMPDIR => 1);

    print {$file} "open-sesame\n";
    close $file;

    my ($a, $b) = map {
        machine(http => "iap_guard_key_secret $file;")
    } 1 .. 2;

    $a->ban('redeem', 'segment', '10.0.0.1', 600);
    $a->ban('redeem', 'user', '10.0.0.1', 600);
    $a->ban('redeem', 'user', 'mallory', 600);

    in_time('secret: a user', sub { redeem($b, 'mallory', '10.0.1.1')
                                    eq '429 ban' });
    unlike of_both($b), qr/mallory/, 'secret: not in the clear';
    is redeem($b, 'alice', '10.0.0.1'), '429 ban', 'secret: an address';

    is lift($b, 'key=10.0.0.1'), 2, 'secret: lifted, either meaning of it';
    in_time('secret: lifted there, too',
            sub { bans($a, 'redeem') =~ /^user ~[\w-]{43}$/ });

    lift($b, 'key=mallory');
    in_time('secret: and the rest', sub { bans($a, 'redeem') eq '' });

    foreach my $nginx ($a, $b) {
        $nginx->stop;
        is_deeply [$nginx->complaints], [], 'secret: no complaint';
    }

    return;
}


sub lifted_in_many_ways {
    my @bans = (['redeem', 'segment', '10.0.0.1/32'],
                ['redeem', 'user', '10.0.0.1'], ['redeem', 'user', 'mallory'],
                ['verify', 'segment', '10.0.0.1/32'],
                ['verify', 'user', 'mallory'], ['verify', 'device', 'mallory']);

    my %left = (
        'key=10.0.0.1'           => [2, 4, 5],
        'key=mallory'            => [0, 1, 3],
        'layer=user'             => [0, 3, 5],
        'guard=verify'           => [0, 1, 2],
        'layer=user&key=10.0.0.1' => [0, 2, 3, 4, 5],
        'guard=verify&key=mallory' => [0, 1, 2, 3],
        'guard=redeem&layer=segment&key=10.0.0.1' => [1 .. 5],
        'guard=redeem&layer=segment' => [1 .. 5],
    );

    my $all = listed(@bans);

    foreach my $arguments (sort keys %left) {
        $one->ban(@$_, 600) foreach @bans;
        in_time("before $arguments: all", sub { of_both($two) eq $all });

        is lift($two, $arguments), @bans - @{ $left{$arguments} },
            "$arguments: lifted there";

        my $rest = listed(@bans[@{ $left{$arguments} }]);
        in_time("$arguments: here, too", sub { of_both($one) eq $rest });
        is of_both($two), $rest, "$arguments: the same on both";
    }

    # one that knows no ban lifts all the same

    clear();
    $one->ban('verify', 'user', 'late', 600);
    lift($two, 'key=late');
    in_time('of a ban that is not known yet: lifted',
            sub { of_both($one) . of_both($two) eq '' });

    return;
}


sub listed {
    my (@bans) = @_;
    return join ', ', sort map { join ' ', @$_ } @bans;
}


sub of_both {
    my ($nginx) = @_;

    return listed(map { [@$_{qw(guard layer key)}] }
                      @{ $nginx->api_json('GET', 'bans') });
}


# More than are written, or read, at once

sub many {
    my $n = 400;

    $one->ban('verify', 'user', "many$_", 600) foreach 1 .. $n;
    in_time("many: all $n", sub {
        return scalar(@{ $two->api_json('GET', 'bans') }) == $n;
    });

    # those who read it from the beginning need more than one reading

    foreach my $call (1 .. 20) {
        $redis->script("$root/lua/ban.lua", [LOG], 1, 0, map {
            ($_, 'ban', 'verify', 'user', "again$_", 600_000) } 1 .. 200);
    }

    $one->ban('verify', 'user', 'last', 600);

    my $three = machine();
    in_time("many: all, in a fresh zone", sub {
        return scalar(@{ $three->api_json('GET', 'bans') }) == $n + 201;
    });
    $three->stop;

    lift($two, "key=many$_") foreach 1 .. $n;
    in_time('many: all lifted', sub { bans($one, 'verify') !~ /many/ });

    clear();

    return;
}


sub remaining_time {
    $one->ban('verify', 'user', 'short', 3);
    in_time('time: banned', sub { verify($two, 'short') eq '429 ban' });

    sleep 3.1;
    is verify($two, 'short'), '200', 'time: over when it is over';
    is bans($two, 'verify'), '', 'time: and not in the list';

    return;
}


# A machine that starts, or starts anew, knows what is in force

sub fresh_zone {
    my $begun = IapGuard::Loop::now();

    $one->ban('verify', 'user', 'fresh', 600);
    $one->ban('verify', 'user', 'pardoned', 600);
    $one->ban('verify', 'user', 'over', 1);
    $two->ban('redeem', 'segment', '10.2.0.0/16', 60);
    lift($two, 'key=pardoned');
    sleep 2.5;

    $two->stop;
    $two = $all[1] = machine();

    in_time('fresh zone: knows all bans', sub {
        return of_both($two) eq 'redeem segment 10.2.0.0/16, '
                                . 'verify user fresh';
    });

    my $passed = IapGuard::Loop::now() - $begun;
    my $left   = left($two, '10.2.0.0/16');

    ok $left <= 60 - $passed + 2 && $left >= 60 - $passed - 2,
        "fresh zone: with the time that is left: $left of 60 after $passed";
    is redeem($two, 'u1', '10.2.3.4'), '429 ban', 'fresh zone: they hold';
    is scalar($two->log_lines(qr/"verify" bans fresh in layer "user"/)), 1,
        'fresh zone: said once, as information';

    clear();

    return;
}


# One worker of a machine reads, twice a second; no other one in between

sub readings {
    $two->stop;

    sleep 1;
    my $before = $redis->calls->{evalsha};
    sleep WATCHED;
    my $n = $redis->calls->{evalsha} - $before;

    my ($least, $most) = @{ +READINGS };
    cmp_ok $n, '>=', $least, "readings: $n in " . WATCHED . ' seconds';
    cmp_ok $n, '<=', $most, 'readings: not by each of ' . WORKERS . ' workers';

    $two = $all[1] = machine();

    return;
}


sub reloaded {
    foreach my $i (1 .. 3) {
        ok $one->reload, 'reload';
        $two->ban('verify', 'user', "reload$i", 600);
        in_time('reload: what others ban', sub { left($one, "reload$i") });

        $one->ban('verify', 'user', "back$i", 600);
        in_time('reload: what it bans', sub { left($two, "back$i") });
    }

    clear();

    return;
}


sub killed_workers {
    foreach my $n (1, 2, WORKERS) {
        my @workers = $one->workers;

        kill 'KILL', @workers[0 .. $n - 1];
        $two->ban('verify', 'user', "kill$n", 600);
        in_time("$n workers killed: others go on",
                sub { eval { left($one, "kill$n") } });

        IapGuard::Nginx->wait_for(5, sub { $one->workers == WORKERS });
    }

    clear();

    return;
}


# It comes back empty

sub store_away {
    $one->ban('verify', 'user', 'before', 600);
    $one->ban('verify', 'user', 'lifted', 600);
    in_time('away: known before', sub { left($two, 'lifted') });

    $redis->kill;

    is lift($one, 'key=lifted'), 1, 'away: lifted meanwhile';
    $one->ban('verify', 'user', 'made', 60);
    $one->ban('verify', 'user', 'changed-mind', 600);
    $one->ban('verify', 'user', 'brief', 2);
    lift($one, 'key=changed-mind');
    sleep LONGER;

    is verify($two, 'before'), '429 ban', 'away: what is known holds';
    is left($two, 'made'), 0, '(away: the store is the only way)';

    $redis->start;

    in_time('back: a ban made meanwhile', sub { left($two, 'made') }, BACK);
    my $left = left($two, 'made');
    ok $left <= 60 - LONGER + 1 && $left > 40,
        "back: less the time that has passed: $left";
    in_time('back: a lift made meanwhile',
            sub { verify($two, 'lifted') eq '200' }, BACK);

    sleep LONGER;
    is bans($two, 'verify'), 'user before, user made',
        'back: what was over or lifted by then never comes';
    is bans($one, 'verify'), 'user before, user made', 'back: nor comes back';

    # not at all by one whose workers have not failed often enough yet

    foreach my $nginx (@all) {
        my @lines = $nginx->log_lines(qr/\[error\].* (?:redis|log of bans)/);
        cmp_ok scalar(@lines), '<=', 2, 'away and back: said once each';
    }

    clear();

    return;
}


# What was carried out although nobody waited for the answer any more is not
# done twice.

sub answer_too_late {
    sleep 1;
    $redis->freeze;
    $one->ban('verify', 'user', 'late', 600);
    sleep 0.9;
    $redis->thaw;

    in_time('late: banned', sub { left($two, 'late') }, BACK);
    sleep 2;

    my $entries = $redis->command('XRANGE', LOG, '-', '+');
    is scalar(grep { grep { $_ eq 'late' } @{ $_->[1] } } @$entries), 1,
        'late: written once';

    clear();

    return;
}


# It answers nothing, keeps its connections, and then does what it was told

sub store_hangs {
    sleep 1;                    # what was lifted before has been read
    $redis->freeze;
    $one->ban('verify', 'user', 'made', 600);
    $two->ban('verify', 'user', 'other', 600);
    sleep LONGER;

    # workers that leave with calls under way, and changes that wait; so they
    # are lost, but nothing else is

    $one->ban('verify', 'user', 'kept', 600);
    ok $one->reload, 'hangs: reload';
    $redis->thaw;
    $one->ban('verify', 'user', 'made', 600);

    in_time('hangs: both ways', sub {
        return bans($one, 'verify') eq 'user kept, user made, user other'
               && bans($two, 'verify') =~ /user made, user other$/;
    }, BACK);

    clear();

    return;
}


sub flushed {
    $one->ban('verify', 'user', 'before', 600);
    in_time('flush: known before', sub { left($two, 'before') });

    $redis->command('FLUSHALL');
    sleep LONGER;
    is verify($_, 'before'), '429 ban', 'flush: bans stay in force'
        foreach @all;

    $one->ban('verify', 'user', 'after', 600);
    in_time('flush: a ban after it', sub { left($two, 'after') });
    lift($two, 'key=before');
    in_time('flush: a lift after it', sub { !left($one, 'before') });

    # ids that begin again far below those that were read

    $redis->command('DEL', LOG);
    $redis->command('XADD', LOG, '1-1', qw(machine 1 op ban guard verify layer
                    user key behind until), int(time * 1000) + 600_000);
    in_time('flush: a log whose clock is behind', sub {
        return !grep { !left($_, 'behind') } @all;
    });

    clear();

    return;
}


sub another_type {
    $redis->command('DEL', LOG);
    $redis->command('SET', LOG, 'x');

    $one->ban('verify', 'user', 'mallory', 600);
    sleep LONGER;
    is verify($one, 'mallory'), '429 ban', 'type: bans hold where they are made';
    is verify($two, 'mallory'), '200', 'type: and go nowhere';
    is verify($two, 'alice'), '200', 'type: the store is not down for that';

    my @lines = $two->log_lines(qr/"iap:\{bans}:log" can't be read: WRONGTYPE/);
    cmp_ok scalar(@lines), '>=', 1, 'type: said';
    cmp_ok scalar(@lines), '<=', WORKERS, 'type: once for each worker';

    @lines = $one->log_lines(qr/"iap:\{bans}:log" can't be written: WRONGTYPE/);
    is scalar(@lines), 1, 'type: of writing as well, once';

    $redis->command('DEL', LOG);
    in_time('type: mended, the ban goes out', sub { left($two, 'mallory') });

    # malformed entries, and those of guards and layers that are not here

    $redis->command('XADD', LOG, '*', @$_) foreach
        ['x', 'y'],
        [qw(machine 1 op ban guard none layer user key k until),
         int(time * 1000) + 600_000],
        [qw(machine 1 op ban guard verify layer none key k until),
         int(time * 1000) + 600_000],
        [qw(machine 1 op ban guard verify layer segment key k until),
         int(time * 1000) + 600_000],
        [qw(machine 1 op ban guard verify layer segment key 10.0.0.0/33 until),
         int(time * 1000) + 600_000],
        [qw(machine 1 op ban guard verify layer user key endless until),
         '9' x 15];

    in_time('odd entries: what can be taken is',
            sub { bans($two, 'verify') eq 'user endless, user mallory' });
    my $left = left($two, 'endless');
    ok $left > 31_535_000 && $left <= 31_536_000, "and for a year: $left";

    clear();

    return;
}


# Each ban is counted by the machine that made it

sub counted {
    my @before = map { $_->metric('iap_guard_bans_total') } @all;

    $one->ban('verify', 'user', "count$_", 600) foreach 1 .. 3;
    $two->ban('verify', 'user', "count$_", 600) foreach 4 .. 5;

    in_time('counted: in force', sub {
        return !grep { $_->metric('iap_guard_bans') != 5 } @all;
    });

    sleep 1;
    is_deeply [map { $all[$_]->metric('iap_guard_bans_total') - $before[$_] }
                   0, 1], [3, 2], 'counted: where they were made';

    clear();

    return;
}
