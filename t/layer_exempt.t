# exempt=: whom it names, a layer does not count.

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
    ' . $block->config);
});

run_tests();

__DATA__

=== TEST 1: empty and "0" are not exempt; "1", "00", "false" and blanks are
what nginx's own conditions take for true
--- config
location /t {
    iap_guard g;
    iap_guard_user $arg_u capacity=1 rate=1r/h exempt=$arg_e;
    empty_gif;
}
--- request eval
["GET /t?u=alice", "GET /t?u=alice", "GET /t?u=alice&e=", "GET /t?u=alice&e=0",
 "GET /t?u=alice&e=1", "GET /t?u=alice&e=1", "GET /t?u=alice&e=00",
 "GET /t?u=alice&e=false", "GET /t?u=alice"]
--- error_code eval
[200, 429, 429, 429, 200, 200, 200, 200, 429]



=== TEST 2: an exempt request takes no token
--- config
location /t {
    iap_guard g;
    iap_guard_user $arg_u capacity=1 rate=1r/h exempt=$arg_e;
    empty_gif;
}
--- request eval
[("GET /t?u=alice&e=1") x 3, "GET /t?u=alice", "GET /t?u=alice"]
--- error_code eval
[200, 200, 200, 200, 429]



=== TEST 3: exempt from one layer is not exempt from others
--- config
location /t {
    iap_guard g;
    iap_guard_user $arg_u capacity=1 rate=1r/h exempt=$arg_e;
    iap_guard_device $arg_d capacity=2 rate=1r/h;
    iap_guard_bucket app $arg_a capacity=3 rate=1r/h exempt=$arg_f;
    empty_gif;
}
--- request eval
[("GET /t?u=1&d=1&e=1&a=1") x 3, ("GET /t?u=1&d=2&a=1") x 2,
 ("GET /t?u=2&d=3&a=1&f=1") x 1, "GET /t?u=3&d=4&a=1"]
--- error_code eval
[200, 200, 429, 200, 429, 200, 429]
--- response_headers eval
["X-Layer:", "X-Layer:", "X-Layer: device", "X-Layer:", "X-Layer: user",
 "X-Layer:", "X-Layer: app"]



=== TEST 4: exempt by geo, from a segment
--- http_config
geo $arg_ip $partner {
    default 0;
    10.1.0.0/16 1;
}
--- config
location /t {
    iap_guard g;
    iap_guard_segment users=1 address=$arg_ip exempt=$partner;
    iap_guard_user $arg_u;
    empty_gif;
}
--- request eval
["GET /t?u=1&ip=10.1.0.1", "GET /t?u=2&ip=10.1.0.1", "GET /t?u=3&ip=10.1.0.1",
 "GET /t?u=1&ip=10.2.0.1", "GET /t?u=2&ip=10.2.0.1"]
--- error_code eval
[200, 200, 200, 200, 429]



=== TEST 5: an exempt request does not enter its segment
--- config
location /t {
    iap_guard g;
    iap_guard_segment users=1 address=$arg_ip exempt=$arg_e;
    iap_guard_user $arg_u;
    empty_gif;
}
--- request eval
["GET /t?u=1&ip=10.0.0.1&e=1", "GET /t?u=2&ip=10.0.0.1",
 "GET /t?u=1&ip=10.0.0.1", "GET /t?u=1&ip=10.0.0.1&e=1"]
--- error_code eval
[200, 200, 429, 200]



=== TEST 6: exempt beats a ban
--- config
location /t {
    iap_guard g;
    iap_guard_segment users=1 ban=1h address=$arg_ip exempt=$arg_e;
    iap_guard_user $arg_u;
    empty_gif;
}
--- request eval
["GET /t?u=1&ip=10.0.0.1", "GET /t?u=2&ip=10.0.0.1", "GET /t?u=1&ip=10.0.0.1",
 "GET /t?u=1&ip=10.0.0.1&e=1", "GET /t?u=9&ip=10.0.0.1&e=1",
 "GET /t?u=1&ip=10.0.0.1&e=0"]
--- error_code eval
[200, 429, 429, 200, 200, 429]
--- response_headers eval
["X-Verdict: passed", "X-Layer: segment", "X-Layer: ban", "X-Verdict: passed",
 "X-Verdict: passed", "X-Layer: ban"]



=== TEST 7: exempt may be an identity's own property
a map of the user's name, not read before it is known
--- http_config
map $arg_u $friend {
    ~^friend 1;
    default "";
}
--- config
location /t {
    iap_guard g;
    iap_guard_user $arg_u capacity=1 rate=1r/h exempt=$friend;
    empty_gif;
}
--- request eval
["GET /t?u=friend1", "GET /t?u=friend1", "GET /t?u=foe", "GET /t?u=foe"]
--- error_code eval
[200, 200, 200, 429]
