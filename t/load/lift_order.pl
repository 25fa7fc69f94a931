#!/usr/bin/perl

# Bans and lifts that come out of their order: a machine reads of a lift when
# it has banned again since; a failover loses a lift, and all of the log is
# read again.  What is newer holds.
#
# Runs beside others.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(sleep time);

use IapGuard::Nginx;
use IapGuard::RedisServer;

use constant {
    WORKERS => 2,
    WITHIN  => 2,           # seconds, the promise
    BACK    => 6,           # the same, when the store has just come back
    APART   => 0.5,         # seconds that tell what was first
    LOG     => 'iap:{bans}:log',
};

my %options = IapGuard::Nginx->options;
my $redis   = IapGuard::RedisServer->new;
my ($one, $two) = map { machine() } 1 .. 2;
my $markers = 0;

banned_since(sub { $two->api_json('DELETE', "bans?key=$_[0]") });
banned_since(sub { $two->api_json('DELETE', 'bans?guard=verify') });
lost_lift('verify', 'user', 'mallory', 'key=mallory');
lost_lift('verify', 'user', 'eve', 'guard=verify&layer=user');
lost_lift('redeem', 'segment', '10.0.0.0/24', 'key=10.0.0.0/24');
lost_ban();

foreach my $nginx ($one, $two) {
    my @complaints = $nginx->complaints;

    $nginx->stop;
    is_deeply [@complaints, $nginx->complaints], [],
        'no complaint in the error log';
}

done_testing;


sub machine {
    my $node = $redis->node;

    return IapGuard::Nginx->new(%options, workers => WORKERS, level => 'info',
        http => <<"END", server => <<'END')->start;
    iap_guard_zone   iap 4m;
    iap_guard_redis  redis://$node timeout=500ms nodes=2;
END
        location = /redeem {
            iap_guard          redeem;
            iap_guard_segment  ipv4=24 users=100 window=1h ban=1h
                               address=$http_x_address;
            iap_guard_user     $http_x_user_id;
            empty_gif;
        }

        location = /verify {
            iap_guard         verify;
            iap_guard_user    $http_x_user_id;
            empty_gif;
        }
END
}


# The seconds that are left of the ban of a key; 0: there is none

sub left {
    my ($nginx, $key) = @_;
    my ($ban) = grep { $_->{key} eq $key } @{ $nginx->api_json('GET', 'bans') };

    return $ban ? $ban->{seconds} : 0;
}


sub in_time {
    my ($name, $condition, $seconds) = @_;
    return ok(IapGuard::Nginx->wait_for($seconds || WITHIN, $condition), $name);
}


# Until these have read what was written so far

sub read_by {
    my (@machines) = @_;
    my $marker = 'marker' . ++$markers;

    $redis->command('XADD', LOG, '*', qw(machine 1 op ban guard redeem layer
                    user until), int(time * 1000) + 60_000, 'key', $marker);

    return in_time("read up to $marker", sub {
        return !grep { !left($_, $marker) } @machines;
    }, BACK);
}


sub saved {
    return ($redis->command('PTTL', LOG), $redis->command('DUMP', LOG));
}

sub restored { return $redis->command('RESTORE', LOG, @_, 'REPLACE') }


# The log has a lift that this machine has not read when the store goes away;
# it bans again; the store comes back, and another worker reads of the lift
# before the one that has banned can write.

sub banned_since {
    my ($lift) = @_;
    my ($first, $second) = $one->workers;
    my $key = 'again' . ++$markers;

    $one->ban('verify', 'user', $key, 600);
    in_time('since: banned', sub { left($two, $key) });

    kill 'STOP', $first, $second;
    $lift->($key);
    sleep APART;

    my @log = saved();
    $redis->kill;

    kill 'CONT', $first;
    ok left($one, $key), 'since: the lift was not read';
    $one->ban('verify', 'user', $key, 6000);
    kill 'STOP', $first;

    $redis->start;
    restored(@log);
    kill 'CONT', $second;

    read_by($one);
    cmp_ok left($one, $key), '>', 5900,
        'since: what was banned after the lift stays banned';

    kill 'CONT', $first;
    in_time('since: and so it is on the other machine',
            sub { left($two, $key) > 5900 }, BACK);
    read_by($one, $two);
    cmp_ok left($_, $key), '>', 5900, 'since: for good' foreach $one, $two;

    $one->api_json('DELETE', 'bans?guard=verify');
    read_by($one, $two);
    is left($_, $key), 0, 'since: a lift after that ends it' foreach $one, $two;

    return;
}


# A replica takes over that had got the ban, but not the lift

sub lost_lift {
    my ($guard, $layer, $key, $lift) = @_;

    $one->ban($guard, $layer, $key, 600);
    in_time("$key: banned", sub { left($two, $key) });

    my @log = saved();

    sleep APART;
    $two->api_json('DELETE', "bans?$lift");
    read_by($one, $two);
    is left($_, $key), 0, "$key: lifted" foreach $one, $two;

    restored(@log);
    read_by($one, $two);
    is left($_, $key), 0, "$key: what is read again does not bring it back"
        foreach $one, $two;

    $two->ban($guard, $layer, $key, 60);
    in_time("$key: but a new ban does", sub { left($one, $key) });
    $two->api_json('DELETE', "bans?$lift");
    read_by($one, $two);
    is left($_, $key), 0, "$key: and that is lifted" foreach $one, $two;

    return;
}


# The replica had got a lift, but not the ban that came after it: who had read
# of the ban keeps it.

sub lost_ban {
    $one->ban('verify', 'user', 'kept', 60);
    in_time('kept: banned', sub { left($two, 'kept') });
    $two->api_json('DELETE', 'bans?key=kept');
    read_by($one, $two);

    my @log = saved();

    sleep APART;
    $one->ban('verify', 'user', 'kept', 600);
    in_time('kept: banned again', sub { left($two, 'kept') > 500 });
    read_by($one, $two);

    restored(@log);
    read_by($one, $two);
    cmp_ok left($_, 'kept'), '>', 500, 'kept: though the log has a lift last'
        foreach $one, $two;

    return;
}
