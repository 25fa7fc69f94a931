#!/usr/bin/perl

# What decides while the store is away: each layer's on_error, in all workers
# together, by this machine's share of the limits.  And what never reaches the
# store, whether it is there or not: a key that is known to be refused.

use strict;
use warnings;

use List::Util qw(sum);
use Test::More;
use Time::HiRes qw(sleep);

use IapGuard::Loop;
use IapGuard::Nginx;
use IapGuard::RedisServer;

use constant {
    WORKERS => 4,
    NODES   => 4,
    LIMIT   => 40,          # of the layers that are divided
    MANY    => 64,          # requests for each of them: more than the limit
    FLOOD   => 10_000,
    HANDFUL => 10,
    AT_ONCE => 32,          # connections of IapGuard::Nginx's ask
};

# of windows, which must not end meanwhile

my $left = 3600 - time % 3600;
sleep $left + 1 if $left < 60;

my $redis = IapGuard::RedisServer->new;
my $nginx = IapGuard::Nginx->new(IapGuard::Nginx->options,
    workers => WORKERS, listen => 'reuseport',
    http => <<"END", server => <<"END")->start;
    iap_guard_zone   iap 16m;
    iap_guard_redis  redis://${\$redis->node} timeout=1s nodes=@{[ NODES ]};
END
        add_header  X-Store  \$iap_guard_store always;
        add_header  X-Worker \$pid always;

        location = /user {
            iap_guard       user;
            iap_guard_user  \$http_x_user_id capacity=@{[ LIMIT ]} rate=1r/h;
            empty_gif;
        }

        location = /segment {
            iap_guard          segment;
            iap_guard_user     \$http_x_user_id;
            iap_guard_segment  users=@{[ LIMIT ]} window=1h address=\$arg_ip;
            empty_gif;
        }

        location = /global {
            iap_guard         global;
            iap_guard_global  rate=@{[ LIMIT ]}r/h window=1h on_error=local;
            empty_gif;
        }

        location = /pass {
            iap_guard       pass;
            iap_guard_user  \$http_x_user_id capacity=1 rate=1r/h
                            on_error=pass;
            empty_gif;
        }

        location = /reject {
            iap_guard       reject;
            iap_guard_user  \$http_x_user_id capacity=1 rate=1r/h
                            on_error=reject;
            empty_gif;
        }

        # each layer on its own

        location = /both {
            iap_guard         both;
            iap_guard_user    \$http_x_user_id capacity=1 rate=1r/h
                              on_error=local;
            iap_guard_global  rate=100000r/h window=1h on_error=reject;
            empty_gif;
        }

        location = /refused {
            iap_guard       refused;
            iap_guard_user  \$http_x_user_id capacity=1 rate=1r/h
                            on_error=pass;
            empty_gif;
        }
END

flood();
before();
outage();
after();

my @complaints = $nginx->complaints;
$nginx->stop;
is_deeply [@complaints, $nginx->complaints], [],
    'no complaint in the error log';

done_testing;


# What is under way when a key is first refused has been asked for; and once a
# second a worker asks for bans.

sub flood {
    ask('/refused', 'known') for 1 .. 2;
    my $calls = calls();
    my $known = ask('/refused', ('known') x FLOOD);
    my $known_calls = calls() - $calls;

    $calls = calls();
    my $fresh = ask('/refused', ('fresh') x FLOOD);
    my $fresh_calls = calls() - $calls;

    is_deeply $known->{statuses}, { 429 => FLOOD }, 'flood: all refused';
    is_deeply $fresh->{statuses}, { 200 => 1, 429 => FLOOD - 1 },
        'flood: all but one of a key with one token';
    cmp_ok $known_calls, '<=', HANDFUL,
        'flood: a key that is known to be refused is not asked for';
    cmp_ok $fresh_calls, '<=', HANDFUL + AT_ONCE,
        'flood: another one by each connection once, at most';

    note 'commands for ' . FLOOD . " requests: $known_calls and $fresh_calls";

    return;
}


sub before {
    is_deeply ask('/user', ('early') x MANY)->{statuses},
        { 200 => LIMIT, 429 => MANY - LIMIT }, 'before: a user has the limit';
    is_deeply ask('/pass', ('refused') x 3)->{statuses},
        { 200 => 1, 429 => 2 }, 'before: on_error=pass refuses';
    is_deeply ask('/reject', ('refused') x 3)->{statuses},
        { 200 => 1, 429 => 2 }, 'before: so does on_error=reject';

    my $segment = ask('/segment?ip=192.0.2.1', map { "early$_" } 1 .. LIMIT);
    my $late    = ask('/segment?ip=192.0.2.1', map { "late$_" } 1 .. MANY);

    is_deeply [$segment->{statuses}, $late->{statuses}],
        [{ 200 => LIMIT }, { 429 => MANY }], 'before: so many users';
    is_deeply [map { keys %{ $_->{stores} } } $segment, $late],
        [qw(redis redis)], 'before: by the store';

    return;
}


sub outage {
    my $share = LIMIT / NODES;

    $redis->kill;
    ask('/pass', map { "down$_" } 1 .. 200);

    # the limits of one machine of four, however many workers it has

    is_deeply ask('/user', ('away') x MANY)->{statuses},
        { 200 => $share, 429 => MANY - $share }, 'local: a share of a bucket';
    is_deeply ask('/global', ('') x MANY)->{statuses},
        { 200 => $share, 429 => MANY - $share }, 'local: of a window';
    is_deeply ask('/segment?ip=192.0.2.2', map { "away$_" } 1 .. MANY)
        ->{statuses},
        { 200 => $share, 429 => MANY - $share }, 'local: of users';

    my $away = ask('/user', map { "user$_" } 1 .. MANY);

    is_deeply [$away->{statuses}, $away->{stores}],
        [{ 200 => MANY }, { fallback => MANY }], 'local: for each user';
    is scalar keys %{ $away->{workers} }, WORKERS, 'local: by all workers';

    my $passed = ask('/pass', ('away') x MANY);

    is_deeply [$passed->{statuses}, $passed->{stores}],
        [{ 200 => MANY }, { fallback => MANY }], 'pass: all pass';

    my $rejected = ask('/reject', ('away') x MANY);

    is_deeply [$rejected->{statuses}, $rejected->{stores}],
        [{ 503 => MANY }, { fallback => MANY }], 'reject: none does';
    is_deeply [sort keys %{ $rejected->{errors} }], ['unavailable'],
        'reject: and is not told that it was limited';

    is_deeply ask('/both', 'away')->{statuses}, { 503 => 1 },
        'each layer on its own: the strict one decides';

    my %known = (
        user    => ask('/user', ('early') x MANY),
        segment => ask('/segment?ip=192.0.2.1', map { "late$_" } 1 .. MANY),
        full    => ask('/segment?ip=192.0.2.1', map { "away$_" } 1 .. MANY),
        pass    => ask('/pass', ('refused') x MANY),
        reject  => ask('/reject', ('refused') x MANY),
    );

    is_deeply $known{$_}{statuses}, { 429 => MANY },
        "known: who was refused before still is, $_" foreach sort keys %known;

    return;
}


# What the zone has counted is not Redis's; what Redis had counted was lost
# with it.

sub after {
    $redis->start;

    ok $nginx->wait_for(2.5, sub {
        scalar $nginx->log_lines(qr/iap_guard redis \S+ is up again/);
    }), 'after: it is back';
    sleep 1.2;

    my $user = ask('/user', ('away') x MANY);

    is_deeply $user->{statuses}, { 200 => LIMIT, 429 => MANY - LIMIT },
        'after: a user has the whole limit';
    is_deeply [keys %{ $user->{stores} }], ['redis'], 'after: by the store';
    is_deeply ask('/reject', 'away')->{statuses}, { 200 => 1 },
        'after: nobody is rejected';

    return;
}


# What came of requests to a path by these users

sub ask {
    my ($path, @users) = @_;
    my %all = map { $_ => {} } qw(statuses stores workers errors);

    # a connection for each, so that all workers have some

    my @answers = $nginx->ask(map {
        [$path, 'X-User-Id' => $_, @users < FLOOD ? (Connection => 'close') : ()]
    } @users);

    foreach my $answer (@answers) {
        my $headers = $answer->{headers} || {};

        $all{statuses}{ $answer->{status} || $answer->{error} }++;
        $all{stores}{ $headers->{'x-store'} || '' }++;
        $all{workers}{ $headers->{'x-worker'} || '' }++;
        $all{errors}{$1}++ if ($answer->{body} || '') =~ /"error":"(\w+)"/;
    }

    return \%all;
}


# scripts that were called

sub calls {
    my $calls = $redis->calls;
    return sum(map { $_ || 0 } @$calls{qw(eval evalsha)});
}
