#!/usr/bin/perl

# A store that was never there: no name, no word, no server.  nginx starts, no
# worker waits for it, no request for longer than the time-out; and once it is
# there it is used, with no reload.

use strict;
use warnings;

use IO::Socket::INET;
use List::Util qw(max);
use Test::More;
use Time::HiRes qw(sleep);

use IapGuard::Child;
use IapGuard::Loop;
use IapGuard::Nginx;
use IapGuard::PacedLoad;
use IapGuard::RedisServer;

use constant {
    WORKERS     => 2,
    CONNECTIONS => 48,
    SECONDS     => 2.2,     # two more attempts, at least
    TIMEOUT     => 50,      # ms
    SLACK       => 20,
    OTHERS      => 50,      # ms: how soon what needs no store is answered
    KNOWN       => 0.6,     # s
    BACK        => 2.5,
};

my %paths = IapGuard::Nginx->options;

# never read from, or not yet

my $names = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Proto => 'udp')
    or die "udp: $!\n";
my $mute = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 511,
                                 Proto => 'tcp')
    or die "tcp: $!\n";

my $redis = IapGuard::RedisServer->new;
my $name_server;

without('a name server that does not answer',
        'redis://redis.invalid:' . $redis->port,
        resolver => '127.0.0.1:' . $names->sockport,
        comes    => sub { $name_server = name_server() });
without('a server that never says a word', 'redis://127.0.0.1:'
        . $mute->sockport, port => $mute->sockport);
without('a server that never shakes hands', 'rediss://127.0.0.1:'
        . $mute->sockport, port => $mute->sockport);
$redis->stop;
without('no server', 'redis://' . $redis->node,
        comes => sub { $redis->start });

done_testing;


sub without {
    my ($name, $url, %options) = @_;
    my $resolver = $options{resolver}
        ? "    resolver         $options{resolver} ipv6=off;\n" : '';

    my $nginx = IapGuard::Nginx->new(%paths, workers => WORKERS,
        http => $resolver . <<"END", server => <<'END')->start;
    iap_guard_zone   iap 16m;
    iap_guard_redis  $url timeout=${\TIMEOUT}ms;
END
        add_header  X-Store $iap_guard_store always;

        location = /guarded {
            iap_guard       guarded;
            iap_guard_user  $http_x_user_id capacity=3 rate=3r/m;
            empty_gif;
        }

        location = /others {
            iap_guard  off;
            empty_gif;
        }
END

    my $begun = IapGuard::Loop::now();
    my $load  = IapGuard::PacedLoad->start(
        port => $nginx->port, connections => CONNECTIONS,
        paths => [('/guarded') x 3, '/others']);

    my $connections = watch($nginx, $options{port});
    my $ended = IapGuard::Loop::now();
    my $lines = said($nginx, 'down');

    comes($name, $nginx, $load, $options{comes}) if $options{comes};
    $load->stop;

    my $guarded = $load->part('/guarded', $begun, $ended);
    my $others  = $load->part('/others', $begun, $ended);
    my $known   = $load->part('/guarded', $begun + KNOWN, $ended);
    my $machine = $load->part('/others', $begun + KNOWN, $ended);

    is_deeply [@{ $guarded->{errors} }, @{ $others->{errors} }], [],
        "$name: every request was answered";
    is_deeply [keys %{ $guarded->{statuses} }, keys %{ $others->{statuses} }],
        [200, 200], "$name: and passed";
    is_deeply [keys %{ $guarded->{stores} }], ['fallback'],
        "$name: without the store";
    cmp_ok $others->{p99}, '<', OTHERS,
        "$name: what needs no store is not held up";
    cmp_ok $guarded->{p99}, '<=', TIMEOUT + SLACK + $others->{p99},
        "$name: nobody waits for longer than the time-out";
    cmp_ok $known->{p99}, '<=', SLACK + $machine->{p99},
        "$name: nor at all once it is known";
    is $lines, 1, "$name: which is logged once";
    cmp_ok $connections, '<=', 1, "$name: one connection per worker, at most";

    note sprintf '%s: %d requests, ms: others p99 %.1f max %.1f, guarded p99 '
        . '%.1f max %.1f, known p99 %.1f', $name, $guarded->{n},
        $others->{p99}, $others->{max}, $guarded->{p99}, $guarded->{max},
        $known->{p99};

    my @complaints = $nginx->complaints;
    $nginx->stop;
    is_deeply [@complaints, $nginx->complaints], [],
        "$name: no complaint in the error log";

    return;
}


sub watch {
    my ($nginx, $port) = @_;
    my $until = IapGuard::Loop::now() + SECONDS;
    my @workers = $nginx->workers;
    my $most = 0;

    while (IapGuard::Loop::now() < $until) {
        $most = max($most, $nginx->connections_to($port, @workers)) if $port;
        sleep 0.05;
    }

    return $most;
}


sub comes {
    my ($name, $nginx, $load, $come) = @_;

    $come->();

    my $begun = IapGuard::Loop::now();

    ok $nginx->wait_for(BACK, sub { said($nginx, 'up again') }),
        "$name: it is used once it is there";
    sleep 1.2;

    my $after = IapGuard::Loop::now();
    sleep 0.3;

    my $part = $load->part('/guarded', $after, IapGuard::Loop::now());

    is_deeply [keys %{ $part->{stores} }], ['redis'],
        "$name: by all workers";
    is said($nginx, 'down') . ' ' . said($nginx, 'up again'), '1 1',
        "$name: which is logged once";

    return;
}


# From now on every name has the address 127.0.0.1.

sub name_server {
    return IapGuard::Child->start(sub {
        my ($gone) = @_;
        my ($loop, $done) = (IapGuard::Loop->new, 0);

        $loop->on_read($gone, sub { $done = 1 });
        $loop->on_read($names, sub {
            my $from = $names->recv(my $query, 512);
            my ($id, $question) = (substr($query, 0, 2), substr $query, 12);

            # a pointer to the name, type A, class IN, a minute, four bytes

            $names->send($id . pack('n5', 0x8180, 1, 1, 0, 0) . $question
                         . pack('n3Nn C4', 0xc00c, 1, 1, 60, 4, 127, 0, 0, 1),
                         0, $from);
        });
        $loop->run_until(sub { $done });

        return 0;
    });
}


sub said {
    my ($nginx, $what) = @_;
    return scalar(() = $nginx->log_lines(qr/iap_guard redis \S+ is $what/));
}
