# What makes a node "down", and what does not.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(sleep);

use RouteTest;


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

    $fails->(4);
    is {$nginx->nodes}->{down}, 0, 'four more';
    $nginx->tell('age 5000');
    $fails->(1);
    is {$nginx->nodes}->{down}, 1, 'and one, not long after them';

    $node->behave('*', raw => $ADMITTED);
    ok defined $nginx->decides_within(3, 'A', 'k'), 'after';
    ends_well($nginx, qr/redis \S+ is/);
};


1;
