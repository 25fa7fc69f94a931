#!/usr/bin/perl

# A name with three addresses, of which only the last leads to a server: the
# others take no connection, or take it and say nothing.  Names are resolved
# with the configuration; no reload is needed to come past those.
#
# Runs beside others.  With an /etc/hosts of its own, which takes root and
# namespaces.

use strict;
use warnings;

use FindBin;
use IO::Socket::INET;
use Test::More;

use IapGuard::Nginx;
use IapGuard::RedisServer;
use IapGuard::StoreTest;

use constant {
    BAD  => ['127.0.0.2', '127.0.0.3'],
    GOOD => '127.0.0.4',
    BACK => 10,             # seconds: one for each, a probe, a busy machine
};

my @self = ($^X, '-I', "$FindBin::Bin/../lib", $0, @ARGV);

if (!$ENV{IAP_GUARD_HOSTS}) {
    plan skip_all => 'not root, or no namespaces' if !possible();

    local $ENV{IAP_GUARD_HOSTS} = 1;
    exec 'unshare', '-m', @self or die "unshare: $!\n";
}

my $redis = redis(options => ['--bind', '127.0.0.1', GOOD]);

hosts();
past('no answer to connect()', backlog => 1, full => 4);
past('a server that says nothing', backlog => 64, full => 0);
done_testing;


sub possible {
    return $> == 0 && system('unshare -m true > /dev/null 2>&1') == 0;
}


# as all processes here see it

sub hosts {
    my $file = $redis->folder . '/hosts';

    open my $hosts, '>', $file or die "$file: $!\n";
    print {$hosts} "127.0.0.1 localhost\n",
                   map { "$_ redis.test\n" } @{ BAD() }, GOOD;
    close $hosts or die "$file: $!\n";

    system('mount', '--bind', $file, '/etc/hosts') == 0
        or die "mount failed\n";

    return;
}


sub past {
    my ($name, %bad) = @_;
    my $port = $redis->port;
    my (@listeners, @clients);

    foreach my $address (@{ BAD() }) {
        push @listeners, IO::Socket::INET->new(Proto => 'tcp',
            LocalAddr => $address, LocalPort => $port,
            Listen => $bad{backlog}) // die "$address: $!\n";
        push @clients, IO::Socket::INET->new(PeerAddr => $address,
            PeerPort => $port, Blocking => 0) for 1 .. $bad{full};
    }

    my $nginx = site($redis, "redis://redis.test:$port timeout=100ms",
        server => 'location /t { iap_guard g; iap_guard_user $arg_u
                                 capacity=2 rate=1r/h; empty_gif; }');
    my $n = 0;

    is verdict($nginx, '/t?u=' . $n++), 'passed//fallback',
        "$name: nobody waits for it";

    # so often that it is down before an address is given up

    ok $nginx->wait_for(BACK, sub {
        verdict($nginx, "/t?u=f" . $n++) eq 'passed//redis'
    }), "$name: the last address is found";
    is verdict($nginx, '/t?u=s' . $n++), 'passed//redis',
        "$name: and stays in use" for 1 .. 3;

    ends_well($nginx);
    $redis->cli('FLUSHALL');

    return;
}
