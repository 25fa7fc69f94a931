# Promo codes of two machines that share a Redis: what one of them knows of a code,
# of a user or of attempts, and when the other one does; and what is settled while
# Redis is away.

use strict;
use warnings;

use lib 't/lib';

use POSIX ();
use Test::More;
use Time::HiRes qw(sleep);

use IapGuard::CodeTest;
use IapGuard::LoadClient;
use IapGuard::Loop;
use IapGuard::Nginx;
use IapGuard::RedisServer;

my %paths = IapGuard::Nginx->options;
my $redis = IapGuard::RedisServer->new(options => [
    '--appendonly', 'yes', '--maxmemory-policy', 'noeviction' ]);

my ($here, $there) = map {
    IapGuard::CodeTest->new(paths => \%paths, workers => 1, redis => $redis,
        code => 'lease=20s attempts=3r/h', timeout => '1s',
        guard => 'iap_guard_device $http_x_device_id;')
} 1, 2;

one_user();
sold_out();
attempts();
redis_is_away();

$_->end foreach $here, $there;

done_testing;


sub verdict { return $_[0]->{headers}{'x-verdict'} }


sub one_user {
    $here->stock('BOTH', 5);

    is verdict($here->redeem('BOTH', 'u1', outcome => '201')), 'passed', 'here';

    my $answer = $there->redeem('BOTH', 'u1');

    is verdict($answer), 'duplicate', 'and there: it is known';
    is $answer->{status}, 201, 'with the status of then';

    my ($loop, $left, @answers) = (IapGuard::Loop->new, 2);
    my @clients = map {
        IapGuard::LoadClient->new(loop => $loop, timeout => 10,
                                  port => $_->nginx->port)
    } $here, $there;

    foreach my $i (0, 1) {
        $loop->after(0.2 * $i, sub {
            $clients[$i]->request(
                $here->request('BOTH', 'u2', outcome => 'slow:0.6'),
                sub { $answers[$i] = shift; $left-- });
        });
    }

    $loop->run_until(sub { !$left });
    $_->shut foreach @clients;

    is $answers[0]{status}, 200, 'two at once: the first one';
    like $answers[1]{body}, qr/in_progress/, 'two at once: the other one';
    $here->is_balanced('BOTH', 'two machines', sold => 2, reserved => 0);

    return;
}


sub sold_out {
    $here->stock('GONE', 1);
    $here->redeem('GONE', 'u1');

    is $there->redeem('GONE', "s$_")->{status}, 409, 'sold out' foreach 1, 2;

    $here->stock('GONE', 2);
    sleep 1.1;
    is $there->redeem('GONE', 's3')->{status}, 200,
        'more of it, there: after a second at the latest';

    is $there->redeem('GONE', 's4')->{status}, 409, 'sold out again';
    $there->stock('GONE', 3);
    is $there->redeem('GONE', 's4')->{status}, 200,
        'more of it, where the API was asked: at once';

    return;
}


# The budget is of both.  The other machine learns that it is spent by one more.

sub attempts {
    $here->stock('RIGHT', 10);

    $here->redeem("GUESS$_", 'g1', device => 'd1') foreach 1 .. 3;
    spent('user:g1');
    is $here->redeem('RIGHT', 'g1', device => 'd1')->{status}, 409,
        'spent, here';

    $there->redeem('GUESS', 'g1', device => 'd2');
    learned('g1', 'd2');
    is $there->redeem('RIGHT', 'g1', device => 'd2')->{status}, 409,
        'and there, one guess later';
    is $there->redeem('RIGHT', 'g2', device => 'd2')->{status}, 200,
        'not for another user';

    # a device has twice as many

    $here->redeem("GUESS$_", "v$_", device => 'd3') foreach 1 .. 6;
    spent('device:d3');
    $there->redeem('GUESS', 'v7', device => 'd3');
    learned('v8', 'd3');
    is $there->redeem('RIGHT', 'v8', device => 'd3')->{status}, 409,
        'a device that is known elsewhere';
    is $there->redeem('RIGHT', 'v8', device => 'd4')->{status}, 200,
        'its user is welcome';

    return;
}


# Nobody waits for a guess to be counted in Redis.  An empty bucket is full again
# in an hour, and is kept for that long.

sub spent {
    my ($name) = @_;

    $here->nginx->wait_for(10, sub {
        return $redis->command('PTTL', "iap:redeem:code/$name") > 3_500_000;
    }) or diag "$name: not all guesses are counted";

    return;
}


# Nor for what Redis says of it.  In dry run nothing is a guess, and no unit taken.

sub learned {
    my ($user, $device) = @_;
    my $nginx = $there->nginx;

    $nginx->api('PUT', 'guards/redeem', '{"mode":"dry_run"}');
    $nginx->wait_for(10, sub {
        return verdict($there->redeem('RIGHT', $user, device => $device))
               eq 'code_unavailable_dry_run';
    }) or diag "$user, $device: not known there";
    $nginx->api('PUT', 'guards/redeem', '{"mode":null}');

    return;
}


# The answer is held for the time-out, and the unit is sold when that can be.

sub redis_is_away {
    $here->stock('AWAY', 3);

    my ($loop, $answer) = (IapGuard::Loop->new);
    my $client = IapGuard::LoadClient->new(loop => $loop, timeout => 10,
                                           port => $here->nginx->port);
    my $from   = IapGuard::Loop::now();

    $client->request($here->request('AWAY', 'u1', outcome => 'slow:0.6'),
                     sub { $answer = shift });
    $loop->after(0.3, sub { $redis->freeze });
    $loop->run_until(sub { $answer });
    $client->shut;

    my $took = IapGuard::Loop::now() - $from;

    is $answer->{status}, 200, 'away when it is settled: the answer';
    cmp_ok $took, '<', 3, 'away: is not held for long';

    $redis->thaw;

    ok $here->nginx->wait_for(15, sub {
        my $code = eval { $here->code('AWAY') };
        $code && $code->{sold} == 1 && $code->{reserved} == 0;
    }), 'back: it is sold';
    $here->is_balanced('AWAY', 'back', sold => 1, reserved => 0, free => 2);

    return;
}
