#!/usr/bin/perl

# Names as the system's DNS has them: what is asked for, and what it costs when
# no server answers: a worker that leaves waits for that, but not for long.
#
# Runs beside others.  In a network of its own, with a resolv.conf of its own,
# which takes root and namespaces.

use strict;
use warnings;

use FindBin;
use IO::Socket::INET;
use Test::More;
use Time::HiRes qw(sleep);

use IapGuard::Child;
use IapGuard::DrainTest;
use IapGuard::Loop;

use constant {
    SERVERS => 3,
    LEFT    => 9,           # seconds: 6, and some of a busy machine
};

my @self = ($^X, '-I', "$FindBin::Bin/../lib", $0, @ARGV);

if (!$ENV{IAP_GUARD_NAMES}) {
    plan skip_all => 'not root, or no namespaces' if !possible();

    # found from where we are

    local $ENV{IAP_GUARD_NAMES} = 1;
    exec 'unshare', '-n', '-m', 'sh', '-c', 'ip link set lo up && exec "$@"',
         'sh', @self or die "unshare: $!\n";
}

my %paths = IapGuard::Nginx->options;

answered();
silent();
done_testing;


sub possible {
    return $> == 0 && system('unshare -n -m ip link set lo up '
                             . '> /dev/null 2>&1') == 0;
}


sub test {
    my ($host, %options) = @_;

    return IapGuard::DrainTest->new(paths => \%paths, workers => 1,
        breaker => undef, main => 'worker_shutdown_timeout 2s;', %options,
        queue => "target=http://$host/verify attempts=50 retry_min=100ms "
                 . 'retry_max=500ms rate=100r/s');
}


# the system's settings, as all processes here see them

sub resolv_conf {
    my ($test, @lines) = @_;
    my $file = $test->nginx->file('resolv.conf');

    open my $conf, '>', $file or die "$file: $!\n";
    print {$conf} map { "$_\n" } @lines;
    close $conf or die "$file: $!\n";

    system('mount', '--bind', $file, '/etc/resolv.conf') == 0
        or die "mount failed\n";

    return;
}


# A server that knows "redeem.corp.test" and "apple.example", and tells through
# a pipe what it was asked for

sub dns {
    pipe my $read, my $write or die "pipe: $!\n";

    my $socket = IO::Socket::INET->new(Proto => 'udp', LocalPort => 53,
        LocalAddr => '127.0.0.1') or die "port 53: $@\n";

    my $child = IapGuard::Child->start(sub {
        local $SIG{TERM} = sub { exit 0 };

        while (defined $socket->recv(my $query, 512)) {
            my ($id, $question) = unpack 'n x10 a*', $query;
            my @labels;

            while ($question =~ s/^(.)//s && (my $n = ord $1)) {
                push @labels, substr $question, 0, $n, '';
            }

            my $name  = join '.', @labels;
            my ($type) = unpack 'n', $question;
            my $known = $name =~ /^(?:redeem\.corp\.test|apple\.example)$/;
            my $found = $known && $type == 1;

            syswrite $write, "$name\n";
            $socket->send(pack('n6', $id, $known ? 0x8180 : 0x8183, 1,
                               $found ? 1 : 0, 0, 0)
                . join('', map { chr(length) . $_ } @labels) . "\0"
                . pack('n2', $type, 1)
                . ($found ? pack('n3 N n C4', 0xc00c, 1, 1, 60, 4, 127, 0, 0, 1)
                          : ''));
        }

        return 0;
    });

    close $write;

    return ($child, $read);
}


# a short name is looked for in the system's domain, a whole one is not

sub answered {
    my ($dns, $asked) = dns();

    foreach my $case (['redeem', 'redeem.corp.test'],
                      ['apple.example', 'apple.example'],
                      ['none.example', undef])
    {
        my ($host, $found) = @$case;
        my $peers = IapGuard::DrainPeers->start;
        my $test  = test("$host:" . $peers->port, peers => $peers);

        resolv_conf($test, 'nameserver 127.0.0.1', 'search corp.test');
        my $ticket = $test->put({ id => 'r1' });

        is $found ? $test->ended($ticket)->{status} : 'pending',
           $found ? 'verified' : 'pending', "$host: "
           . ($found ? 'is found' : 'is not');
        sleep 0.5 if !$found;

        $test->end;
        system('umount', '/etc/resolv.conf') == 0 or die "umount failed\n";
    }

    $dns->stop;

    my %names = map { chomp; $_ => 1 } <$asked>;

    is_deeply [sort keys %names],
              ['apple.example', 'none.example', 'redeem.corp.test'],
              'nothing else was asked for' or diag explain \%names;

    return;
}


# They are there, and say nothing.  A worker is told to leave in the middle of
# a look-up, which is the moment at which it takes longest.

sub silent {
    my @mute = map {
        IO::Socket::INET->new(Proto => 'udp', LocalPort => 53,
            LocalAddr => "127.0.0.$_") or die "port 53: $@\n"
    } 1 .. SERVERS;

    my $test  = test('apple.example:1');
    my $nginx = $test->nginx;

    resolv_conf($test, (map { "nameserver 127.0.0.$_" } 1 .. SERVERS),
                'search corp.test example.test');

    $test->put({ id => 'r1' });
    $nginx->wait_for(5, sub {
        vec(my $bits = '', fileno $mute[0], 1) = 1;
        return select($bits, undef, undef, 0) > 0;
    });

    my ($old) = $nginx->workers;
    my $begun = IapGuard::Loop::now();
    kill 'HUP', $nginx->master;

    ok $nginx->wait_for(LEFT, sub { !IapGuard::Child->alive($old) }),
        sprintf 'a worker that leaves, and no server that answers: %.1f s',
        IapGuard::Loop::now() - $begun;

    # and those who come are served

    my $answer = $nginx->get('/other');
    is $answer->{status}, 200, 'others are answered';
    cmp_ok $answer->{seconds}, '<', 0.5, 'at once';

    my $put = IapGuard::Loop::now();
    $test->put({ id => 'r2' });
    cmp_ok IapGuard::Loop::now() - $put, '<', 1, 'and are accepted';

    $nginx->stop;
    system('umount', '/etc/resolv.conf') == 0 or die "umount failed\n";
    $test->end;

    return;
}
