package IapGuard::WaitRedis;

# A redis-server that answers WAITAOF as it is told, whether or not it knows it:
# a relay in front of a real one.
#
#   my $redis = IapGuard::WaitRedis->new(options => [...]);
#   $redis->node;                       # the relay's
#   $redis->waits('1');                 # written: the reply is [1, 0]
#   $redis->waits('0', 0.2);            # not yet, and it took so long
#   $redis->waits('ERR no');            # an error
#   $redis->waits('silence');           # no reply, nor to what comes after it
#   $redis->asked;                      # the arguments of each WAITAOF so far
#
# All else is IapGuard::RedisServer's.  A connection's commands are answered one
# after the other, as Redis does it.

use strict;
use warnings;

use IO::Select;
use IO::Socket::INET;
use POSIX ();
use Socket qw(IPPROTO_TCP TCP_NODELAY);
use Time::HiRes qw(sleep);

use IapGuard::Child;

use parent qw(IapGuard::RedisServer);


sub new {
    my ($class, @options) = @_;
    my $self = $class->SUPER::new(@options);

    my $listener = IO::Socket::INET->new(LocalAddr => '127.0.0.1',
                                         Listen => 64, Proto => 'tcp')
        or die "can't listen: $!\n";

    $self->{relay_port} = $listener->sockport;
    $self->waits('1');
    $self->{relay} = IapGuard::Child->start(sub {
        $self->_serve($listener, @_) });
    close $listener;

    return $self;
}


sub node { return "127.0.0.1:$_[0]{relay_port}" }


sub waits {
    my ($self, $reply, $seconds) = @_;

    open my $file, '>', $self->folder . '/waits.new' or die "waits: $!\n";
    print {$file} $seconds || 0, "\n$reply\n";
    close $file;

    rename $self->folder . '/waits.new', $self->folder . '/waits'
        or die "waits: $!\n";

    return;
}


sub asked {
    my ($self) = @_;

    open my $file, '<', $self->folder . '/asked' or return;
    chomp(my @lines = <$file>);

    return @lines;
}


# --- the child ------------------------------------------------------------

sub _serve {
    my ($self, $listener, $gone) = @_;
    my $select = IO::Select->new($listener, $gone);

    local $SIG{CHLD} = 'IGNORE';
    local $SIG{PIPE} = 'IGNORE';

    while (my @ready = $select->can_read) {
        last if grep { $_ == $gone } @ready;

        my $client = $listener->accept or next;

        if (fork) {
            close $client;
            next;
        }

        close $listener;
        $self->_relay($client, $gone);
        POSIX::_exit(0);
    }

    return 0;
}


# until either side, or the parent, is gone

sub _relay {
    my ($self, $client, $gone) = @_;

    my $server = IO::Socket::INET->new(PeerAddr => '127.0.0.1',
                                       PeerPort => $self->port,
                                       Proto => 'tcp') or return;

    setsockopt $_, IPPROTO_TCP, TCP_NODELAY, 1 foreach $client, $server;

    my $select = IO::Select->new($client, $server, $gone);
    my %buffers = (client => '', server => '');

    for ( ;; ) {
        while (my $command = _take(\$buffers{client})) {

            my $reply = $self->_wait($command);

            if (!defined $reply) {
                _send($server, $command) or return;
                $reply = _fetch($server, \$buffers{server}, $select, $gone);
                return unless defined $reply;
            }

            _send($client, $reply) or return;
        }

        foreach my $ready ($select->can_read) {
            return if $ready == $gone || $ready == $server;
            sysread $client, $buffers{client}, 65_536, length $buffers{client}
                or return;
        }
    }
}


# A whole command or reply from the front of a buffer; nothing if it is not
# there yet

sub _take {
    my ($buffer) = @_;
    my $end = _end($buffer, 0);

    return defined $end ? substr $$buffer, 0, $end, '' : undef;
}


sub _end {
    my ($buffer, $at) = @_;
    my $line = index $$buffer, "\r\n", $at;

    return if $line < 0;

    my $type = substr $$buffer, $at, 1;
    my $n    = substr $$buffer, $at + 1, $line - $at - 1;
    my $end  = $line + 2;

    if ($type eq '$') {
        $end += $n + 2 if $n >= 0;
        return $end <= length $$buffer ? $end : undef;
    }

    if ($type eq '*') {
        foreach (1 .. $n) {
            $end = _end($buffer, $end);
            return unless defined $end;
        }
    }

    return $end;
}


sub _fetch {
    my ($server, $buffer, $select, $gone) = @_;
    my $reply;

    until (defined($reply = _take($buffer))) {
        return if grep { $_ == $gone } $select->can_read(0);
        sysread $server, $$buffer, 65_536, length $$buffer or return;
    }

    return $reply;
}


# the reply to a WAITAOF; undef: it is another command

sub _wait {
    my ($self, $command) = @_;
    my @words = $command =~ /\$\d+\r\n([^\r]*)\r\n/g;

    return unless $command =~ /^\*4\r\n\$7\r\nWAITAOF\r\n/i;

    open my $asked, '>>', $self->folder . '/asked' or die "asked: $!\n";
    print {$asked} "@words[1 .. $#words]\n";
    close $asked;

    open my $file, '<', $self->folder . '/waits' or die "waits: $!\n";
    chomp(my ($seconds, $reply) = <$file>);

    sleep $seconds if $seconds;
    sleep 3600 if $reply eq 'silence';

    return $reply =~ /^\d+$/ ? "*2\r\n:$reply\r\n:0\r\n" : "-$reply\r\n";
}


sub _send {
    my ($socket, $bytes) = @_;

    while (length $bytes) {
        my $n = syswrite $socket, $bytes or return 0;
        substr $bytes, 0, $n, '';
    }

    return 1;
}


sub DESTROY {
    my ($self) = @_;
    local ($@, $?, $!);

    (delete $self->{relay})->stop if $self->{relay};
    $self->stop;

    return;
}


1;
