# What the log says of a breaker: one line for a change of its state, with why,
# and none for what changes nothing.

use strict;
use warnings;

use lib 't/lib';
use Test::Nginx::Socket 'no_plan';
use IapGuard::Test;

use IapGuard::BreakerTest {
    '/200'  => ["HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{\"status\":0}"],
    '/500'  => ["HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n"],
    '/late' => [\0.3, "HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n"
                      . '{"status":0}'],
};

add_block_preprocessor(sub {
    my ($block) = @_;

    $block->set_value(config => ($block->config // '') . <<'END');
    location /b/ { iap_guard_breaker b; proxy_pass http://raw/; }
END
});


# made before the block's own request, whose lines are looked at

sub get {
    return map {
        http_raw("GET $_ HTTP/1.0\r\n\r\n") =~ m{^HTTP/1.1 (\d+)} ? $1 : 0
    } @_;
}

run_tests();

__DATA__

=== TEST 1: a run of failures
--- no_http2
--- b: consecutive=3 open=1h
--- init
main::get('/b/500', '/b/500');
--- request
GET /b/500
--- error_code: 500
--- error_log eval
qr/\[error\] .*iap_guard breaker "b" is open: 3 failures in a row, last "http:5xx"; next probe in 3600 s$/m



=== TEST 2: slow calls
--- b: slow=100ms slow_ratio=50% min=1 open=1h
--- request
GET /b/late
--- error_log eval
qr/iap_guard breaker "b" is open: slow 100% of 1 call; next probe in 3600 s$/m



=== TEST 3: for less than a second
--- b: min=1 open=900ms
--- request
GET /b/500
--- error_code: 500
--- error_log eval
qr/iap_guard breaker "b" is open: failures 100% of 1 call, last "http:5xx"; next probe in 900 ms$/m



=== TEST 4: a share that is no whole number, of one decimal too
--- no_http2
--- b: min=16 failures=6.2% open=1h
--- init
main::get(('/b/200') x 15);
--- request
GET /b/500
--- error_code: 500
--- error_log eval
qr/breaker "b" is open: failures 6\.25% of 16 calls, last/



=== TEST 5: a decimal of nothing before it
--- no_http2
--- b: min=20 failures=1% open=1h
--- init
main::get(('/b/200') x 19);
--- request
GET /b/500
--- error_code: 500
--- error_log eval
qr/breaker "b" is open: failures 5% of 20 calls, last/



=== TEST 6: a probe that fails; and one probe that passes
--- no_http2
--- b: min=1 open=100ms probes=1
--- init
main::get('/b/500');
select undef, undef, undef, 0.2;
main::get('/b/500');
select undef, undef, undef, 0.2;
--- request
GET /b/200
--- error_log eval
[qr/breaker "b" is half-open$/m,
 qr/breaker "b" is closed: 1 probe passed$/m]



=== TEST 7: a probe that fails
--- no_http2
--- b: min=1 open=500ms probes=2
--- init
main::get('/b/500');
select undef, undef, undef, 0.6;
--- request
GET /b/500
--- error_code: 500
--- error_log eval
[qr/breaker "b" is half-open$/m,
 qr/breaker "b" is open: probe failed, last "http:5xx"; next probe in 500 ms$/m]



=== TEST 8: more than one probe
--- no_http2
--- b: min=1 open=100ms probes=2
--- init
main::get('/b/500');
select undef, undef, undef, 0.2;
main::get('/b/200');
--- request
GET /b/200
--- error_log eval
qr/breaker "b" is closed: 2 probes passed$/m



=== TEST 9: a rule that is long is cut
--- http_config eval
'iap_guard_breaker d min=1 classify=d open=1h; iap_guard_classify d retry '
. CORE::join('|', 'http:500', 500 .. 599) . ';'
--- config
    location /d/ { iap_guard_breaker d; proxy_pass http://raw/; }
--- request
GET /d/500
--- error_code: 500
--- error_log eval
qr/breaker "d" is open: failures 100% of 1 call, last "http:500\|500\|[\d|]{115}"; next/



=== TEST 10: what changes no state says nothing
--- b: min=9 open=1h
--- request eval
["GET /b/200", "GET /b/500", "GET /api/breakers/b", "GET /b/500"]
--- error_code eval
[200, 500, 200, 500]
--- no_error_log
iap_guard breaker



=== TEST 11: nor what is cut
--- b: mode=forced-open
--- request
GET /b/200
--- error_code: 503
--- no_error_log
iap_guard breaker
