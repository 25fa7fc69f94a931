# A request with a promo code that had to go to a file, while another one's for the
# same purchase is in Redis: when it is moved there, both tickets tell of one entry,
# which has one unit.  Nobody calls the target meanwhile: what is being called is
# not moved.

use strict;
use warnings;

use lib 't/lib';

use Test::More;

use IapGuard::CodeTest;
use IapGuard::LoadClient;
use IapGuard::Nginx;
use IapGuard::RedisServer;

my %paths = IapGuard::Nginx->options;
my $redis = IapGuard::RedisServer->new(options => [
    '--appendonly', 'yes', '--maxmemory-policy', 'noeviction' ]);

# one puts into Redis; what the other one wants, a replica, is not there

my ($one, $other) = map { machine($_) } 'durability=memory',
                                        'durability=replica';

moved('GIFT', 'k1');

$_->end(qr/redis promises less/) foreach $one, $other;
done_testing;


sub machine {
    my ($words) = @_;

    return IapGuard::CodeTest->new(
        paths => \%paths, workers => 1, redis => $redis,
        redis_words => $words, timeout => '2s',
        http => 'iap_guard_breaker shut mode=forced-open;
                 iap_guard_queue q target=http://127.0.0.1:1/ key=$http_x_key
                                 classify=http breaker=shut;',
        server => '
        location = /accept {
            iap_guard        accept;
            iap_guard_user   $http_x_user_id;
            iap_guard_code   $http_x_code lease=20s;
            iap_guard_accept q;
        }
        location ~ ^/tickets/(?<ticket>\w+)$ { iap_guard_ticket q $ticket; }');
}


sub moved {
    my ($code, $key) = @_;

    $one->stock($code, 2);

    my $first  = accepted($one, $code, 'u1', $key);
    is states($code, 1), 'kept', 'the first one has a unit';

    my $second = accepted($other, $code, 'u2', $key);
    is states($code, 2), 'kept kept', 'the second one, of the file, as well';
    isnt $second, $first, 'for nobody there knows of the first';

    is_deeply $other->nginx->api_json('POST', 'queues/q',
                                      '{"action":"handover"}'),
              { moved => 1, left => 0 }, 'the file has handed it over';
    ok $other->nginx->wait_for(10, sub {
        states($code, 2) eq 'kept released';
    }), 'moved: its unit is free' or diag states($code, 2);
    $one->is_balanced($code, 'moved', sold => 0, reserved => 1, free => 1);

    is $one->nginx->get("/tickets/$second")->{status}, 200,
        'moved: its ticket tells of the first one\'s';

    return;
}


sub accepted {
    my ($machine, $code, $user, $key) = @_;
    my $answer = IapGuard::LoadClient->fetch('POST',
        $machine->nginx->url('/accept'), body => '{}',
        headers => { 'X-Code' => $code, 'X-User-Id' => $user,
                     'X-Key' => $key });
    my ($ticket) = ($answer->{body} || '') =~ /"ticket":"([a-z2-7]{26})"/;

    is $answer->{status}, 202, "$user: accepted" or diag explain $answer;

    return $ticket;
}


# of so many units, once there are that many

sub states {
    my ($code, $units) = @_;
    my @states;

    $one->nginx->wait_for(5, sub {
        @states = map { $_->{state} } @{ $one->audit($code)->{units} };
        return @states == $units && !grep { $_ eq 'reserved' } @states;
    });

    return join ' ', @states;
}
