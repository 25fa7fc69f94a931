#!/usr/bin/perl

# The ledger in Redis, where that refuses what it is asked, one machine takes its
# time, or nothing is left that could keep a request.
#
#     perl -It/lib t/load/queue_redis_errors.pl [SCENARIO...]

# Runs beside others.

use strict;
use warnings;

use IO::Socket::INET;
use Test::More;
use Time::HiRes qw(sleep);

use IapGuard::Disk;
use IapGuard::FakeRedis;
use IapGuard::Loop;
use IapGuard::QueueTest;
use IapGuard::RedisProxy;
use IapGuard::Together;
use IapGuard::WaitRedis;

use constant LONGER => 18;      # seconds, than a lease

IapGuard::Disk->alone;
paths();

IapGuard::Together->run(3,
    held    => \&held,
    refuses => \&refuses,
    nowhere => \&nowhere,
    again   => \&again,
    unheard => \&unheard,
    too_late => \&too_late,
);


# Whatever it says instead of what was asked: not there, so the file has it.

sub refuses {
    my $redis = redis('--enable-protected-configs', 'yes');
    my ($one) = machines(1, $redis);
    my (@tickets, $busy);

    $one->peers->always('/verify', 'http:503');

    my @errors = (
        ['READONLY', sub { $redis->command(qw(REPLICAOF 127.0.0.1 1)) },
                     sub { $redis->command(qw(REPLICAOF NO ONE)) }],
        ['NOREPLICAS',
            sub { $redis->command(qw(CONFIG SET min-replicas-to-write 1)) },
            sub { $redis->command(qw(CONFIG SET min-replicas-to-write 0)) }],
        ['MISCONF', sub { fail_to_save($redis) },
            sub { $redis->command('CONFIG', 'SET', 'dir', $redis->folder);
                  $redis->command(qw(CONFIG SET stop-writes-on-bgsave-error
                                     no)) }],
        ['NOAUTH',
            sub { $redis->command(qw(CONFIG SET requirepass secret));
                  $redis->command(qw(AUTH secret));
                  $redis->command(qw(CLIENT KILL TYPE normal)) },
            sub { $redis->command('CONFIG', 'SET', 'requirepass', '') }],
        ['BUSY', sub { $busy = keep_busy($redis) },
                 sub { $redis->command('SCRIPT', 'KILL'); undef $busy }],
        ['max clients',
            sub { $redis->command(qw(CONFIG SET maxclients 1));
                  $redis->command(qw(CLIENT KILL TYPE normal)) },
            sub { $redis->command(qw(CONFIG SET maxclients 1000)) }],
    );

    foreach my $error (@errors) {
        my ($name, $break, $mend) = @$error;
        my $there = in_redis($redis, 'pending');

        $break->();
        my @new = $one->put_many(10, bodies($name =~ tr/ //dr));
        is scalar(grep { defined } @new), 10, "$name: accepted";
        is spooled($one), 10, "$name: by the file";
        is statuses($one, @new), 'pending:10', "$name: and found";

        $mend->();
        ok settled(MOVED, sub { spooled($one) == 0 }),
            "$name: over, the file is emptied";
        is in_redis($redis, 'pending'), $there + 10, "$name: one entry each";
        push @tickets, @new;
    }

    $one->peers->always('/verify', undef);
    verified_all('refuses', $one, @tickets);
    told_once('refuses', $one, scalar @tickets);
    end($one);

    return;
}


sub fail_to_save {
    my ($redis) = @_;
    my $folder = $redis->folder . '/gone';

    mkdir $folder or die "$folder: $!\n";
    $redis->command('CONFIG', 'SET', 'dir', $folder);
    rmdir $folder or die "$folder: $!\n";

    $redis->command('CONFIG', 'SET', 'save', '3600 1');
    $redis->command('BGSAVE');

    return settled(5, sub {
        $redis->info('persistence')->{rdb_last_bgsave_status} eq 'err' });
}


sub keep_busy {
    my ($redis) = @_;

    $redis->command(qw(CONFIG SET busy-reply-threshold 100));

    my $socket = IO::Socket::INET->new($redis->node) or die "no link: $!\n";
    print {$socket} IapGuard::FakeRedis::encode('EVAL', 'while true do end', 0);
    $socket->flush;
    sleep 0.2;

    return $socket;
}


# What one machine works on for longer than a lease is no other's.

sub held {
    my $redis = redis();
    my ($one, $two) = machines(2, $redis, queue => 'timeout=29s');

    my @tickets = $one->put_many(8, bodies('h', verify => ['slow:' . LONGER]));
    verified_all('held', $two, @tickets);

    my %calls;
    $calls{ $_->{id} }++ foreach $one->peers->calls('/verify');

    is join(' ', map { "$_:$calls{$_}" } sort keys %calls),
        join(' ', map { "h$_:1" } 1 .. 8), 'held: each was called once';
    told_once('held', $two, 8);
    end($one, $two);

    return;
}


# The same again, while Redis can't say that it is written: the file has it by the
# first one's ticket, and can send it, for its record is sealed with that.

sub again {
    my $redis = IapGuard::WaitRedis->new(options => ['--appendonly', 'yes']);
    my $key   = $redis->folder . '/key';

    open my $file, '>', $key or die "$key: $!\n";
    print {$file} '0123456789abcdef' x 4, "\n";
    close $file;
    chmod 0644, $key;
    chmod 0755, $redis->folder;

    my ($one) = machines(1, $redis, redis => "; iap_guard_queue_key $key");

    $one->peers->always('/verify', 'http:503');
    my $first = $one->put({ id => 'again' });
    is spooled($one), 0, 'again: the first is in Redis';

    $redis->waits('0');
    is $one->put({ id => 'again' }), $first, 'again: the same has its ticket';
    is spooled($one), 1, 'again: in the file as well';

    $redis->kill;
    $one->peers->always('/verify', undef);
    is $one->ended($first, 20)->{status}, 'verified',
        'again: which is enough without Redis';
    is lines($one, qr/is parked/), 0, 'again: it can be read';
    is join(' ', map { $_->{id} } grep { $_->{step} eq 'ok' }
                                       $one->peers->calls('/verify')),
        'again', 'again: and was sent';

    $redis->start;
    ok settled(MOVED, sub { spooled($one) == 0 }), 'again: moved';
    verified_all('again', $one, $first);
    told_once('again', $one, 1);
    end($one);

    return;
}


# It is put off, which Redis does, but nobody hears of it: it is said once more
# while the next call is on its way, and changes nothing then.

sub unheard {
    my $redis = redis();
    my $proxy = IapGuard::RedisProxy->new($redis);
    my ($one) = machines(1, $proxy);

    $proxy->keep('queue', 'settle');
    my @tickets = $one->put({ id => 'u', verify => ['http:503', 'slow:2'] });
    ok settled(5, sub { $proxy->held('queue') }), 'unheard: put off';
    $proxy->cut;
    $proxy->release;

    # something new is looked at, at once

    sleep 0.5;
    push @tickets, $one->put({ id => 'v' });

    verified_all('unheard', $one, @tickets);
    told_once('unheard', $one, 2);
    is join(' ', map { $_->{step} } grep { $_->{id} eq 'u' }
                                         $one->peers->calls('/verify')),
        'http:503 slow:2', 'unheard: called twice, and not thrice';
    end($one);
    $proxy->stop;

    return;
}


# A take is answered when nobody waits for it any more, and what it has leased
# can't be handed back: the next take does without that.

sub too_late {
    my $redis = redis();
    my $proxy = IapGuard::RedisProxy->new($redis);
    my ($one) = machines(1, $proxy);

    # its time is 2 s, and half of that for each try

    $proxy->refuse('queue', 'back', 'ERR not now', 0, 1000);
    $proxy->refuse('queue', 'take w', 'TRYAGAIN not now', 0.75, 2);
    $proxy->keep('queue', 'take w');
    my @tickets = $one->put({ id => 'l' });

    ok settled(5, sub { $redis->command('ZCARD', 'iap:{q:receipts}:lease') }),
        'too late: leased';
    ok settled(5, sub { lines($one, qr/ledger takes longer than its timeout/) }),
        'too late: and nobody waits for it any more';
    $proxy->release;

    verified_all('too late', $one, @tickets);
    told_once('too late', $one, 1);
    end($one);
    $proxy->stop;

    return;
}


# Neither Redis nor a disk with room: that is not to be accepted.

sub nowhere {
    my $redis = redis();
    my $disk;
    my ($one) = machines(1, $redis, before => sub {
        $disk = IapGuard::Disk->new($_[0]->file('ledger'), 16);
    });

    SKIP: {
        skip 'no right to mount a small disk', 7 if !$disk;

        my @before = $one->put_many(10, bodies('a'));

        $redis->kill;
        push @before, $one->put_many(10, bodies('b'));
        is scalar(grep { defined } @before), 20, 'nowhere: a file is enough';

        # until what it has allocated is used up

        ok $disk->fill, 'nowhere: the disk is full';

        my ($n, $answer) = (0);
        settled(10, sub {
            $answer = $one->post('/accept', { id => 'c' . $n++,
                                              more => 'x' x 50_000 });
            return $answer->{status} != 202;
        });
        is $answer->{status}, 503, "nowhere: after $n it is refused";
        like $answer->{headers}{'retry-after'} // '', qr/^[1-9]\d*$/,
            'nowhere: and may be asked again';
        like $answer->{body}, qr/"error":"unavailable"/, 'nowhere: as it says';

        $disk->empty;
        ok settled(10, sub {
            $one->post('/accept', { id => 'd' })->{status} == 202;
        }), 'nowhere: room again, accepted again';

        $redis->start;
        verified_all('nowhere', $one, @before);
    }

    $one->nginx->stop;
    is join('', $one->nginx->complaints(qr/No space left on device/)), '',
        'nothing in the log that should not be';
    $one->peers->stop;
    $disk->gone if $disk;

    return;
}
