package IapGuard::RedisWire;

# A connection to a Redis, kept, for tests that ask it while it is unwell:
#
#   my $wire = IapGuard::RedisWire->new(port => $redis->port);
#   my $reply = $wire->ask('CONFIG', 'SET', 'maxmemory', '1mb');
#
# A reply is a text, a number or an array of such; an error is its text with
# the "-" before it.  Other options: `host`; `timeout` of a reply, in seconds
# (5).  local_port() tells it from other connections.

use strict;
use warnings;

use IO::Socket::INET;
use Socket qw(SOL_SOCKET SO_RCVTIMEO);

use IapGuard::FakeRedis;


sub new {
    my ($class, %options) = @_;
    my $self = bless { host => '127.0.0.1', timeout => 5, %options }, $class;

    $self->{socket} = IO::Socket::INET->new(
        PeerAddr => $self->{host}, PeerPort => $self->{port},
        Proto => 'tcp', Timeout => $self->{timeout})
        or die "can't reach Redis at $self->{host}:$self->{port}: $@\n";

    setsockopt $self->{socket}, SOL_SOCKET, SO_RCVTIMEO,
               pack 'l!l!', $self->{timeout}, 0;

    return $self;
}


sub local_port { return $_[0]{socket}->sockport }


sub ask {
    my ($self, @words) = @_;
    $self->tell(@words);
    return $self->reply;
}


# the same in two steps

sub tell {
    my ($self, @words) = @_;
    local $SIG{PIPE} = 'IGNORE';

    print { $self->{socket} } IapGuard::FakeRedis::encode(@words);
    $self->{socket}->flush;

    return;
}


sub reply {
    my ($self) = @_;
    my $socket = $self->{socket};
    my $line   = <$socket>;

    die "no reply from Redis\n" unless defined $line;

    my ($type, $rest) = $line =~ /^(.)(.*)\r\n$/ or die "not RESP: $line\n";

    return $rest        if $type eq '+' || $type eq ':';
    return "-$rest"     if $type eq '-';
    return undef        if $rest < 0;
    return [map { $self->reply } 1 .. $rest] if $type eq '*';

    read $socket, my $text, $rest + 2;

    return substr $text, 0, $rest;
}


1;
