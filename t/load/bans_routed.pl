#!/usr/bin/perl

# A store that is reached in other ways than bans_shared.pl and store_lift.t do:
# over TLS, by Sentinels, in a Cluster.  Two machines, which share bans and
# lifts; and a node that goes away while bans are lifted.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(sleep);

use IapGuard::Loop;
use IapGuard::Nginx;
use IapGuard::RedisCluster;
use IapGuard::RedisSentinel;
use IapGuard::RedisServer;

use constant {
    WORKERS => 2,
    USERS   => 3,           # of a segment
    WITHIN  => 2,           # s, the promise
    BACK    => 15,          # s, until a node has been replaced, and all is done
    LEFT    => 3,           # s, until Sentinels were asked; an old master takes
                            # itself for one for eight
    CALLS   => 8,           # of each machine, that go to any of its workers
    SPREAD  => 60,          # segments, all over a cluster
};

my %options = IapGuard::Nginx->options;
my $users   = 0;
my @all;                    # machines of the part that runs

part(tls => \&tls);
part(sentinel => \&sentinel);
part(cluster => \&cluster);

done_testing;


sub part {
    my ($name, $test) = @_;

    subtest $name => sub {
        $test->();

        foreach my $nginx (@all) {
            my @complaints = $nginx->complaints;
            $nginx->stop;
            is_deeply [@complaints, $nginx->complaints], [],
                'no complaint in the error log';
        }

        @all = ();
    };

    return;
}


sub machine {
    my ($words) = @_;

    push @all, IapGuard::Nginx->new(%options, workers => WORKERS,
        level => 'info', http => <<"END", server => <<'END')->start;
    iap_guard_zone   iap 4m;
    iap_guard_redis  $words timeout=500ms;
    add_header       X-Store \$iap_guard_store always;
END
        location = /redeem {
            iap_guard          redeem;
            iap_guard_user     $http_x_user_id;
            iap_guard_segment  ipv4=24 users=3 window=1h ban=1h
                               address=$http_x_address;
            empty_gif;
        }
END

    return $all[-1];
}


# "200 redis", "429 ban "; a user who was never there before

sub redeem {
    my ($nginx, $address) = @_;

    my $answer = $nginx->get('/redeem', 'X-User-Id' => 'u' . ++$users,
                             'X-Address' => $address);

    return $answer->{error} if $answer->{error};
    return '200 ' . $answer->{headers}{'x-store'} if $answer->{status} == 200;
    return "$answer->{status} " . ($answer->{body} =~ /"layer":"(\w+)"/)[0];
}


sub bans {
    my ($nginx) = @_;
    return join ' ', sort map { $_->{key} } @{ $nginx->api_json('GET', 'bans') };
}


sub lift { return $_[0]->api('DELETE', "bans?$_[1]") =~ s/\n\z//r }


sub in_time {
    my ($name, $condition, $seconds) = @_;
    my $begun = IapGuard::Loop::now();

    ok(IapGuard::Nginx->wait_for($seconds || WITHIN, $condition), $name);
    note sprintf '%.1f s: %s', IapGuard::Loop::now() - $begun, $name;

    return;
}


# A segment bans on one machine, and is pardoned on the other.

sub there_and_back {
    my ($one, $two, $net) = @_;

    is join(' ', map { redeem($one, "10.0.$net.1") } 1 .. USERS + 2),
        join(' ', ('200 redis') x USERS, '429 segment', '429 ban'),
        "$net: a segment bans";
    in_time("$net: on the other machine, too",
            sub { redeem($two, "10.0.$net.9") eq '429 ban' });

    is lift($two, "key=10.0.$net.0/24"), '{"lifted":1}', "$net: lifted there";
    is join(' ', map { redeem($two, "10.0.$net.1") } 1 .. USERS),
        join(' ', ('200 redis') x USERS), "$net: who comes passes at once";
    in_time("$net: lifted here", sub { bans($one) eq '' });
    sleep 0.6;
    is bans($one) . bans($two), '', "$net: for good";

    return;
}


sub tls {
    my $redis = IapGuard::RedisServer->new(tls => 1);
    my $url   = 'rediss://' . $redis->tls_node;
    my $ca    = 'tls_ca=' . $redis->folder . '/ca.crt';
    my ($one, $two) = map { machine("$url $ca") } 1 .. 2;

    there_and_back($one, $two, 1);

    is $redis->info('clients')->{connected_clients} >= 2, 1, 'they are there';
    is_deeply [IapGuard::Nginx->connections_to($redis->port,
                                               $one->workers, $two->workers)],
        [(0) x (2 * WORKERS)], 'and none without TLS';

    # a server that somebody else vouches for

    my $wrong = machine("$url tls_ca=" . $redis->folder . '/other.crt');

    is redeem($wrong, '10.0.2.1'), '200 fallback', 'another authority: no';
    is scalar(() = $wrong->log_lines(qr/\[error\].*certificate/)) > 0, 1,
        'which is logged';
    is lift($wrong, 'key=10.0.2.0/24'), '{"lifted":0,"forgotten":false}',
        'nor is anything forgotten there';

    return;
}


sub sentinel {
    my $redis = IapGuard::RedisSentinel->new;
    my ($one, $two) = map {
        machine($redis->urls . ' mode=sentinel master=' . $redis->name)
    } 1 .. 2;

    there_and_back($one, $two, 1);

    $one->ban('redeem', 'segment', '10.0.2.0/24', 600);
    in_time('before a failover', sub { bans($two) eq '10.0.2.0/24' });

    # what the old one is told while it takes itself for the master is lost

    my $old = $redis->master;
    $redis->failover;

    # in which it is left by all, also by a worker that nobody asks anything

    in_time('all workers know another master', sub {
        return !grep { $_ } IapGuard::Nginx->connections_to($old->port,
                                            map { $_->workers } $one, $two);
    }, LEFT);

    $redis->wait_for_replica($old);

    # so no call of any of them goes to the old one; each takes few of a segment

    is join(' ', map { my $net = $_;
                       map { redeem($_, "10.9.$net.1") } $one, $two } 1 .. CALLS),
        join(' ', ('200 redis') x (2 * CALLS)), 'which decides';

    is lift($two, 'key=10.0.2.0/24'), '{"lifted":1}', 'lifted there';
    in_time('and on the other machine', sub { bans($one) !~ /10\.0\.2\.0/ });
    is bans($two), '', 'nothing comes back';

    there_and_back($one, $two, 5);

    return;
}


sub cluster {
    my $redis = IapGuard::RedisCluster->new;
    my ($one, $two) = map { machine($redis->urls . ' mode=cluster') } 1 .. 2;

    there_and_back($one, $two, $_) foreach 1 .. 3;

    my @nets = map { "10.1.$_.0/24" } 1 .. SPREAD;

    # what it was named by the first of them

    is redeem($one, '10.1.1.1'), '200 redis', 'a segment';
    my ($prefix) = map { /^(.*:)10\.1\.1\.0\/24$/ ? $1 : () }
                   map { split /\n/, $_->cli('KEYS', '*') } $redis->nodes;

    count($redis, $prefix, @nets);
    is counted($redis, $prefix), SPREAD, 'many have counted';
    $one->ban('redeem', 'segment', $_, 600) foreach @nets;
    in_time('all are banned', sub { bans($two) eq join ' ', sort @nets });

    is lift($two, 'guard=redeem'), '{"lifted":' . SPREAD . '}',
        'all are lifted';
    is counted($redis, $prefix), 0, 'and forgotten, on all nodes';
    in_time('on both machines', sub { bans($one) eq '' });

    # while one of three nodes is away

    count($redis, $prefix, @nets);
    $one->ban('redeem', 'segment', $_, 600) foreach @nets;
    in_time('banned again', sub { bans($two) eq join ' ', sort @nets });

    ($redis->nodes)[0]->kill;
    is lift($two, 'guard=redeem'),
        '{"lifted":' . SPREAD . ',"forgotten":false}', 'one node is away';
    is bans($two), '', 'lifted all the same';

    my @rest = ($redis->nodes)[1 .. 3];
    in_time('all is forgotten when it has been replaced', sub {
        counted($redis, $prefix, @rest) == 0 }, BACK);
    in_time('and all are lifted on the other machine',
            sub { bans($one) eq '' }, BACK);

    return;
}


# Somebody is in these segments

sub count {
    my ($redis, $prefix, @nets) = @_;

    foreach my $net (@nets) {
        my $key = "$prefix$net";
        $redis->owner($redis->slot($key))->cli('ZADD', $key, 1, 'x');
    }

    return;
}


# How many of them the masters know

sub counted {
    my ($redis, $prefix, @nodes) = @_;
    my $n = 0;

    foreach my $node (@nodes ? @nodes : $redis->nodes) {
        next if ($node->info('replication')->{role} || '') ne 'master';
        $n += grep { /^\Q$prefix\E10\.1\./ } split /\n/,
              $node->cli('KEYS', '*');
    }

    return $n;
}
