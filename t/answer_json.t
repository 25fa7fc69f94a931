# The module's own answers: exact JSON, its type, its status, the request's
# id.

use lib 't/lib';
use Test::Nginx::Socket 'no_plan';
use IapGuard::Test;

add_block_preprocessor(sub {
    my ($block) = @_;

    $block->set_value(user_files => ">>> t\npassed\n");
});

our $id = '[0-9a-f]{32}';

run_tests();

__DATA__

=== TEST 1: limited by a user's bucket
--- config
    location = /t {
        iap_guard g;
        iap_guard_user $http_x_user capacity=1 rate=1r/h;
    }
--- request eval
["GET /t", "GET /t"]
--- more_headers
X-User: a
--- error_code eval
[200, 429]
--- response_headers_like eval
["Content-Type: text/plain", "Content-Type: application/json"]
--- response_body_like eval
['^passed\n$',
 '^\{"error":"rate_limited","layer":"user","retry_after":3[56]\d\d,'
 . "\"request_id\":\"$::id\"\\}\n\$"]



=== TEST 2: limited by a device's bucket
--- config
    location = /t {
        iap_guard g;
        iap_guard_device $http_x_device capacity=1 rate=1r/h;
    }
--- request eval
["GET /t", "GET /t"]
--- more_headers
X-Device: a
--- error_code eval
[200, 429]
--- response_body_like eval
["passed", '^\{"error":"rate_limited","layer":"device","retry_after":']



=== TEST 3: limited by a bucket with a name of its own
--- config
    location = /t {
        iap_guard g;
        iap_guard_bucket Campaign_2-x $arg_c capacity=1 rate=1r/h;
    }
--- request eval
["GET /t?c=1", "GET /t?c=1"]
--- error_code eval
[200, 429]
--- response_body_like eval
["passed", '^\{"error":"rate_limited","layer":"Campaign_2-x","retry_after":']



=== TEST 4: limited by a segment
--- config
    location = /t {
        iap_guard g;
        iap_guard_user $http_x_user;
        iap_guard_segment users=1 window=1h;
    }
--- request eval
["GET /t", "GET /t"]
--- more_headers eval
["X-User: a", "X-User: b"]
--- error_code eval
[200, 429]
--- response_body_like eval
["passed", '^\{"error":"rate_limited","layer":"segment","retry_after":\d+,']



=== TEST 5: limited by the global window
--- config
    location = /t {
        iap_guard g;
        iap_guard_global rate=1r/d window=1d;
    }
--- request eval
["GET /t", "GET /t"]
--- error_code eval
[200, 429]
--- response_body_like eval
["passed", '^\{"error":"rate_limited","layer":"global","retry_after":[1-9]\d*,'
 . "\"request_id\":\"$::id\"\\}\n\$"]



=== TEST 6: banned
--- config
    location = /t {
        iap_guard g;
        iap_guard_user $http_x_user;
        iap_guard_segment users=1 window=1h ban=2h;
    }
--- request eval
["GET /t", "GET /t", "GET /t"]
--- more_headers eval
["X-User: a", "X-User: b", "X-User: a"]
--- error_code eval
[200, 429, 429]
--- response_headers_like eval
["", "Content-Type: application/json", "Content-Type: application/json"]
--- response_body_like eval
["passed", '^\{"error":"rate_limited","layer":"segment","retry_after":7[12]\d\d,',
 '^\{"error":"banned","layer":"ban","retry_after":7[12]\d\d,'
 . "\"request_id\":\"$::id\"\\}\n\$"]



=== TEST 7: a missing identity that is refused: 400, and waiting does not help
--- config
    location = /t {
        iap_guard g status=503;
        iap_guard_user $http_x_user missing=reject;
        iap_guard_device $http_x_device missing=reject;
    }
--- request eval
["GET /t", "GET /t", "GET /t"]
--- more_headers eval
["X-User: a\nX-Device: d", "X-Device: d", "X-User: a"]
--- error_code eval
[200, 400, 400]
--- response_headers_like eval
["", "Content-Type: application/json", "Content-Type: application/json"]
--- raw_response_headers_unlike eval
["(?i)retry-after|ratelimit", "(?i)retry-after|ratelimit",
 "(?i)retry-after|ratelimit"]
--- response_body_like eval
["passed",
 "^\\{\"error\":\"bad_request\",\"layer\":\"user\",\"request_id\":\"$::id\"\\}\n\$",
 "^\\{\"error\":\"bad_request\",\"layer\":\"device\",\"request_id\":\"$::id\"\\}\n\$"]



=== TEST 8: an empty identity is missing
--- config
    location = /t {
        iap_guard g;
        iap_guard_user $arg_u missing=reject;
    }
--- request eval
["GET /t?u=", "GET /t", "GET /t?u=a"]
--- error_code eval
[400, 400, 200]



=== TEST 9: the guard's own status, for limited and banned
--- config
    location = /t {
        iap_guard g status=503;
        iap_guard_user $http_x_user;
        iap_guard_segment users=1 window=1h ban=2h;
    }
--- request eval
["GET /t", "GET /t", "GET /t"]
--- more_headers eval
["X-User: a", "X-User: b", "X-User: a"]
--- error_code eval
[200, 503, 503]
--- response_body_like eval
["passed", '"error":"rate_limited"', '"error":"banned"']



=== TEST 10: the bounds of the status
--- config
    location = /low {
        iap_guard low status=400;
        iap_guard_user $arg_u capacity=1 rate=1r/h;
        alias $TEST_NGINX_HTML_DIR/t;
    }
    location = /high {
        iap_guard high status=599;
        iap_guard_user $arg_u capacity=1 rate=1r/h;
        alias $TEST_NGINX_HTML_DIR/t;
    }
--- request eval
["GET /low?u=a", "GET /low?u=a", "GET /high?u=a", "GET /high?u=a"]
--- error_code eval
[200, 400, 200, 599]
--- response_body_like eval
["passed", '"error":"rate_limited"', "passed", '"error":"rate_limited"']



=== TEST 11: the request's id is nginx's, which is in the log
--- no_http2
--- http_config
    log_format id "logged $request_id";
    access_log $TEST_NGINX_SERVER_ROOT/logs/access.log id;
--- config
    add_header X-Id $request_id always;
    location = /t {
        iap_guard g;
        iap_guard_user $http_x_user missing=reject;
    }
--- init
my $answer = IapGuard::Test::http_raw(
    "GET /t HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");

my ($header) = $answer =~ /^X-Id: (\w+)\r$/m;
my ($body)   = $answer =~ /"request_id":"(\w+)"/;

Test::More::is($body, $header, "the JSON has \$request_id");

Time::HiRes::sleep(0.1);
Test::More::is((grep { /^logged \Q$body\E$/ } @{ access_log_data() }), 1,
               "the log has the same");
--- request
GET /t
--- error_code: 400
--- response_body_like: request_id



=== TEST 12: two refusals have two ids
--- config
    location = /t {
        iap_guard g;
        iap_guard_user $http_x_user missing=reject;
    }
--- request eval
["GET /t", "GET /t", "GET /t"]
--- error_code eval
[400, 400, 400]
--- response_body_filters eval
sub {
    my ($id) = $_[0] =~ /"request_id":"(\w+)"/;
    return $main::seen{$id}++ ? "seen before" : "new";
}
--- response_body eval
["new", "new", "new"]



=== TEST 13: default_type and types of the location do not matter
--- config
    location = /t {
        default_type text/html;
        types { }
        iap_guard g;
        iap_guard_user $http_x_user missing=reject;
    }
    location = /page.html {
        types { text/html html; }
        iap_guard g;
        iap_guard_user $http_x_user missing=reject;
    }
--- request eval
["GET /t", "GET /page.html"]
--- error_code eval
[400, 400]
--- response_headers eval
["Content-Type: application/json", "Content-Type: application/json"]
