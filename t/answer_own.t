# iap_guard_answer: the team's own answer, for shipped apps that know no
# other.

use lib 't/lib';
use Test::Nginx::Socket 'no_plan';
use IapGuard::Test;

add_block_preprocessor(sub {
    my ($block) = @_;

    my $guard = 'iap_guard g; '
                . 'iap_guard_user $http_x_user capacity=1 rate=1r/h;';

    (my $config = $block->config) =~ s/\bGUARD;/$guard/g;

    $block->set_value(config => $config);

    $block->set_value(more_headers => "X-User: a\n")
        if !defined $block->more_headers;

    $block->set_value(user_files => <<'END');
>>> t
passed
>>> page.html
page
END
});

run_tests();

__DATA__

=== TEST 1: limited, with a status and JSON of one's own
--- config
    location = /t {
        GUARD;
        iap_guard_answer limited 503 '{"code":42,"wait":$iap_guard_retry_after}';
    }
--- request eval
["GET /t", "GET /t"]
--- error_code eval
[200, 503]
--- response_headers_like eval
["Content-Type: text/plain",
 "Content-Type: application/json\nContent-Length: 23\nRetry-After: 3[56]\\d\\d"]
--- response_body_like eval
['^passed$', '^\{"code":42,"wait":3[56]\d\d\}$']



=== TEST 2: variables of nginx's, of the request's, and of the guard's
--- config
    location = /t {
        GUARD;
        set $mine "my own";
        iap_guard_answer limited 429
            "$mine $arg_x $http_x_user $uri $iap_guard_verdict $iap_guard_layer $iap_guard_store"
            text/plain;
    }
--- request eval
["GET /t?x=y", "GET /t?x=y"]
--- error_code eval
[200, 429]
--- response_body eval
["passed\n", "my own y a /t limited user zone"]



=== TEST 3: a type of one's own
--- config
    location = /t {
        GUARD;
        iap_guard_answer limited 429 "<p>slow</p>" "text/html; charset=utf-8";
    }
--- request eval
["GET /t", "GET /t"]
--- error_code eval
[200, 429]
--- response_headers eval
["", "Content-Type: text/html; charset=utf-8"]
--- response_body eval
["passed\n", "<p>slow</p>"]



=== TEST 4: status 200: an old app that knows nothing else
--- config
    location = /t {
        GUARD;
        iap_guard_answer limited 200 '{"status":21999}';
        add_header X-Verdict $iap_guard_verdict;
    }
--- request eval
["GET /t", "GET /t"]
--- error_code eval
[200, 200]
--- response_headers_like eval
["X-Verdict: passed", "X-Verdict: limited\nRetry-After: 3[56]\\d\\d"]
--- response_body eval
["passed\n", '{"status":21999}']



=== TEST 5: an empty body
--- no_http2
--- config
    location = /t {
        GUARD;
        iap_guard_answer limited 429 "";
    }
--- pipelined_requests eval
["GET /t", "GET /t", "GET /t"]
--- error_code eval
[200, 429, 429]
--- response_headers eval
["", "Content-Length: 0", "Content-Length: 0"]
--- response_body eval
["passed\n", "", ""]



=== TEST 6: an empty body in any version of HTTP
--- config
    location = /t {
        GUARD;
        iap_guard_answer limited 429 "$arg_nothing";
    }
--- request eval
["GET /t", "GET /t", "HEAD /t"]
--- error_code eval
[200, 429, 429]
--- response_headers eval
["", "Content-Length: 0", "Content-Length: 0"]
--- response_body eval
["passed\n", "", ""]



=== TEST 7: 204 has no body, whatever is given, and keeps the connection
--- no_http2
--- config
    location = /t {
        GUARD;
        iap_guard_answer limited 204 "nobody reads this";
    }
--- init
my $get = "GET /t HTTP/1.1\r\nHost: localhost\r\nX-User: a\r\n";
my $answer = IapGuard::Test::http_raw(
    "$get\r\n$get\r\n${get}Connection: close\r\n\r\n");

Test::More::is(join(' ', $answer =~ m{^HTTP/1.1 (\d+)}mg), "200 204 204",
               "three answers");
Test::More::unlike($answer, qr/reads/, "no body");
--- request
GET /t
--- error_code: 204
--- raw_response_headers_unlike: Content-Length: [1-9]



=== TEST 8: redirects: the body is where to
--- config
    location = /301 {
        GUARD;
        alias $TEST_NGINX_HTML_DIR/t;
        iap_guard_answer limited 301 https://example.com/$arg_x;
    }
    location = /302 {
        GUARD;
        iap_guard_answer limited 302 https://example.com/$arg_x;
    }
    location = /303 {
        GUARD;
        iap_guard_answer limited 303 https://example.com/$arg_x;
    }
    location = /307 {
        GUARD;
        iap_guard_answer limited 307 https://example.com/$arg_x;
    }
    location = /308 {
        GUARD;
        iap_guard_answer limited 308 https://example.com/$arg_x;
    }
--- request eval
["GET /301?x=1", "GET /301?x=1", "GET /302?x=2", "GET /303?x=3",
 "GET /307?x=7", "GET /308?x=8"]
--- error_code eval
[200, 301, 302, 303, 307, 308]
--- response_headers_like eval
["", 'Location: https://example\.com/1', 'Location: https://example\.com/2',
 'Location: https://example\.com/3', 'Location: https://example\.com/7',
 'Location: https://example\.com/8']
--- response_body_like eval
["passed", "301", "302", "303", "307", "308"]



=== TEST 9: a redirect to a page of the site's own
--- config
    location = /t {
        GUARD;
        iap_guard_answer limited 302 /page.html;
    }
--- request eval
["GET /t", "GET /t"]
--- error_code eval
[200, 302]
--- response_headers_like eval
["", 'Location: https?://\S+/page\.html']



=== TEST 10: limited and banned have an answer each
--- config
    location = /t {
        iap_guard g;
        iap_guard_user $http_x_user;
        iap_guard_segment users=1 window=1h ban=2h;
        iap_guard_answer limited 429 "slow down" text/plain;
        iap_guard_answer banned 423 "banned for $iap_guard_retry_after" text/plain;
    }
--- request eval
["GET /t", "GET /t", "GET /t"]
--- more_headers eval
["X-User: a", "X-User: b", "X-User: a"]
--- error_code eval
[200, 429, 423]
--- response_body_like eval
["passed", '^slow down$', '^banned for 7[12]\d\d$']



=== TEST 11: banned has an answer, limited has not
--- config
    location = /t {
        iap_guard g;
        iap_guard_user $http_x_user;
        iap_guard_segment users=1 window=1h ban=2h;
        iap_guard_answer banned 423 "banned" text/plain;
    }
--- request eval
["GET /t", "GET /t", "GET /t"]
--- more_headers eval
["X-User: a", "X-User: b", "X-User: a"]
--- error_code eval
[200, 429, 423]
--- response_body_like eval
["passed", '"error":"rate_limited"', '^banned$']



=== TEST 12: banned before authentication has its answer
--- config
    location = /t {
        auth_basic "closed";
        auth_basic_user_file $TEST_NGINX_HTML_DIR/t;
        iap_guard g;
        iap_guard_user $http_x_user;
        iap_guard_segment users=1 window=1h ban=2h;
        iap_guard_answer banned 423 "banned" text/plain;
    }
    location = /ban {
        iap_guard g;
        iap_guard_user $http_x_user;
        iap_guard_segment users=1 window=1h ban=2h;
        alias $TEST_NGINX_HTML_DIR/t;
    }
--- request eval
["GET /t", "GET /ban", "GET /ban", "GET /t"]
--- more_headers eval
["X-User: a", "X-User: a", "X-User: b", "X-User: a"]
--- error_code eval
[401, 200, 429, 423]
--- response_body_like eval
["401", "passed", '"layer":"segment"', '^banned$']



=== TEST 13: an answer comes before error_page, and that before JSON
--- config
    error_page 429 503 /page.html;

    location = /own {
        GUARD;
        alias $TEST_NGINX_HTML_DIR/t;
        iap_guard_answer limited 429 "own" text/plain;
    }
    location = /page {
        GUARD;
    }
    location = /json {
        GUARD;
        error_page 404 /page.html;
    }
    location = /other {
        GUARD;
        iap_guard_answer limited 503 "own" text/plain;
    }
--- request eval
["GET /own", "GET /own", "GET /page", "GET /json", "GET /other"]
--- error_code eval
[200, 429, 429, 429, 503]
--- response_body_like eval
["passed", '^own$', '^page$', '"error":"rate_limited"', '^own$']



=== TEST 14: a redirect in an answer does not become error_page's
--- config
    location = /t {
        GUARD;
        error_page 302 429 /page.html;
        iap_guard_answer limited 302 https://example.com/;
    }
--- request eval
["GET /t", "GET /t"]
--- error_code eval
[200, 302]
--- response_headers_like eval
["", 'Location: https://example\.com/']



=== TEST 15: inherited kind by kind from http and server
--- http_config
    iap_guard_zone z15 1m;
    iap_guard_answer limited 480 "http limited" text/plain;
    iap_guard_answer banned  481 "http banned" text/plain;
--- config
    iap_guard_answer limited 490 "server limited" text/plain;

    iap_guard g;
    iap_guard_user $http_x_user capacity=1 rate=1r/h;
    iap_guard_segment users=1 window=1h ban=2h;

    location = /t { }

    location = /own {
        iap_guard_answer limited 489 "location limited" text/plain;
    }
--- request eval
["GET /t", "GET /t", "GET /own", "GET /own", "GET /own"]
--- more_headers eval
["X-User: a", "X-User: a", "X-User: a", "X-User: b", "X-User: a"]
--- error_code eval
[200, 490, 489, 489, 481]
--- response_body eval
["passed\n", "server limited", "location limited", "location limited",
 "http banned"]



=== TEST 16: inherited by a location within a location
--- config
    location /t {
        GUARD;
        iap_guard_answer limited 480 "outer" text/plain;

        location = /t/inner { alias $TEST_NGINX_HTML_DIR/t; }
    }
--- request eval
["GET /t/inner", "GET /t/inner", "GET /t"]
--- error_code eval
[200, 480, 480]
--- response_body eval
["passed\n", "outer", "outer"]



=== TEST 17: an answer where no guard is in force does nothing
--- config
    location = /t {
        iap_guard_answer limited 480 "never" text/plain;
    }
--- request eval
["GET /t", "GET /t"]
--- response_body eval
["passed\n", "passed\n"]



=== TEST 18: a missing identity has no answer of one's own: JSON
--- config
    location = /t {
        iap_guard g;
        iap_guard_user $http_x_nobody missing=reject;
        iap_guard_answer limited 480 "never" text/plain;
        iap_guard_answer banned 480 "never" text/plain;
        iap_guard_answer unavailable 480 "never" text/plain;
    }
--- request
GET /t
--- error_code: 400
--- response_body_like: "error":"bad_request"



=== TEST 19: unavailable: no room in the zone, and on_error=reject
A small zone, full of spent buckets.
--- no_http2
--- http_config
    iap_guard_zone z19 64k;
    keepalive_requests 100000;
--- config
    location = /t {
        iap_guard g;
        iap_guard_user $http_x_user capacity=1 rate=1r/d on_error=reject;
    }
    location = /own {
        iap_guard g;
        iap_guard_user $http_x_user capacity=1 rate=1r/d on_error=reject;
        iap_guard_answer unavailable 507 "full" text/plain;
        iap_guard_answer limited 480 "never" text/plain;
    }
    location = /page {
        iap_guard g;
        iap_guard_user $http_x_user capacity=1 rate=1r/d on_error=reject;
        error_page 503 =509 /page.html;
    }
--- init
my $get = "HEAD /t HTTP/1.1\r\nHost: localhost\r\nX-User: ";
IapGuard::Test::http_raw(
    join('', map { "$get$_\r\n\r\n" } 1 .. 5000)
    . "${get}last\r\nConnection: close\r\n\r\n", close_after => 5);
--- request eval
["GET /t", "GET /own", "GET /page"]
--- more_headers
X-User: one more
--- error_code eval
[503, 507, 509]
--- response_headers_like eval
["Content-Type: application/json\nRetry-After: [1-5]",
 "Content-Type: text/plain\nRetry-After: [1-5]", "Retry-After: [1-5]"]
--- response_body_like eval
['^\{"error":"unavailable","layer":"user","retry_after":[1-5],"request_id":"[0-9a-f]{32}"\}$',
 '^full$', '^page$']



=== TEST 20: a guard's status 444 ends the connection, as it does elsewhere
What "return 444" and "limit_req_status 444" do: to answer an attack at all
costs more.
--- no_http2
--- config
    location = /t {
        iap_guard g status=444;
        iap_guard_user $http_x_user capacity=1 rate=1r/h;
    }
--- init
my $get = "GET /t HTTP/1.1\r\nHost: localhost\r\nX-User: a\r\n";
my $answer = IapGuard::Test::http_raw("$get\r\n$get\r\n");

Test::More::is(join(' ', $answer =~ m{^HTTP/1.1 (\d+)}mg), "200",
               "no second answer");
--- request
GET /missing
--- error_code: 404
