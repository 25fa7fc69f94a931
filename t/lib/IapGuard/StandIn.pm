package IapGuard::StandIn;

=head1 NAME

IapGuard::StandIn - a stand-in for a service, whose behaviour is switched
while it runs

=head1 SYNOPSIS

    my $backend = IapGuard::StandInBackend->new->start;   # a child process
    print $backend->url('/redeem');
    $backend->behave(mode => 'slow', seconds => 5);
    print $backend->report->{calls};
    $backend->stop;

    IapGuard::StandInApple->new(port => 9001)->serve;     # in the foreground

=head1 WHAT IT PROMISES

It is an HTTP/1.1 server on 127.0.0.1 (C<port>, default a free one), with
keep-alive, in one process, without a limit on connections but the system's.
Every method and path is a call and is answered by the present behaviour,
but for C</_control>, which always works, however the calls fare:

    GET    /_control     what it does, and what it has counted
    PUT    /_control     {"mode":"slow","seconds":5}: behave so from now on
    DELETE /_control     set the counts to zero

A switch is in force for calls that arrive after its answer.  Calls that hang
or wait then stay as they were: they end when their client leaves.  A
behaviour that is not understood is answered 400 and changes nothing.

=head2 Modes

    ok                                    the service's own good answer
    slow    seconds (5)                   the same, after so long
    5xx     status (503)                  any status, with a short HTML page
    html                                  200 with an HTML page
    hang                                  reads the call, never answers
    429     retry_after (seconds), seconds (30), which is written as
            "seconds", "ms" (UNIX time in milliseconds, as Apple does),
            "date" (HTTP date), "none" (no such header), or verbatim if it
            is none of these
    reset                                 RST in place of an answer
    cut                                   the good answer, but half of the body

and what a subclass adds (C<json> of IapGuard::StandInApple).  All modes take

    percent (100)  so many of a hundred calls behave so, evenly spread, from
                   the first call on; the others get ok
    times          so many calls behave so, then the mode is ok again
    chunk          bodies are sent chunked, so many bytes in each

=head2 Counts

    {"name":"apple", "behaviour":{"mode":"ok"}, "calls":7, "waiting":0,
     "most":2, "left":0, "by_mode":{"ok":7}, "by_sender":{"honest":7}}

C<waiting> are calls without an answer yet, C<most> is how many have been so
at once, those that came before the counts were set to zero included, C<left>
are those whose client went
before it, C<by_mode> says how each call was treated, C<by_sender> goes by the
calls' X-Sender header (at most 100 different ones, then "more").

=cut

use strict;
use warnings;

use JSON::PP ();
use POSIX ();
use Time::HiRes ();

use IapGuard::Child;
use IapGuard::HTTPServer;
use IapGuard::LoadClient;
use IapGuard::Loop;

use constant SENDERS_MAX => 100;

my $json = JSON::PP->new->canonical->utf8;

my $PAGE = "<!DOCTYPE html>\n<html><head><title>%s</title></head>"
           . "<body><h1>%s</h1></body></html>\n";


# For subclasses: the name, the good answer (a structure that becomes JSON),
# and modes of their own as { name => sub { my ($self, $reply, $how) = @_ } }.

sub name  { return 'service' }
sub good  { return { status => 'ok' } }
sub modes { return {} }


sub new {
    my ($class, %options) = @_;

    my $listener = IapGuard::HTTPServer->listener($options{port} || 0);

    my $self = bless {
        listener => $listener,
        port     => $listener->sockport,
    }, $class;

    $self->_reset_counts;
    $self->_set_behaviour({ mode => 'ok' });

    return $self;
}


# What the process that started it uses.

sub port { return $_[0]{port} }
sub url  { return "http://127.0.0.1:$_[0]{port}$_[1]" }


sub start {
    my ($self) = @_;

    $self->{child} = IapGuard::Child->start(sub { return $self->serve(@_) });
    close delete $self->{listener};

    return $self;
}


sub stop {
    my ($self) = @_;
    return $self->{child} ? $self->{child}->stop : undef;
}


sub running {
    my ($self) = @_;
    return $self->{child} && $self->{child}->running;
}


sub behave {
    my ($self, %behaviour) = @_;
    return $self->_control('PUT', $json->encode(\%behaviour));
}


sub report       { return $_[0]->_control('GET') }
sub reset_counts { return $_[0]->_control('DELETE') }


sub _control {
    my ($self, $method, $body) = @_;

    my $answer = IapGuard::LoadClient->fetch($method, $self->url('/_control'),
                                             body => $body);

    die $self->name . ": $answer->{error}\n" if $answer->{error};
    die $self->name . ": $answer->{body}\n" if $answer->{status} != 200;

    return $json->decode($answer->{body});
}


# What runs in the child: until $gone becomes readable, or for ever.

sub serve {
    my ($self, $gone) = @_;
    my $loop = $self->{loop} = IapGuard::Loop->new;
    my $end  = 0;

    local $SIG{TERM} = sub { $end = 1 };

    $loop->on_read($gone, sub { $end = 1 }) if $gone;

    IapGuard::HTTPServer->new(
        loop       => $loop,
        listener   => $self->{listener},
        on_request => sub { $self->_request(@_) },
        on_leave   => sub { $self->_left(@_) });

    $loop->run_until(sub { $end });

    return 0;
}


sub _request {
    my ($self, $request, $reply) = @_;

    return $self->_control_call($request, $reply)
        if $request->{uri} =~ m{^/_control(?:\?|$)};

    my $mode  = $self->_mode_of_this_call;
    my $count = $self->{count};

    $count->{calls}++;
    $count->{by_mode}{$mode}++;
    $self->_count_sender($request->{headers}{'x-sender'});

    $self->{waiting}++;
    $reply->{is_call} = 1;

    $count->{most} = $self->{waiting} if $self->{waiting} > $count->{most};

    my $handler = $self->_modes->{$mode};

    return $self->$handler($reply, $self->{behaviour}, $request);
}


sub _mode_of_this_call {
    my ($self) = @_;
    my $how = $self->{behaviour};

    return 'ok' if defined $self->{times_left} && $self->{times_left} <= 0;

    # of 100 calls `percent`, evenly: whenever the sum steps over a hundred

    $self->{share} += defined $how->{percent} ? $how->{percent} : 100;
    return 'ok' if $self->{share} < 100;
    $self->{share} -= 100;

    $self->{times_left}-- if defined $self->{times_left};

    return $how->{mode};
}


sub _count_sender {
    my ($self, $sender) = @_;
    my $by = $self->{count}{by_sender};

    return unless defined $sender && length $sender;

    $sender = 'more' if !exists $by->{$sender} && keys %$by >= SENDERS_MAX;
    $by->{$sender}++;

    return;
}


sub _left {
    my ($self, $reply) = @_;

    return unless $reply->{is_call};

    $self->{waiting}--;
    $self->{count}{left}++;
    $self->{loop}->cancel($reply->{timer});

    return;
}


# The modes.

my %MODES = (
    'ok'    => \&answer_good,
    'hang'  => sub { },
    'slow'  => \&_slow,
    '5xx'   => \&_status,
    'html'  => \&_html,
    '429'   => \&_throttle,
    'reset' => sub { $_[0]{waiting}--; $_[1]->reset },
    'cut'   => \&_cut,
);


sub _modes {
    my ($self) = @_;
    return { %MODES, %{ $self->modes } };
}


# Sends a structure as JSON, or a string as it is.  Subclasses end their
# modes with it.

sub answer {
    my ($self, $reply, $status, $headers, $body) = @_;

    if (ref $body) {
        $headers = { 'Content-Type' => 'application/json', %$headers };
        $body    = $json->encode($body);
    }

    $self->{waiting}-- unless $reply->{gone};

    return $reply->send($status, $headers, $body,
                        chunk => $self->{behaviour}{chunk});
}


sub answer_good {
    my ($self, $reply) = @_;
    return $self->answer($reply, 200, {}, $self->good);
}


sub _slow {
    my ($self, $reply, $how) = @_;

    $reply->{timer} = $self->{loop}->after(
        defined $how->{seconds} ? $how->{seconds} : 5,
        sub { $self->answer_good($reply) });

    return;
}


sub _status {
    my ($self, $reply, $how) = @_;
    my $status = $how->{status} || 503;

    return $self->answer($reply, $status, { 'Content-Type' => 'text/html' },
                         sprintf $PAGE, $status, $status);
}


sub _html {
    my ($self, $reply) = @_;

    return $self->answer($reply, 200, { 'Content-Type' => 'text/html' },
        sprintf $PAGE, 'Maintenance', 'We will be back soon.');
}


sub _throttle {
    my ($self, $reply, $how) = @_;
    my $value = _retry_after($how->{retry_after},
                             defined $how->{seconds} ? $how->{seconds} : 30);

    return $self->answer($reply, 429,
        { defined $value ? ('Retry-After' => $value) : () },
        { errorCode => 4290000, errorMessage => 'Rate limit exceeded.' });
}


sub _retry_after {
    my ($form, $seconds) = @_;
    $form = 'seconds' unless defined $form;

    return $form eq 'none'    ? undef
         : $form eq 'seconds' ? $seconds
         : $form eq 'ms'      ? sprintf '%.0f',
                                (Time::HiRes::time() + $seconds) * 1000
         : $form eq 'date'    ? _http_date(time + $seconds)
         :                      $form;
}


# Not strftime's names, which follow the locale.

sub _http_date {
    my ($sec, $min, $hour, $day, $month, $year, $weekday) = gmtime shift;

    return sprintf '%s, %02d %s %d %02d:%02d:%02d GMT',
        (qw(Sun Mon Tue Wed Thu Fri Sat))[$weekday], $day,
        (qw(Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec))[$month],
        $year + 1900, $hour, $min, $sec;
}


sub _cut {
    my ($self, $reply) = @_;

    $self->{waiting}--;

    return $reply->cut(200, { 'Content-Type' => 'application/json' },
                       $json->encode($self->good));
}


# The control calls.

sub _control_call {
    my ($self, $request, $reply) = @_;
    my $method = $request->{method};
    my $error;

    if ($method eq 'PUT') {
        my $how = eval { $json->decode($request->{body}) };
        $error = $how ? $self->_set_behaviour($how) : 'not JSON';

    } elsif ($method eq 'DELETE') {
        $self->_reset_counts;

    } elsif ($method ne 'GET') {
        return $reply->send(405, { Allow => 'GET, PUT, DELETE' }, '');
    }

    my $answer = $error ? { error => $error } : $self->_report;

    return $reply->send($error ? 400 : 200,
                        { 'Content-Type' => 'application/json' },
                        $json->encode($answer) . "\n");
}


sub _set_behaviour {
    my ($self, $how) = @_;

    return 'not an object' unless ref $how eq 'HASH';

    my $mode  = defined $how->{mode} ? $how->{mode} : '';
    my $modes = $self->_modes;

    return "mode \"$mode\" is none of " . join ', ', sort keys %$modes
        unless $modes->{$mode};

    foreach my $number (qw(seconds status percent times chunk)) {
        next unless defined $how->{$number};
        return "\"$number\" is not a number"
            unless $how->{$number} =~ /^[0-9]+(?:\.[0-9]+)?$/;
    }

    $self->{behaviour}  = $how;
    $self->{times_left} = $how->{times};

    # so that the first call already behaves as asked

    $self->{share} = 100 - (defined $how->{percent} ? $how->{percent} : 100);

    return;
}


sub _report {
    my ($self) = @_;

    return {
        name => $self->name, behaviour => $self->{behaviour},
        waiting => $self->{waiting} || 0, %{ $self->{count} },
    };
}


sub _reset_counts {
    my ($self) = @_;
    $self->{count} = { calls => 0, most => $self->{waiting} || 0, left => 0,
                       by_mode => {}, by_sender => {} };
    return;
}


1;
