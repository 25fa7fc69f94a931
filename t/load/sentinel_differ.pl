#!/usr/bin/perl

# Sentinels that differ: one of three is left over from another time, and names
# a master of which nobody else knows any more, but which takes what it is told.
# And a worker that quits, and had none: it finds one for what it still has to
# do.  See t/redis/route/sentinel_votes.pl for all the cases.
#
# Runs beside others that wait.

use strict;
use warnings;

use IO::Socket::INET;
use Test::More;
use Time::HiRes qw(sleep);

use IapGuard::FakeRedis;
use IapGuard::Nginx;
use IapGuard::RedisServer;

use constant {
    PAUSE   => 400,         # ms, of the master
    TIMEOUT => 200,         # ms
    BACK    => 4,           # s, until what was down decides again
    USERS   => 40,
    ROUNDS  => 5,           # s: all Sentinels have had their turn
};

my %options = IapGuard::Nginx->options;

subtest blip => \&blip;
subtest replica => \&replica;
subtest quits => \&quits;

done_testing;


sub sentinel {
    my ($master) = @_;

    my $fake = IapGuard::FakeRedis->new(port => 0)->start;
    name($fake, $master) if $master;

    return $fake;
}


sub name {
    my ($sentinel, $master) = @_;

    my $port = $master->port;
    $sentinel->behave('get-master-addr-by-name', raw =>
        "*2\r\n\$9\r\n127.0.0.1\r\n\$" . length($port) . "\r\n$port\r\n");

    return;
}


sub machine {
    my (@sentinels) = @_;
    my $urls    = join ' ', map { 'redis://' . $_->node } @sentinels;
    my $timeout = TIMEOUT . 'ms';

    return IapGuard::Nginx->new(%options, workers => 1, level => 'info',
        http => <<"END", server => <<'LOCATIONS')->start;
    iap_guard_zone   iap 1m;
    iap_guard_redis  $urls mode=sentinel master=m timeout=$timeout;
END
        add_header  X-Store $iap_guard_store always;

        location = /once {
            iap_guard       once;
            iap_guard_user  $http_x_user_id capacity=1 rate=1r/h;
            empty_gif;
        }
LOCATIONS
}


sub store_of {
    my ($nginx, $user) = @_;
    return $nginx->get('/once', 'X-User-Id' => $user)
                 ->{headers}{'x-store'} || '';
}


sub ends_well {
    my ($nginx) = @_;
    my @complaints = $nginx->complaints;

    $nginx->stop;
    is_deeply [@complaints, $nginx->complaints], [],
        'no complaint in the error log';

    return;
}


# One pause of the master, and everybody is asked; then nothing is different

sub blip {
    my ($left, $master) = map { IapGuard::RedisServer->new } 1 .. 2;
    my @sentinels = map { sentinel($_) } $master, $master, $left;
    my $nginx     = machine(@sentinels);

    is store_of($nginx, 'a'), 'redis', 'the master decides';
    pause($nginx, $master);

    is_counted($nginx, $master, ROUNDS);

    is $left->cli('DBSIZE'), 0, 'the one that is left over has nothing';
    is scalar(() = $nginx->log_lines(qr/is now/)), 1,
        'and was never the master';
    ok $sentinels[2]->report->{commands} > 0, 'though it was named';

    ends_well($nginx);

    return;
}


sub pause {
    my ($nginx, $master) = @_;

    $master->cli('CLIENT', 'PAUSE', PAUSE, 'ALL');
    is store_of($nginx, 'paused'), 'fallback', 'a pause: the zone decides';

    ok $nginx->wait_for(BACK, sub {
        store_of($nginx, 'x' . rand) eq 'redis' }), 'and the store again';

    return;
}


# So many seconds of decisions, each counted where it is to be

sub is_counted {
    my ($nginx, $master, $seconds) = @_;
    my @stores;

    for my $i (1 .. USERS) {
        push @stores, store_of($nginx, "user$i");
        sleep $seconds / USERS;
    }

    is_deeply [grep { $_ ne 'redis' } @stores], [], 'the store decides';
    is scalar(grep { $master->cli('EXISTS', "iap:once:user:user$_") }
              1 .. USERS), USERS, 'which is the master';

    return;
}


# Most of them name a real one

sub replica {
    my $master  = IapGuard::RedisServer->new;
    my $replica = IapGuard::RedisServer->new(
        options => ['--replicaof', '127.0.0.1', $master->port]);
    my @sentinels = map { sentinel($_) } $master, $replica, $replica;
    my $nginx     = machine(@sentinels);

    is store_of($nginx, 'a'), 'redis', 'the master decides';
    pause($nginx, $master);

    is_counted($nginx, $master, 2);

    is scalar(() = $nginx->log_lines(qr/is now/)), 1,
        'the replica was never the master';
    ok $nginx->log_lines(qr/is not 127\S+: that is a replica/),
        'which is told';

    # it is promoted

    $replica->cli('REPLICAOF', 'NO', 'ONE');
    name($_, $replica) foreach @sentinels;
    ok $nginx->wait_for(BACK, sub {
        my $user = 'p' . rand;
        store_of($nginx, $user);
        return $replica->cli('EXISTS', "iap:once:user:$user");
    }), 'until it is promoted';

    ends_well($nginx);

    return;
}


# Requests that came before it was told to quit, and of which the rest comes
# afterwards; until then no Sentinel knew a master

sub quits {
    my $master   = IapGuard::RedisServer->new;
    my $sentinel = sentinel();
    $sentinel->behave('get-master-addr-by-name', raw => "*-1\r\n");

    my $nginx = machine($sentinel);
    is store_of($nginx, 'a'), 'fallback', 'no master: the zone decides';

    my @late = map { half_a_request($nginx, "late$_") } 1 .. 3;
    sleep 0.3;
    ok $nginx->reload, 'a reload';
    is scalar($nginx->all_workers), 2, 'the old worker has requests left';

    # by itself it searches no more

    sleep 1.5;
    name($sentinel, $master);

    is rest_of($late[0]), 'fallback', 'the first searches';
    sleep 1.3;
    is rest_of($late[1]), 'redis', 'the second is decided by the master';
    ok $nginx->wait_for(2, sub { $nginx->all_workers == 2 }), 'still there';
    is rest_of($late[2]), 'redis', 'and so is the third';
    ok $nginx->wait_for(3, sub { $nginx->all_workers == 1 }),
        'then it ends';

    ends_well($nginx);

    return;
}


sub half_a_request {
    my ($nginx, $user) = @_;

    my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1',
                                       PeerPort => $nginx->port)
        or die "nginx: $!\n";
    $socket->autoflush(1);
    print {$socket} "GET /once HTTP/1.1\r\nHost: x\r\nX-User-Id: $user\r\n";

    return $socket;
}


sub rest_of {
    my ($socket) = @_;

    print {$socket} "Connection: close\r\n\r\n";
    my $answer = join '', <$socket>;

    return $answer =~ /^X-Store: (\w+)/mi ? $1 : $answer;
}
