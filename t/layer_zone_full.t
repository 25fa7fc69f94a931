# A zone as small as it may be, and more identities than it can hold.

use strict;
use warnings;

use lib 't/lib';
use Test::Nginx::Socket 'no_plan';
use IapGuard::Test;

my $zones = 0;

add_block_preprocessor(sub {
    my ($block) = @_;

    my $size = $block->size // '40k';

    # in HUP mode a zone of the same name would be the last block's

    $block->set_value('http_config',
        'iap_guard_zone small_' . ++$zones . " $size;"
        . ($block->http_config // ''));
    $block->set_value('config', '
    add_header X-Verdict $iap_guard_verdict always;
    add_header X-Layer $iap_guard_layer always;
    location /api/ { iap_guard_api read; }
    ' . $block->config);
});


# GET requests for paths, in order, some hundreds a connection; the answers.

sub gets {
    my @paths = @_;
    my @answers;

    while (my @some = splice @paths, 0, 400) {
        my $got = http_raw(join '',
            map({ "GET $_ HTTP/1.1\r\nHost: x\r\n\r\n" } @some),
            "GET /end HTTP/1.0\r\n\r\n");

        my @all = split m{(?=HTTP/1\.[01] \d\d\d )}, $got;
        pop @all;
        push @answers, @all;
    }

    return @answers;
}

sub statuses { return map { m{^HTTP/1\.1 (\d+)} ? $1 : 'none' } gets(@_) }

sub count {
    my ($wanted, @all) = @_;
    return scalar grep { $_ eq $wanted } @all;
}

sub metric {
    my ($name) = @_;
    my ($metrics) = gets('/api/metrics');
    return $metrics =~ /^\Q$name\E (\d+)$/m ? $1 : undef;
}

run_tests();

__DATA__

=== TEST 1: by default what finds no room passes, and is counted
what has found room is refused once it is spent, and never forgotten
--- config
location /t {
    iap_guard g;
    iap_guard_user $arg_u capacity=1 rate=1r/d;
    empty_gif;
}
--- no_http2
--- init
    my @users = map { "/t?u=$_" } 1 .. 2000;
    my $full = 'iap_guard_zone_full_total{guard="g",kind="buckets"}';

    Test::More::is(main::metric($full), 0, 'TEST 1: empty at first');
    Test::More::is(main::count(200, main::statuses(@users)), 2000,
        'TEST 1: all pass the first time');

    my $unstored = main::metric($full);
    Test::More::cmp_ok($unstored, '>=', 1000, 'TEST 1: most found no room');
    Test::More::cmp_ok($unstored, '<=', 1950, 'TEST 1: some did');

    # whoever found room was entered and has spent its only token; whoever
    # did not finds none now

    my @again = main::statuses(@users);
    Test::More::is(main::count(429, @again), 2000 - $unstored,
        'TEST 1: each stored key is refused, none was forgotten');
    Test::More::is(main::count(200, @again), $unstored,
        'TEST 1: the others pass');
    Test::More::is(main::count(429, @again[0 .. 49]), 50,
        'TEST 1: who came first is known');
    Test::More::is(main::metric($full), 2 * $unstored,
        'TEST 1: each want of room is counted');
    Test::More::is(
        main::metric('iap_guard_requests_total{guard="g",verdict="passed"}'),
        2000 + $unstored, 'TEST 1: passed is passed');
--- request
GET /t?u=1
--- error_code: 429
--- grep_error_log eval
qr/\[err(?:or)?\][^"]*iap_guard zone "small_\d+" is full: [^;]*; see \w+/
--- grep_error_log_out eval
qr/^\[error\] [^\n]* is full: new keys follow their layer's "on_error"; see iap_guard_zone_full_total\n$/



=== TEST 2: on_error=reject answers 503, and charges nobody
--- config
location /t {
    iap_guard g;
    iap_guard_user $arg_u capacity=1 rate=1r/d on_error=reject;
    iap_guard_global rate=900r/d window=1d;
    empty_gif;
}
--- no_http2
--- init
    my @first = main::gets(map { "/t?u=$_" } 1 .. 1000);
    my @refused = grep { m{^HTTP/1\.1 503 } } @first;

    Test::More::cmp_ok(scalar @refused, '>=', 300, 'TEST 2: many refused');
    Test::More::is(scalar grep({ m{^HTTP/1\.1 429 } } @first), 0,
        'TEST 2: the global layer has not been asked by them');

    my @wrong = grep {
        !/\r\nRetry-After: [1-5]\r\n/
        || !/\r\nX-Verdict: unavailable\r\nX-Layer: user\r\n/
        || !/\r\nContent-Type: application\/json\r\n/
        || !/\r\n\r\n\{"error":"unavailable","layer":"user","retry_after":[1-5],"request_id":"\w{32}"\}\n$/
    } @refused;
    Test::More::is(scalar @wrong, 0, 'TEST 2: each says so in JSON')
        or Test::More::diag($wrong[0]);

    my %after = map { /Retry-After: (\d)/ ? ($1 => 1) : () } @refused;
    Test::More::cmp_ok(scalar keys %after, '>', 1, 'TEST 2: jittered');
    Test::More::is(
        main::metric('iap_guard_requests_total{guard="g",verdict="unavailable"}'),
        scalar @refused, 'TEST 2: counted as unavailable');
    Test::More::is(
        main::metric('iap_guard_rejections_total{guard="g",layer="user"}'),
        scalar @refused, 'TEST 2: counted for the layer');
--- request
GET /t?u=1
--- error_code: 429
--- response_headers
X-Verdict: limited



=== TEST 3: on_error=pass passes
--- config
location /t {
    iap_guard g status=503;
    iap_guard_user $arg_u capacity=1 rate=1r/d on_error=pass;
    empty_gif;
}
--- no_http2
--- init
    Test::More::is(main::count(200,
        main::statuses(map { "/t?u=$_" } 1 .. 1000)), 1000,
        'TEST 3: all pass');
--- request
GET /t?u=1
--- error_code: 503
--- response_headers
X-Verdict: limited



=== TEST 4: what finds no room in one layer is still bounded by the others
--- config
location /t {
    iap_guard g;
    iap_guard_user $arg_u capacity=1 rate=1r/d;
    iap_guard_global rate=600r/d window=1d;
    empty_gif;
}
--- no_http2
--- init
    my @all = main::statuses(map { "/t?u=$_" } 1 .. 1000);
    Test::More::is(main::count(200, @all), 600, 'TEST 4: the window holds');
    Test::More::is(main::count(429, @all), 400, 'TEST 4: the rest is refused');
--- request
GET /t?u=9999
--- error_code: 429
--- response_headers
X-Layer: global



=== TEST 5: on_error=reject in dry run refuses nobody
--- config
location /t {
    iap_guard g;
    iap_guard_user $arg_u capacity=1 rate=1r/d on_error=reject dry_run=on;
    empty_gif;
}
--- no_http2
--- init
    my @all = main::gets(map { "/t?u=$_" } 1 .. 1000);
    Test::More::is(scalar grep({ m{^HTTP/1\.1 200 } } @all), 1000,
        'TEST 5: all pass');

    my $would = grep { /\nX-Verdict: unavailable_dry_run\r\n/ } @all;
    Test::More::cmp_ok($would, '>=', 300, 'TEST 5: many would not have');
    Test::More::is(main::metric('iap_guard_requests_total{guard="g",'
        . 'verdict="unavailable_dry_run"}'), $would, 'TEST 5: counted');
--- request
GET /t?u=1



=== TEST 6: entries that know nothing any more make room
--- config
location /t {
    iap_guard g;
    iap_guard_user $arg_u capacity=1 rate=1r/s on_error=reject;
    empty_gif;
}
--- no_http2
--- init
    my @first = main::statuses(map { "/t?u=$_" } 1 .. 1000);
    Test::More::cmp_ok(main::count(503, @first), '>=', 300,
        'TEST 6: full for the moment');
    Time::HiRes::sleep(1.5);
    Test::More::is(main::count(200, main::statuses(map { "/t?u=$_" } 2001 .. 2050)),
        50, 'TEST 6: and then not');
--- request
GET /t?u=new



=== TEST 7: segments: what finds no room passes or is rejected
--- size: 64k
--- config
location /pass {
    iap_guard pass;
    iap_guard_segment users=1 window=1h address=$arg_ip;
    iap_guard_user $arg_u;
    empty_gif;
}
location /reject {
    iap_guard reject;
    iap_guard_segment users=1 window=1h address=$arg_ip on_error=reject;
    iap_guard_user $arg_u;
    empty_gif;
}
--- no_http2
--- init
    my @paths = map { my $n = $_; map { "/pass?u=$_&ip=10.0.$n.$_" } 1 .. 200 }
        1 .. 5;
    my $full = 'iap_guard_zone_full_total{guard="pass",kind="segments"}';

    Test::More::is(main::count(200, main::statuses(@paths)), 1000,
        'TEST 7: all pass');

    my $unstored = main::metric($full);
    Test::More::cmp_ok($unstored, '>=', 300, 'TEST 7: many found no room');

    my @others = main::statuses(map { s/u=/u=x/r } @paths);
    Test::More::is(main::count(429, @others), 1000 - $unstored,
        'TEST 7: every stored segment is still full');

    my @rejected = main::statuses(map { s/pass/reject/r } @paths);
    Test::More::cmp_ok(main::count(503, @rejected), '>=', 500,
        'TEST 7: rejected where asked for');
--- request
GET /pass?u=other&ip=10.0.1.1
--- error_code: 429
--- grep_error_log: is full
--- grep_error_log_out
is full



=== TEST 8: many users of few segments: members find no room
a segment with room for thousands of users, a zone without
--- config
location /t {
    iap_guard g;
    iap_guard_segment users=5000 window=1h address=$arg_ip;
    iap_guard_user $arg_u;
    empty_gif;
}
--- no_http2
--- init
    my @paths = map { "/t?u=$_&ip=10.0.0.1" } 1 .. 1000;
    Test::More::is(main::count(200, main::statuses(@paths)), 1000,
        'TEST 8: all pass');

    my ($metrics) = main::gets('/api/metrics');
    my $sum = 0;
    $sum += $1 while $metrics =~ /^iap_guard_zone_full_total\{[^}]*\} (\d+)/mg;
    Test::More::cmp_ok($sum, '>=', 300, 'TEST 8: counted');
--- request
GET /t?u=1&ip=10.0.0.1



=== TEST 9: 10,000 identities: the worker lives, the log has one line
--- size: 64k
--- config
location /t {
    iap_guard g;
    iap_guard_user $arg_u capacity=3 rate=3r/d;
    iap_guard_device $arg_d capacity=3 rate=3r/d;
    iap_guard_segment ipv4=24 users=200 window=1h ban=1h address=$arg_ip;
    empty_gif;
}
--- no_http2
--- init
    my @all = main::statuses(map {
        "/t?u=u$_&d=d$_&ip=10." . ($_ >> 8 & 255) . "." . ($_ & 255) . ".1"
    } 1 .. 10000);
    Test::More::is(main::count(200, @all), 10000, 'TEST 9: all pass');
--- request
GET /api/status
--- response_body_like: "used":[1-9]
--- grep_error_log: is full
--- grep_error_log_out
is full
