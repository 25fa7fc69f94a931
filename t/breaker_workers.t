# A breaker among workers: they share its places, and what a worker had that
# dies, or leaves, is free again.

use strict;
use warnings;

use IO::Select;
use IO::Socket::INET;
use Test::More;
use Time::HiRes qw(sleep);

use lib 't/lib';
use IapGuard::Nginx;
use IapGuard::RawServer;

my $raw = IapGuard::RawServer->start(
    '/good' => ["HTTP/1.1 204 No Content\r\n\r\n"],
    '/bad'  => ["HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n"],
    '/late' => [\1, "HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n"],
    '/hang' => ['hang'],
);

# what nginx itself says of a process that was killed

my $KILLED = qr/exited on signal 9/;

our $nginx = start();

my @held;


subtest 'no more probes than there may be, of all workers' => sub {
    is statuses('b/bad'), '500', 'it opens';
    sleep 0.1;
    hold('b/hang') for 1 .. 40;
    is cut('b'), 37, 'three of forty are let by';
    is breaker()->{inflight}, 3, 'and under way';
    is scalar(keys %{{ map { $_->{worker} => 1 } @held }}), 2,
        'both workers were asked';
    let_go();
    is breaker()->{inflight}, 0, 'none is';
    is breaker()->{state}, 'half-open', 'nobody has proved anything';
    is statuses(('b/good') x 3), '204 204 204', 'their places are free';
    is breaker()->{state}, 'closed', 'it closes';
};


subtest 'the probes of a worker that is killed' => sub {
    is statuses('b/bad'), '500', 'it opens';
    sleep 0.1;
    hold('b/hang') for 1 .. 20;
    is breaker()->{inflight}, 3, 'three are under way';
    kill_workers(2);
    is breaker()->{inflight}, 0, 'none is';
    is statuses(('b/good') x 3), '204 204 204', 'their places are free';
    is breaker()->{state}, 'closed', 'it closes';
    cmp_ok told(qr/"b": processes have ended with \d calls?, which are over/),
        '>=', 1, 'it is in the log';
    let_go();
};


subtest 'calls at once, of a worker that is killed' => sub {
    hold('c/hang') for 1 .. 10;
    is cut('c'), 8, 'two of ten are let by';
    is breaker('c')->{outcomes}{full}, 8, 'and eight are over that';
    is statuses('c/good'), '503', 'nor is anybody';
    kill_workers(2);
    is statuses(('c/good') x 2), '204 204', 'two are';
    let_go();
};


subtest 'a reload, with calls under way' => sub {
    hold('d/late');
    hold('d/hang');
    is breaker('d')->{inflight}, 2, 'two are under way';

    my @old = $nginx->workers;

    kill HUP => $nginx->master;
    $nginx->wait_for(5, sub { my %w = map { $_ => 1 } $nginx->workers;
                              keys %w && !grep { $w{$_} } @old });
    ok $nginx->wait_for(5, sub { breaker('d')->{state} eq 'open' }),
        'what the old worker is told counts';
    is breaker('d')->{inflight}, 1, 'the other one is under way';
    ok $nginx->wait_for(5, sub { !breaker('d')->{inflight} }),
        'until the old worker may not wait any longer';
    is_deeply counted(breaker('d')->{outcomes}), { retry => 1, neutral => 1 },
        'which proves nothing';
    let_go();
};


subtest 'a worker that is not replaced: found dead where there is no room' => sub {
    local $nginx = start();

    my ($victim, $other);

    # both calls are of one worker, which the other one survives

    until ($victim) {
        hold('c/hang') for 1 .. 10;

        my %workers = map { $_->{worker} => 1 } grep { !$_->{answer} } @held;

        ($victim) = keys %workers if keys %workers == 1;
        let_go() if !$victim;
    }

    $other = connected() until $other && $other->{worker} != $victim;

    is breaker('c')->{inflight}, 2, 'two are under way';

    kill KILL => $nginx->master;
    kill KILL => $victim;

    SKIP: {
        ok($nginx->wait_for(5, sub { !IapGuard::Child->alive($victim) }),
           'the worker is dead');

        # which the module sees when somebody has waited for it

        $nginx->wait_for(0.5, sub { !kill 0, $victim })
            or skip 'nobody here takes note of the dead', 2;

        # which is looked at now and then, and may just have been

        ok $nginx->wait_for(5, sub {
            asked($other, 'c/good') =~ m{^HTTP/1.1 204 } }),
            'their places are free';
        is told(qr/"c": processes have ended with 2 calls, which/), 1,
            'it is in the log';
    }

    kill QUIT => $other->{worker};
    $nginx->wait_for(5, sub { !IapGuard::Child->alive($other->{worker}) });
    splice @held;
};


is_deeply [$nginx->complaints($KILLED)], [], 'no alert, no crit';

$nginx->stop;

# nginx says so itself of what worker_shutdown_timeout closes

is_deeply [$nginx->complaints($KILLED)], [], 'nor at the end';

done_testing;


sub start {
    my $nginx = IapGuard::Nginx->new(IapGuard::Nginx->options,
        workers => 2, listen => 'reuseport',
        main => 'worker_shutdown_timeout 2s;', http => http(),
        server => join '', map { "
        location /$_/ { iap_guard_breaker $_; proxy_pass http://raw/; }" }
            qw(b c d));

    return $nginx->start;
}

sub http {
    return "
    iap_guard_zone     iap 1m;
    iap_guard_breaker  b min=1 open=50ms probes=3;
    iap_guard_breaker  c inflight=2;
    iap_guard_breaker  d min=1 open=1h;
    add_header         X-Worker \$pid always;
    proxy_read_timeout 1h;
    upstream raw { server 127.0.0.1:@{[ $raw->port ]}; }";
}


# a connection, with the worker that has taken it

sub connected {
    my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1',
        PeerPort => $nginx->port, Timeout => 5) or die "can't connect: $@\n";
    my $connection = { socket => $socket };

    $connection->{worker}
        = asked($connection, 'none') =~ /^X-Worker: (\d+)/m ? $1 : 0;

    return $connection;
}

sub asked {
    my ($connection, $path, $seconds) = @_;
    my $socket = $connection->{socket};

    print {$socket} "GET /$path HTTP/1.1\r\nHost: x\r\n\r\n";
    $socket->flush;

    return answer($connection, $seconds);
}


# a request whose answer is not waited for

sub hold {
    my ($path) = @_;
    my $held = connected();

    $held->{answer} = asked($held, $path, 0.1);
    push @held, $held;

    return;
}

sub answer {
    my ($held, $seconds) = @_;
    my $bytes = '';

    while (IO::Select->new($held->{socket})->can_read($seconds // 5)) {
        last if !sysread $held->{socket}, $bytes, 65_536, length $bytes;
        last if $bytes =~ /\r\n\r\n/;
    }

    return $bytes;
}

# how many were told that they are; all but those that are under way have been
# answered then

sub cut {
    my ($name) = @_;

    $nginx->wait_for(10, sub {
        my @open = grep { !length $_->{answer} } @held;

        $_->{answer} = answer($_, 0) foreach @open;
        @open = grep { !length $_->{answer} } @open;

        return @open == breaker($name)->{inflight};
    }) or diag 'not all are answered';

    return scalar grep { $_->{answer} =~ m{^HTTP/1.1 503} } @held;
}

sub let_go {
    close $_->{socket} foreach splice @held;
    return $nginx->wait_for(5, sub {
        !grep { breaker($_)->{inflight} } qw(b c d) });
}


# until they are replaced

sub kill_workers {
    my @old = $nginx->workers;

    kill KILL => @old;

    return $nginx->wait_for(5, sub {
        my @new = $nginx->workers;
        my %new = map { $_ => 1 } @new;
        return @new == @old && !grep { $new{$_} } @old;
    });
}

sub statuses {
    return join ' ', map { $nginx->get("/$_")->{status} } @_;
}

sub breaker { return $nginx->api_json('GET', 'breakers/' . ($_[0] // 'b')) }

sub counted {
    my ($counts) = @_;
    return { map { $_ => $counts->{$_} } grep { $counts->{$_} } keys %$counts };
}

sub told {
    my ($pattern) = @_;
    return scalar(my @lines = $nginx->log_lines($pattern));
}
