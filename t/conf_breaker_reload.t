# Breakers over reloads: what is kept, what changes, which mode is in force.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(sleep);

use lib 't/lib';
use IapGuard::Nginx;

my $nginx = IapGuard::Nginx->new(IapGuard::Nginx->options, workers => 2);

configure('min=2 open=1h');
$nginx->start;


subtest 'state and window are kept' => sub {
    is statuses(qw(bad bad bad)), '502 502 503', 'two failures open it';

    my $before = breaker();
    is $before->{state}, 'open', 'it is open';

    reload('min=2 open=1h');
    is statuses('good'), '503', 'and is after a reload';

    my $after = breaker();
    is_deeply without($after), without($before), 'all of it is kept';
    is $after->{outcomes}{cut}, 2, 'and goes on';
};


subtest 'another open time holds for what is open already' => sub {
    reload('min=2 open=1ms probes=2');
    is breaker()->{state}, 'half-open', 'its time is over';
    is statuses(qw(good good good)), '200 200 200', 'it closes';
    is breaker()->{state}, 'closed', 'it is closed';
    is breaker()->{calls}, 1, 'probes are not in the window';
};


subtest 'other thresholds hold for what has been counted' => sub {
    reload('failures=100% min=100 open=1h');
    is statuses(qw(bad bad)), '502 502', 'nothing is cut';
    is breaker()->{calls}, 3, 'three calls, a good one among them';
    reload('failures=60% min=4 open=1h');
    is breaker()->{state}, 'closed', 'it is closed until a call ends';
    is statuses(qw(bad good)), '502 503', 'which opens it';
};


subtest 'the mode of nginx.conf' => sub {
    reload('mode=observe open=1h');
    is statuses('good'), '200', 'observe cuts nothing';
    is_deeply mode(), [qw(observe nginx.conf open)], 'and shows what is';
    reload('mode=forced-closed open=1h');
    is_deeply mode(), [qw(forced-closed nginx.conf closed)], 'forced-closed';
    is statuses('good'), '200', 'lets by';
    reload('mode=forced-open open=1h');
    is_deeply mode(), [qw(forced-open nginx.conf open)], 'forced-open';
    is statuses('good'), '503', 'cuts';
};


subtest 'the mode of the API beats it, until it is taken back' => sub {
    put('"forced-closed"');
    is_deeply mode(), [qw(forced-closed api closed)], 'forced-closed';
    reload('mode=forced-open open=1h');
    is_deeply mode(), [qw(forced-closed api closed)], 'also after a reload';
    is statuses('good'), '200', 'it lets by';
    reload('mode=observe open=1h');
    is_deeply mode(), [qw(forced-closed api closed)], 'whatever that brings';
    put('null');
    is_deeply mode(), [qw(observe nginx.conf half-open)], 'taken back';
    put('"observe"');
    is_deeply mode(), [qw(observe api half-open)], 'the same, asked for';
    reload('open=1h');
    is_deeply mode(), [qw(observe api half-open)], 'is not nginx.conf\'s';
    put('null');
    is_deeply mode(), [qw(auto nginx.conf half-open)], 'taken back again';
};


subtest 'a configuration that is refused changes no mode' => sub {
    configure("mode=forced-closed;\n    iap_guard_breaker b min=0");
    kill HUP => $nginx->master;
    ok $nginx->wait_for(10, sub {
        $nginx->log_lines(qr/\[emerg\].*invalid value "0" of "min"/)
    }), 'refused';
    is_deeply mode(), [qw(auto nginx.conf half-open)], 'nothing has changed';
};


subtest 'a name that is gone for a while, and another one' => sub {
    my $before = breaker();
    reload('', 'other');
    is $nginx->api_json('GET', 'breakers')->{upstream}, undef, 'gone';
    is breaker('other')->{state}, 'closed', 'the other one is closed';
    reload('open=1h');
    is_deeply without(breaker()), without($before), 'as it was';
};


subtest 'names that change with each reload find room' => sub {
    my $kept = "min=1 open=1h;\n    iap_guard_breaker kept";

    reload($kept, 'b0', '2m');
    put('"observe"', 'kept');

    foreach my $n (1 .. 20) {
        reload($kept, "b$n", '2m') or return;
        is breaker("b$n")->{state}, 'closed', "b$n is closed";
        is statuses(qw(bad good)), '502 503', "b$n opens"
            if $n % 8 == 0;
    }

    is scalar(my @lines = $nginx->log_lines(qr/has no room/)), 0, 'there was';
    is breaker('kept')->{mode}, 'observe', 'not by what is there all the time';
};


is_deeply [map { /(breaker "upstream" is .*?)(?:; next|, client|$)/ }
           $nginx->log_lines(qr/breaker "upstream" is (?!set)/)],
    ['breaker "upstream" is open: failures 100% of 2 calls, last "http:5xx"',
     'breaker "upstream" is half-open',
     'breaker "upstream" is closed: 2 probes passed',
     'breaker "upstream" is open: failures 75% of 4 calls, last "http:5xx"',
     'breaker "upstream" is half-open: mode changed'],
    'each change is told of once';

is_deeply [$nginx->complaints(qr/invalid value "0" of "min"/)], [],
    'no alert, no crit';

$nginx->stop;

is_deeply [$nginx->complaints(qr/invalid value "0" of "min"/)], [],
    'nor at the end';

done_testing;


sub conf {
    my ($parameters, $name, $zone) = @_;
    $name //= 'upstream';
    $zone //= '1m';

    return (http => "
    iap_guard_zone     iap $zone;
    iap_guard_breaker  $name $parameters;
    server {
        listen unix:@{[ $nginx->file('upstream') ]};
        location /good { return 200; }
        location /bad  { return 502; }
    }", server => "
        location / {
            iap_guard_breaker  $name;
            proxy_pass         http://unix:@{[ $nginx->file('upstream') ]}:;
        }");
}

sub configure {
    $nginx->configure(conf(@_));
    return;
}

sub reload {
    configure(@_);
    return $nginx->reload || do { fail 'reloaded'; 0 };
}

sub statuses {
    return join ' ', map { $nginx->get("/$_")->{status} } @_;
}

sub breaker { return $nginx->api_json('GET', 'breakers/' . ($_[0] // 'upstream')) }

sub mode { return [@{ breaker() }{qw(mode source state)}] }

sub put {
    my ($mode, $name) = @_;
    $nginx->api('PUT', 'breakers/' . ($name // 'upstream'), "{\"mode\":$mode}");
    return;
}

# without what goes on by itself

sub without {
    my ($breaker) = @_;
    return { map { $_ => $breaker->{$_} }
             grep { !/^(?:retry_after|outcomes)$/ } keys %$breaker };
}
