# AUTH, SELECT and TLS.

use strict;
use warnings;

use IO::Socket::INET;
use Test::More;
use Time::HiRes qw(sleep);

use IapGuard::Child;
use LinkTest;


test auth => sub {
    my $secret = 'geheim%20 "1\'';

    foreach my $case (['', $secret, $secret], ['ann', $secret, "ann $secret"])
    {
        my ($user, $password, $auth) = @$case;
        my $redis = fake(auth => $auth);
        my %login = (timeout => '300ms', password => $password =~ s/"/\\"/r);
        $login{user} = $user if $user;

        my $nginx = nginx($redis, %login, db => 5);
        is +($nginx->ask(1, 'PING'))[2], '+PONG',
           ($user ? 'user and ' : '') . 'password';
        is $redis->report->{commands}, 3, 'AUTH, SELECT, PING';
        ends_well($nginx);

        $nginx = nginx($redis, %login, password => 'wr0ng-secret');
        my ($result, $ms) = $nginx->ask(1, 'PING');
        is $result, 'closed', 'a wrong one: closed';
        cmp_ok $ms, '<', 250, 'at once';

        my $until = now() + 1.5;
        while (now() < $until) {
            $nginx->ask(2, 'PING');
            sleep 0.02;
        }

        is scalar(() = $nginx->log_lines(qr/\[error\].*AUTH.*"WRONGPASS"/)),
           1, 'told once';
        ok $nginx->log_lines(qr/\[info\].*AUTH.*"WRONGPASS"/),
           'then as information only';
        ok !$nginx->log_lines(qr/wr0ng-secret/), 'the password is not told';
        ends_well($nginx, qr/AUTH refused/);
    }

    my $redis = fake();
    $redis->behave('AUTH', raw => "-ERR unknown\r\n");
    $redis->behave($secret, raw =>
        "-ERR unknown command 'AUTH', with args beginning with: $secret\r\n");

    my $nginx = nginx($redis, password => $secret =~ s/"/\\"/r);
    is +($nginx->ask(1, 'PING'))[0], 'closed', 'AUTH is unknown: closed';
    ok !$nginx->log_lines(qr/geheim/), 'a quoted password is not told either';
    ok $nginx->log_lines(qr/\[error\].*AUTH refused, "ERR"/), 'the code is';
    ends_well($nginx, qr/AUTH refused/);
};


# What an administrator has to mend, and what passes

test auth_busy => sub {
    my %said = (
        "ERR max number of clients reached" => 'it has too many clients',
        "ERR max number of clients + cluster connections reached"
            => 'it has too many clients',
        "BUSY Redis is busy running a script. You can only call ..." => 'BUSY',
        "LOADING Redis is loading the dataset in memory"          => 'LOADING',
        "MASTERDOWN Link with MASTER is down"                  => 'MASTERDOWN',
    );

    foreach my $case (['AUTH', 'k3y'], ['SELECT', 7]) {
        my ($command, $key) = @$case;

        foreach my $error (sort keys %said) {
            my $redis = fake();
            $redis->behave($key, raw => "-$error\r\n");
            my $nginx = nginx($redis, $command eq 'AUTH' ? 'password' : 'db',
                              $key, timeout => '300ms');

            is +($nginx->ask(1, 'PING'))[0], 'closed', "$command, $error";
            ok $nginx->log_lines(
                qr/\[info\].*in answer to $command: $said{$error},/),
                'what it is';

            # the server says so before it was asked

            $redis->behave($key);
            $redis->behave('accept', raw => "-$error\r\n",
                           cut => 3 + length $error);
            $nginx->ask(2, 'PING') for 1 .. 2;
            $redis->behave('accept');
            $redis->behave($key, raw => "+OK\r\n");
            ok defined $nginx->works_within(3), 'and then it is well';
            ends_well($nginx);
        }
    }

    my $redis = fake();             # which has no password
    my $nginx = nginx($redis, password => 'k3y');
    $nginx->ask(1, 'PING');
    ok $nginx->log_lines(qr/\[error\].*AUTH refused, "ERR"/),
       'no password where one is sent';
    ends_well($nginx, qr/AUTH refused/);
};


test select => sub {
    my $redis = redis('select');
    my $nginx = nginx($redis->node, db => 3, timeout => '300ms');

    $nginx->ask(1, 'SET', 'here', 1);
    like +($nginx->ask(2, 'INFO', 'keyspace'))[2], qr/\$/, 'INFO';
    is $redis->cli('-n', 3, 'GET', 'here'), '1', 'it is in that database';
    ends_well($nginx);

    $nginx = nginx($redis->node, db => 99, timeout => '300ms');
    is +($nginx->ask(1, 'SET', 'stray', 1))[0], 'closed',
       'no such database: closed';
    is $redis->cli('EXISTS', 'stray'), '0', 'and nothing is sent to another';
    ends_well($nginx, qr/SELECT refused, "ERR"/);

    foreach my $raw ("\$-1\r\n", ":1\r\n", "*1\r\n+OK\r\n") {
        my $fake = fake();
        $fake->behave('7', raw => $raw);
        $nginx = nginx($fake, db => 7, timeout => '300ms');
        is +($nginx->ask(1, 'PING'))[0], 'closed', 'a strange reply: closed';
        ends_well($nginx, qr/SELECT refused, "unexpected reply"/);
    }

    my $fake = fake();
    $fake->behave('7', hang => 1);
    $nginx = nginx($fake, db => 7, timeout => '200ms');
    is +($nginx->ask(1, 'PING'))[0], 'timeout', 'none at all: timeout';
    sleep 0.45;
    $nginx->tell('send 2 none PING');
    is +($nginx->done(2, 3))[0], 'timeout', 'as long as it greets';
    $nginx->tell('send 3 none PING');
    is +($nginx->done(3, 3))[0], 'closed', 'then it is given up';
    ends_well($nginx);
};


test tls => sub {
    my $folder = file('tls');
    my $redis  = redis('tls', tls => 1);
    my $ca     = "$folder/ca.crt";
    my %tls    = (tls => $ca, tls_name => 'redis.test', timeout => '2s');

    foreach my $use (@METHODS) {
        my $nginx = nginx($redis->tls_node, %tls, use => $use);

        is +($nginx->ask(1, 'PING'))[2], '+PONG', "$use: a good certificate";
        $nginx->tell('burst 5000 500 1000');
        is $nginx->line(qr/^burst/, 60), 'burst 5000 0 0 0 0',
           "$use: many operations";
        $nginx->tell('burst 200 50 30000');
        is $nginx->line(qr/^burst/, 60), 'burst 200 0 0 0 0',
           "$use: long ones";
        $redis->kill;
        $redis->start;
        ok defined $nginx->works_within(3), "$use: it works again by itself";
        foreach my $id (2 .. 30) {
            $nginx->tell("send $id close PING");
            $nginx->done($id);
        }
        is +($nginx->ask(50, 'PING'))[2], '+PONG', "$use: closed and opened";
        ends_well($nginx);
    }

    my $nginx = nginx($redis->tls_node, %tls, tls_name => '127.0.0.1');
    is +($nginx->ask(1, 'PING'))[2], '+PONG', 'a certificate for an address';
    ends_well($nginx);

    $nginx = nginx($redis->tls_node, tls => $ca, timeout => '2s');
    is +($nginx->ask(1, 'PING'))[2], '+PONG', 'the node\'s own';
    ends_well($nginx);

    my %bad = (
        'another name'      => [{ %tls, tls_name => 'other.test' },
                                qr/certificate is not for "other.test"/],
        'another address'   => [{ %tls, tls_name => '127.0.0.2' },
                                qr/certificate is not for "127.0.0.2"/],
        'an IPv6 address'   => [{ %tls, tls_name => '[::1]' },
                                qr/certificate is not for/],
        'another authority' => [{ %tls, tls => "$folder/other.crt" },
                                qr/certificate is refused/],
    );

    foreach my $name (sort keys %bad) {
        my ($options, $told) = @{ $bad{$name} };
        $nginx = nginx($redis->tls_node, %$options);
        is +($nginx->ask(1, 'PING'))[0], 'closed', "$name: closed";
        is scalar(() = $nginx->log_lines($told)), 1, "$name: told";
        ends_well($nginx, $told);
    }

    $nginx = nginx($redis->tls_node, tls => 'unverified', timeout => '2s');
    is +($nginx->ask(1, 'PING'))[2], '+PONG', 'not verified';
    ends_well($nginx);
};


# A server that wants to see a certificate, while its client has none.  With TLS
# 1.3 the link is up before it is refused.

test tls_client => sub {
    my $redis = redis('client', tls => 1, tls_clients => 1);
    my %tls   = (tls => file('client') . '/ca.crt', timeout => '1s');

    foreach my $case (['TLSv1.2', 'handshake failure', 40],
                      ['TLSv1.3', 'certificate required', 116])
    {
        my ($protocol, $why, $alert) = @$case;

        foreach my $use (@METHODS) {
            $redis->kill;
            $redis->start('--tls-protocols', $protocol);
            my $nginx = nginx($redis->tls_node, %tls, use => $use);

            foreach my $id (1 .. 4) {
                is +($nginx->ask($id, 'PING'))[0], 'closed',
                   "$protocol, $use: closed";
                sleep 0.45;
            }

            my @told = $nginx->log_lines(
                qr/failed: TLS: \Q$why (the server's alert $alert)\E/);

            is scalar(@told), 4, "$protocol, $use: told each time";
            is scalar(grep { /\[error\]/ } @told), 1, "$protocol, $use: once";
            is join('', $nginx->log_lines(qr/SSL/)), '',
               "$protocol, $use: only by us";
            ends_well($nginx, qr{failed: TLS: });
        }
    }
};


# A server with two certificates, of which the one for redis.test is shown only
# to a client that names it.

test tls_sni => sub {
    my $folder = redis('sni', tls => 1)->folder;
    my $node   = '127.0.0.1:' . IapGuard::RedisServer::free_port();
    my $server = IapGuard::Child->program({ output => "$folder/sni.out" },
        qw(openssl s_server -quiet -servername redis.test -accept), $node,
        '-cert', "$folder/other.crt", '-key', "$folder/other.key",
        '-cert2', "$folder/redis.crt", '-key2', "$folder/redis.key");

    my $until = now() + 5;
    sleep 0.02 until IO::Socket::INET->new($node) || now() > $until;

    # which shakes hands, and that's all

    my $nginx = nginx($node, tls => "$folder/ca.crt",
                      tls_name => 'redis.test', timeout => '1s');
    $nginx->ask(1, 'PING');
    ok $nginx->log_lines(qr/redis link is up/), 'it has the right certificate';
    ends_well($nginx);
    $server->stop;
};


test tls_refused => sub {
    my $redis = fake();
    my %tls   = (tls => 'unverified', timeout => '200ms');

    $redis->behave('accept', raw => "-ERR what?\r\n");
    my $nginx = nginx($redis, %tls);
    is +($nginx->ask(1, 'PING'))[0], 'closed', 'a server without TLS';
    ok $nginx->log_lines(qr/\[error\].*failed: TLS: wrong version number, /),
       'it is told';
    ends_well($nginx, qr{TLS: wrong version number});

    foreach my $how (qw(cut reset)) {
        $redis->behave('accept', raw => '', $how => 0);
        $nginx = nginx($redis, %tls);
        is +($nginx->ask(1, 'PING'))[0], 'closed', "$how in the handshake";
        ends_well($nginx);
    }

    $redis->behave('accept');
    $nginx = nginx($redis, %tls);
    my $start = now();
    my ($result, $ms) = $nginx->ask(1, 'PING');
    is $result, 'timeout', 'a handshake that stalls: timeout';
    between($ms, 195, 260, 'in time');

    sleep 0.9 - (now() - $start);
    $nginx->tell('send 2 none PING');
    is +($nginx->done(2))[0], 'closed', 'then it is given up';
    between(int(1000 * (now() - $start)), 980, 1150, 'after a second');

    $nginx->works_within(0.2);
    ends_well($nginx);
};


1;
