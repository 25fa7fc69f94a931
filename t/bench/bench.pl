#!/usr/bin/perl

# What the guard costs, next to nginx's own limit_req, to the usual limiter of
# Lua and Redis, and to nothing.
#
# CPU time of the whole worker per request; one worker on one core, wrk and
# Redis on the other, 64 kept connections.  The rows take turns, several
# rounds long, and medians are printed: only ratios of one run mean anything.

use strict;
use warnings;

use FindBin;
use lib $FindBin::Bin, "$FindBin::Bin/../lib";

use Cwd qw(abs_path);
use Getopt::Long;
use Time::HiRes qw(sleep);

use BenchAccept;
use BenchBreaker;
use BenchInstructions;
use BenchRedis;
use BenchRun;
use IapGuard::Nginx;
use IapGuard::Wrk;

use constant {
    SENDERS      => 100_000,
    REFUSED      => 500,        # senders that are refused

    FEW_KEYS     => 1_000,
    MANY_KEYS    => 1_000_000,
    FILL_SECONDS => 60,         # that their coming may take

    HONEST       => 200,        # requests a second
    ATTACKERS    => 100,        # for each of those
    ATTACK_ROUND => 1.5,        # times as long as another run
};

# of the bench, in the order of their rows

my @PARTS = qw(embedded refusing growing lua redis breaker accept instructions
               attack memory);

my $USAGE = <<"END";
usage: bench.pl [--module=FILE] [--ungrouped=FILE] [--nginx=FILE]
                [--rounds=N] [--seconds=N] [--only=PART,...]

    --module=FILE  the dynamic module; not given: nginx was built with it
    --ungrouped=FILE  the same, built with -DNGX_IAP_FILE_BATCH=1, which accept
                   is compared with
    --nginx=FILE   the nginx binary (/usr/sbin/nginx)
    --rounds=N     runs of each row (5)
    --seconds=N    of each run (2)
    --only=PARTS   some of: @PARTS
                   (lua is compared with redis, both with embedded, too;
                   instructions are of what breaker has, and need valgrind)
END

# what each sender says, unless a row says otherwise

my %SEND = (header => 'X-User-Id:user%d', header2 => 'X-Device-Id:device%d',
            last => SENDERS, prepare => 1);

my $CALM = 'capacity=1000000 rate=100000r/s';   # refuses nobody here

my $LAYERS = <<"END";
            iap_guard_segment  users=1000000 window=60s;
            iap_guard_user     \$http_x_user_id   $CALM;
            iap_guard_device   \$http_x_device_id $CALM;
            iap_guard_global   rate=100000r/s window=60s;
END

$| = 1;
exit main();


sub main {
    my %options = (nginx => '/usr/sbin/nginx', rounds => 5, seconds => 2,
                   only => join ',', @PARTS);

    if (!GetOptions(\%options, 'module=s', 'ungrouped=s', 'nginx=s',
                    'rounds=i', 'seconds=i', 'only=s')
        || @ARGV || $options{rounds} < 1 || $options{seconds} < 1
        || grep { my $part = $_; !grep { $_ eq $part } @PARTS }
                split /,/, $options{only})
    {
        print STDERR $USAGE;
        return 2;
    }

    # ends here by way of the destructors, which stop what was started

    local @SIG{qw(INT TERM HUP)} = (sub { die "stopped by SIG$_[0]\n" }) x 3;

    my $rc = eval { bench(%options); 0 };

    return $rc if defined $rc;

    print STDERR "bench: $@";
    return 1;
}


sub bench {
    my (%options) = @_;
    my @cpus = BenchRun::cpus();
    my @pin  = @cpus > 1 ? (cpu => $cpus[0]) : ();
    my %site = (workers => 1, level => 'crit', @pin,
                map { $_ => abs_path($options{$_}) || $options{$_} }
                grep { defined $options{$_} } qw(nginx module));

    print "nginx and wrk share one processor\n" unless @pin;

    my $run = BenchRun->new(seconds => $options{seconds},
                            wrk_cpu => $cpus[1]);
    my %only = map { $_ => 1 } split /,/, $options{only};

    print STDERR "every sender once, and a million keys where there are any\n";

    my $redis = $only{lua} || $only{redis}
        ? BenchRedis->new(site => \%site, cpu => $cpus[1],
                          senders => SENDERS, refused => REFUSED)
        : undef;

    my $breaker = ($only{breaker} || $only{instructions})
        && BenchBreaker->new(site => \%site, cpu => $cpus[1]);

    my $accept = $only{accept} && $options{ungrouped}
        && BenchAccept->new(site => \%site,
                            ungrouped => abs_path($options{ungrouped}));

    $only{accept} = 0 unless $accept;

    my %rows = (
        embedded => sub { admitting(%site) },
        refusing => sub { refusing(%site) },
        growing  => sub { growing(%site) },
        lua      => sub { $redis->lua_rows },
        redis    => sub { $redis->guard_rows },
        breaker  => sub { $breaker->rows },
        accept   => sub { $accept->rows },
    );

    my @rows   = map { $rows{$_}->() } grep { $only{$_} && $rows{$_} } @PARTS;
    my $attack = $only{attack} && attack(%site);

    $run->wrk($_)->result foreach @rows;

    foreach my $round (1 .. $options{rounds}) {
        print STDERR "round $round of $options{rounds}\n";

        $run->measure($_) foreach @rows;
        attack_round($run, $attack, int $options{seconds} * ATTACK_ROUND)
            if $attack;
    }

    # a line of the log for each kind of refusal would show here

    my @logged = ($only{refusing} ? logged(%site) : (),
                  $only{redis} ? $redis->logged : ());
    $breaker->check if $only{breaker};
    $accept->check($run, @rows) if $accept;

    my %instructions = $only{instructions} ? instructions($breaker) : ();

    my $memory = $only{memory} && memory(%site);
    my $bucket = $only{redis} && $redis->memory(\&fill);

    print "\n";
    $run->print_rows(@rows);
    print "\n";

    printf "one sync of 4 KB takes %.0f us on the disk that accept writes "
        . "to\n", $accept->sync_us if $accept;
    print_attack($attack) if $attack;
    print_memory($memory) if $memory;
    print_redis($redis, $bucket) if $bucket;
    printf "%-46s%12.0f instructions\n", $_, $instructions{$_}
        foreach sort keys %instructions;
    print "\n";

    print "targets, each a ratio in this run\n";
    $run->print_targets(\@rows, targets(), BenchRedis->targets,
                        BenchBreaker->targets, BenchAccept->targets);
    BenchRun->print_target(
        name => '100 attackers for 1 honest one: honest p99, with / without',
        value => BenchRun::median_of(@{ $attack->{ratios} }), at_most => 1.5)
        if $attack;
    BenchRun->print_target(
        name => 'error-log lines of refusals', value => scalar @logged,
        at_most => 0)
        if $only{refusing} || $only{redis};
    BenchRun->print_target(
        name => '1,000,000 identities in 64 MB: share without room, %',
        value => 100 * $memory->{full} / $memory->{passed}, at_most => 0.1)
        if $memory;
    BenchRun->print_target(
        name => 'bytes of a bucket in Redis', value => $bucket->{each},
        at_most => 150)
        if $bucket;

    return;
}


# --- rows -----------------------------------------------------------------

sub admitting {
    my (%site) = @_;

    my $site = IapGuard::Nginx->new(%site, http => <<'END',
    iap_guard_zone  iap 64m;

    limit_req_zone  $binary_remote_addr zone=address:1m rate=100000r/s;
    limit_req_zone  $http_x_user_id     zone=user:64m   rate=100000r/s;
    limit_req_zone  $http_x_device_id   zone=device:64m rate=100000r/s;
    limit_req_zone  $server_name        zone=all:1m     rate=100000r/s;
END
        server => <<"END")->start;
        location = /none { empty_gif; }

        location = /limit_req {
            limit_req  zone=address burst=100000 nodelay;
            limit_req  zone=user    burst=100000 nodelay;
            limit_req  zone=device  burst=100000 nodelay;
            limit_req  zone=all     burst=100000 nodelay;
            empty_gif;
        }

        location = /embedded {
            iap_guard  embedded;
$LAYERS
            empty_gif;
        }
END

    return rows_of($site, \%SEND,
        { id => 'none', name => 'no limits', path => '/none' },
        { id => 'limit_req', name => 'limit_req x 4', path => '/limit_req' },
        { id => 'embedded', name => 'embedded, four layers, all admitted',
          path => '/embedded' },
    );
}


# In a site of its own, for a ban makes all guards look for bans.

sub refusing {
    my (%site) = @_;
    my %few = (%SEND, last => REFUSED);

    my $site = refusing_site(%site);

    return rows_of($site, \%few,
        { id => 'return', name => 'a location that just returns 429',
          path => '/return', refused => 1 },
        { id => 'limit_refused', name => 'limit_req refusing',
          path => '/limit_req', refused => 1 },
        { id => 'ban', name => 'refused by ban', path => '/ban',
          refused => 1 },
        { id => 'bucket', name => 'refused by bucket', path => '/bucket',
          refused => 1 },
        { id => 'embedded_ban',
          name => 'embedded, four layers, while others are banned',
          path => '/embedded', send => \%SEND },
    );
}


sub refusing_site {
    my (%site) = @_;

    my $site = IapGuard::Nginx->new(%site, http => <<'END',
    iap_guard_zone  iap 64m;

    limit_req_zone    $http_x_user_id zone=user:16m rate=1r/m;
    limit_req_status  429;
END
        server => <<"END")->start;
        location = /return { return 429; }

        location = /limit_req {
            limit_req  zone=user;
            empty_gif;
        }

        location = /ban {
            iap_guard  banned;
$LAYERS
            empty_gif;
        }

        location = /bucket {
            iap_guard         refusing;
            iap_guard_user    \$http_x_user_id   capacity=1 rate=1r/d;
            iap_guard_device  \$http_x_device_id capacity=1 rate=1r/d;
            empty_gif;
        }

        location = /embedded {
            iap_guard  embedded;
$LAYERS
            empty_gif;
        }
END

    $site->ban('banned', 'segment', '127.0.0.0/24', 86_400);
    $site->ban('embedded', 'segment', '192.0.2.0/24', 86_400);

    return $site;
}


sub growing {
    my (%site) = @_;

    # a bucket for the user and one for the device, and the user's membership

    my $site = IapGuard::Nginx->new(%site,
        http => '    iap_guard_zone  iap 256m;', server => <<"END")->start;
        location = /few {
            iap_guard  few;
$LAYERS
            empty_gif;
        }

        location = /many {
            iap_guard          many;
            iap_guard_segment  users=1000000 window=1h;
            iap_guard_user     \$http_x_user_id   capacity=100000 rate=1r/s;
            iap_guard_device   \$http_x_device_id capacity=100000 rate=1r/s;
            iap_guard_global   rate=100000r/s window=60s;
            empty_gif;
        }
END

    # the same requests but for their number, made on the way in both

    my %any = (%SEND, order => 'random');
    delete $any{prepare};

    fill($site, '/many', \%SEND, MANY_KEYS);

    return rows_of($site, \%any,
        { id => 'few', name => 'embedded, 1,000 keys of a kind',
          path => '/few', send => { %any, last => FEW_KEYS } },
        { id => 'many', name => 'embedded, 1,000,000 keys of a kind',
          path => '/many', send => { %any, last => MANY_KEYS } },
    );
}


sub rows_of {
    my ($site, $send, @rows) = @_;
    return map { { site => $site, send => $send, %$_ } } @rows;
}


# One request of each of so many senders, but for a few that are under way
# when the number is reached.

sub fill {
    my ($site, $path, $send, $senders) = @_;
    my %all = (%$send, last => $senders, depth => 16);
    delete $all{prepare};

    my $before = $site->metric('iap_guard_requests_total');
    my $wrk = IapGuard::Wrk->start(url => $site->url($path),
        connections => 32, seconds => FILL_SECONDS, send => \%all);

    while ($site->metric('iap_guard_requests_total') - $before < $senders) {
        die "$senders keys take too long\n" unless $wrk->running;
        sleep 0.1;
    }

    return $wrk->stop;
}


# --- an attack ------------------------------------------------------------

# Attackers with no token left, and honest users who come at a steady pace
# through the same guard.

sub attack {
    my (%site) = @_;

    my $site = IapGuard::Nginx->new(%site,
        http => '    iap_guard_zone  iap 64m;', server => <<'END')->start;
        location = /redeem {
            iap_guard          redeem;
            iap_guard_segment  users=1000000 window=60s;
            iap_guard_user     $http_x_user_id   capacity=100 rate=1r/h;
            iap_guard_device   $http_x_device_id capacity=100 rate=1r/h;
            iap_guard_global   rate=100000r/s window=60s;
            empty_gif;
        }
END

    my $attack = { site => $site, path => '/redeem', ratios => [], quiet => [],
                   busy => [], times => [], number => 0 };

    # they spend what they have

    my $begun = $site->metric('iap_guard_requests_total',
                              qr/verdict="limited"/);
    my $wrk = IapGuard::Wrk->start(url => $site->url('/redeem'),
        connections => 32, seconds => FILL_SECONDS,
        send => { attackers(), depth => 16 });

    sleep 0.1 while $wrk->running
        && $site->metric('iap_guard_requests_total', qr/verdict="limited"/)
           < $begun + REFUSED * 10;
    $wrk->stop;

    return $attack;
}


sub attackers {
    return (header => 'X-User-Id:attacker%d',
            header2 => 'X-Device-Id:emulator%d', last => REFUSED);
}


sub attack_round {
    my ($run, $attack, $seconds) = @_;
    my $calm = honest($run, $attack, $seconds)->result;

    # an attacker's connection waits 10 ms, on average, and for its answer

    my $wrk = $run->wrk($attack,
        connections => int(HONEST * ATTACKERS / 90), seconds => $seconds + 2,
        send => { attackers(), delay => '5-15', prepare => 1 });

    sleep 1;                    # all of it has begun

    my $refused = $attack->{site}->metric('iap_guard_rejections_total');
    my $under   = honest($run, $attack, $seconds)->result;

    $refused = $attack->{site}->metric('iap_guard_rejections_total')
               - $refused;
    $wrk->stop;

    foreach my $result ($calm, $under) {
        die "honest users: $result->{requests} requests, $result->{status} of "
            . "them refused\n"
            if !$result->{requests} || $result->{status}
               || IapGuard::Wrk->failures($result);
    }

    push @{ $attack->{quiet} }, $calm->{p99};
    push @{ $attack->{busy} }, $under->{p99};
    push @{ $attack->{ratios} }, $under->{p99} / $calm->{p99};
    push @{ $attack->{times} }, $refused / $under->{requests};

    return;
}


# Before all others on wrk's processor, or it would be the attackers' wrk
# that they wait for.

sub honest {
    my ($run, $attack, $seconds) = @_;
    my $first = 1 + 10_000 * $attack->{number}++;

    return $run->wrk($attack, urgent => 1, seconds => $seconds,
        connections => int HONEST / 50,
        send => { header => 'X-User-Id:user%d',
                  header2 => 'X-Device-Id:device%d', first => $first,
                  last => $first + 9_999, delay => '10-30' });
}


sub print_attack {
    my ($attack) = @_;

    printf "honest users: p99 %.3f ms alone, %.3f ms with %.0f attackers' "
        . "requests for each of theirs\n",
        map { BenchRun::median_of(@{ $attack->{$_} }) } qw(quiet busy times);

    return;
}


# --- the log, and memory --------------------------------------------------

# Lines in the log after thousands of refusals, with all of it on.

sub logged {
    my (%site) = @_;
    my $site = refusing_site(%site, level => 'info');

    # one request of each sender passes

    foreach my $path ('/bucket', '/bucket', '/ban') {
        $site->ask(map { [$path, 'X-User-Id' => "user$_",
                          'X-Device-Id' => "device$_"] } 1 .. REFUSED);
    }

    return $site->log_lines(qr{request: "GET /(?:ban|bucket) });
}


sub memory {
    my (%site) = @_;

    my $site = IapGuard::Nginx->new(%site,
        http => '    iap_guard_zone  iap 64m;', server => <<'END')->start;
        location = /redeem {
            iap_guard       redeem;
            iap_guard_user  $http_x_user_id capacity=1 rate=1r/d;
            empty_gif;
        }
END

    fill($site, '/redeem', { header => 'X-User-Id:user%d' }, MANY_KEYS);

    return {
        passed => $site->metric('iap_guard_requests_total',
                                qr/verdict="passed"/),
        full   => $site->metric('iap_guard_zone_full_total'),
        used   => $site->metric('iap_guard_zone_bytes'),
    };
}


sub print_memory {
    my ($memory) = @_;

    printf "%d identities in a zone of 64 MB: %d found no room, %.1f MB in "
        . "use\n", $memory->{passed}, $memory->{full},
        $memory->{used} / 1_048_576;

    return;
}


sub instructions {
    my ($breaker) = @_;
    my %found;

    if (!BenchInstructions->possible) {
        print STDERR "there is no valgrind to count instructions\n";
        return;
    }

    my $site = $breaker->site;

    foreach my $row ($breaker->rows_of($site)) {
        print STDERR "instructions: $row->{name}\n";
        $found{ $row->{name} } = BenchInstructions->of($site, $row->{path});
    }

    return %found;
}


sub print_redis {
    my ($redis, $bucket) = @_;

    printf "%d of the guard's decisions fell back to the zone; %d buckets in "
        . "Redis, of %.0f bytes\n", $redis->fallbacks,
        @$bucket{qw(buckets each)};

    return;
}


# --- targets --------------------------------------------------------------

sub targets {
    my $ratio = sub { $_[0]{nginx} / $_[1]{nginx} };

    return (
        { name => 'embedded / limit_req x 4: CPU above "no limits"',
          at_most => 0.8, rows => [qw(embedded limit_req none)],
          of => sub { ($_[0]{nginx} - $_[2]{nginx})
                      / ($_[1]{nginx} - $_[2]{nginx}) } },
        { name => 'refused by ban / a location that returns 429: CPU',
          at_most => 1.15, rows => [qw(ban return)], of => $ratio },
        { name => 'refused by bucket / a location that returns 429: CPU',
          rows => [qw(bucket return)], of => $ratio },
        { name => 'limit_req refusing / a location that returns 429: CPU',
          rows => [qw(limit_refused return)], of => $ratio },
        { name => '1,000,000 / 1,000 keys: CPU',
          at_most => 1.3, rows => [qw(many few)], of => $ratio },
    );
}
