#!/usr/bin/perl

# What becomes of a queued request, answer by answer; what its target gets, and
# what the service that waits for it is told.
#
# Runs beside others that wait.

use strict;
use warnings;

use Fcntl qw(LOCK_EX);
use Test::More;
use Time::HiRes qw(sleep);

use IapGuard::DrainTest;
use IapGuard::Loop;

my %paths = IapGuard::Nginx->options;

# what the peers say, what becomes of it, calls of the target and of the
# sandbox, and where it was decided

my @outcomes = (
    ['ok',                   {},                                'verified 1 0 production'],
    ['21003',                { verify => ['21003'] },           'rejected 1 0 production'],
    ['21006, expired',       { verify => ['21006'] },           'verified 1 0 production'],
    ['21010',                { verify => ['21010'] },           'rejected 1 0 production'],
    ['21007',                { verify => ['21007'] },           'verified 1 1 sandbox'],
    ['21007, then 21003',    { verify  => ['21007'],
                               sandbox => ['21003'] },          'rejected 1 1 sandbox'],
    ['21007, then 503',      { verify  => ['21007'],
                               sandbox => ['http:503', 'ok'] }, 'verified 1 2 sandbox'],
    ['21007, then 21008',    { verify  => ['21007'],
                               sandbox => ['21008'] },          'dead 1 1 sandbox'],
    ['21000',                { verify => ['21000'] },           'dead 1 0 production'],
    ['21004',                { verify => ['21004'] },           'parked 1 0'],
    ['401',                  { verify => ['http:401'] },        'parked 1 0'],
    ['400',                  { verify => ['http:400'] },        'dead 1 0 production'],
    ['503 twice',            { verify => ['http:503', 'http:503', 'ok'] },
                                                                'verified 3 0 production'],
    ['503 for ever',         { verify => ['http:503'] },        'dead 5 0 production'],
    ['21005, then ok',       { verify => ['21005', 'ok'] },     'verified 2 0 production'],
    ['21002 for ever',       { verify => ['21002'] },           'dead 4 0 production'],
    ['302 is not followed',  { verify => ['http:302', 'ok'] },  'verified 2 0 production'],
    ['a web page',           { verify => ['html', 'ok'] },      'verified 2 0 production'],
    ['reset',                { verify => ['reset', 'ok'] },     'verified 2 0 production'],
    ['hangs',                { verify => ['hang', 'ok'] },      'verified 2 0 production'],
    ['21999, unknown',       { verify => ['21999', 'ok'] },     'verified 2 0 production'],
);

outcomes();
requests();
results();
callbacks();
callbacks_fail();
keys_at_rest();
forgotten();
ledger_stalls();
done_testing;


sub test {
    my (%options) = @_;

    return IapGuard::DrainTest->new(paths => \%paths, breaker => undef,
        %options, queue => join ' ', 'rate=500r/s attempts=5 retry_min=20ms',
                          'retry_max=100ms timeout=800ms',
                          $options{queue} || '');
}


sub outcomes {
    my $test = test(workers => 2);
    my %tickets;

    foreach my $outcome (@outcomes) {
        my ($name, $plan) = @$outcome;
        $tickets{$name} = $test->put({ id => $name, %$plan },
                                     'X-User-Id' => $name);
    }

    foreach my $outcome (@outcomes) {
        my ($name, undef, $expected) = @$outcome;
        my $ended = $test->ended($tickets{$name}, 20);
        my ($status, $where) = ($ended->{status}, '');

        # the service is told right after it was stored, but for what is parked

        $test->nginx->wait_for(5, sub {
            grep { $_->{told}{data}{ticket} eq $tickets{$name} } $test->hooks;
        }) if $status ne 'parked';

        my @told = grep { $_->{told}{data}{ticket} eq $tickets{$name} }
                   $test->hooks;
        my %calls = map { my $path = $_;
            ($path => scalar grep { $_->{id} eq $name }
                             $test->peers->calls($path)) } qw(/verify /sandbox);

        is join(' ', $status, @calls{qw(/verify /sandbox)},
                map { $_->{told}{data}{environment} } @told),
           $expected, "answer $name";

        is_deeply [map { $_->{told}{type} } @told],
                  [$status eq 'parked' ? () : "receipt.$status"],
                  "$name: and the service is told so once";
    }

    is scalar(grep { !$_->{good} } $test->hooks), 0,
        'all callbacks are well signed';

    my @alarms = $test->nginx->log_lines(qr/\[error\].*queue "receipts"/);
    is scalar(grep { /parked.*21004/ } @alarms), 1, 'an alarm for 21004';
    is scalar(grep { /dead.*21000/ } @alarms), 1, 'an alarm for 21000';
    ok !$test->nginx->log_lines(qr/original_purchase|"id"/),
        'no body is in the log';
    my $any = join '|', values %tickets;
    ok !$test->nginx->log_lines(qr/$any/), 'nor a ticket';

    my $queue = $test->queue;
    is "$queue->{pending} $queue->{parked}", '0 2', 'as the queue counts it'
        or diag explain $queue;

    # a human has them tried again

    $test->nginx->api('POST', 'queues/receipts', '{"action":"retry"}');
    $test->nginx->wait_for(5, sub { $test->queue->{pending} == 0 });
    is scalar(grep { $_->{id} eq '21004' } $test->peers->calls('/verify')), 2,
        'tried again when a human asks for it';

    $test->end;

    return;
}


# what the target gets is what the client sent, and no more than was asked for

sub requests {
    my $test = test(queue => 'headers=X-Trace,Cookie');
    my $text = '{"id" : "odd",' . "\n" . ' "receipt-data":"a+/=\u00e9"}';

    my $ended = $test->ended(
        $test->post('/accept?a=b', $text,
                    'Content-Type' => 'application/json; charset=utf-8',
                    'X-Trace' => 't 1', 'X-Other' => 'no', Cookie => 'c=d',
                    Authorization => 'Bearer secret',
                    'Accept-Encoding' => 'gzip')->{body} =~ /"ticket":"(\w+)"/);

    my ($call) = $test->peers->calls('/verify');

    is $ended->{status}, 'verified', 'a request';
    is $call->{method}, 'POST', 'its method';
    is $call->{uri}, '/verify', 'the target as it is configured';
    is $call->{body}, $text, 'its body, byte for byte';
    is $call->{headers}{'content-type'}, 'application/json; charset=utf-8',
       'its type';
    is $call->{headers}{'x-trace'}, 't 1', 'a field that was asked for';
    is $call->{headers}{cookie}, 'c=d', 'even a cookie';
    is $call->{headers}{host}, '127.0.0.1:' . $test->peers->port,
       'the host is the target\'s';
    ok !exists $call->{headers}{$_}, "no $_"
        foreach qw(authorization x-other x-user-id accept-encoding expect);

    $test->end;

    return;
}


# what the target says is told on, digit for digit

sub results {
    my $test   = test();
    my $ticket = $test->put({ id => 'exact' }, 'X-User-Id' => 'a"b');
    my $ended  = $test->ended($ticket);
    my $raw    = '{"status":0, "environment":"Production", "receipt":'
                 . '{"id":"exact","original_purchase_date_ms":"1375340400000",'
                 . '"ratio":1.50, "big":12345678901234567890}}';

    is $ended->{status}, 'verified', 'verified';

    $test->nginx->wait_for(5, sub { $test->hooks });
    my ($hook) = $test->hooks;

    like $hook->{body}, qr/^\{"type":"receipt\.verified",
        "timestamp":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z",
        "data":\{"ticket":"$ticket","key":"[^"]+","status":"verified",
        "environment":"production","result":\Q$raw\E\}\}\z/x,
         'the callback: all there is, in its order, and the result as it was';
    is $hook->{method}, 'POST', 'a POST';
    is $hook->{headers}{'content-type'}, 'application/json', 'of JSON';
    is $hook->{headers}{'webhook-id'}, "msg_$ticket", 'its id is the ticket\'s';
    ok $hook->{good}, 'its signature is right';

    my $dead = $test->put({ id => 'dead', verify => ['html'] },
                          'X-User-Id' => 'u2');
    is $test->ended($dead)->{status}, 'dead', 'without a result';
    $test->nginx->wait_for(5, sub { $test->hooks == 2 });
    my $told = ($test->hooks)[1];
    is $told->{told}{data}{result}, undef, 'it is null';
    is $told->{headers}{'webhook-id'}, "msg_${dead}_dead",
       'another id than if it had been verified';

    $test->end;

    # unsigned

    $test = test(queue => 'secret_file=none');
    $test->ended($test->put({ id => 'plain' }));
    $test->nginx->wait_for(5, sub { $test->peers->count('/hook') });
    my ($call) = $test->peers->calls('/hook');
    ok defined $call->{headers}{'webhook-timestamp'}, 'without a secret: a time';
    ok !exists $call->{headers}{'webhook-signature'}, 'and no signature';
    $test->end;

    # nobody is to be told

    $test = test(queue => 'callback=none secret_file=none');
    is $test->ended($test->put({ id => 'alone' }))->{status}, 'verified',
       'without a callback';
    $test->end;

    return;
}


sub callbacks {
    my $test = test();

    # 410: never again

    $test->peers->always('/hook', 'http:410');
    $test->ended($test->put({ id => 'gone' }, 'X-User-Id' => 'u1'));
    $test->nginx->wait_for(5, sub { $test->peers->count('/hook') == 1 });
    sleep 0.5;
    is $test->peers->count('/hook'), 1, '410: told once, and never again';
    is $test->nginx->api_json('GET',
           'queues/receipts/entries?status=verified')->[0]{callback},
       'gone', 'as the list says';

    # Retry-After

    $test->peers->always('/hook', 'http:503:1');
    $test->ended($test->put({ id => 'later' }, 'X-User-Id' => 'u2'));
    $test->nginx->wait_for(5, sub { $test->peers->count('/hook') == 2 });
    $test->peers->always('/hook', undef);
    $test->nginx->wait_for(5, sub { $test->peers->count('/hook') == 3 });

    my @tries = ($test->hooks)[1, 2];
    cmp_ok $tries[1]{time} - $tries[0]{time}, '>=', 0.95,
        '503 with Retry-After: not before';
    is $tries[1]{id}, $tries[0]{id}, 'the same id again';
    is $tries[1]{body}, $tries[0]{body}, 'and the same body';
    isnt $tries[1]{headers}{'webhook-timestamp'},
         $tries[0]{headers}{'webhook-timestamp'}, 'at its own time';
    ok $tries[0]{good} && $tries[1]{good}, 'each well signed';

    my $metrics = $test->nginx->metrics;
    is $metrics->{"iap_guard_webhook_total{queue=\"receipts\",result=\"$_->[0]\"}"},
       $_->[1], "metric: $_->[0]" foreach ['ok', 1], ['failed', 1], ['gone', 1];

    $test->end;

    return;
}


# the service is down, then up: each is told, and Apple is not asked again

sub callbacks_fail {
    my $test = test();
    my $n    = 40;

    $test->peers->always('/hook', 'http:500');
    is scalar $test->put_many($n), $n, "$n are accepted";
    ok $test->nginx->wait_for(10, sub { $test->queue->{verified} == $n }),
        'and verified, while the service is down';

    ok $test->nginx->wait_for(10, sub {
        $test->nginx->api_json('GET', 'breakers/receipts.callback')->{state}
            eq 'open';
    }), 'its breaker opens';

    my $before = $test->peers->count('/hook');
    sleep 1;
    cmp_ok $test->peers->count('/hook') - $before, '<=', 3,
        'then it is left alone';

    $test->peers->always('/hook', undef);
    my $up = IapGuard::Loop::now();

    ok $test->nginx->wait_for(20, sub {
        my %told = map { $_->{id} => 1 }
                   grep { $_->{step} eq 'http:204' } $test->hooks;
        return keys %told == $n;
    }), 'when it is up again all are told';

    note sprintf 'that took %.1f s', IapGuard::Loop::now() - $up;

    my %ids;
    $ids{ $_->{id} }++ foreach grep { $_->{step} eq 'http:204' } $test->hooks;
    is scalar(grep { $_ > 1 } values %ids), 0, 'each once';
    is $test->peers->count('/verify'), $n, 'and no receipt was verified again';
    is scalar(grep { !$_->{good} } $test->hooks), 0, 'all well signed';

    $test->end;

    return;
}


# sealed with a key: the key is changed, then lost

sub keys_at_rest {
    my $test  = test(breaker => 'open=1s min=5');
    my $nginx = $test->nginx;

    foreach my $key (1 .. 2) {
        open my $file, '>', $nginx->file("key$key") or die "key: $!\n";
        print {$file} join('', map { sprintf '%02x', ($_ * $key) % 256 }
                               1 .. 32), "\n";
        close $file;
    }

    my @keys = map { $nginx->file("key$_") } 1, 2;

    $test->configure(http => "iap_guard_queue_key $keys[0];");
    $nginx->reload;
    $nginx->api('PUT', 'breakers/apple', '{"mode":"forced-open"}');

    my $old = $test->put({ id => 'old' });
    $test->configure(http => "iap_guard_queue_key $keys[1] $keys[0];");
    $nginx->reload;
    my $new = $test->put({ id => 'new' });

    is $test->ticket($old)->{status}, 'pending', 'they wait';
    $nginx->api('PUT', 'breakers/apple', '{"mode":"auto"}');
    is $test->ended($_)->{status}, 'verified', 'a key and its successor'
        foreach $old, $new;

    $nginx->api('PUT', 'breakers/apple', '{"mode":"forced-open"}');
    my $lost = $test->put({ id => 'lost' });
    $test->configure(http => "iap_guard_queue_key $keys[0];");
    $nginx->reload;
    $nginx->api('PUT', 'breakers/apple', '{"mode":"auto"}');
    is $test->ended($lost)->{status}, 'parked', 'a key that is gone: parked';
    is scalar(grep { /is parked: the key/ } $nginx->log_lines(qr/\[error\]/)),
       1, 'with a line in the log';
    is scalar(grep { $_->{id} eq 'lost' } $test->peers->calls), 0,
       'and nothing was sent';

    $test->configure(http => "iap_guard_queue_key $keys[1];");
    $nginx->reload;
    $nginx->api('POST', 'queues/receipts', '{"action":"retry"}');
    is $test->ended($lost)->{status}, 'verified', 'and when it is back, it is';

    $test->end;

    return;
}


# what has ended is kept for `keep`, and what was not told is kept

sub forgotten {
    my $test = test(queue => 'keep=2s');
    my $told = $test->put({ id => 'told' });

    $test->ended($told);
    $test->nginx->wait_for(5, sub { $test->peers->count('/hook') });
    $test->peers->always('/hook', 'http:503:60');
    my $untold = $test->put({ id => 'untold' }, 'X-User-Id' => 'u2');
    $test->ended($untold);
    sleep 2.5;

    # a new leader looks soon, and then each minute

    $test->nginx->reload;
    ok $test->nginx->wait_for(5, sub {
        $test->ticket($told)->{status} eq '404'
    }), 'forgotten when it has been kept for long enough';
    is $test->ticket($untold)->{status}, 'verified',
       'but not before the service has been told';

    $test->end;

    return;
}


# a ledger that stalls while answers come: they are stored when it goes on, and
# nobody is asked again

sub ledger_stalls {
    my $test = test(ledger => 'timeout=400ms', queue => 'concurrency=4');
    my @tickets = $test->put_many(4,
        body => sub { { id => "s$_[0]", verify => ['slow:0.7'] } });

    $test->nginx->wait_for(5, sub { $test->peers->count('/verify') == 4 });

    open my $lock, '<', $test->nginx->file('ledger/ledger.lock')
        or die "ledger.lock: $!\n";
    flock $lock, LOCK_EX or die "flock: $!\n";
    sleep 4;
    close $lock;

    is $test->ended($_)->{status}, 'verified', 'stored when it can be'
        foreach @tickets;
    is $test->peers->count('/verify'), 4, 'nobody was asked again';

    my @more = $test->put_many(8, body => sub { { id => "t$_[0]" } },
                               user => sub { "v$_[0]" });
    is $test->ended($_)->{status}, 'verified', 'and it goes on' foreach @more;

    my $verified = 'iap_guard_queue_total{queue="receipts",event="verified"}';
    ok $test->nginx->wait_for(3, sub {
        $test->nginx->metrics->{$verified} == 12
    }), 'each is counted once';

    $test->end;

    return;
}
