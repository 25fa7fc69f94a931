#!/usr/bin/perl
#
# Runs one Test::Nginx file with a port and a server folder that no other
# test has, so that prove may run several at once, and two people their own:
#
#     prove --exec 'perl t/build/slot.pl FOLDER' t/a.t t/b.t
#
# A slot is a locked file in FOLDER/slots.  The lock passes on to the test and
# to the nginx that it starts, so a slot with a forgotten nginx stays taken.
#
# Slot N has port 1986 - 2 N and the one behind it: ports that Test::Nginx's
# own $TEST_NGINX_RAND_PORT_1 (1988 and up) never has.

use strict;
use warnings;

use Fcntl qw(:flock F_SETFD);
use File::Path qw(make_path remove_tree);
use IO::Socket::INET;

use constant SLOTS => 40;

my ($folder, $file) = @ARGV;
my ($lock, $port, $root) = take_slot($folder);

# the exec must not close it

fcntl $lock, F_SETFD, 0 or die "fcntl: $!\n";

$ENV{TEST_NGINX_PORT}        = $port;
$ENV{TEST_NGINX_SERVER_PORT} = $port;
$ENV{TEST_NGINX_STREAM_PORT} = $port + 1;
$ENV{TEST_NGINX_SERVROOT}    = $root;

exec $^X, '-It/lib', '-It/build', split(' ', $ENV{SLOT_PERL} // ''), $file
    or die "can't run perl: $!\n";


sub take_slot {
    my ($folder) = @_;

    make_path("$folder/slots");

    foreach my $slot (0 .. SLOTS - 1) {
        open my $lock, '>', "$folder/slots/$slot"
            or die "$folder/slots/$slot: $!\n";

        next unless flock $lock, LOCK_EX | LOCK_NB;

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
