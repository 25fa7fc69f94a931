# Bans through the API: made, listed, in force, lifted.

use strict;
use warnings;

use JSON::PP qw(decode_json);

use lib 't/lib';
use Test::Nginx::Socket 'no_plan';
use IapGuard::Test;

add_block_preprocessor(sub {
    my ($block) = @_;

    $block->set_value('user_files', ">>> token\nopen-sesame\n");
    $block->set_value('more_headers',
        "Authorization: Bearer open-sesame\n") if !defined $block->more_headers;
    $block->set_value('config', '
    add_header X-Verdict $iap_guard_verdict always;
    add_header X-Layer $iap_guard_layer always;
    location /read/ {
        iap_guard_api read;
    }
    location /api/ {
        iap_guard_api write token_file=$TEST_NGINX_HTML_DIR/token;
    }
    location /t {
        iap_guard g;
        iap_guard_segment ipv4=24 ipv6=48 users=2 ban=1h window=1h
                          address=$arg_ip;
        iap_guard_user $arg_u;
        iap_guard_device $arg_d capacity=9 rate=1r/h;
        iap_guard_bucket app $arg_a exempt=$arg_e capacity=9 rate=1r/h;
        iap_guard_global rate=900r/d window=1d;
        empty_gif;
    }
    location /sleep {
        auth_basic off-limits;
        auth_basic_user_file none;
        auth_delay 1500ms;
    }
    location /other {
        iap_guard other;
        iap_guard_user $arg_u;
        empty_gif;
    }
    ' . ($block->config // ''));
});


# what to POST

sub ban {
    my ($layer, $key, $seconds, $guard) = @_;

    return "POST /api/bans\n" . JSON::PP->new->utf8->canonical->encode({
        guard => $guard // 'g', layer => $layer, key => $key,
        seconds => 0 + ($seconds // 60) });
}


# a list of bans, sorted: "guard layer key", one a line

sub list {
    my ($body) = @_;

    return $body if $body !~ /^\[/;

    return join '', sort map {
        die "odd seconds in $body\n" if $_->{seconds} !~ /^\d+$/;
        "$_->{guard} $_->{layer} $_->{key}\n"
    } @{ decode_json($body) };
}

run_tests();

__DATA__

=== TEST 1: made, listed, in force, lifted
--- request eval
[main::ban("segment", "10.1.0.0/16"), "GET /api/bans", "GET /read/bans",
 "GET /t?u=1&ip=10.1.2.3", "GET /t?u=1&ip=10.2.2.3",
 "DELETE /api/bans?key=10.1.0.0/16", "GET /api/bans", "GET /t?u=1&ip=10.1.2.3"]
--- error_code eval
[201, 200, 200, 429, 200, 200, 200, 200]
--- response_headers eval
["", "", "", "X-Verdict: banned\nX-Layer: ban", "X-Verdict: passed", "", "",
 "X-Verdict: passed"]
--- response_body_like eval
['^\{"guard":"g","layer":"segment","key":"10\.1\.0\.0/16","seconds":60\}\n$',
 ('^\[\{"guard":"g","layer":"segment","key":"10\.1\.0\.0/16","seconds":(60|5\d)\}\]\n$') x 2,
 '"error":"banned","layer":"ban","retry_after":(60|5\d),', "GIF",
 '^\{"lifted":1\}\n$', '^\[\]\n$', "GIF"]



=== TEST 2: prefixes of all kinds, as they are shown
--- request eval
[(map { main::ban("segment", $_) } "10.0.0.1", "10.0.0.2/32", "10.0.128.77/17",
  "10.255.255.255/9", "192.0.2.99/1", "2001:db8::1", "2001:DB8:1:2:3::/61",
  "2001:db8:ffff::/33", "::ffff:10.0.0.3", "fe80::1/128"), "GET /api/bans"]
--- error_code eval
[(201) x 10, 200]
--- response_body_filters eval
\&main::list
--- response_body_like eval
[(map { '"key":"' . quotemeta($_) . '"' } "10.0.0.1/32", "10.0.0.2/32",
  "10.0.128.0/17", "10.128.0.0/9", "128.0.0.0/1", "2001:db8::1/128",
  "2001:db8:1::/61", "2001:db8:8000::/33", "10.0.0.3/32", "fe80::1/128"),
 '^g segment 10\.0\.0\.1/32\ng segment 10\.0\.0\.2/32\ng segment 10\.0\.0\.3/32
g segment 10\.0\.128\.0/17\ng segment 10\.128\.0\.0/9\ng segment 128\.0\.0\.0/1
g segment 2001:db8:1::/61\ng segment 2001:db8:8000::/33
g segment 2001:db8::1/128\ng segment fe80::1/128\n$']



=== TEST 3: the whole prefix is banned, to its edges, and nothing beside it
--- request eval
[main::ban("segment", "10.0.128.0/17"), main::ban("segment", "192.0.2.77/32"),
 main::ban("segment", "2001:db8:8000::/33"),
 map { "GET /t?u=1&ip=$_" } "10.0.127.255", "10.0.128.0", "10.0.255.255",
 "10.1.0.0", "192.0.2.76", "192.0.2.77", "192.0.2.78", "::ffff:192.0.2.77",
 "2001:db8:7fff:ffff::1", "2001:db8:8000::1", "2001:db8:ffff:ffff::1",
 "2001:db9::1"]
--- error_code eval
[(201) x 3, 200, 429, 429, 200, 200, 429, 200, 429, 200, 429, 429, 200]



=== TEST 4: overlapping bans: the longest counts, lifting one leaves the others
--- request eval
[main::ban("segment", "10.0.0.0/8", 3000), main::ban("segment", "10.1.0.0/16", 60),
 main::ban("segment", "10.1.1.1/32", 600), "GET /t?u=1&ip=10.1.1.1",
 "DELETE /api/bans?key=10.0.0.0/8", "GET /t?u=1&ip=10.1.1.1",
 "GET /t?u=1&ip=10.2.1.1", "DELETE /api/bans?key=10.1.1.1",
 "GET /t?u=1&ip=10.1.1.1", "DELETE /api/bans?key=10.1.0.0/16",
 "GET /t?u=1&ip=10.1.1.1"]
--- error_code eval
[201, 201, 201, 429, 200, 429, 200, 200, 429, 200, 200]
--- response_headers_like eval
["", "", "", 'Retry-After: (?:3000|299\d)', "", 'Retry-After: (?:600|59\d)',
 "", "", 'Retry-After: (?:60|5\d)', "", ""]



=== TEST 5: identities: users, devices, values of buckets
each in its own layer only
--- request eval
[main::ban("user", "mallory"), main::ban("device", "phone"),
 main::ban("app", "1.0"),
 map({ "GET /t?$_" } "u=mallory&ip=10.0.0.1", "u=phone&ip=10.0.0.1",
    "u=alice&d=phone&ip=10.0.1.1", "u=alice&d=mallory&ip=10.0.1.1",
    "u=alice&a=1.0&ip=10.0.1.1", "u=alice&a=1.0&e=1&ip=10.0.1.1",
    "u=alice&a=1&ip=10.0.1.1"),
 "GET /other?u=mallory",
 "GET /api/bans"]
--- error_code eval
[201, 201, 201, 429, 200, 429, 200, 429, 200, 200, 200, 200]
--- response_headers eval
["", "", "", "X-Verdict: banned\nX-Layer: ban", "X-Verdict: passed",
 "X-Verdict: banned", "X-Verdict: passed", "X-Verdict: banned",
 "X-Verdict: passed", "X-Verdict: passed", "X-Verdict: passed", ""]
--- response_body_filters eval
\&main::list
--- response_body_like eval
[("") x 11, "^g app 1\\.0\ng device phone\ng user mallory\n\$"]



=== TEST 6: identities that are hashed, and lifted by what they were or are
--- request eval
my $long = "x" x 100;
my $hash = "~" . Digest::SHA::sha256_base64($long) =~ tr{+/}{-_}r;
[main::ban("user", $long), "GET /other?u=$long", "GET /t?u=$long&ip=10.0.0.1",
 "GET /api/bans", "DELETE /api/bans?key=$long", "GET /t?u=$long&ip=10.0.0.1",
 main::ban("user", $hash), "GET /t?u=$long&ip=10.0.0.1",
 "GET /t?u=$hash&ip=10.0.0.1", "DELETE /api/bans?key=$hash",
 "GET /t?u=$long&ip=10.0.0.1"]
--- error_code eval
[201, 200, 429, 200, 200, 200, 201, 429, 200, 200, 200]
--- response_body_filters eval
\&main::list
--- response_body_like eval
my $long = "x" x 100;
my $hash = "~" . Digest::SHA::sha256_base64($long) =~ tr{+/}{-_}r;
['"key":"' . $hash . '"', "", '"banned"', "^g user $hash\n\$",
 '"lifted":1', "", '"key":"' . $hash . '"', '"banned"', "", '"lifted":1', ""]



=== TEST 7: who has no identity, by the address that stands in
--- request eval
[main::ban("user", "\@127.0.0.1", 60, "other"), "GET /other", "GET /other?u=1",
 "GET /other?u=\@127.0.0.1", "DELETE /api/bans?key=%40127.0.0.1", "GET /other"]
--- error_code eval
[201, 429, 200, 200, 200, 200]



=== TEST 8: keys that are encoded: blanks, slashes, quotes, UTF-8, "+"
--- request eval
[(map { main::ban("user", $_, 60, "other") } 'a b', 'a/b', 'a"b', 'a\\b', 'a&b=c',
  "J\xfcrgen", 'a+b'),
 "GET /api/bans",
 (map { "DELETE /api/bans?guard=other&key=$_" } 'a%20b', 'a%2Fb', 'a%22b',
  'a%5Cb', 'a%26b%3Dc', 'J%C3%BCrgen', 'a%2Bb'), "GET /api/bans"]
--- error_code eval
[(201) x 7, 200, (200) x 8]
--- response_body_filters eval
\&main::list
--- response_body_like eval
['"key":"~\S{43}"', '"key":"a/b"', '"key":"a\\\\"b"', '"key":"a\\\\\\\\b"',
 '"key":"a&b=c"', '"key":"~\S{43}"', '"key":"a\+b"', '^(?:other user \S+\n){7}$',
 ('^\{"lifted":1\}$') x 7, '^$']



=== TEST 9: an IPv6 prefix, written and encoded in several ways
--- request eval
[map { (main::ban("segment", "2001:db8:1::/48"), "DELETE /api/bans?key=$_") }
 "2001:db8:1::/48", "2001%3Adb8%3A1%3A%3A%2F48", "2001:0DB8:0001:0::/48",
 "2001:db8:1:2:3::/48"]
--- error_code eval
[(201, 200) x 4]
--- response_body_like eval
[('"key":"2001:db8:1::/48"', '^\{"lifted":1\}$') x 4]



=== TEST 10: filters: each alone, and all together
With a log of bans a lift may pass once more over what was banned right after
it, until the next reading.
--- no_redis
--- request eval
my @all = (main::ban("segment", "10.0.0.0/24"), main::ban("segment", "10.0.1.0/24"),
    main::ban("user", "mallory"), main::ban("device", "mallory"),
    main::ban("user", "mallory", 60, "other"), main::ban("segment", "10.0.0.0/24",
    60, "other"));
[map { (@all, "DELETE /api/bans?$_", "GET /api/bans") } "guard=other",
 "layer=user", "key=mallory", "key=10.0.0.0/24", "guard=g&layer=segment",
 "guard=g&layer=user&key=mallory", "layer=segment&key=10.0.1.0/24",
 "guard=none", "guard=g&layer=app", "key=10.0.0.0/25", "key=10.0.0.0",
 "layer=ban", "guard=g&key=mallor"]
--- error_code_like eval
[("20[01]") x 104]
--- response_body_filters eval
\&main::list
--- response_body_like eval
my @all = ("g device mallory", "g segment 10.0.0.0/24", "g segment 10.0.1.0/24",
    "g user mallory", "other segment 10.0.0.0/24", "other user mallory");
[map {
    my $lifted = $_;
    my %gone = map { $_ => 1 } @$lifted;
    (("") x 6, '^\{"lifted":' . @$lifted . '\}$',
     "^" . CORE::join("", map { quotemeta("$all[$_]\n") }
                          grep { !$gone{$_} } 0 .. 5) . "\$")
} [4, 5], [3, 5], [0, 3, 5], [1, 4], [1, 2], [3], [2], [], [], [], [], [], []]



=== TEST 11: lifting all needs a filter
--- request eval
["DELETE /api/bans", "DELETE /api/bans?", "DELETE /api/bans?guard=",
 "DELETE /api/bans?other=1", "DELETE /api/bans?guard=&layer=&key="]
--- error_code eval
[(400) x 5]
--- response_body_like eval
[('"error":"bad_request"') x 5]



=== TEST 12: what is no ban
--- request eval
[(map { "POST /api/bans\n$_" }
  '{}', '{"guard":"g","layer":"user","key":"x"}',
  '{"layer":"user","key":"x","seconds":60}',
  '{"guard":"g","key":"x","seconds":60}',
  '{"guard":"g","layer":"user","seconds":60}',
  '{"guard":"g","layer":"user","key":"x","seconds":60,"more":1}',
  '{"guard":"g","layer":"user","key":"","seconds":60}',
  '{"guard":"g","layer":"user","key":" ","seconds":60}',
  '{"guard":"g","layer":"user","key":7,"seconds":60}',
  '{"guard":1,"layer":"user","key":"x","seconds":60}',
  '{"guard":"g","layer":null,"key":"x","seconds":60}',
  (map { '{"guard":"g","layer":"user","key":"x","seconds":' . $_ . '}' }
   '0', '-1', '1.5', '"60"', 'true', 'null', '31536001', '1e3'),
  (map { '{"guard":"g","layer":"segment","key":"' . $_ . '","seconds":60}' }
   'garbage', '10.0.0.0/33', '10.0.0.0/', '10.0.0.0/-1', '10.0.0.0/0',
   '10.0.0.0/08', '2001:db8::/129', '::/0', '10.0.0', '10.0.0.0/24/24')),
 (map { "POST /api/bans\n" . '{"guard":"g","layer":"' . $_ . '","key":"x","seconds":60}' }
  'global', 'ban', 'none', 'code', 'User'),
 "POST /api/bans\n" . '{"guard":"none","layer":"user","key":"x","seconds":60}',
 "GET /api/bans"]
--- error_code eval
[(400) x 29, (404) x 6, 200]
--- response_body_like eval
[('^\{"error":"bad_request","message":"\S') x 29,
 ('^\{"error":"not_found","message":"guard \\\\"g\\\\" has no layer') x 5,
 '"message":"no guard \\\\"none\\\\""', '^\[\]\n$']



=== TEST 13: a ban made again is prolonged, never shortened
--- request eval
[main::ban("user", "mallory", 600), main::ban("user", "mallory", 60),
 "GET /api/bans", main::ban("user", "mallory", 6000), "GET /api/bans",
 "GET /api/guards/g"]
--- error_code eval
[201, 200, 200, 200, 200, 200]
--- response_body_like eval
["", "", '^\[\{[^}]*"seconds":(600|59\d)\}\]', "",
 '^\[\{[^}]*"seconds":(6000|599\d)\}\]', '"bans":1,"bans_total":1\}$']



=== TEST 14: the longest and the shortest
--- request eval
[main::ban("user", "mallory", 31536000), main::ban("user", "trudy", 1),
 "GET /t?u=trudy&ip=10.0.0.1"]
--- error_code eval
[201, 201, 429]
--- response_headers eval
["", "", "Retry-After: 1"]



=== TEST 15: a ban that a segment has made, lifted: new users are let in again

# with a store: when it has come back from there that the ban is lifted, which
# takes half a second

--- request eval
[(map { "GET /t?u=$_&ip=10.0.0.$_" } 1, 2, 3, 1),
 "DELETE /api/bans?guard=g&layer=segment&key=10.0.0.0/24", "GET /sleep",
 (map { "GET /t?u=$_&ip=10.0.0.$_" } 4, 5, 6), "GET /api/guards/g"]
--- error_code eval
[200, 200, 429, 429, 200, 401, 200, 200, 429, 200]
--- response_headers eval
["", "", "X-Layer: segment", "X-Layer: ban", "", "", "X-Verdict: passed",
 "X-Verdict: passed", "X-Layer: segment", ""]
--- response_body_like eval
[("") x 4, '"lifted":1', ("") x 4, '"bans":1,"bans_total":2\}$']



=== TEST 16: lifted by guard alone, for IPv6 as well
--- request eval
[(map { "GET /t?u=$_&ip=2001:db8:1:$_\::1" } 1, 2, 3, 1),
 "DELETE /api/bans?guard=g",
 (map { "GET /t?u=$_&ip=2001:db8:1:$_\::1" } 4, 5, 6)]
--- error_code eval
[200, 200, 429, 429, 200, 200, 200, 429]



=== TEST 17: a location without segments knows bans of the client's address
--- request eval
[main::ban("segment", "127.0.0.0/8", 60, "other"), "GET /other?u=1",
 "GET /t?u=1&ip=10.0.0.1", "GET /t?u=1", "DELETE /api/bans?key=127.0.0.0/8",
 "GET /other?u=1"]
--- error_code eval
[201, 429, 200, 200, 200, 200]



=== TEST 18: made and lifted is in the log, with who asked
--- no_http2
--- init
    my $body = '{"guard":"g","layer":"segment","key":"10.1.2.3/16","seconds":60}';
    main::http_raw("POST /api/bans HTTP/1.0\r\nAuthorization: Bearer open-sesame"
        . "\r\nContent-Length: " . length($body) . "\r\n\r\n$body");
--- request
DELETE /api/bans?key=10.1.0.0/16
--- grep_error_log eval
qr/\[error\] .* through the API, client: 127\.0\.0\.1/
--- grep_error_log_out eval
qr/^\[error\] .* iap_guard "g" bans 10\.1\.0\.0\/16 in layer "segment" for 60 seconds through the API, client: 127\.0\.0\.1
\[error\] .* iap_guard "g" lifts the ban of 10\.1\.0\.0\/16 in layer "segment" through the API, client: 127\.0\.0\.1
$/



=== TEST 19: a table full of bans says so, and keeps those it has
--- http_config
iap_guard_zone small_for_bans 64k;
--- no_http2
--- init
    my (%codes, @made, $refusal);
    foreach my $n (1 .. 300) {
        my $body = '{"guard":"g","layer":"user","key":"u' . $n . '","seconds":600}';
        my $answer = main::http_raw("POST /api/bans HTTP/1.0\r\n"
            . "Authorization: Bearer open-sesame\r\nContent-Length: "
            . length($body) . "\r\n\r\n$body");
        my ($code) = $answer =~ m{^HTTP/1\.1 (\d+) };
        $codes{$code}++;
        push @made, $n if $code == 201;
        $refusal = $answer if $code == 503;
    }
    Test::More::is(join(' ', sort keys %codes), '201 503', 'TEST 19: some, not all');
    Test::More::like($refusal, qr/"error":"unavailable"/, 'TEST 19: said so');

    my $list = main::list(main::http_raw("GET /api/bans HTTP/1.0\r\n\r\n")
        =~ s/^.*?\r\n\r\n//sr);
    Test::More::is($list, join('', sort map { "g user u$_\n" } @made),
        'TEST 19: all that were made are in the list');

    my ($metrics) = main::http_raw("GET /api/metrics HTTP/1.0\r\n\r\n");
    my $full = 300 - @made;
    Test::More::like($metrics,
        qr/\niap_guard_zone_full_total\{guard="g",kind="bans"\} $full\n/,
        'TEST 19: counted');
--- request
GET /t?u=u1&ip=10.0.0.1
--- error_code: 429
--- response_headers
X-Verdict: banned
--- grep_error_log: is full
--- grep_error_log_out
is full



=== TEST 20: a ban holds for the guard's other locations, and other methods
--- config
location /more {
    iap_guard g;
    iap_guard_user $arg_u;
    empty_gif;
}
--- request eval
[main::ban("user", "mallory"), "GET /more?u=mallory", "HEAD /more?u=mallory",
 "GET /more?u=alice"]
--- error_code eval
[201, 429, 429, 200]
