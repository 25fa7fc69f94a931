# Which addresses are one, and what happens to what is none.

use strict;
use warnings;

use lib 't/lib';
use Test::Nginx::Socket 'no_plan';
use IapGuard::Test;

# Each request is another user; one user per segment: an address that was
# seen before is refused.

add_block_preprocessor(sub {
    my ($block) = @_;

    $block->set_value('config', '
    add_header X-Layer $iap_guard_layer always;
    location /t {
        iap_guard g;
        iap_guard_segment users=1 address=$arg_ip;
        iap_guard_user $request_id;
        empty_gif;
    }
    ' . ($block->config // ''));
});

run_tests();

__DATA__

=== TEST 1: IPv4
--- request eval
[map { "GET /t?ip=$_" } "192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.2.1:8080",
 "192.0.2.2:1"]
--- error_code eval
[200, 429, 200, 429, 429]



=== TEST 2: IPv6 is a /64
--- request eval
[map { "GET /t?ip=$_" } "2001:db8:1:2::1", "2001:db8:1:2:ffff:ffff:ffff:ffff",
 "2001:DB8:1:2::", "2001:db8:1:3::1", "2001:db8:1:1::1",
 "2001:0db8:0001:0003:0:0:0:9"]
--- error_code eval
[200, 429, 429, 200, 200, 429]



=== TEST 3: IPv6 in brackets, with a port, with a zone
--- request eval
[map { "GET /t?ip=$_" } "[2001:db8:1:2::1]", "[2001:db8:1:2::2]:443",
 "2001:db8:1:2::3", "fe80::1%eth0", "fe80::2"]
--- error_code eval
[200, 429, 429, 200, 429]



=== TEST 4: v4-mapped, NAT64 and 6to4 count as the IPv4 inside
--- request eval
[map { "GET /t?ip=$_" } "192.0.2.1", "::ffff:192.0.2.1", "::ffff:c000:201",
 "64:ff9b::192.0.2.1", "64:ff9b::c000:201", "2002:c000:201::1",
 "2002:c000:201:ffff::9", "::ffff:192.0.2.2", "64:ff9b::c000:203",
 "2002:c000:204::1", "[::ffff:192.0.2.2]:80"]
--- error_code eval
[200, (429) x 6, 200, 200, 200, 429]



=== TEST 5: what only looks like one of those is IPv6
"::192.0.2.1" is deprecated, 64:ff9b:1::/48 is a network's own
--- request eval
[map { "GET /t?ip=$_" } "192.0.2.1", "::192.0.2.1", "64:ff9b:1::c000:201",
 "2003:c000:201::1", "64:ff9b::1:c000:201"]
--- error_code eval
[(200) x 5]



=== TEST 6: what is no address falls to the client's
--- request eval
[map { "GET /t$_" } "?ip=garbage", "", "?ip=", "?ip=127.0.0.1",
 "?ip=256.0.0.1", "?ip=1.2.3", "?ip=1.2.3.4.5", "?ip=2001:db8::g",
 "?ip=1.2.3.4,5.6.7.8", "?ip=::ffff:300.1.1.1", "?ip=0x7f000001",
 "?ip=" . "1" x 200, "?ip=1.2.3.4"]
--- error_code eval
[200, (429) x 11, 200]



=== TEST 7: an address of a header, as proxies write it
a list is none: realip is there for lists
--- config
location /h {
    iap_guard h;
    iap_guard_segment users=1 address=$http_x_real_ip;
    iap_guard_user $request_id;
    empty_gif;
}
--- request eval
[("GET /h") x 4]
--- more_headers eval
["X-Real-IP: 192.0.2.1", "X-Real-IP: ::ffff:192.0.2.1",
 "X-Real-IP: 192.0.2.1, 192.0.2.2", "X-Real-IP: 192.0.2.3, 192.0.2.4"]
--- error_code eval
[200, 429, 200, 429]



=== TEST 8: lengths up to the whole, down to one bit
--- config
location /one {
    iap_guard one;
    iap_guard_segment ipv4=1 ipv6=1 users=1 address=$arg_ip;
    iap_guard_user $request_id;
    empty_gif;
}
location /whole {
    iap_guard whole;
    iap_guard_segment ipv4=32 ipv6=128 users=1 address=$arg_ip;
    iap_guard_user $request_id;
    empty_gif;
}
--- request eval
[map { "GET $_" } "/one?ip=1.2.3.4", "/one?ip=127.255.255.255",
 "/one?ip=128.0.0.0", "/one?ip=2001::1", "/one?ip=7fff::", "/one?ip=fe80::1",
 "/whole?ip=2001:db8::1", "/whole?ip=2001:db8::2", "/whole?ip=2001:db8::1"]
--- error_code eval
[200, 429, 200, 200, 429, 200, 200, 200, 429]



=== TEST 9: two levels may look at two addresses
--- config
location /two {
    iap_guard two;
    iap_guard_segment ipv4=32 users=1 address=$arg_a;
    iap_guard_segment ipv4=24 users=2 address=$arg_b;
    iap_guard_user $request_id;
    empty_gif;
}
--- request eval
[map { "GET /two?a=10.0.0.$_->[0]&b=10.0.$_->[1].1" } [1, 1], [1, 2], [2, 1],
 [3, 1], [3, 2]]
--- error_code eval
[200, 429, 200, 429, 200]
