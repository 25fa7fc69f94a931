package StockNginx;

# An nginx whose only work is a ledger in Redis, with a file as its spool and
# journal: see ngx_iap_stock_test.c.
#
#   my $nginx = StockNginx->new(binary => $file, mode => 'single',
#                               node => ['127.0.0.1:6379'], path => $path);
#   $nginx->ask('edit', 'set:SPRING:10:0');     # ("ok", ...)
#   my $id = $nginx->start('reserve', 'SPRING', 'ann', 1);  # not waited for
#   my @words = $nginx->result($id);

use strict;
use warnings;

use parent -norequire, 'LinkNginx';

my $id = 0;


sub options {
    return qw(mode node master_name timeout password resolver watch
              file_timeout path);
}


sub start {
    my ($self, $what, @words) = @_;

    $self->tell(join ' ', $what, ++$id, @words);
    return $id;
}


sub result {
    my ($self, $of, $seconds) = @_;

    my $line = $self->line(qr/^done $of /, $seconds);
    return ('nothing') unless defined $line;

    my (undef, undef, @words) = split / /, $line;
    return @words;
}


sub ask {
    my ($self, @words) = @_;
    return $self->result($self->start(@words), 30);
}


# the words, as one text

sub says { my ($self, @words) = @_; return join ' ', $self->ask(@words) }


# Makes it so that a code has so many units

sub set {
    my ($self, $code, $units) = @_;
    return ($self->ask('edit', "set:$code:$units:0"))[0];
}

sub reserve {
    my ($self, $code, $user, $number, @more) = @_;
    return $self->says('reserve', $code, $user, $number, @more);
}

sub unit {
    my ($self, $code, $number, $event, @more) = @_;
    return $self->says('unit', $code, $number, $event, @more);
}


# "initial sold reserved/difference"

sub numbers {
    my ($self, $code) = @_;
    my ($result, @n) = $self->ask('audit', $code, 1000);

    return $result eq 'ok' ? "$n[0] $n[1] $n[2]/$n[3]" : $result;
}


# "number:state ..."

sub units {
    my ($self, $code, $count) = @_;
    my ($result, @words) = $self->ask('audit', $code, $count // 1000);

    return join ' ', @words[8 .. $#words];
}


sub noted { return ($_[0]->ask('notes'))[1] }

# whether it is known that there are none

sub knows { return $_[0]->says('notes') eq 'ok 0 0' }


1;
