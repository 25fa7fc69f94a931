# A request that waits for the store: what its client, its connection, its
# worker do meanwhile.  The server is stopped (SIGSTOP) for as long as
# something is to wait, and its time-out is long.

use strict;
use warnings;

use IO::Select;
use IO::Socket::INET;
use Socket qw(SOL_SOCKET SO_LINGER);
use Test::More;
use Time::HiRes qw(sleep time);

use lib 't/lib';
use IapGuard::LoadClient;
use IapGuard::Loop;
use IapGuard::StoreTest;

my $redis = redis();
my $patient = 'timeout=20s';

my $guarded = '
    location /t { iap_guard g; iap_guard_user $arg_u capacity=2 rate=1r/h;
                  empty_gif; }';

# with each way of waiting for events that this nginx has

my @methods = grep {
    IapGuard::Nginx->new(IapGuard::Nginx->options, events => "use $_;",
                         connections => 512, http => 'iap_guard_zone iap 1m;')->accepts
} qw(epoll poll select);

cmp_ok scalar @methods, '>', 0, "methods: @methods";

foreach my $method (@methods) {

    subtest "$method: many wait, and each gets its own" => sub {
        my $nginx = patient_site($method);

        # a first one, for the script to be known

        is statuses($nginx, '/t?u=first', 1), '200', 'it answers';

        $redis->freeze;

        my $crowd = crowd($nginx, map { ("/t?u=$_") x 3 } 1 .. 40);

        ok waits($nginx, 120), 'all wait';
        is $crowd->{answered}, 0, 'none is answered';
        is $nginx->get('/free')->{body}, 'free', 'others are not held up';

        $redis->thaw;
        finish($crowd);

        is_deeply $crowd->{seen}, { 200 => 80, 429 => 40 }, 'two of three';

        ends_well($nginx);
        $redis->cli('FLUSHALL');
    };

    subtest "$method: a client that leaves" => sub {
        my $nginx = patient_site($method);

        $redis->freeze;

        my $gone = send_raw($nginx, "GET /t?u=a HTTP/1.1\r\nHost: x\r\n\r\n");
        my $reset = send_raw($nginx, "GET /t?u=a HTTP/1.1\r\nHost: x\r\n\r\n");
        my $left = send_raw($nginx, "GET /t?u=a HTTP/1.1\r\nHost: x\r\n\r\n"
                                    . "GET /t?u=a HTTP/1.1\r\nHost: x\r\n\r\n");

        ok waits($nginx, 3), 'three wait';

        close $gone;
        setsockopt $reset, SOL_SOCKET, SO_LINGER, pack('ii', 1, 0);
        close $reset;
        close $left;

        # nginx cannot see the end of a connection behind what it has not read
        # yet, unless the system tells it

        ok logged($nginx, qr/^499 /, 2), 'it is seen at once';

        $redis->thaw;
        is statuses($nginx, '/t?u=b', 3), '200 200 429', 'others go on';

        my $all = $nginx->api_json('GET', 'guards/g')->{requests};

        cmp_ok $all->{passed}, '<=', 4, 'who has left is not counted';

        ends_well($nginx);
        $redis->cli('FLUSHALL');
    };

    subtest "$method: one connection, several requests" => sub {
        my $nginx = patient_site($method);
        my $get = "GET /t?u=a HTTP/1.1\r\nHost: x\r\n\r\n";

        is statuses($nginx, '/t?u=first', 1), '200', 'it answers';

        my $calls = scripts($redis);

        $redis->freeze;

        my $socket = send_raw($nginx, $get x 2);

        ok waits($nginx, 1), 'the first waits';
        syswrite $socket, $get;
        sleep 0.1;
        syswrite $socket, "GET /free HTTP/1.1\r\nHost: x\r\n"
                          . "Connection: close\r\n\r\n";
        sleep 0.1;
        is read_all($socket, 0), '', 'nothing is answered';

        $redis->thaw;

        my $answer = read_all($socket, 10);

        is join(' ', $answer =~ m{HTTP/1\.1 (\d+) }g), '200 200 429 200',
            'all are, in their order';
        like $answer, qr/free\z/, 'to the last';
        is scripts($redis) - $calls, 3, 'each was asked about once';

        ends_well($nginx);
        $redis->cli('FLUSHALL');
    };

    subtest "$method: a body that comes meanwhile" => sub {
        my $nginx = patient_site($method);
        my $post = "POST /echo?u=a HTTP/1.1\r\nHost: x\r\n"
                   . "Content-Length: 200000\r\n\r\n";

        $redis->freeze;

        my $socket = send_raw($nginx, $post);

        ok waits($nginx, 1), 'it waits';
        send_on($socket, 'x' x 200_000);

        $redis->thaw;
        like read_answer($socket, 10), qr{^HTTP/1\.1 200 .*got 200000\z}s,
            'it is all there';

        # refused: the body is thrown away, and the connection goes on

        is statuses($nginx, '/echo?u=a', 1), '200', 'another';
        $redis->freeze;
        send_on($socket, $post);
        ok waits($nginx, 1), 'a third waits';
        send_on($socket, 'x' x 200_000);
        $redis->thaw;
        like read_answer($socket, 10), qr{^HTTP/1\.1 429 }, 'and is refused';

        send_on($socket, "GET /free HTTP/1.1\r\nHost: x\r\n\r\n");
        like read_answer($socket, 10), qr{^HTTP/1\.1 200 .*free\z}s,
            'the next one on that connection';

        ends_well($nginx);
        $redis->cli('FLUSHALL');
    };
}


subtest 'after the access phase, where satisfy is any' => sub {
    my $nginx = patient_site();

    $redis->freeze;
    my $crowd = crowd($nginx, ('/any?u=a') x 4, ('/denied?u=b') x 2);
    ok waits($nginx, 4), 'who is let in waits';
    is_deeply $crowd->{seen}, { 403 => 2 }, 'who is not does not';
    $redis->thaw;
    finish($crowd);
    is_deeply $crowd->{seen}, { 403 => 2, 200 => 2, 429 => 2 }, 'two pass';
    unlike keys_of($redis), qr/:user:b/, 'nothing is charged to the others';

    ends_well($nginx);
    $redis->cli('FLUSHALL');
};


subtest 'error pages and redirects' => sub {
    my $nginx = patient_site();

    is statuses($nginx, '/t?u=first', 1), '200', 'it answers';

    $redis->freeze;
    my $crowd = crowd($nginx, ('/page?u=a') x 3, ('/files?u=b') x 3);
    ok waits($nginx, 6), 'they wait';
    $redis->thaw;
    finish($crowd);

    is_deeply $crowd->{bodies}, { page => 1, word => 4 },
        'one error page, and what others are redirected to';
    is_deeply $crowd->{seen}, { 200 => 5, 429 => 1 }, 'two of three pass';

    my $all = $nginx->api_json('GET', 'guards/g')->{requests};

    is $all->{passed}, 5, 'each is counted once';
    is $all->{limited}, 2, 'each refusal, too';

    ends_well($nginx);
    $redis->cli('FLUSHALL');
};


subtest 'a reload: the old worker answers what it has' => sub {
    my $nginx = patient_site();
    my ($old) = $nginx->workers;

    $redis->freeze;
    my $crowd = crowd($nginx, map { "/t?u=$_" } 1 .. 8);
    ok waits($nginx, 8), 'they wait';
    ok $nginx->reload, 'a reload';
    ok((grep { $_ == $old } $nginx->all_workers), 'the old worker stays');
    $redis->thaw;
    finish($crowd);
    is_deeply $crowd->{seen}, { 200 => 8 }, 'all are answered';
    ok(IapGuard::Nginx->wait_for(5, sub {
        !grep { $_ == $old } $nginx->all_workers }), 'and then it leaves');
    is statuses($nginx, '/t?u=1', 2), '200 429', 'what it charged holds';

    ends_well($nginx);
    $redis->cli('FLUSHALL');
};


subtest 'a reload with worker_shutdown_timeout' => sub {
    my $nginx = patient_site(undef, main => 'worker_shutdown_timeout 300ms;');
    my ($old) = $nginx->workers;

    $redis->freeze;
    my $crowd = crowd($nginx, map { "/t?u=$_" } 1 .. 8);
    ok waits($nginx, 8), 'they wait';
    ok $nginx->reload, 'a reload';
    ok(IapGuard::Nginx->wait_for(5, sub {
        !grep { $_ == $old } $nginx->all_workers }), 'the worker is gone');
    finish($crowd);
    is join(' ', keys %{ $crowd->{seen} }), 'error', 'and so are they';
    $redis->thaw;
    is statuses($nginx, '/t?u=1', 1), '200', 'the new worker is well';

    ends_well($nginx);
    $redis->cli('FLUSHALL');
};


subtest 'the end of a worker, of all, with requests that wait' => sub {
    my $nginx = patient_site();

    $redis->freeze;
    my $crowd = crowd($nginx, map { "/t?u=$_" } 1 .. 8);
    ok waits($nginx, 8), 'they wait';

    my ($worker) = $nginx->workers;
    kill 'TERM', $worker;
    finish($crowd);
    is join(' ', keys %{ $crowd->{seen} }), 'error', 'they have no answer';

    $redis->thaw;
    ok(IapGuard::Nginx->wait_for(5, sub {
        grep { $_ != $worker } $nginx->workers }), 'there is another worker');
    is statuses($nginx, '/t?u=x', 3), '200 200 429', 'which is well';

    $redis->freeze;
    $crowd = crowd($nginx, map { "/t?u=$_" } 1 .. 8);
    # nobody has told nginx's own count that the others are gone

    ok waits($nginx, 16), 'they wait again';
    kill 'TERM', $nginx->master;
    finish($crowd);
    ok(IapGuard::Nginx->wait_for(5, sub { !$nginx->all_workers }),
        'all are gone');
    $redis->thaw;

    ends_well($nginx);
    $redis->cli('FLUSHALL');
};


subtest 'HTTP/2: streams wait, one by one, and one is reset' => sub {
    my $nginx = patient_site();

    $redis->freeze;

    my $socket = send_raw($nginx, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        . frame(4, 0, 0, '')
        . join('', map { head($_, '/t?u=a') } 1, 3, 5, 7)
        . head(9, '/free'), $nginx->{h2});

    ok waits($nginx, 4), 'four wait';

    # the first one is given up

    send_on($socket, frame(3, 0, 1, pack 'N', 8));
    ok logged($nginx, qr/^499 /, 1), 'it is gone';

    $redis->thaw;

    my %status;
    my $until = time + 10;

    while (keys %status < 4 && time < $until) {
        foreach my $frame (frames($socket)) {
            my ($type, $stream, $payload) = @$frame;
            $status{$stream} = ord $payload if $type == 1;
        }
    }

    # 0x88 is ":status: 200" in HPACK's table; 429 is spelled out

    is join(' ', sort map { $_ == 0x88 ? 200 : 'other' }
                      @status{grep { $_ != 9 } keys %status}),
        '200 other other', 'of the others two are refused'
        or diag explain \%status;
    is $status{9}, 0x88, 'who does not wait is not held up';
    is $status{1}, undef, 'and who is gone is not answered';

    # nginx would linger for as long as we wait for its end

    close $socket;
    ends_well($nginx);
    $redis->cli('FLUSHALL');
};


subtest 'HTTP/2: the connection goes, with all that waits on it' => sub {
    my $nginx = patient_site();

    $redis->freeze;

    my $socket = send_raw($nginx, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        . frame(4, 0, 0, '')
        . join('', map { head(2 * $_ + 1, '/t?u=a') } 0 .. 19), $nginx->{h2});

    ok waits($nginx, 20), 'twenty wait';
    setsockopt $socket, SOL_SOCKET, SO_LINGER, pack('ii', 1, 0);
    close $socket;
    ok logged($nginx, qr/^499 /, 20), 'all are gone';
    $redis->thaw;
    is statuses($nginx, '/t?u=b', 3), '200 200 429', 'others go on';

    ends_well($nginx);
    $redis->cli('FLUSHALL');
};


done_testing;


# A site that logs statuses into access.log; its HTTP/2 is at another port.

sub patient_site {
    my ($method, %options) = @_;
    my $h2 = IapGuard::RedisServer::free_port();

    my $nginx = site($redis, $patient, connections => 512,
        events => defined $method ? "use $method;" : '', %options,
        http => "
    log_format status '\$status \$uri';

    server {
        listen 127.0.0.1:$h2 http2;
        access_log access.log status;
        $guarded
        location = /free { return 200 free; }
    }
", server => $guarded . '
    access_log access.log status;

    location = /free { return 200 free; }
    location = /status { stub_status; }

    location /any { iap_guard g; iap_guard_user $arg_u capacity=2 rate=1r/h;
        satisfy any; allow 127.0.0.1; deny all; empty_gif; }
    location /denied { iap_guard g; iap_guard_user $arg_u capacity=2 rate=1r/h;
        satisfy any; deny all; empty_gif; }

    location /page { iap_guard g; iap_guard_user $arg_u capacity=2 rate=1r/h;
        error_page 429 = /refused; try_files /nothing @word; }
    location /files { iap_guard g; iap_guard_user $arg_u capacity=2 rate=1r/h;
        error_page 404 = @word; root /nowhere; }
    location = /refused { return 200 page; }
    location @word { iap_guard g; iap_guard_user $arg_u capacity=2 rate=1r/h;
        proxy_pass http://127.0.0.1:$server_port/word; }
    location = /word { return 200 word; }

    location /echo { iap_guard g; iap_guard_user $arg_u capacity=2 rate=1r/h;
        client_body_buffer_size 16k; client_max_body_size 1m;
        proxy_pass http://127.0.0.1:$server_port/length; }
    location = /length { return 200 "got $http_content_length"; }
');

    $nginx->{h2} = $h2;

    IapGuard::Nginx->wait_for(10, sub { scalar $nginx->workers });

    return $nginx;
}


# Sends all requests, each on a connection of its own, and goes on when they
# are on their way; finish() waits for the answers.

sub crowd {
    my ($nginx, @paths) = @_;
    my $loop = IapGuard::Loop->new;
    my $crowd = { loop => $loop, left => scalar @paths, answered => 0,
                  seen => {}, bodies => {} };

    $crowd->{client} = IapGuard::LoadClient->new(
        loop => $loop, port => $nginx->port, connections => 200,
        timeout => 30);

    foreach my $path (@paths) {
        $crowd->{client}->request(
            { method => 'GET', path => $path, headers => {} },
            sub {
                my ($answer) = @_;
                $crowd->{left}--;
                $crowd->{answered}++;
                $crowd->{seen}{$answer->{status} // 'error'}++;
                $crowd->{bodies}{$answer->{body}}++
                    if defined $answer->{body} && $answer->{body} =~ /^\w+$/;
            });
    }

    # until what can be sent has been, and what need not wait is answered

    my $until = time + 0.5;
    $loop->run_until(sub { time > $until });

    return $crowd;
}


sub finish {
    my ($crowd) = @_;

    $crowd->{loop}->run_until(sub { !$crowd->{left} });
    $crowd->{client}->shut;

    return;
}


# Whether so many requests wait, which nothing but the store makes them do

sub waits {
    my ($nginx, $n) = @_;

    return IapGuard::Nginx->wait_for(10, sub {
        $nginx->get('/status')->{body} =~ /Writing: (\d+)/;
        return $1 - 1 == $n;        # without this one
    });
}


sub logged {
    my ($nginx, $pattern, $n) = @_;

    return IapGuard::Nginx->wait_for(5, sub {
        open my $log, '<', $nginx->file('access.log') or return 0;
        my @lines = grep { $_ =~ $pattern } <$log>;
        return @lines >= $n;
    });
}


# --- connections ----------------------------------------------------------

sub send_raw {
    my ($nginx, $bytes, $port) = @_;

    my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1',
                                       PeerPort => $port // $nginx->port)
        or die "can't connect: $@\n";

    send_on($socket, $bytes);

    return $socket;
}


sub send_on {
    my ($socket, $bytes) = @_;

    while (length $bytes) {
        my $n = syswrite $socket, $bytes or die "can't send: $!\n";
        substr $bytes, 0, $n, '';
    }

    return;
}


# what comes within so many seconds, or until the connection ends

sub read_all {
    my ($socket, $seconds) = @_;
    my $text = '';
    my $until = time + $seconds;

    while (IO::Select->new($socket)->can_read($seconds ? $until - time : 0)) {
        last if !sysread $socket, $text, 65536, length $text;
    }

    return $text;
}


# one answer, by its Content-Length

sub read_answer {
    my ($socket, $seconds) = @_;
    my $text = '';
    my $until = time + $seconds;

    until ($text =~ /^Content-Length: (\d+)\r\n.*?\r\n\r\n(.*)/ims
           && length $2 >= $1)
    {
        return "cut short: $text"
            if !IO::Select->new($socket)->can_read($until - time)
               || !sysread $socket, $text, 65536, length $text;
    }

    return $text;
}


# --- HTTP/2 ---------------------------------------------------------------

sub frame {
    my ($type, $flags, $stream, $payload) = @_;

    return substr(pack('N', length $payload), 1)
           . pack('CCN', $type, $flags, $stream) . $payload;
}


# a GET, whole; nothing in it is compressed

sub head {
    my ($stream, $path) = @_;

    return frame(1, 0x5, $stream, "\x82\x86\x04" . chr(length $path) . $path
                                  . "\x01\x01x");
}


# the frames that have come, each [type, stream, payload]; at most for a second

sub frames {
    my ($socket) = @_;
    my @frames;

    IO::Select->new($socket)->can_read(1) or return;
    sysread $socket, my $bytes, 65536 or return;

    while (length $bytes >= 9) {
        my ($high, $low, $type, undef, $stream)
            = unpack 'CnCCN', substr $bytes, 0, 9, '';
        push @frames, [$type, $stream,
                       substr $bytes, 0, $high * 65536 + $low, ''];
    }

    return @frames;
}
