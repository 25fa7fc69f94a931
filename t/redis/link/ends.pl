# How a worker ends.

use strict;
use warnings;

use IO::Socket::INET;
use Test::More;
use Time::HiRes qw(sleep);

use LinkTest;


test quit => sub {
    my $redis = fake();

    my %cases = (
        idle      => sub { $_[0]->ask(1, 'PING') },
        waiting   => sub { $_[0]->ask(1, 'PING');
                           $redis->behave('slow', delay => 0.3);
                           $_[0]->tell('send 2 none ECHO slow');
                           $_[0]->line(qr/^sent 2/) },
        cancelled => sub { $_[0]->ask(1, 'PING');
                           $redis->behave('dead', hang => 1);
                           $_[0]->tell('send 2 none ECHO dead');
                           $_[0]->line(qr/^sent 2/);
                           sleep 0.05;
                           $_[0]->tell('cancel 2');
                           $_[0]->line(qr/^cancelled/) },
    );

    foreach my $name (sort keys %cases) {
        my $nginx = nginx($redis, master => 1, timeout => '600ms');

        $cases{$name}->($nginx);
        my $start = now();
        kill 'QUIT', $nginx->pid;

        if ($name eq 'waiting') {
            my ($result) = $nginx->done(2);
            is $result, 'ok', 'waiting: it still gets its reply';
        }

        my $status = $nginx->wait_for_end(5);
        is $status, 0, "$name: QUIT ends it";
        between(int(1000 * (now() - $start)), 0,
                $name eq 'waiting' ? 800 : 250, "$name: how soon");
        is $redis->report->{clients}, 0, "$name: the connection is closed";
        ok !$nginx->log_lines(qr/\[alert\]|left in connection|Sanitizer/),
           "$name: nothing is left open";

        $redis->behave($_) foreach qw(slow dead);
        delete $nginx->{pid};
    }
};


# The worker has other work to finish

test quit_held => sub {
    my $redis = fake();
    my $nginx = nginx($redis, master => 1, timeout => '300ms');

    $nginx->ask(1, 'PING');
    $nginx->tell('hold 1200');
    $nginx->tell('stat');
    $nginx->line(qr/^stat/);
    kill 'QUIT', $nginx->pid;
    sleep 0.2;
    is $redis->report->{clients}, 0, 'an idle link is closed right away';

    is +($nginx->ask(2, 'PING'))[2], '+PONG', 'it can be used still';
    sleep 0.2;
    is $redis->report->{clients}, 0, 'and is closed again';
    is scalar(() = $nginx->line(qr/^held/)), 1, 'the work goes on';

    is $nginx->wait_for_end(5), 0, 'then the worker ends';
    ok !$nginx->log_lines(qr/\[alert\]|left in connection|Sanitizer/),
       'nothing is left open';
    delete $nginx->{pid};
};


# nginx's patience ends before that of the operation

test quit_impatient => sub {
    my $redis = fake();
    my $nginx = nginx($redis, master => 1, timeout => '5s',
                      shutdown => '300ms');

    $redis->behave('dead', hang => 1);
    $nginx->ask(1, 'PING');
    $nginx->tell('send 2 none ECHO dead');
    $nginx->line(qr/^sent 2/);
    my $start = now();
    kill 'QUIT', $nginx->pid;

    is +($nginx->done(2))[0], 'closed', 'the operation is told';
    is $nginx->wait_for_end(5), 0, 'the worker ends';
    between(int(1000 * (now() - $start)), 290, 700, 'in time');
    ok !$nginx->log_lines(qr/\[alert\]|left in connection|Sanitizer/),
       'nothing is left open';
    delete $nginx->{pid};
};


test quit_opening => sub {
    my $redis = fake();
    my $hole  = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 1,
                                      Proto => 'tcp');
    my @full = map { IO::Socket::INET->new(PeerAddr => '127.0.0.1',
                         PeerPort => $hole->sockport, Blocking => 0) } 1 .. 4;
    my $dns = name_server();

    my %cases = (
        connecting => nginx('127.0.0.1:' . $hole->sockport, master => 1),
        shaking    => nginx($redis, tls => 'unverified', master => 1),
        resolving  => nginx('hole.test:1', resolver => $dns->address,
                            master => 1),
    );

    foreach my $name (sort keys %cases) {
        my $nginx = $cases{$name};

        is +($nginx->ask(1, 'PING'))[0], 'timeout', "$name: it waits";
        my $start = now();
        kill 'QUIT', $nginx->pid;
        is $nginx->wait_for_end(5), 0, "$name: QUIT ends it";
        between(int(1000 * (now() - $start)), 0, 250, "$name: at once");
        ok !$nginx->log_lines(qr/\[alert\]|left in connection|Sanitizer/),
           "$name: nothing is left open";
        delete $nginx->{pid};
    }
};


# With operations waiting: nobody is told, nothing leaks

test terminated => sub {
    my $redis = fake();

    $redis->behave('dead', hang => 1);

    foreach my $tls (undef, 'unverified') {
        my $nginx = nginx($redis, timeout => '5s', tls => $tls);
        $nginx->tell("send $_ none ECHO dead") foreach 1 .. 20;
        $nginx->line(qr/^sent 20/);
        sleep 0.05;
        ends_well($nginx);
    }
};


1;
