# Dry run, of a layer and of a guard: it counts and says what it would do as
# if it were in earnest, and refuses nothing.

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
    location /api/ { iap_guard_api read; }
    ' . $block->config);
});

run_tests();

__DATA__

=== TEST 1: a layer in dry run refuses nothing, and counts as if it did
--- config
location /t {
    iap_guard g;
    iap_guard_user $arg_u capacity=2 rate=1r/h dry_run=on;
    empty_gif;
}
--- request eval
[("GET /t?u=alice") x 4, "GET /t?u=bob", "GET /api/guards/g"]
--- error_code eval
[(200) x 6]
--- response_headers eval
[("X-Verdict: passed\nX-Layer:") x 2,
 ("X-Verdict: limited_dry_run\nX-Layer: user\nRetry-After:\nRateLimit:") x 2,
 "X-Verdict: passed", "X-Verdict:"]
--- response_body_like eval
[("GIF") x 5, '"requests":\{"passed":3,"limited":0,"limited_dry_run":2,.*'
 . '"rejections":\{[^}]*"user":0[,}].*"dry_run_rejections":\{[^}]*"user":2[,}]']



=== TEST 2: dry_run=off is earnest
--- config
location /t {
    iap_guard g dry_run=off;
    iap_guard_user $arg_u capacity=1 rate=1r/h dry_run=off;
    empty_gif;
}
--- request eval
[("GET /t?u=alice") x 2]
--- error_code eval
[200, 429]



=== TEST 3: an exhausted layer in dry run does not stop the others
they go on taking tokens and refusing
--- no_redis
--- config
location /t {
    iap_guard g;
    iap_guard_user $arg_u capacity=1 rate=1r/h dry_run=on;
    iap_guard_device $arg_d capacity=2 rate=1r/h;
    empty_gif;
}
--- request eval
[("GET /t?u=alice&d=1") x 4, "GET /api/guards/g"]
--- error_code eval
[200, 200, 429, 429, 200]
--- response_headers eval
["X-Verdict: passed", "X-Verdict: limited_dry_run\nX-Layer: user",
 ("X-Verdict: limited\nX-Layer: device") x 2, ""]
--- response_body_like eval
[("") x 4, '"passed":1,"limited":2,"limited_dry_run":1,.*'
 . '"rejections":\{[^}]*"device":2[,}].*'
 . '"dry_run_rejections":\{[^}]*"user":3,"device":0[,}]']



=== TEST 4: a layer in dry run keeps its tokens when another refuses
all or nothing, as if it were live
--- config
location /t {
    iap_guard g;
    iap_guard_user $arg_u capacity=2 rate=1r/h dry_run=on;
    iap_guard_device $arg_d capacity=1 rate=1r/h;
    empty_gif;
}
--- request eval
[("GET /t?u=alice&d=1") x 4, "GET /t?u=alice&d=2", "GET /t?u=alice&d=3"]
--- error_code eval
[200, 429, 429, 429, 200, 200]
--- response_headers eval
["X-Verdict: passed", ("X-Verdict: limited\nX-Layer: device") x 3,
 "X-Verdict: passed", "X-Verdict: limited_dry_run\nX-Layer: user"]



=== TEST 5: of several layers in dry run the first one names the verdict
--- config
location /t {
    iap_guard g;
    iap_guard_user $arg_u capacity=1 rate=1r/h dry_run=on;
    iap_guard_device $arg_d capacity=1 rate=1r/h dry_run=on;
    iap_guard_global rate=1r/d window=1d dry_run=on;
    empty_gif;
}
--- request eval
["GET /t?u=1&d=1", "GET /t?u=1&d=1", "GET /t?u=2&d=1", "GET /t?u=3&d=3",
 "GET /api/guards/g"]
--- error_code eval
[(200) x 5]
--- response_headers eval
["X-Verdict: passed", "X-Layer: user", "X-Layer: device", "X-Layer: global",
 ""]
--- response_body_like eval
[("") x 4, '"passed":1,"limited":0,"limited_dry_run":3,.*'
 . '"dry_run_rejections":\{[^}]*"user":1,"device":2,"global":3\}']



=== TEST 6: a guard in dry run refuses nothing, whatever the layer
--- config
location /t {
    iap_guard g dry_run=on;
    iap_guard_segment users=1 address=$arg_ip;
    iap_guard_user $arg_u capacity=1 rate=1r/h;
    iap_guard_global rate=2r/d window=1d;
    empty_gif;
}
--- request eval
["GET /t?u=1&ip=10.0.0.1", "GET /t?u=1&ip=10.0.0.1", "GET /t?u=2&ip=10.0.0.1",
 "GET /t?u=2&ip=10.0.0.2", "GET /t?u=3&ip=10.0.0.3", "GET /api/guards/g"]
--- error_code eval
[(200) x 6]
--- response_headers eval
["X-Verdict: passed\nX-Layer:", "X-Verdict: limited_dry_run\nX-Layer: user",
 "X-Verdict: limited_dry_run\nX-Layer: segment", "X-Verdict: passed",
 "X-Verdict: limited_dry_run\nX-Layer: global\nRetry-After:", ""]
--- response_body_like eval
[("") x 5, '"mode":"dry_run","source":"nginx.conf",'
 . '"requests":\{"passed":2,"limited":0,"limited_dry_run":3,.*'
 . '"dry_run_rejections":\{[^}]*"segment":1,"user":1,"global":1[,}]']



=== TEST 7: a guard in dry run is as if live, all or nothing included
what it would have refused has taken nothing
--- config
location /t {
    iap_guard g dry_run=on;
    iap_guard_user $arg_u capacity=2 rate=1r/h;
    iap_guard_device $arg_d capacity=1 rate=1r/h;
    empty_gif;
}
--- request eval
["GET /t?u=1&d=1", ("GET /t?u=1&d=1") x 3, "GET /t?u=1&d=2", "GET /t?u=1&d=3"]
--- error_code eval
[(200) x 6]
--- response_headers eval
["X-Layer:", ("X-Layer: device") x 3, "X-Layer:", "X-Layer: user"]



=== TEST 8: a layer in dry run within a guard in dry run is counted once
--- config
location /t {
    iap_guard g dry_run=on;
    iap_guard_user $arg_u capacity=1 rate=1r/h dry_run=on;
    empty_gif;
}
--- request eval
[("GET /t?u=1") x 3, "GET /api/guards/g"]
--- error_code eval
[(200) x 4]
--- response_body_like eval
[("") x 3, '"passed":1,"limited":0,"limited_dry_run":2,.*'
 . '"dry_run_rejections":\{[^}]*"user":2\}']



=== TEST 9: a segment in dry run writes no ban
--- config
location /layer {
    iap_guard layer;
    iap_guard_segment users=1 ban=1h address=$arg_ip dry_run=on;
    iap_guard_user $arg_u;
    empty_gif;
}
location /guard {
    iap_guard guard dry_run=on;
    iap_guard_segment users=1 ban=1h address=$arg_ip;
    iap_guard_user $arg_u;
    empty_gif;
}
--- request eval
[map({ ("GET $_?u=1&ip=10.0.0.1", "GET $_?u=2&ip=10.0.0.1",
       "GET $_?u=1&ip=10.0.0.1") } "/layer", "/guard"), "GET /api/bans",
 "GET /api/metrics"]
--- error_code eval
[(200) x 8]
--- response_headers eval
[("X-Verdict: passed", "X-Verdict: limited_dry_run\nX-Layer: segment",
  "X-Verdict: passed") x 2, "", ""]
--- response_body_like eval
[("") x 6, '^\[\]\n$', 'iap_guard_bans_total\{guard="layer"\} 0\n'
 . 'iap_guard_bans_total\{guard="guard"\} 0\n']



=== TEST 10: dry run in the metrics
--- config
location /t {
    iap_guard g;
    iap_guard_bucket app $arg_u capacity=1 rate=1r/h dry_run=on;
    empty_gif;
}
--- request eval
[("GET /t?u=1") x 3, "GET /api/metrics"]
--- error_code eval
[(200) x 4]
--- response_body_like eval
[("") x 3,
 '\niap_guard_requests_total\{guard="g",verdict="passed"\} 1\n'
 . 'iap_guard_requests_total\{guard="g",verdict="limited"\} 0\n'
 . 'iap_guard_requests_total\{guard="g",verdict="limited_dry_run"\} 2\n'
 . '.*\niap_guard_rejections_total\{guard="g",layer="app"\} 0\n'
 . '.*\niap_guard_dry_run_rejections_total\{guard="g",layer="app"\} 2\n']
