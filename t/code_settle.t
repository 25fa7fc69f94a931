# What becomes of a unit, by what is answered: whatever way an answer or its want
# comes, buffered or not, by HTTP/1 and HTTP/2, and whatever is sent in its place.
# The client gets what the upstream has sent, whole, and its connection is right
# for the next request.

use strict;
use warnings;

use lib 't/lib';

use File::Temp qw(tempdir);
use IO::Socket::INET;
use Test::More;
use Time::HiRes qw(sleep);

use IapGuard::CodeTest;
use IapGuard::LoadClient;
use IapGuard::Loop;
use IapGuard::Nginx;
use IapGuard::RawServer;

my $long = 'x' x 3_000_000;
my $head = "HTTP/1.1 200 OK\r\nX-Up: yes\r\n";

# name => [state, status, body, script]; a body that is undef is not looked at

my %cases = (
    'ok'        => ['sold', 200, '{"a":1}', answer('200 OK', '{"a":1}')],
    'created'   => ['sold', 201, 'x', answer('201 Created', 'x')],
    'empty'     => ['sold', 200, '', answer('200 OK', '')],
    'no_body'   => ['sold', 204, '', "HTTP/1.1 204 No Content\r\n\r\n"],
    'long'      => ['sold', 200, $long, answer('200 OK', $long)],
    'chunks'    => ['sold', 200, 'abcdef', "${head}Transfer-Encoding: chunked"
                    . "\r\n\r\n", \0.05, "3\r\nabc\r\n", \0.05,
                    "3\r\ndef\r\n0\r\n\r\n"],
    'pieces'    => ['sold', 200, 'abcdef', "${head}Content-Length: 6\r\n\r\n",
                    \0.05, 'abc', \0.05, 'def'],
    'to_end'    => ['sold', 200, 'abc', "${head}\r\nabc"],
    'found'     => ['released', 302, undef,
                    answer('302 Found', '', 'Location: /x')],
    'not_found' => ['released', 404, '{}', answer('404 No', '{}')],
    'gone'      => ['released', 409, '{"why":1}', answer('409 No', '{"why":1}')],
    'failed'    => ['released', 500, 'oops', answer('500 Oops', 'oops')],
    'busy'      => ['released', 503, 'busy', answer('503 Busy', 'busy')],
    'long_500'  => ['released', 500, $long, answer('500 Oops', $long)],
    'bad'       => ['left', 502, 'bad', answer('502 Bad', 'bad')],
    'late'      => ['left', 504, 'late', answer('504 Late', 'late')],
    'reset'     => ['left', 502, undef, 'reset'],
    'close'     => ['left', 502, undef],
    'noise'     => ['left', undef, undef, "220 mail ESMTP\r\n\r\n"],
    'hang'      => ['left', 504, undef, 'hang'],
    'half'      => ['left', 504, undef, "HTTP/1.1 200 OK\r\nConten", 'hang'],
    'cut'       => ['sold', undef, undef, "${head}Content-Length: 100\r\n\r\nx",
                    \0.05],
    'accel'     => ['sold', 200, "static\n",
                    answer('200 OK', 'x', 'X-Accel-Redirect: /static/file')],
);

# with "classify="

my %judged = (
    'redeemed' => ['sold', answer('200 OK', '{"status":"redeemed"}')],
    'refused'  => ['released', answer('200 OK', '{"status":"failed"}')],
    'html'     => ['released', answer('200 OK', '<html>')],
    'rules'    => ['sold', answer('503 Busy', '{"status":"redeemed"}')],
    'busy'     => ['released', answer('503 Busy', '{"status":"failed"}')],
    'bad'      => ['left', answer('502 Bad', '{}')],
    'neutral'  => ['left', answer('200 OK', '{"status":"who knows"}')],
    'pieces'   => ['sold', "HTTP/1.1 200 OK\r\nContent-Length: 21\r\n\r\n",
                   \0.05, '{"status":', \0.05, '"redeemed"}'],
    'late_cut' => ['left', "${head}Content-Length: 100\r\n\r\n{\"status\":",
                   \0.05],
    'long'     => ['released', answer('200 OK', '{"status":"redeemed","x":"'
                                                . $long . '"}')],
    'fits'     => ['sold', answer('200 OK', '{"status":"redeemed","x":"'
                                            . 'y' x 200_000 . '"}')],
    'gzip'     => ['released', answer('200 OK', '{"status":"redeemed"}',
                                      'Content-Encoding: gzip')],
    'no_body'  => ['released', "HTTP/1.1 204 No Content\r\n\r\n"],
);

my $raw = IapGuard::RawServer->start(
    (map { ("/$_" => [@{ $cases{$_} }[3 .. $#{ $cases{$_} }]]) } keys %cases),
    (map { ("/judged/$_" => [@{ $judged{$_} }[1 .. $#{ $judged{$_} }]]) }
         keys %judged),
    (map { ("/heads/$_" => ["${head}Content-Length: 6\r\n\r\nabc", \0.2,
                            'def']) } qw(on off)),
    '/slow'    => [\1, answer('200 OK', 'slow')],
    '/slow_long' => [\1, answer('200 OK', $long)],
    '/upgrade' => ["HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n"
                   . "Connection: upgrade\r\n\r\n", \0.1, 'hello'],
);

# which may have done it, and does not say so

my $mute = IapGuard::RawServer->start(
    map { ("/$_" => [], "/judged/$_" => []) } qw(ok gone refused redeemed));

my $dir  = folder();
my $down = unused_port();
my $test = start();
my $n    = 0;

foreach my $place (qw(on off)) {
    case($place, $_) foreach sort keys %cases;
    head($place);
}

judged($_) foreach sort keys %judged;
http2();
sent_instead();
unreached();
tries();
upgraded();
client_leaves();
released_at_once();
held_back();
renewed();
unknown();
counted();

$test->end;

done_testing;


sub answer {
    my ($status, $body, @fields) = @_;

    return join "\r\n", "HTTP/1.1 $status", 'X-Up: yes',
        'Content-Length: ' . length $body, @fields, '', $body;
}


# for the workers, who may be somebody else

sub folder {
    my $name = tempdir(CLEANUP => 1);

    mkdir "$name/$_" foreach qw(files cache);
    chmod 0755, $name, "$name/files";
    chmod 0777, "$name/cache";

    open my $file, '>', "$name/files/file" or die "file: $!\n";
    print {$file} "static\n";
    close $file;

    return $name;
}


sub unused_port {
    my $socket = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 1)
        or die "listen: $!\n";
    return $socket->sockport;
}


sub start {
    my %paths  = IapGuard::Nginx->options;
    my $port   = $raw->port;
    my $layers = 'iap_guard settle; iap_guard_user $http_x_user_id; '
                 . 'iap_guard_code $http_x_code lease=60s;';
    my $judges = $layers =~ s/settle/judged/r =~ s/lease/classify=rules lease/r;

    my $self = IapGuard::CodeTest->new(
        paths => \%paths, workers => 1, code => 'lease=600ms',
        http => <<"HTTP", server => <<"SERVER");
    iap_guard_classify rules success json:status=redeemed;
    iap_guard_classify rules neutral 'json:status=who knows';
    iap_guard_classify rules final   http:2xx;
    iap_guard_breaker  forced mode=forced-open;
    proxy_http_version 1.1;
    proxy_read_timeout 300ms;
    proxy_cache_path   $dir/cache keys_zone=c:1m;
    upstream again { server 127.0.0.1:@{[ $mute->port ]} max_fails=0;
                     server 127.0.0.1:$port max_fails=0 backup; }
    upstream two  { server 127.0.0.1:$down max_fails=0;
                    server 127.0.0.1:$port max_fails=0 backup; }
HTTP
        location /on/  { $layers proxy_pass http://127.0.0.1:$port/; }
        location /off/ { $layers proxy_buffering off;
                         proxy_pass http://127.0.0.1:$port/; }
        location /judged/ { $judges proxy_pass http://127.0.0.1:$port; }
        location /page/ {
            $layers
            proxy_intercept_errors on;
            error_page 404 500 502 504 =200 /static/file;
            proxy_pass http://127.0.0.1:$port/;
        }
        location /named/ {
            $layers
            proxy_intercept_errors on;
            error_page 404 500 502 504 = \@other;
            proxy_pass http://127.0.0.1:$port/;
        }
        location \@other { rewrite ^ /ok break;
                           proxy_pass http://127.0.0.1:$port; }
        location /files/   { $layers alias $dir/files/; }
        location = /files/try { $layers
                                try_files /none /static/file; }
        location /breaker/ { $layers iap_guard_breaker forced;
                             proxy_pass http://127.0.0.1:$port/; }
        location /own/     { $layers iap_guard_breaker forced;
                             iap_guard_answer unavailable 200 sorry;
                             proxy_pass http://127.0.0.1:$port/; }
        location /paged/   { $layers iap_guard_breaker forced;
                             error_page 503 =200 /static/file;
                             proxy_pass http://127.0.0.1:$port/; }
        location /cached/  { $layers proxy_cache c; proxy_cache_valid 1m;
                             proxy_cache_methods GET POST;
                             proxy_pass http://127.0.0.1:$port/; }
        location /down/    { $layers proxy_pass http://127.0.0.1:$down/; }
        location /again/   { $layers
                             proxy_next_upstream error non_idempotent;
                             proxy_pass http://again/; }
        location /again/judged/ {
                             $judges
                             proxy_next_upstream error non_idempotent;
                             proxy_pass http://again/judged/; }
        location /two/     { $layers proxy_pass http://two/; }
        location /ignore/  { $layers proxy_ignore_client_abort on;
                             proxy_read_timeout 5s;
                             proxy_pass http://127.0.0.1:$port/; }
        location /slow/    { $layers proxy_read_timeout 5s;
                             proxy_pass http://127.0.0.1:$port/; }
        location /upgrade/ { $layers
                             proxy_set_header Upgrade x;
                             proxy_set_header Connection upgrade;
                             proxy_pass http://127.0.0.1:$port/; }
        location /free/    { iap_guard free; iap_guard_user \$http_x_user_id;
                             iap_guard_code \$http_x_code lease=500ms
                                            unknown=release;
                             proxy_pass http://127.0.0.1:$port/; }
        location /static/  { alias $dir/files/; }
SERVER

    return $self;
}


# a code of which there is one unit

sub fresh {
    my $code = 'C' . ++$n;
    $test->stock($code, 1);
    return $code;
}


# what has become of it

sub state_of {
    my ($code) = @_;
    my $units = $test->audit($code)->{units};

    return join ' ', map { $_->{state} eq 'reserved' ? 'left' : $_->{state} }
                     @$units;
}


sub request {
    my ($path, $code, %more) = @_;
    my $socket = IO::Socket::INET->new(
        PeerAddr => '127.0.0.1', PeerPort => $test->nginx->port, Timeout => 5)
        or die "connect: $!\n";

    print {$socket} join "\r\n", ($more{method} || 'POST') . " $path HTTP/1.1",
        'Host: x', "X-Code: $code", 'X-User-Id: u1', @{ $more{fields} || [] },
        'Content-Length: 2', '', '{}';

    return $socket;
}


sub read_answer {
    my ($socket, $method) = @_;
    my ($in, $answer) = ('', {});

    local $SIG{ALRM} = sub { die "no answer\n" };
    alarm 10;

    eval {
        until ($in =~ /\r\n\r\n/) {
            sysread $socket, $in, 65_536, length $in or die "closed\n";
        }

        ($answer->{head}, my $rest) = split /\r\n\r\n/, $in, 2;
        ($answer->{status}) = $answer->{head} =~ /^HTTP\/1\.1 (\d+)/;

        my ($length) = $answer->{head} =~ /\nContent-Length: (\d+)/;
        my $chunked  = $answer->{head} =~ /\nTransfer-Encoding: chunked/;
        my $none     = ($method || '') eq 'HEAD';

        while (!$none && ($chunked ? $rest !~ /(?:^|\r\n)0\r\n\r\n\z/
                                   : length $rest < ($length // 0)))
        {
            sysread $socket, $rest, 65_536, length $rest or die "closed\n";
        }

        $answer->{body} = $chunked ? unchunked($rest) : $rest;
    };

    alarm 0;
    $answer->{error} = $@ if $@;

    return $answer;
}


sub unchunked {
    my ($text) = @_;
    my $body = '';

    while ($text =~ /\G([0-9a-f]+)\r\n/gc && hex $1) {
        $body .= substr $text, pos $text, hex $1;
        pos($text) += 2 + hex $1;
    }

    return $body;
}


# On one connection: the case, then a file

sub case {
    my ($place, $name) = @_;
    my ($state, $status, $body) = @{ $cases{$name} };
    my $code   = fresh();
    my $socket = request("/$place/$name", $code);
    my $answer = read_answer($socket);

    is state_of($code), $state, "$place, $name: $state";

    return if !defined $status;

    is $answer->{error} // $answer->{status}, $status, "$place, $name: status";
    ok $answer->{body} eq $body, "$place, $name: body" if defined $body;

    print {$socket} "GET /static/file HTTP/1.1\r\nHost: x\r\n\r\n";
    $answer = read_answer($socket);

    is $answer->{body}, "static\n", "$place, $name: then another request"
        or diag explain $answer;

    return;
}


sub head {
    my ($place) = @_;
    my $code   = fresh();
    my $socket = request("/$place/no_body", $code, method => 'HEAD');

    is read_answer($socket, 'HEAD')->{status}, 204, "$place, HEAD: status";
    is state_of($code), 'sold', "$place, HEAD: sold";

    print {$socket} "GET /static/file HTTP/1.1\r\nHost: x\r\n\r\n";
    is read_answer($socket)->{body}, "static\n",
        "$place, HEAD: then another request";

    $code   = fresh();
    $socket = request('/files/file', $code, method => 'HEAD');

    is read_answer($socket, 'HEAD')->{status}, 200, 'HEAD of a file: status';
    is state_of($code), 'sold', 'HEAD of a file: sold';

    print {$socket} "GET /static/file HTTP/1.1\r\nHost: x\r\n\r\n";
    is read_answer($socket)->{body}, "static\n",
        'HEAD of a file: then another request';

    # nginx asks for all of it, for its cache

    $code   = fresh();
    $socket = request("/cached/heads/$place", $code, method => 'HEAD');

    is read_answer($socket, 'HEAD')->{status}, 200, 'HEAD of a slow one: status';
    is state_of($code), 'sold', 'HEAD of a slow one: sold';

    print {$socket} "GET /static/file HTTP/1.1\r\nHost: x\r\n\r\n";

    my $answer = read_answer($socket);

    is $answer->{status}, 200, 'HEAD of a slow one: then another request';
    is $answer->{body}, "static\n", 'HEAD of a slow one: and its answer';

    return;
}


sub judged {
    my ($name) = @_;
    my ($state, $bytes) = @{ $judged{$name} };
    my $code   = fresh();
    my $socket = request("/judged/$name", $code);
    my $answer = read_answer($socket);

    is state_of($code), $state, "judged, $name: $state";

    if (@{ $judged{$name} } == 2 && $name ne 'no_body') {
        my ($sent) = $bytes =~ /\r\n\r\n(.*)\z/s;

        ok $answer->{body} eq $sent, "judged, $name: the answer as it came"
            or diag substr $answer->{error} // $answer->{body}, 0, 200;

        print {$socket} "GET /static/file HTTP/1.1\r\nHost: x\r\n\r\n";
        is read_answer($socket)->{body}, "static\n",
            "judged, $name: then another request";
    }

    return;
}


# With TLS: Debian 12's curl cannot use a connection twice without

sub http2 {
    my $nginx = $test->nginx;
    my ($key, $cert) = map { $nginx->file($_) } qw(key cert);

    system('openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 '
           . "-nodes -keyout $key -out $cert -subj /CN=x -days 2 2> /dev/null")
        == 0 or die "openssl failed\n";

    my @codes;
    my $http = $nginx->{http};
    my @names = grep { defined $cases{$_}[1] } sort keys %cases;

    foreach my $place (qw(on off)) {
        push @codes, map { [$place, $_, fresh()] } @names;
    }

    $nginx->change(listen => 'ssl http2',
        http => "$http ssl_certificate $cert; ssl_certificate_key $key;")
        or BAIL_OUT('no reload');

    foreach my $case (@codes) {
        my ($place, $name, $code) = @$case;
        my ($url, $file) = map { $nginx->url($_) =~ s/^http:/https:/r }
                           "/$place/$name", '/static/file';

        my $out = curl('--http2', '-k', '-sS', '-m', 10, '-d', '{}',
            '-H', "X-Code: $code", '-H', 'X-User-Id: u1', '-w', '|%{http_code}',
            $url, '--next', '--http2', '-k', '-sS', '-m', 10, '-w',
            '|%{http_code} %{num_connects}', $file);
        my ($status, $body) = @{ $cases{$name} }[1, 2];

        ok $out =~ /\A(.*)\|$status(?:static\n)\|200 0\z/s
           && (!defined $body || $1 eq $body),
           "HTTP/2, $place, $name: its answer, then another on the connection"
            or diag substr $out, -200;
    }

    $nginx->change(listen => '', http => $http) or BAIL_OUT('no reload');

    is_deeply [map { state_of($_->[2]) } @codes],
              [map { $cases{ $_->[1] }[0] } @codes],
              'HTTP/2: and the same became of the units';

    return;
}


sub curl {
    my (@arguments) = @_;

    open my $pipe, '-|', 'curl', @arguments or die "curl: $!\n";
    my $out = do { local $/; <$pipe> };
    close $pipe;

    return $out;
}


# the status that the client gets, and what becomes of the unit

sub becomes {
    my ($path, $status, $state, $name, @more) = @_;
    my $code = fresh();

    is read_answer(request($path, $code, @more))->{status}, $status, "$name: status";
    is state_of($code), $state, "$name: $state";

    return;
}


sub sent_instead {
    becomes('/page/failed', 200, 'released', 'an error page for 500');
    becomes('/page/not_found', 200, 'released', 'an error page for 404');
    becomes('/page/hang', 200, 'left', 'an error page for a time-out');
    becomes('/page/ok', 200, 'sold', 'an error page that is not needed');
    becomes('/named/failed', 200, 'released', 'another upstream in its place');
    becomes('/named/hang', 200, 'left', 'the same after a time-out');
    becomes('/files/file', 200, 'sold', 'a file', method => 'GET');
    becomes('/files/none', 404, 'released', 'no file', method => 'GET');
    becomes('/files/try', 200, 'sold', 'try_files', method => 'GET');
    becomes('/breaker/ok', 503, 'released', 'cut by a breaker');
    becomes('/own/ok', 200, 'released', 'the same in own words');
    becomes('/paged/ok', 200, 'released', 'the same with an error page');
    becomes('/cached/ok', 200, 'sold', 'not cached yet');
    becomes('/cached/ok', 200, 'sold', 'cached');

    return;
}


sub unreached {
    becomes('/down/ok', 502, 'released', 'a connection that is refused');
    return;
}


sub tries {
    becomes('/two/ok', 200, 'sold', 'refused once, then ok');
    becomes('/two/hang', 504, 'left', 'refused once, then a time-out');
    becomes('/two/failed', 500, 'released', 'refused once, then 500');
    becomes('/again/ok', 200, 'sold', 'lost once, then ok');
    becomes('/again/gone', 409, 'left', 'lost once, then 409');
    becomes('/again/judged/redeemed', 200, 'sold', 'lost once, then success');
    becomes('/again/judged/refused', 200, 'left', 'lost once, then none');

    return;
}


sub upgraded {
    my $code   = fresh();
    my $socket = request('/upgrade/upgrade', $code,
                         fields => ['Upgrade: x', 'Connection: upgrade']);
    my $in     = '';

    local $SIG{ALRM} = sub { die "no answer\n" };
    alarm 10;
    while (sysread $socket, $in, 65_536, length $in) { }
    alarm 0;

    like $in, qr{^HTTP/1\.1 101 .*\r\n\r\nhello\z}s, '101: and what follows';
    is state_of($code), 'released', '101: is no success';

    return;
}


# how many the upstream has got

sub calls {
    my ($path) = @_;

    return IapGuard::LoadClient->fetch('GET',
        'http://127.0.0.1:' . $raw->port . "/_calls$path")->{body};
}


sub client_leaves {
    my %wanted = ('/slow/slow' => 'left', '/ignore/slow' => 'sold');

    foreach my $path (sort keys %wanted) {
        my $code   = fresh();
        my $before = $raw->calls('/slow');
        my $socket = request($path, $code);

        # who leaves before the upstream is asked gives the unit back

        $test->nginx->wait_for(10, sub { $raw->calls('/slow') > $before })
            or diag 'not asked';
        close $socket;

        # longer than the answer takes, which then is to be settled

        sleep 1.3;
        $test->nginx->wait_for(10, sub { state_of($code) eq $wanted{$path} });
        is state_of($code), $wanted{$path}, "$path, whose client left";
    }

    return;
}


# in the next request on another connection

sub released_at_once {
    my $code = fresh();
    my @wrong;

    foreach my $i (1 .. 20) {
        my $answer = read_answer(request('/on/failed', $code));
        push @wrong, $answer if $answer->{status} != 500;
    }

    is_deeply \@wrong, [], 'as often as it fails, it can be tried again';
    is read_answer(request('/on/ok', $code))->{status}, 200, 'until it does not';

    return;
}


# The upstream answers after a second, while nobody can write.  A body that is long
# waits, too.

sub held_back {
    my $code = fresh();
    my $pid  = $test->hold_file(1.3, 0.5);
    my $from = IapGuard::Loop::now();

    my $answer = read_answer(request('/slow/slow', $code));
    my $took   = IapGuard::Loop::now() - $from;

    is $answer->{body}, 'slow', 'an answer is not lost while it is held';
    cmp_ok $took, '>', 1.6, 'it is held until the ledger has it';
    is state_of($code), 'sold', 'and has it';
    waitpid $pid, 0;

    $code = fresh();
    $pid  = $test->hold_file(1.3, 0.5);
    $from = IapGuard::Loop::now();

    $answer = read_answer(request('/slow/slow_long', $code));
    $took   = IapGuard::Loop::now() - $from;

    ok $answer->{body} eq $long, 'nor is a long one';
    cmp_ok $took, '>', 1.6, 'which is held likewise';
    waitpid $pid, 0;

    return;
}


# the lease is a third of how long the upstream takes

sub renewed {
    my $code   = fresh();
    my $answer = $test->redeem($code, 'u1', outcome => 'slow:1.8');

    is $answer->{status}, 200, 'longer than the lease: passes';
    is_deeply [map { $_->{state} } @{ $test->audit($code)->{units} }], ['sold'],
        'longer than the lease: it was renewed, and is sold';

    $code = fresh();
    my $other;
    my $loop = IapGuard::Loop->new;
    my $left = 2;
    my $client = IapGuard::LoadClient->new(loop => $loop, timeout => 10,
                                           port => $test->nginx->port);

    $client->request($test->request($code, 'u1', outcome => 'slow:1.8'),
                     sub { $answer = shift; $left-- });
    $loop->after(1.4, sub {
        $client->request($test->request($code, 'u2'),
                         sub { $other = shift; $left-- });
    });
    $loop->run_until(sub { !$left });
    $client->shut;

    is $answer->{status}, 200, 'longer than the lease: passes again';
    is $other->{status}, 409, 'and nobody else gets it meanwhile';

    return;
}


# what nobody knows: it is sold or free in the end, and whoever does not know either
# uses one unit

sub unknown {
    my $code   = fresh();
    my $answer = $test->redeem($code, 'u1', outcome => 'hang');

    is $answer->{status}, 504, 'unknown: the client is told';
    is $test->redeem($code, 'u1')->{status}, 409, 'unknown: not again yet';
    ok defined $test->nothing_reserved($code, 5), 'unknown: until the lease ends';
    is state_of($code), 'sold_unknown', 'unknown=sold: sold';
    is $test->redeem($code, 'u2')->{status}, 409, 'unknown=sold: not for others';
    is $test->redeem($code, 'u1')->{status}, 200, 'unknown=sold: for who tried';
    $test->is_balanced($code, 'unknown=sold', sold => 1, reserved => 0, free => 0);

    $code = fresh();
    read_answer(request('/free/hang', $code));
    ok defined $test->nothing_reserved($code, 5), 'unknown: until the lease ends';
    is state_of($code), 'released_unknown', 'unknown=release: free';
    is $test->redeem($code, 'u2')->{status}, 200, 'unknown=release: for others';
    $test->is_balanced($code, 'unknown=release', sold => 1, reserved => 0);

    return;
}


sub counted {
    my $guard = $test->nginx->api_json('GET', 'guards/settle')->{code};

    cmp_ok $guard->{sold}, '>', 20, 'sold: counted';
    cmp_ok $guard->{released}, '>', 20, 'released: counted';
    cmp_ok $guard->{unknown}, '>', 10, 'left: counted';
    is $guard->{lost}, 0, 'none was lost';
    is $guard->{reserved}, $guard->{sold} + $guard->{released}
                           + $guard->{unknown}, 'and that is all';
    is $test->nginx->metric('iap_guard_code_total',
                            qr/guard="settle",event="sold"/), $guard->{sold},
        'and so say the metrics';

    return;
}
