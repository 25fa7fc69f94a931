# Connections: those that fail, those that are kept, and nginx's own.

use strict;
use warnings;

use IO::Socket::INET;
use Socket qw(SOL_SOCKET SO_LINGER);
use Test::More;
use Time::HiRes qw(sleep);

use IapGuard::Child;
use IapGuard::HTTPServer;
use IapGuard::Loop;
use IapGuard::RedisServer;
use CurlTest;


test fails => sub {
    my $nginx = nginx();
    my $none  = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 1,
                                      Proto => 'tcp');
    my $port  = $none->sockport;
    close $none;

    my $done = $nginx->call(1, 'POST', "http://127.0.0.1:$port/");
    is $done->{transport}, 'connect', 'refused';
    like $done->{error}, qr/connect/i, "\"$done->{error}\"";
    cmp_ok $done->{ms}, '<', 500, 'at once';

    $done = $nginx->call(1, 'POST', 'http://255.255.255.255:80/');
    is $done->{transport}, 'local', 'no route: our own side';

    # a listener whose queue is full answers no SYN

    my $full = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 1,
                                     Proto => 'tcp');
    my @fill = map { IO::Socket::INET->new(PeerAddr => '127.0.0.1',
        PeerPort => $full->sockport, Blocking => 0) } 1 .. 4;

    $done = $nginx->call(1, 'POST', 'http://127.0.0.1:' . $full->sockport . '/',
                         'connect=300');
    is $done->{transport}, 'timeout', 'no answer to a SYN';
    between $done->{ms}, 290, 900, 'in its time';

    ends_well($nginx);
};


# A server on a loop in a child process, that closes connections which idle, as
# one does that has closed, and is asked all the same.
#
#   die => 1        of each connection, after so many calls
#   first => 8      only the first ones do
#   reset => 1      with a reset
#   pause => 0.1    so long after it was asked
#   gather => 8     nobody is answered before so many have asked
#   mute => 1       whoever comes after the first ones is not answered
#
# Retry-After of its answers is this connection's number, how many calls it has
# answered, and how many connections have died of one.

sub idle_server {
    my (%how) = @_;
    my $listener = IapGuard::HTTPServer->listener(0);
    my $port     = $listener->sockport;

    my $child = IapGuard::Child->start(sub {
        my ($gone) = @_;
        my $loop = IapGuard::Loop->new;
        my $done = 0;
        my %all  = (connections => 0, calls => 0, deaths => 0,
                    gathered => []);

        $loop->on_read($gone, sub { $done = 1 });
        $loop->on_read($listener, sub {
            my $socket = $listener->accept or return;

            $socket->blocking(0);
            idle_connection($loop, $socket, \%all, %how);
        });
        $loop->run_until(sub { $done });
        return 0;
    });
    close $listener;

    return ($port, $child);
}


sub idle_connection {
    my ($loop, $socket, $all, %how) = @_;
    my ($n, $in, $dying) = (0, '', 0);
    my $number = ++$all->{connections};
    my $dies   = $how{die} && $number <= ($how{first} || $number);

    my $end = sub {
        return if !defined fileno $socket;
        setsockopt $socket, SOL_SOCKET, SO_LINGER, pack 'ii', 1, 0
            if $how{reset};
        $loop->forget($socket);
        close $socket;
    };

    $loop->on_read($socket, sub {
        my $got = sysread $socket, $in, 65_536, length $in;

        return if !defined $got && $!{EAGAIN};
        return $end->() if !$got;

        if ($dies && $n == $how{die}) {
            return if $dying++;
            $all->{deaths}++;
            return $how{pause} ? $loop->after($how{pause}, $end) : $end->();
        }

        return if $how{mute} && $number > $how{first};

        my ($head, $body) = split /\r\n\r\n/, $in, 2;
        return unless defined $body && $head =~ /^Content-Length: (\d+)/m
                      && length $body >= $1;
        $in = '';
        $n++;
        $all->{calls}++;

        push @{ $all->{gathered} },
            [$socket, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n"
                      . "Retry-After: $number,$all->{calls},$all->{deaths}"
                      . "\r\n\r\nok"];
        return if $all->{calls} < ($how{gather} || 0);

        syswrite $_->[0], $_->[1] foreach splice @{ $all->{gathered} };
    });

    return;
}


test kept => sub {
    my ($port, $server) = idle_server();
    my $nginx = nginx();

    foreach my $n (1 .. 5) {
        my $done = $nginx->call($n, 'POST', "http://127.0.0.1:$port/",
                                'data={}');
        is "$done->{transport} $done->{retry_after}", "ok 1,$n,0",
           "call $n, on the same connection";
    }

    ends_well($nginx);
};


test died_idle => sub {
    foreach my $reset (0, 1) {
        my ($port, $server) = idle_server(die => 1, reset => $reset);
        my $nginx = nginx();

        foreach my $n (1 .. 4) {
            my $done = $nginx->call($n, 'POST', "http://127.0.0.1:$port/",
                                    'data={}');
            is "$done->{transport} $done->{retry_after}", "ok $n,$n," . ($n - 1),
               "call $n, on a fresh connection after the kept one died"
               . ($reset ? ' of a reset' : '');
            is $done->{error}, '', 'and nothing was wrong';
        }

        ends_well($nginx);
    }

    my ($port, $child) = idle_server(die => 1, reset => 1);
    my $other = nginx();

    foreach my $n (1 .. 4) {
        my $done = $other->call($n, 'POST', "http://127.0.0.1:$port/",
                                'body=5000000');
        is "$done->{transport} $done->{retry_after}", "ok $n,$n," . ($n - 1),
           "call $n, with a long body that was cut off";
    }

    ends_well($other);

    # a server that closes each connection without a word is none that idled

    my $server = server('/' => ['']);
    my $nginx  = nginx();
    my $done   = $nginx->call(1, 'POST',
                              'http://127.0.0.1:' . $server->port . '/');

    is $done->{transport}, 'reset', 'a fresh one that died: reset';
    is $server->calls, 1, 'asked once';
    ends_well($nginx);
};


# What has been answered, with whatever, has been heard: it is not sent again.

test answered_badly => sub {
    my $server = server(
        '/keep' => ["HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 'keep'],
        '/none' => ["What is that?\r\n\r\n"],
        '/new'  => ["HTTP/7.3 200 OK\r\nContent-Length: 2\r\n\r\nok"]);
    my $nginx  = nginx();
    my $url    = 'http://127.0.0.1:' . $server->port;

    foreach my $path ('/none', '/new') {
        is $nginx->call(1, 'POST', "$url/keep", 'data={}')->{transport}, 'ok',
           'a connection that is kept';
        is $nginx->call(2, 'POST', "$url$path", 'data={}')->{transport},
           'reset', "$path: no answer";
        is $server->calls($path), 1, 'and it was asked once';
    }

    ends_well($nginx);
};


# It is seen when the next piece of a body is sent, and not when an answer is
# read, which libcurl takes for a failure.

test died_meanwhile => sub {
    foreach my $host ('127.0.0.1', 'good.test') {
        my ($port, $server) = idle_server(die => 1, reset => 1, pause => 0.1);
        my $nginx = nginx();
        my $url   = "http://$host:$port/";

        is $nginx->call(1, 'POST', $url, 'data={}')->{transport}, 'ok', $host;

        $nginx->tell('late');
        my $done = $nginx->call(2, 'POST', $url, 'body=200000');
        is "$done->{transport} $done->{retry_after}", 'ok 2,2,1',
           'once more, on a fresh connection';
        is $done->{error}, '', 'and nothing was wrong';

        # a fresh one that dies likewise is no kept one

        my $raw = server('POST' => [\0.1, 'reset']);
        $nginx->tell('late');
        $done = $nginx->call(3, 'POST', "http://$host:" . $raw->port . '/',
                             'body=200000');
        is $done->{transport}, 'reset', 'a fresh one that died: reset';
        is $raw->calls, 1, 'asked once';

        ends_well($nginx);
    }
};


# more of them than libcurl tries, one after the other

test all_died => sub {
    foreach my $reset (0, 1) {
        my ($port, $server) = idle_server(die => 1, first => 16, gather => 16,
                                          reset => $reset, pause => 0.02);
        my $nginx = nginx();
        my ($free) = $nginx->stat;
        my $url = "http://127.0.0.1:$port/";

        $nginx->tell("send $_ POST $url data={}") foreach 1 .. 16;
        is $nginx->ended($_)->{transport}, 'ok', "connection $_"
            foreach 1 .. 16;

        my $done = $nginx->call(17, 'POST', $url, 'data={}');
        my ($number, $calls, $deaths) = split /,/, $done->{retry_after};

        is "$done->{transport} $number $calls", 'ok 17 17',
           'a fresh one when many had died';
        cmp_ok $deaths, '>', 1, 'of some of which libcurl had taken others';
        cmp_ok $deaths, '<', 12, 'but it did not try them all';
        cmp_ok $done->{ms}, '>=', 19 * $deaths, 'took as long as all of it';
        is join(' ', $nginx->stat), "$free 0", 'nothing is left';
        ends_well($nginx);
    }
};


# which is one call still, and has its time once

test died_and_hangs => sub {
    my ($port, $server) = idle_server(die => 1, first => 8, gather => 8,
                                      reset => 1, pause => 0.1, mute => 1);
    my $nginx = nginx();
    my $url   = "http://127.0.0.1:$port/";

    $nginx->tell("send $_ POST $url data={}") foreach 1 .. 8;
    is $nginx->ended($_)->{transport}, 'ok', "connection $_" foreach 1 .. 8;

    my $done = $nginx->call(9, 'POST', $url, 'data={}', 'timeout=900');
    is $done->{transport}, 'timeout', 'the fresh one is not answered';
    between $done->{ms}, 890, 1300, 'in the time of one call';

    ends_well($nginx);
};


# nginx's connections: none left, and given back

test starved => sub {
    my $server = server('/a' => [answer(200, 'ok'), 'keep'],
                        '/hang' => ['hang']);
    my $url    = 'http://127.0.0.1:' . $server->port;

    my $nginx = nginx();
    my ($free) = $nginx->stat;

    is $nginx->call(1, 'POST', "$url/a")->{transport}, 'ok', "works";

    # that it has begun is said before libcurl has opened anything for it: the
    # server has to have it

    my $begun = now();
    $nginx->tell("send 2 POST $url/hang timeout=1000");
    sleep 0.005 until $server->calls == 2 || now() > $begun + 5;

    # none for this one, which is sent before they are gone

    $nginx->tell("send 5 POST $url/a\ntake");
    my $done = $nginx->ended(5);
    is $done->{transport}, 'local', "begun, but too late to get one: our own";
    like $done->{error}, qr/worker_connections/, "and says so";

    $done = $nginx->call(3, 'POST', "$url/a");
    is $done->{transport}, 'local', "no connections: our own side";
    like $done->{error}, qr/worker_connections/, "and says so";

    is $nginx->ended(2)->{transport}, 'timeout',
       "others have theirs still";
    $nginx->tell('give');
    is $nginx->call(4, 'POST', "$url/a")->{transport}, 'ok',
       "and works again";
    is +($nginx->stat)[0], $free, "all are given back";

    ends_well($nginx, qr/worker_connections are not enough/);
};


test many => sub {
    my $server = server('/a' => [answer(200, 'x' x 5000), 'keep'],
                        '/b' => [answer(200, 'ok')],
                        '/c' => [\0.01, 'reset']);
    my $url    = 'http://127.0.0.1:' . $server->port;

    my $nginx = nginx(connections => 256, limit => 60);
    my ($free) = $nginx->stat;

    is_deeply $nginx->burst(1500, 150, 3000, "$url/a"), { ok => 1500 },
        "kept connections";
    is_deeply $nginx->burst(500, 100, 100, "$url/b"), { ok => 500 },
        "one each";
    is_deeply $nginx->burst(200, 100, 20_000, "$url/c"), { reset => 200 },
        "all of which fail";
    is +($nginx->stat)[0], $free, "nginx has all its connections";
    cmp_ok $nginx->lag, '<', 500, "and went on";

    ends_well($nginx);
};


# no more at once than the limit, and those that wait do not count their time

test turns => sub {
    my $server = server('/slow' => [\0.3, answer(200, 'ok')]);
    my $url    = 'http://127.0.0.1:' . $server->port;
    my $nginx  = nginx(limit => 2);
    my $begun  = now();

    $nginx->tell("send $_ POST $url/slow timeout=450") foreach 1 .. 6;

    my @done = map { $nginx->ended($_) } 1 .. 6;
    is join(' ', map { $_->{transport} } @done), join(' ', ('ok') x 6),
       'all six, although the last one had to wait';
    between 1000 * (now() - $begun), 880, 1500, 'two at a time';

    $nginx->tell("send 11 POST $url/slow");
    $nginx->tell("send 12 POST $url/slow");
    $nginx->tell("send 13 POST $url/slow decline");
    $nginx->tell("send 14 POST $url/slow");
    is $nginx->ended(13)->{declined}, 1, 'declined when its turn came';
    ok defined $nginx->line(qr/^start 13/), 'after it was asked';
    is $nginx->ended($_)->{transport}, 'ok', "and $_" foreach 11, 12, 14;

    ends_well($nginx);
};


# a server that speaks first, and no TLS, or closes at once

sub greeter {
    my ($how) = @_;
    my $listener = IapGuard::HTTPServer->listener(0);
    my $port     = $listener->sockport;

    my $child = IapGuard::Child->start(sub {
        my ($gone) = @_;
        my $loop = IapGuard::Loop->new;
        my $done = 0;

        $loop->on_read($gone, sub { $done = 1 });
        $loop->on_read($listener, sub {
            my $socket = $listener->accept or return;

            if ($how eq 'plain') {
                syswrite $socket, "220 mail.test ready\r\n";

            } else {
                setsockopt $socket, SOL_SOCKET, SO_LINGER, pack 'ii', 1, 0;
            }

            close $socket;
        });
        $loop->run_until(sub { $done });
        return 0;
    });
    close $listener;

    return ($port, $child);
}


test tls => sub {
    my $folder = file('tls');
    my $redis  = IapGuard::RedisServer->new(folder => $folder, tls => 1);
    my $socket = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 1,
                                       Proto => 'tcp');
    my $port   = $socket->sockport;
    close $socket;

    my $server = IapGuard::Child->program({ output => file('s_server') },
        'openssl', 's_server', '-accept', "127.0.0.1:$port", '-www',
        '-cert', "$folder/redis.crt", '-key', "$folder/redis.key");

    sleep 0.1 until IO::Socket::INET->new(PeerAddr => '127.0.0.1',
                                          PeerPort => $port);

    my $nginx = nginx(tls_ca => "$folder/ca.crt");

    is $nginx->call(1, 'GET', "https://127.0.0.1:$port/")->{transport}, 'ok',
       'a good certificate';
    lag_is_tiny($nginx, 'its handshake', sub {
        $nginx->call(1, 'GET', "https://127.0.0.1:$port/");
    });

    my $done = $nginx->call(2, 'GET', "https://good.test:$port/");
    is $done->{transport}, 'local', 'of another name: our own side';
    like $done->{error}, qr/certificate/i, "\"$done->{error}\"";

    foreach my $how ('plain', 'reset') {
        my ($other, $child) = greeter($how);
        $done = $nginx->call(3, 'GET', "https://127.0.0.1:$other/");
        is $done->{transport}, 'connect', "no TLS there, $how: connect";
        ok length $done->{error}, "\"$done->{error}\"";
    }

    ends_well($nginx);

    $nginx = nginx();
    $done  = $nginx->call(1, 'GET', "https://127.0.0.1:$port/");
    is $done->{transport}, 'local', 'of nobody the system knows';
    lag_is_tiny($nginx, 'looking for that', sub {
        $nginx->call(1, 'GET', "https://127.0.0.1:$port/");
    });
    ends_well($nginx);

    # one that accepts, and says nothing

    my $mute = server();
    $nginx = nginx(tls_ca => "$folder/ca.crt");
    $done  = $nginx->call(1, 'GET', 'https://127.0.0.1:' . $mute->port . '/',
                          'connect=400');
    is $done->{transport}, 'timeout', 'a handshake that stalls';
    between $done->{ms}, 390, 900, 'in its time';
    lag_is_small($nginx, 'meanwhile');
    ends_well($nginx);
};

1;
