# Redis is away, or answers too late: nothing is reserved, and nothing of what
# becomes of units is lost.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(sleep);

use IapGuard::RedisProxy;
use StockTest;

my $SAID = qr/stock: redis \S+ is (?:down|up)|could lose promo codes|keys of the/;


# reserves from 1 to n, each by another user

sub reserve_all {
    my ($nginx, $code, $n) = @_;
    return scalar grep { $nginx->reserve($code, "u$_", $_) =~ /^ok reserved/ } 1 .. $n;
}


# A server that is killed has what it said it had only with "always": while a
# sync takes long, it lets the next write wait for up to two seconds.

test down => sub {
    my $folder = folder();
    my $redis  = redis('--appendfsync', 'always');
    my $nginx  = nginx($folder, node => $redis->node, timeout => '100ms');

    $nginx->set('D', 10);
    is reserve_all($nginx, 'D', 6), 6, 'six are reserved';

    $redis->kill;

    is $nginx->unit('D', 1, 'sell', 201), 'ok 0 0', 'sold, which is noted';
    is $nginx->unit('D', 2, 'release'), 'ok 0 0', 'released';
    is $nginx->unit('D', 3, 'keep', 0, 33), 'ok 0 0', 'kept';
    is $nginx->unit('D', 3, 'release'), 'ok 0 0', 'and released then';
    is $nginx->unit('D', 4, 'keep', 0, 44), 'ok 0 0', 'another one kept';
    is $nginx->unit('D', 5, 'renew'), 'failed 0 0', 'a lease is not noted';
    is $nginx->noted, 4, 'one note for each';
    is $nginx->reserve('D', 'new', 7), 'failed', 'nothing is reserved';
    is $nginx->says('code', 'D'), 'failed', 'nor known';
    is $nginx->says('edit', 'add:D:1'), 'failed', 'nor changed';
    is $nginx->says('codes', '-', 9), 'failed', 'nor listed';

    my $start = now();
    $nginx->reserve('D', "v$_", 100 + $_) for 1 .. 20;
    cmp_ok now() - $start, '<', 0.5, 'which is said at once';

    $redis->start;
    ok defined until_so(10, sub { $nginx->noted == 0 }), 'told when it is back';
    is $nginx->units('D'), '1:3 2:4 3:4 4:2:44 5:1 6:1', 'all of it';
    is $nginx->numbers('D'), '10 1 3/0', 'and counted';
    like $nginx->reserve('D', 'new', 8), qr/^ok reserved/, 'it goes on';
    is $nginx->unit('D', 8, 'sell'), 'ok 1 3', 'without notes';
    is $nginx->noted, 0, 'indeed';

    ends_well($nginx, $SAID);
};


# what was noted is told by whoever comes next

test restart => sub {
    my $folder = folder();
    my $redis  = redis('--appendfsync', 'always');
    my $nginx  = nginx($folder, node => $redis->node, timeout => '100ms');

    $nginx->set('R', 500);
    is reserve_all($nginx, 'R', 300), 300, 'three hundred are reserved';
    $redis->kill;

    my @asked = map { $nginx->start('unit', 'R', $_, $_ % 3 ? 'sell' : 'release') }
                1 .. 300;
    is scalar(grep { ($nginx->result($_))[0] eq 'ok' } @asked), 300,
        'all that becomes of them is noted';
    is $nginx->noted, 300, 'in the file';
    ends_well($nginx, $SAID);

    $redis->start;
    $nginx = nginx($folder, node => $redis->node);
    ok defined until_so(10, sub { $nginx->noted == 0 }), 'told by the next one';
    is $nginx->numbers('R'), '500 200 0/0', 'all of it';

    # it is killed in the middle

    $nginx->reserve('R', "w$_", 1000 + $_) for 1 .. 200;
    $redis->kill;
    @asked = map { $nginx->start('unit', 'R', 1000 + $_, 'sell') } 1 .. 200;
    $nginx->result($_) foreach @asked;
    $redis->start;
    until_so(5, sub { $nginx->noted < 200 });
    CORE::kill 'KILL', $nginx->pid;
    $nginx->wait_for_end(5);

    $nginx = nginx($folder, node => $redis->node);
    ok defined until_so(10, sub { $nginx->noted == 0 }), 'and so once more';
    is $nginx->numbers('R'), '500 400 0/0', 'each once';

    ends_well($nginx, $SAID);
};


# It answers after the decision's time, or never.

test late => sub {
    my $folder = folder();
    my $redis  = redis();
    my $proxy  = IapGuard::RedisProxy->new($redis);
    my $nginx  = nginx($folder, node => $proxy->node, timeout => '100ms');

    $nginx->set('T', 10);

    $proxy->hold('stock');
    my $start = now();
    is $nginx->reserve('T', 'ann', 1), 'late', 'a decision has its time';
    between(int(1000 * (now() - $start)), 90, 250, 'and no more');
    $proxy->release;
    ok defined until_so(5, sub { $nginx->units('T') eq '1:4' }),
        'what it reserved after all is released';
    is $nginx->numbers('T'), '10 0 0/0', 'so that nobody has it';

    # the script has run, but nobody is told

    $proxy->keep('stock');
    is $nginx->reserve('T', 'bob', 2), 'late', 'late';
    $proxy->cut;
    $proxy->release;
    ok defined until_so(10, sub { $nginx->units('T') eq '1:4 2:4' }),
        'reserved without a word: released';
    is $nginx->numbers('T'), '10 0 0/0', 'so that nobody has it';
    is $nginx->noted, 0, 'nothing is left to be told';

    # it may come before what it is to be released of

    $proxy->hold('stock');
    my $id = $nginx->start('reserve', 'T', 'cid', 3);
    is +($nginx->result($id))[0], 'late', 'late';
    $proxy->cut;
    $proxy->release;
    ok defined until_so(10, sub { $nginx->units('T') eq '1:4 2:4 3:4' }),
        'one that never arrived leaves its tombstone';

    # a unit that is late

    $nginx->reserve('T', 'dan', 4);
    $proxy->hold('stock');
    $id = $nginx->start('unit', 'T', 4, 'sell', 200);
    is $nginx->noted, 0, 'it may still be told';
    is join(' ', $nginx->result($id)), 'ok 0 0', 'it is noted';
    $proxy->release;
    ok defined until_so(10, sub { $nginx->noted == 0 }), 'and told';
    is $nginx->numbers('T'), '10 1 0/0', 'once';

    ends_well($nginx, $SAID);
};


# nginx ends while Redis does not answer

test ends => sub {
    my $folder = folder();
    my $redis  = redis();
    my $proxy  = IapGuard::RedisProxy->new($redis);
    my $nginx  = nginx($folder, node => $proxy->node, shutdown => '300ms');

    $nginx->set('E', 10);
    is reserve_all($nginx, 'E', 3), 3, 'three are reserved';
    $proxy->hold('stock');
    $nginx->start('unit', 'E', 1, 'sell', 200);
    $nginx->start('unit', 'E', 2, 'release');
    $nginx->start('reserve', 'E', 'new', 9);
    sleep 0.1;
    ends_well($nginx, $SAID);
    $proxy->cut;
    $proxy->release;

    $nginx = nginx($folder, node => $redis->node);
    ok defined until_so(10, sub { $nginx->noted == 0 && $nginx->numbers('E') eq '10 1 1/0' }),
        'the next one tells what became of them';
    is $nginx->units('E'), '1:3 2:4 3:1 9:4', 'all of it';

    ends_well($nginx, $SAID);
};


# It sleeps: what it was asked is carried out when it wakes

test asleep => sub {
    my $folder = folder();
    my $redis  = redis();
    my $nginx  = nginx($folder, node => $redis->node, timeout => '100ms');

    $nginx->set('S', 100);
    is reserve_all($nginx, 'S', 20), 20, 'twenty are reserved';
    $redis->freeze;

    my @units = map { $nginx->start('unit', 'S', $_, $_ % 2 ? 'sell' : 'release') }
                1 .. 20;
    my %said;
    $said{ $nginx->reserve('S', "n$_", 100 + $_) }++ foreach 1 .. 20;
    is join(' ', sort keys %said), 'failed late', 'none is reserved';
    is scalar(grep { ($nginx->result($_))[0] eq 'ok' } @units), 20,
        'what became of twenty is known';
    $redis->thaw;

    ok defined until_so(10, sub { $nginx->noted == 0 }), 'it wakes';
    is $nginx->numbers('S'), '100 10 0/0', 'ten are sold, none is reserved';

    ends_well($nginx, $SAID);
};


1;
