# The global layer: a fixed window for all requests of a guard.

use strict;
use warnings;

use lib 't/lib';
use Test::Nginx::Socket 'no_plan';
use IapGuard::Test;

# /sleep answers after a second and a half.  Windows start on whole multiples
# of their length: a day's is next to never crossed by a test.

add_block_preprocessor(sub {
    my ($block) = @_;

    $block->set_value('config', 'location /sleep {
        auth_basic off-limits; auth_basic_user_file none; auth_delay 1500ms;
    }
    add_header X-Verdict $iap_guard_verdict always;
    add_header X-Layer $iap_guard_layer always;
    ' . $block->config);
});

run_tests();

__DATA__

=== TEST 1: rate times window
--- config
location /t {
    iap_guard g;
    iap_guard_global rate=3r/d window=1d;
    empty_gif;
}
--- request eval
[("GET /t") x 5]
--- error_code eval
[200, 200, 200, 429, 429]
--- response_headers eval
[("X-Verdict: passed") x 3, ("X-Verdict: limited\nX-Layer: global") x 2]
--- response_body_like eval
[("GIF") x 3, ('^\{"error":"rate_limited","layer":"global","retry_after":\d+,'
 . '"request_id":"[0-9a-f]{32}"\}$') x 2]



=== TEST 2: a fraction of a request is none
two hours less a minute at one an hour
--- config
location /t {
    iap_guard g;
    iap_guard_global rate=1r/h window=119m;
    empty_gif;
}
location /two {
    iap_guard two;
    iap_guard_global rate=1r/h window=2h;
    empty_gif;
}
--- request eval
[("GET /t") x 2, ("GET /two") x 3]
--- error_code eval
[200, 429, 200, 200, 429]



=== TEST 3: all locations of a guard share it, whoever asks
--- config
location /a {
    iap_guard g;
    iap_guard_user $arg_u capacity=9 rate=1r/h;
    iap_guard_global rate=3r/d window=1d;
    empty_gif;
}
location /b {
    iap_guard g;
    iap_guard_global rate=3r/d window=1d;
    empty_gif;
}
location /c {
    iap_guard other;
    iap_guard_global rate=3r/d window=1d;
    empty_gif;
}
--- request eval
["GET /a?u=1", "GET /b", "GET /a?u=2", "GET /b", "GET /a?u=3",
 ("GET /c") x 3, "GET /c"]
--- error_code eval
[200, 200, 200, 429, 429, 200, 200, 200, 429]



=== TEST 4: by default the window is a second, and the next one is fresh
a flood of 40 lies in two windows at most
--- config
location /t {
    iap_guard g;
    iap_guard_global rate=10r/s;
    empty_gif;
}
--- no_http2
--- init
    foreach my $round (1, 2) {
        my $answers = main::http_raw("GET /t HTTP/1.1\r\nHost: x\r\n\r\n" x 40
            . "GET /end HTTP/1.0\r\n\r\n");
        my $passed = () = $answers =~ /HTTP\/1.1 200 /g;
        Test::More::cmp_ok($passed, '>=', 10, "TEST 4: round $round, a window");
        Test::More::cmp_ok($passed, '<=', 20, "TEST 4: round $round, not more");
        Time::HiRes::sleep(1.2);
    }
--- request
GET /t



=== TEST 5: a window of several seconds ends
--- config
location /t {
    iap_guard g;
    iap_guard_global rate=1r/s window=2s;
    empty_gif;
}
--- request eval
["GET /sleep", "GET /sleep", "GET /t", "GET /sleep", "GET /sleep", "GET /t"]
--- error_code eval
[401, 401, 200, 401, 401, 200]
--- timeout: 10



=== TEST 6: a refusal is not counted
else a flood would never let anybody through
--- config
location /t {
    iap_guard g;
    iap_guard_user $arg_u capacity=1 rate=1r/h;
    iap_guard_global rate=2r/d window=1d;
    empty_gif;
}
--- request eval
[("GET /t?u=1") x 4, "GET /t?u=2", "GET /t?u=3"]
--- error_code eval
[200, 429, 429, 429, 200, 429]



=== TEST 7: Retry-After is jittered, so that not everybody returns at once
--- config
location /t {
    iap_guard g;
    iap_guard_global rate=1r/d window=1d;
    empty_gif;
}
--- no_http2
--- init
    my $answers = main::http_raw("GET /t HTTP/1.1\r\nHost: x\r\n\r\n" x 21
        . "GET /end HTTP/1.0\r\n\r\n");
    my %seen = map { $_ => 1 } $answers =~ /^Retry-After: (\d+)\r$/mg;
    Test::More::cmp_ok(scalar keys %seen, '>=', 10, 'TEST 7: many times');
    Test::More::is(scalar(grep { $_ < 1 || $_ > 86400 * 1.5 + 2 } keys %seen),
        0, 'TEST 7: of a day, and half a one more, at most');
--- request
GET /t
--- error_code: 429
--- response_headers_like
RateLimit-Policy: "global";q=1;w=86400
RateLimit: "global";r=0;t=\d+



=== TEST 8: a short window's Retry-After is short
--- config
location /t {
    iap_guard g;
    iap_guard_global rate=1r/s;
    empty_gif;
}
--- no_http2
--- init
    my $answers = main::http_raw("GET /t HTTP/1.1\r\nHost: x\r\n\r\n" x 40
        . "GET /end HTTP/1.0\r\n\r\n");
    my @after = sort { $a <=> $b } $answers =~ /^Retry-After: (\d+)\r$/mg;
    Test::More::cmp_ok($after[0], '>=', 1, 'TEST 8: a second at least');
    Test::More::cmp_ok($after[-1], '<=', 3, 'TEST 8: three at most');
    Test::More::cmp_ok($after[0], '<', $after[-1], 'TEST 8: not all the same');
--- request
GET /sleep
--- error_code: 401
