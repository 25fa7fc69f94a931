# Retry-After, RateLimit-Policy and RateLimit: on every refusal that waiting
# helps against, once, in agreement with each other; on nothing else.

use lib 't/lib';
use Test::Nginx::Socket 'no_plan';
use IapGuard::Test;

add_block_preprocessor(sub {
    my ($block) = @_;

    $block->set_value(user_files => ">>> t\npassed\n");
});

# one refusal on a connection of its own, for what Test::Nginx's checks see
# only apart: header and body

sub refused {
    my (@headers) = @_;

    my $answer = IapGuard::Test::http_raw(join "\r\n",
        'GET /t HTTP/1.1', 'Host: localhost', 'Connection: close', @headers,
        '', '');

    my ($head, $body) = split /\r\n\r\n/, $answer, 2;
    my %header = map { /^([^:]+): (.*)/ ? (lc $1 => $2) : () }
                 split /\r\n/, $head;

    my ($json) = $body =~ /"retry_after":(\d+)/;
    my ($t) = ($header{ratelimit} // '') =~ /;t=(\d+)$/;

    return ($header{'retry-after'}, $t, $json);
}

run_tests();

__DATA__

=== TEST 1: a bucket
--- config
    location = /t {
        iap_guard g;
        iap_guard_user $http_x_user capacity=3 rate=3r/m;
    }
--- request eval
["GET /t", "GET /t", "GET /t", "GET /t"]
--- more_headers
X-User: a
--- error_code eval
[200, 200, 200, 429]
--- raw_response_headers_unlike eval
[("(?i)retry-after|ratelimit") x 3,
 '(?is)(retry-after|ratelimit|ratelimit-policy):.*\r\n\1:']
--- raw_response_headers_like eval
[("") x 3,
 '(?is)\r\nretry-after: (1\d|20)\r\n'
 . '.*ratelimit-policy: "user";q=3;w=60\r\n'
 . '.*ratelimit: "user";r=0;t=\1\r\n']



=== TEST 2: a segment
--- config
    location = /t {
        iap_guard g;
        iap_guard_user $http_x_user;
        iap_guard_segment users=1 window=1h;
    }
--- request eval
["GET /t", "GET /t"]
--- more_headers eval
["X-User: a", "X-User: b"]
--- error_code eval
[200, 429]
--- raw_response_headers_unlike eval
["(?i)retry-after|ratelimit",
 '(?is)(retry-after|ratelimit|ratelimit-policy):.*\r\n\1:']
--- raw_response_headers_like eval
["",
 '(?is)\r\nretry-after: ([23]\d\d\d)\r\n'
 . '.*ratelimit-policy: "segment";q=1;w=3600\r\n'
 . '.*ratelimit: "segment";r=0;t=\1\r\n']



=== TEST 3: the global window
--- config
    location = /t {
        iap_guard g;
        iap_guard_global rate=2r/d window=1d;
    }
--- request eval
["GET /t", "GET /t", "GET /t"]
--- error_code eval
[200, 200, 429]
--- raw_response_headers_unlike eval
[("(?i)retry-after|ratelimit") x 2,
 '(?is)(retry-after|ratelimit|ratelimit-policy):.*\r\n\1:']
--- raw_response_headers_like eval
["", "",
 '(?is)\r\nretry-after: ([1-9]\d*)\r\n'
 . '.*ratelimit-policy: "global";q=2;w=86400\r\n'
 . '.*ratelimit: "global";r=0;t=\1\r\n']



=== TEST 4: a ban
--- config
    location = /t {
        iap_guard g;
        iap_guard_user $http_x_user;
        iap_guard_segment users=1 window=1h ban=2h;
    }
--- request eval
["GET /t", "GET /t", "GET /t"]
--- more_headers eval
["X-User: a", "X-User: b", "X-User: a"]
--- error_code eval
[200, 429, 429]
--- raw_response_headers_unlike eval
["(?i)retry-after|ratelimit",
 ('(?is)(retry-after|ratelimit|ratelimit-policy):.*\r\n\1:') x 2]
--- raw_response_headers_like eval
["",
 '(?is)\r\nretry-after: (7[12]\d\d)\r\n.*ratelimit: "segment";r=0;t=\1\r\n',
 '(?is)\r\nretry-after: (7[12]\d\d)\r\n.*ratelimit: "ban";r=0;t=\1\r\n']



=== TEST 5: header, field and JSON tell the same
--- no_http2
--- config
    location = /t {
        iap_guard g;
        iap_guard_user $http_x_user;
        iap_guard_bucket b $http_x_bucket capacity=1 rate=1r/h missing=skip;
        iap_guard_segment users=2 window=1h ban=2h exempt=$http_x_exempt;
        iap_guard_global rate=3r/d window=1d;
    }
--- init
main::refused("X-User: a", "X-Bucket: a");

foreach my $headers (["X-User: a", "X-Bucket: a"],
                     ["X-User: b"],
                     ["X-User: c"],
                     ["X-User: a"],
                     ["X-User: d", "X-Exempt: 1"],
                     ["X-User: d", "X-Exempt: 1"])
{
    my ($header, $t, $json) = main::refused(@$headers);
    Test::More::is($t, $header, "RateLimit's t, @$headers");
    Test::More::is($json, $header, "JSON's retry_after, @$headers");
}
--- request
GET /t
--- more_headers
X-User: d
X-Exempt: 1
--- error_code: 429
--- response_body_like: "layer":"global"



=== TEST 6: never less than a second
--- no_http2
--- config
    location = /t {
        iap_guard g;
        iap_guard_user $http_x_user capacity=1 rate=20r/s;
    }
--- pipelined_requests eval
["GET /t", "GET /t"]
--- more_headers
X-User: a
--- error_code eval
[200, 429]
--- response_headers eval
["", "Retry-After: 1"]



=== TEST 7: who waits as told gets through
--- no_http2
--- config
    location = /t {
        iap_guard g;
        iap_guard_user $http_x_user capacity=1 rate=1r/s;
    }
--- init
IapGuard::Test::http_raw("GET /t HTTP/1.1\r\nHost: localhost\r\nX-User: a\r\n"
                         . "Connection: close\r\n\r\n");
my ($header) = main::refused("X-User: a");
Test::More::is($header, 1, "one second");
Time::HiRes::sleep(1.05);
--- request
GET /t
--- more_headers
X-User: a
--- error_code: 200



=== TEST 8: the global window sends not everybody back at once
Ten refusals are spread over more than the time that they take; none tells
more than half as much again as the longest wait.
--- config
    location = /t {
        iap_guard g;
        iap_guard_global rate=1r/d window=1d;
    }
--- request eval
[("GET /t") x 11]
--- error_code eval
[200, (429) x 10]
--- response_body_filters eval
sub {
    my ($seconds) = $_[0] =~ /"retry_after":(\d+)/;
    return "passed" if !defined $seconds;
    return "out of bounds: $seconds" if $seconds < 1 || $seconds > 129_600;

    @main::told = sort { $a <=> $b } @main::told, $seconds;
    return "good" if @main::told < 10;
    return $main::told[-1] - $main::told[0] > 20 ? "spread" : "@main::told";
}
--- response_body eval
["passed", ("good") x 9, "spread"]



=== TEST 9: a bucket is honest to the second: no jitter
--- config
    location = /t {
        iap_guard g;
        iap_guard_user $http_x_user capacity=1 rate=1r/h;
    }
--- request eval
[("GET /t") x 6]
--- more_headers
X-User: a
--- error_code eval
[200, (429) x 5]
--- response_headers_like eval
["", ('Retry-After: 3600|359\d') x 5]



=== TEST 10: what would have been refused in dry run has none of them
--- config
    location = /t {
        iap_guard g dry_run=on;
        iap_guard_user $http_x_user capacity=1 rate=1r/h;
        add_header X-Verdict $iap_guard_verdict always;
    }
--- request eval
["GET /t", "GET /t"]
--- more_headers
X-User: a
--- response_headers eval
["X-Verdict: passed", "X-Verdict: limited_dry_run"]
--- raw_response_headers_unlike eval
["(?i)retry-after|ratelimit", "(?i)retry-after|ratelimit"]



=== TEST 11: an upstream's own fields are left alone on a request that passes
--- http_config
    server {
        listen unix:$TEST_NGINX_HTML_DIR/up.sock;
        add_header Retry-After 42 always;
        add_header RateLimit "\"theirs\";r=1" always;
        location / { return 429 "theirs\n"; }
    }
--- config
    location = /t {
        iap_guard g;
        iap_guard_user $http_x_user capacity=1 rate=1r/h;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock;
    }
--- request
GET /t
--- more_headers
X-User: a
--- error_code: 429
--- response_headers
Retry-After: 42
RateLimit: "theirs";r=1
--- raw_response_headers_unlike: (?is)ratelimit-policy|retry-after.*retry-after
--- response_body
theirs



=== TEST 12: an error page's own fields are kept, and no others put beside them
--- http_config
    server {
        listen unix:$TEST_NGINX_HTML_DIR/up.sock;
        add_header Retry-After 42 always;
        add_header RateLimit "\"theirs\";r=1" always;
        location / { return 429 "theirs\n"; }
    }
--- config
    location = /t {
        iap_guard g;
        iap_guard_user $http_x_user missing=address capacity=1 rate=1r/h;
        error_page 429 = @up;
    }
    location @up { proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock; }
--- request eval
["GET /t", "GET /t"]
--- error_code eval
[200, 429]
--- response_headers eval
["", "Retry-After: 42\nRateLimit: \"theirs\";r=1"]
--- raw_response_headers_unlike eval
["(?i)retry-after|ratelimit",
 "(?is)ratelimit-policy|retry-after:.*retry-after:|ratelimit:.*ratelimit:"]



=== TEST 13: add_header of the location goes with a refusal as nginx says
--- config
    location = /t {
        iap_guard g;
        iap_guard_user $http_x_user capacity=1 rate=1r/h;
        add_header X-Always yes always;
        add_header X-Success yes;
    }
--- request eval
["GET /t", "GET /t"]
--- more_headers
X-User: a
--- error_code eval
[200, 429]
--- response_headers eval
["X-Always: yes\nX-Success: yes", "X-Always: yes\n!X-Success"]



=== TEST 14: a mode of the kill switch: off has none of them
--- config
    location = /t {
        iap_guard g;
        iap_guard_user $http_x_user capacity=1 rate=1r/h;
        add_header X-Verdict $iap_guard_verdict always;
    }
    location /api/ { iap_guard_api write token_file=$TEST_NGINX_HTML_DIR/t; }
--- request eval
["GET /t", "GET /t", "PUT /api/guards/g\n{\"mode\":\"off\"}", "GET /t"]
--- more_headers
X-User: a
Authorization: Bearer passed
--- error_code eval
[200, 429, 200, 200]
--- raw_response_headers_unlike eval
["(?i)retry-after", "(?i)x-nothing", "(?i)retry-after", "(?i)retry-after"]
--- response_headers eval
["X-Verdict: passed", "X-Verdict: limited", "", "X-Verdict: off"]
