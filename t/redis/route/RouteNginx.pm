package RouteNginx;

# An nginx whose only work is one store: see ngx_iap_route_test.c.
#
#   my $nginx = RouteNginx->new(binary => $file, mode => 'cluster',
#                               node => ['127.0.0.1:6379', ...]);
#   my $outcomes = $nginx->decide('key', 'other');      # "AA"
#   my %nodes = $nginx->nodes;

use strict;
use warnings;

use Time::HiRes qw(sleep);

use IapGuard::Loop;

use parent -norequire, 'LinkNginx';

my $id = 0;


sub options { return qw(mode node master_name timeout password resolver) }


# The outcomes of a decision, and its milliseconds

sub decide {
    my ($self, @keys) = @_;

    $self->tell("decide " . ++$id . " @keys");
    my $line = $self->line(qr/^done $id /);
    return wantarray ? ('nothing', -1) : 'nothing' unless defined $line;

    my @words = split / /, $line;
    return wantarray ? @words[2, 3] : $words[2];
}


# [admitted, refused, broken] of so many decisions, each with a key of its own

sub many {
    my ($self, $n, $window, $key) = @_;

    $self->tell("many $n $window $key");
    my $line = $self->line(qr/^many /, 60);

    return [defined $line ? (split / /, $line)[1 .. 3] : ()];
}


# ( down => , lost => , peers => { name => { down, ready } } )

sub nodes {
    my ($self) = @_;

    $self->tell('nodes');
    my (undef, $down, $lost, @names) = split / /, $self->line(qr/^nodes /);

    return (down => $down, lost => $lost, peers => { map {
        /^([^!+]+)(!?)(\+?)$/ or die "not a node: $_\n";
        ($1 => { down => $2 ? 1 : 0, ready => $3 ? 1 : 0 })
    } @names });
}


sub peers {
    my ($self) = @_;
    my %nodes = $self->nodes;
    return join ' ', sort keys %{ $nodes{peers} };
}


# Decides until it comes out so; how long that took, or undef

sub decides_within {
    my ($self, $seconds, $outcomes, @keys) = @_;
    my $start = IapGuard::Loop::now();
    my $n = 0;

    until (IapGuard::Loop::now() > $start + $seconds) {

        # each time with fresh keys, if "%d" is in them

        $n++;
        return IapGuard::Loop::now() - $start
            if $self->decide(map { s/%d/$$-$n/r } @keys) eq $outcomes;

        sleep 0.01;
    }

    return undef;
}


1;
