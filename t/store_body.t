# A guard with a store that asks for what is in a body: what the store has
# refused before is refused without the body where it does not depend on it, and
# without the store where it does.

use strict;
use warnings;

use IO::Select;
use IO::Socket::INET;
use Socket qw(SOL_SOCKET SO_LINGER);
use Test::More;
use Time::HiRes qw(sleep);

use lib 't/lib';
use IapGuard::StoreTest;

my $redis = redis();

my $nginx = site($redis, 'timeout=2s', http => 'iap_guard_json $code code;
        map $code $plan { default none; ABC yearly; DEF monthly; }',
    server => '
        location /up { return 200 up; }
        location /t {
            iap_guard g;
            iap_guard_user   $arg_u capacity=2 rate=1r/h;
            iap_guard_bucket promo $code capacity=2 rate=1r/h missing=skip;
            proxy_request_buffering off;
            proxy_pass http://127.0.0.1:PORT/up;
        }
        location /plan {
            iap_guard plan;
            iap_guard_bucket plan $plan capacity=1 rate=1r/h;
            proxy_pass http://127.0.0.1:PORT/up;
        }
        location /body {
            iap_guard body;
            iap_guard_user $code capacity=1 rate=1r/h;
            proxy_pass http://127.0.0.1:PORT/up;
        }' =~ s/PORT/9/gr);

# its own port is known only now

$nginx->change(server => $nginx->{server} =~ s/127\.0\.0\.1:9\b/'127.0.0.1:' . $nginx->port/ger);


# a request whose body is sent but for its last bytes

sub begin {
    my ($path, $body, $less) = @_;

    my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1',
                                       PeerPort => $nginx->port)
        or die "can't connect: $!\n";

    print {$socket} "POST $path HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                    . "Content-Type: application/json\r\n"
                    . 'Content-Length: ' . length($body) . "\r\n\r\n"
                    . substr $body, 0, length($body) - $less;
    $socket->flush;

    return $socket;
}

sub status {
    my ($socket, $patience) = @_;

    return 'none' if !IO::Select->new($socket)->can_read($patience // 5);

    sysread $socket, my $answer, 4096;

    return $answer =~ m{^HTTP/1\.1 (\d+)} ? $1 : 'closed';
}

sub post { return status(begin(@_, 0)) }


subtest 'what does not depend on the body' => sub {
    is post('/t?u=a', '{"code":"ABC"}'), 200, 'one';
    is post('/t?u=a', '{"code":"DEF"}'), 200, 'two';
    is post('/t?u=a', '{"code":"GHI"}'), 429, 'spent, says the store';

    my $before = scripts($redis);

    is status(begin('/t?u=a', '{"code":"GHI"}', 3), 0.5), 429,
        'refused before the body' foreach 1 .. 3;

    is scripts($redis), $before, 'and without the store';
    is hits($nginx, 'g'), 3, 'by the deny cache';

    my $socket = begin('/t?u=b', '{"code":"GHI"}', 3);

    is status($socket, 0.3), 'none', 'another user\'s body is waited for';
    is scripts($redis), $before, 'before the store is asked';

    print {$socket} 'I"}';
    $socket->flush;

    is status($socket), 200, 'and let by';
    is scripts($redis), $before + 1, 'in one call';
};


subtest 'what depends on it' => sub {
    is post('/t?u=c', '{"code":"JKL"}'), 200, 'one';
    is post('/t?u=d', '{"code":"JKL"}'), 200, 'two';
    is post('/t?u=e', '{"code":"JKL"}'), 429, 'spent, says the store';

    my $before = scripts($redis);

    is post('/t?u=e', '{"code":"\u004aKL"}'), 429, 'refused';
    is scripts($redis), $before, 'without the store';
    is post('/t?u=e', '{"code":"MNO"}'), 200, 'another';
    is post('/t?u=e', '{"code":"PQR"}'), 200, 'a refusal took no token';
    is post('/t?u=e', '{"code":"PQR"}'), 429, 'of the user';
};


subtest 'through a map, and a user of the body' => sub {
    is post('/plan', '{"code":"ABC"}'), 200, 'a plan';
    is post('/plan', '{"code":"ABC"}'), 429, 'again';
    is post('/plan', '{"code":"DEF"}'), 200, 'another plan';

    is post('/body', '{"code":1}'), 200, 'a user';
    is post('/body', '{"code":2}'), 200, 'another';
    is post('/body', '{"code":1}'), 429, 'the first again';
    is post('/body', '{}'), 200, 'none: its address';
    is post('/body', '{"code":null}'), 429, 'likewise';
};


subtest 'a client that leaves, before its body\'s end and behind it' => sub {
    foreach my $less (3, 0) {
        $redis->cli('CLIENT', 'PAUSE', '300', 'ALL');

        my @sockets = map { begin("/t?u=left$_", '{"code":"XYZ"}', $less) }
                          1 .. 5;

        sleep 0.1;
        setsockopt $_, SOL_SOCKET, SO_LINGER, pack('ii', 1, 0) foreach @sockets;
        close $_ foreach @sockets;
        sleep 0.4;
    }

    is post('/t?u=stays', '{"code":"STU"}'), 200, 'others go on';
};


subtest 'without the store' => sub {
    $redis->stop;

    is post('/t?u=z', '{"code":"VWX"}'), 200, 'one';
    is post('/t?u=z', '{"code":"VWX"}'), 200, 'two';
    is post('/t?u=z', '{"code":"YZA"}'), 429, 'the zone decides';
    is post('/t?u=y', '{"code":"VWX"}'), 429, 'also by the body';
};


ends_well($nginx);

done_testing;
