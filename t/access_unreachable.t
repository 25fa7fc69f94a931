# A guard that can never run, because a "return" or a redirecting "rewrite"
# answers before it, is warned of at start; and only such a one.

use lib 't/lib';
use Test::Nginx::Socket 'no_plan';
use IapGuard::Test;

run_tests();

__DATA__

=== TEST 1: return beside the guard
--- config
    location /t {
        iap_guard redeem;
        iap_guard_user $http_x_user capacity=1 rate=1r/h;
        return 204;
    }
--- request
GET /t
--- error_code: 204
--- error_log eval
qr/\[warn\] .*"return" in location "\/t" answers before guard "redeem" of \S+nginx\.conf:\d+ could decide/



=== TEST 2: return with a text
--- config
    location /t {
        iap_guard redeem;
        return 200 "never guarded";
    }
--- request
GET /t
--- response_body: never guarded
--- error_log
"return" in location "/t" answers before guard "redeem"



=== TEST 3: a guard of the server, return in the location
--- config
    iap_guard redeem;
    location /t { return 204; }
--- request
GET /t
--- error_code: 204
--- error_log
"return" in location "/t" answers before guard "redeem"



=== TEST 4: a guard of http, return in the location
--- http_config
    iap_guard_zone z4 1m;
    iap_guard redeem;
--- config
    location /t { return 204; }
--- request
GET /t
--- error_code: 204
--- error_log
"return" in location "/t" answers before guard "redeem"



=== TEST 5: return on the server's level, guard there
--- config
    iap_guard redeem;
    return 204;
--- request
GET /t
--- error_code: 204
--- error_log
"return" in the server answers before guard "redeem"



=== TEST 6: return on the server's level, guard in a location
--- config
    return 204;
    location /t {
        iap_guard redeem;
    }
--- request
GET /t
--- error_code: 204
--- error_log
answers before guard "redeem"



=== TEST 7: rewrite ... permanent
--- config
    location /t {
        iap_guard redeem;
        rewrite ^ /elsewhere permanent;
    }
--- request
GET /t
--- error_code: 301
--- error_log
"rewrite" in location "/t" answers before guard "redeem"



=== TEST 8: rewrite ... redirect
--- config
    location /t {
        iap_guard redeem;
        rewrite ^ /elsewhere redirect;
    }
--- request
GET /t
--- error_code: 302
--- error_log
"rewrite" in location "/t" answers before guard "redeem"



=== TEST 9: rewrite to another host
--- config
    location /t {
        iap_guard redeem;
        rewrite ^ https://example.com/;
    }
--- request
GET /t
--- error_code: 302
--- error_log
"rewrite" in location "/t" answers before guard "redeem"



=== TEST 10: return after other directives, an if among them
--- config
    location /t {
        iap_guard redeem;
        set $a b;
        if ($arg_x) { set $a c; }
        rewrite ^/(.*)$ /$1;
        if ($http_y ~ "z(.)") { set $a $1; }
        return 204;
    }
--- request
GET /t
--- error_code: 204
--- error_log
"return" in location "/t" answers before guard "redeem"



=== TEST 11: return within an if is no reason to warn
--- config
    location /t {
        iap_guard redeem;
        iap_guard_user $http_x_user capacity=1 rate=1r/h;
        if ($request_method = DELETE) { return 405; }
        if ($http_x_old ~ "^(1|2)") { rewrite ^ /elsewhere permanent; }
        if (!-e $document_root/nothing) { set $a b; }
        alias $TEST_NGINX_HTML_DIR/t;
    }
--- user_files
>>> t
passed
--- request eval
["GET /t", "GET /t", "DELETE /t"]
--- more_headers
X-User: a
--- error_code eval
[200, 429, 405]
--- no_error_log
answers before



=== TEST 12: return within an if of the server is no reason to warn
--- config
    if ($request_method = DELETE) { return 405; }
    iap_guard redeem;
    iap_guard_user $http_x_user capacity=1 rate=1r/h;
    location /t {
        alias $TEST_NGINX_HTML_DIR/t;
    }
--- user_files
>>> t
passed
--- request eval
["GET /t", "GET /t", "DELETE /t"]
--- more_headers
X-User: a
--- error_code eval
[200, 429, 405]
--- no_error_log
answers before



=== TEST 13: rewrites that go on are no reason to warn
--- config
    location /t {
        iap_guard redeem;
        rewrite ^/t/a$ /t/b;
        rewrite ^/t/c$ /t/d break;
        set $x "return";
        alias $TEST_NGINX_HTML_DIR/t;
    }
--- user_files
>>> t
passed
--- request
GET /t
--- response_body
passed
--- no_error_log
answers before



=== TEST 14: return where the guard is off is no reason to warn
--- config
    iap_guard redeem;
    location /t {
        iap_guard off;
        return 204;
    }
--- request
GET /t
--- error_code: 204
--- no_error_log
answers before



=== TEST 15: return in a location without a guard, beside one with
--- config
    location /t { return 204; }
    location /u { iap_guard redeem; }
--- request
GET /t
--- error_code: 204
--- no_error_log
answers before



=== TEST 16: each of two locations is named
--- config
    location /one {
        iap_guard redeem;
        return 204;
    }
    location /two {
        iap_guard redeem;
        rewrite ^ /x permanent;
    }
    location /three {
        iap_guard redeem;
    }
--- request
GET /one
--- error_code: 204
--- error_log
"return" in location "/one" answers before guard "redeem"
"rewrite" in location "/two" answers before guard "redeem"
--- no_error_log
"/three" answers before



=== TEST 17: once for a server with many locations
--- config
    iap_guard redeem;
    return 204;
    location /one { }
    location /two { }
--- request
GET /one
--- error_code: 204
--- grep_error_log: answers before guard "redeem"
--- grep_error_log_out
answers before guard "redeem"



=== TEST 18: a long return, a regular expression with many captures
Nothing of what the rewrite module keeps for them is mistaken for a return.
--- config
    location ~ ^/t {
        iap_guard redeem;
        iap_guard_user $http_x_user capacity=1 rate=1r/h;
        rewrite ^/t/(a)(b)(c)(d)$ /t/$4$3$2$1$arg_a$arg_b$arg_c$arg_d$args;
        set $long "$uri$args$uri$args$uri$args$uri$args$uri$args$uri$args";
        if ($long ~* "(x)(y)(z)nothing") { return 405 "$1$2$3 $long $uri"; }
        if (-f $document_root/nothing) { return 405 "$uri $args"; }
        if ($request_method = DELETE) {
            set $long "$uri$args";
            rewrite ^/(.*)$ /gone/$1 redirect;
        }
        rewrite ^ /t break;
    }
--- user_files
>>> t
passed
--- request eval
["GET /t", "GET /t", "DELETE /t"]
--- more_headers
X-User: a
--- error_code eval
[200, 429, 302]
--- no_error_log
answers before
