#!/usr/bin/perl

# Ten thousand promo codes are uploaded into the Redis that also counts for the
# guards: no call holds it for long, and no decision goes without it meanwhile;
# nor where a great many units have run out, or are shown.  It fails in the middle,
# by a crash and by a right that is taken away: what became of it is said, and
# the same upload again completes it.
#
#   --codes=N    of an upload (10000)
#   --units=N    that run out (10000)

use strict;
use warnings;

use Getopt::Long qw(:config pass_through);
use JSON::PP ();
use Test::More;
use Time::HiRes qw(sleep);

use IapGuard::Child;
use IapGuard::CodeTest;
use IapGuard::LoadClient;
use IapGuard::Loop;
use IapGuard::Nginx;
use IapGuard::PacedLoad;
use IapGuard::RedisServer;

use constant {
    ROUNDS  => 3,       # the calmest counts: others may run on this machine
    HELD    => 15,      # ms that all calls but one in twenty take at most
    CLIENTS => 12,      # each would have a decision without Redis, or several
    PIECE   => 100,     # codes of one call
};

my ($codes, $units) = (10_000, 10_000);
GetOptions('codes=i' => \$codes, 'units=i' => \$units);

my %paths = IapGuard::Nginx->options;
my $redis = IapGuard::RedisServer->new(options => [
    '--appendonly', 'yes', '--slowlog-max-len', 1_000_000 ]);
my $test  = IapGuard::CodeTest->new(
    paths => \%paths, workers => 2, redis => $redis, store_timeout => '50ms',
    code => 'lease=30s', server => <<'END');
        location = /counted {
            iap_guard       counted;
            iap_guard_user  $http_x_user_id capacity=1000 rate=100r/s;
            add_header      X-Store $iap_guard_store always;
            empty_gif;
        }
END

my $nginx = $test->nginx;

is $test->stock('WARM', 1)->{free}, 1, 'there is a stock';

uploads();
run_out();
crashed();
forbidden();
raced();

$test->end(qr/codes: \d+ of $codes/, qr/stock: redis|redis \S+ is (?:down|up)/,
           qr/NOPERM|ledger takes longer/);

done_testing;


sub lines {
    my ($name, $n) = @_;
    return join '', "code,stock\n", map { "$name$_,3\n" } 1 .. $n || $codes;
}


sub upload {
    my ($lines) = @_;

    my $answer = IapGuard::LoadClient->fetch('POST',
        $nginx->url('/iap_guard/codes'), body => $lines, timeout => 60,
        headers => { Authorization => 'Bearer ' . $nginx->token });

    $answer->{json} = eval { JSON::PP->new->decode($answer->{body}) };

    return $answer;
}


# What becomes of an upload during which something is done, as soon as so many of
# its codes are there

sub upload_and {
    my ($name, $there, $what) = @_;
    my $child = IapGuard::Child->start(sub {
        my $until = IapGuard::Loop::now() + 20;
        my $key   = "iap:code:{$name$there}:code";

        delete $redis->{socket};        # its parent's

        until (eval { $redis->command('EXISTS', $key) }) {
            return 1 if IapGuard::Loop::now() > $until;
        }

        $what->();
        return 0;
    });

    my $answer = upload(lines($name));
    $child->stop;

    return $answer;
}


# Calls about promo codes that took more than a ms: how many there are, the ms of
# the longest, and of the one that all but one in twenty are below

sub calls {
    my @ms = sort { $a <=> $b } map { $_->[2] / 1000 }
             grep { lc $_->[3][0] eq 'evalsha'
                    && $_->[3][3] =~ /^iap:(?:code:|\{codes\})/ }
                  @{ $redis->command('SLOWLOG', 'GET', -1) };

    return { n => scalar @ms, longest => $ms[-1] // 0,
             most => @ms ? $ms[0.95 * $#ms] : 0 };
}

sub watch {
    $redis->command('CONFIG', 'SET', 'slowlog-log-slower-than',
                    $_[0] ? 1000 : -1);
    $redis->command('SLOWLOG', 'RESET') if $_[0];
    return;
}


# What it took, in the calmest of some rounds

sub calmest {
    my ($name, $what) = @_;
    my @rounds;

    foreach my $round (1 .. ROUNDS) {
        my $load = IapGuard::PacedLoad->start(port => $nginx->port,
            connections => CLIENTS, pause => 0.01, paths => ['/counted']);

        sleep 0.3;
        watch(1);

        my $from = IapGuard::Loop::now();
        $what->($round);
        my $to = IapGuard::Loop::now();

        watch(0);
        $load->stop;

        my $calls = calls();
        my $part  = $load->part('/counted', $from, $to);
        $calls->{without} = $part->{n} - ($part->{stores}{redis} || 0);

        note sprintf '%s: %.0f ms, %d calls of more than 1 ms, the longest'
            . ' %.1f ms, 95%% below %.1f ms; %d decisions, %d without Redis, p99 %.1f ms', $name,
            1000 * ($to - $from), @$calls{qw(n longest most)}, $part->{n},
            $calls->{without}, $part->{p99};

        push @rounds, $calls if $part->{n};
    }

    my ($calls) = sort { $a->{without} <=> $b->{without}
                         || $a->{most} <=> $b->{most} } @rounds;

    cmp_ok $calls->{most}, '<', HELD, "$name: no call holds it for long";
    cmp_ok $calls->{without}, '<', CLIENTS / 4, "$name: decisions go on";

    return;
}


sub uploads {
    calmest('upload', sub {
        my ($round) = @_;
        my $answer = upload(lines('U'));

        is_deeply $answer->{json},
            { codes => $codes, new => $round == 1 ? $codes : 0 },
            "upload: round $round" or diag explain $answer;
    });

    is $test->code("U$_")->{free}, 3, "upload: U$_" for 1, $codes;

    # all of it is looked at before the first piece goes

    $redis->command('SET', 'iap:code:{BROKEN}:code', 'x');
    my $answer = upload(lines('B', $codes - 1) . "BROKEN,1\n");
    is $answer->{status}, 503, 'upload: one of them can\'t be read';
    is $answer->{json}{changed}, 0, 'upload: nothing is changed';
    is eval { $test->code('B1') }, undef, 'upload: not the first either';

    return;
}


# A code whose units have all run out, and one of which a lot is shown

sub run_out {
    calmest('run out', sub {
        my ($round) = @_;

        units("R$round", $units, 1);
        is $test->code("R$round")->{sold}, $units, "run out: all, round $round";
        $nginx->api_json('GET', 'codes?count=1000');
        is scalar @{ $test->audit("R$round", 1000)->{units} }, 1000,
            'run out: a thousand are shown';
    });

    # several codes at once

    units("S$_", 500, 1) foreach 1 .. 20;
    watch(1);
    my $list = $nginx->api_json('GET', 'codes?count=30&after=S');
    watch(0);

    is scalar(grep { $_->{sold} == 500 && !$_->{difference} }
              @{ $list->{codes} }), 20, 'run out: of twenty codes';
    my $calls = calls();
    note sprintf 'run out: a list of 30: %d calls of more than 1 ms, the longest'
        . ' %.1f ms',
        @$calls{qw(n longest)};
    cmp_ok $calls->{most}, '<', HELD, 'run out: no call holds it for long';

    return;
}


# as lua/stock.lua keeps them: their leases ended then

sub units {
    my ($code, $n, $until) = @_;

    $test->stock($code, 1_000_000);

    for (my $from = 1; $from <= $n; $from += 500) {
        my $count = $n - $from >= 500 ? 500 : $n - $from + 1;

        $redis->command('EVAL', <<'END', 5, map({ "iap:code:{$code}:$_" } qw(code unit user made lease)), $from, $count, $until);
            for i = ARGV[1], ARGV[1] + ARGV[2] - 1 do
              local token = string.format('%026d', i)

              redis.call('HSET', KEYS[2], token, '1 ' .. i .. ' ' .. ARGV[3]
                         .. ' 30000 s 0 - u' .. i)
              redis.call('HSET', KEYS[3], 'u' .. i, token)
              redis.call('ZADD', KEYS[4], math.floor(i / 300), token)
              redis.call('ZADD', KEYS[5], ARGV[3], token)
            end

            redis.call('HINCRBY', KEYS[1], 'reserved', ARGV[2])
END
    }

    return;
}


# What is there, by its own keys

sub there {
    my ($name) = @_;
    return scalar @{ $redis->command('KEYS', "iap:code:{$name*}:code") };
}


sub is_repeated {
    my ($name, $case) = @_;
    my $before = there($name);
    my $answer;

    ok $nginx->wait_for(20, sub {
        $answer = upload(lines($name));
        return $answer->{status} == 200;
    }), "$case: sent again" or diag explain $answer;

    is $answer->{json}{codes}, $codes, "$case: all of it";
    is there($name), $codes, "$case: which is there";
    return $answer->{json}{new};
}


# Redis dies in the middle of it

sub crashed {
    my $answer = upload_and('K', int($codes / 3), sub { kill 'KILL', $redis->pid });

    is $answer->{status}, 503, 'crash: it failed';
    my $changed = $answer->{json}{changed};
    cmp_ok $changed, '>', 0, 'crash: some are changed';
    cmp_ok $changed, '<', $codes, 'crash: and some are not';
    like $answer->{json}{message},
        qr/^the stock could not be asked: $changed of $codes codes are known/,
        'crash: which is said';
    is scalar(@{[ $nginx->log_lines(qr/codes: $changed of $codes are known/) ]}),
        1, 'crash: and logged';

    $redis->stop;
    $redis->start;

    # it may have lost what was not on the disk yet

    my $there = there('K');
    is is_repeated('K', 'crash'), $codes - $there, 'crash: the rest is new';

    return;
}


# A right is taken away in the middle

sub forbidden {
    my $answer = upload_and('F', int($codes / 3), sub {
        $redis->command('ACL', 'SETUSER', 'default', '-hset') });

    is $answer->{status}, 503, 'forbidden: it failed';
    my $changed = $answer->{json}{changed};
    is $changed % PIECE, 0, 'forbidden: whole pieces are changed';
    is there('F'), $changed, 'forbidden: as many as it says';
    $redis->command('ACL', 'SETUSER', 'default', '+hset');
    is is_repeated('F', 'forbidden'), $codes - $changed,
        'forbidden: the rest is new';

    return;
}


# A code that could have so few units when it was looked at is sold meanwhile

sub raced {
    my $last = "Q$codes";
    $test->stock($last, 9);

    my $answer = upload_and('Q', 1, sub {
        $redis->command('HSET', "iap:code:{$last}:code", 'sold', 5) });

    is $answer->{status}, 409, 'raced: one can\'t be';
    is $answer->{json}{line}, $codes + 1, 'raced: which is named';
    is $answer->{json}{changed}, there('Q') - 1,
        'raced: and how many are changed';
    like $answer->{json}{message}, qr/codes were changed before/,
        'raced: in words';

    return;
}
