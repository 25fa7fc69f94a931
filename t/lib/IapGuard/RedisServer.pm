package IapGuard::RedisServer;

# A real redis-server on loopback that keeps nothing, with certificates where
# wanted: ca.crt is the authority, other.crt another one.  With `tls_clients` a
# client needs one as well, and there are client.crt and client.key, signed by
# the authority, and stranger.crt and stranger.key, by the other one.
#
#   my $redis = IapGuard::RedisServer->new(folder => $folder, tls => 1);
#   my $redis = IapGuard::RedisServer->new(tls => 1, tls_clients => 1);
#   $redis->node;  $redis->tls_node;
#   $redis->kill;  $redis->start;       # at the same address
#   $redis->running;
#   $redis->stop;                       # also when the object goes
#   my $reply = $redis->command('XRANGE', 'key', '-', '+');
#   my $reply = $redis->script("$root/lua/bans.lua", [$key], '0-0', 256);
#
# A reply is a number, a text, undef (nil) or a reference to an array.  Where
# the server says that it is an error, command() dies with the server's words.
#
# Without `folder` it has one that goes with it; `cpu` pins it to a processor;
# `program` is another than redis-server, or than what REDIS_SERVER in the
# environment says; `options` => [...] are more of the
# server's own, and so are start()'s, for that one time.

use strict;
use warnings;

use File::Temp ();
use IO::Socket::INET;
use Time::HiRes qw(sleep);

use IapGuard::Child;
use IapGuard::Loop;
use IapGuard::Port qw(free_port);

use constant START_SECONDS => 30;       # it may have much to load


sub new {
    my ($class, %options) = @_;

    my $self = bless { program => $ENV{REDIS_SERVER} || 'redis-server',
                       %options }, $class;

    if (defined $self->{folder}) {
        mkdir $self->{folder};
    } else {
        $self->{scratch} = File::Temp->newdir('iap_guard-redis-XXXXXX',
                                              TMPDIR => 1);
        $self->{folder}  = $self->{scratch}->dirname;
    }

    $self->{$_} = free_port() foreach qw(port tls_port);
    $self->_certificates if $self->{tls};

    return $self->start;
}


sub node     { return "127.0.0.1:$_[0]{port}" }
sub tls_node { return "127.0.0.1:$_[0]{tls_port}" }
sub host     { return '127.0.0.1' }
sub port     { return $_[0]{port} }
sub folder   { return $_[0]{folder} }
sub pid      { return $_[0]{pid} }


sub start {
    my ($self, @options) = @_;
    my $folder = $self->{folder};

    my @tls = $self->{tls}
        ? ('--tls-port', $self->{tls_port},
           '--tls-auth-clients', $self->{tls_clients} ? 'yes' : 'no',
           '--tls-cert-file', "$folder/redis.crt",
           '--tls-key-file', "$folder/redis.key",
           '--tls-ca-cert-file', "$folder/ca.crt")
        : ();

    $self->{child} = IapGuard::Child->program(
        { output => "$folder/redis.out" },
        (defined $self->{cpu} ? ('taskset', '-c', $self->{cpu}) : ()),
        $self->{program}, '--port', $self->{port}, '--bind', '127.0.0.1',
        '--save', '', '--appendonly', 'no', '--daemonize', 'no',
        '--dir', $folder, '--pidfile', "$folder/redis.pid", @tls,
        @{ $self->{options} || [] }, @options);

    my $until = IapGuard::Loop::now() + START_SECONDS;

    until (eval { $self->cli('PING') eq 'PONG' }) {
        die "redis-server does not start: ", $self->_last_words
            if IapGuard::Loop::now() > $until;
        sleep 0.02;
    }

    # asked now, for a server that is stopped does not tell

    $self->{pid} = $self->info('server')->{process_id};

    return $self;
}


sub _last_words {
    my ($self) = @_;

    open my $file, '<', "$self->{folder}/redis.out" or return "\n";
    my @lines = <$file>;

    return join '', splice @lines, @lines > 5 ? -5 : 0;
}


# What INFO says of a section: { name => value }

sub info {
    my ($self, $section) = @_;
    return { $self->cli('INFO', $section) =~ /^(\w+):(\S*)\r?$/mg };
}


# At once, as a crash

sub kill {
    my ($self) = @_;

    CORE::kill 'KILL', $self->pid;

    return $self->stop;
}


sub running { return $_[0]{child} && $_[0]{child}->running }


sub stop {
    my ($self) = @_;
    my $child = delete $self->{child} or return;

    delete $self->{socket};
    $child->stop;

    return;
}


# It keeps its connections, and answers nothing

sub freeze { return CORE::kill 'STOP', $_[0]->pid }
sub thaw   { return CORE::kill 'CONT', $_[0]->pid }


sub cli {
    my ($self, @words) = @_;

    open my $pipe, '-|', 'sh', '-c', 'exec redis-cli "$@" 2> /dev/null',
                   'sh', '-p', $self->{port}, @words
        or die "redis-cli: $!\n";
    local $/;
    my $text = <$pipe>;
    close $pipe;

    return defined $text ? $text =~ s/\n\z//r : '';
}


sub command {
    my ($self, @words) = @_;

    my $reply = eval {
        local $SIG{ALRM} = sub { die "no reply to $words[0]\n" };
        local $SIG{PIPE} = 'IGNORE';
        alarm 10;

        my $socket = $self->{socket} ||= $self->_connect;

        print {$socket} '*' . @words . "\r\n",
                        map { '$' . length($_) . "\r\n$_\r\n" } @words
            or die "can't write: $!\n";
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


# How often each command was called: { xrange => 7 }; what scripts call counts,
# too.

sub calls {
    my ($self) = @_;
    my $text = $self->command('INFO', 'commandstats');

    return { $text =~ /^cmdstat_(\S+?):calls=(\d+)/mg };
}


sub _connect {
    my ($self) = @_;

    return IO::Socket::INET->new(PeerAddr => $self->host, Proto => 'tcp',
                                 PeerPort => $self->{port})
        || die "no connection to port $self->{port}: $!\n";
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
        read $socket, $text, $rest + 2 - length $text, length $text
            or die "the connection was closed\n";
    }

    return substr $text, 0, $rest;
}


sub _certificates {
    my ($self) = @_;
    my $folder = $self->{folder};

    foreach my $ca (qw(ca other)) {
        _openssl("req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=$ca"
                 . " -keyout $folder/$ca.key -out $folder/$ca.crt");
    }

    _signed($folder, 'redis', 'ca', 'DNS:redis.test,IP:127.0.0.1');

    if ($self->{tls_clients}) {
        _signed($folder, 'client', 'ca', 'DNS:client.test');
        _signed($folder, 'stranger', 'other', 'DNS:client.test');
    }

    return;
}


sub _signed {
    my ($folder, $who, $ca, $names) = @_;

    open my $file, '>', "$folder/names" or die "$folder/names: $!\n";
    print {$file} "subjectAltName=$names\n";
    close $file or die "$folder/names: $!\n";

    _openssl("req -newkey rsa:2048 -nodes -subj /CN=$who"
             . " -keyout $folder/$who.key -out $folder/$who.csr");
    _openssl("x509 -req -days 2 -in $folder/$who.csr -CA $folder/$ca.crt"
             . " -CAkey $folder/$ca.key -CAcreateserial"
             . " -extfile $folder/names -out $folder/$who.crt");

    return;
}


sub _openssl {
    my ($arguments) = @_;
    my $words = qx{openssl $arguments 2>&1};
    die "openssl: $words\n" if $? != 0;
    return;
}


1;
