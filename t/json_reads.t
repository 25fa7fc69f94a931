# When a body is read for a guard: only where one of its layers asks for what is
# in it, itself or through a map; after bans and limits that refuse without it;
# and once.

use lib 't/lib';
use Test::Nginx::Socket 'no_plan';
use IapGuard::Test;

# a request whose body does not come; what is answered all the same

sub unsent {
    my ($path, @fields) = @_;

    return IapGuard::Test::http_raw(
        join("\r\n", "POST $path HTTP/1.1", 'Host: localhost',
             'Content-Type: application/json', 'Content-Length: 14',
             @fields, '', ''), close_after => 0.3);
}

# ... and one that comes

sub sent {
    my ($path, $body, @fields) = @_;

    return IapGuard::Test::http_raw(
        join("\r\n", "POST $path HTTP/1.1", 'Host: localhost',
             'Content-Type: application/json', 'Connection: close',
             'Content-Length: ' . length $body, @fields, '', $body));
}

sub status { return $_[0] =~ m{^HTTP/1\.1 (\d+)} ? $1 : 'none' }

sub is_status {
    my ($answer, $status, $name) = @_;

    Test::More::is(status($answer), $status, $name);
}

add_block_preprocessor(sub {
    my ($block) = @_;

    $block->set_value(http_config => ($block->http_config // '') . <<'END');
    iap_guard_json $code code;
    iap_guard_json $user user.id;

    map $code $plan  { default none; ABC yearly; DEF monthly; }
    map $plan $long  { default 0; yearly 1; }
    map $code $vip   { default ""; VIP 1; }
    map $code $many  { default 1; VIP 3; }

    server {
        listen unix:$TEST_NGINX_HTML_DIR/up.sock;
        location / { return 200 "up\n"; }
    }
END

    (my $config = $block->config // '') =~ s{\bPROXY;}{
        add_header X-Plan "<\$code|\$plan|\$long>" always;
        proxy_request_buffering off;
        proxy_pass http://unix:\$TEST_NGINX_HTML_DIR/up.sock;}g;

    $block->set_value(config => "$config\n" . <<'END');
    location /api/ { iap_guard_api read; }
END
    $block->set_value(more_headers => "Content-Type: application/json\n")
        if !defined $block->more_headers;
    $block->set_value(no_http2 => '') if defined $block->init;
    $block->set_value(request => 'GET /api/guards/g')
        if !defined $block->request;
});

run_tests();

__DATA__

=== TEST 1: nothing asks: not read
The upstream answers, and has nothing of the body yet.
--- config
    location = /t {
        iap_guard g;
        iap_guard_user $http_x_user capacity=9 rate=1r/h;
        PROXY;
    }
--- init
main::is_status(main::unsent('/t'), 200, 'answered before the body');



=== TEST 2: a layer asks: read
--- config
    location = /t {
        iap_guard g;
        iap_guard_user $user capacity=9 rate=1r/h;
        PROXY;
    }
--- init
main::is_status(main::unsent('/t'), 'none', 'waits for the body');
main::is_status(main::sent('/t', '{"user":{"id":1}}'), 200, 'has it');



=== TEST 3: a header that uses it does not ask
--- config
    location = /t {
        iap_guard g;
        iap_guard_user $http_x_user capacity=9 rate=1r/h;
        proxy_set_header X-Code $code;
        PROXY;
    }
--- init
main::is_status(main::unsent('/t'), 200, 'answered before the body');



=== TEST 4: a guard that is off does not ask
--- config
    location = /t {
        iap_guard g;
        iap_guard_user $user capacity=9 rate=1r/h;
        PROXY;
    }
    location = /off {
        iap_guard off;
        iap_guard_user $user capacity=9 rate=1r/h;
        PROXY;
    }
--- init
main::is_status(main::unsent('/off'), 200, 'answered before the body');



=== TEST 5: in dry run it asks as well
--- config
    location = /t {
        iap_guard g dry_run=on;
        iap_guard_user $user capacity=1 rate=1r/h;
        PROXY;
    }
--- init
main::is_status(main::unsent('/t'), 'none', 'waits for the body');
--- request eval
['POST /t
{"user":{"id":1}}', 'POST /t
{"user":{"id":1}}', 'GET /api/guards/g']
--- error_code eval
[200, 200, 200]
--- response_body_like eval
["up", "up", '"limited_dry_run":1']
--- no_http2



=== TEST 6: what the header says is enough: not read
Compressed, too long, of another type.
--- config
    location = /t {
        iap_guard g;
        iap_guard_user $user capacity=9 rate=1r/h;
        PROXY;
    }
--- init
main::is_status(main::unsent('/t', 'Content-Encoding: gzip'), 200, 'gzip');
main::is_status(main::unsent('/t', 'Content-Type: text/plain'), 200,
                'two types');
main::is_status(IapGuard::Test::http_raw(
    "POST /t HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900000\r\n\r\n",
    close_after => 0.3), 200, 'too long');
main::is_status(IapGuard::Test::http_raw(
    "POST /t HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n"
    . "Content-Type: image/png\r\n\r\n", close_after => 0.3), 200, 'an image');



=== TEST 7: through a map
--- config
    location = /t {
        iap_guard g;
        iap_guard_bucket plan $plan capacity=1 rate=1r/h;
        PROXY;
    }
--- request eval
['POST /t
{"code":"ABC"}', 'POST /t
{"code":"ABC"}', 'POST /t
{"code":"DEF"}']
--- error_code eval
[200, 429, 200]
--- response_headers_like eval
["X-Plan: <ABC\\|yearly\\|1>", "X-Plan: <ABC\\|yearly\\|1>",
 "X-Plan: <DEF\\|monthly\\|0>"]



=== TEST 8: through a map of a map
--- config
    location = /t {
        iap_guard g;
        iap_guard_bucket long $long capacity=1 rate=1r/h;
        PROXY;
    }
--- request eval
['POST /t
{"code":"ABC"}', 'POST /t
{"code":"ABC"}', 'POST /t
{"code":"DEF"}']
--- error_code eval
[200, 429, 200]
--- response_headers_like eval
["X-Plan: <ABC\\|yearly\\|1>", "X-Plan: <ABC\\|yearly\\|1>",
 "X-Plan: <DEF\\|monthly\\|0>"]



=== TEST 9: in a text around it, and in several layers at once
--- config
    location = /t {
        iap_guard g;
        iap_guard_user "u-$user" capacity=9 rate=1r/h;
        iap_guard_bucket a $code:$long capacity=2 rate=1r/h;
        iap_guard_bucket b $http_x_b:$plan capacity=3 rate=1r/h;
        PROXY;
    }
--- request eval
[('POST /t
{"code":"ABC","user":{"id":7}}') x 3, ('POST /t
{"code":"XYZ","user":{"id":7}}') x 3]
--- error_code eval
[200, 200, 429, 200, 200, 429]



=== TEST 10: several layers with one map, whose default is spent
Without the body they would all be refused.
--- config
    location = /t {
        iap_guard g;
        iap_guard_bucket a $plan capacity=2 rate=1r/h exempt=$vip;
        iap_guard_bucket b $plan capacity=1 rate=1r/h exempt=$vip;
        PROXY;
    }
--- request eval
[map { "POST /t\n{\"code\":\"$_\"}" } qw(x x ABC ABC DEF VIP VIP)]
--- error_code eval
[200, 429, 200, 429, 200, 200, 200]



=== TEST 11: what was asked for before the decision keeps its empty value
As for any variable that is asked for too early: nginx keeps what a map said.
--- config
    location = /t {
        iap_guard g;
        iap_guard_bucket plan $plan capacity=1 rate=1r/h;
        iap_guard_bucket promo $code capacity=9 rate=1r/h;
        set $early "<$code|$plan>";
        add_header X-Early $early always;
        PROXY;
    }
--- request
POST /t
{"code":"ABC"}
--- response_headers_like
X-Early: <\|none>
X-Plan: <ABC\|none\|0>



=== TEST 12: what had a value before keeps it
Of a location's capture, of "set" and of an authorization.
--- http_config
    server {
        listen unix:$TEST_NGINX_HTML_DIR/auth.sock;
        location / { add_header X-Team red; return 204; }
    }
--- config
    location ~ ^/t/(?<part>\w+)$ {
        set $mine "set-$part";
        auth_request /auth;
        auth_request_set $team $sent_http_x_team;
        iap_guard g;
        iap_guard_user "$user $part $mine $team" capacity=1 rate=1r/h;
        add_header X-All "<$part|$mine|$team>" always;
        PROXY;
    }
    location = /auth {
        internal;
        proxy_pass_request_body off;
        proxy_set_header Content-Length "";
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/auth.sock;
    }
--- request eval
['POST /t/a
{"user":{"id":1}}', 'POST /t/a
{"user":{"id":1}}', 'POST /t/b
{"user":{"id":1}}']
--- error_code eval
[200, 429, 200]
--- response_headers_like eval
["X-All: <a\\|set-a\\|red>", "X-All: <a\\|set-a\\|red>",
 "X-All: <b\\|set-b\\|red>"]



=== TEST 13: exempt= from the body, and how many users
--- config
    location = /t {
        iap_guard g;
        iap_guard_user $http_x_user;
        iap_guard_segment users=$many exempt=$http_x_free window=60s;
        iap_guard_bucket promo $http_x_user capacity=2 rate=1r/h exempt=$vip;
        PROXY;
    }
--- more_headers eval
[map { "Content-Type: application/json\nX-User: $_\n" } qw(a b b c a a a)]
--- request eval
['POST /t
{"code":"x"}', 'POST /t
{"code":"x"}', 'POST /t
{"code":"VIP"}', 'POST /t
{"code":"VIP"}', 'POST /t
{"code":"VIP"}', 'POST /t
{"code":"x"}', 'POST /t
{"code":"x"}']
--- error_code eval
[200, 429, 200, 200, 200, 200, 429]



=== TEST 14: a user from the body is a segment's, too
--- config
    location = /t {
        iap_guard g;
        iap_guard_user $user;
        iap_guard_segment users=2 window=60s;
        PROXY;
    }
--- request eval
[map { "POST /t\n{\"user\":{\"id\":$_}}" } 1, 2, 1, 3, 2]
--- error_code eval
[200, 200, 200, 429, 200]



=== TEST 15: refused without the body: an identity that is missing
--- config
    location = /t {
        iap_guard g;
        iap_guard_user $user capacity=9 rate=1r/h;
        iap_guard_device $http_x_device missing=reject;
        PROXY;
    }
--- init
main::is_status(main::unsent('/t'), 400, 'refused before the body');
main::is_status(main::unsent('/t', 'X-Device: d'), 'none', 'waits for it');
--- response_body_like: "error":1,



=== TEST 16: refused without the body: limits that are spent
Nothing is taken of the others.
--- config
    location = /t {
        iap_guard g;
        iap_guard_user $http_x_user capacity=1 rate=1r/h;
        iap_guard_bucket promo $code capacity=2 rate=1r/h;
        PROXY;
    }
--- init
main::is_status(main::sent('/t', '{"code":"ABC"}', 'X-User: a'), 200, 'one');
main::is_status(main::unsent('/t', 'X-User: a'), 429,
                'spent: refused before the body') for 1 .. 3;
main::is_status(main::unsent('/t', 'X-User: b'), 'none', 'waits for it');
main::is_status(main::sent('/t', '{"code":"ABC"}', 'X-User: b'), 200,
                'and is let by when it comes');
main::is_status(main::sent('/t', '{"code":"ABC"}', 'X-User: c'), 429,
                'until what is in the body is spent');
main::is_status(main::sent('/t', '{"code":"DEF"}', 'X-User: c'), 200,
                'which took nothing of the user');
--- response_body_like: "passed":3,"limited":4,.*"rejections":\{.*"user":3,"promo":1\},



=== TEST 17: refused without the body: a ban, and global
--- config
    location = /seg {
        iap_guard seg;
        iap_guard_user $http_x_user;
        iap_guard_bucket promo $code capacity=9 rate=1r/h;
        iap_guard_segment users=1 window=60s ban=1h;
        PROXY;
    }
    location = /all {
        iap_guard all;
        iap_guard_bucket promo $code capacity=9 rate=1r/h;
        iap_guard_global rate=1r/h window=1h;
        PROXY;
    }
--- init
main::is_status(main::sent('/seg', '{}', 'X-User: a'), 200, 'one user');
main::is_status(main::unsent('/seg', 'X-User: b'), 429, 'a second: banned');
main::is_status(main::unsent('/seg', 'X-User: a'), 429, 'and so the first');
main::is_status(main::sent('/all', '{}'), 200, 'one of all');
main::is_status(main::unsent('/all'), 429, 'no more');
--- request
GET /api/guards/seg
--- response_body_like: "passed":1,"limited":1,.*"banned":1,



=== TEST 18: a ban that the body may be exempt from is looked for when it is there
--- config
    location = /t {
        iap_guard g;
        iap_guard_user $http_x_user;
        iap_guard_segment users=1 window=60s ban=1h exempt=$vip;
        PROXY;
    }
--- init
main::is_status(main::sent('/t', '{"code":"x"}', 'X-User: a'), 200, 'one');
main::is_status(main::sent('/t', '{"code":"x"}', 'X-User: b'), 429, 'a second');
main::is_status(main::unsent('/t', 'X-User: a'), 'none', 'waits');
main::is_status(main::sent('/t', '{"code":"VIP"}', 'X-User: a'), 200, 'exempt');
main::is_status(main::sent('/t', '{"code":"VIP"}', 'X-User: c'), 200,
                'of the number of users, too');
main::is_status(main::sent('/t', '{"code":"x"}', 'X-User: a'), 429, 'banned');
--- response_body_like: "passed":3,"limited":1,.*"banned":1,



=== TEST 19: a ban that is made while the body comes
There was another one before it came: so that bans are looked for, and none found.
--- config
    location = /ban {
        iap_guard other;
        iap_guard_user $http_x_user;
        iap_guard_segment users=1 window=60s ban=1h address=192.0.2.1$http_x_none;
        PROXY;
    }
    location = /t {
        iap_guard g;
        iap_guard_user $http_x_user;
        iap_guard_bucket promo $code capacity=9 rate=1r/h;
        iap_guard_segment users=1 window=60s ban=1h;
        PROXY;
    }
--- init
main::is_status(main::sent('/ban', '{}', 'X-User: a'), 200, 'elsewhere');
main::is_status(main::sent('/ban', '{}', 'X-User: b'), 429, 'a ban');
main::is_status(main::sent('/t', '{}', 'X-User: a'), 200, 'one user');

my $slow = IapGuard::Test::http_begin(
    "POST /t HTTP/1.1\r\nHost: localhost\r\nX-User: a\r\nConnection: close\r\n"
    . "Content-Type: application/json\r\nContent-Length: 14\r\n\r\n{\"code\"");

Time::HiRes::sleep(0.1);

main::is_status(main::sent('/t', '{}', 'X-User: b'), 429, 'a second: banned');

print {$slow} ':"ABC"}';
$slow->flush();
sysread $slow, my $answer, 4096;

main::is_status($answer, 429, 'so is the one that is not done');
--- response_body_like: "passed":1,"limited":1,.*"banned":1,



=== TEST 20: a layer in dry run counts once
--- config
    location = /t {
        iap_guard g;
        iap_guard_user $http_x_user capacity=9 rate=1r/h missing=reject
                       dry_run=on;
        iap_guard_bucket promo $code capacity=9 rate=1r/h missing=reject
                         dry_run=on;
        PROXY;
    }
--- request eval
['POST /t
{"code":"ABC"}', 'POST /t
{}', 'GET /api/guards/g']
--- response_body_like eval
["up", "up", '"dry_run_rejections":\{.*"user":2,"promo":1\}']



=== TEST 21: a device that is missing waits for the user of the body
--- config
    location = /t {
        iap_guard g;
        iap_guard_user $user capacity=9 rate=1r/h;
        iap_guard_device $http_x_device capacity=1 rate=1r/h;
        PROXY;
    }
--- request eval
['POST /t
{}', 'POST /t
{}', 'POST /t
{"user":{"id":1}}', 'POST /t
{"user":{"id":1}}']
--- error_code eval
[200, 429, 200, 200]



=== TEST 22: satisfy any
--- config
    location = /t {
        satisfy any;
        allow all;
        iap_guard g;
        iap_guard_bucket promo $code capacity=1 rate=1r/h;
        PROXY;
    }
--- init
main::is_status(main::unsent('/t'), 'none', 'waits for the body');
--- request eval
['POST /t
{"code":"ABC"}', 'POST /t
{"code":"ABC"}', 'POST /t
{"code":"DEF"}']
--- error_code eval
[200, 429, 200]
--- no_http2



=== TEST 23: who is not let in has no body read
--- config
    location = /t {
        auth_basic "t";
        auth_basic_user_file $TEST_NGINX_HTML_DIR/nobody;
        iap_guard g;
        iap_guard_bucket promo $code capacity=1 rate=1r/h;
        PROXY;
    }
--- user_files
>>> nobody
--- init
main::is_status(main::unsent('/t'), 401, 'refused before the body');
--- response_body_like: "passed":0,"limited":0,



=== TEST 24: an error page with another guard does not read it again
--- config
    error_page 429 = @late;

    location = /t {
        iap_guard g;
        iap_guard_bucket promo $code capacity=1 rate=1r/h;
        PROXY;
    }
    location @late {
        iap_guard h;
        iap_guard_bucket plan $plan capacity=9 rate=1r/h;
        add_header X-Plan "<$code|$plan>" always;
        return 200 "late\n";
    }
--- request eval
[('POST /t
{"code":"ABC"}') x 2, "GET /api/guards/h"]
--- response_body_like eval
["up", "late", '"passed":0,']
--- response_headers_like eval
["", "X-Plan: <ABC\\|yearly>", ""]



=== TEST 25: an early handler does not ask
A ban is in force, and address= is read before the body.
--- config
    location = /ban {
        iap_guard g;
        iap_guard_user $http_x_user;
        iap_guard_segment users=1 window=60s ban=1h address=$http_x_ip;
        PROXY;
    }
    location = /t {
        iap_guard g;
        iap_guard_user $http_x_user;
        iap_guard_segment users=1 window=60s ban=1h address=$http_x_ip;
        iap_guard_bucket promo $code capacity=1 rate=1r/h;
        PROXY;
    }
--- init
main::is_status(main::sent('/ban', '{}', 'X-User: a', 'X-Ip: 192.0.2.1'), 200,
                'one user');
main::is_status(main::sent('/ban', '{}', 'X-User: b', 'X-Ip: 192.0.2.1'), 429,
                'a second: banned');
main::is_status(main::unsent('/t', 'X-User: a', 'X-Ip: 192.0.2.1'), 429,
                'refused before the body');
main::is_status(main::sent('/t', '{"code":"A"}', 'X-User: a',
                           'X-Ip: 192.0.2.2'), 200, 'another address');
main::is_status(main::sent('/t', '{"code":"A"}', 'X-User: a',
                           'X-Ip: 192.0.2.2'), 429, 'spent');
