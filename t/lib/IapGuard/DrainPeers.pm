package IapGuard::DrainPeers;

# All that a drain speaks with, in one child process: the target, the sandbox,
# and the service that is told of results.  Each entry's body says itself how
# it is to be answered:
#
#   my $peers = IapGuard::DrainPeers->start;
#   $peers->url('/verify'), $peers->url('/sandbox'), $peers->url('/hook');
#   # {"id":"r1","verify":["http:503","21007"],"sandbox":["ok"]}
#   $peers->always('/hook', 'http:503');        # whatever the entries say;
#   $peers->always('/hook', undef);             # not any more
#   foreach my $call ($peers->calls('/verify')) {
#       $call->{id}, {time}, {method}, {uri}, {headers}, {body}, {step},
#       {answered};     # since the start, in seconds; undef: it has not
#   }
#   # of so many calls that their bodies would take long:
#   foreach my $call ($peers->brief('/verify')) { $call->{id}, {time}, {step} }
#
# An answer is: "ok"; a number, which is verifyReceipt's status; "http:STATUS"
# or "http:STATUS:RETRY-AFTER"; "slow:SECONDS" (then ok); "hang"; "reset";
# "html".  The last of a list holds on.  A callback's answer is the one of
# `always`, or 204; its id is that of the field webhook-id.

use strict;
use warnings;

use JSON::PP ();

use IapGuard::Child;
use IapGuard::HTTPServer;
use IapGuard::LoadClient;
use IapGuard::Loop;

my $json = JSON::PP->new->canonical->utf8;


sub start {
    my ($class, %options) = @_;

    my $listener = IapGuard::HTTPServer->listener($options{port} || 0);
    my $self = bless { port => $listener->sockport, listener => $listener,
                       calls => [], always => {}, tries => {}, base => 0 },
                     $class;

    $self->{child} = IapGuard::Child->start(sub { $self->_serve(@_) });
    close delete $self->{listener};

    return $self;
}


sub port { return $_[0]{port} }
sub url  { return "http://127.0.0.1:$_[0]{port}$_[1]" }
sub stop { return $_[0]{child}->stop }


sub always {
    my ($self, $path, $step) = @_;
    $self->_control('PUT', { path => $path, step => $step });
    return;
}


sub calls {
    my ($self, $path) = @_;

    # what was read before does not come again

    my $more = $self->_control('GET', undef, '?' . @{ $self->{calls} });

    $self->{calls}[ $_->{number} ] = $_ foreach @$more;

    return grep { !defined $path || $_->{path} eq $path } @{ $self->{calls} };
}


sub count {
    my ($self, $path) = @_;
    return $self->_control('GET', undef, "?count=$path")->{count};
}


sub brief {
    my ($self, $path) = @_;
    my $rows = $self->_control('GET', undef, "?brief=$path");

    return map { my %call; @call{qw(id time step)} = @$_; \%call } @$rows;
}


# When each call came and ended is known only after both

sub ended {
    my ($self, $path) = @_;
    $self->{calls} = [];
    return $self->calls($path);
}


sub _control {
    my ($self, $method, $what, $query) = @_;

    my $answer = IapGuard::LoadClient->fetch($method,
        $self->url('/_control' . ($query || '')), timeout => 30,
        body => $what ? $json->encode($what) : undef);

    die "peers: $answer->{error}\n" if $answer->{error};

    return $json->decode($answer->{body});
}


sub _serve {
    my ($self, $gone) = @_;
    my $loop = $self->{loop} = IapGuard::Loop->new;
    my $end  = 0;

    local $SIG{TERM} = sub { $end = 1 };
    local $SIG{PIPE} = 'IGNORE';

    $loop->on_read($gone, sub { $end = 1 });

    IapGuard::HTTPServer->new(loop => $loop, listener => $self->{listener},
                              on_request => sub { $self->_request(@_) });
    $loop->run_until(sub { $end });

    return 0;
}


sub _request {
    my ($self, $request, $reply) = @_;

    return $self->_controlled($request, $reply)
        if $request->{uri} =~ m{^/_control};

    my ($path) = $request->{uri} =~ /^([^?]*)/;
    my $body   = eval { $json->decode($request->{body}) } || {};
    my $id     = $path eq '/hook' ? $request->{headers}{'webhook-id'}
                                  : $body->{id} // '';
    my $step   = $self->_step($path, $id, $body);

    my $call = {
        number => scalar @{ $self->{calls} }, path => $path, id => $id,
        time => IapGuard::Loop::now(), step => $step, answered => undef,
        map { $_ => $request->{$_} } qw(method uri headers body),
    };

    push @{ $self->{calls} }, $call;

    return $self->_answer($call, $reply, $step);
}


sub _step {
    my ($self, $path, $id, $body) = @_;

    return $self->{always}{$path} if defined $self->{always}{$path};
    return 'http:204'             if $path eq '/hook';

    my $steps = $body->{ substr $path, 1 } || ['ok'];
    my $try   = $self->{tries}{"$path $id"}++;

    return $steps->[ $try < @$steps ? $try : -1 ];
}


sub _answer {
    my ($self, $call, $reply, $step) = @_;
    my ($what, @words) = split /:/, $step;

    return if $what eq 'hang';

    if ($what eq 'slow') {
        $self->{loop}->after($words[0],
                             sub { $self->_answer($call, $reply, 'ok') });
        return;
    }

    $call->{answered} = IapGuard::Loop::now();

    return $reply->reset if $what eq 'reset';

    if ($what eq 'http') {
        return $reply->send($words[0],
            { 'Content-Type' => 'text/html',
              defined $words[1] ? ('Retry-After' => $words[1]) : () },
            $words[0] == 204 ? '' : "<h1>$words[0]</h1>\n");
    }

    return $reply->send(200, { 'Content-Type' => 'text/html' },
                        "<h1>Maintenance</h1>\n") if $what eq 'html';

    # as it is to be told on, digit for digit

    my $text = $what eq 'ok'
        ? sprintf('{"status":0, "environment":"%s", "receipt":{"id":"%s",'
                  . '"original_purchase_date_ms":"1375340400000",'
                  . '"ratio":1.50, "big":12345678901234567890}}',
                  $call->{path} eq '/sandbox' ? 'Sandbox' : 'Production',
                  defined $call->{id} ? $call->{id} : '')
        : qq({"status":$what});

    return $reply->send(200, { 'Content-Type' => 'application/json' }, $text);
}


sub _controlled {
    my ($self, $request, $reply) = @_;
    my $answer = {};

    if ($request->{method} eq 'PUT') {
        my $what = $json->decode($request->{body});
        $self->{always}{ $what->{path} } = $what->{step};

    } elsif ($request->{uri} =~ /\?count=(.*)/) {
        my $path = $1;
        $answer = { count => scalar grep { $_->{path} eq $path }
                                    @{ $self->{calls} } };

    } elsif ($request->{uri} =~ /\?brief=(.*)/) {
        my $path = $1;
        $answer = [ map { [ @$_{qw(id time step)} ] }
                    grep { $_->{path} eq $path } @{ $self->{calls} } ];

    } else {
        my ($from) = $request->{uri} =~ /\?(\d+)/;
        my @calls  = @{ $self->{calls} };
        $answer = [ @calls[ $from || 0 .. $#calls ] ];
    }

    return $reply->send(200, { 'Content-Type' => 'application/json' },
                        $json->encode($answer));
}


1;
