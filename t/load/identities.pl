#!/usr/bin/perl

# A million identities through zones that can't hold them, and through one
# that can.  Memory stays, what was spent stays spent, and it is said once.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(sleep);

use IapGuard::Loop;
use IapGuard::Nginx;
use IapGuard::Wrk;

use constant {
    FLOOD_LIMIT  => 150,        # seconds it may take at most
    DEPTH        => 16,         # requests pipelined

    WORKERS      => 3,
    SPENT        => 300,        # users
    CAPACITY     => 2,
    SEGMENTS     => 100,        # with all their places taken
    SAMPLE       => 300,

    GROWTH       => 4_096,      # KB of its own that a worker may take
    LOST         => 0.001,      # share that may find no room in 64m
};

my %paths = IapGuard::Nginx->options;

# AddressSanitizer takes several times as long for each

my $asan       = IapGuard::Nginx->new(%paths)->asan;
my $identities = $asan ? 300_000 : 1_000_000;

foreach my $size ('1m', $asan ? '4m' : '16m') {
    too_small($size);
}

large_enough('64m');

done_testing;


sub too_small {
    my ($size) = @_;
    my $nginx = IapGuard::Nginx->new(%paths, workers => WORKERS,
        http => "    iap_guard_zone  iap $size;", server => <<"END")->start;
        location = /redeem {
            iap_guard          redeem;
            iap_guard_segment  users=1 window=1h address=\$http_x_address;
            iap_guard_user     \$http_x_user_id
                               capacity=@{[ CAPACITY ]} rate=1r/h;
            empty_gif;
        }

        location = /strict {
            iap_guard        strict;
            iap_guard_user   \$http_x_user_id capacity=1 rate=1r/h
                             on_error=reject;
            empty_gif;
        }
END

    spend($nginx, $size);

    busy($nginx);

    my %before = memory($nginx);
    my $zone   = $nginx->api_json('GET', 'status')->{zone}{size};
    my $flood  = flood($nginx, '/redeem', 'X-Address:%a');
    my %after  = memory($nginx);

    still_spent($nginx, $size);

    my @strict = statuses($nginx->ask(map { ['/strict', 'X-User-Id' => "s$_"] }
                                      1 .. SAMPLE));
    cmp_ok $strict[503] || 0, '>=', 0.9 * SAMPLE,
        "$size: on_error=reject refuses new keys with 503";

    my %full = map {
        $_ => $nginx->metric('iap_guard_zone_full_total',
                             qr/guard="redeem",kind="$_"/)
    } qw(buckets segments);

    cmp_ok $full{$_}, '>', 0, "$size: the metric tells of $_ without room"
        foreach sort keys %full;

    is scalar(my @said = $nginx->log_lines(qr/ is full: /)), 1,
        "$size: one line in the log, not one a key";

    note "$size: $flood; no room for $full{buckets} buckets, "
        . "$full{segments} segments";

    same_memory($nginx, $size, $zone, \%before, \%after);
    quiet($nginx, $size);

    return;
}


# Users with no token left, and segments with no place.

sub spend {
    my ($nginx, $size) = @_;

    my @answers = $nginx->ask(map { ([user($_)]) x (CAPACITY + 1) }
                              1 .. SPENT);
    my @statuses = statuses(@answers);

    is_deeply [@statuses[200, 429]], [CAPACITY * SPENT, SPENT],
        "$size: before, each of " . SPENT . ' users spends its tokens';

    $nginx->ask(map { [place($_, 'first')] } 1 .. SEGMENTS);
    @statuses = statuses($nginx->ask(map { [place($_, 'second')] }
                                     1 .. SEGMENTS));

    is $statuses[429], SEGMENTS, "$size: and each of " . SEGMENTS
        . ' segments is full';

    return;
}


sub still_spent {
    my ($nginx, $size) = @_;

    my @answers  = $nginx->ask(map { [user($_)] } 1 .. SPENT);
    my @statuses = statuses(@answers);

    is $statuses[429], SPENT, "$size: after it, no spent key is a fresh one";
    is scalar(grep { $_->{body} =~ /"layer":"user"/ } @answers), SPENT,
        "$size: and it is the user's layer that says so";

    @statuses = statuses($nginx->ask(map { [place($_, 'third')] }
                                     1 .. SEGMENTS));
    is $statuses[429], SEGMENTS, "$size: nor is a full segment an empty one";

    return;
}


# each comes from an address of its own, as the flood's senders do

sub user {
    my ($i) = @_;

    return '/redeem', 'X-User-Id' => "spent$i",
           'X-Address' => sprintf '192.168.%d.%d', $i / 250, $i % 250;
}


sub place {
    my ($i, $who) = @_;

    return '/redeem', 'X-User-Id' => "$who$i",
           'X-Address' => "198.51.100.$i";
}


sub large_enough {
    my ($size) = @_;
    my $nginx = IapGuard::Nginx->new(%paths, workers => WORKERS,
        http => "    iap_guard_zone  iap $size;", server => <<'END')->start;
        location = /redeem {
            iap_guard       redeem;
            iap_guard_user  $http_x_user_id capacity=1 rate=1r/d;
            empty_gif;
        }
END

    busy($nginx);

    my %before = memory($nginx);
    my $zone   = $nginx->api_json('GET', 'status')->{zone}{size};
    my $flood  = flood($nginx, '/redeem');
    my %after  = memory($nginx);
    my $passed = $nginx->metric('iap_guard_requests_total',
                                qr/verdict="passed"/);
    my $full   = $nginx->metric('iap_guard_zone_full_total');
    my $used   = $nginx->metric('iap_guard_zone_bytes', qr/"buckets"/);

    cmp_ok $passed, '>=', $identities,
        "$size: $identities identities passed once";
    cmp_ok $full, '<=', LOST * $passed, "$size: and it had room for them";

    # wrk's first request is made twice, so the first ones may be missing

    my @statuses = statuses($nginx->ask(
        map { ['/redeem',
               'X-User-Id' => 'u' . (100 + int rand 0.9 * $identities)] }
            1 .. SAMPLE));

    cmp_ok $statuses[429] || 0, '>=', $full ? 0.99 * SAMPLE : SAMPLE,
        "$size: each of them is known";

    note sprintf '%s: %s; %d without room, %.1f MB used, estimated',
        $size, $flood, $full, $used / 1_048_576;

    same_memory($nginx, $size, $zone, \%before, \%after);
    quiet($nginx, $size);

    return;
}


# Sends one request of each sender, and says how long that took.

sub flood {
    my ($nginx, $path, $header) = @_;
    my $begun = IapGuard::Loop::now();
    my $done  = 0;

    # one thread: two share the numbers, and where one of them is slower, the
    # first million is not what was sent

    my $wrk = IapGuard::Wrk->start(
        url => $nginx->url($path), threads => 1, connections => 48,
        seconds => FLOOD_LIMIT,
        send => { header => 'X-User-Id:u%d', depth => DEPTH,
                  $header ? (header2 => $header) : () });

    my $counted = $nginx->metric('iap_guard_requests_total');

    while ($done < $identities && $wrk->running) {
        sleep 0.2;
        $done = $nginx->metric('iap_guard_requests_total') - $counted;
    }

    my $result = $wrk->stop;

    cmp_ok $done, '>=', $identities, "the flood has $identities identities";
    is(IapGuard::Wrk->failures($result), 0, 'no request of it failed');

    return sprintf '%d identities in %.1f s', $done,
                   IapGuard::Loop::now() - $begun;
}


# Some of what a worker has it takes only once it has been busy.

sub busy {
    my ($nginx) = @_;

    return IapGuard::Wrk->run(
        url => $nginx->url('/none'), threads => 2, connections => 48,
        seconds => 1, send => { depth => DEPTH });
}


# KB of all workers: VmSize, RssAnon, RssShmem.

sub memory {
    my ($nginx) = @_;
    my %sum;

    foreach my $pid ($nginx->workers) {
        open my $file, '<', "/proc/$pid/status" or die "worker $pid: $!\n";

        while (my $line = <$file>) {
            $sum{$1} += $2 if $line =~ /^(VmSize|Rss\w+):\s+(\d+) kB/;
        }
    }

    return %sum;
}


sub same_memory {
    my ($nginx, $size, $zone, $before, $after) = @_;
    my $grown = $after->{RssAnon} - $before->{RssAnon};

    note "$size: KB of all workers, before and after: "
        . join ', ', map { "$_ $before->{$_} $after->{$_}" }
                     qw(VmSize RssAnon RssShmem);

    SKIP: {
        skip "AddressSanitizer gives no memory back", 1 if $nginx->asan;
        cmp_ok $grown, '<=', WORKERS * GROWTH,
            "$size: the workers did not grow";
    }

    cmp_ok $after->{RssShmem}, '<=', WORKERS * ($zone / 1024 + 1024),
        "$size: what they share is the zone";
    is $nginx->api_json('GET', 'status')->{zone}{size}, $zone,
        "$size: which is as large as before";

    return;
}


sub quiet {
    my ($nginx, $size) = @_;
    my @complaints = $nginx->complaints;

    $nginx->stop;
    is_deeply [@complaints, $nginx->complaints], [],
        "$size: no complaint in the error log";

    return;
}


# How many answers have each status; 0 stands for no answer.

sub statuses {
    my (@answers) = @_;
    my @n = (0) x 600;

    $n[ $_->{status} || 0 ]++ foreach @answers;

    return @n;
}
