#!/usr/bin/perl

# A code that everybody wants, and everything that can go wrong with it: the
# service says yes, no, late, or never; clients leave; workers are killed, and
# replaced.  Units are in the file of one machine, in a Redis that two share, in
# a Cluster.  At every moment sold + reserved + free = initial, and what the
# service has given to anybody is sold.
#
# Runs beside others.
#
# By hand: --units=, --submits=, and --store=file, redis or cluster.

use strict;
use warnings;

use File::Temp ();
use Getopt::Long ();
use JSON::PP ();
use List::Util qw(max sum0);
use Test::More;
use Time::HiRes qw(sleep);

use IapGuard::Child;
use IapGuard::CodeBackend;
use IapGuard::CodeTest;
use IapGuard::LoadClient;
use IapGuard::Loop;
use IapGuard::Nginx;
use IapGuard::RedisCluster;
use IapGuard::RedisServer;

use constant {
    LEASE   => 2,           # seconds
    LEAVE   => 0.3,         # seconds, after which some clients do
    AUDIT   => 0.15,        # seconds between two audits
    KILL    => 0.8,         # and between two interruptions
    WORKERS => 4,
};

Getopt::Long::Configure('pass_through');
Getopt::Long::GetOptions(\my %options, 'units=i', 'submits=i', 'store=s')
    or die "usage: $0 [--units=N] [--submits=N] [--store=STORE]\n";
Getopt::Long::Configure('default');
Getopt::Long::Configure('default');

my $units   = $options{units}   || 1000;
my $submits = $options{submits} || 20_000;
my @stores  = $options{store}   || qw(file redis cluster);
my %paths   = IapGuard::Nginx->options;
my $json    = JSON::PP->new->canonical->utf8;

# of a hundred submissions; a client that leaves does so while it is slow

my @OUTCOMES = (('500') x 50, ('404') x 10, ('ok') x 22, ('slow:0.4') x 6,
                ('slow:1.2') x 2, ('leave') x 5, ('reset') x 3, ('hang') x 2);

campaign($_) foreach @stores;
done_testing;


sub servers {
    my ($store) = @_;
    my @aof = ('--appendonly', 'yes', '--maxmemory-policy', 'noeviction');

    return IapGuard::RedisServer->new(options => \@aof) if $store eq 'redis';
    return if $store eq 'file';

    my $cluster = IapGuard::RedisCluster->new;

    $_->command('CONFIG', 'SET', 'appendonly', 'yes') foreach $cluster->nodes;

    return $cluster;
}


sub campaign {
    my ($store) = @_;
    my $backend = IapGuard::CodeBackend->new->start->asked;
    my $redis   = servers($store);

    my @machines = map {
        IapGuard::CodeTest->new(paths => \%paths, workers => WORKERS,
            backend => $backend, redis => $redis, connections => 4096,
            code => 'lease=' . LEASE . 's', listen => 'reuseport')
    } 1 .. ($redis ? 2 : 1);

    my $begun = IapGuard::Loop::now();
    $machines[0]->stock('SPRING', $units);

    my @loads  = map { load($machines[$_], $_, $submits / @machines) }
                 0 .. $#machines;
    my $seen   = watch(\@machines, \@loads);
    my $result = results(@loads);
    my $took   = IapGuard::Loop::now() - $begun;

    is_deeply $seen->{wrong}, [], "$store: sold + reserved + free = initial, "
        . "at each of $seen->{audits} audits";
    cmp_ok $seen->{sold}, '<=', $units, "$store: never more sold";
    cmp_ok $seen->{audits}, '>=', 5, "$store: it was looked at";

    my $over = $machines[0]->nothing_reserved('SPRING', 3 * LEASE + 5);

    ok defined $over, "$store: nothing stays reserved";
    is $_->unbalanced($_->audit('SPRING', 1)), undef,
       "$store: balanced in the end" foreach @machines;

    ends($store, $machines[0]->code('SPRING'), $result,
         $backend->granted->{SPRING} || {});
    rest($store, @machines);

    note sprintf '%s: %d submissions in %.1f s, %d workers killed, %d reloads; '
        . '%s; the last unit was settled after %.1f s', $store,
        sum0(values %{ $result->{statuses} }), $took, $seen->{killed},
        $seen->{reloads},
        join(', ', map { "$_: $result->{statuses}{$_}" }
                   sort keys %{ $result->{statuses} }), $over // -1;

    $_->end(qr/signal 9|was locked by/) foreach @machines;
    $backend->stop;

    return;
}


sub ends {
    my ($store, $code, $result, $granted) = @_;
    my @given = keys %$granted;
    my %told  = map { $_ => 1 } keys %{ $result->{redeemed} };

    note "$store: sold $code->{sold}, free $code->{free}; given to "
        . @given . ' users, of whom ' . keys(%told) . ' have heard of it';

    cmp_ok $code->{sold}, '<=', $units, "$store: no more than there were";
    cmp_ok scalar @given, '<=', $code->{sold},
        "$store: whatever was given is sold";
    is scalar(grep { !$granted->{$_} } keys %told), 0,
        "$store: nobody was told so who was not given it";
    is scalar(grep { $_ > 1 } values %{ $result->{redeemed} }), 0,
        "$store: nobody was given it twice";

    return;
}


# What was given back too late for the crowd is there for who comes then

sub rest {
    my ($store, @machines) = @_;
    my $free = $machines[0]->code('SPRING')->{free};

    my $seen = IapGuard::CodeTest->statuses($machines[-1]->redeem_all(
        map { ['SPRING', "late-$_"] } 1 .. $free + 5));

    is_deeply $seen, { 409 => 5, $free ? (200 => $free) : () },
        "$store: what is free can be had, and no more";
    $machines[0]->is_balanced('SPRING', "$store, all gone", sold => $units,
                              reserved => 0, free => 0);

    return;
}


# Submissions to one machine, from a process of their own

sub load {
    my ($machine, $number, $n) = @_;
    my $file = File::Temp->new(TEMPLATE => 'iap_guard-codes-XXXXXX',
                               TMPDIR => 1);
    my $child = IapGuard::Child->start(sub {
        my $result = submit($machine, $number, $n);

        open my $out, '>', $file->filename or die "result: $!\n";
        print {$out} $json->encode($result);
        close $out or die "result: $!\n";
        return 0;
    });

    return { file => $file, child => $child };
}


sub submit {
    my ($machine, $number, $n) = @_;
    my $loop = IapGuard::Loop->new;
    my %result = (statuses => {}, redeemed => {});
    my $left = $n;

    my ($stays, $leaves) = map {
        IapGuard::LoadClient->new(loop => $loop, port => $machine->nginx->port,
            timeout => $_->[0], connections => $_->[1])
    } [15, 240], [LEAVE, 40];

    srand $number;

    foreach my $i (1 .. $n) {
        my $user    = $i % 12 ? "u$number-$i" : "u$number-" . ($i - 5);
        my $outcome = $OUTCOMES[rand @OUTCOMES];
        my $leave   = $outcome eq 'leave';

        ($leave ? $leaves : $stays)->request(
            $machine->request('SPRING', $user,
                              outcome => $leave ? 'slow:1' : $outcome),
            sub {
                my ($answer) = @_;
                my $status   = $answer->{status} || 'none';

                $left--;
                $result{statuses}{$status}++;
                $result{redeemed}{$user}++
                    if $status eq '200'
                       && $answer->{headers}{'x-verdict'} eq 'passed';
            });
    }

    $loop->run_until(sub { !$left });

    return \%result;
}


# Audits by all machines in turn, and workers killed, while there is load

sub watch {
    my ($machines, $loads) = @_;
    my %seen = (wrong => [], audits => 0, sold => 0, killed => 0,
                reloads => 0);
    my $kill = IapGuard::Loop::now() + KILL / 2;
    my $turn = 0;

    while (grep { $_->{child}->running } @$loads) {
        my $machine = $machines->[$turn++ % @$machines];

        # the worker that is asked may be the one that is killed

        my $audit = eval { $machine->audit('SPRING', 1) };

        if ($audit) {
            my $wrong = IapGuard::CodeTest->unbalanced($audit);

            push @{ $seen{wrong} }, $wrong if $wrong;
            $seen{sold} = max($seen{sold}, $audit->{sold});
            $seen{audits}++;
        }

        if (IapGuard::Loop::now() >= $kill) {
            $kill += KILL;
            interrupt($machine, \%seen);
        }

        sleep AUDIT;
    }

    return \%seen;
}


# A worker is killed, or all are replaced, in turn

sub interrupt {
    my ($machine, $seen) = @_;
    my @workers = $machine->nginx->workers;

    if ($seen->{killed} > $seen->{reloads}) {
        $seen->{reloads} += kill 'HUP', $machine->nginx->master;

    } elsif (@workers) {
        $seen->{killed} += kill 'KILL', $workers[rand @workers];
    }

    return;
}


sub results {
    my (@loads) = @_;
    my %sum = (statuses => {}, redeemed => {});

    foreach my $load (@loads) {
        $load->{child}->stop == 0 or die "the load failed\n";

        open my $file, '<', $load->{file}->filename or die "result: $!\n";
        my $result = $json->decode(do { local $/; <$file> });

        foreach my $what (keys %sum) {
            $sum{$what}{$_} += $result->{$what}{$_}
                foreach keys %{ $result->{$what} };
        }
    }

    return \%sum;
}
