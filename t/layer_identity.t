# From what a client says to a key: trimming, long and odd identities, what
# looks like the module's own marks, and what stands in for a missing one.

use strict;
use warnings;

use lib 't/lib';
use Test::Nginx::Socket 'no_plan';
use IapGuard::Test;

# a guard with one layer of each kind, alone in its location

add_block_preprocessor(sub {
    my ($block) = @_;

    $block->set_value('config', '
    add_header X-Verdict $iap_guard_verdict always;
    add_header X-Layer $iap_guard_layer always;
    location /user {
        iap_guard user;
        iap_guard_user $http_x_u capacity=1 rate=1r/h;
        empty_gif;
    }
    location /arg {
        iap_guard arg;
        iap_guard_user $arg_u capacity=1 rate=1r/h;
        empty_gif;
    }
    location /device {
        iap_guard device;
        iap_guard_device $http_x_d capacity=1 rate=1r/h;
        empty_gif;
    }
    location /both {
        iap_guard both;
        iap_guard_user $http_x_u;
        iap_guard_device $http_x_d capacity=1 rate=1r/h;
        empty_gif;
    }
    location /bucket {
        iap_guard bucket;
        iap_guard_bucket app $http_x_a capacity=1 rate=1r/h;
        empty_gif;
    }' . ($block->config // ''));
});

run_tests();

__DATA__

=== TEST 1: blanks around an identity are dropped, case and blanks inside count
--- config
location /padded {
    iap_guard g;
    iap_guard_user "$arg_before$http_x_u$arg_after" capacity=1 rate=1r/h;
    empty_gif;
}
location /tab {
    iap_guard h;
    iap_guard_user " 	 $http_x_u	 " capacity=1 rate=1r/h;
    empty_gif;
}
--- request eval
["GET /tab", "GET /tab", "GET /tab", "GET /tab"]
--- more_headers eval
["X-U: alice", "X-U:  alice ", "X-U: Alice", "X-U: al ice"]
--- error_code eval
[200, 429, 200, 200]



=== TEST 2: nothing but blanks is no identity
the client's address stands in
--- config
location /blank {
    iap_guard g;
    iap_guard_user " $arg_u	" capacity=1 rate=1r/h;
    empty_gif;
}
--- request eval
["GET /blank", "GET /blank?u=", "GET /blank?u=alice"]
--- error_code eval
[200, 429, 200]



=== TEST 3: identities longer than 64 bytes that share the first 64
--- request eval
["GET /arg?u=" . "x" x 64, "GET /arg?u=" . "x" x 65, "GET /arg?u=" . "x" x 64 . "y",
 "GET /arg?u=" . "x" x 64, "GET /arg?u=" . "x" x 65, "GET /arg?u=" . "x" x 64 . "y"]
--- error_code eval
[200, 200, 200, 429, 429, 429]



=== TEST 4: identities longer than 1000 bytes that differ in the last one
--- request eval
["GET /arg?u=" . "x" x 1500 . "a", "GET /arg?u=" . "x" x 1500 . "b",
 "GET /arg?u=" . "x" x 1500 . "a", "GET /arg?u=" . "x" x 1501]
--- error_code eval
[200, 200, 429, 200]



=== TEST 5: UTF-8 and bytes that are none
--- request eval
[("GET /user") x 6]
--- more_headers eval
["X-U: J\xc3\xbcrgen", "X-U: Jurgen", "X-U: J\xc3\xbcrgen",
 "X-U: \xff\xfe\x80", "X-U: \xff\xfe\x81", "X-U: \xff\xfe\x80"]
--- error_code eval
[200, 200, 429, 200, 200, 429]



=== TEST 6: what looks like an address's stand-in is an identity like others
it neither takes the stand-in's token nor the address its token
--- request eval
[("GET /user") x 6]
--- more_headers eval
["X-U: \@127.0.0.1", "X-Nobody: 1", "X-U: \@127.0.0.1", "X-Nobody: 1",
 "X-U: 127.0.0.1", "X-U: \@"]
--- error_code eval
[200, 200, 429, 429, 200, 200]



=== TEST 7: what looks like a hash is an identity like others
the second is what the first is hashed to, SHA-256 in base64url
--- request eval
["GET /arg?u=" . "x" x 65,
 "GET /arg?u=~" . Digest::SHA::sha256_base64("x" x 65) =~ tr{+/}{-_}r,
 "GET /arg?u=~" . Digest::SHA::sha256_base64("x" x 65) =~ tr{+/}{-_}r,
 "GET /arg?u=~", "GET /arg?u=~"]
--- error_code eval
[200, 200, 429, 200, 429]



=== TEST 8: a missing user falls to the client's address
leaving the header out buys nothing
--- request eval
[("GET /user") x 4]
--- more_headers eval
["X-Nobody: 1", "X-Nobody: 2", "X-U: alice", "X-U:"]
--- error_code eval
[200, 429, 200, 429]
--- response_headers eval
["X-Layer:", "X-Layer: user", "X-Layer:", "X-Layer: user"]



=== TEST 9: a missing device falls to the address where there is no user layer
--- request eval
[("GET /device") x 3]
--- more_headers eval
["X-Nobody: 1", "X-Nobody: 2", "X-D: phone"]
--- error_code eval
[200, 429, 200]



=== TEST 10: a missing device of a known user is skipped by default
--- request eval
[("GET /both") x 7]
--- more_headers eval
["X-U: alice", "X-U: alice", "X-U: bob", "X-U: bob\nX-D: phone",
 "X-U: carol\nX-D: phone", "X-Nobody: 1", "X-Nobody: 1"]
--- error_code eval
[200, 200, 200, 200, 429, 200, 429]



=== TEST 11: a missing bucket's value falls to the address
--- request eval
[("GET /bucket") x 3]
--- more_headers eval
["X-Nobody: 1", "X-Nobody: 2", "X-A: app"]
--- error_code eval
[200, 429, 200]



=== TEST 12: missing=address for a device, though the user is known
--- config
location /t {
    iap_guard g;
    iap_guard_user $http_x_u;
    iap_guard_device $http_x_d capacity=1 rate=1r/h missing=address;
    empty_gif;
}
--- request eval
[("GET /t") x 3]
--- more_headers eval
["X-U: alice", "X-U: bob", "X-U: bob\nX-D: phone"]
--- error_code eval
[200, 429, 200]



=== TEST 13: missing=skip counts nothing, for user, device and bucket
--- config
location /t {
    iap_guard g;
    iap_guard_user $http_x_u capacity=1 rate=1r/h missing=skip;
    iap_guard_device $http_x_d capacity=1 rate=1r/h missing=skip;
    iap_guard_bucket app $http_x_a capacity=1 rate=1r/h missing=skip;
    empty_gif;
}
--- request eval
[("GET /t") x 9]
--- more_headers eval
[("X-Nobody: 1") x 5, "X-U: alice", "X-U: alice", "X-D: phone", "X-D: phone"]
--- error_code eval
[(200) x 5, 200, 429, 200, 429]



=== TEST 14: missing=reject answers 400, says the layer, and no Retry-After
--- config
location /u {
    iap_guard u;
    iap_guard_user $http_x_u capacity=1 rate=1r/h missing=reject;
    empty_gif;
}
location /d {
    iap_guard d status=503;
    iap_guard_user $http_x_u;
    iap_guard_device $http_x_d missing=reject;
    empty_gif;
}
location /a {
    iap_guard a;
    iap_guard_bucket app $http_x_a missing=reject;
    empty_gif;
}
--- request eval
["GET /u", "GET /u", "GET /u", "GET /d", "GET /d", "GET /a", "GET /a"]
--- more_headers eval
["X-Nobody: 1", "X-U: alice", "X-U: alice", "X-U: alice", "X-D: phone",
 "X-Nobody: 1", "X-A: app"]
--- error_code eval
[400, 200, 429, 400, 200, 400, 200]
--- response_headers eval
["X-Verdict: error\nX-Layer: user\nRetry-After:\nRateLimit:",
 "X-Verdict: passed", "X-Verdict: limited",
 "X-Verdict: error\nX-Layer: device\nRetry-After:",
 "X-Verdict: passed", "X-Verdict: error\nX-Layer: app", "X-Verdict: passed"]
--- response_body_like eval
['^\{"error":"bad_request","layer":"user","request_id":"[0-9a-f]{32}"\}\n$',
 "GIF", "rate_limited", '"bad_request","layer":"device"', "GIF",
 '"bad_request","layer":"app"', "GIF"]



=== TEST 15: a request that is rejected takes no token in other layers
--- config
location /t {
    iap_guard g;
    iap_guard_user $http_x_u capacity=1 rate=1r/h;
    iap_guard_device $http_x_d missing=reject;
    iap_guard_global rate=1r/h window=1h;
    empty_gif;
}
--- request eval
[("GET /t") x 4]
--- more_headers eval
["X-U: alice", "X-U: alice", "X-U: alice\nX-D: phone", "X-U: bob\nX-D: phone"]
--- error_code eval
[400, 400, 200, 429]
--- response_headers eval
["X-Layer: device", "X-Layer: device", "X-Layer:", "X-Layer: global"]



=== TEST 16: missing=reject under dry run of the layer, and of the guard
--- config
location /layer {
    iap_guard layer;
    iap_guard_user $http_x_u capacity=1 rate=1r/h missing=reject dry_run=on;
    empty_gif;
}
location /guard {
    iap_guard guard dry_run=on;
    iap_guard_user $http_x_u capacity=1 rate=1r/h missing=reject;
    empty_gif;
}
--- request eval
["GET /layer", "GET /guard"]
--- error_code eval
[200, 200]
--- response_headers eval
[("X-Verdict: error_dry_run\nX-Layer: user") x 2]



=== TEST 17: a stand-in over IPv6 is the whole /64
the users of one /64 are told from those of another by realip
--- config
location /six {
    set_real_ip_from 127.0.0.1;
    real_ip_header X-Real;
    iap_guard g;
    iap_guard_user $http_x_u capacity=1 rate=1r/h;
    empty_gif;
}
--- request eval
[("GET /six") x 5]
--- more_headers eval
["X-Real: 2001:db8:1:2::1", "X-Real: 2001:db8:1:2:ffff::9",
 "X-Real: 2001:db8:1:3::1", "X-Real: ::ffff:192.0.2.1", "X-Real: 192.0.2.1"]
--- error_code eval
[200, 429, 200, 200, 429]
