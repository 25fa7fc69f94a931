# The API's calls of promo codes: what they change, what they show, what they
# refuse; with the stock in the file, in Redis, and in a Cluster.

use strict;
use warnings;

use lib 't/lib';

use Fcntl qw(LOCK_EX);
use JSON::PP ();
use Test::More;

use IapGuard::CodeTest;
use IapGuard::LoadClient;
use IapGuard::Nginx;
use IapGuard::RedisCluster;
use IapGuard::RedisServer;

my $json  = JSON::PP->new->canonical->utf8->allow_nonref;
my %paths = IapGuard::Nginx->options;
my $max   = 1_000_000_000;

my ($test, $nginx);

without_ledger();

foreach my $store (qw(file redis cluster)) {
    note "the stock is in: $store";

    my $redis = servers($store);

    $test = IapGuard::CodeTest->new(paths => \%paths, workers => 2,
        redis => $redis, code => 'lease=60s', server => <<'SERVER');
        location /read/ { iap_guard_api read; }
SERVER
    $nginx = $test->nginx;

    frame();
    set();
    patched();
    removed();
    expires();
    names();
    uploaded();
    upload_refused();
    reported();
    audited();
    sold_out();
    logged();
    metrics($store);

    $test->end;
}

stalled();

done_testing;


sub servers {
    my ($store) = @_;

    return if $store eq 'file';
    return IapGuard::RedisServer->new(options => [
        '--appendonly', 'yes', '--maxmemory-policy', 'noeviction' ])
        if $store eq 'redis';

    my $cluster = IapGuard::RedisCluster->new;

    $_->command('CONFIG', 'SET', 'appendonly', 'yes') foreach $cluster->nodes;

    return $cluster;
}


# { status, headers, body, json }

sub call {
    my ($method, $path, $body, %headers) = @_;

    my $answer = IapGuard::LoadClient->fetch($method, $nginx->url($path),
        body => ref $body ? $json->encode($body) : $body, timeout => 30,
        headers => { Authorization => 'Bearer ' . $nginx->token, %headers });

    $answer->{json} = eval { $json->decode($answer->{body}) };

    return $answer;
}


sub codes { return call($_[0], "/iap_guard/codes$_[1]", @_[2 .. $#_]) }


# the status, and the member "error" where it is one

sub outcome {
    my ($answer) = @_;
    my $error = ref $answer->{json} eq 'HASH' ? $answer->{json}{error} : undef;

    return join ' ', $answer->{status} // $answer->{error}, $error // ();
}


sub is_refused {
    my ($answer, $outcome, $message, $name) = @_;

    is outcome($answer), $outcome, "$name: $outcome";
    like $answer->{json}{message}, $message, "$name: says why";

    return;
}


sub without_ledger {
    $nginx = IapGuard::Nginx->new(%paths,
                                  http => 'iap_guard_zone iap 1m;')->start;

    foreach my $case (['GET', ''], ['POST', '', "A,1\n"], ['GET', '/A'],
                      ['GET', '/A/audit'], ['PUT', '/A', { stock => 1 }],
                      ['PATCH', '/A', { add => 1 }], ['DELETE', '/A'])
    {
        is_refused(codes(@$case), '404 not_found',
                   qr/without "iap_guard_ledger"/,
                   "no ledger: $case->[0] codes$case->[1]");
    }

    $nginx->stop;

    return;
}


sub frame {
    my @changes = (['POST', 'codes', "A,1\n"],
                   ['PUT', 'codes/A', '{"stock":1}'],
                   ['PATCH', 'codes/A', '{"add":1}'], ['DELETE', 'codes/A']);

    foreach my $case (@changes) {
        my ($method, $path, $body) = @$case;

        is outcome(call($method, "/read/$path", $body)), '403 forbidden',
           "$method $path: not under read";
        is outcome(call($method, "/iap_guard/$path", $body,
                        Authorization => 'Bearer wrong')), '401 unauthorized',
           "$method $path: not without the token";
    }

    is outcome(codes('GET', '/A')), '404 not_found', 'nothing was changed';

    my @wrong = (['PUT', '', 'GET, HEAD, POST'], ['DELETE', '', 'GET, HEAD, POST'],
                 ['POST', '/A', 'GET, HEAD, PUT, PATCH, DELETE']);

    foreach my $case (@wrong) {
        my ($method, $path, $allow) = @$case;
        my $answer = codes($method, $path);

        is outcome($answer), '405 method_not_allowed', "$method codes$path";
        is $answer->{headers}{allow}, $allow, "$method codes$path: Allow";
    }

    foreach my $path ('/A/none', '/A/audit/x', '//audit', '/a/b/audit') {
        is outcome(codes('GET', $path)), '404 not_found', "GET codes$path";
    }

    is outcome(codes('PUT', '/A/audit', { stock => 1 })), '404 not_found',
       'an audit is not to be written';
    is outcome(call('GET', '/read/codes')), '200', 'read under read';
    is call('HEAD', '/iap_guard/codes')->{body}, '', 'HEAD';

    my $answer = codes('PUT', '/A', '{"stock":1}' . ' ' x 65_536);
    is_refused($answer, '413 too_large', qr/65536 bytes/, 'a long body');
    is_refused(codes('PUT', '/A', 'stock=1'), '400 bad_request', qr/not JSON/,
               'a body that is no JSON');

    return;
}


sub set {
    my %spring = (code => 'SPRING', initial => 1000, sold => 0, reserved => 0,
                  free => 1000);

    is_deeply $test->stock('SPRING', 1000), \%spring, 'PUT: is there';
    is_deeply $test->code('SPRING'), \%spring, 'GET: the same';
    is_deeply $test->stock('SPRING', 10),
        { %spring, initial => 10, free => 10 }, 'PUT: another number';
    is $test->stock('SPRING', 0)->{free}, 0, 'PUT: none at all';
    is $test->stock('SPRING', $max)->{free}, $max, 'PUT: as many as can be';

    my @bodies = ('', '{}', '{"stock":-1}', '{"stock":"1"}', '{"stock":1.5}',
        '{"stock":1e3}', '{"stock":null}', '{"stock":true}',
        '{"stock":1000000001}', '{"stock":99999999999999999999}',
        '{"add":1}', '{"stock":1,"more":1}', '{"stock":1,"expires":1,"x":1}');

    foreach my $body (@bodies) {
        is outcome(codes('PUT', '/SPRING', $body)), '400 bad_request',
           "PUT $body";
    }

    is $test->code('SPRING')->{initial}, $max, 'none of these was done';

    return;
}


sub patched {
    $test->stock('PATCHED', 100);

    is_deeply codes('PATCH', '/PATCHED', { add => 50 })->{json},
        { code => 'PATCHED', initial => 150, sold => 0, reserved => 0,
          free => 150 }, 'add';
    is codes('PATCH', '/PATCHED', { add => -150 })->{json}{free}, 0,
       'add less than nothing';
    is_refused(codes('PATCH', '/PATCHED', { add => -1 }), '409 conflict',
               qr/more units sold and reserved/, 'fewer than none');
    codes('PATCH', '/PATCHED', { add => $max });
    is_refused(codes('PATCH', '/PATCHED', { add => 1 }), '409 conflict',
               qr/too many/, 'more than can be');

    is codes('PATCH', '/PATCHED', { closed => JSON::PP::true })->{json}{closed},
       JSON::PP::true, 'closed';
    is $test->code('PATCHED')->{closed}, JSON::PP::true, 'and stays so';
    is codes('PATCH', '/PATCHED', { add => -5 })->{json}{closed},
       JSON::PP::true, 'whatever is added';
    is $test->stock('PATCHED', 3)->{closed}, JSON::PP::true,
       'or set';
    ok !exists codes('PATCH', '/PATCHED', { closed => JSON::PP::false })
                  ->{json}{closed}, 'open again';

    foreach my $body ({ add => 1 }, { closed => JSON::PP::true },
                      { closed => JSON::PP::false }, { expires => undef }) {
        is_refused(codes('PATCH', '/NONE', $body), '404 not_found',
                   qr/no code "NONE"/, 'PATCH ' . $json->encode($body)
                   . ' of no code');
    }

    my @bodies = ('', '{}', '{"add":0}', '{"add":"1"}', '{"add":1.5}',
        '{"add":null}', '{"add":1000000001}', '{"add":-1000000001}',
        '{"closed":1}', '{"closed":null}', '{"closed":"true"}',
        '{"expires":0}', '{"expires":-1}', '{"expires":1.5}',
        '{"expires":true}', '{"add":1,"closed":true}', '{"stock":1}');

    foreach my $body (@bodies) {
        is outcome(codes('PATCH', '/PATCHED', $body)), '400 bad_request',
           "PATCH $body";
    }

    return;
}


sub removed {
    $test->stock('REMOVED', 1);

    is_deeply codes('DELETE', '/removed')->{json}, { deleted => 'REMOVED' },
        'DELETE';
    is outcome(codes('GET', '/REMOVED')), '404 not_found', 'it is gone';
    is outcome(codes('GET', '/REMOVED/audit')), '404 not_found',
       'nor audited';
    is_refused(codes('DELETE', '/REMOVED'), '404 not_found',
               qr/no code "REMOVED"/, 'DELETE again');

    # of one that has a reserved unit

    $test->stock('IN-USE', 1);
    reserved('IN-USE', 'u1');
    is_refused(codes('DELETE', '/IN-USE'), '409 conflict', qr/reserved/,
               'DELETE of what is in use');
    is_refused(codes('PUT', '/IN-USE', { stock => 0 }), '409 conflict',
               qr/sold and reserved/, 'PUT fewer than are in use');

    return;
}


# a unit that stays reserved, since the service never answers and the client
# leaves

sub reserved {
    my ($code, $user) = @_;

    my $loop   = IapGuard::Loop->new;
    my $client = IapGuard::LoadClient->new(loop => $loop,
                                           port => $nginx->port,
                                           timeout => 0.5);
    my $done;

    $client->request($test->request($code, $user, outcome => 'hang'),
                     sub { $done = 1 });
    $loop->run_until(sub { $done });
    $client->shut;

    return;
}


sub expires {
    my $at = 1_893_456_000;

    is $test->stock('ENDS', 1, expires => $at)->{expires}, $at,
       'expires: UNIX seconds';
    is $test->stock('ENDS', 1, expires => '2030-01-01T00:00:00Z')->{expires},
       $at, 'expires: a time';
    is $test->code('ENDS')->{expires}, $at, 'and is shown';
    is codes('PATCH', '/ENDS', { expires => '2030-01-01T02:00:00+01:00' })
           ->{json}{expires}, $at + 3600, 'expires: another time';
    ok !exists codes('PATCH', '/ENDS', { expires => undef })->{json}{expires},
       'expires: never';
    ok !exists $test->stock('ENDS', 1, expires => undef)->{expires},
       'never from the first';

    $test->stock('ENDS', 1, expires => $at);
    ok !exists $test->stock('ENDS', 1)->{expires},
       'PUT without it: never';

    foreach my $wrong ('2030-01-01', '2030-01-01T00:00:00', 'never', '',
                       1_893_456_000_000, '2030-02-30T00:00:00Z') {
        is_refused(codes('PUT', '/ENDS', { stock => 1, expires => $wrong }),
                   '400 bad_request', qr/UNIX seconds, or a time/,
                   "expires: \"$wrong\"");
        is outcome(codes('PATCH', '/ENDS', { expires => $wrong })),
           '400 bad_request', "expires: not \"$wrong\"";
    }

    return;
}


sub names {
    my $long = 'L' x 64;

    $test->stock('spring-2', 5);
    is $test->code('SPRING-2')->{code}, 'SPRING-2', 'letters are upper case';
    is $test->code('%20Spring-2%20')->{free}, 5, 'blanks are left out';
    is codes('GET', "/$long")->{status}, 404, 'a long name';
    is $test->stock($long, 1)->{code}, $long, 'the longest';

    # as guards with normalize=off see them

    is codes('PUT', '/spring-2?normalize=off', { stock => 7 })->{json}{code},
       'spring-2', 'normalize=off: as it is';
    is $test->code('SPRING-2')->{free}, 5, 'another one than that in capitals';
    is codes('GET', '/spring-2?normalize=off')->{json}{free}, 7, 'and found';
    is codes('GET', '/spring-2?normalize=on')->{json}{free}, 5,
       'normalize=on: as without it';
    is_refused(codes('GET', '/A?normalize=no'), '400 bad_request',
               qr/"on" or "off"/, 'normalize=no');
    codes('DELETE', '/spring-2?normalize=off');

    $test->stock('A%25-%23%3F&=+', 3);
    is $test->code('A%25-%23%3F&=+')->{code}, 'A%-#?&=+', 'signs';

    foreach my $wrong ("$long-", 'a%20b', 'a,b', 'a%22b', 'a%27b', 'a%5Cb',
                       'a%7Bb', '%C3%A4', '%20')
    {
        is_refused(codes('PUT', "/$wrong", { stock => 1 }), '400 bad_request',
                   qr/can't be a code/, "PUT $wrong");
        is outcome(codes('GET', "/$wrong")), '404 not_found', "GET $wrong";
    }

    return;
}


sub upload { return codes('POST', $_[1] // '', $_[0]) }


sub uploaded {
    is_deeply upload("U1,10\nu2,20,2030-01-01T00:00:00Z\n")->{json},
        { codes => 2, new => 2 }, 'upload: two lines';
    is_deeply $test->code('U1'),
        { code => 'U1', initial => 10, sold => 0, reserved => 0, free => 10 },
        'the first';
    is_deeply $test->code('U2'),
        { code => 'U2', initial => 20, sold => 0, reserved => 0, free => 20,
          expires => 1_893_456_000 }, 'the second';

    is_deeply upload("U1,11")->{json}, { codes => 1, new => 0 },
        'upload: without an end of line';
    is $test->code('U1')->{free}, 11, 'what was there is changed';
    is_deeply upload("U1,11\nU2,20\nS4,5\n")->{json}, { codes => 3, new => 1 },
        'upload: once more, and one that is new';

    my $sheet = "\xef\xbb\xbf" . join "\r\n", 'Code,STOCK,expires',
        '"S1","1","1893456000"', '', ' S2 , 2 , ', "S3,3\t", '', '';

    is upload($sheet)->{json}{codes}, 3, 'upload: of a spreadsheet';
    is join(' ', map { $test->code("S$_")->{free} } 1 .. 3), '1 2 3',
       'all of it';
    is $test->code('S1')->{expires}, 1_893_456_000, 'with its time';
    ok !exists $test->code('S2')->{expires}, 'or without';
    is upload("code,stock\nH1,1")->{json}{codes}, 1, 'a head of two';
    is upload("#1,1\n")->{json}{codes}, 1, 'there are no comments';
    is $test->code('%231')->{free}, 1, 'but a code with that sign';

    is upload("low,5\n", '?normalize=off')->{json}{codes}, 1,
       'upload: normalize=off';
    is codes('GET', '/low?normalize=off')->{json}{free}, 5, 'as it is';
    is outcome(codes('GET', '/low')), '404 not_found', 'and not otherwise';

    my $n = 10_000;
    my $many = join '', map { "MANY$_,$_,1893456000\n" } 1 .. $n;

    is upload($many)->{json}{codes}, $n, 'upload: as many as can be';
    is $test->code('MANY1')->{free}, 1, 'the first of them';
    is $test->code("MANY$n")->{free}, $n, 'the last of them';
    is_refused(upload($many . "ONE,1\n"), '413 too_large',
               qr/line 10001: 10000 codes at most/, 'one more');
    is outcome(codes('GET', '/ONE')), '404 not_found', 'which is not there';
    is upload("code,stock,expires\n\n$many\n")->{json}{codes}, $n,
       'lines that are none do not count';

    return;
}


# [lines, the bad one, why]

sub upload_refused {
    my @cases = (
        ["N1,1\nN2\n", 2, qr/"N2" is not "code,stock" or/],
        ["N1,1\nN2,2,1893456000,4\n", 2, qr/is not "code,stock" or/],
        ["N1,1\n\n\nN2;2\n", 4, qr/"N2;2" is not/],
        ["N1,1\nN 2,2\n", 2, qr/the code "N 2" can't be one/],
        ["N1,1\n,2\n", 2, qr/the code "" can't be one/],
        ["N1,1\n..,2\n", 2, qr/the code "\.\." can't be one/],
        ['N' x 65 . ",1\n", 1, qr/the code "N{65}" can't be one/],
        ["N1,1\nN2,x\n", 2, qr/the stock "x" is no number from 0 to 10{9}/],
        ["N1,1\nN2,\n", 2, qr/the stock "" is no/],
        ["N1,1\nN2,-1\n", 2, qr/the stock "-1" is no/],
        ["N1,1\nN2,1.0\n", 2, qr/the stock "1\.0" is no/],
        ["N1,1\nN2,1000000001\n", 2, qr/the stock "1000000001" is no/],
        ["N1,1\nN2,99999999999999999999\n", 2, qr/is no number/],
        ["N1,1\nN2,2,2030-01-01\n", 2, qr/the time "2030-01-01" is neither/],
        ["N1,1\nN2,2,0\n", 2, qr/the time "0" is neither/],
        ["N1,1\ncode,stock\n", 2, qr/the stock "stock" is no/],
        ["\ncode,stock\n", 2, qr/the stock "stock" is no/],
        ["N1,1\nN2,1\nn1,2\n", 3, qr/the code "N1" has line 1 already/],
        ["N1,1\nN2,1\0\n", 2, qr/the stock "1.*" is no/],
        ["N1,1\n\xff\xfe,1\n", 2, qr/the code "\?\?" can't be one/],
        ["N1,1\n" . 'x' x 5000 . "\n", 2, qr/"x{100}"\.\.\. is not/],
    );

    foreach my $case (@cases) {
        my ($lines, $bad, $why) = @$case;
        my $name = "upload: line $bad, $why";
        my $answer = upload($lines);

        is_refused($answer, '400 bad_request', qr/^line $bad: .*$why/, $name);
        is $answer->{json}{line}, $bad, "$name: the number";
    }

    is outcome(codes('GET', '/N1')), '404 not_found',
       'upload: nothing of these was done';

    foreach my $none ('', "\n\n", "code,stock\n", "\xef\xbb\xbf") {
        is_refused(upload($none), '400 bad_request', qr/expected lines/,
                   'upload: nothing');
    }

    # what only the ledger knows: of all of it nothing is done

    my $answer = upload("N1,1\n\nIN-USE,0\nN2,2\n");

    is_refused($answer, '409 conflict',
               qr/^line 3: the code "IN-USE" has more units sold and reserved/,
               'upload: fewer than are in use');
    is $answer->{json}{line}, 3, 'upload: the number of that line';
    is outcome(codes('GET', "/$_")), '404 not_found', "nothing: not $_"
        foreach qw(N1 N2);

    # nginx's own limit is the same as the module's, and comes first

    is upload("N1,1\n" . ' ' x 1_100_000)->{status}, 413, 'upload: too long';

    return;
}


sub reported {
    my (@seen, $after);

    while (1) {
        my $page = codes('GET', '?count=1000' . ($after ? "&after=$after" : ''))
                   ->{json};

        push @seen, @{ $page->{codes} };
        last if !$page->{more};

        $after = $seen[-1]{code} =~ s/([^\w-])/sprintf '%%%02X', ord $1/ger;
    }

    my @names = map { $_->{code} } @seen;

    is "@names", join(' ', sort @names), 'codes: in order';
    ok scalar(@names) > 10_000, 'codes: all of them';
    is scalar(@names), scalar(keys %{{ map { $_ => 1 } @names }}),
       'codes: each once';

    my ($one) = grep { $_->{code} eq 'IN-USE' } @seen;
    is_deeply $one, { code => 'IN-USE', initial => 1, sold => 0, reserved => 1,
                      free => 0, difference => 0, oversold => 0 },
        'codes: what is of each';
    is_deeply [grep { IapGuard::CodeTest->unbalanced($_) } @seen], [],
        'codes: all are balanced';

    my $some = codes('GET', '?count=2&after=u1')->{json};
    is join(' ', map { $_->{code} } @{ $some->{codes} }), 'U2 low',
       'codes: behind one, as many as asked for';
    is scalar @{ codes('GET', '')->{json}{codes} }, 100,
       'codes: a hundred if not told otherwise';

    is_refused(codes('GET', "?$_"), '400 bad_request', qr/expected "/,
               "codes?$_") foreach qw(count=0 count=1001 count=x count=
                                      after=a%20b after= after=%2C);

    return;
}


sub audited {
    $test->stock('AUDITED', 10);

    is_deeply $test->audit('AUDITED'),
        { code => 'AUDITED', initial => 10, sold => 0, reserved => 0,
          free => 10, difference => 0, oversold => 0, units => [],
          more => JSON::PP::false }, 'audit: nothing yet';

    $test->redeem('AUDITED', 'u1');
    reserved('AUDITED', 'u2');
    $test->redeem('AUDITED', 'u3', outcome => '500');
    $test->redeem('AUDITED', "u4\xff");

    my $audit = $test->is_balanced('audited', 'audit', sold => 2,
                                   reserved => 1, free => 7);
    my @units = @{ $audit->{units} };
    my %of    = map { $_->{user} => $_ } @units;

    is $of{u1}{state}, 'sold', 'audit: sold';
    is $of{u1}{status}, 200, 'audit: by which answer';
    is $of{u2}{state}, 'reserved', 'audit: reserved';
    ok !exists $of{u2}{status}, 'audit: there was none';
    is $of{u3}{state}, 'released', 'audit: released';
    ok scalar(grep { $_->{user} =~ /^~[\w-]{43}$/ } @units),
       'audit: an identity that is shown as its hash';
    ok !(grep { $_->{token} !~ /^[a-z2-7]{8}$/ } @units),
       'audit: tokens are cut';
    ok !(grep { abs($_->{made} - time) > 60 } @units), 'audit: when';
    ok $of{u2}{until} - $of{u2}{made} >= 59
       && $of{u2}{until} - $of{u2}{made} <= 61, 'audit: until when';
    is_deeply [map { $_->{made} } @units],
        [sort { $a <=> $b } map { $_->{made} } @units],
        'audit: the oldest first';

    my $some = $test->audit('AUDITED', 2);
    is scalar @{ $some->{units} }, 2, 'audit: as many as asked for';
    is $some->{more}, JSON::PP::true, 'audit: there are more';
    is outcome(codes('GET', "/AUDITED/audit?$_")), '400 bad_request',
       "audit?$_" foreach qw(count=0 count=1001 count=x);
    is outcome(codes('GET', '/NONE/audit')), '404 not_found',
       'audit: no code';

    return;
}


# a code that is known to be gone is not, as soon as there is more of it

sub sold_out {
    my %more = (
        'PATCH' => sub { codes('PATCH', '/GONE', { add => 1 }) },
        'PUT'   => sub { codes('PUT', '/GONE', { stock => $_[0] }) },
        'POST'  => sub { upload("OTHER,1\nGONE,$_[0]\n") },
    );

    $test->stock('GONE', 1);
    is $test->redeem('GONE', 'g1')->{status}, 200, 'sold out: the only one';

    foreach my $method (sort keys %more) {
        my $sold = $test->code('GONE')->{sold};
        my @answers = $test->redeem_all(map { ['GONE', "$method-$_"] } 1 .. 8);

        is_deeply $test->statuses(@answers), { 409 => 8 },
            "sold out: until $method";
        $more{$method}->($sold + 1);
        is $test->redeem('GONE', "$method-1")->{status}, 200,
           "sold out: not after $method";
    }

    return;
}


# each change with who asked, and no token

sub logged {
    my @expected = (
        qr/code "SPRING" is to have 1000 units, through the API/,
        qr/code "ENDS" is to have 1 units, and to expire at 1893456000, thr/,
        qr/code "PATCHED" is to have 50 more units, through the API/,
        qr/code "PATCHED" is to have -150 more units, through the API/,
        qr/code "PATCHED" is to be closed, through the API/,
        qr/code "PATCHED" is to be open, through the API/,
        qr/code "ENDS" is to expire at 1893459600, through the API/,
        qr/code "ENDS" is never to expire, through the API/,
        qr/code "REMOVED" is to be deleted, through the API/,
        qr/code "IN-USE" stays as it is: it has units that are reserved/,
        qr/codes: 2 are to have the units that they came with, "U1" the /,
        qr/codes stay as they are: "IN-USE" has more units sold and res/,
    );

    foreach my $line (@expected) {
        ok scalar($nginx->log_lines(
            qr/\[error\].*iap_guard $line.*client: 127\.0\.0\.1/)),
            "log: $line";
    }

    my $token = $nginx->token;
    ok !$nginx->log_lines(qr/$token/), 'log: not the token';

    return;
}


# what is Redis's is not there without one

sub metrics {
    my ($store) = @_;
    my $metrics = $nginx->metrics;

    is join(' ', map { $metrics->{"iap_guard_stock_$_"} // '-' } qw(up notes)),
        $store eq 'file' ? '- -' : '1 0', "metrics: the stock in $store";

    return;
}


# a ledger that can't be written: 503, and when to come back; what was asked for
# may be done all the same.  Looking does not need to write.

sub stalled {
    $test = IapGuard::CodeTest->new(paths => \%paths,
                                    timeout => '300ms');
    $nginx = $test->nginx;
    $test->stock('STALLED', 1);

    open my $lock, '<', $nginx->file('ledger/ledger.lock')
        or die "ledger.lock: $!\n";
    flock $lock, LOCK_EX or die "flock: $!\n";

    is outcome(codes('GET', $_)), '200', "stalled: GET codes$_"
        foreach '', '/STALLED', '/STALLED/audit';

    foreach my $case (['PUT', '/STALLED', { stock => 2 }],
                      ['PATCH', '/STALLED', { add => 3 }],
                      ['DELETE', '/STALLED'], ['POST', '', "STALLED,2\n"])
    {
        my $answer = codes(@$case);

        is outcome($answer), '503 unavailable',
           "stalled: $case->[0] codes$case->[1]";
        is $answer->{headers}{'retry-after'}, 5,
           "stalled: $case->[0] codes$case->[1]: when to come back";
    }

    close $lock;

    ok $nginx->wait_for(10, sub {
        return eval { $test->stock('AFTER', 1)->{free} };
    }), 'stalled: and then it goes on';

    $test->end(qr/iap_guard ledger/);

    return;
}
