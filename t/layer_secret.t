# iap_guard_key_secret: identities are known by their HMAC only.
#
# What an identity has become is what the API calls a ban of it.

use strict;
use warnings;

use Digest::SHA qw(hmac_sha256_base64 sha256_base64);

use lib 't/lib';
use Test::Nginx::Socket 'no_plan';
use IapGuard::Test;

add_block_preprocessor(sub {
    my ($block) = @_;

    $block->set_value('config', '
    add_header X-Layer $iap_guard_layer always;
    location /t {
        iap_guard g;
        iap_guard_user $http_x_u capacity=1 rate=1r/h;
        empty_gif;
    }
    location /api/ {
        iap_guard_api write token_file=$TEST_NGINX_HTML_DIR/token;
    }
    ');
    $block->set_value('user_files', ">>> token\nopen-sesame\n>>> secret\n"
        . ($block->secret // "0123456789abcdef\n"));
    $block->set_value('http_config',
        'iap_guard_key_secret $TEST_NGINX_HTML_DIR/secret;'
        . ($block->http_config // ''));
});


sub hashed {
    my ($identity, $secret) = @_;

    my $digest = defined $secret ? hmac_sha256_base64($identity, $secret)
                                 : sha256_base64($identity);

    return '~' . $digest =~ tr{+/}{-_}r;
}

run_tests();

__DATA__

=== TEST 1: identities count as ever
--- request eval
[("GET /t") x 7]
--- more_headers eval
["X-U: alice", "X-U: alice", "X-U: bob", "X-U: bob", "X-Nobody: 1",
 "X-Nobody: 1", "X-U: " . "x" x 500]
--- error_code eval
[200, 429, 200, 429, 200, 429, 200]



=== TEST 2: the key is the HMAC of the identity
--- no_http2
--- request eval
["POST /api/bans
" . '{"guard":"g","layer":"user","key":"alice","seconds":60}',
 "GET /t", "GET /t", "GET /api/bans"]
--- more_headers eval
["Authorization: Bearer open-sesame", "X-U: alice", "X-U: bob", ""]
--- error_code eval
[201, 429, 200, 200]
--- response_body_like eval
['"key":"' . quotemeta(main::hashed("alice", "0123456789abcdef")) . '"',
 '"banned"', "GIF",
 '"key":"' . quotemeta(main::hashed("alice", "0123456789abcdef")) . '"']



=== TEST 3: blanks and line ends around the secret are not the secret
--- secret eval
" \t0123456789abcdef\r\n\n"
--- no_http2
--- request eval
["POST /api/bans
" . '{"guard":"g","layer":"user","key":" alice ","seconds":60}',
 "GET /t", "GET /t"]
--- more_headers eval
["Authorization: Bearer open-sesame", "X-U: alice", "X-U: bob"]
--- error_code eval
[201, 429, 200]
--- response_body_like eval
['"key":"' . quotemeta(main::hashed("alice", "0123456789abcdef")) . '"',
 '"banned"', "GIF"]



=== TEST 4: another secret is another key
--- secret: other
--- no_http2
--- request eval
["POST /api/bans
" . '{"guard":"g","layer":"user","key":"alice","seconds":60}', "GET /t"]
--- more_headers eval
["Authorization: Bearer open-sesame", "X-U: alice"]
--- error_code eval
[201, 429]
--- response_body_like eval
['"key":"' . quotemeta(main::hashed("alice", "other")) . '"', '"banned"']



=== TEST 5: nobody takes on the key of an address, or of a hash
--- request eval
[("GET /t") x 6]
--- more_headers eval
["X-Nobody: 1", "X-U: \@127.0.0.1", "X-U: 127.0.0.1", "X-U: \@127.0.0.1",
 "X-U: alice", "X-U: " . main::hashed("alice", "0123456789abcdef")]
--- error_code eval
[200, 200, 200, 429, 200, 200]



=== TEST 6: no identity is in the log, nor in what the API says
--- no_http2
--- init
    main::http_raw("GET /t HTTP/1.0\r\nX-U: Jane-Roe\r\n\r\n") foreach 1, 2;
    my $body = '{"guard":"g","layer":"user","key":"Jane-Roe","seconds":60}';
    main::http_raw("POST /api/bans HTTP/1.0\r\nAuthorization: Bearer open-sesame"
        . "\r\nContent-Length: " . length($body) . "\r\n\r\n$body");
    my $lifted = main::http_raw("DELETE /api/bans?key=Jane-Roe HTTP/1.0\r\n"
        . "Authorization: Bearer open-sesame\r\n\r\n");
    Test::More::like($lifted, qr/"lifted":1/, 'TEST 6: lifted by its identity');
--- request
GET /api/status
--- response_body_unlike: Jane
--- no_error_log
bans Jane
ban of Jane
open-sesame
