package CurlNginx;

# An nginx whose only work are calls through libcurl: see
# ngx_iap_curl_test.c.
#
#   my $nginx = CurlNginx->new(binary => $file, use => 'poll', limit => 8);
#   my $done = $nginx->call(1, 'POST', $url, 'data={}');
#   $done->{transport}, {status}, {ms}, {len}, {crc}, {retry_after}, {encoded},
#         {error}; or {declined}
#   $nginx->tell("send 2 GET $url");
#   my $later = $nginx->ended(2, 10);       # seconds; undef: it has not

use strict;
use warnings;

use File::Basename qw(dirname);

use lib dirname(__FILE__) . '/../redis/link';

use parent 'LinkNginx';


sub options { return qw(limit tls_ca threads) }


sub new {
    my ($class, %options) = @_;
    return $class->SUPER::new(threads => 'default', %options);
}


sub call {
    my ($self, $id, @words) = @_;
    $self->tell("send $id @words");
    return $self->ended($id);
}


sub ended {
    my ($self, $id, $seconds) = @_;

    my $line = $self->line(qr/^done $id /, $seconds);
    return undef unless defined $line;

    my %done;
    (undef, undef, @done{qw(transport status ms len crc retry_after encoded
                            error)}) = split / /, $line, 10;

    $done{declined} = 1 if $done{transport} eq 'declined';

    return \%done;
}


# How many of so many calls ended how

sub burst {
    my ($self, $n, $window, $len, $url, $seconds) = @_;
    my %ended;

    $self->tell("burst $n $window $len $url");

    foreach (1 .. 6) {
        my $line = $self->line(qr/^burst/, $seconds || 60);
        last unless defined $line;

        my (undef, $transport, $count) = split / /, $line;
        $ended{$transport} = $count if $count;
    }

    return \%ended;
}


# Milliseconds that nginx was late by, since this was last asked

sub lag {
    my ($self) = @_;

    $self->tell('lag');
    return (split / /, $self->line(qr/^lag/))[1];
}


sub stat {
    my ($self) = @_;

    $self->tell('stat');
    return (split / /, $self->line(qr/^stat/))[1, 2];
}

1;
