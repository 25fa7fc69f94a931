# A call that gets no answer, or not all of one: what the breaker takes it
# for, once for each request, however often nginx tried.

use strict;
use warnings;

use File::Temp qw(tempdir);
use IO::Socket::INET;

use lib 't/lib';
use Test::Nginx::Socket 'no_plan';
use IapGuard::Test;

use IapGuard::BreakerTest {
    '/reset'   => ['reset'],
    '/close'   => [],
    '/partial' => ["HTTP/1.1 200 OK\r\nContent-Ty", 'reset'],
    '/stuck'   => ["HTTP/1.1 200 OK\r\nContent-Ty", 'hang'],
    '/noise'   => ["220 mail.example.com ESMTP\r\n\r\n"],
    '/header'  => ["HTTP/1.1 200 OK\r\nno colon here\r\n\r\n"],
    '/big'     => ["HTTP/1.1 200 OK\r\nX-Big: " . 'x' x 10_000 . "\r\n\r\n"],
    '/hang'    => ['hang'],
    '/late'    => [\0.6, "HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n"
                         . '{"status":0}'],
    '/ok'      => ["HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n"
                   . '{"status":0}'],
    '/500'     => ["HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n"],
    '/length'  => ["HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"
                   . '{"status":0}'],
    '/length_reset' => ["HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"
                        . '{"status":0}', \0.05, 'reset'],
    '/length_hang' => ["HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"
                       . '{"status":0}', 'hang'],
    '/no_body' => ["HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", \0.05],
    '/chunks'  => ["HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                   . "c\r\n{\"status\":0}\r\n"],
    '/chunk'   => ["HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                   . "ff\r\n{\"status\":0}"],
    '/rubbish' => ["HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                   . "c\r\n{\"status\":0}\r\nzz\r\n"],
    '/slow_body' => ["HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n", \0.7,
                     '{"status":0}'],
    '/cut_500' => ["HTTP/1.1 500 Oops\r\nContent-Length: 100\r\n\r\nhalf"],
};


# a listener whose queue is full: connecting to it takes for ever

my ($full, @waiting);

$full = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 1)
    or die "can't listen: $@\n";
$ENV{TEST_NGINX_FULL_PORT} = $full->sockport;

push @waiting, IO::Socket::INET->new(
    PeerAddr => '127.0.0.1', PeerPort => $full->sockport, Blocking => 0)
    foreach 1 .. 8;


# a certificate that nobody has signed

my $folder = tempdir(CLEANUP => 1);

chmod 0755, $folder;
$ENV{TEST_NGINX_TLS} = $folder;
system('openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes '
       . "-keyout $folder/key -out $folder/cert -subj /CN=example.com -days 2 "
       . '2> /dev/null') == 0 or die "openssl failed\n";


# what comes back of a request that is not answered as a whole

sub raw_get {
    my ($path, %options) = @_;

    return http_raw("GET $path HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                    . "\r\n", %options);
}

add_block_preprocessor(sub {
    my ($block) = @_;
    my $buffering = defined $block->buffering ? $block->buffering : 'on';

    $block->set_value(http_config => ($block->http_config // '') . <<'END');
    server {
        listen unix:$TEST_NGINX_HTML_DIR/tls.sock ssl;
        ssl_certificate $TEST_NGINX_TLS/cert;
        ssl_certificate_key $TEST_NGINX_TLS/key;
        return 200 '{"status":0}';
    }
    server {
        listen unix:$TEST_NGINX_HTML_DIR/plain.sock;
        return 200 '{"status":0}';
    }
END

    $block->set_value(config => ($block->config // '') . <<"END");
    proxy_connect_timeout 300ms;
    proxy_read_timeout 300ms;
    proxy_http_version 1.1;

    location /b/ {
        iap_guard_breaker b;
        proxy_buffering $buffering;
        proxy_pass http://raw/;
    }
    location /c/ {
        iap_guard_breaker c;
        proxy_buffering $buffering;
        proxy_pass http://raw/;
    }
    location = /refused {
        iap_guard_breaker b;
        proxy_pass http://127.0.0.1:1;
    }
END
});

run_tests();

__DATA__

=== TEST 1: nobody listens
--- request
GET /refused
--- error_code: 502
--- outcomes: retry=1
--- share: 1



=== TEST 2: a connection that is not accepted
--- config
    location = /t {
        iap_guard_breaker b;
        proxy_pass http://127.0.0.1:$TEST_NGINX_FULL_PORT;
    }
--- request
GET /t
--- error_code: 504
--- outcomes: retry=1
--- share: 1



=== TEST 3: closed and reset before a header, or within it
--- request eval
[map { "GET /b/$_" } qw(reset close partial)]
--- error_code eval
[502, 502, 502]
--- outcomes: retry=3
--- share: 1



=== TEST 4: what is not HTTP, or too much of it
--- request eval
[map { "GET /b/$_" } qw(big header)]
--- error_code eval
[502, 502]
--- outcomes: retry=2
--- share: 1



=== TEST 5: what is not HTTP: for nginx an answer of HTTP/0.9, which has no status
--- no_http2
--- init
main::raw_get("/b/noise") =~ /^220 mail/ or die "no answer\n";
--- request
GET /api/breakers/b
--- outcomes: retry=1
--- share: 1



=== TEST 6: no answer in time, not even a header's end
--- request eval
[map { "GET /b/$_" } qw(hang stuck late)]
--- error_code eval
[504, 504, 504]
--- outcomes: retry=3
--- share: 1



=== TEST 7: a class of its own for each kind
--- http_config
    iap_guard_breaker d classify=d;
    iap_guard_classify d success timeout;
    iap_guard_classify d final reset;
    iap_guard_classify d redirect connect;
    iap_guard_classify d config local;
    iap_guard_classify d neutral cut;
--- config
    resolver 127.0.0.1:1 ipv6=off;
    resolver_timeout 100ms;

    location = /hang { iap_guard_breaker d; proxy_pass http://raw; }
    location = /reset { iap_guard_breaker d; proxy_pass http://raw; }
    location = /full {
        iap_guard_breaker d;
        proxy_pass http://127.0.0.1:$TEST_NGINX_FULL_PORT;
    }
    location = /none {
        iap_guard_breaker d;
        proxy_pass http://127.0.0.1:1;
    }
    location = /name {
        iap_guard_breaker d;
        set $name unknown.example;
        proxy_pass http://$name;
    }
    location = /cut { iap_guard_breaker d; proxy_pass http://raw/length; }
--- no_http2
--- init
main::raw_get("/cut");
--- request eval
[map { "GET /$_" } qw(hang reset full none name), "api/breakers/d"]
--- error_code eval
[504, 502, 504, 502, 502, 200]
--- response_body_like eval
[('') x 5, '"outcomes":\{"success":2,"final":1,"redirect":1,"retry":0,"hold":0,"config":0,"neutral":1,"local":1,']



=== TEST 8: a name that nobody knows is our own trouble
--- config
    resolver 127.0.0.1:1 ipv6=off;
    resolver_timeout 100ms;

    location = /t {
        iap_guard_breaker b;
        set $name unknown.example;
        proxy_pass http://$name;
    }
--- request
GET /t
--- error_code: 502
--- outcomes: local=1
--- share: 1



=== TEST 9: no resolver
--- config
    location = /t {
        iap_guard_breaker b;
        set $name unknown.example;
        proxy_pass http://$name;
    }
--- request
GET /t
--- error_code: 502
--- outcomes: local=1



=== TEST 10: a name that nobody knows, and a page in place of the error
--- config
    resolver 127.0.0.1:1 ipv6=off;
    resolver_timeout 100ms;

    location = /t {
        iap_guard_breaker b;
        set $name unknown.example;
        proxy_pass http://$name;
        error_page 502 =200 /page;
    }
    location = /page { return 200 "page"; }
--- request
GET /t
--- response_body chomp
page
--- outcomes: local=1
--- share: 1



=== TEST 11: an address that is none
--- config
    location = /port {
        iap_guard_breaker b;
        proxy_pass http://127.0.0.1:0$arg_none;
    }
    location = /scheme {
        iap_guard_breaker b;
        set $scheme_of gopher;
        proxy_pass $scheme_of://127.0.0.1/;
    }
--- request eval
["GET /port", "GET /scheme"]
--- error_code eval
[500, 500]
--- outcomes: local=2
--- share: 1



=== TEST 12: no socket, for it can't be bound
--- config
    location = /t {
        iap_guard_breaker b;
        proxy_bind 192.0.2.1;
        proxy_pass http://raw/ok;
    }
--- request
GET /t
--- error_code: 500
--- error_log eval
qr/\[crit\] .*bind\(192\.0\.2\.1\) failed/
--- outcomes: local=1
--- share: 1



=== TEST 13: TLS that works
--- config
    location = /t {
        iap_guard_breaker b;
        proxy_ssl_session_reuse off;    # nginx never frees those it keeps
        proxy_pass https://unix:$TEST_NGINX_HTML_DIR/tls.sock:/;
    }
--- request
GET /t
--- outcomes: success=1



=== TEST 14: a certificate that is not accepted looks like no connection
--- config
    location = /t {
        iap_guard_breaker b;
        proxy_ssl_verify on;
        proxy_ssl_trusted_certificate /etc/ssl/certs/ca-certificates.crt;
        proxy_ssl_session_reuse off;    # nginx never frees those it keeps
        proxy_pass https://unix:$TEST_NGINX_HTML_DIR/tls.sock:/;
    }
--- request
GET /t
--- error_code: 502
--- outcomes: retry=1
--- share: 1



=== TEST 15: the name of a certificate does not match
--- config
    location = /t {
        iap_guard_breaker b;
        proxy_ssl_verify on;
        proxy_ssl_trusted_certificate $TEST_NGINX_TLS/cert;
        proxy_ssl_name other.example;
        proxy_ssl_session_reuse off;    # nginx never frees those it keeps
        proxy_pass https://unix:$TEST_NGINX_HTML_DIR/tls.sock:/;
    }
--- request
GET /t
--- error_code: 502
--- outcomes: retry=1



=== TEST 16: a body that ends early
--- no_http2
--- init
main::raw_get("/b/$_") foreach qw(length length_reset length_hang no_body);
--- request
GET /api/breakers/b
--- outcomes: retry=4
--- share: 1



=== TEST 17: a body that ends early, not buffered
--- no_http2
--- buffering: off
--- init
main::raw_get("/b/$_") foreach qw(length length_reset length_hang no_body);
--- request
GET /api/breakers/b
--- outcomes: retry=4
--- share: 1



=== TEST 18: chunks that end early, though the JSON in them is whole
--- no_http2
--- init
main::raw_get("/b/$_") foreach qw(chunks chunk rubbish);
--- request
GET /api/breakers/b
--- outcomes: retry=3
--- share: 1



=== TEST 19: chunks that end early, not buffered
--- no_http2
--- buffering: off
--- init
main::raw_get("/b/$_") foreach qw(chunks chunk rubbish);
--- request
GET /api/breakers/b
--- outcomes: retry=3



=== TEST 20: a body that ends early, judged as HTTP
--- no_http2
--- init
main::raw_get("/c/$_") foreach qw(length chunks cut_500);
--- request
GET /api/breakers/c
--- outcomes_c: retry=3



=== TEST 21: several servers: one outcome, of the last that was tried
--- http_config
    upstream several {
        server 127.0.0.1:1 max_fails=0;
        server 127.0.0.1:$TEST_NGINX_FULL_PORT max_fails=0;
        server 127.0.0.1:$TEST_NGINX_RAW_PORT max_fails=0;
    }
--- config
    location = /ok {
        iap_guard_breaker b;
        proxy_pass http://several;
    }
--- request eval
[("GET /ok") x 6]
--- outcomes: success=6
--- share: 0



=== TEST 22: several servers, none of which answers
--- http_config
    upstream none {
        server 127.0.0.1:1 max_fails=0;
        server 127.0.0.1:2 max_fails=0;
        server 127.0.0.1:3 max_fails=0;
    }
--- config
    location = /none {
        iap_guard_breaker b;
        proxy_pass http://none;
    }
--- request eval
[("GET /none") x 2]
--- error_code eval
[502, 502]
--- outcomes: retry=2
--- share: 1



=== TEST 23: servers that answer 500, each is tried
--- http_config
    upstream several {
        server 127.0.0.1:$TEST_NGINX_RAW_PORT max_fails=0;
        server 127.0.0.1:$TEST_NGINX_RAW_PORT max_fails=0;
    }
--- config
    location = /500 {
        iap_guard_breaker b;
        proxy_next_upstream error timeout http_500;
        proxy_next_upstream_tries 2;
        proxy_pass http://several;
    }
--- request eval
["GET /500", "GET /b/_calls"]
--- error_code eval
[500, 200]
--- outcomes: retry=2
--- share: 1



=== TEST 24: no live upstreams
--- http_config
    upstream dead {
        server 127.0.0.1:1 max_fails=1 fail_timeout=1m;
        server 127.0.0.1:2 max_fails=1 fail_timeout=1m;
    }
--- config
    location = /dead {
        iap_guard_breaker b;
        proxy_pass http://dead;
    }
--- request eval
[("GET /dead") x 3]
--- error_code eval
[502, 502, 502]
--- outcomes: retry=3
--- share: 1



=== TEST 25: servers that nginx has marked down: no probe passes before they are
up again, and one does then
--- b: min=2 open=300ms probes=1
--- http_config
    upstream down {
        server 127.0.0.1:1 max_fails=1 fail_timeout=1s;
        server 127.0.0.1:$TEST_NGINX_RAW_PORT max_fails=1 fail_timeout=1s;
    }
--- config
    location /down/ {
        iap_guard_breaker b;
        proxy_pass http://down/;
    }
--- no_http2
--- init
my $get = sub {
    select undef, undef, undef, $_[1] if $_[1];
    return main::raw_get("/down/$_[0]") =~ m{^HTTP/1.1 (\d+)} ? $1 : 0;
};

Test::More::is($get->('reset'), 502, 'both fail');
Test::More::is($get->('ok'), 502, 'none is up: the breaker opens');
Test::More::is($get->('ok'), 503, 'it is open');
Test::More::is($get->('ok', 0.35), 502, 'a probe fails, for none is up');
Test::More::is($get->('ok'), 503, 'it is open again');
Test::More::is($get->('ok', 2.1), 200, 'a probe passes');
--- request
GET /down/ok
--- outcomes: retry=3 cut=2 success=2
--- share: 0



=== TEST 26: slow answers, and those that hang
--- b: slow=250ms
--- request eval
["GET /b/ok", "GET /b/hang"]
--- error_code eval
[200, 504]
--- outcomes: success=1 retry=1
--- shows: calls=2 slow=0.5



=== TEST 27: calls that hang are slow before they end
--- b: slow=100ms slow_ratio=100% min=2 open=1h
--- no_http2
--- init
our @hanging;

foreach (1, 2) {
    push @hanging, main::http_begin("GET /b/hang HTTP/1.0\r\n\r\n");
    select undef, undef, undef, 0.06;
}

select undef, undef, undef, 0.12;
--- request
GET /b/ok
--- error_code: 503
--- wait: 0.2
--- outcomes: cut=1 retry=2
--- state: open
--- shows: reason=slow slow=1 calls=2



=== TEST 28: an answer is not slow for its body
--- b: slow=400ms
--- config
    location = /t {
        iap_guard_breaker b;
        proxy_read_timeout 5s;
        proxy_pass http://raw/slow_body;
    }
--- request
GET /t
--- outcomes: success=1
--- shows: calls=1 slow=0



=== TEST 29: after a slow call, another one is not
--- b: slow=250ms
--- config
    location = /t {
        iap_guard_breaker b;
        proxy_pass http://raw/hang;
        error_page 504 = /b/ok;
    }
--- request
GET /t
--- error_code: 200
--- outcomes: retry=1 success=1
--- shows: calls=2 slow=0.5



=== TEST 30: FastCGI, uwsgi, SCGI, gRPC, memcached: nobody listens
--- config
    location = /fastcgi { iap_guard_breaker b; fastcgi_pass 127.0.0.1:1; }
    location = /uwsgi { iap_guard_breaker b; uwsgi_pass 127.0.0.1:1; }
    location = /scgi { iap_guard_breaker b; scgi_pass 127.0.0.1:1; }
    location = /grpc { iap_guard_breaker b; grpc_pass 127.0.0.1:1; }
    location = /memcached {
        iap_guard_breaker b;
        set $memcached_key x;
        memcached_pass 127.0.0.1:1;
    }
--- request eval
[map { "GET /$_" } qw(fastcgi uwsgi scgi grpc memcached)]
--- error_code eval
[(502) x 5]
--- outcomes: retry=5
--- share: 1
