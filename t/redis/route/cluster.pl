# The nodes of a Cluster: maps of every shape, MOVED and ASK in circles, nodes
# that come and go.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(sleep);

use IapGuard::RedisServer;
use RouteTest;

use constant LAST => 16_383;


# so many nodes, which share the slots and say so

sub cluster {
    my ($n) = @_;
    my @nodes = map { fake() } 1 .. $n;

    say_slots(\@nodes, ranges(@nodes));

    return @nodes;
}

sub ranges {
    my (@nodes) = @_;
    my @ranges;

    foreach my $i (0 .. $#nodes) {
        push @ranges, [int(16_384 * $i / @nodes),
                       int(16_384 * ($i + 1) / @nodes) - 1,
                       '127.0.0.1', $nodes[$i]->port];
    }

    return @ranges;
}

sub say_slots {
    my ($nodes, @ranges) = @_;
    $_->behave('SLOTS', raw => slots(@ranges)) foreach @$nodes;
    return;
}

sub cluster_nginx {
    my ($seeds, %options) = @_;

    return nginx(mode => 'cluster',
                 node => [map { ref $_ ? $_->node : $_ } @$seeds], %options);
}

sub names { return join ' ', sort map { $_->node } @_ }

# how many decisions a node was asked for

sub decided {
    my ($node) = @_;
    my $asked  = $node->report->{asked};
    my $sum    = 0;

    $sum += $asked->{$_} foreach grep { /^[0-9a-f]{40}$/ } keys %$asked;

    return $sum;
}


test cluster_map => sub {
    my @nodes = cluster(3);
    my $seed  = fake();
    $seed->behave('SLOTS', raw => slots(ranges(@nodes)));

    my $nginx = cluster_nginx(['127.0.0.1:' . IapGuard::RedisServer::free_port(), $seed]);

    is $nginx->decide(key_in(0, LAST)), 'A',
       'the first decision waits for the map';
    is $nginx->peers, names(@nodes), 'the nodes are known';
    ok waits(1, sub { $seed->report->{clients} == 0 }),
       'a seed is left after use';

    my @keys = (key_in(0, 5460), key_in(5461, 10_921),
                key_in(10_922, LAST));
    my @before = map { decided($_) } @nodes;
    is $nginx->decide($_), 'A', "a decision: $_" foreach @keys;
    is_deeply [map { decided($nodes[$_]) - $before[$_] } 0 .. 2], [1, 1, 1],
              'each slot at its own node';
    is $nginx->decide(@keys), 'AAA', 'and all three in one decision';

    sleep 1.2;
    is $nginx->decide($keys[0]), 'A', 'later';
    is asked($seed, 'SLOTS'), 1, 'the map was read once';
    is_deeply [map { asked($_, 'SLOTS') } @nodes], [0, 0, 0], 'in all';
    is_deeply [map { $_->report->{connections} } @nodes], [1, 1, 1],
              'a connection for each node';

    ends_well($nginx);
};


# ranges, each instead of that of a good map

my $node = [bulk('127.0.0.1'), ':7000', bulk('id')];

my %WRONG = (
    nil            => bulk(undef),
    nil_array      => "*-1\r\n",
    error          => "-ERR This instance has cluster support disabled\r\n",
    noperm         => "-NOPERM this user has no permissions to run the "
                      . "'cluster|slots' command\r\n",
    status         => "+OK\r\n",
    integer        => ":16383\r\n",
    text           => bulk('0-16383'),
    nothing        => "*0\r\n",
    integers       => array(':0', ':16383'),
    nils           => array("\$-1", "*-1"),
    range_empty    => array("*0"),
    range_short    => array([':0', ':16383']),
    range_text     => array([bulk('0'), bulk('16383'), $node]),
    range_nil      => array([':0', "\$-1", $node]),
    slot_minus     => array([':-1', ':16383', $node]),
    slot_large     => array([':0', ':16384', $node]),
    slot_huge      => array([':0', ':9223372036854775807', $node]),
    slot_minimum   => array([':-9223372036854775807', ':1', $node]),
    slots_reversed => array([':16383', ':0', $node]),
    overlap        => array([':0', ':8192', $node], [':8192', ':16383', $node]),
    node_text      => array([':0', ':16383', bulk('127.0.0.1:7000')]),
    node_nil       => array([':0', ':16383', "*-1"]),
    node_empty     => array([':0', ':16383', "*0"]),
    node_short     => array([':0', ':16383', [bulk('127.0.0.1')]]),
    host_integer   => array([':0', ':16383', [':127', ':7000']]),
    host_array     => array([':0', ':16383', [['+a', '+b'], ':7000']]),
    host_status    => array([':0', ':16383', ['+127.0.0.1', ':7000']]),
    host_blank     => array([':0', ':16383', [bulk('a b'), ':7000']]),
    host_nul       => array([':0', ':16383', [bulk("a\0b"), ':7000']]),
    host_lines     => array([':0', ':16383', [bulk("a\r\nb"), ':7000']]),
    host_long      => array([':0', ':16383', [bulk('a' x 256), ':7000']]),
    host_unknown   => array([':0', ':16383', [bulk('?'), ':7000']]),
    port_text      => array([':0', ':16383', [bulk('a'), bulk('7000')]]),
    port_nil       => array([':0', ':16383', [bulk('a'), "\$-1"]]),
    port_zero      => array([':0', ':16383', [bulk('a'), ':0']]),
    port_minus     => array([':0', ':16383', [bulk('a'), ':-7000']]),
    port_large     => array([':0', ':16383', [bulk('a'), ':65536']]),
    port_huge      => array([':0', ':16383', [bulk('a'), ':4294974296']]),
    second_wrong   => array([':0', ':8191', $node], [':8192', ':16383', "*0"]),
    too_many_nodes => slots(map { [$_, $_, '127.0.0.1', 1000 + $_] }
                            0 .. 1000),
    deep           => "*1\r\n" x 12 . ":1\r\n",
    many           => '*70000' . "\r\n" . ":1\r\n" x 70_000,
);

test cluster_lies => sub {
    my @nodes = cluster(2);

    foreach my $name (sort keys %WRONG) {
        my $liar = fake();
        $liar->behave('SLOTS', raw => $WRONG{$name});

        my $nginx = cluster_nginx([$liar, @nodes], timeout => '500ms');
        is $nginx->decide('k'), 'A', "$name: the next one is asked";
        is $nginx->peers, names(@nodes), "$name: and believed";
        ends_well($nginx);

        # nothing else is there to ask

        $nginx = cluster_nginx([$liar], timeout => '500ms');
        is $nginx->decide('k'), 'B', "$name alone: no decision";
        is {$nginx->nodes}->{lost}, 1, "$name alone: lost";
        is $nginx->peers, '', "$name alone: nobody is taken for a node";
        ends_well($nginx, qr/redis store is down/);

        # a node that is in use says it: the map stays as it is

        $nodes[$_]->behave('SLOTS', raw => $WRONG{$name}) foreach 0, 1;
        $liar->behave('SLOTS', raw => slots(ranges(@nodes)));
        $nginx = cluster_nginx([$liar]);
        is $nginx->decide('k'), 'A', "$name, later: at first all is well";
        $liar->behave('SLOTS', raw => $WRONG{$name});

        my $key = key_in(0, 8191, 'x');
        $nodes[0]->behave('*', raw => "-MOVED 1 127.0.0.1:@{[ $nodes[1]->port ]}\r\n");
        is $nginx->decide($key), 'A', "$name, later: MOVED is followed";
        ok waits(1, sub { asked($nodes[0], 'SLOTS')
                          + asked($nodes[1], 'SLOTS') >= 1 }),
           "$name, later: the map is read";
        $nodes[0]->behave('*', raw => $ADMITTED);
        ok defined $nginx->decides_within(1, 'A', key_in(8192, LAST)),
           "$name, later: and not believed";
        my %nodes = $nginx->nodes;
        is $nodes{lost}, 0, "$name, later: nothing is lost";
        is $nginx->peers, names(@nodes), "$name, later: no other nodes";

        ends_well($nginx);
        say_slots(\@nodes, ranges(@nodes));
        $_->stop, $_->restart, $_->behave('*', raw => $ADMITTED)
            foreach @nodes;
        say_slots(\@nodes, ranges(@nodes));
    }
};


# A map in shreds: 16384 ranges with two replicas each, which is beyond the
# bound of other replies

test cluster_shreds => sub {
    my @nodes = cluster(2);
    my @ports = map { $_->port } @nodes;
    my @rest  = map { [bulk('127.0.0.1'), ":$_", bulk('1' x 40)] } 1, 2;

    my $shreds = array(map {
        array(":$_", ":$_", [bulk('127.0.0.1'), ':' . $ports[$_ % 2],
                             bulk('0' x 40)], @rest)
    } 0 .. LAST);

    cmp_ok length $shreds, '>', 2 * 1024 * 1024, 'the map is a large one';
    my $seed = fake();
    $_->behave('SLOTS', raw => $shreds) foreach $seed, @nodes;

    my $nginx = cluster_nginx([$seed], timeout => '5s');
    is $nginx->decide('k'), 'A', 'it is read';
    is $nginx->peers, names(@nodes), 'the nodes are known';

    my @keys = map { key_of($_) } 0, 1;
    my @before = map { decided($_) } @nodes;

    is $nginx->decide($keys[$_]), 'A', "a slot of node $_" foreach 0, 1;
    is_deeply [map { decided($nodes[$_]) - $before[$_] } 0, 1], [1, 1],
        'is asked there';

    # once more, over the connections that decisions use

    $nodes[0]->behave('*', raw => "-MOVED 1 127.0.0.1:$ports[1]\r\n");
    is $nginx->decide($keys[0]), 'A', 'a slot has moved';
    ok waits(5, sub { asked($nodes[0], 'SLOTS') + asked($nodes[1], 'SLOTS') }),
        'the map is read again';
    is $nginx->decide($keys[1]), 'A', 'and others are decided';
    is_deeply [map { $_->report->{connections} } @nodes], [1, 1],
        'no connection was closed for that';

    ends_well($nginx);
};

# of an even slot, or of an odd one

sub key_of {
    my ($odd) = @_;
    my $i = 0;
    $i++ while (RouteTest::crc16("t:b:s$i") % 16_384) % 2 != $odd;
    return "s$i";
}


# What is longer than that is said as what it is, and the map stays

test cluster_too_long => sub {
    my @nodes = cluster(2);
    my $long  = "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n\$99999999\r\nx";

    my $nginx = cluster_nginx([@nodes]);
    my ($zero, $one) = (key_in(0, 8191), key_in(8192, LAST, 'o'));
    is $nginx->decide($zero, $one), 'AA', 'at first all is well';

    $_->behave('SLOTS', raw => $long) foreach @nodes;
    $nodes[0]->behave('*', raw => "-MOVED 1 127.0.0.1:@{[ $nodes[1]->port ]}\r\n");
    is $nginx->decide(key_in(0, 8191, 'x')), 'A', 'a slot has moved';

    ok waits(3, sub { $nginx->log_lines(
        qr/\[warn\].*tells the slots of the cluster: the answer is too long/) }),
        'why the map is not read is told';
    sleep 0.5;
    ok defined $nginx->decides_within(3, 'A', key_in(8192, LAST, 'y')),
        'but what is known is used';
    is $nginx->peers, names(@nodes), 'all of it';
    is scalar(() = $nginx->log_lines(qr/the answer is too long/)), 1,
        'and told once';

    ends_well($nginx);

    # where nothing is known yet

    $nginx = cluster_nginx([@nodes]);
    is $nginx->decide('k'), 'B', 'no decision without a map';
    ok waits(3, sub { $nginx->log_lines(
        qr/\[error\].*store is down: the answer is too long/) }), 'and why';

    ends_well($nginx, qr/store is down/);
};


test cluster_hosts => sub {
    foreach my $host (undef, '', '127.0.0.1') {
        my $name  = defined $host ? "\"$host\"" : 'nil';
        my $node  = fake();
        $node->behave('SLOTS', raw => slots([0, LAST, $host, $node->port]));

        my $nginx = cluster_nginx([$node]);
        is $nginx->decide('k'), 'A', "host $name";
        is $nginx->peers, $node->node, "host $name: the one that answered";
        is $node->report->{clients}, 1, "host $name: one connection";
        ends_well($nginx);
    }

    # "?" is somebody whom nobody can name: the others still serve

    my $node = fake();
    $node->behave('SLOTS', raw => slots([0, 8191, '?', 7000],
                                        [8192, LAST, '', $node->port]));
    my $nginx = cluster_nginx([$node]);
    is $nginx->decide(key_in(8192, LAST)), 'A', '"?": the others decide';
    is $nginx->decide(key_in(0, 8191)), 'B', '"?": what is its, nobody';
    ok $nginx->log_lines(qr/\[warn\].*8192 slots are nobody's/), 'is told';

    my $asked = asked($node, 'SLOTS');
    sleep 2.3;
    $asked = asked($node, 'SLOTS') - $asked;
    ok $asked >= 1 && $asked <= 4, "read again each second ($asked)";
    $node->behave('SLOTS', raw => slots([0, LAST, '', $node->port]));
    ok defined $nginx->decides_within(2, 'A', key_in(0, 8191)),
       'until it has a name';
    ok $nginx->log_lines(qr/\[notice\].*all slots are somebody's/), 'is told';
    ends_well($nginx);

    # a name; and an IPv6 address, where nobody is

    my $dns = name_server();
    $node->behave('SLOTS', raw => slots([0, 8191, 'good.test', $node->port],
                                        [8192, LAST, '::1', 1]));
    $nginx = cluster_nginx([$node], resolver => $dns->address,
                           timeout => '500ms');
    is $nginx->decide(key_in(0, 8191)), 'A', 'a name is resolved';
    is $nginx->peers, '[::1]:1 good.test:' . $node->port, 'IPv6: in brackets';
    is $nginx->decide(key_in(8192, LAST)), 'B', 'nobody is there';
    ends_well($nginx);
};


test cluster_moved => sub {
    my @nodes = cluster(2);
    my $nginx = cluster_nginx(\@nodes);
    my $key   = key_in(0, 8191);

    is $nginx->decide($key), 'A', 'the map is read';
    my $slot  = 0 + RouteTest::crc16("t:b:$key") % 16_384;
    my @asked = map { asked($_, 'SLOTS') } @nodes;

    # the first half has moved, and both know it

    say_slots(\@nodes, [0, LAST, '127.0.0.1', $nodes[1]->port]);
    my $moved = "-MOVED $slot 127.0.0.1:@{[ $nodes[1]->port ]}\r\n";
    $nodes[0]->behave('*', raw => $moved);

    is $nginx->decide($key), 'A', 'MOVED: the decision follows';
    ok waits(1, sub { $nginx->peers eq $nodes[1]->node }),
       'MOVED: the map is read again, and who has no slots is left';
    ok waits(1, sub { $nodes[0]->report->{clients} == 0 }), 'by its link, too';

    my $n = decided($nodes[0]);
    is $nginx->decide(key_in(0, 8191, "n$_")), 'A', 'at the new one'
        foreach 1 .. 5;
    is decided($nodes[0]), $n, 'the old one is not asked again';

    # back, without a host

    say_slots(\@nodes, ranges(@nodes));
    $nodes[0]->behave('*', raw => $ADMITTED);
    $nodes[1]->behave('*', raw => "-MOVED $slot :@{[ $nodes[0]->port ]}\r\n");
    is $nginx->decide($key), 'A', 'MOVED without a host: the same one';
    is decided($nodes[0]), $n + 1, 'another port';
    ok waits(1, sub { $nginx->peers eq names(@nodes) }), 'both are known';

    ends_well($nginx);
};


test cluster_moved_wrong => sub {
    my @nodes  = cluster(2);
    my @seeds  = @nodes;
    my $port   = $nodes[0]->port;
    my $key    = key_in(0, 8191);
    my $slot   = RouteTest::crc16("t:b:$key") % 16_384;
    my $nobody = IapGuard::RedisServer::free_port();

    my %moved = (
        'no address'     => "-MOVED\r\n",
        'nothing'        => "-MOVED \r\n",
        'a slot only'    => "-MOVED $slot\r\n",
        'a blank'        => "-MOVED $slot \r\n",
        'no port'        => "-MOVED $slot 127.0.0.1\r\n",
        'an empty port'  => "-MOVED $slot 127.0.0.1:\r\n",
        'port 0'         => "-MOVED $slot 127.0.0.1:0\r\n",
        'a large port'   => "-MOVED $slot 127.0.0.1:65536\r\n",
        'a large slot'   => "-MOVED 16384 127.0.0.1:$port\r\n",
        'slot -1'        => "-MOVED -1 127.0.0.1:$port\r\n",
        'no number'      => "-MOVED x 127.0.0.1:$port\r\n",
        'a huge number'  => "-MOVED 99999999999999999999 127.0.0.1:$port\r\n",
        'unknown host'   => "-MOVED $slot ?:$port\r\n",
        'a strange host' => "-MOVED $slot a b:$port\r\n",
        'itself'         => "-MOVED $slot 127.0.0.1:$port\r\n",
        'nobody'         => "-MOVED $slot 127.0.0.1:$nobody\r\n",
        'more'           => "-MOVED $slot 127.0.0.1:$port x\r\n",
    );

    foreach my $ask (0, 1) {
        foreach my $name (sort keys %moved) {
            my $nginx = cluster_nginx(\@seeds);
            my $raw   = $ask ? $moved{$name} =~ s/MOVED/ASK/r : $moved{$name};
            my $what  = ($ask ? 'ASK' : 'MOVED') . ", $name";

            $_->behave('ASKING') foreach @nodes;
            is $nginx->decide($key), 'A', "$what: before";
            my $n = decided($nodes[0]);

            $nodes[0]->behave('*', raw => $raw);
            is $nginx->decide($key), 'B', "$what: no decision";
            cmp_ok decided($nodes[0]) - $n, '<=', 5, "$what: asked seldom";

            $nodes[0]->behave('*', raw => $ADMITTED);
            ok defined $nginx->decides_within(3, 'A', $key), "$what: after";

            ends_well($nginx, qr/redis \S+ is/);
        }
    }
};


# Nodes need not know each other's names: whoever says so is well.

test cluster_moved_unknown => sub {
    my @nodes = cluster(2);
    my $nginx = cluster_nginx(\@nodes);
    my $key   = key_in(0, 8191);
    my $slot  = RouteTest::crc16("t:b:$key") % 16_384;

    is $nginx->decide($key), 'A', 'before';

    foreach my $host ('?', 'a b') {
        $nodes[0]->behave('*',
            raw => "-MOVED $slot $host:@{[ $nodes[1]->port ]}\r\n");
        is $nginx->decide($key), 'B', "$host: it leads nowhere" foreach 1 .. 8;
        is {$nginx->nodes}->{down}, 0, "$host: and nobody is down for that";
    }

    $nodes[0]->behave('*', raw => $ADMITTED);
    is $nginx->decide($key), 'A', 'after';

    ends_well($nginx);
};


# nobody can tell the map any more: what MOVED has said is remembered

test cluster_moved_only => sub {
    my @nodes = cluster(2);
    my $nginx = cluster_nginx(\@nodes);
    my $key   = key_in(0, 8191);
    my $slot  = RouteTest::crc16("t:b:$key") % 16_384;

    is $nginx->decide($key), 'A', 'before';

    $_->behave('SLOTS', raw => "*0\r\n") foreach @nodes;
    $nodes[0]->behave('*', raw =>
        "-MOVED $slot 127.0.0.1:@{[ $nodes[1]->port ]}\r\n");

    is $nginx->decide($key), 'A', 'MOVED is followed';
    my $n = decided($nodes[0]);

    is $nginx->decide($key), 'A', 'and again' foreach 1 .. 5;
    is decided($nodes[0]), $n, 'without a way round';
    is $nginx->peers, names(@nodes), 'the rest of the map stays';

    ends_well($nginx);
};


# each says that the other one has it

test cluster_loop => sub {
    my @nodes = cluster(2);
    my $nginx = cluster_nginx(\@nodes);
    my $key   = key_in(0, 8191);
    my $slot  = RouteTest::crc16("t:b:$key") % 16_384;

    is $nginx->decide($key), 'A', 'before';
    my $n = decided($nodes[0]) + decided($nodes[1]);

    foreach my $i (0, 1) {
        $nodes[$i]->behave('*', raw =>
            "-MOVED $slot 127.0.0.1:@{[ $nodes[1 - $i]->port ]}\r\n");
    }

    is $nginx->decide($key), 'B', 'in a circle: no decision';
    is decided($nodes[0]) + decided($nodes[1]) - $n, 5, 'after four hops';

    my @asked = map { asked($_, 'SLOTS') } @nodes;
    my $until = now() + 1;
    $nginx->decide($key), sleep 0.003 while now() < $until;

    my $asked = asked($nodes[0], 'SLOTS') + asked($nodes[1], 'SLOTS')
                - $asked[0] - $asked[1];
    ok $asked >= 5 && $asked <= 12, "the map is read at a pace ($asked)";

    is {$nginx->nodes}->{down}, 0, 'no node is down for that';
    $_->behave('*', raw => $ADMITTED) foreach @nodes;
    ok defined $nginx->decides_within(3, 'A', $key), 'after';

    ends_well($nginx);
};


# A slot that is at two nodes for long: its decisions fail, and only they

test cluster_tryagain => sub {
    my @nodes = cluster(2);
    my $nginx = cluster_nginx(\@nodes);
    my $key   = key_in(0, 8191);

    is $nginx->decide($key), 'A', 'before';
    my $n = decided($nodes[0]);
    $nodes[0]->behave('*', raw => "-TRYAGAIN Multiple keys request during "
                                  . "rehashing of slot\r\n");

    my ($outcome, $ms) = $nginx->decide($key);
    is $outcome, 'B', 'TRYAGAIN: no decision';
    between($ms, 18, 60, 'after a while');
    is decided($nodes[0]) - $n, 5, 'tried again four times';

    is $nginx->decide($key), 'B', 'nor another time' foreach 1 .. 6;
    is {$nginx->nodes}->{down}, 0, 'the node is not down for that';

    $nodes[0]->behave('*', raw => $ADMITTED);
    is $nginx->decide($key), 'A', 'after';

    ends_well($nginx);
};


# A slot is being moved, to a node that has none yet, and to one that is dead

test cluster_ask => sub {
    my @nodes = cluster(2);
    my $new   = fake();
    my $nginx = cluster_nginx(\@nodes);
    my $key   = key_in(0, 8191);
    my $other = key_in(0, 8191, 'other');
    my $slot  = RouteTest::crc16("t:b:$key") % 16_384;

    $new->behave('ASKING', raw => "+OK\r\n");
    $new->behave('SLOTS', raw => slots(ranges(@nodes)));
    is $nginx->decide($key), 'A', 'before';

    $nodes[0]->behave('*', raw =>
        "-ASK $slot 127.0.0.1:@{[ $new->port ]}\r\n");
    is $nginx->decide($key), 'A', 'ASK: the decision follows';
    is asked($new, 'ASKING'), 1, 'with ASKING';
    is decided($new), 1, 'once';

    my $n = decided($nodes[0]);
    is $nginx->decide($key), 'A', 'ASK: again';
    is decided($nodes[0]), $n + 1, 'the old one is still asked first';

    $nodes[0]->behave('*', raw => $ADMITTED);
    sleep 1.2;
    is $nginx->decide($key), 'A', 'ASK: over';
    ok waits(2, sub { $nginx->peers eq names(@nodes) }),
       'who has no slots is forgotten in time';

    $nodes[0]->behave('*', raw => "-ASK $slot 127.0.0.1:"
                                  . IapGuard::RedisServer::free_port() . "\r\n");
    my ($outcome, $ms) = $nginx->decide($key);
    is $outcome, 'B', 'ASK to a dead node: no decision';
    cmp_ok $ms, '<=', 150, 'soon';
    is $nginx->decide(key_in(8192, LAST)), 'A', 'the others are well';

    $nodes[0]->behave('*', raw => $ADMITTED);
    ok defined $nginx->decides_within(3, 'A', $key), 'after';

    ends_well($nginx, qr/redis \S+ is/);
};


test cluster_failover => sub {
    my @nodes   = cluster(3);
    my $replica = fake();
    my $nginx   = cluster_nginx([$nodes[0]]);
    my @keys    = (key_in(0, 5460), key_in(5461, 10_921), key_in(10_922, LAST));

    is $nginx->decide(@keys), 'AAA', 'three nodes';

    # the seed, which is all that the configuration knows, is gone for good

    $nodes[0]->stop;
    is_deeply [map { scalar $nginx->decide($_) } @keys], ['B', 'A', 'A'],
              'one is gone: its slots only';
    $nginx->decide($keys[0]) foreach 1 .. 10;
    is {$nginx->nodes}->{down}, 1, 'it is down';

    my $asked = asked($nodes[1], 'SLOTS') + asked($nodes[2], 'SLOTS');
    sleep 2.2;

    # by itself, and with each probe that fails

    $asked = asked($nodes[1], 'SLOTS') + asked($nodes[2], 'SLOTS') - $asked;
    ok $asked >= 2 && $asked <= 5, "the others are asked now and then ($asked)";

    say_slots([@nodes[1, 2], $replica], ranges($replica, @nodes[1, 2]));
    ok defined $nginx->decides_within(1.5, 'A', $keys[0]),
       'its replica is found';
    is $nginx->peers, names($replica, @nodes[1, 2]), 'it is forgotten';
    is {$nginx->nodes}->{down}, 0, 'nothing is down';
    is $nginx->decide(@keys), 'AAA', 'three nodes again';

    sleep 1.2;
    $asked = asked($nodes[1], 'SLOTS') + asked($nodes[2], 'SLOTS');
    sleep 1.3;
    is asked($nodes[1], 'SLOTS') + asked($nodes[2], 'SLOTS'), $asked,
       'nobody is asked any more';

    ends_well($nginx, qr/redis \S+ is/);
};


# All nodes are replaced by others, and the seed tells of them

test cluster_replaced => sub {
    my @old   = cluster(2);
    my @new   = cluster(2);
    my $seed  = fake();
    $seed->behave('SLOTS', raw => slots(ranges(@old)));

    my $nginx = cluster_nginx([$seed]);
    my @keys  = (key_in(0, 8191), key_in(8192, LAST));
    is $nginx->decide(@keys), 'AA', 'the first two';

    $_->stop foreach @old;
    $seed->behave('SLOTS', raw => slots(ranges(@new)));
    ok defined $nginx->decides_within(3, 'AA', @keys), 'the other two';
    is $nginx->peers, names(@new), 'are found';
    ok waits(1, sub { $seed->report->{clients} == 0 }), 'the seed is left';

    ends_well($nginx, qr/redis \S+ is/);
};


# A node that was thrown out knows of no slots, one that is cut off too few

test cluster_thrown_out => sub {
    my @nodes = cluster(3);
    my $nginx = cluster_nginx(\@nodes);
    my @keys  = (key_in(0, 5460), key_in(5461, 10_921), key_in(10_922, LAST));

    is $nginx->decide(@keys), 'AAA', 'three nodes';

    $nodes[2]->behave('SLOTS', raw => "*0\r\n");
    $nodes[2]->behave('*', raw => "-CLUSTERDOWN Hash slot not served\r\n");
    $_->behave('SLOTS', raw => slots(ranges(@nodes[0, 1])))
        foreach @nodes[0, 1];

    is $nginx->decide($keys[2]), 'B', 'CLUSTERDOWN: no decision';
    ok defined $nginx->decides_within(1, 'AAA', @keys), 'others have taken it';
    is $nginx->peers, names(@nodes[0, 1]), 'two nodes';

    ends_well($nginx, qr/redis \S+ is/);
};


# A slot of its own for each of very many ranges; nodes that come and go while
# decisions are under way

test cluster_churn => sub {
    my @nodes = cluster(4);
    my $nginx = cluster_nginx(\@nodes, timeout => '2s');
    my @maps;

    foreach my $n (1 .. 4) {
        my @of = @nodes[0 .. $n - 1];
        push @maps, [map { [$_ * 8, $_ * 8 + 7, '127.0.0.1',
                            $of[$_ % $n]->port] } 0 .. 2047];
    }

    is $nginx->decide('k'), 'A', 'before';

    foreach my $round (1 .. 12) {
        my $map = $maps[$round % 4];
        say_slots(\@nodes, @$map);
        my $slot = RouteTest::crc16("t:b:m$round") % 16_384;

        foreach my $i (0 .. 3) {
            my $port = $nodes[($i + 1) % 4]->port;
            $nodes[$i]->behave('*', delay => 0.02, raw =>
                               "-MOVED $slot 127.0.0.1:$port\r\n");
        }

        $nginx->tell("decide $round$_ x$round$_") foreach 100 .. 150;
        sleep 0.15;
        $nginx->line(qr/^done $round$_ /) foreach 100 .. 150;
        $_->behave('*', raw => $ADMITTED) foreach @nodes;
        my $want = names(@nodes[0 .. $round % 4]);
        ok waits(2, sub { $nginx->decide(key_in(0, LAST, "y$round"));
                          $nginx->peers eq $want }), "round $round"
            or diag $nginx->peers, ' not ', $want;
    }

    ends_well($nginx, qr/redis \S+ is/);
};


test cluster_lost => sub {
    my @nodes = cluster(2);
    $_->stop foreach @nodes;

    my $nginx = cluster_nginx(\@nodes);
    is $nginx->decide('k'), 'B', 'nobody is there';
    is {$nginx->nodes}->{lost}, 1, 'lost';

    $_->restart, $_->behave('*', raw => $ADMITTED) foreach @nodes;
    say_slots(\@nodes, ranges(@nodes));
    sleep 1.2;
    is $nginx->decide('k'), 'A', 'found again by itself';
    ok $nginx->log_lines(qr/store is up again/), 'is told';

    ends_well($nginx, qr/redis store is/);
};


test cluster_ends => sub {
    my @nodes = cluster(2);
    $_->behave('SLOTS', hang => 1) foreach @nodes;

    my $nginx = cluster_nginx(\@nodes, timeout => '5s');
    $nginx->tell("decide $_ k") foreach 1 .. 10;
    sleep 0.1;
    ends_well($nginx);

    $_->behave('SLOTS', raw => "*0\r\n") foreach @nodes;
    $nginx = cluster_nginx(\@nodes, master => 1);
    is $nginx->decide('k'), 'B', 'no decision';
    my $start = now();
    kill 'QUIT', $nginx->pid;
    is $nginx->wait_for_end(5), 0, 'QUIT ends it';
    between(int(1000 * (now() - $start)), 0, 500, 'how soon');
    ok !$nginx->log_lines(qr/\[alert\]|left in connection|Sanitizer/),
       'nothing is left open';
    delete $nginx->{pid};
};


1;
