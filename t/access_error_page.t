# error_page of a refusal: it is found wherever nginx would find it, does not
# loop, and a refused request stays refused.

use lib 't/lib';
use Test::Nginx::Socket 'no_plan';
use IapGuard::Test;

add_block_preprocessor(sub {
    my ($block) = @_;

    my $guard = 'iap_guard g; '
                . 'iap_guard_user $http_x_user capacity=1 rate=1r/h;';

    (my $config = $block->config) =~ s/\bGUARD;/$guard/g;

    $block->set_value(config => $config . <<'END');
    location /api/ {
        iap_guard off;
        iap_guard_api read;
    }
END

    $block->set_value(http_config => <<'END');
    server {
        listen unix:$TEST_NGINX_HTML_DIR/up.sock;

        location = /up { return 200 "up $request_method\n"; }

        location = /waits {
            add_header Retry-After 77 always;
            return 503 "proxied $request_method\n";
        }
    }
END

    $block->set_value(more_headers => "X-User: a\n")
        if !defined $block->more_headers;

    $block->set_value(user_files => <<'END');
>>> t
passed
>>> 429.html
sorry
END
});

run_tests();

__DATA__

=== TEST 1: a static page
--- config
    location = /t {
        GUARD;
        error_page 429 /429.html;
    }
    location = /429.html { internal; }
--- request eval
["GET /t", "GET /t", "GET /t", "GET /api/guards/g"]
--- error_code eval
[200, 429, 429, 200]
--- response_headers_like eval
["", "Retry-After: 3[56]\\d\\d", "Retry-After: 3[56]\\d\\d", ""]
--- raw_response_headers_unlike eval
["(?i)retry-after|ratelimit", "(?is)retry-after.*retry-after",
 "(?is)retry-after.*retry-after", "(?i)retry-after|ratelimit"]
--- response_body_like eval
["passed", '^sorry$', '^sorry$', '"passed":1,"limited":2,']



=== TEST 2: a static page in a guarded location: shown, not decided again
--- config
    GUARD;
    error_page 429 /429.html;
--- request eval
["GET /t", "GET /t", "GET /t", "GET /api/guards/g"]
--- error_code eval
[200, 429, 429, 200]
--- response_body_like eval
["passed", '^sorry$', '^sorry$', '"passed":1,"limited":2,']



=== TEST 3: a static page under satisfy any, where all are guarded
--- config
    satisfy any;
    allow all;
    GUARD;
    error_page 429 /429.html;
--- request eval
["GET /t", "GET /t", "GET /t", "GET /api/guards/g"]
--- error_code eval
[200, 429, 429, 200]
--- response_body_like eval
["passed", '^sorry$', '^sorry$', '"passed":1,"limited":2,']



=== TEST 4: another status
--- config
    location = /t {
        GUARD;
        error_page 429 =503 /429.html;
    }
--- request eval
["GET /t", "GET /t"]
--- error_code eval
[200, 503]
--- response_headers_like eval
["", "Retry-After: 3[56]\\d\\d"]
--- response_body eval
["passed\n", "sorry\n"]



=== TEST 5: a named location
--- config
    location = /t {
        GUARD;
        error_page 429 = @sorry;
    }
    location @sorry { return 200 "named $iap_guard_verdict\n"; }
--- request eval
["GET /t", "GET /t"]
--- response_headers_like eval
["", "Retry-After: 3[56]\\d\\d"]
--- response_body eval
["passed\n", "named limited\n"]



=== TEST 6: a named location that is guarded too
--- config
    GUARD;
    location = /t {
        error_page 429 @sorry;
    }
    location @sorry { try_files /429.html =404; }
--- request eval
["GET /t", "GET /t", "GET /api/guards/g"]
--- error_code eval
[200, 429, 200]
--- response_body_like eval
["passed", '^sorry$', '"passed":1,"limited":1,']



=== TEST 7: a proxied page with its own Retry-After: kept, not doubled
--- config
    location = /t {
        GUARD;
        error_page 429 = /waits;
    }
    location = /waits { proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock; }
--- request eval
["GET /t", "GET /t"]
--- error_code eval
[200, 503]
--- raw_response_headers_like eval
["", '(?i)retry-after: 77\r\n']
--- raw_response_headers_unlike eval
["(?i)retry-after", "(?is)retry-after.*retry-after"]
--- response_body eval
["passed\n", "proxied GET\n"]



=== TEST 8: a proxied page without a Retry-After of its own: added
--- config
    location = /t {
        GUARD;
        error_page 429 /up;
    }
    location = /up { proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock; }
--- request eval
["GET /t", "GET /t"]
--- error_code eval
[200, 429]
--- raw_response_headers_like eval
["", '(?i)retry-after: 3[56]\d\d\r\n']
--- raw_response_headers_unlike eval
["(?i)retry-after", "(?is)retry-after.*retry-after"]
--- response_body eval
["passed\n", "up GET\n"]



=== TEST 9: a refused POST leads to the page as a GET
--- no_http2
--- config
    location = /t {
        GUARD;
        error_page 429 /up;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock:/up;
    }
    location = /up { proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock; }
--- request eval
["POST /t\nbody", "POST /t\nbody"]
--- error_code eval
[200, 429]
--- response_body eval
["up POST\n", "up GET\n"]



=== TEST 10: the guarded location itself: one answer, no cycle
--- config
    location = /t {
        GUARD;
        error_page 429 /t;
    }
--- request eval
["GET /t", "GET /t", "GET /api/guards/g"]
--- error_code eval
[200, 429, 200]
--- response_headers_like eval
["", "Retry-After: 3[56]\\d\\d", ""]
--- response_body_like eval
["passed", ".", '"passed":1,"limited":1,']
--- no_error_log
redirection cycle



=== TEST 11: the guarded location itself, recursive: one answer, no cycle
--- config
    location = /t {
        GUARD;
        recursive_error_pages on;
        error_page 429 /t;
    }
--- request eval
["GET /t", "GET /t", "GET /api/guards/g"]
--- error_code eval
[200, 429, 200]
--- response_body_like eval
["passed", ".", '"passed":1,"limited":1,']
--- no_error_log
redirection cycle



=== TEST 12: a page that is missing
--- config
    location = /t {
        GUARD;
        error_page 429 /missing.html;
    }
--- request eval
["GET /t", "GET /t"]
--- error_code eval
[200, 404]
--- response_body_like eval
["passed", "404 Not Found"]



=== TEST 13: a page elsewhere
--- config
    location = /t {
        GUARD;
        error_page 429 https://example.com/slow;
    }
--- request eval
["GET /t", "GET /t"]
--- error_code eval
[200, 302]
--- response_headers_like eval
["", 'Location: https://example\.com/slow']
--- response_body_like eval
["passed", "302 Found"]



=== TEST 14: the page of another status is not taken: JSON
--- config
    location = /t {
        GUARD;
        error_page 400 401 403 404 503 /429.html;
    }
--- request eval
["GET /t", "GET /t"]
--- error_code eval
[200, 429]
--- response_body_like eval
["passed", '"rate_limited"']



=== TEST 15: the page belongs to the guard's own status
--- config
    location = /t {
        iap_guard g status=503;
        iap_guard_user $http_x_user capacity=1 rate=1r/h;
        error_page 503 /429.html;
    }
--- request eval
["GET /t", "GET /t"]
--- error_code eval
[200, 503]
--- response_body eval
["passed\n", "sorry\n"]



=== TEST 16: a missing identity has an error page, and no Retry-After
--- config
    location = /t {
        iap_guard g;
        iap_guard_user $http_x_nobody missing=reject;
        error_page 400 /429.html;
    }
--- request
GET /t
--- error_code: 400
--- raw_response_headers_unlike: (?i)retry-after|ratelimit
--- response_body
sorry



=== TEST 17: a ban has an error page
--- config
    location = /t {
        iap_guard g;
        iap_guard_user $http_x_user;
        iap_guard_segment users=1 window=1h ban=2h;
        error_page 429 = @sorry;
    }
    location @sorry {
        return 429 "$iap_guard_verdict $iap_guard_layer\n";
    }
--- request eval
["GET /t", "GET /t", "GET /t"]
--- more_headers eval
["X-User: a", "X-User: b", "X-User: a"]
--- error_code eval
[200, 429, 429]
--- response_headers_like eval
["", "Retry-After: 7[12]\\d\\d", "Retry-After: 7[12]\\d\\d"]
--- response_body eval
["passed\n", "limited segment\n", "banned ban\n"]



=== TEST 18: a ban has an error page, satisfy any and authentication
--- config
    location = /t {
        satisfy any;
        deny all;
        auth_basic "closed";
        auth_basic_user_file $TEST_NGINX_HTML_DIR/t;
        iap_guard g;
        iap_guard_user $http_x_user;
        iap_guard_segment users=1 window=1h ban=2h;
        error_page 429 = @sorry;
        error_page 401 = @closed;
    }
    location = /ban {
        iap_guard g;
        iap_guard_user $http_x_user;
        iap_guard_segment users=1 window=1h ban=2h;
        alias $TEST_NGINX_HTML_DIR/t;
    }
    location @sorry  { return 429 "$iap_guard_verdict\n"; }
    location @closed { return 401 "closed [$iap_guard_verdict]\n"; }
--- request eval
["GET /t", "GET /ban", "GET /ban", "GET /t"]
--- more_headers eval
["X-User: a", "X-User: a", "X-User: b", "X-User: a"]
--- error_code eval
[401, 200, 429, 429]
--- response_body_like eval
['^closed \[\]$', "passed", '"layer":"segment"', '^banned$']



=== TEST 19: proxy_intercept_errors: a passed request's own 429 is not ours
--- config
    location = /t {
        GUARD;
        proxy_intercept_errors on;
        error_page 503 = @sorry;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock:/waits;
    }
    location @sorry { return 503 "[$iap_guard_verdict]\n"; }
--- request eval
["GET /t", "GET /t"]
--- error_code eval
[503, 429]
--- raw_response_headers_unlike eval
["(?i)retry-after|ratelimit", "(?is)retry-after.*retry-after"]
--- response_body_like eval
['^\[passed\]$', '"rate_limited"']
