#!/usr/bin/perl

# The ledger in Redis, with the file as its spool: two nginx, each with a file
# of its own, and one Redis.
#
# With a Redis that knows WAITAOF (7.2 and later) less is asked of it than of
# one that does not; both are tested by whichever REDIS_SERVER is.
#
#     perl -It/lib t/load/queue_redis.pl [SCENARIO...]

use strict;
use warnings;

use FindBin;
use Test::More;
use Time::HiRes qw(sleep);

use IapGuard::DrainTest;
use IapGuard::Loop;
use IapGuard::QueueTest;
use IapGuard::RedisServer;
use IapGuard::Together;
use IapGuard::WaitRedis;

use constant LEASE => 15;   # seconds, after which another machine takes over

my %paths = paths();

IapGuard::Together->run(4,
    taken_over    => \&taken_over,
    away_for_long => \&away_for_long,
    promises      => \&promises,
    too_long      => \&too_long,
    written       => \&written,
    rights        => \&rights,
    away          => \&away,
    asleep        => \&asleep,
    before        => \&before,
    accepted      => \&accepted,
    full          => \&full,
    replicas      => \&replicas,
    memory        => \&memory,
    left_behind   => \&left_behind,
    same_key      => \&same_key,
    handed_over   => \&handed_over,
);


sub accepted {
    my $redis = redis();
    my ($one, $two) = machines(2, $redis);

    $one->peers->always('/verify', 'http:503');

    my $begun   = IapGuard::Loop::now();
    my @tickets = ($one->put_many(300, bodies('a')),
                   $two->put_many(300, bodies('b')));
    my $seconds = IapGuard::Loop::now() - $begun;

    is scalar(grep { defined } @tickets), 600, 'accepted: all';
    is in_redis($redis, 'pending'), 600, 'accepted: all are in Redis';
    is statuses($two, @tickets[0 .. 19, 580 .. 599]), 'pending:40',
        'accepted: one machine knows the tickets of both';
    is spooled($one) + spooled($two), 0, 'accepted: none is in a file';

    my $calls = $redis->calls;
    note sprintf 'accepted: %.0f a second', 600 / $seconds;

    $one->peers->always('/verify', undef);
    verified_all('accepted', $one, @tickets);
    told_once('accepted', $two, 600);
    is $one->queue->{verified}, 600, 'accepted: as is counted';

    my %seen;
    $seen{ $_->{id} }++ foreach grep { $_->{step} eq 'ok' }
                                $one->peers->calls('/verify');
    is scalar(grep { $_ > 1 } values %seen), 0,
        'accepted: each was verified by one machine';

    is $one->ticket('a' x 26)->{status}, 404, 'accepted: no such ticket';
    end($one, $two);

    return;
}


# nginx starts, and there is no Redis yet.

sub before {
    my $redis = redis();
    $redis->kill;

    my ($one) = machines(1, $redis);

    $one->peers->always('/verify', 'http:503');
    my @tickets = $one->put_many(20, bodies('a'));
    is scalar(grep { defined } @tickets), 20, 'before: accepted';
    is spooled($one), 20, 'before: by the file';

    $redis->start;
    ok settled(MOVED, sub { spooled($one) == 0 }), 'before: there it is';
    push @tickets, $one->put({ id => 'b' });
    is in_redis($redis, 'pending'), 21, 'before: and has all of them';

    $one->peers->always('/verify', undef);
    verified_all('before', $one, @tickets);
    told_once('before', $one, 21);
    end($one);

    return;
}


# The rights that the documentation names are enough; one that is missing is
# said once, and as long as it takes.

sub rights {
    my $redis = redis();
    my $text  = do {
        local $/;
        open my $file, '<', "$FindBin::Bin/../../docs/redis.md" or die "$!\n";
        <$file>;
    };

    my ($counters, $ledger) = $text =~ /^## Rights\n.*?```\n(.*?)```.*?```\n(.*?)```/ms;
    my @words = split ' ', "$counters $ledger";

    # a server may not know all of them

    @words = grep { /^-@|^\+config\|/ || !/^\+(.*)/
                    || @{ $redis->command('COMMAND', 'INFO', $1)->[0] || [] } }
             @words;
    $redis->command(@words);

    my $secret = $redis->folder . '/secret';
    open my $file, '>', $secret or die "$secret: $!\n";
    print {$file} "secret\n";
    close $file;

    my ($one) = machines(1, $redis, redis => "user=guard password_file=$secret");

    $one->peers->always('/verify', 'http:503');
    my @tickets = $one->put_many(20, bodies('a'));
    is in_redis($redis, 'pending'), 20, 'rights: they are enough';
    is lines($one, qr/promises less|NOPERM|is down/), 0, 'rights: for all';

    # it breaks what is being put in the middle, which Redis does not undo

    $redis->command('ACL', 'SETUSER', 'guard', '-zscore');
    push @tickets, map { $one->put({ id => "b$_" }) } 1 .. 10;
    ok settled(5, sub { lines($one, qr/ledger: redis \S+ is down: (?:NOPERM|ERR)/) }),
        'rights: one is missing, which is said';
    cmp_ok spooled($one), '>=', 10, 'rights: and accepted by the file';
    sleep 3;
    is lines($one, qr/ledger: redis \S+ is (?:down|up)/), 1, 'rights: said once';

    $redis->command('ACL', 'SETUSER', 'guard', '+zscore');
    ok settled(MOVED, sub { spooled($one) == 0 }), 'rights: there again, moved';

    # one that is missing when nginx starts: nothing is put, to be left half done

    $redis->command('ACL', 'SETUSER', 'guard', '-zscore');
    ok $one->nginx->reload, 'rights: missing at the start';
    sleep 0.5;
    my $entries = $redis->command('HLEN', 'iap:{q:receipts}:entry');
    push @tickets, $one->put_many(10, bodies('c'));
    is scalar(grep { defined } @tickets), 40, 'rights: accepted all the same';
    is $redis->command('HLEN', 'iap:{q:receipts}:entry'), $entries,
        'rights: nothing was tried';

    $redis->command('ACL', 'SETUSER', 'guard', '+zscore');
    ok settled(MOVED, sub { spooled($one) == 0 }), 'rights: moved once more';

    $one->peers->always('/verify', undef);
    verified_all('rights', $one, @tickets);
    told_once('rights', $one, 40);
    end($one);

    return;
}


# What is said, what is done, and that it is said once by all workers

sub promises {
    my $redis = redis('--appendfsync', 'everysec');
    my ($one) = machines(1, $redis);
    my $knows = eval { $redis->command('WAITAOF', 0, 0, 1); 1 };
    my $less  = qr/redis promises less than "durability=aof"/;

    $one->peers->always('/verify', 'http:503');

    if ($knows) {
        is lines($one, $less), 0, 'promise: WAITAOF is enough';
    } else {
        is lines($one, qr/$less: it knows no WAITAOF, and "appendfsync" is "everysec"/),
            1, 'promise: too little, and why, once';
        my @tickets = $one->put_many(20, bodies('e'));
        is in_redis($redis, 'pending'), 0, 'promise: nothing is put there';
        is spooled($one), 20, 'promise: but into the file';
        is statuses($one, @tickets), 'pending:20', 'promise: and found';
    }

    $redis->command('CONFIG', 'SET', 'appendfsync', 'always');
    ok settled(MOVED, sub { spooled($one) == 0 }),
        'promise: kept again, the file is emptied';
    ok settled(5, sub {
        lines($one, qr/redis promises "durability=aof" again/) == !$knows }),
        'promise: which is said once';
    is in_redis($redis, 'pending'), $knows ? 0 : 20,
        'promise: into Redis';

    # a put is what finds it out, or the next look after ten seconds, where one
    # was under way

    $redis->command('CONFIG', 'SET', 'appendonly', 'no');
    my @tickets = $one->put_many(10, bodies('n'));
    is scalar(grep { defined } @tickets), 10, 'promise: broken, and accepted';
    is spooled($one), 10, 'promise: by the file';
    ok settled(12, sub { lines($one, $knows
               ? qr/$less: it says "ERR WAITAOF|$less: "appendonly" is "no"/
               : qr/$less: "appendonly" is "no"/) }),
        'promise: broken, and why';

    $redis->command('CONFIG', 'SET', 'appendonly', 'yes');
    ok settled(MOVED, sub { spooled($one) == 0 }), 'promise: kept again, moved';
    is statuses($one, @tickets), 'pending:10', 'promise: and found';

    # "always", but for when it rewrites its file; once all workers know that it is
    # well

    if (!$knows) {
        ok settled(12, sub {
            lines($one, qr/redis promises "durability=aof" again/) == 2 }),
            'promise: as is said again';
        $redis->command('CONFIG', 'SET', 'no-appendfsync-on-rewrite', 'yes');
        my @more = $one->put_many(10, bodies('o'));
        is spooled($one), 10, 'promise: not while it rewrites, nothing is put';
        ok settled(12, sub { lines($one,
            qr/$less: it knows no WAITAOF, and "no-appendfsync-on-rewrite" is "yes"/)
        }), 'promise: and why';
        $redis->command('CONFIG', 'SET', 'no-appendfsync-on-rewrite', 'no');
        ok settled(MOVED, sub { spooled($one) == 0 }), 'promise: kept again';
    }

    # a server that throws away

    is lines($one, qr/throws accepted requests away/), 0, 'eviction: none';
    $redis->command('CONFIG', 'SET', 'maxmemory', '1gb');
    $redis->command('CONFIG', 'SET', 'maxmemory-policy', 'allkeys-lru');
    ok settled(15, sub { lines($one, qr/throws accepted requests away/) }),
        'eviction: is warned of';

    end($one);

    return;
}


# WAITAOF, whatever it says

sub written {
    my $redis = IapGuard::WaitRedis->new(options => ['--appendonly', 'yes']);
    my ($one) = machines(1, $redis);
    my $less  = qr/redis promises less than "durability=aof"/;
    my @tickets;

    $one->peers->always('/verify', 'http:503');

    push @tickets, $one->put_many(20, bodies('a'));
    is in_redis($redis, 'pending'), 20, 'WAITAOF: it is written';
    is spooled($one), 0, 'WAITAOF: which is enough';
    is lines($one, $less), 0, 'WAITAOF: whatever "appendfsync" is';
    is join(' ', sort keys %{{ map { $_ => 1 } $redis->asked }}),
        '1 0 100 1 0 900', 'WAITAOF: on its own disk, within half of the time';

    $redis->waits('1', 0.5);
    my $begun = IapGuard::Loop::now();
    push @tickets, $one->put({ id => 'slow' });
    cmp_ok IapGuard::Loop::now() - $begun, '>=', 0.5, 'WAITAOF: is waited for';
    is spooled($one), 0, 'WAITAOF: and comes in time';

    # it is in both then, which is one

    $redis->waits('0');
    push @tickets, $one->put_many(20, bodies('b'));
    is in_redis($redis, 'pending'), 41, 'WAITAOF: not written yet';
    is spooled($one), 20, 'WAITAOF: the file has it as well';
    is lines($one, qr/takes too long to write to its disk/), 1,
        'WAITAOF: which is said once';
    is lines($one, $less), 0, 'WAITAOF: and is no broken promise';
    is statuses($one, @tickets), 'pending:41', 'WAITAOF: found';

    my $again = $one->put({ id => 'b1' }, 'X-User-Id' => 'b.1');
    ok grep({ $_ eq $again } @tickets[21 .. 40]),
        'WAITAOF: the same again is the same';

    $redis->waits('silence');
    $begun = IapGuard::Loop::now();
    push @tickets, $one->put({ id => 'silent' });
    my $seconds = IapGuard::Loop::now() - $begun;
    cmp_ok $seconds, '>=', 0.9, 'WAITAOF: no answer is waited for';
    cmp_ok $seconds, '<', 1.9, 'WAITAOF: but not for too long';

    $redis->waits('1');
    ok settled(MOVED, sub { spooled($one) == 0 }), 'WAITAOF: written, and moved';
    is in_redis($redis, 'pending'), 42, 'WAITAOF: each is one entry';

    $redis->waits('ERR WAITAOF cannot be used');
    push @tickets, $one->put({ id => 'error' });
    ok settled(5, sub {
        lines($one, qr/$less: it knows no WAITAOF, and "appendfsync" is "everysec"/)
    }), 'WAITAOF: an error is one';

    $redis->waits('1');
    ok settled(MOVED, sub { spooled($one) == 0 }), 'WAITAOF: mended, and moved';

    $one->peers->always('/verify', undef);
    verified_all('WAITAOF', $one, @tickets);
    told_once('WAITAOF', $one, 43);
    end($one);

    return;
}


# A server that sleeps: what it was asked is carried out when it wakes.

sub asleep {
    my $redis = redis();
    my ($one) = machines(1, $redis);

    $one->peers->always('/verify', 'http:503');
    my @tickets = $one->put_many(10, bodies('a'));

    $redis->freeze;
    my $begun = IapGuard::Loop::now();
    push @tickets, $one->put_many(20, bodies('b'));
    my $seconds = IapGuard::Loop::now() - $begun;

    is scalar(grep { defined } @tickets), 30, 'asleep: accepted';
    cmp_ok $seconds, '<', 1.9, sprintf 'asleep: within %.1f s', $seconds;
    is statuses($one, @tickets[10 .. 19]), 'pending:10', 'asleep: found';
    is $one->ticket($tickets[0])->{status}, 503,
        'asleep: what only Redis has is not denied';

    $redis->thaw;
    ok settled(MOVED, sub { spooled($one) == 0 }), 'awake: the file is emptied';
    is in_redis($redis, 'pending'), 30, 'awake: each is one entry';

    $one->peers->always('/verify', undef);
    verified_all('awake', $one, @tickets);
    told_once('awake', $one, 30);
    end($one);

    return;
}


# Redis is killed, and comes back with what it had written.

sub away {
    my $redis = redis();
    my ($one, $two) = machines(2, $redis);
    my $peers = $one->peers;

    $peers->always('/verify', 'http:503');

    my @before = map { $_->put_many(10, bodies($_ == $one ? 'a' : 'b')) }
                 $one, $two;
    my $key = $one->put({ id => 'same' });

    $redis->kill;

    my @ones  = $one->put_many(40, bodies('c'));
    my @twos  = $two->put_many(40, bodies('d'));
    my $again = $one->put({ id => 'same' });

    is scalar(grep { defined } @ones, @twos), 80, 'away: all are accepted';
    isnt $again, $key, 'away: a key that Redis knows is another ticket';
    is spooled($one), 41, 'away: by the file of one';
    is spooled($two), 40, 'away: and by that of the other';
    is statuses($one, @ones), 'pending:40', 'away: each knows its own';
    is statuses($two, @twos), 'pending:40', 'away: the other one, too';
    is statuses($one, @before[0 .. 4], @twos[0 .. 4]), '503:10',
        'away: what may be elsewhere is not denied';
    foreach my $machine ($one, $two) {
        ok settled(5, sub { lines($machine, qr/drain: redis \S+ is down: /) }),
            'away: which is said';
    }


    $redis->start;

    ok settled(MOVED, sub { spooled($one) + spooled($two) == 0 }),
        'back: the files are emptied';

    my @all = (@before, @ones, @twos, $key, $again);

    foreach my $machine ($one, $two) {
        ok settled(5, sub { statuses($machine, @all) eq 'pending:102' }),
            'back: each knows all tickets';
    }

    is $one->ticket($_)->{ticket}, $_, 'back: by the name that was asked for'
        foreach $key, $again;
    is in_redis($redis, 'pending'), 101, 'back: one entry for each key';

    foreach my $machine ($one, $two) {
        ok settled(5, sub { lines($machine, qr/drain: redis \S+ is up again/) }),
            'back: which is said';
    }

    $peers->always('/verify', undef);
    verified_all('back', $one, @all);
    verified_all('back, seen by the other', $two, @all);
    told_once('back', $one, 101);

    foreach my $machine ($one, $two) {
        foreach my $who ('ledger', 'drain') {
            my ($down, $up) = map { lines($machine, qr/$who: redis \S+ is $_/) }
                                  'down: ', 'up again';
            cmp_ok $down, '<=', 1, "back: said once by the $who";
            is $up, $down, "back: and that it is up again";
        }
    }

    end($one, $two);

    return;
}


# While it is away the files are drained; it learns of that, and tells nobody
# once more.

sub away_for_long {
    my $redis = redis();
    my ($one, $two) = machines(2, $redis);

    my @before = $one->put_many(5, bodies('a'));
    verified_all('long', $one, @before);
    told_once('long', $one, 5);

    $redis->kill;
    my @during = ($one->put_many(20, bodies('b')),
                  $two->put_many(20, bodies('c')));

    verified_all('long: without it', $one, @during[0 .. 19]);
    verified_all('long: without it, the other', $two, @during[20 .. 39]);
    told_once('long: without it', $one, 45);

    my $dead = $one->put({ id => 'dead', verify => ['21003'] });
    is $one->ended($dead)->{status}, 'rejected', 'long: one is rejected';

    $redis->start;

    my $found = sub { statuses($_[0], @before, @during) };

    ok settled(MOVED, sub {
        $found->($one) eq 'verified:45' && $found->($two) eq 'verified:45'
    }), 'long: back, and both know what became of them';
    ok settled(MOVED, sub { $two->ticket($dead)->{status} eq 'rejected' }),
        'long: of each';

    ok settled(5, sub { in_redis($redis, 'verified') == 45 }),
        'long: it has all of them';
    told_once('long: back', $two, 46);
    is $one->put({ id => 'b3' }, 'X-User-Id' => 'b.3'), $during[2],
        'long: the same again is the same';
    is $two->put({ id => 'b3' }, 'X-User-Id' => 'b.3'), $during[2],
        'long: at each machine';
    sleep 1;
    told_once('long: the same again', $two, 46);

    # one that is being called from the file, and can't be moved for that

    $redis->kill;
    my $slow = $one->put({ id => 'slow', verify => ['slow:8', 'ok'] });
    ok settled(5, sub {
        grep { $_->{id} eq 'slow' } $one->peers->calls('/verify')
    }), 'leased: by the file';
    $redis->start;
    ok settled(5, sub { $two->ticket($before[0])->{status} eq 'verified' }),
        'leased: Redis is back';
    is $two->ticket($slow)->{status}, 503,
        'leased: another machine does not deny what it can\'t know';
    is $one->put({ id => 'slow', verify => ['slow:8', 'ok'] }), $slow,
        'leased: the same again is the same';
    verified_all('leased', $one, $slow);
    verified_all('leased: the other', $two, $slow);
    told_once('leased', $two, 47);

    end($one, $two);

    return;
}


# One machine dies with what it has begun.

sub taken_over {
    my $redis = redis();
    my ($one) = machines(1, $redis);

    my @tickets = $one->put_many(10, bodies('t', verify => ['hang', 'ok']));
    my $begun   = sub { scalar grep { $_->{id} =~ /^t/ }
                                    $one->peers->calls('/verify') };

    ok settled(5, sub { $begun->() == 10 }), 'died: with all of them begun';

    my $two = IapGuard::DrainTest->new(
        paths => \%paths, workers => 2, breaker => undef, peers => $one->peers,
        http => $one->{http}, queue => $one->{queue});

    sleep 4;
    is $begun->(), 10, 'died: another machine leaves them to it';

    my $killed = IapGuard::Loop::now();
    $one->nginx->crash;

    verified_all('died', $two, @tickets);
    my $seconds = IapGuard::Loop::now() - $killed;

    cmp_ok $seconds, '<', LEASE + 5, sprintf 'died: taken over %.1f s later',
        $seconds;
    cmp_ok $seconds, '>', LEASE / 3, 'died: and not before its leases ended';
    told_once('died', $two, 10);

    delete $one->nginx->{keeper};
    end($two);

    return;
}


# What a machine that died had in its file alone is taken from there by another,
# which is given the file.

sub left_behind {
    my $redis = redis();
    my ($one) = machines(1, $redis);
    my $peers = $one->peers;

    $peers->always('/verify', 'http:503');
    $redis->kill;
    my @tickets = $one->put_many(20, bodies('l'));
    is spooled($one), 20, 'left: in the file of a machine';

    $one->nginx->crash;
    $redis->start;

    my $two = IapGuard::DrainTest->new(
        paths => \%paths, workers => 2, breaker => undef, peers => $peers,
        http => $one->{http}, queue => $one->{queue},
        before => sub {
            system 'cp', '-p', glob($one->nginx->file('ledger/ledger.db*')),
                   $_[0]->file('ledger');
        });

    ok settled(MOVED, sub { in_redis($redis, 'pending') == 20 }),
        'left: moved by the one that was given that file';

    $peers->always('/verify', undef);
    verified_all('left', $two, @tickets);
    told_once('left', $two, 20);

    delete $one->nginx->{keeper};
    end($two);

    return;
}


sub same_key {
    my $redis = redis();
    my ($one, $two) = machines(2, $redis);
    my %tickets;

    foreach my $round (1 .. 10) {
        $tickets{ $_->put({ id => 'k1' }) }++ foreach $one, $two;
    }

    is scalar keys %tickets, 1, 'key: one ticket at both machines';

    # at the same time

    my @many = map { $_->put_many(50, body => sub { { id => 'k2' } },
                                  user => sub { 'u' }) } $one, $two;
    my %many = map { $_ => 1 } @many;

    is scalar @many, 100, 'key: all are answered';
    is scalar keys %many, 1, 'key: with one ticket';

    verified_all('key', $one, keys %tickets, keys %many);
    is scalar(grep { $_->{id} =~ /^k/ } $one->peers->calls('/verify')), 2,
        'key: each was verified once';
    told_once('key', $one, 2);
    end($one, $two);

    return;
}


# It has no room any more: what is accepted is kept, what it has is worked off.

sub full {
    my $redis = redis('--maxmemory-policy', 'noeviction');
    my ($one) = machines(1, $redis);

    $one->peers->always('/verify', 'http:503');
    my @tickets = $one->put_many(20, bodies('f'));
    is in_redis($redis, 'pending'), 20, 'full: there was room';

    $redis->command('CONFIG', 'SET', 'maxmemory', '1');
    push @tickets, $one->put_many(20, bodies('g'));
    is scalar(grep { defined } @tickets), 40, 'full: accepted all the same';
    is spooled($one), 20, 'full: by the file';

    $one->peers->always('/verify', undef);
    verified_all('full', $one, @tickets);
    told_once('full', $one, 40);

    $redis->command('CONFIG', 'SET', 'maxmemory', '0');
    ok settled(MOVED, sub { in_redis($redis, 'verified') == 40 }),
        'full: and moved when there is room again';
    end($one);

    return;
}


sub replicas {
    my $redis   = IapGuard::RedisServer->new;
    my $replica = IapGuard::RedisServer->new(
        options => ['--replicaof', '127.0.0.1', $redis->port]);

    settled(10, sub { $replica->info('replication')->{master_link_status}
                      eq 'up' });

    my ($one) = machines(1, $redis, redis => 'durability=replica');

    $one->peers->always('/verify', 'http:503');
    my @tickets = $one->put_many(20, bodies('r'));
    is in_redis($redis, 'pending'), 20, 'replica: all are in Redis';
    is in_redis($replica, 'pending'), 20, 'replica: and in the replica';
    is lines($one, qr/promises less/), 0, 'replica: which is enough';

    $replica->kill;
    push @tickets, $one->put_many(10, bodies('s'));
    is scalar(grep { defined } @tickets), 30, 'replica: gone, and accepted';
    cmp_ok spooled($one), '>=', 1, 'replica: by the file';
    ok settled(5, sub { lines($one, qr/less than "durability=replica": it has no replica/) }),
        'replica: which is said';

    $replica->start;
    ok settled(MOVED, sub { spooled($one) == 0 }), 'replica: back, and moved';
    is in_redis($redis, 'pending'), 30, 'replica: one entry each';
    is in_redis($replica, 'pending'), 30, 'replica: here, too';
    ok settled(5, sub {
        lines($one, qr/redis promises "durability=replica" again/) }),
        'replica: which is said';
    end($one);

    return;
}


sub memory {
    my $redis = IapGuard::RedisServer->new;
    my ($one) = machines(1, $redis, redis => 'durability=memory');

    $one->peers->always('/verify', 'http:503');
    my @tickets = $one->put_many(20, bodies('m'));
    is in_redis($redis, 'pending'), 20, 'memory: is enough, if it is asked for';
    is lines($one, qr/promises less/), 0, 'memory: nothing else is';

    $one->peers->always('/verify', undef);
    verified_all('memory', $one, @tickets);
    end($one);

    # a proxy hides what is behind it

    my ($two) = machines(1, $redis, redis => 'mode=proxy');
    $two->put({ id => 'p' });
    is lines($two, qr/less than "durability=aof": nothing is known of what is behind a proxy/),
        1, 'proxy: promises nothing';
    is in_redis($redis, 'verified'), 20, 'proxy: and nothing is put';
    end($two);

    my ($three) = machines(1, $redis, redis => 'mode=proxy durability=memory');
    my $ticket = $three->put({ id => 'q' });
    verified_all('proxy', $three, $ticket);
    ok settled(5, sub { in_redis($redis, 'verified') == 21 }),
        'proxy: unless nothing is asked for';
    end($three);

    return;
}


# Replies of Redis are bounded; so is what is put there.

sub too_long {
    my $redis = redis();
    my ($one) = machines(1, $redis, server => 'client_max_body_size 10m;');

    $one->peers->always('/verify', 'http:503');
    my @long  = $one->put_many(3, bodies('x', more => 'x' x 600_000));
    my @short = $one->put_many(40, bodies('y', more => 'y' x 100_000));

    is scalar(grep { defined } @long, @short), 43, 'long: accepted';
    is spooled($one), 3, 'long: what is too long for Redis is in the file';
    is in_redis($redis, 'pending'), 40, 'long: the rest is not';
    sleep 2.5;
    is spooled($one), 3, 'long: and stays there';

    my @again = $one->put_many(3, bodies('x', more => 'x' x 600_000));
    is "@again", "@long", 'long: the same again is the same';

    $one->peers->always('/verify', undef);
    verified_all('long', $one, @long, @short);
    told_once('long', $one, 43);
    end($one);

    return;
}


# A machine is to go: what its file has is moved, whatever Redis promises.

sub handed_over {
    my $redis = IapGuard::RedisServer->new;
    my ($one) = machines(1, $redis, server => 'client_max_body_size 10m;');
    my $hand  = sub {
        $one->nginx->api_json('POST', 'queues/receipts', '{"action":"handover"}')
    };

    $one->peers->always('/verify', 'http:503');

    my @tickets = ($one->put_many(150, bodies('h')),
                   $one->put({ id => 'big', more => 'x' x 600_000 }));

    is spooled($one), 151, 'handover: all are in the file';

    # those that are being called are left, and so is what is too long

    my $moved = 0;
    my $left;

    settled(10, sub {
        my $answer = $hand->();
        $moved += $answer->{moved};
        $left   = $answer->{left};
        return $left == 1;
    });

    is "$moved $left", '150 1', 'handover: moved, but for what is too long';
    is in_redis($redis, 'pending'), 150, 'handover: to Redis';
    is statuses($one, @tickets), 'pending:151', 'handover: and found';
    ok lines($one, qr/\d+ requests have been handed over to redis, \d+ are left/),
        'handover: which the log says';

    $redis->kill;
    $one->put_many(20, bodies('i'));
    ok settled(5, sub { !eval { $hand->() } && $@ =~ /503/ }),
        'handover: not without Redis, which is said';
    end($one);

    my $alone = IapGuard::DrainTest->new(paths => \%paths, breaker => undef);
    is eval { $alone->nginx->api('POST', 'queues/receipts',
                                 '{"action":"handover"}') }, undef,
        'handover: to whom?';
    like $@, qr/409.*there is no \\"iap_guard_redis\\"/, 'handover: to nobody';
    end($alone);

    return;
}
