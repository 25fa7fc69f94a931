# The same in a Cluster, with Sentinels and behind a proxy.

use strict;
use warnings;

use Test::More;

use IapGuard::RedisCluster;
use IapGuard::RedisSentinel;
use StockTest;

my $SAID = qr/stock: redis|redis \S+ is (?:down|up)|could lose|no node|no master/;


# what any of them must do

sub works {
    my ($nginx, $name) = @_;
    my @codes = map { "C$_" } 1 .. 40;

    is $nginx->says('edit', map { "set:$_:3:0" } @codes), 'ok',
        "$name: many codes at once";
    is $nginx->says('edit', 'set:C1:9:0', 'add:C2:1', 'close:NONE'),
        'none 2 unknown', "$name: all or none";
    is $nginx->says('code', 'C1'), 'ok 3 0 0 0 0 0 0', "$name: none";
    is scalar(grep { $nginx->reserve($_, 'ann', 1) =~ /^ok reserved/ } @codes), 40,
        "$name: one of each is reserved";
    is scalar(grep { $nginx->unit($_, 1, 'sell', 201) eq 'ok 1 3' } @codes), 40,
        "$name: and sold";
    like $nginx->reserve('C7', 'ann', 2), qr/^ok redeemed 201/, "$name: once";

    is join(' ', $nginx->ask('codes', '-', 100)),
        join(' ', 'ok 0', map { "$_:3:1:0:0" } sort @codes), "$name: listed";
    is $nginx->says('codes', 'C38', 2), 'ok 1 C39:3:1:0:0 C4:3:1:0:0',
        "$name: from one on";
    is $nginx->says('edit', map { "delete:$_" } grep { $_ ne 'C5' } @codes), 'ok',
        "$name: many go";
    is $nginx->says('codes', '-', 3), 'ok 0 C5:3:1:0:0', "$name: one is left";
    is $nginx->says('edit', 'delete:C5', 'set:C6:1:0'), 'ok', "$name: then none";
    is $nginx->says('codes', '-', 3), 'ok 0 C6:1:0:0:0', "$name: but another";
    is $nginx->noted, 0, "$name: nothing was noted";

    # more than go into one call

    is $nginx->says('edits', 250, 'set', 3), 'ok', "$name: in pieces";
    is scalar(@{[ $nginx->ask('codes', '-', 1000) ]}), 2 + 1 + 250,
        "$name: all of them are named";
    is $nginx->says('edits', 251, 'close', 0), 'none 250 unknown',
        "$name: one that is not there";
    is $nginx->says('code', 'B0'), 'ok 3 0 0 0 0 0 0', "$name: none is closed";
    is $nginx->says('edits', 250, 'delete', 0), 'ok', "$name: all go";
    is $nginx->says('codes', '-', 9), 'ok 0 C6:1:0:0:0', "$name: one is left";

    return;
}


# "always": one that is killed has all that it said it had

sub with_files {
    my (@servers) = @_;

    foreach my $server (@servers) {
        $server->command('CONFIG', 'SET', 'appendfsync', 'always');
        $server->command('CONFIG', 'SET', 'appendonly', 'yes');
    }

    return;
}


test cluster => sub {
    my $folder = folder();
    my $redis  = IapGuard::RedisCluster->new(masters => 3, replicas => 0);
    my @nodes  = $redis->nodes;

    with_files(@nodes);
    my $nginx = nginx($folder, mode => 'cluster',
                      node => [map { $_->node } @nodes]);

    works($nginx, 'cluster');

    # one of its nodes is away: the others go on

    my @codes = map { "N$_" } 1 .. 30;
    $nginx->says('edit', map { "set:$_:9:0" } @codes);
    $nginx->reserve($_, 'ann', 1) foreach @codes;

    my $away = $nodes[1];
    my %away = map { $_ => 1 }
        grep { $redis->owner($redis->slot("t:code:{$_}:code")) == $away } @codes;

    # without a node the others refuse, unless they may serve what they have

    $_->command('CONFIG', 'SET', 'cluster-require-full-coverage', 'no')
        foreach @nodes;
    $away->kill;

    my $noted = 0;
    foreach my $code (@codes) {
        my $said = $nginx->unit($code, 1, 'sell');
        $noted++ if $said eq 'ok 0 0';
        fail("cluster: $code: $said") if $said !~ /^ok /;
    }

    cmp_ok $noted, '>=', keys %away, 'cluster: what one can\'t be told is noted';
    ok defined until_so(10, sub { $nginx->noted == keys %away }),
        'cluster: the others are told';
    my ($there) = grep { !$away{$_} } @codes;
    my ($gone)  = grep { $away{$_} } @codes;
    like $nginx->reserve($there, 'bob', 2), qr/^ok reserved/,
        'cluster: and reserve';
    like $nginx->reserve($gone, 'bob', 2), qr/^(?:late|failed)/,
        'cluster: what is away is not';
    is $nginx->says('codes', '-', 100), 'failed', 'cluster: nor is all listed';

    $away->start('--appendonly', 'yes');
    ok defined until_so(30, sub { $nginx->noted == 0 }), 'cluster: it is back';
    is $nginx->numbers($gone), '9 1 0/0', 'cluster: and knows';

    ends_well($nginx, $SAID);
};


test moved => sub {
    my $folder = folder();
    my $redis  = IapGuard::RedisCluster->new(masters => 2, replicas => 0);
    my @nodes  = $redis->nodes;

    with_files(@nodes);
    my $nginx = nginx($folder, mode => 'cluster',
                      node => [map { $_->node } @nodes]);

    $nginx->set('MOVED', 50);
    $nginx->reserve('MOVED', "u$_", $_) foreach 1 .. 10;

    my $slot = $redis->slot('t:code:{MOVED}:code');
    my ($to) = grep { $_ != $redis->owner($slot) } @nodes;
    $redis->move($slot, $to);

    is $nginx->unit('MOVED', $_, 'sell'), 'ok 1 3', "moved: $_ is sold"
        foreach 1 .. 5;
    is $nginx->numbers('MOVED'), '50 5 5/0', 'moved: with all that belongs to it';

    ends_well($nginx, $SAID);
};


test sentinel => sub {
    my $folder = folder();
    my $redis  = IapGuard::RedisSentinel->new;

    with_files($redis->servers);
    my $nginx = nginx($folder, mode => 'sentinel', master_name => $redis->name,
                      node => [map { s{.*/}{}r } split ' ', $redis->urls]);

    works($nginx, 'sentinel');

    $nginx->set('F', 100);
    $nginx->reserve('F', "u$_", $_) foreach 1 .. 40;
    until_so(5, sub {
        my $offset = sub { $_[0]->info('replication')->{master_repl_offset} };
        my ($one, $two) = map { $offset->($_) } $redis->servers;
        $one == $two });

    my $old = $redis->master;
    my @asked = map { $nginx->start('unit', 'F', $_, 'sell', 200) } 1 .. 20;
    $old->kill;
    push @asked, map { $nginx->start('unit', 'F', $_, 'release') } 21 .. 40;
    is scalar(grep { ($nginx->result($_, 10))[0] eq 'ok' } @asked), 40,
        'failover: what becomes of all is known';

    $redis->wait_for_another($old);
    ok defined until_so(20, sub { $nginx->noted == 0 }),
        'failover: the new master is told';
    my $numbers = $nginx->numbers('F');
    like $numbers, qr{^100 \d+ \d+/0$}, "failover: and consistent: $numbers";
    ok defined until_so(5, sub { $nginx->reserve('F', 'new', 99) =~ /^ok reserved/ }),
        'failover: it goes on';

    ends_well($nginx, $SAID);
};


test proxy => sub {
    my $folder = folder();
    my $redis  = redis();
    my $nginx  = nginx($folder, mode => 'proxy', node => $redis->node);

    works($nginx, 'proxy');

    # it looks at the server behind it

    $redis->command('CONFIG', 'SET', 'appendonly', 'no');
    $redis->command('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
    is $nginx->reserve('C6', 'ann', 5), 'failed', 'proxy: one that loses it';

    ends_well($nginx, $SAID);
};


1;
