# Token buckets: what iap_guard_user, iap_guard_device and iap_guard_bucket
# have in common.

use strict;
use warnings;

use lib 't/lib';
use Test::Nginx::Socket 'no_plan';
use IapGuard::Test;

# /sleep answers after a second and a half: nothing else delays a request for
# longer than a bucket needs

add_block_preprocessor(sub {
    my ($block) = @_;

    $block->set_value('config', 'location /sleep {
        auth_basic off-limits; auth_basic_user_file none; auth_delay 1500ms;
    }
    add_header X-Verdict $iap_guard_verdict always;
    add_header X-Layer $iap_guard_layer always;
    add_header X-After $iap_guard_retry_after always;
    ' . $block->config);
});

run_tests();

__DATA__

=== TEST 1: a bucket holds as many tokens as its capacity, not one more
--- config
location /t {
    iap_guard g;
    iap_guard_user $arg_u capacity=3 rate=1r/h;
    empty_gif;
}
--- request eval
[("GET /t?u=alice") x 5]
--- error_code eval
[200, 200, 200, 429, 429]
--- response_headers eval
[("X-Verdict: passed\nX-Layer:\nX-After:\nRetry-After:") x 3,
 ("X-Verdict: limited\nX-Layer: user") x 2]



=== TEST 2: a capacity of one
--- config
location /t {
    iap_guard g;
    iap_guard_user $arg_u capacity=1 rate=1r/h;
    empty_gif;
}
--- request eval
[("GET /t?u=alice") x 2]
--- error_code eval
[200, 429]



=== TEST 3: a capacity of 100
--- config
location /t {
    iap_guard g;
    iap_guard_user $arg_u capacity=100 rate=1r/d;
    empty_gif;
}
--- no_http2
--- init
    my $answers = main::http_raw("GET /t?u=alice HTTP/1.1\r\nHost: x\r\n\r\n" x 105
        . "GET /end HTTP/1.0\r\n\r\n");
    my $passed = () = $answers =~ /HTTP\/1.1 200 /g;
    my $refused = () = $answers =~ /HTTP\/1.1 429 /g;
    Test::More::is("$passed passed, $refused refused",
        "100 passed, 5 refused", "TEST 3: exactly 100");
--- request
GET /t?u=alice
--- error_code: 429



=== TEST 4: each key has a bucket of its own
--- config
location /t {
    iap_guard g;
    iap_guard_user $arg_u capacity=1 rate=1r/h;
    empty_gif;
}
--- request eval
["GET /t?u=alice", "GET /t?u=bob", "GET /t?u=alice", "GET /t?u=bob",
 "GET /t?u=Alice", "GET /t?u=alic", "GET /t?u=alicee"]
--- error_code eval
[200, 200, 429, 429, 200, 200, 200]



=== TEST 5: an empty bucket refills at its rate
one a second: after three seconds it is full again, and holds two
--- config
location /t {
    iap_guard g;
    iap_guard_user $arg_u capacity=2 rate=1r/s;
    empty_gif;
}
location /slow {
    iap_guard slow;
    iap_guard_user $arg_u capacity=2 rate=1r/m;
    empty_gif;
}
--- request eval
[("GET /slow?u=alice") x 3, ("GET /t?u=alice") x 3, ("GET /sleep") x 2,
 ("GET /t?u=alice") x 3, "GET /slow?u=alice"]
--- error_code eval
[200, 200, 429, 200, 200, 429, 401, 401, 200, 200, 429, 429]
--- timeout: 10



=== TEST 6: a refusal costs nothing
one a second, asked every tenth of a second: had refusals cost a token, the
bucket would never have one again
--- config
location /t {
    iap_guard g;
    iap_guard_user $arg_u capacity=1 rate=1r/s;
    empty_gif;
}
--- no_http2
--- init
    my $passed = 0;
    foreach (1 .. 25) {
        my $answer = main::http_raw("GET /t?u=alice HTTP/1.0\r\n\r\n");
        $passed++ if $answer =~ / 200 /;
        Time::HiRes::sleep(0.1);
    }
    Test::More::cmp_ok($passed, '>=', 3, 'TEST 6: it goes on passing');
    Test::More::cmp_ok($passed, '<=', 25 / 2, 'TEST 6: at its rate');
--- request
GET /t?u=bob



=== TEST 7: Retry-After is the time to the next token, three a minute
--- config
location /t {
    iap_guard g;
    iap_guard_user $arg_u capacity=3 rate=3r/m;
    empty_gif;
}
--- request eval
[("GET /t?u=alice") x 4]
--- error_code eval
[200, 200, 200, 429]
--- response_headers_like eval
["", "", "", "Retry-After: (?:20|19|18)
X-After: (?:20|19|18)
RateLimit-Policy: \"user\";q=3;w=60
RateLimit: \"user\";r=0;t=(?:20|19|18)
Content-Type: application/json"]
--- response_body_like eval
[("GIF") x 3, '^\{"error":"rate_limited","layer":"user",'
. '"retry_after":(20|19|18),"request_id":"[0-9a-f]{32}"\}\n$']



=== TEST 8: rates by the hour and by the day
--- config
location /hour {
    iap_guard hour;
    iap_guard_user $arg_u capacity=2 rate=2r/h;
    empty_gif;
}
location /day {
    iap_guard day;
    iap_guard_device $arg_u capacity=1 rate=4r/d;
    empty_gif;
}
--- request eval
[("GET /hour?u=alice") x 3, ("GET /day?u=alice") x 2]
--- error_code eval
[200, 200, 429, 200, 429]
--- response_headers_like eval
["", "", "Retry-After: (?:1800|179\\d)
RateLimit-Policy: \"user\";q=2;w=3600", "",
"Retry-After: (?:21600|2159\\d)
RateLimit-Policy: \"device\";q=1;w=21600"]



=== TEST 9: Retry-After is never below a second
--- config
location /t {
    iap_guard g;
    iap_guard_user $arg_u capacity=1 rate=3r/s;
    empty_gif;
}
--- no_http2
--- pipelined_requests eval
["GET /t?u=alice", "GET /t?u=alice"]
--- error_code eval
[200, 429]
--- response_headers eval
["Retry-After:", "Retry-After: 1"]



=== TEST 10: user, device and buckets count apart, each by its own variable
--- config
location /t {
    iap_guard g;
    iap_guard_user $arg_u capacity=3 rate=1r/h;
    iap_guard_device $arg_d capacity=2 rate=1r/h;
    iap_guard_bucket app $arg_a capacity=5 rate=1r/h;
    iap_guard_bucket zip $arg_z capacity=1 rate=1r/h;
    empty_gif;
}
--- request eval
["GET /t?u=1&d=1&a=1&z=1", "GET /t?u=1&d=1&a=1&z=1", "GET /t?u=1&d=1&a=1&z=2",
 "GET /t?u=1&d=1&a=1&z=3", "GET /t?u=1&d=2&a=1&z=4", "GET /t?u=1&d=3&a=1&z=5",
 "GET /t?u=2&d=3&a=1&z=6", "GET /t?u=2&d=3&a=1&z=7", "GET /t?u=2&d=4&a=1&z=8"]
--- error_code eval
[200, 429, 200, 429, 200, 429, 200, 200, 429]
--- response_headers eval
["X-Layer:", "X-Layer: zip", "X-Layer:", "X-Layer: device", "X-Layer:",
 "X-Layer: user", "X-Layer:", "X-Layer:", "X-Layer: app"]



=== TEST 11: the same identity is another key in another layer
--- config
location /t {
    iap_guard g;
    iap_guard_user $arg_u capacity=2 rate=1r/h;
    iap_guard_device $arg_u capacity=2 rate=1r/h;
    iap_guard_bucket app $arg_u capacity=2 rate=1r/h;
    empty_gif;
}
--- request eval
[("GET /t?u=same") x 3]
--- error_code eval
[200, 200, 429]



=== TEST 12: the first layer that refuses names itself, in the fixed order
whatever the order of the directives
--- config
location /t {
    iap_guard_global rate=1r/h window=1h;
    iap_guard_bucket app $arg_u capacity=1 rate=1r/h;
    iap_guard_device $arg_d capacity=1 rate=1r/h;
    iap_guard_user $arg_u capacity=1 rate=1r/h;
    iap_guard_segment users=1 address=$arg_ip;
    iap_guard g;
    empty_gif;
}
--- request eval
["GET /t?u=1&d=1&ip=10.0.0.1",
 "GET /t?u=2&d=2&ip=10.0.0.1",
 "GET /t?u=1&d=1&ip=10.0.0.1",
 "GET /t?u=3&d=1&ip=10.0.0.3",
 "GET /t?u=4&d=4&ip=10.0.0.4"]
--- error_code eval
[200, 429, 429, 429, 429]
--- response_headers eval
["X-Layer:", "X-Layer: segment", "X-Layer: user", "X-Layer: device",
 "X-Layer: global"]



=== TEST 13: an identity without a limit counts nothing
--- config
location /t {
    iap_guard g;
    iap_guard_user $arg_u;
    iap_guard_device $arg_d;
    iap_guard_bucket app $arg_a;
    empty_gif;
}
--- request eval
[("GET /t?u=1&d=1&a=1") x 9]
--- error_code eval
[(200) x 9]



=== TEST 14: an identity made of several variables and text
--- config
location /t {
    iap_guard g;
    iap_guard_user "$arg_a:$arg_b" capacity=1 rate=1r/h;
    empty_gif;
}
--- request eval
["GET /t?a=1&b=23", "GET /t?a=12&b=3", "GET /t?b=23&a=1"]
--- error_code eval
[200, 200, 429]



=== TEST 15: POST, PUT and HEAD take tokens as GET does
nginx of that age ends an HTTP/2 stream whose body it has not read with a
reset that curl takes for an error, after "deny" and "limit_req" too
--- no_http2
--- config
location /t {
    iap_guard g;
    iap_guard_user $arg_u capacity=4 rate=1r/h;
    error_page 405 =200 /ok;
    empty_gif;
}
location /ok {
    internal;
    return 200 ok;
}
--- request eval
["POST /t?u=alice\nhello", "PUT /t?u=alice\nhello", "GET /t?u=alice",
 "HEAD /t?u=alice", "POST /t?u=alice\nhello", "HEAD /t?u=alice"]
--- error_code eval
[200, 200, 200, 200, 429, 429]
--- response_headers_like eval
["", "", "", "", "Retry-After: 3\\d\\d\\d", "Retry-After: 3\\d\\d\\d"]



=== TEST 16: a status of one's own, with Retry-After as ever
--- config
location /t {
    iap_guard g status=503;
    iap_guard_user $arg_u capacity=1 rate=1r/m;
    empty_gif;
}
--- request eval
[("GET /t?u=alice") x 2]
--- error_code eval
[200, 503]
--- response_headers_like eval
["", "Retry-After: (?:60|59|58)"]
--- response_body_like eval
["GIF", '"error":"rate_limited"']
