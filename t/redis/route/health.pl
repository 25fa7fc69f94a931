# What makes a node "down", and what does not.

use strict;
use warnings;

use IO::Socket::INET;
use Test::More;
use Time::HiRes qw(sleep);

use IapGuard::RedisServer;
use IapGuard::Relay;
use RouteTest;

use constant LAST => 16_383;


# one more decision; whether a node is down

sub fails {
    my ($nginx) = @_;

    $nginx->decide('k');

    return {$nginx->nodes}->{down};
}


# Each slot has a call of its own.  All that waits while a node pauses is late,
# and has one cause.

test health_pause => sub {
    my $redis = redis('health_pause');
    my $nginx = nginx(mode => 'proxy', node => [$redis->node],
                      timeout => '100ms');
    my $id    = 0;
    my $round = sub {
        $nginx->tell("decide " . ++$id . " p$id") foreach 1 .. 20;
        my %outcomes;
        $outcomes{ (split / /, $nginx->line(qr/^done $_ /))[2] }++
            foreach $id - 19 .. $id;
        return \%outcomes;
    };

    is_deeply $round->(), { A => 20 }, 'before';

    $redis->freeze;
    is_deeply $round->(), { B => 20 }, 'a pause: twenty are late';
    is {$nginx->nodes}->{down}, 0, 'which is no reason to leave it';
    $redis->thaw;
    is_deeply $round->(), { A => 20 }, 'and it goes on';

    $redis->freeze;
    foreach (1 .. 4) {
        is_deeply $round->(), { B => 20 }, "silence, round $_";
        is {$nginx->nodes}->{down}, 0, 'is not enough';
    }
    is_deeply $round->(), { B => 20 }, 'one round more';
    is {$nginx->nodes}->{down}, 1, 'is';
    $redis->thaw;
    ok defined $nginx->decides_within(3, 'A', 'k%d'), 'after';

    ends_well($nginx, qr/redis \S+ is/);
    $redis->stop;
};


# Whoever is no master any more is left before the next decisions leave

test health_demoted => sub {
    my $node  = fake();
    my $nginx = nginx(mode => 'single', node => [$node->node],
                      timeout => '5s');

    is $nginx->decide('k'), 'A', 'a master';

    $node->behave('*', delay => 0.3,
                  raw => array(':1000000', bulk('E'), ':1', ':0',
                               bulk('READONLY'), bulk(undef)));
    $nginx->tell('decide 900001 k');
    ok waits(4, sub { $node->report->{commands} == 2 }), 'it is asked again';

    # behind another connection there is its successor

    $node->behave('*', raw => $ADMITTED);
    $nginx->tell('decide 900002 k');

    is +(split / /, $nginx->line(qr/^done 900001 /))[2], 'B',
       'it is none any more';
    is +(split / /, $nginx->line(qr/^done 900002 /))[2], 'A',
       'who came meanwhile is decided';
    is $node->report->{connections}, 2, 'over another connection';

    ends_well($nginx);
};


# What its address leads to may be another one now: behind a proxy, say, or by a
# name.  Each probe that such a node refuses is followed by a new connection.

test health_moves => sub {
    my $broken = sub { array(':1000000', bulk('E'), ':1', ':0', bulk($_[0]),
                             bulk(undef)) };
    my %refusals = (
        'READONLY, in a decision' => $broken->('READONLY'),
        'OOM, in a decision'      => $broken->('OOM'),
        'MISCONF'                 => "-MISCONF Redis is configured to save\r\n",
        'LOADING'                 => "-LOADING Redis is loading\r\n",
        'nonsense'                => ":17\r\n",
    );

    foreach my $what (sort keys %refusals) {
        my ($old, $new) = map { fake() } 1 .. 2;
        my $relay = IapGuard::Relay->new($old->port);
        my $nginx = nginx(mode => 'single',
                          node => ['127.0.0.1:' . $relay->port]);

        is $nginx->decide('k'), 'A', "$what: before";
        $old->behave('*', raw => $refusals{$what});
        ok waits(3, sub { fails($nginx) }), 'it is down';
        my $before = $old->report->{connections};

        sleep 2.3;
        is {$nginx->nodes}->{down}, 1, 'and stays so';
        my $more = $old->report->{connections} - $before;
        ok $more >= 1 && $more <= 3, "a connection a second: $more";

        $relay->to($new->port);
        ok defined $nginx->decides_within(3, 'A', 'k'),
           'another server: it is back by itself';
        ends_well($nginx, qr/redis \S+ is/);
        $relay->stop;
    }
};


# A connection that opens is none of a probe's business: there may be addresses
# that have to be given up first, a second each.

test health_opens => sub {
    my $node = fake();
    my @deaf = map { IO::Socket::INET->new(LocalAddr => "127.0.0.$_",
                         LocalPort => $node->port, Proto => 'tcp',
                         Listen => 1) // die "$!\n" } 2 .. 4;
    my @full = map { my $hole = $_;
                     map { IO::Socket::INET->new(PeerAddr => $hole->sockhost,
                               PeerPort => $node->port, Blocking => 0)
                         } 1 .. 4 } @deaf;

    my $nginx = nginx(mode => 'single', timeout => '50ms', node => [
        '127.0.0.2,127.0.0.3,127.0.0.4,127.0.0.1:' . $node->port]);

    ok waits(3, sub { fails($nginx) }), 'it is down';
    ok defined $nginx->decides_within(6, 'A', 'k'), 'and comes up';

    ends_well($nginx, qr/redis \S+ is/);
};


# What went wrong long ago has nothing to do with what goes wrong now

test health_forgets => sub {
    my $node  = fake();
    my $nginx = nginx(mode => 'single', node => [$node->node]);
    my $fails = sub { is $nginx->decide('k'), 'B', 'a failure' for 1 .. $_[0] };

    is $nginx->decide('k'), 'A', 'before';
    $node->behave('*', raw => "-LOADING Redis is loading\r\n");

    foreach (1 .. 5) {
        $fails->(1);
        $nginx->tell('age 11000');
    }
    is {$nginx->nodes}->{down}, 0, 'five, each long after the one before it';

    foreach (1 .. 8) {
        $fails->(1);
        $nginx->tell('age 4500');
    }
    is {$nginx->nodes}->{down}, 0, 'eight, of which five take half a minute';
    $nginx->tell('age 11000');

    $fails->(4);
    is {$nginx->nodes}->{down}, 0, 'four more';
    $nginx->tell('age 5000');
    $fails->(1);
    is {$nginx->nodes}->{down}, 1, 'and one, not long after them';

    $node->behave('*', raw => $ADMITTED);
    ok defined $nginx->decides_within(3, 'A', 'k'), 'after';
    ends_well($nginx, qr/redis \S+ is/);
};


# A node of few slots is asked about one of them, or it would not answer: each
# time other names are tried for a key

test health_few_slots => sub {
    my %hit = map { RouteTest::crc16("t:probe:$_") % 16_384 => 1 } 0 .. 4095;
    my ($first) = grep { my $slot = $_;
                         !grep { $hit{$_} } $slot .. $slot + 7 } 1 .. LAST - 8;
    my $last = $first + 7;

    my $few = redis('health_few_slots', options => [
        '--cluster-enabled', 'yes', '--cluster-require-full-coverage', 'no',
        '--cluster-port', IapGuard::RedisServer::free_port()]);
    $few->cli('CLUSTER', 'ADDSLOTSRANGE', $first, $last);

    my $most = fake();
    $most->behave('SLOTS', raw => slots(
        [0, $first - 1, '127.0.0.1', $most->port],
        [$first, $last, '127.0.0.1', $few->port],
        [$last + 1, LAST, '127.0.0.1', $most->port]));

    my $nginx = nginx(mode => 'cluster', node => [$most->node]);
    my $key   = key_in($first, $last);
    ok defined $nginx->decides_within(10, 'A', $key), 'before';
    like $few->cli('SET', 'k', 1), qr/CLUSTERDOWN/, 'that slot is nobody\'s';

    $few->freeze;
    is $nginx->decide($key), 'B', 'silence' foreach 1 .. 5;
    is {$nginx->nodes}->{down}, 1, 'it is down';
    $few->thaw;

    # all that goes wrong here is to find no name: about one in twenty

    ok waits(8, sub { !{$nginx->nodes}->{down} }), 'and comes up';
    is $nginx->decide(key_in($first, $last, 'other')), 'A', 'after';

    ends_well($nginx, qr/redis \S+ is/);
    $few->stop;
};


# Whoever knows where a key belongs is well; nobody but a node of a cluster
# may say so

test health_moved => sub {
    my @nodes = map { fake() } 1 .. 2;
    my $moved = "-MOVED 1 127.0.0.1:" . $nodes[0]->port . "\r\n";
    $_->behave('SLOTS', raw => slots(
        [0, LAST - 1, '127.0.0.1', $nodes[0]->port],
        [LAST, LAST, '127.0.0.1', $nodes[1]->port])) foreach @nodes;

    my $nginx = nginx(mode => 'cluster', node => [$nodes[0]->node]);
    my $key   = key_in(LAST, LAST);

    is $nginx->decide($key), 'A', 'before';
    $nodes[1]->behave('*', raw => "-LOADING Redis is loading\r\n");
    is $nginx->decide($key), 'B', 'it is loading' foreach 1 .. 5;
    is {$nginx->nodes}->{down}, 1, 'it is down';

    $nodes[1]->behave('*', raw => $moved);
    ok waits(3, sub { !{$nginx->nodes}->{down} }), 'MOVED: it is up';
    $nodes[1]->behave('*', raw => $ADMITTED);
    is $nginx->decide($key), 'A', 'after';
    ends_well($nginx, qr/redis \S+ is/);

    $nodes[0]->behave('*', raw => $moved);
    foreach my $mode (qw(single proxy)) {
        my $wrong = nginx(mode => $mode, node => [$nodes[0]->node]);
        is $wrong->decide('k'), 'B', "$mode: MOVED leads nowhere" for 1 .. 5;
        is {$wrong->nodes}->{down}, 1, "$mode: it is down";
        sleep 1.2;
        is {$wrong->nodes}->{down}, 1, "$mode: and stays so";
        ends_well($wrong, qr/redis \S+ is/);
    }
};


1;
