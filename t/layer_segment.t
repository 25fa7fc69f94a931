# Segments: distinct users per prefix of addresses in a sliding window.

use strict;
use warnings;

use lib 't/lib';
use Test::Nginx::Socket 'no_plan';
use IapGuard::Test;

# /sleep answers after a second and a half

add_block_preprocessor(sub {
    my ($block) = @_;

    $block->set_value('config', 'location /sleep {
        auth_basic off-limits; auth_basic_user_file none; auth_delay 1500ms;
    }
    add_header X-Verdict $iap_guard_verdict always;
    add_header X-Layer $iap_guard_layer always;
    ' . $block->config);
});


# Users N to M ask for a path, once each, on one connection; the statuses.

sub users {
    my ($from, $to, $path) = @_;

    my $answers = http_raw(join('',
        map({ "GET $path&u=$_ HTTP/1.1\r\nHost: x\r\n\r\n" } $from .. $to),
        "GET /end HTTP/1.0\r\n\r\n"));

    my @status = $answers =~ m{HTTP/1\.[01] (\d+) }g;
    pop @status;

    return @status;
}

sub count {
    my ($status, @all) = @_;
    return scalar grep { $_ == $status } @all;
}

run_tests();

__DATA__

=== TEST 1: one user per address
--- config
location /t {
    iap_guard g;
    iap_guard_segment users=1 address=$arg_ip;
    iap_guard_user $arg_u;
    empty_gif;
}
--- request eval
["GET /t?u=1&ip=10.0.0.1", "GET /t?u=2&ip=10.0.0.1", "GET /t?u=1&ip=10.0.0.1",
 "GET /t?u=2&ip=10.0.0.2", "GET /t?u=1&ip=10.0.0.2"]
--- error_code eval
[200, 429, 200, 200, 429]
--- response_headers eval
["X-Verdict: passed", "X-Verdict: limited\nX-Layer: segment",
 "X-Verdict: passed", "X-Verdict: passed", "X-Layer: segment"]



=== TEST 2: the defaults: ten users, one IPv4 address, a minute
--- config
location /t {
    iap_guard g;
    iap_guard_segment address=$arg_ip;
    iap_guard_user $arg_u;
    empty_gif;
}
--- request eval
[map({ "GET /t?u=$_&ip=10.0.0.1" } 1 .. 12), "GET /t?u=3&ip=10.0.0.1",
 "GET /t?u=11&ip=10.0.0.2"]
--- error_code eval
[(200) x 10, 429, 429, 200, 200]
--- response_headers_like eval
[("") x 10, ('Retry-After: (?:60|5\d)' . "\n"
 . 'RateLimit-Policy: "segment";q=10;w=60' . "\n"
 . 'RateLimit: "segment";r=0;t=(?:60|5\d)') x 2, "", ""]
--- response_body_like eval
[("GIF") x 10, ('^\{"error":"rate_limited","layer":"segment",'
 . '"retry_after":(60|5\d),"request_id":"[0-9a-f]{32}"\}$') x 2, "GIF", "GIF"]



=== TEST 3: exactly 64 users, and no new one
--- config
location /t {
    iap_guard g;
    iap_guard_segment users=64 window=1h address=$arg_ip;
    iap_guard_user $arg_u;
    empty_gif;
}
--- no_http2
--- init
    Test::More::is(main::count(200, main::users(1, 90, "/t?ip=10.0.0.1")), 64,
        'TEST 3: 64 pass');
    Test::More::is(main::count(200, main::users(1, 64, "/t?ip=10.0.0.1")), 64,
        'TEST 3: the same 64 go on passing');
    Test::More::is(main::count(429, main::users(65, 90, "/t?ip=10.0.0.1")), 26,
        'TEST 3: the others never do');
--- request
GET /t?u=91&ip=10.0.0.1
--- error_code: 429



=== TEST 4: exactly 65 users
--- config
location /t {
    iap_guard g;
    iap_guard_segment users=65 window=1h address=$arg_ip;
    iap_guard_user $arg_u;
    empty_gif;
}
--- no_http2
--- init
    Test::More::is(main::count(200, main::users(1, 90, "/t?ip=10.0.0.1")), 65,
        'TEST 4: 65 pass');
    Test::More::is(main::count(200, main::users(1, 65, "/t?ip=10.0.0.1")), 65,
        'TEST 4: the same 65 go on passing');
--- request
GET /t?u=91&ip=10.0.0.1
--- error_code: 429



=== TEST 5: 200 users, within 3 %, and the seen ones go on passing
--- config
location /t {
    iap_guard g;
    iap_guard_segment ipv4=24 users=200 window=1h address=$arg_ip;
    iap_guard_user $arg_u;
    empty_gif;
}
--- no_http2
--- init
    my $passed = main::count(200, main::users(1, 300, "/t?ip=10.0.0.1"));
    Test::More::cmp_ok($passed, '>=', 194, 'TEST 5: 200 pass, within 3 %');
    Test::More::cmp_ok($passed, '<=', 206, 'TEST 5: and not many more');
    Test::More::is(main::count(200, main::users(1, $passed, "/t?ip=10.0.0.9")),
        $passed, 'TEST 5: the same go on passing');
--- request
GET /t?u=999&ip=10.0.0.8
--- error_code: 429



=== TEST 6: a /24 is one segment, its neighbour another
--- config
location /t {
    iap_guard g;
    iap_guard_segment ipv4=24 users=2 address=$arg_ip;
    iap_guard_user $arg_u;
    empty_gif;
}
--- request eval
["GET /t?u=1&ip=10.0.0.0", "GET /t?u=2&ip=10.0.0.255", "GET /t?u=3&ip=10.0.0.7",
 "GET /t?u=3&ip=10.0.1.0", "GET /t?u=3&ip=9.255.255.255",
 "GET /t?u=1&ip=10.0.0.99"]
--- error_code eval
[200, 200, 429, 200, 200, 200]



=== TEST 7: prefixes of odd lengths
--- config
location /t {
    iap_guard g;
    iap_guard_segment ipv4=27 ipv6=61 users=1 address=$arg_ip;
    iap_guard_user $arg_u;
    empty_gif;
}
--- request eval
["GET /t?u=1&ip=10.0.0.32", "GET /t?u=2&ip=10.0.0.63", "GET /t?u=2&ip=10.0.0.64",
 "GET /t?u=2&ip=10.0.0.31", "GET /t?u=1&ip=2001:db8:0:8::1",
 "GET /t?u=2&ip=2001:db8:0:f::1", "GET /t?u=2&ip=2001:db8:0:10::1"]
--- error_code eval
[200, 429, 200, 200, 200, 429, 200]



=== TEST 8: several levels together, each with its own number
--- config
location /t {
    iap_guard g;
    iap_guard_segment users=2 address=$arg_ip;
    iap_guard_segment ipv4=24 users=3 address=$arg_ip;
    iap_guard_segment ipv4=16 users=4 address=$arg_ip;
    iap_guard_segment ipv4=8 users=5 address=$arg_ip;
    iap_guard_user $arg_u;
    empty_gif;
}
--- request eval
["GET /t?u=1&ip=10.0.0.1", "GET /t?u=2&ip=10.0.0.1", "GET /t?u=3&ip=10.0.0.1",
 "GET /t?u=3&ip=10.0.0.2", "GET /t?u=4&ip=10.0.0.3",
 "GET /t?u=4&ip=10.0.1.1", "GET /t?u=5&ip=10.0.2.1",
 "GET /t?u=5&ip=10.1.0.1", "GET /t?u=6&ip=10.2.0.1",
 "GET /t?u=6&ip=11.0.0.1", "GET /t?u=1&ip=10.0.0.1"]
--- error_code eval
[200, 200, 429, 200, 429, 200, 429, 200, 429, 200, 200]



=== TEST 9: the users of one segment are no others in another guard
--- config
location /a {
    iap_guard a;
    iap_guard_segment users=1 address=$arg_ip;
    iap_guard_user $arg_u;
    empty_gif;
}
location /b {
    iap_guard b;
    iap_guard_segment users=1 address=$arg_ip;
    iap_guard_user $arg_u;
    empty_gif;
}
--- request eval
["GET /a?u=1&ip=10.0.0.1", "GET /b?u=2&ip=10.0.0.1", "GET /a?u=2&ip=10.0.0.1",
 "GET /b?u=1&ip=10.0.0.1"]
--- error_code eval
[200, 200, 429, 429]



=== TEST 10: users= from a variable
carriers may have many, hosting few; what is no number above 0 means ten
--- http_config
geo $arg_ip $segment_users {
    default "";
    10.0.0.0/24 2;
    10.0.1.0/24 1;
    10.0.2.0/24 0;
    10.0.3.0/24 many;
}
--- config
location /t {
    iap_guard g;
    iap_guard_segment users=$segment_users address=$arg_ip;
    iap_guard_user $arg_u;
    empty_gif;
}
--- request eval
["GET /t?u=1&ip=10.0.0.1", "GET /t?u=2&ip=10.0.0.1", "GET /t?u=3&ip=10.0.0.1",
 "GET /t?u=1&ip=10.0.1.1", "GET /t?u=2&ip=10.0.1.1",
 map({ "GET /t?u=$_&ip=10.0.2.1" } 1 .. 11),
 map({ "GET /t?u=$_&ip=10.0.3.1" } 1 .. 11),
 map({ "GET /t?u=$_&ip=10.0.4.1" } 1 .. 11)]
--- error_code eval
[200, 200, 429, 200, 429, ((200) x 10, 429) x 3]



=== TEST 11: a request without a user counts as its address's
they are all one user
--- config
location /t {
    iap_guard g;
    iap_guard_segment users=2 address=$arg_ip;
    iap_guard_user $arg_u;
    empty_gif;
}
--- request eval
["GET /t?ip=10.0.0.1", "GET /t?ip=10.0.0.1", "GET /t?u=1&ip=10.0.0.1",
 "GET /t?u=2&ip=10.0.0.1", "GET /t?ip=10.0.0.1"]
--- error_code eval
[200, 200, 200, 429, 200]



=== TEST 12: the window slides
a user who comes back stays in it; one who has gone makes room
--- config
location /t {
    iap_guard g;
    iap_guard_segment users=1 window=4s address=$arg_ip;
    iap_guard_user $arg_u;
    empty_gif;
}
--- request eval
["GET /t?u=1&ip=10.0.0.1", "GET /t?u=2&ip=10.0.0.1",
 "GET /sleep", "GET /sleep",
 "GET /t?u=1&ip=10.0.0.1",
 "GET /sleep",
 "GET /t?u=2&ip=10.0.0.1",
 "GET /sleep", "GET /sleep",
 "GET /t?u=2&ip=10.0.0.1", "GET /t?u=1&ip=10.0.0.1"]
--- error_code eval
[200, 429, 401, 401, 200, 401, 429, 401, 401, 200, 429]
--- timeout: 10



=== TEST 13: a refused user is not in the window
it is not kept out by its own attempts
--- config
location /t {
    iap_guard g;
    iap_guard_segment users=1 window=1s address=$arg_ip;
    iap_guard_user $arg_u;
    empty_gif;
}
--- no_http2
--- init
    my @status;
    foreach (1 .. 20) {
        push @status, main::users(1, 1, "/t?ip=10.0.0.1") if $_ == 1;
        push @status, main::users(2, 2, "/t?ip=10.0.0.1");
        Time::HiRes::sleep(0.1);
    }
    Test::More::is("@status[0, 1]", "200 429", 'TEST 13: at first refused');
    Test::More::is($status[-1], 200, 'TEST 13: in the end not');
--- request
GET /t?u=2&ip=10.0.0.1



=== TEST 14: without address= it is the client's own
--- config
location /t {
    iap_guard g;
    iap_guard_segment users=1;
    iap_guard_user $arg_u;
    empty_gif;
}
--- request eval
["GET /t?u=1", "GET /t?u=2", "GET /t?u=1"]
--- error_code eval
[200, 429, 200]



=== TEST 15: the client's address through realip
--- config
location /t {
    set_real_ip_from 127.0.0.1;
    real_ip_header X-Forwarded-For;
    iap_guard g;
    iap_guard_segment users=1;
    iap_guard_user $arg_u;
    empty_gif;
}
--- request eval
["GET /t?u=1", "GET /t?u=2", "GET /t?u=2", "GET /t?u=3"]
--- more_headers eval
["X-Forwarded-For: 203.0.113.5", "X-Forwarded-For: 203.0.113.5",
 "X-Forwarded-For: 203.0.113.6", "X-Forwarded-For: 198.51.100.7, 203.0.113.5"]
--- error_code eval
[200, 429, 200, 429]



=== TEST 16: many users of one segment do not touch another's
--- config
location /t {
    iap_guard g;
    iap_guard_segment users=3 address=$arg_ip;
    iap_guard_user $arg_u;
    empty_gif;
}
--- no_http2
--- init
    main::users(1, 200, "/t?ip=10.0.0.1");
    Test::More::is(join(' ', main::users(1, 4, "/t?ip=10.0.0.2")),
        "200 200 200 429", 'TEST 16: three of its own');
--- request
GET /t?u=9&ip=10.0.0.3



=== TEST 17: from a unix socket there is nothing to tell clients by
the segment passes all; address= still counts
--- http_config
server {
    listen unix:$TEST_NGINX_HTML_DIR/guarded.sock;
    location /t {
        iap_guard g;
        iap_guard_segment users=1;
        iap_guard_user $arg_u;
        empty_gif;
    }
    location /address {
        iap_guard h;
        iap_guard_segment users=1 address=$arg_ip;
        iap_guard_user $arg_u capacity=1 rate=1r/h;
        empty_gif;
    }
}
--- config
location ~ ^/(t|address) {
    proxy_pass http://unix:$TEST_NGINX_HTML_DIR/guarded.sock;
}
--- request eval
["GET /t?u=1", "GET /t?u=2", "GET /address?u=1&ip=10.0.0.1",
 "GET /address?u=2&ip=10.0.0.1", "GET /address", "GET /address"]
--- error_code eval
[200, 200, 200, 429, 200, 429]
