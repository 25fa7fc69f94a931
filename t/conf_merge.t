# What is inherited, what is overridden, what "off" takes away.

use strict;
use warnings;

use lib 't/lib';
use Test::Nginx::Socket 'no_plan';
use IapGuard::Test;

# "server" stands before all of config, with the guard in force there

add_block_preprocessor(sub {
    my ($block) = @_;

    $block->set_value('config', '
    add_header X-Verdict $iap_guard_verdict always;
    add_header X-Layer $iap_guard_layer always;
    ' . $block->config);
});

run_tests();

__DATA__

=== TEST 1: guard and layers of http are in force in every location
--- http_config
iap_guard g;
iap_guard_user $arg_u capacity=1 rate=1r/h;
--- config
location /a {
    empty_gif;
}
location /b {
    empty_gif;
}
--- request eval
["GET /a?u=1", "GET /b?u=1", "GET /b?u=2"]
--- error_code eval
[200, 429, 200]



=== TEST 2: a guard of the server, with layers of http
--- http_config
iap_guard_user $arg_u capacity=1 rate=1r/h;
--- config
iap_guard g;
location /a {
    empty_gif;
}
location /b {
    iap_guard other;
    empty_gif;
}
--- request eval
["GET /a?u=1", "GET /a?u=1", "GET /b?u=1", "GET /b?u=1"]
--- error_code eval
[200, 429, 200, 429]



=== TEST 3: a layer on this level replaces the inherited one, and only it
another guard, for in the same one it would have to be the same
--- config
iap_guard_user $arg_u capacity=1 rate=1r/h;
iap_guard_device $arg_d capacity=2 rate=1r/h;
location /a {
    iap_guard a;
    empty_gif;
}
location /b {
    iap_guard b;
    iap_guard_user $arg_u capacity=3 rate=1r/h;
    empty_gif;
}
--- request eval
[("GET /a?u=1&d=1") x 2, ("GET /b?u=1&d=1") x 3, "GET /b?u=1&d=2",
 "GET /b?u=1&d=3"]
--- error_code eval
[200, 429, 200, 200, 429, 200, 429]
--- response_headers eval
["X-Layer:", "X-Layer: user", "X-Layer:", "X-Layer:", "X-Layer: device",
 "X-Layer:", "X-Layer: user"]



=== TEST 4: "off" takes a layer away, and only that layer
--- config
iap_guard g;
iap_guard_user $arg_u capacity=1 rate=1r/h;
iap_guard_device $arg_d capacity=1 rate=1r/h;
iap_guard_bucket app $arg_a capacity=1 rate=1r/h;
iap_guard_bucket zip $arg_z capacity=1 rate=1r/h;
iap_guard_global rate=7r/d window=1d;
location /user {
    iap_guard_user off;
    empty_gif;
}
location /device {
    iap_guard_device off;
    empty_gif;
}
location /app {
    iap_guard_bucket app off;
    empty_gif;
}
location /global {
    iap_guard_global off;
    empty_gif;
}
--- request eval
[map { "GET $_" }
 "/user?u=1&d=1&a=1&z=1", "/user?u=1&d=2&a=2&z=2", "/user?u=1&d=1&a=9&z=9",
 "/device?u=3&d=1&a=3&z=3", "/device?u=4&d=1&a=4&z=4",
 "/device?u=4&d=1&a=9&z=9",
 "/app?u=5&d=5&a=1&z=5", "/app?u=6&d=6&a=1&z=6", "/app?u=9&d=9&a=1&z=6",
 "/user?d=10&a=10&z=10", "/user?d=11&a=11&z=11",
 "/global?u=12&d=12&a=12&z=12", "/global?u=12&d=13&a=13&z=13"]
--- error_code eval
[200, 200, 429, 200, 200, 429, 200, 200, 429, 200, 429, 200, 429]
--- response_headers eval
["X-Layer:", "X-Layer:", "X-Layer: device", "X-Layer:", "X-Layer:",
 "X-Layer: user", "X-Layer:", "X-Layer:", "X-Layer: zip", "X-Layer:",
 "X-Layer: global", "X-Layer:", "X-Layer: user"]



=== TEST 5: segments are one layer: a level set here replaces all inherited
--- config
iap_guard_user $arg_u;
iap_guard_segment ipv4=32 users=1 address=$arg_ip;
iap_guard_segment ipv4=24 users=2 address=$arg_ip;
location /inherits {
    iap_guard a;
    empty_gif;
}
location /sets {
    iap_guard b;
    iap_guard_segment ipv4=16 users=3 address=$arg_ip;
    empty_gif;
}
location /off {
    iap_guard c;
    iap_guard_segment off;
    empty_gif;
}
--- request eval
["GET /inherits?u=1&ip=10.0.0.1", "GET /inherits?u=2&ip=10.0.0.1",
 "GET /inherits?u=2&ip=10.0.0.2", "GET /inherits?u=3&ip=10.0.0.3",
 map({ "GET /sets?u=$_&ip=10.0.0.1" } 1 .. 4),
 map({ "GET /off?u=$_&ip=10.0.0.1" } 1 .. 4)]
--- error_code eval
[200, 429, 200, 429, 200, 200, 200, 429, 200, 200, 200, 200]



=== TEST 6: "iap_guard off" lets all pass, and the locations below it too
--- config
iap_guard g;
iap_guard_user $arg_u capacity=1 rate=1r/h;
location /a {
    empty_gif;
}
location /free {
    iap_guard off;
    empty_gif;
    location /free/too {
        empty_gif;
    }
    location /free/not {
        iap_guard g;
        empty_gif;
    }
}
--- request eval
["GET /a?u=1", "GET /a?u=1", ("GET /free?u=1") x 2, ("GET /free/too?u=1") x 2,
 "GET /free/not?u=1"]
--- error_code eval
[200, 429, 200, 200, 200, 200, 429]
--- response_headers eval
["X-Verdict: passed", "X-Verdict: limited", ("X-Verdict:") x 4,
 "X-Verdict: limited"]



=== TEST 7: nested locations inherit from the one around them
--- config
location /a {
    iap_guard g;
    iap_guard_user $arg_u capacity=2 rate=1r/h;
    empty_gif;
    location /a/b {
        iap_guard_device $arg_d capacity=1 rate=1r/h;
        empty_gif;
        location /a/b/c {
            iap_guard_user off;
            empty_gif;
        }
    }
}
--- request eval
["GET /a?u=1&d=1", "GET /a/b?u=1&d=1", "GET /a/b/c?u=1&d=1",
 "GET /a/b/c?u=1&d=2", "GET /a/b?u=1&d=3", "GET /a?u=1"]
--- error_code eval
[200, 200, 429, 200, 429, 429]
--- response_headers eval
["X-Layer:", "X-Layer:", "X-Layer: device", "X-Layer:", "X-Layer: user",
 "X-Layer: user"]



=== TEST 8: what "off" has taken away below, a location below that may set
--- config
iap_guard g;
iap_guard_user $arg_u capacity=1 rate=1r/h;
location /a {
    iap_guard_user off;
    empty_gif;
    location /a/b {
        iap_guard_user $arg_u capacity=1 rate=1r/h;
        empty_gif;
    }
}
--- request eval
["GET /a?u=1", "GET /a?u=1", "GET /a/b?u=1", "GET /a/b?u=1"]
--- error_code eval
[200, 200, 200, 429]



=== TEST 9: an "if" block has what its location has
--- config
location /t {
    iap_guard g;
    iap_guard_user $arg_u capacity=2 rate=1r/h;
    if ($arg_x) {
        add_header X-If yes always;
        add_header X-Layer $iap_guard_layer always;
    }
    empty_gif;
}
--- request eval
["GET /t?u=1", "GET /t?u=1&x=1", "GET /t?u=1&x=1", "GET /t?u=2&x=1"]
--- error_code eval
[200, 200, 429, 200]
--- response_headers eval
["X-If:", "X-If: yes", "X-If: yes\nX-Layer: user", "X-If: yes"]



=== TEST 10: limit_except has what its location has
--- config
location /t {
    iap_guard g;
    iap_guard_user $arg_u capacity=2 rate=1r/h;
    limit_except GET {
        allow all;
    }
    error_page 405 =200 /ok;
    empty_gif;
}
location /ok {
    internal;
    return 200 ok;
}
--- no_http2
--- request eval
["GET /t?u=1", "PUT /t?u=1", "PUT /t?u=1", "GET /t?u=1"]
--- error_code eval
[200, 200, 429, 429]



=== TEST 11: regex, exact and named locations
--- config
iap_guard g;
iap_guard_user $arg_u capacity=2 rate=1r/h;
location = /exact {
    empty_gif;
}
location ~ ^/re.*x$ {
    empty_gif;
}
location /named {
    iap_guard off;
    error_page 404 = @named;
    return 404;
}
location @named {
    empty_gif;
}
--- request eval
["GET /exact?u=1", "GET /regex?u=1", "GET /exact?u=1", "GET /named?u=1",
 "GET /named?u=2"]
--- error_code eval
[200, 200, 429, 429, 200]



=== TEST 12: answers are inherited one by one
--- http_config
iap_guard_answer limited 480 http;
iap_guard_answer banned 481 http;
--- config
iap_guard_user $arg_u capacity=1 rate=1r/h;
iap_guard_segment ipv4=24 users=1 ban=1h address=$arg_ip;
iap_guard_answer limited 482 server;
location /a {
    iap_guard a;
    empty_gif;
}
location /b {
    iap_guard b;
    iap_guard_answer banned 483 location;
    empty_gif;
}
--- request eval
[map { ("GET $_?u=1&ip=10.0.0.1", "GET $_?u=2&ip=10.0.0.1",
      "GET $_?u=1&ip=10.0.0.1") } "/a", "/b"]
--- error_code eval
[200, 482, 481, 200, 482, 483]
--- response_body eval
["", "server", "http", "", "server", "location"]
--- response_body_filters eval
sub { $_[0] =~ /^GIF/ ? "" : $_[0] }



=== TEST 13: a server of its own does not inherit from another
--- http_config
server {
    listen unix:$TEST_NGINX_HTML_DIR/other.sock;
    iap_guard g;
    iap_guard_user $arg_u capacity=1 rate=1r/h;
    location /t {
        empty_gif;
    }
}
--- config
location /t {
    proxy_pass http://unix:$TEST_NGINX_HTML_DIR/other.sock;
}
location /free {
    empty_gif;
}
--- request eval
[("GET /t?u=1") x 2, ("GET /free?u=1") x 2]
--- error_code eval
[200, 429, 200, 200]



=== TEST 14: a guard's parameters are inherited with its name
--- config
iap_guard g status=503 dry_run=off;
iap_guard_user $arg_u capacity=1 rate=1r/h;
location /a {
    empty_gif;
}
location /b {
    iap_guard h;
    empty_gif;
}
--- request eval
[("GET /a?u=1") x 2, ("GET /b?u=1") x 2]
--- error_code eval
[200, 503, 200, 429]



=== TEST 15: a layer inherited and overridden with the same name "off"
a bucket may be named so
--- config
location /t {
    iap_guard g;
    iap_guard_bucket off $arg_a capacity=1 rate=1r/h;
    empty_gif;
    location /t/not {
        iap_guard_bucket off off;
        empty_gif;
    }
}
--- request eval
["GET /t?a=1", "GET /t?a=1", "GET /t/not?a=1"]
--- error_code eval
[200, 429, 200]
--- response_headers eval
["X-Layer:", "X-Layer: off", "X-Layer:"]
