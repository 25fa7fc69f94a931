# What callers may do, and what they get when there is too much.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(sleep);

use LinkTest;


test done_closes => sub {
    foreach my $use (qw(epoll poll)) {
        my $redis = fake();
        my $nginx = nginx($redis, use => $use, timeout => '300ms');

        $nginx->ask(1, 'PING');

        $nginx->tell("send 10 close ECHO a\nsend 11 none ECHO b\n"
                     . 'send 12 none ECHO c');
        is +($nginx->done(10))[2], '$a', "$use: it has its reply";
        is +($nginx->done(11))[0], 'closed', "$use: closed inside done";
        is +($nginx->done(12))[0], 'closed', "$use: for all";

        $nginx->tell("send 15 none ECHO a\nclose");
        $nginx->line(qr/^sent 15/);
        is $nginx->line(qr/^(?:closed|done 15)/), 'closed',
           "$use: closed from outside";
        is +($nginx->done(15))[0], 'closed', "$use: told afterwards";

        $nginx->tell("send 20 both ECHO a\nsend 21 none ECHO b");
        is +($nginx->done(20))[2], '$a', "$use: closed and sent inside done";
        is +($nginx->done(21))[0], 'closed', "$use: the others are closed";
        is +($nginx->done(1020))[2], '$a', "$use: what was sent is answered";

        $redis->behave('slow', delay => 0.5);
        $nginx->tell("send 30 both ECHO slow\nsend 31 none ECHO b");
        is +($nginx->done(30))[0], 'timeout', "$use: closed on timeout";
        like +($nginx->done(31))[0], qr/^(?:closed|timeout)$/,
             "$use: and the other";
        is +($nginx->done(1030))[0], 'timeout', "$use: sent once more";

        $redis->behave('x', cut => 0);
        $nginx->works_within(3);
        $nginx->tell("send 40 both GET x\nsend 41 again GET b");
        is +($nginx->done(40))[0], 'closed', "$use: broken";
        is +($nginx->done(41))[0], 'closed', "$use: for both";
        ok defined $nginx->works_within(3), "$use: it works";

        is +(stat_of($nginx))[1], 0, "$use: no operation is left";
        ends_well($nginx);
    }
};


test cancel => sub {
    my $redis = fake();
    my $nginx = nginx($redis, timeout => '400ms');

    $nginx->ask(1, 'PING');
    $redis->behave('slow', delay => 0.2);

    $nginx->tell('send 2 none ECHO slow');
    $nginx->line(qr/^sent 2 ok/);
    sleep 0.05;
    $nginx->tell('cancel 2');
    $nginx->tell('send 3 none ECHO third');
    my ($result, undef, $reply) = $nginx->done(3);
    is "$result $reply", 'ok $third', 'a late reply to nobody is dropped';
    ok !defined $nginx->line(qr/^done 2/, 0.1), 'nobody is told of it';

    # before it was sent at all

    my $before = $redis->report->{commands};
    $nginx->tell("send 4 none ECHO d\ncancel 4\nsend 5 none ECHO e");
    is +($nginx->done(5))[2], '$e', 'cancelled before it was sent';
    is $redis->report->{commands}, $before + 1, 'it is not sent';

    # by another's done, with a reply that is there already

    $redis->behave('slow', delay => 0.1);
    $nginx->tell("send 6 cancel=7 ECHO slow\nsend 7 none ECHO f\n"
                 . 'send 8 none ECHO g');
    is +($nginx->done(6))[2], '$slow', 'one cancels the next';
    is +($nginx->done(8))[2], '$g', 'the one after that has its reply';
    ok !defined $nginx->line(qr/^done 7/, 0.1), 'the next is not told';

    # all are to fail, and the first cancels the second

    $redis->behave('gone', cut => 0);
    $nginx->tell("send 10 cancel=11 GET gone\nsend 11 none ECHO f\n"
                 . 'send 12 none ECHO g');
    is +($nginx->done(10))[0], 'closed', 'closed';
    is +($nginx->done(12))[0], 'closed', 'closed';
    ok !defined $nginx->line(qr/^done 11/, 0.1), 'one was cancelled';

    # all cancelled, then the server stalls: nothing waits, it is closed

    $nginx->works_within(3);
    $redis->behave('dead', hang => 1);
    $nginx->tell("send 20 none ECHO dead\n");
    sleep 0.05;
    $nginx->tell('cancel 20');
    sleep 1.6;
    ok !ready($nginx), 'a link whose reply never comes is closed';

    ends_well($nginx);
};


# Not sent before the deadline, then not sent at all

test stale => sub {
    my $redis = fake();
    my $dns   = name_server(delay => 0.2);
    my $nginx = nginx('good.test:' . $redis->port, timeout => '100ms',
                      resolver => $dns->address);

    is +($nginx->ask(1, 'PING'))[0], 'timeout', 'the name comes too late';
    sleep 0.8;
    is +($nginx->ask(2, 'ECHO', 'x'))[2], '$x', 'the next finds the link up';
    is $redis->report->{commands}, 1, 'the first was never sent';

    ends_well($nginx);
};


test too_many => sub {
    my $redis = fake();
    my $nginx = nginx($redis, timeout => '300ms', waiting => 5);

    $nginx->ask(1, 'PING');
    $redis->behave('slow', delay => 0.2);

    $nginx->tell("send $_ none ECHO slow") foreach 11 .. 17;
    my @sent = map { $nginx->line(qr/^sent $_/) } 11 .. 17;
    is scalar(grep { /ok/ } @sent), 5, 'five may wait';
    is scalar(grep { /declined/ } @sent), 2, 'the others are declined';

    my @done = map { ($nginx->done($_))[0] } 11 .. 15;
    is "@done", 'ok' . ' timeout' x 4, 'the first is answered in time';

    # what timed out keeps its place until its reply is there

    $nginx->tell("send $_ none ECHO b") foreach 21, 22;
    like $nginx->line(qr/^sent 21/), qr/ok/, 'its place is free again';
    like $nginx->line(qr/^sent 22/), qr/declined/, 'the others are not yet';

    sleep 1;
    is +($nginx->ask(23, 'ECHO', 'c'))[2], '$c', 'then they are, too';

    ends_well($nginx);
};


1;
