package IapGuard::RedisCluster;

# A Redis Cluster on loopback: three masters, which share the slots evenly,
# and a replica of the first one.
#
#   my $redis = IapGuard::RedisCluster->new(masters => 3, replicas => 1);
#   $redis->urls;                       # for iap_guard_redis
#   my @nodes = $redis->nodes;          # IapGuard::RedisServer, in order
#   $redis->owner(5000);                # the node of a slot
#   $redis->add;                        # one more, without slots
#   $redis->move($slot, $to, sub { ... });      # see there
#   $redis->keys;                       # how many there are, in all masters

use strict;
use warnings;

use Time::HiRes qw(sleep);

use IapGuard::Loop;
use IapGuard::RedisServer;

use constant {
    SLOTS        => 16_384,
    NODE_TIMEOUT => 1000,       # ms
};


sub new {
    my ($class, %options) = @_;

    my $self = bless { masters => 3, replicas => 1, %options, nodes => [] },
                     $class;

    push @{ $self->{nodes} }, _node()
        foreach 1 .. $self->{masters} + $self->{replicas};

    $self->_share_slots;
    $self->_meet($_) foreach 1 .. $#{ $self->{nodes} };

    _until(20, 'cluster', sub { $self->is_well });

    foreach my $i (1 .. $self->{replicas}) {
        $self->_replicate($self->{nodes}[$self->{masters} + $i - 1],
                          $self->{nodes}[$i - 1]);
    }

    return $self;
}


sub nodes { return @{ $_[0]{nodes} } }

sub urls {
    my ($self) = @_;
    return join ' ', map { 'redis://' . $_->node } $self->nodes;
}


# Nodes that are killed have to be left out

sub is_well {
    my ($self, @nodes) = @_;
    @nodes = $self->nodes unless @nodes;

    foreach my $node (@nodes) {
        my $info = $node->cli('CLUSTER', 'INFO');

        return 0 unless $info =~ /cluster_state:ok/
                        && $info =~ /cluster_slots_ok:16384/
                        && $info =~ /cluster_known_nodes:(\d+)/
                        && $1 == $self->nodes;
    }

    return 1;
}


sub wait_until_well {
    my ($self, @nodes) = @_;
    _until(30, 'cluster', sub { $self->is_well(@nodes) });
    return;
}


sub id { return $_[1]->cli('CLUSTER', 'MYID') }


# { first slot => [last, port of the master] } as a node says

sub ranges {
    my ($self, $node) = @_;
    my %ranges;

    foreach my $line (split /\n/, $node->cli('CLUSTER', 'NODES')) {
        my (undef, $address, $flags, @words) = split / /, $line;
        next unless $flags =~ /master/ && $flags !~ /fail/;
        my ($port) = $address =~ /:(\d+)@/;

        foreach my $range (@words[5 .. $#words]) {
            $ranges{$1} = [defined $2 ? $2 : $1, $port]
                if $range =~ /^(\d+)(?:-(\d+))?$/;
        }
    }

    return \%ranges;
}


# As a node (the second one) says

sub owner {
    my ($self, $slot, $witness) = @_;
    my $ranges = $self->ranges($witness || $self->{nodes}[1]);

    foreach my $first (keys %$ranges) {
        my ($last, $port) = @{ $ranges->{$first} };
        next unless $slot >= $first && $slot <= $last;
        return (grep { $_->port == $port } $self->nodes)[0];
    }

    return;
}


sub add {
    my ($self) = @_;

    push @{ $self->{nodes} }, _node();
    $self->_meet($#{ $self->{nodes} });

    _until(20, 'cluster', sub { $self->is_well });

    return $self->{nodes}[-1];
}


# Moves a slot, as redis-cli does.  The code is called when both nodes know of
# it, and half of the keys (one, if there is only one) have gone.

sub move {
    my ($self, $slot, $to, $half) = @_;
    my $from = $self->owner($slot);

    $to->cli('CLUSTER', 'SETSLOT', $slot, 'IMPORTING', $self->id($from));
    $from->cli('CLUSTER', 'SETSLOT', $slot, 'MIGRATING', $self->id($to));

    my @keys = split /\n/, $from->cli('CLUSTER', 'GETKEYSINSLOT', $slot, 1000);
    my $n    = int((@keys + 1) / 2);

    _migrate($from, $to, @keys[0 .. $n - 1]) if $n;
    $half->(scalar @keys) if $half;

    # more may have come in the meantime

    @keys = split /\n/, $from->cli('CLUSTER', 'GETKEYSINSLOT', $slot, 1000);
    _migrate($from, $to, @keys) if @keys;

    my $id = $self->id($to);
    $_->cli('CLUSTER', 'SETSLOT', $slot, 'NODE', $id) foreach $to, $from;

    return;
}


sub keys {
    my ($self) = @_;
    my $sum = 0;

    foreach my $node ($self->nodes) {
        my $size = $node->cli('DBSIZE');
        $sum += $size if ($node->info('replication')->{role} || '') eq 'master'
                         && $size =~ /^\d+$/;
    }

    return $sum;
}


# The slot of a key: CRC-16 (XMODEM) of what is in its first braces, or of all

sub slot {
    my ($class, $key) = @_;
    my $crc = 0;

    $key = $1 if $key =~ /^[^{]*\{([^}]+)\}/;

    foreach my $byte (unpack 'C*', $key) {
        $crc ^= $byte << 8;
        $crc = ($crc << 1 ^ ($crc & 0x8000 ? 0x1021 : 0)) & 0xffff for 1 .. 8;
    }

    return $crc % SLOTS;
}


sub _node {
    return IapGuard::RedisServer->new(options => [
        '--cluster-enabled', 'yes', '--cluster-config-file', 'nodes.conf',
        '--cluster-node-timeout', NODE_TIMEOUT,
        '--repl-diskless-sync-delay', 0,
        '--cluster-port', IapGuard::RedisServer::free_port(),
    ]);
}


sub _share_slots {
    my ($self) = @_;
    my $n = $self->{masters};

    foreach my $i (0 .. $n - 1) {
        my $node = $self->{nodes}[$i];

        $node->cli('CLUSTER', 'SET-CONFIG-EPOCH', $i + 1);
        $node->cli('CLUSTER', 'ADDSLOTSRANGE', int(SLOTS * $i / $n),
                   int(SLOTS * ($i + 1) / $n) - 1);
    }

    return;
}


sub _meet {
    my ($self, $i) = @_;
    my $node = $self->{nodes}[$i];

    $self->{nodes}[0]->cli('CLUSTER', 'MEET', '127.0.0.1', $node->port,
                           $node->{options}[-1]);
    return;
}


sub _replicate {
    my ($self, $replica, $master) = @_;

    _until(10, 'replication', sub {
        return $replica->cli('CLUSTER', 'REPLICATE', $self->id($master))
               eq 'OK';
    });

    _until(20, 'replication', sub {
        return ($replica->info('replication')->{master_link_status} || '')
               eq 'up';
    });

    return;
}


sub _migrate {
    my ($from, $to, @keys) = @_;

    $from->cli('MIGRATE', '127.0.0.1', $to->port, '', 0, 5000, 'KEYS', @keys);
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
