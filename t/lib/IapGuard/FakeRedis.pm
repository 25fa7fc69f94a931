package IapGuard::FakeRedis;

# A Redis that misbehaves as it is told: a child process, on 127.0.0.1 or on
# a unix socket.
#
#   my $redis = IapGuard::FakeRedis->new(port => 0)->start;
#   my $redis = IapGuard::FakeRedis->new(path => '/tmp/x/redis.sock')->start;
#
#   $redis->behave('slow', delay => 0.3);   # commands whose key is "slow"
#   $redis->behave('*', dribble => 1);      # all that no other rule is for
#   $redis->behave('slow');                 # as ever
#   $redis->report->{commands};
#   $redis->stop;
#
# The key is a command's second word; where that is missing, the command's
# name.  By itself it answers PING, ECHO, AUTH, SELECT, GET and SET, and
# anything else with +OK.  Replies leave in the order of their commands: one
# that waits holds up those behind it, as in Redis.
#
# A rule may say, all at once if need be,
#
#   raw      these bytes in place of the reply
#   delay    seconds before the reply
#   hang     1: no reply, neither to this command nor to any after it
#   dribble  so many bytes at a time
#   pause    seconds between them (0.001)
#   cut      so many bytes of the reply, then the connection is closed
#   reset    the same, with RST
#   extra    bytes that nobody asked for, after the reply
#
# and the rule of the key "accept" is for each new connection: hang (none of
# its commands is answered), raw, cut and reset.
#
# `auth` => 'password' or 'user password' of new() is then asked for, and
# everything else refused as Redis does.

use strict;
use warnings;

use Errno qw(EAGAIN EINTR);
use IO::Socket::INET;
use IO::Socket::UNIX;
use JSON::PP ();
use Socket qw(SOL_SOCKET SO_LINGER IPPROTO_TCP TCP_NODELAY);

use IapGuard::Child;
use IapGuard::Loop;
use IapGuard::Port qw(free_port);

my $json = JSON::PP->new->canonical->latin1;


sub new {
    my ($class, %options) = @_;

    my $self = bless { %options }, $class;

    $self->{listener} = $self->_listener;
    $self->{port}     = $self->{listener}->sockport unless $self->{path};
    $self->{control}  = IO::Socket::INET->new(LocalAddr => '127.0.0.1',
                                              Listen => 5, Proto => 'tcp')
        or die "can't listen: $!\n";

    return $self;
}


sub port { return $_[0]{port} }
sub node { return $_[0]{path} ? "unix:$_[0]{path}" : "127.0.0.1:$_[0]{port}" }


sub start {
    my ($self) = @_;

    $self->{child} = IapGuard::Child->start(sub { return $self->_serve(@_) });
    close delete $self->{listener};

    return $self;
}


sub stop {
    my ($self) = @_;
    my $child = delete $self->{child} or return;

    $child->stop;
    unlink $self->{path} if $self->{path};

    return;
}


# The same address once more, after stop().

sub restart {
    my ($self) = @_;

    $self->stop;
    $self->{listener} = $self->_listener;

    return $self->start;
}


sub behave {
    my ($self, $key, %rule) = @_;
    $self->_ask('FAKE', $key, $json->encode(\%rule));
    return;
}


# connections (so far), clients (now), commands, the last one's words, and how
# often each key was asked for

sub report {
    my ($self) = @_;
    return $json->decode($self->_ask('FAKE'));
}


sub _listener {
    my ($self) = @_;

    my $listener = $self->{path}
        ? IO::Socket::UNIX->new(Local => $self->{path}, Listen => 511)
        : IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 511,
                                LocalPort => $self->{port} || free_port(),
                                ReuseAddr => 1, Proto => 'tcp');

    die "can't listen: $!\n" unless $listener;

    # nginx's workers run as another user if we are root

    chmod 0777, $self->{path} if $self->{path};

    return $listener;
}


sub _ask {
    my ($self, @words) = @_;

    my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1',
                                       PeerPort => $self->{control}->sockport)
        or die "can't reach the fake: $!\n";

    print {$socket} encode(@words);

    my $header = <$socket>;
    die "the fake does not answer\n" unless defined $header;
    return '' unless $header =~ /^\$(\d+)/;

    my $text;
    read $socket, $text, $1;

    return $text;
}


sub encode {
    my (@words) = @_;

    return '*' . @words . "\r\n"
           . join '', map { '$' . length($_) . "\r\n$_\r\n" } @words;
}


# --- the child ------------------------------------------------------------

sub _serve {
    my ($self, $gone) = @_;
    my $loop = $self->{loop} = IapGuard::Loop->new;
    my $done = 0;

    @$self{qw(rules clients connections commands last asked)}
        = ({}, {}, 0, 0, [], {});

    foreach my $listener (@$self{qw(listener control)}) {
        $listener->blocking(0);
        $loop->on_read($listener, sub { $self->_accept($listener) });
    }

    $loop->on_read($gone, sub { $done = 1 });
    $loop->run_until(sub { $done });

    return 0;
}


sub _accept {
    my ($self, $listener) = @_;

    while (my $socket = $listener->accept) {
        $socket->blocking(0);

        my $client = { socket => $socket, in => '', steps => [] };

        $self->{loop}->on_read($socket, sub { $self->_read($client) });
        $self->_greet($client) if $listener == $self->{listener};
    }

    return;
}


sub _greet {
    my ($self, $client) = @_;
    my $rule = $self->{rules}{accept};

    $self->{connections}++;
    $self->{clients}{$client} = 1;

    setsockopt $client->{socket}, IPPROTO_TCP, TCP_NODELAY, pack 'i', 1
        unless $self->{path};

    return unless $rule;

    # the first answer is to nothing

    $self->_answer($client, '', $rule);
    $client->{hangs} = $rule->{hang};

    return;
}


sub _read {
    my ($self, $client) = @_;

    return unless $client->{socket};

    my $n = sysread $client->{socket}, $client->{in}, 65_536,
                    length $client->{in};

    return if !defined $n && ($! == EAGAIN || $! == EINTR);
    return $self->_close($client) if !$n;

    my ($at, $words) = (0);

    while ($client->{socket}) {
        ($words, $at) = parse(\$client->{in}, $at) or last;
        last unless $words;
        $client->{at} = $at;
        $self->_command($client, @$words);
    }

    substr $client->{in}, 0, delete $client->{at}, ''
        if defined $client->{at};

    return;
}


# The words of the command at that place and where it ends, or nothing

sub parse {
    my ($bytes, $at) = @_;

    pos($$bytes) = $at;
    $$bytes =~ /\G\*(\d+)\r\n/gc or return;

    my ($n, @words) = ($1);

    while (@words < $n) {
        $$bytes =~ /\G\$(\d+)\r\n/gc or return;
        my $length = $1;
        my $start  = pos $$bytes;

        return if length($$bytes) < $start + $length + 2;
        push @words, substr $$bytes, $start, $length;
        pos($$bytes) = $start + $length + 2;
    }

    return (\@words, pos $$bytes);
}


sub _command {
    my ($self, $client, @words) = @_;

    return $self->_control($client, @words) if $words[0] eq 'FAKE';

    $self->{commands}++;
    $self->{last} = [map { substr $_, 0, 100 } @words];

    my $rules = $self->{rules};
    my $key   = defined $words[1] ? $words[1] : $words[0];
    my $rule  = $rules->{$key} || $rules->{'*'} || {};

    $self->{asked}{$key}++;

    $client->{hangs} = 1 if $rule->{hang};

    $self->_answer($client, $self->_reply($client, @words), $rule);

    return;
}


sub _control {
    my ($self, $client, $key, $rule) = (@_[0, 1], @_[3, 4]);

    if (defined $rule) {
        $rule = $json->decode($rule);
        $self->{rules}{$key} = $rule;
        delete $self->{rules}{$key} unless %$rule;
    }

    $self->_answer($client, _bulk($json->encode({
        connections => $self->{connections},
        clients     => scalar keys %{ $self->{clients} },
        commands    => $self->{commands},
        last        => $self->{last},
        asked       => $self->{asked},
    })), {});

    return;
}


sub _reply {
    my ($self, $client, $name, @words) = @_;

    if ($name eq 'AUTH') {
        return "-ERR AUTH <password> called without any password configured"
               . " for the default user. Are you sure your configuration is"
               . " correct?\r\n" unless defined $self->{auth};

        $client->{known} = "@words" eq $self->{auth};

        return $client->{known} ? "+OK\r\n"
            : "-WRONGPASS invalid username-password pair or user is"
              . " disabled.\r\n";
    }

    return "-NOAUTH Authentication required.\r\n"
        if defined $self->{auth} && !$client->{known};

    return "+PONG\r\n"       if $name eq 'PING';
    return _bulk($words[0])  if $name eq 'ECHO';
    return "+OK\r\n"         if $name ne 'GET' && $name ne 'SET';

    if ($name eq 'SET') {
        $self->{data}{$words[0]} = $words[1];
        return "+OK\r\n";
    }

    my $value = $self->{data}{$words[0]};

    return defined $value ? _bulk($value) : "\$-1\r\n";
}


sub _bulk { return '$' . length($_[0]) . "\r\n$_[0]\r\n" }


# What goes out is a list of steps, taken one after the other: [bytes],
# [wait => seconds], [close => ], [reset => ].

sub _answer {
    my ($self, $client, $reply, $rule) = @_;

    return if $client->{hangs};

    my $steps = $client->{steps};
    my $ends  = defined $rule->{cut} ? 'cut'
              : defined $rule->{reset} ? 'reset' : undef;

    $reply = $rule->{raw} if defined $rule->{raw};
    $reply = substr $reply, 0, $rule->{$ends} if $ends;

    push @$steps, [wait => $rule->{delay}] if $rule->{delay};

    if ($rule->{dribble}) {
        foreach my $bytes (unpack "(a$rule->{dribble})*", $reply) {
            push @$steps, [$bytes], [wait => $rule->{pause} || 0.001];
        }

    } else {
        push @$steps, [$reply];
    }

    push @$steps, [$rule->{extra}] if defined $rule->{extra};
    push @$steps, [$ends => 1] if $ends;

    $self->_go($client);

    return;
}


sub _go {
    my ($self, $client) = @_;
    my $steps = $client->{steps};

    while ($client->{socket} && !$client->{waits} && @$steps) {
        my ($what, $value) = @{ $steps->[0] };

        if (!defined $value) {
            last unless $self->_write($client);
            shift @$steps;

        } elsif ($what eq 'wait') {
            shift @$steps;
            $client->{waits} = 1;
            $self->{loop}->after($value, sub {
                $client->{waits} = 0;
                $self->_go($client);
            });

        } else {
            setsockopt $client->{socket}, SOL_SOCKET, SO_LINGER,
                       pack 'ii', 1, 0 if $what eq 'reset';
            $self->_close($client);
        }
    }

    return;
}


# The bytes of the first step; true when all are written

sub _write {
    my ($self, $client) = @_;
    my $step = $client->{steps}[0];

    while (length $step->[0]) {
        my $n = syswrite $client->{socket}, $step->[0];

        if (!defined $n) {
            if ($! == EAGAIN) {
                $self->{loop}->on_write($client->{socket},
                                        sub { $self->_go($client) });
            } else {
                $self->_close($client);
            }

            return 0;
        }

        substr $step->[0], 0, $n, '';
    }

    $self->{loop}->on_write($client->{socket}, undef);

    return 1;
}


sub _close {
    my ($self, $client) = @_;
    my $socket = delete $client->{socket} or return;

    $self->{loop}->forget($socket);
    delete $self->{clients}{$client};
    close $socket;

    return;
}


1;
