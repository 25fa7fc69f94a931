# What a client is told of a promo code: each answer, and that those which must not
# be told apart can't be; what is charged, and what is not; dry run.

use strict;
use warnings;

use lib 't/lib';

use IO::Socket::INET;
use JSON::PP ();
use POSIX ();
use Test::More;
use Time::HiRes qw(sleep);

use IapGuard::Child;
use IapGuard::CodeTest;
use IapGuard::LoadClient;
use IapGuard::Loop;
use IapGuard::Nginx;
use IapGuard::RedisServer;

my %paths = IapGuard::Nginx->options;
my $json  = JSON::PP->new;

my $user = 'iap_guard_user $http_x_user_id';
my $pass = 'proxy_pass BACKEND;';

my ($test, $redis);

foreach my $store (qw(file redis)) {
    note "the stock is in: $store";

    $redis = $store eq 'redis' ? IapGuard::RedisServer->new(options => [
        '--appendonly', 'yes', '--maxmemory-policy', 'noeviction' ])
        : undef;

    $test = start();

    uniform();
    bad_requests();
    one_at_a_time();
    redeemed();
    normalized();
    charged();
    segments();
    attempts();
    devices();
    together();
    own_words();
    dry_run();
    dry_before();
    switched();
    from_body();
    satisfied();
    counted();
    ledger_is_late() if !$redis;
    ledger_is_away() if $redis;

    $test->end;
}

done_testing;


sub start {
    my $self = IapGuard::CodeTest->new(
        paths => \%paths, workers => 1, code => 'attempts=1000r/s',
        redis => $redis, timeout => '2s', http => 'iap_guard_json $body_code code;');
    my $url = $self->backend->url('/redeem');

    my $server = <<"SERVER";
        location /few/ { iap_guard few; $user capacity=2 rate=1r/h;
                         iap_guard_code \$http_x_code attempts=1000r/s; $pass }
        location /all/ { iap_guard all; $user;
                         iap_guard_global rate=1r/h window=1h;
                         iap_guard_code \$http_x_code; $pass }
        location /seg/ { iap_guard seg; $user;
                         iap_guard_segment users=2 window=1h address=\$http_x_address;
                         iap_guard_code \$http_x_code; $pass }
        location /try/ { iap_guard try; $user; iap_guard_device \$http_x_device_id;
                         iap_guard_code \$http_x_code attempts=3r/h; $pass }
        location /raw/ { iap_guard raw; $user;
                         iap_guard_code \$http_x_code normalize=off; $pass }
        location /moved/ { iap_guard moved; $user;
                           iap_guard_code \$http_x_code success=2xx|302; $pass }
        location /own/ { iap_guard own; $user; iap_guard_code \$http_x_code;
                         iap_guard_answer code_unavailable 410 'none (\$iap_guard_layer)';
                         iap_guard_answer in_progress 423 wait;
                         $pass }
        location /dry/ { iap_guard dry dry_run=on; $user capacity=3 rate=1r/h;
                         iap_guard_code \$http_x_code; $pass }
        location /layer/ { iap_guard layer; $user capacity=5 rate=1r/h;
                           iap_guard_code \$http_x_code dry_run=on; $pass }
        location /window/ { iap_guard window; $user;
                            iap_guard_global rate=1r/h window=1h dry_run=on;
                            iap_guard_code \$http_x_code; $pass }
        location /before/ { iap_guard before; $user; iap_guard_code \$http_x_code;
                            iap_guard_bucket b \$http_x_user_id dry_run=on
                                             capacity=1 rate=1r/h; $pass }
        location /body/ { iap_guard body; $user; iap_guard_code \$body_code; $pass }
        location /any/ { satisfy any; allow all; deny all;
                         iap_guard any; $user; iap_guard_code \$http_x_code; $pass }
        location /page/ { iap_guard page; $user; iap_guard_code \$http_x_code;
                          error_page 409 = \@sorry; $pass }
        location \@sorry { return 418 'sorry'; }
SERVER

    $server =~ s/BACKEND/$url/g;
    $self->configure(server => $server);
    $self->nginx->reload or BAIL_OUT('no reload');

    return $self;
}


# what a client sees but for what differs anyway

sub seen {
    my ($answer) = @_;
    my %headers = %{ $answer->{headers} };

    delete $headers{date};
    delete $headers{connection};

    my $body = $answer->{body} =~ s/"request_id":"[0-9a-f]{32}"/ID/r;

    return { status => $answer->{status}, headers => \%headers, body => $body };
}


sub uniform {
    my %answers;

    $test->stock('OUT', 1);
    $test->redeem('OUT', 'u1');
    $test->stock('CLOSED', 5);
    $test->nginx->api_json('PATCH', 'codes/CLOSED', '{"closed":true}');
    $test->stock('OVER', 5, expires => time - 10);
    $test->stock('TAKEN', 1);

    $answers{'sold out'}    = $test->redeem('OUT', 'u2');
    $answers{'again'}       = $test->redeem('OUT', 'u2');
    $answers{'unknown'}     = $test->redeem('NOPE', 'u2');
    $answers{'closed'}      = $test->redeem('CLOSED', 'u2');
    $answers{'expired'}     = $test->redeem('OVER', 'u2');
    $answers{'no code'}     = $test->redeem('a/b', 'u2');
    $answers{'too long'}    = $test->redeem('a' x 65, 'u2');
    $answers{'not ASCII'}   = $test->redeem("caf\xe9", 'u2');
    $answers{'very long'}   = $test->redeem('a' x 3000, 'u2');

    my ($first, $second) = both(['TAKEN', 'u1', outcome => 'slow:0.5'],
                                ['TAKEN', 'u2']);

    is $first->{status}, 200, 'one gets the last unit';
    $answers{'none free'} = $second;

    my $wanted = seen($answers{unknown});

    is $wanted->{status}, 409, 'unknown: 409';
    is $wanted->{body}, qq({"error":"code_unavailable","layer":"code",ID}\n),
        'unknown: JSON';
    is $wanted->{headers}{'x-verdict'}, 'code_unavailable', 'unknown: verdict';
    is $wanted->{headers}{'retry-after'}, undef, 'unknown: no Retry-After';
    is $wanted->{headers}{'ratelimit'}, undef, 'unknown: no RateLimit';

    is_deeply seen($answers{$_}), $wanted, "$_: the same"
        foreach sort keys %answers;

    return;
}


# two that overlap: the second one 0.2 s after the first

sub both {
    my (@submissions) = @_;
    my $loop = IapGuard::Loop->new;
    my $left = @submissions;
    my @answers;
    my $client = IapGuard::LoadClient->new(loop => $loop, timeout => 10,
                                           port => $test->nginx->port);

    foreach my $i (0 .. $#submissions) {
        $loop->after(0.2 * $i, sub {
            $client->request($test->request(@{ $submissions[$i] }),
                             sub { $answers[$i] = shift; $left-- });
        });
    }

    $loop->run_until(sub { !$left });
    $client->shut;

    return @answers;
}


sub bad_requests {
    foreach my $code ('', '   ') {
        my $answer = $test->redeem($code, 'u1');

        is $answer->{status}, 400, "code \"$code\": 400";
        like $answer->{body}, qr/^\{"error":"bad_request","layer":"code",/,
            "code \"$code\": JSON";
        is $answer->{headers}{'x-verdict'}, 'error', "code \"$code\": verdict";
    }

    return;
}


sub one_at_a_time {
    $test->stock('SLOW', 5);

    my ($first, $second) = both(['SLOW', 'u1', outcome => 'slow:0.6'],
                                ['SLOW', 'u1']);

    is $first->{status}, 200, 'the first of two is let through';
    is $second->{status}, 409, 'the second is not';
    like $second->{body}, qr/^\{"error":"in_progress","layer":"code",/,
        'in progress: JSON';
    is $second->{headers}{'x-verdict'}, 'duplicate', 'in progress: verdict';
    is $second->{headers}{'retry-after'}, undef, 'in progress: no Retry-After';
    $test->is_balanced('SLOW', 'two of one user', sold => 1, reserved => 0);

    return;
}


sub redeemed {
    $test->stock('TWICE', 5);

    is $test->redeem('TWICE', 'u1', outcome => '201')->{status}, 201, 'once';

    my $answer = $test->redeem('TWICE', 'u1', outcome => '500');

    is $answer->{status}, 201, 'twice: the first status';
    is $answer->{body}, qq({"status":"redeemed"}\n), 'twice: what it means';
    is $answer->{headers}{'content-type'}, 'application/json', 'twice: JSON';
    is $answer->{headers}{'x-verdict'}, 'duplicate', 'twice: verdict';
    is $answer->{headers}{'x-layer'}, 'code', 'twice: layer';
    is $test->redeem('TWICE', 'u2')->{status}, 200, 'another user';
    $test->is_balanced('TWICE', 'twice', sold => 2, reserved => 0);

    # a redirect, and where to is not remembered

    is $test->redeem('TWICE', 'u3', path => '/moved/', outcome => '302')->{status},
       302, 'once, and led elsewhere';

    $answer = $test->redeem('TWICE', 'u3', path => '/moved/');

    is $answer->{status}, 200, 'twice: not led there again';
    is $answer->{body}, qq({"status":"redeemed"}\n), 'twice: but told';
    is $answer->{headers}{location}, undef, 'twice: no Location';
    $test->is_balanced('TWICE', 'led elsewhere', sold => 3, reserved => 0);

    # also when none is left, and that is remembered

    $test->stock('LAST', 1);
    $test->redeem('LAST', 'u1');
    is $test->redeem('LAST', 'u2')->{status}, 409, 'sold out, for others';
    is $test->redeem('LAST', 'u1')->{status}, 200, 'not for who has got it';

    return;
}


sub normalized {
    $test->stock('ABC', 5);

    is $test->redeem($_, 'u1')->{headers}{'x-verdict'},
       $_ eq 'abc' ? 'passed' : 'duplicate', "\"$_\" is one code"
        foreach 'abc', 'ABC', ' aBc ';

    is $test->redeem('abc', 'u2', path => '/raw/')->{status}, 409,
        'normalize=off: another one';
    is $test->redeem(' ABC', 'u2', path => '/raw/')->{status}, 200,
        'normalize=off: the same';

    return;
}


# whoever is refused is not charged, by any layer, and nobody's unit moves

sub charged {
    $test->stock('TWO', 10);

    $test->redeem("NO$_", 'u1', path => '/few/') foreach 1 .. 4;
    is $test->redeem('TWO', 'u1', path => '/few/', outcome => '500')->{status},
       500, 'unknown codes cost no token of the user';
    is $test->redeem('TWO', 'u1', path => '/few/')->{status}, 200,
       'the second token';
    is $test->redeem('TWO', 'u1', path => '/few/')->{headers}{'x-layer'}, 'user',
       'a third one there is not, not even to be told';
    is $test->redeem('TWO', 'u1')->{headers}{'x-verdict'}, 'duplicate',
       'where there is no limit, one is told';

    # nor is anybody kept out for what was given back

    my @all = $test->redeem_all(
        map { ["NO$_", 'u7', path => '/few/'] } 1 .. 20);

    is_deeply [grep { $_->{status} != 409 && $_->{status} != 429 } @all], [],
       'many at once that are wrong';
    is $test->redeem('TWO', 'u7', path => '/few/')->{status}, 200,
       'and then the right one';

    $test->stock('ONE', 10);
    $test->redeem('NO', 'u1', path => '/all/') foreach 1 .. 3;
    is $test->redeem('ONE', 'u2', path => '/all/')->{status}, 200,
       'nor one of the global window';

    my $answer = $test->redeem('ONE', 'u3', path => '/all/');

    is $answer->{headers}{'x-layer'}, 'global', 'which then is spent';
    is $answer->{status}, 429, 'and says when to come back';
    $test->is_balanced('ONE', 'refused by another layer', sold => 1,
                       reserved => 0, free => 9);

    return;
}


# nor has anybody been seen who did not get anything

sub segments {
    $test->stock('SEG', 10);

    $test->redeem("NO$_", "n$_", path => '/seg/', address => '192.0.2.1')
        foreach 1 .. 5;

    is $test->redeem('SEG', "s$_", path => '/seg/', address => '192.0.2.1')
        ->{status}, 200, "user $_ of an address" foreach 1, 2;

    my $answer = $test->redeem('SEG', 's3', path => '/seg/',
                               address => '192.0.2.1');

    is $answer->{headers}{'x-layer'}, 'segment', 'and no third one';
    $test->is_balanced('SEG', 'a segment', sold => 2, reserved => 0);

    return;
}


sub attempts {
    $test->stock('KNOWN', 10);

    my @answers = map { $test->redeem("GUESS$_", 'g1', path => '/try/') } 1 .. 3;

    is_deeply [map { $_->{status} } @answers], [(409) x 3], 'three guesses';

    my $answer = $test->redeem('KNOWN', 'g1', path => '/try/');

    is_deeply seen($answer), seen($answers[0]), 'then the right one is none';
    is $test->redeem('KNOWN', 'g2', path => '/try/')->{status}, 200,
        'but for others';
    $test->is_balanced('KNOWN', 'guesses', sold => 1, reserved => 0);

    # many at once: that all were asked about before any of them was known to
    # be wrong does not help

    my $pid = $redis ? $redis->freeze && fork_thaw($redis, 0.3)
                     : $test->hold_file(0.3);
    my @all = $test->redeem_all(
        (map { ["GUESS$_", 'g3', path => '/try/'] } 1 .. 40),
        ['KNOWN', 'g3', path => '/try/']);

    waitpid $pid, 0;

    is_deeply $test->statuses(@all), { 409 => 41 }, 'many guesses at once'
        or diag explain $test->statuses(@all);
    $test->is_balanced('KNOWN', 'many guesses', sold => 1, reserved => 0);

    # known ones cost nothing

    $test->stock('FREE', 1);
    $test->redeem('FREE', 'x');
    $test->redeem('FREE', 'g4', path => '/try/') foreach 1 .. 10;
    is $test->redeem('KNOWN', 'g4', path => '/try/')->{status}, 200,
        'a code that is sold out is no guess';

    return;
}


# Of many that come in one moment one goes ahead; what it is told, all know.

sub together {
    my $before = code_events();

    $test->stock('EMPTY', 1);
    $test->redeem('EMPTY', 'u1');
    sleep 0.3;

    my @answers = $test->redeem_all(map { ['EMPTY', "t$_"] } 1 .. 60);
    my $now     = code_events();

    is_deeply $test->statuses(@answers), { 409 => 60 }, 'many for none';
    is $now->{sold_out} - $before->{sold_out}, 60, 'many for none: told so';
    cmp_ok $now->{cached} - $before->{cached}, '>=', 58,
        'many for none: hardly one has asked';

    $test->stock('MANY', 100);
    @answers = $test->redeem_all(map { ['MANY', "t$_"] } 1 .. 60);

    is_deeply $test->statuses(@answers), { 200 => 60 }, 'many for many';
    $test->is_balanced('MANY', 'many for many', sold => 60, reserved => 0);

    # while the only unit is somebody's, but may come back

    $test->stock('HELD', 1);

    my $held = sub {
        my (@submissions) = @_;
        my $loop = IapGuard::Loop->new;
        my $left = 1 + @submissions;
        my @got;
        my $client = IapGuard::LoadClient->new(loop => $loop, timeout => 10,
                                               port => $test->nginx->port);

        # each has a connection already, and comes while the worker is stopped,
        # so that it finds all of them in one moment

        my ($worker, $open) = ($test->nginx->workers, $left);

        $client->request({ method => 'GET', path => '/none' }, sub { $open-- })
            foreach 1 .. $left;
        $loop->run_until(sub { !$open });

        $client->request($test->request('HELD', 't0', outcome => 'slow:1.5'),
                         sub { $got[0] = shift; $left-- });
        $loop->after(0.3, sub {
            kill 'STOP', $worker;
            $test->nginx->wait_for(5, sub {
                IapGuard::Child->state($worker) eq 'T' });

            foreach my $i (0 .. $#submissions) {
                $client->request($test->request(@{ $submissions[$i] }),
                                 sub { $got[1 + $i] = shift; $left-- });
            }

            kill 'CONT', $worker;
        });
        $loop->run_until(sub { !$left });
        $client->shut;

        return @got;
    };

    ($before, @answers) = (code_events(), $held->(
        (map { ['HELD', "t$_"] } 1 .. 40), ['HELD', 't0'],
        (map { ['HELD', "t$_"] } 41 .. 60)));

    is_deeply $test->statuses(@answers), { 200 => 1, 409 => 61 }, 'none free';
    is code_events()->{none_free} - $before->{none_free}, 60,
        'none free: told so';
    cmp_ok code_events()->{cached} - $before->{cached}, '>=', 58,
        'none free: hardly one has asked';
    like $answers[41]{body}, qr/in_progress/, 'none free: but for who has it';

    # one whose client leaves is not waited for

    $test->stock('LEFT', 100);

    my $pid = $redis ? $redis->freeze && fork_thaw($redis, 0.5)
                     : $test->hold_file(0.5);
    my $first = IO::Socket::INET->new(PeerAddr => '127.0.0.1',
        PeerPort => $test->nginx->port) or die "connect: $!\n";

    print {$first} "POST /redeem HTTP/1.1\r\nHost: x\r\nX-Code: LEFT\r\n"
                   . "X-User-Id: t0\r\nContent-Length: 0\r\n\r\n";
    sleep 0.15;

    my $loop = IapGuard::Loop->new;
    $loop->after(0.15, sub { close $first });
    $loop->run_until(sub { !defined fileno $first });
    @answers = $test->redeem_all(map { ['LEFT', "t$_"] } 1 .. 10);
    waitpid $pid, 0;

    is_deeply $test->statuses(@answers), { 200 => 10 }, 'the first one has left';
    $test->nothing_reserved('LEFT', 5);
    $test->is_balanced('LEFT', 'the first one has left', sold => 10,
                       reserved => 0);

    return;
}


sub code_events { return $test->nginx->api_json('GET', 'guards/redeem')->{code} }


# which goes on after so many seconds

sub fork_thaw {
    my ($redis, $seconds) = @_;
    my $pid = fork // die "fork: $!\n";

    if (!$pid) {
        sleep $seconds;
        $redis->thaw;
        POSIX::_exit(0);
    }

    return $pid;
}


sub devices {
    my @answers = map {
        $test->redeem("GUESS$_", "d$_", path => '/try/', device => 'bad')
    } 1 .. 6;

    is $test->redeem('KNOWN', 'd7', path => '/try/', device => 'bad')->{status},
        409, 'a device that guesses, with ever other users';
    is $test->redeem('KNOWN', 'd7', path => '/try/', device => 'good')->{status},
        200, 'another device';

    return;
}


sub own_words {
    my $answer = $test->redeem('NOPE', 'u1', path => '/own/');

    is $answer->{status}, 410, 'own words: status';
    is $answer->{body}, 'none (code)', 'own words: body';

    my (undef, $second) = both(
        ['SLOW', 'u8', path => '/own/', outcome => 'slow:0.6'],
        ['SLOW', 'u8', path => '/own/']);

    is $second->{status}, 423, 'in progress, own words: status';
    is $second->{body}, 'wait', 'in progress, own words: body';

    $answer = $test->redeem('NOPE', 'u1', path => '/page/');
    is $answer->{status}, 418, 'error_page: status';

    return;
}


# a layer in dry run counts whatever the code is answered with

sub dry_before {
    my $ask = sub {
        my ($code, $user, %more) = @_;
        return $test->redeem($code, $user, path => '/before/', %more)->{status};
    };
    my $counted = sub {
        return $test->nginx->api_json('GET', 'guards/before')
                           ->{dry_run_rejections}{b};
    };

    $test->stock('BEHIND', 1);
    $test->stock('AHEAD', 100);

    is $ask->('BEHIND', 'v1'), 200, 'before: the last one';
    is $ask->('BEHIND', 'v1'), 200, 'before: once more';
    is $counted->(), 1, 'before: what is answered again is counted';

    is $ask->('BEHIND', 'v2'), 409, 'before: sold out';
    is $counted->(), 1, 'before: a layer that would not refuse';

    $ask->('AHEAD', 'v2', outcome => '500') foreach 1, 2;
    is $counted->(), 2, 'before: what the code admits';

    $ask->('BEHIND', 'v2') foreach 1 .. 5;
    is $counted->(), 7, 'before: what is sold out';

    $ask->('NOWHERE', 'v2');
    is $counted->(), 8, 'before: what is unknown';

    $ask->('', 'v2');
    is $counted->(), 9, 'before: what is no code';

    # everybody's window likewise

    $test->redeem('AHEAD', "v$_", path => '/window/') foreach 5, 6;
    $test->redeem('BEHIND', "v$_", path => '/window/') foreach 5 .. 7;
    is $test->nginx->api_json('GET', 'guards/window')
                   ->{dry_run_rejections}{global}, 4,
        'before: a window that is full';

    return;
}


sub dry_run {
    $test->stock('DRY', 1);

    foreach my $place ('/dry/', '/layer/') {
        my $answer = $test->redeem('DRY', 'u1', path => $place);

        is $answer->{status}, 200, "$place: passes";
        is $answer->{headers}{'x-verdict'}, 'passed', "$place: verdict";

        $answer = $test->redeem('NOPE', 'u1', path => $place);
        is $answer->{status}, 200, "$place, unknown: passes";
        is $answer->{headers}{'x-verdict'}, 'code_unavailable_dry_run',
            "$place, unknown: would not have";
        is $answer->{headers}{'x-layer'}, 'code', "$place, unknown: layer";

        $answer = $test->redeem('', 'u1', path => $place);
        is $answer->{status}, 200, "$place, empty: passes";
        is $answer->{headers}{'x-verdict'}, 'error_dry_run',
            "$place, empty: would not have";
    }

    is $test->redeem('ONE', 'u2', path => '/dry/')->{headers}{'x-verdict'},
        'duplicate_dry_run', 'redeemed: would have been told';

    my $audit = $test->is_balanced('DRY', 'dry run', sold => 0, reserved => 0,
                                   free => 1);
    is_deeply $audit->{units}, [], 'dry run: nothing was reserved';

    my $layer = $test->nginx->api_json('GET', 'guards/layer');

    is $layer->{dry_run_rejections}{code}, 2, 'of the layer: counted';
    is $layer->{requests}{code_unavailable_dry_run}, 1, 'of the guard: counted';
    is $layer->{rejections}{code}, 0, 'and nothing was refused';

    # the others are live

    $test->redeem('DRY', 'u5', path => '/layer/') foreach 1 .. 5;
    is $test->redeem('DRY', 'u5', path => '/layer/')->{status}, 429,
        'the other layers are live';

    return;
}


sub switched {
    $test->nginx->api_json('PUT', 'guards/redeem', '{"mode":"off"}');
    is $test->redeem('NOPE', 'u1')->{status}, 200, 'off: passes';
    $test->nginx->api_json('PUT', 'guards/redeem', '{"mode":null}');
    is $test->redeem('NOPE', 'u1')->{status}, 409, 'on again';

    # codes are no identities

    my $answer = IapGuard::LoadClient->fetch('POST',
        $test->nginx->url('/iap_guard/bans'), body => $json->encode(
            { guard => 'redeem', layer => 'code', key => 'SPRING', seconds => 60 }),
        headers => { Authorization => 'Bearer ' . $test->nginx->token });

    is $answer->{status}, 404, 'a code is not banned';

    return;
}


sub from_body {
    $test->stock('INSIDE', 3);

    my @cases = (['{"code":"inside"}', 200, 'passed'],
                 ['{"code":"none"}', 409, 'code_unavailable'],
                 ['{"no":"code"}', 400, 'error'], ['nonsense', 400, 'error']);

    foreach my $case (@cases) {
        my ($body, $status, $verdict) = @$case;
        my $answer = IapGuard::LoadClient->fetch('POST',
            $test->nginx->url('/body/'), body => $body,
            headers => { 'X-User-Id' => 'u1', 'X-Code' => 'x',
                         'Content-Type' => 'application/json' });

        is $answer->{status}, $status, "body $body: status";
        is $answer->{headers}{'x-verdict'}, $verdict, "body $body: verdict";
    }

    $test->is_balanced('INSIDE', 'in the body', sold => 1, reserved => 0);

    return;
}


sub satisfied {
    $test->stock('ANY', 3);

    is $test->redeem('ANY', 'u1', path => '/any/')->{status}, 200,
        'satisfy any: passes';
    is $test->redeem('NOPE', 'u1', path => '/any/')->{status}, 409,
        'satisfy any: refuses';
    $test->is_balanced('ANY', 'satisfy any', sold => 1, reserved => 0);

    return;
}


sub counted {
    my $guard = $test->nginx->api_json('GET', 'guards/redeem');
    my $code  = $guard->{code};

    is $code->{sold}, $guard->{requests}{passed}, 'sold: counted';
    is $code->{reserved}, $code->{sold}, 'reserved: counted';
    is $code->{in_progress}, 2, 'in_progress: counted';
    cmp_ok $code->{duplicate}, '>=', 4, 'duplicate: counted';
    is $guard->{requests}{duplicate}, $code->{duplicate} + 2,
        'duplicate: the verdict, too';
    is $guard->{requests}{code_unavailable},
       $guard->{rejections}{code} - 2 - 2, 'code_unavailable: likewise';

    foreach my $event (qw(sold_out none_free closed unknown_code malformed)) {
        cmp_ok $code->{$event}, '>=', 1, "$event: counted";
    }

    cmp_ok $code->{cached}, '>=', 1, 'some of it without asking';
    is $test->nginx->api_json('GET', 'guards/try')->{code}{attempts} > 0, 1,
        'attempts: counted';

    return;
}


# Nobody else may write: what is asked for meanwhile is late, and is not carried
# out any more.

sub ledger_is_late {
    $test->stock('LATE', 3);

    my $pid  = $test->hold_file(3.5);
    my $from = IapGuard::Loop::now();

    my ($answer, @others) = $test->redeem_all(map { ['LATE', "u$_"] } 1 .. 5);

    cmp_ok IapGuard::Loop::now() - $from, '<', 3.4, 'late: at its time-out';
    is_deeply $test->statuses(@others), { 503 => 4 },
        'late: who waits for another one, too';

    is $answer->{status}, 503, 'late: 503';
    like $answer->{body}, qr/^\{"error":"unavailable","layer":"code","retry_after":/,
        'late: JSON';
    cmp_ok $answer->{headers}{'retry-after'}, '>=', 1, 'late: Retry-After';
    is $answer->{headers}{'x-verdict'}, 'unavailable', 'late: verdict';

    waitpid $pid, 0;

    ok defined $test->nothing_reserved('LATE', 5), 'late: nothing is reserved';
    sleep 0.5;
    $test->is_balanced('LATE', 'late', sold => 0, reserved => 0, free => 3);
    is $test->redeem('LATE', 'u1')->{status}, 200, 'late: and then it is there';

    return;
}


# Redis is stopped: what was reserved before is settled when it is back

sub ledger_is_away {
    $test->stock('AWAY', 3);
    is $test->redeem('AWAY', 'u1')->{status}, 200, 'before';

    $redis->freeze;

    my @answers = map { $test->redeem('AWAY', "a$_") } 1 .. 3;

    $redis->thaw;

    ok $test->nginx->wait_for(10, sub { eval { $test->code('AWAY') } }),
        'back';
    is_deeply $test->statuses(@answers), { 503 => 3 }, 'away: 503';
    like $answers[0]{body},
        qr/^\{"error":"unavailable","layer":"code","retry_after":/, 'away: JSON';
    ok defined $test->nothing_reserved('AWAY', 10), 'back: nothing is reserved';
    $test->is_balanced('AWAY', 'back', sold => 1, reserved => 0, free => 2);

    return;
}
