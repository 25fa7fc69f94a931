# What servers answer, and what is made of it.

use strict;
use warnings;

use IO::Socket::INET;
use Test::More;

use CurlTest;


test methods => sub {
    my $server = server('/a' => [answer(200, '{"status":0}'), 'keep']);
    my $nginx  = nginx();
    my $url    = 'http://127.0.0.1:' . $server->port . '/a';
    my ($before) = $nginx->stat;

    foreach my $method (qw(POST GET PUT DELETE PATCH)) {
        my $done = $nginx->call(1, $method, $url, 'data={"a":1}');
        is "$done->{transport} $done->{status} $done->{len}", 'ok 200 12',
           "$method with a body";
    }

    my $done = $nginx->call(1, 'GET', $url);
    is "$done->{transport} $done->{status} $done->{len}", 'ok 200 12',
       "GET";
    $done = $nginx->call(1, 'HEAD', $url);
    is "$done->{transport} $done->{status} $done->{len}", 'ok 200 0',
       "HEAD";

    my ($free, $calls) = $nginx->stat;
    is $calls, 0, "nothing is left";
    is $free, $before, "idle connections take none of nginx's";
    ends_well($nginx);
};


# what is sent, byte for byte

test request => sub {
    my $listener = IO::Socket::INET->new(LocalAddr => '127.0.0.1',
        Listen => 5, Proto => 'tcp') or die "listen: $!\n";
    my $port  = $listener->sockport;
    my $nginx = nginx();

    local $ENV{http_proxy} = 'http://127.0.0.1:9';

    $nginx->tell("send 1 POST http://127.0.0.1:$port/a/../b?c=d%20e "
                 . 'data={"receipt-data":"x"} header=Content-Type:%20text/json '
                 . 'header=X-Empty:%20 header=X-Two:%20a%20b');

    my $text = request_of($listener, answer(200, 'ok'));

    like $text, qr{^POST /a/\.\./b\?c=d%20e HTTP/1\.1\r\n},
         'method and path as they are';
    like $text, qr{^Host: 127\.0\.0\.1:$port\r$}m, 'the host of the URL';
    like $text, qr{^Content-Type: text/json\r$}m, 'the type that was given';
    like $text, qr{^X-Two: a b\r$}m, 'a field';
    like $text, qr{^X-Empty:\r$}m, 'one that is empty';
    like $text, qr/\r\n\r\n\{"receipt-data":"x"\}\z/, 'the body';
    unlike $text, qr{^(?:Expect|Accept-Encoding|User-Agent|Cookie):}mi,
           'nothing that nobody asked for';
    is $nginx->ended(1)->{status}, 200, 'answered';

    $nginx->tell("send 2 POST http://127.0.0.1:$port/ body=200000");
    $text = request_of($listener, answer(200, 'ok'));
    like $text, qr{^Content-Length: 200000\r$}m, 'a long one';
    unlike $text, qr{^(?:Expect|Content-Type):}mi,
           'waits for no leave, and has no type';
    is $nginx->ended(2)->{status}, 200, 'answered, too';

    $nginx->tell("send 3 PUT http://127.0.0.1:$port/");
    like request_of($listener, answer(200, 'ok')),
         qr{^PUT / .*^Content-Length: 0\r$}ms, 'an empty body has a length';

    $nginx->tell("send 4 DELETE http://u:p\@127.0.0.1:$port/");
    like request_of($listener, answer(200, 'ok')),
         qr{^Authorization: Basic dTpw\r$}m, 'a user in the URL';
    $nginx->ended($_) foreach 3, 4;

    ends_well($nginx);
};


sub request_of {
    my ($listener, $reply) = @_;
    my $socket = $listener->accept or die "accept: $!\n";
    my $text   = '';

    while (1) {
        my ($head, $body) = split /\r\n\r\n/, $text, 2;

        last if defined $body
                && ($head !~ /^Content-Length: (\d+)/mi || length $body >= $1);
        sysread $socket, $text, 65_536, length $text or last;
    }

    syswrite $socket, $reply;
    close $socket;

    return $text;
}


my $long = '{"a":"' . 'x' x 100_000 . '"}';

my %answers = (
    'a good one'          => [[answer(200, '{}')], 'ok 200 2'],
    'in chunks'           => [["HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked"
                               . "\r\n\r\n3\r\nabc\r\n", \0.05, "2\r\nde\r\n",
                               "0\r\nX-Trailer: 1\r\n\r\n"], 'ok 200 5'],
    'to the end'          => [["HTTP/1.0 200 OK\r\n\r\n", \0.05, 'abc'],
                              'ok 200 3'],
    'dribbling'           => [["HTT", \0.05, "P/1.1 503 No\r\nContent-Le",
                               \0.05, "ngth: 3\r\n\r", \0.05, "\na", \0.05,
                               'bc'], 'ok 503 3'],
    '100, then 200'       => [["HTTP/1.1 100 Continue\r\nRetry-After: 9\r\n"
                               . "\r\n" . answer(200, 'abc')], 'ok 200 3'],
    'empty'               => [[answer(200, '')], 'ok 200 0'],
    'no content'          => [["HTTP/1.1 204 No\r\n\r\n"], 'ok 204 0'],
    'not followed'        => [["HTTP/1.1 302 F\r\nLocation: /a-good-one\r\n"
                               . "Content-Length: 0\r\n\r\n"], 'ok 302 0'],
    'a long one'          => [[answer(200, $long)], 'ok 200 100008'],
    'nothing'             => [[''], 'reset 0 0'],
    'reset'               => [['reset'], 'reset 0 0'],
    'half a header'       => [["HTTP/1.1 200 OK\r\nContent-"], 'reset 0 0'],
    'HTTP/0.9'            => [["what a day\n"], 'reset 0 0'],
    'half a body'         => [["HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"
                               . 'half'], 'cut 200 4'],
    'half a chunk'        => [["HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked"
                               . "\r\n\r\n9\r\nhalf"], 'cut 200 4'],
    'reset in its body'   => [["HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"
                               . 'half', \0.1, 'reset'], 'cut 200 4'],
    'hangs'               => [['hang'], 'timeout 0 0'],
    'hangs in a header'   => [["HTTP/1.1 200 OK\r\nA: b\r\n", 'hang'],
                              'timeout 0 0'],
    'hangs in its body'   => [["HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"
                               . 'half', 'hang'], 'cut 200 4'],
    'a megabyte'          => [[answer(200, 'x' x 1_048_576)],
                              'ok 200 1048576'],
);

test answers => sub {
    my %scripts = map { ('/' . s/\W+/-/gr) => $answers{$_}[0] } keys %answers;
    my $server  = server(%scripts);
    my $nginx   = nginx();

    foreach my $name (sort keys %answers) {
        my $url  = 'http://127.0.0.1:' . $server->port . '/' . $name =~ s/\W+/-/gr;
        my $done = $nginx->call(1, 'POST', $url, 'data={}', 'timeout=400');

        is "$done->{transport} $done->{status} $done->{len}",
           $answers{$name}[1], $name;
        ok $done->{transport} eq 'ok' || length $done->{error},
           "$name: said why, \"$done->{error}\"" if $done->{transport} ne 'ok';
        is $done->{retry_after}, '-', "$name: no Retry-After";
    }

    is +($nginx->stat)[1], 0, 'nothing is left';
    ends_well($nginx);
};


test fields => sub {
    my $server = server(
        '/seconds'  => [answer(429, 'x', 'retry-after:  17 ')],
        '/ms'       => [answer(429, 'x', 'Retry-After: 1700000000123')],
        '/long'     => [answer(503, 'x', 'Retry-After: ' . '1' x 500)],
        '/gzip'     => [answer(200, 'x', 'Content-Encoding: gzip')],
        '/identity' => [answer(200, 'x', 'Content-Encoding:')],
        '/both'     => [answer(200, 'x', 'Retry-After: 5',
                               'CONTENT-ENCODING: br')]);
    my $nginx = nginx();
    my $url   = 'http://127.0.0.1:' . $server->port;

    my %got = map { $_ => $nginx->call(1, 'POST', "$url/$_", 'data={}') }
              qw(seconds ms long gzip identity both);

    is $got{seconds}{retry_after}, '17', 'Retry-After, without blanks';
    is $got{ms}{retry_after}, '1700000000123', 'in milliseconds';
    is length $got{long}{retry_after}, 64, 'a long one is cut';
    is $got{gzip}{encoded}, 1, 'an encoded body';
    is $got{identity}{encoded}, 0, 'one that is not';
    is "$got{both}{retry_after} $got{both}{encoded}", '5 1', 'both';
    is $got{gzip}{retry_after}, '-', 'nothing of a former answer';

    ends_well($nginx);
};


# a body without an end, and headers without one

test bounds => sub {
    my $head   = "HTTP/1.1 200 OK\r\nContent-Length: 9000000000\r\n\r\n";
    my $server = server(
        '/endless' => [$head, ('x' x 100_000) x 20, 'hang'],
        '/one'     => [$head, 'x' x 1_048_577, 'hang'],
        '/head'    => ["HTTP/1.1 200 OK\r\n", ("A: " . 'b' x 9000 . "\r\n") x 40,
                       'hang']);
    my $nginx = nginx();
    my $url   = 'http://127.0.0.1:' . $server->port;

    my $done = $nginx->call(1, 'POST', "$url/endless");
    is "$done->{transport} $done->{status}", 'cut 200', 'more than a megabyte';
    cmp_ok $done->{len}, '<=', 1_048_576, 'is not kept';
    cmp_ok $done->{ms}, '<', 3000, 'nor waited for';

    $done = $nginx->call(1, 'POST', "$url/one");
    is "$done->{transport} $done->{status}", 'cut 200', 'one byte too many';

    $done = $nginx->call(1, 'POST', "$url/head");
    isnt $done->{transport}, 'ok', 'a header of 360 kB: ' . $done->{transport};

    ends_well($nginx);
};


test urls => sub {
    my $nginx = nginx();
    my %urls  = (
        'http://a'                    => 1,
        'https://a.example:8443/b?c'  => 1,
        'HTTP://A'                    => 1,
        'http://[::1]:80/'            => 1,
        'http://127.0.0.1/'           => 1,
        'https://' . 'a' x 200 . '/'  => 1,
        'ftp://a/'                    => 0,
        'file:///etc/passwd'          => 0,
        'a.example/b'                 => 0,
        '//a/b'                       => 0,
        'http://'                     => 0,
        'http:///b'                   => 0,
        'http:/b'                     => 0,
        'http://a:99999/'             => 0,
        'http://a:b/'                 => 0,
        'http://m\xc3\xbcller.example/' => 0,
        'unix:/tmp/x'                 => 0,
        'http://a/' . 'b' x 3000      => 0,
    );

    foreach my $url (sort keys %urls) {
        my $text = $url =~ s/\\x(..)/chr hex $1/ger;

        $nginx->tell("check $text");
        my $line = $nginx->line(qr/^check/);

        is $line, $urls{$url} ? 'check ok'
                              : 'check a URL of http or https, with a host',
           substr $url, 0, 60;
    }

    ends_well($nginx);
};

1;
