# A cache before the upstream: an answer out of it is no call, and one that
# stands in for an upstream in trouble does not hide that.

use strict;
use warnings;

use lib 't/lib';
use Test::Nginx::Socket 'no_plan';
use IapGuard::Test;

my ($GOOD, $SICK);

BEGIN {
    $GOOD = '{"status":0}';
    $SICK = '{"status":21005}';
}

sub whole {
    my ($status, $body, @fields) = @_;

    return join "\r\n", "HTTP/1.1 $status", @fields,
                'Content-Length: ' . length($body), '', $body;
}

use IapGuard::BreakerTest {
    '/200'  => [whole('200 OK', $GOOD)],
    '/sick' => [whole('200 OK', $SICK)],
    '/html' => [whole('200 OK', '<html>')],
    '/etag' => [whole('200 OK', $GOOD, 'ETag: "x"')],
    '/long' => [whole('200 OK', $GOOD, 'Retry-After: 600')],
    '/304'  => ["HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\n\r\n"],
    '/429'  => [whole('429 Too Many Requests', '', 'Retry-After: 100')],
    '/accel' => [whole('200 OK', '', 'X-Accel-Redirect: /b/sick')],
    '/500'  => [whole('500 Internal Server Error', '')],
    '/503'  => [whole('503 Service Unavailable', $GOOD)],
    '/reset' => ['reset'],
    '/hang' => ['hang'],
    '/late' => [\1, whole('200 OK', $SICK)],
    '/later' => [\2, whole('200 OK', $SICK)],
};

# a request whose answer nobody waits for; it is under way when this returns

my @asked;

sub ask {
    my ($path) = @_;

    push @asked, http_begin("GET $path HTTP/1.0\r\n\r\n");
    select undef, undef, undef, 0.1;

    return;
}

add_block_preprocessor(sub {
    my ($block) = @_;

    $block->set_value(http_config => <<'END' . ($block->http_config // ''));
    proxy_cache_path $TEST_NGINX_SERVER_ROOT/cache keys_zone=cache:1m;
END
});

run_tests();

__DATA__

=== TEST 1: cached: asked once, then never; in the cache it is read, too
--- config
    location ~ ^/cached(/.*) {
        iap_guard_breaker b;
        proxy_cache cache;
        proxy_cache_valid any 1m;
        add_header X-Cache $upstream_cache_status always;
        proxy_pass http://raw$1;
    }
--- request eval
[map { ("GET /cached/$_", "GET /cached/$_") } qw(200 sick html 500 reset)]
--- error_code eval
[(200) x 6, (500) x 2, (502) x 2]
--- response_headers eval
[("X-Cache: MISS", "X-Cache: HIT") x 5]
--- outcomes: success=1 retry=4 neutral=5
--- share: 0.8



=== TEST 2: stale, because the upstream fails: it has failed
--- config
    location = /stale {
        iap_guard_breaker b;
        proxy_cache cache;
        proxy_cache_key k1;
        proxy_cache_valid 200 1s;
        proxy_read_timeout 300ms;
        proxy_cache_use_stale error timeout http_500 http_503 http_429;
        add_header X-Cache $upstream_cache_status always;
        proxy_pass http://raw/$arg_to;
    }
--- init
main::http_raw("GET /stale?to=200 HTTP/1.0\r\n\r\n");
select undef, undef, undef, 2.1;
--- request eval
[map { "GET /stale?to=$_" } qw(reset hang 500 503)]
--- error_code eval
[(200) x 4]
--- response_headers eval
[("X-Cache: STALE") x 4]
--- no_http2
--- outcomes: success=1 retry=4
--- share: 0.8



=== TEST 3: stale, because of 429: on hold for the open time, for that answer's
Retry-After is gone
--- b: open=10s
--- config
    location = /stale {
        iap_guard_breaker b;
        proxy_cache cache;
        proxy_cache_key k2;
        proxy_cache_valid 200 1s;
        proxy_cache_use_stale http_429;
        add_header X-Cache $upstream_cache_status always;
        proxy_pass http://raw/$arg_to;
    }
--- init
main::http_raw("GET /stale?to=long HTTP/1.0\r\n\r\n");
select undef, undef, undef, 2.1;
--- request
GET /stale?to=429
--- response_headers
X-Cache: STALE
--- no_http2
--- outcomes: success=1 hold=1
--- shows: retry_after=10



=== TEST 4: stale while it is updated: by another request, in the background
--- config
    proxy_cache cache;
    proxy_cache_key k3;
    proxy_cache_valid 200 1s;
    proxy_cache_use_stale updating;
    add_header X-Cache $upstream_cache_status always;

    location = /stale { iap_guard_breaker b; proxy_pass http://raw/$arg_to; }
    location = /background {
        iap_guard_breaker c;
        proxy_cache_background_update on;
        proxy_pass http://raw/500;
    }
--- init
main::http_raw("GET /stale?to=200 HTTP/1.0\r\n\r\n");
select undef, undef, undef, 2.1;
main::ask("/stale?to=later");
main::http_raw("GET /stale?to=500 HTTP/1.0\r\n\r\n") =~ /X-Cache: UPDATING/
    or die "not stale\n";
--- request
GET /background
--- response_headers
X-Cache: UPDATING
--- no_http2
--- wait: 2.2
--- outcomes: success=1 retry=1 neutral=1
--- outcomes_c: neutral=1



=== TEST 5: stale while it is updated in the background, by nobody else
The update is a subrequest, and no call.
--- config
    proxy_cache cache;
    proxy_cache_key k4;
    proxy_cache_valid 200 1s;
    proxy_cache_use_stale updating;
    proxy_cache_background_update on;
    add_header X-Cache $upstream_cache_status always;

    location = /stale { iap_guard_breaker b; proxy_pass http://raw/$arg_to; }
--- init
main::http_raw("GET /stale?to=200 HTTP/1.0\r\n\r\n");
select undef, undef, undef, 2.1;
--- request
GET /stale?to=500
--- response_headers
X-Cache: STALE
--- no_http2
--- wait: 0.2
--- outcomes: success=1 neutral=1



=== TEST 6: revalidated: 304 for nginx, 200 for the client
--- config
    proxy_cache cache;
    proxy_cache_key k5;
    proxy_cache_valid 200 1s;
    proxy_cache_revalidate on;
    add_header X-Cache $upstream_cache_status always;

    location = /t { iap_guard_breaker c; proxy_pass http://raw/$arg_to; }
--- init
main::http_raw("GET /t?to=etag HTTP/1.0\r\n\r\n");
select undef, undef, undef, 2.1;
--- request
GET /t?to=304
--- response_headers
X-Cache: REVALIDATED
--- response_body chomp
{"status":0}
--- no_http2
--- outcomes_c: success=2



=== TEST 7: who waits for another one's answer to be cached does not call
It is not slow, however long that takes.
--- b: slow=200ms
--- config
    location = /locked {
        iap_guard_breaker b;
        proxy_cache cache;
        proxy_cache_valid 200 1m;
        proxy_cache_lock on;
        add_header X-Cache $upstream_cache_status always;
        proxy_pass http://raw/late;
    }
--- init
main::ask("/locked");
--- request
GET /locked
--- response_headers
X-Cache: HIT
--- no_http2
--- outcomes: retry=1 neutral=1
--- shows: calls=1 slow=1



=== TEST 8: a stale answer that leads to an upstream is not that one's
--- config
    location = /store {
        proxy_cache cache;
        proxy_cache_key accel;
        proxy_cache_valid 1s;
        proxy_ignore_headers X-Accel-Redirect;
        proxy_pass http://raw/accel;
    }
    location = /stale {
        proxy_cache cache;
        proxy_cache_key accel;
        proxy_cache_use_stale error;
        proxy_pass http://raw/reset;
    }
    location /b/ { iap_guard_breaker b; proxy_pass http://raw/; }
--- no_http2
--- init
main::http_raw("GET /store HTTP/1.0\r\n\r\n");
select undef, undef, undef, 2.1;
--- request
GET /stale
--- response_body chomp
{"status":21005}
--- outcomes: retry=1
--- share: 1



=== TEST 9: what goes into the cache is read out of its file, however it is sent
--- http_config
    sendfile on;
--- config
    location = /t {
        iap_guard_breaker b;
        proxy_cache cache;
        proxy_cache_valid 1m;
        proxy_pass http://raw/sick;
    }
--- request
GET /t
--- response_body chomp
{"status":21005}
--- outcomes: retry=1
--- share: 1
