# A body that a guard has read reaches the upstream byte for byte, however it
# came and wherever nginx keeps it; and what does not come to its end is no
# request.

use lib 't/lib';
use Test::Nginx::Socket 'no_plan';
use IapGuard::Test;
use IapGuard::Frames qw(frame head talk DATA END_STREAM);

our $json = '{"code":"ABC","x":"' . 'x' x 100_000 . "\xc3\xa9\" , \"y\": 1}";
our $bad  = join('', map { chr } 0 .. 255) . "\r\n0\r\n\r\n" . 'x' x 50_000;

# what nginx sends on with "proxy_pass_request_headers off"

sub proxied {
    my ($body) = @_;

    return "POST /up HTTP/1.0\r\nHost: up\r\nX-Code: "
           . ($body =~ /"ABC"/ ? 'ABC' : '-') . "\r\nConnection: close\r\n"
           . 'Content-Length: ' . length($body) . "\r\n\r\n$body";
}

# ... and to an upstream of HTTP/1.1 in chunks

our $head = "POST /t HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            . "Content-Type: application/json\r\n";

sub status { return $_[0] =~ m{^HTTP/1\.1 (\d+)} ? $1 : 'none' }

add_block_preprocessor(sub {
    my ($block) = @_;

    my $options = $block->options // '';

    $block->set_value(http_config => ($block->http_config // '') . <<'END');
    iap_guard_json $code code;

    map $code $sent { default $code; "" -; }

    server {
        listen unix:$TEST_NGINX_HTML_DIR/up.sock;
        location / { return 200 "up\n"; }
    }

    server {
        listen unix:$TEST_NGINX_HTML_DIR/h2.sock http2;

        location = /t {
            iap_guard h2;
            iap_guard_bucket promo $code capacity=1 rate=1r/h missing=reject;
            client_body_timeout 300ms;
            proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock;
        }
    }
END

    $block->set_value(config => ($block->config // <<"END") . <<'END');
    location = /t {
        iap_guard t;
        iap_guard_bucket promo \$code capacity=2 rate=1r/h missing=skip;
        $options
        proxy_pass_request_headers off;
        proxy_set_header Host up;
        proxy_set_header X-Code \$sent;
        proxy_pass http://127.0.0.1:\$TEST_NGINX_RAND_PORT_1/up;
    }
END
    location = /slow {
        iap_guard g;
        iap_guard_bucket promo $code capacity=2 rate=1r/h;
        client_body_timeout 300ms;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock;
    }
    location = /small {
        iap_guard g;
        iap_guard_bucket promo $code capacity=2 rate=1r/h;
        client_max_body_size 20;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock;
    }
    location /api/ { iap_guard_api read; }
END

    $block->set_value(tcp_reply => "HTTP/1.0 200 OK\r\n\r\nup")
        if defined $block->tcp_query;
    $block->set_value(tcp_listen => '$TEST_NGINX_RAND_PORT_1')
        if defined $block->tcp_query;
    $block->set_value(response_body => "up")
        if defined $block->tcp_query && !defined $block->response_body_like;
    $block->set_value(more_headers => "Content-Type: application/json\n");
    $block->set_value(request => 'GET /api/guards/g')
        if !defined $block->request && !defined $block->raw_request;
});

run_tests();

__DATA__

=== TEST 1: a small one
--- tcp_query eval: ::proxied('{"code":"ABC"}')
--- request
POST /t
{"code":"ABC"}



=== TEST 2: a large one, in a file
--- options: client_body_buffer_size 1k;
--- tcp_query eval: ::proxied($::json)
--- request eval
"POST /t\n$::json"



=== TEST 3: a large one, in memory
--- options: client_body_buffer_size 1m;
--- tcp_query eval: ::proxied($::json)
--- request eval
"POST /t\n$::json"



=== TEST 4: always in a file
--- options: client_body_in_file_only clean;
--- tcp_query eval: ::proxied('{"code":"ABC"}')
--- request
POST /t
{"code":"ABC"}



=== TEST 5: in a single buffer
--- options: client_body_in_single_buffer on; client_body_buffer_size 1m;
--- tcp_query eval: ::proxied($::json)
--- request eval
"POST /t\n$::json"



=== TEST 6: to an upstream that would have it as it comes
--- options: proxy_request_buffering off;
--- tcp_query eval: ::proxied($::json)
--- request eval
"POST /t\n$::json"



=== TEST 7: what is no JSON
--- options: client_body_buffer_size 1k;
--- tcp_query eval: ::proxied($::bad)
--- request eval
"POST /t\n$::bad"



=== TEST 8: longer than the guard's limit, known from its length
--- http_config: iap_guard_json_limit 1k;
--- options: client_body_buffer_size 1k;
--- tcp_query eval: ::proxied($::json) =~ s/X-Code: ABC/X-Code: -/r
--- request eval
"POST /t\n$::json"



=== TEST 9: longer than the guard's limit, in chunks
--- no_http2
--- http_config: iap_guard_json_limit 20;
--- tcp_query eval: ::proxied('{"code":"ABC","x":1}x') =~ s/X-Code: ABC/X-Code: -/r
--- raw_request eval
[$::head . "Transfer-Encoding: chunked\r\n\r\n",
 "15\r\n{\"code\":\"ABC\",\"x\":1}x\r\n0\r\n\r\n"]
--- raw_request_middle_delay: 0.05



=== TEST 10: in chunks, in pieces
--- no_http2
--- tcp_query eval: ::proxied('{"code":"ABC"}')
--- raw_request eval
[$::head . "Transfer-Encoding: chunked\r\n\r\n", "6\r\n{\"c", "ode\r\n",
 "8\r\n\":\"ABC\"}", "\r\n0\r\n\r\n"]
--- raw_request_middle_delay: 0.05



=== TEST 11: in chunks, in a file, to an upstream that would have it as it comes
--- no_http2
--- options: client_body_buffer_size 1k; proxy_request_buffering off; proxy_http_version 1.1;
--- tcp_query eval
"POST /up HTTP/1.1\r\nHost: up\r\nX-Code: ABC\r\nConnection: close\r\n"
 . 'Content-Length: ' . length($::json) . "\r\n\r\n$::json"
--- raw_request eval
[$::head . "Transfer-Encoding: chunked\r\n\r\n",
 sprintf("%x\r\n", length $::json) . $::json . "\r\n", "0\r\n\r\n"]
--- raw_request_middle_delay: 0.05



=== TEST 12: with a length, byte by byte
--- no_http2
--- tcp_query eval: ::proxied('{"code":"ABC"}')
--- raw_request eval
[$::head . "Content-Length: 14\r\n\r\n", split //, '{"code":"ABC"}']
--- raw_request_middle_delay: 0.02



=== TEST 13: after "100 Continue"
--- no_http2
--- tcp_query eval: ::proxied('{"code":"ABC"}')
--- raw_request eval
[$::head . "Expect: 100-continue\r\nContent-Length: 14\r\n\r\n",
 '{"code":"ABC"}']
--- raw_request_middle_delay: 0.1
--- error_code: 100
--- response_body_like: ^HTTP/1\.1 200 OK\r\n



=== TEST 14: behind another on one connection
--- no_http2
--- init
my $one = "POST /slow HTTP/1.1\r\nHost: localhost\r\n"
          . "Content-Type: application/json\r\nContent-Length: 14\r\n\r\n"
          . '{"code":"ABC"}';

my $answer = IapGuard::Test::http_raw(
    $one x 3 . "GET /api/guards/g HTTP/1.1\r\nHost: localhost\r\n"
    . "Connection: close\r\n\r\n");

Test::More::is(join(' ', $answer =~ m{^HTTP/1\.1 (\d+)}mg), '200 200 429 200',
               'each has its own body');
--- response_body_like: "passed":2,"limited":1,



=== TEST 15: over the server's limit: 413, and nothing is charged
--- no_http2
--- init
foreach my $body ("Content-Length: 21\r\n\r\n{\"code\":\"ABC\",\"x\":12}",
                  "Transfer-Encoding: chunked\r\n\r\n"
                  . "15\r\n{\"code\":\"ABC\",\"x\":12}\r\n0\r\n\r\n")
{
    Test::More::is(main::status(IapGuard::Test::http_raw(
        $::head =~ s{/t}{/small}r . $body)), 413, 'too large');
}

Test::More::is(main::status(IapGuard::Test::http_raw(
    $::head =~ s{/t}{/small}r . "Content-Length: 14\r\n\r\n{\"code\":\"ABC\"}")),
    200, 'one that fits');
--- response_body_like: "passed":1,"limited":0,.*"error":0,



=== TEST 16: one that stops: 408, and nothing is charged
--- no_http2
--- init
Test::More::is(main::status(IapGuard::Test::http_raw(
    $::head =~ s{/t}{/slow}r . "Content-Length: 14\r\n\r\n{\"code\":\"A")),
    'none', 'nginx closes the connection');
--- response_body_like: "passed":0,"limited":0,.*"error":0,



=== TEST 17: a client that leaves before its body's end
--- no_http2
--- init
foreach my $reset (0, 1) {
    foreach my $body ("Content-Length: 14\r\n\r\n{\"code\":\"A",
                      "Transfer-Encoding: chunked\r\n\r\n6\r\n{\"code")
    {
        IapGuard::Test::http_raw($::head =~ s{/t}{/slow}r . $body,
                                 close_after => 0, reset => $reset);
    }
}

Time::HiRes::sleep(0.1);
--- response_body_like: "passed":0,"limited":0,.*"error":0,



=== TEST 18: chunks that are none: 400
--- no_http2
--- init
Test::More::is(main::status(IapGuard::Test::http_raw(
    $::head =~ s{/t}{/slow}r . "Transfer-Encoding: chunked\r\n\r\nzz\r\n")),
    400, 'malformed');
--- response_body_like: "passed":0,"limited":0,.*"error":0,



=== TEST 19: a body that could not be read leads to another guard: by address
It is not read again, and what was not read has no values.
--- no_http2
--- config
    error_page 408 413 = @late;

    location @late {
        iap_guard late;
        iap_guard_user $code capacity=9 rate=1r/h;
        iap_guard_bucket plain "p$code" capacity=9 rate=1r/h exempt=$code;
        add_header X-Code "<$code>" always;
        return 200 "late\n";
    }
    location @proxied {
        iap_guard late;
        iap_guard_bucket plain "p$code" capacity=9 rate=1r/h exempt=$code;
        add_header X-Code "<$code>" always;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock;
    }
    location = /proxied {
        error_page 400 413 = @proxied;
        iap_guard g;
        iap_guard_bucket promo $code capacity=2 rate=1r/h;
        client_max_body_size 20;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock;
    }
--- init
my $chunked = "Transfer-Encoding: chunked\r\n\r\n"
              . "6\r\n{\"code\r\nf\r\n\":\"ABC\",\"x\":12}\r\n0\r\n\r\n";

my $late = IapGuard::Test::http_raw($::head =~ s{/t}{/small}r . $chunked);

Test::More::like($late, qr{^HTTP/1\.1 200 .*^X-Code: <>\r\n.*^late\n}ms, '413');

$late = IapGuard::Test::http_raw(
    $::head =~ s{/t}{/slow}r . "Content-Length: 14\r\n\r\n{\"code\":\"A");

Test::More::unlike($late, qr/X-Code: <\w/, '408: nothing of what has come');

Test::More::is(main::status(IapGuard::Test::http_raw(
    $::head =~ s{/t}{/proxied}r . $chunked)), 200, 'and to an upstream');

$late = IapGuard::Test::http_raw(
    [$::head =~ s{/t}{/proxied}r . "Transfer-Encoding: chunked\r\n\r\n",
     "e\r\n{\"code\":\"ABC\"}\r\n", "zz\r\n"]);

Test::More::like($late, qr{^HTTP/1\.1 200 .*^X-Code: <>\r\n}ms,
                 'a chunk that is none, behind one that is good');
--- request
GET /api/guards/late
--- response_body_like: "passed":2,



=== TEST 20: HTTP/2, with a length and without
--- init
my @type = ('content-type' => 'application/json');

Test::More::is(main::talk(
    [main::head(1, POST => '/t', 0, @type, 'content-length' => 14),
     main::frame(main::DATA, 0, 1, '{"code"'),
     main::frame(main::DATA, main::END_STREAM, 1, ':"ABC"}')]),
    "1:up\n", 'with a length, in two frames');

Test::More::is(main::talk(
    [main::head(1, POST => '/t', 0, @type),
     main::frame(main::DATA, 0, 1, '{"code"'),
     main::frame(main::DATA, 0, 1, ':"DEF"}'),
     main::frame(main::DATA, main::END_STREAM, 1, '')]),
    "1:up\n", 'without one');

Test::More::is(main::talk(
    [main::head(1, POST => '/t', 0, @type)
     . main::frame(main::DATA, 0, 1, '{"code":"')
     . main::head(3, POST => '/t', 0, @type)
     . main::frame(main::DATA, 0, 3, '{"code":"'),
     main::frame(main::DATA, main::END_STREAM, 3, 'ABC"}')
     . main::frame(main::DATA, main::END_STREAM, 1, 'GHI"}')]),
    "3:rate_limited 1:up\n", 'two at once, each with its own');

Test::More::is(main::talk(
    main::head(1, POST => '/t', main::END_STREAM, @type)),
    '1:bad_request', 'none');

Test::More::is(main::talk(
    [main::head(1, POST => '/t', 0, @type),
     main::frame(main::DATA, 0, 1, '{"code"')], close_after => 0.8) =~ /up/,
    '', 'one that does not end is not let by');
--- request
GET /api/guards/h2
--- response_body_like: "passed":3,"limited":1,.*"error":1,



=== TEST 21: HTTP/2, longer than the guard's limit, without a length
--- http_config: iap_guard_json_limit 20;
--- init
my @type = ('content-type' => 'application/json');

Test::More::is(main::talk(
    [main::head(1, POST => '/t', 0, @type),
     main::frame(main::DATA, main::END_STREAM, 1, '{"code":"ABC","x":1}')]),
    "1:up\n", 'that long');

Test::More::is(main::talk(
    [main::head(1, POST => '/t', 0, @type),
     main::frame(main::DATA, main::END_STREAM, 1, '{"code":"DEF","x":12}')]),
    '1:bad_request', 'longer');
--- request
GET /api/guards/h2
--- response_body_like: "passed":1,.*"error":1,



=== TEST 22: used elsewhere: where it has been read whole
In the log: behind a guard that does not ask for it, or none; for an upstream,
which wants it buffered; in a file, which is closed by then; and unbuffered.
--- no_http2
--- http_config
    log_format code "$uri <$code>";
    access_log $TEST_NGINX_SERVER_ROOT/logs/access.log code;
--- config
    location /log/ {
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock;

        location /log/guarded {
            iap_guard u;
            iap_guard_user $http_x_user capacity=9 rate=1r/h;
            proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock;
        }
        location /log/file {
            client_body_in_file_only clean;
            proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock;
        }
        location /log/asked {
            client_body_in_file_only clean;
            iap_guard a;
            iap_guard_user $code capacity=9 rate=1r/h;
            proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock;
        }
        location /log/unbuffered {
            proxy_request_buffering off;
            proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock;
        }
        location /log/unread {
            return 200;
        }
    }
--- init
IapGuard::Test::http_raw([$::head =~ s{/t}{/log/$_}r . "Content-Length: 14\r\n\r\n",
                          '{"code":', '"ABC"}'])
    foreach qw(none guarded file asked unbuffered unread);
--- request
GET /api/metrics
--- response_body_like eval
qr/^iap_guard_json_total\{result="read"\} 1$/m
--- access_log eval
[map { qr{^/log/$_$}m } "none <ABC>", "guarded <ABC>", "file <->", "asked <ABC>",
 "unbuffered <->", "unread <->"]



=== TEST 23: before a breaker, which reads it as well
--- options: iap_guard_breaker b; client_body_buffer_size 1k;
--- http_config: iap_guard_breaker b;
--- tcp_query eval: ::proxied($::json)
--- request eval
"POST /t\n$::json"
