# The guard next to nginx's own access modules: it can neither grant access
# nor be passed over, and charges nothing for a request that they refuse.
#
# The bucket holds one token and does not refill while the test runs: what is
# left of it, and the counters, tell what was charged.

use lib 't/lib';
use Test::Nginx::Socket 'no_plan';
use IapGuard::Test;

our $password = "Authorization: Basic dXNlcjpzZWNyZXQ=\n";     # user:secret
our $wrong    = "Authorization: Basic dXNlcjp3cm9uZw==\n";     # user:wrong
our $inside   = "X-Real-IP: 10.0.0.1\n";
our $outside  = "X-Real-IP: 10.9.9.9\n";

add_block_preprocessor(sub {
    my ($block) = @_;

    $block->set_value(http_config => <<'END' . ($block->http_config // ''));
    set_real_ip_from 127.0.0.1;
    real_ip_header X-Real-IP;
END

    $block->set_value(config => $block->config . <<'END');
    location = /auth {
        internal;
        if ($http_x_auth = no)           { return 403; }
        if ($http_x_auth = unauthorized) { return 401; }
        if ($http_x_auth = broken)       { return 500; }
        return 204;
    }

    location /api/ { iap_guard_api read; }
END

    $block->set_value(user_files => <<'END');
>>> t
passed
>>> htpasswd
user:{PLAIN}secret
END
});

run_tests();

__DATA__

=== TEST 1: all, password: a request without it empties nobody's bucket
--- config
    location = /t {
        auth_basic "closed";
        auth_basic_user_file $TEST_NGINX_HTML_DIR/htpasswd;
        iap_guard g;
        iap_guard_user $http_x_user capacity=1 rate=1r/h;
    }
--- request eval
["GET /t", "GET /t", "GET /t", "GET /t", "GET /api/metrics"]
--- more_headers eval
["X-User: a\n", "X-User: a\n$::wrong", "X-User: a\n$::password",
 "X-User: a\n$::password", ""]
--- error_code eval
[401, 401, 200, 429, 200]
--- response_body_like eval
["401", "401", '^passed$', '"rate_limited","layer":"user"',
 'requests_total\{guard="g",verdict="passed"\} 1\n'
 . 'iap_guard_requests_total\{guard="g",verdict="limited"\} 1\n'
 . '(?s:.*)rejections_total\{guard="g",layer="user"\} 1\n']



=== TEST 2: all, password: a spent bucket does not answer who has no password
--- config
    location = /t {
        auth_basic "closed";
        auth_basic_user_file $TEST_NGINX_HTML_DIR/htpasswd;
        iap_guard g;
        iap_guard_user $http_x_user capacity=1 rate=1r/h;
    }
--- request eval
["GET /t", "GET /t", "GET /t", "GET /api/guards/g"]
--- more_headers eval
["X-User: a\n$::password", "X-User: a\n", "X-User: a\n$::wrong", ""]
--- error_code eval
[200, 401, 401, 200]
--- raw_response_headers_like eval
["", "(?i)www-authenticate", "(?i)www-authenticate", ""]
--- raw_response_headers_unlike eval
["(?i)retry-after", "(?i)retry-after", "(?i)retry-after", "(?i)retry-after"]
--- response_body_like eval
["passed", "401", "401", '"passed":1,"limited":0,']



=== TEST 3: all, addresses: one that is denied empties nobody's bucket
--- config
    location = /t {
        allow 10.0.0.1;
        deny all;
        iap_guard g;
        iap_guard_user $http_x_user capacity=1 rate=1r/h;
    }
--- request eval
["GET /t", "GET /t", "GET /t", "GET /t", "GET /t", "GET /api/guards/g"]
--- more_headers eval
["X-User: a\n$::outside", "X-User: a\n$::outside", "X-User: a\n$::inside",
 "X-User: a\n$::inside", "X-User: a\n$::outside", ""]
--- error_code eval
[403, 403, 200, 429, 403, 200]
--- response_body_like eval
["403", "403", "passed", "rate_limited", "403", '"passed":1,"limited":1,']



=== TEST 4: all, auth_request: one that is refused empties nobody's bucket
--- config
    location = /t {
        auth_request /auth;
        iap_guard g;
        iap_guard_user $http_x_user capacity=1 rate=1r/h;
    }
--- request eval
["GET /t", "GET /t", "GET /t", "GET /t", "GET /t", "GET /t",
 "GET /api/guards/g"]
--- more_headers eval
["X-User: a\nX-Auth: no\n", "X-User: a\nX-Auth: unauthorized\n",
 "X-User: a\nX-Auth: broken\n", "X-User: a\n", "X-User: a\n",
 "X-User: a\nX-Auth: no\n", ""]
--- error_code eval
[403, 401, 500, 200, 429, 403, 200]
--- response_body_like eval
["403", "401", "500", "passed", "rate_limited", "403",
 '"passed":1,"limited":1,']



=== TEST 5: all, everything at once: each of them alone refuses, uncharged
--- config
    location = /t {
        allow 10.0.0.1;
        deny all;
        auth_basic "closed";
        auth_basic_user_file $TEST_NGINX_HTML_DIR/htpasswd;
        auth_request /auth;
        iap_guard g;
        iap_guard_user $http_x_user capacity=1 rate=1r/h;
    }
--- request eval
["GET /t", "GET /t", "GET /t", "GET /t", "GET /t", "GET /api/guards/g"]
--- more_headers eval
["X-User: a\n$::outside$::password", "X-User: a\n$::inside$::wrong",
 "X-User: a\n$::inside${main::password}X-Auth: no\n",
 "X-User: a\n$::inside$::password", "X-User: a\n$::inside$::password", ""]
--- error_code eval
[403, 401, 403, 200, 429, 200]
--- response_body_like eval
["403", "401", "403", "passed", "rate_limited", '"passed":1,"limited":1,']



=== TEST 6: any, nothing else is there: the guard decides all the same
--- config
    location = /t {
        satisfy any;
        iap_guard g;
        iap_guard_user $http_x_user capacity=1 rate=1r/h;
    }
--- request eval
["GET /t", "GET /t", "GET /api/guards/g"]
--- more_headers
X-User: a
--- error_code eval
[200, 429, 200]
--- response_body_like eval
["passed", '"rate_limited","layer":"user"', '"passed":1,"limited":1,']



=== TEST 7: any, address allowed: the guard is not passed over
--- config
    location = /t {
        satisfy any;
        allow 10.0.0.1;
        deny all;
        auth_basic "closed";
        auth_basic_user_file $TEST_NGINX_HTML_DIR/htpasswd;
        iap_guard g;
        iap_guard_user $http_x_user capacity=1 rate=1r/h;
    }
--- request eval
["GET /t", "GET /t", "GET /api/guards/g"]
--- more_headers eval
["X-User: a\n$::inside", "X-User: a\n$::inside", ""]
--- error_code eval
[200, 429, 200]
--- response_body_like eval
["passed", "rate_limited", '"passed":1,"limited":1,']



=== TEST 8: any, password right, address denied: the guard is not passed over
--- config
    location = /t {
        satisfy any;
        allow 10.0.0.1;
        deny all;
        auth_basic "closed";
        auth_basic_user_file $TEST_NGINX_HTML_DIR/htpasswd;
        iap_guard g;
        iap_guard_user $http_x_user capacity=1 rate=1r/h;
    }
--- request eval
["GET /t", "GET /t", "GET /api/guards/g"]
--- more_headers eval
["X-User: a\n$::outside$::password", "X-User: a\n$::outside$::password", ""]
--- error_code eval
[200, 429, 200]
--- raw_response_headers_unlike eval
["(?i)www-authenticate", "(?i)www-authenticate", "(?i)www-authenticate"]
--- response_body_like eval
["passed", "rate_limited", '"passed":1,"limited":1,']



=== TEST 9: any, both refuse: a guard with tokens grants nothing, takes nothing
--- config
    location = /t {
        satisfy any;
        allow 10.0.0.1;
        deny all;
        auth_basic "closed";
        auth_basic_user_file $TEST_NGINX_HTML_DIR/htpasswd;
        iap_guard g;
        iap_guard_user $http_x_user capacity=1 rate=1r/h;
    }
--- request eval
["GET /t", "GET /t", "GET /t", "GET /t", "GET /t", "GET /api/guards/g"]
--- more_headers eval
["X-User: a\n$::outside", "X-User: a\n$::outside$::wrong",
 "X-User: a\n$::inside", "X-User: a\n$::inside", "X-User: a\n$::outside", ""]
--- error_code eval
[401, 401, 200, 429, 401, 200]
--- response_body_like eval
["401", "401", "passed", "rate_limited", "401", '"passed":1,"limited":1,']



=== TEST 10: any, only addresses: denied stays denied
--- config
    location = /t {
        satisfy any;
        allow 10.0.0.1;
        deny all;
        iap_guard g;
        iap_guard_user $http_x_user capacity=1 rate=1r/h;
    }
--- request eval
["GET /t", "GET /t", "GET /t", "GET /t", "GET /api/guards/g"]
--- more_headers eval
["X-User: a\n$::outside", "X-User: a\n$::inside", "X-User: a\n$::inside",
 "X-User: a\n$::outside", ""]
--- error_code eval
[403, 200, 429, 403, 200]
--- response_body_like eval
["403", "passed", "rate_limited", "403", '"passed":1,"limited":1,']



=== TEST 11: any, auth_request grants, address denied: the guard decides
--- config
    location = /t {
        satisfy any;
        deny all;
        auth_request /auth;
        iap_guard g;
        iap_guard_user $http_x_user capacity=1 rate=1r/h;
    }
--- request eval
["GET /t", "GET /t", "GET /t", "GET /t", "GET /api/guards/g"]
--- more_headers eval
["X-User: a\nX-Auth: no\n", "X-User: a\n", "X-User: a\n",
 "X-User: a\nX-Auth: no\n", ""]
--- error_code eval
[403, 200, 429, 403, 200]
--- response_body_like eval
["403", "passed", "rate_limited", "403", '"passed":1,"limited":1,']



=== TEST 12: any, all three: whichever grants, it is charged once
--- config
    location = /t {
        satisfy any;
        allow 10.0.0.1;
        deny all;
        auth_basic "closed";
        auth_basic_user_file $TEST_NGINX_HTML_DIR/htpasswd;
        auth_request /auth;
        iap_guard g;
        iap_guard_user $http_x_user capacity=3 rate=1r/h;
    }
--- request eval
["GET /t", "GET /t", "GET /t", "GET /t", "GET /t", "GET /api/guards/g"]
--- more_headers eval
["X-User: a\nX-Auth: no\n$::outside",
 "X-User: a\nX-Auth: no\n$::inside",
 "X-User: a\nX-Auth: no\n$::outside$::password",
 "X-User: a\n$::outside",
 "X-User: a\n$::inside", ""]
--- error_code eval
[401, 200, 200, 200, 429, 200]
--- response_body_like eval
["401", "passed", "passed", "passed", "rate_limited",
 '"passed":3,"limited":1,']



=== TEST 13: any, a refusal never turns into an access module's answer
The status of a guard can't be 401 or 403, but any other is its own.
--- config
    location = /t {
        satisfy any;
        allow all;
        iap_guard g status=404;
        iap_guard_user $http_x_user capacity=1 rate=1r/h;
    }
--- request eval
["GET /t", "GET /t", "GET /t"]
--- more_headers
X-User: a
--- error_code eval
[200, 404, 404]
--- response_body_like eval
["passed", '"rate_limited"', '"rate_limited"']



=== TEST 14: any inherited from the server, all in the location
--- config
    satisfy any;

    location = /t {
        satisfy all;
        deny all;
        auth_request /auth;
        iap_guard g;
        iap_guard_user $http_x_user capacity=1 rate=1r/h;
    }

    location = /any {
        deny all;
        auth_request /auth;
        iap_guard g;
        iap_guard_user $http_x_user capacity=1 rate=1r/h;
        alias $TEST_NGINX_HTML_DIR/t;
    }
--- request eval
["GET /t", "GET /any", "GET /any", "GET /t"]
--- more_headers
X-User: a
--- error_code eval
[403, 200, 429, 403]



=== TEST 15: all, a ban is seen before authentication
The ban: a second user from the same address.
--- config
    location = /t {
        auth_basic "closed";
        auth_basic_user_file $TEST_NGINX_HTML_DIR/htpasswd;
        auth_request /auth;
        iap_guard g;
        iap_guard_user $http_x_user;
        iap_guard_segment users=1 window=1h ban=1h;
    }
--- request eval
["GET /t", "GET /t", "GET /t", "GET /t", "GET /t", "GET /api/guards/g"]
--- more_headers eval
["X-User: a\n$::inside$::password", "X-User: b\n$::inside$::password",
 "X-User: a\n$::inside$::wrong", "X-User: a\n$::inside$::password",
 "X-User: a\n$::outside$::wrong", ""]
--- error_code eval
[200, 429, 429, 429, 401, 200]
--- response_body_like eval
["passed", '"rate_limited","layer":"segment"', '"banned","layer":"ban"',
 '"banned","layer":"ban"', "401",
 '"passed":1,"limited":1,"limited_dry_run":0,"banned":2,']



=== TEST 16: any, a ban is seen before what could grant or refuse access
--- config
    location = /t {
        satisfy any;
        allow 10.0.0.1;
        deny all;
        auth_basic "closed";
        auth_basic_user_file $TEST_NGINX_HTML_DIR/htpasswd;
        iap_guard g;
        iap_guard_user $http_x_user;
        iap_guard_segment users=1 window=1h ban=1h;
    }
--- request eval
["GET /t", "GET /t", "GET /t", "GET /t", "GET /t", "GET /api/guards/g"]
--- more_headers eval
["X-User: a\n$::outside$::password", "X-User: b\n$::outside$::password",
 "X-User: a\n$::outside$::password", "X-User: a\n$::outside$::wrong",
 "X-User: a\nX-Real-IP: 10.8.8.8\n", ""]
--- error_code eval
[200, 429, 429, 429, 401, 200]
--- response_body_like eval
["passed", '"rate_limited","layer":"segment"', '"banned","layer":"ban"',
 '"banned","layer":"ban"', "401",
 '"passed":1,"limited":1,"limited_dry_run":0,"banned":2,']



=== TEST 17: who is not authenticated counts as nobody's user, and bans nobody
--- config
    location = /t {
        auth_basic "closed";
        auth_basic_user_file $TEST_NGINX_HTML_DIR/htpasswd;
        iap_guard g;
        iap_guard_user $http_x_user;
        iap_guard_segment users=2 window=1h ban=1h;
    }
--- request eval
["GET /t", "GET /t", "GET /t", "GET /t", "GET /t", "GET /api/guards/g"]
--- more_headers eval
["X-User: a\n", "X-User: b\n", "X-User: c\n",
 "X-User: d\n$::password", "X-User: e\n$::password", ""]
--- error_code eval
[401, 401, 401, 200, 200, 200]
--- response_body_like eval
["401", "401", "401", "passed", "passed",
 '"passed":2,"limited":0,(?s:.*)"bans":0,"bans_total":0']



=== TEST 18: what auth_request establishes is the identity, with a ban in force
While there is a ban, the early handler looks at every request. A map that it
read before authentication would be cached empty, and all would be one user.
--- http_config
    map $who $member {
        ""      nobody;
        default $who;
    }

    server {
        listen unix:$TEST_NGINX_HTML_DIR/auth.sock;
        location / {
            add_header X-Who $http_x_token;
            return 204;
        }
    }
--- config
    location = /who {
        internal;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/auth.sock;
    }

    location = /t {
        auth_request /who;
        auth_request_set $who $upstream_http_x_who;
        iap_guard g;
        iap_guard_user $member capacity=1 rate=1r/h;
        iap_guard_segment users=2 window=1h ban=1h;
    }
--- request eval
["GET /t", "GET /t", "GET /t", "GET /t", "GET /t", "GET /t", "GET /t"]
--- more_headers eval
["X-Token: a\n$::outside", "X-Token: b\n$::outside", "X-Token: c\n$::outside",
 "X-Token: d\n$::inside", "X-Token: e\n$::inside", "X-Token: d\n$::inside",
 "X-Token: e\n$::outside"]
--- error_code eval
[200, 200, 429, 200, 200, 429, 429]
--- response_body_like eval
["passed", "passed", '"layer":"segment"', "passed", "passed",
 '"layer":"user"', '"layer":"ban"']



=== TEST 19: what auth_request establishes is the identity, satisfy any
--- http_config
    map $who $member {
        ""      nobody;
        default $who;
    }

    server {
        listen unix:$TEST_NGINX_HTML_DIR/auth.sock;
        location / {
            add_header X-Who $http_x_token;
            return 204;
        }
    }
--- config
    location = /who {
        internal;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/auth.sock;
    }

    location = /t {
        satisfy any;
        deny all;
        auth_request /who;
        auth_request_set $who $upstream_http_x_who;
        iap_guard g;
        iap_guard_user $member capacity=1 rate=1r/h;
    }
--- request eval
["GET /t", "GET /t", "GET /t", "GET /t"]
--- more_headers eval
["X-Token: a\n", "X-Token: b\n", "X-Token: a\n", "X-Token: b\n"]
--- error_code eval
[200, 200, 429, 429]



=== TEST 20: an error page of a refused login is guarded by a guard of its own
The early handler has looked for bans of guard "first" when the second one's
page is reached: what happens there is the second guard's.
--- config
    location = /ban {
        iap_guard second;
        iap_guard_user $http_x_user;
        iap_guard_segment users=1 window=1h ban=1h;
        alias $TEST_NGINX_HTML_DIR/t;
    }

    location = /t {
        auth_request /auth;
        error_page 403 = /help;
        iap_guard first;
        iap_guard_user $http_x_user capacity=1 rate=1r/h;
    }

    location = /help {
        iap_guard second;
        iap_guard_user $http_x_user;
        iap_guard_segment users=1 window=1h ban=1h;
        alias $TEST_NGINX_HTML_DIR/t;
    }
--- request eval
["GET /ban", "GET /ban", "GET /t", "GET /t", "GET /api/guards/first",
 "GET /api/guards/second"]
--- more_headers eval
["X-User: a\n$::inside", "X-User: b\n$::inside",
 "X-User: c\nX-Auth: no\n$::inside", "X-User: a\n$::inside", "", ""]
--- error_code eval
[200, 429, 429, 200, 200, 200]
--- response_body_like eval
["passed", '"layer":"segment"', '"banned","layer":"ban"', "passed",
 '"passed":1,"limited":0,"limited_dry_run":0,"banned":0,',
 '"passed":1,"limited":1,"limited_dry_run":0,"banned":1,']
