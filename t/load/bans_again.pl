#!/usr/bin/perl

# The log of bans, read again from its beginning: by a machine that gets a
# guard or a layer by a reload, long after others have banned in it; and after
# a failover.  It learns what it lacks, and what it knew stays as it was.
#
# Runs beside others.

use strict;
use warnings;

use FindBin;
use Test::More;
use Time::HiRes qw(sleep time);

use IapGuard::Nginx;
use IapGuard::RedisServer;

use constant {
    WORKERS => 2,
    WITHIN  => 2,           # seconds, the promise
    BACK    => 6,           # the same, of a log of many entries
    APART   => 0.5,         # seconds that tell what was first
    LONG    => 180,         # seconds, after which nobody may be late
    MANY    => 3000,        # bans, of which one reading has 256
    LOG     => 'iap:{bans}:log',
};

my $root    = "$FindBin::Bin/../..";
my %options = IapGuard::Nginx->options;
my $redis   = IapGuard::RedisServer->new;
my ($one, $two);
my $markers = 0;

# what a machine has from its start, and what it gets later

my $old = location('a', 'iap_guard_user $http_x_user;')
          . location('full', 'iap_guard_segment ipv4=24 users=2 window=1h'
                             . ' address=$http_x_address;'
                             . ' iap_guard_user $http_x_user;');
my $guard = location('b', 'iap_guard_user $http_x_user;');
my $layer = location('a', 'iap_guard_user $http_x_user;'
                          . ' iap_guard_device $http_x_device;');

late_guard();
late_layer();
while_it_reads();
told_again();
after_a_failover();

foreach my $nginx ($one, $two) {
    my @complaints = $nginx->complaints;

    $nginx->stop;
    is_deeply [@complaints, $nginx->complaints], [],
        'no complaint in the error log';
}

done_testing;


sub location {
    my ($name, $layers) = @_;
    return "location = /$name { iap_guard $name; $layers empty_gif; }\n";
}


sub machine {
    my ($server) = @_;
    my $node = $redis->node;

    return IapGuard::Nginx->new(%options, workers => WORKERS, level => 'info',
        server => $server, http => <<"END")->start;
    iap_guard_zone   iap 32m;
    iap_guard_redis  redis://$node timeout=500ms nodes=2;
END
}


# The seconds that are left of the bans of a key, by "guard layer"

sub left {
    my ($nginx, $key) = @_;

    return { map { ("$_->{guard} $_->{layer}" => $_->{seconds}) }
             grep { $_->{key} eq $key } @{ $nginx->api_json('GET', 'bans') } };
}

sub names { return join ', ', sort keys %{ left(@_) } }


sub status {
    my ($nginx, $path, @headers) = @_;
    return $nginx->get($path, @headers)->{status};
}


sub in_time {
    my ($name, $condition, $seconds) = @_;
    return ok(IapGuard::Nginx->wait_for($seconds || WITHIN, $condition), $name);
}


# An entry that was written so many seconds ago

sub write_old {
    my ($ago, $op, %entry) = @_;
    my $ms = int((time - $ago) * 1000);

    return $redis->command('XADD', LOG, "$ms-*", 'machine', 1, 'op', $op,
                           map { ($_, $entry{$_}) } sort keys %entry);
}


# Until these have read what was written so far

sub read_by {
    my (@machines) = @_;
    my $marker = 'marker' . ++$markers;

    $redis->command('XADD', LOG, '*', qw(machine 1 op ban guard a layer user
                    until), int(time * 1000) + 60_000, 'key', $marker);

    return in_time("read up to $marker", sub {
        return !grep { !names($_, $marker) } @machines;
    }, BACK);
}


# Machines of one site get a new guard one after the other.

sub late_guard {
    ($one, $two) = (machine($old . $guard), machine($old));

    $one->ban('b', 'user', 'evil', 600);
    $one->ban('a', 'user', 'evil', 600);
    $one->ban('b', 'segment', '10.1.0.0/16', 600);
    $one->ban('b', 'user', 'pardoned', 600);
    in_time('guard: the others\' bans', sub { names($two, 'evil') eq 'a user' });
    $one->api_json('DELETE', 'bans?key=pardoned');
    read_by($two);

    ok $two->change(server => $old . $guard), 'guard: reload with it';
    in_time('guard: its bans',
            sub { names($two, 'evil') eq 'a user, b user' });
    is status($two, '/b', 'X-User' => 'evil'), 429, 'guard: they hold';
    is names($two, '10.1.0.0/16'), 'b segment', 'guard: those of prefixes, too';
    is status($two, '/b', 'X-User' => 'pardoned'), 200,
        'guard: not one that was lifted';

    $one->api_json('DELETE', 'bans?key=evil');
    in_time('guard: lifted', sub { names($two, 'evil') eq '' });

    return;
}


sub late_layer {
    $one->change(server => $layer . $guard);
    $one->ban('a', 'device', 'evil', 600);
    read_by($two);

    ok $two->change(server => $layer . $guard), 'layer: reload with it';
    in_time('layer: its bans', sub { names($two, 'evil') eq 'a device' });
    is status($two, '/a', 'X-User' => 'u', 'X-Device' => 'evil'), 429,
        'layer: they hold';

    $_->stop foreach $one, $two;

    return;
}


# Workers that are being replaced read on, and pass over what they do not have.

sub while_it_reads {
    $redis->command('FLUSHALL');

    foreach my $call (1 .. MANY / 100) {
        $redis->script("$root/lua/ban.lua", [LOG], 1, 0, map {
            ($_, 'ban', 'b', 'user', "many$call-$_", 600_000) } 1 .. 100);
    }

    $one = machine($old);
    ok $one->change(server => $old . $guard), 'reads: reload at once';
    in_time('reads: all ' . MANY, sub {
        return scalar(@{ $one->api_json('GET', 'bans') }) == MANY;
    }, BACK) or diag scalar @{ $one->api_json('GET', 'bans') };

    $one->stop;
    $redis->command('FLUSHALL');

    return;
}


# Banned for long, lifted, and banned for a shorter time: so it stays

sub told_again {
    ($one, $two) = (machine($old . $guard), machine($old));

    $one->ban('a', 'user', 'mallory', 6000);
    in_time('again: banned', sub { names($two, 'mallory') });
    sleep APART;
    $one->api_json('DELETE', 'bans?key=mallory');
    sleep APART;
    $one->ban('a', 'user', 'mallory', 60);
    $one->ban('b', 'user', 'new', 600);
    read_by($one, $two);

    ok $two->change(server => $old . $guard), 'again: all of it is read';
    in_time('again: a ban of the guard is there', sub { names($two, 'new') });
    is names($two, 'mallory'), 'a user', 'again: banned still';
    cmp_ok left($two, 'mallory')->{'a user'}, '<=', 60,
        'again: for as long as the last has said';

    return;
}


# What the store has refused is refused on without asking it, unless a lift is
# heard of for the first time.

sub after_a_failover {
    my %segment = (guard => 'full', layer => 'segment', key => '10.9.9.0/24');
    my @before  = (%segment, key => 'before');
    my $until   = int(time * 1000) + 600_000;

    status($two, '/full', 'X-User' => "u$_", 'X-Address' => '10.9.9.9')
        foreach 1 .. 3;
    ok denied(), 'failover: a full segment is known';

    # a replica that had got other entries; the lift is one of those that were
    # read before

    $redis->command('DEL', LOG);
    write_old(LONG + 1, 'ban', guard => 'a', layer => 'user', key => 'known',
              until => $until);
    write_old(LONG, 'lift', %segment);
    read_by($two);
    ok denied(), 'failover: a lift that is told again changes nothing';
    ok denied(), 'failover: nor later';

    # one that this machine has not read, and has the ban

    $redis->command('DEL', LOG);
    write_old(LONG, 'lift', guard => '', layer => '', key => 'known');
    read_by($two);
    is names($two, 'known'), '', 'failover: a lift that was not known ends a ban';
    ok denied(), 'failover: and is about that guard';

    $redis->command('DEL', LOG);
    write_old(LONG + 1, 'ban', @before, layer => 'user', until => $until);
    read_by($two);
    is names($two, 'before'), 'full user', 'failover: a ban of this guard';
    $redis->command('DEL', LOG);
    write_old(LONG, 'lift', @before, layer => 'user');
    read_by($two);
    is names($two, 'before'), '', 'failover: its end';
    ok !denied(), 'failover: of a guard of which a ban ended the store is asked';

    ok denied(), 'failover: known again';
    $redis->command('XADD', LOG, '*', 'machine', 1, 'op', 'lift', %segment);
    read_by($two);
    ok !denied(), 'failover: as it is when a lift is new';

    return;
}


# Whether the segment is refused without asking the store

sub denied {
    my $hits = $two->metric('iap_guard_deny_cache_hits_total');

    is status($two, '/full', 'X-User' => 'u3', 'X-Address' => '10.9.9.9'), 429,
        'refused';

    return $two->metric('iap_guard_deny_cache_hits_total') - $hits;
}
