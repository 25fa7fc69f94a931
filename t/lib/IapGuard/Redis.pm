package IapGuard::Redis;

# A real redis-server on the loopback, on a port of its own, that keeps
# nothing; and a client of it.
#
#   my $redis = IapGuard::Redis->new(program => 'valkey-server');
#   $redis->port;  $redis->node;        # 6379, "127.0.0.1:6379"
#   my $reply = $redis->command('XRANGE', 'key', '-', '+');
#   my $reply = $redis->script("$root/lua/bans.lua", [$key], '0-0', 256);
#   $redis->stop;                       # also when the object goes
#   $redis->start;                      # empty, at the same port
#   $redis->kill;  $redis->freeze;  $redis->thaw;
#
# A reply is a number, a text, undef (nil) or a reference to an array.  Where
# the server says that it is an error, command() dies with the server's words.
#
# Other options of new(): `arguments` of the server, a reference to an array.

use strict;
use warnings;

use File::Temp ();
use IO::Socket::INET;
use Time::HiRes qw(sleep);

use IapGuard::Child;
use IapGuard::Loop;

use constant {
    PORTS_TRIED   => 5,
    START_SECONDS => 20,
    REPLY_SECONDS => 10,
};


sub new {
    my ($class, %options) = @_;

    my $self = bless {
        program => 'redis-server', arguments => [], %options,
        scratch => File::Temp->newdir('iap_guard-redis-XXXXXX', TMPDIR => 1),
    }, $class;

    # somebody else may take a free port before the server has it

    foreach (1 .. PORTS_TRIED) {
        $self->{port} = _free_port();
        return $self if eval { $self->start };
    }

    die "$self->{program} does not start: $@";
}


sub port { return $_[0]{port} }
sub node { return "127.0.0.1:$_[0]{port}" }
sub pid  { return $_[0]{pid} }


sub start {
    my ($self) = @_;
    my $folder = $self->{scratch}->dirname;

    $self->{child} = IapGuard::Child->program(
        { output => "$folder/redis.log" },
        $self->{program}, '--port', $self->{port}, '--bind', '127.0.0.1',
        '--save', '', '--appendonly', 'no', '--daemonize', 'no',
        '--dir', $folder, @{ $self->{arguments} });

    my $until = IapGuard::Loop::now() + START_SECONDS;

    until (eval { $self->command('PING') eq 'PONG' }) {
        die "no answer at port $self->{port}\n"
            if !$self->{child}->running || IapGuard::Loop::now() > $until;
        sleep 0.02;
    }

    # asked now, for a server that is stopped does not tell

    ($self->{pid}) = $self->command('INFO', 'server') =~ /process_id:(\d+)/;

    return $self;
}


sub stop {
    my ($self) = @_;
    my $child = delete $self->{child} or return;

    delete $self->{socket};
    $self->thaw;
    $child->stop;

    return;
}


# At once, as a crash

sub kill {
    my ($self) = @_;

    CORE::kill 'KILL', $self->{pid};
    return $self->stop;
}


# It keeps its connections, and answers nothing

sub freeze { return CORE::kill 'STOP', $_[0]{pid} }
sub thaw   { return CORE::kill 'CONT', $_[0]{pid} }


sub DESTROY {
    my ($self) = @_;
    local ($@, $?, $!);
    $self->stop;
    return;
}


sub command {
    my ($self, @words) = @_;

    my $socket = $self->{socket} ||= IO::Socket::INET->new(
        PeerAddr => '127.0.0.1', PeerPort => $self->{port}, Proto => 'tcp')
        or die "can't connect to port $self->{port}: $!\n";

    my $reply = eval {
        local $SIG{ALRM} = sub { die "no reply to $words[0]\n" };
        local $SIG{PIPE} = 'IGNORE';
        alarm REPLY_SECONDS;

        print {$socket} '*' . @words . "\r\n",
                        map { '$' . length($_) . "\r\n$_\r\n" } @words
            or die "can't write to port $self->{port}: $!\n";
        $socket->flush;

        _reply($socket);
    };

    my $err = $@;
    alarm 0;

    if ($err) {
        delete $self->{socket};
        die $err;
    }

    die "$$reply\n" if ref $reply eq 'SCALAR';

    return $reply;
}


sub script {
    my ($self, $file, $keys, @arguments) = @_;

    my $text = $self->{scripts}{$file} ||= do {
        local $/;
        open my $script, '<', $file or die "$file: $!\n";
        <$script>;
    };

    return $self->command('EVAL', $text, scalar @$keys, @$keys, @arguments);
}


# How often each command was called, by its name: { 'xrange' => 7 }; what
# scripts call counts, too.

sub calls {
    my ($self) = @_;
    my $text = $self->command('INFO', 'commandstats');

    return { $text =~ /^cmdstat_(\S+?):calls=(\d+)/mg };
}


# a reference to a text is an error

sub _reply {
    my ($socket) = @_;
    my $line = <$socket>;

    die "the connection was closed\n" unless defined $line;

    my ($type, $rest) = $line =~ /^([-+:*\$])(.*)\r\n\z/
        or die "not a reply: $line\n";

    return $rest if $type eq '+' || $type eq ':';
    return \$rest if $type eq '-';
    return if $rest == -1;

    return [ map { scalar _reply($socket) } 1 .. $rest ] if $type eq '*';

    my $text = '';

    while (length $text < $rest + 2) {
        read($socket, $text, $rest + 2 - length $text, length $text)
            or die "the connection was closed\n";
    }

    return substr $text, 0, $rest;
}


sub _free_port {
    my $socket = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 1,
                                       Proto => 'tcp')
        or die "no free port: $@\n";

    return $socket->sockport;
}


1;
