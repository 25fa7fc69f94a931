# A client that leaves, at each stage of a call, or does not read what it gets:
# it proves nothing about the upstream, and keeps no permit.

use strict;
use warnings;

use IO::Socket::INET;

use lib 't/lib';
use Test::Nginx::Socket 'no_plan';
use IapGuard::Test;
use IapGuard::Frames qw(frame head talk DATA RST_STREAM END_STREAM);

my $LARGE;

BEGIN { $LARGE = 900_000 }

sub whole {
    my ($status, $body, @fields) = @_;

    return join "\r\n", "HTTP/1.1 $status", @fields,
                'Content-Length: ' . length($body), '', $body;
}

use IapGuard::BreakerTest {
    '/200'  => [whole('200 OK', '{"status":0}')],
    '/500'  => [whole('500 Oops', '')],
    '/hang' => ['hang'],
    '/stuck' => ["HTTP/1.1 200 OK\r\nContent-Ty", 'hang'],
    '/body' => ["HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{\"status\":0",
                'hang'],
    '/late' => [\0.3, whole('200 OK', '{"status":0}')],
    '/late_500' => [\0.3, whole('500 Oops', '')],
    '/late_sick' => [\0.3, whole('200 OK', '{"status":21005}')],
    '/large_sick' => [whole('200 OK', '{"status":21005,"x":"' . 'x' x $LARGE
                                      . '"}')],
    '/large' => [whole('200 OK', '{"status":0,"x":"' . 'x' x $LARGE . '"}')],
};


# a port that connecting to takes for ever, and one where names are asked for
# in vain

my ($full, $names, @waiting);

$full = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 1)
    or die "can't listen: $@\n";
$ENV{TEST_NGINX_FULL_PORT} = $full->sockport;

push @waiting, IO::Socket::INET->new(
    PeerAddr => '127.0.0.1', PeerPort => $full->sockport, Blocking => 0)
    foreach 1 .. 8;

$names = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Proto => 'udp')
    or die "can't listen: $@\n";
$ENV{TEST_NGINX_NAMES_PORT} = $names->sockport;


# over a socket, whose buffers are of a fixed size, and where all connections
# end at once

my $locations = <<'END';
    location /b/ { iap_guard_breaker b; proxy_pass http://raw/; }
    location /unbuffered/ {
        iap_guard_breaker b;
        proxy_buffering off;
        proxy_pass http://raw/;
    }
    location /memory/ {
        iap_guard_breaker b;
        proxy_max_temp_file_size 0;
        proxy_pass http://raw/;
    }
    location /goes_on/ {
        iap_guard_breaker b;
        proxy_ignore_client_abort on;
        proxy_read_timeout 400ms;
        proxy_pass http://raw/;
    }
    location = /connect {
        iap_guard_breaker b;
        proxy_pass http://127.0.0.1:$TEST_NGINX_FULL_PORT;
    }
    location = /several { iap_guard_breaker b; proxy_pass http://several; }
    location = /name {
        iap_guard_breaker b;
        resolver 127.0.0.1:$TEST_NGINX_NAMES_PORT ipv6=off;
        resolver_timeout 10s;
        set $name unknown.example;
        proxy_pass http://$name;
    }
END

add_block_preprocessor(sub {
    my ($block) = @_;
    my $send_timeout = defined $block->inflight ? '60s' : '300ms';

    $block->set_value(http_config => <<"END" . ($block->http_config // ''));
    upstream several {
        server 127.0.0.1:\$TEST_NGINX_FULL_PORT max_fails=0;
        server 127.0.0.1:\$TEST_NGINX_RAW_PORT max_fails=0;
    }
    proxy_connect_timeout 5s;
    server {
        listen unix:\$TEST_NGINX_HTML_DIR/left.sock sndbuf=64k;
        send_timeout $send_timeout;
        $locations
    }
    server {
        listen unix:\$TEST_NGINX_HTML_DIR/h2.sock http2 sndbuf=64k;
        send_timeout $send_timeout;
        $locations
    }
END
    $block->set_value(request => 'GET /api/breakers/b') if !$block->request;
});


# asks, waits for what comes in a tenth of a second, and leaves

sub leave {
    my ($path, %opt) = @_;

    return http_raw("GET $path HTTP/1.1\r\nHost: x\r\n\r\n",
                    unix => 'left.sock', close_after => 0.1, %opt);
}


# the same over HTTP/2: resets the stream

sub reset_stream {
    my ($path) = @_;

    return talk([head(1, GET => $path, END_STREAM), '',
                 frame(RST_STREAM, 0, 1, pack 'N', 8)], close_after => 0.1);
}


# asks, and reads nothing

my @unread;

sub unread {
    my ($path) = @_;

    push @unread, http_begin("GET $path HTTP/1.1\r\nHost: x\r\n\r\n",
                             unix => 'left.sock');
    return;
}

sub pause { return select undef, undef, undef, $_[0] }

run_tests();

__DATA__

=== TEST 1: while its body is read: nobody has been asked
--- init
main::http_raw("POST /b/200 HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf",
               unix => 'left.sock', close_after => 0.1);
--- outcomes:



=== TEST 2: while a connection is made, or a name is looked for
--- init
main::leave($_) foreach qw(/connect /several /name);
--- outcomes: neutral=3
--- share: 0



=== TEST 3: before the header has come, within it, within the body
--- init
main::leave("/b/$_") foreach qw(hang stuck body);
--- outcomes: neutral=3
--- share: 0



=== TEST 4: the same, not buffered
--- init
main::leave("/unbuffered/$_") foreach qw(hang stuck body);
--- outcomes: neutral=3
--- share: 0



=== TEST 5: with a reset
--- no_http2
--- init
main::http_raw("GET /$_ HTTP/1.1\r\nHost: x\r\n\r\n", close_after => 0.1,
               reset => 1)
    foreach qw(b/hang b/stuck b/body unbuffered/body);
--- config
    location /b/ { iap_guard_breaker b; proxy_pass http://raw/; }
    location /unbuffered/ {
        iap_guard_breaker b;
        proxy_buffering off;
        proxy_pass http://raw/;
    }
--- outcomes: neutral=4
--- share: 0



=== TEST 6: within an answer that comes
--- init
main::leave("/$_/large", close_after => 0) foreach qw(memory unbuffered);
main::pause(0.5);
--- outcomes: neutral=2
--- share: 0



=== TEST 7: a call that goes on counts, though its client has left
--- init
main::leave("/goes_on/$_") foreach qw(late late_500 late_sick hang);
main::pause(0.8);
--- outcomes: success=1 retry=3
--- share: 0.75



=== TEST 8: a client that does not read: no failure of the upstream
--- init
main::unread("/$_/large") foreach qw(memory unbuffered);
main::pause(1);
--- outcomes: neutral=2
--- shows: calls=0



=== TEST 9: where nginx takes the answer in, it keeps no permit that others want
--- b: inflight=1
--- init
main::unread("/b/large");
main::pause(0.2);
main::leave("/b/200") =~ / 200 OK/ or die "too many calls\n";
--- outcomes: success=2
--- share: 0



=== TEST 10: nor is a probe kept waiting
--- b: min=1 open=100ms probes=1
--- init
main::leave("/b/500");
main::pause(0.1);
main::unread("/b/large");
main::pause(0.2);
--- outcomes: retry=1 success=1
--- state: closed



=== TEST 11: where nginx does not take it in, a permit is kept
--- b: inflight=1
--- init
main::unread("/unbuffered/large");
main::pause(0.2);
main::leave("/b/200") =~ / 503 / or die "more calls than one\n";
--- outcomes: full=1
--- inflight: 1



=== TEST 12: HTTP/2: a stream that is reset, before the header, within it, within
the body
--- init
main::reset_stream("/$_")
    foreach qw(b/hang b/stuck b/body unbuffered/body connect name);
--- outcomes: neutral=6
--- share: 0



=== TEST 13: HTTP/2: a stream that is reset within its own body
--- init
main::talk([main::head(1, POST => '/b/200', 0, 'content-length' => 9),
            main::frame(main::DATA, 0, 1, 'half'),
            main::frame(main::RST_STREAM, 0, 1, pack 'N', 8)],
           close_after => 0.1);
--- outcomes:



=== TEST 14: HTTP/2: the client leaves, with several streams under way
--- init
main::talk(join('', map { main::head($_ * 2 - 1, GET => '/b/hang', 1) } 1 .. 9),
           close_after => 0.1);
--- outcomes: neutral=9



=== TEST 15: HTTP/2: a client that opens no window
--- b: inflight=9
--- init
main::talk(main::head(1, GET => '/b/large', 1)
           . main::head(3, GET => '/unbuffered/large', 1), close_after => 1);
--- outcomes: success=1 neutral=1
--- share: 0



=== TEST 16: HTTP/2: nothing goes on for a stream that was reset
--- init
main::reset_stream("/goes_on/late_500");
main::pause(0.6);
--- outcomes: neutral=1



=== TEST 17: a probe whose client leaves gives its place back
--- b: min=1 open=100ms probes=1
--- init
my $get = sub {
    main::http_raw("GET /b/$_[0] HTTP/1.0\r\n\r\n", unix => 'left.sock')
        =~ m{^HTTP/1.1 (\d+)} ? $1 : 0;
};

Test::More::is($get->(500), 500, 'it opens');
main::pause(0.2);

my $probe = main::http_begin("GET /b/hang HTTP/1.0\r\n\r\n",
                             unix => 'left.sock');
main::pause(0.1);
Test::More::is($get->(200), 503, 'a probe is under way');
close $probe;
main::pause(0.1);
Test::More::is($get->(200), 200, 'another one is let by');
--- outcomes: retry=1 cut=1 neutral=1 success=1



=== TEST 18: a call whose place nobody wants is judged when its client has all of it
--- init
my $client = main::http_begin("GET /b/large_sick HTTP/1.0\r\n\r\n",
                              unix => 'left.sock');
main::pause(0.2);
{ local $/; length readline $client > 900_000 or die "cut short\n" }
--- outcomes: retry=1
--- share: 1
