# One guard in several places is one guard; two guards have nothing in common.

use strict;
use warnings;

use lib 't/lib';
use Test::Nginx::Socket 'no_plan';
use IapGuard::Test;

add_block_preprocessor(sub {
    my ($block) = @_;

    $block->set_value('config', '
    add_header X-Verdict $iap_guard_verdict always;
    add_header X-Layer $iap_guard_layer always;
    ' . ($block->config // ''));
});

run_tests();

__DATA__

=== TEST 1: a guard in two locations shares its buckets
--- config
location /a {
    iap_guard g;
    iap_guard_user $arg_u capacity=2 rate=1r/h;
    empty_gif;
}
location /b {
    iap_guard g;
    iap_guard_user $arg_u capacity=2 rate=1r/h;
    empty_gif;
}
--- request eval
["GET /a?u=1", "GET /b?u=1", "GET /a?u=1", "GET /b?u=1", "GET /b?u=2"]
--- error_code eval
[200, 200, 429, 429, 200]



=== TEST 2: two guards do not
--- config
location /a {
    iap_guard a;
    iap_guard_user $arg_u capacity=1 rate=1r/h;
    empty_gif;
}
location /b {
    iap_guard b;
    iap_guard_user $arg_u capacity=1 rate=1r/h;
    empty_gif;
}
--- request eval
["GET /a?u=1", "GET /a?u=1", "GET /b?u=1", "GET /b?u=1"]
--- error_code eval
[200, 429, 200, 429]



=== TEST 3: a layer may be absent in one place
--- config
location /a {
    iap_guard g;
    iap_guard_user $arg_u capacity=2 rate=1r/h;
    iap_guard_device $arg_d capacity=1 rate=1r/h;
    empty_gif;
}
location /b {
    iap_guard g;
    iap_guard_user $arg_u capacity=2 rate=1r/h;
    empty_gif;
}
location /c {
    iap_guard g;
    iap_guard_device $arg_d capacity=1 rate=1r/h;
    empty_gif;
}
--- request eval
["GET /a?u=1&d=1", "GET /b?u=1&d=1", "GET /b?u=1&d=1", "GET /c?u=9&d=1",
 "GET /c?u=9&d=2"]
--- error_code eval
[200, 200, 429, 429, 200]
--- response_headers eval
["X-Layer:", "X-Layer:", "X-Layer: user", "X-Layer: device", "X-Layer:"]



=== TEST 4: a guard of two servers is one
--- http_config
server {
    listen unix:$TEST_NGINX_HTML_DIR/other.sock;
    location /b {
        iap_guard g;
        iap_guard_user $arg_u capacity=1 rate=1r/h;
        empty_gif;
    }
}
--- config
location /a {
    iap_guard g;
    iap_guard_user $arg_u capacity=1 rate=1r/h;
    empty_gif;
}
location /b {
    proxy_pass http://unix:$TEST_NGINX_HTML_DIR/other.sock;
}
--- request eval
["GET /a?u=1", "GET /b?u=1", "GET /b?u=2", "GET /a?u=2"]
--- error_code eval
[200, 429, 200, 429]



=== TEST 5: identities are written alike, though variables differ in value
one location's variable is another's, when the text is the same
--- config
location /a {
    set $who $arg_u;
    iap_guard g;
    iap_guard_user $who capacity=1 rate=1r/h;
    empty_gif;
}
location /b {
    set $who $arg_v;
    iap_guard g;
    iap_guard_user $who capacity=1 rate=1r/h;
    empty_gif;
}
--- request eval
["GET /a?u=1", "GET /b?v=1", "GET /b?v=2"]
--- error_code eval
[200, 429, 200]



=== TEST 6: sixteen guards side by side
--- config eval
CORE::join '', map {
    "location /g$_ { iap_guard g$_; iap_guard_user \$arg_u capacity=$_ "
    . "rate=1r/h; empty_gif; }"
} 1 .. 16
--- request eval
[("GET /g1?u=1") x 2, ("GET /g2?u=1") x 3, ("GET /g16?u=1") x 17]
--- error_code eval
[200, 429, 200, 200, 429, (200) x 16, 429]



=== TEST 7: 24 layers, the most that a guard has, all in force
--- config eval
my @buckets = map {
    "iap_guard_bucket b$_ \$arg_b$_ capacity=1 rate=1r/h;"
} 1 .. 21;
"location /t { iap_guard g;
    iap_guard_user \$arg_u capacity=9 rate=1r/h;
    iap_guard_segment address=\$arg_ip;
    iap_guard_global rate=9r/d window=1d;
    @buckets empty_gif; }"
--- request eval
my $all = CORE::join '&', map { "b$_=x" } 1 .. 21;
["GET /t?u=1&ip=10.0.0.1&$all",
 (map { my $last = $_;
        "GET /t?u=1&ip=10.0.0.1&" . CORE::join '&',
            map { "b$_=" . ($_ == $last ? "x" : "y") } 1 .. 21
      } 1, 13, 21),
 "GET /t?u=1&ip=10.0.0.1&" . CORE::join('&', map { "b$_=y" } 1 .. 21)]
--- error_code eval
[200, 429, 429, 429, 200]
--- response_headers eval
["X-Layer:", "X-Layer: b1", "X-Layer: b13", "X-Layer: b21", "X-Layer:"]
