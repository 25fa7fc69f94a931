# Promo codes whose requests are queued: the unit is the ticket's, from the moment
# the request is in the queue until its end, whatever way it came there.

use strict;
use warnings;

use lib 't/lib';

use IO::Socket::INET;
use JSON::PP ();
use Test::More;
use Time::HiRes qw(sleep);

use IapGuard::CodeTest;
use IapGuard::Nginx;
use IapGuard::RawServer;

my $json = JSON::PP->new;

sub answer {
    my ($status, $body) = @_;

    return join "\r\n", "HTTP/1.1 $status", 'Content-Length: ' . length $body,
        'Content-Type: application/json', '', $body;
}

# what the target of each queue says

my %targets = (
    verified => [answer('200 OK', '{"ok":1}')],
    rejected => [answer('400 No', '{"ok":0}')],
    dead     => [answer('500 Oops', '{}')],
    pending  => ['hang'],
);

my $raw = IapGuard::RawServer->start(
    (map { ("/target/$_" => $targets{$_}) } keys %targets),
    '/ok'   => [answer('200 OK', '{"ok":1}')],
    '/no'   => [answer('404 No', '{"ok":0}')],
    '/500'  => [answer('500 Oops', '{}')],
    '/hang' => ['hang'],
);

my $test = start();
my $n    = 0;

ways();
verified();
rejected();
dead();
duplicate();
full();
passes();
client_leaves();
restarted();

$test->end;
done_testing;


sub start {
    my %paths = IapGuard::Nginx->options;
    my $port  = $raw->port;
    my $guard = 'iap_guard g; iap_guard_user $http_x_user_id; '
                . 'iap_guard_code $http_x_code lease=500ms;';

    my $queues = join '', map {
        "iap_guard_queue $_ target=http://127.0.0.1:$port/target/$_ "
        . 'key=$http_x_key classify=http concurrency=4 rate=1000r/s '
        . "attempts=1;\n"
    } sort keys %targets;

    my $places = join '', map { <<"PLACE" } sort keys %targets;
        location /failed/$_/ { $guard iap_guard_breaker apple fallback=$_;
                               proxy_pass http://127.0.0.1:$port/; }
        location /cut/$_/    { $guard iap_guard_breaker forced fallback=$_;
                               proxy_pass http://127.0.0.1:$port/; }
PLACE

    return IapGuard::CodeTest->new(
        paths => \%paths, workers => 1,
        http => <<"HTTP", server => <<"SERVER");
    iap_guard_breaker  apple min=1000000;
    iap_guard_breaker  forced mode=forced-open;
    $queues
    iap_guard_queue    full target=http://127.0.0.1:$port/target/pending
                       key=\$http_x_key classify=http max=1;
    proxy_read_timeout 300ms;
HTTP
        $places
        location /page/ {
            $guard
            iap_guard_breaker apple fallback=pending;
            proxy_intercept_errors on;
            error_page 500 =200 /sorry;
            proxy_pass http://127.0.0.1:$port/;
        }
        location /full/    { $guard iap_guard_breaker forced fallback=full;
                             proxy_pass http://127.0.0.1:$port/; }
        location /fullcall/ { $guard iap_guard_breaker apple fallback=full;
                             proxy_pass http://127.0.0.1:$port/; }
        location /accept/  { $guard iap_guard_accept pending; }
        location /leaves/  { $guard iap_guard_breaker apple fallback=pending;
                             proxy_read_timeout 10s;
                             proxy_pass http://127.0.0.1:$port/; }
        location ~ ^/tickets/(?<queue>\\w+)/(?<ticket>\\w+)\$ {
            iap_guard_ticket pending \$ticket;
        }
        location = /sorry { return 200 sorry; }
SERVER
}


sub fresh {
    my ($units) = @_;
    my $code = 'C' . ++$n;
    $test->stock($code, $units || 1);
    return $code;
}


sub submit {
    my ($path, $code, $user, %more) = @_;

    return IapGuard::LoadClient->fetch('POST', $test->nginx->url($path),
        body => '{}', headers => { 'X-Code' => $code, 'X-User-Id' => $user,
                                   'X-Key' => $more{key} || "$code-$user" });
}


sub units { return @{ $test->audit($_[0])->{units} } }

sub states { return join ' ', map { $_->{state} } units($_[0]) }

sub becomes {
    my ($code, $states) = @_;

    $test->nginx->wait_for(20, sub { states($code) eq $states });
    return states($code);
}


sub accepted {
    my ($path, $code, $user, $name, %more) = @_;
    my $answer = submit($path, $code, $user, %more);
    my ($ticket) = ($answer->{body} || '') =~ /"ticket":"([a-z2-7]{26})"/;

    is $answer->{status}, 202, "$name: accepted" or diag explain $answer;

    return $ticket;
}


# whatever way it comes into the queue, the unit is the ticket's, longer than any
# lease

sub ways {
    my %ways = ('a failed call' => '/failed/pending/500',
                'a call that hangs' => '/failed/pending/hang',
                'an open breaker' => '/cut/pending/ok',
                'an error page' => '/page/500',
                'iap_guard_accept' => '/accept/x');
    my %codes;

    foreach my $way (sort keys %ways) {
        my $code   = $codes{$way} = fresh();
        my $ticket = accepted($ways{$way}, $code, 'u1', $way);

        is becomes($code, 'kept'), 'kept', "$way: kept";
        is((units($code))[0]{ticket}, $ticket, "$way: by the ticket");

        my $again = submit($ways{$way}, $code, 'u1');

        is $again->{status}, 409, "$way: the same user";
        like $again->{body}, qr/in_progress/, "$way: is told to wait";
        is submit('/cut/pending/ok', $code, 'u2')->{status}, 409,
            "$way: another one gets nothing";
    }

    sleep 1;
    is states($codes{$_}), 'kept', "$_: as long as it takes"
        foreach sort keys %codes;

    return;
}


sub verified {
    foreach my $way ('/failed/verified/500', '/cut/verified/ok') {
        my $code = fresh();

        accepted($way, $code, 'u1', 'verified');
        is becomes($code, 'sold'), 'sold', 'verified: sold';
        $test->is_balanced($code, 'verified', sold => 1, reserved => 0);

        my $again = submit($way, $code, 'u1');

        is $again->{status}, 200, 'verified: the same user again';
        is $again->{body}, qq({"status":"redeemed"}\n), 'verified: has it';
    }

    return;
}


sub rejected {
    my $code = fresh();

    accepted('/cut/rejected/ok', $code, 'u1', 'rejected');
    is becomes($code, 'released'), 'released', 'rejected: released';
    is submit('/failed/verified/ok', $code, 'u2')->{status}, 200,
        'rejected: somebody else gets it';

    return;
}


# one more try takes a unit again; if there is none, the target is not asked

sub dead {
    my $code   = fresh();
    my $ticket = accepted('/cut/dead/ok', $code, 'u1', 'dead');

    is becomes($code, 'released'), 'released', 'dead: released';
    is retry($ticket), 'dead', 'tried again: dead again';
    is states($code), 'released', 'tried again: released again';

    # other queues' targets may be called at any time

    my $calls = $raw->calls('/target/dead');

    cmp_ok $calls, '>=', 2, 'its target was called each time';

    is submit('/failed/verified/ok', $code, 'u2')->{status}, 200,
        'somebody else gets it';
    is retry($ticket), 'dead', 'tried again, without a unit: dead';
    is $raw->calls('/target/dead'), $calls,
        'and its target is not called for that';
    $test->is_balanced($code, 'dead', sold => 1, reserved => 0, free => 0);
    is scalar(grep { /no unit of its code is left/ }
                   $test->nginx->log_lines(qr/is dead/)), 1, 'the log says so';

    return;
}


# what its entry has come to, after one more try

sub retry {
    my ($ticket) = @_;
    my $nginx = $test->nginx;
    my $before = entry($ticket);

    my $n = $nginx->api_json('POST', 'queues/dead', $json->encode(
        { action => 'retry', ticket => $ticket }));

    sleep 0.2;
    $nginx->wait_for(5, sub { entry($ticket)->{status} ne 'pending' });

    return entry($ticket)->{status};
}


sub entry {
    my ($ticket) = @_;
    my $list = $test->nginx->api_json('GET', 'queues/dead/entries');

    return (grep { $_->{ticket} eq $ticket }
                 @{ ref $list eq 'ARRAY' ? $list : $list->{entries} })[0] || {};
}


# the same purchase with another code: it is queued once, by the first one's unit

sub duplicate {
    my ($first, $second) = (fresh(), fresh());
    my $ticket = accepted('/cut/pending/ok', $first, 'u1', 'first', key => 'k');
    my $same   = accepted('/cut/pending/ok', $second, 'u1', 'again', key => 'k');

    is $same, $ticket, 'the same purchase: the same ticket';
    is becomes($second, 'released'), 'released', 'its second unit is released';
    is states($first), 'kept', 'its first one is kept';

    return;
}


sub full {
    accepted('/full/ok', fresh(), 'u1', 'the queue has room');

    my $code   = fresh();
    my $answer = submit('/full/ok', $code, 'u1');

    is $answer->{status}, 503, 'the queue is full: 503';
    is states($code), 'released', 'the queue is full: released';

    $code   = fresh();
    $answer = submit('/fullcall/500', $code, 'u1');

    is $answer->{status}, 503, 'full, after a failed call: 503';
    is states($code), 'released', 'full, after a failed call: released';

    $code   = fresh();
    $answer = submit('/fullcall/hang', $code, 'u1');

    is $answer->{status}, 503, 'full, after a call that hung: 503';
    is states($code), 'reserved', 'full, after a call that hung: not known';
    is becomes($code, 'sold_unknown'), 'sold_unknown',
        'full, after a call that hung: its lease runs out';

    return;
}


# what did not fail is settled as it is without a fallback

sub passes {
    my %wanted = ('/failed/pending/ok' => [200, 'sold'],
                  '/failed/pending/no' => [404, 'released']);

    foreach my $path (sort keys %wanted) {
        my ($status, $state) = @{ $wanted{$path} };
        my $code = fresh();

        is submit($path, $code, 'u1')->{status}, $status, "$path: passes";
        is states($code), $state, "$path: $state";
    }

    return;
}


sub client_leaves {
    my $code   = fresh();
    my $before = $raw->calls('/hang');
    my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1',
        PeerPort => $test->nginx->port) or die "connect: $!\n";

    print {$socket} join "\r\n", 'POST /leaves/hang HTTP/1.1', 'Host: x',
        "X-Code: $code", 'X-User-Id: u1', "X-Key: $code", 'Content-Length: 2',
        '', '{}';

    $test->nginx->wait_for(10, sub { $raw->calls('/hang') > $before })
        or diag 'not asked';
    close $socket;

    is becomes($code, 'kept'), 'kept', 'a client that leaves: queued, and kept';

    return;
}


# what was kept is known after a start, and settled then

sub restarted {
    my $code = fresh();

    accepted('/cut/pending/ok', $code, 'u1', 'before a restart');
    is becomes($code, 'kept'), 'kept', 'before a restart: kept';

    my $http = $test->nginx->{http} =~ s{/target/pending}{/target/verified}gr;

    $test->nginx->change(http => $http) or BAIL_OUT('no reload');
    is becomes($code, 'sold'), 'sold', 'after a reload: sold';

    return;
}
