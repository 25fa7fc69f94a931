#!/usr/bin/perl

# What ends while the store is asked: clients that leave, workers that quit or
# are killed, an nginx that is terminated, a configuration that is replaced.
# 100,000 requests in all.  Also for a build with AddressSanitizer.
#
#   --requests=N    in all (100000)

use strict;
use warnings;

use Getopt::Long ();
use IO::Socket::INET;
use List::Util qw(max);
use Socket qw(SOL_SOCKET SO_LINGER);
use Test::More;
use Time::HiRes qw(sleep);

use IapGuard::Asked;
use IapGuard::Loop;
use IapGuard::Nginx;
use IapGuard::RedisProxy;
use IapGuard::RedisServer;
use IapGuard::Wrk;

use constant {
    WORKERS     => 2,
    TIMEOUT     => 1,       # s: long enough for the store to sleep meanwhile
    ROUNDS      => 60,      # of clients that leave
    LEAVING     => 40,      # in each of them
    RELOADS     => 6,
    WAITING     => 30,      # requests that wait while a worker ends
    GONE        => 1,       # s, until a worker that may go is gone
    GROWN       => 1024,    # KB that a worker may have more in the end
};

# what nginx says of a process that was killed

my $KILLED = qr/worker process \d+ exited on signal 9/;

my $all = 100_000;

Getopt::Long::Configure('pass_through');
Getopt::Long::GetOptions('requests=i' => \$all);
Getopt::Long::Configure('no_pass_through');

my %paths = IapGuard::Nginx->options;
my $redis = IapGuard::RedisServer->new;
my ($nginx, $users) = (undef, 0);

with('single', sub {
    leaving_clients();
    quitting_worker();
    quitting_while_asked();
    quitting_for_nothing();
    killed_worker();
    reloads();
    memory();
    terminated();
});

# decisions in several calls

with('proxy', sub {
    leaving_clients();
    reloads();
    terminated();
});

terminated_with_something_to_give_back();

done_testing;


sub with {
    my ($mode, $tests) = @_;

    # the kernel shares the connections out among the workers

    $nginx = IapGuard::Nginx->new(%paths,
        workers => WORKERS, listen => 'reuseport',
        http => <<"END", server => <<'END')->start;
    iap_guard_zone   iap 16m;
    iap_guard_redis  redis://${\$redis->node} timeout=${\TIMEOUT}s mode=$mode;
END
        add_header  X-Store $iap_guard_store always;

        location = /guarded {
            iap_guard         guarded;
            iap_guard_user    $http_x_user_id   capacity=3 rate=3r/m;
            iap_guard_device  $http_x_device_id capacity=3 rate=3r/m;
            iap_guard_global  rate=100000r/s window=1m;
            empty_gif;
        }
END

    $tests->();

    my @complaints = $nginx->complaints($KILLED);
    is_deeply \@complaints, [], "$mode: no complaint in the error log";

    return;
}


# They send a request and are gone, with a reset or without, before its answer
# has come, or in the same moment.

sub leaving_clients {
    my $wrk = load();
    my ($left, $failed) = (0, 0);

    foreach my $round (1 .. ROUNDS) {
        my @sockets = map { asking() } 1 .. LEAVING;

        $redis->freeze;
        syswrite $_, request() foreach @sockets;
        sleep 0.005 * ($round % 3);

        foreach my $i (0 .. $#sockets) {
            setsockopt $sockets[$i], SOL_SOCKET, SO_LINGER, pack 'ii', 1, 0
                if $i % 2;
            close $sockets[$i];
            $left++;

            $redis->thaw if $i == ($round % 4) * LEAVING / 4;
        }

        $redis->thaw;
    }

    my $result = $wrk->stop;

    is $result->{status} + IapGuard::Wrk->failures($result), 0,
        'leaving: those who stayed were served';
    ok all_by('redis'), 'leaving: and are still';
    note "$left clients left, $result->{requests} requests of others";

    return;
}


# The master starts another one.

sub quitting_worker {
    my ($worker) = $nginx->workers;

    ask(WAITING)->wait;
    kill 'QUIT', $worker;
    my $seconds = gone($worker);

    cmp_ok $seconds, '<', GONE, 'quit: an idle link holds up no worker';
    ok workers_are_there(), 'quit: another one comes';
    note sprintf 'quit: a worker was gone after %.2f s', $seconds;

    return;
}


sub quitting_while_asked {
    my @workers = $nginx->workers;

    $redis->freeze;
    my $asked = ask(WAITING);
    $asked->run(0.1);
    kill 'QUIT', @workers;
    $asked->run(0.2);

    is scalar(grep { kill 0, $_ } @workers), WORKERS,
        'quit while asked: no worker goes before the answers have come';
    $redis->thaw;
    $asked->wait;
    my $seconds = max(map { gone($_) } @workers);

    is_deeply [$asked->{statuses}, $asked->{stores}],
        [{ 200 => WAITING }, { redis => WAITING }],
        'quit while asked: all got the answer of the store';
    cmp_ok $seconds, '<', GONE, 'quit while asked: then they go';
    ok workers_are_there(), 'quit while asked: others come';
    note sprintf 'quit while asked: gone after %.2f s', $seconds;

    return;
}


# The store will not answer in time; nor will it one who asks for bans.

sub quitting_for_nothing {
    my @workers = $nginx->workers;

    $redis->freeze;
    my $asked = ask(WAITING);
    $asked->run(0.1);
    kill 'QUIT', @workers;
    $asked->wait;
    my $seconds = max(map { gone($_) } @workers);

    $redis->thaw;

    is_deeply [$asked->{statuses}, $asked->{stores}],
        [{ 200 => WAITING }, { fallback => WAITING }],
        'quit for nothing: all got an answer';
    cmp_ok $seconds, '<', TIMEOUT + GONE,
        'quit for nothing: the workers do not wait for longer';
    ok workers_are_there(), 'quit for nothing: others come';
    ok all_by('redis'), 'quit for nothing: who use the store';

    return;
}


# Whether an answer came is not looked at: what the victim had accepted is lost.

sub killed_worker {
    my $wrk = load(delay => '1-3');

    foreach (1 .. 5) {
        my ($victim) = $nginx->workers;

        $redis->freeze if $_ % 2;
        sleep 0.05;
        kill 'KILL', $victim;
        sleep 0.05;
        $redis->thaw;
        workers_are_there();
    }

    ok $wrk->running, 'kill: the load lasted';
    $wrk->stop;
    ok all_by('redis'), 'kill: the store is used';

    return;
}


sub reloads {
    my $wrk = load(close => 1, delay => '2-6');
    my $failed = 0;

    foreach (1 .. RELOADS) {
        $redis->freeze;
        sleep 0.02;
        $failed++ unless $nginx->reload;
        $redis->thaw;
        sleep 0.1;
    }

    my $result = $wrk->stop;

    is $failed, 0, 'reload: there were new workers each time';
    is $result->{status} + IapGuard::Wrk->failures($result), 0,
        'reload: nobody noticed';
    ok $nginx->wait_for(TIMEOUT + GONE, sub {
        $nginx->all_workers == WORKERS
    }), 'reload: the old workers went';
    note "$result->{requests} requests and " . RELOADS . ' reloads';

    return;
}


# What is left of the requests; freed memory stays with AddressSanitizer

sub memory {
    my @memory;

    foreach my $part (0.2, 0.6) {
        my $until = $nginx->metric('iap_guard_requests_total') + $part * $all;
        my $wrk   = load();

        $nginx->wait_for(300, sub {
            sleep 0.2;
            $nginx->metric('iap_guard_requests_total') >= $until
        }) or fail 'memory: so many requests were made';

        my $result = $wrk->stop;

        is $result->{status} + IapGuard::Wrk->failures($result), 0,
            'memory: all requests passed';
        sleep 0.1;
        push @memory, max(map { anonymous($_) } $nginx->workers);
    }

    cmp_ok $memory[1] - $memory[0], '<=', GROWN,
        'memory: that of a worker does not grow' unless $nginx->asan;
    cmp_ok $nginx->metric('iap_guard_requests_total'), '>=', 0.8 * $all,
        'memory: there were many requests';
    note "a worker's memory: $memory[0] KB, later $memory[1] KB";

    return;
}


# With calls under way, of which nobody is told any more.

sub terminated {
    my $wrk = load();

    sleep 0.2;
    $redis->freeze;
    sleep 0.1;

    my @all = ($nginx->master, $nginx->all_workers);

    kill 'TERM', $all[0];
    my $seconds = max(map { gone($_) } @all[1 .. $#all]);

    $redis->thaw;
    $wrk->stop;
    cmp_ok $seconds, '<', GONE + ($nginx->asan ? 10 : 0),
        'terminated: at once, with calls under way';
    note sprintf 'terminated: gone after %.2f s', $seconds;
    $nginx->stop;

    return;
}


# A decision of three calls: one took something, one has refused, and the third
# was not answered yet.

sub terminated_with_something_to_give_back {
    my $proxy = IapGuard::RedisProxy->new($redis);

    $nginx = IapGuard::Nginx->new(%paths, http => <<"END",
    iap_guard_zone   iap 1m;
    iap_guard_redis  redis://${\$proxy->node} timeout=5s mode=proxy;
END
        server => <<'END')->start;
        location = /guarded {
            iap_guard         back;
            iap_guard_user    $http_x_user_id   capacity=9 rate=3r/m;
            iap_guard_device  $http_x_device_id capacity=1 rate=1r/h;
            iap_guard_bucket  app $host         capacity=9 rate=3r/m;
            empty_gif;
        }
END

    my %once = (path => '/guarded', port => $nginx->port);

    IapGuard::Asked->new(%once, users => ['once'])->wait;

    # in the order in which it asks: what is behind waits as well

    $proxy->hold('decide', ':app:');
    my $asked = IapGuard::Asked->new(%once, users => ['once']);
    $asked->run(0.3);
    is $proxy->held('decide'), 1, 'giving back: one call waits';

    my @all = ($nginx->master, $nginx->all_workers);

    kill 'TERM', $all[0];
    my $seconds = max(map { gone($_) } @all[1 .. $#all]);

    cmp_ok $seconds, '<', GONE + ($nginx->asan ? 10 : 0),
        'giving back: terminated';
    $proxy->release;
    is scalar($proxy->keys('refund')), 0, 'giving back: too late for that';
    is_deeply [$nginx->complaints], [], 'giving back: no complaint';
    $nginx->stop;

    return;
}


sub load {
    my (%send) = @_;

    $users += 10_000_000;

    return IapGuard::Wrk->start(
        url => $nginx->url('/guarded'), threads => 2, connections => 64,
        seconds => 300,
        send => { header => 'X-User-Id:u%d', header2 => 'X-Device-Id:d%d',
                  first => $users, last => $users + 9_999_999, %send });
}


sub all_by {
    my ($store) = @_;

    # a store that has just been found again is, soon, by all workers

    return $nginx->wait_for(3, sub {
        my $asked = ask(WAITING);
        $asked->wait;
        return ($asked->{stores}{$store} || 0) == WAITING
               && ($asked->{statuses}{200} || 0) == WAITING;
    });
}


sub workers_are_there {
    return $nginx->wait_for(5, sub { $nginx->workers == WORKERS });
}


# How long it takes until a process has ended; nobody may have taken its status
# yet.

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


sub anonymous {
    my ($pid) = @_;

    open my $status, '<', "/proc/$pid/status" or die "no process $pid: $!\n";
    local $/;

    return <$status> =~ /^RssAnon:\s+(\d+)/m ? $1 : 0;
}


sub asking {
    return IO::Socket::INET->new(PeerAddr => '127.0.0.1', Proto => 'tcp',
                                 PeerPort => $nginx->port)
        || die "connect: $!\n";
}


sub request {
    $users++;
    return "GET /guarded HTTP/1.1\r\nHost: localhost\r\n"
           . "X-User-Id: v$users\r\nX-Device-Id: e$users\r\n\r\n";
}


sub ask {
    my ($n) = @_;
    my $first = $users + 1;
    $users += $n;

    return IapGuard::Asked->new(port => $nginx->port, path => '/guarded',
                                users => [map { "w$_" } $first .. $users]);
}
