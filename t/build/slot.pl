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
# Slot N has port 1986 - 2 N and the one behind it, which IapGuard::Port never
# gives to anybody.

use strict;
use warnings;

use Fcntl qw(F_SETFD);
use File::Path qw(make_path remove_tree);
use FindBin;
use IO::Socket::UNIX;

use lib "$FindBin::Bin/../lib";
use IapGuard::Port qw(is_free);

use constant SLOTS => 40;

my ($folder, $file) = @ARGV;
my ($lock, $port, $root) = take_slot($folder);

$ENV{TEST_NGINX_PORT}        = $port;
$ENV{TEST_NGINX_SERVER_PORT} = $port;
$ENV{TEST_NGINX_STREAM_PORT} = $port + 1;
$ENV{TEST_NGINX_SERVROOT}    = $root;

# it stays open in what is run now

fcntl $lock, F_SETFD, 0 or die "fcntl: $!\n";

exec $^X, '-It/lib', '-It/build', split(' ', $ENV{SLOT_PERL} // ''), $file
    or die "can't run perl: $!\n";


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
