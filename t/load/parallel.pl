#!/usr/bin/perl

# What many ask for in the same moment: 100 requests, each on a connection of
# its own, for one token, for ten places, for one window; and two for the two
# tokens of each of 200 users.  The workers are stopped while the requests are
# sent, so that all of them have work at once, and cached clocks that differ.

use strict;
use warnings;

use IO::Socket::INET;
use Test::More;
use Time::HiRes qw(sleep);

use IapGuard::Loop;
use IapGuard::Nginx;
use IapGuard::Wrk;

use constant {
    PARALLEL       => 100,
    USERS_AT_ONCE  => 200,      # with two requests each
    BUCKET_ROUNDS  => 8,
    PAIR_ROUNDS    => 5,
    SEGMENT_ROUNDS => 6,
    WINDOW_ROUNDS  => 2,

    USERS          => 10,       # of a segment
    GLOBAL_LIMIT   => 60,       # requests a second
};

my %paths = IapGuard::Nginx->options;
my $SERVER = <<"END";
        add_header  X-Worker \$pid always;

        location = /bucket {
            iap_guard       bucket;
            iap_guard_user  \$http_x_user_id capacity=1 rate=1r/h;
            empty_gif;
        }

        location = /pair {
            iap_guard       pair;
            iap_guard_user  \$http_x_user_id capacity=2 rate=1r/h;
            empty_gif;
        }

        location = /segment {
            iap_guard          segment;
            iap_guard_segment  users=@{[ USERS ]} window=1h
                               address=\$http_x_address;
            iap_guard_user     \$http_x_user_id;
            empty_gif;
        }

        location = /global {
            iap_guard         global;
            iap_guard_global  rate=@{[ GLOBAL_LIMIT ]}r/s;
            empty_gif;
        }
END

foreach my $workers (1, 2, 4) {
    my $nginx = IapGuard::Nginx->new(%paths, workers => $workers,
        http => '    iap_guard_zone  iap 1m;', server => $SERVER,

        # the kernel then shares the connections out among the workers
        listen => 'reuseport')->start;

    bucket_of_one($nginx);
    pairs($nginx);
    segment($nginx);
    global_window($nginx);
    global_rate($nginx);

    my @complaints = $nginx->complaints;
    $nginx->stop;
    is_deeply [@complaints, $nginx->complaints], [],
        "$workers workers: no complaint in the error log";
}

done_testing;


sub bucket_of_one {
    my ($nginx) = @_;
    my (@passed, %workers);

    foreach my $round (1 .. BUCKET_ROUNDS) {
        my $user = "X-User-Id: user-$round";
        my @answers = at_once($nginx, map { ['/bucket', $user] }
                                      1 .. PARALLEL);

        push @passed, count(\@answers, 200) . '/' . count(\@answers, 429);
        $workers{ $_->{worker} } = 1 foreach @answers;
    }

    is "@passed", join(' ', ('1/' . (PARALLEL - 1)) x BUCKET_ROUNDS),
        "$nginx->{workers} workers: of each " . PARALLEL
        . ' requests for a bucket of one, one passed';

    is keys %workers, $nginx->{workers},
        "$nginx->{workers} workers: all of them answered";

    return;
}


# A worker whose clock is behind the one that took the first token must not
# take the second for one that is still to come.

sub pairs {
    my ($nginx) = @_;
    my $refused = 0;

    foreach my $round (1 .. PAIR_ROUNDS) {
        my @answers = at_once($nginx, map {
            (['/pair', "X-User-Id: user-$round-$_"]) x 2
        } 1 .. USERS_AT_ONCE);

        $refused += count(\@answers, 429);
    }

    is $refused, 0, "$nginx->{workers} workers: both tokens of a bucket are "
                    . 'there at once, whichever workers give them out';

    return;
}


sub segment {
    my ($nginx) = @_;
    my @passed;

    foreach my $round (1 .. SEGMENT_ROUNDS) {
        my @answers = at_once($nginx, map {
            ['/segment', "X-Address: 203.0.113.$round",
             "X-User-Id: user-$_"]
        } 1 .. PARALLEL);

        push @passed, count(\@answers, 200) . '/' . count(\@answers, 429);
    }

    is "@passed",
        join(' ', (USERS . '/' . (PARALLEL - USERS)) x SEGMENT_ROUNDS),
        "$nginx->{workers} workers: a segment took " . USERS . ' of each '
        . PARALLEL . ' users';
}


# Windows start on whole seconds of the clock that we can read too.  All is
# sent and answered within one, or the round proves less.

sub global_window {
    my ($nginx) = @_;
    my (@passed, $whole);

    foreach my $round (1 .. WINDOW_ROUNDS) {
        my $now = IapGuard::Loop::now();
        sleep int($now) + 1.1 - $now;

        my $window  = int IapGuard::Loop::now();
        my @answers = at_once($nginx, map { ['/global'] } 1 .. PARALLEL);
        my $windows = int(IapGuard::Loop::now()) - $window + 1;

        push @passed, count(\@answers, 200);
        $whole++ if $windows == 1;

        cmp_ok $passed[-1], '<=', GLOBAL_LIMIT * $windows,
            "$nginx->{workers} workers: not above the limit in a window";
        cmp_ok $passed[-1], '>=', GLOBAL_LIMIT,
            "$nginx->{workers} workers: nor below it";
    }

    note "passed in a window: @passed";
    return;
}


sub global_rate {
    my ($nginx) = @_;
    my $passed = qr/guard="global",verdict="passed"/;

    my $before = $nginx->metric('iap_guard_requests_total', $passed);
    my $begun  = int IapGuard::Loop::now();

    IapGuard::Wrk->run(url => $nginx->url('/global'), threads => 2,
                       connections => 64, seconds => 2);

    my $windows = int(IapGuard::Loop::now()) - $begun + 1;
    my $n = $nginx->metric('iap_guard_requests_total', $passed) - $before;

    cmp_ok $n, '<=', GLOBAL_LIMIT * $windows,
        "$nginx->{workers} workers: nor above it under load";
    cmp_ok $n, '>=', GLOBAL_LIMIT,
        "$nginx->{workers} workers: nor below it under load";
    note "passed in $windows windows: $n";

    return;
}


# Each request is [path, header field...].

sub at_once {
    my ($nginx, @requests) = @_;
    my @sockets;

    foreach my $request (@requests) {
        my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1',
            PeerPort => $nginx->port, Proto => 'tcp') or die "connect: $@\n";
        push @sockets, $socket;
    }

    sleep 0.02;                 # they get accepted

    my @workers = $nginx->workers;
    my @answers;

    kill 'STOP', @workers;

    foreach my $i (0 .. $#requests) {
        my ($path, @fields) = @{ $requests[$i] };
        my $text = join "\r\n", "GET $path HTTP/1.1", 'Host: localhost',
                        'Connection: close', @fields, '', '';

        syswrite($sockets[$i], $text) == length $text or die "write: $!\n";
    }

    kill 'CONT', @workers;

    foreach my $socket (@sockets) {
        local $SIG{ALRM} = sub { die "no answer within 10 s\n" };
        alarm 10;
        my $text = do { local $/; <$socket> };
        alarm 0;

        my ($status) = defined $text && $text =~ m{^HTTP/1.1 (\d+) }
            or die "not an answer\n";
        my ($worker) = $text =~ /^X-Worker: (\d+)/m;
        push @answers, { status => $status, worker => $worker };
    }

    return @answers;
}


sub count {
    my ($answers, $status) = @_;
    return scalar grep { $_->{status} == $status } @$answers;
}
