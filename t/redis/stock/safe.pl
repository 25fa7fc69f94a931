# Stock in a server that could lose it: no.

use strict;
use warnings;

use Test::More;

use StockTest;


sub said { my ($nginx, $pattern) = @_; return scalar @{[ $nginx->log_lines($pattern) ]} }


test safe => sub {
    my $folder = folder();
    my $redis  = redis();
    my $nginx  = nginx($folder, node => $redis->node);
    my $lost   = qr/stock: redis could lose promo codes/;

    $nginx->set('S', 10);
    like $nginx->reserve('S', 'ann', 1), qr/^ok reserved/, 'a server that keeps it';

    # it is found out with another connection, or after ten seconds

    $redis->command('CONFIG', 'SET', 'appendonly', 'no');
    $redis->command('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
    is $nginx->reserve('S', 'bob', 2), 'failed', 'no append-only file: no';
    is $nginx->says('edit', 'set:S:20:0'), 'failed', 'nor is a code changed';
    is $nginx->says('edit', 'set:NEW:20:0'), 'failed', 'nor made';
    is said($nginx, qr/$lost: "appendonly" is not "yes"; none is reserved/), 1,
        'which is said once';
    is $nginx->unit('S', 1, 'sell'), 'ok 1 3', 'what was reserved is sold';
    is $nginx->numbers('S'), '10 1 0/0', 'and seen';
    is $nginx->noted, 0, 'the server is well';

    $redis->command('CONFIG', 'SET', 'appendonly', 'yes');
    like $nginx->reserve('S', 'bob', 2), qr/^ok reserved/, 'it keeps it again';
    is said($nginx, qr/stock: redis may have promo codes again/), 1,
        'which is said';

    $redis->command('CONFIG', 'SET', 'maxmemory-policy', 'allkeys-lru');
    like $nginx->reserve('S', 'cid', 3), qr/^ok reserved/,
        'nobody looks each time';
    is $nginx->says('edit', 'add:S:1'), 'failed', 'but for a change';
    is $nginx->reserve('S', 'dan', 4), 'failed', 'and knows it from then on';

    ends_well($nginx, $lost, qr/may have promo codes again/);
};


# before anybody asks

test watch => sub {
    my $folder = folder();
    my $redis  = redis('--maxmemory-policy', 'allkeys-lfu');
    my $nginx  = nginx($folder, node => $redis->node, watch => 1);
    my $lost   = qr/stock: redis could lose promo codes/;

    ok defined until_so(5, sub { said($nginx, $lost) }), 'it is said at once';
    is said($nginx, qr/$lost: "maxmemory-policy" is "allkeys-lfu"/), 1, 'and why';
    $redis->command('CONFIG', 'SET', 'maxmemory-policy', 'noeviction');
    ok defined until_so(15, sub { said($nginx, qr/may have promo codes again/) }),
        'and when it is over';

    ends_well($nginx, $lost, qr/may have promo codes again/);
};


# a server that does not tell

test rights => sub {
    my $folder = folder();
    my $redis  = redis();

    $redis->command('ACL', 'SETUSER', 'default', '-info');
    my $nginx = nginx($folder, node => $redis->node);

    is $nginx->says('edit', 'set:S:20:0'), 'failed', 'a server that does not tell';
    is said($nginx, qr/it does not tell: INFO is not allowed/), 1, 'is no safe one';
    $redis->command('ACL', 'SETUSER', 'default', '+info');
    is $nginx->set('S', 3), 'ok', 'one that does';

    # a right that is missing is said by the probe, for as long as it takes

    $redis->command('ACL', 'SETUSER', 'default', '-hmget');
    $nginx->reserve('S', 'u', $_) foreach 1 .. 10;
    is $nginx->reserve('S', 'u', 11), 'failed', 'a right is missing';
    is said($nginx, qr/stock: redis \S+ is down: /), 1, 'which is said';
    Time::HiRes::sleep(2.5);
    is said($nginx, qr/stock: redis \S+ is (?:down|up)/), 1, 'once';
    $redis->command('ACL', 'SETUSER', 'default', '+hmget');
    ok defined until_so(5, sub { $nginx->reserve('S', 'u', 12) =~ /^ok reserved/ }),
        'and when it is there, it goes on';

    ends_well($nginx, qr/stock: redis/);
};


# something else in the keys of one code: other codes know nothing of it

test broken => sub {
    my $folder = folder();
    my $redis  = redis();
    my $nginx  = nginx($folder, node => $redis->node);

    $nginx->set($_, 5) foreach qw(GOOD BAD);
    $nginx->reserve('BAD', 'ann', 1);
    $nginx->reserve('GOOD', 'ann', 2);
    $redis->command('RENAME', 't:code:{BAD}:unit', 't:code:{BAD}:hidden');
    $redis->command('SET', 't:code:{BAD}:unit', 'x');

    is $nginx->reserve('BAD', "u$_", 10 + $_), 'failed', 'not this one'
        foreach 1 .. 8;
    is $nginx->says('code', 'BAD'), 'failed', 'nor is it shown';
    is $nginx->says('edit', 'add:BAD:1'), 'failed', 'nor changed';
    like $nginx->reserve('GOOD', 'bob', 3), qr/^ok reserved/, 'but another';
    is said($nginx, qr/something else in the keys of the promo code "BAD"/), 1,
        'which is said once';
    is said($nginx, qr/is down/), 0, 'the server is well';

    is $nginx->unit('BAD', 1, 'sell'), 'ok 0 0', 'what becomes of it is noted';
    is $nginx->unit('GOOD', 2, 'sell'), 'ok 0 0', 'and of others behind it';
    ok defined until_so(5, sub { $nginx->noted == 1 }), 'which are told at once';
    is $nginx->numbers('GOOD'), '5 1 1/0', 'indeed';

    $redis->command('RENAME', 't:code:{BAD}:hidden', 't:code:{BAD}:unit');
    ok defined until_so(5, sub { $nginx->noted == 0 }), 'mended, and told';
    is $nginx->numbers('BAD'), '5 1 0/0', 'all is there';

    ends_well($nginx, qr/something else in the keys/);
};


1;
