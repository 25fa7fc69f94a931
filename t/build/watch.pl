#!/usr/bin/perl
#
# Runs one file of tests for prove, and keeps what it says:
#
#     prove --exec 'perl t/build/watch.pl FOLDER perl -It/lib --' t/a.t t/b.t
#
# runs "perl -It/lib t/a.t".  All that it says is in FOLDER/a.log then, and
# what it says on its standard error, where the reasons of failures are, in
# FOLDER/a.err.  FOLDER/times gets a line with the seconds that it took.
#
# A file that takes longer than WATCH_SECONDS is ended, and fails.  So does one
# that bails out, but alone: Test::Nginx does that for as little as a
# configuration that nginx refuses, and prove would run nothing after it.

use strict;
use warnings;

use File::Basename qw(basename);
use File::Path qw(make_path);
use File::Spec::Functions qw(abs2rel);
use IO::Handle;
use IO::Select;
use POSIX qw(WNOHANG);

use constant WIDTH => 500;      # of what is shown; a test's name may be a page

my $folder = shift @ARGV;
my @command;

push @command, shift @ARGV while @ARGV && $ARGV[0] ne '--';
shift @ARGV;

my $file = $ARGV[0] // die "usage: watch.pl FOLDER COMMAND... -- FILE...\n";
my $name = basename($file) =~ s/\.(?:t|pl)\z//r;

make_path($folder);
open my $log, '>', "$folder/$name.log" or die "$folder/$name.log: $!\n";
open my $err, '>', "$folder/$name.err" or die "$folder/$name.err: $!\n";
$_->autoflush foreach $log, $err, \*STDOUT;

my %rest;                       # of a line, by the handle that it came from

my $begun  = time;
my $status = run(@command, @ARGV);

open my $times, '>>', "$folder/times" or die "$folder/times: $!\n";
printf {$times} "%d %s\n", time - $begun, abs2rel($file);
close $times or die "$folder/times: $!\n";

exit $status;


sub run {
    my (@words) = @_;
    my $end = $begun + ($ENV{WATCH_SECONDS} || 600);
    my ($pid, $tap, $noise) = start(@words);
    my $select = IO::Select->new($tap, $noise);
    my $status;

    # until the test has ended and said all; the end of what it says may never
    # come, if something that it started has been forgotten

    while ($select->count) {
        my @ready = $select->can_read(0.2);

        foreach my $handle (@ready) {
            $select->remove($handle) if !pass_on($handle, $handle == $noise);
        }

        if (time > $end) {
            put("$file takes too long\n", 1);
            kill 'TERM', $pid;
            $end += 10;
        }

        last if !@ready && defined $status;
        $status //= $? if !defined $status && waitpid($pid, WNOHANG) == $pid;
    }

    if (!defined $status) {
        waitpid $pid, 0;
        $status = $?;
    }

    return $status & 127 ? 128 + ($status & 127) : $status >> 8;
}


sub start {
    my (@words) = @_;

    pipe my $tap, my $out or die "pipe: $!\n";
    pipe my $noise, my $complaints or die "pipe: $!\n";

    my $pid = fork // die "fork: $!\n";

    if ($pid == 0) {
        open STDOUT, '>&', $out or die "$!\n";
        open STDERR, '>&', $complaints or die "$!\n";
        exec { $words[0] } @words or print STDERR "can't run $words[0]: $!\n";
        POSIX::_exit(127);
    }

    return ($pid, $tap, $noise);
}


# Whatever there is to read, in whole lines

sub pass_on {
    my ($handle, $is_noise) = @_;
    my $rest = \($rest{$handle} //= '');
    my $got = sysread $handle, $$rest, 65_536, length $$rest;

    $$rest .= "\n" if !$got && length $$rest;
    put($1, $is_noise) while $$rest =~ s/^(.*\n)//;

    return $got;
}


# "Bail out!" only as a comment; of what is not for prove, no more than can be
# read

sub put {
    my ($line, $is_noise) = @_;

    if (!$is_noise && $line =~ s/^Bail out!/# Bail out!/) {
        print {$err} $line;
        print STDERR $line;
    }

    print {$log} $line;

    if ($is_noise) {
        print {$err} $line;
        substr($line, WIDTH) = "...\n" if length $line > WIDTH;
        print STDERR $line;

    } else {
        print $line;
    }

    return;
}
