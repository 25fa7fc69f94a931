# Refusals over HTTP/2, frame by frame: of requests whose body has not come,
# beside other streams, and of clients that leave.
#
# curl sees none of this, so the frames are made here; in every mode, for the
# server has a socket of its own.

use lib 't/lib';
use Test::Nginx::Socket 'no_plan';
use IapGuard::Test;

use constant { DATA => 0, HEADERS => 1, RST_STREAM => 3, SETTINGS => 4,
               GOAWAY => 7 };

use constant { END_STREAM => 0x1, END_HEADERS => 0x4 };

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


sub frame {
    my ($type, $flags, $stream, $payload) = @_;

    return substr(pack('N', length $payload), 1)
           . pack('CCN', $type, $flags, $stream) . $payload;
}


# a request's head; nothing in it is compressed

sub head {
    my ($stream, $method, $path, $flags, %header) = @_;

    my $block = "\x02" . chr(length $method) . $method
                . "\x86"
                . "\x04" . chr(length $path) . $path
                . "\x01\x09localhost";

    foreach my $name (sort keys %header) {
        $block .= "\0" . chr(length $name) . $name
                  . chr(length $header{$name}) . $header{$name};
    }

    return frame(HEADERS, $flags | END_HEADERS, $stream, $block);
}


# sends frames, and tells what came back: "STREAM:body" for each stream that
# was answered to its end, "STREAM!code" for one that was reset

sub talk {
    my ($frames, %opt) = @_;

    my @pieces = ref $frames ? @$frames : ($frames);
    $pieces[0] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" . frame(SETTINGS, 0, 0, '')
                 . $pieces[0];

    my $answer = IapGuard::Test::http_raw(\@pieces, unix => 'h2.sock',
                                          close_after => 0.5, %opt);
    my (%body, @ends);

    while (length $answer >= 9) {
        my ($high, $low, $type, $flags, $stream)
            = unpack 'CnCCN', substr $answer, 0, 9, '';
        my $payload = substr $answer, 0, $high * 65536 + $low, '';

        $body{$stream} .= $payload if $type == DATA;

        push @ends, "$stream:" . ($body{$stream} // '')
            if ($type == DATA || $type == HEADERS) && $flags & END_STREAM;

        push @ends, "$stream!" . unpack 'N', $payload if $type == RST_STREAM;
        push @ends, 'goaway' if $type == GOAWAY;
    }

    return join ' ', map { s/\{"error":"(\w+)".*\}\n/$1/r } @ends;
}

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
