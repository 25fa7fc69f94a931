# Upstreams that speak something else than HTTP/1, and clients that do: answers
# that are good, and trouble inside of what looks like one.

use strict;
use warnings;

use lib 't/lib';
use Test::Nginx::Socket 'no_plan';
use IapGuard::Test;

my ($GOOD, $SICK);

BEGIN {
    $GOOD = '{"status":0,"x":1}';
    $SICK = '{"status":21005}';
}

# a record of FastCGI

sub record {
    my ($type, $content) = @_;

    return pack('CCnnCC', 1, $type, 1, length $content, 0, 0) . $content;
}

# by the bytes that each protocol's request begins with; SCGI's is a number

sub scripts {
    my ($body) = @_;

    return (
        "\1" => [record(6, "Status: 200 OK\r\n\r\n$body") . record(6, '')
                 . record(3, "\0" x 8)],
        "\0" => ["HTTP/1.1 200 OK\r\n\r\n$body"],
        (map { ($_ => ["Status: 200 OK\r\n\r\n$body"]) } 1 .. 9),
        'get ' => ['VALUE /x 0 ' . length($body) . "\r\n$body\r\nEND\r\n"],
    );
}

use IapGuard::Frames qw(head talk END_STREAM);
use IapGuard::RawServer;
use IapGuard::BreakerTest {
    '/good' => ["HTTP/1.1 200 OK\r\nContent-Length: 18\r\n\r\n$GOOD"],
    '/sick' => ["HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n$SICK"],
    '/204'  => ["HTTP/1.1 204 No Content\r\n\r\n"],
    '/304'  => ["HTTP/1.1 304 Not Modified\r\n\r\n"],
};

my %server = (
    good  => IapGuard::RawServer->start(scripts($GOOD)),
    sick  => IapGuard::RawServer->start(scripts($SICK)),

    # the record, or the value, is longer than what comes of it

    short => IapGuard::RawServer->start(
        "\1" => [substr record(6, "Status: 200 OK\r\n\r\n$GOOD"), 0, -4],
        'get ' => ["VALUE /x 0 99\r\n$GOOD"]),
);

$ENV{'TEST_NGINX_' . uc($_) . '_PORT'} = $server{$_}->port foreach keys %server;

add_block_preprocessor(sub {
    my ($block) = @_;

    $block->set_value(http_config => ($block->http_config // '') . join '', map {
        my $port = '$TEST_NGINX_' . uc($_) . '_PORT';

        <<"END";
    upstream $_ { server 127.0.0.1:$port; }
END
    } sort keys %server);

    $block->set_value(config => ($block->config // '') . join '', map { <<"END"
    location = /$_/fastcgi { iap_guard_breaker b; fastcgi_pass $_; }
    location = /$_/uwsgi { iap_guard_breaker b; uwsgi_pass $_; }
    location = /$_/scgi { iap_guard_breaker b; scgi_pass $_; }
    location = /$_/memcached {
        iap_guard_breaker b;
        set \$memcached_key /x;
        memcached_pass $_;
    }
END
    } sort keys %server);
});

run_tests();

__DATA__

=== TEST 1: answers that are good
--- request eval
[map { "GET /good/$_" } qw(fastcgi uwsgi scgi memcached)]
--- response_body eval
[('{"status":0,"x":1}') x 4]
--- outcomes: success=4
--- share: 0



=== TEST 2: trouble inside of 200
--- request eval
[map { "GET /sick/$_" } qw(fastcgi uwsgi scgi memcached)]
--- outcomes: retry=4
--- share: 1



=== TEST 3: not buffered
--- config
    fastcgi_buffering off;
    uwsgi_buffering off;
    scgi_buffering off;
--- request eval
[map { ("GET /good/$_", "GET /sick/$_") } qw(fastcgi uwsgi scgi)]
--- outcomes: success=3 retry=3
--- share: 0.5



=== TEST 4: answers that are cut short
--- no_http2
--- init
main::http_raw("GET /short/$_ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    foreach qw(fastcgi memcached);
--- request
GET /api/breakers/b
--- outcomes: retry=2
--- share: 1



=== TEST 5: gRPC: the body is read in full before
--- http_config
    server {
        listen unix:$TEST_NGINX_HTML_DIR/grpc.sock http2;
        location /good { return 200 '{"status":0}'; }
        location /sick { return 200 '{"status":21005}'; }
        location /down { return 503; }
        location /echo { client_max_body_size 1m; proxy_pass http://raw/good; }
    }
--- config
    location ~ ^/(good|sick|down|echo)$ {
        iap_guard_breaker b;
        grpc_pass unix:$TEST_NGINX_HTML_DIR/grpc.sock;
    }
--- request eval
["GET /good", "GET /sick", "GET /down", "POST /echo\n" . "x" x 70000]
--- error_code eval
[200, 200, 503, 200]
--- outcomes: success=2 retry=2
--- share: 0.5



=== TEST 6: an upgrade that the upstream does not make is an answer like others
--- config
    location /up/ {
        iap_guard_breaker b;
        proxy_http_version 1.1;
        proxy_set_header Upgrade websocket;
        proxy_set_header Connection upgrade;
        proxy_pass http://raw/;
    }
--- request eval
["GET /up/good", "GET /up/sick"]
--- more_headers
Upgrade: websocket
--- outcomes: success=1 retry=1



=== TEST 7: a client that speaks HTTP/2: answers with a body, and without
--- http_config
    server {
        listen unix:$TEST_NGINX_HTML_DIR/h2.sock http2;
        location /b/ { iap_guard_breaker b; proxy_pass http://raw/; }
        location /c/ { iap_guard_breaker c; proxy_pass http://raw/; }
    }
--- init
Test::More::is(main::talk([map { main::head($_->[0], $_->[1], $_->[2], 1) }
    [1, GET => '/b/good'], [3, GET => '/b/sick'], [5, GET => '/c/204'],
    [7, GET => '/c/304'], [9, HEAD => '/c/good']]),
    '1:{"status":0,"x":1} 3:{"status":21005} 5: 7: 9:', 'answers');
--- request
GET /api/breakers/b
--- outcomes: success=1 retry=1
--- outcomes_c: success=3
