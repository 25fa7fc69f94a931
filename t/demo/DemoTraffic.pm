package DemoTraffic;

# Plays phases of traffic (DemoSenders says which) against the site and keeps
# the books: a row of figures for each kind of sender.
#
#   my $traffic = DemoTraffic->new(port => $port, kinds => \%kinds,
#                                  look => sub { die "enough" if ... });
#   $traffic->play($phase);
#   my $rows = $traffic->rows;
#
# A row is
#   sent, passed, refused            requests
#   layers  { name => number }       refused by which layer
#   errors  { word => number }       the same by "error" of the answer
#   other   { what => number }       answers that are neither, and none at all
#   senders { id => { passed, tries, served } }
#   seconds                          from first to last request

use strict;
use warnings;

use JSON::PP ();

use IapGuard::LoadClient;
use IapGuard::Loop;

use constant {
    CONNECTIONS    => 300,
    ANSWER_SECONDS => 10,
    PHASE_SECONDS  => 45,       # no phase lasts longer, whatever happens
};


sub new {
    my ($class, %options) = @_;
    my $loop = IapGuard::Loop->new;

    return bless {
        kinds  => $options{kinds},
        loop   => $loop,
        client => IapGuard::LoadClient->new(
            loop => $loop, port => $options{port},
            connections => CONNECTIONS, timeout => ANSWER_SECONDS),
        look   => $options{look} || sub { },    # called again and again
        rows   => {},
        open   => 0,            # requests planned or sent, not yet answered
    }, $class;
}


sub rows { return $_[0]{rows} }


sub row {
    my ($self, $kind) = @_;

    return $self->{rows}{$kind} ||= {
        sent => 0, passed => 0, refused => 0, layers => {}, errors => {},
        other => {}, senders => {}, begun => IapGuard::Loop::now(),
    };
}


# Plays all parts of a phase at once; returns the seconds it took.

sub play {
    my ($self, $phase) = @_;
    my $begun = IapGuard::Loop::now();
    my $late  = 0;

    my $limit = $self->{loop}->after(PHASE_SECONDS, sub { $late = 1 });

    foreach my $part (@{ $phase->{parts} }) {
        my $kind = $self->{kinds}{ $part->{kind} };

        $kind->{crew} ? $self->_crew($part, $kind)
                      : $self->_spread($part, $kind);
    }

    $self->{loop}->run_until(sub {
        $self->{look}->();
        return $late || $self->{open} == 0;
    });

    $self->{loop}->cancel($limit);

    die "\"$phase->{title}\" did not end within " . PHASE_SECONDS . " s\n"
        if $late;

    return IapGuard::Loop::now() - $begun;
}


# `count` senders, evenly over `seconds`, whatever becomes of them.

sub _spread {
    my ($self, $part, $kind) = @_;
    my $first = $self->{next}{ $part->{kind} } || 0;

    $self->{next}{ $part->{kind} } = $first + $part->{count};

    foreach my $n (0 .. $part->{count} - 1) {
        $self->{open}++;
        $self->{loop}->after($n * $part->{seconds} / $part->{count}, sub {
            $self->_send($part->{kind}, $kind, $first + $n, 1);
        });
    }

    return;
}


# One request of sender $n, its $try-th; the kind's `again` says whether and
# when another follows.

sub _send {
    my ($self, $name, $kind, $n, $try) = @_;
    my $sender = $kind->{who}->($n);

    return $self->_request($name, $kind, $sender, sub {
        my ($answer, $outcome) = @_;
        my $wait = $kind->{again}
                   ? $kind->{again}->($n, $try, $outcome) : undef;

        if (!defined $wait) {
            $self->{open}--;
            return;
        }

        $self->{loop}->after($wait, sub {
            $self->_send($name, $kind, $n, $try + 1);
        });
    });
}


# `bots` that send again `pause` seconds after they were answered, until
# `count` requests are sent or `seconds` are over.  One joins `every` so many
# seconds, and no more than `joining` are at their first `entry` requests at a
# time: what a crew does at once stays bounded, also where the machine stood
# still for a moment.

sub _crew {
    my ($self, $part, $kind) = @_;

    my $crew = {
        name => $part->{kind}, kind => $kind, left => $part->{count},
        bots => 0, entering => 0, number => 0, part => $part,
        until => IapGuard::Loop::now() + $part->{seconds},
    };

    $self->{open}++;

    return $self->_join($crew);
}


sub _join {
    my ($self, $crew) = @_;
    my $part = $crew->{part};
    my $over = $crew->{left} <= 0 || IapGuard::Loop::now() > $crew->{until};

    if ($over || $crew->{bots} == $part->{bots}) {
        $self->{open}--;
        return;
    }

    if ($crew->{entering} < $part->{joining}) {
        $crew->{entering}++;
        $self->{open}++;
        $self->_bot($crew, $crew->{bots}++, 1);
    }

    $self->{loop}->after($part->{every}, sub { $self->_join($crew) });

    return;
}


sub _bot {
    my ($self, $crew, $bot, $try) = @_;
    my $over = $crew->{left} <= 0 || IapGuard::Loop::now() > $crew->{until};

    if ($over) {
        $crew->{entering}-- if $try <= $crew->{part}{entry};
        $self->{open}--;
        return;
    }

    $crew->{left}--;

    my $sender = $crew->{kind}{who}->($bot, $crew->{number}++);

    return $self->_request($crew->{name}, $crew->{kind}, $sender, sub {
        my $part = $crew->{part};

        $crew->{entering}-- if $try == $part->{entry};
        $self->{loop}->after($part->{pause}, sub {
            $self->_bot($crew, $bot, $try + 1);
        });
    });
}


sub _request {
    my ($self, $name, $kind, $sender, $done) = @_;
    my $row = $self->row($name);

    $row->{sent}++;

    my $request = {
        method  => 'POST',
        path    => $kind->{path},
        body    => $kind->{body},
        headers => {
            'Content-Type'    => 'application/json',
            'X-Forwarded-For' => $sender->{address},
            'X-User-Id'       => $sender->{user},
            'X-Device-Id'     => $sender->{device},
            'X-Sender'        => $name,
        },
    };

    $self->{client}->request($request, sub {
        my ($answer) = @_;
        my $outcome = _outcome($answer, $kind->{good});

        _book($row, $sender, $outcome);
        $done->($answer, $outcome);
    });

    return;
}


# What an answer means: { passed }, { layer, error, retry_after }, or
# { other => what }.

sub _outcome {
    my ($answer, $good) = @_;

    return { other => $answer->{error} } if $answer->{error};

    my ($status, $body) = @{$answer}{qw(status body)};

    return $body =~ $good ? { passed => 1 } : { other => 'a wrong 200' }
        if $status == 200;

    return { other => "status $status" } if $status != 429;

    my $refusal = eval { _refusal($body) };

    return { other => 'a 429 that names no layer' }
        unless ref $refusal eq 'HASH' && defined $refusal->{layer}
               && defined $refusal->{error};

    my $header = $answer->{headers}{'retry-after'};

    return { other => 'a 429 whose Retry-After is not as in its body' }
        unless defined $header && defined $refusal->{retry_after}
               && $header =~ /^[1-9][0-9]*$/
               && $header == $refusal->{retry_after};

    return $refusal;
}


# The usual form by a pattern: a flood has tens of thousands, and JSON::PP
# takes its time.

sub _refusal {
    my ($body) = @_;

    return { error => $1, layer => $2, retry_after => $3 }
        if $body =~ /^\{"error":"(\w+)","layer":"(\w+)","retry_after":(\d+),
                      "request_id":"[0-9a-f]{32}"\}\s*$/x;

    return JSON::PP->new->utf8->decode($body);
}


sub _book {
    my ($row, $sender, $outcome) = @_;
    my $of_sender = $row->{senders}{ $sender->{id} } ||= {};

    $of_sender->{tries}++;
    $row->{seconds} = IapGuard::Loop::now() - $row->{begun};

    if ($outcome->{passed}) {
        $row->{passed}++;
        $of_sender->{passed}++;

    } elsif ($outcome->{layer}) {
        $row->{refused}++;
        $row->{layers}{ $outcome->{layer} }++;
        $row->{errors}{ $outcome->{error} }++;

    } else {
        $row->{other}{ $outcome->{other} }++;
    }

    return;
}


1;
