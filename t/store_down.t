# Several nodes, several workers: whose node is down is told once each way, and
# iap_guard_store_up is 0 as long as any worker finds one down; also if that
# worker is no more.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(sleep);

use lib 't/lib';
use IapGuard::LoadClient;
use IapGuard::Loop;
use IapGuard::RedisCluster;
use IapGuard::StoreTest;

use constant HALF => 8192;


# a cluster of two, each with half of the slots

my $redis = IapGuard::RedisCluster->new(masters => 2, replicas => 0);
my @nodes = $redis->nodes;
my $names = 0;


subtest 'each node is told of, and all workers agree' => sub {
    my ($nginx, %get) = machine();
    my ($one, $two) = sort keys %get;

    is $get{$_}->(users_of(1)), 'redis', 'before' foreach $one, $two;

    writable(1, 0);
    $get{$one}->(users_of(1)) foreach 1 .. 6;
    is told($nginx), '1 down', 'one worker finds a node down';
    ok !up($nginx), 'the store is not up';

    # the other worker knows nothing of it, and asks the other node

    foreach (1 .. 5) {
        is $get{$two}->(users_of(0)), 'redis', 'the other node decides';
        sleep 0.3;
        ok !up($nginx), 'the store is still not up';
    }

    is told($nginx), '1 down', 'nothing else is told';

    writable(0, 0);
    $get{$_}->(users_of(0)) foreach ($one, $two) x 6;
    is told($nginx), '1 down, 0 down', 'the other one is down, too';

    writable(1, 1);
    ok $nginx->wait_for(3, sub { told($nginx) =~ /up/ }), 'one comes up';
    is told($nginx), '1 down, 0 down, 1 up', 'which is told';
    ok !up($nginx), 'the store is not, as long as the other is down';

    writable(0, 1);
    ok $nginx->wait_for(3, sub { up($nginx) }), 'then it is';
    is told($nginx), '1 down, 0 down, 1 up, 0 up', 'which is told';

    ends_well($nginx);
};


subtest 'a worker that is killed' => sub {
    my ($nginx, %get) = machine();
    my ($one, $two) = sort keys %get;

    writable(1, 0);
    $get{$one}->(users_of(1)) foreach 1 .. 6;
    ok !up($nginx), 'it finds a node down';

    kill 'KILL', $one;
    ok $nginx->wait_for(8, sub { up($nginx) }),
        'what nobody knows of any more is up';
    is told($nginx), '1 down', 'but that is not told';

    $get{$two}->(users_of(1)) foreach 1 .. 6;
    ok !up($nginx), 'another one finds it down';
    is told($nginx), '1 down', 'which is told already';

    writable(1, 1);
    ok $nginx->wait_for(3, sub { up($nginx) }), 'it comes up';
    is told($nginx), '1 down, 1 up', 'which is told';

    is join('', $nginx->complaints(qr/exited on signal 9/)), '',
        'no complaints';
    $nginx->stop;
};


done_testing;


# nginx, and a function for each worker's pid, which asks that worker: for a
# user, by whom it was decided

sub machine {
    my $nginx = site($nodes[0], 'mode=cluster timeout=300ms', workers => 2,
        listen => 'reuseport', http => 'add_header X-Worker $pid always;',
        server => '
        location /t { iap_guard g; iap_guard_user $arg_u capacity=2 rate=1r/h;
                      empty_gif; }');
    my %get;

    while (keys %get < 2) {
        my $loop   = IapGuard::Loop->new;
        my $client = IapGuard::LoadClient->new(loop => $loop,
            connections => 1, port => $nginx->port);
        my $get = sub {
            my $answer;
            $client->request({ method => 'GET', path => "/t?u=$_[0]" },
                             sub { $answer = shift });
            $loop->run_until(sub { $answer });
            return $answer->{headers};
        };

        $get{ $get->(users_of(0))->{'x-worker'} }
            = sub { return $get->(@_)->{'x-store'} };
    }

    return ($nginx, %get);
}


# a new user, with a bucket at that node

sub users_of {
    my ($node) = @_;

    while (1) {
        my $name = 'u' . $names++;

        return $name
            if $node == ($redis->slot("iap:g:user:$name") >= HALF ? 1 : 0);
    }
}


# Bans are read from such a node all the same.

sub writable {
    my ($node, $writable) = @_;

    $nodes[$node]->cli(qw(CONFIG SET min-replicas-to-write), $writable ? 0 : 1);

    return;
}


sub up { return $_[0]->metrics->{iap_guard_store_up} }


# "0 down, 1 up": the lines of the log

sub told {
    my ($nginx) = @_;
    my %number = map { $nodes[$_]->node => $_ } 0, 1;

    return join ', ', map { / redis (\S+) is (down|up)/ ? "$number{$1} $2" : () }
                      $nginx->log_lines(qr/\[error\].* redis \S+ is /);
}
