#!/usr/bin/perl

# A Cluster under load: decisions over several slots, all or nothing; slots
# that are moved, with half of their keys gone; a node that is added, one that
# is killed, with a replica and without one.  Nobody who asks is told of it.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(sleep);

use IapGuard::Loop;
use IapGuard::Nginx;
use IapGuard::RedisCluster;
use IapGuard::RedisServer;
use IapGuard::StoreLoad;

use constant {
    WORKERS  => 2,
    USERS    => 100,
    CAPACITY => 10,
    RATE     => 300,            # requests a second
    BACK     => 10,             # seconds until the store decides again
};

my $redis   = IapGuard::RedisCluster->new;
my $nobody  = 'redis://127.0.0.1:' . IapGuard::RedisServer::free_port();
my $seeds   = join ' ', $nobody, (split / /, $redis->urls)[0, 1];
my %options = IapGuard::Nginx->options;
my $nginx   = machine();

first();
all_or_nothing();
moved_slots();
node_added();
node_killed();
cluster_down();

my @complaints = $nginx->complaints;
$nginx->stop;
is_deeply [@complaints, $nginx->complaints], [],
    'no complaint in the error log';

done_testing;


sub machine {
    my (%more) = @_;
    my $timeout = $options{nginx} =~ /asan/ ? '200ms' : '50ms';

    return IapGuard::Nginx->new(%options, workers => WORKERS, level => 'info',
        http => <<"END", server => <<"LOCATIONS", %more)->start;
    iap_guard_zone   iap 4m;
    iap_guard_redis  $seeds mode=cluster timeout=$timeout;
END
        add_header  X-Store \$iap_guard_store always;
        add_header  X-Layer \$iap_guard_layer always;

        location = /redeem {
            iap_guard       redeem;
            iap_guard_user  \$http_x_user_id capacity=@{[ CAPACITY ]} rate=1r/h;
            empty_gif;
        }

        location = /once {
            iap_guard       once;
            iap_guard_user  \$http_x_user_id capacity=1 rate=1r/h;
            empty_gif;
        }

        # keys in five slots, of any nodes

        location = /all {
            iap_guard          all;
            iap_guard_segment  users=1000 window=1h address=\$http_x_address;
            iap_guard_user     \$http_x_user_id   capacity=1  rate=1r/h;
            iap_guard_device   \$http_x_device_id capacity=40 rate=1r/h;
            iap_guard_bucket   app \$http_x_app   capacity=40 rate=1r/h;
            iap_guard_global   rate=45r/h window=1h;
            empty_gif;
        }
LOCATIONS
}


# The first seed is nobody

sub first {
    my @stores = map { decided_by("first-$_") } 1 .. 30;

    ok grep({ $_ eq 'redis' } @stores), 'a cluster is found';
    is decided_by('first'), 'redis', 'and decides';
    ok !$nginx->log_lines(qr/\[error\]/), 'nothing else is wrong';

    foreach my $node ($redis->nodes) {
        my @clients = nginx_clients($node);

        cmp_ok scalar @clients, '<=', WORKERS,
            'a connection of each worker, at most';
    }

    return;
}


# A user who has spent his token is refused, and gives back what the others
# took: the device's 40 tokens are spent by 40 users, and not by fewer

sub all_or_nothing {
    my @at = ('X-Device-Id' => 'd', 'X-App' => 'app',
              'X-Address' => '203.0.113.9');
    my (@first, @second);

    wait_for_fresh_window();

    foreach my $i (1 .. 40) {
        push @first, $nginx->get('/all', 'X-User-Id' => "user$i", @at);
        push @second, $nginx->get('/all', 'X-User-Id' => "user$i", @at);

        # what is given back is on its way when the answer is

        sleep 0.02;
    }

    is_deeply [map { $_->{status} } @first], [(200) x 40],
        '40 users with a token each: all pass';
    is_deeply [map { "$_->{status} $_->{headers}{'x-layer'}" } @second],
        [('429 user') x 40], 'their second request: refused by that layer';
    is_deeply [grep { $_->{headers}{'x-store'} ne 'redis' } @first, @second],
        [], 'by the store';

    my $answer = $nginx->get('/all', 'X-User-Id' => 'user41', @at);
    is "$answer->{status} $answer->{headers}{'x-layer'}", '429 device',
        'now the device has none, and refuses';

    # a new user and a spent device: nothing is left of that

    sleep 0.05;
    my $keys = $redis->keys;
    $nginx->get('/all', 'X-User-Id' => "new$_", @at) foreach 1 .. 5;
    sleep 0.05;
    is $redis->keys, $keys, 'who is refused leaves no key';

    # the window has 45, of which 40 are gone

    my @last = map { $nginx->get('/all', 'X-User-Id' => "last$_",
                                 'X-Device-Id' => "e$_", 'X-App' => "b$_",
                                 'X-Address' => '203.0.113.9') } 1 .. 8;
    is join(' ', map { $_->{status} } @last),
        '200 200 200 200 200 429 429 429',
        'of the window as many are gone as have passed';

    # in a rush: never more than there are, however they meet

    my @answers = $nginx->ask(map { ['/redeem', 'X-User-Id' => 'rush'] }
                              1 .. 100);
    is scalar(grep { $_->{status} == 200 } @answers), CAPACITY,
        'a rush on one bucket: as many as it holds';

    return;
}


# The load asks users of whom many have their bucket in slots that move; of
# each, half of the keys have gone while the others are asked for

sub moved_slots {
    my ($from, $to) = ($redis->nodes)[1, 2];
    my $load = load('moved');
    my %users = users_at($from, 'moved');

    sleep 1;
    my $begun = calls($to);
    my @between;

    foreach my $slot (sort keys %users) {
        $redis->move($slot, $to, sub {
            push @between, [$users{$slot},
                $nginx->get('/redeem', 'X-User-Id' => $users{$slot})];
        });
    }

    sleep 1.5;
    my $seen = $load->stop;

    $seen->{admitted}{ $_->[0] } += $_->[1]{status} == 200 foreach @between;

    cmp_ok scalar(@between), '>', 10, 'moved: many slots';
    is_deeply [grep { $_->[1]{headers}{'x-store'} ne 'redis' } @between], [],
        'moved: the store decides while a slot is at two nodes';
    is_answered('moved', $seen);
    ok $seen->decided,
        'moved: no decision was made without the store';
    cmp_ok $seen->over(CAPACITY), '<=', $seen->{stores}{fallback} || 0,
        'moved: and none was counted twice';
    cmp_ok $to->info('commandstats')->{cmdstat_asking} || '', 'ne', '',
        'moved: ASK was followed';
    cmp_ok calls($to), '>', $begun, 'moved: the other node decides';

    return;
}


sub node_added {
    my $new   = $redis->add;
    my %users = users_at(($redis->nodes)[2], 'added');
    my $load  = load('added');

    sleep 1;
    $redis->move($_, $new) foreach sort keys %users;
    sleep 1.5;
    my $seen = $load->stop;

    is_answered('added', $seen);
    ok $seen->decided,
        'added: no decision was made without the store';
    cmp_ok $seen->over(CAPACITY), '<=', $seen->{stores}{fallback} || 0,
        'added: and none was counted twice';
    cmp_ok calls($new), '>', 10, 'added: the new node decides';
    cmp_ok scalar(nginx_clients($new)), '<=', WORKERS,
        'added: a connection of each worker, at most';

    return;
}


# The first one has a replica

sub node_killed {
    my ($old, undef, undef, $replica) = $redis->nodes;
    my $load = load('killed');

    sleep 1;
    $old->kill;

    ok $nginx->wait_for(BACK, sub {
        ($replica->info('replication')->{role} || '') eq 'master';
    }), 'killed: the replica takes over';
    ok $nginx->wait_for(BACK, sub { all_decided() }),
        'killed: the store decides again, in all slots';

    my $last = IapGuard::Loop::now();
    sleep 2;
    my $seen = $load->stop;

    is_answered('killed', $seen);
    ok $seen->since($last)->decided,
        'killed: at last by the store alone';
    cmp_ok $seen->most, '<=', 2 * CAPACITY + 2,
        'killed: nobody has much more than the bucket, and the zone\'s';
    cmp_ok calls($replica), '>', 0, 'killed: the replica decides';

    note sprintf 'killed: %d requests, %d of them without the store, within '
        . '%.2f s; %d admitted over %d', scalar @{ $seen->{rows} },
        $seen->{stores}{fallback} || 0, $seen->away, $seen->over(CAPACITY),
        USERS * CAPACITY;

    # it comes back, as a replica

    $old->start;
    $redis->wait_until_well;
    is scalar(nginx_clients($old)), 0, 'killed: nobody goes back to it';
    ok all_decided(), 'killed: the store decides';

    return;
}


# The second one has none: then no slot is served at all

sub cluster_down {
    my ($first, $node) = $redis->nodes;
    my $load = load('down');

    sleep 1;
    $node->kill;

    ok $nginx->wait_for(BACK, sub {
        $first->cli('CLUSTER', 'INFO') =~ /cluster_state:fail/;
    }), 'down: the cluster has failed';
    ok $nginx->wait_for(BACK, sub {
        !grep { $_ eq 'redis' } map { decided_by("down$_-") } 1 .. 10;
    }), 'down: the store decides nothing any more';

    sleep 1;
    $node->start;
    $redis->wait_until_well;
    ok $nginx->wait_for(BACK, sub { all_decided() }),
        'down: it is back, and decides';

    my $last = IapGuard::Loop::now();
    sleep 2;
    my $seen = $load->stop;

    is_answered('down', $seen);
    ok $seen->since($last)->decided,
        'down: at last the store alone';
    ok $nginx->log_lines(qr/redis \S+ is down: /), 'down: it was told';
    ok $nginx->log_lines(qr/redis \S+ is up again/), 'down: and its end';

    return;
}


sub load {
    my ($name) = @_;

    return IapGuard::StoreLoad->start(
        port => $nginx->port, path => '/redeem', users => USERS,
        name => "$name-", rate => RATE);
}


# slot => user, of those that ask and have their bucket at a node

sub users_at {
    my ($node, $name) = @_;
    my $ranges = $redis->ranges($node);
    my %users;

    foreach my $i (0 .. USERS - 1) {
        my $slot = $redis->slot("iap:redeem:user:$name-$i");

        $users{$slot} = "$name-$i" if grep {
            $slot >= $_ && $slot <= $ranges->{$_}[0]
            && $ranges->{$_}[1] == $node->port
        } keys %$ranges;
    }

    return %users;
}


sub is_answered {
    my ($name, $seen) = @_;

    is_deeply $seen->{errors}, {}, "$name: every request was answered";
    is_deeply [grep { !/^(?:200|429)$/ } keys %{ $seen->{statuses} }], [],
        "$name: by what the limits say";
    cmp_ok $seen->{slowest}, '<', 1, "$name: nobody waited for long";

    return;
}


sub decided_by {
    my ($user) = @_;
    my $answer = $nginx->get('/redeem', 'X-User-Id' => $user . rand);
    return $answer->{headers}{'x-store'} || '';
}


# Users enough that every node has some of them

sub all_decided {
    return !grep { $_ ne 'redis' } map { decided_by("all$_-") } 1 .. 40;
}


sub calls {
    my ($server) = @_;
    my $stats = $server->cli('INFO', 'commandstats');
    my $sum   = 0;

    $sum += $_ foreach $stats =~ /cmdstat_eval(?:sha)?:calls=(\d+)/g;

    return $sum;
}


sub nginx_clients {
    my ($node) = @_;
    return grep { /cmd=(?:eval|cluster|asking)/ }
           split /\n/, $node->cli('CLIENT', 'LIST');
}


# Windows of an hour begin with it

sub wait_for_fresh_window {
    my $left = 3600 - time % 3600;
    sleep $left + 0.5 if $left < 20;
    return;
}
