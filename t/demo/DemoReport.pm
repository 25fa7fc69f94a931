package DemoReport;

# The table, and whether it is what it should be.

use strict;
use warnings;

use List::Util qw(max sum0);
use Time::HiRes qw(sleep);

use DemoSenders;
use IapGuard::Loop;

# in the order in which they decide

our @LAYERS = qw(ban segment user device global);

# what a refused client reads, and the verdict that counts it

my %VERDICT_OF = (rate_limited => 'limited', banned => 'banned');

use constant SETTLE_SECONDS => 3;


sub table {
    my ($rows) = @_;
    my @kinds = grep { $rows->{$_} } @DemoSenders::ORDER;
    my $width = max map { length _title($_) } @kinds;

    my $text = sprintf "%-*s %7s %7s  |%s  | %6s\n", $width, 'sender', 'sent',
        'passed', join('', map { sprintf ' %8s', $_ } @LAYERS), 'other';

    $text .= '-' x (length($text) - 1) . "\n";

    foreach my $kind (@kinds) {
        my $row = $rows->{$kind};

        $text .= sprintf "%-*s %7s %7s  |%s  | %6s\n", $width, _title($kind),
            $row->{sent}, $row->{passed},
            join('', map { sprintf ' %8s', $row->{layers}{$_} || '-' }
                     @LAYERS),
            _other($row) || '-';
    }

    return $text;
}


sub _title { return $DemoSenders::KINDS{ $_[0] }{title} }


# Everything in a row that has no column: other layers, errors.

sub _other {
    my ($row) = @_;
    return $row->{sent} - $row->{passed}
           - sum0(map { $row->{layers}{$_} || 0 } @LAYERS);
}


# [ok, text], ... : what the senders were promised, then whether the site
# tells the same story as they do.

sub findings {
    my ($rows, $site) = @_;
    my @findings;

    foreach my $kind (@DemoSenders::ORDER) {
        my $row = $rows->{$kind} or next;

        push @findings, $DemoSenders::KINDS{$kind}{expect}->($row),
                        _strangers($kind, $row);
    }

    foreach my $check (\&_ban_is_listed, \&_services_agree,
                       \&_metrics_agree)
    {
        # a site that can't be asked is one wrong finding among others

        my @found = eval { $check->($rows, $site) };
        push @findings, $@ ? [ 0, $@ =~ s/\s+$//r ] : @found;
    }

    return @findings;
}


sub _strangers {
    my ($kind, $row) = @_;
    my %strange = %{ $row->{other} };

    foreach my $layer (keys %{ $row->{layers} }) {
        $strange{"refused by \"$layer\""} = $row->{layers}{$layer}
            unless grep { $_ eq $layer } @LAYERS;
    }

    return map { [ 0, _title($kind) . ": $strange{$_} x $_" ] }
           sort keys %strange;
}


sub _ban_is_listed {
    my ($rows, $site) = @_;
    my $key = DemoSenders::ATTACKED_SEGMENT . '.0/24';

    my $found = grep { $_->{guard} eq 'redeem' && $_->{layer} eq 'segment'
                       && $_->{key} eq $key && $_->{seconds} > 0 }
                @{ $site->bans };

    return [ $found == 1, "the API lists the ban of $key" ];
}


# What passed is what the services behind have seen.

sub _services_agree {
    my ($rows, $site) = @_;
    my %seen = (redeem => $site->backend->report->{by_sender},
                verify => $site->apple->report->{by_sender});

    my @differ = grep {
        my $guard = $DemoSenders::KINDS{$_}{guard};
        ($seen{$guard}{$_} || 0) != $rows->{$_}{passed};
    } keys %$rows;

    return [ !@differ, 'backend and Apple have seen exactly what passed'
             . (@differ ? ", but of @differ" : '') ];
}


sub _metrics_agree {
    my ($rows, $site) = @_;
    my $expected = _expected_metrics($rows);
    my $until    = IapGuard::Loop::now() + SETTLE_SECONDS;
    my @differ;

    # a client may have its answer before the request is logged and counted

    do {
        my $metrics = $site->metrics;

        @differ = map { "$_ is " . ($metrics->{$_} || 0)
                        . ", not $expected->{$_}" }
                  grep { ($metrics->{$_} || 0) != $expected->{$_} }
                  sort keys %$expected;

        sleep 0.1 if @differ;
    } while @differ && IapGuard::Loop::now() < $until;

    return [ 1, 'the metrics say the same as the senders' ] unless @differ;
    return map { [ 0, "metrics: $_" ] } @differ;
}


sub _expected_metrics {
    my ($rows) = @_;
    my %expected;

    foreach my $kind (keys %$rows) {
        my $row      = $rows->{$kind};
        my $guard    = $DemoSenders::KINDS{$kind}{guard};
        my $requests = "iap_guard_requests_total{guard=\"$guard\"";
        my $refused  = "iap_guard_rejections_total{guard=\"$guard\"";

        foreach my $verdict (qw(limited banned error unavailable off)) {
            $expected{"$requests,verdict=\"$verdict\"}"} += 0;
        }

        $expected{"$requests,verdict=\"passed\"}"} += $row->{passed};

        foreach my $error (keys %{ $row->{errors} }) {
            my $verdict = $VERDICT_OF{$error} || $error;
            $expected{"$requests,verdict=\"$verdict\"}"}
                += $row->{errors}{$error};
        }

        foreach my $layer (keys %{ $row->{layers} }) {
            $expected{"$refused,layer=\"$layer\"}"} += $row->{layers}{$layer};
        }
    }

    return \%expected;
}


sub complaints {
    my ($site) = @_;
    my @lines = $site->complaints;

    return [ 1, "nginx's error log has no alert" ] unless @lines;
    return map { [ 0, "error log: $_" =~ s/\s+$//r ] } @lines;
}


1;
