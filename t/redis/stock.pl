#!/usr/bin/perl
#
# Runs lua/stock.lua against a redis-server of its own, and holds it to
# src/core/iap_stock.c:
#
#     t/redis/stock.pl [--redis=PROGRAM]

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use File::Temp qw(tempdir);
use Getopt::Long;
use Test::More;
use Time::HiRes ();

use IapGuard::RedisServer;
use IapGuard::StockScript qw(text_of);

use constant {
    NONE => 0, RESERVED => 1, KEPT => 2, SOLD => 3, RELEASED => 4,
    SOLD_UNKNOWN => 5, RELEASED_UNKNOWN => 6,
    SECOND => 1000, HOUR => 3_600_000, DAY => 86_400_000, MAX => 1_000_000_000,
};

my $program = $ENV{REDIS_SERVER} || 'redis-server';
GetOptions('redis=s' => \$program) && !@ARGV
    or die "usage: $0 [--redis=PROGRAM]\n";

my $root  = "$FindBin::Bin/../..";
my $file  = "$root/lua/stock.lua";
my $redis = IapGuard::RedisServer->new(program => $program);
my ($code, %steps);

read_steps();

reserved();
sold_out();
one_of_a_user();
same_token();
taken_over();
not_open();
dry_run();
settled();
every_step();
kept_again();
leases();
forgotten();
clock();
edited();
edited_many();
names();
audited();
lost_by_the_server();
errors();
unsafe();
out_of_memory();
rights();
cut_off();
at_random();
speed();

done_testing;


sub fresh {
    my ($units, @options) = @_;

    $code = IapGuard::StockScript->new($redis, $file, @options);
    $code->set($units) if defined $units;

    return $code;
}


sub well {
    my ($name) = @_;
    is $code->wrong, '', "$name: all is in its place";
    return;
}


sub later { return $code->clock_back(-$_[0]) }


# What the core says: {"STATE EVENT FREE"} = [done, after, sold, reserved]

sub read_steps {
    my $scratch = tempdir('iap_guard-stock-XXXXXX', TMPDIR => 1, CLEANUP => 1);

    system('cc', qw(-std=c11 -D_GNU_SOURCE -O1 -Wall -Wextra -Werror),
           "-I$root/src/core", '-o', "$scratch/step",
           "$FindBin::Bin/stock_step.c", "$root/src/core/iap_stock.c") == 0
        or BAIL_OUT('stock_step.c does not compile');

    my @lines = split /\n/, qx{$scratch/step};
    my @constants = split ' ', pop @lines;

    foreach (@lines) {
        my ($state, $event, $free, @says) = split;
        $steps{"$state $event $free"} = \@says;
    }

    my $text = text_of($file);
    my ($max)     = $text =~ /STOCK_MAX = (\d+)/;
    my ($r, $t)   = $text =~ /REMEMBERED, TOMBSTONE = (\d+), (\d+)/;
    my ($header)  = text_of("$root/src/event/ngx_iap_stock.h")
                    =~ /NGX_IAP_STOCK_SWEEP +(\d+)/;
    my ($sweep)   = $text =~ /\bSWEEP = (\d+)/;

    is "$max $r $t", "@constants", 'the script has the numbers of the core';
    is $sweep, $header, 'and looks at as many leases as the file';
    is scalar keys %steps, 7 * 7 * 2, 'the core says what every event does';

    return;
}


sub reserved {
    fresh();

    is $code->reserve('ann', 't1'), 'unknown', 'reserve: no such code';
    is $code->numbers, 'none', 'reserve: nor is one made';
    is $code->unit('t1', 'release'), 'none 0 0', 'reserve: nothing to release';
    is_deeply $redis->command('KEYS', $code->key('*')), [],
        'reserve: nothing was written';

    fresh(3);
    is $code->reserve('ann', 't1'), 'reserved', 'reserve: one';
    is $code->numbers, '3 0 1/0', 'reserve: which is counted';
    is $code->unit('t1', 'sell', status => 201), 'ok 1 3', 'reserve: sold';
    is $code->numbers, '3 1 0/0', 'reserve: for good';
    is $code->reserve('bob', 't2'), 'reserved', 'reserve: another';
    is $code->unit('t2', 'release'), 'ok 1 4', 'reserve: which comes back';
    is $code->reserve('bob', 't3'), 'reserved', 'reserve: at once';
    is $code->numbers, '3 1 1/0', 'reserve: two in all';
    well('reserve');

    return;
}


sub sold_out {
    fresh(2);

    $code->reserve("u$_", "t$_") for 1 .. 2;
    is $code->reserve('u3', 't3'), 'none_free', 'sold out: all are reserved';
    $code->unit('t1', 'sell');
    is $code->reserve('u3', 't3'), 'none_free', 'sold out: one may come back';
    $code->unit('t2', 'sell');
    is $code->reserve('u3', 't3'), 'gone', 'sold out: for good';
    is $code->unit('t3', 'sell'), 'none 0 0', 'sold out: nothing to sell';
    is $code->add(1), 'ok', 'sold out: one more';
    is $code->reserve('u3', 't3'), 'reserved', 'sold out: no more';
    is $code->numbers, '3 2 1/0', 'sold out: as is counted';
    well('sold out');

    fresh(0);
    is $code->reserve('ann', 't1'), 'gone', 'sold out: none from the start';

    return;
}


sub one_of_a_user {
    fresh(10);

    is $code->reserve('ann', 't1'), 'reserved', 'user: one';
    is $code->reserve('ann', "t$_"), 'in_progress', "user: not $_"
        for 2 .. 4;
    $code->unit('t1', 'keep', ticket => 'k' x 26);
    is $code->reserve('ann', 't5'), 'in_progress', 'user: it is a ticket\'s';
    $code->unit('t1', 'sell', status => 204);
    is $code->reserve('ann', 't6'), 'redeemed 204', 'user: has had it';
    is $code->numbers, '10 1 0/0', 'user: one unit';
    is $code->reserve('', 't7'), 'reserved', 'user: one without a name';
    is $code->reserve('', 't8'), 'reserved', 'user: is not the same';
    well('user');

    # names with anything in them

    fresh(10);
    my @users = ('a b', "a\nb", 'a', "\0", "x\xff", '1 2 3 s 4 - z', ' ');
    is $code->reserve($users[$_], "t$_"), 'reserved', 'user: any name'
        for 0 .. $#users;
    is $code->reserve($_, 'again'), 'in_progress', 'user: and known by it'
        for @users;
    is join('|', map { $_->{user} } $code->audit), join('|', @users),
        'user: as they are';
    well('user');

    return;
}


sub same_token {
    fresh(2);

    is $code->reserve('ann', 't1'), 'reserved', 'token: one';
    is $code->reserve('ann', 't1'), 'reserved', 'token: its answer did not come';
    is $code->numbers, '2 0 1/0', 'token: once';
    $code->unit('t1', 'keep');
    is $code->reserve('ann', 't1'), 'late', 'token: kept meanwhile';
    $code->unit('t1', 'release');
    is $code->reserve('ann', 't1'), 'late', 'token: released meanwhile';
    is $code->unit('t2', 'release'), 'ok 0 4', 'token: released before';
    is $code->reserve('bob', 't2'), 'late', 'token: then it comes too late';
    is $code->reserve('bob', 't3'), 'reserved', 'token: another may';
    is $code->unit('t2', 'release'), 'ok 4 4', 'token: released twice';
    is $code->numbers, '2 0 1/0', 'token: which is one unit';
    well('token');

    return;
}


# neither this user nor anybody else knows whether it was sold

sub taken_over {
    foreach my $why ('', 'closed', 'gone') {
        fresh(1);
        $code->reserve('ann', 't1', lease => SECOND);
        later(2 * SECOND);
        is $code->numbers, '1 1 0/0', 'unknown: sold, perhaps';
        is $code->reserve('bob', 't2'), 'gone', 'unknown: not for others';

        $code->edit(what => 'close') if $why eq 'closed';
        is $code->reserve('ann', 't3', dry => 1), 'reserved',
            "unknown: its user may try again $why";
        is $code->states, 't1:5', 'unknown: which nothing was done for';
        is $code->reserve('ann', 't3'), 'reserved', 'unknown: tries again';
        is $code->numbers, '1 0 1/0', 'unknown: by the same unit';
        is $code->states, 't1:4 t3:1', 'unknown: of another token';
        well("unknown $why");
    }

    is $code->unit('t3', 'sell'), 'ok 1 3', 'unknown: sold';
    is $code->unit('t1', 'sell'), 'ok 4 3', 'unknown: and so was the first';
    is $code->numbers, '1 2 0/0', 'unknown: two, although there was one';
    is $code->reserve('ann', 't4'), 'redeemed 0', 'unknown: enough';
    well('unknown');

    return;
}


sub not_open {
    fresh(5);

    is $code->edit(what => 'close'), 'ok', 'closed';
    is $code->reserve('ann', 't1'), 'closed', 'closed: to all';
    is $code->edit(what => 'open'), 'ok', 'closed: open again';
    is $code->reserve('ann', 't1'), 'reserved', 'closed: no more';
    is $code->edit(what => 'close'), 'ok', 'closed: again';
    is $code->reserve('ann', 't2'), 'in_progress', 'closed: it is ann\'s';
    is $code->unit('t1', 'sell'), 'ok 1 3', 'closed: and hers to have';
    is $code->reserve('ann', 't2'), 'redeemed 0', 'closed: which is remembered';

    my $now = int(Time::HiRes::time() * 1000);

    fresh();
    $code->set(5, expires => $now - 1000);
    is $code->reserve('ann', 't1'), 'closed', 'expired';
    is $code->edit(what => 'expire', expires => $now + HOUR), 'ok',
        'expired: not yet';
    is $code->reserve('ann', 't1'), 'reserved', 'expired: no more';
    is $code->info->{expires}, $now + HOUR, 'expired: when it will';
    $code->edit(what => 'expire', expires => 0);
    is $code->reserve('bob', 't2'), 'reserved', 'expired: never';

    return;
}


sub dry_run {
    fresh(1);

    is $code->reserve('ann', 't1', dry => 1), 'reserved', 'dry run: it would';
    is $code->numbers, '1 0 0/0', 'dry run: it does not';
    is $code->states, '', 'dry run: nothing is known of it';
    $code->reserve('ann', 't1');
    is $code->reserve('ann', 't2', dry => 1), 'in_progress', 'dry run: ann';
    is $code->reserve('bob', 't2', dry => 1), 'none_free', 'dry run: none';

    return;
}


sub settled {
    fresh(3);
    $code->reserve("u$_", "t$_") for 1 .. 3;

    is $code->unit('t1', 'sell', status => 201), 'ok 1 3', 'settle: sold';
    is $code->unit('t1', 'sell', status => 500), 'ok 3 3', 'settle: once more';
    is $code->unit('t1', 'release'), 'ok 3 3', 'settle: the first word stands';
    is $code->reserve('u1', 'x'), 'redeemed 201', 'settle: and its status';

    is $code->unit('t2', 'release'), 'ok 1 4', 'settle: released';
    is $code->unit('t2', 'sell', status => 200), 'ok 4 3',
        'settle: and sold after all';
    is $code->numbers, '3 2 1/0', 'settle: that is what has happened';
    is $code->reserve('u2', 'x'), 'redeemed 200', 'settle: to whom it was';

    my ($unit) = grep { $_->{token} eq 't3' } $code->audit;
    is $code->unit('t3', 'renew', lease => HOUR), 'ok 1 1', 'settle: renewed';
    my ($again) = grep { $_->{token} eq 't3' } $code->audit;
    cmp_ok $again->{until} - $unit->{until}, '>=', HOUR - 31 * SECOND,
        'settle: for so long';
    is $code->unit('t1', 'renew'), 'none 3 3', 'settle: none to renew';
    is $code->unit('x', 'renew'), 'none 0 0', 'settle: nor one that is none';
    is $code->unit('x', 'keep'), 'none 0 0', 'settle: nor to keep';
    well('settle');

    return;
}


# brings a unit into this state; "" if it can't be told apart

sub make_state {
    my ($state) = @_;

    return if $state == NONE;

    $code->reserve('ann', 't', lease => SECOND,
                   unknown => $state == RELEASED_UNKNOWN ? 'r' : 's');

    if ($state == SOLD_UNKNOWN || $state == RELEASED_UNKNOWN) {
        later(2 * SECOND);
        $code->info;
    }

    $code->unit('t', { KEPT, 'keep', SOLD, 'sell', RELEASED, 'release' }->{$state})
        if $state == KEPT || $state == SOLD || $state == RELEASED;

    return;
}


# the script does what the core says

sub every_step {
    foreach my $state (NONE .. RELEASED_UNKNOWN) {
        foreach my $free (0, 1) {
            foreach my $event (qw(sell release keep renew)) {
                my ($done, $after, @add) =
                    @{ $steps{"$state $event $free"} };

                fresh(1);
                make_state($state);

                # one more, or whoever has the last one

                if ($free) {
                    $code->add(1);
                } else {
                    $code->reserve('bob', 'b');
                }

                my $before = $code->info;
                my $name = "step: $state, $event, free: $free";
                is $code->unit('t', $event, status => $event eq 'keep' ? 1 : 0),
                    $done ? "ok $state $after" : "none $state $state", $name;
                my $now = $code->info;
                is join(' ', map { $now->{$_} - $before->{$_} }
                             qw(sold reserved)), "@add", "$name: in numbers";
                well($name) if $code->wrong ne '';
            }
        }

        foreach my $unknown (qw(s r)) {
            next if $state != RESERVED;
            fresh(1);
            $code->reserve('ann', 't', lease => SECOND, unknown => $unknown);
            later(2 * SECOND);
            is $code->states, "t:$steps{qq($state $unknown 0)}[1]",
                "step: $state runs out, $unknown";
            well("step $state, $unknown");
        }
    }

    return;
}


# A ticket's unit that was released is wanted again.

sub kept_again {
    fresh(1);
    $code->reserve('ann', 't1');
    is $code->unit('t1', 'keep', ticket => 'q' x 26), 'ok 1 2', 'keep';
    is(($code->audit)[0]{ticket}, 'q' x 26, 'keep: whose it is');
    is(($code->audit)[0]{until}, 0, 'keep: without a lease');
    later(30 * DAY);
    is $code->states, 't1:2', 'keep: for as long as it takes';
    $code->unit('t1', 'release');
    is(($code->audit)[0]{ticket}, '', 'keep: no more');
    is $code->unit('t1', 'keep'), 'none 4 4', 'keep: late, for it has ended';
    is $code->unit('t1', 'keep', status => 1), 'ok 4 2', 'keep: again';
    $code->unit('t1', 'release');
    $code->reserve('bob', 't2');
    is $code->unit('t1', 'keep', status => 1), 'none 4 4', 'keep: none is free';
    well('keep');

    # nobody has said that it was released but its lease

    fresh(1);
    $code->reserve('ann', 't1', lease => SECOND, unknown => 'r');
    later(2 * SECOND);
    is $code->states, 't1:6', 'keep: run out';
    is $code->unit('t1', 'keep'), 'ok 6 2', 'keep: late, and not too late';
    well('keep');

    # its user has another one by now

    fresh(5);
    $code->reserve('ann', 't1');
    $code->unit('t1', 'release');
    $code->reserve('ann', 't2');
    is $code->unit('t1', 'keep', status => 1), 'none 4 4',
        'keep: ann has another';
    $code->unit('t2', 'sell');
    is $code->unit('t1', 'keep', status => 1), 'none 4 4',
        'keep: and has had it';
    well('keep');

    return;
}


sub leases {
    fresh(100);

    $code->reserve("u$_", "t$_", lease => SECOND) for 1 .. 80;
    later(2 * SECOND);
    is $code->unit('t1', 'renew', lease => SECOND), 'ok 1 1',
        'lease: a unit is as it was left';
    is $code->reserve('v', 'w'), 'reserved', 'lease: somebody looks';
    my %states;
    $states{ (split / /, $redis->command('HGET', $code->key('unit'), "t$_"))[0] }++
        for 1 .. 80;
    is "$states{5} $states{1}", '64 16', 'lease: so many run out at a time';
    well('lease');
    is $code->numbers, '100 79 2/0', 'lease: or all, if it is asked for';
    well('lease');

    fresh(3000);
    $code->reserve("u$_", "t$_", lease => HOUR, unknown => 'r') for 1 .. 2500;
    later(2 * HOUR);
    is $code->call('code', 1000)->[0], 'more', 'lease: more than one call looks at';
    is scalar(grep { /^6/ } @{ $redis->command('HVALS', $code->key('unit')) }),
        1000, 'lease: as many as it is to';
    is $code->numbers, '3000 0 0/0', 'lease: but several do';
    well('lease');

    return;
}


sub forgotten {
    fresh(10);

    $code->reserve("u$_", "t$_") for 1 .. 4;
    $code->unit('t1', 'sell');
    $code->unit('t2', 'release');
    $code->unit('t3', 'keep');
    $code->unit('x', 'release');

    later(11 * 60 * SECOND);
    is $code->states, 't1:3 t2:4 t3:2 t4:5', 'forget: a tombstone, soon';
    later(DAY - 11 * 60 * SECOND);
    is $code->states, 't3:2 t4:5', 'forget: what was sold, after a day';
    is $code->numbers, '10 2 1/0', 'forget: it is sold all the same';
    is $code->info->{forgotten}, 1, 'forget: one is';
    is $code->reserve('u1', 'n1'), 'reserved', 'forget: the user, too';
    is $code->unit('t1', 'sell'), 'none 0 0', 'forget: what comes too late';
    later(DAY);
    is $code->unit('t3', 'sell'), 'ok 2 3', 'forget: never what is kept';
    later(2 * DAY);
    is $code->numbers, '10 4 0/0', 'forget: all that is over';
    later(2 * DAY);
    is $code->states, '', 'forget: then nothing is known';
    well('forget');

    is $code->edit(what => 'delete'), 'ok', 'delete: the code';
    is_deeply $redis->command('KEYS', $code->key('*')), [],
        'delete: nothing is left';

    return;
}


sub clock {
    fresh(10);
    $code->reserve('ann', 't1', lease => 10 * SECOND);
    $code->reserve('bob', 't2');
    $code->unit('t2', 'sell');
    $code->unit('x', 'release');
    $code->clock_back(HOUR);
    is $code->reserve('cid', 't3'), 'reserved', 'clock: set back by an hour';
    my %until = map { $_->{token} => $_->{until} } $code->audit;
    cmp_ok $until{t1}, '<=', time() * 1000 + 12 * SECOND,
        'clock: the lease has its time';
    cmp_ok $until{t1}, '>=', time() * 1000 + 5 * SECOND, 'clock: all of it';
    cmp_ok $until{t2}, '<=', time() * 1000 + DAY + SECOND,
        'clock: and a memory its own';
    well('clock');
    later(11 * SECOND);
    is join(' ', grep { /t1/ } split / /, $code->states), 't1:5',
        'clock: then it is over';

    return;
}


sub edited {
    fresh();

    is $code->add(1), 'none 0 unknown', "edit: add: there is none";
    is $code->edit(what => $_), 'none 0 unknown', "edit: $_: there is none"
        for qw(close open expire delete);
    is $code->set(MAX + 1), 'none 0 too_many', 'edit: too many';
    is $code->numbers, 'none', 'edit: there still is none';
    is $code->set(MAX), 'ok', 'edit: as many as can be';
    is $code->add(1), 'none 0 too_many', 'edit: no more';
    is $code->add(-MAX), 'ok', 'edit: none at all';
    is $code->add(-1), 'none 0 too_few', 'edit: but not fewer';
    is $code->set(3), 'ok', 'edit: three';
    $code->reserve("u$_", "t$_") for 1 .. 2;
    $code->unit('t1', 'sell');
    is $code->set(1), 'none 0 too_few', 'edit: fewer than there are';
    is $code->add(-2), 'none 0 too_few', 'edit: likewise';
    is $code->set(2), 'ok', 'edit: as many as there are';
    is $code->edit(what => 'delete'), 'none 0 in_use', 'edit: one is reserved';
    is $code->edit(what => 'close'), 'ok', 'edit: closed';
    is $code->set(7), 'ok', 'edit: more';
    is $code->info->{closed}, 1, 'edit: closed all the same';
    $code->unit('t2', 'release');
    is $code->edit(what => 'delete'), 'ok', 'edit: deleted';
    is $code->numbers, 'none', 'edit: gone';
    is $code->set(1), 'ok', 'edit: another of that name';
    is $code->reserve('u1', 't9'), 'reserved', 'edit: which is new';
    well('edit');

    # leases that are over are none

    fresh(1);
    $code->reserve('ann', 't1', lease => SECOND, unknown => 'r');
    later(2 * SECOND);
    is $code->set(0), 'ok', 'edit: the lease is over';

    return;
}


sub edited_many {
    my ($one, $two, $three) = map { fresh() } 1 .. 3;

    is $one->edits('all', [$one, what => 'set', units => 5],
                   [$two, what => 'set', units => 6, expires => 7]),
        'ok', 'many: two';
    is $one->numbers . ', ' . $two->numbers, '5 0 0/0, 6 0 0/0', 'many: are made';
    is $one->edits('all', [$one, what => 'add', units => 5],
                   [$two, what => 'close'], [$three, what => 'add', units => 1]),
        'none 2 unknown', 'many: one can\'t be';
    is $one->numbers . ' ' . $two->info->{closed}, '5 0 0/0 0',
        'many: so none is';

    is $one->edits('check', [$three, what => 'set', units => 1]), 'ok',
        'many: it could be';
    is $three->numbers, 'none', 'many: which makes nothing';
    is $one->edits('do', [$three, what => 'set', units => 1]), 'ok', 'many: made';
    is join(' ', grep { $_ eq $three->{name} } $one->named), '',
        'many: not named by that';

    my @codes = map { fresh() } 1 .. 1000;
    is $one->edits('all', map { [$_, what => 'set', units => 9] } @codes), 'ok',
        'many: a thousand';
    is $codes[-1]->numbers, '9 0 0/0', 'many: to the last';
    is $one->edits('all', map { [$_, what => 'delete'] } @codes), 'ok',
        'many: a thousand go';
    is $codes[0]->numbers, 'none', 'many: from the first on';

    many_sweep();
    many_there();

    return;
}


# However many leases of however many codes are over, one call has no more of
# them run out than of one.

sub many_sweep {
    my @codes = map { fresh(100) } 1 .. 5;

    foreach (@codes) {
        $code = $_;
        $code->reserve("u$_", "t$_", lease => SECOND) for 1 .. 40;
        later(2 * SECOND);
    }

    is $code->edits('all', map { [$_, what => 'set', units => 90] } @codes),
        'ok', 'many: with leases that are over';

    my $over = grep { /^5/ }
               map { @{ $redis->command('HVALS', $_->key('unit')) } } @codes;
    is $over, 64, 'many: so many of them run out';
    is $_->numbers, '90 40 0/0', 'many: then the others' foreach @codes;

    return;
}


# Of how many codes it is said that they were there

sub many_there {
    my @codes = map { fresh() } 1 .. 3;
    my $said  = sub {
        my ($how, $what) = @_;
        my @keys = map { $_->keys } @codes;

        push @keys, ($code->index_keys)[0] if $how eq 'all';

        return join ' ', @{ $code->call_keys(\@keys, 'edit', $how, 0, 64,
            map { ($what, $_->{name}, 1, 0) } @codes) }[0, 1];
    };

    is $said->('all', 'set'), 'ok 0', 'there: none of three';
    $codes[1]->edit(what => 'delete');
    is $said->('check', 'set'), 'ok 2', 'there: two';
    is $said->('all', 'set'), 'ok 2', 'there: still';
    is $said->('all', 'delete'), 'ok 3', 'there: three, before they go';

    return;
}


sub names {
    $redis->command('DEL', $code->index_keys);

    my @codes = map { fresh(1, name => $_) } qw(B A AA a Z9);
    is join(' ', $code->named), 'A AA B Z9 a', 'names: in order';
    is join(' ', $code->named('AA', 2)), 'B Z9', 'names: behind one';
    $codes[1]->edit(what => 'delete');
    is join(' ', $code->named), 'AA B Z9 a', 'names: one was deleted';
    is $codes[0]->add(1) . ' ' . join(' ', $code->named), 'ok AA B Z9 a',
        'names: nothing else changes them';

    # as a cluster has them: another slot

    my @index = $code->index_keys;
    is_deeply $code->call_keys(\@index, 'name', 'X', 'Y'), [qw(ok 1 1)],
        'names: two';
    is_deeply $code->call_keys(\@index, 'name', 'X'), [qw(ok 2)],
        'names: one again';
    is_deeply $code->call_keys(\@index, 'unname', 'X', 1, 'Y', 1), ['ok'],
        'names: both go';
    is join(' ', grep { /[XY]/ } $code->named), 'X',
        'names: but what was named since';
    $code->call_keys(\@index, 'unname', 'X', 2);
    is join(' ', grep { /[XY]/ } $code->named), '', 'names: then that, too';
    is_deeply $redis->command('HGETALL', $index[1]), [],
        'names: and nothing is left of them';

    return;
}


sub audited {
    fresh(20);

    $code->reserve("u$_", "t$_") for 1 .. 9;
    $code->pause(2);
    $code->unit('x', 'release');
    $code->unit('t2', 'sell', status => 201);
    $code->unit('t3', 'keep', ticket => 'z' x 26);

    my @units = $code->audit;
    is scalar @units, 10, 'audit: all units';
    is $units[-1]{token}, 'x', 'audit: the oldest first';
    is join('|', map { $units[1]{$_} } qw(token user state status)),
        't2|u2|3|201', 'audit: one that is sold';
    is join('|', @{ $units[2] }{qw(state until ticket)}), '2|0|' . 'z' x 26,
        'audit: one that is kept';
    is $code->{more}, 0, 'audit: that is all';
    is scalar(@{[ $code->audit(10) ]}) . $code->{more}, '100', 'audit: indeed';
    is scalar(@{[ $code->audit(9) ]}) . $code->{more}, '91', 'audit: some of them';
    in_pieces();
    cmp_ok abs($units[0]{made} - 1000 * time), '<', 60_000, 'audit: when';

    return;
}


# An audit by three units a call, however many were made at the same moment, one
# of which is lost

sub in_pieces {
    my @all = map { $_->{token} } $code->audit;
    my (@found, @from);

    $redis->command('ZADD', $code->key('made'), 1000, $_) foreach @all[0 .. 6];
    $redis->command('HDEL', $code->key('unit'), $all[4]);

    foreach (1 .. @all) {
        push @found, map { $_->{token} } $code->audit(3, @from);
        @from = @{ $code->{next} };
        last if !$code->{more};
    }

    is "@found", join(' ', grep { $_ ne $all[4] } @all),
        'audit: in pieces, each unit once';

    return;
}


# By somebody's hand, or by a server that throws keys away

sub lost_by_the_server {
    fresh(10);
    $code->reserve("u$_", "t$_", lease => SECOND) for 1 .. 4;
    $code->unit('t1', 'sell');

    $redis->command('ZREM', $code->key('made'), 't2');
    is $code->numbers, '10 1 3/1', 'lost: an audit tells';
    $redis->command('DEL', $code->key('unit'));
    is $code->unit('t1', 'sell'), 'none 0 0', 'lost: nobody knows them';
    later(2 * SECOND);
    is $code->reserve('new', 'n'), 'reserved', 'lost: it goes on';
    is $code->info->{reserved}, 4, 'lost: what is not known is not free';
    is $redis->command('ZCARD', $code->key('lease')), 1, 'lost: nor looked at';

    $redis->command('DEL', $code->key('code'));
    is $code->reserve('ann', 't9'), 'unknown', 'lost: the code';

    return;
}


sub errors {
    my %calls = (
        reserve => sub { $code->reserve('ann', 't1') },
        unit    => sub { $code->unit('t0', 'sell') },
        add     => sub { $code->add(1) },
        code    => sub { $code->info },
        audit   => sub { $code->audit },
    );

    foreach my $key (qw(code unit user made lease sold gone)) {
        foreach my $call (sort keys %calls) {
            fresh(5);
            $code->reserve('bob', 't0');
            my $dump = dump_keys();
            my $kept = $redis->command('DUMP', $code->key($key));

            $redis->command('DEL', $code->key($key));
            $redis->command('SET', $code->key($key), 'x');
            is eval { $calls{$call}->(); 1 }, undef,
                "error: $call, $key of another type";
            like $@, qr/^broken: .*WRONGTYPE/, 'error: which is said';

            $redis->command('DEL', $code->key($key));
            $redis->command('RESTORE', $code->key($key), 0, $kept)
                if defined $kept;
            is dump_keys(), $dump, 'error: and nothing was changed';
        }
    }

    foreach my $field (qw(initial sold reserved forgotten closed expires)) {
        foreach my $value ('x', '', '-1', '1.5', '1e3', undef) {
            fresh(5);
            defined $value
                ? $redis->command('HSET', $code->key('code'), $field, $value)
                : $redis->command('HDEL', $code->key('code'), $field);
            my $said = eval { $code->reserve('ann', 't1') };
            is $said, undef, "error: $field is " . ($value // 'not there');
            like $@, qr/^broken: .*not the guard's/, 'error: which is said';
        }
    }

    # a unit that can't be read, and its lease is over as others' are

    fresh(5);
    $code->reserve("u$_", "t$_", lease => SECOND) for 1 .. 3;
    later(2 * SECOND);
    $redis->command('HSET', $code->key('unit'), 't2', 'x');
    my $dump = dump_keys();
    is eval { $code->reserve('ann', 't9') }, undef, 'error: a unit';
    is dump_keys(), $dump, 'error: and no other has run out';

    is eval { $code->call('nothing') }, undef, 'error: no such operation';

    return;
}


sub dump_keys {
    return join ' ', map {
        my $key = $_;
        map { "$key:$_" } sort map { ref $_ ? @$_ : $_ // '-' }
            eval { $redis->command('HGETALL', $key) }
            // eval { $redis->command('ZRANGE', $key, 0, -1, 'WITHSCORES') };
    } sort @{ $redis->command('KEYS', $code->key('*')) };
}


# Where stock may be lost nothing is reserved, nor put.

sub unsafe {
    fresh(5);

    is $code->reserve('ann', 't1', look => 1),
        'unsafe "appendonly" is not "yes"', 'unsafe: no append-only file';
    is $code->numbers, '5 0 0/0', 'unsafe: so nothing is done';
    is_deeply $code->call('hello'), ['unsafe', '"appendonly" is not "yes"'],
        'unsafe: which can be asked';
    $code->{look} = 1;
    is $code->add(1), 'unsafe "appendonly" is not "yes"', 'unsafe: nor added';

    $redis->command('CONFIG', 'SET', 'appendonly', 'yes');
    is $code->add(1), 'ok', 'unsafe: no more';
    is_deeply $code->call('hello'), ['ok'], 'unsafe: as is said';

    foreach my $policy (qw(allkeys-lru allkeys-lfu allkeys-random)) {
        $redis->command('CONFIG', 'SET', 'maxmemory-policy', $policy);
        is $code->reserve('ann', 't1', look => 1),
            qq{unsafe "maxmemory-policy" is "$policy"}, "unsafe: $policy";
    }

    # stock never expires

    foreach my $policy (qw(volatile-lru volatile-ttl noeviction)) {
        $redis->command('CONFIG', 'SET', 'maxmemory-policy', $policy);
        is_deeply $code->call('hello'), ['ok'], "safe: $policy";
    }

    is $code->reserve('ann', 't1', look => 1), 'reserved', 'safe: reserved';
    $redis->command('CONFIG', 'SET', 'appendonly', 'no');

    return;
}


# A server that is full does nothing of this, by the script as the module has it,
# which says so before it does anything.

sub out_of_memory {
    my $full = IapGuard::RedisServer->new(program => $program,
        options => ['--maxmemory-policy', 'noeviction']);
    $code = IapGuard::StockScript->new($full, $file, name => 'FULL',
                                       before => "#!lua\n");
    $code->set(5);
    $code->reserve("u$_", "t$_", lease => SECOND) for 1 .. 2;
    later(2 * SECOND);
    $code->reserve('u3', 't3');
    $full->command('CONFIG', 'SET', 'maxmemory', '1');

    foreach my $call (sub { $code->reserve('u4', 't4') },
                      sub { $code->unit('t3', 'sell') },
                      sub { $code->unit('t3', 'renew') },
                      sub { $code->set(9) })
    {
        is eval { $call->() }, undef, 'full server: no';
        like $@, qr/^OOM /, 'full server: which it says';
    }

    $full->command('CONFIG', 'SET', 'maxmemory', '0');
    is $code->unit('t3', 'sell'), 'ok 1 3', 'full server: there is room again';
    is $code->numbers, '5 3 0/0', 'full server: nothing was done meanwhile';
    well('full server');
    $full->stop;

    return;
}


# No other commands than the header says, and no key that is not in KEYS

sub rights {
    my ($words) = text_of($file) =~ /^-- Needs the right to call (.*?);/ms;
    my @rights  = map { lc } $words =~ /\b([A-Z]{3,})\b/g;
    cmp_ok scalar @rights, '>', 10, 'rights: the header names ' . @rights;

    $redis->command('ACL', 'SETUSER', 'guard', 'on', '>secret', 'resetkeys',
                    '~iap:*', 'nocommands', '+evalsha', map { "+$_" } @rights);

    my $admin = delete $redis->{socket};
    my $as = sub {
        my ($guard) = @_;
        $redis->{socket} = $guard ? undef : $admin;
        $redis->command('AUTH', 'guard', 'secret') if $guard;
        return;
    };

    # the clock is not the guard's to set

    my $clock_back = sub {
        local $redis->{socket} = $admin;
        $code->clock_back(@_);
    };

    fresh();
    $as->(1);
    everything($clock_back);
    is $code->call('hello')->[1], '"appendonly" is not "yes"', 'rights: to look';
    $as->(0);
    well('rights');

    # of a code that is none

    fresh();

    foreach my $right (@rights) {
        $redis->command('ACL', 'SETUSER', 'guard', "-$right");
        $as->(1);

        if ($right eq 'info') {
            like $code->call('hello')->[1], qr/^it does not tell/,
                'rights: without INFO nobody knows';
        } else {
            is eval { $code->call('probe') }, undef,
                "rights: a probe tells that $right is missing";
        }

        $as->(0);
        $redis->command('ACL', 'SETUSER', 'guard', "+$right");
    }

    is_deeply $code->call('probe'), ['ok'], 'rights: with all of them';
    is_deeply $redis->command('KEYS', $code->key('*')), [],
        'rights: a probe leaves nothing';

    # a prefix that has braces of its own

    fresh(undef, prefix => 'x{y}:');
    everything($clock_back);
    well('rights');

    return;
}


# A right is taken away: what was cut off may cost a unit, but never makes one,
# and can be said again.

sub cut_off {
    my %ops = (
        reserve => sub { $code->reserve('new', 'n1') },
        over    => sub { $code->reserve('u5', 'n2') },
        sell    => sub { $code->unit('t1', 'sell') },
        release => sub { $code->unit('t2', 'release') },
        keep    => sub { $code->unit('t3', 'keep') },
        again   => sub { $code->unit('t6', 'keep', status => 1) },
        tomb    => sub { $code->unit('x', 'release') },
        after   => sub { $code->unit('t6', 'sell') },
        sweep   => sub { $code->info },
    );

    $redis->command('ACL', 'SETUSER', 'cut', 'on', '>secret', '~iap:*',
                    '+@all');

    my $admin = delete $redis->{socket};
    $redis->command('AUTH', 'cut', 'secret');
    my $user = $redis->{socket};

    foreach my $right (qw(hset hdel zadd zrem)) {
        foreach my $op (sort keys %ops) {
            $redis->{socket} = $admin;
            fresh(20);
            $code->reserve("u$_", "t$_", lease => $_ > 3 ? SECOND : HOUR)
                for 1 .. 6;
            $code->unit('t6', 'release');
            later(2 * SECOND);
            $code->info if $op eq 'over';

            $redis->command('ACL', 'SETUSER', 'cut', "-$right");
            $redis->{socket} = $user;
            eval { $ops{$op}->() };
            $redis->{socket} = $admin;
            $redis->command('ACL', 'SETUSER', 'cut', "+$right");

            my $held = 0;
            my %units = @{ $redis->command('HGETALL', $code->key('unit')) };
            /^[1235] / and $held++ foreach values %units;
            my ($sold, $reserved) = @{ $redis->command('HMGET',
                $code->key('code'), 'sold', 'reserved') };

            cmp_ok $sold + $reserved, '>=', $held,
                "cut off: $op, without $right: nobody has one too many";
            ok eval { $ops{$op}->(); 1 }, "cut off: $op: said again" or diag $@;
            ok eval { $code->audit; 1 }, 'cut off: and looked at';
        }
    }

    return;
}


sub everything {
    my ($clock_back) = @_;

    $code->set(10);
    $code->reserve("u$_", "t$_", lease => 1) for 1 .. 6;
    $code->unit('t1', 'sell');
    $code->unit('t2', 'release');
    $code->unit('t3', 'keep');
    $code->unit('t4', 'renew', lease => HOUR);
    $code->unit('x', 'release');
    $code->pause(3);
    $code->reserve('u5', 't7');
    $clock_back->(HOUR);
    $code->audit;
    $clock_back->(-3 * DAY);
    $code->info;
    $code->edit(what => $_) for qw(close open expire);
    $code->call_keys([$code->index_keys], 'name', 'N');
    $code->call_keys([$code->index_keys], 'unname', 'N', 1);
    $code->named;
    $code->unit('t3', 'release');

    return;
}


# Whatever is done in whatever order: the same as by what src/core and
# ngx_iap_stock.h say.

sub at_random {
    my $seed = $ENV{IAP_SEED} // 42;
    srand $seed;

    my $wrong = '';
    my %said;

    foreach my $round (1 .. 12) {
        fresh(4);
        my $model = { initial => 4, now => 0, units => {}, forgotten => 0,
                      closed => 0 };
        my $n = 0;

        foreach my $step (1 .. 250) {
            my $what  = int rand 12;
            my $token = 't' . (rand() < 0.7 && $n ? 1 + int rand $n : ++$n);
            my $user  = 'u' . int rand 5;
            my $hint;
            my ($is, $should);

            if ($what < 4) {
                my %how = (lease => 1000 * (10 + 10 * int rand 3),
                           unknown => rand() < 0.5 ? 's' : 'r',
                           dry => rand() < 0.1 ? 1 : 0);
                $token = 't' . ++$n if rand() < 0.8;
                $hint   = "reserve $user $token $how{unknown} $how{dry}";
                $is     = $code->reserve($user, $token, %how);
                $should = model_reserve($model, $user, $token, %how);

            } elsif ($what < 9) {
                my $event  = (qw(sell release keep renew))[rand 4];
                my $status = $event eq 'keep' ? int rand 2 : 200 + int rand 5;
                $hint   = "$event $token";
                $is     = $code->unit($token, $event, status => $status,
                                      lease => 25_000);
                $should = model_unit($model, $token, $event, $status, 25_000);

            } elsif ($what == 9) {
                my $ms = 5000 + 10_000 * int rand 4;
                $ms += DAY if rand() < 0.1;
                $hint = "pass $ms";
                later($ms);
                $model->{now} += $ms;
                ($is, $should) = ('', '');

            } elsif ($what == 10) {
                my $units = (-2 .. 3)[rand 6];
                $hint   = "add $units";
                $is     = $code->add($units);
                $should = model_add($model, $units);

            } else {
                $hint   = 'numbers';
                $is     = $code->numbers;
                $should = model_numbers($model);
                $is    .= $code->wrong;
            }

            $said{ $hint =~ s/ .*//r . " $is" }++;

            if ($is ne $should) {
                $wrong = "seed $seed, round $round, step $step: $hint: "
                       . "\"$is\", not \"$should\"";
                last;
            }
        }

        last if $wrong ne '';
    }

    is $wrong, '', 'at random: it does what the core says';
    cmp_ok scalar(grep { /^reserve/ } keys %said), '>=', 7,
        'at random: with all kinds of answers';

    return;
}


sub model_become {
    my ($model, $u, $state, $until) = @_;
    @$u{qw(state until)} = ($state, $until);
    return;
}


sub model_count {
    my ($model, @states) = @_;
    my %wanted = map { $_ => 1 } @states;
    return scalar grep { $wanted{ $_->{state} } } values %{ $model->{units} };
}

sub model_sold { return model_count($_[0], SOLD, SOLD_UNKNOWN) + $_[0]{forgotten} }
sub model_reserved { return model_count($_[0], RESERVED, KEPT) }

sub model_free {
    my ($model) = @_;
    return $model->{initial} - model_sold($model) - model_reserved($model);
}


# units never come to 64

sub model_sweep {
    my ($model) = @_;
    my $units = $model->{units};

    foreach my $token (keys %$units) {
        my $u = $units->{$token};
        next if $u->{state} == KEPT || $u->{until} > $model->{now};

        if ($u->{state} == RESERVED) {
            my $step = $steps{"$u->{state} $u->{unknown} 0"};
            model_become($model, $u, $step->[1], $model->{now} + DAY);
        } else {
            $model->{forgotten}++ if $u->{state} == SOLD
                                     || $u->{state} == SOLD_UNKNOWN;
            delete $units->{$token};
        }
    }

    return;
}


sub model_reserve {
    my ($model, $user, $token, %how) = @_;
    my $units = $model->{units};

    model_sweep($model);

    return $units->{$token}{state} == RESERVED ? 'reserved' : 'late'
        if $units->{$token};

    my @mine = grep { $_->{user} eq $user } values %$units;

    return 'in_progress'
        if grep { $_->{state} == RESERVED || $_->{state} == KEPT } @mine;

    # of several the one that was sold first, or last: any will do

    my @sold = grep { $_->{state} == SOLD } @mine;
    return 'redeemed ' . (sort { $a->{order} <=> $b->{order} } @sold)[0]{status}
        if @sold;

    my ($unknown) = sort { $a->{order} <=> $b->{order} }
                    grep { $_->{state} == SOLD_UNKNOWN } @mine;

    if (!$unknown && model_free($model) <= 0) {
        return model_sold($model) >= $model->{initial} ? 'gone' : 'none_free';
    }

    return 'reserved' if $how{dry};

    model_become($model, $unknown, RELEASED, $model->{now} + DAY) if $unknown;
    $units->{$token} = { user => $user, status => 0, over => !!$unknown,
                         unknown => $unknown ? 's' : $how{unknown},
                         order => ++$model->{order} };
    model_become($model, $units->{$token}, RESERVED,
                 $model->{now} + $how{lease});

    return 'reserved';
}


sub model_unit {
    my ($model, $token, $event, $status, $lease) = @_;
    my $u      = $model->{units}{$token};
    my $before = $u ? $u->{state} : NONE;
    my $others = $u && $u->{user} ne ''
        && grep { $_ != $u && $_->{user} eq $u->{user}
                  && $_->{state} != RELEASED && $_->{state} != RELEASED_UNKNOWN }
           values %{ $model->{units} };
    my $late   = $before == RELEASED && !$status;
    my $free   = model_free($model) > 0 && !$others && !$late ? 1 : 0;
    my $step   = $event eq 'release' && $u && $u->{over} ? 'return' : $event;
    my ($done, $after) = @{ $steps{"$before $step $free"} };

    return "none $before $before" if !$done;

    if (!$u) {
        $model->{units}{$token} = { user => '', state => RELEASED,
            until => $model->{now} + 600_000, order => ++$model->{order} };
        return "ok $before $after";
    }

    if ($event eq 'renew') {
        $u->{until} = $model->{now} + $lease;
    } elsif ($after != $before) {
        $u->{status} = $status if $event eq 'sell';

        # among its user's it is the latest, if it was not among them

        $u->{order} = ++$model->{order}
            if $before == RELEASED || $before == RELEASED_UNKNOWN;
        model_become($model, $u, $after, $model->{now}
                     + ($u->{user} ne '' ? DAY : 600_000));
    }

    return "ok $before $after";
}


sub model_add {
    my ($model, $units) = @_;

    model_sweep($model);
    $units += $model->{initial};

    return 'none 0 too_few'
        if $units < model_sold($model) + model_reserved($model);

    $model->{initial} = $units;

    return 'ok';
}


sub model_numbers {
    my ($model) = @_;
    model_sweep($model);
    return join ' ', $model->{initial}, model_sold($model),
                     model_reserved($model) . '/0';
}


# for the record

sub speed {
    fresh(MAX);

    my $n = 5000;
    my $cpu = $redis->info('cpu')->{used_cpu_user};
    my $memory = $redis->info('memory')->{used_memory};
    my $stats = sub {
        my ($usec) = $redis->command('INFO', 'commandstats')
                     =~ /cmdstat_evalsha:calls=\d+,usec=(\d+)/;
        return $usec;
    };
    my $begun = $stats->();

    foreach my $i (1 .. $n) {
        $code->reserve(sprintf('user-%032d', $i), sprintf 'token%021d', $i);
    }

    my $reserved = $stats->();

    $code->unit((sprintf 'token%021d', $_), 'sell', status => 200) for 1 .. $n;

    my $sold = $stats->();

    is $code->info->{sold}, $n, 'speed: all are sold';
    note sprintf 'speed: %.1f us a reservation, %.1f us a sale, %.0f bytes a unit',
        ($reserved - $begun) / $n, ($sold - $reserved) / $n,
        ($redis->info('memory')->{used_memory} - $memory) / $n;

    $begun = $stats->();
    $code->reserve("other-$_", "t$_", dry => 1) for 1 .. $n;
    note sprintf 'speed: %.1f us a look', ($stats->() - $begun) / $n;

    return;
}
