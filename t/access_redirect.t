# One decision for each client request, however often nginx redirects it
# within itself; and one also where only its last location is guarded.
#
# Buckets of two: if a request were charged twice, the second one would be
# refused.

use lib 't/lib';
use Test::Nginx::Socket 'no_plan';
use IapGuard::Test;

add_block_preprocessor(sub {
    my ($block) = @_;

    my $guard = 'iap_guard g; '
                . 'iap_guard_user $http_x_user capacity=2 rate=1r/h;';

    (my $config = $block->config) =~ s/\bGUARD;/$guard/g;

    $block->set_value(config => $config . <<'END');
    location /api/ {
        iap_guard off;
        iap_guard_api read;
    }
END

    $block->set_value(more_headers => "X-User: a\n")
        if !defined $block->more_headers;

    $block->set_value(user_files => ($block->user_files // '') . <<'END');
>>> final
final
>>> dir/index.html
index
END
});

run_tests();

__DATA__

=== TEST 1: error_page 404, only its location is guarded
--- config
    location = /t {
        alias $TEST_NGINX_HTML_DIR/missing;
        error_page 404 = /final;
    }
    location = /final {
        GUARD;
    }
--- request eval
["GET /t", "GET /t", "GET /t", "GET /api/guards/g"]
--- error_code eval
[200, 200, 429, 200]
--- response_body_like eval
["final", "final", '"rate_limited"', '"passed":2,"limited":1,']



=== TEST 2: error_page 404, both locations are guarded
--- config
    location = /t {
        GUARD;
        alias $TEST_NGINX_HTML_DIR/missing;
        error_page 404 = /final;
    }
    location = /final {
        GUARD;
    }
--- request eval
["GET /t", "GET /t", "GET /t", "GET /api/guards/g"]
--- error_code eval
[200, 200, 429, 200]
--- response_body_like eval
["final", "final", '"rate_limited"', '"passed":2,"limited":1,']



=== TEST 3: error_page 404 that keeps its status, and a refusal behind it
The refusal is a refusal, also for who looks at the status only.
--- config
    location = /t {
        alias $TEST_NGINX_HTML_DIR/missing;
        error_page 404 /final;
    }
    location = /final {
        GUARD;
    }
--- request eval
["GET /t", "GET /t", "GET /t", "GET /api/guards/g"]
--- error_code eval
[404, 404, 429, 200]
--- response_body_like eval
["final", "final", '"rate_limited"', '"passed":2,"limited":1,']



=== TEST 4: error_page 404 that keeps its status, and an answer of one's own
--- config
    location = /t {
        alias $TEST_NGINX_HTML_DIR/missing;
        error_page 404 /final;
    }
    location = /final {
        GUARD;
        iap_guard_answer limited 503 "busy" text/plain;
    }
--- request eval
["GET /t", "GET /t", "GET /t"]
--- error_code eval
[404, 404, 503]
--- response_body eval
["final\n", "final\n", "busy"]



=== TEST 5: error_page 404, and an error_page of the refusal there
nginx follows one error_page only: the refusal is JSON.
--- config
    location = /t {
        alias $TEST_NGINX_HTML_DIR/missing;
        error_page 404 = /final;
    }
    location = /final {
        GUARD;
        error_page 429 /never;
    }
    location = /never { return 200 never; }
--- request eval
["GET /t", "GET /t", "GET /t"]
--- error_code eval
[200, 200, 429]
--- response_body_like eval
["final", "final", '"rate_limited"']



=== TEST 6: recursive_error_pages, and an error_page of the refusal there
--- config
    recursive_error_pages on;

    location = /t {
        alias $TEST_NGINX_HTML_DIR/missing;
        error_page 404 = /final;
    }
    location = /final {
        GUARD;
        error_page 429 /often;
    }
    location = /often { return 200 often; }
--- request eval
["GET /t", "GET /t", "GET /t"]
--- error_code eval
[200, 200, 429]
--- raw_response_headers_unlike eval
["(?i)retry-after", "(?i)retry-after", '(?is)retry-after.*retry-after']
--- response_headers_like eval
["", "", 'Retry-After: 3[56]\d\d']
--- response_body_like eval
["final", "final", "often"]



=== TEST 7: error_page into a named location
--- config
    location = /t {
        GUARD;
        alias $TEST_NGINX_HTML_DIR/missing;
        error_page 404 = @final;
    }
    location @final {
        GUARD;
        try_files /final =404;
    }
--- request eval
["GET /t", "GET /t", "GET /t", "GET /api/guards/g"]
--- error_code eval
[200, 200, 429, 200]
--- response_body_like eval
["final", "final", '"rate_limited"', '"passed":2,"limited":1,']



=== TEST 8: try_files, only its last location is guarded
--- config
    location = /t {
        try_files /missing /final;
    }
    location = /final {
        GUARD;
    }
--- request eval
["GET /t", "GET /t", "GET /t", "GET /api/guards/g"]
--- error_code eval
[200, 200, 429, 200]
--- response_body_like eval
["final", "final", '"rate_limited"', '"passed":2,"limited":1,']



=== TEST 9: try_files, both locations are guarded
--- config
    GUARD;
    location = /t {
        try_files /missing /final;
    }
--- request eval
["GET /t", "GET /t", "GET /t", "GET /api/guards/g"]
--- error_code eval
[200, 200, 429, 200]
--- response_body_like eval
["final", "final", '"rate_limited"', '"passed":2,"limited":1,']



=== TEST 10: try_files into a named location, both are guarded
--- config
    GUARD;
    location = /t {
        try_files /missing @final;
    }
    location @final {
        try_files /final =404;
    }
--- request eval
["GET /t", "GET /t", "GET /t", "GET /api/guards/g"]
--- error_code eval
[200, 200, 429, 200]
--- response_body_like eval
["final", "final", '"rate_limited"', '"passed":2,"limited":1,']



=== TEST 11: try_files under satisfy any, both are guarded
--- config
    satisfy any;
    allow all;
    GUARD;
    location = /t {
        try_files /missing /final;
    }
--- request eval
["GET /t", "GET /t", "GET /t", "GET /api/guards/g"]
--- error_code eval
[200, 200, 429, 200]
--- response_body_like eval
["final", "final", '"rate_limited"', '"passed":2,"limited":1,']



=== TEST 12: from satisfy all into satisfy any, and the other way round
--- config
    GUARD;
    location = /all {
        try_files /missing /any/final;
    }
    location = /any/final {
        satisfy any;
        allow all;
        alias $TEST_NGINX_HTML_DIR/final;
    }
    location = /any {
        satisfy any;
        allow all;
        try_files /missing /final;
    }
--- request eval
["GET /all", "GET /any", "GET /all", "GET /any", "GET /api/guards/g"]
--- error_code eval
[200, 200, 429, 429, 200]
--- response_body_like eval
["final", "final", '"rate_limited"', '"rate_limited"',
 '"passed":2,"limited":2,']



=== TEST 13: rewrite ... last into a guarded location
--- config
    location = /t {
        GUARD;
        rewrite ^ /final last;
    }
    location = /final {
        GUARD;
    }
--- request eval
["GET /t", "GET /t", "GET /t", "GET /api/guards/g"]
--- error_code eval
[200, 200, 429, 200]
--- response_body_like eval
["final", "final", '"rate_limited"', '"passed":2,"limited":1,']



=== TEST 14: rewrite ... break in the guarded location
--- config
    location = /t {
        GUARD;
        rewrite ^ /final break;
    }
--- request eval
["GET /t", "GET /t", "GET /t", "GET /api/guards/g"]
--- error_code eval
[200, 200, 429, 200]



=== TEST 15: index redirects from one guarded location into another
--- config
    location = /dir/ {
        GUARD;
    }
    location ~ \.html$ {
        GUARD;
    }
--- request eval
["GET /dir/", "GET /dir/", "GET /dir/", "GET /api/guards/g"]
--- error_code eval
[200, 200, 429, 200]
--- response_body_like eval
["index", "index", '"rate_limited"', '"passed":2,"limited":1,']



=== TEST 16: index, only its last location is guarded
--- config
    location ~ \.html$ {
        GUARD;
    }
--- request eval
["GET /dir/", "GET /dir/", "GET /dir/", "GET /api/guards/g"]
--- error_code eval
[200, 200, 429, 200]
--- response_body_like eval
["index", "index", '"rate_limited"', '"passed":2,"limited":1,']



=== TEST 17: X-Accel-Redirect, both locations are guarded
--- http_config
    server {
        listen unix:$TEST_NGINX_HTML_DIR/up.sock;
        location / {
            add_header X-Accel-Redirect /final;
            return 200;
        }
    }
--- config
    location = /t {
        GUARD;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock;
    }
    location = /final {
        GUARD;
        internal;
    }
--- request eval
["GET /t", "GET /t", "GET /t", "GET /api/guards/g"]
--- error_code eval
[200, 200, 429, 200]
--- response_body_like eval
["final", "final", '"rate_limited"', '"passed":2,"limited":1,']



=== TEST 18: X-Accel-Redirect to a named location, only that is guarded
--- http_config
    server {
        listen unix:$TEST_NGINX_HTML_DIR/up.sock;
        location / {
            add_header X-Accel-Redirect @final;
            return 200;
        }
    }
--- config
    location = /t {
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock;
    }
    location @final {
        GUARD;
        try_files /final =404;
    }
--- request eval
["GET /t", "GET /t", "GET /t", "GET /api/guards/g"]
--- error_code eval
[200, 200, 429, 200]
--- response_body_like eval
["final", "final", '"rate_limited"', '"passed":2,"limited":1,']



=== TEST 19: proxy_intercept_errors into a guarded location, with a body
--- http_config
    server {
        listen unix:$TEST_NGINX_HTML_DIR/up.sock;
        location / { return 502; }
    }
--- config
    location = /t {
        GUARD;
        proxy_intercept_errors on;
        error_page 502 = @final;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock;
    }
    location @final {
        GUARD;
        try_files /final =404;
    }
--- request eval
["POST /t\nbody", "GET /t", "GET /t", "GET /api/guards/g"]
--- error_code eval
[405, 200, 429, 200]
--- response_body_like eval
["405", "final", '"rate_limited"', '"passed":2,"limited":1,']



=== TEST 20: once decided by one guard, another one is not asked
--- config
    location = /t {
        GUARD;
        try_files /missing /final;
    }
    location = /final {
        iap_guard other;
        iap_guard_user $http_x_user capacity=1 rate=1r/h;
    }
--- request eval
["GET /t", "GET /t", "GET /t", "GET /api/guards/g", "GET /api/guards/other",
 "GET /final", "GET /final"]
--- error_code eval
[200, 200, 429, 200, 200, 200, 429]
--- response_body_like eval
["final", "final", '"rate_limited"', '"passed":2,"limited":1,',
 '"passed":0,"limited":0,', "final", '"rate_limited"']



=== TEST 21: the location that a redirect begins in has switched the guard off
--- config
    GUARD;
    location = /t {
        iap_guard off;
        try_files /missing /final;
    }
--- request eval
["GET /t", "GET /t", "GET /t", "GET /api/guards/g"]
--- error_code eval
[200, 200, 429, 200]



=== TEST 22: a ban that came up meanwhile is not a second decision
The ban: made by another user of the same address between two requests.
--- config
    iap_guard g;
    iap_guard_user $http_x_user;
    iap_guard_segment users=1 window=1h ban=1h;

    location = /t {
        try_files /missing /final;
    }
--- request eval
["GET /t", "GET /t", "GET /t", "GET /api/guards/g"]
--- more_headers eval
["X-User: a", "X-User: b", "X-User: a", ""]
--- error_code eval
[200, 429, 429, 200]
--- response_body_like eval
["final", '"layer":"segment"', '"layer":"ban"',
 '"passed":1,"limited":1,"limited_dry_run":0,"banned":1,']



=== TEST 23: many redirects in a row
--- config
    GUARD;
    location = /1 { try_files /missing /2; }
    location = /2 { try_files /missing /3; }
    location = /3 { try_files /missing /4; }
    location = /4 { try_files /missing @5; }
    location @5   { try_files /missing /final; }
--- request eval
["GET /1", "GET /1", "GET /1", "GET /api/guards/g"]
--- error_code eval
[200, 200, 429, 200]
--- response_body_like eval
["final", "final", '"rate_limited"', '"passed":2,"limited":1,']
