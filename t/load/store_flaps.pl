#!/usr/bin/perl

# A store between well and unwell: what is said of it in the log is right, and
# said once.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(sleep);

use IapGuard::Asked;
use IapGuard::LoadClient;
use IapGuard::Loop;
use IapGuard::Nginx;
use IapGuard::PacedLoad;
use IapGuard::RedisServer;

use constant {
    WORKERS => 2,
    SELDOM  => 8,
    AT_ONCE => 60,          # requests; the kernel gives each worker some

    HICCUPS => 30,
    HICCUP  => 0.07,        # s
    BREATH  => 0.01,
};

my %paths = IapGuard::Nginx->options;
my $redis = IapGuard::RedisServer->new;
my ($nginx, $users) = (undef, 0);

with_timeout('5s', \&late_answers);
with_timeout('200ms', \&only_reading);
with_timeout('50ms', \&hiccups);

done_testing;


sub with_timeout {
    my ($timeout, $test) = @_;

    $nginx = IapGuard::Nginx->new(%paths,
        workers => WORKERS, listen => 'reuseport', http => <<"END",
    iap_guard_zone   iap 16m;
    iap_guard_redis  redis://${\$redis->node} timeout=$timeout;
END
        server => <<'END')->start;
        add_header  X-Store  $iap_guard_store always;
        add_header  X-Worker $pid always;

        location = /guarded {
            iap_guard       guarded;
            iap_guard_user  $http_x_user_id capacity=3 rate=3r/m;
            empty_gif;
        }
END

    $test->();

    my @complaints = $nginx->complaints;
    $nginx->stop;
    is_deeply [@complaints, $nginx->complaints], [],
        'no complaint in the error log';

    return;
}


# One worker sleeps with answers in its socket that it has not read, while
# Redis dies and the other one finds out.

sub late_answers {
    my ($sleeper) = $nginx->workers;
    my @before = map { said($_) } 'down', 'up again';

    ok $nginx->wait_for(5, sub {
        my $warm = ask();
        $warm->wait;
        return WORKERS == grep { $warm->{workers}{"redis $_"} }
                               $nginx->workers;
    }), 'late answers: both workers use Redis';

    $redis->freeze;

    my $asked = ask();
    $asked->run(0.1);                   # both workers ask Redis
    kill 'STOP', $sleeper;
    $redis->thaw;
    $redis->command('PING') for 1 .. 2; # Redis answers, in its order
    $redis->kill;

    for (1 .. 10) {                     # only one worker is there to be asked
        my $more = ask();
        $more->run(0.1);
        last if said('down') > $before[0];
    }

    is said('down') - $before[0], 1,
        'late answers: the other worker finds it down';

    kill 'CONT', $sleeper;
    $asked->wait;
    is_deeply $asked->{statuses}, { 200 => AT_ONCE },
        'late answers: everybody has an answer';
    cmp_ok $asked->{workers}{"redis $sleeper"} || 0, '>', 0,
        'late answers: some have those of the store';
    is said('up again') - $before[1], 0,
        'late answers: which are no news of it';

    $redis->start;
    ok $nginx->wait_for(3, sub { said('up again') > $before[1] }),
        'late answers: it comes back';
    sleep 1.2;
    ask()->wait;
    is join(' ', said('down') - $before[0], said('up again') - $before[1]),
        '1 1', 'late answers: down and up are said once';

    return;
}


# A server that can't be written to still tells bans, once a second: that does
# not make it well, also where few ask for more.

sub only_reading {
    my %clients;

    while (keys %clients < WORKERS) {
        my $get = client();
        $clients{ $get->()->{headers}{'x-worker'} } = $get;
    }

    my @before = map { said($_) } 'down', 'up again';
    my $calls  = $redis->calls->{xrange} || 0;
    my %stores;

    $redis->command(qw(CONFIG SET min-replicas-to-write 1));

    foreach (1 .. SELDOM) {
        $stores{ $_->()->{headers}{'x-store'} }++ foreach values %clients;

        sleep 0.4;
    }

    is_deeply \%stores, { fallback => SELDOM * WORKERS },
        'only reading: nothing is counted';
    is said('down') - $before[0], 1, 'only reading: it is down';

    cmp_ok $redis->calls->{xrange}, '>', $calls,
        'only reading: bans were asked for meanwhile';

    sleep 2.2;
    is said('up again') - $before[1], 0,
        'only reading: their answers do not say that it is up';
    is $nginx->metrics->{iap_guard_store_up}, 0,
        'only reading: nor does the metric';

    $redis->command(qw(CONFIG SET min-replicas-to-write 0));
    ok $nginx->wait_for(2.5, sub { said('up again') > $before[1] }),
        'only reading: until it can be written to';
    sleep 1.2;
    is join(' ', said('down') - $before[0], said('up again') - $before[1]),
        '1 1', 'only reading: down and up are said once';

    return;
}


# Some answers come in time and some don't, again and again: it is up or down
# for a second at least.

sub hiccups {
    my $load = IapGuard::PacedLoad->start(port => $nginx->port,
        connections => 48, paths => ['/guarded']);
    my @before = (said('down'), said('up again'));
    my $begun  = IapGuard::Loop::now();

    foreach (1 .. HICCUPS) {
        $redis->freeze;
        sleep HICCUP;
        $redis->thaw;
        sleep BREATH;
    }

    my $ended = IapGuard::Loop::now();
    my @lines = (said('down') - $before[0], said('up again') - $before[1]);

    ok $nginx->wait_for(4, sub { said('up again') == said('down') }),
        'hiccups: it comes back';
    $load->stop;

    my $part = $load->part('/guarded', $begun, $ended);

    is_deeply [$part->{errors}, keys %{ $part->{statuses} }], [[], 200],
        'hiccups: every request was answered, and passed';
    cmp_ok $part->{stores}{fallback}, '>', 100,
        'hiccups: there were enough to notice';
    cmp_ok $lines[$_], '<=', WORKERS * (1 + ($ended - $begun) / 0.95),
        'hiccups: said at most once a second, by each worker' foreach 0, 1;

    note sprintf 'hiccups for %.1f s: %d times down, %d times up; '
        . '%d requests, %d fallbacks, p99 %.1f ms', $ended - $begun, @lines,
        $part->{n}, $part->{stores}{fallback}, $part->{p99};

    return;
}


sub said {
    my ($what) = @_;
    return scalar(() = $nginx->log_lines(qr/iap_guard redis \S+ is $what/));
}


sub ask {
    my $first = $users + 1;
    $users += AT_ONCE;

    return IapGuard::Asked->new(port => $nginx->port, path => '/guarded',
                                users => [$first .. $users]);
}


# A function that asks on one connection, which it keeps, and waits.

sub client {
    my $loop   = IapGuard::Loop->new;
    my $client = IapGuard::LoadClient->new(loop => $loop, connections => 1,
                                           port => $nginx->port);
    return sub {
        my $answer;
        $users++;
        $client->request({ method => 'GET', path => '/guarded',
                           headers => { 'X-User-Id' => $users } },
                         sub { $answer = shift });
        $loop->run_until(sub { $answer });
        return $answer;
    };
}
