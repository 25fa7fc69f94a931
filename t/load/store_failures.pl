#!/usr/bin/perl

# A store in trouble of every kind that Redis knows, under a steady load: no
# client is told, none waits longer than the store's time-out, and soon none
# waits at all; and when the trouble is over the guard is back by itself.
#
#   --only=WORD     those whose name has the word in it
#   --seconds=N     how long each trouble lasts, at least (1.3)

use strict;
use warnings;

use Getopt::Long ();
use IO::Socket::INET;
use List::Util qw(max min);
use Test::More;
use Time::HiRes qw(sleep);

use IapGuard::FakeRedis;
use IapGuard::FarRedis;
use IapGuard::Loop;
use IapGuard::Nginx;
use IapGuard::PacedLoad;
use IapGuard::RedisServer;

use constant {
    WORKERS     => 2,
    CONNECTIONS => 48,
    TIMEOUT     => 50,      # ms, of the store
    PATIENT     => 1000,    # where no request may fail, on a slow machine either

    # ms: what a request may take above the time-out, or above nothing once
    # it is known that the store is away; what a request takes at the same
    # time that needs no store comes on top, for that is the machine's
    SLACK       => 20,

    # ms: how long at most a request takes that needs no store
    OTHERS      => 50,

    # s: from the first failure until it is known, from the end of the trouble
    # until the store is used
    KNOWN       => 0.6,
    BACK        => 2.5,

    QUIET       => 0.3,     # s of health before a trouble
};

my ($only, $seconds) = ('', 1.3);

Getopt::Long::Configure('pass_through');
Getopt::Long::GetOptions('only=s' => \$only, 'seconds=f' => \$seconds);
Getopt::Long::Configure('no_pass_through');

my %paths = IapGuard::Nginx->options;
my (@table, $redis, $nginx, $busy);


# Each trouble begins, lasts, ends.  `healthy`: the store answers all the time.
# `broken`: some failures are allowed, but the store must not be given up.
# `passes`: it ends by itself when its time is over, however late `end` comes on
# a slow machine.

my @near = (
    { name => 'CLIENT PAUSE', passes => 1,
      begin => sub { $redis->command('CLIENT', 'PAUSE', 1000 * $seconds, 'ALL') },
      end => sub { $redis->command('PING') } },

    { name => 'SIGSTOP',
      begin => sub { $redis->freeze },
      end => sub { $redis->thaw } },

    { name => 'SIGKILL, restart',
      begin => sub { $redis->kill },
      end => sub { $redis->start } },

    { name => 'LOADING',
      begin => sub { start_loading() },
      end => sub { wait_for_loading() } },

    { name => 'BUSY with a script',
      begin => sub { keep_busy() },
      end => sub { is $redis->command('SCRIPT', 'KILL'), 'OK', 'SCRIPT KILL';
                   undef $busy } },

    { name => 'OOM',
      begin => sub { $redis->command(qw(CONFIG SET maxmemory 1mb)) },
      end => sub { $redis->command(qw(CONFIG SET maxmemory 0)) } },

    { name => 'READONLY',
      begin => sub { $redis->command(qw(REPLICAOF 127.0.0.1 1)) },
      end => sub { $redis->command(qw(REPLICAOF NO ONE)) } },

    { name => 'MASTERDOWN',
      begin => sub { $redis->command(qw(CONFIG SET replica-serve-stale-data no));
                     $redis->command(qw(REPLICAOF 127.0.0.1 1)) },
      end => sub { $redis->command(qw(REPLICAOF NO ONE)) } },

    { name => 'NOREPLICAS',
      begin => sub { $redis->command(qw(CONFIG SET min-replicas-to-write 1)) },
      end => sub { $redis->command(qw(CONFIG SET min-replicas-to-write 0)) } },

    { name => 'MISCONF',
      begin => sub { fail_to_save() },
      end => sub { $redis->command(qw(CONFIG SET stop-writes-on-bgsave-error no)) } },

    { name => 'NOAUTH',
      begin => sub { $redis->command(qw(CONFIG SET requirepass secret));
                     $redis->command(qw(AUTH secret));
                     $redis->command(qw(CLIENT KILL TYPE normal)) },
      end => sub { $redis->command('CONFIG', 'SET', 'requirepass', '') } },

    { name => 'max clients',
      begin => sub { $redis->command(qw(CONFIG SET maxclients 1));
                     $redis->command(qw(CLIENT KILL TYPE normal)) },
      end => sub { $redis->command(qw(CONFIG SET maxclients 1000)) } },

    { name => 'NOPERM',
      begin => sub { $redis->command(qw(ACL SETUSER default -evalsha -eval)) },
      end => sub { $redis->command(qw(ACL SETUSER default +evalsha +eval)) } },

    { name => 'connections killed', broken => 1,
      begin => sub { for (1 .. 4) { $redis->command(qw(CLIENT KILL TYPE normal));
                                    sleep 0.3 } } },
);

my @healthy = (
    { name => 'FLUSHALL', healthy => 1,
      begin => sub { $redis->command('FLUSHALL') foreach 1 .. 5 } },

    { name => 'SCRIPT FLUSH', healthy => 1,
      begin => sub { for (1 .. 20) { $redis->command(qw(SCRIPT FLUSH));
                                     sleep 0.02 } } },
);

my @password = (
    { name => 'WRONGPASS',
      begin => sub { $redis->command(qw(CONFIG SET requirepass other));
                     $redis->command(qw(CLIENT KILL TYPE normal)) },
      end => sub { $redis->command(qw(CONFIG SET requirepass secret)) } },
);

my @far = (
    { name => 'packets dropped',
      begin => sub { $redis->cut },
      end => sub { $redis->mend } },
);

troubles('IapGuard::RedisServer', '', TIMEOUT, @near);
troubles('IapGuard::RedisServer', '', PATIENT, @healthy);
troubles('IapGuard::RedisServer', 'secret', TIMEOUT, @password);
troubles('IapGuard::FarRedis', '', TIMEOUT, @far);

note sprintf '%-20s %7s %7s %7s %7s %7s %9s %7s', 'ms', 'others', 'before',
     'onset', 'during', 'longest', 'fallbacks', 'back';
note $_ foreach @table;

done_testing;


sub troubles {
    my ($server, $password, $timeout, @troubles) = @_;

    @troubles = grep { index($_->{name}, $only) >= 0 } @troubles or return;

    # its folder can only be changed where that is allowed

    $redis = $server->new(options => [qw(--enable-protected-configs yes)]);
    $redis->command('CONFIG', 'SET', 'requirepass', $password) if $password;

    $nginx = IapGuard::Nginx->new(%paths, workers => WORKERS,
        http => "    iap_guard_zone   iap 16m;\n"
              . "    iap_guard_redis  redis://"
              . ($password ? ":$password@" : '') . $redis->node
              . " timeout=${timeout}ms;",
        server => <<'END')->start;
        add_header  X-Store $iap_guard_store always;

        location = /guarded {
            iap_guard         guarded;
            iap_guard_user    $http_x_user_id capacity=3 rate=3r/m;
            iap_guard_global  rate=100000r/s window=1m;
            empty_gif;
        }

        location = /others {
            iap_guard  off;
            empty_gif;
        }
END

    my $load = IapGuard::PacedLoad->start(
        port => $nginx->port, connections => CONNECTIONS,
        paths => [('/guarded') x 3, '/others']);

    sleep 0.5;
    trouble($load, $_) foreach @troubles;
    $load->stop;

    my @complaints = $nginx->complaints;
    $nginx->stop;
    is_deeply [@complaints, $nginx->complaints], [],
        'no complaint in the error log';

    return;
}


sub trouble {
    my ($load, $trouble) = @_;
    my $name = $trouble->{name};
    my @log  = (log_lines('down'), log_lines('up again'));
    my %at   = (before => IapGuard::Loop::now());
    my $sample = connections_watch();

    $sample->(QUIET);
    my @counted = fallbacks();
    $at{begin} = IapGuard::Loop::now();
    $trouble->{begin}->();
    $at{begun} = IapGuard::Loop::now();
    $sample->($seconds);
    $at{end} = IapGuard::Loop::now();
    $at{over} = $trouble->{passes} ? min($at{end}, $at{begin} + $seconds)
                                   : $at{end};
    $trouble->{end}->() if $trouble->{end};
    $at{ended} = IapGuard::Loop::now();

    # all workers have to be back

    $sample->(0.1) until is_back($load) || IapGuard::Loop::now()
                                           > $at{ended} + BACK + 1;
    push @counted, fallbacks();
    my $connections = $sample->(0.2);

    my $guarded = sub { $load->part('/guarded', map { $at{$_} // $_ } @_) };
    my $others  = sub { $load->part('/others', map { $at{$_} // $_ } @_) };
    my $now     = IapGuard::Loop::now() - 0.1;

    my $all     = $guarded->('before', $now);
    my $rest    = $others->('before', $now);
    my $onset   = $guarded->('begin', $at{begun} + KNOWN);
    my $during  = $guarded->($at{begun} + KNOWN, 'over');

    my @fallbacks = grep { $_->[3] eq 'fallback' } @{ $all->{requests} };
    my $back = back($at{ended}, @{ $all->{requests} });

    is_deeply [@{ $all->{errors} }, @{ $rest->{errors} }], [],
        "$name: every request was answered";
    is_deeply [keys %{ $all->{statuses} }, keys %{ $rest->{statuses} }],
        [200, 200], "$name: and passed";
    cmp_ok $rest->{p99}, '<', OTHERS,
        "$name: requests without a store are not held up";

    my $machine = $rest->{p99};

    cmp_ok $all->{p99}, '<=', TIMEOUT + SLACK + $machine,
        "$name: no request waits for longer than the time-out";
    cmp_ok $connections, '==', 1, "$name: one connection per worker";

    @log = (log_lines('down') - $log[0], log_lines('up again') - $log[1]);

    if ($trouble->{healthy}) {
        is scalar(@fallbacks), 0, "$name: Redis decided all";
        is "@log", '0 0', "$name: nothing to log";

    } elsif ($trouble->{broken}) {
        cmp_ok scalar(@fallbacks), '<', 0.2 * $all->{n},
            "$name: Redis decided most";
        is "@log", '0 0', "$name: it is not given up";

    } else {
        cmp_ok $onset->{p99}, '<=', TIMEOUT + SLACK + $machine,
            "$name: nor do the first that meet it";
        cmp_ok $during->{n}, '>', 0, "$name: it is asked for on and on";
        cmp_ok $during->{p99}, '<=', SLACK + $machine,
            "$name: nobody waits once it is known";
        cmp_ok $during->{stores}{fallback} || 0, '==', $during->{n},
            "$name: all are decided without Redis then";
        is "@log", '1 1', "$name: down and up are logged once each";
        cmp_ok $back, '<=', BACK, "$name: back by itself";
        ok is_back($load), "$name: in all workers";
    }

    is_counted($name, $load, @counted);

    push @table, sprintf '%-20s %7.1f %7.1f %7.1f %7.1f %7.1f %9d %7d',
        $name, $rest->{p99}, $guarded->('before', 'begin')->{p99},
        $onset->{p99}, $during->{p99}, $all->{max}, scalar(@fallbacks),
        1000 * $back;

    return;
}


# The seconds from a moment until Redis decides: until the end of the last tenth
# of a second in which more than a tenth was decided without it.  Now and then
# one is late on a slow machine.

sub back {
    my ($ended, @requests) = @_;
    my (@n, @fallbacks);

    foreach my $request (grep { $_->[0] >= $ended } @requests) {
        my $tenth = int(($request->[0] - $ended) * 10);

        $n[$tenth]++;
        $fallbacks[$tenth] += ($request->[3] eq 'fallback');
    }

    my ($last) = grep { $n[$_] && $fallbacks[$_] > 0.1 * $n[$_] }
                      reverse 0 .. $#n;

    return defined $last ? ($last + 1) / 10 : 0;
}


# Whether of late all has been decided by Redis.

sub is_back {
    my ($load) = @_;
    my $since  = IapGuard::Loop::now() - 0.25;
    my ($n, $fallbacks) = (0, 0);

    $load->look_back('/guarded', sub {
        my ($begun, $store) = @{ $_[0] }[0, 3];

        return 0 if $begun < $since;
        $n++;
        $fallbacks++ if $store ne 'redis';
        return 1;
    });

    return $n > 20 && !$fallbacks;
}


# The metric, and the moments before and after it was read

sub fallbacks {
    my $before = IapGuard::Loop::now();
    my $n = $nginx->metric('iap_guard_store_fallbacks_total');

    return ($before, $n, IapGuard::Loop::now());
}


# A request is counted between its beginning and its answer: on a slow machine
# some are under way when the metric is read.

sub is_counted {
    my ($name, $load, $first, $from, $first_read, $last, $to, $last_read) = @_;
    my ($least, $most) = (0, 0);

    foreach my $request (@{ $load->part('/guarded', 0, $last_read)
                                ->{requests} }) {
        my ($begun, $seconds, undef, $store) = @$request;
        my $ended = $begun + $seconds;

        next if $store ne 'fallback';
        $least++ if $begun >= $first_read && $ended <= $last;
        $most++ if $ended >= $first && $begun <= $last_read;
    }

    my $n = $to - $from;

    cmp_ok $n, '>=', $least, "$name: fallbacks are counted";
    cmp_ok $n, '<=', $most, "$name: and each once";

    return;
}


sub log_lines {
    my ($what) = @_;
    return scalar(() = $nginx->log_lines(qr/iap_guard redis \S+ is $what/));
}


# Returns a function that looks again and again for so many seconds how many
# connections to the store a worker has, and returns the most that it ever saw.

sub connections_watch {
    my @workers = $nginx->workers;
    my $most    = 0;

    return sub {
        my ($seconds) = @_;
        my $until = IapGuard::Loop::now() + $seconds;

        do {
            my @n = $nginx->connections_to($redis->port, @workers);
            $most = max($most, @n);
            sleep 0.02;
        } while IapGuard::Loop::now() < $until;

        return $most;
    };
}


sub start_loading {
    $redis->command('EVAL', 'for i = 1, 2000 do redis.call("SET", "x" .. i, i) end',
               0);
    $redis->command('SAVE');
    $redis->kill;

    return;
}


# of each key the server takes a millisecond, and answers in between

sub wait_for_loading {
    my $from = IapGuard::Loop::now();

    $redis->start(qw(--key-load-delay 1000
                     --loading-process-events-interval-bytes 1024));
    cmp_ok IapGuard::Loop::now() - $from, '>', 1.5, 'LOADING takes a while';
    $redis->command('FLUSHALL');

    return;
}


sub keep_busy {
    $redis->command(qw(CONFIG SET busy-reply-threshold 100));

    $busy = IO::Socket::INET->new($redis->node) or die "no connection: $!\n";
    print {$busy} IapGuard::FakeRedis::encode('EVAL', 'while true do end', 0);
    $busy->flush;

    return;
}


sub fail_to_save {
    my $folder = $redis->folder . '/gone';

    mkdir $folder or die "$folder: $!\n";
    $redis->command('CONFIG', 'SET', 'dir', $folder);
    rmdir $folder or die "$folder: $!\n";

    $redis->command('CONFIG', 'SET', 'save', '3600 1');
    $redis->command('BGSAVE');

    return;
}
