# The only unit of a code, whose user left before the service had answered: it may
# be sold.  What the same user's next requests come to, other than a success, does
# not make it free, or each user could do the same after the other.

use strict;
use warnings;

use IO::Socket::INET;
use Test::More;

use lib 't/lib';

use IapGuard::CodeTest;
use IapGuard::Nginx;
use IapGuard::Port qw(free_port);
use IapGuard::RedisServer;

my %paths = IapGuard::Nginx->options;
my $down  = free_port();

foreach my $store (qw(file redis)) {
    my $redis = $store eq 'file' ? undef : IapGuard::RedisServer->new(
        options => ['--appendonly', 'yes', '--maxmemory-policy', 'noeviction']);

    my $test = IapGuard::CodeTest->new(
        paths => \%paths, workers => 1, redis => $redis, code => 'lease=500ms',
        server => <<"SERVER");
        location = /down {
            iap_guard      redeem;
            iap_guard_user \$http_x_user_id;
            iap_guard_code \$http_x_code lease=500ms;
            proxy_pass     http://127.0.0.1:$down;
        }
SERVER

    taken_over($test, $store);
    $test->end('111: Connection refused');
}

done_testing;


sub taken_over {
    my ($test, $store) = @_;

    $test->stock('LAST', 1);
    leave($test, 'LAST', 'u1');
    ok defined $test->nothing_reserved('LAST', 10), "$store: its lease runs out";
    stays($test, "$store: its user left");

    is $test->redeem('LAST', 'u1', path => '/down')->{status}, 502,
        "$store: the same user, while the service is away";
    stays($test, "$store: that the service is away");

    is $test->redeem('LAST', 'u1', outcome => '409')->{status}, 409,
        "$store: the same user is told that it has been redeemed";
    stays($test, "$store: that the service says no");

    is $test->redeem('LAST', 'u1')->{status}, 200, "$store: the same user at last";
    stays($test, "$store: the unit is that user's");

    my $again = $test->redeem('LAST', 'u1');

    is $again->{body}, qq({"status":"redeemed"}\n), "$store: and is known to be";

    return;
}


sub stays {
    my ($test, $name) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    $test->is_balanced('LAST', $name, sold => 1, reserved => 0, free => 0);
    is $test->redeem('LAST', 'u2')->{status}, 409, "$name: nobody else gets it";

    return;
}


# once the service has been asked: who leaves before gives the unit back

sub leave {
    my ($test, $code, $user) = @_;
    my $asked  = $test->backend->report->{calls};
    my $socket = IO::Socket::INET->new(
        PeerAddr => '127.0.0.1', PeerPort => $test->nginx->port, Timeout => 5)
        or die "connect: $!\n";

    print {$socket} join "\r\n", 'POST /redeem HTTP/1.1', 'Host: x',
        "X-Code: $code", "X-User-Id: $user", 'X-Outcome: slow:1',
        'Content-Length: 2', '', '{}';

    $test->nginx->wait_for(10, sub {
        return $test->backend->report->{calls} > $asked;
    }) or diag 'not asked';
    close $socket;

    return;
}
