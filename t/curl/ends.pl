# Ends: cancelled in every state, sent again from inside, and nginx's own end.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(sleep);

use CurlTest;


my %states = (
    fresh   => ['http://127.0.0.1:PORT/hang', 0],
    name    => ['http://800.hang.test:PORT/hang', 0.1],
    running => ['http://127.0.0.1:PORT/hang', 0.2],
    body    => ['http://127.0.0.1:PORT/body', 0.2],
    tls     => ['https://127.0.0.1:PORT/hang', 0.2],
);

sub a_server {
    return server('/hang' => ['hang'], '/a' => [answer(200, 'ok'), 'keep'],
                  '/body' => ["HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"
                              . 'half', 'hang']);
}


test cancelled => sub {
    my $server = a_server();
    my $port   = $server->port;

    my $nginx = nginx();
    my ($free) = $nginx->stat;

    foreach my $state (sort keys %states) {
        my ($url, $seconds) = @{ $states{$state} };
        $url =~ s/PORT/$port/;

        $nginx->tell("send 1 POST $url body=200000");
        sleep $seconds if $seconds;
        $nginx->tell('cancel 1');
        $nginx->line(qr/^cancelled 1/);
        is join(' ', $nginx->stat), "$free 0", $state;
    }

    is $nginx->call(2, 'POST', "http://127.0.0.1:$port/a")->{transport},
       'ok', "and it works";
    ok !defined $nginx->line(qr/^done 1/, 0.9), "none was told";
    ends_well($nginx);
};


# while others wait for their turn

test turn_of_a_cancelled => sub {
    my $server = a_server();
    my $port   = $server->port;
    my $nginx  = nginx(limit => 1);

    $nginx->tell("send 1 POST http://127.0.0.1:$port/hang");
    $nginx->tell("send 2 POST http://127.0.0.1:$port/hang");
    $nginx->tell("send 3 POST http://127.0.0.1:$port/a");
    $nginx->line(qr/^start 1/);
    $nginx->tell('cancel 2');
    $nginx->tell('cancel 1');
    is $nginx->ended(3)->{transport}, 'ok', 'goes to the next';
    ends_well($nginx);
};


test inside => sub {
    my $server = a_server();
    my $url    = 'http://127.0.0.1:' . $server->port;
    my $nginx  = nginx();

    $nginx->tell("send 1 POST $url/a again");
    is $nginx->ended(1)->{transport}, 'ok', 'sent once';
    is $nginx->ended(1001)->{transport}, 'ok', 'and once more from inside';

    $nginx->tell("send 3 POST $url/hang");
    $nginx->tell("send 2 POST $url/a cancel=3");
    is $nginx->ended(2)->{transport}, 'ok', 'one that cancels another';
    is +($nginx->stat)[1], 0, 'which is gone';

    # both end at once

    $nginx->tell("send 4 POST http://none.test/ cancel=5\n"
                 . "send 5 POST http://none.test/ cancel=4");
    $nginx->line(qr/^done [45]/);
    ok !defined $nginx->line(qr/^done [45]/, 0.3), 'or will not be told';

    $nginx->tell("send 6 POST $url/a decline again");
    is $nginx->ended(6)->{declined}, 1, 'declined';
    is $nginx->ended(1006)->{declined}, 1, 'and again';
    is +($nginx->stat)[1], 0, 'nothing is left';

    ends_well($nginx);
};


test destroyed => sub {
    my $server = a_server();
    my $port   = $server->port;

    foreach my $state (sort keys %states) {
        my ($url, $seconds) = @{ $states{$state} };
        $url =~ s/PORT/$port/;

        my $nginx = nginx();
        my ($free) = $nginx->stat;
        $nginx->call(1, 'POST', "http://127.0.0.1:$port/a");
        $nginx->tell("send $_ POST $url body=200000") foreach 2 .. 5;
        sleep $seconds if $seconds;
        $nginx->tell('destroy');
        ok defined $nginx->line(qr/^destroyed/), $state;

        sleep 0.9 if $state eq 'name';
        is join(' ', $nginx->stat), "$free 0", "nothing is left";
        ends_well($nginx);
    }
};


# what is under way when the process ends; a look-up has a thread that nginx
# waits for

test at_exit => sub {
    my $server = a_server();
    my $port   = $server->port;

    foreach my $state (sort keys %states) {
        my ($url, $seconds) = @{ $states{$state} };
        $url =~ s/PORT/$port/;

        my $nginx = nginx();
        $nginx->call(1, 'POST', "http://127.0.0.1:$port/a");
        $nginx->tell("send $_ POST $url body=200000") foreach 2 .. 5;
        sleep $seconds if $seconds;
        ends_well($nginx);
    }
};


# a worker that is told to leave does, whatever is under way here

test leaves => sub {
    my $server = a_server();
    my $nginx  = nginx(master => 1);

    $nginx->tell('send 1 POST http://127.0.0.1:' . $server->port
                 . '/hang timeout=60000');
    $nginx->line(qr/^start 1/);
    sleep 0.1;
    kill 'QUIT', $nginx->pid;

    my $begun = now();
    is $nginx->wait_for_end(10), 0, 'it has left';
    cmp_ok now() - $begun, '<', 2, 'at once';
    delete $nginx->{pid};
    ok !$nginx->log_lines(qr/\[(?:alert|crit|emerg|error)\]|Sanitizer/),
       'without a word';
};

1;
