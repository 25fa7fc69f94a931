#!/usr/bin/perl

# A campaign whose receipts Apple verifies, and Apple fails in the middle of it:
# redemptions are accepted, and their units are their tickets' until Apple is
# back.  Then what was verified is sold, and all else is free.  Workers are
# killed and replaced meanwhile, the one that drains among them.
#
# Runs beside others.
#
# By hand: file=hang, redis=http:503, ...; where units are, and what Apple does.

use strict;
use warnings;

use JSON::PP ();
use Test::More;
use Time::HiRes qw(sleep);

use IapGuard::CodeTest;
use IapGuard::DrainTest;
use IapGuard::LoadClient;
use IapGuard::Loop;
use IapGuard::Nginx;
use IapGuard::RedisServer;

use constant {
    UNITS    => 150,
    BEFORE   => 80,         # contenders while Apple is well
    DURING   => 220,        # and while it is not
    REJECTED => 7,          # each so manieth has a receipt that is none
    LEASE    => 2,          # seconds
};

my %paths = IapGuard::Nginx->options;
my $json  = JSON::PP->new->canonical->utf8;

my @campaigns = @ARGV ? map { [split /=/] } @ARGV
                      : (['file', 'http:503'], ['redis', 'hang']);

campaign(@$_) foreach @campaigns;

done_testing;


sub machine {
    my ($redis) = @_;

    return IapGuard::DrainTest->new(
        paths => \%paths, workers => 3, breaker => 'open=1s min=5 window=10s',
        ledger => 'timeout=10s', queue => 'rate=200r/s retry_min=50ms '
            . 'retry_max=500ms attempts=200 timeout=1s',
        http => $redis ? 'iap_guard_redis redis://' . $redis->node
                         . ' timeout=1s;' : '',
        server => <<"SERVER");
        location = /campaign {
            iap_guard           campaign;
            iap_guard_user      \$http_x_user_id;
            iap_guard_code      \$http_x_code classify=apple
                                lease=@{[ LEASE ]}s;
            iap_guard_breaker   apple fallback=receipts;
            proxy_read_timeout  700ms;
            proxy_pass          PEERS/verify;
        }
SERVER
}


sub campaign {
    my ($store, $how) = @_;
    my $name  = "$store, $how";
    my $redis = $store eq 'file' ? undef : IapGuard::RedisServer->new(
        options => [ '--appendonly', 'yes', '--appendfsync', 'always',
                     '--maxmemory-policy', 'noeviction' ]);
    my $test  = machine($redis);
    my $nginx = $test->nginx;

    sleep 0.5 if $redis;
    $nginx->api('PUT', 'codes/SPRING', $json->encode({ stock => UNITS }));

    my @before = contend($test, 1 .. BEFORE);
    my $well   = audit($test);

    is $well->{reserved}, 0, "$name: while Apple is well all is settled";

    $test->peers->always('/verify', $how);

    my @during = contend($test, BEFORE + 1 .. BEFORE + DURING);
    my @tickets = grep { defined } map { $_->{ticket} } @during;
    my $bad    = audit($test);

    cmp_ok scalar @tickets, '>', 10, "$name: many are accepted";
    is $bad->{reserved}, scalar @tickets,
        "$name: each that was accepted has a unit, and nobody else";

    # they are told before their units are

    my $kept = 0;
    IapGuard::Nginx->wait_for(5, sub {
        $kept = grep { $_->{state} eq 'kept' } @{ audit($test)->{units} };
        return $kept == @tickets;
    });
    is $kept, scalar @tickets, "$name: which belongs to a ticket";

    # a lease is no matter to those

    interrupted($test, $name);
    sleep LEASE + 0.5;
    my $later = audit($test);
    is $later->{reserved}, scalar @tickets, "$name: for as long as it takes";

    $test->peers->always('/verify', undef);
    ends($test, $name, \@before, \@during, @tickets);

    $test->end(qr/signal 9|was locked by/);

    return;
}


sub ends {
    my ($test, $name, $before, $during, @tickets) = @_;
    my %seen;

    $seen{ $test->ended($_, 30)->{status} }++ foreach @tickets;

    my $direct = grep { $_->{verified} } @$before, @$during;
    my $verified = $direct + ($seen{verified} || 0);

    is join(' ', sort keys %seen), 'rejected verified',
        "$name: all tickets have ended";

    IapGuard::Nginx->wait_for(10, sub { audit($test)->{reserved} == 0 });

    my $audit = audit($test);

    is $audit->{sold}, $verified, "$name: sold is what was verified";
    is $audit->{reserved}, 0, "$name: nothing is reserved";
    is +IapGuard::CodeTest->unbalanced($audit), undef, "$name: balanced";

    note sprintf '%s: %d verified at once, %d accepted, of which %d verified '
        . 'and %d rejected; %d sold, %d free', $name, $direct,
        scalar @tickets, $seen{verified} || 0, $seen{rejected} || 0,
        $audit->{sold}, $audit->{free};

    return;
}


# a worker, and then all of them, the drain included

sub interrupted {
    my ($test, $name) = @_;
    my $nginx = $test->nginx;

    foreach my $pid ($nginx->workers) {
        kill 'KILL', $pid;
        sleep 0.1;
    }

    ok $nginx->wait_for(10, sub { $nginx->workers == 3 }),
        "$name: workers are killed";
    ok $nginx->reload, "$name: and replaced";

    return;
}


# Each with a receipt of its own: { ticket } where it was accepted, { verified }
# where Apple has said so

sub contend {
    my ($test, @numbers) = @_;
    my $loop   = IapGuard::Loop->new;
    my $left   = @numbers;
    my $client = IapGuard::LoadClient->new(loop => $loop, timeout => 30,
        port => $test->nginx->port, connections => 24);
    my @results;

    foreach my $i (@numbers) {
        my $body = { id => "c$i" };
        $body->{verify} = ['21003'] if $i % REJECTED == 0;

        $client->request({
            method => 'POST', path => '/campaign',
            body => $json->encode($body),
            headers => { 'X-User-Id' => "u$i", 'X-Code' => 'SPRING',
                         'Content-Type' => 'application/json' },
        }, sub {
            my ($answer) = @_;
            my $status = $answer->{status} || 0;
            my $told   = eval { $json->decode($answer->{body}) } || {};

            $left--;
            push @results, {
                status => $status,
                ticket => $status == 202 ? $told->{ticket} : undef,
                verified => $status == 200 && $told->{status} eq '0',
            };
        });
    }

    $loop->run_until(sub { !$left });
    $client->shut;

    return @results;
}


sub audit {
    my ($test) = @_;
    return $test->nginx->api_json('GET', 'codes/SPRING/audit?count=1000');
}
