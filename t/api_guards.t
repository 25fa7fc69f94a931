# PUT guards/NAME: the kill switch, in force in all workers at once.

use strict;
use warnings;

use IO::Socket::INET;

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
    add_header X-Verdict $iap_guard_verdict always;
    add_header X-Layer $iap_guard_layer always;
    add_header X-Pid $pid always;
    server {
        listen 127.0.0.1:$TEST_NGINX_STREAM_PORT reuseport;
        location /t {
            iap_guard g;
            iap_guard_user $arg_u capacity=1 rate=1r/h;
            empty_gif;
        }
    }
    ' . ($block->http_config // ''));
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
    location /dry {
        iap_guard dry dry_run=on;
        iap_guard_user $arg_u capacity=1 rate=1r/h;
        empty_gif;
    }
    ' . ($block->config // ''));
});


# the verdicts of 60 requests by new users, dealt out to both workers

sub verdicts {
    my ($prefix) = @_;
    my (%verdicts, %pids);

    foreach my $n (1 .. 60) {
        my $socket = IO::Socket::INET->new(
            PeerAddr => '127.0.0.1', PeerPort => $ENV{TEST_NGINX_STREAM_PORT},
            Timeout => 5) or die "can't connect: $@\n";

        print {$socket} "GET /t?u=$prefix HTTP/1.0\r\n\r\n";
        my $answer = do { local $/; readline $socket };

        $verdicts{$1}++ if $answer =~ /^X-Verdict: (\w+)/m;
        $pids{$1}++ if $answer =~ /^X-Pid: (\d+)/m;
    }

    return join(' ', map { "$_=$verdicts{$_}" } sort keys %verdicts)
        . ' by ' . keys(%pids);
}

sub put {
    my ($mode) = @_;
    my $body = "{\"mode\":$mode}";

    return http_raw("PUT /api/guards/g HTTP/1.0\r\n"
        . "Authorization: Bearer open-sesame\r\n"
        . 'Content-Length: ' . length($body) . "\r\n\r\n$body")
        =~ m{^HTTP/1.1 (\d+) } ? $1 : 'none';
}

run_tests();

__DATA__

=== TEST 1: off, dry_run, on, and null for what nginx.conf says
--- request eval
["GET /t?u=1", "GET /t?u=1",
 'PUT /api/guards/g
{"mode":"off"}', "GET /t?u=1", "GET /t?u=2", "GET /t?u=2",
 'PUT /api/guards/g
{"mode":"dry_run"}', "GET /t?u=1", "GET /t?u=3", "GET /t?u=3",
 'PUT /api/guards/g
{"mode":"on"}', "GET /t?u=1", "GET /t?u=3",
 'PUT /api/guards/g
{"mode":null}', "GET /t?u=1", "GET /t?u=4"]
--- more_headers
Authorization: Bearer open-sesame
--- error_code eval
[200, 429, 200, 200, 200, 200, 200, 200, 200, 200, 200, 429, 429, 200, 429, 200]
--- response_headers eval
["X-Verdict: passed", "X-Verdict: limited",
 "X-Verdict:", ("X-Verdict: off\nX-Layer:") x 3,
 "X-Verdict:", "X-Verdict: limited_dry_run\nX-Layer: user\nRetry-After:",
 "X-Verdict: passed", "X-Verdict: limited_dry_run",
 "X-Verdict:", "X-Verdict: limited", "X-Verdict: limited",
 "X-Verdict:", "X-Verdict: limited", "X-Verdict: passed"]
--- response_body_like eval
["", "", '"mode":"off","source":"api"', "", "", "",
 '"mode":"dry_run","source":"api"', "", "", "",
 '"mode":"on","source":"api"', "", "",
 '"mode":"on","source":"nginx.conf"', "", ""]



=== TEST 2: a guard that nginx.conf has in dry run
--- request eval
["GET /api/guards/dry", "GET /dry?u=1", "GET /dry?u=1",
 'PUT /api/guards/dry
{"mode":"on"}', "GET /dry?u=1",
 'PUT /api/guards/dry
{"mode":null}', "GET /dry?u=1"]
--- more_headers
Authorization: Bearer open-sesame
--- error_code eval
[200, 200, 200, 200, 429, 200, 200]
--- response_body_like eval
['"mode":"dry_run","source":"nginx.conf"', "", "",
 '"mode":"on","source":"api"', '"rate_limited"',
 '"mode":"dry_run","source":"nginx.conf"', ""]



=== TEST 3: in both workers at once
--- no_http2
--- init
    my @modes = (['"off"', 'off=60'], ['"dry_run"', 'limited_dry_run=59 passed=1'],
                 ['"on"', 'limited=59 passed=1'], ['"off"', 'off=60'],
                 ['null', 'limited=59 passed=1']);

    foreach my $n (0 .. $#modes) {
        my ($mode, $verdicts) = @{ $modes[$n] };
        Test::More::is(main::put($mode), 200, "TEST 3: put $mode");
        Test::More::is(main::verdicts("user$n"), "$verdicts by 2",
            "TEST 3: $mode in force at once");
    }
--- request
GET /api/guards/g
--- response_body_like: "passed":3,"limited":118,"limited_dry_run":59,.*"off":120\}



=== TEST 4: what is no mode changes nothing
--- request eval
['PUT /api/guards/g
{"mode":"dry_run"}',
 map({ "PUT /api/guards/g
$_" } '{}', '{"mode":"auto"}', '{"mode":"ON"}', '{"mode":""}', '{"mode":1}',
 '{"mode":true}', '{"mode":false}', '{"mode":["off"]}', '{"mode":{"a":1}}',
 '{"mode":"off","reason":"x"}', '{"Mode":"off"}', '{"mode":"nginx.conf"}',
 '{"mode":"off "}', '{"other":null}'), "GET /api/guards/g"]
--- more_headers
Authorization: Bearer open-sesame
--- error_code eval
[200, (400) x 14, 200]
--- response_body_like eval
['"mode":"dry_run"', ('^\{"error":"bad_request","message":"expected '
 . '\{\\\\"mode\\\\":') x 14, '"mode":"dry_run","source":"api"']



=== TEST 5: a guard that there is not, one's own zone name included
--- request eval
[map { "PUT /api/guards/$_
" . '{"mode":"off"}' } "none", "G", "gg", "g/", "iap"]
--- more_headers
Authorization: Bearer open-sesame
--- error_code eval
[(404) x 5]
--- response_body_like eval
[map { '^\{"error":"not_found","message":"no guard \\\\"' . $_ . '\\\\""\}$' }
 "none", "G", "gg", "g/", "iap"]



=== TEST 6: a change is in the log, with who asked
--- request
PUT /api/guards/g
{"mode":"off"}
--- more_headers
Authorization: Bearer open-sesame
--- error_log eval
qr/\[error\] .* iap_guard "g" is set to mode "off" through the API, client: 127\.0\.0\.1, /



=== TEST 7: guards lists all guards by name
--- request
GET /read/guards
--- response_body_like chomp
^\{"g":\{"guard":"g","mode":"on",.*\},"dry":\{"guard":"dry","mode":"dry_run",.*\}\}$|^\{"dry":.*"g":\{"guard":"g"



=== TEST 8: bans under dry run and off
a ban of the client's own address
--- request eval
['POST /api/bans
{"guard":"g","layer":"segment","key":"127.0.0.1","seconds":60}', "GET /t?u=1",
 'PUT /api/guards/g
{"mode":"dry_run"}', "GET /t?u=1",
 'PUT /api/guards/g
{"mode":"off"}', "GET /t?u=1",
 'PUT /api/guards/g
{"mode":null}', "GET /t?u=1", "GET /api/guards/g"]
--- more_headers
Authorization: Bearer open-sesame
--- error_code eval
[201, 429, 200, 200, 200, 200, 200, 429, 200]
--- response_headers eval
["", "X-Verdict: banned\nX-Layer: ban", "",
 "X-Verdict: banned_dry_run\nX-Layer: ban\nRetry-After:", "", "X-Verdict: off",
 "", "X-Verdict: banned", ""]
--- response_body_like eval
[("") x 8, '"banned":2,"banned_dry_run":1,.*"off":1\},'
 . '"rejections":\{"ban":2,.*"dry_run_rejections":\{"ban":1,']
