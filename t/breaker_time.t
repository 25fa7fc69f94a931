# Breakers over time: what comes due by itself, in what order, and by which
# clock.  The clocks are the test's own.

use strict;
use warnings;

use IO::Socket::INET;
use POSIX qw(strftime);
use Test::More;
use Time::HiRes qw(sleep);

use lib 't/lib';
use IapGuard::Clock;
use IapGuard::Nginx;
use IapGuard::RawServer;

my $answer = "Content-Length: 0\r\n\r\n";

my $raw = IapGuard::RawServer->start(
    '/good' => ["HTTP/1.1 204 No Content\r\n\r\n"],
    '/bad'  => ["HTTP/1.1 500 Oops\r\n$answer"],
    '/hang' => ['hang'],
    '/late' => [\0.5, "HTTP/1.1 204 No Content\r\n\r\n"],
    '/held' => ["HTTP/1.1 429 Wait\r\nRetry-After: 100\r\n$answer"],
    '/busy' => ["HTTP/1.1 429 Wait\r\n$answer"],
    '/date' => ["HTTP/1.1 429 Wait\r\nRetry-After: "
                . strftime('%a, %d %b %Y %H:%M:%S GMT', gmtime time + 200)
                . "\r\n$answer"],
    '/until' => [
        "HTTP/1.1 429 Wait\r\nRetry-After: Fri, 01 Jan 2100 00:00:00 GMT\r\n"
        . $answer ],
);

my $parameters = 'min=1 open=10s probes=1';

my $nginx = IapGuard::Nginx->new(IapGuard::Nginx->options,
    http => "
        iap_guard_zone     iap 1m;
        iap_guard_breaker  b $parameters;
        iap_guard_breaker  c min=4 window=10s;
        iap_guard_breaker  d $parameters;
        iap_guard_breaker  e slow=1s;
        proxy_read_timeout 1h;
        upstream raw { server 127.0.0.1:@{[ $raw->port ]}; }",
    server => join '', map { "
        location /$_/ { iap_guard_breaker $_; proxy_pass http://raw/; }" }
        qw(b c d e));

plan skip_all => 'AddressSanitizer wants to be preloaded first'
    if $nginx->asan;

my $clock = IapGuard::Clock->new;

$clock->start($nginx);

my @asked;


subtest 'an open breaker has its time' => sub {
    is statuses(qw(b/bad b/good)), '500 503', 'it opens';
    is retry_after(), 10, 'for ten seconds';
    $clock->forward(6);
    is statuses('b/good'), '503', 'is open';
    is retry_after(), 4, 'for four more';
    $clock->forward(5);
    is breaker()->{state}, 'half-open', 'its time is over';
    is retry_after(), undef, 'nothing to wait for';
    is statuses('b/good'), '204', 'a probe passes';
    is breaker()->{state}, 'closed', 'it closes';
};


subtest 'a probe that hangs is over in the end' => sub {
    is statuses('b/bad'), '500', 'it opens';
    $clock->forward(11);
    hold('b/hang');
    is statuses('b/good'), '503', 'a probe is under way';
    $clock->forward(50);
    is statuses('b/good'), '503', 'for a minute';
    is breaker()->{state}, 'half-open', 'and that long half-open';
    $clock->forward(11);
    is statuses('b/good'), '503', 'then it opens again';
    my $now = breaker();
    is_deeply [@$now{qw(state reason inflight)}], ['open', 'probe hung', 1],
        'because of the probe, which is still a call';
    cmp_ok $now->{retry_after}, '<', 10, 'from when the probe was over';
    is $now->{opened}, $now->{changed}, 'dated by that';
    $clock->forward(10);
    is statuses('b/good'), '204', 'the next one passes';
    let_go();
    is breaker()->{state}, 'closed', 'what the first one says changes nothing';
};


subtest 'two changes at once, each with its time' => sub {
    is statuses('b/bad'), '500', 'it opens';
    $clock->forward(11);
    hold('b/hang');

    my @before = log_of('b');

    $clock->forward(100);

    my $now = breaker();

    is_deeply [@$now{qw(state reason)}], ['half-open', 'open time over'],
        'it has opened, and its time is over';
    is $now->{changed} - $now->{opened}, 10, 'ten seconds after it opened';
    cmp_ok abs(time - $now->{changed} - 30), '<=', 3, 'half a minute ago';
    is_deeply [@{[ log_of('b') ]}[@before .. @before + 1]],
        ['open: probe hung', 'half-open'], 'both are in the log';
    let_go();
    is statuses('b/good'), '204', 'a probe passes';
};


subtest 'failures leave the window without any call' => sub {
    is statuses(qw(c/bad c/bad c/bad)), '500 500 500', 'three failures';
    is breaker('c')->{failures}, 1, 'all have failed';
    $clock->forward(11);
    is_deeply [@{ breaker('c') }{qw(calls failures)}], [0, 0], 'none is left';
    is statuses(qw(c/good c/bad)), '204 500', 'two more do not open it';
    is breaker('c')->{state}, 'closed', 'closed';
};


subtest 'the wall\'s clock does not matter' => sub {
    is statuses('b/bad'), '500', 'it opens';

    foreach my $hours (1, -1, 24) {
        $clock->set_wall($hours * 3600);
        is statuses('b/good'), '503', "$hours h: open";
        is breaker()->{state}, 'open', 'and shown so';
        cmp_ok retry_after(), '<=', 10, 'for ten seconds';
    }

    $clock->set_wall(0);
    $clock->forward(11);
    is statuses('b/good'), '204', 'then a probe passes';
};


subtest 'a hold is from now on, and bounded' => sub {
    is statuses(qw(d/held d/good)), '429 503', 'on hold';
    is breaker('d')->{retry_after}, 100, 'as long as the upstream asks';
    is breaker('d')->{state}, 'closed', 'it is closed';
    $clock->set_wall(3600);
    $clock->forward(50);
    is breaker('d')->{retry_after}, 50, 'whatever the wall says';
    $clock->set_wall(0);
    $clock->forward(51);
    is statuses('d/until'), '429', 'over; and the next one';
    is breaker('d')->{retry_after}, 600, 'not for a century';
    $clock->forward(601);
    is statuses('d/date'), '429', 'over, too; and one with a date';
    my $left = breaker('d')->{retry_after};
    cmp_ok $left, '<=', 200, 'until then';
    cmp_ok $left, '>', 140, 'and not before';
    $clock->forward(201);
    is statuses('d/busy'), '429', 'over; and one that does not say';
    is breaker('d')->{retry_after}, 10, 'for the open time';
    $clock->forward(11);
    is statuses('d/good'), '204', 'over, too';
};


subtest 'a hold is also kept when the breaker is forced closed' => sub {
    put('"forced-closed"');
    is statuses(qw(d/held d/good)), '429 503', 'on hold';
    is breaker('d')->{retry_after}, 100, 'and shown so';
    put('"forced-open"');
    is breaker('d')->{retry_after}, undef, 'forced open it has no end';
    put('null');
    is breaker('d')->{retry_after}, 100, 'by itself, it has';
    $clock->forward(101);
    is statuses('d/good'), '204', 'over';
};


# nginx sees the answer first, and then that a second has passed

subtest 'a slow call that is not found hanging before it ends' => sub {
    hold('e/late', 'e');
    $clock->forward(5);
    sleep 1;
    is_deeply counted(breaker('e')->{outcomes}), { success => 1 }, 'it ended';
    is_deeply [@{ breaker('e') }{qw(calls slow)}], [1, 1], 'and was slow';
    let_go();
};


is_deeply [$nginx->complaints], [], 'no alert, no crit';

$nginx->stop;

is_deeply [$nginx->complaints], [], 'nor at the end';

done_testing;


sub statuses {
    return join ' ', map { $nginx->get("/$_")->{status} } @_;
}

sub breaker { return $nginx->api_json('GET', 'breakers/' . ($_[0] // 'b')) }

sub put {
    $nginx->api('PUT', 'breakers/d', "{\"mode\":$_[0]}");
    return;
}

sub counted {
    my ($counts) = @_;
    return { map { $_ => $counts->{$_} } grep { $counts->{$_} } keys %$counts };
}

sub retry_after { return breaker()->{retry_after} }


# a request whose answer nobody waits for; and all of them given up

sub hold {
    my ($path, $breaker) = @_;
    my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1',
        PeerPort => $nginx->port) or die "can't connect: $@\n";

    print {$socket} "GET /$path HTTP/1.0\r\n\r\n";
    $socket->flush;
    push @asked, $socket;

    return $nginx->wait_for(5, sub { breaker($breaker)->{inflight} });
}

sub let_go {
    close $_ foreach splice @asked;
    return $nginx->wait_for(5, sub { !breaker()->{inflight} });
}


sub log_of {
    my ($name) = @_;

    return map { /breaker "\Q$name\E" is (.*?)(?:; next|, client|, last|$)/ }
           $nginx->log_lines(qr/breaker "\Q$name\E" is /);
}
