package IapGuard::Port;

# Ports for the servers of tests.
#
#   my $port = free_port();
#
# It is nobody else's until this process ends, with all that it has forked:
# no other process that asks here gets it, and, as it is not in the range
# that the system takes the ports of outgoing connections from, no connection
# has it just when a server is to start, or to start again.
#
# A port is held as a name in Linux's abstract namespace: whoever shares the
# ports, be it from another folder or another root, shares these names, too.

use strict;
use warnings;

use Exporter qw(import);
use IO::Socket::INET;
use IO::Socket::UNIX;

our @EXPORT_OK = qw(free_port is_free);

use constant {
    RANGE    => '/proc/sys/net/ipv4/ip_local_port_range',
    LOWEST   => 10_000,         # what is below is known for something
    HIGHEST  => 65_535,
    ENOUGH   => 1_000,          # ports, to choose from
    TRIES    => 1_000,
};

my ($first, $last) = _range();
my %held;                       # port => the socket whose name it is


sub free_port {
    foreach (1 .. TRIES) {
        my $port = $first + int rand($last - $first + 1);
        my $lock = IO::Socket::UNIX->new(Local => "\0iap_guard-port-$port",
                                         Listen => 1) or next;
        next unless is_free($port);

        $held{$port} = $lock;
        return $port;
    }

    die "no free port in $first to $last\n";
}


# whether a server could listen on it, with all addresses

sub is_free {
    my ($port) = @_;

    return defined IO::Socket::INET->new(
        LocalAddr => '0.0.0.0', LocalPort => $port, Listen => 1,
        Proto => 'tcp', ReuseAddr => 1);
}


# Below or above the system's own; if that has them all, among those.

sub _range {
    my ($low, $high) = (32_768, 60_999);

    if (open my $file, '<', RANGE) {
        ($low, $high) = split ' ', <$file>;
    }

    return (LOWEST, $low - 1) if $low - LOWEST >= ENOUGH;
    return ($high + 1, HIGHEST) if HIGHEST - $high >= ENOUGH;
    return (LOWEST, HIGHEST);
}


1;
