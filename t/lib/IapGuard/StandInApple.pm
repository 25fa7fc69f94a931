package IapGuard::StandInApple;

=head1 NAME

IapGuard::StandInApple - a stand-in for Apple's verification

=head1 WHAT IT PROMISES

All that L<IapGuard::StandIn> does.  Its good answer is verifyReceipt's: status
0 with a receipt of the environment it stands for (C<environment>, default
Production).  To its modes it adds

    json    status (21005)     Apple's trouble inside HTTP 200
            is_retryable       true, false, 0, 1, "0" or "1": sent as it is
            spelling           of that flag (is-retryable)
            http (200)         the HTTP status
            fields             more members, or instead: with
                               "status":null there is no status at all

so that

    {"mode":"json","status":21002}
    {"mode":"json","status":21199,"is_retryable":true}
    {"mode":"json","status":null,"http":404,
     "fields":{"errorCode":4040010,"errorMessage":"Transaction not found."}}

are a malformed receipt, an internal error that may be retried, and an
answer of the App Store Server API.

=cut

use strict;
use warnings;

use parent 'IapGuard::StandIn';


sub new {
    my ($class, %options) = @_;
    my $self = $class->SUPER::new(%options);

    $self->{environment} = $options{environment} || 'Production';

    return $self;
}


sub name  { return 'apple' }
sub modes { return { json => \&_json } }


sub good {
    my ($self) = @_;

    return {
        status      => 0,
        environment => $self->{environment},
        receipt     => {
            receipt_type => $self->{environment},
            bundle_id    => 'com.example.app',
            in_app       => [ { product_id     => 'com.example.app.month',
                                transaction_id => '1000000000000001' } ],
        },
    };
}


sub _json {
    my ($self, $reply, $how) = @_;
    my %body = (environment => $self->{environment});
    my $flag = $how->{spelling} || 'is-retryable';

    $body{status} = $how->{status} + 0 if defined $how->{status};
    $body{status} = 21005              if !exists $how->{status};
    $body{$flag}  = $how->{is_retryable} if exists $how->{is_retryable};

    return $self->answer($reply, $how->{http} || 200, {},
                         { %body, %{ $how->{fields} || {} } });
}


1;
