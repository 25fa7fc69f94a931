# What a breaker makes of an answer that comes whole, or nearly: its status,
# and what of its body can be read.  One outcome for each request, and nothing
# stays in flight.

use strict;
use warnings;

use lib 't/lib';
use Test::Nginx::Socket 'no_plan';
use IapGuard::Test;

my ($GOOD, $PAGE);

BEGIN {
    $GOOD = '{"status":0,"receipt":{"in_app":[{"product_id":"month"}]}}';
    $PAGE = '<html><body>Maintenance</body></html>';
}

sub whole {
    my ($status, $body, @fields) = @_;

    return join "\r\n", "HTTP/1.1 $status", @fields,
                'Content-Length: ' . length($body), '', $body;
}

sub chunked {
    my (@pieces) = @_;

    return "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
           . join '', map { sprintf "%x\r\n%s\r\n", length $_, $_ } @pieces;
}

use IapGuard::BreakerTest {
    '/200'  => [whole('200 OK', $GOOD)],
    '/keep' => [whole('200 OK', $GOOD), 'keep'],
    '/html' => [whole('200 OK', $PAGE, 'Content-Type: text/html')],
    '/empty' => [whole('200 OK', '')],
    '/400'  => [whole('400 Bad Request', '{"errorCode":4000006}')],
    '/401'  => [whole('401 Unauthorized', '')],
    '/404'  => [whole('404 Not Found', '{"errorCode":4040010}')],
    '/302'  => [whole('302 Found', '', 'Location: http://127.0.0.1/')],
    '/500'  => [whole('500 Internal Server Error', '{"errorCode":5000000}')],
    '/503'  => [whole('503 Service Unavailable', $PAGE)],
    '/429'  => [whole('429 Too Many Requests', '{"errorCode":4290000}',
                      'Retry-After: 1')],
    '/204'  => ["HTTP/1.1 204 No Content\r\n\r\n"],
    '/304'  => ["HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\n\r\n"],
    '/etag' => [whole('200 OK', $GOOD, 'ETag: "x"')],
    '/101'  => ["HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n"
                . "Upgrade: websocket\r\n\r\n", \0.1, 'bytes'],
    '/103'  => ["HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
                . whole('200 OK', $GOOD)],
    '/ssi'  => [whole('200 OK', q[{"status":21005,"x":"]
                . q[<!--#echo var='none' default='' -->","y":1}])],
    '/101_open' => ["HTTP/1.1 101 Switching Protocols\r\n"
                    . "Connection: upgrade\r\nUpgrade: websocket\r\n\r\n",
                    'hang'],
    '/gzip' => [whole('200 OK', "\x1f\x8b\x08rubbish",
                      'Content-Encoding: gzip')],
    '/identity' => [whole('200 OK', $PAGE, 'Content-Encoding: ')],
    '/huge' => [whole('200 OK', '{"status":21005,"x":"' . 'x' x 1_048_600
                                . '"}')],
    '/below' => [whole('200 OK', '{"status":21005,"x":"' . 'x' x 1_000_000
                                 . '"}')],
    '/ranges' => [whole('200 OK', $GOOD, 'Accept-Ranges: bytes')],
    '/chunked' => [chunked(split(/(?<=,)/, $GOOD), '')],
    '/bytes' => [(map { ($_, \0.002) } split //, chunked($GOOD, ''))],
    '/old'  => ["HTTP/1.0 200 OK\r\n\r\n", \0.05, $GOOD],
    '/old_cut' => ["HTTP/1.0 200 OK\r\n\r\n", substr $GOOD, 0, 20],
    (map { ("/business/$_" => [whole('200 OK', "{\"status\":$_}")]) }
         0, 21000, 21002 .. 21010, 21100, 21999),
    '/retryable' => [whole('200 OK', '{"status":21100,"is-retryable":false}')],
    '/retryable2' => [whole('200 OK', '{"status":21100,"is_retryable":false}')],
    '/retryable3' => [whole('200 OK', '{"status":21100,"is_retryable":true,'
                                      . '"is-retry-able":false}')],
    '/not_status' => [whole('200 OK', '{"state":0}')],
    '/twice' => [whole('200 OK', '{"status":0,"status":21005}')],
    '/deep' => [whole('200 OK', '[' x 200 . ']' x 200)],
    (map { ("/cut_json/$_" => [whole('200 OK', substr $GOOD, 0, $_)]) }
         1 .. length($GOOD) - 1),
};

our $cuts = length($GOOD) - 1;

add_block_preprocessor(sub {
    my ($block) = @_;
    my $buffering = defined $block->buffering ? $block->buffering : 'on';

    $block->set_value(config => ($block->config // '') . <<"END");
    location /b/ {
        iap_guard_breaker b;
        proxy_buffering $buffering;
        proxy_http_version 1.1;
        proxy_set_header Connection "";
        proxy_pass http://raw/;
    }
    location /c/ {
        iap_guard_breaker c;
        proxy_buffering $buffering;
        proxy_pass http://raw/;
    }
    location /cached/ {
        iap_guard_breaker b;
        proxy_cache cache;
        proxy_cache_valid 1m;
        proxy_pass http://raw/;
    }
    location /ranges/ {
        iap_guard_breaker b;
        proxy_force_ranges on;
        proxy_pass http://raw/;
    }
END
    $block->set_value(http_config => <<'END' . ($block->http_config // ''));
    proxy_cache_path $TEST_NGINX_SERVER_ROOT/cache keys_zone=cache:1m;
END
});

run_tests();

__DATA__

=== TEST 1: an answer that is good
--- request
GET /b/200
--- response_body_like: "status":0
--- outcomes: success=1
--- share: 0



=== TEST 2: the same, not buffered
--- buffering: off
--- request
GET /b/200
--- response_body_like: "status":0
--- outcomes: success=1
--- share: 0



=== TEST 3: each class, by status
--- request eval
[map { "GET /b/$_" } 200, 302, 400, 401, 404, 500, 503]
--- error_code eval
[200, 302, 400, 401, 404, 500, 503]
--- outcomes: success=1 retry=3 final=1 config=1 redirect=1
--- share eval: 3 / 7



=== TEST 4: the same, judged as HTTP
--- request eval
[map { "GET /c/$_" } 200, 302, 400, 401, 404, 500, 503]
--- error_code eval
[200, 302, 400, 401, 404, 500, 503]
--- outcomes_c: success=1 final=3 config=1 retry=2



=== TEST 5: trouble inside of 200, and business answers
--- request eval
[map { "GET /b/business/$_" } 0, 21000, 21002 .. 21010, 21100, 21999]
--- outcomes: success=2 final=3 redirect=2 config=1 retry=5
--- share eval: 3 / 12



=== TEST 6: a flag beside the status, however it is spelled
--- request eval
["GET /b/retryable", "GET /b/retryable2", "GET /b/retryable3"]
--- outcomes: final=2 retry=1



=== TEST 7: a web page with 200
--- request eval
["GET /b/html", "GET /c/html"]
--- outcomes: retry=1
--- outcomes_c: success=1
--- share: 1



=== TEST 8: a web page with 200, not buffered
--- buffering: off
--- request
GET /b/html
--- outcomes: retry=1
--- share: 1



=== TEST 9: nothing with 200
--- request eval
["GET /b/empty", "GET /c/empty"]
--- outcomes: retry=1
--- outcomes_c: success=1
--- share: 1



=== TEST 10: JSON of something else, JSON that nobody can read
--- request eval
["GET /b/not_status", "GET /b/deep"]
--- outcomes: retry=2
--- share: 1



=== TEST 11: of two members of one name the last one counts
--- request
GET /b/twice
--- outcomes: retry=1
--- share: 1



=== TEST 12: JSON cut anywhere, in an answer that is whole
--- request eval
[map { "GET /b/cut_json/$_" } 1 .. $::cuts]
--- outcomes eval: "retry=$::cuts"
--- b: min=1000
--- share: 1



=== TEST 13: 429 is a hold, and no failure
The second one is not made.
--- request eval
["GET /b/429", "GET /b/200"]
--- error_code eval
[429, 503]
--- outcomes: hold=1 cut=1
--- share: 0



=== TEST 14: HEAD is judged by its status
--- request eval
["HEAD /b/200", "HEAD /b/503", "HEAD /b/html"]
--- error_code eval
[200, 503, 200]
--- outcomes: success=2 retry=1



=== TEST 15: HEAD, not buffered
--- buffering: off
--- request
HEAD /b/200
--- outcomes: success=1



=== TEST 16: 204 and 304, which have no body, and not one that can't be read
--- http_config
    iap_guard_breaker d classify=d;
    iap_guard_classify d final unread;
--- config
    location /d/ { iap_guard_breaker d; proxy_pass http://raw/; }
--- request eval
["GET /b/204", "GET /b/304", "GET /c/204", "GET /c/304", "GET /d/204",
 "GET /d/304", "GET /api/breakers/d"]
--- error_code eval
[(204, 304) x 3, 200]
--- response_body_like eval
[("") x 6, '"outcomes":\{"success":2,"final":0,']
--- outcomes: retry=2
--- outcomes_c: success=2



=== TEST 17: nginx makes 304 of a 200, whose body then never comes by
--- request
GET /cached/etag
--- more_headers
If-None-Match: "x"
--- error_code: 304
--- outcomes: success=1
--- share: 0



=== TEST 18: nginx makes 412 of a 200
--- request
GET /cached/etag
--- more_headers
If-Match: "y"
--- error_code: 412
--- outcomes: success=1
--- share: 0



=== TEST 19: nginx makes 416 of a 200
--- request
GET /ranges/ranges
--- more_headers
Range: bytes=5000-6000
--- error_code: 416
--- outcomes: success=1
--- share: 0



=== TEST 20: a part of a 200 is asked for
--- request
GET /ranges/ranges
--- more_headers
Range: bytes=1-5
--- error_code: 206
--- response_body chomp
"stat
--- outcomes: success=1
--- share: 0



=== TEST 21: an upgrade is an answer, whatever comes of it and however long it lasts
--- http_config
    server {
        listen unix:$TEST_NGINX_HTML_DIR/upgrade.sock;
        location / {
            iap_guard_breaker c;
            proxy_http_version 1.1;
            proxy_set_header Upgrade websocket;
            proxy_set_header Connection upgrade;
            proxy_pass http://raw;
        }
    }
--- no_http2
--- init
our $open = main::http_begin("GET /101_open HTTP/1.1\r\nHost: x\r\n"
    . "Connection: upgrade\r\nUpgrade: websocket\r\n\r\n",
    unix => 'upgrade.sock');
main::http_raw("GET /101 HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\n"
         . "Upgrade: websocket\r\n\r\n", unix => 'upgrade.sock')
    =~ /101 Switching.*bytes$/s or die "no upgrade\n";
--- request
GET /api/breakers/c
--- outcomes_c: success=2



=== TEST 22: a body that is compressed is not read
--- request
GET /b/gzip
--- outcomes: success=1
--- share: 0



=== TEST 23: an empty Content-Encoding is none
--- request
GET /b/identity
--- outcomes: retry=1
--- share: 1



=== TEST 24: nginx's own gzip and gunzip do not matter
--- http_config
    gzip on;
    gzip_types *;
    gzip_min_length 1;
--- request
GET /b/html
--- more_headers
Accept-Encoding: gzip
--- response_headers
Content-Encoding: gzip
--- outcomes: retry=1
--- share: 1



=== TEST 25: more than a megabyte is not read
--- request
GET /b/huge
--- outcomes: success=1
--- share: 0



=== TEST 26: more than a megabyte, not buffered
--- buffering: off
--- request
GET /b/huge
--- outcomes: success=1



=== TEST 27: less than a megabyte is read, from a file where nginx keeps it there
--- http_config
    proxy_buffers 2 4k;
    proxy_buffer_size 4k;
    proxy_busy_buffers_size 4k;
    sendfile on;
--- request
GET /b/below
--- outcomes: retry=1
--- share: 1



=== TEST 28: chunks, however they are cut
--- request eval
["GET /b/chunked", "GET /b/bytes", "GET /b/old"]
--- outcomes: success=3
--- share: 0



=== TEST 29: chunks, not buffered
--- buffering: off
--- request eval
["GET /b/chunked", "GET /b/bytes", "GET /b/old"]
--- outcomes: success=3
--- share: 0



=== TEST 30: an end that nothing announces: only JSON tells that it came early
--- request eval
["GET /b/old_cut", "GET /c/old_cut"]
--- outcomes: retry=1
--- outcomes_c: success=1
--- share: 1



=== TEST 31: kept connections to the upstream
--- http_config
    upstream kept { server 127.0.0.1:$TEST_NGINX_RAW_PORT; keepalive 2; }
--- config
    location = /kept {
        iap_guard_breaker b;
        proxy_http_version 1.1;
        proxy_set_header Connection "";
        proxy_pass http://kept/keep;
    }
--- request eval
[("GET /kept") x 5]
--- outcomes: success=5
--- share: 0



=== TEST 32: a body in the request, in memory and in a file
--- config
    location = /file {
        iap_guard_breaker b;
        client_body_in_file_only clean;
        proxy_pass http://raw/200;
    }
    location = /unbuffered {
        iap_guard_breaker b;
        proxy_http_version 1.1;
        proxy_request_buffering off;
        proxy_pass http://raw/200;
    }
--- request eval
["POST /b/200\n" . 'x' x 3000, "POST /file\n" . 'x' x 3000,
 "POST /unbuffered\n" . 'x' x 3000, "POST /b/200\n" . 'x' x 300000]
--- response_body_like eval
[('"status":0') x 4]
--- outcomes: success=4



=== TEST 33: filters behind the breaker's that change the body: judged before that
--- config
    location = /sub {
        iap_guard_breaker b;
        sub_filter_types *;
        sub_filter '"status":0' 'gone';
        proxy_pass http://raw/200;
    }
    location = /ssi {
        iap_guard_breaker b;
        ssi on;
        ssi_types *;
        proxy_pass http://raw/ssi;
    }
--- request eval
["GET /sub", "GET /ssi"]
--- response_body_like eval
['^\{gone,', '^\{"status":21005,"x":"","y":1\}$']
--- outcomes: success=1 retry=1
--- share: 0.5



=== TEST 34: a body that no rule is about is not read, but sent from its file
--- log_level: debug
--- http_config
    sendfile on;
--- config
    location = /t {
        iap_guard_breaker c;
        proxy_cache cache;
        proxy_cache_valid 1m;
        proxy_pass http://raw/below;
    }
--- request
GET /t
--- error_log
sendfile: @
finalize http proxy request
--- no_error_log eval
qr/\bread: \d+, /
--- outcomes_c: success=1



=== TEST 35: an early hint is not the answer
--- skip_nginx: 4: < 1.29.0
--- request eval
["GET /b/103", "GET /c/103"]
--- outcomes: success=1
--- outcomes_c: success=1
--- share: 0



=== TEST 36: probes are judged by their bodies, too, and so are calls whose number
is bounded
--- b: min=1 open=100ms probes=1 inflight=9
--- no_http2
--- init
my $get = sub { main::http_raw("GET /b/business/$_[0] HTTP/1.0\r\n\r\n") };

$get->(21005);
select undef, undef, undef, 0.2;
$get->(21005);
select undef, undef, undef, 0.2;
$get->(0);
--- request
GET /b/200
--- outcomes: retry=2 success=2



=== TEST 37: a body that nginx can't unpack proves nothing
--- no_http2
--- http_config
    gunzip on;
--- init
main::http_raw("GET /b/gzip HTTP/1.0\r\n\r\n");
--- request
GET /api/breakers/b
--- error_log
inflate() failed
--- outcomes: neutral=1
--- share: 0
