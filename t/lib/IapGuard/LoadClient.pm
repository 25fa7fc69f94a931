package IapGuard::LoadClient;

# An HTTP/1.1 client on an IapGuard::Loop: many requests at a time to one
# server, over a bounded number of kept-alive connections.
#
#   my $client = IapGuard::LoadClient->new(
#       loop => $loop, port => 8080, connections => 200, timeout => 10);
#
#   $client->request({ method => 'POST', path => '/v1/redeem',
#                      headers => { 'X-User-Id' => 'u1' }, body => '{}' },
#                    sub { my ($answer) = @_; ... });
#
# An answer is { status, headers, body, seconds }, or { error, seconds } where
# there was none: refused, reset, cut short, late (`timeout` seconds from the
# request's start on a connection).  Nothing is ever sent twice: a request
# that met a dead connection is an error, too.  What finds no free connection
# waits its turn, first come, first served.
#
#   my $answer = IapGuard::LoadClient->fetch('GET', 'http://127.0.0.1:80/x',
#                                            headers => {}, body => '');
#
# is one request, waited for.  Proxies that the environment names are not
# used.

use strict;
use warnings;

use Errno qw(EAGAIN EWOULDBLOCK EINTR EINPROGRESS);
use Socket qw(AF_INET SOCK_STREAM SOL_SOCKET SO_ERROR IPPROTO_TCP TCP_NODELAY
              inet_aton pack_sockaddr_in);

use IO::Handle ();

use IapGuard::HTTPParser;
use IapGuard::Loop;

use constant SWEEP_SECONDS => 0.25;


sub new {
    my ($class, %options) = @_;

    return bless {
        host => '127.0.0.1', connections => 64, timeout => 10, %options,
        open => {},             # all connections, by their number
        idle => [],             # those without a request, latest used last
        queue => [],            # [request, callback] that wait
        number => 0,
    }, $class;
}


sub fetch {
    my ($class, $method, $url, %options) = @_;
    my $loop = IapGuard::Loop->new;

    $url =~ m{^http://([0-9.]+):([0-9]+)(/.*)$}
        or die "not a URL for fetch: \"$url\"\n";

    my $client = $class->new(loop => $loop, host => $1, port => $2,
                             timeout => $options{timeout} || 10);
    my $answer;

    $client->request({ method => $method, path => $3,
                       headers => { %{ $options{headers} || {} },
                                    Connection => 'close' },
                       body => $options{body} },
                     sub { $answer = shift });

    $loop->run_until(sub { $answer });
    $client->shut;

    return $answer;
}


# How many requests have not been answered yet.

sub busy {
    my ($self) = @_;
    return @{ $self->{queue} } + keys(%{ $self->{open} }) - @{ $self->{idle} };
}


sub request {
    my ($self, $request, $callback) = @_;

    $self->_watch_time;

    push @{ $self->{queue} }, [$request, $callback];
    $self->_serve_queue;

    return;
}


sub shut {
    my ($self) = @_;

    foreach my $connection (values %{ $self->{open} }) {
        $self->{loop}->forget($connection->{socket});
        close $connection->{socket};
    }

    $self->{loop}->cancel($self->{sweep});
    @{$self}{qw(open idle queue sweep)} = ({}, [], [], undef);

    return;
}


sub _serve_queue {
    my ($self) = @_;
    my $queue = $self->{queue};

    while (@$queue) {
        my $connection = pop @{ $self->{idle} };

        if (!$connection) {
            return if keys %{ $self->{open} } >= $self->{connections};
            $connection = $self->_connect;
        }

        _send($connection, @{ shift @$queue });
    }

    return;
}


sub _connect {
    my ($self) = @_;

    socket my $socket, AF_INET, SOCK_STREAM, IPPROTO_TCP
        or die "socket: $!\n";

    $socket->blocking(0);
    setsockopt $socket, IPPROTO_TCP, TCP_NODELAY, 1;

    my $address = pack_sockaddr_in($self->{port}, inet_aton($self->{host}));
    my $done    = connect $socket, $address;

    my $connection = {
        client => $self, socket => $socket, number => ++$self->{number},
        parser => IapGuard::HTTPParser->new('response'), out => '',
        error  => $done || $!{EINPROGRESS} ? undef : "connect: $!",
    };

    $self->{open}{ $connection->{number} } = $connection;
    $self->{loop}->on_read($socket, sub { _readable($connection) });

    return $connection;
}


sub _send {
    my ($connection, $request, $callback) = @_;
    my $client  = $connection->{client};
    my $headers = $request->{headers} || {};
    my $body    = $request->{body};

    my $head = "$request->{method} $request->{path} HTTP/1.1\r\n"
               . "Host: $client->{host}:$client->{port}\r\n"
               . join '', map { "$_: $headers->{$_}\r\n" } keys %$headers;

    $head .= 'Content-Length: ' . length($body) . "\r\n" if defined $body;

    $connection->{parser}->expect_no_body if $request->{method} eq 'HEAD';

    $connection->{callback} = $callback;
    $connection->{begun}    = IapGuard::Loop::now();
    $connection->{out}      = "$head\r\n" . (defined $body ? $body : '');

    # what failed already is told from the loop, never from inside request()

    if ($connection->{error}) {
        return $client->{loop}->after(0, sub {
            _fail($connection, $connection->{error});
        });
    }

    return _flush($connection);
}


sub _flush {
    my ($connection) = @_;
    my ($socket, $loop) = ($connection->{socket}, $connection->{client}{loop});

    while (length $connection->{out}) {
        my $sent = syswrite $socket, $connection->{out};

        if (!defined $sent) {
            next if $!{EINTR};

            return $loop->on_write($socket, sub { _flush($connection) })
                if $!{EAGAIN} || $!{EWOULDBLOCK};

            # the server may have answered before it closed: reading tells

            @{$connection}{qw(out write_error)} = ('', "$!");
            last;
        }

        substr $connection->{out}, 0, $sent, '';
    }

    $loop->on_write($socket, undef);

    return;
}


sub _readable {
    my ($connection) = @_;
    my $parser = $connection->{parser};
    my $got    = sysread $connection->{socket}, my $bytes, 65_536;

    if (!defined $got) {
        return if $!{EAGAIN} || $!{EWOULDBLOCK} || $!{EINTR};
        return _fail($connection, "$!");
    }

    $parser->add($bytes) if $got;

    my $message = eval {
        $parser->next_message || ($got ? undef : $parser->end);
    };

    return _fail($connection, $@ =~ s/\n//r) if $@;

    if ($message) {
        return $connection->{callback}
            ? _answered($connection, $message, !$got)
            : _fail($connection, 'an answer that nobody asked for');
    }

    return $got ? undef : _fail($connection, $connection->{write_error}
                                             || 'closed without an answer');
}


sub _answered {
    my ($connection, $message, $ended) = @_;
    my $client   = $connection->{client};
    my $callback = delete $connection->{callback};

    $message->{seconds} = IapGuard::Loop::now() - $connection->{begun};

    my $close = $ended || $message->{version} eq '1.0'
                || lc($message->{headers}{connection} || '') eq 'close';

    if ($close) {
        _drop($connection);
    } else {
        push @{ $client->{idle} }, $connection;
    }

    $callback->($message);
    $client->_serve_queue;

    return;
}


# Also where an idle connection ends: then there is nobody to tell.

sub _fail {
    my ($connection, $error) = @_;
    my $client   = $connection->{client};
    my $callback = delete $connection->{callback};

    _drop($connection);

    $callback->({ error   => $error,
                  seconds => IapGuard::Loop::now() - $connection->{begun} })
        if $callback;

    $client->_serve_queue;

    return;
}


sub _drop {
    my ($connection) = @_;
    my $client = $connection->{client};

    return unless delete $client->{open}{ $connection->{number} };

    @{ $client->{idle} } = grep { $_ != $connection } @{ $client->{idle} };
    $client->{loop}->forget($connection->{socket});
    close $connection->{socket};

    return;
}


# One timer for all: a timer per request would cost more than the request.

sub _watch_time {
    my ($self) = @_;

    $self->{sweep} ||= $self->{loop}->after(SWEEP_SECONDS, sub {
        $self->{sweep} = undef;

        my $limit = IapGuard::Loop::now() - $self->{timeout};

        foreach my $connection (values %{ $self->{open} }) {
            _fail($connection, "no answer within $self->{timeout} s")
                if $connection->{callback} && $connection->{begun} < $limit;
        }

        $self->_watch_time if $self->busy;
    });

    return;
}


1;
