# Decisions of all kinds that travel in one call: each is held to its own
# rules, and counted in its own keys.

use strict;
use warnings;

use List::Util qw(shuffle);
use Test::More;
use Time::HiRes qw(time);

use lib 't/lib';
use IapGuard::LoadClient;
use IapGuard::Loop;
use IapGuard::StoreTest;

my $redis = redis();

my $server = '
    location = /first { iap_guard first; iap_guard_user $arg_u capacity=5 rate=1r/h;
                        empty_gif; }
    location = /one { iap_guard one; iap_guard_user $arg_u capacity=1 rate=1r/h;
                      empty_gif; }
    location = /two { iap_guard two; iap_guard_user $arg_u capacity=2 rate=1r/h;
                      empty_gif; }
    location = /also { iap_guard one; iap_guard_user $arg_u capacity=1 rate=1r/h;
                       empty_gif; }
    location = /pair { iap_guard pair; iap_guard_user $arg_u capacity=1 rate=1r/h;
                       iap_guard_device $arg_u capacity=2 rate=1r/h;
                       empty_gif; }
    location = /here { iap_guard here; iap_guard_global rate=10r/h window=1h;
                       empty_gif; }
    location = /there { iap_guard there; iap_guard_global rate=10r/h window=1h;
                        empty_gif; }
    location = /home { iap_guard home;
                       iap_guard_segment users=1 window=1h address=$arg_a;
                       iap_guard_user $arg_u capacity=2 rate=1r/h; empty_gif; }
    location = /town { iap_guard town;
                       iap_guard_segment users=1 window=1h address=$arg_a;
                       iap_guard_segment ipv4=24 users=3 window=1h
                                         address=$arg_a;
                       iap_guard_user $arg_u capacity=9 rate=1r/h; empty_gif; }
';

# how often each path is asked for, and how often it is let pass

my %asked = (
    (map { ("/one?u=$_" => [3, 1]) } 1 .. 6),
    (map { ("/two?u=$_" => [3, 2]) } 1 .. 6),
    (map { ("/pair?u=$_" => [2, 1]) } 1 .. 4),
    '/here'  => [14, 10],
    '/there' => [14, 10],
    (map { ("/home?a=192.0.2.$_&u=h$_" => [3, 2]) } 1 .. 5),
    '/town?a=198.51.100.1&u=t' => [6, 6],
);

# of these together so many

my %together = (
    (map { ("^/(?:one|also)[?]u=b$_\$" =>
                [{ "/one?u=b$_" => 1, "/also?u=b$_" => 1 }, 1]) } 1 .. 4),
    '^/home[?]a=203' => [{ map { ("/home?a=203.0.113.1&u=g$_" => 1) } 1 .. 5 },
                         1],
    '^/home[?]a=198' => [{ map { ("/home?a=198.51.100.$_&u=k$_" => 1,
                                  "/home?a=198.51.100.$_&u=l$_" => 1) }
                               1 .. 4 }, 4],
    '^/town[?]a=203' => [{ map { ("/town?a=203.0.113.$_&u=v$_" => 1) } 1 .. 7 },
                         3],
);

foreach my $round (1 .. 3) {
    subtest "round $round" => sub {
        my $nginx = site($redis, 'timeout=20s', connections => 512,
                         server => $server);

        # for the script to be known

        is statuses($nginx, '/first?u=a', 1), '200', 'a first one';

        my @paths = map { ($_) x $asked{$_}[0] } sort keys %asked;

        foreach my $group (map { $together{$_}[0] } sort keys %together) {
            push @paths, map { ($_) x $group->{$_} } sort keys %$group;
        }

        # neighbours are alike; then everything is mixed

        @paths = shuffle(@paths) if $round > 1;

        my $before = scripts($redis);
        my %passed = passed($nginx, @paths);

        cmp_ok scripts($redis) - $before, '<=', 5, @paths . ' in few calls';

        is $passed{$_} // 0, $asked{$_}[1], "$_: $asked{$_}[1] of $asked{$_}[0]"
            foreach sort keys %asked;

        foreach my $pattern (sort keys %together) {
            my $sum = 0;
            $sum += $passed{$_} foreach grep { /$pattern/ } keys %passed;
            is $sum, $together{$pattern}[1], "$pattern: so many together";
        }

        ends_well($nginx);
        $redis->cli('FLUSHALL');
    };
}

# Each user's bucket is another place, and a call of its own.  The window is
# asked after them, when all are told that were answered together.

subtest 'what is asked later' => sub {
    my $nginx = site($redis, 'mode=proxy timeout=20s', connections => 512,
        server => 'location = /t { iap_guard t;
                                   iap_guard_user $arg_u capacity=1 rate=1r/h;
                                   iap_guard_global rate=1000r/h window=1h;
                                   empty_gif; }');

    is statuses($nginx, '/t?u=first', 1), '200', 'a first one';

    my $before = scripts($redis);
    my %passed = passed($nginx, map { "/t?u=$_" } 1 .. 40);

    is scalar(keys %passed), 40, 'forty users';
    cmp_ok scripts($redis) - $before, '<=', 40 + 8, 'and the window for all';

    ends_well($nginx);
    $redis->cli('FLUSHALL');
};

done_testing;


# Sends all at once while the server stands still; how often each was let pass.

sub passed {
    my ($nginx, @paths) = @_;
    my $loop = IapGuard::Loop->new;
    my $left = @paths;
    my %passed;

    my $client = IapGuard::LoadClient->new(
        loop => $loop, port => $nginx->port, connections => 200,
        timeout => 30);

    $redis->freeze;

    foreach my $path (@paths) {
        $client->request(
            { method => 'GET', path => $path, headers => {} },
            sub {
                my ($answer) = @_;
                $left--;
                $passed{$path}++ if ($answer->{status} // 0) == 200;
            });
    }

    my $until = time + 0.5;
    $loop->run_until(sub { time > $until });

    $redis->thaw;

    $loop->run_until(sub { !$left });
    $client->shut;

    return %passed;
}
