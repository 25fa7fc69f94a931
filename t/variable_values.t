# $iap_guard_verdict, _layer, _retry_after and _store: in logs, headers and
# answers; empty before the decision and where there is none, and never
# cached so.

use lib 't/lib';
use Test::Nginx::Socket 'no_plan';
use IapGuard::Test;

add_block_preprocessor(sub {
    my ($block) = @_;

    my $guard = 'iap_guard g; '
                . 'iap_guard_user $http_x_user capacity=1 rate=1r/h;';

    (my $config = $block->config) =~ s/\bGUARD;/$guard/g;

    $block->set_value(config => <<'END' . $config);
    add_header X-All "<$iap_guard_verdict|$iap_guard_layer|$iap_guard_retry_after|$iap_guard_store>" always;
END

    # the block's name would be logged too, were it in the format

    $block->set_value(http_config => <<'END' . ($block->http_config // ''));
    log_format guard "log <$iap_guard_verdict|$iap_guard_layer|$iap_guard_retry_after|$iap_guard_store>";
    access_log $TEST_NGINX_SERVER_ROOT/logs/access.log guard;
END

    $block->set_value(more_headers => "X-User: a\n")
        if !defined $block->more_headers;

    $block->set_value(user_files => ($block->user_files // '') . <<'END');
>>> t
passed
>>> token
secret
END
});

run_tests();

__DATA__

=== TEST 1: passed and limited, in a header
--- config
    location = /t { GUARD; }
--- request eval
["GET /t", "GET /t"]
--- error_code eval
[200, 429]
--- response_headers_like eval
['X-All: <passed\|\|\|zone>', 'X-All: <limited\|user\|3[56]\d\d\|zone>']



=== TEST 2: passed, in the log
--- config
    location = /t { GUARD; }
--- request
GET /t
--- access_log
log <passed|-|-|zone>



=== TEST 3: limited, in the log
--- config
    location = /t { GUARD; }
--- init
IapGuard::Test::http_raw("GET /t HTTP/1.1\r\nHost: localhost\r\nX-User: a\r\n"
                         . "Connection: close\r\n\r\n");
--- no_http2
--- request
GET /t
--- error_code: 429
--- access_log eval
[qr/^log <passed\|-\|-\|zone>$/m, qr/^log <limited\|user\|3[56]\d\d\|zone>$/m]



=== TEST 4: banned, and the segment that banned
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
--- response_headers_like eval
['X-All: <passed\|\|\|zone>', 'X-All: <limited\|segment\|7[12]\d\d\|zone>',
 'X-All: <banned\|ban\|7[12]\d\d\|zone>']



=== TEST 5: banned, in the log
--- no_http2
--- config
    location = /t {
        iap_guard g;
        iap_guard_user $http_x_user;
        iap_guard_segment users=1 window=1h ban=2h;
    }
--- init
IapGuard::Test::http_raw("GET /t HTTP/1.1\r\nHost: localhost\r\nX-User: $_\r\n"
                         . "Connection: close\r\n\r\n") for qw(b c);
--- request
GET /t
--- error_code: 429
--- access_log eval
qr/^log <banned\|ban\|7[12]\d\d\|zone>$/m



=== TEST 6: error: a missing identity
--- config
    location = /t {
        iap_guard g;
        iap_guard_user $http_x_user;
        iap_guard_device $http_x_device missing=reject;
    }
--- request
GET /t
--- error_code: 400
--- response_headers_like
X-All: <error\|device\|\|zone>
--- access_log
log <error|device|-|zone>



=== TEST 7: off and dry run, through the API
--- config
    location = /t { GUARD; }
    location /api/ { iap_guard_api write token_file=$TEST_NGINX_HTML_DIR/token; }
--- request eval
["GET /t", "PUT /api/guards/g\n{\"mode\":\"off\"}", "GET /t",
 "PUT /api/guards/g\n{\"mode\":\"dry_run\"}", "GET /t",
 "PUT /api/guards/g\n{\"mode\":\"on\"}", "GET /t"]
--- more_headers
X-User: a
Authorization: Bearer secret
--- error_code eval
[200, 200, 200, 200, 200, 200, 429]
--- response_headers_like eval
['X-All: <passed\|\|\|zone>', 'X-All: <\|\|\|>', 'X-All: <off\|\|\|zone>', "",
 'X-All: <limited_dry_run\|user\|3[56]\d\d\|zone>', "",
 'X-All: <limited\|user\|3[56]\d\d\|zone>']



=== TEST 8: limited_dry_run of a guard
--- config
    location = /t {
        iap_guard g dry_run=on;
        iap_guard_user $http_x_user capacity=1 rate=1r/h;
    }
--- request eval
["GET /t", "GET /t"]
--- response_headers_like eval
['X-All: <passed\|\|\|zone>', 'X-All: <limited_dry_run\|user\|3[56]\d\d\|zone>']



=== TEST 9: limited_dry_run of a layer, and of the next one in earnest
--- config
    location = /t {
        iap_guard g;
        iap_guard_user $http_x_user capacity=1 rate=1r/h dry_run=on;
        iap_guard_bucket b $arg_b capacity=2 rate=1r/h;
    }
--- request eval
["GET /t?b=1", "GET /t?b=1", "GET /t?b=1"]
--- error_code eval
[200, 200, 429]
--- response_headers_like eval
['X-All: <passed\|\|\|zone>',
 'X-All: <limited_dry_run\|user\|\d*\|zone>',
 'X-All: <limited\|b\|3[56]\d\d\|zone>']



=== TEST 10: error_dry_run and banned_dry_run
--- config
    location = /e {
        iap_guard e dry_run=on;
        iap_guard_user $http_x_nobody missing=reject;
        alias $TEST_NGINX_HTML_DIR/t;
    }
    location = /b {
        iap_guard b;
        iap_guard_user $http_x_user;
        iap_guard_segment users=1 window=1h ban=2h;
        alias $TEST_NGINX_HTML_DIR/t;
    }
    location /api/ { iap_guard_api write token_file=$TEST_NGINX_HTML_DIR/token; }
--- request eval
["GET /e", "GET /b", "GET /b",
 "PUT /api/guards/b\n{\"mode\":\"dry_run\"}", "GET /b"]
--- more_headers eval
["", "X-User: a", "X-User: b", "Authorization: Bearer secret", "X-User: a"]
--- error_code eval
[200, 200, 429, 200, 200]
--- response_headers_like eval
['X-All: <error_dry_run\|user\|\|zone>', 'X-All: <passed.*',
 'X-All: <limited\|segment.*', "",
 'X-All: <banned_dry_run\|ban\|7[12]\d\d\|zone>']



=== TEST 11: read before the decision they are empty, and not cached so
--- config
    location = /t {
        set $before "[$iap_guard_verdict$iap_guard_layer$iap_guard_retry_after$iap_guard_store]";
        if ($iap_guard_verdict) { return 500; }
        GUARD;
        add_header X-Before $before always;
        add_header X-After "[$iap_guard_verdict]" always;
    }
--- request eval
["GET /t", "GET /t"]
--- error_code eval
[200, 429]
--- response_headers eval
["X-Before: []\nX-After: [passed]", "X-Before: []\nX-After: [limited]"]



=== TEST 12: a map of them is what it is after the decision, in the log
--- http_config
    map $iap_guard_verdict $refused {
        default 0;
        limited 1;
    }
    log_format mapped "mapped $refused";
--- config
    location = /t {
        iap_guard g;
        iap_guard_user $http_x_user missing=reject;
        iap_guard_bucket b $arg_b capacity=1 rate=1r/h missing=skip;
        access_log $TEST_NGINX_SERVER_ROOT/logs/access.log mapped if=$refused;
    }
--- request eval
["GET /t?b=1", "GET /t?b=2", "GET /t?b=1"]
--- error_code eval
[200, 200, 429]
--- response_body_filters eval
sub {
    my ($body) = @_;
    Time::HiRes::sleep(0.1);
    my $lines = grep { /^mapped 1$/ }
                @{ Test::Nginx::Util::access_log_data() };
    return "$lines logged";
}
--- response_body eval
["0 logged", "0 logged", "1 logged"]



=== TEST 13: nothing where no guard is in force
--- config
    location = /t { }
--- request
GET /t
--- response_headers
X-All: <|||>
--- access_log
log <-|-|-|->



=== TEST 14: nothing where the guard is off by configuration
--- config
    GUARD;
    location = /t { iap_guard off; }
--- request
GET /t
--- response_headers
X-All: <|||>
--- access_log
log <-|-|-|->



=== TEST 15: nothing when an access module refused
--- config
    location = /t {
        deny all;
        GUARD;
    }
--- request
GET /t
--- error_code: 403
--- response_headers
X-All: <|||>
--- access_log
log <-|-|-|->



=== TEST 16: nothing when an access module refused under satisfy any
--- config
    location = /t {
        satisfy any;
        deny all;
        GUARD;
    }
--- request
GET /t
--- error_code: 403
--- response_headers
X-All: <|||>



=== TEST 17: the error page of a refusal knows them
--- config
    location = /t {
        GUARD;
        error_page 429 = @sorry;
    }
    location @sorry {
        return 429 "$iap_guard_verdict|$iap_guard_layer|$iap_guard_retry_after|$iap_guard_store";
    }
--- request eval
["GET /t", "GET /t"]
--- error_code eval
[200, 429]
--- response_headers_like eval
['X-All: <passed\|\|\|zone>', 'X-All: <limited\|user\|3[56]\d\d\|zone>']
--- response_body_like eval
["passed", '^limited\|user\|3[56]\d\d\|zone$']



=== TEST 18: an error page that reads them before has nothing cached
A named location's "if" and "set", run before and after the refusal.
--- config
    set $seen "$iap_guard_verdict";

    location = /t {
        GUARD;
        error_page 429 /sorry;
    }
    location = /sorry {
        internal;
        set $seen "now $iap_guard_verdict";
        return 429 $seen;
    }
--- request eval
["GET /t", "GET /t"]
--- error_code eval
[200, 429]
--- response_body eval
["passed\n", "now limited"]



=== TEST 19: they go upstream with a request that passes
--- http_config
    server {
        listen unix:$TEST_NGINX_HTML_DIR/up.sock;
        access_log off;
        location / { return 200 "up $http_x_verdict\n"; }
    }
--- config
    location = /t {
        GUARD;
        proxy_set_header X-Verdict $iap_guard_verdict;
        proxy_pass http://unix:$TEST_NGINX_HTML_DIR/up.sock;
    }
--- request
GET /t
--- response_body
up passed



=== TEST 20: an internal redirect keeps them
--- config
    location = /r {
        GUARD;
        try_files /missing /t;
    }
--- request
GET /r
--- response_headers
X-All: <passed|||zone>
--- access_log
log <passed|-|-|zone>



=== TEST 21: each request of a connection has its own
--- no_http2
--- config
    location = /t { GUARD; }
    location = /free { return 200 "[$iap_guard_verdict]"; }
--- pipelined_requests eval
["GET /t", "GET /free", "GET /t", "GET /free"]
--- error_code eval
[200, 200, 429, 200]
--- response_headers_like eval
['X-All: <passed.*', 'X-All: <\|\|\|>', 'X-All: <limited.*', 'X-All: <\|\|\|>']



=== TEST 22: an answer of one's own and JSON tell what they tell
--- config
    location = /t {
        GUARD;
        iap_guard_answer limited 429 "$iap_guard_verdict|$iap_guard_layer|$iap_guard_retry_after|$iap_guard_store" text/plain;
    }
--- request eval
["GET /t", "GET /t"]
--- error_code eval
[200, 429]
--- response_body_like eval
["passed", '^limited\|user\|3[56]\d\d\|zone$']
