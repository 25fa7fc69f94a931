#!/usr/bin/perl
#
# Runs lua/ban.lua, lua/bans.lua and lua/forget.lua against a redis-server of
# their own:
#
#     t/redis/bans.pl [--redis=PROGRAM]

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use Getopt::Long;
use Test::More;
use Time::HiRes qw(sleep time);

use IapGuard::RedisServer;

use constant {
    YEAR_MS => 31_536_000_000,
    LIFT_MS => 600_000,
    LOG_MAX => 65_536,
    SLACK   => 5_000,           # ms that a slow machine may take for a step
};

my $program = $ENV{REDIS_SERVER} || 'redis-server';
GetOptions('redis=s' => \$program) && !@ARGV
    or die "usage: $0 [--redis=PROGRAM]\n";

my $root  = "$FindBin::Bin/../..";
my $redis = IapGuard::RedisServer->new(program => $program);
my $log;        # the key of the log, another one for each test
my $logs = 0;

written_and_read();
written_once();
read_from_where_it_was();
over();
expiry();
trimmed();
malformed();
another_log();
errors();
forgotten();
rights();

done_testing;


sub fresh { return $log = 'iap:{bans}:log' . ++$logs }


# ban('redeem', 'segment', '10.0.0.0/8', 60_000), lift('redeem', '', '')

my $change;

sub ban  { return [++$change, 'ban', @_] }
sub lift { return [++$change, 'lift', @_, 0] }

sub write_log {
    my ($machine, @changes) = @_;

    return write_again($machine, 0, @changes);
}


sub write_again {
    my ($machine, $count, @changes) = @_;

    return $redis->script("$root/lua/ban.lua", [$log], $machine, $count,
                          map { @$_ } @changes);
}


# ($next, $more, [machine, op, guard, layer, key, ms, age], ...); or ($error)

sub read_log {
    my ($after, $count) = @_;

    my $reply = $redis->script("$root/lua/bans.lua", [$log],
                               $after // '0-0', $count // 256);
    return $reply unless ref $reply;

    my ($next, $more, @words) = @$reply;
    my @entries;

    push @entries, [splice @words, 0, 7] while @words;

    return ($next, $more, @entries);
}


# without the time that is left, which is looked at by itself

sub texts {
    return [ map { join ' ', @$_[0 .. 4] } @_ ];
}


sub near {
    my ($value, $expected, $name) = @_;

    ok $value <= $expected && $value > $expected - SLACK, $name
        or diag "$value, expected a bit less than $expected";

    return;
}


sub ids { return map { $_->[0] } @{ $redis->command('XRANGE', $log, '-', '+') } }


sub written_and_read {
    fresh();

    my ($next, $more, @entries) = read_log();
    is_deeply [$next, $more, @entries], ['0-0', 0], 'there is no log: nothing';
    is $redis->command('EXISTS', $log), 0, 'reading makes none';

    is write_log(18_446_744_073_709_551_615 . '',
                 ban('redeem', 'segment', '203.0.113.0/24', 240_000),
                 ban('redeem', 'user', 'short', 1),
                 ban('redeem', 'user', '!~@"%\\', 9_000),
                 lift('redeem', '', ''),
                 ban('verify', 'user', '~' . 'x' x 43, YEAR_MS),
                 lift('', '', 'mallory'), lift('', 'user', '')),
        7, 'all changes of a call are written';

    sleep 0.002;
    ($next, $more, @entries) = read_log();

    is_deeply texts(@entries), [
        '18446744073709551615 ban redeem segment 203.0.113.0/24',
        '18446744073709551615 ban redeem user !~@"%\\',
        '18446744073709551615 lift redeem  ',
        '18446744073709551615 ban verify user ~' . 'x' x 43,
        '18446744073709551615 lift   mallory',
        '18446744073709551615 lift  user ',
    ], 'in their order, without the ban that is over';

    is $more, 0, 'and that is all';
    is $next, (ids())[-1], 'read up to the last';
    near($entries[0][5], 240_000, 'so long a ban still lasts');
    near($entries[3][5], YEAR_MS, 'a year too');
    is_deeply [map { $_->[5] } @entries[2, 4, 5]], [0, 0, 0],
        'a lift has no time';

    is write_log(7), 0, 'no change: nothing is written';
    is $redis->command('XLEN', $log), 7, 'indeed';

    return;
}


# The answer to a call did not come, so it is made again.

sub written_once {
    fresh();

    my @changes = (ban('g', 'user', 'a', 60_000), lift('g', 'user', 'b'),
                   ban('g', 'user', 'c', 60_000));

    is write_log(1, @changes[0, 1]), 2, 'again: carried out';
    is write_again(2, 256, lift('g', 'user', 'a')), 1,
        'again: another machine lifts';
    is write_again(1, 256, @changes), 1, 'again: the new one alone is written';

    my (undef, undef, @entries) = read_log();
    is_deeply texts(@entries),
        ['1 ban g user a', '1 lift g user b', '2 lift g user a',
         '1 ban g user c'], 'again: nothing is undone';

    is write_again(1, 256, @changes), 0, 'again: and nothing if there is none';
    is write_again(2, 256, @changes), 3,
        'again: another machine has numbers of its own';
    is write_again(2, 2, @changes), 1, 'again: it looks so far and no further';

    # of others' entries in the log

    fresh();
    $redis->command('XADD', $log, '*', @$_)
        foreach ['x', 'y'], [qw(machine 1)], [qw(change 7 machine 1)];
    is write_again(1, 256, [7, 'ban', 'g', 'user', 'a', 60_000]), 1,
        'again: odd entries are no obstacle';

    fresh();
    is write_again(1, 256, @changes), 3, 'again: nor is there no log';

    return;
}


sub read_from_where_it_was {
    fresh();
    write_log(1, map { ban('g', 'user', "u$_", 60_000) } 1 .. 10);

    my ($after, $more, @entries) = ('0-0');
    my @seen;

    foreach my $round (1 .. 4) {
        ($after, $more, @entries) = read_log($after, 4);
        push @seen, $more . ':' . join ',', map { $_->[4] } @entries;
    }

    is_deeply \@seen, ['1:u1,u2,u3,u4', '1:u5,u6,u7,u8', '0:u9,u10', '0:'],
        'piece by piece';

    write_log(2, lift('g', 'user', 'u1'));
    ($after, $more, @entries) = read_log($after, 4);
    is_deeply texts(@entries), ['2 lift g user u1'], 'and what is new';

    ($after, $more, @entries) = read_log($after, 1);
    is_deeply [$after, $more, @entries], [(ids())[-1], 0], 'then nothing';

    # what is passed over counts: reading must not stand still there

    fresh();
    $redis->command('XADD', $log, '*', 'x', 'y') for 1 .. 5;
    write_log(1, ban('g', 'user', 'u', 60_000));
    ($after, $more, @entries) = read_log('0-0', 5);
    is_deeply [$after, $more, @entries], [(ids())[4], 1],
        'a piece of which nothing is told';
    ($after, $more, @entries) = read_log($after, 5);
    is_deeply texts(@entries), ['1 ban g user u'], 'and what is behind it';

    return;
}


sub over {
    fresh();
    write_log(1, ban('g', 'user', 'short', 300), ban('g', 'user', 'long', 900),
              lift('g', 'user', 'x'));

    my (undef, undef, @entries) = read_log();
    is_deeply [map { $_->[4] } @entries], [qw(short long x)], 'in force';

    ok $entries[0][5] > 0 && $entries[0][5] <= 300, 'for its time';
    sleep 0.4;

    (undef, undef, @entries) = read_log();
    is_deeply [map { $_->[4] } @entries], [qw(long x)],
        'what is over is not told';
    ok $entries[0][5] > 0 && $entries[0][5] <= 500, 'and time passes'
        or diag $entries[0][5];

    ok $_->[6] >= 400 && $_->[6] < 400 + SLACK,
        "it says how long ago that was, in ms: $_->[6]" foreach @entries;

    # of a master whose clock was ahead

    $redis->command('XADD', $log, int((time + 60) * 1000) . '-7',
                    qw(machine 1 op lift guard g layer user key ahead));
    is +(read_log())[-1][6], 0, 'what is still to come was just now';

    return;
}


sub pttl { return $redis->command('PTTL', $log) }


sub expiry {
    fresh();
    write_log(1, ban('g', 'user', 'a', 60_000));
    near(pttl(), 60_000, 'the log expires with its ban');

    write_log(1, ban('g', 'user', 'b', 20_000));
    near(pttl(), 60_000, 'a shorter ban does not change that');

    write_log(1, ban('g', 'user', 'c', 90_000), ban('g', 'user', 'd', 10_000));
    near(pttl(), 90_000, 'a longer one does, wherever it stands');

    fresh();
    write_log(1, lift('g', 'user', 'a'));
    near(pttl(), LIFT_MS, 'a lift alone stays for minutes');

    write_log(1, ban('g', 'user', 'b', 5_000_000));
    write_log(1, lift('g', 'user', 'a'));
    near(pttl(), 5_000_000, 'and shortens nothing');

    fresh();
    write_log(1, ban('g', 'user', 'a', 1_000));
    write_log(1, lift('g', 'user', 'a'));
    near(pttl(), LIFT_MS, 'a lift behind a short ban stays as long');

    fresh();
    write_log(1, ban('g', 'user', 'a', 1_000));
    $redis->command('PERSIST', $log);
    write_log(1, ban('g', 'user', 'b', 1_000));
    near(pttl(), YEAR_MS, 'a log without an expiry gets one');

    fresh();
    write_log(1, ban('g', 'user', 'a', 300));
    sleep 0.4;
    is $redis->command('EXISTS', $log), 0, 'and goes';

    my ($after) = read_log('5-0');
    is $after, '0-0', 'whoever had read it begins again';

    return;
}


sub trimmed {
    fresh();

    for my $call (1 .. 150) {
        write_log(1, map { ban('g', 'user', "u$call.$_", 60_000) } 1 .. 500);
    }

    my $length = $redis->command('XLEN', $log);
    ok $length >= LOG_MAX && $length <= LOG_MAX + 200,
        "of 75000 changes it keeps about the latest 65536: $length";

    my ($after, undef, @entries) = read_log('0-0', 1);
    is $entries[0][4], u_of(75_000 - $length), 'the latest, indeed';

    # read up to an entry that has gone since

    write_log(1, map { ban('g', 'user', "more$_", 60_000) } 1 .. 500);
    my $first = (@{ $redis->command('XRANGE', $log, '-', '+', 'COUNT', 1) })[0];
    isnt $first->[0], $after, '(the entry that was read has gone)';

    my (undef, undef, @next) = read_log($after, 1);
    my %fields = @{ $first->[1] };
    is $next[0][4], $fields{key}, 'goes on at the oldest there is';

    return;
}


sub u_of {
    my ($n) = @_;
    return 'u' . (1 + int($n / 500)) . '.' . (1 + $n % 500);
}


sub malformed {
    my $until = int(time * 1000) + 60_000;
    my %good  = (machine => 1, op => 'ban', guard => 'g', layer => 'user',
                 key => 'u', until => $until);

    my @bad = (
        ['no fields of ours', x => 'y'],
        (map { my %entry = %good; delete $entry{$_}; ["no $_", %entry] }
             sort keys %good),
        (map { ["empty $_", %good, $_ => ''] } sort keys %good),
        ['another op', %good, op => 'BAN'],
        ['a machine that is no number', %good, machine => '0x1'],
        ['a machine that is too long', %good, machine => '1' x 21],
        (map { ["until $_", %good, until => $_] }
             '-1', '1e14', " $until", "$until.5", "0x$until", 'nan', 'inf',
             '9' x 16, "$until\0"),
        ['a long guard', %good, guard => 'g' x 65],
        ['a long layer', %good, layer => 'l' x 33],
        ['a long key', %good, key => 'k' x 65],
        ['a huge key', %good, key => 'k' x 100_000],
        (map { ['a key with ' . ord, %good, key => "u$_"] }
             ' ', "\0", "\n", "\x7f", "\xfc"),
        ['a lift of everything', machine => 1, op => 'lift', guard => '',
         layer => '', key => ''],
        ['a lift without a key', machine => 1, op => 'lift', guard => 'g',
         layer => 'user'],
    );

    foreach my $bad (@bad) {
        my ($name, @fields) = @$bad;

        fresh();
        write_log(1, ban('g', 'user', 'before', 60_000));
        $redis->command('XADD', $log, '*', @fields);
        write_log(1, ban('g', 'user', 'after', 60_000));

        my ($next, undef, @entries) = read_log();
        is join(' ', $next, map { $_->[4] } @entries),
            (ids())[-1] . ' before after', "passed over: $name";
    }

    # as long as can be, in another order, with more

    fresh();
    $redis->command('XADD', $log, '*', until => $until, key => 'k' x 64,
                    layer => 'l' x 32, guard => 'g' x 64, op => 'ban',
                    more => 'x', machine => '1' x 20);
    my (undef, undef, @entries) = read_log();
    is_deeply texts(@entries),
        [join ' ', '1' x 20, 'ban', 'g' x 64, 'l' x 32, 'k' x 64],
        'what is good in another order';

    return;
}


sub another_log {
    fresh();
    write_log(1, map { ban('g', 'user', "u$_", 60_000) } 1 .. 3);
    my ($after) = read_log();

    # flushed, and the new log's clock is behind

    $redis->command('DEL', $log);
    is_deeply [read_log($after)], ['0-0', 0], 'flushed: nothing, from the start';

    $redis->command('XADD', $log, '5-1', machine => 2, op => 'lift',
                    guard => 'g', layer => '', key => 'new');
    my ($next, undef, @entries) = read_log($after);
    is_deeply [$next, @{ texts(@entries) }], ['5-1', '2 lift g  new'],
        'a log that is behind is read from its start';

    # the clock goes on from an id that lies ahead

    fresh();
    $redis->command('XADD', $log, '99999999999999-0', machine => 2,
                    op => 'lift', guard => 'g', layer => '', key => 'ahead');
    ($after) = read_log();
    is $after, '99999999999999-0', 'an id that is ahead';
    write_log(1, lift('g', '', 'next'));
    ($next, undef, @entries) = read_log($after);
    is_deeply texts(@entries), ['1 lift g  next'], 'is no obstacle';
    is $next, '99999999999999-1', 'and ids go on from there';

    # a replica took over that had not got the last two, and went on past them

    fresh();
    $redis->command('XADD', $log, "$_-0", machine => 2, op => 'lift',
                    guard => 'g', layer => '', key => "k$_") for 1 .. 4;
    ($after) = read_log();
    is $after, '4-0', '(read up to the fourth)';

    $redis->command('DEL', $log);
    $redis->command('XADD', $log, "$_-0", machine => 2, op => 'lift',
                    guard => 'g', layer => '', key => "k$_") for 1, 2, 3, 5;
    (undef, undef, @entries) = read_log($after);
    is join(' ', map { $_->[4] } @entries), 'k1 k2 k3 k5',
        'a log that lacks what was read is read from its start';

    return;
}


sub errors {
    fresh();
    $redis->command('SET', $log, 'x', 'PX', 50_000);

    is_deeply [read_log()], ['WRONGTYPE'], 'another type: reading says so';
    is_deeply [read_log('5-0')], ['WRONGTYPE'], 'also from somewhere';
    is write_log(1, ban('g', 'user', 'u', 60_000)), 'WRONGTYPE',
        'another type: writing says so';
    is write_again(1, 9, ban('g', 'user', 'u', 60_000)), 'WRONGTYPE',
        'also if it looks first';
    is $redis->command('GET', $log), 'x', 'and leaves it alone';
    near(pttl(), 50_000, 'its expiry, too');

    # a log that is full: no number comes after this one

    fresh();
    $redis->command('XADD', $log, '18446744073709551615-18446744073709551615',
                    'x', 'y');
    like write_log(1, ban('g', 'user', 'u', 60_000)), qr/^ERR/,
        'no id is left: writing says so';
    is((read_log())[0], '18446744073709551615-18446744073709551615',
        'and reading goes on');
    like join(' ', read_log('18446744073709551615-18446744073709551615')),
        qr/^(?:ERR|18446744073709551615-18446744073709551615 0)$/,
        'as far as it can';

    fresh();
    is((read_log('rubbish'))[0], 'ERR', 'an id that is none');

    return;
}


sub forget { return $redis->script("$root/lua/forget.lua", [@_]) }


# Whatever it is; and an error is told, for the store is not broken by it.

sub forgotten {
    $redis->command('SET', 'iap:f1', 1);
    $redis->command('ZADD', 'iap:f2', 1, 'u');
    $redis->command('XADD', 'iap:f3', '*', 'x', 'y');
    $redis->command('SET', 'iap:f4', 1);

    is forget(map { "iap:f$_" } 1 .. 3), 3, 'forget: keys of any type';
    is forget(map { "iap:f$_" } 1 .. 3), 0, 'forget: that are there no more';
    is forget('iap:f3', 'iap:f4'), 1, 'forget: how many there were';
    is $redis->command('EXISTS', map { "iap:f$_" } 1 .. 4), 0,
        'forget: none is left';

    $redis->command('SET', 'iap:f1', 1);
    $redis->command(qw(CONFIG SET min-replicas-to-write 1));
    is forget('iap:f1'), 'NOREPLICAS', 'forget: the token of an error';
    $redis->command(qw(CONFIG SET min-replicas-to-write 0));
    is $redis->command('EXISTS', 'iap:f1'), 1, 'forget: which changes nothing';

    return;
}


# No other commands than the headers say, and no key that is not in KEYS.

sub rights {
    $redis->command('ACL', 'SETUSER', 'guard', 'on', '>secret', '~iap:*',
                    qw(+eval +time +pttl +xadd +xrevrange +pexpireat
                       +xrange +del));

    my $admin = delete $redis->{socket};
    $redis->command('AUTH', 'guard', 'secret');

    fresh();
    is write_again(1, 9, ban('g', 'user', 'u', 60_000), lift('g', '', '')), 2,
        'the rights that ban.lua names are enough';
    my ($after, undef, @entries) = read_log();
    is scalar @entries, 2, 'and those of bans.lua';
    is((read_log($after))[0], $after, 'also from somewhere');
    is forget('iap:f1'), 1, 'and that of forget.lua';

    $redis->{socket} = $admin;
    $redis->command('ACL', 'SETUSER', 'guard', '-xadd', '-del');
    delete $redis->{socket};
    $redis->command('AUTH', 'guard', 'secret');

    like write_log(1, ban('g', 'user', 'u', 60_000)), qr/^(?:NOPERM|ERR)$/,
        'a right that is missing is an error';
    like forget('iap:f1'), qr/^(?:NOPERM|ERR)$/, 'also to forget';

    $redis->{socket} = $admin;

    return;
}
