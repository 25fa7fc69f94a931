#!/usr/bin/perl

# Apple hangs, and thousands of clients ask for a verification at once: with
# `inflight` so many calls reach it, all others are told at once when to come
# back, and neither another guarded location nor the API, nor nginx's memory,
# feels anything of it.  Then the same without a breaker, to compare; and once
# more without one, where a worker has no more connections than most have.

use strict;
use warnings;

use File::Temp ();
use IO::Handle ();
use IO::Socket::INET;
use List::Util qw(max sum);
use Socket qw(AF_INET SOCK_STREAM IPPROTO_TCP INADDR_LOOPBACK
              pack_sockaddr_in);
use Test::More;
use Time::HiRes qw(sleep);

use IapGuard::Child;
use IapGuard::Loop;
use IapGuard::Nginx;
use IapGuard::PacedLoad;

use constant {
    WORKERS     => 4,
    CLIENTS     => 10_000,
    FEWER       => 5_000,       # more than FEW of each worker can serve
    BATCH       => 50,          # that come before answers are looked at
    INFLIGHT    => 200,
    CONNECTIONS => 8192,        # of a worker; a client has one, and its call
    FEW         => 1024,        # Debian's configuration has 768
    FILES       => 12_000,      # of a process
    LISTENING   => '0A',        # in /proc/net/tcp

    QUIET       => 1,           # seconds
    HANGS       => 1,           # while all hang
    ARRIVAL     => 60,          # that the coming of all may take

    FLAT        => 12,          # MB that nginx may grow by
    COMING      => 100,         # ms: p99 of others while all come,
    LONGER      => 50,          # and more than twice what it was, while all
                                # hang
};

many_files();

my %paths = IapGuard::Nginx->options;

my $with    = crowd('with a breaker', CLIENTS, CONNECTIONS,
                    'iap_guard_breaker apple;');
my $without = crowd('without one', CLIENTS, CONNECTIONS, '');
my $few     = crowd('without one, few connections', FEWER, FEW, '');

with_a_breaker($with);
without_one($with, $without, $few);

done_testing;


sub with_a_breaker {
    my ($seen) = @_;
    my $over = CLIENTS - INFLIGHT;

    is $seen->{reached}, INFLIGHT, 'as many calls reached Apple as "inflight"';
    is $seen->{breaker}{inflight}, INFLIGHT, 'and are under way';
    is $seen->{breaker}{outcomes}{full}, $over, 'the others were too many';
    is_deeply $seen->{statuses}, { 503 => $over }, 'and got 503';
    is $seen->{retry_after}, $over, 'with Retry-After';

    others_fine('with a breaker', $seen);
    cmp_ok $seen->{memory}, '<=', FLAT, 'memory is flat';
    is $seen->{after}{inflight}, 0, 'then no call is under way';

    return;
}


# What it does, or this file would show nothing

sub without_one {
    my ($with, $without, $few) = @_;

    is $without->{reached}, CLIENTS, 'without one all calls reach Apple';
    is_deeply $without->{statuses}, {}, 'and nobody gets an answer';
    cmp_ok $without->{memory}, '>', 4 * $with->{memory}, 'it costs memory';

    cmp_ok $few->{lost}, '>', 0, 'with few connections others are not served';

    return;
}


sub others_fine {
    my ($name, $seen) = @_;

    foreach my $path (sort keys %{ $seen->{others} }) {
        my ($quiet, $coming, $hanging) = @{ $seen->{others}{$path} };

        foreach my $part ($coming, $hanging) {
            is_deeply $part->{errors}, [], "$name: $path is answered";
            is_deeply [keys %{ $part->{statuses} }], [200], 'with 200';
        }

        cmp_ok $coming->{p99}, '<', COMING,
            "$name: $path is answered soon while they come";
        cmp_ok $hanging->{p99}, '<=', 2 * $quiet->{p99} + LONGER,
            "$name: $path keeps its p99 while they hang";
    }

    return;
}


# All clients come, and their calls hang.  What was seen:
#
#   reached      calls that reached Apple
#   statuses     { 503 => 9800 } of the clients, without those that wait
#   retry_after  how many of these had it
#   breaker, after   as the API shows it: while all hang, and in the end
#   memory       MB that the workers have grown by
#   others       { path => [part when it was quiet, part while they came, part
#                while they hung] }, each as IapGuard::PacedLoad has it
#   lost         requests of others that had no answer

sub crowd {
    my ($name, $n, $connections, $breaker) = @_;
    my $apple = hanging();
    my $nginx = nginx($apple->{port}, $breaker, $connections);
    my %seen;

    my @workers = $nginx->workers;
    my $load    = IapGuard::PacedLoad->start(port => $nginx->port,
        connections => 16, pause => 0.02, timeout => 2,
        paths => ['/other', '/api/status']);

    my $quiet  = IapGuard::Loop::now();
    sleep QUIET;
    my $memory = my $most = memory(@workers);
    my $came   = IapGuard::Loop::now();

    my $clients = clients($nginx->port, $n);

    IapGuard::Nginx->wait_for(ARRIVAL, sub {
        sleep 0.04;
        $most = max($most, memory(@workers));
        return read_lines($clients)->{sent};
    }) or fail "$name: all clients came";

    my $stayed = IapGuard::Loop::now();
    sleep HANGS;
    $most = max($most, memory(@workers));

    $seen{memory}  = ($most - $memory) / 1024;
    $seen{reached} = -s $apple->{calls};
    $seen{breaker} = $connections == CONNECTIONS
                     && $nginx->api_json('GET', 'breakers/apple');

    my $ended = IapGuard::Loop::now();
    $load->stop;
    %seen = (%seen, %{ read_lines($clients) });

    foreach my $path (qw(/other /api/status)) {
        my @parts = map { $load->part($path, @$_) }
            [$quiet, $came], [$came, $stayed], [$stayed, $ended];

        $seen{others}{$path} = \@parts;
        $seen{lost} += @{ $_->{errors} } foreach @parts;
    }

    # nothing is left once the clients have gone

    $clients->{child}->stop;

    ok $nginx->wait_for(20, sub { !connections(@workers) }),
        "$name: no connection is left" or diag connections(@workers);
    is sum(IapGuard::Nginx->connections_to($apple->{port}, @workers)),
        0, "$name: none to Apple either";

    $seen{after} = $nginx->api_json('GET', 'breakers/apple');

    say_what($name, \%seen, $n, $stayed - $came);

    my @complaints = $nginx->complaints(
        $connections == FEW ? qr{worker_connections are not enough} : ());
    is_deeply \@complaints, [], "$name: nothing else in the log";

    $nginx->stop;
    $apple->{child}->stop;

    return \%seen;
}


sub say_what {
    my ($name, $seen, $n, $seconds) = @_;

    note sprintf '%s: %d clients in %.1f s, %d calls reached Apple, %s; '
        . 'nginx grew by %.1f MB', $name, $n, $seconds, $seen->{reached},
        join(', ', map { "$seen->{statuses}{$_} x $_" }
                       sort keys %{ $seen->{statuses} }) || 'no answer',
        $seen->{memory};

    foreach my $path (sort keys %{ $seen->{others} }) {
        my @parts = @{ $seen->{others}{$path} };

        note sprintf '    %-12s p99 %.1f ms, %.1f while they came, %.1f while '
            . 'they hung; %d of %d had no answer', $path,
            (map { $_->{p99} } @parts),
            (sum map { scalar @{ $_->{errors} } } @parts),
            (sum map { $_->{n} } @parts);
    }

    return;
}


sub nginx {
    my ($apple, $breaker, $connections) = @_;

    return IapGuard::Nginx->new(%paths, workers => WORKERS,
        listen => 'reuseport backlog=4096', connections => $connections,
        main => 'worker_rlimit_nofile ' . FILES . ';',
        http => <<"END", server => <<"ENDS")->start;
    iap_guard_zone     iap 4m;
    iap_guard_breaker  apple inflight=@{[ INFLIGHT ]} classify=apple;
END
        location = /verify {
            iap_guard           verify;
            iap_guard_user      \$http_x_user_id capacity=10 rate=10r/s;
            $breaker
            proxy_read_timeout  60s;
            proxy_pass          http://127.0.0.1:$apple;
        }

        location = /other {
            iap_guard       other;
            iap_guard_user  \$http_x_user_id capacity=10 rate=10r/s;
            empty_gif;
        }

        location /api/ { iap_guard_api read; }
ENDS
}


# A server that accepts, and never says a word: { port, calls }, where `calls`
# is a file that has a byte for each of those.

sub hanging {
    my $listener = IO::Socket::INET->new(LocalAddr => '127.0.0.1',
        Listen => 4096, Proto => 'tcp') or die "no free port: $@\n";
    my $calls = File::Temp->new(TEMPLATE => 'iap_guard-calls-XXXXXX',
                                TMPDIR => 1);
    my $port = $listener->sockport;

    my $child = IapGuard::Child->start(sub {
        my ($gone) = @_;
        my @held;

        while (1) {
            vec(my $bits = '', fileno $gone, 1) = 1;
            vec($bits, fileno $listener, 1) = 1;
            select $bits, undef, undef, undef;

            return 0 if vec $bits, fileno $gone, 1;

            push @held, scalar $listener->accept;
            syswrite $calls, '.';
        }
    });

    close $listener;

    return { child => $child, port => $port, calls => $calls };
}


# The clients, in a process of their own, each with a connection of its own.
# They stay until it is stopped.

sub clients {
    my ($port, $n) = @_;
    my $file = File::Temp->new(TEMPLATE => 'iap_guard-seen-XXXXXX',
                               TMPDIR => 1);

    my $child = IapGuard::Child->start(sub {
        my ($gone) = @_;
        my $loop = IapGuard::Loop->new;
        my ($end, $sent, $come) = (0, 0);

        $come = sub {
            client($loop, $port, ++$sent, $file) for 1 .. BATCH;

            return $loop->after(0, $come) if $sent < $n;
            print {$file} "sent\n";
        };

        $file->autoflush(1);
        $loop->on_read($gone, sub { $end = 1 });
        $loop->after(0, $come);
        $loop->run_until(sub { $end });

        return 0;
    });

    return { child => $child, file => $file->filename, keep => $file };
}


sub client {
    my ($loop, $port, $i, $file) = @_;

    socket my $socket, AF_INET, SOCK_STREAM, IPPROTO_TCP or die "socket: $!\n";
    connect $socket, pack_sockaddr_in($port, INADDR_LOOPBACK)
        or die "connect: $!\n";

    my $body = '{"receipt-data":"x"}';
    my $answer = '';

    syswrite $socket, join "\r\n", 'POST /verify HTTP/1.1', 'Host: localhost',
        'Connection: close', "X-User-Id: u$i",
        'Content-Length: ' . length $body, '', $body;

    $socket->blocking(0);
    $loop->on_read($socket, sub {
        my $got = sysread $socket, $answer, 65_536, length $answer;

        return if $got || (!defined $got && ($!{EAGAIN} || $!{EINTR}));

        my ($status) = $answer =~ m{^HTTP/1\.1 (\d+)};
        my $again = $answer =~ /^Retry-After: [1-9]/m ? 'again' : '-';

        print {$file} $status // 'none', " $again\n";
        $loop->forget($socket);
        close $socket;
    });

    return;
}


# What clients have been told so far

sub read_lines {
    my ($clients) = @_;
    my %seen = (statuses => {}, retry_after => 0, sent => 0);

    open my $file, '<', $clients->{file} or die "the clients' file: $!\n";

    while (my $line = readline $file) {
        if ($line =~ /^sent/) {
            $seen{sent} = 1;
        } elsif ($line =~ /^(\w+) (\S+)\n/) {
            $seen{statuses}{$1}++;
            $seen{retry_after}++ if $2 eq 'again';
        }
    }

    return \%seen;
}


# KB of memory that is these processes' own

sub memory {
    my (@pids) = @_;

    return sum map {
        open my $file, '<', "/proc/$_/status" or die "process $_ is gone\n";
        my ($kb) = do { local $/; <$file> } =~ /^RssAnon:\s+(\d+)/m;
        $kb;
    } @pids;
}


# TCP connections that these processes have open; not what workers have among
# themselves, of which each learns when it looks

sub connections {
    my (@pids) = @_;
    my %sockets;

    open my $table, '<', '/proc/net/tcp' or die "/proc/net/tcp: $!\n";

    while (my $line = readline $table) {
        my ($state, $inode) = (split ' ', $line)[3, 9];
        $sockets{"socket:[$inode]"} = 1 if $state ne LISTENING;
    }

    return sum map {
        scalar grep { $sockets{ readlink($_) // '' } } glob "/proc/$_/fd/*"
    } @pids;
}


# Begins anew with as many files as are needed, if it has fewer.

sub many_files {
    my ($now) = `sh -c 'ulimit -n'` =~ /(\d+)/;

    return if !defined $now || $now >= FILES;

    die "needs " . FILES . " open files\n" if $ENV{IAP_GUARD_FILES};

    exec 'sh', '-c', 'ulimit -n "$0" && IAP_GUARD_FILES=1 exec "$@"', FILES,
         $^X, (map { "-I$_" } grep { !ref } @INC), $0, @ARGV
        or die "sh: $!\n";
}
