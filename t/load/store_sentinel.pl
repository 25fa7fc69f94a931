#!/usr/bin/perl

# A master that is replaced, under load, in each of the ways in which that
# happens: nobody who asks is told of it, the new one decides, the old one is
# left.

use strict;
use warnings;

use File::Temp ();
use FindBin;
use Test::More;
use Time::HiRes qw(sleep);

use IapGuard::Loop;
use IapGuard::Nginx;
use IapGuard::RedisSentinel;
use IapGuard::StoreLoad;

use constant {
    WORKERS  => 2,
    USERS    => 100,
    CAPACITY => 10,
    RATE     => 300,            # requests a second
    BACK     => 10,             # seconds until the store decides again
};

my $redis   = IapGuard::RedisSentinel->new;
my $urls    = $redis->urls;
my %options = IapGuard::Nginx->options;
my $nginx   = machine();

my %SCENARIOS = (
    failover => \&asked_for,
    killed   => \&killed,
    stopped  => \&stopped,
);

scenario($_) foreach qw(failover killed stopped);
sentinels_away();
unknown_name();
rights();

my @complaints = $nginx->complaints;
$nginx->stop;
is_deeply [@complaints, $nginx->complaints], [],
    'no complaint in the error log';

done_testing;


sub machine {
    my (%more) = @_;
    my $timeout = $options{nginx} =~ /asan/ ? '200ms' : '50ms';
    my $name    = delete $more{master} || $redis->name;
    my $nodes   = delete $more{urls} || $urls;
    my $user    = delete $more{user} || '';

    return IapGuard::Nginx->new(%options, workers => WORKERS, level => 'info',
        http => <<"END", server => <<"LOCATIONS", %more)->start;
    iap_guard_zone   iap 4m;
    iap_guard_redis  $nodes mode=sentinel master=$name timeout=$timeout $user;
END
        add_header  X-Store \$iap_guard_store always;

        location = /redeem {
            iap_guard       redeem;
            iap_guard_user  \$http_x_user_id capacity=@{[ CAPACITY ]} rate=1r/h;
            empty_gif;
        }

        location = /once {
            iap_guard       once;
            iap_guard_user  \$http_x_user_id capacity=1 rate=1r/h;
            empty_gif;
        }
LOCATIONS
}


sub scenario {
    my ($name) = @_;
    my $old = $redis->master;

    my $load = IapGuard::StoreLoad->start(
        port => $nginx->port, path => '/redeem', users => USERS,
        name => "$name-", rate => RATE);

    sleep 1;
    my ($new, $after) = $SCENARIOS{$name}->($old);

    my $back = IapGuard::Loop::now();
    ok $nginx->wait_for(BACK, sub { decided_by("$name-x") eq 'redis' }),
        "$name: the store decides again";

    sleep 1;
    $after->() if $after;
    my $last = IapGuard::Loop::now();
    sleep 3;

    my $seen = $load->stop;

    is_deeply $seen->{errors}, {}, "$name: every request was answered";
    is_deeply [grep { !/^(?:200|429)$/ } keys %{ $seen->{statuses} }], [],
        "$name: by what the limits say";
    ok $seen->since($last)->decided,
        "$name: at last by the store alone";

    # once by the store, once by the zone, and what was not replicated

    cmp_ok $seen->most, '<=', 2 * CAPACITY + 2,
        "$name: nobody has much more than the bucket, and the zone's";
    cmp_ok $seen->{slowest}, '<', 1, "$name: nobody waited for long";

    note sprintf '%s: %d requests, %d of them without the store, within '
        . '%.2f s; %d admitted over %d; %.0f ms at most', $name,
        scalar @{ $seen->{rows} }, $seen->{stores}{fallback} || 0,
        $seen->away, $seen->over(CAPACITY), USERS * CAPACITY,
        1000 * $seen->{slowest};

    is_decided_at($name, $new, $old);

    return;
}


sub asked_for {
    my ($old) = @_;
    return $redis->failover;
}


sub killed {
    my ($old) = @_;

    $old->kill;

    return ($redis->wait_for_another($old), sub { $old->start });
}


# It goes on where it was, and still takes itself for the master

sub stopped {
    my ($old) = @_;

    kill 'STOP', $old->pid;
    my $new = $redis->wait_for_another($old);

    return ($new, sub { kill 'CONT', $old->pid });
}


# The new master, and by nobody else: the old one is left

sub is_decided_at {
    my ($name, $new, $old) = @_;

    $redis->wait_for_replica($old);
    is $redis->master, $new, "$name: the master is the other one";

    my $begun = calls($new);
    my @users = map { "$name-after-$_" } 1 .. 20;
    my @answers = $nginx->ask(map { (['/once', 'X-User-Id' => $_]) x 2 }
                              @users);

    is scalar(grep { $_->{status} == 200 } @answers), 20,
        "$name: each has a token, and not two";
    is scalar(grep { $_->{headers}{'x-store'} eq 'redis' } @answers), 40,
        "$name: as the store says";
    cmp_ok calls($new), '>', $begun, "$name: which is the new master";
    is scalar(grep { $new->cli('EXISTS', "iap:once:user:$_") } @users), 20,
        "$name: where the tokens are";

    is scalar(() = $old->cli('CLIENT', 'LIST') =~ /cmd=eval/g), 0,
        "$name: nobody is connected with the old one";
    ok $nginx->log_lines(qr/redis master \w+ is now \Q@{[ $new->node ]}\E/),
        "$name: it is told";

    return;
}


sub calls {
    my ($server) = @_;
    my $stats = $server->cli('INFO', 'commandstats');
    my $sum   = 0;

    $sum += $_ foreach $stats =~ /cmdstat_eval(?:sha)?:calls=(\d+)/g;

    return $sum;
}


sub decided_by {
    my ($user) = @_;
    my $answer = $nginx->get('/redeem', 'X-User-Id' => $user . rand);
    return $answer->{headers}{'x-store'} || '';
}


# The master that is known goes on deciding

sub sentinels_away {
    $redis->stop_sentinels;

    my $load = IapGuard::StoreLoad->start(
        port => $nginx->port, path => '/redeem', users => 1_000_000,
        name => 'away-', rate => RATE);
    sleep 3;
    my $seen = $load->stop;

    is_deeply $seen->{errors}, {}, 'no sentinel: every request is answered';
    ok $seen->decided,
        'no sentinel: by the store';
    cmp_ok scalar(() = $nginx->log_lines(qr/no sentinel tells/)), '<=',
        WORKERS, 'no sentinel: each worker says it once'
        or diag $nginx->log_lines(qr/no sentinel tells|is now/);

    $redis->start_sentinels;

    return;
}


sub unknown_name {
    my $lost = machine(master => 'nosuchmaster');

    my @answers = map { $lost->get('/once', 'X-User-Id' => "u$_") } 1 .. 20;

    is_deeply [map { "$_->{status} $_->{headers}{'x-store'}" } @answers],
        [('200 fallback') x 20], 'an unknown name: the zone decides';
    is scalar(() = $lost->log_lines(
        qr/\[error\].* no sentinel knows a master of this name/)), 1,
        'an unknown name: it is told once';

    $lost->stop;

    return;
}


# Those of docs/redis.md are enough: users of the Sentinels and of the masters
# that may do nothing else

sub rights {
    my $name    = $redis->name;
    my $scratch = File::Temp->newdir('iap_guard-rights-XXXXXX', TMPDIR => 1);
    my $file    = $scratch->dirname . '/secret';
    my $master  = $redis->master;

    write_file($file, "s3cret\n");

    foreach my $line (documented()) {
        my (undef, undef, $user, @rules) = split ' ', $line;

        # the table is for all topologies

        push @rules, '+role' if $user eq 'guard';

        foreach my $port ($user eq 'watch' ? $redis->ports
                                           : map { $_->port } $redis->servers) {
            is cli($port, 'ACL', 'SETUSER', $user, @rules), "OK\n",
                "rights: the user $user at port $port";
        }
    }

    my $watcher = machine(
        urls => $urls =~ s{//}{//watch:s3cret@}gr,
        user => "user=guard password_file=$file");

    foreach my $n (1 .. 8) {
        my $answer = $watcher->get('/once', 'X-User-Id' => "rights$n");
        is "$answer->{status} $answer->{headers}{'x-store'}", '200 redis',
            "rights: decision $n";
        sleep 0.6;
    }

    like cli(($redis->ports)[0], '--user', 'watch', '--pass', 's3cret',
             'SENTINEL', 'MASTER', $name), qr/^config-epoch\n\d+$/m,
        'rights: an epoch';
    like cli(($redis->ports)[0], '--user', 'watch', '--pass', 's3cret',
             'SENTINEL', 'RESET', $name), qr/NOPERM/, 'rights: no more';
    like cli($master->port, '--user', 'guard', '--pass', 's3cret', 'ROLE'),
        qr/^master\n/, 'rights: a role';

    foreach my $port ($redis->ports, $master->port) {
        unlike cli($port, 'ACL', 'LOG'), qr/^(?!reset)(?:get-master|role|eval)/m,
            "rights: nothing was refused at port $port";
    }

    my @words = $watcher->complaints;
    $watcher->stop;
    is_deeply \@words, [], 'rights: no complaint in the error log';

    return;
}


# The lines with SETUSER, in one piece each

sub documented {
    my $text = read_file("$FindBin::Bin/../../docs/redis.md");
    my @lines;

    while ($text =~ /^(ACL SETUSER .*(?:\n +[+~].*)*)/mg) {
        push @lines, $1 =~ s/\n/ /gr =~ s/>secret/>s3cret/r;
    }

    ok @lines >= 2, 'rights: documented';

    return @lines;
}


sub cli {
    my ($port, @words) = @_;

    open my $pipe, '-|', 'sh', '-c', 'exec redis-cli --no-auth-warning "$@" 2>&1',
                   'sh', '-p', $port, @words
        or die "redis-cli: $!\n";
    my $text = join '', <$pipe>;
    close $pipe;

    return $text;
}


sub read_file {
    my ($file) = @_;

    open my $handle, '<', $file or die "$file: $!\n";
    local $/;

    return scalar <$handle>;
}


sub write_file {
    my ($file, $text) = @_;

    open my $handle, '>', $file or die "$file: $!\n";
    print {$handle} $text;
    close $handle or die "$file: $!\n";

    return;
}
