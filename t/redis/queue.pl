#!/usr/bin/perl
#
# Runs lua/queue.lua against a redis-server of its own:
#
#     t/redis/queue.pl [--redis=PROGRAM]

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use Getopt::Long;
use Test::More;

use IapGuard::QueueScript qw(tickets);
use IapGuard::RedisServer;

use constant {
    PENDING => 0, VERIFIED => 1, REJECTED => 2, PARKED => 3, DEAD => 4,
    NONE => 0, DUE => 1, DONE => 2, GONE => 3,
    HOUR => 3_600_000, LONG => 1_000_000,
};

my $program = $ENV{REDIS_SERVER} || 'redis-server';
GetOptions('redis=s' => \$program) && !@ARGV
    or die "usage: $0 [--redis=PROGRAM]\n";

my $file  = "$FindBin::Bin/../../lua/queue.lua";
my $redis = IapGuard::RedisServer->new(program => $program);
my $queue;

put();
put_many();
fair();
fair_to_new_ones();
by_due();
bytes();
leases();
leases_of_a_machine();
lost_takes();
renewed();
handed_back();
settled();
settled_twice();
said_of_a_former_lease();
parked();
callbacks();
counted_and_listed();
retried();
swept();
paced();
clock();
imported();
imported_states();
met_again();
lost_by_the_server();
errors();
cut_off();
out_of_memory();
rights();
at_random();

done_testing;


sub fresh {
    return $queue = IapGuard::QueueScript->new($redis, $file, @_);
}


sub well {
    my ($name) = @_;
    is $queue->wrong, '', "$name: all is in its place";
    return;
}


# what an entry says, by the words that are named

sub says {
    my ($entry, @names) = @_;
    return $entry ? join ' ', map { $entry->{$_} } @names : 'none';
}


sub put {
    fresh();

    is $queue->find('t1'), undef, 'put: nothing is there';
    is $queue->put('t1', key => 'k1', user => 'u1'), 'ok t1', 'put';
    is $queue->put('t1', key => 'k1', user => 'u1'), 'ok t1',
        'put: once more, as its answer did not come';
    is $queue->put('t2', key => 'k1', user => 'u1'), 'duplicate t1',
        'put: the same key';
    is $queue->put('t3', key => 'k3', max => 1), 'full t3', 'put: full';
    is $queue->put('t4', key => 'k1', max => 1), 'duplicate t1',
        'put: the same key, although it is full';
    is $queue->counts, '1 0 0 0 0/0', 'put: one entry';
    is says($queue->find('t1'), qw(ticket key user status ended leases record)),
        't1 k1 u1 0 0 0 ', 'put: found, without its record';
    is $queue->find('t2'), undef, 'put: no entry of the duplicate';
    well('put');

    my @taken = $queue->take;
    is says($taken[0], qw(ticket record leases)), 't1 record-t1 1',
        'put: taken with its record';
    $queue->settle('t1', status => VERIFIED);
    is $queue->put('t5', key => 'k1'), 'duplicate t1',
        'put: the same key, when it is verified';
    is $queue->put('t6', key => 'k6', max => 1), 'ok t6',
        'put: what has ended takes no room';
    well('put');

    return;
}


sub put_many {
    fresh();

    is $queue->put_many(['a', key => 'k'], ['b'], ['c', key => 'k'],
                        ['d', max => 2], ['e', max => 3, user => 'v']),
        'ok a, ok b, duplicate a, full d, ok e', 'many: each by itself';

    my $big = 'x' x (512 * 1024);
    is $queue->put_many(map { ["g$_", record => "$big$_"] } 1 .. 15),
        join(', ', map { "ok g$_" } 1 .. 15), 'many: 8 MB';
    is $queue->put_many(map { ["h$_"] } 1 .. 64),
        join(', ', map { "ok h$_" } 1 .. 64), 'many: 64';
    well('many');

    # a write for each, that WAIT and WAITAOF can wait for

    my $changes = $redis->info('persistence')->{rdb_changes_since_last_save};
    $queue->put('x', key => 'k');
    cmp_ok $redis->info('persistence')->{rdb_changes_since_last_save}, '>',
        $changes, 'many: a duplicate is written, too';

    return;
}


# One user puts very much: the others have their turns all the same.

sub fair {
    fresh();

    $queue->put("a$_", user => 'a') for 1 .. 6;
    $queue->put("b$_", user => 'b') for 1 .. 2;
    $queue->put('c1', user => 'c');

    is tickets($queue->take(count => 4)), 'a1 b1 c1 a2', 'fair: in turns';
    is tickets($queue->take(count => 2)), 'b2 a3', 'fair: and on';
    $queue->put('d1', user => 'd');
    is tickets($queue->take(count => 9)), 'a4 d1 a5 a6', 'fair: a new one';
    is tickets($queue->take(count => 9)), '', 'fair: all are taken';
    is $queue->{wait}, 1000, 'fair: and nothing is due';
    well('fair');

    return;
}


# What comes again and again with new users does not keep others from theirs.

sub fair_to_new_ones {
    fresh();

    $queue->put("a$_", user => 'a') for 1 .. 3;
    my @order;

    foreach my $n (1 .. 6) {
        $queue->put("n$n", user => "n$n");
        push @order, $queue->take(count => 1);
    }

    is tickets(@order), 'a1 n1 a2 n2 n3 a3', 'new users: each has its turn';

    # users' names that begin alike, or look like what stands behind them

    fresh();
    $queue->put($_, user => $_) for 'a', 'aa', 'a0', 'wa', 'ca', "a\1";
    is tickets($queue->take), "a aa a0 wa ca a\1", 'users: none is another';
    well('users');

    return;
}


sub by_due {
    fresh();

    $queue->put($_) for qw(t1 t2 t3);
    $queue->take;
    is $queue->settle('t1', delay => 60), 'ok', 'due: put off';
    is $queue->settle('t2', delay => 20), 'ok', 'due: less';
    is $queue->settle('t3', delay => LONG), 'ok', 'due: for long';
    is tickets($queue->take), '', 'due: nothing yet';
    cmp_ok $queue->{wait}, '<=', 20, 'due: when it will be';
    cmp_ok $queue->{wait}, '>=', 1, 'due: not at once';
    $queue->pause(80);
    is tickets($queue->take), 't2 t1', 'due: the one first that waits longest';
    is says($queue->find('t3'), qw(status leases work)), '0 0 1,0,0',
        'due: the third waits';
    well('due');

    return;
}


sub bytes {
    fresh();

    $queue->put("t$_", user => "u$_", record => 'x' x 1000) for 1 .. 5;
    is tickets($queue->take(bytes => 1)), 't1', 'bytes: one at least';
    is tickets($queue->take(bytes => 2000)), 't2 t3', 'bytes: until it is so many';
    is tickets($queue->take(bytes => 2001)), 't4 t5', 'bytes: or more';

    return;
}


sub leases {
    fresh();

    $queue->put('t1');
    is tickets($queue->take(machine => 1, session => 1, lease => 40)), 't1',
        'lease: taken';
    is tickets($queue->take(machine => 2, session => 9)), '',
        'lease: by one alone';
    is tickets($queue->take(machine => 1, session => 1, lease => 40)), '',
        'lease: nor once more by the same';
    $queue->pause(60);
    is tickets($queue->take(machine => 1, session => 1)), '',
        'lease: not by the same, either, when it is over';
    my @taken = $queue->take(machine => 2, session => 9);
    is says($taken[0], qw(ticket leases)), 't1 2',
        'lease: by another, and counted';
    is $queue->settle('t1', machine => 1, session => 1, status => VERIFIED),
        'none', 'lease: the first one has it no more';
    is $queue->settle('t1', machine => 2, session => 8, status => VERIFIED),
        'none', 'lease: nor has another session';
    is $queue->settle('t1', machine => 2, session => 9, status => VERIFIED),
        'ok', 'lease: the second one has it';
    well('lease');

    return;
}


sub leases_of_a_machine {
    fresh();

    $queue->put("t$_", user => "u$_") for 1 .. 4;
    is tickets($queue->take(machine => 1, session => 1, count => 2)), 't1 t2',
        'machine: taken';
    is tickets($queue->take(machine => 2, session => 5, count => 1)), 't3',
        'machine: another one';
    is tickets($queue->take(machine => 1, session => 2)), 't4 t1 t2',
        'machine: its next session has them at once';
    is $queue->find('t1')->{leases}, 2, 'machine: and that is counted';
    is $queue->renew(1, 1), 0, 'machine: its former one has none';
    is $queue->renew(1, 2), 3, 'machine: but this one';

    is tickets($queue->take(machine => 2, session => 5)), '',
        'machine: the other one goes on';
    is $queue->settle('t3', machine => 2, session => 5), 'ok',
        'machine: with what it has';
    well('machine');

    return;
}


# A take whose answer did not come, and which may be carried out late.

sub lost_takes {
    fresh();

    $queue->put("t$_", user => "u$_") for 1 .. 6;
    is tickets($queue->take(number => 1, count => 1)), 't1', 'lost take: one';
    is tickets($queue->take(number => 2, count => 2)), 't2 t3',
        'lost take: its answer does not come';
    is tickets($queue->take(number => 3, count => 1)), 't4',
        'lost take: nor that of the next';
    is tickets($queue->take(number => 4, count => 2, machine => 2)), 't5 t6',
        'lost take: another machine\'s';
    is $queue->renew(1, 1), 4, 'lost take: their leases are renewed, too';

    is tickets($queue->take(number => 5, lost => [2, 3])), 't2 t3 t4',
        'lost take: what they leased is due at once';
    is $queue->find($_)->{leases}, 1, 'lost take: and was not leased in vain'
        for 't2', 't4';
    is $queue->find('t1')->{leases}, 1, 'lost take: others are left';

    $queue->back(1, 1);
    is tickets($queue->take(number => 3)), '', 'lost take: it comes late';
    is $queue->{paced}, 0, 'lost take: and is told nothing';
    is tickets($queue->take(number => 6, count => 1)), 't1',
        'lost take: a newer one is not';
    is tickets($queue->take(number => 1, session => 2, count => 1)), 't2',
        'lost take: nor another session\'s';
    well('lost take');

    # of work, while callbacks are under way

    fresh();
    $queue->put("t$_", user => "u$_") for 1 .. 2;
    $queue->take(number => 1, count => 1);
    $queue->settle('t1', status => VERIFIED, callback => 1);
    is tickets($queue->take(what => 'c', number => 1)), 't1',
        'lost take: a callback';
    is tickets($queue->take(number => 2, lost => [1, 1])), 't2',
        'lost take: of work';
    is tickets($queue->take(what => 'c', number => 2)), '',
        'lost take: callbacks have their own numbers';
    is tickets($queue->take(what => 'c', number => 3, lost => [1, 2])), 't1',
        'lost take: and are lost likewise';
    well('lost take');

    return;
}


sub renewed {
    fresh();

    $queue->put('t1');
    $queue->take(lease => 50);
    is $queue->renew(1, 1, 100), 1, 'renew: one';
    $queue->pause(70);
    is tickets($queue->take(machine => 2, session => 2)), '', 'renew: it lasts';
    is $queue->renew(2, 1), 0, 'renew: not of another machine';
    is $queue->renew(1, 2), 0, 'renew: not of another session';
    $queue->pause(50);
    is tickets($queue->take(machine => 2, session => 2)), 't1', 'renew: over';

    return;
}


sub handed_back {
    fresh();

    $queue->put("t$_", user => "u$_") for 1 .. 3;
    my @taken = $queue->take;
    is $queue->back(1, 2), 0, 'back: another session has none';
    is $queue->back(1, 1, $taken[1]{number}), 1, 'back: one of them';
    is $queue->back(1, 1, $taken[1]{number}), 0, 'back: once';
    is $queue->back(1, 1, 999), 0, 'back: one that is none';
    is says($queue->find('t2'), 'leases'), 0, 'back: it was not leased in vain';
    is tickets($queue->take), 't2', 'back: due at once';
    is $queue->back(1, 1), 3, 'back: all';
    is tickets($queue->take(machine => 2, session => 7)), 't1 t3 t2',
        'back: for all';
    well('back');

    return;
}


sub settled {
    my @ends = ([VERIFIED, 'record goes'], [REJECTED, 'record goes'],
                [DEAD, 'record stays']);

    fresh();

    foreach my $end (@ends) {
        my ($status, $name) = @$end;
        my $ticket = "t$status";

        $queue->put($ticket);
        $queue->take;
        is $queue->settle($ticket, status => $status, work => '3,1,1',
                          result => '{"a":1}'), 'ok', "settled $status";
        my $entry = $queue->find($ticket);
        is says($entry, qw(status work leases callback result)),
            "$status 3,1,1 0 0 {\"a\":1}", "settled $status: as was said";
        cmp_ok $entry->{ended}, '>=', $entry->{created}, "settled $status: when";
        is $redis->command('HEXISTS', $queue->key('record'), $ticket),
            $name =~ /stays/ ? 1 : 0, "settled $status: its $name";
    }

    is $queue->counts, '0 1 1 0 1/0', 'settled: counted';
    is $queue->settle('none'), 'none', 'settled: none such';
    well('settled');

    return;
}


# the answer did not come, so it is said again

sub settled_twice {
    fresh();

    $queue->put('t1');
    $queue->take;
    is $queue->settle('t1', delay => LONG, work => '1,0,0'), 'ok', 'twice: again';
    my $due = $queue->find('t1')->{due};
    is $queue->settle('t1', delay => 2 * LONG, work => '1,0,0'), 'ok',
        'twice: once more';
    is $queue->find('t1')->{due}, $due, 'twice: and nothing happens';
    is $queue->settle('t1', status => VERIFIED), 'none',
        'twice: something else is none of its business';
    is $queue->settle('t1', session => 2, delay => 1), 'none',
        'twice: nor is it another session\'s';

    fresh();
    $queue->put('t1');
    $queue->take;
    is $queue->settle('t1', status => VERIFIED, callback => 1), 'ok',
        'twice: verified';
    is $queue->settle('t1', status => VERIFIED, callback => 1), 'ok',
        'twice: verified, once more';
    is $queue->counts, '0 1 0 0 0/1', 'twice: one callback';
    $queue->take(what => 'c');
    is $queue->settle('t1', status => VERIFIED, callback => 1), 'none',
        'twice: the callback is on its way';
    is $queue->deliver('t1'), 'ok', 'twice: delivered';
    is $queue->deliver('t1'), 'ok', 'twice: delivered, once more';
    is $queue->deliver('t1', callback => GONE), 'none',
        'twice: but nothing else';
    is $queue->counts, '0 1 0 0 0/0', 'twice: no callback is left';
    well('twice');

    return;
}


# Its answer did not come, and it is said again when the same session has the
# entry by its next take.

sub said_of_a_former_lease {
    fresh();

    $queue->put('t1');
    $queue->take(number => 1);
    is $queue->settle('t1', of => 1), 'ok', 'former: settled, as pending';
    is tickets($queue->take(number => 2)), 't1', 'former: taken again';
    is $queue->settle('t1', of => 1), 'ok', 'former: which was done';
    is tickets($queue->take(number => 3)), '',
        'former: and does not end the lease of now';
    is $queue->settle('t1', of => 1, status => DEAD), 'none',
        'former: nor does something else';
    is $queue->settle('t1', of => 2, status => VERIFIED, callback => 1), 'ok',
        'former: which ends by its own verdict';
    is $queue->settle('t1', of => 1), 'none', 'former: and is not begun anew';
    is says($queue->find('t1'), 'status'), VERIFIED, 'former: verified';
    well('former');

    # callbacks likewise

    $queue->take(what => 'c', number => 4);
    is $queue->settle('t1', of => 2, status => VERIFIED, callback => 1), 'ok',
        'former: the verdict once more, while it is told of';
    is $queue->deliver('t1', of => 4, callback => DUE), 'ok',
        'former: a callback failed';
    is tickets($queue->take(what => 'c', number => 5)), 't1',
        'former: and is taken again';
    is $queue->deliver('t1', of => 4, callback => DUE), 'ok',
        'former: which was done';
    is $queue->deliver('t1', of => 4), 'none', 'former: it was not delivered';
    is says($queue->find('t1'), 'deliveries'), 1, 'former: counted once';
    is $queue->deliver('t1', of => 5), 'ok', 'former: delivered by the next';
    well('former');

    # handed back

    fresh();
    $queue->put('t1');
    my $e = $queue->take(number => 1);
    is $queue->back(1, 1, $e->{number}, 1), 1, 'former: handed back';
    $queue->take(number => 2);
    is $queue->back(1, 1, $e->{number}, 1), 0, 'former: once';
    is tickets($queue->take(number => 3)), '', 'former: it is leased';
    is $queue->back(1, 1, $e->{number}, 2), 1, 'former: and goes back by that';

    # a verdict of a lease that was lost, while nothing else is known

    $queue->take(number => 4);
    is $queue->settle('t1', of => 1, status => REJECTED), 'ok',
        'former: a verdict is one';
    is $queue->settle('t1', of => 4, status => VERIFIED), 'none',
        'former: and there is but one';
    is says($queue->find('t1'), 'status'), REJECTED, 'former: the first';
    well('former');

    # who does not name it, as before

    fresh();
    $queue->put('t1');
    $queue->take(number => 1);
    $queue->settle('t1');
    $queue->take(number => 2);
    is $queue->settle('t1', delay => LONG), 'ok', 'former: by no number';
    is tickets($queue->take), '', 'former: any is meant';

    return;
}


sub parked {
    fresh();

    $queue->put('t1');
    $queue->take;
    is $queue->settle('t1', status => PARKED), 'ok', 'parked';
    is says($queue->find('t1'), qw(status ended)), '3 0', 'parked: not ended';
    is $queue->sweep(0), 0, 'parked: not swept';
    is tickets($queue->take), '', 'parked: not due';
    is $queue->retry('t1'), 1, 'parked: tried again';
    my @taken = $queue->take;
    is says($taken[0], qw(ticket record work leases)), 't1 record-t1  1',
        'parked: as if it were new';
    well('parked');

    return;
}


sub callbacks {
    fresh();

    $queue->put("t$_", user => $_ < 3 ? 'u' : 'v') for 1 .. 3;
    $queue->take;
    $queue->settle("t$_", status => VERIFIED, callback => 1, result => "r$_")
        for 1 .. 3;

    is $queue->counts, '0 3 0 0 0/3', 'callback: three are due';
    is tickets($queue->take), '', 'callback: none of them is work';
    is $queue->sweep(-1000), 0, 'callback: not swept';

    my @taken = $queue->take(what => 'c');
    is tickets(@taken), 't1 t3 t2', 'callback: taken, in turns';
    is says($taken[0], qw(result record leases)), 'r1  1',
        'callback: with the result';
    is $queue->settle('t1', status => VERIFIED), 'none',
        'callback: nothing to settle';
    is $queue->deliver('t1'), 'ok', 'callback: delivered';
    is $queue->deliver('t2', callback => GONE), 'ok', 'callback: gone';
    is $queue->deliver('t3', callback => DUE, delay => 30), 'ok',
        'callback: failed';
    is says($queue->find('t3'), qw(callback deliveries leases)), '1 1 0',
        'callback: which is counted';
    is tickets($queue->take(what => 'c')), '', 'callback: not yet again';
    $queue->pause(40);
    is tickets($queue->take(what => 'c', machine => 2, session => 4)), 't3',
        'callback: again';
    is $queue->deliver('t3'), 'none', 'callback: another one has it';
    is $queue->deliver('t3', machine => 2, session => 4), 'ok',
        'callback: and delivers';
    is says($queue->find('t3'), qw(callback deliveries)), '2 1',
        'callback: one had failed';
    is $queue->counts, '0 3 0 0 0/0', 'callback: none is left';
    well('callback');

    return;
}


sub counted_and_listed {
    fresh();

    is $queue->counts, '0 0 0 0 0/0', 'list: nothing';
    is_deeply [$queue->list], [], 'list: indeed';

    $queue->put("t$_", user => "u$_") for 1 .. 6;
    $queue->take;
    $queue->settle('t2', status => VERIFIED, callback => 1, result => 'r');
    $queue->settle('t3', status => DEAD);
    $queue->settle('t5', status => VERIFIED);
    $queue->settle('t6', status => PARKED);

    my @all = $queue->list;
    is tickets(@all), 't1 t2 t3 t4 t5 t6', 'list: all, the oldest first';
    is says($all[1], qw(result record)), ' ', 'list: without what weighs';
    is tickets($queue->list(count => 2)), 't1 t2', 'list: two of them';
    is tickets($queue->list(count => 2, after => $all[1]{number})), 't3 t4',
        'list: the next two';
    is tickets($queue->list(status => VERIFIED)), 't2 t5', 'list: by status';
    is tickets($queue->list(status => VERIFIED, after => $all[1]{number})),
        't5', 'list: by status, behind another';
    is tickets($queue->list(status => REJECTED)), '', 'list: of none';
    is $queue->counts, '2 2 0 1 1/1', 'list: as many as are counted';

    my @count = @{ $queue->call('count') };
    is $count[7], $all[0]{created}, 'count: the oldest that is pending';
    cmp_ok $count[8], '>=', $count[7], 'count: and the time';

    return;
}


sub retried {
    fresh();

    $queue->put("t$_", user => "u$_") for 1 .. 8;
    $queue->take;
    $queue->settle("t$_", status => DEAD, callback => 1, result => 'r') for 1 .. 3;
    $queue->settle("t$_", status => PARKED) for 4 .. 6;
    $queue->settle('t7', status => VERIFIED);
    is $queue->counts, '1 1 0 3 3/3', 'retry: so many';

    is $queue->retry('t7'), 0, 'retry: not what is verified';
    is $queue->retry('none'), 0, 'retry: nor what is not there';
    is $queue->retry('t1'), 1, 'retry: one that is dead';
    is $queue->counts, '2 1 0 3 2/2', 'retry: its callback is none any more';
    is says($queue->find('t1'), qw(status ended result callback)), '0 0  0',
        'retry: nor has it a result';
    $queue->take(what => 'c', count => 1);
    is $queue->retry('t2'), 1, 'retry: one whose callback is on its way';
    is $queue->deliver('t2'), 'none', 'retry: and is none any more';
    is $queue->retry('', 2), 2, 'retry: so many of all';
    is $queue->retry, 2, 'retry: and the rest';
    is $queue->retry, 0, 'retry: none is left';
    is $queue->counts, '7 1 0 0 0/0', 'retry: all are pending';
    is scalar(@{[ $queue->take ]}), 6, 'retry: and due';
    well('retry');

    return;
}


sub swept {
    fresh();

    $queue->put("t$_") for 1 .. 5;
    $queue->take;
    $queue->settle("t$_", status => VERIFIED, result => 'r') for 1 .. 3;
    $queue->settle('t4', status => DEAD, callback => 1);
    $queue->pause(30);

    is $queue->sweep(HOUR), 0, 'sweep: not so soon';
    is $queue->sweep(10, 2), 2, 'sweep: so many';
    is $queue->sweep(10), 1, 'sweep: the rest, but no callback, no work';
    is $queue->counts, '1 0 0 0 1/1', 'sweep: gone';
    is $queue->find('t1'), undef, 'sweep: not found';
    is $queue->put('t9', key => 'key-t1'), 'ok t9', 'sweep: its key is free';
    $queue->take(what => 'c');
    $queue->deliver('t4');
    $queue->pause(20);
    is $queue->sweep(10), 1, 'sweep: when it has been told of';
    well('sweep');

    # nothing is left of it

    fresh();
    $queue->put('t1');
    $queue->take;
    $queue->settle('t1', status => VERIFIED, result => 'r');
    $queue->bring(['t2', key => 'key-t1']);
    $queue->pause(2);
    is $queue->sweep(1), 1, 'sweep: an entry of two names';
    is join(' ', sort map { s/.*://r }
                 @{ $redis->command('KEYS', "*{q:$queue->{name}}*") }),
        'count machine', 'sweep: nothing is left but numbers';

    return;
}


sub paced {
    fresh();

    # 20 calls a second for all machines; a take may be a moment late

    $queue->put("t$_", user => "u$_") for 1 .. 100;
    my $taken = 0;

    is scalar(@{[ $queue->take(interval => 50, count => 9) ]}), 1,
        'pace: one, at first';

    foreach my $step (1 .. 50) {
        my $machine = $step % 3 + 1;
        my @taken = $queue->take(interval => 50, count => 9, session => $machine,
                                 machine => $machine);

        if (!@taken) {
            is $queue->{paced}, 1, "pace: step $step has none"
                if $queue->{paced} != 1;
            cmp_ok $queue->{wait}, '<=', 50, "pace: step $step: for so long"
                if $queue->{wait} > 50;
        }

        $taken += @taken;
        $queue->pause(20);
    }

    cmp_ok $taken, '>=', 18, 'pace: 20 a second';
    cmp_ok $taken, '<=', 30, 'pace: and no more';

    # it is no more than it would have been

    $queue->pause(1000);
    cmp_ok scalar(@{[ $queue->take(interval => 50, count => 64) ]}), '<=', 3,
        'pace: what was not used is gone';

    is scalar(@{[ $queue->take(interval => 0, count => 5) ]}), 5,
        'pace: none is asked for';

    fresh();
    $queue->put('t1');
    $queue->take(interval => 1000);
    $queue->settle('t1', status => VERIFIED, callback => 1);
    $queue->take(interval => 1000);
    is $queue->{paced}, 1, 'pace: nothing now';
    is tickets($queue->take(what => 'c', interval => 1000)), 't1',
        'pace: callbacks have none';

    return;
}


# The server's clock is set back, after a failover perhaps.

sub clock {
    fresh();

    $queue->put('t0');
    $queue->clock_back(HOUR);
    is tickets($queue->take), 't0', 'clock: what was put in the future is due';
    is $queue->back(1, 1), 1, 'clock: handed back';
    is tickets($queue->take(retry_max => 2 * HOUR)), 't0',
        'clock: due, as it was';
    is $queue->settle('t0', delay => 0), 'ok', 'clock: again';
    is tickets($queue->take(retry_max => 2 * HOUR)), 't0',
        'clock: due, too';

    fresh();
    $queue->put("t$_") for 1 .. 2;
    $queue->take(lease => 15_000);
    $queue->settle('t1', delay => 10_000);
    $queue->clock_back(HOUR);
    is tickets($queue->take(machine => 2, session => 1, retry_max => 60_000)),
        't2 t1', 'clock: leases of then are over, delays are';
    well('clock');

    fresh();
    $queue->put("t$_") for 1 .. 2;
    $queue->take;
    $queue->settle("t$_", delay => 10_000) for 1 .. 2;
    $queue->clock_back(5_000);
    is tickets($queue->take(retry_max => 60_000)), '',
        'clock: a delay that may be one is';
    is tickets($queue->take(retry_max => 0)), '',
        'clock: all may, where the longest is not known';

    fresh();
    $queue->put("t$_") for 1 .. 3;
    is scalar(@{[ $queue->take(interval => 100, count => 1) ]}), 1,
        'clock: one at a pace';
    $queue->clock_back(HOUR);
    is scalar(@{[ $queue->take(interval => 100, count => 1) ]}), 1,
        'clock: the pace goes on';
    is scalar(@{[ $queue->take(interval => 100, count => 1) ]}), 0,
        'clock: as a pace';

    fresh();
    $queue->put('t1');
    $queue->take;
    $queue->settle('t1', status => VERIFIED, callback => 1);
    $queue->clock_back(HOUR);
    is tickets($queue->take(what => 'c')), 't1', 'clock: a callback is due';
    $queue->deliver('t1', callback => DUE, delay => 5);
    $queue->pause(10);
    is tickets($queue->take(what => 'c')), 't1', 'clock: and once more';

    return;
}


sub imported {
    fresh();

    is $queue->bring(['a1', user => 'a', age => 5000, leases => 3,
                      work => '2,0,0'],
                     ['a2', user => 'a', delay => 40]),
        'ok ok', 'import: two';
    is $queue->counts, '2 0 0 0 0/0', 'import: pending';
    is $queue->bring(['a1', user => 'a'], ['a3', key => 'key-a2']),
        'known alias', 'import: again; and the key of another';
    is $queue->counts, '2 0 0 0 0/0', 'import: no more than before';
    is $queue->put('x', key => 'key-a2'), 'duplicate a2', 'import: a key as any';

    my $count = $queue->call('count');
    cmp_ok $count->[8] - $count->[7], '>=', 5000, 'import: as old as it was';
    cmp_ok $count->[8] - $count->[7], '<', 9000, 'import: and no older';

    my @taken = $queue->take;
    is says($taken[0], qw(ticket record work leases)), 'a1 record-a1 2,0,0 4',
        'import: taken as it came';
    $queue->pause(50);
    is tickets($queue->take), 'a2', 'import: when it is due';
    is says($queue->find('a3'), qw(ticket status)), 'a2 0',
        'import: by its other name';
    is $queue->settle('a2', status => VERIFIED, result => 'r'), 'ok',
        'import: settled';
    is says($queue->find('a3'), qw(ticket status result)), 'a2 1 r',
        'import: and told of by its other name';
    is $queue->bring(['a3', key => 'key-a2']), 'alias',
        'import: the other name once more';
    well('import');

    # a queue that is full has room for what was accepted

    is $queue->put('y', max => 1), 'full y', 'import: it is full';
    is $queue->bring(['y']), 'ok', 'import: which is no reason';

    return;
}


sub imported_states {
    fresh();

    is $queue->bring(
        ['v', status => VERIFIED, age => 9000, ended => 5000, result => 'rv',
         callback => DUE, deliveries => 2, delay => 20, record => ''],
        ['w', status => VERIFIED, age => 9000, ended => 5000, result => 'rw',
         callback => DONE, record => ''],
        ['r', status => REJECTED, age => 9000, ended => 5000, record => ''],
        ['p', status => PARKED, age => 9000],
        ['d', status => DEAD, age => 9000, ended => 5000, result => 'rd']),
        'ok ok ok ok ok', 'states: imported';
    is $queue->counts, '0 2 1 1 1/1', 'states: each is what it was';
    well('states');

    is tickets($queue->take(what => 'c')), '', 'states: the callback waits';
    $queue->pause(30);
    my @taken = $queue->take(what => 'c');
    is says($taken[0], qw(ticket result deliveries)), 'v rv 2',
        'states: until it is due';
    is $queue->deliver('v'), 'ok', 'states: and is delivered';
    is says($queue->find('w'), qw(status result callback)), '1 rw 2',
        'states: what was told of is not told again';
    is $queue->retry, 2, 'states: parked and dead can be tried again';
    is join(' ', sort map { "$_->{ticket}:$_->{record}" } $queue->take),
        'd:record-d p:record-p', 'states: and are whole';
    is $queue->sweep(6000), 0, 'states: ended when they had ended';
    is $queue->sweep(4000), 3, 'states: and swept by that';
    well('states');

    return;
}


# An entry was judged in the file while Redis was away, and is there, too.

sub met_again {
    my %judged = (status => VERIFIED, ended => 1000, result => 'far',
                  callback => DONE, record => '', work => '2,0,0');

    fresh();
    $queue->put('t1');
    is $queue->bring(['t1', %judged]), 'known', 'met: judged, and pending here';
    is says($queue->find('t1'), qw(status result callback work)),
        '1 far 2 2,0,0', 'met: judged here as well';
    is tickets($queue->take), '', 'met: nothing is to be done';
    is $queue->bring(['t1']), 'known', 'met: a pending one comes late';
    is $queue->find('t1')->{status}, VERIFIED, 'met: and changes nothing';
    well('met');

    fresh();
    $queue->put('t1', key => 'k');
    is $queue->bring(['t2', key => 'k', %judged, callback => DUE]), 'alias',
        'met: another ticket of the same key, judged';
    is says($queue->find($_), qw(ticket status result)), 't1 1 far',
        "met: $_ tells of it" for qw(t1 t2);
    is tickets($queue->take(what => 'c')), 't1', 'met: and one callback does';
    well('met');

    fresh();
    $queue->put('t1');
    $queue->take;
    is $queue->bring(['t1', %judged]), 'known', 'met: judged, and leased here';
    is $queue->find('t1')->{status}, PENDING, 'met: it is left';
    is $queue->settle('t1', status => REJECTED, result => 'near'), 'ok',
        'met: to whom it has been given';
    is $queue->bring(['t1', %judged]), 'known', 'met: both have judged';
    is $queue->find('t1')->{result}, 'near', 'met: what stands here counts';
    well('met');

    fresh();
    $queue->put('t1');
    $queue->take;
    $queue->settle('t1', status => DEAD, callback => 1, result => 'near');
    is $queue->bring(['t1', %judged]), 'known', 'met: judged, and dead here';
    is says($queue->find('t1'), qw(status result callback)), '1 far 2',
        'met: judged is more';
    is $queue->counts, '0 1 0 0 0/0', 'met: and the callback of the other is none';
    well('met');

    foreach my $status (PARKED, DEAD) {
        fresh();
        $queue->put('t1');
        $queue->bring(['t1', status => $status, ended => 1]);
        is $queue->find('t1')->{status}, PENDING,
            "met: $status there, and pending here: it is tried";
        well('met');
    }

    return;
}


# allkeys-lru throws away whole keys.

sub lost_by_the_server {
    fresh();

    $queue->put("t$_", user => "u$_") for 1 .. 3;
    $redis->command('HDEL', $queue->key('entry'), 't2');
    is tickets($queue->take), 't1 t3', 'lost: passed over';
    is $queue->counts, '2 0 0 0 0/0', 'lost: and counted no more';
    is $queue->put('t4', key => 'key-t2'), 'ok t4', 'lost: its key is free';
    well('lost');

    $redis->command('HDEL', $queue->key('entry'), 't1');
    is $queue->renew(1, 1), 1, 'lost: when leased';
    is $queue->back(1, 1), 1, 'lost: nor handed back';
    is tickets($queue->take(machine => 2, session => 1)), 't4 t3',
        'lost: the others are there';
    is $queue->settle('t3', machine => 2, delay => LONG), 'ok', 'lost: put off';
    $redis->command('HDEL', $queue->key('entry'), 't3');
    is tickets($queue->take(retry_max => 1000)), '', 'lost: while it waits';
    is tickets($queue->list), 't4', 'lost: not listed';

    fresh();
    $queue->put('t1');
    $redis->command('DEL', $queue->key('record'));
    my @taken = $queue->take;
    is says($taken[0], qw(ticket record)), 't1 ', 'lost: the record';
    is $queue->settle('t1', status => PARKED), 'ok', 'lost: which can be said';

    fresh();
    $queue->put('t1');
    $redis->command('DEL', $queue->key('ready'));
    is tickets($queue->take), '', 'lost: those that are ready';
    is $queue->counts, '1 0 0 0 0/0', 'lost: it is still there';

    return;
}


sub errors {
    fresh();

    $redis->command('SET', $queue->key('entry'), 'x');
    is eval { $queue->put('t1') }, undef, 'error: a key of another type';
    like $@, qr/WRONGTYPE/, 'error: which is said';
    is eval { $queue->call('nothing') }, undef, 'error: no such operation';

    is_deeply $queue->call('hello'), ['ok'], 'hello';

    return;
}


# Redis does not undo what a script has done before an error.  Each operation is
# cut off behind each of its commands; then what its maker would do next is done,
# and all that was there is verified, and told of, as if nothing had been.

sub cut_off {
    my @promised = qw(p1 p2 p3 p4 p5);

    my %operations = (
        'put'        => sub { $_[0]->put('n1', user => 'a') },
        'put again'  => sub { $_[0]->put('n2', key => 'key-p1') },
        'import'     => sub { $_[0]->bring(['n3', user => 'b'],
                                           ['n4', user => 'a', delay => 1]) },
        'alias'      => sub { $_[0]->bring(['n5', key => 'key-p1']) },
        'known'      => sub { $_[0]->bring(['p2', user => 'a']) },
        'judged'     => sub { $_[0]->bring(['p2', status => VERIFIED,
            user => 'a', ended => 1, callback => DUE, record => '']) },
        'take'       => sub { $_[0]->take(count => 2, session => 7) },
        'take late'  => sub { $_[0]->take(count => 2, session => 8) },
        'take lost'  => sub { $_[0]->take(number => 900, lost => [1, 899]) },
        'back'       => sub { $_[0]->back(1, 1) },
        'wait'       => sub { $_[0]->settle('p1', delay => 1) },
        'wait of'    => sub { $_[0]->settle('p1', delay => 1, of => 1) },
        'verified'   => sub { $_[0]->settle('p1', status => VERIFIED,
                                            callback => 1, result => 'r') },
        'dead'       => sub { $_[0]->settle('p1', status => DEAD) },
        'parked'     => sub { $_[0]->settle('p1', status => PARKED,
                                            callback => 1) },
        'delivered'  => sub { $_[0]->deliver('p5') },
        'undelivered' => sub { $_[0]->deliver('p5', callback => DUE) },
        'retried'    => sub { $_[0]->retry },
    );

    foreach my $name (sort keys %operations) {
        my $cuts = 0;
        my @wrong;

        for my $n (1 .. 200) {
            my $cut = cut_behind($n);

            # leased: p1; due: p2, p3; dead: p4; verified, callback leased: p5

            fresh();
            $queue->put($_, user => $_ eq 'p3' ? 'b' : 'a') for qw(p1 p4 p5);
            $queue->take(count => 3);
            $queue->settle('p4', status => DEAD);
            $queue->settle('p5', status => VERIFIED, callback => 1);
            $queue->take(what => 'c');
            $queue->put($_, user => $_ eq 'p3' ? 'b' : 'a') for qw(p2 p3);

            $cut->{name} = $queue->{name};
            my $whole = eval { $operations{$name}->($cut); 1 };
            last if $whole;

            $cuts++;
            push @wrong, "cut behind $n: $_"
                for recovered($operations{$name}, @promised);
        }

        is join("\n", @wrong), '', "cut off: $name, behind $cuts commands";
        cmp_ok $cuts, '>=', 3, "cut off: $name, which are some";
    }

    return;
}


# the same script, that fails where it would call its next command

sub cut_behind {
    my ($n) = @_;
    my $text = do { local $/; open my $f, '<', $file or die; <$f> };
    my $path = $redis->folder . "/cut$n.lua";

    $text =~ s{^local call = redis\.call$}{
        "local calls = 0\nlocal function call(...)\n"
        . "  calls = calls + 1\n"
        . "  if calls > $n then error('cut off') end\n"
        . "  return redis.call(...)\nend"}me or die "no call\n";

    open my $out, '>', $path or die "$path: $!\n";
    print {$out} $text;
    close $out;

    return IapGuard::QueueScript->new($redis, $path);
}


# what is wrong after all has been done once more, and all has been worked off

sub recovered {
    my ($again, @promised) = @_;
    my %names = map { $_ => 1 } @promised, qw(n1 n3 n4);

    # what put or moved it says so again, and what leased it does not come back

    $again->($queue);

    foreach my $session (100 .. 110) {
        $queue->pause(2);
        $queue->retry;

        foreach my $e ($queue->take(session => $session)) {
            return "$e->{ticket} has no record" if !length $e->{record};
            $queue->settle($e->{ticket}, session => $session,
                           status => VERIFIED, callback => 1);
        }

        $queue->deliver($_->{ticket}, session => $session)
            for $queue->take(what => 'c', session => $session);
    }

    foreach my $ticket (@promised) {
        my $e = $queue->find($ticket);
        return "$ticket is " . says($e, qw(status callback))
            if says($e, qw(status callback)) ne VERIFIED . ' ' . DONE;
    }

    # how many callbacks are due is for showing, and may be one off

    my $wrong = $queue->wrong;

    return $wrong if $wrong !~ /^(?:callbacks)?$/;

    return;
}


# A server that is full takes nothing more; what it has can be worked off by the
# script with the flag that the module calls it with.

sub out_of_memory {
    my $text = do { local $/; open my $f, '<', $file or die; <$f> };
    my $full = IapGuard::RedisServer->new(program => $program,
        options => ['--maxmemory-policy', 'noeviction']);
    my $flagged = $full->folder . '/flagged.lua';

    open my $out, '>', $flagged or die "$flagged: $!\n";
    print $out "#!lua flags=allow-oom\n$text";
    close $out;

    my $in   = IapGuard::QueueScript->new($full, $file, name => 'full');
    my $work = IapGuard::QueueScript->new($full, $flagged, name => 'full');

    is $in->put('t1'), 'ok t1', 'full server: there was room';
    $full->command('CONFIG', 'SET', 'maxmemory', '1');
    is eval { $in->put('t2') }, undef, 'full server: nothing is put';
    like $@, qr/^OOM /, 'full server: which it says';
    is tickets($work->take), 't1', 'full server: taken';
    is $work->settle('t1', status => VERIFIED, result => 'r', callback => 1),
        'ok', 'full server: settled';
    is tickets($work->take(what => 'c')), 't1', 'full server: the callback';
    is $work->deliver('t1'), 'ok', 'full server: delivered';
    is $work->find('t1')->{result}, 'r', 'full server: found';
    $full->stop;

    return;
}


# No other commands than the header says, each of which probe calls, and no
# key that is not in KEYS.

sub rights {
    my $text = do { local $/; open my $f, '<', $file or die; <$f> };

    my ($words) = $text =~ /^-- Needs the right to call (.*?);/ms;
    my @rights  = map { lc } $words =~ /\b([A-Z]{3,})\b/g;
    cmp_ok scalar @rights, '>', 10, 'rights: the header names ' . @rights;

    my @user = ('ACL', 'SETUSER', 'guard', 'on', '>secret', 'resetkeys',
                '~iap:*', 'nocommands', '+evalsha', map { "+$_" } @rights);

    $redis->command(@user);

    my $admin = delete $redis->{socket};
    $redis->command('AUTH', 'guard', 'secret');

    fresh();
    everything();
    is_deeply $queue->call('probe'), ['ok'], 'rights: they are enough';
    $redis->{socket} = $admin;
    well('rights');

    foreach my $right (@rights) {
        $redis->{socket} = $admin;
        $redis->command('ACL', 'SETUSER', 'guard', "-$right");

        delete $redis->{socket};
        $redis->command('AUTH', 'guard', 'secret');
        is eval { $queue->call('probe') }, undef,
            "rights: a probe tells that $right is missing";

        $redis->{socket} = $admin;
        $redis->command('ACL', 'SETUSER', 'guard', "+$right");
    }

    fresh();
    $queue->call('probe');
    is_deeply $redis->command('KEYS', "*{q:$queue->{name}}*"), [],
        'rights: a probe leaves nothing';

    # a prefix that has braces of its own

    fresh(prefix => 'x{y}:');
    everything();
    well('rights');

    return;
}


sub everything {
    $queue->put("e$_") for 1 .. 5;
    $queue->take(interval => 10, count => 1);
    $queue->take(session => 2);
    $queue->renew(1, 2);
    $queue->settle('e1', session => 2, delay => 10);
    $queue->settle('e2', session => 2, status => VERIFIED, callback => 1);
    $queue->settle('e3', session => 2, status => DEAD, result => 'x');
    $queue->back(1, 2, ($queue->find('e4') || {})->{number});
    $queue->take(what => 'c');
    $queue->deliver('e2');
    $queue->bring(['i1'], ['i2', key => 'key-e1']);
    $queue->list;
    $queue->counts;
    $queue->pause(2);
    $queue->sweep(0, 1);
    $queue->retry;

    return;
}


# Whatever is done in whatever order: all that was put is there, is in one place,
# and is given to one at a time.

sub at_random {
    fresh();
    srand 42;

    my (%there, %has, %lost, $last);
    my $tickets = 0;
    my $wrong   = '';

    foreach my $step (1 .. 3000) {
        my $what    = int rand 12;
        my $machine = 1 + int rand 2;
        my $ticket  = (sort keys %there)[rand keys %there];

        if ($what < 3) {
            $last = 't' . ++$tickets;
            $queue->put($last, key => "k$tickets", user => 'u' . int rand 5);
            $there{$last} = 1;

        } elsif ($what < 6) {
            my $lane  = $what < 5 ? 'w' : 'c';
            my @taken = $queue->take(what => $lane, bytes => 20,
                count => 1 + int rand 3, machine => $machine,
                lost  => delete $lost{"$machine$lane"});

            # its answer does not come

            if (rand() < 0.2) {
                $lost{"$machine$lane"} = [($queue->{takes}) x 2];
                next;
            }

            foreach my $e (@taken) {
                $wrong ||= "$e->{ticket} is given twice" if $has{$e->{ticket}};
                $wrong ||= "$e->{ticket} was never put"
                    if !$there{$e->{ticket}};
                $has{$e->{ticket}} = $machine;
            }

        } elsif ($what < 9) {
            ($ticket) = sort keys %has or next;
            my $e = $queue->find($ticket);
            my $by = $has{$ticket};
            my $word = $e->{status} == PENDING
                ? $queue->settle($ticket, machine => $by, delay => int rand 3,
                                 status => int rand 5, callback => int rand 2)
                : $queue->deliver($ticket, machine => $by, delay => int rand 3,
                                  callback => 1 + int rand 3);

            $wrong ||= "$ticket is not $by\'s" if $word ne 'ok';
            delete $has{$ticket};

        } elsif ($what == 9) {
            $queue->back($machine, 1);
            delete @has{ grep { $has{$_} == $machine } keys %has };

        } elsif ($what == 10) {
            $queue->retry($ticket // 'none');
            delete $has{$ticket} if defined $ticket
                && $queue->find($ticket)->{leases} == 0;

        } else {
            $queue->bring([$ticket // 'i0', key => $ticket // 'i0',
                           status => int rand 3, ended => 1]);
            $there{ $ticket // 'i0' } = 1;
        }

        $wrong ||= $queue->wrong if $step % 50 == 0;
        last if $wrong;
    }

    is $wrong, '', 'at random: nothing is wrong';
    is join(' ', sort map { $_->{ticket} } $queue->list),
        join(' ', sort keys %there), 'at random: nothing is lost';
    note $queue->counts;

    return;
}
