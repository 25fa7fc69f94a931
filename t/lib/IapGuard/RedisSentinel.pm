package IapGuard::RedisSentinel;

# A master, its replica and three sentinels, on loopback.
#
#   my $redis = IapGuard::RedisSentinel->new;
#   $redis->urls;               # of the sentinels, for iap_guard_redis
#   $redis->ports;              # likewise
#   $redis->name;               # of the master
#   $redis->master;             # an IapGuard::RedisServer, as sentinels say
#   $redis->failover;           # one that was asked for, to its end
#   $redis->wait_for_another($old);
#   $redis->stop_sentinels;  $redis->start_sentinels;

use strict;
use warnings;

use File::Temp ();
use Time::HiRes qw(sleep);

use IapGuard::Child;
use IapGuard::Loop;
use IapGuard::RedisServer;

use constant {
    SENTINELS  => 3,
    DOWN_AFTER => 500,          # ms
};


sub new {
    my ($class, %options) = @_;

    my $self = bless {
        name => 'mymaster', %options, sentinels => [],
        scratch => File::Temp->newdir('iap_guard-sentinel-XXXXXX',
                                      TMPDIR => 1),
    }, $class;

    # or a replica has to wait for others that there are not

    my @at_once = ('--repl-diskless-sync-delay', 0);
    my $master  = IapGuard::RedisServer->new(options => \@at_once);
    my $replica = IapGuard::RedisServer->new(
        options => [@at_once, '--replicaof', '127.0.0.1', $master->port]);

    $self->{servers} = [$master, $replica];
    $self->_start_sentinel($master->port) foreach 1 .. SENTINELS;

    $self->wait_for_replica($replica);

    return $self;
}


sub name { return $_[0]{name} }

sub servers { return @{ $_[0]{servers} } }

sub ports { return map { $_->{port} } @{ $_[0]{sentinels} } }

sub urls {
    my ($self) = @_;
    return join ' ', map { "redis://127.0.0.1:$_" } $self->ports;
}


# What a sentinel (the first one) says

sub master {
    my ($self) = @_;
    my (undef, $port) = $self->ask(0, 'get-master-addr-by-name',
                                   $self->{name});

    my ($master) = grep { $_->port == ($port || 0) } $self->servers;

    return $master || die "no sentinel knows the master\n";
}


sub other {
    my ($self, $server) = @_;
    return (grep { $_ != $server } $self->servers)[0];
}


# The lines of a sentinel's answer

sub ask {
    my ($self, $i, @words) = @_;

    open my $pipe, '-|', 'sh', '-c', 'exec redis-cli "$@" 2> /dev/null',
                   'sh', '-p', $self->{sentinels}[$i]{port}, 'SENTINEL', @words
        or die "redis-cli: $!\n";
    chomp(my @lines = <$pipe>);
    close $pipe;

    return @lines;
}


sub failover {
    my ($self) = @_;
    my $old = $self->master;

    # sentinels refuse while they are still at the one before

    _until(15, 'a failover', sub {
        return ($self->ask(0, 'failover', $self->{name}))[0] eq 'OK';
    });

    return $self->wait_for_another($old);
}


# The next master, once every sentinel names it and it takes writes

sub wait_for_another {
    my ($self, $old) = @_;
    my $new = $self->other($old);

    _until(20, 'another master', sub {
        return !grep { (($self->ask($_, 'get-master-addr-by-name',
                                    $self->{name}))[1] || 0) != $new->port }
                     0 .. SENTINELS - 1;
    });

    _until(10, 'its promotion', sub {
        return ($new->info('replication')->{role} || '') eq 'master';
    });

    return $new;
}


# The old master is a replica of the new one, with all that it has

sub wait_for_replica {
    my ($self, $replica) = @_;

    _until(30, 'a replica', sub {
        my $info = $replica->info('replication');
        return ($info->{role} || '') eq 'slave'
               && $info->{master_link_status} eq 'up';
    });

    _until(20, 'sentinels', sub { $self->_knows_all });

    return;
}


sub _knows_all {
    my ($self) = @_;

    foreach my $i (0 .. SENTINELS - 1) {
        my %about = $self->ask($i, 'master', $self->{name});

        return 0 unless ($about{'num-slaves'} || 0) == 1
                        && $about{'num-other-sentinels'} == SENTINELS - 1
                        && $about{flags} eq 'master';

        # what it says of the link to its master may be ten seconds old

        my %replica = $self->ask($i, 'replicas', $self->{name});

        return 0 unless ($replica{flags} || '') eq 'slave';
    }

    return 1;
}


sub _start_sentinel {
    my ($self, $master) = @_;
    my $port = IapGuard::RedisServer::free_port();
    my $file = $self->{scratch}->dirname . "/$port";

    open my $conf, '>', "$file.conf" or die "$file.conf: $!\n";
    print {$conf} <<"END";
port $port
bind 127.0.0.1
dir @{[ $self->{scratch}->dirname ]}
sentinel monitor $self->{name} 127.0.0.1 $master 2
sentinel down-after-milliseconds $self->{name} @{[ DOWN_AFTER ]}
sentinel failover-timeout $self->{name} 3000
END
    close $conf or die "$file.conf: $!\n";

    push @{ $self->{sentinels} }, { port => $port, file => $file };
    $self->_run($self->{sentinels}[-1]);

    return;
}


sub stop_sentinels {
    my ($self) = @_;
    delete($_->{child})->stop foreach @{ $self->{sentinels} };
    return;
}


sub start_sentinels {
    my ($self) = @_;
    $self->_run($_) foreach @{ $self->{sentinels} };
    _until(20, 'sentinels', sub { $self->_knows_all });
    return;
}


sub _run {
    my ($self, $sentinel) = @_;

    $sentinel->{child} = IapGuard::Child->program(
        { output => "$sentinel->{file}.out" },
        $ENV{REDIS_SERVER} || 'redis-server', "$sentinel->{file}.conf", '--sentinel');

    return;
}


sub _until {
    my ($seconds, $what, $condition) = @_;
    my $until = IapGuard::Loop::now() + $seconds;

    until ($condition->()) {
        die "no $what within $seconds seconds\n"
            if IapGuard::Loop::now() > $until;
        sleep 0.05;
    }

    return;
}


1;
