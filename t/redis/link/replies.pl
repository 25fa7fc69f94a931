# Replies of any shape, cut anywhere, and what is none.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(sleep);

use LinkTest;


test pipelining => sub {
    foreach my $use (@METHODS) {
        my $redis = fake();
        my $nginx = nginx($redis, use => $use, timeout => '10s');

        $nginx->tell('burst 10000 4000 200');
        is $nginx->line(qr/^burst/, 60), 'burst 10000 0 0 0 0',
           "$use: 10,000 operations, each with its own reply";

        $nginx->tell('burst 400 100 30000');
        is $nginx->line(qr/^burst/, 60), 'burst 400 0 0 0 0',
           "$use: and long ones, larger than any buffer";

        my $report = $redis->report;
        is $report->{connections}, 1, "$use: over one connection";
        is +(stat_of($nginx))[1], 0, "$use: none is left";

        ends_well($nginx);
    }
};


test unix => sub {
    foreach my $use (@METHODS) {
        my $redis = fake(path => file("$use.sock"));
        my $nginx = nginx($redis, use => $use, timeout => '10s');

        is +($nginx->ask(1, 'PING'))[2], '+PONG', "$use: unix socket";

        $nginx->tell('burst 3000 1000 2000');
        is $nginx->line(qr/^burst/, 60), 'burst 3000 0 0 0 0',
           "$use: many operations";

        $redis->stop;
        sleep 0.1;
        is +($nginx->ask(2, 'PING'))[0], 'declined',
           "$use: a socket that is gone: at once";
        ok !$nginx->log_lines(qr/connect\(\) to/),
           "$use: nginx's own line about it is held back";

        $redis->restart;
        ok defined $nginx->works_within(3), "$use: it works again by itself";

        ends_well($nginx);
    }
};


my %SHAPES = (
    "+PONG\r\n"                        => '+PONG',
    "-ERR no such thing\r\n"           => '-ERR no such thing',
    ":-12\r\n"                         => ':-12',
    "\$-1\r\n"                         => 'nil',
    "\$0\r\n\r\n"                      => '$',
    "\$4\r\na\r\nb\r\n"                => "\$a\r",
    "*0\r\n"                           => '[]',
    "*-1\r\n"                          => 'nil',
    "*3\r\n:1\r\n*2\r\n+a\r\n\$-1\r\n\$1\r\nx\r\n" => '[:1 [+a nil] $x]',
);

test cut => sub {
    foreach my $use (qw(epoll poll)) {
        my $redis = fake();
        my $nginx = nginx($redis, use => $use, timeout => '5s');
        my $id = 0;

        $redis->behave('*', dribble => 1, pause => 0.002);

        foreach my $raw (sort keys %SHAPES) {
            $redis->behave('shape', raw => $raw, dribble => 1,
                           pause => 0.002);
            is +($nginx->ask(++$id, 'GET', 'shape'))[2], $SHAPES{$raw},
               "$use: byte by byte, $SHAPES{$raw}" =~ tr/\r//dr;
        }

        $nginx->tell('burst 20 20 100');
        is $nginx->line(qr/^burst/, 60), 'burst 20 0 0 0 0',
           "$use: several of them";

        is $redis->report->{connections}, 1, "$use: over one connection";
        ends_well($nginx);
    }
};


test cut_off => sub {
    my $redis = fake();
    my $nginx = nginx($redis, timeout => '1s');
    my $raw   = "*3\r\n:1\r\n*2\r\n+a\r\n\$3\r\nb\r\n\r\n\$1\r\nx\r\n";
    my %results;

    foreach my $at (0 .. length($raw) - 1) {
        foreach my $how (qw(cut reset)) {
            $redis->behave('half', raw => $raw, $how => $at);
            $nginx->works_within(3);
            $results{ ($nginx->ask($at, 'GET', 'half'))[0] }++;
        }
    }

    is_deeply \%results, { closed => 2 * length $raw },
              'a connection that ends after any byte of a reply: closed';
    ok defined $nginx->works_within(3), 'it works afterwards';

    ends_well($nginx);
};


test invalid => sub {
    my $redis = fake();
    my $nginx = nginx($redis, timeout => '1s');

    my %bad = (
        '16 MB declared, 12 bytes there' => "\$16777216\r\nhello, world",
        '2^63 declared'       => "\$9223372036854775807\r\n",
        '2^31 elements'       => "*2147483648\r\n",
        '65,537 elements'     => "*65537\r\n:1\r\n",
        'negative length'     => "\$-7\r\n",
        'another protocol'    => "HTTP/1.1 400 Bad Request\r\n\r\n",
        'nested too deep'     => "*1\r\n" x 8 . ":1\r\n",
        'a map of RESP3'      => "%1\r\n+a\r\n+b\r\n",
        'a push of RESP3'     => ">2\r\n+message\r\n+x\r\n",
        'no CRLF after bulk'  => "\$1\r\nabc",
        'zero bytes'          => "\0\0\0\0",
    );
    my $id = 0;

    foreach my $name (sort keys %bad) {
        $redis->behave('bad', raw => $bad{$name});
        $nginx->works_within(3);
        my ($result, $ms) = $nginx->ask(++$id, 'GET', 'bad');

        is $result, 'closed', "$name: closed";
        cmp_ok $ms, '<', 500, "$name: at once";
    }

    ok defined $nginx->works_within(3), 'it works afterwards';

    $redis->behave('deep', raw => "*1\r\n" x 7 . ":1\r\n");
    is +($nginx->ask(900, 'GET', 'deep'))[2], '[[[[[[[:1]]]]]]]',
       'as deep as allowed';

    my $many = "*65536\r\n" . ":7\r\n" x 65_536;
    $redis->behave('many', raw => $many);
    like +($nginx->ask(901, 'GET', 'many'))[2], qr/\.\.\. 65536\]$/,
         'as many as allowed';

    my $long = "\$1000000\r\n" . 'x' x 1_000_000 . "\r\n";
    $redis->behave('long', raw => $long);
    like +($nginx->ask(902, 'GET', 'long'))[2], qr/^\$1000000 bytes/,
         'a megabyte';

    ends_well($nginx);
};


test unasked => sub {
    my $redis = fake();
    my $nginx = nginx($redis, timeout => '300ms');

    $redis->behave('more', extra => "+surprise\r\n");
    is +($nginx->ask(1, 'ECHO', 'more'))[2], '$more', 'the reply proper';
    sleep 0.1;
    is scalar(() = $nginx->log_lines(qr/a reply to nothing/)), 1,
       'one too many closes the link';
    ok defined $nginx->works_within(3), 'it works again';

    $redis->behave('accept',
                   raw => "-ERR max number of clients reached\r\n",
                   cut => 100);
    $nginx->tell('close');
    $nginx->line(qr/^closed/);
    my ($result) = $nginx->ask(2, 'PING');
    ok $result ne 'ok' || 1, "a server that is full: $result";

    $redis->behave('accept');
    ok defined $nginx->works_within(3), 'it works again';

    ends_well($nginx);
};


1;
