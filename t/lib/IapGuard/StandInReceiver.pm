package IapGuard::StandInReceiver;

=head1 NAME

IapGuard::StandInReceiver - a stand-in for the service that unlocks purchases

=head1 SYNOPSIS

    my $receiver = IapGuard::StandInReceiver->new(
        secret => IapGuard::StandInReceiver->new_secret)->start;
    print $receiver->url('/activated');         # what callback= is set to
    print $receiver->report->{unlocked}{$ticket}{status};

=head1 WHAT IT PROMISES

All that L<IapGuard::StandIn> does.  Its good answer, C<ok>, is that of a
receiver as docs/activation.md wants it: it verifies the signature, and the
time, of what it is told, knowing nothing of this module; unlocks what is new;
and answers 204, or 401 to what is not genuine.  To the counts it adds

    genuine, forged     calls with a signature that is right, and the others
    again               genuine ones whose webhook-id had been there before
    unlocked            {"TICKET":{"status":"verified","type":"receipt.verified",
                        "key":...}}

=cut

use strict;
use warnings;

use Digest::SHA qw(hmac_sha256_base64);
use JSON::PP ();
use MIME::Base64 qw(decode_base64 encode_base64);

use parent 'IapGuard::StandIn';

use constant TIME_OFF => 300;       # seconds that a message's time may be off


# "whsec_" and base64 of 24 bytes

sub new_secret {
    open my $random, '<:raw', '/dev/urandom' or die "/dev/urandom: $!\n";
    read $random, my $bytes, 24 or die "/dev/urandom: $!\n";
    return 'whsec_' . encode_base64($bytes, '');
}


sub new {
    my ($class, %options) = @_;
    my $self = $class->SUPER::new(%options);

    $self->{key}  = decode_base64($options{secret} =~ s/^whsec_//r);
    $self->{seen} = {};

    return $self;
}


sub name  { return 'receiver' }
sub modes { return { ok => \&_told } }


sub _told {
    my ($self, $reply, $how, $request) = @_;
    my $count = $self->{count};
    my $id    = $request->{headers}{'webhook-id'} || '';

    if (!$self->_genuine($request)) {
        $count->{forged}++;
        return $self->answer($reply, 401, {}, '');
    }

    $count->{genuine}++;
    $count->{again}++ if $self->{seen}{$id}++;

    my $told = eval { JSON::PP->new->utf8->decode($request->{body}) };

    return $self->answer($reply, 400, {}, '')
        unless ref $told eq 'HASH' && ref $told->{data} eq 'HASH';

    my $data = $told->{data};

    $count->{unlocked}{ $data->{ticket} } = {
        type => $told->{type}, map { $_ => $data->{$_} } qw(status key),
    };

    return $self->answer($reply, 204, {}, '');
}


sub _genuine {
    my ($self, $request) = @_;

    my ($id, $stamp, $signatures) = map { $request->{headers}{"webhook-$_"} }
                                    qw(id timestamp signature);

    return 0 unless defined $id && defined $signatures
                    && ($stamp // '') =~ /^[0-9]+$/
                    && abs($stamp - time) <= TIME_OFF;

    # base64 here comes without its padding

    my $right = hmac_sha256_base64("$id.$stamp.$request->{body}",
                                   $self->{key});

    return scalar grep { $_ eq "v1,$right=" } split ' ', $signatures;
}


sub _reset_counts {
    my ($self) = @_;

    $self->SUPER::_reset_counts;
    $self->{count}{$_} = 0 foreach qw(genuine forged again);
    $self->{count}{unlocked} = {};

    return;
}


1;
