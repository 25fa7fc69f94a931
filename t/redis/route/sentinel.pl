# Where the master is: sentinels that agree, differ, are silent, or lie.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(sleep);

use IapGuard::RedisServer;
use RouteTest;

test sentinel_follows => sub {
    my @masters   = map { fake() } 1 .. 2;
    my @sentinels = map { sentinel($masters[0]->node) } 1 .. 3;
    my $nginx     = sentinel_nginx(\@sentinels);

    is $nginx->decide('k'), 'A', 'the first decision waits for the search';
    is $nginx->peers, $masters[0]->node, 'the master is known';
    is_deeply [map { asked($_, $ASK) } @sentinels], [1, 0, 0],
              'one sentinel was asked';

    is $nginx->decide("k$_"), 'A', 'another decision' foreach 1 .. 20;
    is asked($sentinels[0], $ASK), 1, 'does not ask again';
    is $masters[0]->report->{connections}, 1, 'over one connection';

    # another one is named: while there is traffic that is noticed

    $sentinels[0]->behave($ASK, master_is($masters[1]->node));
    ok waits(2, sub {
        $nginx->decide('k');
        $nginx->peers eq $masters[1]->node;
    }), 'a new master is followed within two seconds';

    cmp_ok asked($sentinels[0], $ASK), '<=', 3,
           'and they are asked once a second';
    is $nginx->decide('k'), 'A', 'it decides';
    ok waits(1, sub { $masters[0]->report->{clients} == 0 }),
       'the old master is left';
    is scalar(() = $nginx->log_lines(qr/redis master mymaster is now /)), 2,
       'told once each';
    ok $nginx->log_lines(qr/\[notice\].* is now \Q@{[ $masters[1]->node ]}\E/),
       'with its address';

    ends_well($nginx);
};


# A worker that has nothing to ask for would ask the old one first, which may
# not know, and take what is lost then

test sentinel_idle => sub {
    my @masters  = map { fake() } 1 .. 2;
    my $sentinel = sentinel($masters[0]->node);
    my $nginx    = sentinel_nginx([$sentinel]);

    is $nginx->decide('k'), 'A', 'a master';

    $sentinel->behave($ASK, master_is($masters[1]->node));
    ok waits(2, sub { $nginx->peers eq $masters[1]->node }),
       'a new one is followed without traffic';
    ok waits(1, sub { $masters[0]->report->{clients} == 0 }),
       'and the old one left';

    my $asked = asked($sentinel, $ASK);
    sleep 2.2;
    $asked = asked($sentinel, $ASK) - $asked;
    ok $asked >= 1 && $asked <= 3, "asked once a second ($asked)";

    my $calls = $masters[0]->report->{commands};
    is $nginx->decide('k'), 'A', 'a decision';
    is $masters[0]->report->{commands}, $calls, 'is not asked of the old one';

    ends_well($nginx);
};


# each of these from its first sentinel; the second one knows better

my %WRONG = (
    nil         => bulk(undef),
    error       => "-ERR unknown command `SENTINEL`\r\n",
    noperm      => "-NOPERM this user has no permissions\r\n",
    status      => "+OK\r\n",
    integer     => ":6379\r\n",
    text        => bulk('127.0.0.1:6379'),
    nothing     => "*0\r\n",
    nil_array   => "*-1\r\n",
    one         => array(bulk('127.0.0.1')),
    three       => array(bulk('127.0.0.1'), bulk('6379'), bulk('x')),
    statuses    => array('+127.0.0.1', '+6379'),
    numbers     => array(bulk('127.0.0.1'), ':6379'),
    nils        => array(bulk(undef), bulk(undef)),
    no_host     => array(bulk(''), bulk('6379')),
    no_port     => array(bulk('127.0.0.1'), bulk('')),
    port_zero   => array(bulk('127.0.0.1'), bulk('0')),
    port_large  => array(bulk('127.0.0.1'), bulk('65536')),
    port_text   => array(bulk('127.0.0.1'), bulk('6379x')),
    port_minus  => array(bulk('127.0.0.1'), bulk('-1')),
    host_blank  => array(bulk('127.0.0.1 '), bulk('6379')),
    host_nul    => array(bulk("127.0.0.1\0"), bulk('6379')),
    host_lines  => array(bulk("a\r\nb"), bulk('6379')),
    host_long   => array(bulk('a' x 256), bulk('6379')),
    nested      => array(['+a', '+b'], ['+c', '+d']),
);

test sentinel_lies => sub {
    my $master = fake();

    foreach my $name (sort keys %WRONG) {
        my @sentinels = (sentinel(), sentinel($master->node));
        $sentinels[0]->behave($ASK, raw => $WRONG{$name});

        my $nginx = sentinel_nginx(\@sentinels);
        is $nginx->decide('k'), 'A', "$name: the next one is asked";
        is $nginx->peers, $master->node, "$name: and believed";
        ends_well($nginx);
    }

    # from all of them: there is no store, and it is told why, once

    foreach my $name (sort keys %WRONG) {
        my @sentinels = map { sentinel() } 1 .. 2;
        $_->behave($ASK, raw => $WRONG{$name}) foreach @sentinels;

        my $nginx = sentinel_nginx(\@sentinels);
        is $nginx->decide('k'), 'B', "$name, all of them: no decision";
        is {$nginx->nodes}->{lost}, 1, "$name, all of them: lost";

        my ($why) = $nginx->log_lines(qr/\[error\]/);
        like $why, $name =~ /^nil(?:_array)?$/ ? qr/no sentinel knows a master of this name/
                   : $name =~ /error|noperm/ ? qr/down: "(?:ERR|NOPERM) /
                   : qr/makes no sense/, "$name, all of them: told";

        ends_well($nginx, qr/redis store is down/);
    }
};


test sentinel_unknown => sub {
    my $master    = fake();
    my @sentinels = map { sentinel() } 1 .. 3;
    $_->behave($ASK, raw => "*-1\r\n") foreach @sentinels;

    my $nginx = sentinel_nginx(\@sentinels);
    my ($outcome, $ms) = $nginx->decide('k');
    is $outcome, 'B', 'nobody knows the name: no decision';
    cmp_ok $ms, '<', 60, 'at once';

    my $until = now() + 2.5;
    while (now() < $until) {
        is $nginx->decide('k'), 'B', 'nor later' if rand() < 0.01;
        sleep 0.005;
    }

    cmp_ok asked($sentinels[0], $ASK), '<=', 4, 'asked once a second';
    cmp_ok asked($sentinels[0], $ASK), '>=', 3, 'by itself';
    is scalar(() = $nginx->log_lines(qr/\[error\]/)), 1, 'told once';

    $sentinels[2]->behave($ASK, master_is($master->node));
    ok defined $nginx->decides_within(2, 'A', 'k'), 'until one knows it';
    ok $nginx->log_lines(qr/redis store is up again/), 'which is told';

    ends_well($nginx, qr/redis store is/);
};


test sentinel_silent => sub {
    my $master    = fake();
    my @sentinels = map { sentinel($master->node) } 1 .. 3;
    my $closed    = '127.0.0.1:' . IapGuard::RedisServer::free_port();

    $sentinels[0]->behave($ASK, hang => 1);

    # a time-out that a slow machine does not need

    my $nginx = sentinel_nginx([$closed, @sentinels], timeout => '400ms');
    my ($outcome) = $nginx->decide('k');
    is $outcome, 'B', 'the first two are silent: too late for this decision';
    ok defined $nginx->decides_within(1, 'A', 'k'), 'but not for later ones';
    is_deeply [map { asked($_, $ASK) } @sentinels], [1, 1, 0],
              'the first that answers is enough';

    sleep 1.1;
    $nginx->decide('k');
    ok waits(1, sub { asked($sentinels[1], $ASK) == 2 }),
       'it is the first one to be asked again';
    is asked($sentinels[0], $ASK), 1, 'before those that were silent';

    # all of them: what is known is used

    $_->stop foreach @sentinels;
    my $until = now() + 2.6;
    my %outcomes;
    while (now() < $until) {
        $outcomes{ scalar $nginx->decide('k') }++;
        sleep 0.01;
    }

    is_deeply [keys %outcomes], ['A'], 'without any: the master decides on';
    is scalar(() = $nginx->log_lines(qr/\[warn\].*no sentinel tells/)), 1,
       'which is told once';

    ends_well($nginx);
};


test sentinel_absent => sub {
    my $master   = fake();
    my $sentinel = sentinel($master->node);
    $sentinel->stop;

    my $nginx = sentinel_nginx([$sentinel]);
    is $nginx->decide('k'), 'B', 'nobody there at first';
    ok !{$nginx->nodes}->{peers}{$_}, 'no node is known' foreach $master->node;

    $sentinel->restart;
    $sentinel->behave($ASK, master_is($master->node));
    sleep 1.2;
    is $nginx->decide('k'), 'A', 'it is found by itself, without a request';

    ends_well($nginx, qr/redis store is/);
};


test sentinel_doubt => sub {
    my @masters   = map { fake() } 1 .. 2;
    my @sentinels = map { sentinel($masters[0]->node) } 1 .. 3;
    my $nginx     = sentinel_nginx(\@sentinels, timeout => '1s');

    is $nginx->decide('k'), 'A', 'a master';

    # the master says that it is none any more

    $masters[0]->behave('*', raw => "-READONLY You can't write against a "
                                    . "read only replica.\r\n");
    $_->behave($ASK, master_is($masters[1]->node))
        foreach @sentinels;

    my $start = now();
    is $nginx->decide('k'), 'B', 'that decision can not be made';
    ok defined $nginx->decides_within(1, 'A', 'k'), 'a new one is found';
    cmp_ok now() - $start, '<', 0.3, 'at once';
    is $nginx->peers, $masters[1]->node, 'and the old one is gone';

    # the sentinels do not know it yet

    $masters[1]->behave('*', raw => "-READONLY You can't write\r\n");
    my $asked = asked($sentinels[0], $ASK);
    $start = now();
    while (now() < $start + 1.05) {
        is $nginx->decide('k'), 'B', 'no decision' if rand() < 0.02;
        sleep 0.002;
    }

    $asked = asked($sentinels[0], $ASK) - $asked;
    ok $asked >= 1 && $asked <= 12, "doubt asks at a limited pace ($asked)";

    # nobody asks any decision of a master that is down, and still

    is {$nginx->nodes}->{down}, 1, 'the master is down';
    diag $nginx->log_lines(qr/./) unless {$nginx->nodes}->{down};
    sleep 1;
    $masters[0]->behave('*', raw => $ADMITTED);
    $_->behave($ASK, master_is($masters[0]->node))
        foreach @sentinels;
    sleep 1.2;
    is $nginx->peers, $masters[0]->node, 'the next one is found';
    is {$nginx->nodes}->{down}, 0, 'nothing is down';
    is $nginx->decide('k'), 'A', 'and it decides';
    ok $nginx->log_lines(qr/is up again/), 'which is told';

    ends_well($nginx, qr/redis (?:127\.0\.0\.1:\d+|store) is/);
};


# The one that is asked first is cut off from the others, and names for ever
# the master that there was

test sentinel_stale => sub {
    my %gone = (
        'demoted' => sub { $_[0]->behave('*', raw => "-READONLY You can't\r\n") },
        'dead'    => sub { $_[0]->stop },
        'hangs'   => sub { $_[0]->behave('*', hang => 1) },
    );

    foreach my $how (sort keys %gone) {
        my @masters   = map { fake() } 1 .. 2;
        my @sentinels = map { sentinel($masters[0]->node) } 1 .. 3;
        my $nginx     = sentinel_nginx(\@sentinels, timeout => '100ms');

        is $nginx->decide('k'), 'A', "$how: before";

        $_->behave($ASK, master_is($masters[1]->node)) foreach @sentinels[1, 2];
        $gone{$how}->($masters[0]);

        my $after = $nginx->decides_within(5, 'A', 'k');
        ok defined $after && $after < 1.5, "$how: the others are believed"
            or diag $after // 'never';
        is $nginx->peers, $masters[1]->node, "$how: its successor";

        # it was not of the first one that this was learnt

        my $asked = asked($sentinels[0], $ASK);
        sleep 1.1;
        is $nginx->decide('k'), 'A', "$how: on";
        ok waits(1, sub { asked($sentinels[1], $ASK)
                          + asked($sentinels[2], $ASK) >= 2 }),
           "$how: and are asked from then on";
        is asked($sentinels[0], $ASK), $asked, "$how: but not the first one";

        ends_well($nginx, qr/redis (?:127\.0\.0\.1:\d+|store) is/);
    }
};


# There is no other: all that can be asked name the one that is in doubt

test sentinel_insists => sub {
    my $master    = fake();
    my @sentinels = map { sentinel($master->node) } 1 .. 3;
    my $nginx     = sentinel_nginx(\@sentinels, timeout => '200ms');

    is $nginx->decide('k'), 'A', 'before';
    $sentinels[2]->stop;
    $master->behave('*', raw => "-LOADING Redis is loading\r\n");
    is $nginx->decide('k'), 'B', 'no decision' foreach 1 .. 6;
    ok waits(2, sub { asked($sentinels[1], $ASK) >= 2 }), 'all were asked';
    is $nginx->peers, $master->node, 'it is still the master';

    $master->behave('*', raw => $ADMITTED);
    ok defined $nginx->decides_within(3, 'A', 'k'), 'and decides again';
    is join('', $nginx->log_lines(qr/\[warn\]|is now 127/)),
       join('', ($nginx->log_lines(qr/is now 127/))[0]),
       'nobody was missed, and nothing has changed';

    # its doubt is over: one is enough again

    my $asked = asked($sentinels[1], $ASK);
    sleep 1.1;
    $nginx->decide('k');
    sleep 0.2;
    is asked($sentinels[1], $ASK), $asked, 'one is asked again';

    ends_well($nginx, qr/redis 127\.0\.0\.1:\d+ is/);
};


test sentinel_hosts => sub {
    my $master = fake();
    my $dns    = name_server();
    my $port   = $master->port;

    my $sentinel = sentinel("good.test:$port");
    my $nginx    = sentinel_nginx([$sentinel], resolver => $dns->address,
                                  timeout => '500ms');
    is $nginx->decide('k'), 'A', 'a name is resolved';
    is $nginx->peers, "good.test:$port", 'and kept as it is';
    ends_well($nginx);

    $sentinel = sentinel('::1:1');
    $nginx    = sentinel_nginx([$sentinel]);
    is $nginx->decide('k'), 'B', 'an IPv6 address where nobody is';
    is $nginx->peers, '[::1]:1', 'is written with brackets';
    ends_well($nginx);
};


# Ends in the middle of everything

test sentinel_ends => sub {
    my $master   = fake();
    my $sentinel = sentinel($master->node);
    $sentinel->behave($ASK, hang => 1);

    my $nginx = sentinel_nginx([$sentinel], timeout => '5s');
    $nginx->tell("decide $_ k") foreach 1 .. 10;
    sleep 0.1;
    ends_well($nginx);

    # a worker that quits waits for what is asked, not for the next search

    $sentinel->behave($ASK, raw => "*-1\r\n");
    $nginx = sentinel_nginx([$sentinel], master => 1);
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
