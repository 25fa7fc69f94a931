# What is asked of codes, and that the answers are those of the script.

use strict;
use warnings;

use Test::More;

use StockTest;


test reserve => sub {
    my $folder = folder();
    my $redis  = redis();
    my $nginx  = nginx($folder, node => $redis->node);

    like $nginx->reserve('SPRING', 'ann', 1), qr/^ok unknown 0 /, 'no such code';
    is $nginx->says('code', 'SPRING'), 'none', 'indeed';
    is $nginx->says('edit', 'set:SPRING:2:0'), 'ok 2 0 0 0 0 0 0', 'made';
    like $nginx->reserve('SPRING', 'ann', 1), qr/^ok reserved 0 /, 'reserved';
    like $nginx->reserve('SPRING', 'ann', 2), qr/^ok in_progress /, 'by ann';
    like $nginx->reserve('SPRING', 'bob', 3), qr/^ok reserved /, 'another';
    like $nginx->reserve('SPRING', 'cid', 4), qr/^ok none_free /, 'no more';
    is $nginx->unit('SPRING', 1, 'sell', 201), 'ok 1 3', 'sold';
    like $nginx->reserve('SPRING', 'ann', 5), qr/^ok redeemed 201 /, 'to ann';
    is $nginx->unit('SPRING', 3, 'keep', 0, 77), 'ok 1 2', 'kept';
    is $nginx->units('SPRING'), '1:3 3:2:77', 'by a ticket';
    is $nginx->unit('SPRING', 3, 'renew'), 'none 2 2', 'which has no lease';
    is $nginx->unit('SPRING', 3, 'sell', 200), 'ok 2 3', 'sold as well';
    like $nginx->reserve('SPRING', 'cid', 4), qr/^ok gone /, 'none is left';
    is $nginx->unit('SPRING', 3, 'release'), 'ok 3 3', 'the first word stands';
    is $nginx->unit('SPRING', 9, 'sell'), 'none 0 0', 'not known';
    is $nginx->unit('SUMMER', 9, 'sell'), 'none 0 0', 'no such code';
    is $nginx->numbers('SPRING'), '2 2 0/0', 'as it is counted';

    is $nginx->unit('SPRING', 8, 'release'), 'ok 0 4', 'before it comes';
    is $nginx->reserve('SPRING', 'dan', 8), 'failed', 'so it comes too late';
    like $nginx->reserve('SPRING', 'eve', 10, 1000, 's', 'dry'),
        qr/^ok gone /, 'a dry run';
    is $nginx->noted, 0, 'nothing was noted';

    ends_well($nginx);
};


test leases => sub {
    my $folder = folder();
    my $redis  = redis();
    my $nginx  = nginx($folder, node => $redis->node);

    $nginx->set('L', 10);
    $nginx->reserve('L', 'ann', 1, 300, 's');
    $nginx->reserve('L', 'bob', 2, 300, 'r');
    $nginx->reserve('L', 'cid', 3, 300, 's');
    is $nginx->unit('L', 3, 'renew', 0, 0, 60_000), 'ok 1 1', 'one is renewed';
    is $nginx->numbers('L'), '10 0 3/0', 'three are reserved';
    Time::HiRes::sleep(0.4);
    is $nginx->numbers('L'), '10 1 1/0', 'two have run out';
    is $nginx->units('L'), '1:5 2:6 3:1', 'as was said';
    like $nginx->reserve('L', 'ann', 4), qr/^ok reserved/, 'ann tries again';
    is $nginx->numbers('L'), '10 0 2/0', 'and uses one unit';

    ends_well($nginx);
};


test edit => sub {
    my $folder = folder();
    my $redis  = redis();
    my $nginx  = nginx($folder, node => $redis->node);

    is $nginx->says('edit', 'add:A:1'), 'none 0 unknown', 'none to add to';
    is $nginx->says('edit', 'set:A:5:0', 'set:B:6:4102444800000'), 'ok',
        'two at once';
    is $nginx->says('code', 'B'), 'ok 6 0 0 0 0 4102444800000 0', 'one of them';
    is $nginx->says('edit', 'set:A:1:0', 'close:B', 'delete:C'),
        'none 2 unknown', 'all or none';
    is $nginx->says('code', 'A'), 'ok 5 0 0 0 0 0 0', 'none';
    is $nginx->says('edit', 'close:A'), 'ok 5 0 0 0 0 0 1', 'closed';
    is $nginx->says('edit', 'open:A'), 'ok 5 0 0 0 0 0 0', 'open';
    $nginx->reserve('A', 'ann', 1);
    is $nginx->says('edit', 'delete:A'), 'none 0 in_use', 'not while it is used';
    is $nginx->says('edit', 'add:A:-5'), 'none 0 too_few', 'nor less of it';
    is $nginx->says('edit', 'set:A:1000000001:0'), 'none 0 too_many', 'too many';
    is $nginx->says('edit', 'add:A:-4'), 'ok 1 0 1 0 0 0 0', 'as few as can be';
    $nginx->unit('A', 1, 'release');
    $nginx->unit('A', 1, 'sell');
    $nginx->reserve('A', 'bob', 2);
    is $nginx->says('codes', '-', 10), 'ok 0 A:1:1:0:0 B:6:0:0:0', 'listed';
    is $nginx->says('edit', 'delete:A'), 'ok 0 0 0 0 0 0 0', 'deleted';
    is $nginx->says('codes', '-', 10), 'ok 0 B:6:0:0:0', 'and gone';

    my $start = now();
    is $nginx->says('edits', 10_000, 'set', 3), 'ok', 'ten thousand';
    note sprintf '10000 codes: %.0f ms', 1000 * (now() - $start);
    like $nginx->says('codes', '-', 2), qr/^ok 1 B:\S+ B0:3:0:0:0$/, 'two of them';
    like $nginx->says('codes', 'B0', 2), qr/^ok 1 B1:\S+ B10:\S+$/, 'two more';
    my @all = $nginx->ask('codes', '-', 1000);
    is scalar(@all), 1002, 'a thousand of them';
    is $nginx->says('edits', 10_000, 'delete', 0), 'ok', 'all are deleted';
    is $nginx->says('codes', '-', 10), 'ok 0 B:6:0:0:0', 'but one';

    ends_well($nginx);
};


test many => sub {
    my $folder = folder();
    my $redis  = redis();
    my $nginx  = nginx($folder, node => $redis->node);
    my $usec   = sub {
        my ($n) = $redis->command('INFO', 'commandstats')
                  =~ /cmdstat_evalsha:calls=\d+,usec=(\d+)/;
        return $n // 0;
    };

    $nginx->set('M', 1500);
    my $before = $usec->();
    my (undef, $reserved, $sold, $other, $ms) = $nginx->ask('many', 2000, 100, 'M');
    is "$reserved $sold $other", '1500 1500 500', 'as many as there are';
    is $nginx->numbers('M'), '1500 1500 0/0', 'all are sold';
    note sprintf '2000 reservations, 1500 sales: %d ms; %.0f us of Redis for'
        . ' one of each', $ms, ($usec->() - $before) / 1750;

    # thousands of units that are forgotten, or run out

    $redis->command('EVAL', <<'END', 1, 't:code:{M}:sold');
        for _, token in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
          redis.call('ZADD', KEYS[1], 1, token)
        end
END
    is $nginx->numbers('M'), '1500 1500 0/0', 'forgotten, and sold';
    is $nginx->units('M'), '', 'none is known any more';

    ends_well($nginx);
};


1;
