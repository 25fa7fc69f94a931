# A guard and a breaker in one location: who is asked first, and one count for
# each request, by whichever of them has ended it.

use strict;
use warnings;

use lib 't/lib';
use Test::Nginx::Socket 'no_plan';
use IapGuard::Test;

sub whole {
    my ($status, $body) = @_;

    return "HTTP/1.1 $status\r\nContent-Length: " . length($body)
           . "\r\n\r\n$body";
}

use IapGuard::BreakerTest {
    '/200'  => [whole('200 OK', '{"status":0}')],
    '/500'  => [whole('500 Oops', '')],
    '/404'  => [whole('404 Not Found', '{}')],
    '/reset' => ['reset'],
    '/accel' => ["HTTP/1.1 200 OK\r\nX-Accel-Redirect: /guarded/c/200\r\n"
                 . "Content-Length: 0\r\n\r\n"],
};

add_block_preprocessor(sub {
    my ($block) = @_;
    my $dry_run = $block->dry_run // 'off';

    chomp $dry_run;

    $block->set_value(config => <<"END" . ($block->config // ''));
    add_header X-Verdict \$iap_guard_verdict always;
    add_header X-Layer \$iap_guard_layer always;

    location /b/ { iap_guard_breaker b; proxy_pass http://raw/; }
    location /c/ { iap_guard_breaker c; proxy_pass http://raw/; }

    location /guarded/ {
        iap_guard g dry_run=$dry_run;
        iap_guard_user \$arg_u capacity=2 rate=1r/h;

        location /guarded/b/ { iap_guard_breaker b; proxy_pass http://raw/; }
        location /guarded/c/ { iap_guard_breaker c; proxy_pass http://raw/; }
    }
END
});

run_tests();

__DATA__

=== TEST 1: the guard first: whom it refuses is no call
--- request eval
[("GET /guarded/b/200?u=a") x 3, ("GET /guarded/b/500?u=b") x 3]
--- error_code eval
[200, 200, 429, 500, 500, 429]
--- response_headers eval
["X-Verdict: passed\nX-Layer:", "X-Verdict: passed\nX-Layer:",
 "X-Verdict: limited\nX-Layer: user", "X-Verdict: passed\nX-Layer:",
 "X-Verdict: passed\nX-Layer:", "X-Verdict: limited\nX-Layer: user"]
--- outcomes: success=2 retry=2
--- guard: passed=4 limited=2
--- rejections: user=2



=== TEST 2: whom the breaker refuses has not passed, and has been charged
--- b: mode=forced-open
--- request eval
[("GET /guarded/b/200?u=a") x 3]
--- error_code eval
[503, 503, 429]
--- response_headers eval
["X-Verdict: unavailable\nX-Layer: breaker",
 "X-Verdict: unavailable\nX-Layer: breaker",
 "X-Verdict: limited\nX-Layer: user"]
--- outcomes: cut=2
--- state: open
--- guard: unavailable=2 limited=1
--- rejections: breaker=2 user=1



=== TEST 3: a guard in dry run: it would have refused, the breaker does
--- dry_run: on
--- b: mode=forced-open
--- request eval
[("GET /guarded/b/200?u=a") x 3]
--- error_code eval
[503, 503, 503]
--- response_headers eval
[("X-Verdict: unavailable\nX-Layer: breaker") x 3]
--- outcomes: cut=3
--- state: open
--- guard: unavailable=3
--- rejections: breaker=3



=== TEST 4: a guard in dry run, and a breaker that lets by
--- dry_run: on
--- request eval
[("GET /guarded/b/200?u=a") x 3]
--- response_headers eval
["X-Verdict: passed", "X-Verdict: passed", "X-Verdict: limited_dry_run"]
--- outcomes: success=3
--- guard: passed=2 limited_dry_run=1



=== TEST 5: a breaker that is only observed refuses nobody
--- b: min=1 mode=observe open=1h
--- request eval
["GET /guarded/b/500?u=a", "GET /guarded/b/500?u=a"]
--- error_code eval
[500, 500]
--- outcomes: retry=2
--- state: open
--- guard: passed=2



=== TEST 6: error_page: past an open breaker to another upstream
The guard has refused, and is not asked again.
--- b: mode=forced-open
--- config
    location /t {
        iap_guard g;
        iap_guard_user $arg_u capacity=2 rate=1r/h;
        iap_guard_breaker b;
        proxy_pass http://raw/200;
        error_page 503 = /guarded/c/200;
    }
--- request
GET /t?u=a
--- error_code: 200
--- response_body chomp
{"status":0}
--- outcomes: cut=1
--- outcomes_c: success=1
--- state: open
--- guard: unavailable=1
--- rejections: breaker=1



=== TEST 7: error_page: from a failure to an upstream whose breaker is open
It has passed the guard, and is counted as that.
--- b: mode=forced-open
--- config
    location /t {
        iap_guard g;
        iap_guard_user $arg_u capacity=2 rate=1r/h;
        iap_guard_breaker c;
        proxy_pass http://raw/reset;
        error_page 502 = /guarded/b/200;
    }
--- request
GET /t?u=a
--- error_code: 503
--- response_headers
X-Verdict: unavailable
--- outcomes: cut=1
--- outcomes_c: retry=1
--- state: open
--- guard: passed=1



=== TEST 8: X-Accel-Redirect, and intercepted errors: one count, two calls
--- config
    location /t {
        iap_guard g;
        iap_guard_user $arg_u capacity=2 rate=1r/h;
        iap_guard_breaker b;
        proxy_pass http://raw/404;
        proxy_intercept_errors on;
        error_page 404 = /guarded/c/200;
    }
--- request eval
["GET /guarded/b/accel?u=a", "GET /t?u=b"]
--- error_code eval
[200, 200]
--- outcomes: success=1 config=1
--- outcomes_c: success=2
--- guard: passed=2



=== TEST 9: the guard passes, and something else answers before the breaker
--- config
    location /t {
        iap_guard g;
        iap_guard_user $arg_u capacity=2 rate=1r/h;
        iap_guard_breaker b;
        try_files /none =404;
        proxy_pass http://raw/200;
    }
    location /named {
        iap_guard g;
        iap_guard_user $arg_u capacity=2 rate=1r/h;
        iap_guard_breaker b;
        try_files /none /c/200;
    }
--- request eval
["GET /t?u=a", "GET /named?u=b"]
--- error_code eval
[404, 200]
--- outcomes:
--- outcomes_c: success=1
--- guard: passed=2



=== TEST 10: auth_request refuses: neither is asked
--- config
    location /t {
        auth_request /401;
        iap_guard g;
        iap_guard_user $arg_u capacity=2 rate=1r/h;
        iap_guard_breaker b;
        proxy_pass http://raw/200;
    }
    location = /401 { return 401; }
--- request
GET /t?u=a
--- error_code: 401
--- outcomes:
--- guard:



=== TEST 11: "satisfy any": both are asked after it
--- b: mode=forced-open
--- config
    location /t {
        satisfy any;
        allow all;
        auth_basic x;
        auth_basic_user_file none;
        iap_guard g;
        iap_guard_user $arg_u capacity=2 rate=1r/h;
        iap_guard_breaker b;
        proxy_pass http://raw/200;
    }
--- request eval
[("GET /t?u=a") x 3]
--- error_code eval
[503, 503, 429]
--- outcomes: cut=2
--- state: open
--- guard: unavailable=2 limited=1
--- rejections: breaker=2 user=1



=== TEST 12: a guard that is off counts what its breaker refuses
--- b: mode=forced-open
--- config
    location /put/ { iap_guard_api write token_file=$TEST_NGINX_HTML_DIR/token; }
--- user_files
>>> token
sesame
--- request eval
['PUT /put/guards/g
{"mode":"off"}', ("GET /guarded/b/200?u=a") x 3, "GET /guarded/c/200?u=a"]
--- more_headers
Authorization: Bearer sesame
--- error_code eval
[200, 503, 503, 503, 200]
--- outcomes: cut=3
--- outcomes_c: success=1
--- state: open
--- guard: unavailable=3 off=1
--- rejections: breaker=3



=== TEST 13: the refusal in the team's own words
--- b: mode=forced-open
--- config
    location /t {
        iap_guard g;
        iap_guard_user $arg_u capacity=2 rate=1r/h;
        iap_guard_breaker b;
        iap_guard_answer unavailable 200 "later: $iap_guard_layer" text/plain;
        proxy_pass http://raw/200;
    }
--- request
GET /t?u=a
--- response_headers_like
Retry-After: [12]
Content-Type: text/plain
--- response_body chomp
later: breaker
--- outcomes: cut=1
--- state: open
--- guard: unavailable=1
--- rejections: breaker=1
