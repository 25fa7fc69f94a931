# A client that leaves while its request waits for the store or the ledger, where
# there is a post_action: nginx leads the request there instead of ending it.
# The action runs once, and what was waited for is given up as at a request's
# end.  The server is stopped (SIGSTOP) for as long as something is to wait.

use strict;
use warnings;

use lib 't/lib';

use HTTP::Tiny;
use IO::Socket::INET;
use Test::More;
use Time::HiRes qw(sleep);

use IapGuard::CodeTest;
use IapGuard::Nginx;
use IapGuard::RawServer;
use IapGuard::RedisServer;

# so long that the store tells while the action is under way

my $script = [\0.6, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"];

my $action   = IapGuard::RawServer->start('/after' => $script);
my $upstream = IapGuard::RawServer->start('/slow' => $script);

my ($after, $slow) = map { 'http://127.0.0.1:' . $_->port } $action, $upstream;

my $redis = IapGuard::RedisServer->new(options => ['--appendonly', 'yes']);

my $test = IapGuard::CodeTest->new(paths => { IapGuard::Nginx->options },
    redis => $redis, workers => 1, timeout => '20s', store_timeout => '20s',
    http => <<"HTTP", server => <<"SERVER");
    iap_guard_queue receipts target=$slow/slow rate=1r/h;
    iap_guard_breaker shop;
    log_format action '\$upstream_status';
HTTP
    location = /status { stub_status; }

    location = /after { access_log action.log action; proxy_pass $after; }
    location \@after {
        access_log action.log action;
        rewrite ^ /after break;
        proxy_pass $after;
    }
    location = /return { return 204; }
    location = /guarded {
        iap_guard again; iap_guard_user \$http_x_user_id capacity=1 rate=1r/h;
        access_log action.log action;
        proxy_pass $after/after;
    }

    location /store {
        iap_guard s; iap_guard_user \$http_x_user_id capacity=9 rate=1r/h;
        location = /store { post_action /after; empty_gif; }
        location = /store/named { post_action \@after; empty_gif; }
        location = /store/guarded { post_action /guarded; empty_gif; }
    }
    location /code {
        iap_guard c; iap_guard_user \$http_x_user_id;
        proxy_pass $slow/slow;
        location = /code {
            iap_guard_code \$http_x_code; post_action /after;
            proxy_pass $slow/slow;
        }
        location = /code/return {
            iap_guard_code \$http_x_code; post_action /return;
            proxy_pass $slow/slow;
        }
    }
    location /api/ { iap_guard_api read; post_action /after; }
    location = /accept { iap_guard_accept receipts; post_action /after; }
    location = /call {
        iap_guard_breaker shop fallback=receipts; post_action /after;
        proxy_pass $slow/slow;
    }
SERVER

my $nginx = $test->nginx;

$test->stock('SPRING', 100);
is $nginx->get('/store')->{status}, 200, 'the store answers';
ok wait_for(sub { calls($action) == 1 }), 'the action after an answer';
idle();


subtest 'the store is asked' => sub {
    leaves('/store');
    leaves('/store/named');
    leaves('/store/guarded');
    is $nginx->api_json('GET', 'guards/again')->{requests}{passed}, 1,
        'a guard of the action\'s decides anew';
    is $nginx->api_json('GET', 'guards/s')->{requests}{passed}, 1,
        'what was not decided is not counted';
};


subtest 'the ledger is asked for a unit of a code' => sub {
    leaves('/code');
    ok wait_for(sub { units('free') == 100 }), 'it is released';
    is calls($upstream), 0, 'nothing was called';
};


subtest 'a content handler has asked the ledger' => sub {
    leaves('/api/codes/SPRING');
    leaves('/accept');
    ok wait_for(sub { queued() == 1 }), 'what was accepted is in the queue';
};


# the answer is held until the ledger has told that a unit is sold

subtest 'an answer is held' => sub {
    holds('/code', 1);
    ok wait_for(sub { units('sold') == 1 }), 'it is sold';
    holds('/code/return', 0);
    ok wait_for(sub { units('sold') == 2 }), 'and the other one';
    is units('reserved'), 0, 'nothing is reserved';
};


subtest 'a call whose client leaves goes into the queue' => sub {
    my ($called, $acted) = (calls($upstream), calls($action));
    my $socket = ask('/call');

    ok wait_for(sub { calls($upstream) == $called + 1 }), 'it is called';
    close $socket;
    ok wait_for(sub { queued() == 2 }), 'it is queued';
    idle();
    is calls($action) - $acted, 1, 'the action runs once';
};


$test->end;

done_testing;


# A request waits for the stopped server, and its client leaves; the server
# goes on while the action is under way.

sub leaves {
    my ($path) = @_;
    my $before = calls($action);
    my $logged = length logged(0);

    $redis->freeze;

    my $socket = ask($path);

    ok waiting(1), "$path: it waits";
    close $socket;

    # an action with a guard asks the store as well

    ok wait_for(sub { calls($action) == $before + 1 }), "$path: it acts"
        if $path !~ /guarded/;
    sleep 0.2;
    $redis->thaw;
    idle();
    is calls($action) - $before, 1, "$path: once";
    is logged($logged), "200\n", "$path: to its end";

    return;
}


# the same of one that has a unit, and whose upstream has answered

sub holds {
    my ($path, $actions) = @_;
    my ($called, $acted) = (calls($upstream), calls($action));
    my $socket = ask($path, "u$path");

    ok wait_for(sub { calls($upstream) == $called + 1 }), "$path: it is called";
    $redis->freeze;
    sleep 0.9;
    ok waiting(1), "$path: its answer is held";
    close $socket;
    sleep 0.3;
    $redis->thaw;
    idle();
    is calls($action) - $acted, $actions, "$path: the action runs once";

    return;
}


sub ask {
    my ($path, $user) = @_;

    $user //= 'u';

    my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1',
                                       PeerPort => $nginx->port)
        or die "can't connect: $@\n";

    my $method = $path =~ m{^/(?:accept|call|code)} ? 'POST' : 'GET';

    syswrite $socket, "$method $path HTTP/1.1\r\nHost: x\r\nX-Code: SPRING\r\n"
                      . "X-User-Id: $user\r\nContent-Length: "
                      . length($path) . "\r\n\r\n$path"
        or die "can't send: $!\n";

    return $socket;
}


sub calls {
    return HTTP::Tiny->new->get('http://127.0.0.1:' . $_[0]->port
                                . '/_calls')->{content};
}

sub units { return $test->code('SPRING')->{ $_[0] } }

sub queued {
    return $nginx->metric('iap_guard_queue_total', qr/event="accepted"/);
}

sub wait_for { return IapGuard::Nginx->wait_for(10, $_[0]) }


# of the actions, behind so many bytes

sub logged {
    open my $log, '<', $nginx->file('action.log') or die "action.log: $!\n";
    seek $log, $_[0], 0;

    return join '', <$log>;
}


# how many requests there are, but for the one that asks

sub waiting {
    my ($n) = @_;

    return wait_for(sub {
        $nginx->get('/status')->{body} =~ /Writing: (\d+)/ && $1 - 1 == $n;
    });
}

sub idle { return ok waiting(0), 'all have ended' }
