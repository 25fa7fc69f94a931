package IapGuard::AtOnce;

# Many requests at the same moment, each on a connection of its own and by a
# user of its own.
#
#   my @statuses = at_once($nginx, '/verify', 500);     # waits for them
#   my $sockets  = ask($nginx, '/verify', 500);         # does not
#   my @statuses = found_at_once($nginx, '/verify', 500);
#
# The last one has the workers find all of them there, however long it took to
# send them: they are stopped meanwhile.
#
# A status is 0 where the connection was closed without an answer.

use strict;
use warnings;

use Exporter qw(import);
use IO::Socket::INET;

our @EXPORT = qw(ask at_once found_at_once);

use constant SECONDS => 10;     # that an answer may take


sub ask {
    my ($nginx, $path, $n) = @_;
    my @sockets;

    foreach my $i (1 .. $n) {
        my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1',
            PeerPort => $nginx->port, Proto => 'tcp') or die "connect: $@\n";

        my $method = $path eq '/verify' ? 'POST' : 'GET';
        my $text = join "\r\n", "$method $path HTTP/1.1", 'Host: localhost',
                        'Connection: close', "X-User-Id: u$i",
                        'Content-Length: 2', '', '{}';

        syswrite($socket, $text) == length $text or die "write: $!\n";
        push @sockets, $socket;
    }

    return \@sockets;
}


sub at_once {
    my ($nginx, $path, $n) = @_;

    return _statuses(ask($nginx, $path, $n));
}


sub found_at_once {
    my ($nginx, $path, $n) = @_;
    my @workers = $nginx->workers;

    kill 'STOP', @workers;
    my $sockets = eval { ask($nginx, $path, $n) };
    my $error = $@;
    kill 'CONT', @workers;

    die $error if !$sockets;

    return _statuses($sockets);
}


sub _statuses {
    my ($sockets) = @_;

    return map {
        local $SIG{ALRM} = sub { die 'no answer within ' . SECONDS . " s\n" };
        alarm SECONDS;
        my $text = do { local $/; readline $_ };
        alarm 0;
        defined $text && $text =~ m{^HTTP/1\.1 (\d+) } ? $1 : 0;
    } @$sockets;
}


1;
