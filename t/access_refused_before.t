# A request that somebody else refuses before the guard has decided is none of
# the guard's: its error page is shown as it is, and nobody is charged for it.
# If the error page answers in the refusal's place the guard does decide, but
# by the client's address: whose name stands in the request is anybody's guess.
#
# The guard is the server's, so that error pages are guarded, too.

use strict;
use warnings;

use MIME::Base64 qw(encode_base64);

use lib 't/lib';
use Test::Nginx::Socket 'no_plan';
use IapGuard::Test;

add_block_preprocessor(sub {
    my ($block) = @_;

    my $layers = $block->layers
        // 'iap_guard_user $remote_user capacity=3 rate=1r/h;';

    $block->set_value(config => "iap_guard g;\n$layers" . <<'END'
    location = /t {
        auth_basic realm;
        auth_basic_user_file $TEST_NGINX_HTML_DIR/passwd;
    }
    location = /stranger { alias $TEST_NGINX_HTML_DIR/t; }
    location = /401.html { internal; }
    location /api/ { iap_guard_api write token_file=$TEST_NGINX_HTML_DIR/token; }
END
        . $block->config);

    $block->set_value(http_config => ($block->http_config // '') . <<'END');
    server {
        listen unix:$TEST_NGINX_HTML_DIR/up.sock;

        location = /redirects {
            add_header X-Accel-Redirect /behind;
            return 200;
        }
        location = /named {
            add_header X-Accel-Redirect @app;
            return 200;
        }
        location / { return 200 "up\n"; }
    }
END

    $block->set_value(user_files => <<'END');
>>> passwd
alice:{PLAIN}right
bob:{PLAIN}right
>>> token
sesame
>>> t
passed
>>> 401.html
who are you
>>> page.html
a page
>>> behind
behind
END
});


# header fields, by whom

sub right { return 'Authorization: Basic ' . encode_base64("$_[0]:right", '') }
sub wrong { return 'Authorization: Basic ' . encode_base64("$_[0]:wrong", '') }

run_tests();

__DATA__

=== TEST 1: a wrong password is not charged to the name, nor to anybody
--- config
    error_page 401 /401.html;
--- request eval
[("GET /t") x 8, ("GET /stranger") x 4, "GET /api/guards/g"]
--- more_headers eval
[(main::wrong("alice")) x 4, (main::right("alice")) x 4, ("X: 1") x 5]
--- error_code eval
[(401) x 4, (200) x 3, 429, (200) x 3, 429, 200]
--- response_headers eval
[("WWW-Authenticate: Basic realm=\"realm\"\nRetry-After:\nRateLimit:") x 4,
 ("WWW-Authenticate:") x 9]
--- response_body_like eval
[('^who are you$') x 4, ('^passed$') x 3, '"rate_limited"', ('^passed$') x 3,
 '"rate_limited"', '"requests":\{"passed":6,"limited":2,']



=== TEST 2: nor is one without any name charged to its address
--- config
    error_page 401 /401.html;
--- request eval
[("GET /t") x 4, ("GET /stranger") x 4]
--- error_code eval
[(401) x 4, (200) x 3, 429]
--- response_body_like eval
[('^who are you$') x 4, ('^passed$') x 3, '"rate_limited"']



=== TEST 3: an error page with a status of its own is no answer to be had either
What the client gets is 403, whatever is in the page.
--- config
    error_page 401 =403 /401.html;
--- request eval
[("GET /t") x 8]
--- more_headers eval
[(main::wrong("alice")) x 4, (main::right("alice")) x 4]
--- error_code eval
[(403) x 4, (200) x 3, 429]
--- response_body_like eval
[('^who are you$') x 4, ('^passed$') x 3, '"rate_limited"']



=== TEST 4: "=": the name is not charged, its address is
--- config
    error_page 401 = @login;
    location @login { proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock; }
--- request eval
[("GET /t") x 5, "GET /stranger", ("GET /t") x 4, "GET /api/guards/g"]
--- more_headers eval
[(main::wrong("alice")) x 5, "X: 1", (main::right("alice")) x 4, "X: 1"]
--- error_code eval
[(200) x 3, 429, 429, 429, (200) x 3, 429, 200]
--- response_body_like eval
[('^up$') x 3, ('"rate_limited","layer":"user"') x 3, ('^passed$') x 3,
 '"rate_limited"', '"requests":\{"passed":6,"limited":4,']



=== TEST 5: "=": many names are one address
--- config
    error_page 401 = @login;
    location @login { proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock; }
--- request eval
[("GET /t") x 4]
--- more_headers eval
[map { main::wrong($_) } "alice", "bob", "carol", "dave"]
--- error_code eval
[200, 200, 200, 429]



=== TEST 6: "=": a ban of the name is not the address's, that of the address is
--- config
    error_page 401 = @login;
    location @login { proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock; }
--- request eval
['POST /api/bans
{"guard":"g","layer":"user","key":"alice","seconds":60}', "GET /t", "GET /t",
 'POST /api/bans
{"guard":"g","layer":"user","key":"@127.0.0.1","seconds":60}', "GET /t"]
--- more_headers eval
["Authorization: Bearer sesame", main::wrong("alice"), main::right("alice"),
 "Authorization: Bearer sesame", main::wrong("alice")]
--- error_code eval
[201, 200, 429, 201, 429]
--- response_body_like eval
["", '^up$', '"banned"', "", '"banned"']



=== TEST 7: "=": devices and other buckets are not trusted either
--- layers
    iap_guard_user $remote_user;
    iap_guard_device $http_x_device capacity=2 rate=1r/h;
    iap_guard_bucket app $http_x_app capacity=2 rate=1r/h;
--- config
    error_page 401 = @login;
    location @login { proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock; }
--- request eval
[("GET /t") x 6]
--- more_headers eval
[(main::wrong("alice") . "\nX-Device: d\nX-App: a") x 3,
 (main::right("alice") . "\nX-Device: d\nX-App: a") x 3]
--- error_code eval
[200, 200, 429, 200, 200, 429]
--- response_body_like eval
['^up$', '^up$', '"layer":"device"', '^passed$', '^passed$', '"layer":"device"']



=== TEST 8: "=": a segment counts the address once, not the names
--- layers
    iap_guard_user $remote_user;
    iap_guard_segment users=2 window=1h;
--- config
    error_page 401 = @login;
    location @login { proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock; }
--- request eval
[("GET /t") x 6]
--- more_headers eval
[(map { main::wrong($_) } "carol", "dave", "erin", "frank"),
 main::right("alice"), main::right("bob")]
--- error_code eval
[200, 200, 200, 200, 200, 429]



=== TEST 9: recursive_error_pages with "="
--- config
    recursive_error_pages on;
    error_page 401 = @login;
    location @login { proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock; }
--- request eval
[("GET /t") x 4, ("GET /t") x 4]
--- more_headers eval
[(main::wrong("alice")) x 4, (main::right("alice")) x 4]
--- error_code eval
[(200) x 3, 429, (200) x 3, 429]
--- response_body_like eval
[('^up$') x 3, '"rate_limited"', ('^passed$') x 3, '"rate_limited"']



=== TEST 10: recursive_error_pages: from page to page it is decided once
--- config
    recursive_error_pages on;
    error_page 401 = /missing;
    error_page 404 = @login;
    location @login { proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock; }
--- request eval
[("GET /t") x 4, ("GET /t") x 4, "GET /api/guards/g"]
--- more_headers eval
[(main::wrong("alice")) x 4, (main::right("alice")) x 4, "X: 1"]
--- error_code eval
[(200) x 3, 429, (200) x 3, 429, 200]
--- response_body_like eval
[('^up$') x 3, '"rate_limited"', ('^passed$') x 3, '"rate_limited"',
 '"passed":6,"limited":2,']



=== TEST 11: recursive_error_pages: a page that keeps the status, then one that does not
--- config
    recursive_error_pages on;
    error_page 401 /missing;
    error_page 404 = @login;
    location @login { proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock; }
--- request eval
[("GET /t") x 4, ("GET /t") x 4]
--- more_headers eval
[(main::wrong("alice")) x 4, (main::right("alice")) x 4]
--- error_code eval
[(200) x 3, 429, (200) x 3, 429]
--- response_body_like eval
[('^up$') x 3, '"rate_limited"', ('^passed$') x 3, '"rate_limited"']



=== TEST 12: limit_req
It comes before authentication, and so before anybody vouches for the name.
--- http_config
    limit_req_zone $server_name zone=slow:1m rate=1r/m;
--- config
    location = /slow {
        limit_req zone=slow;
        error_page 503 /page.html;
        alias $TEST_NGINX_HTML_DIR/t;
    }
--- request eval
[("GET /slow") x 5, ("GET /stranger") x 3, "GET /api/guards/g"]
--- error_code eval
[200, (503) x 4, 200, 200, 429, 200]
--- response_body_like eval
['^passed$', ('^a page$') x 4, '^passed$', '^passed$', '"rate_limited"',
 '"passed":3,"limited":1,']
--- response_headers eval
["", ("Retry-After:") x 4, "", "", "", ""]



=== TEST 13: limit_req with another status, and the page's
--- http_config
    limit_req_zone $server_name zone=slower:1m rate=1r/m;
--- config
    location = /slow {
        limit_req zone=slower;
        limit_req_status 429;
        error_page 429 = @busy;
        alias $TEST_NGINX_HTML_DIR/t;
    }
    location @busy { proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock; }
--- request eval
[("GET /slow") x 4, "GET /stranger"]
--- more_headers eval
[(main::wrong("alice")) x 4, "X: 1"]
--- error_code eval
[200, 200, 200, 200, 429]
--- response_body_like eval
['^passed$', ('^up$') x 3, '"rate_limited"']



=== TEST 14: deny
--- config
    location = /denied {
        deny all;
        error_page 403 /page.html;
    }
--- request eval
[("GET /denied") x 4, ("GET /stranger") x 4]
--- more_headers eval
[(main::wrong("alice")) x 4, ("X: 1") x 4]
--- error_code eval
[(403) x 4, (200) x 3, 429]
--- response_body_like eval
[('^a page$') x 4, ('^passed$') x 3, '"rate_limited"']



=== TEST 15: a body that is too large
--- config
    location = /body {
        client_max_body_size 5;
        error_page 413 /page.html;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock;
    }
--- request eval
[("POST /body\n123456") x 4, ("POST /body\n12345") x 4, "GET /api/guards/g"]
--- error_code eval
[(413) x 4, (200) x 3, 429, 200]
--- response_body_like eval
[('^a page$') x 4, ('^up$') x 3, '"rate_limited"', '"passed":3,"limited":1,']
--- no_http2



=== TEST 16: a page that somebody refuses as well
--- config
    auth_basic realm;
    auth_basic_user_file $TEST_NGINX_HTML_DIR/passwd;
    error_page 401 /401.html;
--- request eval
[("GET /t") x 8]
--- more_headers eval
[(main::wrong("alice")) x 4, (main::right("alice")) x 4]
--- error_code eval
[(401) x 4, (200) x 3, 429]
--- response_body_like eval
[('401 Authorization Required') x 4, ('^passed$') x 3, '"rate_limited"']



=== TEST 17: a page elsewhere
--- config
    error_page 401 https://login.example/;
--- request eval
[("GET /t") x 8]
--- more_headers eval
[(main::wrong("alice")) x 4, (main::right("alice")) x 4]
--- error_code eval
[(302) x 4, (200) x 3, 429]
--- response_headers eval
[("Location: https://login.example/") x 4, ("") x 4]



=== TEST 18: "satisfy any", where nobody is satisfied
--- config
    location = /any {
        satisfy any;
        deny all;
        auth_basic realm;
        auth_basic_user_file $TEST_NGINX_HTML_DIR/passwd;
        error_page 401 403 /401.html;
        alias $TEST_NGINX_HTML_DIR/t;
    }
--- request eval
[("GET /any") x 8]
--- more_headers eval
[(main::wrong("alice")) x 4, (main::right("alice")) x 4]
--- error_code eval
[(401) x 4, (200) x 3, 429]
--- response_body_like eval
[('^who are you$') x 4, ('^passed$') x 3, '"rate_limited"']



=== TEST 19: a banned address gets the refusal that comes first, then its own
--- config
    error_page 401 /401.html;
--- request eval
['POST /api/bans
{"guard":"g","layer":"segment","key":"127.0.0.1","seconds":60}', "GET /t",
 "GET /t", 'DELETE /api/bans?guard=g', "GET /t", "GET /t"]
--- more_headers eval
["Authorization: Bearer sesame", main::wrong("alice"), main::right("alice"),
 "Authorization: Bearer sesame", main::wrong("alice"), main::right("alice")]
--- error_code eval
[201, 429, 429, 200, 401, 200]



=== TEST 20: an error page of what nobody refused is decided: from outside the guard
--- config
    location = /static {
        iap_guard off;
        alias $TEST_NGINX_HTML_DIR/missing;
        error_page 404 = @app;
    }
    location @app {
        auth_basic realm;
        auth_basic_user_file $TEST_NGINX_HTML_DIR/passwd;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock;
    }
--- request eval
[("GET /static") x 4, "GET /static", "GET /api/guards/g"]
--- more_headers eval
[(main::right("alice")) x 4, main::right("bob"), "X: 1"]
--- error_code eval
[(200) x 3, 429, 200, 200]
--- response_body_like eval
[('^up$') x 3, '"rate_limited"', '^up$', '"passed":4,"limited":1,']



=== TEST 21: try_files, from inside and from outside the guard
--- config
    location = /inside {
        try_files /missing @app;
    }
    location = /outside {
        iap_guard off;
        try_files /missing @app;
    }
    location @app {
        auth_basic realm;
        auth_basic_user_file $TEST_NGINX_HTML_DIR/passwd;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock;
    }
--- request eval
[("GET /outside") x 4, "GET /inside", "GET /outside"]
--- more_headers eval
[(main::right("alice")) x 4, main::right("bob"), main::right("bob")]
--- error_code eval
[(200) x 3, 429, 200, 200]
--- response_body_like eval
[('^up$') x 3, '"rate_limited"', '^up$', '^up$']



=== TEST 22: "return" that stands for a jump
--- config
    location = /jump {
        error_page 418 = @app;
        return 418;
    }
    location @app {
        auth_basic realm;
        auth_basic_user_file $TEST_NGINX_HTML_DIR/passwd;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock;
    }
--- request eval
[("GET /jump") x 4, "GET /jump", "GET /api/guards/g"]
--- more_headers eval
[(main::right("alice")) x 4, main::right("bob"), "X: 1"]
--- error_code eval
[(200) x 3, 429, 200, 200]
--- response_body_like eval
[('^up$') x 3, '"rate_limited"', '^up$', '"passed":4,"limited":1,']



=== TEST 23: X-Accel-Redirect to a file and to a named location
--- config
    location = /file {
        iap_guard off;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock:/redirects;
    }
    location = /jump {
        iap_guard off;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock:/named;
    }
    location = /behind { internal; }
    location @app {
        auth_basic realm;
        auth_basic_user_file $TEST_NGINX_HTML_DIR/passwd;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock;
    }
--- request eval
["GET /file", "GET /jump", "GET /file", "GET /jump", "GET /api/guards/g"]
--- more_headers eval
[(main::right("alice")) x 4, "X: 1"]
--- error_code eval
[200, 200, 200, 429, 200]
--- response_body_like eval
['^behind$', '^up$', '^behind$', '"rate_limited"', '"passed":3,"limited":1,']



=== TEST 24: inside the guard X-Accel-Redirect is charged once
--- config
    location = /file {
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock:/redirects;
    }
    location = /behind { internal; }
--- request eval
[("GET /file") x 4, "GET /api/guards/g"]
--- error_code eval
[(200) x 3, 429, 200]
--- response_body_like eval
[('^behind$') x 3, '"rate_limited"', '"passed":3,"limited":1,']



=== TEST 25: what was refused once does not taint the connection's next request
--- config
    error_page 401 /401.html;
--- pipelined_requests eval
["GET /t", "GET /t", "GET /t"]
--- more_headers eval
[main::wrong("alice"), main::right("alice"), main::wrong("alice")]
--- error_code eval
[401, 200, 401]
--- no_http2



=== TEST 26: a ban is looked for again where another guard decides
--- config
    error_page 401 = @login;
    location @login {
        iap_guard other;
        iap_guard_segment exempt=$arg_e users=9 window=1h;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock;
    }
--- request eval
['POST /api/bans
{"guard":"other","layer":"segment","key":"127.0.0.1","seconds":60}',
 "GET /t", "GET /t", "GET /t?e=1"]
--- more_headers eval
["Authorization: Bearer sesame", main::right("alice"), main::wrong("alice"),
 main::wrong("alice")]
--- error_code eval
[201, 200, 429, 200]
--- response_body_like eval
["", '^passed$', '"banned"', '^up$']



=== TEST 27: "=": a body that is too large, where nobody has authenticated yet
--- config
    location = /body {
        client_max_body_size 5;
        error_page 413 = @large;
        auth_basic realm;
        auth_basic_user_file $TEST_NGINX_HTML_DIR/passwd;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock;
    }
    location @large { proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock; }
--- request eval
[("POST /body\n123456") x 4, ("POST /body\n12345") x 4, "GET /api/guards/g"]
--- more_headers eval
[(main::wrong("alice")) x 4, (main::right("alice")) x 4, "X: 1"]
--- error_code eval
[(200) x 3, 429, (200) x 3, 429, 200]
--- no_http2



=== TEST 28: "=": the same where error pages are recursive
--- config
    recursive_error_pages on;
    location = /body {
        client_max_body_size 5;
        error_page 413 = @large;
        auth_basic realm;
        auth_basic_user_file $TEST_NGINX_HTML_DIR/passwd;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock;
    }
    location @large { proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock; }
--- request eval
[("POST /body\n123456") x 4, ("POST /body\n12345") x 4]
--- more_headers eval
[(main::wrong("alice")) x 4, (main::right("alice")) x 4]
--- error_code eval
[(200) x 3, 429, (200) x 3, 429]
--- no_http2



=== TEST 29: a body that is too large, and a page with a status of its own
--- config
    location = /body {
        client_max_body_size 5;
        error_page 413 =400 /page.html;
        auth_basic realm;
        auth_basic_user_file $TEST_NGINX_HTML_DIR/passwd;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock;
    }
--- request eval
[("POST /body\n123456") x 4, ("POST /body\n12345") x 4]
--- more_headers eval
[(main::wrong("alice")) x 4, (main::right("alice")) x 4]
--- error_code_like eval
[("4(?:00|29)") x 4, ("200") x 3, "429"]
--- no_http2
