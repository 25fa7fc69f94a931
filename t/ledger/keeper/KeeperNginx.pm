package KeeperNginx;

# An nginx whose only work is a ledger in a file: see
# ngx_iap_keeper_test.c.
#
#   my $nginx = KeeperNginx->new(binary => $file, path => "$folder/l.db");
#   my @words = $nginx->ask('put', 'ann', 1);       # ("ok")
#   my $id = $nginx->start('find', 1);              # not waited for
#   @words = $nginx->result($id);

use strict;
use warnings;

use parent -norequire, 'LinkNginx';

my $id = 0;


sub options { return qw(user timeout path) }


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
    return $self->result($self->start(@words));
}


1;
