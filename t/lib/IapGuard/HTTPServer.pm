package IapGuard::HTTPServer;

# An HTTP/1.1 server on an IapGuard::Loop: keep-alive, pipelining (answered
# in order, one at a time), bodies by length or chunked.  What it does with a
# request is up to on_request:
#
#   IapGuard::HTTPServer->new(
#       loop => $loop, listener => $socket,
#       on_request => sub {
#           my ($request, $reply) = @_;
#           $reply->send(200, { 'Content-Type' => 'text/plain' }, "ok\n");
#       });
#
# A reply may be sent later, or never.  It can also misbehave on purpose:
# cut() announces a longer body than it sends, reset() ends the connection
# with RST.  When the client leaves before its answer, on_leave is called
# with the reply, and anything sent to it is dropped.

use strict;
use warnings;

use Errno qw(EAGAIN EWOULDBLOCK EINTR ECONNABORTED EMFILE ENFILE);
use IO::Socket::INET;
use Socket qw(SOL_SOCKET SO_LINGER SOMAXCONN IPPROTO_TCP TCP_NODELAY);

use IapGuard::HTTPParser;
use IapGuard::Port qw(free_port);

my %REASON = (
    200 => 'OK', 202 => 'Accepted', 204 => 'No Content', 302 => 'Found',
    400 => 'Bad Request', 401 => 'Unauthorized', 403 => 'Forbidden',
    404 => 'Not Found', 405 => 'Method Not Allowed',
    429 => 'Too Many Requests', 500 => 'Internal Server Error',
    502 => 'Bad Gateway', 503 => 'Service Unavailable',
    504 => 'Gateway Timeout',
);


# A listening socket on loopback; port 0 takes a free one.

sub listener {
    my ($class, $port) = @_;

    my $socket = IO::Socket::INET->new(
        LocalAddr => '127.0.0.1', LocalPort => $port || free_port(),
        Proto => 'tcp', Listen => SOMAXCONN, ReuseAddr => 1, Blocking => 0)
        or die "can't listen on 127.0.0.1:$port: $@\n";

    return $socket;
}


sub new {
    my ($class, %options) = @_;
    my $self = bless { on_leave => sub { }, %options }, $class;

    $self->{loop}->on_read($self->{listener}, sub { $self->_accept });

    return $self;
}


sub _accept {
    my ($self) = @_;

    # a few at a time, so that open connections get their turn

    for (1 .. 32) {
        my $socket = $self->{listener}->accept;

        if (!$socket) {
            return if $!{EAGAIN} || $!{EWOULDBLOCK} || $!{EINTR}
                      || $!{ECONNABORTED} || $!{EMFILE} || $!{ENFILE};
            die "accept: $!\n";
        }

        $socket->blocking(0);
        setsockopt $socket, IPPROTO_TCP, TCP_NODELAY, 1;

        my $connection = {
            server => $self, socket => $socket, out => '', reply => undef,
            parser => IapGuard::HTTPParser->new('request'),
        };

        $self->{loop}->on_read($socket, sub { _readable($connection) });
    }

    return;
}


sub _readable {
    my ($connection) = @_;
    my $got = sysread $connection->{socket}, my $bytes, 65_536;

    if (!defined $got) {
        return if $!{EAGAIN} || $!{EWOULDBLOCK} || $!{EINTR};
        return _close($connection);
    }

    return _close($connection) if $got == 0;

    $connection->{parser}->add($bytes);

    # while an answer is due the bytes of the next request only wait

    return if $connection->{reply} || $connection->{closing};
    return _next_request($connection);
}


sub _next_request {
    my ($connection) = @_;

    # an answer sent at once comes back here from inside the loop

    return if $connection->{dispatching};
    local $connection->{dispatching} = 1;

    while (!$connection->{reply} && !$connection->{closing}) {
        my $request = eval { $connection->{parser}->next_message };

        if ($@) {
            $connection->{closing} = 1;
            return _write($connection, "HTTP/1.1 400 Bad Request\r\n"
                          . "Content-Length: 0\r\nConnection: close\r\n\r\n");
        }

        return _maybe_continue($connection) unless $request;

        my $tokens = lc($request->{headers}{connection} || '');
        my $close  = $tokens =~ /\bclose\b/
                     || ($request->{version} eq '1.0'
                         && $tokens !~ /\bkeep-alive\b/);

        $connection->{continued} = 0;

        my $reply = $connection->{reply} = bless {
            connection => $connection, close => $close,
            head => $request->{method} eq 'HEAD',
        }, 'IapGuard::HTTPServer::Reply';

        $connection->{server}{on_request}->($request, $reply);
    }

    return;
}


sub _maybe_continue {
    my ($connection) = @_;
    my $begun = $connection->{parser}->begun;

    return unless $begun && !$connection->{continued}
                  && lc($begun->{headers}{expect} || '') eq '100-continue';

    $connection->{continued} = 1;

    return _write($connection, "HTTP/1.1 100 Continue\r\n\r\n");
}


sub _write {
    my ($connection, $bytes) = @_;

    $connection->{out} .= $bytes;

    return _flush($connection);
}


sub _flush {
    my ($connection) = @_;
    my ($socket, $loop) = ($connection->{socket}, $connection->{server}{loop});

    return unless $socket;

    while (length $connection->{out}) {
        my $sent = syswrite $socket, $connection->{out};

        if (!defined $sent) {
            next if $!{EINTR};
            return _close($connection) unless $!{EAGAIN} || $!{EWOULDBLOCK};
            return $loop->on_write($socket, sub { _flush($connection) });
        }

        substr $connection->{out}, 0, $sent, '';
    }

    $loop->on_write($socket, undef);
    _close($connection) if $connection->{closing};

    return;
}


sub _close {
    my ($connection) = @_;
    my $socket = delete $connection->{socket} or return;
    my $reply  = delete $connection->{reply};

    $connection->{server}{loop}->forget($socket);
    close $socket;

    if ($reply) {
        $reply->{gone} = 1;
        $connection->{server}{on_leave}->($reply);
    }

    return;
}


package IapGuard::HTTPServer::Reply;

use Socket qw(SOL_SOCKET SO_LINGER);


# chunk => N sends the body chunked, N bytes in each.

sub send {
    my ($self, $status, $headers, $body, %options) = @_;
    my $chunk = $options{chunk};

    my $bytes = $self->_head($status, $headers,
        $chunk ? 'Transfer-Encoding: chunked'
               : 'Content-Length: ' . length $body);

    if (!$self->{head}) {
        $bytes .= $chunk ? _chunked($body, $chunk) : $body;
    }

    return $self->_finish($bytes);
}


# Half of the body, then the end of the connection.

sub cut {
    my ($self, $status, $headers, $body) = @_;

    $self->{close} = 1;

    my $bytes = $self->_head($status, $headers,
                             'Content-Length: ' . length $body)
                . substr $body, 0, length($body) / 2;

    return $self->_finish($bytes);
}


sub reset {
    my ($self) = @_;
    my $connection = $self->{connection};

    return if $self->{gone};

    # lingering for zero seconds is what makes close() send RST

    setsockopt $connection->{socket}, SOL_SOCKET, SO_LINGER, pack 'ii', 1, 0;
    delete $connection->{reply};

    return IapGuard::HTTPServer::_close($connection);
}


sub _head {
    my ($self, $status, $headers, $framing) = @_;
    my $reason = $REASON{$status} || 'Status';

    return join "\r\n", "HTTP/1.1 $status $reason",
        (map { "$_: $headers->{$_}" } sort keys %$headers),
        $framing, ($self->{close} ? 'Connection: close' : ()), '', '';
}


sub _chunked {
    my ($body, $size) = @_;
    my $bytes = '';

    while (length $body) {
        my $piece = substr $body, 0, $size, '';
        $bytes .= sprintf "%x\r\n%s\r\n", length $piece, $piece;
    }

    return $bytes . "0\r\n\r\n";
}


sub _finish {
    my ($self, $bytes) = @_;
    my $connection = $self->{connection};

    return if $self->{gone};

    $connection->{reply}   = undef;
    $connection->{closing} = 1 if $self->{close};

    IapGuard::HTTPServer::_write($connection, $bytes);

    # when the answer came later, a pipelined request may be waiting

    IapGuard::HTTPServer::_next_request($connection)
        if $connection->{socket};

    return;
}


1;
