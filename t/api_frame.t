# The API's frame: paths, methods, who may, bodies, answers.

use strict;
use warnings;

use lib 't/lib';
use Test::Nginx::Socket 'no_plan';
use IapGuard::Test;

add_block_preprocessor(sub {
    my ($block) = @_;

    $block->set_value('user_files',
        ">>> token\nopen-sesame\n" . ($block->user_files // ''));
    $block->set_value('config', '
    location /read/ {
        iap_guard_api read;
    }
    location /api/ {
        iap_guard_api write token_file=$TEST_NGINX_HTML_DIR/token;
    }
    location /t {
        iap_guard g;
        iap_guard_user $arg_u capacity=1 rate=1r/h;
        empty_gif;
    }
    ' . ($block->config // ''));
});

run_tests();

__DATA__

=== TEST 1: what there is to read, under read and under write
--- request eval
[map { my $api = $_; map { "GET $api$_" } "", "status", "metrics", "guards",
    "guards/g", "bans" } "/read/", "/api/"]
--- error_code eval
[(200) x 12]
--- response_headers eval
[((("Content-Type: application/json\nCache-Control: no-store") x 2),
  "Content-Type: text/plain; version=0.0.4\nCache-Control: no-store",
  ("Content-Type: application/json\nCache-Control: no-store") x 3) x 2]



=== TEST 2: the index names the calls
--- request
GET /read/
--- response_body
{"calls":["GET status","GET metrics","GET guards","GET guards/NAME","PUT guards/NAME","GET breakers","GET breakers/NAME","PUT breakers/NAME","GET bans","POST bans","DELETE bans","GET queues","GET queues/NAME","POST queues/NAME","GET codes","POST codes","GET codes/NAME","PUT codes/NAME","PATCH codes/NAME","DELETE codes/NAME"]}



=== TEST 3: a wrong method is 405, with those that are right
--- request eval
["PUT /api/", "POST /api/status", "DELETE /api/metrics", "PATCH /api/guards",
 "DELETE /api/guards/g", "POST /api/guards/g", "PUT /api/bans",
 "PATCH /api/bans", "OPTIONS /api/bans", "PROPFIND /api/status",
 "POST /read/status", "PUT /read/bans"]
--- error_code eval
[(405) x 12]
--- response_headers eval
[("Allow: GET, HEAD\nContent-Type: application/json") x 4,
 ("Allow: GET, HEAD, PUT") x 2, ("Allow: GET, HEAD, POST, DELETE") x 3,
 ("Allow: GET, HEAD") x 2, "Allow: GET, HEAD, POST, DELETE"]
--- response_body_like eval
[('^\{"error":"method_not_allowed","message":"this call takes GET, HEAD') x 12]



=== TEST 4: an unknown path is 404, whatever the method
--- request eval
["GET /read/nothing", "GET /api/statusx", "GET /api/status/", "GET /api/statu",
 "GET /api/guards/none", "GET /api/guards/", "POST /api/nothing",
 "DELETE /api/guards", "GET /api//status", "GET /api/bans/1",
 "HEAD /api/nothing", "GET /api/guards/g/mode"]
--- more_headers
Authorization: Bearer open-sesame
--- error_code eval
[404, 404, 404, 404, 404, 404, 404, 405, 200, 404, 404, 404]
--- response_body_like eval
[('^\{"error":"not_found","message":"[^"]') x 3, '', 'no guard \\\\"none\\\\"',
 '"not_found"', '"not_found"', '', '', '"not_found"', '', '"not_found"']



=== TEST 5: HEAD is GET without a body
--- request eval
[map { "HEAD /api/$_" } "", "status", "metrics", "guards", "guards/g", "bans"]
--- error_code eval
[(200) x 6]
--- response_headers_like eval
[("Content-Length: [1-9]\\d*") x 6]
--- response_body eval
[("") x 6]



=== TEST 6: under read nothing changes, token or not
--- request eval
[("DELETE /read/bans?guard=g") x 3]
--- more_headers eval
["X: 1", "Authorization: Bearer open-sesame", "Authorization: Bearer wrong"]
--- error_code eval
[(403) x 3]
--- response_headers eval
[("Content-Type: application/json\nWWW-Authenticate:") x 3]
--- response_body_like eval
[('^\{"error":"forbidden","message":"[^"]') x 3]



=== TEST 7: under write a change needs the token, exactly
--- request eval
[("DELETE /api/bans?guard=g") x 14]
--- more_headers eval
["X: 1", "Authorization:  Bearer  open-sesame", "Authorization: bearer open-sesame",
 map({ "Authorization: $_" } "Bearer", "Bearer ", "Bearer open", "Bearer open-sesam",
    "Bearer open-sesames", "Bearer Open-sesame", "Basic b3BlbiBzZXNhbWU=",
    "open-sesame", "Bearer,open-sesame", "Bearer\topen-sesame", "Bearer wrong")]
--- error_code eval
[401, 200, 200, (401) x 11]
--- response_headers eval
["WWW-Authenticate: Bearer realm=\"iap_guard\"\nContent-Type: application/json",
 "WWW-Authenticate:", "WWW-Authenticate:",
 ("WWW-Authenticate: Bearer realm=\"iap_guard\"") x 11]
--- response_body_like eval
['^\{"error":"unauthorized","message":"[^"]', ('^\{"lifted":0\}\n$') x 2,
 ('"unauthorized"') x 11]



=== TEST 8: an argument is no token, nor a cookie
--- request
DELETE /api/bans?guard=g&token=open-sesame&access_token=open-sesame
--- more_headers
Cookie: token=open-sesame
--- error_code: 401



=== TEST 9: the token is in no log, the right one or a wrong one
--- request eval
["DELETE /api/bans?guard=g", "DELETE /api/bans?guard=g"]
--- more_headers eval
["Authorization: Bearer open-sesame", "Authorization: Bearer close-sesame"]
--- error_code eval
[200, 401]
--- no_error_log
sesame
--- no_access_log
sesame



=== TEST 10: a location without a slash at its end
--- config
location /plain {
    iap_guard_api read;
}
location = /exact {
    iap_guard_api read;
}
--- request eval
["GET /plain", "GET /plain/", "GET /plain/status", "GET /plain/guards/g",
 "GET /exact", "GET /plain/none"]
--- error_code eval
[200, 200, 200, 200, 200, 404]
--- response_body_like eval
['"calls":', '"calls":', '"version":', '"guard":"g"', '"calls":', '"not_found"']



=== TEST 11: access modules hold for the API as for others
--- config
location /denied/ {
    deny all;
    iap_guard_api write token_file=$TEST_NGINX_HTML_DIR/token;
}
--- request eval
["GET /denied/status", "DELETE /denied/bans?guard=g"]
--- more_headers
Authorization: Bearer open-sesame
--- error_code eval
[403, 403]



=== TEST 12: the API may itself be guarded
--- config
location /guarded/ {
    iap_guard api;
    iap_guard_user $arg_u capacity=1 rate=1r/h;
    iap_guard_api read;
}
--- request eval
["GET /guarded/status?u=1", "GET /guarded/status?u=1"]
--- error_code eval
[200, 429]



=== TEST 13: a body where none is taken does no harm: keep-alive goes on
--- no_http2
--- pipelined_requests eval
["GET /api/status
" . "x" x 5000, "GET /api/bans", "PUT /api/guards/g
" . '{"mode":"on"}', "GET /t?u=1", "DELETE /api/bans?guard=g
" . '{"some":"body"}', "PUT /api/guards/none
" . '{"mode":"on"}', "GET /t?u=1"]
--- more_headers
Authorization: Bearer open-sesame
--- error_code eval
[200, 200, 200, 200, 200, 404, 429]
--- response_headers eval
[("Connection: keep-alive") x 6, "Connection: close"]



=== TEST 14: keep-alive goes on after refused changes with bodies
--- no_http2
--- pipelined_requests eval
["POST /api/bans
" . "x" x 3000, "POST /read/bans
" . "y" x 3000, "PATCH /api/status
" . "z" x 3000, "GET /t?u=1"]
--- error_code eval
[401, 403, 405, 200]
--- response_headers eval
[("Connection: keep-alive") x 3, "Connection: close"]



=== TEST 15: bodies that are no object
--- no_http2
--- request eval
[map { "PUT /api/guards/g
$_" } "{", "[]", "null", '"on"', "1", '{"mode":"on"', '{"mode":"on"}}',
 "{'mode':'on'}", "mode=on", '{"mode":"on","mode":"off"}',
 "{\"mode\":\"\xff\"}", "[" x 10000, '{"mode":' x 5000, "{\"mode\":\"on\0\"}"]
--- more_headers
Authorization: Bearer open-sesame
--- error_code eval
[(400) x 14]
--- response_body_like eval
[('^\{"error":"bad_request","message":"the body is not (?:a JSON object|JSON: \S.*)"\}$') x 14]



=== TEST 16: a body in several buffers and in a file
--- config
location /file/ {
    client_body_in_file_only clean;
    iap_guard_api write token_file=$TEST_NGINX_HTML_DIR/token;
}
location /small/ {
    client_body_buffer_size 16;
    iap_guard_api write token_file=$TEST_NGINX_HTML_DIR/token;
}
location /single/ {
    client_body_in_single_buffer on;
    iap_guard_api write token_file=$TEST_NGINX_HTML_DIR/token;
}
--- request eval
[map { "PUT $_/guards/g
" . '{' . " " x 2000 . '"mode":"off"}' } "/file", "/small", "/single", "/api"]
--- more_headers
Authorization: Bearer open-sesame
--- error_code eval
[(200) x 4]
--- response_body_like eval
[('"mode":"off","source":"api"') x 4]



=== TEST 17: a body of 64k is taken, one more byte is not
--- no_http2
--- init
    foreach ([65536, ' 200 .*"mode":"off"'], [65537, ' 413 .*"too_large"'],
             [900000, ' 413 .*"too_large"'])
    {
        my ($size, $answer) = @$_;
        my $got = main::http_raw("PUT /api/guards/g HTTP/1.0\r\n"
            . "Authorization: Bearer open-sesame\r\nContent-Length: $size"
            . "\r\n\r\n{" . " " x ($size - 14) . '"mode":"off"}');
        Test::More::like($got, qr/$answer/s, "TEST 17: $size bytes");
    }
--- request
GET /api/guards/g
--- response_body_like: "mode":"off"



=== TEST 18: chunked bodies, in one and in many chunks, and too large a one
--- no_http2
--- init
    my $head = "PUT /api/guards/g HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        . "Authorization: Bearer open-sesame\r\nTransfer-Encoding: chunked\r\n\r\n";
    my $body = '{"mode":"off"}';
    my $one = main::http_raw($head . "e\r\n$body\r\n0\r\n\r\n");
    Test::More::like($one, qr/ 200 .*"mode":"off"/s, 'TEST 18: one chunk');

    my $many = main::http_raw([$head,
        map({ "1\r\n$_\r\n" } split //, $body), "0\r\n\r\n"]);
    Test::More::like($many, qr/ 200 .*"mode":"off"/s, 'TEST 18: many');

    my $large = main::http_raw($head . "4000\r\n" . " " x 16384 . "\r\n"
        . ("4000\r\n" . " " x 16384 . "\r\n") x 4 . "0\r\n\r\n");
    Test::More::like($large, qr/ 413 .*"too_large"/s, 'TEST 18: too many');

    my $empty = main::http_raw($head . "0\r\n\r\n");
    Test::More::like($empty, qr/ 400 .*"bad_request"/s, 'TEST 18: none');
--- request
GET /api/guards/g
--- response_body_like: "mode":"off"



=== TEST 19: a change without a body
--- request
PUT /api/guards/g
--- more_headers
Authorization: Bearer open-sesame
--- error_code: 400
--- response_body_like: "error":"bad_request"



=== TEST 20: in a subrequest
--- config
location /page {
    ssi on;
    ssi_types *;
    alias $TEST_NGINX_HTML_DIR/page.html;
}
location /checked {
    auth_request /api/status;
    empty_gif;
}
location /checked_write {
    auth_request /api/bans;
    empty_gif;
}
--- user_files
>>> page.html
<<!--#include virtual="/api/guards/g" -->|<!--#include virtual="/read/none" -->>
--- request eval
["GET /page", "GET /checked", "HEAD /checked", "GET /checked_write"]
--- error_code eval
[(200) x 4]
--- response_body_like eval
['^<\{"guard":"g",.*\}\n\|\{"error":"not_found",.*\}\n>', "GIF", "", "GIF"]



=== TEST 21: mirrored requests
a mirror repeats method and body: what the client may change, it may change
--- config
location /mirrored {
    mirror /mirror/guards/g;
    error_page 405 =200 /ok;
    empty_gif;
}
location /mirror/ {
    iap_guard_api write token_file=$TEST_NGINX_HTML_DIR/token;
}
location /ok {
    internal;
    return 200 ok;
}
--- no_http2
--- pipelined_requests eval
["PUT /mirrored
" . '{"mode":"dry_run"}', "GET /mirrored", "PUT /mirrored
" . "x" x 70000, "POST /mirrored
" . "{}", "GET /api/guards/g"]
--- more_headers
Authorization: Bearer open-sesame
--- error_code eval
[200, 200, 200, 200, 200]
--- response_body_like eval
["", "GIF", "", "", '"mode":"dry_run","source":"api"']



=== TEST 22: answers stay valid JSON whatever is asked for
--- request eval
["GET /api/guards/a%22b%5Cc%0Ad%01", "GET /api/guards/%ff%fe", "GET /api/guards/%00"]
--- error_code_like eval
[("^(?:404|400)\$") x 3]
--- response_body_filters eval
sub { eval { JSON::PP::decode_json($_[0]); 1 } || $_[0] =~ /<html>/ ? "valid" : "not JSON: $_[0]" }
--- response_body eval
[("valid") x 3]
