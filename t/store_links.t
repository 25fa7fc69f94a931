# How the store is reached: sockets, databases, users, TLS and certificates of
# both sides, and what is said of a user or a certificate that is refused; more
# that ask than may wait; an address that moves, nodes that are slow to greet, and
# one that is full.

use strict;
use warnings;

use File::Copy qw(copy);
use Test::More;
use Time::HiRes qw(sleep);

use lib 't/lib';
use IapGuard::Child;
use IapGuard::FakeRedis;
use IapGuard::LoadClient;
use IapGuard::Loop;
use IapGuard::Port qw(free_port);
use IapGuard::Relay;
use IapGuard::StoreTest;

my $server = '
    location /t { iap_guard g; iap_guard_user $arg_u capacity=2 rate=1r/h;
                  empty_gif; }';

# the socket is nginx's workers' to use

my $redis = redis(tls => 1, options => ['--unixsocket', 'socket',
                                        '--unixsocketperm', '777']);
my $folder = $redis->folder;

chmod 0755, $folder or die "$folder: $!\n";

$redis->cli('ACL', 'SETUSER', 'guard', 'on', '>p@ss:word', '~shop:*',
            map { "+$_" } qw(eval evalsha time get set del incrby pexpireat
                             zrange zmscore zcount zadd zrem
                             zremrangebyscore));

file("$folder/password", "p\@ss:word\n");
file("$folder/wrong", "s3cret\n");


# each is: name, the directive's parameters, the database, the key

my @reached = (

    [ 'a unix socket', "unix:$folder/socket timeout=5s", 0, 'iap:g:user:a' ],
    [ 'a unix socket, another database', "unix:$folder/socket:5 timeout=5s", 5,
      'iap:g:user:a' ],
    [ 'another database', $redis->node . '/7 timeout=5s', 7, 'iap:g:user:a' ],
    [ 'a name', 'localhost:' . $redis->port . ' timeout=5s', 0,
      'iap:g:user:a' ],
    [ 'user and password in the URL',
      'redis://guard:p%40ss%3aword@' . $redis->node
      . ' timeout=5s prefix=shop', 0, 'shop:g:user:a' ],
    [ 'user and password apart', $redis->node . ' user=guard '
      . "password_file=$folder/password timeout=5s prefix=shop", 0,
      'shop:g:user:a' ],
    [ 'user and password at a unix socket', "unix:$folder/socket user=guard "
      . "password_file=$folder/password timeout=5s prefix=shop", 0,
      'shop:g:user:a' ],
    [ 'TLS', 'rediss://' . $redis->tls_node
      . " tls_ca=$folder/ca.crt timeout=5s", 0, 'iap:g:user:a' ],
    [ 'TLS, user and password, another database',
      'rediss://default:any@' . $redis->tls_node
      . "/2 tls_ca=$folder/ca.crt timeout=5s", 2, 'iap:g:user:a' ],
    [ 'a proxy', $redis->node . ' mode=proxy timeout=5s', 0, 'iap:g:user:a' ],
);

foreach my $row (@reached) {
    my ($name, $words, $db, $key) = @$row;

    subtest $name => sub {
        my $nginx = site($redis, $words, server => $server);

        is verdict($nginx, '/t?u=a'), 'passed//redis', 'it is asked';
        is statuses($nginx, '/t?u=a', 2), '200 429', 'it counts';
        is keys_of($redis, $db), $key, 'where it is to';

        ends_well($nginx);
        $redis->cli('FLUSHALL');
    };
}


# each is: name, the directive's parameters, what the log says

my @refused = (

    [ 'a wrong password', 'redis://guard:s3cret@' . $redis->node,
      qr/\[error\].*AUTH refused, "WRONGPASS"/ ],
    [ 'a wrong password in a file', $redis->node . ' user=guard '
      . "password_file=$folder/wrong", qr/\[error\].*AUTH refused/ ],
    [ 'a database that there is not', $redis->node . '/99',
      qr/\[error\].*SELECT refused/ ],
    [ 'another authority', 'rediss://' . $redis->tls_node
      . " tls_ca=$folder/other.crt", qr/\[error\].*certificate is refused/ ],
    [ 'an authority that the system does not know',
      'rediss://' . $redis->tls_node, qr/\[error\].*certificate is refused/ ],
    [ 'a certificate for another name',
      'rediss://localhost:' . $redis->{tls_port} . " tls_ca=$folder/ca.crt",
      qr/\[error\].*certificate is not for "localhost"/ ],
    [ 'keys that the user may not touch', 'redis://guard:p%40ss%3aword@'
      . $redis->node . ' prefix=other', qr/NOPERM/ ],
);

foreach my $row (@refused) {
    my ($name, $words, $said) = @$row;

    subtest $name => sub {
        my $nginx = site($redis, "$words timeout=300ms", server => $server);

        is verdict($nginx, '/t?u=a'), 'passed//fallback', 'the zone decides';
        is statuses($nginx, '/t?u=a', 2), '200 429', 'as it would';
        ok(IapGuard::Nginx->wait_for(5, sub { $nginx->log_lines($said) }),
            'the log says why') or diag $nginx->log_lines(qr/redis/);
        is join('', $nginx->log_lines(qr/s3cret|ss.{1,3}word/)), '',
            'but no password';
        unlike $nginx->api('GET', 'status'), qr/s3cret|ss.{1,3}word/,
            'nor does the API';

        ends_well($nginx);
        $redis->cli('FLUSHALL');
    };
}


# The server wants a certificate, as Redis does unless told otherwise.  With TLS
# 1.3 a client that has none is refused when its handshake is already over.

my $strict = redis(tls => 1, tls_clients => 1);
my $theirs = $strict->folder;
my $strict_url = 'rediss://' . $strict->tls_node
                 . " tls_ca=$theirs/ca.crt timeout=300ms";

sub pair { return " tls_cert=$theirs/$_[0].crt tls_key=$theirs/$_[0].key" }

my $unset = ', it asks for a client\'s certificate and "tls_cert" is not set';

# each is: the protocol, what is said of a client that has none, and of one
# that an unknown authority has signed

foreach my $row (
    ['TLSv1.2', "handshake failure (the server's alert 40)$unset",
     "unknown CA (the server's alert 48)"],
    ['TLSv1.3', "certificate required (the server's alert 116)$unset",
     "unknown CA (the server's alert 48)"])
{
    my ($protocol, @why) = @$row;

    $strict->kill;
    $strict->start('--tls-protocols', $protocol);

    subtest "$protocol, with a certificate" => sub {
        my $nginx = site($strict, $strict_url . pair('client'),
                         server => $server);

        is verdict($nginx, '/t?u=a'), 'passed//redis', 'it is asked';
        is statuses($nginx, '/t?u=a', 2), '200 429', 'it counts';
        is join('', $nginx->log_lines(qr/redis link failed/)), '',
            'nothing fails';

        ends_well($nginx);
        $strict->cli('FLUSHALL');
    };

    # at the same time, for it takes some

    subtest "$protocol, without one, and with another authority's" => sub {
        my @pairs = ('', pair('stranger'));
        my @all   = map { site($strict, "$strict_url$_", server => $server) }
                        @pairs;

        is verdict($_, '/t?u=a'), 'passed//fallback', 'the zone decides'
            foreach @all;
        is statuses($_, '/t?u=a', 2), '200 429', 'as it would' foreach @all;
        refused_often(@all);

        foreach my $i (0, 1) {
            my $said  = qr/redis link failed: TLS: \Q$why[$i]\E, redis: /;
            my @lines = $all[$i]->log_lines(qr/TLS|SSL/);

            is join('', grep { $_ !~ $said } @lines), '', 'the log says why';
            is scalar(grep { /\[error\]/ } @lines), 1, 'as an error once';
            is scalar(grep { !/\[(?:error|info)\]/ } @lines), 0,
                'and then as information';
            is scalar(() = $all[$i]->log_lines(qr/is down/)), 1,
                'it is down';

            ends_well($all[$i]);
        }
    };
}


# It no longer wants one; and does once more

subtest 'a server that wants certificates, by turns' => sub {
    my $nginx = site($strict, $strict_url, server => $server);
    my $said  = sub { scalar(() = $nginx->log_lines(qr/\[error\].*TLS/)) };

    is verdict($nginx, '/t?u=a'), 'passed//fallback', 'the zone decides';
    ok down($nginx, 1), 'the store is down';
    is $said->(), 1, 'it is said';

    foreach my $wanted (0, 1) {
        $strict->{tls_clients} = $wanted;
        $strict->kill;
        $strict->start;

        ok down($nginx, 0), 'it is back' unless $wanted;
        IapGuard::Nginx->wait_for(5, sub {
            verdict($nginx, '/t?u=' . rand); $said->() == 2 }) if $wanted;

        is verdict($nginx, '/t?u=' . rand),
            'passed//' . ($wanted ? 'fallback' : 'redis'), 'who decides';
        is $said->(), $wanted ? 2 : 1, 'what is said';
    }

    ends_well($nginx);
};


# Whom the store has refused is remembered as long as it is the same store

subtest 'a certificate that is renewed' => sub {
    copied('stranger');
    my $nginx = site($strict, $strict_url . pair('own'), workers => 2,
                     server => $server);

    is verdict($nginx, '/t?u=a'), 'passed//fallback', 'the old one: refused';

    copied('client');
    ok $nginx->reload, 'a reload';
    ok down($nginx, 0), 'it is back';
    is verdict($nginx, '/t?u=b'), 'passed//redis', 'the new one is taken';
    is statuses($nginx, '/t?u=b', 2), '200 429', 'it counts';

    my $hits = hits($nginx, 'g');

    ok $nginx->change(http => $nginx->{http} =~ s/own\./client./gr),
        'another file';
    is statuses($nginx, '/t?u=b', 1), 429, 'refused as before';
    is hits($nginx, 'g'), $hits + 1, 'by what was remembered';

    ends_well($nginx);
};


# The same pair for all that is connected to

subtest 'a cluster that wants certificates' => sub {
    my $node = redis(tls => 1, tls_clients => 1,
                     options => ['--cluster-enabled', 'yes',
                                 '--cluster-port', free_port(),
                                 '--tls-cluster', 'yes']);
    my $files = $node->folder;

    $node->cli('CLUSTER', 'ADDSLOTSRANGE', 0, 16383);
    ok(IapGuard::Nginx->wait_for(10, sub {
        $node->cli('CLUSTER', 'INFO') =~ /cluster_state:ok/ }), 'it is well');

    my $nginx = site($node, 'rediss://' . $node->tls_node . ' mode=cluster'
        . " tls_ca=$files/ca.crt tls_cert=$files/client.crt"
        . " tls_key=$files/client.key timeout=5s", server => $server);

    is verdict($nginx, '/t?u=a'), 'passed//redis', 'it is asked';
    ends_well($nginx);
};

subtest 'a sentinel that wants certificates' => sub {
    my $port = free_port();
    my $file = "$theirs/sentinel.conf";
    my ($master) = $strict->tls_node =~ /:(\d+)/;

    file($file, <<"END");
port 0
tls-port $port
tls-auth-clients yes
tls-replication yes
tls-cert-file $theirs/redis.crt
tls-key-file $theirs/redis.key
tls-ca-cert-file $theirs/ca.crt
bind 127.0.0.1
dir $theirs
sentinel monitor mymaster 127.0.0.1 $master 1
END

    my $sentinel = IapGuard::Child->program({ output => "$file.out" },
        $ENV{REDIS_SERVER} || 'redis-server', $file, '--sentinel');

    my %cases = ('client' => 'redis', 'stranger' => 'fallback');

    foreach my $who (sort keys %cases) {
        my $nginx = site($strict, "rediss://127.0.0.1:$port mode=sentinel"
            . " master=mymaster tls_ca=$theirs/ca.crt timeout=1s" . pair($who),
            server => $server);

        ok(IapGuard::Nginx->wait_for(10, sub {
            verdict($nginx, '/t?u=' . rand) eq "passed//$cases{$who}" }),
            "$who: $cases{$who}");

        is scalar(grep { /unknown CA/ } $nginx->log_lines(qr/\[error\].*:$port/)),
            $who eq 'client' ? 0 : 1, "$who: the log says why";
        ends_well($nginx);
    }

    $sentinel->stop;
};


# Two calls of each request, for its keys are at two places; 4096 may wait on a
# connection, and one of them is the reading of the log of bans, each half second.
# So one request has only one of its calls there, and is decided without the
# server, too, but when that one is told.  That it is full says nothing about the
# server.

subtest 'more ask than may wait' => sub {
    my ($all, $left, %seen) = (2200, 2200);
    my $nginx = site($redis, $redis->node . ' mode=proxy timeout=20s',
        connections => 4096, server => '
        location /t { iap_guard g; iap_guard_user $arg_u capacity=2 rate=1r/h;
                      iap_guard_device $arg_u capacity=2 rate=1r/h;
                      empty_gif; }');

    is verdict($nginx, '/t?u=a'), 'passed//redis', 'it is asked';

    my $loop = IapGuard::Loop->new;
    my $client = IapGuard::LoadClient->new(loop => $loop, timeout => 60,
        port => $nginx->port, connections => $all);

    $redis->freeze;
    sleep 1.5;
    $client->request({ method => 'GET', path => "/t?u=u$_" }, sub {
        my ($answer) = @_;
        $seen{ join ' ', $answer->{status} || $answer->{error},
                         $answer->{headers}{'x-store'} || '-' }++;
        $left--;
    }) foreach 1 .. $all;

    $loop->run_until(sub { ($seen{'200 fallback'} || 0) >= $all - 2048 });
    is_deeply [keys %seen], ['200 fallback'],
        'who may not wait is decided without it';
    is $nginx->metrics->{iap_guard_store_up}, 1, 'which is not down';
    $redis->thaw;
    $loop->run_until(sub { !$left });
    $client->shut;

    is_deeply \%seen, { '200 redis' => 2047, '200 fallback' => $all - 2047 },
        'the others are told when it goes on';
    is verdict($nginx, '/t?u=b'), 'passed//redis', 'and it is asked';
    is join('', $nginx->log_lines(qr/is down/)), '', 'it never was down';

    ends_well($nginx);
    $redis->cli('FLUSHALL');
};


# What the address leads to moves to another server, behind a proxy or by a
# virtual address, while connections to the one before stay.

subtest 'the address of a server that is master no more moves on' => sub {
    my ($old, $new) = (redis(), redis());
    my $relay = IapGuard::Relay->new($old->port);
    my $nginx = site($redis, '127.0.0.1:' . $relay->port . ' timeout=1s',
                     server => $server);

    is verdict($nginx, '/t?u=a'), 'passed//redis', 'before';

    $old->cli('REPLICAOF', '127.0.0.1', $new->port);
    statuses($nginx, "/t?u=x$_", 1) foreach 1 .. 8;
    ok down($nginx, 1), 'it can not be written to: it is down';
    sleep 1.2;
    ok !$nginx->metrics->{iap_guard_store_up}, 'and stays so';

    $relay->to($new->port);
    ok down($nginx, 0), 'the other one: it is back by itself';
    is verdict($nginx, '/t?u=b'), 'passed//redis', 'after';

    ends_well($nginx);
    $relay->stop;
    $_->stop foreach $old, $new;
};


# To connect may take longer than a decision waits, also to whoever is to say
# where the nodes are.

subtest 'a cluster whose nodes take long to greet' => sub {
    my $fake = IapGuard::FakeRedis->new(auth => 'secret')->start;
    my $port = $fake->port;

    file("$folder/slow", "secret\n");
    $fake->behave('secret', raw => "+OK\r\n", delay => 0.4);
    $fake->behave('*', raw => "*2\r\n:1\r\n\$1\r\nA\r\n");
    $fake->behave('SLOTS', raw => "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n"
                                  . "\$9\r\n127.0.0.1\r\n:$port\r\n");

    my $nginx = site($redis, "127.0.0.1:$port mode=cluster timeout=100ms "
                             . "password_file=$folder/slow",
                     server => $server);

    is verdict($nginx, '/t?u=a'), 'passed//fallback', 'the zone decides';
    ok(IapGuard::Nginx->wait_for(5, sub {
        verdict($nginx, '/t?u=b') eq 'passed//redis' }), 'then the cluster');

    ends_well($nginx);
    $fake->stop;
};


# Proxies, and Redis before 6, say no more than that of a wrong password.

subtest 'a wrong password, in few words' => sub {
    foreach my $error ('ERR invalid password',
                       'ERR Client sent AUTH, but no password is set') {
        my $fake = IapGuard::FakeRedis->new(auth => 'secret')->start;
        $fake->behave('w0rd', raw => "-$error\r\n");
        file("$folder/word", "w0rd\n");

        my $nginx = site($redis, '127.0.0.1:' . $fake->port . ' timeout=300ms '
                                 . "password_file=$folder/word",
                         server => $server);

        is verdict($nginx, '/t?u=a'), 'passed//fallback', 'the zone decides';
        statuses($nginx, '/t?u=b', 5);
        ok down($nginx, 1), 'it is down';
        is scalar(my @said = $nginx->log_lines(
                      qr/\[error\].*failed: AUTH refused, "ERR"/)), 1, $error;
        like join('', $nginx->log_lines(qr/is down/)),
            qr/is down: AUTH refused, "ERR";/, 'as the line says it, too';
        is join('', $nginx->log_lines(qr/w0rd/)), '', 'and no password';

        ends_well($nginx);
        $fake->stop;
    }
};


# A server without room for one more client does not refuse the password

subtest 'a server that is full' => sub {
    my $fake = IapGuard::FakeRedis->new(auth => 'secret')->start;
    my $full = "-ERR max number of clients reached\r\n";

    $fake->behave('accept', raw => $full, cut => length $full);

    my $nginx = site($redis, '127.0.0.1:' . $fake->port . ' timeout=300ms '
                             . "password_file=$folder/slow",
                     server => $server);

    statuses($nginx, "/t?u=x$_", 1) foreach 1 .. 6;
    ok down($nginx, 1), 'it is down';
    like join('', $nginx->log_lines(qr/is down/)),
        qr/is down: it has too many clients;/, 'and why';
    is join('', $nginx->log_lines(qr/AUTH refused/)), '',
        'which is not the password';

    ends_well($nginx);
    $fake->stop;
};


done_testing;


# until it has been tried some times after it was given up, by each

sub refused_often {
    my (@all) = @_;

    ok down($_, 1), 'the store is down' foreach @all;

    my @tried = map { scalar(() = $_->log_lines(qr/link failed/)) } @all;

    return ok(IapGuard::Nginx->wait_for(10, sub {
        return !grep { $all[$_]->log_lines(qr/link failed/) < $tried[$_] + 2 }
                     0 .. $#all;
    }), 'it is tried');
}


sub copied {
    my ($who) = @_;

    foreach my $kind (qw(crt key)) {
        copy("$theirs/$who.$kind", "$theirs/own.$kind")
            or die "$who.$kind: $!\n";
    }

    return;
}


sub file {
    my ($name, $text) = @_;

    open my $file, '>', $name or die "$name: $!\n";
    print {$file} $text;
    close $file or die "$name: $!\n";

    return;
}
