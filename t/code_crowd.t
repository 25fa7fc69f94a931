# Many requests with one code at once: those that wait for the first one, and what
# becomes of them when that one ends, is refused, or can't be told; and who has a
# unit, however his requests have ended.

use strict;
use warnings;

use IO::Select;
use IO::Socket::INET;
use Test::More;

use lib 't/lib';

use IapGuard::CodeTest;
use IapGuard::Loop;
use IapGuard::Nginx;
use IapGuard::RedisProxy;
use IapGuard::RedisServer;

use constant CROWD => 6;

my %paths = IapGuard::Nginx->options;
my $redis = IapGuard::RedisServer->new(
    options => ['--appendonly', 'yes', '--maxmemory-policy', 'noeviction']);

my ($proxy, $test);

foreach my $part ([\&owner_retries], [\&owner_taps_twice], [\&owner_elsewhere],
                  [\&switched_off], [\&dry_run], [\&other_location],
                  [\&cut_off],
                  [\&hangs, store_timeout => '400ms',
                   guard => 'iap_guard_device $http_x_device_id capacity=5
                             rate=5r/m on_error=reject;']) {
    my ($code, %options) = @$part;

    $proxy = IapGuard::RedisProxy->new($redis);
    $test  = IapGuard::CodeTest->new(paths => \%paths, workers => 1,
        redis => $proxy, timeout => '20s', store_timeout => '9s',
        guard => 'iap_guard_bucket b $http_x_user_id capacity=3 rate=1r/h;',
        code => 'attempts=1000r/s', server => '
        location = /gif   { iap_guard redeem; iap_guard_user $http_x_user_id;
                            iap_guard_bucket b $http_x_user_id capacity=3
                            rate=1r/h;
                            iap_guard_code $http_x_code attempts=1000r/s;
                            empty_gif; }
        location = /plain { iap_guard redeem;
                            iap_guard_user $http_x_user_id;
                            iap_guard_bucket b $http_x_user_id capacity=3
                            rate=1r/h; empty_gif; }', %options);

    $code->();
    $test->end;
    $proxy->stop;
    $redis->cli('FLUSHALL');
}

done_testing;


# Who has bought asks again, and his connection breaks while the stock is asked:
# he is still told that he has it, and not that there is none.

sub owner_retries {
    $test->stock('ONE', 1);
    is told($test->redeem('ONE', 'u')), '200 passed', 'one is sold';

    $proxy->hold('stock');
    my $socket = submit('ONE', 'u');
    held('stock', 1, 'he asks again');
    close $socket;
    gone();
    $proxy->release;

    is told($test->redeem('ONE', 'v')), '409 code_unavailable',
        'there is none for another one';
    is told($test->redeem('ONE', 'u')), '200 duplicate', 'but he has his';

    return;
}


# A second tap that is broken off while the first one is under way

sub owner_taps_twice {
    $test->stock('ONE', 1);

    my $first = submit('ONE', 'u', 'X-Outcome: slow:1.2');
    ok $test->nginx->wait_for(5, sub { $test->code('ONE')->{reserved} == 1 }),
        'a unit is reserved';

    $proxy->hold('stock');
    my $second = submit('ONE', 'u');
    held('stock', 1, 'he taps again');
    close $second;
    gone();
    $proxy->release;

    like answer($first), qr/^HTTP\S+ 200 /, 'the first one is redeemed';
    is told($test->redeem('ONE', 'v')), '409 code_unavailable',
        'there is none for another one';
    is told($test->redeem('ONE', 'u')), '200 duplicate', 'but he has his';

    return;
}


# Who has bought on another machine, as this one has been told

sub owner_elsewhere {
    my $there = IapGuard::CodeTest->new(paths => \%paths, workers => 1,
                                        redis => $redis);

    $there->stock('ONE', 1);
    is told($there->redeem('ONE', 'u')), '200 passed', 'sold elsewhere';
    $there->end;

    is told($test->redeem('ONE', 'u')), '200 duplicate', 'he has it';
    is told($test->redeem('ONE', 'v')), '409 code_unavailable',
        'there is none for another one';
    is told($test->redeem('ONE', 'u')), '200 duplicate', 'and he still has it';

    return;
}


# Nobody waits for one that is not decided any more: here its answer takes for
# ever.

sub switched_off {
    $test->stock('HOT', 100);

    $proxy->hold('decide');
    my $first = submit('HOT', 'a');
    held('decide', 1, 'the first one asks');

    my $second = submit('HOT', 'b', 'X-Outcome: hang');
    my @others = map { submit('HOT', "r$_") } 1 .. CROWD;
    is answered(0.3, @others), 0, 'the others wait for it';

    mode('"off"');
    close $first;

    is answered(5, @others), CROWD, 'switched off: nobody waits any more';
    like answer($_), qr/^HTTP\S+ 200 /, 'he is let by' foreach @others;

    close $second;
    $proxy->release;
    mode('null');

    return;
}


# Those that wait when the guard becomes a dry run sell nothing.

sub dry_run {
    $test->stock('HOT', 100);

    $proxy->hold('decide');
    my $first = submit('HOT', 'a');
    held('decide', 1, 'the first one asks');
    my @others = map { submit('HOT', "r$_") } 1 .. CROWD;
    is answered(0.3, @others), 0, 'the others wait for it';

    mode('"dry_run"');
    close $first;
    gone();
    $proxy->release;

    is answered(5, @others), CROWD, 'dry run: all are answered';
    $test->is_balanced('HOT', 'and nothing is sold', sold => 0, reserved => 0);
    mode('null');

    return;
}


# A layer that can't be asked refuses: the others wait for their own decision
# then, all at once, and not one after the other.

sub hangs {
    $test->stock($_, 100) foreach 'HOT', 'OTHER';
    is told($test->redeem('OTHER', 'w', device => 'w')), '200 passed', 'before';

    my $from = IapGuard::Loop::now();

    $proxy->hold('decide');
    my @all = map { submit('HOT', "u$_", "X-Device-Id: d$_") } 1 .. CROWD;

    is answered(5, @all), CROWD, 'all are answered';
    cmp_ok IapGuard::Loop::now() - $from, '<', 1.2,
        'after twice the time-out, and not after six times';
    like answer($_), qr/^HTTP\S+ 503 /, 'they are refused' foreach @all;
    $proxy->release;

    return;
}


# What is given back when the ledger can't tell opens a connection, which must not
# be taken for that of the client, who has been answered and is gone.

sub cut_off {
    my @workers = $test->nginx->workers;

    foreach my $round (1 .. 3) {
        $proxy->hold('stock');
        my @all = map { ask("NONE$_", "u$round$_") } 1 .. CROWD;
        held('stock', CROWD, "round $round: all of them ask");

        # nothing waits on that connection, so that another may be opened at once

        my $closed = () = $test->nginx->log_lines(qr/closed the idle link/);
        $proxy->cut('decide');
        ok $test->nginx->wait_for(5, sub {
            $closed < (() = $test->nginx->log_lines(qr/closed the idle link/)) }),
            'the store is';

        $proxy->cut;
        is answered(20, @all), CROWD, 'cut off: all are answered';
        $proxy->release;
        $test->nginx->wait_for(5, sub {
            told($test->redeem('NONE', "w$round")) eq '409 code_unavailable' });
    }

    is_deeply [$test->nginx->workers], \@workers, 'by the same worker';

    return;
}


# A bucket is its guard's: what is given back for a code ends denials of where
# there is none, a second later.

sub other_location {
    my $there = IapGuard::CodeTest->new(paths => \%paths, workers => 1,
        redis => $redis, store_timeout => '9s',
        guard => 'iap_guard_bucket b $http_x_user_id capacity=3 rate=1r/h;',
        server => '
        location = /plain { iap_guard redeem;
                            iap_guard_user $http_x_user_id;
                            iap_guard_bucket b $http_x_user_id capacity=3
                            rate=1r/h; empty_gif; }');

    $proxy->hold('stock');
    my @sockets = map { submit("NONE$_", 'u') } 1 .. 3;
    held('stock', 3, 'tokens are held') or return;

    my $plain = sub {
        return $there->nginx->get('/plain', 'X-User-Id' => 'u')->{status};
    };

    is $plain->(), 429, 'the other machine refuses';
    $proxy->release;
    is answered(5, @sockets), 3, 'they are given back';
    ok $there->nginx->wait_for(2.5, sub { $plain->() == 200 }),
        'and a second later he passes there';
    $there->end;

    return;
}


# --- helpers ---------------------------------------------------------------

sub told { return join ' ', $_[0]{status}, $_[0]{headers}{'x-verdict'} || '-' }


sub mode {
    $test->nginx->api_json('PUT', 'guards/redeem', "{\"mode\":$_[0]}");
    return;
}


sub held {
    my ($name, $n, $what) = @_;
    return ok($test->nginx->wait_for(10, sub { $proxy->held($name) == $n }),
              $what) || diag 'held: ', $proxy->held($name);
}


# nginx has seen that clients have left

sub gone {
    return $test->nginx->wait_for(5, sub {
        $test->nginx->api('GET', 'status') && $test->nginx->log_lines(
            qr/client prematurely closed connection/) });
}


sub submit {
    my ($code, $user, @more) = @_;
    my $socket = IO::Socket::INET->new(
        PeerAddr => '127.0.0.1', PeerPort => $test->nginx->port, Timeout => 5)
        or die "connect: $!\n";

    print {$socket} join "\r\n", 'POST /redeem HTTP/1.0', 'Host: x',
        "X-Code: $code", "X-User-Id: $user", @more, 'Content-Length: 2', '',
        '{}';

    return $socket;
}


# without a body, so that the connection is closed with the answer

sub ask {
    my ($code, $user) = @_;
    my $socket = IO::Socket::INET->new(
        PeerAddr => '127.0.0.1', PeerPort => $test->nginx->port, Timeout => 5)
        or die "connect: $!\n";

    print {$socket} "GET /gif HTTP/1.0\r\nHost: x\r\nX-Code: $code\r\n"
                    . "X-User-Id: $user\r\n\r\n";

    return $socket;
}


# how many of them are answered within some seconds

sub answered {
    my ($seconds, @sockets) = @_;
    my $select = IO::Select->new(@sockets);
    my $until  = IapGuard::Loop::now() + $seconds;

    while ($select->count && (my $left = $until - IapGuard::Loop::now()) > 0) {
        $select->remove($select->can_read($left));
    }

    return @sockets - $select->count;
}


sub answer {
    my ($socket) = @_;
    my $text = '';

    local $SIG{ALRM} = sub { die "no answer\n" };
    alarm 20;
    1 while sysread $socket, $text, 65_536, length $text;
    alarm 0;

    return $text;
}
