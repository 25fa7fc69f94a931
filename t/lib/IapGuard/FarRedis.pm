package IapGuard::FarRedis;

# A redis-server in a network of its own, behind a cable that can be cut: all
# packets are dropped then, both ways, and nobody is told.  For root, with the
# commands of iproute2.
#
#   my $redis = IapGuard::FarRedis->new;
#   $redis->node;       # "198.18.7.6:6379"
#   $redis->cut;
#   $redis->mend;
#   $redis->command('PING');
#
# The network goes with the server, and the cable with the network.

use strict;
use warnings;

use File::Temp ();
use Time::HiRes qw(sleep);

use IapGuard::Child;
use IapGuard::Loop;

use parent qw(IapGuard::RedisServer);

# nobody's, and of no hardware

use constant {
    PORT    => 6379,
    NOBODY  => '02:00:00:00:00:01',
    SECONDS => 10,
};


sub new {
    my ($class) = @_;
    my $folder  = File::Temp->newdir('iap_guard-redis-XXXXXX', TMPDIR => 1);

    # two addresses of a net for tests (RFC 2544), other ones for each process

    my @net  = (198, 18, int($$ / 64) % 256, $$ % 64 * 4);
    my ($near, $far) = map { join '.', @net[0 .. 2], $net[3] + $_ } 1, 2;

    my $self = bless { folder => "$folder", scratch => $folder,
                       host => $far, port => PORT, cable => "iap$$" }, $class;

    $self->{child} = IapGuard::Child->program(
        { output => $self->file('redis.out') }, 'unshare', '-n',
        $ENV{REDIS_SERVER} || 'redis-server', '--port', PORT, '--bind', '0.0.0.0',
        '--protected-mode', 'no', '--save', '', '--daemonize', 'no',
        '--dir', $self->{folder}, '--pidfile', $self->file('redis.pid'));

    my $pid = $self->{pid} = $self->_pid;
    my @there = ('nsenter', '-t', $pid, '-n');

    _run('ip', 'link', 'add', $self->{cable}, 'type', 'veth',
         'peer', 'name', 'eth0', 'netns', $pid);
    _run('ip', 'addr', 'add', "$near/30", 'dev', $self->{cable});
    _run('ip', 'link', 'set', $self->{cable}, 'up');
    _run(@there, 'ip', 'addr', 'add', "$far/30", 'dev', 'eth0');
    _run(@there, 'ip', 'link', 'set', 'eth0', 'up');

    $self->command('PING') eq 'PONG' or die "no PONG from afar\n";

    return $self;
}


sub node { return "$_[0]{host}:" . PORT }
sub host { return $_[0]{host} }
sub file { return "$_[0]{folder}/$_[1]" }


# What is sent goes to hardware that is not there.  Nothing comes back then,
# either: there is nothing that it could be an answer to.

sub cut {
    my ($self) = @_;
    _run('ip', 'neigh', 'replace', $self->{host}, 'lladdr', NOBODY,
         'dev', $self->{cable}, 'nud', 'permanent');
    return;
}


sub mend {
    my ($self) = @_;
    _run('ip', 'neigh', 'del', $self->{host}, 'dev', $self->{cable});
    return;
}


sub _pid {
    my ($self) = @_;
    my $until = IapGuard::Loop::now() + SECONDS;

    while (IapGuard::Loop::now() < $until) {

        if (open my $file, '<', $self->file('redis.pid')) {
            my $pid = <$file>;
            return $pid + 0 if $pid;
        }

        sleep 0.02;
    }

    open my $words, '<', $self->file('redis.out');
    die 'no redis-server in a network of its own: ',
        $words ? <$words> : '', "\n";
}


sub _run {
    my (@command) = @_;
    system(@command) == 0 or die "failed: @command\n";
    return;
}


1;
