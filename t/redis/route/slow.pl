# Connections that take long to open.

use strict;
use warnings;

use Test::More;

use RouteTest;


# To open a connection to a node of the configuration takes longer than one may
# wait for it: at the start, and when all nodes that were found have gone.

test cluster_slow => sub {
    my @seeds = map { fake(auth => 'secret') } 1 .. 2;
    my @nodes = map { fake(auth => 'secret') } 1 .. 2;

    foreach my $fake (@seeds, @nodes) {
        $fake->behave('secret', raw => "+OK\r\n", delay => 0.5);
        $fake->behave('SLOTS', raw => slots(ranges(@nodes)));
    }

    my $nginx = cluster_nginx([@seeds], timeout => '100ms',
                              password => 'secret');

    is $nginx->decide('k'), 'B', 'it is not known yet';
    ok waits(2, sub { $nginx->log_lines(qr/store is down: timed out/) }),
       'which is told';
    ok defined $nginx->decides_within(4, 'A', 'k%d'), 'then it is';
    ok waits(1, sub { !grep { $_->report->{clients} } @seeds }),
       'connections that are not needed are closed';

    my @others = map { fake(auth => 'secret') } 1 .. 2;

    foreach my $fake (@seeds, @others) {
        $fake->behave('secret', raw => "+OK\r\n", delay => 0.5);
        $fake->behave('SLOTS', raw => slots(ranges(@others)));
    }

    $_->stop foreach @nodes;
    ok defined $nginx->decides_within(6, 'A', 'o%d'), 'others are found';
    ok waits(2, sub { $nginx->peers eq names(@others) }), 'and no more';
    ok waits(2, sub { !grep { $_->report->{clients} } @seeds }),
       'connections that are not needed are closed';

    ends_well($nginx, qr/redis \S+ is/);
};


1;
