# Refusals over HTTP/2, frame by frame: of requests whose body has not come,
# beside other streams, and of clients that leave.
#
# curl sees none of this, so the frames are made here; in every mode, for the
# server has a socket of its own.

use lib 't/lib';
use Test::Nginx::Socket 'no_plan';
use IapGuard::Test;
use IapGuard::Frames qw(frame head talk);

add_block_preprocessor(sub {
    my ($block) = @_;

    $block->set_value(http_config => <<'END');
    server {
        listen unix:$TEST_NGINX_HTML_DIR/h2.sock http2;

        location = /t {
            iap_guard g;
            iap_guard_user $http_x_user capacity=2 rate=1r/h missing=reject;
            iap_guard_answer limited 429 "limited" text/plain;
            alias $TEST_NGINX_HTML_DIR/t;
        }
        location = /free { return 200 "free"; }
    }
END

    $block->set_value(config => 'location /api/ { iap_guard_api read; }');
    $block->set_value(request => 'GET /api/guards/g');
    $block->set_value(user_files => ">>> t\npassed\n");
});

run_tests();

__DATA__

=== TEST 1: a body that has not come: refused at once, and the stream ended
The reset says "no error": the client need not send the rest.
--- init
Test::More::is(main::talk(
    [main::head(1, POST => '/t', 0, 'content-length' => 5),
     main::head(3, GET => '/free', 1)]),
    '1:bad_request 1!0 3:free', 'refused, and the next stream');
--- response_body_like: "error":1,



=== TEST 2: a body that comes after all does no harm
--- init
Test::More::is(main::talk(
    [main::head(1, POST => '/t', 0, 'content-length' => 5),
     main::frame(0, 1, 1, 'hello'),
     main::head(3, GET => '/free', 1)]),
    '1:bad_request 1!0 3:free', 'refused, and the next stream');
--- response_body_like: "error":1,



=== TEST 3: a body that came with the head
--- init
Test::More::like(main::talk(
    main::head(1, POST => '/t', 0, 'content-length' => 5)
    . main::frame(0, 1, 1, 'hello')
    . main::head(3, GET => '/free', 1)),
    qr/^(?=.*\b1:bad_request)(?=.*\b3:free)(?!.*goaway)/,
    'refused, and the next stream');
--- response_body_like: "error":1,



=== TEST 4: a large body, more than a window
--- init
Test::More::like(main::talk(
    [main::head(1, POST => '/t', 0)
     . join('', map { main::frame(0, 0, 1, 'x' x 16000) } 1 .. 4),
     main::head(3, GET => '/free', 1)]),
    qr/^(?=.*\b1:bad_request)(?=.*\b3:free)(?!.*goaway)/,
    'refused, and the next stream');
--- response_body_like: "error":1,



=== TEST 5: HEAD
--- init
Test::More::is(main::talk(
    [main::head(1, HEAD => '/t', 1), main::head(3, GET => '/free', 1)]),
    '1: 3:free', 'no body, and the next stream');
--- response_body_like: "error":1,



=== TEST 6: streams beside each other are decided one by one
--- init
my $answers = main::talk(join '',
    map { main::head($_ * 2 - 1, GET => '/t', 1, 'x-user' => 'a') } 1 .. 5);

Test::More::is(scalar(() = $answers =~ /:passed\n/g), 2, 'two pass');
Test::More::is(scalar(() = $answers =~ /:limited\b/g), 3, 'three do not');
--- response_body_like: "passed":2,"limited":3,



=== TEST 7: a client that resets its stream in the same moment
It was charged, and nothing else happens.
--- init
main::talk([main::head(1, POST => '/t', 0, 'x-user' => 'b',
                       'content-length' => 5)
            . main::frame(3, 0, 1, pack 'N', 8),
            main::head(3, POST => '/t', 0, 'content-length' => 5)
            . main::frame(3, 0, 3, pack 'N', 8)]);
--- response_body_like: "passed":1,.*"error":1,



=== TEST 8: a client that leaves with its refusals unread
--- init
main::talk(join('', map { main::head($_ * 2 - 1, POST => '/t', 0,
                                     'content-length' => 5) } 1 .. 50),
           close_after => 0, reset => 1);
--- response_body_like: "passed":0,.*"error":[1-9]
