package IapGuard::Together;

# The scenarios of one file of tests, several at a time: most of what they do
# is wait.  Each is a process of its own, the same file with the scenario's
# name as its argument, so that one of them can be run alone, too:
#
#   IapGuard::Together->run(4, taken_over => \&taken_over,
#                              away       => \&away, ...);
#
# runs all of them, and tells their tests as its own; with names in @ARGV it
# runs these, one after the other, in this process.  It ends the plan.  Options
# that the processes get besides are @IapGuard::Together::options.
#
# Those that take longest come first.

use strict;
use warnings;

use File::Temp ();
use Test::More;
use Time::HiRes qw(sleep);

use IapGuard::Child;
use IapGuard::Loop;


our @options;


sub run {
    my ($class, $at_once, @scenarios) = @_;
    my %codes = @scenarios;
    my @names = grep { !ref } @scenarios;

    if (@ARGV) {
        ($codes{$_} || die "no scenario \"$_\" in: @names\n")->() foreach @ARGV;

    } else {
        _all($at_once, @names);
    }

    done_testing;

    return;
}


sub _all {
    my ($at_once, @names) = @_;
    my $folder = File::Temp->newdir('iap_guard-together-XXXXXX', TMPDIR => 1);
    my %running;

    while (@names || %running) {

        while (@names && keys %running < $at_once) {
            my $name = shift @names;

            $running{$name} = {
                begun => IapGuard::Loop::now(),
                child => IapGuard::Child->program(
                    { output => "$folder/$name" }, $^X,
                    (map { "-I$_" } grep { !ref } @INC), $0, @options,
                    $name),
            };
        }

        foreach my $name (sort keys %running) {
            next if $running{$name}{child}->running;

            my $one = delete $running{$name};

            _tell($name, "$folder/$name", $one->{child}->stop,
                  IapGuard::Loop::now() - $one->{begun});
        }

        sleep 0.05;
    }

    return;
}


sub _tell {
    my ($name, $path, $status, $seconds) = @_;
    my ($tests, $failed, $plan) = (0, 0, -1);

    open my $file, '<', $path or die "$path: $!\n";

    while (my $line = <$file>) {
        chomp $line;

        if ($line =~ /^ok \d+ # skip (.*)/) {
            $tests++;
            Test::More->builder->skip($1);

        } elsif ($line =~ /^(not )?ok \d+(?: - (.*))?$/) {
            $tests++;
            $failed = $1 ? 1 : 0;

            # where it failed is what it has said itself

            Test::More->builder->no_diag(1);
            ok !$failed, $2;
            Test::More->builder->no_diag(0);

        } elsif ($line =~ /^1\.\.(\d+)$/) {
            $plan = $1;

        } elsif ($failed || $line !~ /^#/) {
            diag $line =~ s/^# ?//r;

        } else {
            note $line =~ s/^# ?//r;
        }
    }

    note sprintf '%s: %.0f s', $name, $seconds;

    # one that failed says by its status how often

    fail "$name came to its end" if $tests == 0 || $tests != $plan
                                    || $status & 127 || $status >> 8 > $tests;
    return;
}


1;
