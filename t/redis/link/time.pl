# Operations and connections that take too long.

use strict;
use warnings;

use IO::Socket::INET;
use Test::More;
use Time::HiRes qw(sleep);

use LinkTest;


test timeout => sub {
    my $redis = fake();
    my $nginx = nginx($redis, timeout => '200ms');

    $nginx->ask(1, 'PING');

    # a reply 300 ms late: it and what was sent right after it are too late,
    # what is sent later is not, and nobody gets another's

    $redis->behave('slow', delay => 0.3);
    $nginx->tell('send 2 none ECHO slow');
    sleep 0.15;
    $nginx->tell('send 3 none ECHO third');

    my ($result, $ms) = $nginx->done(2);
    is $result, 'timeout', 'the slow one timed out';
    between($ms, 195, 260, 'in time');

    my @third = $nginx->done(3);
    is $third[0], 'ok', 'the other did not';
    is $third[2], '$third', 'and has its own reply';

    is +($nginx->ask(4, 'ECHO', 'fourth'))[2], '$fourth', 'as has the next';
    is $redis->report->{connections}, 1, 'over the same connection';

    ends_well($nginx);
};


test timeouts_many => sub {
    my $redis = fake();
    my $nginx = nginx($redis, timeout => '150ms');

    $nginx->ask(1, 'PING');
    $redis->behave('slow', delay => 0.5);

    $nginx->tell('send 2 none ECHO slow');
    $nginx->tell("send $_ none ECHO n$_") foreach 10 .. 109;

    my %results;
    $results{ ($nginx->done($_))[0] }++ foreach 2, 10 .. 109;
    is_deeply \%results, { timeout => 101 }, 'all behind it time out';

    sleep 0.5;
    $nginx->tell('burst 1000 100 50');
    is $nginx->line(qr/^burst/), 'burst 1000 0 0 0 0',
       'then replies and operations belong together';
    is $redis->report->{connections}, 1, 'over the same connection';

    ends_well($nginx);
};


test stall => sub {
    my $redis = fake();
    my $nginx = nginx($redis, timeout => '100ms');

    $nginx->ask(1, 'PING');
    $redis->behave('dead', hang => 1);

    my $start = now();
    my ($result, $ms) = $nginx->ask(2, 'ECHO', 'dead');
    is $result, 'timeout', 'no reply: the operation times out';
    between($ms, 95, 150, 'in time');

    sleep 0.75 - (now() - $start);
    $nginx->tell('send 3 none PING');
    is +($nginx->done(3))[0], 'timeout', 'so do later ones';
    ok ready($nginx), 'the link is kept that long';

    sleep 1.05 - (now() - $start);
    $nginx->tell('send 4 none PING');
    ($result, $ms) = $nginx->done(4);
    is $result, 'closed', 'then it is closed, with what waits';
    between(int(1000 * (now() - $start)), 1090, 1250, 'a second overdue');

    $redis->behave('dead');
    ok defined $nginx->works_within(3), 'it works again by itself';

    ends_well($nginx);
};


# SIGSTOP fills the sockets' buffers; a closed link must not stay in them

test stopped => sub {
    my $redis = redis('stopped');
    my $nginx = nginx($redis->node, timeout => '100ms');

    $nginx->ask(1, 'PING');
    kill 'STOP', $redis->pid;
    $nginx->tell('burst 3000 3000 20000');
    my $line = $nginx->line(qr/^burst/, 20);
    like $line, qr/^burst 0 0 [1-9]\d* \d+ \d+$/, "stopped: $line";
    kill 'CONT', $redis->pid;

    ok defined $nginx->works_within(3), 'it works again by itself';
    is +($nginx->ask(2, 'ECHO', 'mine'))[2], '$mine', 'with its own reply';

    ends_well($nginx);
};


# The server stops within a command that is larger than all buffers on its way

test stopped_within => sub {
    my $redis = redis('stopped_within');
    my $nginx = nginx($redis->node, timeout => '300ms');

    $nginx->ask(1, 'PING');
    kill 'STOP', $redis->pid;
    my $start = now();
    $nginx->tell('large 2 40000000');
    is +($nginx->done(2))[0], 'timeout', 'the operation times out';

    my $closed = 0;
    while (!$closed && now() < $start + 4) {
        sleep 0.05;
        $closed = !ready($nginx);
    }

    ok $closed, 'the connection is closed';
    between(int(1000 * (now() - $start)), 1250, 2500, 'a second overdue');
    kill 'CONT', $redis->pid;

    ok defined $nginx->works_within(3), 'it works again by itself';
    is +($nginx->ask(3, 'ECHO', 'mine'))[2], '$mine', 'with its own reply';

    ends_well($nginx);
};


test black_hole => sub {
    my $hole = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 1,
                                     Proto => 'tcp');
    my @full = map { IO::Socket::INET->new(PeerAddr => '127.0.0.1',
                         PeerPort => $hole->sockport, Blocking => 0) } 1 .. 4;

    my $nginx = nginx('127.0.0.1:' . $hole->sockport, timeout => '150ms');
    my $start = now();

    my ($result, $ms) = $nginx->ask(1, 'PING');
    is $result, 'timeout', 'no answer to connect(): the operation times out';
    between($ms, 145, 220, 'in time');

    $nginx->tell('send 2 none PING');
    is +($nginx->done(2))[0], 'timeout', 'so does the next';

    sleep 0.95 - (now() - $start);
    $nginx->tell('send 3 none PING');
    is +($nginx->done(3))[0], 'closed', 'then connecting is given up';
    between(int(1000 * (now() - $start)), 980, 1150, 'after a second');

    $nginx->tell('send 4 none PING');
    like $nginx->line(qr/^sent 4/), qr/declined/, 'and then the backoff';

    ends_well($nginx);
};


1;
