#!/usr/bin/perl

# Everything at once, by many users, devices, tenants and addresses: what Redis
# holds in the end is what was admitted, no more and no less.  Each bucket,
# window and set of users is compared with the requests that passed; who was
# refused met a layer that is spent; and each key expires just when it says
# nothing any more.
#
# In each round one layer has next to nothing, so that it refuses what all
# layers before it would have let pass.  Some layers, and a whole guard, are in
# dry run; identities are missing; segments have as many users as a header
# says.  Nothing is refilled meanwhile, so all numbers are exact, and no time is
# measured.
#
# Runs beside others.
#
#   --rounds=N      at least so many (12)
#   --seconds=N     and at least so long (0)
#   --seed=N        the same requests once more, though not in the same order

use strict;
use warnings;

use Getopt::Long ();
use Test::More;

use IapGuard::Charges;
use IapGuard::LoadClient;
use IapGuard::Loop;
use IapGuard::Nginx;
use IapGuard::RedisServer;

use constant {
    REQUESTS    => 2500,            # in a round
    CONNECTIONS => 48,              # to each nginx
    SCAN        => 0.02,            # seconds
    SHOWN       => 12,              # of what is wrong
};

# how many nginx, of how many workers; there are not as many as scarce layers,
# so that in time each meets each

my @MACHINES = ([1, 1], [1, 2], [1, 4], [2, 1], [2, 2], [2, 4]);
my @SCARCE   = qw(user device tenant segment global);

my ($rounds, $seconds, $seed) = (12, 0, int rand 1_000_000);

Getopt::Long::Configure('pass_through');
Getopt::Long::GetOptions('rounds=i' => \$rounds, 'seconds=i' => \$seconds,
                         'seed=i' => \$seed);
Getopt::Long::Configure('no_pass_through');

my %paths = IapGuard::Nginx->options;
my $redis = IapGuard::RedisServer->new;
my $until = IapGuard::Loop::now() + $seconds;

note "--seed=$seed";

for (my $n = 0; $n < $rounds || IapGuard::Loop::now() < $until; $n++) {
    one_round($n);
}

done_testing;


sub one_round {
    my ($n) = @_;
    my ($machines, $workers) = @{ $MACHINES[$n % @MACHINES] };
    my $scarce = $SCARCE[$n % @SCARCE];
    my $name   = "round $n, $machines x $workers, little of $scarce";

    srand $seed + $n;

    my $requests = requests();
    my $guards   = guards($scarce);
    my $charges  = IapGuard::Charges->new(redis => $redis, guards => $guards);

    # a window must not end meanwhile

    my $left = 86_400 - time % 86_400;
    sleep $left + 1 if $left < 120;

    $redis->command('FLUSHALL');

    my @nginx = map { machine($workers, $charges) } 1 .. $machines;
    my ($answers, $eternal) = load($requests, @nginx);
    my %seen;

    $seen{ $_->{status} }{ $_->{layer} }++ foreach @$answers;

    is_deeply [unanswered(@$answers)], [], "$name: all answered, by Redis";
    is_deeply [sort keys %$eternal], [], "$name: no key is there for ever";
    is_deeply [first($charges->look)], [],
        "$name: each key is sound, and has its time";
    is_deeply [first($charges->differences(@$answers))], [],
        "$name: what Redis holds was admitted";
    is_deeply [first($charges->unfounded(@$answers))], [],
        "$name: who was refused met a layer that is spent";

    cmp_ok $seen{429}{$scarce} || 0, '>', 0, "$name: that has refused";
    cmp_ok $seen{400}{needed} || 0, '>', 0, "$name: so has a missing identity";
    cmp_ok scalar(grep { $_->{path} eq '/trial'
                           && $_->{verdict} eq 'limited_dry_run' } @$answers),
        '>', 0, "$name: and a layer in dry run would have";

    my @complaints = map { ($_->complaints, $_->stop, $_->complaints) } @nginx;
    is_deeply [first(@complaints)], [], "$name: no complaint in the error log";

    foreach my $status (sort keys %seen) {
        note join ', ', map { "$status $_ $seen{$status}{$_}" }
                             sort keys %{ $seen{$status} };
    }

    return;
}


# By path: the guard, and its layers.  What is scarce refuses for certain: there
# are many more requests that come so far.

sub guards {
    my ($scarce) = @_;
    my %many = (user => 60 + int rand 60, device => 30 + int rand 60,
                tenant => 60 + int rand 200, segment => 20 + int rand 60,
                global => int REQUESTS / 4 + rand REQUESTS);
    my %few  = (user => 1 + int rand 3, device => 1 + int rand 2,
                tenant => 2 + int rand 4, segment => 2 + int rand 3,
                global => 20 + int rand 40);
    my %c    = (%many, $scarce => $few{$scarce});
    my $user   = { name => 'user', of => 'user', most => $c{user} };
    my $global = { name => 'global', most => $c{global} };
    my $wide   = { name => 'segment', bits => 24, most => $c{segment} };

    return {
        '/all' => { name => 'one', layers => [
            { name => 'segment', bits => 32, most => '$http_x_users' }, $wide,
            $user,
            { name => 'device', of => 'device', most => $c{device} },
            { name => 'tenant', of => 'tenant', most => $c{tenant},
              missing => 'skip' },
            { name => 'trial', of => 'tenant', most => 7, missing => 'skip',
              dry_run => 1 },
            $global,
        ] },

        # the same guard elsewhere, with fewer layers

        '/few' => { name => 'one', layers => [
            $user,
            { name => 'needed', of => 'tenant', most => 1000, missing => 'reject' },
            $global,
        ] },

        '/trial' => { name => 'two', layers => [
            { name => 'user', of => 'user', most => 1, dry_run => 1 },
            { name => 'segment', bits => 32, most => 3 },
            { name => 'segment', bits => 16, most => 5 + int rand 20,
              dry_run => 1 },
            { name => 'global', most => 300 + int rand REQUESTS },
        ] },

        '/would' => { name => 'three', dry_run => 1, layers => [
            { %$user, most => 3 }, { name => 'segment', bits => 32, most => 3 },
            { name => 'global', most => 100 },
        ] },

        '/users' => { name => 'four', layers => [
            { name => 'segment', bits => 32, most => 6 }, $wide, $global,
        ] },

        # so many together that they are charged at once

        '/crowd' => { name => 'five', layers => [
            { name => 'segment', bits => 16, most => 100 + int rand 500 },
            $global,
        ] },
    };
}


sub machine {
    my ($workers, $charges) = @_;

    # a deadline that no moment of a busy machine is beyond

    return IapGuard::Nginx->new(%paths, workers => $workers, http => <<"END",
    iap_guard_zone   iap 16m;
    iap_guard_redis  redis://${\$redis->node} timeout=30s;
END
        server => <<"END")->start;
        add_header  X-Layer   \$iap_guard_layer always;
        add_header  X-Verdict \$iap_guard_verdict always;
        add_header  X-Store   \$iap_guard_store always;

        @{[ $charges->locations ]}
END
}


# What came of all requests; and the keys that were once seen without expiry.

sub load {
    my ($requests, @nginx) = @_;
    my $loop    = IapGuard::Loop->new;
    my @clients = map {
        IapGuard::LoadClient->new(loop => $loop, port => $_->port,
                                  connections => CONNECTIONS, timeout => 60)
    } @nginx;
    my (@answers, %eternal);

    foreach my $asked (@$requests) {
        my %headers = map { ("X-\u$_" => $asked->{$_}) }
                      grep { $_ ne 'path' && defined $asked->{$_} }
                      keys %$asked;

        $clients[rand @clients]->request(
            { method => 'GET', path => $asked->{path}, headers => \%headers },
            sub { push @answers, { %$asked, told(@_) } });
    }

    my $scan;
    $scan = sub {
        $eternal{$_} = 1 foreach without_expiry();
        $loop->after(SCAN, $scan);
    };

    $scan->();
    $loop->run_until(sub { @answers == REQUESTS });
    $_->shut foreach @clients;
    undef $scan;

    $eternal{$_} = 1 foreach without_expiry();

    return \@answers, \%eternal;
}


# Any identity may be missing, but not the address.

sub requests {
    my @mix = (('/all') x 4, ('/few', '/trial', '/users', '/crowd') x 2,
               '/would');
    my ($users, $hosts, $hot) = (20 + int rand 20, 4 + int rand 40, 1 + rand 2);

    my @all = map { {
        path    => $mix[rand @mix],
        user    => some(0.97, 'u' . int rand()**$hot * $users),
        device  => some(0.7, 'd' . int rand 10),
        tenant  => some(0.7, 't' . int rand 6),
        users   => some(0.3, 1 + int rand 40),
        address => some(0.9, sprintf '10.0.%d.%d', rand 3, 1 + rand $hosts)
                   // sprintf '2001:db8:%d:%d::%d', rand 3, rand 4, 1 + rand 9,
    } } 1 .. REQUESTS;

    $_->{user} = 'u' . int rand 1000
        foreach grep { $_->{path} eq '/crowd' } @all;

    return \@all;
}

sub some { return rand() < $_[0] ? $_[1] : undef }


sub told {
    my ($answer) = @_;
    my $headers = $answer->{headers} || {};

    return status => $answer->{status} || $answer->{error},
           wait   => $headers->{'retry-after'} || 0,
           map { $_ => $headers->{"x-$_"} // '' } qw(layer verdict store);
}


# Answers that are none, or not Redis's.  Who sends no identity is not asked
# for there, and the others are told when to come again.

sub unanswered {
    my (@answers) = @_;
    my %right = ('200 redis' => 1, '429 redis' => 1, '400 zone' => 1);

    return first(map { join ' ', @{$_}{qw(path status store verdict layer)} }
                 grep { !$right{"$_->{status} $_->{store}"}
                        || $_->{status} == 429 && !$_->{wait} } @answers);
}


sub without_expiry {
    return @{ $redis->command('EVAL', <<'END', 0) };
        local eternal = {}
        for _, key in ipairs(redis.call('KEYS', '*')) do
          if redis.call('PTTL', key) < 0 then
            eternal[#eternal + 1] = key
          end
        end
        return eternal
END
}


sub first { return splice @_, 0, SHOWN }
