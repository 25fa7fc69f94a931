#!/usr/bin/perl

# What stands between prove and the tests: watch.pl, and failed.pl, which tells
# at the end what has failed.

use strict;
use warnings;

use Cwd qw(abs_path);
use FindBin;
use File::Temp qw(tempdir);
use Test::More;

my $build   = $FindBin::Bin;
my $lib     = abs_path("$build/../lib");
my $scratch = tempdir(CLEANUP => 1);


subtest 'what passes' => sub {
    my ($rc, $words) = run(good => 'print "1..1\nok 1 - fine\n"');

    is $rc, 0, 'passes';
    like $words, qr/Files=1, Tests=1,.*PASS/s, 'as prove says';
    is told('good.log'), "1..1\nok 1 - fine\n", 'what it said is kept';
    like told('times'), qr/^\d+ \S*good\.t$/, 'and how long it took';
    is failed(), '', 'nothing has failed';
};


subtest 'what fails' => sub {
    my ($rc) = run(bad => <<'END');
        use Test::More;
        subtest inner => sub { is 1, 2, 'one is two'; ok 1; done_testing };
        ok 1, 'this is well';
        ok 0, 'x' x 600;
        cmp_ok 5, '<', 4, "number $_" foreach 1 .. 20;
        done_testing;
END
    my $failed = failed();

    isnt $rc, 0, 'fails';
    like $failed, qr{^\S*bad\.t: .*Failed: 22, see \S*bad\.log$}m, 'which file';
    like $failed, qr/Failed test 'one is two'\n.*\n.*got: '1'\n.*expected: '2'/,
        'which test, and what it had got';
    like $failed, qr/^    and 19 more$/m, 'there are more';
    unlike $failed, qr/well|number 20/, 'not what passed, and not all';
    unlike $failed, qr/^.{201}/m, 'no long lines';
};


subtest 'what ends early' => sub {
    my ($rc) = run(dies => 'use Test::More; ok 1, "one"; die "no server\n"');

    isnt $rc, 0, 'fails';
    like failed(), qr/^    no server$/m, 'its last words';

    ($rc) = run(bails => 'use Test::More; BAIL_OUT "no config"',
                next => 'print "1..1\nok 1\n"');

    isnt $rc, 0, 'who bails out has failed';
    is told('next.log'), "1..1\nok 1\n", 'and others are still run';
    like failed(), qr/# Bail out!  no config/, 'it is told';

    ($rc) = run(odd => 'print "1..1\n# why\nnot ok 1 - odd\n"; print "# got\n"');

    isnt $rc, 0, 'what speaks for itself has failed';
    like failed(), qr/^    # why\n    not ok 1 - odd\n    # got$/m,
        'and so it is told';
};


subtest 'what never ends' => sub {
    my ($rc, $begun);

    $ENV{WATCH_SECONDS} = 1;
    ($rc) = run(hangs => 'print "1..2\nok 1\n"; $| = 1; sleep 60');

    isnt $rc, 0, 'fails';
    like failed(), qr/hangs\.t takes too long/, 'and it is told';

    # something that holds its output, and nobody waits for

    delete $ENV{WATCH_SECONDS};
    $begun = time;

    ($rc) = run(leaves => <<'END');
        $| = 1;
        print "1..1\n";
        my $pid = fork // die;
        if (!$pid) { exec 'sleep', '30' }
        print "ok 1\n";
        open my $file, '>', "$0.pid"; print {$file} $pid;
END
    is $rc, 0, 'a process that was forgotten does no harm';
    cmp_ok time - $begun, '<', 20, 'and is not waited for';
    kill 'TERM', told_in("$scratch/leaves.t.pid");
};


subtest 'ports' => sub {
    my $script = 'use IapGuard::Port qw(free_port);'
               . 'print join(" ", map { free_port() } 1 .. 50), "\n"; <STDIN>;';
    my (@ports, @pipes);

    # all at the same time, for who ends gives them back

    foreach (1 .. 4) {
        open my $pipe, '-|', 'sh', '-c', 'sleep 5 | exec "$@"', 'sh', $^X,
            "-I$lib", '-e', $script or die "can't run perl: $!\n";
        push @pipes, $pipe;
    }

    push @ports, split ' ', readline $_ foreach @pipes;
    close $_ foreach @pipes;

    my %seen = map { $_ => 1 } @ports;
    my ($low, $high) = split ' ',
        told_in('/proc/sys/net/ipv4/ip_local_port_range');

    is scalar(@ports), 200, 'four ask for 50 each';
    is scalar(keys %seen), 200, 'no port is given to two';

    SKIP: {
        skip 'all ports are those of connections', 1
            if $low < 11_000 && $high > 64_535;
        is scalar(grep { $_ >= $low && $_ <= $high } @ports), 0,
            'nor one that a connection may have';
    }
};


done_testing;


# Runs files of these names, with these contents; prove's exit code and words

sub run {
    my (@scripts) = @_;
    my @files;

    system 'rm', '-rf', "$scratch/out";

    while (my ($name, $text) = splice @scripts, 0, 2) {
        push @files, "$scratch/$name.t";
        open my $file, '>', $files[-1] or die "$files[-1]: $!\n";
        print {$file} $text;
        close $file or die "$files[-1]: $!\n";
    }

    # what tells prove of its own run is not for this one

    local %ENV = map { $_ => $ENV{$_} } grep { !/^(?:HARNESS|PERL5OPT)/ }
                 keys %ENV;

    my $words = qx{prove --exec '$^X $build/watch.pl $scratch/out $^X --' \\
                         @files 2>&1};
    my $rc = $? >> 8;

    open my $log, '>', "$scratch/log" or die "$scratch/log: $!\n";
    print {$log} $words;
    close $log or die "$scratch/log: $!\n";

    return ($rc, $words);
}


sub failed { return scalar qx{$^X $build/failed.pl $scratch/log $scratch/out} }


sub told { return told_in("$scratch/out/$_[0]") }


sub told_in {
    my ($path) = @_;

    open my $file, '<', $path or return '';
    local $/;
    return <$file> // '';
}
