#!/usr/bin/perl

# iap_guard_stock_up while one node of a Cluster could lose promo codes, and
# the others are well: it is 0 for as long as that is so, whoever asks for which
# code, whichever worker ends; and not for ever when that node is gone.
#
# Runs beside others.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(sleep);

use IapGuard::CodeTest;
use IapGuard::Loop;
use IapGuard::Nginx;
use IapGuard::RedisCluster;

use constant {
    FOUND   => 12,      # seconds until a node was looked at
    WATCHED => 6,
    KEPT    => 15,      # seconds that a node which is gone is remembered
};

my %paths   = IapGuard::Nginx->options;
my $redis   = IapGuard::RedisCluster->new(masters => 3, replicas => 0);
my $left    = $redis->add;
my @nodes   = $redis->nodes;
my $user    = 0;

$_->command('CONFIG', 'SET', 'appendonly', 'yes') foreach @nodes;

my $lost    = qr/stock: redis could lose promo codes/;
my $again   = qr/stock: redis may have promo codes again/;
my $machine = IapGuard::CodeTest->new(paths => \%paths, workers => 2,
    redis => $redis, store_timeout => '2s', code => 'lease=30s');

# a code of each node, and one of a node that has no other

my ($good, $bad, $gone) = map { code_of($nodes[$_]) } 0 .. 2;

$machine->stock($_, 1000) foreach $good, $bad, $gone;
$redis->move(slot($gone), $left);
is redeem($_), 200, "$_: there" foreach $good, $bad, $gone;
is up(), 1, 'all are well';
is last_word(), '', 'nothing is said';

nobody_asks();
gone();
stays('another node', WATCHED);
workers_end();
well_and_not_again();

$machine->end($lost, $again, qr/exited on signal 9/,
              qr/redis(?: \S+)? is (?:down|up)|stock: redis/);
done_testing;


sub slot { return $redis->slot("iap:code:{$_[0]}:code") }

sub code_of {
    my ($node) = @_;
    return (grep { $redis->owner(slot($_)) == $node } map { "C$_" } 1 .. 99)[0];
}

sub redeem { return $machine->redeem($_[0], 'u' . $user++)->{status} }

sub up { return $machine->nginx->metrics->{iap_guard_stock_up} }

sub last_word {
    my ($line) = reverse $machine->nginx->log_lines(qr/$lost|$again/);
    return !defined $line ? '' : $line =~ $lost ? 'lost' : 'again';
}


# Until it is so

sub in_time {
    my ($name, $seconds, $condition) = @_;
    my $begun = IapGuard::Loop::now();

    ok($machine->nginx->wait_for($seconds, sub {
        sleep 0.1;
        return $condition->();
    }), $name) or diag up() . ' ' . last_word();
    note sprintf '%.1f s: %s', IapGuard::Loop::now() - $begun, $name;

    return;
}


# Whether it stays 0 for some seconds, in which others get their codes

sub stays {
    my ($name, $seconds) = @_;
    my $until = IapGuard::Loop::now() + $seconds;
    my ($n, $up, $sold) = (0, 0, 0);

    while (IapGuard::Loop::now() < $until) {
        $n++;
        $sold++ if redeem($good) == 200;
        $up++ if up();
        sleep 0.1;
    }

    is $up, 0, "$name: of $n times never up";
    is $sold, $n, "$name: other nodes give their codes";
    is last_word(), 'lost', "$name: and so was said last";

    return;
}


sub nobody_asks {
    $nodes[1]->command('CONFIG', 'SET', 'appendonly', 'no');
    in_time('nobody asks: found', FOUND, sub { !up() });
    is redeem($bad), 503, 'nobody asks: who does gets none';

    my ($line) = $machine->nginx->log_lines($lost);
    my $node = $nodes[1]->node;
    like $line, qr/none is reserved or changed on \Q$node\E/,
        'nobody asks: it is said of which';

    return;
}


sub workers_end {
    kill 'KILL', $machine->nginx->workers;
    $machine->nginx->wait_for(10, sub { $machine->nginx->workers == 2 });
    stays('workers have ended', 3);

    return;
}


# Another one is unfit, and then none of the Cluster's: when the first is well,
# that counts no more.

sub gone {
    $left->command('CONFIG', 'SET', 'appendonly', 'no');
    $left->command('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
    in_time('gone: not fit', FOUND, sub { redeem($gone) == 503 });
    $redis->move(slot($gone), $nodes[2]);
    in_time('gone: its code is elsewhere', 10, sub { redeem($gone) == 200 });

    return;
}


# All of that within a minute

sub well_and_not_again {
    $nodes[1]->command('CONFIG', 'SET', 'appendonly', 'yes');
    in_time('well: found', KEPT + FOUND,
            sub { up() && last_word() eq 'again' });
    is redeem($bad), 200, 'well: there are codes';

    $nodes[1]->command('CONFIG', 'SET', 'appendonly', 'no');
    in_time('not again: found', FOUND, sub { !up() });
    in_time('not again: said', 3, sub { last_word() eq 'lost' });

    return;
}
