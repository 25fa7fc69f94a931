#!/usr/bin/perl

# Metrics, status and bans asked for without a pause, while the zone is full
# of bans and guarded requests come in: all answers are whole, and the
# guarded ones still come soon.

use strict;
use warnings;

use JSON::PP ();
use Test::More;

use IapGuard::LoadClient;
use IapGuard::Loop;
use IapGuard::Nginx;
use IapGuard::Wrk;

use constant {
    BANS            => 6_000,
    NAME_LENGTH     => 64,      # the longest name that is shown as it is
    LIST_MAX        => 1_000,   # of bans in status

    QUIET_SECONDS   => 2,
    BUSY_SECONDS    => 6,
    SLOWER          => 10,      # times, at most
    SLOW_FLOOR      => 30,      # ms: what is faster is not told apart
    SLOW_FLOOR_ASAN => 100,
};

my $GUARD = 'redeem-' . 'g' x 57;       # 64 letters
my $LAYER = 'layer-' . 'n' x 26;        # 32
my $JSON  = JSON::PP->new->utf8;

my $nginx = IapGuard::Nginx->new(IapGuard::Nginx->options, workers => 2,
    level => 'error',           # each ban is a [warn]
    http => '    iap_guard_zone  iap 16m;', server => <<"END")->start;
        location = /redeem {
            iap_guard          $GUARD;
            iap_guard_segment  users=1000000 window=1m;
            iap_guard_user     \$http_x_user_id capacity=100 rate=1000r/s;
            iap_guard_bucket   $LAYER \$http_x_user_id
                               capacity=100 rate=1000r/s;
            empty_gif;
        }
END

make_bans();

my $alone   = guarded(QUIET_SECONDS)->result;
my $wrk     = guarded(BUSY_SECONDS);
my @flood   = map { flood($_) } qw(metrics status);
my %calls   = scrape(sub { $wrk->running });
my $between = $wrk->result;

note sprintf 'guarded requests: p99 %.1f ms alone, %.1f ms while this was '
    . 'asked for:', $alone->{p99}, $between->{p99};
note "$calls{$_} $_, looked at" foreach qw(metrics status bans);

cmp_ok $calls{$_}, '>=', 2, "$_ was asked for again and again"
    foreach qw(metrics status bans);

is_deeply $calls{errors}, [], 'every answer was whole';

foreach my $scraper (@flood) {
    my $result = $scraper->result;

    note "$result->{requests} of one in a row, not looked at";
    is(IapGuard::Wrk->failures($result) + $result->{status}, 0,
       'as many as could be asked for were answered');
}

is(IapGuard::Wrk->failures($between), 0, 'every guarded request was answered');
is $between->{status}, 0, 'and passed';
my $floor = $nginx->asan ? SLOW_FLOOR_ASAN : SLOW_FLOOR;

cmp_ok $between->{p99}, '<=',
    SLOWER * ($alone->{p99} > $floor ? $alone->{p99} : $floor),
    'and not much later than without';

promtool();

cmp_ok $nginx->api_json('DELETE', "bans?guard=$GUARD")->{lifted}, '>=', BANS,
    'all bans can be lifted at once';
is $nginx->metric('iap_guard_bans'), 0, 'then there is none';

my @complaints = $nginx->complaints;
$nginx->stop;
is_deeply [@complaints, $nginx->complaints], [],
    'no complaint in the error log';

done_testing;


sub make_bans {
    my $loop = IapGuard::Loop->new;
    my ($left, %statuses) = (BANS);

    my $client = IapGuard::LoadClient->new(loop => $loop, connections => 32,
                                           port => $nginx->port);

    foreach my $i (1 .. BANS) {
        my $name = sprintf 'user-%0*d', NAME_LENGTH - 5, $i;

        $client->request({
            method => 'POST', path => '/iap_guard/bans',
            headers => { Authorization => 'Bearer ' . $nginx->token },
            body => $JSON->encode({ guard => $GUARD, layer => $LAYER,
                                    key => $name, seconds => 3600 }),
        }, sub {
            my $answer = shift;
            $statuses{ $answer->{status} || $answer->{error} }++;
            $left--;
        });
    }

    $loop->run_until(sub { !$left });
    $client->shut;

    is_deeply \%statuses, { 201 => BANS }, BANS . ' bans are made';
    is $nginx->metric('iap_guard_bans'), BANS, 'and counted';

    return;
}


sub guarded {
    my ($seconds) = @_;

    return IapGuard::Wrk->start(
        url => $nginx->url('/redeem'), connections => 16,
        seconds => $seconds,
        send => { header => 'X-User-Id:u%d', last => 20_000, prepare => 1,
                  delay => '1-3' });
}


# Asks without a pause and without a look at the answers.

sub flood {
    my ($call) = @_;

    return IapGuard::Wrk->start(url => $nginx->url("/iap_guard/$call"),
                                connections => 1, seconds => BUSY_SECONDS);
}


# Asks as long as a condition holds.  How often each call was answered, and
# what was wrong with answers.

sub scrape {
    my ($condition) = @_;
    my %calls = (errors => [], metrics => 0, status => 0, bans => 0);

    my %checks = (
        metrics => \&wrong_metrics,
        status  => sub { return wrong_status($JSON->decode($_[0])) },
        bans    => sub { return wrong_bans($JSON->decode($_[0]), BANS) },
    );

    # more of the quick ones; a list of thousands takes perl longest

    my @order = (('metrics') x 6, ('status') x 2, 'bans');

    for (my $i = 0; $condition->(); $i++) {
        my $call  = $order[$i % @order];
        my $wrong = eval { $checks{$call}->($nginx->api('GET', $call)) };

        push @{ $calls{errors} }, "$call: " . ($wrong || $@)
            if $wrong || $@;
        $calls{$call}++;
    }

    return %calls;
}


sub wrong_metrics {
    my ($text) = @_;
    my $metrics = $nginx->parse_metrics($text);

    return 'bans are not all counted'
        unless $metrics->{qq(iap_guard_bans{guard="$GUARD"})} == BANS;
    return 'no requests counted'
        unless $metrics->{
            qq(iap_guard_requests_total{guard="$GUARD",verdict="passed"})} > 0;
    return 'cut off' unless $text =~ /\n\z/;

    return;
}


sub wrong_status {
    my ($status) = @_;

    return 'bans are not all counted'
        unless $status->{guards}{$GUARD}{bans} == BANS;

    return wrong_bans($status->{bans}, LIST_MAX);
}


sub wrong_bans {
    my ($bans, $n) = @_;
    my %seen;

    return 'a list of ' . @$bans unless @$bans == $n;

    foreach my $ban (@$bans) {
        return 'not a ban: ' . $JSON->encode($ban)
            unless $ban->{guard} eq $GUARD && $ban->{layer} eq $LAYER
                   && $ban->{key} =~ /^user-[0-9]{59}$/ && $ban->{seconds} > 0
                   && !$seen{ $ban->{key} }++;
    }

    return;
}


sub promtool {
    SKIP: {
        skip 'no promtool', 1
            if system('command -v promtool > /dev/null') != 0;

        open my $pipe, '|-', 'promtool check metrics > /dev/null 2>&1'
            or die "promtool: $!\n";
        print $pipe $nginx->api('GET', 'metrics');
        ok close $pipe, 'promtool accepts the metrics';
    }

    return;
}
