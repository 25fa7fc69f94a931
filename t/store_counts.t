# What is counted in Redis, under which names, for whom, and what is told of
# it.  That the answers are the same as without a store, the suite "store"
# shows.

use strict;
use warnings;

use Test::More;

use lib 't/lib';
use IapGuard::StoreTest;

my $redis = redis();


subtest 'the names of keys' => sub {
    my $nginx = site($redis, 'timeout=5s', server => '
        location /t {
            iap_guard g;
            iap_guard_segment users=5 window=60s address=$arg_ip;
            iap_guard_segment ipv4=24 ipv6=48 users=5 window=1h address=$arg_ip;
            iap_guard_user $arg_u capacity=2 rate=1r/h;
            iap_guard_device $arg_d capacity=2 rate=1r/h;
            iap_guard_bucket app $arg_a capacity=2 rate=1r/h missing=skip;
            iap_guard_global rate=100r/s window=2m;
            empty_gif;
        }');

    is statuses($nginx, '/t?u=alice&d=phone&a=shop&ip=192.0.2.7', 1), 200,
        'a request';
    is keys_of($redis), join(' ', sort qw(
        iap:g:user:alice iap:g:device:phone iap:g:app:shop
        iap:g:segment/32/200000000:192.0.2.7/32
        iap:g:segment/24/12000000000:192.0.2.0/24
        iap:g:global/2400000000:all)), 'a key for each layer';

    is $redis->cli('ZRANGE', 'iap:g:segment/24/12000000000:192.0.2.0/24', 0,
                   -1), 'alice', 'whose members are users';

    foreach my $key (split / /, keys_of($redis)) {
        cmp_ok $redis->cli('TTL', $key), '>', 0, "$key expires";
    }

    $redis->cli('FLUSHALL');
    is statuses($nginx, '/t?u=a&ip=2001:db8:1:2:3::4', 1), 200, 'IPv6';
    is keys_of($redis), join(' ', sort qw(
        iap:g:user:a iap:g:global/2400000000:all
        iap:g:segment/32/200000000:2001:db8:1:2::/64
        iap:g:segment/24/12000000000:2001:db8:1::/48)),
        'no device and no app: no keys for them';

    $redis->cli('FLUSHALL');
    is statuses($nginx, '/t?ip=192.0.2.7', 1), 200, 'no identity';
    like keys_of($redis), qr/iap:g:device:\@127\.0\.0\.1 .*iap:g:user:\@127/,
        'the address stands in';

    $redis->cli('FLUSHALL');
    my ($long, $brace) = ('x' x 65, '{tag}' . 'x' x 58);
    is statuses($nginx, "/t?u=$long&d={tag}&a=$brace&ip=192.0.2.7", 1), 200,
        'odd identities';

    my $keys = keys_of($redis);
    like $keys, qr/(?:^| )iap:g:user:~[\w-]{43}(?: |$)/, 'a long one is hashed';
    like $keys, qr/(?:^| )iap:g:device:\{\}\{tag\}(?: |$)/,
        'one with braces does not choose its slot';
    like $keys, qr/(?:^| )iap:g:app:~[\w-]{43}(?: |$)/,
        'one for which there is no room in front is hashed';

    ends_well($nginx);
    $redis->cli('FLUSHALL');
};


subtest 'prefix, database, secret' => sub {
    my $folder = $redis->folder;
    open my $file, '>', "$folder/secret" or die "$!\n";
    print {$file} "a secret\n";
    close $file;

    my $nginx = site($redis, $redis->node . '/3 timeout=5s "prefix={shop}:1"',
        http => "iap_guard_key_secret $folder/secret;", server => '
        location /t { iap_guard g; iap_guard_user $arg_u capacity=2 rate=1r/h;
                      empty_gif; }');

    is statuses($nginx, '/t?u=alice', 3), '200 200 429', 'two tokens';
    is keys_of($redis), '', 'nothing in database 0';
    like keys_of($redis, 3), qr/^\{shop\}:1:g:user:~[\w-]{43}$/,
        'the prefix, and no word of alice';

    ends_well($nginx);
    $redis->cli('FLUSHALL');
};


subtest 'two machines, one limit' => sub {
    my @site = ('timeout=5s nodes=2', server => '
        location /t { iap_guard g; iap_guard_user $arg_u capacity=4 rate=1r/h;
                      iap_guard_global rate=10r/h window=1h; empty_gif; }');

    my ($one, $two) = map { site($redis, @site) } 1 .. 2;

    is statuses($one, '/t?u=a', 1), '200', 'one here';
    is statuses($two, '/t?u=a', 2), '200 200', 'two there';
    is statuses($one, '/t?u=a', 2), '200 429', 'one more here';
    is statuses($two, '/t?u=a', 1), '429', 'none there';

    # 10 together, of which 4 are gone

    is statuses($two, '/t?u=b', 4), '200 200 200 200', 'four there';
    is verdicts($one, '/t?u=c', 4), 'passed passed limited:global '
        . 'limited:global', 'and two here';

    ends_well($_) foreach $one, $two;
    $redis->cli('FLUSHALL');
};


subtest 'what has decided' => sub {
    my $nginx = site($redis, 'timeout=5s', server => '
        location /t { iap_guard g; iap_guard_user $arg_u capacity=2 rate=1r/h
                      exempt=$arg_x missing=reject; empty_gif; }
        location /known { iap_guard g; iap_guard_user $arg_u capacity=2
                      rate=1r/h exempt=$arg_x missing=reject; }
        location /free { empty_gif; }');

    is verdict($nginx, '/t?u=a'), 'passed//redis', 'passed';
    is statuses($nginx, '/t?u=a', 2), '200 429', 'and more';
    is verdict($nginx, '/t?u=a'), 'limited/user/redis',
        'limited, by what the store had said';
    is verdict($nginx, '/t?u=a&x=1'), 'passed//zone', 'exempt';
    is verdict($nginx, '/t'), 'error/user/zone', 'missing=reject';
    is verdict($nginx, '/free'), '//', 'no guard';

    $nginx->ban('g', 'user', 'mallory', 60);
    is verdict($nginx, '/t?u=mallory'), 'banned/ban/zone', 'a ban';

    $nginx->api('PUT', 'guards/g', '{"mode":"off"}');
    is verdict($nginx, '/t?u=a'), 'off//zone', 'off';

    $nginx->api('PUT', 'guards/g', '{"mode":"dry_run"}');
    is verdict($nginx, '/t?u=a'), 'limited_dry_run/user/redis', 'dry run';
    is verdict($nginx, '/t?u=b'), 'passed//redis', 'dry run, passed';

    $nginx->api('PUT', 'guards/g', '{"mode":"on"}');
    is statuses($nginx, '/t?u=b', 2), '200 429',
        'what passed in dry run was charged';

    ends_well($nginx);
    $redis->cli('FLUSHALL');
};


subtest 'one call for each request, all or nothing' => sub {
    my $nginx = site($redis, 'timeout=5s', server => '
        location /t {
            iap_guard g;
            iap_guard_segment users=1 window=1h address=$arg_ip;
            iap_guard_user $arg_u capacity=3 rate=1r/h;
            iap_guard_device $arg_d capacity=1 rate=1r/h;
            iap_guard_bucket dry $arg_u capacity=1 rate=1r/h dry_run=on;
            error_page 404 = /other;
            root /nowhere;
        }
        location = /other {
            iap_guard g;
            iap_guard_segment users=1 window=1h address=$arg_ip;
            iap_guard_user $arg_u capacity=3 rate=1r/h;
            iap_guard_device $arg_d capacity=1 rate=1r/h;
            iap_guard_bucket dry $arg_u capacity=1 rate=1r/h dry_run=on;
            empty_gif;
        }');

    my $before = scripts($redis);
    is verdicts($nginx, '/t?u=a&d=1&ip=192.0.2.1', 1), 'passed',
        'one that is redirected';

    # the first of a worker is sent twice, because the script is not known

    cmp_ok scripts($redis) - $before, '<=', 2, 'is decided once';

    $before = scripts($redis);
    is verdicts($nginx, '/t?u=a&d=2&ip=192.0.2.1', 1), 'limited_dry_run:dry',
        'a layer in dry run would refuse';
    is scripts($redis) - $before, 1, 'one call';

    is verdicts($nginx, '/t?u=b&d=1&ip=192.0.2.2', 1), 'limited:device',
        'the device refuses';
    unlike keys_of($redis), qr/192\.0\.2\.2|:user:b/,
        'and the others have no trace of it';
    is verdicts($nginx, '/t?u=b&d=3&ip=192.0.2.1', 1), 'limited:segment',
        'the segment refuses';
    unlike keys_of($redis), qr/:user:b|:device:3/,
        'and the others have no trace of it';

    ends_well($nginx);
    $redis->cli('FLUSHALL');
};


subtest 'status and metrics' => sub {
    my $nginx = site($redis, 'redis://:of-no-use@' . $redis->node
        . ' timeout=200ms', server => '
        location /t { iap_guard g; iap_guard_user $arg_u capacity=2 rate=1r/h;
                      empty_gif; }');

    # a password that the server has not: it refuses to be greeted

    is verdict($nginx, '/t?u=x'), 'passed//fallback', 'not reached';
    ends_well($nginx);

    $nginx = site($redis, 'timeout=5s', server => '
        location /t { iap_guard g; iap_guard_user $arg_u capacity=2 rate=1r/h;
                      empty_gif; }');

    is statuses($nginx, '/t?u=a', 4), '200 200 429 429', 'four requests';

    my $status = $nginx->api_json('GET', 'status');
    my $store = $status->{store};

    is $store->{kind}, 'redis', 'kind';
    is $store->{mode}, 'single', 'mode';
    ok $store->{up}, 'up';
    is_deeply $store->{servers}, [$redis->node], 'servers';
    is_deeply [sort keys %{ $store->{commands} }],
        [qw(closed error ok timeout)], 'results';
    cmp_ok $store->{commands}{ok}, '>=', 3, 'three commands went well';
    is $status->{guards}{g}{fallbacks}, 0, 'none without the store';
    is $status->{guards}{g}{deny_cache_hits}, 1, 'one without asking it';
    cmp_ok $status->{zone}{kinds}{denied}{used}, '>', 0, 'from the zone';

    my $metrics = $nginx->metrics;

    is $metrics->{iap_guard_store_up}, 1, 'iap_guard_store_up';
    cmp_ok $metrics->{iap_guard_ban_log_age_seconds}, '<=', 2,
        'iap_guard_ban_log_age_seconds';
    is $metrics->{'iap_guard_deny_cache_hits_total{guard="g"}'}, 1,
        'iap_guard_deny_cache_hits_total';
    is $metrics->{'iap_guard_store_fallbacks_total{guard="g"}'}, 0,
        'iap_guard_store_fallbacks_total';
    is $metrics->{'iap_guard_store_commands_total{result="ok"}'},
        $store->{commands}{ok}, 'iap_guard_store_commands_total';
    is $metrics->{'iap_guard_store_seconds_bucket{le="+Inf"}'},
        $metrics->{iap_guard_store_seconds_count}, 'a histogram is whole';
    cmp_ok $metrics->{iap_guard_store_seconds_count}, '>=', 3,
        'and has three commands';
    cmp_ok $metrics->{iap_guard_store_seconds_sum}, '>', 0, 'that took time';

    my $last = 0;
    my @bounds = sort { $a->[0] <=> $b->[0] }
        map { /_seconds_bucket\{le="([\d.]+)"/ ? [$1, $metrics->{$_}] : () }
        keys %$metrics;

    is scalar @bounds, 10, 'ten bounds';
    ok !(grep { my $less = $_->[1] < $last; $last = $_->[1]; $less } @bounds),
        'each has all that the one before it has';

    ends_well($nginx);
    $redis->cli('FLUSHALL');
};


subtest 'how old is what is known of other machines\' bans' => sub {
    my $nginx = site($redis, 'timeout=5s', server => '
        location /t { iap_guard g; iap_guard_user $arg_u capacity=2 rate=1r/h;
                      empty_gif; }');
    my $age = sub { $nginx->metrics->{iap_guard_ban_log_age_seconds} };

    is $age->(), 0, 'nothing has been missed yet';

    # a store that is up, but whose log can't be read

    $redis->cli('SET', 'iap:{bans}:log', 'x');
    ok(IapGuard::Nginx->wait_for(10, sub { $age->() >= 2 }), 'it grows');
    is statuses($nginx, '/t?u=a', 1), '200', 'a decision';
    ok $nginx->metrics->{iap_guard_store_up}, 'the store is up';

    $redis->cli('DEL', 'iap:{bans}:log');
    ok(IapGuard::Nginx->wait_for(5, sub { $age->() == 0 }), 'read again');

    ends_well($nginx, qr/ban.*WRONGTYPE/);
    $redis->cli('FLUSHALL');
};


subtest 'the servers that are named' => sub {
    my %named = (
        'redis://127.0.0.1:1'                        => '127.0.0.1:1',
        'redis://a:of-no-use@[::1]:2/3'              => '[::1]:2',
        'unix:/none/redis.sock:3'                    => 'unix:/none/redis.sock',
        'redis://127.0.0.1:1 mode=proxy'             => '127.0.0.1:1',
        'redis://127.0.0.1 redis://127.0.0.1:1 mode=sentinel master=m'
            => '127.0.0.1:26379 127.0.0.1:1',
        'redis://127.0.0.1:1 redis://127.0.0.1:2 mode=cluster'
            => '127.0.0.1:1 127.0.0.1:2');

    foreach my $words (sort keys %named) {
        my $nginx = site($redis, $words);
        my $store = $nginx->api_json('GET', 'status')->{store};

        is join(' ', @{ $store->{servers} }), $named{$words}, $words;
        is $store->{mode}, $words =~ /mode=(\w+)/ ? $1 : 'single', 'and how';
        ends_well($nginx);
    }
};


subtest 'no directive, no store' => sub {
    my $nginx = IapGuard::Nginx->new(IapGuard::Nginx->options,
        http => 'iap_guard_zone iap 1m;', server => '
        location /t { iap_guard g; iap_guard_user $arg_u capacity=2 rate=1r/h;
                      empty_gif; }')->start;

    is statuses($nginx, '/t?u=a', 3), '200 200 429', 'embedded';
    is_deeply $nginx->api_json('GET', 'status')->{store}, { kind => 'zone' },
        'status';
    ok !(grep { /store|deny/ } keys %{ $nginx->metrics }), 'metrics';

    ends_well($nginx);
};


done_testing;
