package IapGuard::RawServer;

# An upstream that answers each path with bytes that are given, whatever HTTP
# says of them: cut short, malformed, late, reset.  A child process with a free
# port on loopback.
#
#   my $server = IapGuard::RawServer->start(
#       '/cut'  => ["HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"],
#       '/late' => [\0.5, "HTTP/1.1 204 No Content\r\n\r\n"],
#       '/gone' => ['reset']);
#   $server->port;
#   $server->calls;             # requests so far, in all
#   $server->calls('/cut');     # and with this path
#
# A script is a list of: bytes to send; a pause, as a reference to a number of
# seconds; 'reset' (RST in place of an end); 'hang' (nothing more, until the
# client leaves); 'keep' (the connection stays open for another request).  At its
# end the connection is closed.  A path that there is no script for gets 404;
# GET /_calls and GET /_calls/PATH what calls() says.
#
# A name that is no path stands for what does not speak HTTP: its script is
# played to whatever begins with these bytes.

use strict;
use warnings;

use IO::Socket::INET;
use Socket qw(SOL_SOCKET SO_LINGER);

use IapGuard::Child;
use IapGuard::HTTPServer;
use IapGuard::Loop;


sub start {
    my ($class, %scripts) = @_;

    my $listener = IapGuard::HTTPServer->listener(0);
    my $self = bless {
        listener => $listener, port => $listener->sockport,
        scripts => \%scripts, calls => 0, calls_to => {},
    }, $class;

    $self->{child} = IapGuard::Child->start(sub { $self->_serve(@_) });
    close delete $self->{listener};

    return $self;
}


sub port { return $_[0]{port} }


sub calls {
    my ($self, $path) = @_;
    my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1',
                                       PeerPort => $self->{port})
        or die "connect: $!\n";

    syswrite $socket, 'GET /_calls' . ($path // '') . " HTTP/1.0\r\n\r\n";
    my $text = do { local $/; <$socket> };

    return (split /\r\n\r\n/, $text)[1];
}


sub _serve {
    my ($self, $gone) = @_;
    my $loop = $self->{loop} = IapGuard::Loop->new;
    my $end  = 0;

    local $SIG{TERM} = sub { $end = 1 };
    local $SIG{PIPE} = 'IGNORE';

    $loop->on_read($gone, sub { $end = 1 });

    $loop->on_read($self->{listener}, sub {
        my $socket = $self->{listener}->accept or return;

        $socket->blocking(0);
        $self->_read({ socket => $socket, in => '' });
    });

    $loop->run_until(sub { $end });

    return 0;
}


sub _read {
    my ($self, $connection) = @_;
    my $socket = $connection->{socket};

    $self->{loop}->on_read($socket, sub {
        my $got = sysread $socket, $connection->{in}, 65_536,
                          length $connection->{in};

        return if !defined $got && $!{EAGAIN};
        return $self->_close($connection) unless $got;

        my ($bytes) = grep { !m{^/} && index($connection->{in}, $_) == 0 }
                      keys %{ $self->{scripts} };

        if (defined $bytes) {
            $connection->{in} = '';
            return $self->_play($connection, $bytes);
        }

        # a request's body is left to itself, but has to have come

        my ($head, $body) = split /\r\n\r\n/, $connection->{in}, 2;

        return if !defined $body
                  || ($head =~ /^Content-Length: *(\d+)/mi
                      && length $body < $1);

        $connection->{in} = '';
        $self->_play($connection, $head =~ m{^\S+ ([^ ?]*)});
    });

    return;
}


sub _play {
    my ($self, $connection, $path) = @_;
    my $script = $self->{scripts}{$path}
                 || ["HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"];

    if ($path =~ m{^/_calls(/.*)?\z}) {
        my $body = defined $1 ? $self->{calls_to}{$1} || 0 : $self->{calls};

        $script = ["HTTP/1.1 200 OK\r\nContent-Length: " . length($body)
                   . "\r\n\r\n$body"];

    } else {
        $self->{calls}++;
        $self->{calls_to}{$path}++;
    }

    return $self->_step($connection, @$script);
}


sub _step {
    my ($self, $connection, @script) = @_;
    my $socket = $connection->{socket};

    while (@script) {
        my $step = shift @script;

        return if $step eq 'hang' || $step eq 'keep' || !defined fileno $socket;

        if ($step eq 'reset') {
            setsockopt $socket, SOL_SOCKET, SO_LINGER, pack('ii', 1, 0);
            last;
        }

        if (ref $step) {
            $self->{loop}->after($$step,
                                 sub { $self->_step($connection, @script) });
            return;
        }

        return $self->_send($connection, $step, @script);
    }

    return $self->_close($connection);
}


sub _send {
    my ($self, $connection, $bytes, @script) = @_;
    my $socket = $connection->{socket};
    my $sent   = syswrite $socket, $bytes;

    return $self->_close($connection) if !defined $sent && !$!{EAGAIN};

    $bytes = substr $bytes, $sent || 0;

    if (length $bytes) {
        $self->{loop}->on_write($socket, sub {
            $self->{loop}->on_write($socket, undef);
            $self->_send($connection, $bytes, @script);
        });
        return;
    }

    return $self->_step($connection, @script);
}


sub _close {
    my ($self, $connection) = @_;

    $self->{loop}->forget($connection->{socket});
    close $connection->{socket};

    return;
}


1;
