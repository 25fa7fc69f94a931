package DemoOutage;

# Apple fails, and comes back, while purchases come in: what they get, what the
# queue does with those that were accepted, second by second; and whether it is
# what it should be.
#
#   my $outage = DemoOutage->new(site => $site, look => sub { ... },
#                                tell => sub { print @_ });
#   $outage->play;
#   my @findings = $outage->findings;       # [ok, text], as DemoReport's
#
# A purchase is { ticket, verified, other, seconds, down }: one of the first
# three, how long its answer took, and whether Apple was down when it was sent.

use strict;
use warnings;

use JSON::PP ();
use List::Util qw(max sum0);

use DemoSite;
use IapGuard::LoadClient;
use IapGuard::Loop;

use constant {
    BUYERS   => 12,         # a second
    WELL     => 2,          # seconds before the outage
    DOWN     => 6,          # how long it lasts
    PATIENCE => 60,         # with all that follows
    SLOW     => 3,          # seconds in which each has an answer
};

# as Apple fails: HTTP 200, and inside "the receipt server is not available"

my %TROUBLE = (mode => 'json', status => 21005);

my $json = JSON::PP->new->utf8;

my $HEAD = <<'END';
                            purchases in this second         the queue
           Apple  breaker   sent  verified  accepted   waits  calls  told
  -----------------------------------------------------------------------
END


sub new {
    my ($class, %options) = @_;
    my $loop = IapGuard::Loop->new;

    return bless {
        %options,
        loop      => $loop,
        client    => IapGuard::LoadClient->new(
            loop => $loop, port => $options{site}->port, connections => 64),
        apple     => 'well',
        back      => 0,         # it has been down
        purchases => [],
        open      => 0,         # sent, not answered
        rows      => [],        # of the table
    }, $class;
}


sub play {
    my ($self) = @_;
    my ($loop, $site) = @$self{qw(loop site)};
    my $begun = $self->{begun} = IapGuard::Loop::now();

    # what came before is not looked at

    $site->apple->reset_counts;
    $self->{last} = { %{ $self->_look_around }, when => $begun,
                      purchases => 0, verified => 0, accepted => 0 };
    $self->{tell}->($HEAD);

    $loop->after(WELL, sub { $self->_apple('DOWN', %TROUBLE) });
    $loop->after(WELL + DOWN, sub { $self->_apple('well', mode => 'ok') });
    $self->_buy;
    $self->_second(1);

    $loop->run_until(sub {
        $self->{look}->();
        return ($self->{over} && !$self->{open})
               || IapGuard::Loop::now() > $begun + PATIENCE;
    });

    $self->{client}->shut;
    $self->{seen} = $self->_look_around;

    return;
}


sub _apple {
    my ($self, $how, %behaviour) = @_;

    $self->{site}->apple->behave(%behaviour);
    $self->{apple} = $how;
    $self->{back}  = $how eq 'well';

    return;
}


# Somebody buys, and in a moment the next one, until it is over

sub _buy {
    my ($self) = @_;

    return if $self->{over};

    my $n        = @{ $self->{purchases} };
    my $purchase = { down => $self->{apple} eq 'DOWN' };

    push @{ $self->{purchases} }, $purchase;
    $self->{open}++;

    $self->{client}->request({
        method => 'POST', path => '/v1/verify',
        body   => qq({"receipt-data":"MIIT$n"}),
        headers => { 'Content-Type'    => 'application/json',
                     'X-User-Id'       => "customer-$n",
                     'X-Sender'        => 'customer',
                     'X-Forwarded-For' => '198.18.240.' . (1 + $n % 250) },
    }, sub {
        my ($answer) = @_;
        $self->{open}--;
        %$purchase = (%$purchase, seconds => $answer->{seconds},
                      _outcome($answer));
    });

    $self->{loop}->after(1 / BUYERS, sub { $self->_buy });

    return;
}


sub _outcome {
    my ($answer) = @_;

    return (other => $answer->{error}) if $answer->{error};

    my ($status, $body) = @{$answer}{qw(status body)};

    return (verified => 1) if $status == 200 && $body =~ /"status":0\b/;

    return (ticket => $1)
        if $status == 202
           && $body =~ /^\{"status":"accepted","ticket":"(\w+)"\}\s*$/
           && ($answer->{headers}{location} || '') eq "/v1/tickets/$1";

    return (other => "status $status");
}


# Once a second: a row of the table, and whether it is over

sub _second {
    my ($self, $n) = @_;

    $self->{loop}->after($self->{begun} + $n - IapGuard::Loop::now(), sub {
        $self->{site}->check;

        my $row = $self->_row;

        $self->{over} = $self->{back} && !$row->{waiting}
                        && $row->{told} == $self->_accepted
                        && $row->{breaker} eq 'closed';

        $self->_second($n + 1) unless $self->{over};
    });

    return;
}


# Rows have what has come since the one before, apart from `waiting` and `told`

sub _row {
    my ($self) = @_;
    my $now    = IapGuard::Loop::now();
    my $last   = $self->{last};
    my $seen   = $self->{last} = {
        %{ $self->_look_around }, when => $now,
        purchases => scalar @{ $self->{purchases} },
        accepted  => scalar $self->_accepted,
        verified  => scalar grep { $_->{verified} } @{ $self->{purchases} },
    };

    my $row = {
        %$seen, back => $self->{back}, seconds => $now - $last->{when},
        map { $_ => $seen->{$_} - $last->{$_} }
            qw(purchases accepted verified calls),
    };

    push @{ $self->{rows} }, $row;

    $self->{tell}->(sprintf "  %4.0f s   %-5s  %-9s %4s %9s %9s %7s %6s %5s\n",
        $now - $self->{begun}, $self->{apple}, $row->{breaker},
        map { $_ || '-' }
            @$row{qw(purchases verified accepted waiting calls told)});

    return $row;
}


# Calls that carry no sender are the queue's: of a request's fields it keeps
# none that headers= does not name

sub _look_around {
    my ($self) = @_;
    my $site  = $self->{site};
    my $apple = $site->apple->report;

    return {
        breaker => $self->_api('/iap_guard/breakers/apple')->{state},
        waiting => $self->_api('/iap_guard/queues/receipts')->{pending},
        calls   => $apple->{calls} - sum0(values %{ $apple->{by_sender} }),
        failed  => $apple->{by_mode}{ $TROUBLE{mode} } || 0,
        told    => scalar keys %{ $site->receiver->report->{unlocked} },
    };
}


sub _api { return $json->decode($_[0]{site}->api('GET', $_[1])) }


sub _accepted {
    my ($self) = @_;
    return grep { $_->{ticket} } @{ $self->{purchases} };
}


sub findings {
    my ($self) = @_;

    return map {
        my $check = $_;
        my @found = eval { $self->$check };
        $@ ? [ 0, $@ =~ s/\s+$//r ] : @found;
    } qw(_all_answered _apple_spared _paced _all_verified _all_told _well_again);
}


sub _all_answered {
    my ($self) = @_;
    my @all      = @{ $self->{purchases} };
    my $accepted = $self->_accepted;
    my $verified = grep { $_->{verified} } @all;
    my $failed   = @all - $accepted - $verified;
    my $slowest  = max map { $_->{seconds} // PATIENCE } @all;
    my %other;

    $other{ $_->{other} }++ foreach grep { defined $_->{other} } @all;

    return [ $accepted && $verified && !$failed,
             @all . " purchases: $verified were verified at once, $accepted "
             . "accepted with a ticket, $failed told \"failed\""
             . join '', map { ", $other{$_} x $_" } sort keys %other ],
           [ $slowest < SLOW, sprintf 'the slowest of these answers took '
                              . '%.0f ms', 1000 * $slowest ];
}


sub _apple_spared {
    my ($self) = @_;
    my $came   = grep { $_->{down} } @{ $self->{purchases} };
    my $failed = $self->{seen}{failed};

    return [ $failed > 0 && $failed < $came / 2,
             "Apple, while it was down, was called $failed times for $came "
             . 'purchases: the breaker cut the others' ];
}


# Seconds are as long as the table's were

sub _paced {
    my ($self) = @_;
    my $rate  = DemoSite::QUEUE_RATE;
    my @calls = map { $_->{calls} / max(1, $_->{seconds}) }
                grep { $_->{back} && $_->{calls} } @{ $self->{rows} };

    return [ 0, 'the queue did not call Apple when it was back' ]
        unless @calls;

    return [ $calls[0] <= $rate / 2 && max(@calls) <= 1.2 * $rate + 1,
             sprintf 'after the outage the queue began with %.0f calls a '
             . 'second, and made %.0f at most; its rate is %d', $calls[0],
             max(@calls), $rate ];
}


sub _all_verified {
    my ($self) = @_;
    my %statuses;

    foreach my $purchase ($self->_accepted) {
        my $answer = $self->_api("/v1/tickets/$purchase->{ticket}");
        my $status = $answer->{status};

        $status .= ' without a result'
            if $status eq 'verified' && !defined $answer->{result}{receipt};
        $statuses{$status}++;
    }

    my $accepted = $self->_accepted;

    return [ ($statuses{verified} || 0) == $accepted,
             "of $accepted tickets " . join ', ',
             map { "$statuses{$_} say \"$_\"" } sort keys %statuses ];
}


sub _all_told {
    my ($self) = @_;
    my $report   = $self->{site}->receiver->report;
    my $unlocked = $report->{unlocked};
    my @accepted = $self->_accepted;
    my $told     = grep {
        my $how = $unlocked->{ $_->{ticket} };
        $how && $how->{status} eq 'verified';
    } @accepted;

    return [ $told == @accepted && keys %$unlocked == @accepted
             && !$report->{forged},
             "your service was told of $told of " . @accepted . ', each time '
             . 'with a signature that is right, and has unlocked '
             . keys(%$unlocked) . ' purchases' ];
}


sub _well_again {
    my ($self) = @_;
    my $seen = $self->{seen};
    my $last = $self->{purchases}[-1]{verified};

    return [ $seen->{breaker} eq 'closed' && !$seen->{waiting} && $last,
             "at the end the breaker is $seen->{breaker}, $seen->{waiting} "
             . 'wait, and the last purchase was '
             . ($last ? 'verified at once' : 'not verified at once') ];
}


1;
