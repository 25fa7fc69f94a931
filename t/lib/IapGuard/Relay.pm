package IapGuard::Relay;

# A network between two ends on loopback that can fail: a child process that
# passes on what comes, whatever it is.
#
#   my $relay = IapGuard::Relay->new(6379);     # where the server is
#   $relay->port;                               # where the client goes
#   $relay->state('refuse');    # connections are closed, new ones at once
#   $relay->state('hole');      # nothing arrives any more, and nobody is told
#   $relay->state('open');      # as before: what was on its way arrives, late
#   $relay->to(6380);           # new connections go to another server
#
# A connection that a side closed in a hole ends when that is over, and what it
# had sent arrives before: as it is with a network that was cut.

use strict;
use warnings;

use Errno qw(EAGAIN EINTR);
use IO::Socket::INET;
use Socket qw(IPPROTO_TCP SOL_SOCKET SO_LINGER TCP_NODELAY);

use IapGuard::Child;
use IapGuard::HTTPServer;
use IapGuard::Loop;

use constant ROOM => 1 << 20;       # bytes that a side may be behind


sub new {
    my ($class, $to) = @_;

    my $listener = IapGuard::HTTPServer->listener(0);
    my $control  = IapGuard::HTTPServer->listener(0);

    my $self = bless { to => $to, port => $listener->sockport,
                       control => $control->sockport }, $class;

    $self->{child} = IapGuard::Child->start(sub {
        return _serve({ to => $to, state => 'open', links => {},
                        listener => $listener, control => $control,
                        loop => IapGuard::Loop->new }, @_);
    });
    close $_ foreach $listener, $control;

    return $self;
}


sub port { return $_[0]{port} }
sub stop { return $_[0]{child}->stop }


sub to {
    my ($self, $port) = @_;
    return $self->state("to $port");
}


sub state {
    my ($self, $state) = @_;

    my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1',
                                       PeerPort => $self->{control})
        or die "can't reach the relay: $!\n";

    print {$socket} "$state\n";
    my $answer = <$socket>;
    die "the relay does not answer\n" if !defined $answer;

    return;
}


# --- the child ------------------------------------------------------------

sub _serve {
    my ($self, $gone) = @_;
    my $loop = $self->{loop};
    my $done = 0;

    local $SIG{PIPE} = 'IGNORE';

    $loop->on_read($self->{listener}, sub {
        while (my $socket = $self->{listener}->accept) {
            _accepted($self, $socket);
        }
    });
    $loop->on_read($self->{control}, sub {
        while (my $socket = $self->{control}->accept) {
            _told($self, $socket);
        }
    });
    $loop->on_read($gone, sub { $done = 1 });
    $loop->run_until(sub { $done });

    return 0;
}


sub _told {
    my ($self, $socket) = @_;

    $socket->blocking(1);
    my $state = <$socket>;
    return if !defined $state;

    if ($state =~ /^to (\d+)/) {
        $self->{to} = $1;
        print {$socket} "ok\n";
        return;
    }

    chomp($self->{state} = $state);

    foreach my $link (values %{ $self->{links} }) {
        $state =~ /refuse/ ? _reset($self, $link)
                           : _look($self, $link);
    }

    print {$socket} "ok\n";

    return;
}


# A link is two ends, each { socket, out, ended }: what is to be written to it,
# and whether it has said all.

sub _accepted {
    my ($self, $socket) = @_;

    my $link = { ends => [ { socket => $socket, out => '' } ] };

    $socket->blocking(0);
    setsockopt $socket, IPPROTO_TCP, TCP_NODELAY, 1;

    return _reset($self, $link) if $self->{state} eq 'refuse';

    $self->{links}{$link} = $link;

    return _look($self, $link);
}


# what it waits for now

sub _look {
    my ($self, $link) = @_;
    my $ends = $link->{ends};
    my $open = $self->{state} eq 'open';

    if ($open && @$ends == 1) {
        my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1',
                                           PeerPort => $self->{to});
        return _reset($self, $link) if !$socket;

        $socket->blocking(0);
        setsockopt $socket, IPPROTO_TCP, TCP_NODELAY, 1;
        push @$ends, { socket => $socket, out => '' };
    }

    foreach my $i (0 .. $#$ends) {
        my $end   = $ends->[$i];
        my $other = $ends->[1 - $i];
        my $reads = $open && !$end->{ended} && length $other->{out} < ROOM;

        $self->{loop}->on_read($end->{socket},
            $reads ? sub { _read($self, $link, $end, $other) } : undef);
        $self->{loop}->on_write($end->{socket},
            $open && length $end->{out}
                ? sub { _write($self, $link, $end) } : undef);
    }

    return;
}


sub _read {
    my ($self, $link, $end, $other) = @_;

    return if !$self->{links}{$link};

    my $got = sysread $end->{socket}, $other->{out}, 65_536,
                      length $other->{out};

    return if !defined $got && ($! == EAGAIN || $! == EINTR);

    $end->{ended} = 1 if !$got;

    return _write($self, $link, $other);
}


sub _write {
    my ($self, $link, $end) = @_;

    return if !$self->{links}{$link};

    if (length $end->{out}) {
        my $sent = syswrite $end->{socket}, $end->{out};

        if (defined $sent) {
            substr $end->{out}, 0, $sent, '';

        } elsif ($! != EAGAIN && $! != EINTR) {
            return _close($self, $link);
        }
    }

    my @ends = @{ $link->{ends} };

    # whoever has said all wants no answer any more

    return _close($self, $link)
        if ($ends[0]{ended} && !length $ends[1]{out})
           || ($ends[1]{ended} && !length $ends[0]{out});

    return _look($self, $link);
}


sub _reset {
    my ($self, $link) = @_;

    setsockopt $_->{socket}, SOL_SOCKET, SO_LINGER, pack 'ii', 1, 0
        foreach @{ $link->{ends} };

    return _close($self, $link);
}


sub _close {
    my ($self, $link) = @_;

    delete $self->{links}{$link};

    foreach my $end (@{ $link->{ends} }) {
        $self->{loop}->forget($end->{socket});
        close $end->{socket};
    }

    return;
}


1;
