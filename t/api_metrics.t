# GET metrics: the Prometheus text, and what is counted in it.

use strict;
use warnings;

use File::Temp ();

use lib 't/lib';
use Test::Nginx::Socket 'no_plan';
use IapGuard::Test;

add_block_preprocessor(sub {
    my ($block) = @_;

    $block->set_value('user_files', ">>> token\nopen-sesame\n");
    $block->set_value('config', '
    location /api/ {
        iap_guard_api write token_file=$TEST_NGINX_HTML_DIR/token;
    }
    location /t {
        iap_guard g;
        iap_guard_segment users=2 ban=1h window=1h address=$arg_ip;
        iap_guard_user $arg_u capacity=2 rate=1r/h;
        iap_guard_device $arg_d capacity=1 rate=1r/h missing=skip;
        iap_guard_bucket app_1 $arg_a capacity=1 rate=1r/h missing=skip dry_run=on;
        iap_guard_global rate=400r/d window=1d;
        empty_gif;
    }
    location /off {
        iap_guard off-guard;
        iap_guard_user $arg_u missing=reject;
        empty_gif;
    }
    ' . ($block->config // ''));
});


# what promtool says of a text; nothing if it accepts it

sub promtool {
    my ($text) = @_;

    my $file = File::Temp->new;
    print {$file} $text;
    close $file;

    my $said = `promtool check metrics < $file 2>&1`;

    return $? == 0 ? $said : "promtool ends with $?: $said";
}


# the names and labels of all samples, sorted, without their values

sub series {
    my ($text) = @_;
    return map { s/ \S+$//r } grep { !/^#/ } sort split /\n/, $text;
}


# samples that are not 0, apart from those of the zone

sub counted {
    my ($text) = @_;

    return CORE::join '', map { "$_\n" }
        grep { !/^#/ && !/ 0$/ && !/^iap_guard_zone_(?:size_)?bytes/ }
        split /\n/, $text;
}

sub metrics { return http_raw("GET /api/metrics HTTP/1.0\r\n\r\n") =~ s/^.*?\r\n\r\n//sr }

run_tests();

__DATA__

=== TEST 1: the content type is exact, for GET and HEAD
--- request eval
["GET /api/metrics", "HEAD /api/metrics"]
--- error_code eval
[200, 200]
--- response_headers eval
[("Content-Type: text/plain; version=0.0.4\nCache-Control: no-store") x 2]



=== TEST 2: the content type is the same with a charset and types of one's own
--- config
charset utf-8;
charset_types *;
default_type text/html;
--- request
GET /api/metrics
--- response_headers_like
Content-Type: text/plain; version=0\.0\.4(?:; charset=utf-8)?



=== TEST 3: promtool accepts the text, at first and after traffic
--- request eval
["GET /api/metrics", (map { "GET /t?u=$_&ip=10.0.0.1&d=1&a=1" } 1, 2, 1, 1, 3, 1),
 "GET /api/metrics"]
--- error_code_like eval
[("200|429") x 8]
--- response_body_filters eval
sub { $_[0] =~ /^# HELP/ ? main::promtool($_[0]) : "" }
--- response_body eval
[("") x 8]



=== TEST 4: every metric has its help and its type, once, before its samples
--- request
GET /api/metrics
--- response_body_filters eval
sub {
    my ($last, %seen, @wrong) = ("");
    foreach (CORE::split /\n/, $_[0]) {
        if (/^# HELP (\w+) \S/) {
            push @wrong, "twice: $1" if $seen{$1}++;
            $last = $1;
        } elsif (/^# TYPE (\w+) (counter|gauge|histogram)$/) {
            my ($name, $type) = ($1, $2);
            push @wrong, "type of $name after $last" if $name ne $last;
            push @wrong, "$name is a $type"
                if ($name =~ /_total$/ ? "counter" : "gauge") ne $type;
        } elsif (/^(\w+)(?:\{(?:\w+="[^"]*",?)*\})? \d+$/) {
            push @wrong, "$1 after $last" if $1 ne $last;
        } else {
            push @wrong, "odd: $_";
        }
    }
    push @wrong, "no end" if $_[0] !~ /\n$/;
    return CORE::join "\n", @wrong, CORE::sort keys %seen;
}
--- response_body chomp
iap_guard_bans
iap_guard_bans_total
iap_guard_dry_run_rejections_total
iap_guard_rejections_total
iap_guard_requests_total
iap_guard_zone_bytes
iap_guard_zone_full_total
iap_guard_zone_size_bytes



=== TEST 5: each verdict and each layer is counted in its place
--- request eval
["GET /t?u=1&ip=10.0.0.1&d=1&a=1",
 "GET /t?u=1&ip=10.0.0.1&a=1",
 "GET /t?u=1&ip=10.0.0.1",
 "GET /t?u=2&ip=10.0.0.2&d=1", "GET /t?u=3&ip=10.0.0.2&d=1",
 "GET /t?u=4&ip=10.0.0.1",
 "GET /t?u=5&ip=10.0.0.1",
 "GET /t?u=1&ip=10.0.0.1", "GET /t?u=1&ip=10.0.0.1",
 "GET /off", "GET /off?u=1",
 'PUT /api/guards/off-guard
{"mode":"off"}', "GET /off",
 'PUT /api/guards/off-guard
{"mode":"dry_run"}', "GET /off",
 "GET /api/metrics"]
--- more_headers
Authorization: Bearer open-sesame
--- error_code eval
[200, 200, 429, 429, 429, 200, 429, 429, 429, 400, 200, 200, 200, 200, 200, 200]
--- response_body_filters eval
sub { $_[0] =~ /^# HELP/ ? main::counted($_[0]) : "" }
--- response_body eval
[("") x 15, 'iap_guard_requests_total{guard="g",verdict="passed"} 2
iap_guard_requests_total{guard="g",verdict="limited"} 4
iap_guard_requests_total{guard="g",verdict="limited_dry_run"} 1
iap_guard_requests_total{guard="g",verdict="banned"} 2
iap_guard_requests_total{guard="off-guard",verdict="passed"} 1
iap_guard_requests_total{guard="off-guard",verdict="error"} 1
iap_guard_requests_total{guard="off-guard",verdict="error_dry_run"} 1
iap_guard_requests_total{guard="off-guard",verdict="off"} 1
iap_guard_rejections_total{guard="g",layer="ban"} 2
iap_guard_rejections_total{guard="g",layer="segment"} 1
iap_guard_rejections_total{guard="g",layer="user"} 1
iap_guard_rejections_total{guard="g",layer="device"} 2
iap_guard_rejections_total{guard="off-guard",layer="user"} 1
iap_guard_dry_run_rejections_total{guard="g",layer="app_1"} 1
iap_guard_dry_run_rejections_total{guard="off-guard",layer="user"} 1
iap_guard_bans_total{guard="g"} 1
iap_guard_bans{guard="g"} 1
']



=== TEST 6: what the API does is not counted as traffic
--- request eval
["GET /api/status", "GET /api/none", "DELETE /api/bans?guard=g", "GET /api/metrics"]
--- more_headers
Authorization: Bearer open-sesame
--- error_code eval
[200, 404, 200, 200]
--- response_body_filters eval
sub { $_[0] =~ /^# HELP/ ? main::counted($_[0]) : "" }
--- response_body eval
["", "", "", ""]



=== TEST 7: the number of series is the configuration's, not the traffic's
--- no_http2
--- init
    my @before = main::series(main::metrics());
    Test::More::cmp_ok(scalar @before, '>', 20, 'TEST 7: there are some');

    main::http_raw(join('', map {
        "GET /t?u=user$_&d=dev$_&a=app$_&ip=10.0." . ($_ % 7) . ".$_ "
        . "HTTP/1.1\r\nHost: x\r\n\r\n"
    } 1 .. 250) . "GET /end HTTP/1.0\r\n\r\n");

    foreach my $n (1 .. 20) {
        my $body = '{"guard":"g","layer":"user","key":"u' . $n . '","seconds":600}';
        main::http_raw("POST /api/bans HTTP/1.0\r\nAuthorization: Bearer open-sesame"
            . "\r\nContent-Length: " . length($body) . "\r\n\r\n$body");
    }

    my $metrics = main::metrics();
    my @after = main::series($metrics);
    Test::More::is(scalar @after, scalar @before, 'TEST 7: as many as before');
    Test::More::is("@after", "@before", 'TEST 7: and the same ones');
    Test::More::unlike($metrics, qr/user1|10\.0\.|dev1/, 'TEST 7: no identity');
    Test::More::like($metrics, qr/^iap_guard_bans\{guard="g"\} 20$/m,
        'TEST 7: bans are counted');
--- request
GET /api/metrics



=== TEST 8: bans in force fall when they are lifted, bans made do not
--- request eval
['POST /api/bans
{"guard":"g","layer":"user","key":"a","seconds":60}', 'POST /api/bans
{"guard":"g","layer":"user","key":"b","seconds":60}', "GET /api/metrics",
 "DELETE /api/bans?key=a", "GET /api/metrics"]
--- more_headers
Authorization: Bearer open-sesame
--- error_code eval
[201, 201, 200, 200, 200]
--- response_body_filters eval
sub { $_[0] =~ /^# HELP/ ? main::counted($_[0]) : "" }
--- response_body eval
["", "", 'iap_guard_bans_total{guard="g"} 2
iap_guard_bans{guard="g"} 2
', "", 'iap_guard_bans_total{guard="g"} 2
iap_guard_bans{guard="g"} 1
']



=== TEST 9: gzip leaves it what it is
--- config
location /zipped/ {
    gzip on;
    gzip_types *;
    gzip_min_length 1;
    gzip_proxied any;
    iap_guard_api read;
}
--- request
GET /zipped/metrics
--- more_headers
Accept-Encoding: gzip
--- response_headers
Content-Type: text/plain; version=0.0.4
Content-Encoding: gzip



=== TEST 10: many guards with the longest names, and all their layers
--- config eval
CORE::join "", map {
    my $guard = CORE::sprintf "%064d", $_;
    "location /many$_ { iap_guard $guard; iap_guard_user \$arg_u; "
    . CORE::join("", map { CORE::sprintf "iap_guard_bucket %032d \$arg_b "
        . "capacity=1 rate=1r/s;", $_ } 1 .. 23)
    . " empty_gif; }"
} 1 .. 40
--- request
GET /api/metrics
--- response_body_filters eval
sub { main::promtool($_[0]) . main::series($_[0]) }
--- response_body eval
# verdicts; layers of two metrics; bans of two; kinds of full; for each guard,
# those of the two small ones apart; and kinds of two
my $guard = 15 + 2 + 5;
40 * ($guard + 2 * 26) + ($guard + 2 * 6) + ($guard + 2 * 3) + 2 * 5



=== TEST 11: breakers: their states, changes and calls
--- http_config
    iap_guard_breaker first min=2 open=1h;
    iap_guard_breaker second min=1 open=1h inflight=1;
--- config
location /first/ {
    iap_guard_breaker first;
    proxy_pass http://127.0.0.1:$TEST_NGINX_SERVER_PORT/;
}
location /good { return 200; }
location /bad { return 500; }
location /business { return 404; }
--- no_http2
--- request eval
["GET /first/good", "GET /first/business", "GET /first/bad", "GET /first/bad",
 "GET /first/good", "GET /api/metrics",
 'PUT /api/breakers/first
{"mode":"forced-closed"}', 'PUT /api/breakers/second
{"mode":"forced-open"}', "GET /api/metrics"]
--- more_headers
Authorization: Bearer open-sesame
--- error_code eval
[200, 404, 500, 500, 503, 200, 200, 200, 200]
--- response_body_filters eval
sub { $_[0] =~ /^# HELP/ ? main::counted($_[0]) . main::promtool($_[0]) : "" }
--- response_body eval
[("") x 5, 'iap_guard_breaker_state{breaker="first"} 2
iap_guard_breaker_transitions_total{breaker="first",to="open"} 1
iap_guard_breaker_calls_total{breaker="first",outcome="success"} 1
iap_guard_breaker_calls_total{breaker="first",outcome="final"} 1
iap_guard_breaker_calls_total{breaker="first",outcome="retry"} 2
iap_guard_breaker_calls_total{breaker="first",outcome="cut"} 1
', "", "", 'iap_guard_breaker_state{breaker="second"} 2
iap_guard_breaker_transitions_total{breaker="first",to="open"} 1
iap_guard_breaker_calls_total{breaker="first",outcome="success"} 1
iap_guard_breaker_calls_total{breaker="first",outcome="final"} 1
iap_guard_breaker_calls_total{breaker="first",outcome="retry"} 2
iap_guard_breaker_calls_total{breaker="first",outcome="cut"} 1
']



=== TEST 12: three metrics of each breaker, and none without one
--- http_config eval
CORE::join "", map { "iap_guard_breaker " . CORE::sprintf("%064d", $_) . ";" } 1 .. 9
--- request
GET /api/metrics
--- response_body_filters eval
sub {
    return main::promtool($_[0])
        . CORE::scalar(grep { /^iap_guard_breaker_/ } main::series($_[0]));
}
--- response_body eval
9 * (1 + 3 + 10)
