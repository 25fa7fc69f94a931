#!/usr/bin/perl

# Promo codes in Redis, with whole machines: the rights that the documentation
# names; Redis away while requests are held; a server that could lose stock.
#
# Runs beside others.

use strict;
use warnings;

use FindBin;
use Test::More;
use Time::HiRes qw(sleep);

use IapGuard::Child;
use IapGuard::CodeTest;
use IapGuard::LoadClient;
use IapGuard::Loop;
use IapGuard::Nginx;
use IapGuard::RedisServer;

use constant { HELD => 24, SLOW => 1.5 };

my %paths = IapGuard::Nginx->options;

rights();
away();
unsafe();

done_testing;


sub redis {
    return IapGuard::RedisServer->new(options => ['--appendonly', 'yes', @_]);
}


sub machine {
    my ($redis, @options) = @_;

    return IapGuard::CodeTest->new(paths => \%paths, workers => 2,
        redis => $redis, code => 'lease=30s', @options);
}


sub lines {
    my ($machine, $pattern) = @_;
    return scalar @{[ $machine->nginx->log_lines($pattern) ]};
}


# Whether Redis can be asked, and how many units wait to be told

sub metrics {
    my ($machine) = @_;
    return join ' ', @{ $machine->nginx->metrics }{qw(iap_guard_stock_up
                                                     iap_guard_stock_notes)};
}


# Waits until metrics say that Redis is away, and that what became of those units is
# still to be told; a few more may be those that nobody knows to be reserved

sub notes {
    my ($machine, $name) = @_;

    my $told = $machine->nginx->wait_for(15, sub {
        my ($up, $notes) = split ' ', metrics($machine);
        return !$up && $notes >= HELD && $notes <= HELD + 4;
    });

    diag "$name: " . metrics($machine) unless $told;

    return $told ? 1 : 0;
}


# The rights that the documentation names are enough, and none is too much for
# promo codes; one that is missing is said once.

sub rights {
    my $redis = redis();
    my $text  = do {
        local $/;
        open my $file, '<', "$FindBin::Bin/../../docs/redis.md" or die "$!\n";
        <$file>;
    };

    my ($counters, $stock) =
        $text =~ /^## Rights\n.*?```\n(.*?)```.*?promo codes.*?```\n(.*?)```/ms;
    $redis->command(split ' ', "$counters $stock");

    my $secret = $redis->folder . '/secret';
    open my $file, '>', $secret or die "$secret: $!\n";
    print {$file} "secret\n";
    close $file;

    my $machine = machine($redis,
                          redis_words => "user=guard password_file=$secret");

    is $machine->stock('SPRING', 10)->{free}, 10, 'rights: a code is made';
    is $machine->redeem('SPRING', 'ann')->{status}, 200, 'rights: one is sold';
    is $machine->redeem('SPRING', 'bob', outcome => '500')->{status}, 500,
        'rights: one fails';
    $machine->is_balanced('SPRING', 'rights', sold => 1, reserved => 0);
    is lines($machine, qr/NOPERM|is down|could lose/), 0, 'rights: for all';

    $redis->command('ACL', 'SETUSER', 'guard', '-hmget');
    $machine->redeem('SPRING', "c$_") foreach 1 .. 12;
    is $machine->redeem('SPRING', 'dan')->{status}, 503,
        'rights: one is missing, nothing is given';
    sleep 2.5;
    is lines($machine, qr/stock: redis \S+ is (?:down|up)/), 1,
        'rights: which is said once';

    $redis->command('ACL', 'SETUSER', 'guard', '+hmget');
    ok $machine->nginx->wait_for(10, sub {
        $machine->redeem('SPRING', 'dan')->{status} == 200
    }), 'rights: there again';
    sleep 2;                    # the other worker looks once a second
    $machine->is_balanced('SPRING', 'rights', sold => 2, reserved => 0);

    $machine->end(qr/NOPERM|ERR|stock: redis/);

    return;
}


# Submissions that are held by the service while Redis goes; then nginx ends,
# too, and starts again before Redis does.

sub away {
    my $redis   = redis();
    my $machine = machine($redis);
    my $loop    = IapGuard::Loop->new;
    my $client  = IapGuard::LoadClient->new(loop => $loop, timeout => 15,
        port => $machine->nginx->port, connections => HELD);
    my $left = HELD;
    my %statuses;

    $machine->stock('SPRING', 100);

    foreach my $i (1 .. HELD) {
        $client->request($machine->request('SPRING', "u$i",
                                           outcome => 'slow:' . SLOW),
                         sub { $statuses{ $_[0]{status} || 'none' }++; $left-- });
    }

    $loop->run_until(sub { $machine->code('SPRING')->{reserved} == HELD });
    $redis->kill;

    is $machine->redeem('SPRING', 'late')->{status}, 503,
        'away: nothing is given out';
    is eval { $machine->code('SPRING') }, undef, 'away: nor known';

    $loop->run_until(sub { !$left });
    is_deeply \%statuses, { 200 => HELD }, 'away: who had a unit has it';
    $client->shut;
    is notes($machine, 'away'), 1, 'away: metrics tell';

    $machine->nginx->stop;
    $machine->nginx->start;
    is $machine->redeem('SPRING', 'late')->{status}, 503, 'away: still';
    is notes($machine, 'away'), 1, 'away: the next one knows what waits';

    $redis->start;
    ok $machine->nginx->wait_for(20, sub {
        my $code = eval { $machine->code('SPRING') };
        return $code && $code->{sold} == HELD;
    }), 'away: it is back, and told what was sold';
    sleep 2;
    $machine->is_balanced('SPRING', 'away', sold => HELD, reserved => 0);
    ok $machine->nginx->wait_for(10, sub { metrics($machine) eq '1 0' }),
        'away: nothing waits any more' or diag metrics($machine);

    is $machine->redeem('SPRING', 'late')->{status}, 200, 'away: it goes on';
    is $machine->redeem('SPRING', 'u1')->{status}, 200, 'away: u1 has it';
    $machine->is_balanced('SPRING', 'away', sold => HELD + 1, reserved => 0);

    # a definite answer is visible at once again

    is $machine->redeem('SPRING', 'bob', outcome => '500')->{status}, 500,
        'away: one fails';
    $machine->is_balanced('SPRING', 'away: released', sold => HELD + 1,
                          reserved => 0);

    $machine->end(qr/stock: redis|redis \S+ is (?:down|up)/);

    return;
}


# No append-only file: that is said at once, by one worker; and there is no code.

sub unsafe {
    my $redis   = IapGuard::RedisServer->new;
    my $machine = machine($redis);
    my $lost    = qr/stock: redis could lose promo codes/;

    ok $machine->nginx->wait_for(5, sub { lines($machine, $lost) }),
        'unsafe: it is said';
    is eval { $machine->stock('SPRING', 10) }, undef, 'unsafe: no code is made';
    is metrics($machine), '0 0', 'unsafe: metrics tell';
    is lines($machine, $lost), 1, 'unsafe: said once';

    $redis->command('CONFIG', 'SET', 'appendonly', 'yes');
    ok $machine->nginx->wait_for(15, sub {
        eval { $machine->stock('SPRING', 10)->{free} == 10 }
    }), 'unsafe: no more';
    is $machine->redeem('SPRING', 'ann')->{status}, 200, 'unsafe: given out';
    is metrics($machine), '1 0', 'unsafe: so do metrics';

    # and again, within a minute

    $redis->command('CONFIG', 'SET', 'appendonly', 'no');
    ok $machine->nginx->wait_for(15, sub {
        metrics($machine) eq '0 0' && lines($machine, $lost) == 2
    }), 'unsafe: again';
    $redis->command('CONFIG', 'SET', 'appendonly', 'yes');
    ok $machine->nginx->wait_for(15, sub { metrics($machine) eq '1 0' }),
        'unsafe: and no more, again';

    $redis->command('CONFIG', 'SET', 'maxmemory-policy', 'allkeys-lru');
    ok $machine->nginx->wait_for(15, sub {
        $machine->redeem('SPRING', 'bob' . rand)->{status} == 503
    }), 'unsafe: a server that throws away';
    is $machine->code('SPRING')->{reserved}, 0, 'unsafe: it can be looked at';

    $machine->end($lost, qr/may have promo codes again/);

    return;
}
