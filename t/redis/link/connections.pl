# Connections that fail, end and come back, and names.

use strict;
use warnings;

use IO::Socket::INET;
use Test::More;
use Time::HiRes qw(sleep);

use LinkTest;


test refused => sub {
    my $redis = fake();
    my $port  = $redis->port;
    my ($n, $last, @gaps) = (0, 0);

    $redis->stop;
    my $nginx = nginx("127.0.0.1:$port", timeout => '100ms');
    my $start = now();

    while (now() < $start + 5) {
        $nginx->tell('send 1 none PING');
        my $line = $nginx->line(qr/^(?:sent 1 declined|done 1 )/);

        if ($line =~ /declined/) {
            sleep 0.002;
            next;
        }

        push @gaps, now() - $last if $last;
        $last = now();
    }

    cmp_ok scalar @gaps, '>=', 6, 'tried again: ' . @gaps . ' times in 5 s';
    cmp_ok scalar @gaps, '<=', 16, 'not all the time';
    cmp_ok $gaps[0], '<', 0.08, 'soon at first';
    cmp_ok $gaps[-1], '>', 0.3, 'later less often';
    cmp_ok $_, '<=', 1.1, 'but once a second at least' foreach $gaps[-1];

    my @lines = $nginx->log_lines(qr/\[info\].*redis link failed/);
    cmp_ok scalar @lines, '<=', @gaps + 2, 'a line each';

    $redis->restart;
    cmp_ok $nginx->works_within(3) // 9, '<', 1.2, 'back within a second';

    # an answer has come: the backoff begins anew

    $redis->stop;
    $nginx->ask(2, 'PING') foreach 1, 2;
    $start = now();

    while (($nginx->ask(3, 'PING'))[0] eq 'declined') {
        sleep 0.002;
    }

    cmp_ok now() - $start, '<', 0.15, 'tried again soon, as at first';

    ends_well($nginx);
};


test restarted => sub {
    my $redis = redis('restarted');
    my $nginx = nginx($redis->node, timeout => '200ms');

    foreach my $round (1 .. 5) {
        is +($nginx->ask($round, 'PING'))[2], '+PONG', "round $round";

        $nginx->tell('send 100 none BLPOP nothing 0') if $round % 2;
        sleep 0.02;
        $redis->kill;
        is +($nginx->done(100))[0], 'closed', 'killed: closed'
            if $round % 2;

        $redis->start;
        ok defined $nginx->works_within(3), 'it works again by itself';
    }

    ends_well($nginx);
};


test idle_closed => sub {
    my $redis = fake();
    my $nginx = nginx($redis, timeout => '200ms');

    $nginx->ask(1, 'PING');
    $redis->restart;
    sleep 0.05;
    ok !ready($nginx), 'a link that is closed while idle is noticed';

    my ($result) = $nginx->ask(2, 'PING');
    is $result, 'ok', 'and opened by the next operation';

    # closed by the server right after each reply

    $redis->behave('last', cut => 1000);
    my %results;

    foreach my $id (10 .. 29) {
        $results{ ($nginx->ask($id, 'ECHO', 'last'))[2] }++;
        sleep 0.01;
    }

    is_deeply \%results, { '$last' => 20 }, 'without a backoff';

    ends_well($nginx);
};


test idle_cpu => sub {
    foreach my $use (@METHODS) {
        my $redis = fake();
        my $nginx = nginx($redis, use => $use);

        $nginx->tell('burst 200 200 30000');
        $nginx->line(qr/^burst/);
        my $before = cpu($nginx);
        sleep 0.6;
        cmp_ok cpu($nginx) - $before, '<', 0.2, "$use: idle is idle";

        ends_well($nginx);
    }
};


test reconnects => sub {
    my $redis = fake();
    my $nginx = nginx($redis, timeout => '500ms', connections => 32);

    $nginx->ask(1, 'PING');
    my ($free) = stat_of($nginx);
    my $rss;

    foreach my $i (1 .. 2000) {
        $nginx->tell('close') if $i % 2;
        $nginx->tell("send 2 close PING") unless $i % 2;
        $nginx->tell("send 3 none ECHO x");
        $nginx->line(qr/^done 3 /);
        $nginx->line(qr/^done 2 /) unless $i % 2;
        $rss = rss($nginx) if $i == 200;
    }

    $nginx->works_within(3);
    is +(stat_of($nginx))[0], $free,
       'many reconnects: no connection of nginx\'s is lost';
    is +(stat_of($nginx))[1], 0, 'nor any operation';
    note "resident: $rss kB after 200, ", rss($nginx), ' after 2,000';

    my $report = $redis->report;
    is $report->{clients}, 1, 'nor any of the server\'s';
    cmp_ok $report->{connections}, '>=', 1000, "of $report->{connections}";

    ends_well($nginx);
};


test no_slot => sub {
    my $redis = fake();
    my $nginx = nginx($redis, timeout => '200ms', connections => 8);

    $nginx->tell('take');
    $nginx->tell('send 1 none PING');
    like $nginx->line(qr/^sent 1/), qr/declined/,
         'no connection left in the worker: declined';

    $nginx->tell('give');
    ok defined $nginx->works_within(2), 'it works when there is one again';

    ends_well($nginx, qr/worker_connections are not enough/);
};


# Addresses of one node, of which only the last is any good: none of the others
# hides it for longer than it takes to give that one up.

my %BAD = (
    'nobody there' => [],
    'no answer to connect()' => [holes => 1],
    'no answer to AUTH'      => [mute => 1, password => 'secret'],
    'no answer to a command' => [mute => 1],
    'no handshake'           => [mute => 1, tls => 'unverified'],
);

test addresses => sub {
    foreach my $what (sort keys %BAD) {
        my %options = @{ $BAD{$what} };
        my ($hole, $mute, $tls)
            = (delete @options{qw(holes mute)}, $options{tls});
        my $redis = $tls ? redis('addresses', tls => 1)
                         : fake(auth => $options{password});
        my $port  = $tls ? ($redis->tls_node =~ /(\d+)$/)[0] : $redis->port;
        my (@deaf, @full);

        foreach my $address ('127.0.0.2', '127.0.0.3') {
            push @deaf, IO::Socket::INET->new(LocalAddr => $address,
                LocalPort => $port, Proto => 'tcp',
                Listen => $hole ? 1 : 64) // die "$address: $!\n"
                if $hole || $mute;
            push @full, map { IO::Socket::INET->new(PeerAddr => $address,
                PeerPort => $port, Blocking => 0) } 1 .. ($hole ? 4 : 0);
        }

        my $nginx = nginx("127.0.0.2,127.0.0.3,127.0.0.1:$port", %options,
                          timeout => '100ms');
        my $took = $nginx->works_within(6);

        ok defined $took, "$what: the next address is tried"
            or diag $nginx->log_lines(qr/./);
        cmp_ok $took // 9, '<', 3.5, 'soon';

        # what is good stays in use

        is +($nginx->ask(1, 'ECHO', 'mine'))[2], '$mine', 'it works';
        ends_well($nginx);
        $redis->stop;
    }
};


test names => sub {
    my $redis = fake();
    my $dns   = name_server();
    my %with  = (resolver => $dns->address, timeout => '300ms');
    my $nginx = nginx('good.test:' . $redis->port, %with);

    is +($nginx->ask(1, 'PING'))[2], '+PONG', 'a name';
    $nginx->tell('close');
    is +($nginx->ask(2, 'PING'))[2], '+PONG', 'once more, from the cache';
    ends_well($nginx);

    $nginx = nginx('two.test:' . $redis->port, %with);
    foreach my $id (1 .. 6) {
        is +($nginx->ask($id, 'PING'))[2], '+PONG',
           'two addresses, of which one is refused';
        $nginx->tell('close');
    }
    ends_well($nginx);

    $nginx = nginx('none.test:6379', %with);
    my ($result, $ms) = $nginx->ask(1, 'PING');
    is $result, 'closed', 'no such name: closed';
    cmp_ok $ms, '<', 250, 'at once';
    ends_well($nginx);

    $nginx = nginx('hole.test:6379', %with);
    ($result, $ms) = $nginx->ask(1, 'PING');
    is $result, 'timeout', 'no answer: the operation times out';
    between($ms, 295, 380, 'in time');
    $nginx->tell('send 2 none PING');
    is +($nginx->done(2))[0], 'timeout', 'so does the next';
    $nginx->tell('close');
    ends_well($nginx);

    $nginx = nginx('hole.test:6379', %with);
    $nginx->tell('send 1 none PING');
    $nginx->line(qr/^sent/);
    ends_well($nginx);

    my $slow = name_server(delay => 0.3);
    my $before = $redis->report->{connections};
    $nginx = nginx('good.test:' . $redis->port, timeout => '2s',
                   resolver => $slow->address);
    $nginx->tell("send 1 none PING\nclose\nsend 2 none PING");
    is +($nginx->done(1))[0], 'closed', 'closed while the name is asked for';
    is +($nginx->done(2))[0], 'ok', 'the next asks again';
    is $redis->report->{connections}, $before + 1, 'it is connected once';
    ends_well($nginx, qr/wrong ident/);

    $nginx = nginx('127.0.0.1:' . $redis->port, %with);
    is +($nginx->ask(1, 'PING'))[2], '+PONG', 'an address with a resolver';
    ends_well($nginx);

    $nginx = nginx('good.test:' . $redis->port);
    is +($nginx->ask(1, 'PING'))[0], 'declined', 'a name without a resolver';
    ends_well($nginx, qr/no resolver to resolve "good.test"/);
};


1;
