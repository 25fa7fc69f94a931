#!/usr/bin/perl
#
# What has failed in a suite, in few lines:
#
#     failed.pl LOG FOLDER
#
# LOG is what prove has said of it; FOLDER has what the files have said, as
# watch.pl keeps it.

use strict;
use warnings;

use File::Basename qw(basename);

use constant {
    FILES    => 6,
    FAILURES => 4,              # of a file
    LINES    => 6,              # of a failure
    LAST     => 12,             # lines of a file that told of no failure
    WIDTH    => 200,
};

my ($log, $folder) = @ARGV;     # as seen from build/test
my @failed = failed_files(lines($log));

foreach my $failed (@failed[0 .. ($#failed < FILES ? $#failed : FILES - 1)]) {
    my ($file, $how) = @$failed;
    my $name = "$folder/" . basename($file) =~ s/\.(?:t|pl)\z//r;
    my @failures = failures(lines("$name.err"));

    @failures = refusals(lines("$name.log")) if !@failures;
    @failures = ending(lines("$name.log")) if !@failures;

    show("$file: $how, see build/test/$name.log");
    show(map { "    $_" } @$_) foreach @failures[0 .. least($#failures,
                                                       FAILURES - 1)];
    show('    and ' . (@failures - FAILURES) . ' more') if @failures > FAILURES;
}

show('and in ' . (@failed - FILES) . ' more files') if @failed > FILES;


# prove's own summary: "t/a.t  (Wstat: 256 (exited 1) Tests: 8 Failed: 1)"

sub failed_files {
    return map { /^(\S+)\s+\(Wstat: (.*)\)$/ ? [$1, $2] : () } @_;
}


# Test::More's, in or out of a subtest: "#   Failed test 'name'", and what
# follows it.  That a subtest has failed, its own tests have said.

sub failures {
    my @failures;
    my $more = 0;

    foreach my $line (@_) {
        if ($line =~ /^\s*#\s+Failed test\b/) {
            push @failures, [];
            $more = LINES;
        } elsif ($line !~ /^\s*#/ || $line =~ /^\s*# Looks like/) {
            $more = 0;
        }

        push @{ $failures[-1] }, $line =~ s/^\s+//r if $more-- > 0;
    }

    return @failures;
}


# of programs that speak TAP without Test::More: "not ok", and the comments
# before and after it

sub refusals {
    my (@lines) = @_;
    my @failures;

    foreach my $i (grep { $lines[$_] =~ /^\s*not ok\b/ } 0 .. $#lines) {
        my ($from, $to) = ($i, $i);

        $from-- while $from > 0 && $i - $from < LINES / 2
                      && $lines[$from - 1] =~ /^\s*#/;
        $to++ while $to < $#lines && $to - $i < LINES / 2
                    && $lines[$to + 1] =~ /^\s*#/;
        push @failures, [@lines[$from .. $to]];
    }

    return @failures;
}


# the last ones, each once where it is repeated

sub ending {
    my @lines;

    foreach my $line (@_) {
        push @lines, $line if !@lines || $lines[-1] ne $line;
    }

    return [@lines > LAST ? @lines[-LAST .. -1] : @lines];
}


sub show {
    print map { (length > WIDTH ? substr($_, 0, WIDTH - 3) . '...' : $_) . "\n" }
          @_;
    return;
}


sub least { return $_[0] < $_[1] ? $_[0] : $_[1] }


sub lines {
    my ($path) = @_;

    open my $file, '<', $path or return;
    my @lines = <$file>;
    chomp @lines;

    return @lines;
}
