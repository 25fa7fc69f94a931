#!/usr/bin/perl

# The stand-in servers and the load client keep what they promise; no nginx.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use Test::More;
use Digest::SHA qw(hmac_sha256);
use IO::Socket::INET;
use JSON::PP;
use MIME::Base64 qw(decode_base64 encode_base64);

use IapGuard::Child;
use IapGuard::CodeBackend;
use IapGuard::HTTPParser;
use IapGuard::LoadClient;
use IapGuard::Loop;
use IapGuard::StandInApple;
use IapGuard::StandInBackend;
use IapGuard::StandInReceiver;


sub parsed {
    my ($kind, $bytes) = @_;
    my $parser = IapGuard::HTTPParser->new($kind);
    my @messages;

    # byte by byte: wherever the network cuts, the result is the same

    foreach my $byte (split //, $bytes) {
        $parser->add($byte);
        my $message = $parser->next_message;
        push @messages, $message if $message;
    }

    my $last = $parser->end;

    return (@messages, $last ? $last : ());
}


sub raw {
    my ($port, $bytes) = @_;
    my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1',
                                       PeerPort => $port) or die $@;
    print $socket $bytes;
    local $/;
    return scalar <$socket>;
}


subtest 'parser' => sub {
    my @got = parsed('request',
        "POST /a HTTP/1.1\r\nContent-Length: 3\r\nX-A: 1\r\nx-a: 2\r\n\r\nabc"
        . "POST /b HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
        . "3;x=y\r\nfoo\r\nA\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n"
        . "GET /c HTTP/1.1\r\n\r\n");

    is_deeply([map { "$_->{uri} $_->{body}" } @got],
              ['/a abc', '/b foo0123456789', '/c '], 'bodies');
    is($got[0]{headers}{'x-a'}, '1, 2', 'a header given twice');

    @got = parsed('response', "HTTP/1.1 100 Continue\r\n\r\n"
                  . "HTTP/1.1 204 No Content\r\n\r\n"
                  . "HTTP/1.0 200 OK\r\n\r\nto the end");
    is_deeply([map { "$_->{status} $_->{body}" } @got],
              ['204 ', '200 to the end'], 'responses');

    foreach my $bad ("nonsense\r\n\r\n", "GET / HTTP/1.1\r\nno colon\r\n\r\n",
                     "GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
                     "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nq\n",
                     "POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nabc")
    {
        eval { parsed('request', $bad) };
        like($@, qr/^bad HTTP: /, 'refused: ' . $bad =~ s/[\r\n]+/|/gr);
    }
};


subtest 'backend' => sub {
    my $backend = IapGuard::StandInBackend->new->start;
    my $loop    = IapGuard::Loop->new;
    my $client  = IapGuard::LoadClient->new(
        loop => $loop, port => $backend->port, connections => 50);
    my %seen;

    foreach my $n (1 .. 2000) {
        $client->request({ method => 'POST', path => '/redeem',
                           body    => 'x' x $n,
                           headers => { 'X-Sender' => $n % 2 ? 'a' : 'b' } },
                         sub { $seen{ $_[0]{error} || $_[0]{body} }++ });
    }

    $loop->run_until(sub { !$client->busy });

    is_deeply(\%seen, { '{"status":"redeemed"}' => 2000 }, 'answers');
    is_deeply($backend->report->{by_sender}, { a => 1000, b => 1000 },
              'counts by sender');
    cmp_ok($client->{number}, '<=', 50, 'connections are kept');

    my $text = raw($backend->port,
        "HEAD / HTTP/1.1\r\n\r\nPOST / HTTP/1.1\r\nContent-Length: 1\r\n\r\nx"
        . "GET / HTTP/1.1\r\nConnection: close\r\n\r\n");

    is(() = $text =~ m{HTTP/1.1 200 OK}g, 3, 'pipelined');
    is(() = $text =~ /redeemed/g, 2, 'no body for HEAD');
    like(raw($backend->port, "junk\r\n\r\n"), qr{^HTTP/1.1 400 }, 'junk');

    $backend->behave(mode => 'ok', chunk => 4);
    is(IapGuard::LoadClient->fetch('GET', $backend->url('/'))->{body},
       '{"status":"redeemed"}', 'chunked');

    $backend->stop;
    ok(!$backend->running, 'stopped');
    like(IapGuard::LoadClient->fetch('GET', $backend->url('/'))->{error},
         qr/^Connection refused|^connect/, 'nobody listens');
};


subtest 'apple' => sub {
    my $apple = IapGuard::StandInApple->new->start;
    my $ask   = sub {
        return IapGuard::LoadClient->fetch('POST',
            $apple->url('/verifyReceipt'), body => '{}', timeout => 0.5);
    };

    is(decode_json($ask->()->{body})->{status}, 0, 'ok');

    $apple->behave(mode => '5xx', status => 502);
    is($ask->()->{status}, 502, '5xx');

    $apple->behave(mode => 'html');
    my $answer = $ask->();
    is("$answer->{status} $answer->{headers}{'content-type'}",
       '200 text/html', 'html');

    foreach my $form (['seconds', qr/^7$/], ['ms', qr/^[0-9]{13}$/],
                      ['date', qr/^\w{3}, \d\d \w{3} \d{4} [\d:]{8} GMT$/],
                      ['soon', qr/^soon$/])
    {
        $apple->behave(mode => '429', retry_after => $form->[0], seconds => 7);
        $answer = $ask->();
        is($answer->{status}, 429, "429, $form->[0]");
        like($answer->{headers}{'retry-after'}, $form->[1], 'Retry-After');
    }

    $apple->behave(mode => 'json', status => 21199,
                   is_retryable => JSON::PP::true);
    like($ask->()->{body}, qr/"is-retryable":true.*"status":21199/, 'json');

    $apple->behave(mode => 'json', status => undef, http => 404,
                   fields => { errorCode => 4040010 });
    $answer = $ask->();
    is($answer->{status}, 404, 'json with a status of HTTP');
    is_deeply(decode_json($answer->{body}),
              { environment => 'Production', errorCode => 4040010 },
              'json without a status');

    $apple->behave(mode => 'cut');
    is($ask->()->{error}, 'bad HTTP: cut short', 'cut');

    $apple->behave(mode => 'reset');
    like($ask->()->{error}, qr/reset by peer/, 'reset');

    $apple->behave(mode => 'slow', seconds => 0.2);
    cmp_ok($ask->()->{seconds}, '>=', 0.19, 'slow');

    $apple->behave(mode => 'hang');
    is($ask->()->{error}, 'no answer within 0.5 s', 'hang');

    my $report = $apple->report;
    is_deeply([@{$report}{qw(calls waiting most left)}], [13, 0, 1, 1],
              'counts');
    is($report->{by_mode}{429}, 4, 'counts by mode');

    $apple->behave(mode => '5xx', percent => 25, times => 2);
    is(join(' ', map { $ask->()->{status} } 1 .. 12),
       join(' ', (503, (200) x 3) x 2, (200) x 4), 'percent and times');

    eval { $apple->behave(mode => 'sulk') };
    like($@, qr/"sulk\\" is none of 429, 5xx, cut, hang/, 'unknown mode');

    $apple->reset_counts;
    is($apple->report->{calls}, 0, 'counts reset');
};


# What each request asks for

subtest 'promo codes' => sub {
    my $backend = IapGuard::CodeBackend->new->start->asked;

    my $ask = sub {
        my ($user, $outcome) = @_;
        return IapGuard::LoadClient->fetch('POST', $backend->url('/redeem'),
            timeout => 0.5, body => '{}', headers => {
                'X-Code' => 'C', 'X-User-Id' => $user,
                $outcome ? ('X-Outcome' => $outcome) : () });
    };

    is_deeply([map { $_->{status} } $ask->('u1'), $ask->('u2', 'ok'),
               $ask->('u2', 'slow:0.1'), $ask->('u3', 'false')],
              [(200) x 4], 'good answers');
    like($ask->('u3', 'false')->{body}, qr/"failed"/, 'one that is none');
    is($ask->('u4', '500')->{status}, 500, 'a status');
    ok($ask->('u5', $_)->{error}, $_) foreach qw(hang reset slow:5);

    is_deeply($backend->granted, { C => { u1 => 1, u2 => 2 } },
              'who was given it');
    is($backend->report->{waiting}, 0, 'nobody waits');
};


# What is told to it, with the signature of another implementation

subtest 'receiver' => sub {
    my $secret   = IapGuard::StandInReceiver->new_secret;
    my $receiver = IapGuard::StandInReceiver->new(secret => $secret)->start;

    like $secret, qr{^whsec_[A-Za-z0-9+/]{32}$}, 'a secret';

    my $tell = sub {
        my ($id, $stamp, %options) = @_;
        my $body = '{"type":"receipt.verified","data":'
                   . '{"ticket":"t1","status":"verified","key":"k1"}}';
        my $key  = decode_base64(substr $options{secret} || $secret, 6);

        return IapGuard::LoadClient->fetch('POST', $receiver->url('/told'),
            body    => $body . ($options{more} || ''),
            headers => {
                'webhook-id' => $id, 'webhook-timestamp' => $stamp,
                'webhook-signature' => 'v1,' . encode_base64(
                    hmac_sha256("$id.$stamp.$body", $key), ''),
            })->{status};
    };

    is($tell->('m1', time), 204, 'told');
    is($tell->('m1', time - 200), 204, 'and once more');
    is($tell->('m2', time - 301), 401, 'too old');
    is($tell->('m2', time + 302), 401, 'of another time');
    is($tell->('m2', time, more => ' '), 401, 'not what was signed');
    is($tell->('m2', time, secret => IapGuard::StandInReceiver->new_secret),
       401, 'signed with another secret');
    is(IapGuard::LoadClient->fetch('POST', $receiver->url('/told'),
                                   body => '{}')->{status}, 401, 'not signed');

    my $report = $receiver->report;
    is_deeply([@{$report}{qw(genuine again forged)}], [2, 1, 5], 'counts');
    is_deeply($report->{unlocked},
              { t1 => { type => 'receipt.verified', status => 'verified',
                        key => 'k1' } }, 'unlocked');

    $receiver->behave(mode => '5xx', times => 1);
    is($tell->('m3', time), 503, 'sick');
    is($tell->('m3', time), 204, 'and well');
    is($receiver->report->{again}, 1, 'what it did not take is new');
};


# A process in the middle starts both kinds of children and is killed: they
# have to go although nobody told them to.

subtest 'children' => sub {
    pipe my $read, my $write;

    my $middle = fork;
    die "fork: $!" unless defined $middle;

    if ($middle == 0) {
        my $program = IapGuard::Child->program({}, 'sleep', '1000');
        my $backend = IapGuard::StandInBackend->new->start;
        syswrite $write, join(' ', $program->pid, $backend->{child}->pid)
                         . "\n";
        sleep 1000;
    }

    my @pids = split ' ', <$read>;
    kill 'KILL', $middle;
    waitpid $middle, 0;

    # "gone" is when nobody holds the pipe's end any more: zombies that no
    # init collects do not count

    close $write;
    my $gone = eval {
        local $SIG{ALRM} = sub { die "late\n" };
        alarm 10;
        my $rest = <$read>;
        alarm 0;
        1;
    };
    ok($gone, "children of a killed process (@pids) are gone");

    is(IapGuard::Child->start(sub { return 3 })->stop >> 8, 3, 'exit code');
};


subtest 'a process by its number' => sub {
    my $pid = fork // die "fork: $!\n";
    exec 'sleep', '1000' if !$pid;

    is_deeply [IapGuard::Child->children($$)], [$pid], 'a child';
    ok wait_for(sub { IapGuard::Child->title($pid) =~ /^sleep\b.*1000$/s }),
        'and its title';
    ok wait_for(sub { IapGuard::Child->state($pid) eq 'S' }), 'it sleeps';
    ok(IapGuard::Child->alive($pid), 'and lives');

    kill 'KILL', $pid;
    ok wait_for(sub { IapGuard::Child->state($pid) eq 'Z' }), 'it has ended';
    ok !IapGuard::Child->alive($pid), 'and is gone, though nobody has asked';

    waitpid $pid, 0;
    ok !IapGuard::Child->alive($pid), 'and when somebody has';
    is_deeply [IapGuard::Child->children($$)], [], 'it was the only child';
};


sub wait_for {
    my ($condition) = @_;

    for (1 .. 500) {
        return 1 if $condition->();
        select undef, undef, undef, 0.01;
    }

    return 0;
}


done_testing;
