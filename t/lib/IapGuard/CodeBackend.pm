package IapGuard::CodeBackend;

# A stand-in for the service that redeems promo codes.  To what
# IapGuard::StandIn can, it adds a mode in which each request says what is to
# become of it, in X-Outcome:
#
#     ok              {"status":"redeemed"}, as without that field
#     slow:SECONDS    the same, later
#     STATUS          500, 404, ...
#     false           200, but {"status":"failed"}
#     hang            no answer
#     reset           RST
#
#     my $backend = IapGuard::CodeBackend->new->start->asked;
#     $backend->granted->{SPRING}{u1};    # how often u1 was given SPRING
#
# Given is what the code's owner was told of: an answer that nginx was there
# to take.  X-Code and X-User-Id say what and whom.

use strict;
use warnings;

use parent 'IapGuard::StandInBackend';


sub modes { return { asked => \&_asked } }


sub asked {
    my ($self) = @_;
    $self->behave(mode => 'asked');
    return $self;
}


sub granted { return $_[0]->report->{granted} || {} }


sub _asked {
    my ($self, $reply, $how, $request) = @_;
    my $headers = $request->{headers};
    my $outcome = $headers->{'x-outcome'} || 'ok';

    return $self->_status_of($reply, $outcome) if $outcome =~ /^\d{3}$/;
    return if $outcome eq 'hang';

    if ($outcome eq 'reset') {
        $self->{waiting}--;
        return $reply->reset;
    }

    return $self->answer($reply, 200, {}, { status => 'failed' })
        if $outcome eq 'false';

    if ($outcome =~ /^slow:([\d.]+)$/) {
        $reply->{timer} = $self->{loop}->after($1, sub {
            $self->_grant($reply, $headers);
        });
        return;
    }

    return $self->_grant($reply, $headers);
}


sub _status_of {
    my ($self, $reply, $status) = @_;
    return $self->answer($reply, $status, {}, { status => 'failed' });
}


sub _grant {
    my ($self, $reply, $headers) = @_;

    $self->{count}{granted}{ $headers->{'x-code'} || '' }
                           { $headers->{'x-user-id'} || '' }++
        unless $reply->{gone};

    return $self->answer_good($reply);
}


1;
