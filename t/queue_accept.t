# iap_guard_accept and iap_guard_ticket: what is kept of a request, which requests
# are one, what a ticket tells and whom, and that there is no 202 without a ledger.

use strict;
use warnings;

use lib 't/lib';

use JSON::PP ();
use Test::More;

use IapGuard::DrainTest;
use IapGuard::LoadClient;
use IapGuard::Nginx;

my $json = JSON::PP->new->canonical;
my $key  = '7' x 64;

my $test = IapGuard::DrainTest->new(paths => { IapGuard::Nginx->options },
    workers => 2, breaker => undef,
    queue => 'rate=1000r/s retry_min=10ms retry_max=20ms attempts=2 '
             . 'headers=x-plan,x-user-id',
    server => <<'SERVER', http => <<'HTTP');
    location = /keyed {
        iap_guard_accept keyed;
    }
    location = /order {
        client_body_in_file_only clean;
        iap_guard_accept order;
    }
    location = /own {
        iap_guard_accept receipts;
        iap_guard_answer accepted 200 '{"later":"$iap_guard_ticket"}' text/x-own;
    }
    location = /full {
        iap_guard_accept full;
    }
    location = /small {
        client_body_buffer_size 1k;
        iap_guard_accept receipts;
    }
    location = /tickets_of_keyed { iap_guard_ticket keyed $arg_t; }
    location = /limited {
        iap_guard        limited;
        iap_guard_user   $http_x_user_id capacity=1 rate=1r/h;
        iap_guard_accept receipts;
    }
    location = /ssi { ssi on; ssi_types *; return 200 '<!--# include virtual="/accept" -->'; }
SERVER
    iap_guard_queue keyed target=http://127.0.0.1:1/ key=$http_x_key rate=1r/h;
    iap_guard_json $order order.id;
    iap_guard_queue order target=http://127.0.0.1:1/ key=$order rate=1r/h;
    iap_guard_queue full target=http://127.0.0.1:1/ max=2 rate=1r/h;
HTTP

my $nginx = $test->nginx;

kept();
bodies();
same();
tickets();
answers();
full();
api();
refused_without_ledger();
encrypted();

$test->end(qr/iap_guard ledger/, qr/iap_guard queue/);

done_testing;


sub ticket_of {
    my ($answer) = @_;

    return undef if ($answer->{status} || 0) != 202;
    return $json->decode($answer->{body})->{ticket};
}


# the target gets method, body, type and what was chosen, and nothing else

sub kept {
    my $ticket = $test->put({ id => 'k1' }, 'X-Plan' => 'yearly',
        Cookie => 'session=1', Authorization => 'Bearer x', 'X-Other' => 'y');

    is $test->ended($ticket)->{status}, 'verified', 'kept: verified';

    my ($call) = grep { $_->{id} eq 'k1' } $test->peers->calls('/verify');

    is $call->{method}, 'POST', 'kept: the method';
    is $call->{uri}, '/verify', 'kept: the target as it is';
    is $call->{body}, '{"id":"k1"}', 'kept: the body';

    my $headers = $call->{headers};

    is $headers->{'content-type'}, 'application/json', 'kept: its type';
    is $headers->{'x-plan'}, 'yearly', 'kept: a field that was chosen';
    is $headers->{'x-user-id'}, 'u1', 'kept: another one';
    is_deeply [grep { exists $headers->{$_} } qw(cookie authorization x-other)],
        [], 'kept: no others';

    return;
}


# in memory, in a file, chunked, empty, with every byte there is

sub bodies {
    my $bytes = join '', map { chr } 0 .. 255;
    my %bodies = (
        'short' => '{"id":"b1"}', 'all bytes' => '{"id":"b2"}' . $bytes,
        'in a file' => '{"id":"b3"}' . 'x' x 50_000,
        'a megabyte' => '{"id":"b4"}' . 'y' x 1_000_000,
    );

    foreach my $name (sort keys %bodies) {
        my $body = $bodies{$name};
        my $answer = $test->post('/small', $body);
        my $ticket = ticket_of($answer);

        ok $ticket, "a body, $name: accepted" or next;

        # what is no JSON has no id that it could be told by

        ok $nginx->wait_for(5, sub {
            grep { $_->{body} eq $body } $test->peers->calls('/verify')
        }), "a body, $name: as it came";
    }

    ok ticket_of($test->post('/accept', '')), 'no body: accepted';

    my $get = $nginx->get('/accept', 'X-User-Id' => 'u9');

    ok ticket_of($get), 'a GET: accepted';

    my $long = $test->post('/accept', 'z' x 1_100_000);

    is $long->{status}, 413, 'a body beyond client_max_body_size: refused';

    return;
}


sub same {
    my @tickets = map { ticket_of($test->post('/keyed', "body $_",
                                              'X-Key' => 'order-1')) } 1 .. 3;

    is_deeply [@tickets[1, 2]], [@tickets[0, 0]],
        'the same key: the same ticket, whatever the body';

    isnt ticket_of($test->post('/keyed', 'body 1', 'X-Key' => 'order-2')),
        $tickets[0], 'another key: another ticket';
    is $nginx->api_json('GET', 'queues/keyed')->{pending}, 2,
        'the same key: queued once';

    @tickets = map { ticket_of($test->post('/order', $_,
                                           'Content-Type' => 'application/json')) }
        '{"order":{"id":"A"}}', '{"x":1,"order":{"id":"\u0041"}}',
        '{"order":{"id":"B"}}';

    is $tickets[0], $tickets[1], 'a key of the body, in a file: the same ticket';
    isnt $tickets[0], $tickets[2], 'another one: another ticket';

    @tickets = map { ticket_of($test->post('/keyed', 'body')) } 1 .. 2;

    is $tickets[0], $tickets[1], 'no key: the body is';

    @tickets = map { ticket_of($test->post('/accept', '{"id":"s1"}',
                                           'X-User-Id' => $_)) } qw(a b a);

    isnt $tickets[0], $tickets[1], 'the same body of two users: two tickets';
    is $tickets[0], $tickets[2], 'the same body of one: one';

    # fifty at once, over all workers

    my %seen = map { $_ => 1 } $test->put_many(50, user => sub { 'fifty' },
                                               body => sub { { id => 'f1' } });

    is scalar keys %seen, 1, 'fifty times the same at once: one ticket';

    $test->ended((keys %seen)[0]);
    is scalar(grep { ($_->{id} // '') eq 'f1' }
              $test->peers->calls('/verify')), 1,
        'fifty times the same at once: one verification';

    return;
}


sub tickets {
    my $ticket = $test->put({ id => 't1', verify => ['21003'] });
    my $told   = $test->ended($ticket);

    is_deeply $told, { ticket => $ticket, status => 'rejected',
                       result => { status => 21003 } },
        'a ticket tells what became of it';

    # as it came from Apple, whatever other libraries make of its numbers

    $ticket = $test->put({ id => 't2' });
    $test->ended($ticket);

    is $nginx->get("/tickets/$ticket")->{body},
       qq({"ticket":"$ticket","status":"verified","result":{"status":0, )
       . '"environment":"Production", "receipt":{"id":"t2",'
       . '"original_purchase_date_ms":"1375340400000","ratio":1.50, '
       . qq("big":12345678901234567890}}}\n),
       'a ticket has the result digit for digit';

    my $unknown = $nginx->get('/tickets/' . 'a' x 26);

    foreach my $case ([ 'malformed', '/tickets/abc' ],
                      [ 'of other letters', '/tickets/' . '1' x 26 ],
                      [ 'too long', '/tickets/' . 'a' x 27 ],
                      [ 'another queue\'s', "/tickets_of_keyed?t=$ticket" ],
                      [ 'none', '/tickets_of_keyed' ])
    {
        my ($name, $path) = @$case;
        my $answer = $nginx->get($path);

        is $answer->{status}, 404, "a ticket, $name: 404";
        is $answer->{body}, $unknown->{body}, "a ticket, $name: as an unknown one";
    }

    is $unknown->{body}, "{\"error\":\"not_found\"}\n", 'an unknown ticket';

    my $post = IapGuard::LoadClient->fetch('POST',
        $nginx->url("/tickets/$ticket"), body => 'x');
    my $head = IapGuard::LoadClient->fetch('HEAD',
        $nginx->url("/tickets/$ticket"));

    is $post->{status}, 405, 'a ticket: no POST';
    is $head->{status}, 200, 'a ticket: HEAD';
    is $head->{body}, '', 'a ticket: HEAD has no body';

    return;
}


sub answers {
    my $own = $test->post('/own', '{"id":"o1"}');

    is $own->{status}, 200, 'an own answer: its status';
    like $own->{body}, qr/^\{"later":"[a-z2-7]{26}"\}$/,
        'an own answer: its body';
    is $own->{headers}{'content-type'}, 'text/x-own', 'an own answer: its type';

    my @limited = map { $test->post('/limited', "{\"id\":\"l$_\"}",
                                    'X-User-Id' => 'l') } 1 .. 2;

    is $limited[0]{status}, 202, 'a guard lets by: accepted';
    is $limited[1]{status}, 429, 'a guard refuses: not accepted';

    my $ssi = $nginx->get('/ssi');

    unlike $ssi->{body} // '', qr/ticket/, 'a subrequest is not accepted';

    return;
}


sub full {
    my @statuses = map { $test->post('/full', "x$_")->{status} } 1 .. 3;
    my $again    = $test->post('/full', 'x1');
    my $over     = $test->post('/full', 'x4');

    is_deeply \@statuses, [202, 202, 503], 'a queue that is full: 503';
    is $again->{status}, 202, 'a queue that is full: what is in it is';
    like $over->{headers}{'retry-after'} // '', qr/^(?:[5-9]|10)$/,
        'a queue that is full: when to come back';
    like $over->{body}, qr/"error":"unavailable"/,
        'a queue that is full: unavailable';

    return;
}


sub api {
    my $dead = $test->put({ id => 'd1', verify => ['http:500'] });

    is $test->ended($dead)->{status}, 'dead', 'two attempts, then dead';

    my $list = $nginx->api_json('GET',
                                'queues/receipts/entries?status=dead');
    my ($entry) = grep { $_->{ticket} eq $dead } @$list;

    is $entry->{attempts}, 2, 'the list: attempts';
    is $entry->{user}, 'u1', 'the list: its user';
    unlike $json->encode($list), qr/"d1"|verify/, 'the list: no bodies';

    my $first = $nginx->api_json('GET', 'queues/receipts/entries?count=1');
    my $next  = $nginx->api_json('GET',
        "queues/receipts/entries?count=1&after=$first->[0]{id}");

    cmp_ok $next->[0]{id}, '>', $first->[0]{id}, 'the list: page by page';

    foreach my $wrong ('status=odd', 'count=0', 'count=1001', 'after=x') {
        my $answer = api_call('GET', "queues/receipts/entries?$wrong");
        is $answer->{status}, 400, "the list: $wrong is refused";
    }

    is api_call('GET', 'queues/none')->{status}, 404, 'an unknown queue';
    is api_call('GET', 'queues/none/entries')->{status}, 404,
        'entries of an unknown queue';

    my %retry = ( action => 'retry' );

    is api_call('POST', 'queues/receipts', { action => 'drop' })->{status},
        400, 'an unknown action';
    is api_call('POST', 'queues/receipts', { %retry, ticket => 'x' })->{status},
        400, 'retry: no such ticket could be';

    my $retried = $nginx->api_json('POST', 'queues/receipts',
                                   $json->encode({ %retry, ticket => $dead }));

    is $retried->{retried}, 1, 'retry: one';
    is $test->ended($dead)->{status}, 'dead', 'retry: tried again';

    my @calls = grep { ($_->{id} // '') eq 'd1' }
                $test->peers->calls('/verify');

    is scalar @calls, 4, 'retry: with all attempts';

    return;
}


sub api_call {
    my ($method, $path, $body) = @_;

    return IapGuard::LoadClient->fetch($method,
        $nginx->url("/iap_guard/$path"),
        (defined $body ? (body => $json->encode($body)) : ()),
        headers => { Authorization => 'Bearer ' . $nginx->token });
}


# never 202 when it is not on the disk; and well again without a reload

sub refused_without_ledger {
    my $folder = $nginx->file('ledger');

    rename $folder, "$folder.away" or die "rename: $!\n";

    my $refused = 0;

    $nginx->wait_for(5, sub {
        my $answer = $test->post('/accept', '{"id":"r' . $refused++ . '"}');
        return $answer->{status} == 503 && $answer->{headers}{'retry-after'};
    }) or fail('503 without a ledger');

    my @late = map { $test->post('/accept', "{\"id\":\"n$_\"}")->{status} }
               1 .. 8;

    is_deeply \@late, [(503) x 8], 'no ledger: no 202';
    is $nginx->get('/other')->{status}, 200, 'no ledger: others are served';

    rename "$folder.away", $folder or die "rename: $!\n";

    ok $nginx->wait_for(10, sub {
        return ticket_of($test->post('/accept', '{"id":"w1"}'));
    }), 'the ledger is back: accepted';

    return;
}


# at rest nothing can be read; what was put without a key, or with the former one,
# is sent all the same

sub encrypted {
    my $plain = 'receipt-' . 'p' x 64;
    my $file  = $nginx->file('ledger/ledger.db');

    write_file($nginx->file('key'), "$key\n");
    write_file($nginx->file('key2'), '8' x 64 . "\n");

    $test->peers->always('/verify', 'http:503');

    my $before = $test->put({ id => 'e0', x => $plain });

    ok on_disk($plain), 'without a key it is there in the clear';

    $test->configure(http => "$test->{http} iap_guard_queue_key "
                             . $nginx->file('key') . ';');
    $nginx->reload or BAIL_OUT('no reload');

    my $secret = 'receipt-' . 's' x 64;
    my $sealed = $test->put({ id => 'e1', x => $secret });

    ok !on_disk($secret), 'with a key it is not';

    $test->configure(http => $test->{http} =~ s/iap_guard_queue_key .*/
        'iap_guard_queue_key ' . $nginx->file('key2') . ' '
        . $nginx->file('key') . ';'/er);
    $nginx->reload or BAIL_OUT('no reload');

    my $rotated = $test->put({ id => 'e2', x => $secret });

    $test->peers->always('/verify', undef);
    $nginx->api('POST', 'queues/receipts', '{"action":"retry"}');

    is $test->ended($_->[1])->{status}, 'verified', "$_->[0]: verified"
        foreach [ 'without a key', $before ], [ 'with the former key', $sealed ],
                [ 'with the new one', $rotated ];

    return;
}


sub on_disk {
    my ($text) = @_;

    foreach my $name (qw(ledger.db ledger.db-wal)) {
        open my $file, '<:raw', $nginx->file("ledger/$name") or next;
        my $bytes = do { local $/; <$file> };
        return 1 if index($bytes, $text) >= 0;
    }

    return 0;
}


sub write_file {
    my ($path, $text) = @_;

    open my $file, '>', $path or die "$path: $!\n";
    print {$file} $text;
    close $file or die "$path: $!\n";

    return;
}
