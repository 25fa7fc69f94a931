#!/usr/bin/perl

# The queue's promise, whatever breaks under load:
#
#     ./build.sh crash [--rounds=200] [--ledger=file|redis|both] [--seed=N]
#                      [--without=KIND,...]
#
# In each round something breaks at a random moment, or two things at once: see
# t/lib/IapGuard/CrashFaults.pm.  After some rounds, and in the end, all is mended,
# and what clients were told must be true: see t/lib/IapGuard/CrashTest.pm.
#
# Without --rounds it is the short form for the suite "load": both ledgers at once,
# and what can't be broken here is named, which fails the long form.

use strict;
use warnings;

use Getopt::Long ();
use Test::More;

use IapGuard::Disk;
use IapGuard::Together;

use constant {
    SHORT => 8,                 # rounds
    TOLD  => 20,
    LOOK  => 10,                # rounds, after which all is looked at
};

IapGuard::Disk->alone;

Getopt::Long::Configure('pass_through');
Getopt::Long::GetOptions('rounds=i' => \my $rounds, 'ledger=s' => \my $ledger,
                         'seed=i' => \my $seed, 'without=s' => \my $without);
Getopt::Long::Configure('no_pass_through');

require IapGuard::CrashFaults;
require IapGuard::CrashTest;

my %paths = IapGuard::Nginx->options;
my $long  = defined $rounds;

$seed   = int rand 1_000_000 if !defined $seed;
$rounds = SHORT if !$long;
$ledger ||= 'both';

die "--ledger=file, redis or both\n" if $ledger !~ /^(?:file|redis|both)$/;

@ARGV = $ledger eq 'both' ? qw(file redis) : $ledger
    if !@ARGV && ($long || $ledger ne 'both');

@IapGuard::Together::options = ("--seed=$seed",
                                $without ? "--without=$without" : ());

# all that it has started goes with what it has made

$SIG{$_} = sub { die "ended by a signal\n" } foreach qw(INT TERM);

IapGuard::Together->run(2, redis => sub { crash('redis') },
                           file  => sub { crash('file') });


sub crash {
    my ($kind) = @_;

    srand $seed;
    note "$kind: $rounds rounds, --seed=$seed";

    my $test   = IapGuard::CrashTest->new(paths => \%paths, ledger => $kind,
                                          seed => $seed);
    my $faults = IapGuard::CrashFaults->new($test,
                     without => [ split /,/, $without || '' ]);
    my $wrong  = 0;

    foreach my $round (1 .. $rounds) {
        my $what = $faults->round;
        note "$kind: $round: $what" if $ENV{IAP_GUARD_ROUNDS};

        next if $round % LOOK || $round == $rounds;

        my @wrong = $test->settle;
        $wrong += @wrong;
        is some(@wrong), '', "$kind: all is well after $round rounds";
        last if @wrong;
    }

    my @wrong = $wrong ? () : $test->finish;
    is some(@wrong), '', "$kind: all is well in the end";

    my @complaints = $test->stop(expected());
    is join('', @complaints), '', "$kind: nothing in the log that should not be";

    told($kind, $test, $faults);

    return;
}


# where all is lost, that is seen by some of it

sub some {
    my (@wrong) = @_;
    my $more = @wrong - TOLD;

    return join "\n", $more > 0 ? (@wrong[0 .. TOLD - 1], "and $more more")
                                : @wrong;
}


# what the log may say in capital letters when processes are killed and disks are
# full

sub expected {
    return (qr/exited on signal 9/, qr/shared memory zone "\S+" was locked by/,
            qr/No space left on device/);
}


sub told {
    my ($kind, $test, $faults) = @_;
    my ($counts, $missing) = ($faults->counts, $faults->missing);

    note "$kind: what was broken, and how often";
    note sprintf '    %-14s %5s', $_, $missing->{$_} || $counts->{$_}
        foreach sort keys %$counts;

    note "$kind: what came of it";
    my %totals;
    foreach my $line ($test->totals) {
        note sprintf '    %-64s %8s', @$line;
        $totals{ $line->[0] } = $line->[1];
    }

    is "$totals{lost} lost, $totals{'activated with two ids'} with two ids",
        '0 lost, 0 with two ids', "$kind: nothing is lost, nor told of twice";
    cmp_ok $totals{'of them activated'}, '>', 10 * $rounds,
        "$kind: and there was much that could have been";
    is join(' ', grep { !$counts->{$_} && !$missing->{$_} }
                 sort keys %$counts), '', "$kind: all of it was broken"
        if $long && $rounds >= 40;
    is join(' ', grep { $missing->{$_} ne 'left out' } sort keys %$missing), '',
        "$kind: nothing was left out that was not said to be" if $long;

    return;
}
