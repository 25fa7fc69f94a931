package IapGuard::StoreTest;

# What the tests of a guard with a store are made of: a redis-server and a
# nginx of their own.
#
#     my $redis = redis();
#     my $nginx = site($redis, 'timeout=5s', server => 'location /t { ... }');
#
#     statuses($nginx, '/t?u=a', 3)     "200 200 429"
#     verdicts($nginx, '/t?u=a', 3)     "passed passed limited:user"
#     verdict($nginx, '/t?u=a')         "passed//redis": verdict, layer, store
#     scripts($redis)                   how many script calls it has had
#     hits($nginx, 'g')                 how often guard g's deny cache refused
#     flood($nginx, @paths)             { status => how many had it }, of many
#                                       requests over one connection
#     ends_well($nginx)
#
# The site's answers have the headers X-Verdict, X-Layer and X-Store.  The
# second argument is the rest of "iap_guard_redis" or, if it begins with a
# URL, all of it.  Besides the options of IapGuard::Nginx there is `zone`, its
# size.

use strict;
use warnings;

use Exporter qw(import);
use IO::Socket::INET;
use Test::More;

use IapGuard::Nginx;
use IapGuard::RedisServer;

our @EXPORT = qw(redis site statuses verdicts verdict scripts hits flood
                 keys_of down ends_well);


sub redis { return IapGuard::RedisServer->new(@_) }


sub site {
    my ($redis, $words, %options) = @_;
    my $http = delete $options{http} // '';
    my $zone = delete $options{zone} // '1m';

    $words = "redis://$words" if $words =~ /^[\w.]+:\d/;
    $words = 'redis://' . $redis->node . " $words"
        if $words !~ m{^(?:rediss?://|unix:)};

    return IapGuard::Nginx->new(
        IapGuard::Nginx->options, level => 'info', %options,
        http => "iap_guard_zone iap $zone;\n"
              . "iap_guard_redis $words;\n"
              . "add_header X-Verdict \$iap_guard_verdict always;\n"
              . "add_header X-Layer \$iap_guard_layer always;\n"
              . "add_header X-Store \$iap_guard_store always;\n"
              . $http)->start;
}


sub statuses {
    my ($nginx, $path, $n) = @_;

    return join ' ', map { my $answer = $nginx->get($path);
                           $answer->{status} // $answer->{error} } 1 .. $n;
}


sub verdicts {
    my ($nginx, $path, $n) = @_;

    return join ' ', map {
        my $headers = $nginx->get($path)->{headers};
        my $layer = $headers->{'x-layer'};
        ($headers->{'x-verdict'} // 'none') . (defined $layer ? ":$layer" : '')
    } 1 .. $n;
}


sub verdict {
    my ($nginx, $path) = @_;
    my $headers = $nginx->get($path)->{headers};

    return join '/', map { $headers->{"x-$_"} // '' } qw(verdict layer store);
}


sub scripts {
    my ($redis) = @_;
    my $stats = $redis->cli('INFO', 'commandstats');
    my $calls = 0;

    $calls += $1 while $stats =~ /^cmdstat_eval(?:sha)?:calls=(\d+)/mg;

    return $calls;
}


sub hits {
    my ($nginx, $guard) = @_;
    return $nginx->metrics->{"iap_guard_deny_cache_hits_total{guard=\"$guard\"}"};
}


# some at a time

sub flood {
    my ($nginx, @paths) = @_;
    my %seen;

    my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1',
                                       PeerPort => $nginx->port)
        or die "can't connect: $@\n";

    local $SIG{ALRM} = sub { die "nginx has not answered\n" };
    alarm 60;

    while (my @some = splice @paths, 0, 50) {
        my ($text, $got) = ('', 0);

        print {$socket} map { "GET $_ HTTP/1.1\r\nHost: x\r\n\r\n" } @some;

        while ($got < @some) {
            sysread $socket, $text, 65536, length $text
                or die "cut short after: $text\n";

            while ($text =~ s{\AHTTP/1\.1\ (\d+)\ .*?\r\n
                              Content-Length:\ (\d+)\r\n.*?\r\n\r\n}{}xs) {
                my ($status, $len) = ($1, $2);

                while (length $text < $len) {
                    sysread $socket, $text, 65536, length $text
                        or die "cut short\n";
                }

                substr $text, 0, $len, '';
                $seen{$status}++;
                $got++;
            }
        }
    }

    alarm 0;

    return \%seen;
}


# the names of all keys of a database, in order

sub keys_of {
    my ($redis, $db) = @_;

    return join ' ', sort split /\n/,
        $redis->cli('-n', $db // 0, 'KEYS', '*');
}


# whether nginx says, in time, that the store is down (1) or up (0)

sub down {
    my ($nginx, $down) = @_;

    return IapGuard::Nginx->wait_for(10, sub {
        $nginx->metrics->{iap_guard_store_up} == !$down });
}


sub ends_well {
    my ($nginx, @expected) = @_;

    is join('', $nginx->complaints(@expected)), '', 'no complaints';
    $nginx->stop;
    is join('', $nginx->complaints(@expected)), '', 'nor at the end';

    return;
}


1;
