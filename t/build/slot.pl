#!/usr/bin/perl
#
# Runs one Test::Nginx file with a port and a server folder that no other
# test has, so that prove may run several at once, and two people their own:
#
#     prove --exec 'perl t/build/slot.pl FOLDER' t/a.t t/b.t
#
# A slot is held by a socket in Linux's abstract namespace: whoever shares
# the ports, be it from another folder or another root, shares these names,
# too.  It passes on to the test and to the nginx that it starts, so a slot
# with a forgotten nginx stays taken.
#
# Slot N has port 1986 - 2 N and the one behind it: ports that Test::Nginx's
# own $TEST_NGINX_RAND_PORT_1 (1988 and up) never has.
#
# A file that takes longer than SLOT_SECONDS is ended, and fails.  So does one
# that bails out, but alone: Test::Nginx does that for as little as a
# configuration that nginx refuses, and prove would run nothing after it.

use strict;
use warnings;

use Fcntl qw(F_SETFD);
use File::Path qw(make_path remove_tree);
use IO::Select;
use IO::Socket::INET;
use IO::Socket::UNIX;
use POSIX qw(WNOHANG);

use constant SLOTS => 40;

my ($folder, $file) = @ARGV;
my ($lock, $port, $root) = take_slot($folder);

$ENV{TEST_NGINX_PORT}        = $port;
$ENV{TEST_NGINX_SERVER_PORT} = $port;
$ENV{TEST_NGINX_STREAM_PORT} = $port + 1;
$ENV{TEST_NGINX_SERVROOT}    = $root;

exit run($^X, '-It/lib', '-It/build', split(' ', $ENV{SLOT_PERL} // ''),
         $file);


sub run {
    my (@command) = @_;
    my $end = time + ($ENV{SLOT_SECONDS} || 600);

    # an exec in the child must not close it

    fcntl $lock, F_SETFD, 0 or die "fcntl: $!\n";

    my $pid = open(my $tap, '-|', @command) or die "can't run perl: $!\n";
    my $select = IO::Select->new($tap);
    my $status;

    $| = 1;

    # until the test has ended and said all; the end of the file may never
    # come, if something that the test started has been forgotten

    while (1) {
        my ($ready) = $select->can_read(0.2);

        if ($ready) {
            last if !pass_on($tap);

        } elsif (defined $status) {
            last;

        } elsif (waitpid($pid, WNOHANG) == $pid) {
            $status = $?;

        } elsif (time > $end) {
            print STDERR "$file takes too long\n";
            kill 'TERM', $pid;
            $end += 10;
        }
    }

    if (!defined $status) {
        waitpid $pid, 0;
        $status = $?;
    }

    return $status & 127 ? 128 + ($status & 127) : $status >> 8;
}


# Whatever there is to read; "Bail out!" only as a comment.

my $rest;

sub pass_on {
    my ($tap) = @_;

    my $got = sysread $tap, $rest, 65536, length($rest //= '');

    while ($rest =~ s/^(.*\n)//) {
        my $line = $1;
        $line =~ s/^Bail out!/# Bail out!/;
        print $line;
        print STDERR $line if $line =~ /^# Bail out!/;
    }

    return $got;
}


sub take_slot {
    my ($folder) = @_;

    make_path($folder);

    foreach my $slot (0 .. SLOTS - 1) {
        my $lock = IO::Socket::UNIX->new(Local => "\0iap_guard-slot-$slot",
                                         Listen => 1) or next;

        my $port = 1986 - 2 * $slot;
        next unless is_free($port) && is_free($port + 1);

        # Test::Nginx ends the process that an old pid file names, and that
        # number may be somebody else's by now

        my $root = "$folder/servroot-$slot";
        remove_tree($root);

        return ($lock, $port, $root);
    }

    die "no free slot: all of ports ", 1986 - 2 * (SLOTS - 1),
        " to 1987 are taken\n";
}


sub is_free {
    my ($port) = @_;

    return defined IO::Socket::INET->new(
        LocalAddr => '0.0.0.0', LocalPort => $port, Listen => 1,
        ReuseAddr => 1);
}
