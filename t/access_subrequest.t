# Only the client's own request is decided: subrequests of SSI, mirror and
# auth_request into guarded locations neither hang, nor are refused, nor
# charge anybody.

use lib 't/lib';
use Test::Nginx::Socket 'no_plan';
use IapGuard::Test;

add_block_preprocessor(sub {
    my ($block) = @_;

    $block->set_value(config => $block->config . <<'END');
    location /api/ { iap_guard_api read; }
END

    $block->set_value(user_files => ($block->user_files // '') . <<'END');
>>> part
part
END
});

run_tests();

__DATA__

=== TEST 1: SSI includes a guarded location more often than its bucket allows
--- config
    location = /page {
        ssi on;
        ssi_types text/plain;
    }

    location = /part {
        iap_guard g;
        iap_guard_user $http_x_user capacity=1 rate=1r/h;
    }
--- user_files
>>> page
<!--#include virtual="/part" --><!--#include virtual="/part" -->end
--- request eval
["GET /page", "GET /page", "GET /api/guards/g", "GET /part", "GET /part"]
--- more_headers
X-User: a
--- error_code eval
[200, 200, 200, 200, 429]
--- response_body_like eval
['^part\npart\nend', '^part\npart\nend', '"passed":0,"limited":0,', "part",
 "rate_limited"]



=== TEST 2: SSI, both guarded: the page is charged, its parts are not
--- config
    location ~ ^/(page|part)$ {
        ssi on;
        ssi_types text/plain;
        iap_guard g;
        iap_guard_user $http_x_user capacity=2 rate=1r/h;
    }
--- user_files
>>> page
<!--#include virtual="/part" --><!--#include virtual="/part" -->end
--- request eval
["GET /page", "GET /page", "GET /page", "GET /api/guards/g"]
--- more_headers
X-User: a
--- error_code eval
[200, 200, 429, 200]
--- response_body_like eval
['^part\npart\nend', '^part\npart\nend', "rate_limited",
 '"passed":2,"limited":1,']



=== TEST 3: SSI in the answer to a refused request
The included location is guarded too, and its bucket is as empty.
--- config
    location = /t {
        iap_guard g;
        iap_guard_user $http_x_user capacity=1 rate=1r/h;
        error_page 429 /sorry;
    }

    location = /sorry {
        internal;
        ssi on;
        ssi_types text/plain;
    }

    location = /part {
        iap_guard g;
        iap_guard_user $http_x_user capacity=1 rate=1r/h;
    }
--- user_files
>>> t
passed
>>> sorry
<!--#include virtual="/part" -->sorry, <!--#echo var="iap_guard_verdict" -->
--- request eval
["GET /t", "GET /t"]
--- more_headers
X-User: a
--- error_code eval
[200, 429]
--- response_body eval
["passed\n", "part\nsorry, limited\n"]



=== TEST 4: SSI includes a guarded location under a guard's satisfy any
--- config
    location = /page {
        ssi on;
        ssi_types text/plain;
    }

    location = /part {
        satisfy any;
        allow all;
        iap_guard g;
        iap_guard_user $http_x_user capacity=1 rate=1r/h;
    }
--- user_files
>>> page
<!--#include virtual="/part" --><!--#include virtual="/part" -->end
--- request eval
["GET /page", "GET /page", "GET /api/guards/g"]
--- more_headers
X-User: a
--- error_code eval
[200, 200, 200]
--- response_body_like eval
['^part\npart\nend', '^part\npart\nend', '"passed":0,"limited":0,']



=== TEST 5: SSI includes a location whose segment is banned
--- config
    location = /page {
        ssi on;
        ssi_types text/plain;
    }

    location = /part {
        iap_guard g;
        iap_guard_user $http_x_user;
        iap_guard_segment users=1 window=1h ban=1h;
    }
--- user_files
>>> page
<!--#include virtual="/part" -->end
--- request eval
["GET /part", "GET /part", "GET /part", "GET /page", "GET /api/guards/g"]
--- more_headers eval
["X-User: a", "X-User: b", "X-User: b", "X-User: b", ""]
--- error_code eval
[200, 429, 429, 200, 200]
--- response_body_like eval
["part", '"layer":"segment"', '"layer":"ban"', '^part\nend',
 '"passed":1,"limited":1,"limited_dry_run":0,"banned":1,']



=== TEST 6: mirror into a guarded location
--- http_config
    server {
        listen unix:$TEST_NGINX_HTML_DIR/up.sock;
        location / { return 200 "up\n"; }
    }
--- config
    location = /t {
        mirror /copy;
        iap_guard g;
        iap_guard_user $http_x_user capacity=3 rate=1r/h;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock;
    }

    location = /copy {
        internal;
        iap_guard copies;
        iap_guard_user $http_x_user capacity=1 rate=1r/h;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock;
    }
--- request eval
["POST /t\nbody", "POST /t\nbody", "POST /t\nbody", "GET /t",
 "GET /api/guards/copies", "GET /api/guards/g"]
--- more_headers
X-User: a
--- error_code eval
[200, 200, 200, 429, 200, 200]
--- response_body_like eval
["up", "up", "up", "rate_limited", '"passed":0,"limited":0,',
 '"passed":3,"limited":1,']



=== TEST 7: a request that passes is mirrored
--- http_config
    server {
        listen unix:$TEST_NGINX_HTML_DIR/up.sock;
        access_log $TEST_NGINX_SERVER_ROOT/logs/access.log combined;
        location / { return 200 "up\n"; }
    }
--- config
    location = /t {
        mirror /copy;
        iap_guard g;
        iap_guard_user $http_x_user missing=reject;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock:/original;
    }

    location = /copy {
        internal;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock:/copied;
    }
--- request
GET /t
--- more_headers
X-User: a
--- response_body
up
--- wait: 0.1
--- access_log
GET /original
GET /copied



=== TEST 8: a refused request is not mirrored
--- http_config
    server {
        listen unix:$TEST_NGINX_HTML_DIR/up.sock;
        access_log $TEST_NGINX_SERVER_ROOT/logs/access.log combined;
        location / { return 200 "up\n"; }
    }
--- config
    location = /t {
        mirror /copy;
        iap_guard g;
        iap_guard_user $http_x_user missing=reject;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock:/original;
    }

    location = /copy {
        internal;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock:/copied;
    }
--- request
GET /t
--- error_code: 400
--- response_body_like: bad_request
--- wait: 0.1
--- no_access_log
/original
/copied



=== TEST 9: satisfy any, a request that passes is mirrored
--- http_config
    server {
        listen unix:$TEST_NGINX_HTML_DIR/up.sock;
        access_log $TEST_NGINX_SERVER_ROOT/logs/access.log combined;
        location / { return 200 "up\n"; }
    }
--- config
    location = /t {
        satisfy any;
        mirror /copy;
        iap_guard g;
        iap_guard_user $http_x_user missing=reject;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock:/original;
    }

    location = /copy {
        internal;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock:/copied;
    }
--- request
GET /t
--- more_headers
X-User: a
--- response_body
up
--- wait: 0.1
--- access_log
GET /original
GET /copied



=== TEST 10: satisfy any, a refused request is not mirrored
--- http_config
    server {
        listen unix:$TEST_NGINX_HTML_DIR/up.sock;
        access_log $TEST_NGINX_SERVER_ROOT/logs/access.log combined;
        location / { return 200 "up\n"; }
    }
--- config
    location = /t {
        satisfy any;
        mirror /copy;
        iap_guard g;
        iap_guard_user $http_x_user missing=reject;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock:/original;
    }

    location = /copy {
        internal;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock:/copied;
    }
--- request
GET /t
--- error_code: 400
--- response_body_like: bad_request
--- wait: 0.1
--- no_access_log
/original
/copied



=== TEST 11: auth_request into a guarded location
--- config
    location = /t {
        auth_request /auth;
        alias $TEST_NGINX_HTML_DIR/part;
    }

    location = /auth {
        iap_guard g;
        iap_guard_user $http_x_user capacity=1 rate=1r/h;
        alias $TEST_NGINX_HTML_DIR/part;
    }
--- request eval
["GET /t", "GET /t", "GET /t", "GET /api/guards/g"]
--- more_headers
X-User: a
--- error_code eval
[200, 200, 200, 200]
--- response_body_like eval
["part", "part", "part", '"passed":0,"limited":0,']



=== TEST 12: auth_request, both locations under one guard: charged once
--- config
    iap_guard g;
    iap_guard_user $http_x_user capacity=2 rate=1r/h;

    location = /t {
        auth_request /auth;
        alias $TEST_NGINX_HTML_DIR/part;
    }

    location = /auth {
        alias $TEST_NGINX_HTML_DIR/part;
    }

    location /free/ {
        iap_guard off;
        iap_guard_api read;
    }
--- request eval
["GET /t", "GET /t", "GET /t", "GET /free/guards/g"]
--- more_headers
X-User: a
--- error_code eval
[200, 200, 429, 200]
--- response_body_like eval
["part", "part", "rate_limited", '"passed":2,"limited":1,']



=== TEST 13: a subrequest reads the variables of the client's request
--- no_redis
--- config
    location = /page {
        ssi on;
        ssi_types text/plain;
        iap_guard g;
        iap_guard_user $http_x_user capacity=1 rate=1r/h;
    }

    location = /words {
        ssi on;
        ssi_types text/plain;
    }
--- user_files
>>> page
<!--#include virtual="/words" -->
>>> words
<!--#echo var="iap_guard_verdict" --> from <!--#echo var="iap_guard_store" -->
--- request
GET /page
--- more_headers
X-User: a
--- response_body_like
^passed from zone\s*$
