# A refusal as an answer to all kinds of requests: HEAD, bodies of any size
# and shape, old versions of HTTP; and the connection after it.

use lib 't/lib';
use Test::Nginx::Socket 'no_plan';
use IapGuard::Test;

our $large = 'x' x 100_000;

# {"error":"bad_request","layer":"user","request_id":"..."}

our $length = length('{"error":"bad_request","layer":"user","request_id":""}')
              + 32 + 1;

add_block_preprocessor(sub {
    my ($block) = @_;

    $block->set_value(config => $block->config . <<'END');
    location = /t {
        iap_guard g;
        iap_guard_user $http_x_user missing=reject;
        gzip on;
        gzip_min_length 1;
        gzip_types application/json text/plain;
        gzip_http_version 1.0;
        gzip_proxied any;
    }

    location = /free { return 200 "free $request_method\n"; }

    location /api/ { iap_guard_api read; }
END
});

# all that came back on one connection: statuses, and what follows the last

sub statuses {
    my ($answer) = @_;

    return join ' ', $answer =~ m{^HTTP/1\.[01] (\d+)}mg;
}

run_tests();

__DATA__

=== TEST 1: HEAD has GET's headers and no body
--- config
--- request eval
["GET /t", "HEAD /t"]
--- error_code eval
[400, 400]
--- response_headers eval
[("Content-Type: application/json\nContent-Length: $::length") x 2]
--- response_body_like eval
['^\{"error":"bad_request".*\}\n$', '^$']



=== TEST 2: HEAD, and the connection is in step afterwards
--- no_http2
--- config
--- init
my $answer = IapGuard::Test::http_raw(
    "HEAD /t HTTP/1.1\r\nHost: localhost\r\n\r\n"
    . "GET /free HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");

Test::More::is(main::statuses($answer), "400 200", "two answers");
Test::More::unlike($answer, qr/bad_request/, "no body to HEAD");
Test::More::like($answer, qr/\r\n\r\nfree GET\n$/, "the second one whole");
--- request
GET /free



=== TEST 3: every method is refused alike
--- config
--- request eval
["POST /t", "PUT /t", "DELETE /t", "PATCH /t", "OPTIONS /t",
 "PROPFIND /t"]
--- error_code eval
[(400) x 6]
--- response_body_like eval
[('^\{"error":"bad_request"') x 6]



=== TEST 4: a small body
--- no_http2
--- config
--- request
POST /t
hello
--- error_code: 400
--- response_body_like: ^\{"error":"bad_request"



=== TEST 5: a large body
--- no_http2
--- config
--- request eval
"POST /t\n$::large"
--- error_code: 400
--- response_body_like: ^\{"error":"bad_request"



=== TEST 6: a body of three megabytes, and the answer still arrives
--- no_http2
--- config
--- request eval
"POST /t\n" . $::large x 30
--- error_code: 400
--- response_body_like: ^\{"error":"bad_request"



=== TEST 7: keep-alive and pipelining after bodies of all sizes
--- no_http2
--- config
--- pipelined_requests eval
["POST /t\nhello", "GET /free", "POST /t\n$::large", "GET /free",
 "POST /t\n" . $::large x 10, "GET /t", "POST /t", "GET /free"]
--- error_code eval
[400, 200, 400, 200, 400, 400, 400, 200]
--- response_body_like eval
["bad_request", '^free GET$', "bad_request", '^free GET$', "bad_request",
 "bad_request", "bad_request", '^free GET$']



=== TEST 8: keep-alive and pipelining after chunked bodies
--- no_http2
--- config
--- pipelined_requests eval
["POST /t\n5\r\nhello\r\n0\r\n\r\n", "GET /free",
 "POST /t\n186a0\r\n$::large\r\n5\r\nhello\r\n0\r\n\r\n", "GET /free"]
--- more_headers eval
["Transfer-Encoding: chunked", "", "Transfer-Encoding: chunked", ""]
--- error_code eval
[400, 200, 400, 200]
--- response_body_like eval
["bad_request", '^free GET$', "bad_request", '^free GET$']



=== TEST 9: keep-alive after a body that comes late, in pieces
--- no_http2
--- config
--- init
my $answer = IapGuard::Test::http_raw(
    ["POST /t HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n",
     "hello", "GET /",
     "GET /free HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"]);

Test::More::is(main::statuses($answer), "400 200", "two answers");
Test::More::like($answer, qr/\r\n\r\nfree GET\n$/, "the second one whole");
--- request
GET /free



=== TEST 10: keep-alive after a chunked body that comes late, in pieces
--- no_http2
--- config
--- init
my $answer = IapGuard::Test::http_raw(
    ["POST /t HTTP/1.1\r\nHost: localhost\r\n"
     . "Transfer-Encoding: chunked\r\n\r\n",
     "a\r\nhel", "lo worl\r\n0\r", "\n\r\n",
     "GET /free HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"]);

Test::More::is(main::statuses($answer), "400 200", "two answers");
Test::More::like($answer, qr/\r\n\r\nfree GET\n$/, "the second one whole");
--- request
GET /free



=== TEST 11: a refused client is not told to send its body first
As little as it is by limit_req: a refusal must cost nothing.
--- no_http2
--- config
--- init
my $answer = IapGuard::Test::http_raw(
    "POST /t HTTP/1.1\r\nHost: localhost\r\n"
    . "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n",
    close_after => 0.5);

Test::More::is(main::statuses($answer), "400", "one answer, no 100");
--- request
GET /free



=== TEST 12: a client that sends its body without waiting for "100 Continue"
--- no_http2
--- config
--- init
my $answer = IapGuard::Test::http_raw(
    ["POST /t HTTP/1.1\r\nHost: localhost\r\n"
     . "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n", "hello",
     "GET /free HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"]);

Test::More::like(main::statuses($answer), qr/^(100 )?400 200$/,
                 "two answers");
Test::More::like($answer, qr/\r\n\r\nfree GET\n$/, "the second one whole");
--- request
GET /free



=== TEST 13: keep-alive after an error page for a refused body
--- no_http2
--- config
    location = /paged {
        iap_guard paged;
        iap_guard_user $http_x_user capacity=1 rate=1r/h;
        error_page 429 /free;
        empty_gif;
    }
--- more_headers
X-User: a
--- pipelined_requests eval
["GET /paged", "POST /paged\nhello", "GET /free", "POST /paged\n$::large",
 "GET /free"]
--- error_code eval
[200, 429, 200, 429, 200]
--- response_body_like eval
["GIF", ("^free GET\$") x 4]



=== TEST 14: keep-alive after an answer of one's own to a refused body
--- no_http2
--- config
    location = /own {
        iap_guard own;
        iap_guard_user $http_x_user capacity=1 rate=1r/h missing=reject;
        iap_guard_answer limited 200 "own $iap_guard_layer\n" text/plain;
        proxy_pass http://127.0.0.1:$server_port/free;
    }
--- more_headers
X-User: a
--- pipelined_requests eval
["GET /own", "POST /own\nhello", "GET /free", "POST /own\n$::large",
 "GET /free"]
--- error_code eval
[200, 200, 200, 200, 200]
--- response_body_like eval
["free GET", '^own user$', '^free GET$', '^own user$', '^free GET$']



=== TEST 15: HTTP/1.0
--- no_http2
--- config
--- request
POST /t HTTP/1.0
hello
--- error_code: 400
--- response_headers eval
"Content-Length: $::length\nConnection: close\n!Transfer-Encoding"
--- response_body_like: ^\{"error":"bad_request".*\}$



=== TEST 16: HTTP/1.0 with keep-alive
--- no_http2
--- config
--- init
my $answer = IapGuard::Test::http_raw(
    "POST /t HTTP/1.0\r\nConnection: keep-alive\r\n"
    . "Content-Length: 5\r\n\r\nhello"
    . "GET /free HTTP/1.0\r\n\r\n");

Test::More::is(main::statuses($answer), "400 200", "two answers");
Test::More::like($answer, qr/^Connection: keep-alive\r$/m, "kept");
--- request
GET /free



=== TEST 17: HTTP/0.9
--- no_http2
--- config
--- raw_request eval: "GET /t\r\n"
--- http09
--- response_body_like: ^\{"error":"bad_request".*\}$



=== TEST 18: gzip in force: the refusal can be read all the same
--- config
--- request
GET /t
--- more_headers
Accept-Encoding: gzip
--- error_code: 400
--- response_headers
! Content-Encoding
--- response_body_like: ^\{"error":"bad_request".*\}$



=== TEST 19: gzip in force: an answer of one's own with status 200
--- config
    location = /own {
        iap_guard own;
        iap_guard_user $http_x_user capacity=1 rate=1r/h missing=reject;
        iap_guard_answer limited 200 "own own own own $iap_guard_layer";
        gzip on;
        gzip_min_length 1;
        gzip_types application/json;
    }
--- request eval
["GET /own", "GET /own"]
--- more_headers
X-User: a
Accept-Encoding: gzip
--- error_code eval
[404, 200]
--- response_headers eval
["", "Content-Encoding: gzip\nContent-Type: application/json"]
--- response_body_filters eval
use IO::Uncompress::Gunzip;
sub {
    my ($body) = @_;
    IO::Uncompress::Gunzip::gunzip(\$body => \my $text);
    return $text // $body;
}
--- response_body_like eval
["404", '^own own own own user$']



=== TEST 20: a range or a condition of the request changes nothing
--- config
--- request eval
["GET /t", "GET /t", "GET /t"]
--- more_headers eval
["Range: bytes=0-3", "If-Modified-Since: Sun, 01 Jan 2034 00:00:00 GMT",
 "If-None-Match: *"]
--- error_code eval
[400, 400, 400]
--- response_body_like eval
[('^\{"error":"bad_request".*\}$') x 3]



=== TEST 21: each of many pipelined requests is decided
--- no_http2
--- config
    location = /two {
        iap_guard two;
        iap_guard_user $http_x_user capacity=2 rate=1r/h;
        empty_gif;
    }
--- pipelined_requests eval
[("GET /two") x 5]
--- more_headers
X-User: a
--- error_code eval
[200, 200, 429, 429, 429]
