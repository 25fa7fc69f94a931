#!/usr/bin/perl

# A reload each second while requests come in and the queue is drained: never
# two drains, never none for long, at the pace that the one before had; and
# neither old workers nor files nor memory that pile up.
#
#     --seconds=120       by hand; the default is short

use strict;
use warnings;

use Getopt::Long ();
use List::Util qw(max);
use Test::More;
use Time::HiRes qw(sleep);

use IapGuard::DrainTest;
use IapGuard::LoadClient;
use IapGuard::Loop;

use constant {
    WORKERS     => 3,
    RATE        => 100,
    CONCURRENCY => 12,
    SLOW        => 0.1,         # seconds that each call takes
    PUT         => 50,          # requests a second
    OTHERS      => 50,

    ROWS        => 12,          # of the table, about
};

my $seconds = 16;

Getopt::Long::Configure('pass_through');
Getopt::Long::GetOptions('seconds=i' => \$seconds);
Getopt::Long::Configure('no_pass_through');

my %paths = IapGuard::Nginx->options;

reloads();
handed_over();
done_testing;


sub test {
    my ($queue, %options) = @_;

    return IapGuard::DrainTest->new(paths => \%paths, workers => WORKERS,
        breaker => undef, %options,
        queue => "attempts=5 retry_min=50ms retry_max=200ms timeout=20s $queue");
}


sub reloads {
    my $test  = test('rate=' . RATE . 'r/s concurrency=' . CONCURRENCY);
    my $nginx = $test->nginx;
    my $seen  = { test => $test, nginx => $nginx, loop => IapGuard::Loop->new };

    # as many as it drains meanwhile: it never has nothing to do

    my $backlog = $seconds * (RATE - PUT);

    is scalar $test->put_many($backlog, user => sub { "b$_[0]" },
           body => sub { { id => "b$_[0]", verify => ['slow:' . SLOW] } }),
       $backlog, "$backlog are queued before";

    ok $nginx->wait_for(20, sub { $test->peers->count('/verify') > 2 * RATE }),
        'and are drained at their rate';
    $nginx->reload;                     # the first one sets things up
    $nginx->wait_for(10, sub { $nginx->all_workers == WORKERS });
    sleep 1;                            # until its old ends are closed

    my $begun = IapGuard::Loop::now();
    under_load($seen);
    my $ended = IapGuard::Loop::now();

    ok $nginx->wait_for(30 + $backlog / RATE,
                        sub { $test->queue->{pending} == 0 }), 'all is drained';
    ok $nginx->wait_for(10, sub { $nginx->all_workers == WORKERS }),
        'the old workers have left';
    sleep 1;
    sample($seen);

    accepted($seen);
    one_drain($seen, $begun, $ended);
    nothing_piles_up($seen);
    $test->end;

    return;
}


# Reloads, one a second, with requests that come in, and somebody who looks

sub under_load {
    my ($seen) = @_;
    my ($loop, $nginx, $test) = @$seen{qw(loop nginx test)};
    my ($done, $reloads) = (0, 0);

    my $client = IapGuard::LoadClient->new(loop => $loop, timeout => 10,
        port => $nginx->port, connections => 32);
    $seen->{client} = $client;
    sample($seen);

    repeat($loop, 1 / PUT, \$done, sub { put($seen) });
    repeat($loop, 1 / OTHERS, \$done, sub { other($seen) });
    repeat($loop, 0.005, \$done, sub { look($seen) });

    repeat($loop, 1, \$done, sub {
        return $done = 1 if $reloads == $seconds;
        kill 'HUP', $nginx->master;
        $reloads++;
        push @{ $seen->{old} }, scalar $nginx->all_workers;
    });

    repeat($loop, max(1, $seconds / ROWS), \$done, sub { sample($seen) });

    $loop->run_until(sub { $done && !$client->busy });
    $client->shut;

    return;
}


sub repeat {
    my ($loop, $every, $done, $code) = @_;
    my $next = IapGuard::Loop::now();
    my $again;

    $again = sub {
        return if $$done;
        $code->();
        $next += $every;
        $loop->after(max(0, $next - IapGuard::Loop::now()), $again);
    };

    return $loop->after(0, $again);
}


# connections are not kept: an old worker closes those that it finds idle

sub put {
    my ($seen) = @_;
    my $n = ++$seen->{sent};

    return $seen->{client}->request({
        method => 'POST', path => '/accept',
        body => qq({"id":"r$n","verify":["slow:@{[ SLOW ]}"]}),
        headers => { 'X-User-Id' => "u$n", Connection => 'close',
                     'Content-Type' => 'application/json' },
    }, sub {
        my ($answer) = @_;
        $seen->{accepted}{ $answer->{status} || $answer->{error} }++;
    });
}


sub other {
    my ($seen) = @_;

    return $seen->{client}->request({
        method => 'GET', path => '/other', headers => { Connection => 'close' },
    }, sub {
        my ($answer) = @_;
        push @{ $seen->{took} }, $answer->{seconds};
        $seen->{others}{ $answer->{status} || $answer->{error} }++;
    });
}


sub look {
    my ($seen) = @_;
    my @holders = $seen->{test}->holders;
    my $now     = IapGuard::Loop::now();

    $seen->{most} = max($seen->{most} || 0, scalar @holders);
    $seen->{two}  = " (@holders)" if @holders > 1;
    $seen->{held}{$_} = 1 foreach @holders;

    if (@holders) {
        $seen->{free} = undef;
    } else {
        $seen->{free} //= $now;
        $seen->{none} = max($seen->{none} || 0, $now - $seen->{free});
    }

    return;
}


# Files and memory of the master and of all workers, the old ones, too

sub sample {
    my ($seen) = @_;
    my $nginx   = $seen->{nginx};
    my $master  = $nginx->master;
    my @workers = $nginx->all_workers;

    push @{ $seen->{samples} }, {
        when => IapGuard::Loop::now(), workers => scalar @workers,
        files => files($master), kb => kilobytes($master),
        worker_files => max(map { files($_) } @workers),
        worker_kb => max(map { kilobytes($_) } @workers),
    };

    return;
}


sub files {
    my ($pid) = @_;
    return scalar(() = glob "/proc/$pid/fd/*");
}


# without the zone, whose pages count for those that have touched them

sub kilobytes {
    my ($pid) = @_;

    open my $file, '<', "/proc/$pid/status" or return 0;
    my ($line) = grep { /^RssAnon:/ } <$file>;

    return ($line // '') =~ /(\d+)/ ? $1 : 0;
}


sub accepted {
    my ($seen) = @_;
    my @took = sort { $a <=> $b } @{ $seen->{took} };

    is_deeply $seen->{accepted}, { 202 => $seen->{sent} },
        "$seen->{sent} sent, all accepted, during $seconds reloads";
    is_deeply $seen->{others}, { 200 => scalar @took },
        scalar(@took) . ' others, all answered';
    note sprintf 'others: p50 %.1f ms, p99 %.1f ms, most %.1f ms',
        map { 1000 * $took[ int $_ * $#took ] } 0.5, 0.99, 1;

    return;
}


# as the kernel has it, as the log has it, and as Apple sees it

sub one_drain {
    my ($seen, $begun, $ended) = @_;
    my ($test, $nginx) = @$seen{qw(test nginx)};

    is $seen->{most}, 1, 'never two drains' . ($seen->{two} || '');
    cmp_ok $seen->{none}, '<', 1.5, sprintf
        'never none for long: %.0f ms at most', 1000 * $seen->{none};
    cmp_ok scalar(keys %{ $seen->{held} }), '>', 0.6 * $seconds,
        scalar(keys %{ $seen->{held} }) . " processes had the lock, and "
        . $nginx->log_lines(qr/drains the queues now/) . ' said so';

    my @all = $test->peers->brief('/verify');
    my (%calls, %second, @events);

    $calls{ $_->{id} }++ foreach @all;
    is scalar(grep { $_ > 1 } values %calls), 0,
        @all . ' calls, none of them twice';

    # calls at once, each of which takes SLOW seconds at least

    push @events, [$_->{time}, 1], [$_->{time} + SLOW - 0.01, -1] foreach @all;
    my ($at_once, $most) = (0, 0);

    foreach (sort { $a->[0] <=> $b->[0] || $a->[1] <=> $b->[1] } @events) {
        $at_once += $_->[1];
        $most = max($most, $at_once);
    }

    cmp_ok $most, '<=', CONCURRENCY,
        "$most calls at once: two drains would have had more";

    my @times = sort { $a <=> $b } grep { $_ > $begun && $_ < $ended }
                map { $_->{time} } @all;
    my $gap   = max(map { $times[$_] - $times[$_ - 1] } 1 .. $#times);
    my $rate  = @times / ($ended - $begun);

    $second{ int($_ - $begun) }++ foreach @times;

    cmp_ok $gap, '<', 2, sprintf 'Apple is called all the time: %.0f ms '
        . 'without a call at most', 1000 * $gap;
    cmp_ok max(values %second), '<=', 1.1 * RATE, 'at the rate of one drain: '
        . max(values %second) . ' in a second at most';
    cmp_ok $rate, '>', 0.5 * RATE, sprintf
        'and not with a slow start each time: %.0f a second', $rate;

    return;
}


sub nothing_piles_up {
    my ($seen) = @_;
    my @samples = @{ $seen->{samples} };
    my ($first, $last) = @samples[0, -1];

    note 'the old workers are counted, too; of all, the one with most';
    note sprintf '%6s %7s  %8s %8s  %8s %8s', 'second', 'workers',
        'master', 'files', 'worker', 'files';
    note sprintf '%6.0f %7d %6d kB %8d %6d kB %8d',
        $_->{when} - $first->{when},
        @$_{qw(workers kb files worker_kb worker_files)} foreach @samples;

    is $last->{files}, $first->{files}, "the master has $last->{files} files, "
        . 'as before';

    # a worker has those of its clients and calls as well

    my @half = map { [ @samples[@$_] ] } [1 .. $#samples / 2],
                                         [$#samples / 2 + 1 .. $#samples - 1];
    my ($early, $late) = map { max(map { $_->{worker_files} } @$_) } @half;

    cmp_ok $late, '<=', $early + 10,
        "a worker has up to $late, and had up to $early at first";

    my @old = sort { $a <=> $b } @{ $seen->{old} };
    cmp_ok $old[-1], '<=', 4 * WORKERS,
        "up to $old[-1] workers, " . $old[@old / 2] . ' mostly: they leave';

    # the heap of a master that reads its configuration again and again has
    # holes

    cmp_ok $last->{kb} - $first->{kb}, '<', 512 + 8 * $seconds,
        'the master does not grow: ' . ($last->{kb} - $first->{kb}) . ' kB';
    ($early, $late) = map { max(map { $_->{worker_kb} } @$_) } @half;

    cmp_ok $late - $early, '<', 1024 + 8 * $seconds,
        'nor do workers, from one to the next: ' . ($late - $early) . ' kB';

    return;
}


# what a server has asked for is kept by those who follow

sub handed_over {
    my $test  = test('rate=' . RATE . 'r/s');
    my $nginx = $test->nginx;
    my $peers = $test->peers;

    $peers->always('/verify', 'http:429:5');
    $test->put_many(20);
    $nginx->wait_for(5, sub { $peers->count('/verify') });
    sleep 0.3;
    $peers->always('/verify', undef);

    my ($call) = $peers->calls('/verify');
    my $first  = $peers->count('/verify');

    $nginx->reload, sleep 0.5 foreach 1 .. 3;
    is $peers->count('/verify'), $first,
        '429 for 5 seconds: not a call, though there was another drain';
    ok $nginx->wait_for(15, sub { $test->queue->{verified} == 20 }),
        'then all are verified';

    my ($next) = sort { $a <=> $b } map { $_->{time} }
                 grep { $_->{step} eq 'ok' } $peers->calls('/verify');
    cmp_ok $next - $call->{time}, '>=', 4.9, sprintf
        'the first of them %.1f s later', $next - $call->{time};

    $test->end;

    return;
}
