#!/usr/bin/perl

# Thousands are queued when Apple comes back.  How fast they are sent, second by
# second; that a second outage in the midst of it stops them; and what others
# who use the same workers notice of all that.
#
#     --entries=10000 --rate=100      by hand; the default is small

use strict;
use warnings;

use Getopt::Long ();
use List::Util qw(max min);
use Test::More;
use Time::HiRes qw(sleep);

use IapGuard::DrainTest;
use IapGuard::Loop;
use IapGuard::PacedLoad;

use constant {
    QUIET  => 4,            # seconds that are compared with
    OUTAGE => 4,            # seconds of the second one
    PROBES => 3,
    COLUMN => 10,           # seconds in a line of a table
};

my ($entries, $rate) = (700, 60);

Getopt::Long::Configure('pass_through');
Getopt::Long::GetOptions('entries=i' => \$entries, 'rate=i' => \$rate);
Getopt::Long::Configure('no_pass_through');

my %paths = IapGuard::Nginx->options;

my $test = IapGuard::DrainTest->new(paths => \%paths, workers => 2,
    breaker => 'failures=50% min=20 consecutive=5 window=10s open=1s '
               . 'probes=' . PROBES,
    queue   => "rate=${rate}r/s concurrency=32 attempts=50 retry_min=200ms "
               . 'retry_max=2s timeout=5s',
    server  => <<'END');
        location = /redeem {
            iap_guard         redeem;
            iap_guard_user    $http_x_user_id capacity=3 rate=3r/m;
            iap_guard_global  rate=10000r/s;
            empty_gif;
        }
END

my ($nginx, $peers) = ($test->nginx, $test->peers);

# others: of another guard, and of a plain location; and purchases

my @others = ('/redeem', '/other');
my $others = IapGuard::PacedLoad->start(port => $nginx->port,
    connections => 16, pause => 0.05, paths => \@others);
my $buyers = IapGuard::PacedLoad->start(port => $nginx->port,
    connections => 2, pause => 0.1, paths => ['/live'], prefix => 'buyer');

my $quiet = IapGuard::Loop::now();
sleep QUIET;

$peers->always('/verify', 'http:503');
my $down     = IapGuard::Loop::now();
my @tickets  = $test->put_many($entries);
my $accepted = IapGuard::Loop::now();

is scalar(grep { defined } @tickets), $entries,
    "$entries are accepted while Apple is down";
note sprintf '%d accepted in %.1f s, by 64 connections', $entries,
    $accepted - $down;
ok $nginx->wait_for(10, sub { state_of() eq 'open' }), 'the breaker opens';

# back, until a third of them is verified

$peers->always('/verify', undef);
my $back = IapGuard::Loop::now();
ok $nginx->wait_for(10 + $entries / $rate, sub { verified() > $entries / 3 }),
    'a third is verified';

$peers->always('/verify', 'http:503');
my $again = IapGuard::Loop::now();
sleep OUTAGE;

# and to the end

$peers->always('/verify', undef);
my $well = IapGuard::Loop::now();
ok $nginx->wait_for(30 + 2 * $entries / $rate,
                    sub { $test->queue->{pending} == 0 }),
    'then all are verified';
my $done = IapGuard::Loop::now();
ok $nginx->wait_for(20, sub { $peers->count('/hook') >= $entries }),
    'and told of';

$_->stop foreach $others, $buyers;

my @calls = $peers->brief('/verify');
my @ours  = grep { $_->{id} =~ /^r/ } @calls;
my @first = table('since Apple is back', $back, $again);
my @stop  = table('since it is down once more', $again, $well);
my @last  = table('since it is back again', $well, $done);

my @probes = (sort { $a->{time} <=> $b->{time} }
              grep { $_->{time} >= $back } @calls)[0 .. PROBES - 1];
is scalar(grep { $_->{id} =~ /^r/ } @probes), PROBES,
    'the probes are of what is queued: nobody who buys waits for one';

starts_slowly('an outage', @first);
starts_slowly('the second outage', @last);
at_its_rate(@first, @last);

cmp_ok max(@stop[1 .. $#stop]), '<=', 3,
    'the second outage stops it within a second';

my %ok;
$ok{ $_->{id} }++ foreach grep { $_->{step} eq 'ok' } @ours;
is scalar(keys %ok), $entries, 'each was verified';
is scalar(grep { $_ > 1 } values %ok), 0, 'once';

my %told = map { $_->{id} => 1 } $peers->brief('/hook');
cmp_ok scalar(keys %told), '>=', $entries, 'and its service told of each';
is $test->queue->{dead}, 0, 'none is dead';

others_notice_nothing();
buyers_are_served();
$test->end;
done_testing;


sub state_of { return $nginx->api_json('GET', 'breakers/apple')->{state} }
sub verified { return $test->queue->{verified} }


# The queue's calls in each second between two moments, the last of which may
# be shorter

sub table {
    my ($when, $from, $to) = @_;
    my @table = (0) x (int($to - $from) + 1);

    foreach my $call (@ours) {
        $table[ int($call->{time} - $from) ]++
            if $call->{time} >= $from && $call->{time} < $to;
    }

    note "calls of the queue in each second $when:";

    for (my $i = 0; $i < @table; $i += COLUMN) {
        note sprintf '%5d s %s', $i, join '', map { sprintf '%6d', $_ }
            @table[$i .. min($i + COLUMN - 1, $#table)];
    }

    return @table;
}


# One, two, four, eight: a second may begin anywhere in that

sub starts_slowly {
    my ($what, @table) = @_;
    my ($begun) = grep { $table[$_] } 0 .. $#table;
    my @begin   = @table[$begun .. min($begun + 4, $#table)];
    my @fast    = grep { $begin[$_] > 3 * 2 ** $_ + 2 } 0 .. $#begin;

    is "@fast", '', "after $what it starts slowly: @begin";

    return;
}


sub at_its_rate {
    my @table = @_;

    cmp_ok max(@table), '<=', 1.1 * $rate,
        sprintf 'never more than its rate: %d in a second at most', max(@table);
    cmp_ok max(@table), '>', 0.8 * $rate, 'which it reaches';

    return;
}


# Milliseconds, of a machine that does other work as well

sub others_notice_nothing {
    my @parts = (['before', $quiet, $down], ['while they are accepted',
                 $down, $accepted], ['while they are sent', $back, $done]);

    note sprintf '%-26s %-8s %8s %8s %8s %8s', 'ms of others', 'where',
        'requests', 'p50', 'p99', 'most';

    foreach my $path (@others) {
        my @rows = map {
            my $part = $others->part($path, @$_[1, 2]);
            note sprintf '%-26s %-8s %8d %8.1f %8.1f %8.1f', $_->[0], $path,
                @$part{qw(n p50 p99 max)};
            $part;
        } @parts;

        my ($before, undef, $during) = @rows;

        cmp_ok $during->{p50}, '<', 2 * $before->{p50} + 2,
            "$path, in the middle: as fast as before";
        cmp_ok $during->{p99}, '<', 2 * $before->{p99} + 20,
            "$path, 99 of 100: as fast as before";
        is_deeply $during->{errors}, [], "$path: each has an answer";
        is_deeply [keys %{ $during->{statuses} }], [200], "$path: a good one";
    }

    return;
}


sub buyers_are_served {
    my $part     = $buyers->part('/live', $quiet, $done);
    my $statuses = $part->{statuses};

    note sprintf 'purchases meanwhile: %d verified, %d accepted, p99 %.1f ms',
        map { $_ || 0 } @$statuses{200, 202}, $part->{p99};

    is_deeply [sort keys %$statuses], [200, 202],
        'who buys meanwhile is verified or accepted';
    is_deeply $part->{errors}, [], 'all of them';
    cmp_ok $part->{p99}, '<', 500, 'and none waits';

    return;
}
