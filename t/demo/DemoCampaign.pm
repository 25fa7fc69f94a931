package DemoCampaign;

# A promo code of a hundred units, five thousand who want one, and a tenth of
# them cheat: who got what, and whether it is what it should be.
#
#   my $campaign = DemoCampaign->new(site => $site, look => sub { ... });
#   $campaign->play;
#   print $campaign->table;
#   my @findings = $campaign->findings;     # [ok, text], as DemoReport's
#
# A contender is { kind, user, device, address, codes, times, outcome }: it
# submits its codes one after the other, the last of them `times` at the same
# moment; `outcome` is what the service says to its first submission.  Whom the
# service has failed submits once more, at once.  Those who guess come before
# all others, while everything is there.

use strict;
use warnings;

use JSON::PP ();
use List::Util qw(max sum0 uniq);

use DemoSite;
use IapGuard::LoadClient;
use IapGuard::Loop;

use constant {
    CODE       => 'SUMMER',
    UNITS      => 100,
    CONTENDERS => 5000,
    A_SECOND   => 1500,         # contenders who come
    FAILURES   => 9,            # each so manieth honest one meets one
    GUESSES    => DemoSite::ATTEMPTS + 1,
    TICK       => 0.02,         # seconds
    PATIENCE   => 60,
};

our @ORDER = qw(guesser honest device address parallel);

my %TITLES = (
    honest   => 'honest users',
    device   => 'fifty on one device',
    address  => '25 at one address',
    parallel => 'ten submissions at once',
    guesser  => 'guessing codes',
);

# how many of each, in gangs of how many; the rest are honest

my %CHEATS = (device => 200, address => 100, parallel => 100, guesser => 100);
my %GANGS  = (device => 50, address => 25, parallel => 1, guesser => 1);

# what a submission came to: the columns of the table

my @COLUMNS = (
    [ redeemed    => 'got one' ],   [ again      => 'has one' ],
    [ in_progress => 'another' ],   [ gone       => 'unavail.' ],
    [ segment     => 'segment' ],   [ user       => 'user' ],
    [ device      => 'device' ],    [ failed     => 'failed' ],
);

my $json = JSON::PP->new->utf8;


sub new {
    my ($class, %options) = @_;
    my $loop = IapGuard::Loop->new;

    return bless {
        %options,
        loop   => $loop,
        client => IapGuard::LoadClient->new(
            loop => $loop, port => $options{site}->port, connections => 250,
            timeout => 15),
        rows   => { map { $_ => { contenders => 0, sent => 0, other => {} } }
                    @ORDER },
        winners => {},          # user => { times, contender }
        open    => 0,           # sent, not answered
    }, $class;
}


sub play {
    my ($self) = @_;
    my $site  = $self->{site};
    my $begun = IapGuard::Loop::now();

    $site->api('PUT', '/iap_guard/codes/' . CODE,
               $json->encode({ stock => UNITS }));

    $self->_all_come(map { _cheat('guesser', $_) } 1 .. $CHEATS{guesser});
    $self->{guessed} = $self->_code;
    $self->_all_come(_contenders());

    $self->{client}->shut;
    $self->{seconds} = IapGuard::Loop::now() - $begun;
    $self->{audit}   = $json->decode(
        $site->api('GET', '/iap_guard/codes/' . CODE . '/audit?count=1000'));

    return;
}


sub _all_come {
    my ($self, @queue) = @_;
    my $loop  = $self->{loop};
    my $begun = IapGuard::Loop::now();
    my $all   = @queue;
    my $tick;

    $tick = sub {
        my $due = (IapGuard::Loop::now() - $begun) * A_SECOND
                  - ($all - @queue);

        $self->_come(shift @queue) while @queue && $due-- > 0;
        $loop->after(TICK, $tick) if @queue;
    };
    $tick->();

    $loop->run_until(sub {
        $self->{look}->();
        return (!@queue && !$self->{open})
               || IapGuard::Loop::now() > $begun + PATIENCE;
    });

    undef $tick;

    return;
}


sub _code {
    my ($self) = @_;
    return $json->decode($self->{site}->api('GET',
                                            '/iap_guard/codes/' . CODE));
}


# All but those who guess, in an order that is any and always the same

sub _contenders {
    my @all;

    foreach my $kind (grep { $_ ne 'guesser' } sort keys %CHEATS) {
        push @all, map { _cheat($kind, $_) } 1 .. $CHEATS{$kind};
    }

    push @all, map { _honest($_) }
                   1 .. CONTENDERS - $CHEATS{guesser} - @all;

    srand 7;

    foreach my $i (reverse 1 .. $#all) {
        my $other = int rand $i + 1;
        @all[$i, $other] = @all[$other, $i];
    }

    return @all;
}


sub _honest {
    my ($n) = @_;

    return {
        kind => 'honest', user => "fan-$n", device => "phone-$n", times => 1,
        address => sprintf('198.19.%d.%d', $n / 250, 1 + $n % 250),
        codes   => [ $n % 3 ? CODE : lc CODE ],
        outcome => $n % FAILURES ? 'ok' : '500',
    };
}


sub _cheat {
    my ($kind, $n) = @_;
    my $gang = int(($n - 1) / $GANGS{$kind});

    return {
        kind => $kind, user => "$kind-$n", times => 1, outcome => 'ok',
        device => "$kind-phone-" . ($kind eq 'device' ? $gang : $n),
        address => $kind eq 'address'
                   ? "203.0.114.$gang"
                   : sprintf('198.51.%d.%d', 100 + $n / 250, 1 + $n % 250),
        codes => [ CODE ],
        ($kind eq 'parallel' ? (times => 10) : ()),
        ($kind eq 'guesser'
         ? (codes => [ map({ "SUMMER$n-$_" } 1 .. GUESSES), CODE ]) : ()),
    };
}


sub _come {
    my ($self, $contender) = @_;

    $self->{rows}{ $contender->{kind} }{contenders}++;

    return $self->_next($contender, @{ $contender->{codes} });
}


sub _next {
    my ($self, $contender, $code, @more) = @_;
    my $times = @more ? 1 : $contender->{times};

    foreach (1 .. $times) {
        $self->_submit($contender, $code, $contender->{outcome}, sub {
            $self->_next($contender, @more) if @more;
        });
    }

    return;
}


sub _submit {
    my ($self, $contender, $code, $outcome, $then) = @_;
    my $row = $self->{rows}{ $contender->{kind} };

    $row->{sent}++;
    $self->{open}++;

    $self->{client}->request({
        method => 'POST', path => '/v1/campaign',
        body   => $json->encode({ code => $code }),
        headers => {
            'Content-Type'    => 'application/json',
            'X-User-Id'       => $contender->{user},
            'X-Device-Id'     => $contender->{device},
            'X-Forwarded-For' => $contender->{address},
            'X-Sender'        => $contender->{kind},
            'X-Outcome'       => $outcome,
            'X-Code'          => CODE,
        },
    }, sub {
        my ($answer) = @_;
        my $what = _outcome($answer);

        if (grep { $_->[0] eq $what } @COLUMNS) {
            $row->{$what}++;
        } else {
            $row->{other}{$what}++;
        }

        if ($what eq 'redeemed') {
            my $winner = $self->{winners}{ $contender->{user} }
                ||= { contender => $contender, times => 0 };
            $winner->{times}++;
        }

        $self->_submit($contender, $code, 'ok', $then)
            if $what eq 'failed' && $outcome ne 'ok';

        $self->{open}--;
        $then->();
    });

    return;
}


sub _outcome {
    my ($answer) = @_;

    return $answer->{error} if $answer->{error};

    my ($status, $body) = @{$answer}{qw(status body)};
    my $told = eval { $json->decode($body) } || {};

    return ($answer->{headers}{'x-verdict'} || '') eq 'duplicate' ? 'again'
                                                                  : 'redeemed'
        if $status == 200 && ($told->{status} || '') eq 'redeemed';

    return 'failed' if $status == 500;
    return 'gone' if ($told->{error} || '') eq 'code_unavailable';
    return 'in_progress' if ($told->{error} || '') eq 'in_progress';
    return $told->{layer} if ($told->{error} || '') eq 'rate_limited';

    return "status $status";
}


sub table {
    my ($self) = @_;
    my $width = max map { length } values %TITLES;

    my $text = sprintf "  %-*s %5s %6s |%s\n", $width, 'contenders', '', 'sent',
        join('', map { sprintf ' %8s', $_->[1] } @COLUMNS);

    $text .= '  ' . '-' x (length($text) - 3) . "\n";

    foreach my $kind (@ORDER) {
        my $row = $self->{rows}{$kind};

        $text .= sprintf "  %-*s %5d %6d |%s\n", $width, $TITLES{$kind},
            $row->{contenders}, $row->{sent},
            join('', map { sprintf ' %8s', $row->{ $_->[0] } || '-' }
                     @COLUMNS);
    }

    return $text;
}


sub findings {
    my ($self) = @_;

    return map {
        my $check = $_;
        my @found = eval { $self->$check };
        $@ ? [ 0, $@ =~ s/\s+$//r ] : @found;
    } qw(_all_answered _all_sold _one_each _honest_served _cheats_bounded
         _failures_harmless);
}


sub _all_answered {
    my ($self) = @_;
    my %other = map { my $row = $_; map { ($_ => $row->{other}{$_}) }
                                        keys %{ $row->{other} } }
                values %{ $self->{rows} };

    return [ !%other && !$self->{open},
             sprintf '%d contenders, %d submissions in %.1f s, all of them '
             . 'answered%s', CONTENDERS,
             sum0(map { $_->{sent} } values %{ $self->{rows} }),
             $self->{seconds},
             join '', map { ", $other{$_} x $_" } sort keys %other ];
}


sub _all_sold {
    my ($self) = @_;
    my $audit = $self->{audit};

    return [ $audit->{initial} == UNITS && $audit->{sold} == UNITS
             && $audit->{reserved} == 0 && $audit->{free} == 0
             && $audit->{difference} == 0,
             "the audit: of $audit->{initial} units $audit->{sold} are sold, "
             . "$audit->{reserved} reserved, $audit->{free} free; difference "
             . "$audit->{difference}" ];
}


# By what they were told, by what the service has given, by the audit

sub _one_each {
    my ($self) = @_;
    my $winners = $self->{winners};
    my $granted = $self->{site}->promoter->granted->{ +CODE } || {};
    my @sold    = grep { $_->{state} eq 'sold' } @{ $self->{audit}{units} };
    my $same    = join(' ', sort keys %$winners)
                  eq join(' ', sort keys %$granted)
                  && join(' ', sort keys %$winners)
                     eq join(' ', sort map { $_->{user} } @sold);
    my $most    = max 0, map { $_->{times} } values %$winners;

    return [ keys %$winners == UNITS && $most == 1
             && max(0, values %$granted) == 1,
             keys(%$winners) . ' users got one, none of them more than one' ],
           [ $same, $same ? 'the service has given it to the same users, and '
                            . 'the audit names them'
                          : 'the service or the audit names others' ];
}


sub _honest_served {
    my ($self) = @_;
    my $row     = $self->{rows}{honest};
    my $refused = sum0 map { $row->{$_} || 0 }
                       qw(segment user device in_progress);
    my $got     = $row->{redeemed} || 0;

    return [ !$refused, "of $row->{contenders} honest users $refused were "
             . 'refused by a limit: each got one, or was told that there is '
             . 'none' ],
           [ $got >= 0.8 * UNITS,
             "honest users got $got of the " . UNITS . ' units, cheats '
             . (UNITS - $got) . ', who are a tenth of those who came' ];
}


# What each gang got in the end

sub _cheats_bounded {
    my ($self) = @_;
    my $got = $self->{rows}{guesser}{redeemed} || 0;

    return [ $got == 0 && $self->{guessed}{free} == UNITS,
             "$CHEATS{guesser} who guessed got $got units, although each had "
             . 'the right code in the end, and all were free' ],
           $self->_gangs('device', 'device', DemoSite::CAMPAIGN_CAPACITY),
           $self->_gangs('address', 'address', DemoSite::ADDRESS_USERS);
}


sub _gangs {
    my ($self, $kind, $by, $limit) = @_;
    my %got;

    $got{ $_->{contender}{$by} }++
        foreach grep { $_->{contender}{kind} eq $kind }
                     values %{ $self->{winners} };

    my $most = max 0, values %got;

    return [ $most <= $limit, "$TITLES{$kind}: $most at most for each, "
                              . "where the limit is $limit" ];
}


sub _failures_harmless {
    my ($self) = @_;
    my $failed = sum0 map { $_->{failed} || 0 } values %{ $self->{rows} };
    my @units  = grep { $_->{state} eq 'released' } @{ $self->{audit}{units} };

    return [ $failed > 0,
             "the service failed $failed times: those units were back at "
             . 'once, and were sold to whoever came next' ];
}


1;
