# A promo code in Redis and no layer beside it, so that the store of counters is
# asked nothing: clients that leave while the stock is asked, and one that stays;
# and a worker that leaves.

use strict;
use warnings;

use IO::Socket::INET;
use Test::More;
use Time::HiRes qw(sleep);

use lib 't/lib';

use IapGuard::CodeTest;
use IapGuard::Loop;
use IapGuard::Nginx;
use IapGuard::RedisServer;

use constant {
    CLIENTS => 20,
    UNITS   => 100,
};

my %paths = IapGuard::Nginx->options;

my $redis = IapGuard::RedisServer->new(
    options => ['--appendonly', 'yes', '--maxmemory-policy', 'noeviction']);
my $test = IapGuard::CodeTest->new(paths => \%paths, workers => 1,
                                   redis => $redis, code => 'lease=1s');

$test->stock('SPRING', UNITS);
is $test->redeem('SPRING', 'first')->{status}, 200, 'the stock is known';

my @workers = $test->nginx->workers;

clients_leave();

is_deeply [$test->nginx->workers], \@workers, 'the worker is the same';
is $test->redeem('SPRING', 'last')->{status}, 200, 'and serves others';
ok defined $test->nothing_reserved('SPRING', 10), 'nothing stays reserved';
$test->is_balanced('SPRING', 'in the end', sold => 2, reserved => 0,
                   free => UNITS - 2);

$test->end;

leaves_at_once();
done_testing;


# what has been told is not waited for: the time that it had, seconds

sub leaves_at_once {
    my $slow = IapGuard::CodeTest->new(paths => \%paths, workers => 1,
                                       redis => $redis, store_timeout => '9s');

    is $slow->redeem('SPRING', 'another')->{status}, 200, 'a long time-out';

    my $from = IapGuard::Loop::now();
    $slow->end;
    cmp_ok IapGuard::Loop::now() - $from, '<', 3,
        'and a worker that leaves does not wait for it';

    return;
}


# while the server is stopped, so that all of them are in the middle of it

sub clients_leave {
    $redis->freeze;

    my @sockets = map { submit("u$_") } 1 .. CLIENTS;

    sleep 0.2;
    close $_ foreach @sockets;
    sleep 0.2;

    $redis->thaw;

    return;
}


sub submit {
    my ($user) = @_;
    my $socket = IO::Socket::INET->new(
        PeerAddr => '127.0.0.1', PeerPort => $test->nginx->port, Timeout => 5)
        or die "connect: $!\n";

    print {$socket} join "\r\n", 'POST /redeem HTTP/1.1', 'Host: x',
        'X-Code: SPRING', "X-User-Id: $user", 'Content-Length: 2', '', '{}';

    return $socket;
}
