# iap_guard_json: what a guard finds in a body, JSON or form, and what is empty
# because parsers differ, and what is counted.

use lib 't/lib';
use Test::Nginx::Socket 'no_plan';
use IapGuard::Test;

our $json = "Content-Type: application/json\n";
our $form = "Content-Type: application/x-www-form-urlencoded\n";


# what iap_guard_json_total is to be, by result

sub counts {
    my (%n) = @_;

    return qr/\A/ . join '', map {
        my $n = $n{$_} // 0;
        qr/(?s:.*)^iap_guard_json_total\{result="$_"\} $n$/m
    } qw(read missing type ambiguous malformed too_large encoded unsupported);
}

add_block_preprocessor(sub {
    my ($block) = @_;

    $block->set_value(http_config => ($block->http_config // '') . <<'END');
    iap_guard_json $code code;
    iap_guard_json $item order.items.1.id;

    server {
        listen unix:$TEST_NGINX_HTML_DIR/up.sock;
        location / { return 200 "up\n"; }
    }
END

    my $layers = $block->layers // 'iap_guard_bucket promo $code '
                                   . 'capacity=9 rate=1r/h missing=skip;';

    $block->set_value(config => ($block->config // '') . <<"END");
    location = /t {
        iap_guard g;
        $layers
        add_header X-Code "<\$code>" always;
        add_header X-Item "<\$item>" always;
        proxy_pass http://unix:\$TEST_NGINX_HTML_DIR/up.sock;
    }
    location /api/ { iap_guard_api read; }
END
});

run_tests();

__DATA__

=== TEST 1: a string, a number as it was written, true
--- more_headers eval: $::json
--- request eval
['POST /t
{"code":"ABC"}', 'POST /t
{"a":[1,{"code":2}], "code" : -1.50e3}', 'POST /t
{"code":true}', 'GET /api/metrics']
--- response_headers_like eval
["X-Code: <ABC>", "X-Code: <-1\\.50e3>", "X-Code: <true>", ""]
--- response_body_like eval
["up", "up", "up", ::counts(read => 3)]



=== TEST 2: escapes, also in a name
--- more_headers eval: $::json
--- request eval
['POST /t
{"code":"\u0041\u0042C"}', 'POST /t
{"c\u006fde":"\"\\\\\/"}', 'POST /t
{"code":"\uD83D\uDE00"}']
--- response_headers_like eval
["X-Code: <ABC>", 'X-Code: <"\\\\/>', "X-Code: <\xf0\x9f\x98\x80>"]



=== TEST 3: what escapes hide is one key
--- more_headers eval: $::json
--- layers: iap_guard_bucket promo $code capacity=1 rate=1r/h;
--- request eval
['POST /t
{"code":"ABC"}', 'POST /t
{"x":1, "\u0063ode":"\u0041BC"}', 'POST /t
{"code":"abc"}']
--- error_code eval
[200, 429, 200]



=== TEST 4: a path through an array
--- more_headers eval: $::json
--- layers: iap_guard_bucket item $item capacity=9 rate=1r/h;
--- request eval
['POST /t
{"order":{"items":[{"id":"a"},{"id":"b"}]},"code":"C"}', 'POST /t
{"order":{"items":[{"id":"a"}]}}']
--- response_headers_like eval
["X-Item: <b>", "X-Item: <>"]



=== TEST 5: nothing there
--- more_headers eval: $::json
--- request eval
['POST /t
{"x":1}', 'POST /t
[]', 'POST /t
"code"', 'POST /t
{"code":""}', 'POST /t
{"x":"{\"code\":1}"}', 'POST /t', 'GET /t', 'GET /api/metrics']
--- response_headers_like eval
[("X-Code: <>") x 7, ""]
--- response_body_like eval
[("up") x 7, ::counts(missing => 7)]



=== TEST 6: an object, an array, null
--- more_headers eval: $::json
--- request eval
['POST /t
{"code":{}}', 'POST /t
{"code":["ABC"]}', 'POST /t
{"code":null}', 'GET /api/metrics']
--- response_headers_like eval
[("X-Code: <>") x 3, ""]
--- response_body_like eval
[("up") x 3, ::counts(type => 3)]



=== TEST 7: not JSON, or not all of it
--- more_headers eval: $::json
--- request eval
['POST /t
{"code":"ABC"', 'POST /t
{"code":"ABC"}{"code":"B"}', 'POST /t
code=ABC', "POST /t
{\"code\":\"ABC\",\"x\":\"\xff\"}", "POST /t
\xef\xbb\xbf{\"code\":\"ABC\"}", 'POST /t
' . '[' x 100000, 'GET /api/metrics']
--- response_headers_like eval
[("X-Code: <>") x 6, ""]
--- response_body_like eval
[("up") x 6, ::counts(malformed => 6)]



=== TEST 8: control characters: they would go into a header
--- more_headers eval: $::json
--- request eval
['POST /t
{"code":"A\r\nX-Admin: 1"}', 'POST /t
{"code":"A\u0000"}', 'POST /t
{"code":"A\t"}', 'GET /api/metrics']
--- response_headers_like eval
[("X-Code: <>") x 3, ""]
--- response_body_like eval
[("up") x 3, ::counts(malformed => 3)]



=== TEST 9: two members of one name, or of names that some take for one
--- more_headers eval: $::json
--- request eval
['POST /t
{"code":"A","code":"B"}', 'POST /t
{"code":"A","c\u006fde":"A"}', 'POST /t
{"code":"A","CODE":"B"}', 'POST /t
{"code":"A","code\u0000":"B"}', 'POST /t
{"x":1,"x":2,"code":"A"}', 'GET /api/metrics']
--- response_headers_like eval
[("X-Code: <>") x 4, "X-Code: <A>", ""]
--- response_body_like eval
[("up") x 5, ::counts(ambiguous => 4, read => 1)]



=== TEST 10: a form
--- more_headers eval: $::form
--- request eval
['POST /t
code=ABC', 'POST /t
x=1&code=a+b%2B%C3%A9&y=2', 'POST /t
%63ode=%41BC', 'GET /api/metrics']
--- response_headers_like eval
["X-Code: <ABC>", "X-Code: <a b\\+\xc3\xa9>", "X-Code: <ABC>", ""]
--- response_body_like eval
["up", "up", "up", ::counts(read => 3)]



=== TEST 11: a form's key is the whole path
--- more_headers eval: $::form
--- layers: iap_guard_bucket item $item capacity=9 rate=1r/h;
--- request eval
['POST /t
order.items.1.id=b', 'POST /t
id=b']
--- response_headers_like eval
["X-Item: <b>", "X-Item: <>"]



=== TEST 12: a form with nothing, or nothing good
--- more_headers eval: $::form
--- request eval
['POST /t
x=1', 'POST /t
code=', 'POST /t
code=%4', 'POST /t
code=%00', 'POST /t
code=A%0a', 'POST /t
code=%c1%81', 'GET /api/metrics']
--- response_headers_like eval
[("X-Code: <>") x 6, ""]
--- response_body_like eval
[("up") x 6, ::counts(missing => 2, malformed => 4)]



=== TEST 13: keys of a form that some take for one
--- more_headers eval: $::form
--- request eval
['POST /t
code=A&code=B', 'POST /t
code=A&code[]=B', 'POST /t
code=A;code=B', 'POST /t
code=A&+code=B', 'POST /t
Code=A&code=B', 'GET /api/metrics']
--- response_headers_like eval
[("X-Code: <>") x 5, ""]
--- response_body_like eval
[("up") x 5, ::counts(ambiguous => 5)]



=== TEST 14: by Content-Type: other spellings of JSON
--- more_headers eval
["Content-Type: application/vnd.team.v1+json\n",
 "Content-Type: Application/JSON; charset=\"UTF-8\"\n",
 "Content-Type: text/json;charset=utf-8\n"]
--- request eval
[('POST /t
{"code":"ABC"}') x 3]
--- response_headers_like eval
[("X-Code: <ABC>") x 3]



=== TEST 15: by Content-Type: neither JSON nor a form
--- more_headers eval
["Content-Type: text/plain\n", "Content-Type: multipart/form-data; boundary=x\n",
 "Content-Type: application/jsonp\n", "Content-Type:\n", ""]
--- request eval
[('POST /t
{"code":"ABC"}') x 4, 'GET /api/metrics']
--- response_headers_like eval
[("X-Code: <>") x 4, ""]
--- response_body_like eval
[("up") x 4, ::counts(unsupported => 4)]
--- no_http2



=== TEST 16: without a Content-Type: JSON if it begins so
--- no_http2
--- request eval
['POST /t
 {"code":"ABC"}', 'POST /t
code=ABC', 'POST /t
"code"', 'GET /api/metrics']
--- response_headers_like eval
["X-Code: <ABC>", ("X-Code: <>") x 2, ""]
--- response_body_like eval
[("up") x 3, ::counts(read => 1, unsupported => 2)]



=== TEST 17: another charset, or compressed
--- more_headers eval
["Content-Type: application/json; charset=utf-16\n",
 "Content-Type: application/json; charset=utf-8; charset=ibm037\n",
 $::json . "Content-Encoding: gzip\n", $::json . "content-encoding: br\n",
 $::json . "Content-Encoding: identity\n", ""]
--- request eval
[('POST /t
{"code":"ABC"}') x 5, 'GET /api/metrics']
--- response_headers_like eval
[("X-Code: <>") x 4, "X-Code: <ABC>", ""]
--- response_body_like eval
[("up") x 5, ::counts(encoded => 4, read => 1)]



=== TEST 18: two of Content-Type
--- no_http2
--- more_headers eval
[$::json . $::form, ""]
--- request eval
['POST /t
{"code":"ABC"}', 'GET /api/metrics']
--- response_headers_like eval
["X-Code: <>", ""]
--- response_body_like eval
["up", ::counts(ambiguous => 1)]



=== TEST 19: up to the limit, and beyond it
--- more_headers eval: $::json
--- http_config: iap_guard_json_limit 1k;
--- request eval
['POST /t
{"code":"ABC","x":"' . 'x' x 1003 . '"}', 'POST /t
{"code":"ABC","x":"' . 'x' x 1004 . '"}', 'POST /t
{"code":"' . 'y' x 1010 . '"}', 'GET /api/metrics']
--- response_headers_like eval
["X-Code: <ABC>", "X-Code: <>", 'X-Code: <y{1010}>', ""]
--- response_body_like eval
["up", "up", "up", ::counts(read => 2, too_large => 1)]



=== TEST 20: the limit is 256k where none is given
--- more_headers eval: $::json
--- request eval
['POST /t
{"code":"ABC","x":"' . 'x' x (262144 - 21) . '"}', 'POST /t
{"code":"ABC","x":"' . 'x' x (262144 - 20) . '"}']
--- response_headers_like eval
["X-Code: <ABC>", "X-Code: <>"]



=== TEST 21: longer than the scanner keeps, in a key of its own
--- more_headers eval: $::json
--- layers: iap_guard_bucket promo $code capacity=1 rate=1r/h;
--- request eval
['POST /t
{"code":"' . 'x' x 600 . 'A"}', 'POST /t
{"code":"' . 'x' x 600 . 'B"}', 'POST /t
{"code":"' . '\u0078' x 600 . 'A"}']
--- error_code eval
[200, 200, 429]



=== TEST 22: several of one body, each counted for itself
--- more_headers eval: $::json
--- layers
iap_guard_bucket promo $code capacity=9 rate=1r/h;
iap_guard_bucket item $item capacity=9 rate=1r/h;
--- request eval
['POST /t
{"order":{"items":[0,{"id":7}]},"code":null}', 'GET /api/metrics']
--- response_headers_like eval
["X-Item: <7>", ""]
--- response_body_like eval
["up", ::counts(read => 1, type => 1)]

