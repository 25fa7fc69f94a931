# A request that passes reaches the upstream byte for byte, and a client that
# leaves half way does no harm.

use lib 't/lib';
use Test::Nginx::Socket 'no_plan';
use IapGuard::Test;

# every byte value, and lines that look like the end of something

our $body = join('', map { chr } 0 .. 255)
            . "\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n" . 'x' x 100_000 . "end.";

# what nginx sends on with "proxy_pass_request_headers off"

sub proxied {
    my ($method, $body) = @_;

    my $head = "$method /up HTTP/1.0\r\nHost: up\r\nConnection: close\r\n";
    $head .= 'Content-Length: ' . length($body) . "\r\n" if length $body;

    return "$head\r\n$body";
}

our $guard = <<'END';
    iap_guard g;
    iap_guard_user $http_x_user capacity=1 rate=1r/h;
END

add_block_preprocessor(sub {
    my ($block) = @_;

    my $proxy = <<'END';
        proxy_pass_request_headers off;
        proxy_set_header Host up;
        proxy_pass http://127.0.0.1:$TEST_NGINX_RAND_PORT_1/up;
END

    (my $config = $block->config) =~ s/\bPROXY;/$proxy/g;

    $block->set_value(config => $config . <<'END');
    location /api/ {
        iap_guard off;
        iap_guard_api read;
    }
END

    $block->set_value(more_headers => "X-User: a\n")
        if !defined $block->more_headers;
});

run_tests();

__DATA__

=== TEST 1: a small body
--- config eval
$::guard . 'location = /t { PROXY; }'
--- tcp_listen: $TEST_NGINX_RAND_PORT_1
--- tcp_query eval: ::proxied("POST", "hello")
--- tcp_reply eval: "HTTP/1.0 200 OK\r\n\r\nup"
--- request
POST /t
hello
--- response_body: up



=== TEST 2: no body
--- config eval
$::guard . 'location = /t { PROXY; }'
--- tcp_listen: $TEST_NGINX_RAND_PORT_1
--- tcp_query eval: ::proxied("GET", "")
--- tcp_reply eval: "HTTP/1.0 200 OK\r\n\r\nup"
--- request
GET /t
--- response_body: up



=== TEST 3: a large body with every byte, in a file
--- config eval
$::guard . 'location = /t { client_body_buffer_size 1k; PROXY; }'
--- tcp_listen: $TEST_NGINX_RAND_PORT_1
--- tcp_query eval: ::proxied("POST", $::body)
--- tcp_reply eval: "HTTP/1.0 200 OK\r\n\r\nup"
--- request eval
"POST /t\n$::body"
--- response_body: up



=== TEST 4: a large body with every byte, in memory
--- config eval
$::guard . 'location = /t { client_body_buffer_size 1m; PROXY; }'
--- tcp_listen: $TEST_NGINX_RAND_PORT_1
--- tcp_query eval: ::proxied("POST", $::body)
--- tcp_reply eval: "HTTP/1.0 200 OK\r\n\r\nup"
--- request eval
"POST /t\n$::body"
--- response_body: up



=== TEST 5: a large body under satisfy any, not buffered
--- config eval
$::guard . 'location = /t { satisfy any; proxy_request_buffering off; PROXY; }'
--- tcp_listen: $TEST_NGINX_RAND_PORT_1
--- tcp_query eval: ::proxied("POST", $::body)
--- tcp_reply eval: "HTTP/1.0 200 OK\r\n\r\nup"
--- request eval
"POST /t\n$::body"
--- response_body: up



=== TEST 6: a chunked body in pieces
--- no_http2
--- config eval
$::guard . 'location = /t { PROXY; }'
--- tcp_listen: $TEST_NGINX_RAND_PORT_1
--- tcp_query eval: ::proxied("POST", "hello world")
--- tcp_reply eval: "HTTP/1.0 200 OK\r\n\r\nup"
--- raw_request eval
["POST /t HTTP/1.1\r\nHost: localhost\r\nX-User: a\r\nConnection: close\r\n"
 . "Transfer-Encoding: chunked\r\n\r\n", "6\r\nhel", "lo \r\n", "5\r\nworld",
 "\r\n0\r\n\r\n"]
--- raw_request_middle_delay: 0.05
--- response_body: up



=== TEST 7: a body that waits for "100 Continue" gets it when it passes
--- no_http2
--- config eval
$::guard . 'location = /t { PROXY; }'
--- tcp_listen: $TEST_NGINX_RAND_PORT_1
--- tcp_query eval: ::proxied("POST", "hello")
--- tcp_reply eval: "HTTP/1.0 200 OK\r\n\r\nup"
--- raw_request eval
["POST /t HTTP/1.1\r\nHost: localhost\r\nX-User: a\r\nConnection: close\r\n"
 . "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n", "hello"]
--- raw_request_middle_delay: 0.1
--- error_code: 100
--- response_body_like: ^HTTP/1\.1 200 OK\r\n



=== TEST 8: a body over the limit is refused by nginx, before the guard
--- no_http2
--- config
    location = /t {
        iap_guard g;
        iap_guard_user $http_x_user capacity=1 rate=1r/h;
        client_max_body_size 10;
        alias $TEST_NGINX_HTML_DIR/t;
    }
--- user_files
>>> t
passed
--- request eval
["POST /t\nhello world", "GET /t", "GET /t"]
--- error_code eval
[413, 200, 429]



=== TEST 9: a client that resets while it sends a body that passed
--- no_http2
--- http_config
    server {
        listen unix:$TEST_NGINX_HTML_DIR/up.sock;
        location / { return 200 "up\n"; }
    }
--- config
    location = /t {
        iap_guard g;
        iap_guard_user $http_x_user capacity=2 rate=1r/h;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock;
    }
--- init
IapGuard::Test::http_raw(
    ["POST /t HTTP/1.1\r\nHost: localhost\r\nX-User: a\r\n"
     . "Content-Length: 1000000\r\n\r\n", "x" x 1000], close_after => 0,
    reset => 1);
--- request eval
["GET /t", "GET /t", "GET /api/guards/g"]
--- error_code eval
[200, 429, 200]
--- response_body_like eval
["up", "rate_limited", '"passed":2,"limited":1,']



=== TEST 10: a client that resets while it sends a body that was refused
--- no_http2
--- config
    location = /t {
        iap_guard g;
        iap_guard_user $http_x_user missing=reject;
    }
--- init
for (1 .. 3) {
    IapGuard::Test::http_raw(
        ["POST /t HTTP/1.1\r\nHost: localhost\r\n"
         . "Content-Length: 1000000\r\n\r\n", "x" x 1000], close_after => 0,
        reset => 1);
}
--- request
GET /api/guards/g
--- response_body_like: "passed":0,.*"error":3,



=== TEST 11: a client that resets while the upstream thinks has been charged
--- no_http2
--- http_config
    server {
        listen unix:$TEST_NGINX_HTML_DIR/slow.sock;
        location / {
            auth_basic "slow";
            auth_basic_user_file $TEST_NGINX_HTML_DIR/nobody;
            auth_delay 1s;
        }
    }
--- config
    location = /t {
        iap_guard g;
        iap_guard_user $http_x_user capacity=1 rate=1r/h;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/slow.sock;
    }
--- user_files
>>> nobody
--- init
IapGuard::Test::http_raw(
    ["GET /t HTTP/1.1\r\nHost: localhost\r\nX-User: a\r\n\r\n", ""],
    close_after => 0, reset => 1);
--- request eval
["GET /t", "GET /api/guards/g"]
--- error_code eval
[429, 200]
--- response_body_like eval
["rate_limited", '"passed":1,"limited":1,']



=== TEST 12: a client that leaves before it reads its refusals
--- no_http2
--- config
    location = /t {
        iap_guard g;
        iap_guard_user $http_x_nobody missing=reject;
    }
--- init
for (1 .. 5) {
    IapGuard::Test::http_raw("GET /t HTTP/1.1\r\nHost: localhost\r\n\r\n" x 20,
                             close_after => 0, reset => 1);
}
--- request eval
["GET /t", "GET /api/guards/g"]
--- error_code eval
[400, 200]
--- response_body_like eval
["bad_request", '"passed":0,.*"error":[1-9]']
