# The fallback of a breaker, as a client sees it: whatever way a call fails, with
# an answer that is buffered or not, by HTTP/1 and HTTP/2, closed and open, the
# client gets 202 and a ticket, nothing of what has failed, and the next request on
# its connection is right.  What did not fail passes as it came.

use strict;
use warnings;

use lib 't/lib';

use IO::Socket::INET;
use JSON::PP ();
use Test::More;

use IapGuard::Nginx;
use IapGuard::RawServer;

my $json = JSON::PP->new;

my $head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nX-Apple: yes\r\n"
           . "Set-Cookie: apple=1\r\n";
my $long = 'x' x 300_000;

# name => script; they fail

my %failing = (
    'status_500'   => [answer('500 Oops', '{"no":1}')],
    'status_503'   => [answer('503 Busy', '<html>')],
    'empty_503'    => ["HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"],
    'unauthorized' => [answer('401 Who', '{}')],
    'html'         => [answer('200 OK', '<html>maintenance</html>')],
    'empty'        => ["${head}Content-Length: 0\r\n\r\n"],
    'json_21005'   => [answer('200 OK', '{"status":21005}')],
    'json_21009'   => [answer('200 OK', '{"receipt":{},"status":21009}')],
    'cut'          => ["${head}Content-Length: 100\r\n\r\n{\"status\":0"],
    'cut_late'     => ["${head}Content-Length: 100\r\n\r\n", \0.05,
                       '{"status":0}', \0.05],
    'cut_reset'    => ["${head}Content-Length: 100\r\n\r\n{\"status\":0", \0.05,
                       'reset'],
    'cut_hang'     => ["${head}Content-Length: 100\r\n\r\n{\"status\":0",
                       'hang'],
    'cut_chunk'    => ["${head}Transfer-Encoding: chunked\r\n\r\nff\r\n{\"st"],
    'pieces'       => ["HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                       \0.03, "9\r\n{\"status\"\r\n", \0.03,
                       "7\r\n:21005}\r\n0\r\n\r\n"],
    'reset'        => ['reset'],
    'close'        => [],
    'noise'        => ["220 mail ESMTP\r\n\r\n"],
    'hang'         => ['hang'],
    'half_header'  => ["HTTP/1.1 200 OK\r\nConten", 'hang'],
    'long_503'     => ["HTTP/1.1 503 Busy\r\nContent-Length: " . length($long)
                       . "\r\n\r\n$long"],
);

# those whose answer is the client's: status, and what its body is like

my %passing = (
    'ok'         => [200, '{"status":0}', answer('200 OK', '{"status":0}')],
    'final'      => [200, '{"status":21003}',
                     answer('200 OK', '{"status":21003}')],
    'redirect'   => [200, '{"status":21007}',
                     answer('200 OK', '{"status":21007}')],
    'bad'        => [400, '{"errorCode":4000001}',
                     answer('400 Bad', '{"errorCode":4000001}')],
    'long'       => [200, '{"status":0,"x":"' . $long . '"}',
                     answer('200 OK', '{"status":0,"x":"' . $long . '"}')],
);

my $raw = IapGuard::RawServer->start(
    (map { ("/$_" => $failing{$_}) } keys %failing),
    '/throttled' => [answer('429 Slow', '{}', 'Retry-After: 1')],
    (map { ("/$_" => [$passing{$_}[2]]) } keys %passing),
    '/hook' => [answer('200 OK', '')]);

my $nginx = start();

foreach my $place (qw(on off page)) {
    failing($place);
    passing($place);
}

heads();
http2();
cut();
throttled();
client_leaves();
reloaded();

my @complaints = $nginx->complaints;

$nginx->stop;
is_deeply [@complaints, $nginx->complaints], [],
    'no complaint in the error log';

done_testing;


sub answer {
    my ($status, $body, @fields) = @_;

    return join "\r\n", "HTTP/1.1 $status", 'Content-Type: text/plain',
        'X-Apple: yes', 'Set-Cookie: apple=1', 'WWW-Authenticate: Apple',
        'Content-Length: ' . length $body, @fields, '', $body;
}


# The breaker never opens by itself here; "open" is forced.  The drain is so slow
# that what is queued stays pending.

sub start {
    my $port  = $raw->port;
    my $nginx = IapGuard::Nginx->new(IapGuard::Nginx->options, workers => 1,
                                     level => 'info');

    mkdir $nginx->file('ledger') or die "ledger: $!\n";
    chmod 0777, $nginx->file('ledger');

    my $ledger = $nginx->file('ledger/ledger.db');
    my $log    = $nginx->file('verdicts');
    my $places = join '', map { place($_, $port) } qw(on off page);

    $nginx->configure(http => <<"HTTP", server => <<"SERVER");
    iap_guard_zone     iap 4m;
    iap_guard_ledger   $ledger;
    iap_guard_breaker  apple classify=apple min=1000000;
    iap_guard_breaker  forced mode=forced-open;
    iap_guard_queue    receipts target=http://127.0.0.1:$port/hang
                       classify=apple concurrency=1 rate=1r/h;
    proxy_read_timeout 300ms;
    proxy_http_version 1.1;
    log_format         v '\$uri \$status \$iap_guard_verdict \$iap_guard_ticket';
HTTP
    access_log $log v;
$places
    location = /cut {
        iap_guard         cut;
        iap_guard_user    \$http_x_user;
        iap_guard_breaker forced fallback=receipts;
        proxy_pass        http://127.0.0.1:$port/ok;
    }
    location ~ ^/tickets/(?<ticket>\\w+)\$ {
        iap_guard_ticket  receipts \$ticket;
    }
    location = /sorry { return 200 sorry; }
SERVER

    return $nginx->start;
}


sub place {
    my ($name, $port) = @_;
    my $page = $name eq 'page'
        ? "proxy_intercept_errors on;\n"
          . "error_page 401 429 500 502 503 504 =200 /sorry;" : '';
    my $buffering = $name eq 'off' ? 'off' : 'on';

    return <<"PLACE";
    location /$name/ {
        iap_guard         verify;
        iap_guard_user    \$http_x_user capacity=100000 rate=1000r/s;
        iap_guard_breaker apple fallback=receipts;
        proxy_buffering   $buffering;
        $page
        proxy_pass        http://127.0.0.1:$port/;
    }
PLACE
}


# two requests on one connection: what comes back of each

my $body = 0;

sub two {
    my ($first, $second, $method) = @_;
    my $socket = IO::Socket::INET->new(
        PeerAddr => '127.0.0.1', PeerPort => $nginx->port, Timeout => 5)
        or die "connect: $!\n";
    my @answers;

    foreach my $i (0, 1) {
        my $text = '{"receipt":"r' . ++$body . '"}';
        my $used = $i == 0 && $method ? $method : 'POST';
        my $path = $i == 0 ? $first : $second;

        print {$socket} join "\r\n", "$used $path HTTP/1.1", 'Host: x',
            'X-User: u1', 'Content-Length: ' . length $text, '', $text;
        push @answers, read_answer($socket, $used);
    }

    close $socket;

    return @answers;
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
        my $none     = $method eq 'HEAD';

        while (!$none && ($chunked ? $rest !~ /(?:^|\r\n)0\r\n\r\n\z/
                                   : length $rest < ($length // 0)))
        {
            sysread $socket, $rest, 65_536, length $rest or die "closed\n";
        }

        $rest = unchunked($rest) if $chunked;
        $answer->{body} = $rest;
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


# 202, its ticket, and nothing else

sub is_accepted {
    my ($answer, $name) = @_;

    is $answer->{error} // $answer->{status}, 202, "$name: accepted";

    my ($ticket) = ($answer->{body} // '') =~
        /^\{"status":"accepted","ticket":"([a-z2-7]{26})"\}\n\z/;

    ok $ticket, "$name: a ticket and no more"
        or diag substr $answer->{body} // '', 0, 200;
    unlike $answer->{head} // '', qr/Apple|Cookie|WWW-|chunked|text.plain/i,
        "$name: none of the fields of what has failed";

    my $where = '/tickets/' . ($ticket // '-');

    like $answer->{head} // '', qr{\nLocation: \Q$where\E\r?$}m,
        "$name: where to ask";

    return $ticket;
}


sub failing {
    my ($place) = @_;

    foreach my $mode (sort keys %failing) {
        my $name = "$place, $mode";
        my ($first, $second) = two("/$place/$mode", "/$place/ok");
        my $ticket = is_accepted($first, $name) or next;

        is $second->{error} // $second->{status}, 200,
            "$name: then another request on the connection";
        is $second->{body}, '{"status":0}', "$name: and its answer";
        is asked($ticket), 'pending', "$name: the ticket is known";
    }

    return;
}


sub asked {
    my ($ticket) = @_;
    my $answer = $nginx->get("/tickets/$ticket");

    return $answer->{error} || $answer->{status} if $answer->{status} != 200;
    return $json->decode($answer->{body})->{status};
}


sub passing {
    my ($place) = @_;

    foreach my $mode (sort keys %passing) {
        my ($status, $text) = @{ $passing{$mode} };
        my $name = "$place, $mode";
        my ($first, $second) = two("/$place/$mode", "/$place/html");

        is $first->{error} // $first->{status}, $status, "$name: passes";
        ok $first->{body} eq $text, "$name: as it came";
        like $first->{head}, qr/\nX-Apple: yes/, "$name: with its fields";
        is_accepted($second, "$name, then html");
    }

    return;
}


# nothing but a header comes back, and nothing hangs

sub heads {
    my ($first, $second) = two('/on/status_503', '/on/ok', 'HEAD');

    is $first->{error} // $first->{status}, 202, 'HEAD: accepted';
    is $second->{error} // $second->{status}, 200, 'HEAD: then a POST';

    ($first, $second) = two('/on/ok', '/on/ok', 'HEAD');

    is $first->{error} // $first->{status}, 200, 'HEAD: passes';
    is $second->{error} // $second->{status}, 200, 'HEAD: then a POST, too';

    return;
}


# With TLS: Debian 12's curl cannot use a connection twice without

sub http2 {
    my ($key, $cert) = map { $nginx->file($_) } qw(key cert);

    system('openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 '
           . "-nodes -keyout $key -out $cert -subj /CN=x -days 2 2> /dev/null")
        == 0 or die "openssl failed\n";

    my $http = $nginx->{http};

    $nginx->change(listen => 'ssl http2',
        http => "$http ssl_certificate $cert; ssl_certificate_key $key;")
        or BAIL_OUT('no reload');

    foreach my $place (qw(on off)) {
        http2_mode($place, $_) foreach sort keys %failing;
    }

    $nginx->change(listen => '', http => $http) or BAIL_OUT('no reload');

    return;
}


sub http2_mode {
    my ($place, $mode) = @_;
    my $name = "HTTP/2, $place, $mode";
    my $text = '{"receipt":"h' . ++$body . '"}';
    my @urls = map { $nginx->url("/$place/$_") =~ s/^http:/https:/r }
               $mode, 'ok';

    my $out = curl('--http2', '-k', '-sS', '-m', 10, '-i', '-d', $text, '-H',
                   'X-User: u1', '-w', 'connects %{num_connects}', @urls);
    my ($first, $second) =
        $out =~ m{^(HTTP/2 202.*?\n\r?\n.*?)(HTTP/2 200.*)\z}s;

    ok defined $first, "$name: accepted, then the next" or diag $out;
    like $first // '', qr/"ticket":"[a-z2-7]{26}"/, "$name: a ticket";
    unlike $first // '', qr/apple|cookie/i, "$name: none of what has failed";
    like $second // '', qr/\{"status":0\}connects 0\z/,
        "$name: the next one's answer, on the same connection";

    return;
}


sub curl {
    my (@arguments) = @_;

    open my $pipe, '-|', 'curl', @arguments or die "curl: $!\n";
    my $out = do { local $/; <$pipe> };
    close $pipe;

    return $out;
}


sub cut {
    my $calls = $raw->calls;
    my ($first, $second) = two('/cut', '/on/ok');

    is_accepted($first, 'open');
    is $second->{body}, '{"status":0}', 'open: then another request';
    is $raw->calls - $calls, 1, 'open: only that one was a call';

    return;
}


# after 429 nothing is called for a second, and all of it is queued

sub throttled {
    my ($first, $second) = two('/on/throttled', '/on/ok');

    is_accepted($first, 'throttled');
    is_accepted($second, 'throttled, the next');

    ok $nginx->wait_for(5, sub {
        (two('/on/ok', '/on/ok'))[1]{status} == 200
    }), 'throttled: called again';

    return;
}


# its call is cut, or goes on: in the queue it is all the same

sub client_leaves {
    my $before = pending();

    foreach my $mode (qw(hang cut_hang)) {
        my $calls  = $raw->calls("/$mode");
        my $socket = IO::Socket::INET->new(
            PeerAddr => '127.0.0.1', PeerPort => $nginx->port)
            or die "connect: $!\n";
        my $text = '{"receipt":"l' . ++$body . '"}';

        print {$socket} join "\r\n", "POST /on/$mode HTTP/1.1", 'Host: x',
            'X-User: u1', 'Content-Length: ' . length $text, '', $text;
        $nginx->wait_for(10, sub { $raw->calls("/$mode") > $calls })
            or diag "$mode: not called";
        close $socket;
    }

    ok $nginx->wait_for(5, sub { pending() == $before + 2 }),
        'what a client has left is queued'
        or diag pending() - $before;

    return;
}


sub pending {
    return $nginx->api_json('GET', 'queues/receipts')->{pending};
}


# what the log says, and that all is there after a reload

sub reloaded {
    my $pending = pending();

    ok $nginx->reload, 'reloaded';
    is pending(), $pending, 'all of them are there after a reload';

    open my $file, '<', $nginx->file('verdicts') or die "verdicts: $!\n";
    my @accepted = grep { / 202 / } <$file>;
    close $file;

    cmp_ok scalar @accepted, '>', 100, 'accepted: many';
    is_deeply [grep { !/ 202 accepted [a-z2-7]{26}$/ } @accepted], [],
        'verdict and ticket of each are in the log';

    return;
}
