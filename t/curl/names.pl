# Names: looked up in threads, remembered, waited for no longer than that.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(sleep);

use CurlTest;


test found => sub {
    my $server = server('/a' => [answer(200, 'ok')]);
    my $port   = $server->port;
    my $nginx  = nginx(level => 'debug');

    is $nginx->call(1, 'POST', "http://good.test:$port/a")->{transport}, 'ok',
       'a name';
    is $nginx->call(2, 'POST', "http://GOOD.test:$port/a")->{transport}, 'ok',
       'in another case';
    is $nginx->call(3, 'POST', "http://localhost:$port/a")->{transport}, 'ok',
       'one that the system knows';
    is $nginx->call(4, 'POST', "http://two.test:$port/a")->{transport}, 'ok',
       'the second of two addresses';
    is $nginx->call(5, 'POST', "http://six.test:$port/a")->{transport}, 'ok',
       'after one of IPv6';

    is scalar(() = $nginx->log_lines(qr/curl name: "good\.test"/i)), 1,
       'looked up once';
    ok !$nginx->log_lines(qr/thread.*resolv/i), 'by nobody else';

    ends_well($nginx);
};


test missed => sub {
    my $nginx = nginx(level => 'debug');
    my $done  = $nginx->call(1, 'POST', 'http://none.test/');

    is $done->{transport}, 'local', 'no such name: our own side';
    like $done->{error}, qr/name/i, "\"$done->{error}\"";
    ok !defined $nginx->line(qr/^start/, 0.1), 'nobody was asked for leave';

    $nginx->call($_, 'POST', 'http://none.test/') foreach 2 .. 20;
    is scalar(() = $nginx->log_lines(qr/curl name: "none\.test"/)), 1,
       'remembered';
    sleep 1.1;
    $nginx->call(21, 'POST', 'http://none.test/');
    is scalar(() = $nginx->log_lines(qr/curl name: "none\.test"/)), 2,
       'but not for long';

    ends_well($nginx);
};


test slow => sub {
    my $server = server('/a' => [answer(200, 'ok')]);
    my $port   = $server->port;
    my $nginx  = nginx();

    $nginx->tell("send $_ POST http://700.hang.test:$port/a timeout=500")
        foreach 1 .. 5;
    $nginx->tell("send 9 POST http://127.0.0.1:$port/a");

    cmp_ok $nginx->ended(9)->{ms}, '<', 300, 'others do not wait for it';

    foreach my $id (1 .. 5) {
        my $done = $nginx->ended($id);
        is $done->{transport}, 'ok', "call $id, when its name was found";
        cmp_ok $done->{ms}, '<', 400, 'which is not its own time';
    }

    lag_is_small($nginx, 'meanwhile');
    ends_well($nginx);
};


test hangs => sub {
    my $server = server('/a' => [answer(200, 'ok')]);
    my $port   = $server->port;
    my $nginx  = nginx();
    my $begun  = now();

    $nginx->tell("send 1 POST http://7000.hang.test:$port/a");
    my $done = $nginx->ended(1, 10);
    is $done->{transport}, 'local', 'a look-up that hangs: our own side';
    like $done->{error}, qr/look-up/, "\"$done->{error}\"";
    between 1000 * (now() - $begun), 4900, 6000, 'after five seconds';

    $done = $nginx->call(2, 'POST', "http://7000.hang.test:$port/a");
    is $done->{transport}, 'local', 'then at once';
    cmp_ok now() - $begun, '<', 6.5, 'as long as it hangs';

    sleep 2.5;
    is $nginx->call(3, 'POST', "http://7000.hang.test:$port/a")->{transport},
       'ok', 'and when it has come all the same, it is used';

    lag_is_small($nginx, 'meanwhile');
    ends_well($nginx);
};


test one_thread => sub {
    my $nginx = nginx();

    $nginx->tell("send $_ POST http://900.hang.test/") foreach 1 .. 3;
    $nginx->tell('cancel 2');
    $nginx->tell("send 4 POST http://none.test/");
    is $nginx->ended(4)->{transport}, 'local', 'another name meanwhile';
    ok defined $nginx->ended($_, 3), "call $_ has ended" foreach 1, 3;
    ok !defined $nginx->ended(2, 0.2), 'and one that was cancelled has not';

    ends_well($nginx);
};

1;
