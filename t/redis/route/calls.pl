# One call: what it leaves behind where it could not be sent.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(sleep);

use RouteTest;

use constant LAST => 16_383;


# A slot is being moved to a node of which the link takes ASKING, but not the
# command behind it: one operation waits there already, 4096 are the most, and
# each of these takes two

test call_ask_declined => sub {
    my @nodes = map { fake() } 1 .. 2;
    my $slots = slots([0, LAST - 1, '127.0.0.1', $nodes[0]->port],
                      [LAST, LAST, '127.0.0.1', $nodes[1]->port]);
    $_->behave('SLOTS', raw => $slots) foreach @nodes;

    my $nginx = nginx(mode => 'cluster', node => [$nodes[0]->node],
                      timeout => '1s');
    is $nginx->decide('k'), 'A', 'before';

    $nodes[1]->behave('*', hang => 1);
    $nginx->tell('decide 7777 ' . key_in(LAST, LAST));
    ok waits(2, sub { $nodes[1]->report->{commands} > 0 }), 'one waits';

    $nodes[0]->behave('*', raw => "-ASK 5 127.0.0.1:" . $nodes[1]->port
                                  . "\r\n");
    is_deeply $nginx->many(3000, 3000, 'z'), [0, 0, 3000], 'none is decided';
    like $nginx->line(qr/^done 7777 /), qr/ B /, 'nor the one that waited';

    $nodes[0]->behave('*', raw => $ADMITTED);
    ok defined $nginx->decides_within(3, 'A', 'k'), 'after';

    ends_well($nginx, qr/redis \S+ is/);
};


1;
