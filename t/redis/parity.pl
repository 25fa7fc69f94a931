#!/usr/bin/perl
#
# Runs the tests of lua/ against a redis-server of their own:
#
#     t/redis/parity.pl [--redis=PROGRAM] [FOLDER]
#
# FOLDER is where parity.c, script.c, sets.c, halves.c and refund.c were built;
# without it they are built first, into a folder that goes again.  The server
# listens on the loopback alone, on a free port, and keeps nothing.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use File::Temp qw(tempdir);
use Getopt::Long;
use IO::Socket::INET;
use Time::HiRes qw(sleep time);

use IapGuard::Child;
use IapGuard::Port qw(free_port);

use constant START_TIMEOUT => 20;

my $root = "$FindBin::Bin/../..";
my $program = $ENV{REDIS_SERVER} || 'redis-server';

GetOptions('redis=s' => \$program) && @ARGV <= 1
    or die "usage: $0 [--redis=PROGRAM] [FOLDER]\n";

my $scratch = tempdir('iap_guard-redis-XXXXXX', TMPDIR => 1, CLEANUP => 1);
my $built = shift @ARGV // build($scratch);

my ($server, $port) = start($program, $scratch);

my $count = 0;
my $failed = 0;

run("$built/parity", $port, "$root/lua/decide.lua");
run("$built/$_", $port, "$root/lua/decide.lua", "$root/lua/refund.lua")
    foreach qw(script sets halves refund);

print "1..$count\n";

$server->stop;
exit($failed ? 1 : 0);


sub build {
    my ($folder) = @_;
    my @core = glob "$root/src/core/*.c";

    foreach my $name (qw(parity script sets halves refund)) {
        system('cc', qw(-std=c11 -D_GNU_SOURCE -O1 -g -Wall -Wextra -Werror),
               "-I$root/src/core", "-I$root/t/unit",
               '-o', "$folder/$name", "$root/t/redis/$name.c", @core,
               qw(-lhiredis -lcrypto)) == 0
            or bail("$name.c does not compile");
    }

    return $folder;
}


# A free port may be taken before the server has it: then another one.

sub start {
    my ($program, $folder) = @_;

    foreach (1 .. 5) {
        my $port = free_port();

        my $child = eval { IapGuard::Child->program(
            { output => "$folder/redis.log", quit => 'TERM' },
            $program, '--port', $port, '--bind', '127.0.0.1', '--save', '',
            '--appendonly', 'no', '--dir', $folder) };

        return ($child, $port) if $child && answers($child, $port);

        $child->stop if $child;
    }

    bail("$program does not start");
}


sub answers {
    my ($child, $port) = @_;
    my $end = time + START_TIMEOUT;

    while ($child->running && time < $end) {
        my $socket = IO::Socket::INET->new(
            PeerAddr => '127.0.0.1', PeerPort => $port, Timeout => 1);

        if ($socket) {
            print $socket "PING\r\n";
            my $line = <$socket> // '';
            return $child->running if $line =~ /^\+PONG/;
        }

        sleep 0.05;
    }

    return;
}


# passes on what a program says, its tests numbered on

sub run {
    my (@command) = @_;
    my ($seen, $planned) = (0, -1);

    open my $out, '-|', @command or bail("can't run $command[0]: $!");

    while (my $line = <$out>) {
        if ($line =~ s/^((?:not )?ok) \d+/"$1 " . ($count + ++$seen)/e) {
            $failed++ if $1 ne 'ok';

        } elsif ($line =~ /^1\.\.(\d+)/) {
            $planned = $1;
            next;
        }

        print $line;
    }

    close $out;
    $count += $seen;

    return if $planned == $seen;

    # it was ended by a signal, or by itself before its time

    $count++;
    $failed++;
    print "not ok $count - $command[0] ran to its end\n";

    return;
}


sub bail {
    my ($why) = @_;

    print "Bail out! $why\n";
    exit 1;
}
