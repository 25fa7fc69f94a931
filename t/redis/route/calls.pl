# One call: which keys travel in it, and what it leaves behind where it could
# not be sent.

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


# A slot is being moved to a node that has none yet, and the map is read while
# that is asked something

test call_ask_swept => sub {
    my @nodes = map { fake() } 1 .. 2;
    my $slots = slots([0, LAST, '127.0.0.1', $nodes[0]->port]);
    $_->behave('SLOTS', raw => $slots) foreach @nodes;
    $nodes[1]->behave('*', raw => $ADMITTED, delay => 0.4);
    $nodes[1]->behave('ASKING', raw => "+OK\r\n");

    my $nginx = nginx(mode => 'cluster', node => [$nodes[0]->node],
                      timeout => '3s');
    is $nginx->decide('k'), 'A', 'before';
    sleep 1.1;

    my $asked = asked($nodes[0], 'SLOTS');
    $nodes[0]->behave('*', raw => '-ASK 5 ' . $nodes[1]->node . "\r\n");
    is $nginx->decide('k'), 'A', 'what it was asked is waited for';
    cmp_ok asked($nodes[0], 'SLOTS'), '>', $asked, 'and the map was read';
    is $nginx->decide('k'), 'A', 'and once more';
    is $nodes[1]->report->{connections}, 1, 'over one connection';

    $nodes[0]->behave('*', raw => $ADMITTED);
    ok waits(3, sub { $nginx->peers eq $nodes[0]->node }),
       'it is forgotten in time, without a decision';
    ok waits(1, sub { $nodes[1]->report->{clients} == 0 }), 'and left';

    $asked = asked($nodes[0], 'SLOTS');
    sleep 1.3;
    is asked($nodes[0], 'SLOTS'), $asked, 'nobody is asked any more';

    ends_well($nginx);
};


# What a proxy goes by is its own affair: keys of one slot may be on two
# servers behind it.  Only those that it can't tell apart travel together.

test call_places => sub {
    my $slot = RouteTest::crc16('t:b:here') % 16_384;
    my @same = map { key_in($slot, $slot, $_) } qw(x y z);
    my $calls = sub {
        my ($fake, $lines, $outcomes, $name) = @_;
        my $before = $fake->report->{commands};
        my ($nginx, @lines) = @$lines;

        $nginx->tell(join "\n", @lines);
        is join(' ', map { my ($id) = /^\w+ (\d+)/;
                           (split / /, $nginx->line(qr/^done $id /))[2] }
                         @lines), $outcomes, $name;

        return $fake->report->{commands} - $before;
    };

    my $both = array(':1', bulk('AA'));

    foreach my $mode (qw(proxy cluster)) {
        my $fake  = fake();
        $fake->behave('SLOTS', raw => slots([0, LAST, '', $fake->port]));
        my $nginx = nginx(mode => $mode, node => [$fake->node]);
        my $own   = $mode eq 'proxy';

        is $nginx->decide('k'), 'A', "$mode: before";

        $fake->behave('*', raw => $own ? $ADMITTED : $both);
        is $calls->($fake, [$nginx, "decide 1 @same[0, 1]"], 'AA',
                    "$mode: keys of one slot"), $own ? 2 : 1, 'calls';
        is $calls->($fake, [$nginx, map { "decide 2$_ $same[$_]" } 0, 1],
                    'A A', "$mode: of two decisions"), $own ? 2 : 1, 'calls';

        $fake->behave('*', raw => $both);
        is $calls->($fake, [$nginx, 'decide 3 {tag}1 {tag}2'], 'AA',
                    "$mode: keys of one tag"), 1, 'one call';
        is $calls->($fake, [$nginx, 'decide 4 {tag}1', 'decide 5 {tag}2'],
                    'A A', "$mode: of two decisions"), 1, 'one call';
        is $calls->($fake, [$nginx, 'decide 6 k', 'decide 7 k'],
                    'A A', "$mode: one key of two decisions"), 1, 'one call';

        ends_well($nginx);
    }
};


1;
