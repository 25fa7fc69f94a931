#!/usr/bin/perl

# The ledger in a Cluster, whose slots move and whose nodes die, and behind
# Sentinels, whose master is another one.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(sleep);

use IapGuard::DrainTest;
use IapGuard::Nginx;
use IapGuard::RedisCluster;
use IapGuard::RedisSentinel;

use constant MOVED => 20;   # seconds in which what was spooled has to be moved

my %paths = IapGuard::Nginx->options;

cluster();
sentinel();

done_testing;


sub machine {
    my ($words) = @_;

    my $machine = IapGuard::DrainTest->new(
        paths => \%paths, workers => 2, breaker => undef,
        http  => "iap_guard_redis $words timeout=1s;",
        queue => 'rate=2000r/s concurrency=32 attempts=1000 retry_min=100ms '
               . 'retry_max=400ms');

    $machine->peers->always('/verify', 'http:503');
    sleep 1;

    return $machine;
}


sub settled {
    my ($seconds, $condition) = @_;
    return IapGuard::Nginx->wait_for($seconds, $condition);
}


sub put {
    my ($machine, $n, $name) = @_;

    my @tickets = $machine->put_many($n, body => sub { { id => "$name$_[0]" } },
                                     user => sub { "$name." . $_[0] % 7 });
    is scalar(grep { defined } @tickets), $n, "$name: all are accepted";

    return @tickets;
}


sub known {
    my ($machine, $status, @tickets) = @_;

    return settled(MOVED, sub {
        return !grep { $machine->ticket($_)->{status} ne $status } @tickets;
    });
}


sub pending {
    my ($node) = @_;
    return $node->cli('ZCARD', 'iap:{q:receipts}:pending');
}


sub spooled { return $_[0]->queue->{spooled} }


# all are verified, and told of by one id each

sub ends {
    my ($name, $machine, @tickets) = @_;

    $machine->peers->always('/verify', undef);
    ok known($machine, 'verified', @tickets), "$name: all are verified";

    my %ids;
    settled(15, sub {
        %ids = ();
        $ids{ $_->{id} }++ foreach $machine->hooks;
        return keys %ids >= @tickets;
    });

    is join(' ', sort keys %ids), join(' ', sort map { "msg_$_" } @tickets),
        "$name: and told of";

    $machine->end;

    return;
}


sub cluster {
    my $redis = IapGuard::RedisCluster->new;

    foreach my $node ($redis->nodes) {
        $node->command('CONFIG', 'SET', 'appendfsync', 'always');
        $node->command('CONFIG', 'SET', 'appendonly', 'yes');
    }

    my $slot    = $redis->slot('iap:{q:receipts}:entry');
    my $machine = machine($redis->urls . ' mode=cluster');
    my $owner   = $redis->owner($slot);
    my @tickets = put($machine, 30, 'c');

    is pending($owner), 30, 'cluster: all are in the node of the slot';
    ok known($machine, 'pending', @tickets), 'cluster: and found';

    # neither node has all keys: nothing can be asked meanwhile

    my ($to) = grep { $_ != $owner && $redis->owner(0) != $_
                      && $_->info('replication')->{role} eq 'master' }
               $redis->nodes;

    $redis->move($slot, $to, sub { push @tickets, put($machine, 20, 'm') });
    ok spooled($machine) > 0, 'moved: the file kept what came meanwhile';
    push @tickets, put($machine, 10, 'n');

    ok settled(MOVED, sub { spooled($machine) == 0 && pending($to) == 60 }),
        'moved: all are in the other node';
    ok known($machine, 'pending', @tickets), 'moved: and found';
    ok !$machine->nginx->log_lines(qr/\[error\].*CROSSSLOT/),
        'moved: all keys of a queue are in one slot';

    $to->kill;
    push @tickets, put($machine, 20, 'k');
    is spooled($machine), 20, 'killed: the file keeps what comes';
    $to->start('--appendonly', 'yes', '--appendfsync', 'always');
    $redis->wait_until_well;

    ok settled(MOVED, sub { spooled($machine) == 0 && pending($to) == 80 }),
        'back: and hands it over';
    ends('cluster', $machine, @tickets);

    return;
}


sub sentinel {
    my $redis   = IapGuard::RedisSentinel->new;
    my $machine = machine($redis->urls . ' mode=sentinel durability=replica'
                          . ' master=' . $redis->name);
    my $master  = $redis->master;
    my @tickets = put($machine, 30, 's');

    is pending($_), 30, 'sentinel: all are in master and replica'
        foreach $redis->servers;

    my $next = $redis->failover;
    push @tickets, put($machine, 20, 'f');
    $redis->wait_for_replica($master);

    ok settled(MOVED, sub { spooled($machine) == 0 && pending($next) == 50 }),
        'failover: all are in the other one';
    ok known($machine, 'pending', @tickets), 'failover: and found';

    # there is none left to confirm anything

    $next->kill;
    push @tickets, put($machine, 20, 'k');
    $redis->wait_for_another($next);

    ok settled(MOVED, sub { pending($master) >= 50 }),
        'killed: nothing is lost that was accepted';
    ok known($machine, 'pending', @tickets), 'killed: all are found';
    push @tickets, put($machine, 10, 'l');
    ok settled(MOVED, sub {
        $machine->nginx->log_lines(qr/less than "durability=replica": it has no replica/)
    }), 'killed: one alone is not enough';

    $next->start('--replicaof', '127.0.0.1', $master->port);
    ok settled(MOVED, sub { spooled($machine) == 0 && pending($master) == 80 }),
        'back: two are';
    ends('sentinel', $machine, @tickets);

    return;
}
