# GET and PUT breakers/NAME: what is shown of a breaker, and its modes, which
# hold in all workers at once.

use strict;
use warnings;

use IO::Socket::INET;
use JSON::PP ();

use lib 't/lib';
use Test::Nginx::Socket 'no_plan';
use IapGuard::Test;

master_on();
workers(2);

# a port whose connections the kernel deals out to the workers

$ENV{TEST_NGINX_STREAM_PORT} ||= 1985;

add_block_preprocessor(sub {
    my ($block) = @_;

    $block->set_value('user_files', ">>> token\nopen-sesame\n");
    $block->set_value('http_config', '
    add_header X-Breaker $iap_guard_breaker always;
    add_header X-Pid $pid always;
    iap_guard_breaker b min=3 failures=60% open=1h probes=2 slow=1m slow_ratio=80%;
    iap_guard_breaker observed min=1 open=1h mode=observe;
    server {
        listen 127.0.0.1:$TEST_NGINX_STREAM_PORT reuseport;
        location /good { return 200 good; }
        location /bad { return 503; }
        location /t { iap_guard_breaker b;
            proxy_pass http://127.0.0.1:$TEST_NGINX_STREAM_PORT/good; }
    }
    ' . ($block->http_config // ''));
    $block->set_value('config', '
    location /read/ {
        iap_guard_api read;
    }
    location /api/ {
        iap_guard_api write token_file=$TEST_NGINX_HTML_DIR/token;
    }
    location /good {
        iap_guard_breaker b;
        proxy_pass http://127.0.0.1:$TEST_NGINX_STREAM_PORT;
    }
    location /bad {
        iap_guard_breaker b;
        proxy_pass http://127.0.0.1:$TEST_NGINX_STREAM_PORT;
    }
    location /observed/ {
        iap_guard_breaker observed;
        proxy_pass http://127.0.0.1:$TEST_NGINX_STREAM_PORT/;
    }
    ' . ($block->config // ''));
});


# members of a breaker, as text; times as whether they are those of now

sub shown {
    my ($json, @members) = @_;
    my $breaker = JSON::PP::decode_json($json);

    return CORE::join ' ', map {
        my $value = $breaker->{$_};
        $value = 'now' if /^(?:opened|changed)$/ && defined $value
                          && abs($value - time) < 60;

        # an hour, less what a slow machine took

        $value = 3600 if $_ eq 'retry_after' && defined $value
                         && $value > 3540 && $value <= 3600;
        "$_=" . (ref $value ? counted($value) : $value // 'null')
    } @members;
}

sub counted {
    my ($counts) = @_;
    return CORE::join ',', map { "$_:$counts->{$_}" }
                           grep { $counts->{$_} } sort keys %$counts;
}


# the statuses of 40 requests, dealt out to both workers

sub statuses {
    my (%statuses, %pids);

    foreach my $n (1 .. 40) {
        my $socket = IO::Socket::INET->new(
            PeerAddr => '127.0.0.1', PeerPort => $ENV{TEST_NGINX_STREAM_PORT},
            Timeout => 5) or die "can't connect: $@\n";

        print {$socket} "GET /t HTTP/1.0\r\n\r\n";
        my $answer = do { local $/; readline $socket };

        $statuses{$1}++ if $answer =~ m{^HTTP/1.1 (\d+)};
        $pids{$1}++ if $answer =~ /^X-Pid: (\d+)/m;
    }

    return join(' ', map { "$_=$statuses{$_}" } sort keys %statuses)
        . ' by ' . keys(%pids);
}

sub put {
    my ($mode) = @_;
    my $body = "{\"mode\":$mode}";

    return http_raw("PUT /api/breakers/b HTTP/1.0\r\n"
        . "Authorization: Bearer open-sesame\r\n"
        . 'Content-Length: ' . length($body) . "\r\n\r\n$body")
        =~ m{^HTTP/1.1 (\d+) } ? $1 : 'none';
}

run_tests();

__DATA__

=== TEST 1: before anything has happened
--- request
GET /read/breakers/b
--- response_headers
Content-Type: application/json
Cache-Control: no-store
--- response_body
{"name":"b","state":"closed","mode":"auto","source":"nginx.conf","failures":0.0,"slow":0.0,"calls":0,"inflight":0,"opened":null,"changed":null,"retry_after":null,"reason":"","transitions":{"closed":0,"half-open":0,"open":0},"outcomes":{"success":0,"final":0,"redirect":0,"retry":0,"hold":0,"config":0,"neutral":0,"local":0,"cut":0,"full":0}}



=== TEST 2: the list, by itself and in the status, is by name
--- request eval
["GET /read/breakers", "GET /read/status", "HEAD /read/breakers"]
--- response_body_filters eval
sub {
    my $json = $_[0] eq "" ? {} : JSON::PP::decode_json($_[0]);
    my $list = $json->{breakers} // $json;
    return CORE::join " ", map { "$_=$list->{$_}{name},$list->{$_}{mode}" }
                           CORE::sort keys %$list;
}
--- response_body eval
[("b=b,auto observed=observed,observe") x 2, ""]



=== TEST 3: opened by a share of failures, that is, of what has been counted
--- request eval
["GET /good", "GET /bad", "GET /read/breakers/b", "GET /bad",
 "GET /read/breakers/b", "GET /good", "GET /bad", "GET /read/breakers/b"]
--- error_code eval
[200, 503, 200, 503, 200, 503, 503, 200]
--- response_body_filters eval
sub {
    return $_[0] =~ /^\{"name"/
        ? main::shown($_[0], qw(state failures slow calls reason opened changed
                                retry_after transitions outcomes inflight))
        : "";
}
--- response_body eval
["", "",
 "state=closed failures=0.5 slow=0 calls=2 reason= opened=null changed=null "
 . "retry_after=null transitions= outcomes=retry:1,success:1 inflight=0", "",
 "state=open failures=0.6666 slow=0 calls=3 reason=failures opened=now "
 . "changed=now retry_after=3600 transitions=open:1 "
 . "outcomes=retry:2,success:1 inflight=0", "", "",
 "state=open failures=0.6666 slow=0 calls=3 reason=failures opened=now "
 . "changed=now retry_after=3600 transitions=open:1 "
 . "outcomes=cut:2,retry:2,success:1 inflight=0"]
--- response_headers eval
["X-Breaker: closed", "X-Breaker: closed", "X-Breaker:", "X-Breaker: closed",
 "X-Breaker:", "X-Breaker: open", "X-Breaker: open", "X-Breaker:"]



=== TEST 4: forced open, observed, forced closed, and as nginx.conf says
--- request eval
['PUT /api/breakers/b
{"mode":"forced-open"}', "GET /good",
 'PUT /api/breakers/b
{"mode":"observe"}', (map { "GET /bad" } 1 .. 3), "GET /good",
 "GET /read/breakers/b",
 'PUT /api/breakers/b
{"mode":"auto"}', "GET /good",
 'PUT /api/breakers/b
{"mode":"forced-closed"}', "GET /good",
 'PUT /api/breakers/b
{"mode":null}', "GET /good"]
--- more_headers
Authorization: Bearer open-sesame
--- error_code eval
[200, 503, 200, 503, 503, 503, 200, 200, 200, 503, 200, 200, 200, 503]
--- response_body_filters eval
sub {
    return $_[0] =~ /^\{"name"/
        ? main::shown($_[0], qw(state mode source reason retry_after)) : "";
}
--- response_body eval
["state=open mode=forced-open source=api reason= retry_after=null", "",
 "state=closed mode=observe source=api reason= retry_after=null", "", "", "", "",
 "state=open mode=observe source=api reason=failures retry_after=null",
 "state=open mode=auto source=api reason=failures retry_after=3600", "",
 "state=closed mode=forced-closed source=api reason=failures retry_after=null", "",
 "state=open mode=auto source=nginx.conf reason=failures retry_after=3600", ""]
--- response_headers eval
["X-Breaker:", "X-Breaker: open", "X-Breaker:", ("X-Breaker: closed") x 3,
 "X-Breaker: open", "X-Breaker:", "X-Breaker:", "X-Breaker: open",
 "X-Breaker:", "X-Breaker: closed", "X-Breaker:", "X-Breaker: open"]



=== TEST 5: an open breaker that is no longer forced open sends probes
--- request eval
["GET /bad", "GET /bad", "GET /bad",
 'PUT /api/breakers/b
{"mode":"forced-open"}',
 'PUT /api/breakers/b
{"mode":null}', "GET /good", "GET /good", "GET /good", "GET /read/breakers/b"]
--- more_headers
Authorization: Bearer open-sesame
--- error_code eval
[503, 503, 503, 200, 200, 200, 200, 200, 200]
--- response_body_filters eval
sub {
    return $_[0] =~ /^\{"name"/
        ? main::shown($_[0], qw(state source reason transitions)) : "";
}
--- response_body eval
["", "", "", "state=open source=api reason=failures transitions=open:1",
 "state=half-open source=nginx.conf reason=mode changed "
 . "transitions=half-open:1,open:1", "", "", "",
 "state=closed source=nginx.conf reason=probes passed "
 . "transitions=closed:1,half-open:1,open:1"]
--- response_headers eval
[("X-Breaker: closed") x 3, ("X-Breaker:") x 2, ("X-Breaker: half-open") x 2,
 "X-Breaker: closed", "X-Breaker:"]



=== TEST 6: in both workers at once
--- no_http2
--- init
    my @modes = (['"forced-open"', '503=40'], ['"observe"', '200=40'],
                 ['"forced-open"', '503=40'], ['"forced-closed"', '200=40'],
                 ['"forced-open"', '503=40'], ['null', '200=40']);

    foreach my $n (0 .. $#modes) {
        my ($mode, $statuses) = @{ $modes[$n] };
        Test::More::is(main::put($mode), 200, "TEST 6: put $mode");
        Test::More::is(main::statuses(), "$statuses by 2",
            "TEST 6: $mode in force at once");
    }
--- request
GET /api/breakers/b
--- response_body_like: "source":"nginx.conf",.*"success":120,.*"cut":120,



=== TEST 7: what is no mode changes nothing
--- request eval
['PUT /api/breakers/b
{"mode":"observe"}',
 map({ "PUT /api/breakers/b
$_" } '{}', '{"mode":"open"}', '{"mode":"closed"}', '{"mode":"half-open"}',
 '{"mode":"AUTO"}', '{"mode":""}', '{"mode":1}', '{"mode":true}',
 '{"mode":["auto"]}', '{"mode":{"a":1}}', '{"mode":"auto","reason":"x"}',
 '{"Mode":"auto"}', '{"mode":"nginx.conf"}', '{"mode":"auto "}',
 '{"mode":"auto\u0000"}', '{"state":"open"}', '{"other":null}'),
 "GET /api/breakers/b"]
--- more_headers
Authorization: Bearer open-sesame
--- error_code eval
[200, (400) x 17, 200]
--- response_body_like eval
['"mode":"observe"', ('^\{"error":"bad_request","message":"') x 17,
 '"mode":"observe","source":"api"']



=== TEST 8: a breaker that there is not
--- request eval
["GET /api/breakers/none", "GET /api/breakers/B", "GET /api/breakers/bb",
 "GET /api/breakers/b/", map { "PUT /api/breakers/$_
" . '{"mode":"auto"}' } "none", "B", "bb", "b/"]
--- more_headers
Authorization: Bearer open-sesame
--- error_code eval
[(404) x 8]
--- response_body_like eval
[(map { '^\{"error":"not_found","message":"no breaker \\\\"' . $_ . '\\\\""\}$' }
 "none", "B", "bb", "b/") x 2]



=== TEST 9: other methods are not allowed
--- request eval
["POST /api/breakers/b", "DELETE /api/breakers/b", "PATCH /api/breakers/b",
 "PUT /api/breakers", "DELETE /api/breakers"]
--- more_headers
Authorization: Bearer open-sesame
--- error_code eval
[(405) x 5]
--- response_headers eval
[("Allow: GET, HEAD, PUT") x 3, ("Allow: GET, HEAD") x 2]



=== TEST 10: a change needs write, and the token
--- no_http2
--- request eval
['PUT /read/breakers/b
{"mode":"forced-open"}', 'PUT /api/breakers/b
{"mode":"forced-open"}', "GET /good", "GET /read/breakers/b"]
--- error_code eval
[403, 401, 200, 200]
--- response_body_like eval
['"forbidden"', '"unauthorized"', 'good', '"source":"nginx.conf"']



=== TEST 11: a change is in the log, with who asked
--- request
PUT /api/breakers/b
{"mode":"forced-open"}
--- more_headers
Authorization: Bearer open-sesame
--- error_log eval
qr/\[error\] .* iap_guard breaker "b" is set to mode "forced-open" through the API, client: 127\.0\.0\.1, /



=== TEST 12: and that it is nginx.conf's again, with the probes that follow
--- init
    main::http_raw("GET /bad HTTP/1.0\r\n\r\n") foreach 1 .. 3;
    main::put('"forced-open"');
--- no_http2
--- request
PUT /api/breakers/b
{"mode":null}
--- more_headers
Authorization: Bearer open-sesame
--- error_log eval
[qr/\[error\] .* iap_guard breaker "b" is set to mode "nginx.conf" through the API, client: 127\.0\.0\.1, /,
 qr/\[error\] .* iap_guard breaker "b" is half-open: mode changed, client: 127\.0\.0\.1, /]



=== TEST 13: why it has opened is in the log, and until when
--- init
    main::http_raw("GET /$_ HTTP/1.0\r\n\r\n") foreach qw(good bad);
--- no_http2
--- request
GET /bad
--- error_code: 503
--- error_log eval
qr/\[error\] .*iap_guard breaker "b" is open: failures 66\.66% of 3 calls, last "http:5xx"; next probe in 3600 s$/m



=== TEST 14: what is only observed says so
--- request
GET /observed/bad
--- error_code: 503
--- error_log eval
qr/\[error\] .*iap_guard breaker "observed" is open, which is only observed: failures 100% of 1 call, last "http:5xx"/



=== TEST 15: a mode of nginx.conf
--- request eval
["GET /observed/bad", "GET /observed/good", "GET /read/breakers/observed"]
--- error_code eval
[503, 200, 200]
--- response_body_like eval
["503", "good",
 '"state":"open","mode":"observe","source":"nginx.conf","failures":0.5,'
 . '.*"calls":2,.*"retry_after":null']
--- response_headers eval
["X-Breaker: closed", "X-Breaker: open", "X-Breaker:"]



=== TEST 16: a location inherits none, an "if" and a "limit_except" keep it
--- config
location /outer {
    iap_guard_breaker b;
    proxy_pass http://127.0.0.1:$TEST_NGINX_STREAM_PORT/good;

    if ($arg_x) {
        set $y 1;
    }

    limit_except GET {
        allow all;
    }

    location /outer/none {
        proxy_pass http://127.0.0.1:$TEST_NGINX_STREAM_PORT/good;
    }

    location /outer/other {
        iap_guard_breaker observed;
        proxy_pass http://127.0.0.1:$TEST_NGINX_STREAM_PORT/good;
    }
}
--- request eval
['PUT /api/breakers/b
{"mode":"forced-open"}', "GET /outer", "GET /outer?x=1", "POST /outer
body", "GET /outer/none", "GET /outer/other"]
--- more_headers
Authorization: Bearer open-sesame
--- error_code eval
[200, 503, 503, 503, 200, 200]
--- response_headers eval
["X-Breaker:", ("X-Breaker: open") x 3, "X-Breaker:", "X-Breaker: closed"]
