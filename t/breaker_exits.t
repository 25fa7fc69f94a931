# Ways out of a location with a breaker that lead elsewhere, or do without its
# upstream: redirects within nginx, pages in place of an answer, what other
# modules answer.  One outcome for each call of the upstream, none
# where there was no call, and nothing stays in flight.

use strict;
use warnings;

use lib 't/lib';
use Test::Nginx::Socket 'no_plan';
use IapGuard::Test;

my ($GOOD, $SICK);

BEGIN {
    $GOOD = '{"status":0}';
    $SICK = '{"status":21005}';
}

sub whole {
    my ($status, $body, @fields) = @_;

    return join "\r\n", "HTTP/1.1 $status", @fields,
                'Content-Length: ' . length($body), '', $body;
}

use IapGuard::BreakerTest {
    '/200'  => [whole('200 OK', $GOOD)],
    '/sick' => [whole('200 OK', $SICK)],
    '/html' => [whole('200 OK', '<html>')],
    '/404'  => [whole('404 Not Found', '{"errorCode":4040010}')],
    '/500'  => [whole('500 Internal Server Error', '')],
    '/502'  => [whole('502 Bad Gateway', $GOOD)],
    '/503'  => [whole('503 Service Unavailable', $GOOD)],
    '/reset' => ['reset'],
    '/hang' => ['hang'],
    (map { ("/accel/$_" => [whole('200 OK', $SICK,
                                  "X-Accel-Redirect: /$_")]) }
         qw(page c/500 again missing)),
    '/accel/named' => [whole('200 OK', $SICK, 'X-Accel-Redirect: @named')],
    '/accel/503' => [whole('503 Service Unavailable', '',
                           'X-Accel-Redirect: /page')],
    '/ranges' => [whole('200 OK', $SICK, 'Accept-Ranges: bytes')],
    '/etag' => [whole('200 OK', $GOOD, 'ETag: "x"')],
};

add_block_preprocessor(sub {
    my ($block) = @_;

    $block->set_value(http_config => <<'END' . ($block->http_config // ''));
    proxy_cache_path $TEST_NGINX_SERVER_ROOT/cache keys_zone=cache:1m;
END
    $block->set_value(config => <<'END' . ($block->config // ''));
    location /b/ { iap_guard_breaker b; proxy_pass http://raw/; }
    location /c/ { iap_guard_breaker c; proxy_pass http://raw/; }
    location = /page { return 200 "page"; }
    location = /page.html { }
END
    $block->set_value(user_files => ">>> page.html\nstatic\n"
                                    . ($block->user_files // ''));
});

run_tests();

__DATA__

=== TEST 1: X-Accel-Redirect: the answer is judged by its status
--- request eval
["GET /b/accel/page", "GET /b/accel/503"]
--- error_code eval
[200, 200]
--- response_body eval
["page", "page"]
--- outcomes: success=1 retry=1
--- share: 0.5



=== TEST 2: X-Accel-Redirect to a location that has a name, a file, and to none
--- config
    location @named { root html; try_files /page.html =404; }
--- request eval
["GET /b/accel/named", "GET /b/accel/missing"]
--- error_code eval
[200, 404]
--- outcomes: success=2
--- share: 0



=== TEST 3: X-Accel-Redirect to an upstream with a breaker, and with none
--- config
    location = /again { proxy_pass http://raw/500; }
--- request eval
["GET /b/accel/c/500", "GET /b/accel/again"]
--- error_code eval
[500, 500]
--- outcomes: success=2
--- outcomes_c: retry=1
--- share: 0



=== TEST 4: X-Accel-Redirect without end
--- config
    location = /again {
        iap_guard_breaker b;
        proxy_pass http://raw/accel/again;
    }
--- request
GET /again
--- error_code: 500
--- error_log: rewrite or internal redirection cycle
--- outcomes: success=11
--- share: 0



=== TEST 5: another page in place of a failure: returned, and a file
--- config
    location ~ ^/(returned|file)(/.*) {
        iap_guard_breaker b;
        proxy_pass http://raw$2;
        proxy_read_timeout 300ms;
        proxy_intercept_errors on;
        error_page 500 502 503 504 =200 /page;
    }
    location = /to_file {
        iap_guard_breaker b;
        proxy_pass http://raw/reset;
        error_page 502 =200 /page.html;
    }
--- request eval
["GET /returned/reset", "GET /returned/hang", "GET /returned/503",
 "GET /to_file"]
--- error_code eval
[200, 200, 200, 200]
--- response_body eval
["page", "page", "page", "static\n"]
--- outcomes: retry=4
--- share: 1



=== TEST 6: another upstream in place of one that fails: of no breaker, of
another one, of the same
--- config
    location = /none {
        iap_guard_breaker b;
        proxy_pass http://raw/reset;
        error_page 502 = @plain;
    }
    location = /other {
        iap_guard_breaker b;
        proxy_pass http://raw/reset;
        error_page 502 = /c/200;
    }
    location = /same {
        iap_guard_breaker b;
        proxy_pass http://raw/reset;
        error_page 502 = /b/200;
    }
    location @plain { rewrite ^ /200 break; proxy_pass http://raw; }
--- request eval
["GET /none", "GET /other", "GET /same"]
--- error_code eval
[200, 200, 200]
--- outcomes: retry=3 success=1
--- outcomes_c: success=1
--- share: 0.75



=== TEST 7: a second upstream fails as well, and after that the client is told
--- config
    recursive_error_pages on;
    location = /t {
        iap_guard_breaker b;
        proxy_pass http://raw/reset;
        error_page 502 = @second;
    }
    location @second {
        iap_guard_breaker c;
        rewrite ^ /reset break;
        proxy_pass http://raw;
        error_page 502 =503 /page;
    }
--- request
GET /t
--- error_code: 503
--- response_body chomp
page
--- outcomes: retry=1
--- outcomes_c: retry=1



=== TEST 8: nginx's own page is not taken for the upstream's, whatever its status
A body that was read, and is no JSON, would be "success".
--- http_config
    iap_guard_breaker d classify=d;
    iap_guard_classify d success notjson;
    iap_guard_classify d final connect;
    iap_guard_classify d redirect reset;
    iap_guard_classify d config unread;
--- config
    location ~ ^/d(/.*) {
        iap_guard_breaker d;
        proxy_pass http://raw$1;
        proxy_intercept_errors on;
        error_page 404 /no/such/file.html;
    }
    location = /none { iap_guard_breaker d; proxy_pass http://127.0.0.1:1; }
--- request eval
["GET /none", "GET /d/reset", "GET /d/404", "GET /d/html",
 "GET /api/breakers/d"]
--- error_code eval
[502, 502, 404, 200, 200]
--- response_body_like eval
["nginx", "nginx", "nginx", "<html>",
 '"outcomes":\{"success":1,"final":1,"redirect":1,"retry":0,"hold":0,"config":1,']



=== TEST 9: an answer that another page stands in for
--- config
    location ~ ^/b2(/.*) {
        iap_guard_breaker b;
        proxy_pass http://raw$1;
        proxy_intercept_errors on;
        error_page 404 500 502 503 =200 @page;
    }
    location @page { return 200 "instead"; }
--- request eval
[map { "GET /b2/$_" } qw(404 500 503 502 200)]
--- error_code eval
[200, 200, 200, 200, 200]
--- response_body eval
["instead", "instead", "instead", "instead", '{"status":0}']
--- outcomes: retry=3 success=1 config=1
--- share: 0.6



=== TEST 10: nginx makes 416 of a 200, and has a page for that
--- config
    location /ranges/ {
        iap_guard_breaker c;
        proxy_force_ranges on;
        proxy_pass http://raw/ranges;
        error_page 416 =200 /whole.html;
    }
    location = /whole.html { max_ranges 0; alias $TEST_NGINX_HTML_DIR/page.html; }
--- request
GET /ranges/
--- more_headers
Range: bytes=5000-6000
--- response_body
static
--- outcomes_c: success=1



=== TEST 11: nginx makes 412 of a 200, and has a page for that
--- config
    location = /t {
        iap_guard_breaker c;
        proxy_cache cache;
        proxy_cache_valid 1m;
        proxy_pass http://raw/etag;
        error_page 412 =202 /page;
    }
--- request
GET /t
--- more_headers
If-Match: "y"
--- error_code: 202
--- response_body chomp
page
--- outcomes_c: success=1



=== TEST 12: try_files: a file, another location, none; it comes before the breaker
--- config
    location = /to_file {
        iap_guard_breaker b;
        root html;
        try_files /page.html =404;
    }
    location = /to_named {
        iap_guard_breaker b;
        try_files /missing @named;
    }
    location = /to_none {
        iap_guard_breaker b;
        try_files /missing =404;
        proxy_pass http://raw/500;
    }
    location = /to_proxy {
        iap_guard_breaker b;
        try_files /missing /b/200;
    }
    location @named {
        iap_guard_breaker c;
        rewrite ^ /500 break;
        proxy_pass http://raw;
    }
--- request eval
[map { "GET /$_" } qw(to_file to_named to_none to_proxy)]
--- error_code eval
[200, 500, 404, 200]
--- outcomes: neutral=1 success=1
--- outcomes_c: retry=1



=== TEST 13: a location without an upstream
--- config
    location = /gif { iap_guard_breaker b; empty_gif; }
    location = /file.html { iap_guard_breaker b; alias $TEST_NGINX_HTML_DIR/page.html; }
    location = /missing { iap_guard_breaker b; }
    location = /dir/ { iap_guard_breaker b; index none; }
--- request eval
[map { "GET /$_" } qw(gif file.html missing dir/)]
--- error_code eval
[200, 200, 404, 404]
--- outcomes: neutral=4
--- share: 0



=== TEST 14: what refuses before the breaker is asked
--- http_config
    limit_req_zone $binary_remote_addr zone=limit:1m rate=1r/m;
--- config
    location = /denied { deny all; iap_guard_breaker b; proxy_pass http://raw/500; }
    location = /returned { return 204; iap_guard_breaker b; proxy_pass http://raw/500; }
    location = /auth {
        auth_request /401;
        iap_guard_breaker b;
        proxy_pass http://raw/500;
    }
    location = /limited {
        limit_req zone=limit;
        iap_guard_breaker b;
        proxy_pass http://raw/200;
    }
    location = /401 { return 401; }
--- request eval
[map { "GET /$_" } qw(denied returned auth limited limited)]
--- error_code eval
[403, 204, 401, 200, 503]
--- outcomes: success=1



=== TEST 15: a subrequest of auth_request is not a call
--- config
    location = /t {
        auth_request /auth;
        iap_guard_breaker b;
        proxy_pass http://raw/200;
    }
    location = /sick {
        auth_request /auth_sick;
        iap_guard_breaker b;
        proxy_pass http://raw/200;
    }
    location = /auth { iap_guard_breaker b; proxy_pass http://raw/200; }
    location = /auth_sick { iap_guard_breaker b; proxy_pass http://raw/500; }
--- request eval
["GET /t", "GET /sick"]
--- error_code eval
[200, 500]
--- outcomes: success=1



=== TEST 16: a mirror is not a call, and not what the call is judged by
--- config
    location = /t {
        mirror /mirror;
        iap_guard_breaker b;
        proxy_pass http://raw/200;
    }
    location = /mirror { iap_guard_breaker b; proxy_pass http://raw/500; }
--- request eval
["GET /t", "POST /t
body", "HEAD /t"]
--- response_body eval
['{"status":0}', '{"status":0}', '']
--- outcomes: success=3



=== TEST 17: a mirror that hangs keeps no permit
--- config
    location = /t {
        mirror /mirror;
        iap_guard_breaker b;
        proxy_pass http://raw/200;
    }
    location = /mirror { proxy_pass http://raw/hang; }
--- request
GET /t
--- timeout: 1
--- abort
--- ignore_response
--- no_http2
--- outcomes: success=1



=== TEST 18: "satisfy any" leads nobody past an open breaker
--- b: mode=forced-open
--- config
    location = /t {
        satisfy any;
        allow all;
        auth_basic x;
        auth_basic_user_file none;
        iap_guard_breaker b;
        proxy_pass http://raw/200;
    }
--- request
GET /t
--- error_code: 503
--- outcomes: cut=1
--- state: open



=== TEST 19: SSI: subrequests are not counted, and not cut
--- b: mode=forced-open
--- config
    location = /ssi.html { ssi on; ssi_types *; }
    location = /part { iap_guard_breaker b; proxy_pass http://raw/200; }
--- user_files
>>> ssi.html
<<!--#include virtual="/part" -->>
--- request
GET /ssi.html
--- response_body
<{"status":0}>
--- outcomes:
--- state: open



=== TEST 20: an open breaker, and what error_page has in its place
--- b: mode=forced-open
--- config
    location = /page_of { iap_guard_breaker b; proxy_pass http://raw/200;
                          error_page 503 =200 /page; }
    location = /other { iap_guard_breaker b; proxy_pass http://raw/200;
                        error_page 503 = /c/200; }
    location = /same { iap_guard_breaker b; proxy_pass http://raw/200;
                       error_page 503 /b/200; }
    location = /none { iap_guard_breaker b; proxy_pass http://raw/200; }
--- request eval
[map { "GET /$_" } qw(page_of other same none)]
--- error_code eval
[200, 200, 503, 503]
--- response_body_like eval
["^page\$", '^\{"status":0\}$',
 map { '^\{"error":"unavailable","layer":"breaker","retry_after":[12],' } 1, 2]
--- outcomes: cut=5
--- outcomes_c: success=1
--- state: open



=== TEST 21: a body that is too large, or can't be read, and a page for that
--- config
    location = /t {
        client_max_body_size 10;
        iap_guard_breaker b;
        proxy_pass http://raw/200;
        error_page 413 = /c/200;
        error_page 400 = /c/200;
    }
--- init
foreach my $body ("Content-Length: 20\r\n\r\n" . "x" x 20,
                  "Transfer-Encoding: chunked\r\n\r\n14\r\n" . "x" x 20
                  . "\r\n0\r\n\r\n",
                  ["Transfer-Encoding: chunked\r\n\r\n", "14\r\n" . "x" x 20],
                  ["Transfer-Encoding: chunked\r\n\r\n", "zz\r\n"]) {
    my ($head, @rest) = ref $body ? @$body : $body;

    main::http_raw(["POST /t HTTP/1.1\r\nHost: x\r\nConnection: close\r\n$head",
                    @rest]) =~ m{^HTTP/1.1 200 .*"status":0}s
        or die "no answer to $head\n";
}
--- request
GET /api/breakers/b
--- no_http2
--- outcomes:
--- outcomes_c: success=4



=== TEST 22: post_action is a call of its own
--- config
    location = /t {
        iap_guard_breaker b;
        proxy_pass http://raw/200;
        post_action /after;
    }
    location = /after { iap_guard_breaker c; proxy_pass http://raw/500; }
--- request
GET /t
--- wait: 0.2
--- outcomes: success=1
--- outcomes_c: retry=1



=== TEST 23: post_action sends the request's body once more, also out of a file
--- config
    location = /t {
        client_body_in_file_only clean;
        iap_guard_breaker b;
        proxy_pass http://raw/200;
        post_action /after;
    }
    location = /after { iap_guard_breaker c; proxy_pass http://raw/500; }
--- request eval
"POST /t\n" . "x" x 3000
--- wait: 0.2
--- outcomes: success=1
--- outcomes_c: retry=1
