# Bans that a segment makes: of the whole prefix, for a time, and no longer.

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
    location /api/ { iap_guard_api read; }
    ' . $block->config);
});

run_tests();

__DATA__

=== TEST 1: one user too many, and the prefix is banned, seen users included
--- config
location /t {
    iap_guard g;
    iap_guard_segment ipv4=24 users=2 ban=1h address=$arg_ip;
    iap_guard_user $arg_u;
    empty_gif;
}
--- request eval
[map({ "GET /t?u=$_->[0]&ip=10.0.$_->[1]" } [1, "0.1"], [2, "0.2"], [3, "0.3"],
    [1, "0.1"], [4, "0.255"], [1, "1.0"]), "GET /api/bans", "GET /api/guards/g"]
--- error_code eval
[200, 200, 429, 429, 429, 200, 200, 200]
--- response_headers eval
["X-Verdict: passed", "X-Verdict: passed",
 "X-Verdict: limited\nX-Layer: segment",
 ("X-Verdict: banned\nX-Layer: ban") x 2, "X-Verdict: passed", "", ""]
--- response_body_like eval
["", "", '^\{"error":"rate_limited","layer":"segment","retry_after":3600,',
 ('^\{"error":"banned","layer":"ban","retry_after":(3600|359\d),'
 . '"request_id":"[0-9a-f]{32}"\}$') x 2, "",
 '^\[\{"guard":"g","layer":"segment","key":"10\.0\.0\.0/24",'
 . '"seconds":(3600|359\d)\}\]\n$',
 '"passed":3,"limited":1,"limited_dry_run":0,"banned":2,.*'
 . '"rejections":\{[^}]*"ban":2,"segment":1[,}].*"bans":1,"bans_total":1\}']



=== TEST 2: Retry-After and RateLimit of a ban
the refusal that bans tells of the ban's time, not of its window's
--- config
location /t {
    iap_guard g;
    iap_guard_segment users=1 window=10s ban=1h address=$arg_ip;
    iap_guard_user $arg_u;
    empty_gif;
}
--- request eval
[map { "GET /t?u=$_&ip=10.0.0.1" } 1, 2, 3]
--- error_code eval
[200, 429, 429]
--- response_headers_like eval
["", "Retry-After: 3600\nRateLimit-Policy: \"segment\";q=1;w=10\n"
 . "RateLimit: \"segment\";r=0;t=3600",
 'Retry-After: (?:3600|359\d)' . "\n" . 'RateLimit: "ban";r=0;t=(?:3600|359\d)']



=== TEST 3: a ban is said in the log, once
--- config
location /t {
    iap_guard g;
    iap_guard_segment ipv4=24 ban=90s users=1 address=$arg_ip;
    iap_guard_user $arg_u;
    empty_gif;
}
--- no_http2
--- init
    main::http_raw("GET /t?u=$_&ip=10.0.0.$_ HTTP/1.0\r\n\r\n") foreach 1 .. 5;
--- request
GET /t?u=6&ip=10.0.0.6
--- error_code: 429
--- grep_error_log eval
qr/\[error\].*iap_guard "\w+" bans \S+ for \d+ seconds[^,]*/
--- grep_error_log_out eval
qr/^\[error\] .* iap_guard "g" bans 10\.0\.0\.0\/24 for 90 seconds: too many users\n$/



=== TEST 4: without ban= nobody is banned
--- config
location /t {
    iap_guard g;
    iap_guard_segment users=1 address=$arg_ip;
    iap_guard_segment users=2 ipv4=24 ban=0 address=$arg_ip;
    iap_guard_user $arg_u;
    empty_gif;
}
--- request eval
[map({ "GET /t?u=$_->[0]&ip=10.0.0.$_->[1]" } [1, 1], [2, 1], [2, 2], [3, 3],
     [1, 1], [2, 2]), "GET /api/bans"]
--- error_code eval
[200, 429, 200, 429, 200, 200, 200]
--- response_body_like eval
[("") x 6, '^\[\]$']



=== TEST 5: a ban ends by itself
and then the segment, whose window is longer, is as full as it was
--- config
location /t {
    iap_guard g;
    iap_guard_segment users=1 ban=1s window=1h address=$arg_ip;
    iap_guard_user $arg_u;
    empty_gif;
}
--- request eval
["GET /t?u=1&ip=10.0.0.1", "GET /t?u=2&ip=10.0.0.1", "GET /t?u=1&ip=10.0.0.1",
 "GET /sleep", "GET /api/bans", "GET /t?u=1&ip=10.0.0.1",
 "GET /t?u=2&ip=10.0.0.1", "GET /t?u=1&ip=10.0.0.1", "GET /api/guards/g"]
--- error_code eval
[200, 429, 429, 401, 200, 200, 429, 429, 200]
--- response_headers eval
["X-Layer:", "X-Layer: segment", "X-Layer: ban", "", "", "X-Layer:",
 "X-Layer: segment", "X-Layer: ban", ""]
--- response_body_like eval
["", "", "", "", '^\[\]\n$', "", "", "", '"bans_total":2\}']



=== TEST 6: only the level that refused bans, and its own prefix
--- config
location /t {
    iap_guard g;
    iap_guard_segment ipv4=32 users=1 address=$arg_ip;
    iap_guard_segment ipv4=24 users=2 ban=1h address=$arg_ip;
    iap_guard_user $arg_u;
    empty_gif;
}
--- request eval
[map { "GET /t?u=$_->[0]&ip=10.0.0.$_->[1]" } [1, 1], [2, 1], [1, 1], [2, 2],
    [3, 3], [1, 1]]
--- error_code eval
[200, 429, 200, 200, 429, 429]
--- response_headers eval
["X-Layer:", "X-Layer: segment", "X-Layer:", "X-Layer:", "X-Layer: segment",
 "X-Layer: ban"]



=== TEST 7: a ban of one guard is none of another's
--- config
location /a {
    iap_guard a;
    iap_guard_segment users=1 ban=1h address=$arg_ip;
    iap_guard_user $arg_u;
    empty_gif;
}
location /b {
    iap_guard b;
    iap_guard_segment users=1 ban=1h address=$arg_ip;
    iap_guard_user $arg_u;
    empty_gif;
}
--- request eval
["GET /a?u=1&ip=10.0.0.1", "GET /a?u=2&ip=10.0.0.1", "GET /b?u=1&ip=10.0.0.1",
 "GET /b?u=1&ip=10.0.0.1", "GET /a?u=1&ip=10.0.0.1"]
--- error_code eval
[200, 429, 200, 200, 429]



=== TEST 8: a ban holds in every location of its guard
also where that has no segments: there it is the client's own address
--- config
set_real_ip_from 127.0.0.1;
real_ip_header X-Real;
location /a {
    iap_guard g;
    iap_guard_segment users=1 ban=1h;
    iap_guard_user $arg_u;
    empty_gif;
}
location /b {
    iap_guard g;
    iap_guard_user $arg_u;
    empty_gif;
}
--- request eval
["GET /a?u=1", "GET /a?u=2", "GET /b?u=3", "GET /b?u=3"]
--- more_headers eval
[("X-Real: 10.0.0.1") x 3, "X-Real: 10.0.0.2"]
--- error_code eval
[200, 429, 429, 200]
--- response_headers eval
["X-Layer:", "X-Layer: segment", "X-Layer: ban", "X-Layer:"]



=== TEST 9: IPv6, and IPv4 within IPv6
--- config
location /t {
    iap_guard g;
    iap_guard_segment ipv4=24 ipv6=48 users=1 ban=1h address=$arg_ip;
    iap_guard_user $arg_u;
    empty_gif;
}
--- request eval
[map({ "GET /t?u=$_->[0]&ip=$_->[1]" } [1, "2001:db8:1:2::1"],
    [2, "2001:db8:1:3::1"], [1, "2001:db8:1:ffff::1"], [1, "2001:db8:2::1"],
    [1, "192.0.2.1"], [2, "::ffff:192.0.2.2"], [1, "64:ff9b::c000:203"]),
    "GET /api/bans"]
--- error_code eval
[200, 429, 429, 200, 200, 429, 429, 200]
--- response_headers eval
["X-Layer:", "X-Layer: segment", "X-Layer: ban", "X-Layer:", "X-Layer:",
 "X-Layer: segment", "X-Layer: ban", ""]
--- response_body_like eval
[("") x 7, '"key":"192\.0\.2\.0/24".*"key":"2001:db8:1::/48"|'
 . '"key":"2001:db8:1::/48".*"key":"192\.0\.2\.0/24"']



=== TEST 10: banned requests take no tokens and enter no segment
--- config
location /t {
    iap_guard g;
    iap_guard_segment users=1 ban=1s window=1h address=$arg_ip;
    iap_guard_user $arg_u capacity=2 rate=1r/h;
    iap_guard_global rate=3r/d window=1d;
    empty_gif;
}
--- request eval
["GET /t?u=1&ip=10.0.0.1", "GET /t?u=2&ip=10.0.0.1",
 ("GET /t?u=1&ip=10.0.0.1") x 3, "GET /sleep", "GET /t?u=1&ip=10.0.0.1",
 "GET /t?u=1&ip=10.0.0.1", "GET /t?u=2&ip=10.0.0.2", "GET /t?u=3&ip=10.0.0.3"]
--- error_code eval
[200, (429) x 4, 401, 200, 429, 200, 429]
--- response_headers eval
["X-Layer:", "X-Layer: segment", ("X-Layer: ban") x 3, "", "X-Layer:",
 "X-Layer: user", "X-Layer:", "X-Layer: global"]



=== TEST 11: a guard with another status says it for bans too
--- config
location /t {
    iap_guard g status=503;
    iap_guard_segment users=1 ban=1h address=$arg_ip;
    iap_guard_user $arg_u;
    empty_gif;
}
--- request eval
[map { "GET /t?u=$_&ip=10.0.0.1" } 1, 2, 1]
--- error_code eval
[200, 503, 503]
--- response_body_like eval
["", '"rate_limited"', '"error":"banned"']



=== TEST 12: a ban is counted for the guard whose ban it is
A request that the first location's auth has sent on, before its guard could
decide, is refused by the ban of the second location's guard.
--- config
set_real_ip_from 127.0.0.1;
real_ip_header X-Real;
location /login {
    iap_guard first status=503;
    iap_guard_user $arg_u;
    auth_basic realm;
    auth_basic_user_file none;
    error_page 401 = /second;
    empty_gif;
}
location /second {
    iap_guard second;
    iap_guard_segment users=1 ban=1h;
    iap_guard_user $arg_u;
    empty_gif;
}
--- request eval
["GET /second?u=1", "GET /second?u=2", "GET /login?u=1",
 "GET /api/guards/first", "GET /api/guards/second"]
--- more_headers eval
[("X-Real: 10.0.0.1") x 3, "", ""]
--- error_code eval
[200, 429, 429, 200, 200]
--- response_body_like eval
["", "", '"error":"banned"', '"banned":0,.*"ban":0,', '"banned":1,.*"ban":1,']
