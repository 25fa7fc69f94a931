# A request that any layer refuses takes nothing from any other.
#
# What a refused request has left is seen in a second location of the same
# guard, which has only the layer in question.

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
    iap_guard g;
    ' . $block->config);
});

run_tests();

__DATA__

=== TEST 1: a user refused by the global layer still has every token of its own
--- config
location /all {
    iap_guard_user $arg_u capacity=3 rate=1r/h;
    iap_guard_global rate=1r/d window=1d;
    empty_gif;
}
location /user {
    iap_guard_user $arg_u capacity=3 rate=1r/h;
    empty_gif;
}
--- request eval
["GET /all?u=bob", ("GET /all?u=alice") x 6, ("GET /user?u=alice") x 4]
--- error_code eval
[200, (429) x 6, 200, 200, 200, 429]
--- response_headers eval
["X-Layer:", ("X-Layer: global") x 6, ("X-Layer:") x 3, "X-Layer: user"]



=== TEST 2: a device's refusal takes no token of the user
--- config
location /all {
    iap_guard_user $arg_u capacity=2 rate=1r/h;
    iap_guard_device $arg_d capacity=1 rate=1r/h;
    empty_gif;
}
location /user {
    iap_guard_user $arg_u capacity=2 rate=1r/h;
    empty_gif;
}
--- request eval
["GET /all?u=bob&d=1", ("GET /all?u=alice&d=1") x 3,
 ("GET /user?u=alice") x 3]
--- error_code eval
[200, 429, 429, 429, 200, 200, 429]
--- response_headers eval
["X-Layer:", ("X-Layer: device") x 3, "X-Layer:", "X-Layer:", "X-Layer: user"]



=== TEST 3: a device's refusal does not enter the user into its segment
--- config
location /all {
    iap_guard_segment users=1 address=$arg_ip;
    iap_guard_user $arg_u;
    iap_guard_device $arg_d capacity=1 rate=1r/h;
    empty_gif;
}
location /segment {
    iap_guard_segment users=1 address=$arg_ip;
    iap_guard_user $arg_u;
    empty_gif;
}
--- request eval
["GET /all?u=1&d=1&ip=10.0.0.1", "GET /all?u=2&d=1&ip=10.0.0.2",
 "GET /segment?u=3&ip=10.0.0.2", "GET /segment?u=2&ip=10.0.0.2",
 "GET /segment?u=3&ip=10.0.0.2"]
--- error_code eval
[200, 429, 200, 429, 200]
--- response_headers eval
["X-Layer:", "X-Layer: device", "X-Layer:", "X-Layer: segment", "X-Layer:"]



=== TEST 4: a device's refusal leaves the global window as it was
--- config
location /all {
    iap_guard_user $arg_u;
    iap_guard_device $arg_d capacity=1 rate=1r/h;
    iap_guard_global rate=2r/d window=1d;
    empty_gif;
}
--- request eval
["GET /all?u=1&d=1", ("GET /all?u=1&d=1") x 4, "GET /all?u=1&d=2",
 "GET /all?u=1&d=3"]
--- error_code eval
[200, (429) x 4, 200, 429]
--- response_headers eval
["X-Layer:", ("X-Layer: device") x 4, "X-Layer:", "X-Layer: global"]



=== TEST 5: a segment's refusal takes no token of user, device, bucket, global
--- config
location /all {
    iap_guard_segment users=1 address=$arg_ip;
    iap_guard_user $arg_u capacity=1 rate=1r/h;
    iap_guard_device $arg_d capacity=1 rate=1r/h;
    iap_guard_bucket app $arg_a capacity=2 rate=1r/h;
    iap_guard_global rate=2r/d window=1d;
    empty_gif;
}
--- request eval
["GET /all?u=1&d=1&a=1&ip=10.0.0.1",
 ("GET /all?u=2&d=2&a=1&ip=10.0.0.1") x 3,
 "GET /all?u=2&d=2&a=1&ip=10.0.0.2"]
--- error_code eval
[200, 429, 429, 429, 200]
--- response_headers eval
["X-Layer:", ("X-Layer: segment") x 3, "X-Layer:"]



=== TEST 6: a wide level's refusal does not enter the user into a narrow one
--- config
location /all {
    iap_guard_segment ipv4=32 users=1 address=$arg_ip;
    iap_guard_segment ipv4=24 users=1 address=$arg_ip;
    iap_guard_user $arg_u;
    empty_gif;
}
location /narrow {
    iap_guard_segment ipv4=32 users=1 address=$arg_ip;
    iap_guard_user $arg_u;
    empty_gif;
}
--- request eval
["GET /all?u=1&ip=10.0.0.1", "GET /all?u=2&ip=10.0.0.2",
 "GET /narrow?u=3&ip=10.0.0.2", "GET /narrow?u=2&ip=10.0.0.2"]
--- error_code eval
[200, 429, 200, 429]



=== TEST 7: one of many buckets refuses, the others keep all they had
--- config
location /all {
    iap_guard_bucket a $arg_a capacity=1 rate=1r/h;
    iap_guard_bucket b $arg_b capacity=1 rate=1r/h;
    iap_guard_bucket c $arg_c capacity=1 rate=1r/h;
    empty_gif;
}
--- request eval
["GET /all?a=1&b=1&c=1", "GET /all?a=2&b=2&c=1", "GET /all?a=2&b=1&c=2",
 "GET /all?a=1&b=2&c=2", "GET /all?a=2&b=2&c=2"]
--- error_code eval
[200, 429, 429, 429, 200]
--- response_headers eval
["X-Layer:", "X-Layer: c", "X-Layer: b", "X-Layer: a", "X-Layer:"]
