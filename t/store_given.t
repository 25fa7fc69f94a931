# What the store has refused while somebody else held the token, and gave it
# back: nobody is kept out for it, here not at all, elsewhere for a second.

use strict;
use warnings;

use IO::Socket::INET;
use Test::More;

use lib 't/lib';
use IapGuard::Child;
use IapGuard::CodeBackend;
use IapGuard::CodeTest;
use IapGuard::Nginx;
use IapGuard::RedisProxy;
use IapGuard::StoreTest;

my %paths = IapGuard::Nginx->options;
my $redis = redis(options => ['--appendonly', 'yes',
                              '--maxmemory-policy', 'noeviction']);


# what a request was answered, once one wants to know: it is sent at once

sub begin {
    my ($ask) = @_;

    pipe my $read, my $write or die "pipe: $!\n";

    my $child = IapGuard::Child->start(sub {
        syswrite $write, $ask->();
        return 0;
    });
    close $write;

    return sub {
        my $answer = do { local $/; <$read> };
        $child->stop;
        return $answer;
    };
}


sub told {
    my ($answer) = @_;
    return join ' ', $answer->{status}, $answer->{headers}{'x-layer'} || '-';
}


sub waits {
    my ($proxy, $name, $n, $what) = @_;
    ok(IapGuard::Nginx->wait_for(10, sub { $proxy->held($name) == $n }), $what)
        or diag "held: ", $proxy->held($name);
    return;
}


# a user of one token, who sends two codes at once, of which the first is none

sub shop {
    my ($through) = @_;
    my $backend = IapGuard::CodeBackend->new->start->asked;
    my $url     = $backend->url('/redeem');

    return IapGuard::CodeTest->new(paths => \%paths, workers => 1,
        backend => $backend, redis => $through, timeout => '10s',
        store_timeout => '9s',
        server => <<"SERVER");
        location /one/ { iap_guard one; iap_guard_user \$http_x_user_id
                         capacity=1 rate=1r/h;
                         iap_guard_code \$http_x_code attempts=1000r/s;
                         proxy_pass $url; }
        location /all/ { iap_guard all; iap_guard_user \$http_x_user_id;
                         iap_guard_global rate=1r/h window=1h;
                         iap_guard_code \$http_x_code attempts=1000r/s;
                         proxy_pass $url; }
SERVER
}


foreach my $layer (qw(user global)) {
    my $path = $layer eq 'user' ? '/one/' : '/all/';

    subtest "$layer: told of the refusal after it was given back" => sub {
        my $proxy = IapGuard::RedisProxy->new($redis);
        my $shop  = shop($proxy);

        $shop->stock('GOOD', 5);

        $proxy->hold('stock');
        my $first = begin(sub { told($shop->redeem('NONE', 'u', path => $path)) });
        waits($proxy, 'stock', 1, 'the first holds the token');

        $proxy->keep('decide');
        my $second = begin(sub { told($shop->redeem('MORE', 'u', path => $path)) });
        waits($proxy, 'decide', 1, 'so the second is refused, and not yet told');

        $proxy->release('stock');
        is $first->(), '409 code', 'the first is given its token back';
        $proxy->release;
        is $second->(), "429 $layer", 'the second is told';

        is told($shop->redeem('GOOD', 'u', path => $path)), '200 -',
            'and the right one has the token';
        is told($shop->redeem('GOOD', 'v', path => $path)),
            $layer eq 'user' ? '200 -' : "429 $layer", 'which then is gone';

        $shop->end;
        $redis->cli('FLUSHALL');
    };

    subtest "$layer: told of the refusal before it was given back" => sub {
        my $proxy = IapGuard::RedisProxy->new($redis);
        my $shop  = shop($proxy);

        $shop->stock('GOOD', 5);

        $proxy->hold('stock');
        my $first = begin(sub { told($shop->redeem('NONE', 'u', path => $path)) });
        waits($proxy, 'stock', 1, 'somebody holds the token');
        is told($shop->redeem('GOOD', 'u', path => $path)), "429 $layer",
            'who comes then is told so';

        # and is asked for at once, not when Redis has said that it has it back

        my $asked = $proxy->keys('decide');

        $proxy->keep('refund');
        $proxy->release('stock');
        is $first->(), '409 code', 'it is given back';
        my $again = begin(sub { told($shop->redeem('GOOD', 'u', path => $path)) });
        ok(IapGuard::Nginx->wait_for(5, sub {
            $proxy->keys('decide') > $asked }), 'he is asked for again');
        $proxy->release;
        is $again->(), '200 -', 'and has it';

        $shop->end;
        $redis->cli('FLUSHALL');
    };
}


subtest 'another machine gives it back' => sub {
    my $proxy = IapGuard::RedisProxy->new($redis);
    my ($here, $there) = map { shop($_) } $proxy, $redis;

    $here->stock('GOOD', 5);

    $proxy->hold('stock');
    my $first = begin(sub { told($here->redeem('NONE', 'u', path => '/one/')) });
    waits($proxy, 'stock', 1, 'here somebody holds the token');

    my $calls = scripts($redis);

    foreach my $time (1 .. 20) {
        my $answer = $there->redeem('GOOD', 'u', path => '/one/');
        is told($answer), '429 user', "there he is refused ($time)";
        like $answer->{headers}{'retry-after'}, qr/^(?:3600|35\d\d)$/,
            'and told for how long';
    }

    cmp_ok scripts($redis) - $calls, '<=', 10, 'which is not asked each time';

    $proxy->release;
    is $first->(), '409 code', 'it is given back';

    ok(IapGuard::Nginx->wait_for(2.5, sub {
        told($there->redeem('GOOD', 'u', path => '/one/')) eq '200 -' }),
       'a second later he is admitted there');

    $_->end foreach $here, $there;
    $redis->cli('FLUSHALL');
};


# The user's token is held as long as it takes the device's key, which lives
# elsewhere, to refuse: the second request finds none.

subtest 'keys in several places' => sub {
    my $proxy = IapGuard::RedisProxy->new($redis);
    my $node  = $proxy->node;
    my $nginx = site($redis, "redis://$node mode=proxy timeout=9s", server => '
        location /t { iap_guard g; iap_guard_user $arg_u capacity=1 rate=1r/h;
                      iap_guard_device $arg_d capacity=1 rate=1r/h;
                      empty_gif; }');

    is statuses($nginx, '/t?u=x&d=spent', 1), '200', 'a device is spent';

    $proxy->hold('decide');

    my @two = map {
        my $ask = begin(sub { told($nginx->get('/t?u=u&d=spent')) });
        waits($proxy, 'decide', 2 * $_, "request $_");
        $ask;
    } 1, 2;

    $proxy->release;
    is join(', ', sort map { $_->() } @two), '429 device, 429 user',
        'one is refused for the device, one for the token of the other';
    is told($nginx->get('/t?u=u&d=other')), '200 -',
        'and with another device the user has it';

    ends_well($nginx);
    $redis->cli('FLUSHALL');
};


# One worker is told of the refusal while the other's way to the store is long:
# the token is given back after that.  Here a layer is broken and refuses.

subtest 'another worker gives it back' => sub {
    my $proxy = IapGuard::RedisProxy->new($redis);
    my $node  = $proxy->node;
    my $nginx = site($redis, "redis://$node timeout=9s",
        workers => 2, server => '
        add_header X-Pid $pid always;
        add_header X-Layer $iap_guard_layer always;
        location /t { iap_guard g; iap_guard_user $arg_u capacity=1 rate=1r/h;
                      iap_guard_device $arg_d capacity=1 rate=1r/h
                      on_error=reject;
                      empty_gif; }');
    my ($one, $two) = each_worker($nginx);

    $redis->cli('LPUSH', 'iap:g:device:broken', 'x');

    $proxy->hold('refund');
    is over($one, '/t?u=u&d=broken'), '503 device', 'a layer is broken';
    waits($proxy, 'refund', 1, 'what it charged is not given back yet');
    is over($two, '/t?u=u&d=other'), '429 user', 'another worker is told';

    $proxy->release;
    ok(IapGuard::Nginx->wait_for(5, sub {
        over($two, '/t?u=u&d=other') eq '200 -' }), 'until it is');

    # and told of it when it has been

    $proxy->hold('refund');
    is over($one, '/t?u=v&d=broken'), '503 device', 'once more';
    waits($proxy, 'refund', 1, 'a token is held');
    $proxy->keep('decide');
    my $late = begin(sub { over($two, '/t?u=v&d=third') });
    waits($proxy, 'decide', 1, 'another worker is refused');
    $proxy->release('refund');
    ok(IapGuard::Nginx->wait_for(5, sub {
        $redis->cli('EXISTS', 'iap:g:user:v') == 0 }), 'it is given back');
    $proxy->release;
    is $late->(), '429 user', 'the other worker is told';
    is over($two, '/t?u=v&d=third'), '200 -', 'and does not believe it';

    close $_ foreach $one, $two;
    ends_well($nginx);
    $redis->cli('FLUSHALL');
};


done_testing;


# a connection to each of two workers

sub each_worker {
    my ($nginx) = @_;
    my %sockets;

    foreach (1 .. 500) {
        my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1',
                                           PeerPort => $nginx->port)
            or die "can't connect: $@\n";

        over($socket, "/t?u=none$_", \my $pid);
        $sockets{$pid} = $socket;
        last if keys %sockets == 2;
    }

    return values %sockets;
}


# the status and the layer of an answer over a connection, and its worker

sub over {
    my ($socket, $path, $pid) = @_;
    my $text = '';

    local $SIG{ALRM} = sub { die "no answer after: $text\n" };
    alarm 30;

    print {$socket} "GET $path HTTP/1.1\r\nHost: x\r\n\r\n";

    while ($text !~ /\r\n\r\n/) {
        sysread $socket, $text, 65_536, length $text or die "cut: $text\n";
    }

    my ($len)   = $text =~ /^Content-Length: (\d+)/m;
    my ($layer) = $text =~ /^X-Layer: (\w+)/m;

    while (length $text < $len + index($text, "\r\n\r\n") + 4) {
        sysread $socket, $text, 65_536, length $text or die "cut: $text\n";
    }

    alarm 0;

    ($$pid) = $text =~ /^X-Pid: (\d+)/m if $pid;

    return join ' ', $text =~ m{^HTTP/1\.1 (\d+)}, $layer || '-';
}
