package IapGuard::RedisProxy;

# What stands between nginx and a redis-server, and holds calls of scripts
# back, or their replies: a child process on loopback.
#
#   my $proxy = IapGuard::RedisProxy->new($redis);
#   $proxy->node;
#   $proxy->hold('forget');     # calls of lua/forget.lua, from now on
#   $proxy->hold('decide', ':app:');    # only those with this in a key
#   $proxy->keep('decide');     # the server gets them, but nginx no reply
#   $proxy->keep('queue', 'settle');    # only those whose arguments begin so
#   $proxy->refuse('queue', 'take w', 'TRYAGAIN busy', 0.5, 2);
#                               # the next two such calls get this error, after
#                               # so many seconds; the server gets none of them
#   $proxy->held('forget');     # how many of them wait, on either side
#   $proxy->release;            # all goes on, in its order
#   $proxy->release('stock');   # only what waits for one of these
#   $proxy->keys('forget');     # of each call that has come, how many keys
#   $proxy->cut;                # closes all connections; what was held never
#                               # arrives
#   $proxy->cut('decide');      # only those of which that was the latest script
#
# Behind what is held everything on its connection waits; others go on.

use strict;
use warnings;

use Digest::SHA qw(sha1_hex);
use Errno qw(EAGAIN EINTR);
use IO::Socket::INET;
use JSON::PP ();

use IapGuard::Child;
use IapGuard::FakeRedis;
use IapGuard::Loop;

my $json = JSON::PP->new->canonical;


sub new {
    my ($class, $redis) = @_;

    my $self = bless { to => $redis->node }, $class;

    $self->{$_} = IO::Socket::INET->new(LocalAddr => '127.0.0.1',
                                        Listen => 511, Proto => 'tcp')
                  || die "can't listen: $!\n"
        foreach qw(listener control);

    $self->{$_ . '_port'} = $self->{$_}->sockport
        foreach qw(listener control);

    $self->{child} = IapGuard::Child->start(sub { return $self->_serve(@_) });
    close delete $self->{$_} foreach qw(listener control);

    return $self;
}


sub node { return "127.0.0.1:$_[0]{listener_port}" }
sub port { return $_[0]{listener_port} }

sub hold    { $_[0]->_ask(hold => @_[1, 2]); return }
sub keep    { $_[0]->_ask(keep => @_[1, 2]); return }
sub refuse  { my $self = shift; $self->_ask(refuse => @_); return }
sub release { $_[0]->_ask(release => $_[1]); return }
sub cut     { $_[0]->_ask(cut => $_[1]); return }
sub held    { return $_[0]->_ask('report')->{held}{$_[1]} || 0 }
sub keys    { return @{ $_[0]->_ask('report')->{keys}{$_[1]} || [] } }


sub stop {
    my ($self) = @_;
    my $child = delete $self->{child} or return;
    $child->stop;
    return;
}


sub _ask {
    my ($self, @words) = @_;

    my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1',
                                       PeerPort => $self->{control_port})
        or die "can't reach the proxy: $!\n";

    print {$socket} $json->encode(\@words), "\n";
    my $line = <$socket>;
    die "the proxy does not answer\n" unless defined $line;

    return $json->decode($line);
}


# --- the child ------------------------------------------------------------

sub _serve {
    my ($self, $gone) = @_;
    my $loop = $self->{loop} = IapGuard::Loop->new;
    my $done = 0;

    local $SIG{PIPE} = 'IGNORE';
    @$self{qw(links holds keeps keys names)} = ({}, {}, {}, {}, _names());
    $self->{refused} = {};

    foreach my $name (qw(listener control)) {
        my $listener = $self->{$name};

        $listener->blocking(0);
        $loop->on_read($listener, sub {
            while (my $socket = $listener->accept) {
                $name eq 'control' ? $self->_control($socket)
                                   : $self->_link($socket);
            }
        });
    }

    $loop->on_read($gone, sub { $done = 1 });
    $loop->run_until(sub { $done });

    return 0;
}


# { sum => name } of all scripts

sub _names {
    my %names;

    foreach my $file (glob _root() . '/lua/*.lua') {
        open my $script, '<', $file or die "$file: $!\n";
        my $text = do { local $/; <$script> };
        my ($name) = $file =~ m{(\w+)\.lua$};

        # as they are, or as ngx_iap_script.c has them

        $names{ sha1_hex($_ . $text) } = $name
            foreach '', "#!lua\n", "#!lua flags=allow-oom\n";
    }

    return \%names;
}


sub _root {
    my ($folder) = __FILE__ =~ m{^(.*)/t/lib/};
    return defined $folder ? $folder : '.';
}


# It says one line, and is told one.

sub _control {
    my ($self, $socket) = @_;

    $socket->blocking(1);

    my $line = <$socket>;
    return if !defined $line;

    my ($word, $name, $part, @more) = @{ $json->decode($line) };
    my @links = values %{ $self->{links} };

    $self->{holds}{$name} = defined $part ? $part : '' if $word eq 'hold';
    $self->{keeps}{$name} = defined $part ? $part : '' if $word eq 'keep';

    $self->{refused}{"$name $part"} = \@more if $word eq 'refuse';

    if ($word eq 'release' && !defined $name) {
        @$self{qw(holds keeps)} = ({}, {});
        $self->_go_on($_) foreach @links;

    } elsif ($word eq 'release') {
        delete $self->{$_}{$name} foreach qw(holds keeps);
        $self->_go_on($_)
            foreach grep { !@{ $_->{kept} }
                           || grep { $_ eq $name } @{ $_->{kept} } } @links;
    }

    if ($word eq 'cut') {
        $self->_close($_) foreach grep { !defined $name
                                         || ($_->{latest} || '') eq $name }
                                       @links;
    }

    my %held;

    foreach my $link (values %{ $self->{links} }) {
        $held{$_}++ foreach @{ $link->{kept} }, grep { defined }
                            map { $_->[1] } @{ $link->{commands} };
    }

    print {$socket} $json->encode({ held => \%held,
                                    keys => $self->{keys} }), "\n";
    return;
}


# commands: [bytes, name of the script or undef, its keys, its first two
# arguments] that wait; kept: names of those that were sent on, whose replies
# wait, in `out`

sub _link {
    my ($self, $client) = @_;

    my $server = IO::Socket::INET->new(PeerAddr => $self->{to},
                                       Proto => 'tcp');
    return close $client if !$server;

    my $link = { client => $client, server => $server, in => '', out => '',
                 commands => [], kept => [] };

    $self->{links}{$link} = $link;
    $_->blocking(0) foreach $client, $server;

    $self->{loop}->on_read($client, sub { $self->_read($link) });
    $self->{loop}->on_read($server, sub { $self->_reply($link) });

    return;
}


sub _read {
    my ($self, $link) = @_;

    return if !$link->{client};

    my $got = sysread $link->{client}, $link->{in}, 65_536,
                      length $link->{in};

    return if !defined $got && ($! == EAGAIN || $! == EINTR);
    return $self->_close($link) if !$got;

    my $at = 0;

    while (my ($words, $end) = IapGuard::FakeRedis::parse(\$link->{in}, $at)) {
        $self->_command($link, substr($link->{in}, $at, $end - $at), @$words);
        $at = $end;
    }

    substr $link->{in}, 0, $at, '';
    $self->_forward($link);

    return;
}


sub _command {
    my ($self, $link, $bytes, @words) = @_;
    my ($name, @keys);

    $name = $self->{names}{ $words[1] } if $words[0] eq 'EVALSHA';
    $name = $self->{names}{ sha1_hex($words[1]) } if $words[0] eq 'EVAL';

    @keys = @words[3 .. $words[2] + 2] if defined $name;

    # one that is sent again, with its text, has been counted

    push @{ $self->{keys}{$name} }, scalar @keys
        if defined $name && $words[0] eq 'EVALSHA';

    my @first = defined $name ? grep { defined } @words[3 + @keys, 4 + @keys]
                              : ();

    push @{ $link->{commands} }, [$bytes, $name, "@keys", "@first"];
    $link->{latest} = $name if defined $name;

    return;
}


sub _forward {
    my ($self, $link) = @_;
    my $commands = $link->{commands};

    while (@$commands && $link->{server}) {
        my ($bytes, $name, $keys, $first) = @{ $commands->[0] };
        my $part = defined $name ? $self->{holds}{$name} : undef;
        my $kept = defined $name ? $self->{keeps}{$name} : undef;

        return if defined $part && index($keys, $part) >= 0;
        return if $link->{refusing}
                  || defined $name && $self->_refuse($link, "$name $first");

        shift @$commands;
        push @{ $link->{kept} }, $name
            if defined $kept && index($first, $kept) == 0;
        _write($link->{server}, $bytes);
    }

    return;
}


# Whether it is refused, for which all behind it waits.

sub _refuse {
    my ($self, $link, $what) = @_;
    my ($rule) = map { $self->{refused}{$_} }
                 grep { index($what, $_) == 0 } CORE::keys %{ $self->{refused} };

    return 0 if !$rule || $rule->[2]-- <= 0;

    $link->{refusing} = 1;
    $self->{loop}->after($rule->[1], sub {
        return if !$link->{client};
        $link->{refusing} = 0;
        shift @{ $link->{commands} };
        _write($link->{client}, "-$rule->[0]\r\n");
        $self->_forward($link);
    });

    return 1;
}


sub _reply {
    my ($self, $link) = @_;

    return if !$link->{server};

    my $got = sysread $link->{server}, my $bytes, 65_536;

    return if !defined $got && ($! == EAGAIN || $! == EINTR);
    return $self->_close($link) if !$got;

    $link->{out} .= $bytes;
    $self->_go_on($link) if !@{ $link->{kept} };

    return;
}


sub _go_on {
    my ($self, $link) = @_;

    $link->{kept} = [];
    _write($link->{client}, delete $link->{out});
    $link->{out} = '';
    $self->_forward($link);

    return;
}


# what is written is short, or a server's that reads

sub _write {
    my ($socket, $bytes) = @_;

    $socket->blocking(1);
    print {$socket} $bytes;
    $socket->flush;
    $socket->blocking(0);

    return;
}


sub _close {
    my ($self, $link) = @_;

    delete $self->{links}{$link};

    foreach my $name (qw(client server)) {
        my $socket = delete $link->{$name} or next;
        $self->{loop}->forget($socket);
        close $socket;
    }

    return;
}


1;
