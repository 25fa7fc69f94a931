package DemoSenders;

# Who sends, and what has to come of it, as data.
#
# A kind of sender:
#   title    its name in the table
#   guard    the guard it meets
#   path, body, good     its request; what a right answer looks like
#   who      sub ($n, $number) -> { id, user, device, address }: the $n-th
#            sender; $number counts the requests of a crew
#   again    sub ($n, $try, $outcome) -> seconds until it sends once more
#   crew     true: DemoTraffic's crew, else senders spread over time
#   expect   sub ($row) -> [ok, text], ...
#
# A phase has a title and parts that are played at once: `count` senders of a
# kind in `seconds`, or a crew (DemoTraffic::_crew).

use strict;
use warnings;

use DemoSite;

use constant {
    # an attacker's address, its neighbours, and their number
    ATTACKED_SEGMENT => '203.0.113',
    NEIGHBOURS       => 20,
    ONE_ADDRESS      => 150,    # requests before it turns to its neighbours

    PATIENCE         => 10,     # tries of a user that is told to wait
};

my %REDEEM = (
    guard => 'redeem',
    path  => '/v1/redeem',
    body  => '{"code":"SPRING"}',
    good  => qr/^\{"status":"redeemed"\}$/,
);

my %VERIFY = (
    guard => 'verify',
    path  => '/v1/verify',
    body  => '{"receipt-data":"MIIT..."}',
    good  => qr/"status":0\b/,
);

our @ORDER = qw(honest purchase device segment flood invented patient);

our %KINDS = (
    honest => {
        %REDEEM,
        title  => 'honest users',
        who    => sub { _honest('honest', @_) },
        again  => \&_second_code,
        expect => sub { _all_at_once('honest users', @_) },
    },

    purchase => {
        %VERIFY,
        title  => 'honest purchases (verify)',
        who    => sub { _honest('buyer', @_) },
        expect => sub { _all_at_once('honest purchases', @_) },
    },

    # rotating accounts and addresses, but it is one emulator

    device => {
        %REDEEM,
        title  => 'one device, many accounts',
        who    => sub {
            my ($n) = @_;
            return { id => 'device', user => "account-$n",
                     device => 'emulator-1', address => _spread_out(1, $n) };
        },
        expect => \&_expect_device,
    },

    # new accounts and devices with every request, from one place

    segment => {
        %REDEEM,
        title  => 'one segment, many users',
        who    => \&_segment_sender,
        expect => \&_expect_segment,
    },

    flood => {
        %REDEEM,
        title  => 'flood, each bot as itself',
        crew   => 1,
        who    => sub {
            my ($bot) = @_;
            return { id => $bot, user => "bot-$bot", device => "botdev-$bot",
                     address => _spread_out(2, $bot) };
        },
        expect => \&_expect_flood,
    },

    # nothing of it ever comes twice: only the last layer can hold it

    invented => {
        %REDEEM,
        title  => 'flood, all made up',
        crew   => 1,
        who    => sub {
            my ($bot, $number) = @_;
            return { id => 'invented', user => "fake-$number",
                     device => "fakedev-$number",
                     address => _spread_out(64, $number) };
        },
        expect => \&_expect_invented,
    },

    patient => {
        %REDEEM,
        title  => 'honest users, told to wait',
        who    => sub { _honest('patient', @_) },
        again  => \&_wait_as_told,
        expect => \&_expect_patient,
    },
);

our @PHASES = (
    {
        title => 'one device with many accounts',
        parts => [ { kind => 'device', count => 300, seconds => 3 },
                   { kind => 'honest', count => 60,  seconds => 3 } ],
    },
    {
        title => 'one segment with many users',
        parts => [ { kind => 'segment', count => 500, seconds => 4 },
                   { kind => 'honest',  count => 60,  seconds => 4 } ],
    },

    # what the bots' full buckets let through has to stay below the global
    # rate, which is the next phase's: 40 join in a second, with 3 tokens each

    {
        title => 'a flood: 200 bots that hammer',
        parts => [ { kind => 'flood', bots => 200, pause => 0.04,
                     every => 0.025, joining => 8, entry => 3,
                     count => 20_000, seconds => 12 },
                   { kind => 'honest',   count => 100, seconds => 6 },
                   { kind => 'purchase', count => 30,  seconds => 6 } ],
    },
    {
        title => 'a flood of made-up users, devices and addresses',
        parts => [ { kind => 'invented', bots => 64, pause => 0.016,
                     every => 0.002, joining => 64, entry => 1,
                     count => 12_000, seconds => 3 },
                   { kind => 'patient', count => 30, seconds => 3 } ],
    },
);


# Addresses in networks of their own: no two senders share a segment.

sub _spread_out {
    my ($block, $n) = @_;
    return sprintf '10.%d.%d.9', $block + ($n >> 8), $n & 255;
}


# A mixture, as it comes: homes and offices, IPv6, one carrier's address with
# many subscribers behind, families.

sub _honest {
    my ($word, $n) = @_;
    my $which = $n % 10;
    my $block = { honest => 0, buyer => 1, patient => 2 }->{$word};

    my $address = $which < 5 ? sprintf '198.18.%d.%d', $block * 80 + $n / 4,
                                                       1 + $n % 250
                : $which < 7 ? sprintf '2001:db8:%x:1::7', 1000 * $block + $n
                : $which < 9 ? '100.64.0.7'
                :              sprintf '198.19.%d.%d', $block, 1 + $n / 30;

    return { id => $n, user => "$word-$n", device => "phone-$word-$n",
             address => $address };
}


# Two of five have a second code, a moment later.

sub _second_code {
    my ($n, $try, $outcome) = @_;
    return $outcome->{passed} && $try == 1 && $n % 5 < 2 ? 0.7 : undef;
}


# Honest apps do what Retry-After says.

sub _wait_as_told {
    my ($n, $try, $outcome) = @_;

    return if $outcome->{passed} || !$outcome->{retry_after}
              || $try >= PATIENCE;

    return $outcome->{retry_after} + $n % 10 / 20;
}


sub _segment_sender {
    my ($n) = @_;

    my $host = $n < ONE_ADDRESS ? 7 : 20 + $n % NEIGHBOURS;

    return { id => 'segment', user => "new-$n", device => "newdev-$n",
             address => ATTACKED_SEGMENT . ".$host" };
}


# Expectations.  All figures are bounds that hold on a slow machine as well.

sub _all_at_once {
    my ($what, $row) = @_;
    my $users = keys %{ $row->{senders} };
    my $fine  = grep { $_->{tries} == ($_->{passed} || 0) }
                values %{ $row->{senders} };

    return [ $fine == $users && $row->{passed} == $row->{sent},
             "$what: $fine of $users were served, always at once "
             . "($row->{passed} of $row->{sent} requests passed)" ];
}


# What a full bucket gives in so many seconds.

sub _tokens {
    my ($seconds) = @_;
    return DemoSite::BUCKET_CAPACITY
           + int($seconds / DemoSite::REFILL_SECONDS);
}


sub _only {
    my ($row, @layers) = @_;
    my $sum = 0;

    $sum += $row->{layers}{$_} || 0 foreach @layers;

    return $sum == $row->{refused};
}


sub _expect_device {
    my ($row) = @_;
    my $most = _tokens($row->{seconds});

    return [ $row->{passed} >= DemoSite::BUCKET_CAPACITY
             && $row->{passed} <= $most && _only($row, 'device'),
             "one device: $row->{passed} of $row->{sent} passed; a device has "
             . DemoSite::BUCKET_CAPACITY . ' tokens, whatever the account' ];
}


sub _expect_segment {
    my ($row) = @_;
    my $layers = $row->{layers};
    my $most   = DemoSite::NEIGHBOUR_USERS;

    return [ $row->{passed} == $most && _only($row, 'ban', 'segment'),
             "one segment: $row->{passed} users passed, of "
             . "$row->{sent}; $most are its limit" ],
           [ ($layers->{segment} || 0) > 0 && ($layers->{ban} || 0)
             > $row->{sent} / 3,
             'one segment: ' . ($layers->{ban} || 0) . ' requests met the ban '
             . 'of its neighbourhood' ];
}


sub _expect_flood {
    my ($row) = @_;
    my $most    = _tokens($row->{seconds});
    my @bots    = values %{ $row->{senders} };
    my $greedy  = grep { ($_->{passed} || 0) > $most } @bots;
    my $starved = grep { ($_->{passed} || 0) < DemoSite::BUCKET_CAPACITY
                         && $_->{tries} >= DemoSite::BUCKET_CAPACITY } @bots;

    return [ !$greedy && !$starved && _only($row, 'user')
             && $row->{refused} > $row->{passed},
             'flood: ' . @bots . " bots got $row->{passed} of $row->{sent} "
             . 'requests through; each has ' . DemoSite::BUCKET_CAPACITY
             . ' tokens of its own' ];
}


# The window is fixed, one second long: so many of them touch the phase.

sub _expect_invented {
    my ($row) = @_;
    my $most = DemoSite::GLOBAL_RATE * (int($row->{seconds}) + 2);

    return [ $row->{passed} <= $most && _only($row, 'global')
             && $row->{refused} > 0,
             "made-up identities: $row->{passed} of $row->{sent} passed in "
             . sprintf('%.1f', $row->{seconds}) . ' s; global, the last '
             . 'resort, allows ' . DemoSite::GLOBAL_RATE . ' a second' ];
}


sub _expect_patient {
    my ($row) = @_;
    my @users  = values %{ $row->{senders} };
    my $served = grep { $_->{passed} } @users;
    my $waited = grep { $_->{tries} > 1 } @users;

    return [ $served == @users && _only($row, 'global'),
             "honest users in that flood: $served of " . @users
             . " were served; $waited of them after they had waited as "
             . 'Retry-After says' ];
}


1;
