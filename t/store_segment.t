# Segments in a store: nobody is forgotten who has passed, and once one is full
# it costs next to nothing, however many new users come.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(sleep time);

use lib 't/lib';
use IapGuard::RedisProxy;
use IapGuard::StoreTest;

my $redis = redis();

my $ten = '
    location /t { iap_guard g; iap_guard_user $arg_u;
                  iap_guard_segment users=10 window=1h address=$arg_ip;
                  empty_gif; }';


# the set of an address, of a window of an hour

sub set { return "iap:$_[0]:segment/32/12000000000:$_[1]/32" }

sub fill {
    my ($guard, $ip, @users) = @_;
    my ($seconds) = $redis->cli('TIME') =~ /^(\d+)/;

    # the part of ten minutes that it is now

    $redis->command('ZADD', set($guard, $ip),
                    map { int(($seconds - 1_735_689_600) / 600) => $_ } @users);
    return;
}


foreach my $mode (qw(single proxy)) {
    subtest "ten thousand new users, two machines, mode=$mode" => sub {
        my @nginx = map { site($redis, "timeout=5s mode=$mode",
                               server => $ten) } 1 .. 2;
        my @users = map { "/t?ip=192.0.2.1&u=k$_" } 1 .. 10;

        is_deeply flood($nginx[0], @users), { 200 => 10 }, 'ten users';

        my $before = scripts($redis);

        foreach my $i (0, 1) {
            my @new = map { "/t?ip=192.0.2.1&u=n$i-$_" } 1 .. 5000;

            # from time to time one that is known

            splice @new, 4500 - 450 * $_, 0, $users[$_] foreach 0 .. 9;

            is_deeply flood($nginx[$i], @new), { 200 => 10, 429 => 5000 },
                "machine $i: the ten pass, and nobody else";
        }

        like $nginx[1]->get('/t?ip=192.0.2.1&u=n2-1')->{headers}{'retry-after'},
            qr/^(?:3[0-5]\d\d|3600)$/, 'and is told when one may leave';

        my $calls = scripts($redis) - $before;

        # each of the ten asks, at each machine; in slots each layer by itself

        my $asked = 20 * ($mode eq 'proxy' ? 2 : 1);
        cmp_ok $calls - $asked, '<=', $mode eq 'proxy' ? 80 : 20,
            "a handful of calls ($calls)";
        is $redis->cli('ZCARD', set('g', '192.0.2.1')), 10, 'ten are counted';

        is $nginx[1]->api_json('GET', 'guards/g')->{zone_full}{denied}, 0,
            'no want of room';
        is statuses($nginx[0], '/t?ip=192.0.2.2&u=n', 1), '200',
            'another segment is another';

        ends_well($_) foreach @nginx;
        $redis->cli('FLUSHALL');
    };
}


subtest 'until one of them leaves' => sub {
    my $nginx = site($redis, 'timeout=5s', server => '
        location /t { iap_guard g; iap_guard_user $arg_u;
                      iap_guard_segment users=2 window=3s; empty_gif; }');

    my $start = time;
    is statuses($nginx, "/t?u=$_", 1), '200', "user $_" foreach qw(a b);
    is statuses($nginx, '/t?u=c', 2), '429 429', 'user c';

    while (time < $start + 2) {
        last unless statuses($nginx, '/t?u=c', 1) eq '429';
        sleep 0.05;
    }

    cmp_ok time - $start, '>=', 2, 'not before it is time';
    ok(IapGuard::Nginx->wait_for(5, sub {
        statuses($nginx, '/t?u=c', 1) eq '200' }), 'but then');

    # who stays is refreshed, and goes on to be let in

    # (the second one may have come in the next part of the window)

    ok(IapGuard::Nginx->wait_for(2, sub {
        statuses($nginx, '/t?u=d', 1) eq '200' }), 'and user d');
    $start = time;
    is statuses($nginx, '/t?u=e', 1), '429', 'but not user e';

    my %seen;
    while (time < $start + 4) {
        $seen{ statuses($nginx, '/t?u=c', 1) }++;
        $seen{ statuses($nginx, '/t?u=d', 1) }++;
        statuses($nginx, '/t?u=e', 1) eq '429' or fail 'user e came in';
        sleep 0.05;
    }
    is_deeply [keys %seen], ['200'], 'those who come again stay for long';

    ends_well($nginx);
    $redis->cli('FLUSHALL');
};


# One request of a user enters it, and is refused elsewhere; another one has
# passed meanwhile

subtest 'what is given back is nobody who has passed' => sub {
    my $proxy = IapGuard::RedisProxy->new($redis);
    my ($one, $two) = map { site($redis, "redis://$_ mode=proxy timeout=5s",
        server => '
        location /t { iap_guard g; iap_guard_user $arg_u;
                      iap_guard_segment users=3 window=1h address=$arg_ip;
                      iap_guard_device $arg_d capacity=1 rate=1r/h;
                      empty_gif; }') } $proxy->node, $redis->node;
    my $path = '/t?ip=192.0.2.1';

    is statuses($two, "$path&u=x&d=spent", 1), '200', 'a device is spent';

    # nobody else has met this one: it goes

    is statuses($one, "$path&u=gone&d=spent", 1), '429', 'another user';
    ok(IapGuard::Nginx->wait_for(5, sub {
        $redis->cli('ZCARD', set('g', '192.0.2.1')) == 1 }),
       'who was refused is not counted');

    $proxy->hold('decide', ':device:');

    my $child = IapGuard::Child->start(sub {
        return statuses($one, "$path&u=y&d=spent2", 1) eq '429' ? 0 : 1;
    });
    $redis->command('SET', 'iap:g:device:spent2',
                    '4503599627370496', 'PX', 3_600_000);
    ok(IapGuard::Nginx->wait_for(5, sub { $proxy->held('decide') }),
       'it waits to hear of the device');
    is statuses($two, "$path&u=y&d=fresh", 1), '200',
       'while the same user passes with another one';
    $proxy->release;
    ok(IapGuard::Nginx->wait_for(5, sub { $proxy->keys('refund') >= 2 }),
       'it was refused, and given back');
    $child->stop;
    is $child->stop, 0, 'which it was told';

    is $redis->cli('ZCARD', set('g', '192.0.2.1')), 2, 'but is counted';
    is statuses($two, "$path&u=$_->[0]&d=$_->[0]", 1), $_->[1],
       "user $_->[0]" foreach ['z', 200], ['more', 429], ['y', 200];

    ends_well($_) foreach $one, $two;
    $proxy->stop;
    $redis->cli('FLUSHALL');
};


# One segment, two limits: what the higher one lets in, the lower one knows

subtest 'another limit of the same segment' => sub {
    my $nginx = site($redis, 'timeout=5s', server => '
        location /t { iap_guard g; iap_guard_user $arg_u;
                      iap_guard_segment users=$arg_n window=1h; empty_gif; }');

    is statuses($nginx, '/t?n=1&u=a', 1), '200', 'one user';
    is statuses($nginx, '/t?n=1&u=b', 2), '429 429', 'is enough';
    is statuses($nginx, '/t?n=1&u=d', 2), '429 429', 'who else it may be';
    is statuses($nginx, '/t?n=2&u=c', 1), '200', 'but not where two may come';
    ok(IapGuard::Nginx->wait_for(5, sub {
        statuses($nginx, '/t?n=1&u=c', 1) eq '200' }), 'which is soon seen');
    is statuses($nginx, '/t?n=1&u=b', 1), '429', 'the other is still out';

    ends_well($nginx);
    $redis->cli('FLUSHALL');
};


subtest 'a lifted ban makes room' => sub {
    my $nginx = site($redis, 'timeout=5s', server => $ten);
    my @users = map { "/t?ip=192.0.2.1&u=k$_" } 1 .. 10;

    is_deeply flood($nginx, @users), { 200 => 10 }, 'ten users';
    is statuses($nginx, '/t?ip=192.0.2.1&u=new', 2), '429 429', 'is enough';
    $nginx->ban('g', 'segment', '192.0.2.1/32', 3600);
    $nginx->api('DELETE', 'bans?guard=g');
    ok(IapGuard::Nginx->wait_for(5, sub {
        statuses($nginx, '/t?ip=192.0.2.1&u=new', 1) eq '200' }),
       'not afterwards');

    ends_well($nginx);
    $redis->cli('FLUSHALL');
};


# More users than are told: each of them is remembered by itself, as long as
# there is room, which others keep

subtest 'a large segment does not keep others out of the cache' => sub {
    my $nginx = site($redis, 'timeout=5s', zone => '64k', server => '
        location /s { iap_guard s; iap_guard_user $arg_u;
                      iap_guard_segment users=300 window=1h address=$arg_ip;
                      empty_gif; }
        location /u { iap_guard u; iap_guard_user $arg_u capacity=1 rate=1r/h;
                      empty_gif; }
        location /g { iap_guard gl; iap_guard_global rate=1r/h window=1h;
                      empty_gif; }');

    fill('s', '192.0.2.1', map { "k$_" } 1 .. 300);

    is_deeply flood($nginx, map { "/s?ip=192.0.2.1&u=n$_" } 1 .. 2000),
        { 429 => 2000 }, 'two thousand new ones';
    is statuses($nginx, '/s?ip=192.0.2.1&u=k7', 1), '200', 'and one of it';
    cmp_ok $nginx->api_json('GET', 'guards/s')->{zone_full}{denied}, '>', 1000,
        'most of them found no room';

    is statuses($nginx, "/u?u=$_", 4), '200 429 429 429', "user $_"
        foreach 1 .. 5;
    is hits($nginx, 'u'), 10, 'all of it without asking but once';

    # so many spent users that there is no room for any other, but for this one

    is_deeply flood($nginx, map { ("/u?u=x$_") x 2 } 1 .. 400),
        { 200 => 400, 429 => 400 }, 'four hundred spent users';
    cmp_ok $nginx->api_json('GET', 'guards/u')->{zone_full}{denied}, '>', 100,
        'some found no room';
    is statuses($nginx, '/g', 5), '200 429 429 429 429', 'the global window';
    is hits($nginx, 'gl'), 3, 'has its own';

    ends_well($nginx);
    $redis->cli('FLUSHALL');
};


done_testing;
