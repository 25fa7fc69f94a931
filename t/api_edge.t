# The API at its edges: bodies that are empty, filters that are not meant,
# keys that look like something else, and the location that it stands in.

use strict;
use warnings;

use JSON::PP qw(decode_json);

use lib 't/lib';
use Test::Nginx::Socket 'no_plan';
use IapGuard::Test;

use constant { DATA => 0, HEADERS => 1, SETTINGS => 4 };
use constant { END_STREAM => 0x1, END_HEADERS => 0x4 };

add_block_preprocessor(sub {
    my ($block) = @_;

    my $api = <<'END';
    location /api/ {
        iap_guard_api write token_file=$TEST_NGINX_HTML_DIR/token;
        BODIES
    }
END

    my $bodies = $block->bodies // '';
    $api =~ s/BODIES/$bodies/;

    $block->set_value(user_files =>
        ">>> token\nsesame\n>>> secret\nkey secret\n");

    $block->set_value(more_headers => "Authorization: Bearer sesame\n")
        if !defined $block->more_headers;

    $block->set_value(http_config => ($block->http_config // '') . <<"END");
    server {
        listen unix:\$TEST_NGINX_HTML_DIR/h2.sock http2;
        $api
    }
END

    $block->set_value(config => $api . <<'END' . ($block->config // ''));
    location /t {
        iap_guard g;
        iap_guard_user $arg_u;
        iap_guard_segment users=1000 window=1h address=$arg_ip;
        iap_guard_device $arg_d;
        empty_gif;
    }
END
});


sub ban {
    my ($layer, $key, $seconds) = @_;

    return "POST /api/bans\n" . JSON::PP->new->utf8->canonical->encode({
        guard => 'g', layer => $layer, key => $key,
        seconds => 0 + ($seconds // 60) });
}


# a list of bans, sorted: "layer key", one a line

sub list {
    my ($body) = @_;

    return $body if $body !~ /^\[/;
    return join '', sort map { "$_->{layer} $_->{key}\n" }
                             @{ decode_json($body) };
}


# a call that has an empty body, in several ways; its status and answer

sub call {
    my ($method, $path, $how) = @_;

    my %fields = (
        length  => "Content-Length: 0\r\n\r\n",
        chunked => "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        pieces  => "Transfer-Encoding: chunked\r\n\r\n",
        expect  => "Expect: 100-continue\r\nContent-Length: 0\r\n\r\n",
        none    => "\r\n");

    my $head = "$method /api/$path HTTP/1.1\r\nHost: localhost\r\n"
        . "Authorization: Bearer sesame\r\nConnection: close\r\n"
        . $fields{$how};

    my $answer = http_raw($how eq 'pieces' ? [$head, "0\r", "\n\r\n"] : $head);

    $answer =~ s{^HTTP/1.1 100 Continue\r\n\r\n}{};

    return $answer =~ m{^HTTP/1.1 (\d+) .*\r\n\r\n(.*)}s ? "$1 $2"
                                                         : "none: $answer";
}


# the same over HTTP/2: `flags` of the head, and frames behind it

sub call_http2 {
    my ($method, $path, $flags, $rest) = @_;

    $path = "/api/$path";

    my $head = "\x02" . chr(length $method) . $method . "\x86"
        . "\x04" . chr(length $path) . $path . "\x01\x09localhost"
        . "\0\x0dauthorization" . chr(length 'Bearer sesame') . 'Bearer sesame';

    my $answer = http_raw(
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" . frame(SETTINGS, 0, 0, '')
            . frame(HEADERS, $flags | END_HEADERS, 1, $head) . $rest,
        unix => 'h2.sock', close_after => 0.5);

    my ($body, $ended) = ('', 0);

    while (length $answer >= 9) {
        my ($high, $low, $type, $got, $stream)
            = unpack 'CnCCN', substr $answer, 0, 9, '';
        my $payload = substr $answer, 0, $high * 65536 + $low, '';

        next if $stream != 1;
        $body .= $payload if $type == DATA;
        $ended ||= $type <= HEADERS && $got & END_STREAM;
    }

    return $ended ? $body : "not ended: $body";
}

sub frame {
    my ($type, $flags, $stream, $payload) = @_;

    return substr(pack('N', length $payload), 1)
           . pack('CCN', $type, $flags, $stream) . $payload;
}


# what each call answers to an empty body

sub empty_bodies {
    my ($test) = @_;

    foreach my $how (qw(length chunked pieces expect none)) {
        Test::More::like(call('POST', 'bans', $how),
            qr/^400 \{"error":"bad_request","message":"expected \{/,
            "$test: POST, $how");
        Test::More::like(call('PUT', 'guards/g', $how),
            qr/^400 \{"error":"bad_request","message":"expected \{/,
            "$test: PUT, $how");
        Test::More::is(call('DELETE', 'bans?guard=none', $how),
            "200 {\"lifted\":0}\n", "$test: DELETE, $how");
    }
}

run_tests();

__DATA__

=== TEST 1: empty bodies of authorised calls
--- init
main::empty_bodies('TEST 1');
--- request
GET /api/bans
--- response_body
[]
--- no_http2



=== TEST 2: and where bodies go into files
--- bodies
client_body_in_file_only clean;
--- init
main::empty_bodies('TEST 2');
--- request
GET /api/bans
--- response_body
[]
--- no_http2



=== TEST 3: and into one buffer, and no buffer
--- bodies
client_body_in_single_buffer on;
client_body_buffer_size 1;
--- init
main::empty_bodies('TEST 3');
--- request
GET /api/bans
--- response_body
[]
--- no_http2



=== TEST 4: the same over HTTP/2: no body, an empty frame, two of them
--- init
foreach my $rest (['none', 1, ''],
                  ['an empty frame', 0, main::frame(0, 1, 1, '')],
                  ['two', 0, main::frame(0, 0, 1, '') . main::frame(0, 1, 1, '')])
{
    my ($name, $flags, $frames) = @$rest;

    Test::More::like(main::call_http2('POST', 'bans', $flags, $frames),
        qr/^\{"error":"bad_request","message":"expected \{/,
        "TEST 4: POST, $name");
    Test::More::like(main::call_http2('PUT', 'guards/g', $flags, $frames),
        qr/^\{"error":"bad_request","message":"expected \{/,
        "TEST 4: PUT, $name");
    Test::More::is(main::call_http2('DELETE', 'bans?guard=none', $flags, $frames),
        "{\"lifted\":0}\n", "TEST 4: DELETE, $name");
}
--- request
GET /api/bans
--- response_body
[]



=== TEST 5: filters that are not meant lift nothing
--- request eval
[main::ban("user", "ann"), main::ban("device", "ann"),
 map({ "DELETE /api/bans?$_" } "key=", "layer=", "guard=", "guard=g&key=",
    "guard=g&layer=&key=ann", "key", "guard=g&key", "guard=g&other=1",
    "other=1&guard=g", "guard=g&keys=ann", "guard=g&xkey=ann", "guard=g&guard=g",
    "key=ann&key=bob", "key=ann&KEY=bob", "layer=user&layer=device", "guard=g&&",
    "&guard=g", "guard=g&1", "%67uard=g", "guard=g;layer=user&x"),
 "GET /api/bans", "DELETE /api/bans?guard=g&layer=user&key=ann", "GET /api/bans"]
--- error_code eval
[201, 201, (400) x 20, 200, 200, 200]
--- response_body_filters eval
\&main::list
--- response_body_like eval
["", "", ('^\{"error":"bad_request","message":"expected at least one of') x 20,
 '^device ann\nuser ann\n$', '^\{"lifted":1\}$', '^device ann\n$']



=== TEST 6: identities that look like key texts: banned, listed, lifted as they are
--- request eval
my @odd = ('@ann', '~bob', '@', '~', '@@', '@127.0.0.1x', '@unix', '~' . 'x' x 42,
    '~' . 'x' x 44, '~' . 'x' x 42 . '!');
[map { ("GET /t?u=$_", main::ban("user", $_), "GET /t?u=$_", "GET /api/bans",
        "DELETE /api/bans?key=$_", "GET /t?u=$_") } @odd]
--- error_code eval
[(200, 201, 429, 200, 200, 200) x 10]
--- response_body_filters eval
\&main::list
--- response_body_like eval
[("GIF", '"key":"~[\w-]{43}"', '"banned"', '^user ~[\w-]{43}\n$',
  '^\{"lifted":1\}$', "GIF") x 10]



=== TEST 7: who has the identity "@127.0.0.1" is not who has the address
--- request eval
["GET /t", 'GET /t?u=@127.0.0.1', main::ban("user", '@127.0.0.1'), "GET /t",
 'GET /t?u=@127.0.0.1', "GET /api/bans", 'DELETE /api/bans?key=@127.0.0.1',
 "GET /t"]
--- error_code eval
[200, 200, 201, 429, 200, 200, 200, 200]
--- response_body_filters eval
\&main::list
--- response_body_like eval
["", "", '"key":"@127\.0\.0\.1"', '"banned"', "", '^user @127\.0\.0\.1\n$',
 '^\{"lifted":1\}$', ""]



=== TEST 8: with a key secret a stand-in is banned by address, and shown as a hash
--- http_config
    iap_guard_key_secret $TEST_NGINX_HTML_DIR/secret;
--- request eval
["GET /t", main::ban("user", '@127.0.0.1'), "GET /t", 'GET /t?u=@127.0.0.1',
 "GET /t?u=ann", "GET /api/bans", 'DELETE /api/bans?key=@127.0.0.1', "GET /t",
 "GET /api/bans"]
--- error_code eval
[200, 201, 429, 200, 200, 200, 200, 200, 200]
--- response_body_filters eval
\&main::list
--- response_body_like eval
["", '"key":"~[\w-]{43}"', '"banned"', "", "", '^user ~[\w-]{43}\n$',
 '^\{"lifted":1\}$', "", '^$']



=== TEST 9: with a key secret, by the hash that the list shows
--- http_config
    iap_guard_key_secret $TEST_NGINX_HTML_DIR/secret;
--- request eval
my $hash = sub { "~" . Digest::SHA::hmac_sha256_base64($_[0], "key secret")
                       =~ tr{+/}{-_}r };
my ($ann, $address) = ($hash->("ann"), $hash->(' @127.0.0.1'));
[main::ban("user", $ann), "GET /t?u=ann", "GET /t?u=$ann",
 "DELETE /api/bans?key=ann", "GET /t?u=ann",
 main::ban("user", $address), "GET /t", "GET /api/bans",
 "DELETE /api/bans?key=$address", "GET /t"]
--- error_code eval
[201, 429, 200, 200, 200, 201, 429, 200, 200, 200]
--- response_body_like eval
["", '"banned"', "", '"lifted":1', "", "", '"banned"', "", '"lifted":1', ""]



=== TEST 10: without a user the address's /64 stands in, as the list shows it
--- request eval
[main::ban("user", '@2001:db8::/64'), main::ban("user", '@2001:DB8::/64'),
 main::ban("user", '@unix:'), "GET /api/bans"]
--- error_code eval
[201, 201, 201, 200]
--- response_body_filters eval
\&main::list
--- response_body_like eval
['"key":"@2001:db8::/64"', '"key":"~', '"key":"@unix:"',
 '^user @2001:db8::/64\nuser @unix:\nuser ~[\w-]{43}\n$']



=== TEST 11: a key forges no line of the log, and colours no terminal
--- request eval
main::ban("user", "x\n2026/01/01 00:00:00 [alert] 1#1: forged\e[31m\r")
--- error_code: 201
--- response_body_like: "key":"~[\w-]{43}"
--- grep_error_log eval
qr/\[alert\]|forged|\e|bans ~[\w-]{43} in layer "user" for 60 seconds/
--- grep_error_log_out eval
qr/^bans ~[\w-]{43} in layer "user" for 60 seconds\n$/



=== TEST 12: nor does a key that is none, a layer, a guard, a filter
--- request eval
my $forged = '\\n2026/01/01 00:00:00 [alert] 1#1: forged\\u001b[31m';
["POST /api/bans\n{\"guard\":\"g\",\"layer\":\"segment\",\"key\":\"$forged\",\"seconds\":1}",
 "POST /api/bans\n{\"guard\":\"g\",\"layer\":\"$forged\",\"key\":\"x\",\"seconds\":1}",
 "POST /api/bans\n{\"guard\":\"$forged\",\"layer\":\"user\",\"key\":\"x\",\"seconds\":1}",
 "PUT /api/guards/g\n{\"mode\":\"$forged\"}",
 "PUT /api/guards/%0a%5balert%5d%20forged%1b\n{\"mode\":\"on\"}",
 "DELETE /api/bans?key=%0a%5balert%5d%20forged%1b",
 "GET /api/%0a%5balert%5d%20forged%1b"]
--- error_code eval
[400, 404, 404, 400, 404, 200, 404]
--- response_body_like eval
['invalid key \\\\"\\\\n2026', 'has no layer \\\\"\\\\n2026', 'no guard \\\\"\\\\n2026',
 '"bad_request"', 'no guard \\\\"\\\\n', '"lifted":0', '"no such call"']
--- no_error_log eval
[qr/^\S* ?\[alert\]/m, qr/\e/]



=== TEST 13: "limit_except": the methods that it is for
--- config
    location /limited/ {
        iap_guard_api write token_file=$TEST_NGINX_HTML_DIR/token;
        limit_except GET { allow 127.0.0.1; deny all; }
    }
    location /denied/ {
        iap_guard_api write token_file=$TEST_NGINX_HTML_DIR/token;
        limit_except GET { deny all; }
    }
    location /read_only/ {
        iap_guard_api read;
        limit_except GET { allow all; }
    }
--- request eval
["GET /limited/status", 'PUT /limited/guards/g
{"mode":"off"}', "DELETE /limited/bans?guard=g", "PUT /limited/nothing",
 "GET /denied/status", 'PUT /denied/guards/g
{"mode":"on"}', "DELETE /denied/bans?guard=g", "DELETE /read_only/bans?guard=g",
 "GET /denied/guards/g"]
--- error_code eval
[200, 200, 200, 404, 200, 403, 403, 403, 200]
--- response_body_like eval
['"guards"', '"mode":"off"', '"lifted":0', '"no such call"', '"guards"',
 '403 Forbidden', '403 Forbidden', '"error":"forbidden"',
 '"mode":"off","source":"api"']
--- no_http2



=== TEST 14: "limit_except": the token is needed there, too
--- config
    location /limited/ {
        iap_guard_api write token_file=$TEST_NGINX_HTML_DIR/token;
        limit_except GET { allow 127.0.0.1; }
    }
--- request eval
['PUT /limited/guards/g
{"mode":"off"}', "DELETE /limited/bans?guard=g"]
--- more_headers
Authorization: Bearer wrong
--- error_code eval
[401, 401]
--- no_http2



=== TEST 15: "if" in the API's location
--- config
    location /ifs/ {
        iap_guard_api write token_file=$TEST_NGINX_HTML_DIR/token;
        if ($arg_x) { set $y 1; }
    }
--- request eval
["GET /ifs/status?x=1", "GET /ifs/status", 'PUT /ifs/guards/g?x=1
{"mode":"off"}', "DELETE /ifs/bans?guard=g&x=1", "GET /ifs/nothing?x=1"]
--- error_code eval
[200, 200, 200, 400, 404]
--- response_body_like eval
['"guards"', '"guards"', '"mode":"off"', '"bad_request"', '"no such call"']



=== TEST 16: a location without a slash has nothing to say of its neighbours
--- config
    location /x { iap_guard_api read; }
--- request eval
["GET /xstatus", "GET /x/status", "GET /x", "GET /x/", "GET /xx/status",
 "GET /x//status", "GET /xguards/g", "PUT /xguards/g", "GET /x/guards/g"]
--- error_code eval
[404, 200, 200, 200, 404, 200, 404, 404, 200]
--- response_body_like eval
['"no such call"', '"guards"', '"calls"', '"calls"', '"no such call"', '"guards"',
 '"no such call"', '"no such call"', '"mode"']



=== TEST 17: an exact location is the index
--- config
    location = /exact { iap_guard_api read; }
--- request eval
["GET /exact", "GET /exact?x=1"]
--- error_code eval
[200, 200]
--- response_body_like eval
[('"calls"') x 2]



=== TEST 18: the guard of a server does not limit the API; its own does
--- http_config
    server {
        listen unix:$TEST_NGINX_HTML_DIR/guarded.sock;
        iap_guard s;
        iap_guard_user $http_x_user capacity=1 rate=1r/h;

        location /inherits/ { iap_guard_api read; }
        location /excepts/ {
            iap_guard_api read;
            limit_except GET { allow all; }
        }
        location /own/ {
            iap_guard s;
            iap_guard_api read;
        }
        location /own_excepts/ {
            iap_guard s;
            iap_guard_api write token_file=$TEST_NGINX_HTML_DIR/token;
            limit_except GET { allow all; }
        }
        location /free { empty_gif; }
    }
--- config
    location ~ ^/(?:inherits|excepts|own|own_excepts|free)\b {
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/guarded.sock;
    }
--- request eval
[("GET /inherits/status") x 3, ("DELETE /excepts/bans?guard=g") x 3,
 "GET /own/status", "GET /own/status", "DELETE /own_excepts/bans?guard=none",
 "GET /inherits/guards/s", "GET /free", "GET /inherits/status"]
--- error_code eval
[(200) x 3, (403) x 3, 200, 429, 429, 200, 429, 200]
--- response_body_like eval
[('"guards"') x 3, ('"forbidden"') x 3, '"guards"', ('"rate_limited"') x 2,
 '"passed":1,"limited":2,', '"rate_limited"', '"guards"']



=== TEST 19: a ban of the address does not lock out of the API
--- http_config
    server {
        listen 127.0.0.1:$TEST_NGINX_RAND_PORT_1;
        iap_guard g;
        location /api/ {
            iap_guard_api write token_file=$TEST_NGINX_HTML_DIR/token;
        }
        location /free { empty_gif; }
    }
--- config
    location /via/ { proxy_pass http://127.0.0.1:$TEST_NGINX_RAND_PORT_1/; }
--- request eval
[main::ban("segment", "127.0.0.0/8"), "GET /via/free", "GET /via/api/status",
 "DELETE /via/api/bans?guard=g", "GET /via/free"]
--- error_code eval
[201, 429, 200, 200, 200]



=== TEST 20: bodies that are not JSON, or JSON that is no object
--- request eval
[map { "PUT /api/guards/g\n$_" } 'mode=off', '{"mode":"off"', '{"mode":"off"} x',
 '{"mode":"off","mode":"on"}', "{\"mode\":\"\xff\"}", '[]', '["mode"]', '[{}]',
 'null', '"off"']
--- error_code eval
[(400) x 10]
--- response_body_like eval
[('^\{"error":"bad_request","message":"the body is not JSON: [^\n]+"\}\n$') x 3,
 '^\{"error":"bad_request","message":"the body is not JSON: duplicate object key',
 '^\{"error":"bad_request","message":"the body is not JSON: [^\n]+"\}\n$',
 ('^\{"error":"bad_request","message":"the body is not a JSON object"\}\n$') x 3,
 ('^\{"error":"bad_request","message":"the body is not JSON: [^\n]+"\}\n$') x 2]



=== TEST 21: a shorter ban that is put over a longer one says what is left
--- request eval
[main::ban("user", "ann", 600), main::ban("user", "ann", 60),
 main::ban("segment", "10.0.0.0/8", 600), main::ban("segment", "10.0.0.0/8", 60),
 main::ban("user", "ann", 6000), main::ban("segment", "10.0.0.0/8", 6000)]
--- error_code eval
[201, 200, 201, 200, 200, 200]
--- response_body_like eval
['"seconds":600\}', '"seconds":(?:600|59\d)\}', '"seconds":600\}',
 '"seconds":(?:600|59\d)\}', '"seconds":6000\}', '"seconds":6000\}']



=== TEST 22: what changes something is in an error log of the default level
--- request eval
main::ban("user", "ann")
--- error_code: 201
--- error_log eval
qr/\[error\] .* iap_guard "g" bans ann in layer "user" for 60 seconds through the API/
