#!/usr/bin/perl

# What ends while the store is to forget the segments of lifted bans: clients
# that leave, workers that quit or are terminated, a store that is away for so
# long that too much waits for it.  Also for a build with AddressSanitizer.

use strict;
use warnings;

use IO::Socket::INET;
use List::Util qw(max);
use Socket qw(SOL_SOCKET SO_LINGER);
use Test::More;
use Time::HiRes qw(sleep);

use IapGuard::Loop;
use IapGuard::Nginx;
use IapGuard::RedisServer;

use constant {
    WORKERS => 2,
    TIMEOUT => 0.4,         # s
    GUARDS  => 30,          # that one call of the API is about
    ROUNDS  => 20,
    LEAVING => 12,          # clients, in each of them
    KEPT    => 16_384,      # segments that a worker keeps
    GONE    => 1,           # s, until a worker that may go is gone
};

my %paths = IapGuard::Nginx->options;
my $redis = IapGuard::RedisServer->new;
my $nginx;

foreach my $mode (qw(single proxy)) {
    with($mode, sub {
        leaving_clients();
        quitting();
        reloads();
        too_many();
        terminated();
    });

    with($mode, sub { terminated_late() });
}

given_up();

done_testing;


sub with {
    my ($mode, $tests) = @_;

    $nginx = IapGuard::Nginx->new(%paths,
        workers => WORKERS, listen => 'reuseport',
        http => '    iap_guard_zone   iap 2m;
    iap_guard_redis  redis://' . $redis->node . ' timeout=' . TIMEOUT * 1000
              . "ms mode=$mode;\n",
        server => join '', map { "
        location = /g$_ {
            iap_guard          g$_;
            iap_guard_user     \$arg_u;
            iap_guard_segment  ipv4=24 users=9 window=1h ban=1h
                               address=\$arg_ip;
            empty_gif;
        }\n" } 1 .. GUARDS)->start;

    $tests->();

    my @complaints = $nginx->complaints;
    $nginx->stop;
    is_deeply [@complaints, $nginx->complaints], [],
        "$mode: no complaint in the error log";

    return;
}


# With a reset or without, before the answer has come, or in the same moment

sub leaving_clients {
    my %seen;

    foreach my $round (1 .. ROUNDS) {
        my @sockets = map { connection() } 1 .. LEAVING;
        my @stay;

        $redis->freeze;
        send_lift($_, $round) foreach @sockets;
        sleep 0.005 * ($round % 3);

        foreach my $i (0 .. $#sockets) {

            if ($i % 3 == 0) {
                push @stay, $sockets[$i];

            } else {
                setsockopt $sockets[$i], SOL_SOCKET, SO_LINGER,
                           pack 'ii', 1, 0 if $i % 3 == 1;
                close $sockets[$i];
            }

            $redis->thaw if $i == $round % 4 * LEAVING / 4;
        }

        $redis->thaw;
        $seen{ status($_) }++ foreach @stay;
    }

    is_deeply [sort keys %seen], [200], 'leaving: the others were answered';
    lifts('leaving');

    return;
}


# The answers come first; nobody waits for what is tried again.

sub quitting {
    my @workers = $nginx->workers;
    my @sockets = map { connection() } 1 .. 2 * LEAVING;

    $redis->freeze;
    send_lift($_, 1) foreach @sockets;
    sleep 0.1;
    kill 'QUIT', @workers;

    my %seen;
    $seen{ status($_) }++ foreach @sockets;
    is_deeply \%seen, { late => 2 * LEAVING }, 'quit: all are answered, late';

    my $seconds = max(map { gone($_) } @workers);
    cmp_ok $seconds, '<', GONE, 'quit: then the workers go';
    $redis->thaw;
    ok $nginx->wait_for(5, sub { $nginx->workers == WORKERS }),
        'quit: others come';
    lifts('quit');

    return;
}


sub reloads {
    my $failed = 0;

    foreach my $round (1 .. 4) {
        my @sockets = map { connection() } 1 .. LEAVING;

        $redis->freeze;
        send_lift($_, $round) foreach @sockets;
        sleep TIMEOUT + 0.1 if $round % 2;
        $failed++ unless $nginx->reload;
        $redis->thaw;
        $failed++ foreach grep { status($_) !~ /^(?:200|late)$/ } @sockets;
    }

    is $failed, 0, 'reload: all are answered';
    ok $nginx->wait_for(5, sub { $nginx->all_workers == WORKERS }),
        'reload: the old workers go';
    lifts('reload');

    return;
}


# The oldest are given up: also with a call under way.

sub too_many {
    my $lifts = WORKERS * KEPT / GUARDS * 1.2;
    my %seen;

    $redis->freeze;

    foreach my $batch (1 .. $lifts / 100) {
        my @sockets = map { connection() } 1 .. 100;

        send_lift($_, $batch) foreach @sockets;
        $seen{ status($_) }++ foreach @sockets;
    }

    is_deeply [keys %seen], ['late'], 'too many: all are answered';
    cmp_ok scalar($nginx->log_lines(qr/has not forgotten .* too many wait/)),
        '>', 0, 'too many: some are given up, which is logged';
    $redis->thaw;

    ok $nginx->wait_for(10, sub { $nginx->metrics->{iap_guard_store_up} }),
        'too many: the store is back';
    lifts('too many');

    return;
}


sub terminated {
    my @sockets = map { connection() } 1 .. LEAVING;

    $redis->freeze;
    send_lift($_, 1) foreach @sockets;
    sleep 0.1;
    terminate('terminated, while clients wait');
    $redis->thaw;

    return;
}


sub terminated_late {
    my @sockets = map { connection() } 1 .. LEAVING;

    $redis->freeze;
    send_lift($_, 1) foreach @sockets;
    is join(' ', map { status($_) } @sockets), join(' ', ('late') x LEAVING),
        'terminated, late: all are answered';
    sleep 0.6;
    terminate('terminated, late');
    $redis->thaw;

    return;
}


sub terminate {
    my ($name) = @_;
    my @all = ($nginx->master, $nginx->all_workers);

    kill 'TERM', $all[0];
    my $seconds = max(map { gone($_) } @all[1 .. $#all]);

    cmp_ok $seconds, '<', GONE + ($nginx->asan ? 10 : 0), "$name: at once";

    return;
}


# One that is refused while more is on its way than a worker keeps is given up in
# that moment, with its only call.

sub given_up {
    my $segments = KEPT + 4 * 1024;

    $redis->command('EVAL', <<'LUA', 1, 'iap:{bans}:log', $segments);
        local ends = string.format('%.0f', redis.call('TIME')[1] * 1000 + 6e5)
        for s = 0, ARGV[1] - 1 do
            redis.call('XADD', KEYS[1], '*', 'machine', '1', 'change', s + 1,
                       'op', 'ban', 'guard', s == 0 and 'g2' or 'g1', 'layer',
                       'segment', 'key', string.format('10.%d.%d.0/24',
                       s / 256, s % 256), 'until', ends)
        end
LUA

    $nginx = IapGuard::Nginx->new(%paths, workers => 1, http =>
        '    iap_guard_zone   iap 64m;
    iap_guard_redis  redis://' . $redis->node . " timeout=5s;\n",
        server => join '', map { "
        location = /g$_ {
            iap_guard          g$_;
            iap_guard_user     \$arg_u;
            iap_guard_segment  ipv4=24 users=9 window=1h ban=1h
                               address=\$arg_ip;
            empty_gif;
        }\n" } 1, 2)->start;

    ok $nginx->wait_for(20, sub {
        $nginx->get("/g1?u=u&ip=10.@{[ int(($segments - 1) / 256) ]}."
                    . ($segments - 1) % 256 . '.1')->{status} == 429;
    }), 'given up: so many bans';

    $redis->command(qw(ACL SETUSER default resetkeys ~iap:g1:* ~iap:{*));
    $redis->freeze;

    my @sockets = map { connection() } 1, 2;

    foreach my $guard (1, 2) {
        my $socket = $sockets[$guard - 1];

        print {$socket} "DELETE /iap_guard/bans?guard=g$guard HTTP/1.1\r\n"
            . "Host: x\r\nConnection: close\r\nAuthorization: Bearer "
            . $nginx->token . "\r\n\r\n";
        $socket->flush;
        sleep 0.3;
    }

    $redis->thaw;

    is status($sockets[1]), 'late', 'given up: what is refused';
    is status($sockets[0]), 200, 'given up: not what is on its way';
    is scalar($nginx->log_lines(qr/has not forgotten 1 segments .* too many/)),
        1, 'given up: as the log says';

    $redis->command(qw(ACL SETUSER default allkeys));
    $nginx->stop;
    is_deeply [$nginx->complaints(qr/has not forgotten|NOPERM/)], [],
        'given up: nothing else in the error log';

    return;
}


# Whether the store is used

sub lifts {
    my ($name) = @_;

    ok $nginx->wait_for(5, sub {
        my $socket = connection();
        send_lift($socket, 1);
        return status($socket) eq '200';
    }), "$name: bans are lifted";

    return;
}


sub connection {
    return IO::Socket::INET->new(PeerAddr => '127.0.0.1', Proto => 'tcp',
                                 PeerPort => $nginx->port)
        || die "connect: $!\n";
}


# of all guards

sub send_lift {
    my ($socket, $net) = @_;

    print {$socket} "DELETE /iap_guard/bans?key=10.0.$net.0/24 HTTP/1.1\r\n"
        . "Host: x\r\nConnection: close\r\nAuthorization: Bearer "
        . $nginx->token . "\r\n\r\n";
    $socket->flush;

    return;
}

# "200", or "late" if the store has not forgotten

sub status {
    my ($socket) = @_;
    my $answer = do { local $/; <$socket> };

    return 'none' unless defined $answer && $answer =~ m{^HTTP/1\.1 (\d+)};
    return $answer =~ /"forgotten":false/ ? 'late' : $1;
}


sub gone {
    my ($pid) = @_;
    my $begun = IapGuard::Loop::now();

    $nginx->wait_for(15, sub {
        open my $stat, '<', "/proc/$pid/stat" or return 1;
        my $text = <$stat>;
        return !defined $text || $text =~ /\) Z /;
    });

    return IapGuard::Loop::now() - $begun;
}
