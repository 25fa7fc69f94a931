package KeeperTest;

# What the tests of the keeper are made of.  A file of tests says
#
#   test name => sub { ... };
#
# and is read by `run`, which then runs them.

use strict;
use warnings;

use File::Basename qw(dirname);
use lib dirname(__FILE__) . '/../../redis/link';

use Exporter qw(import);
use Fcntl qw(:flock);
use File::Temp ();
use Test::More;

use IapGuard::Loop;
use LinkNginx;
use KeeperNginx;

our @EXPORT = qw(test ends_well folder hold nginx now release seconds_until);

our @tests;
our $binary;


sub test { push @tests, [@_]; return }

sub now { return IapGuard::Loop::now() }


# A folder that workers of any user may write to

sub folder {
    my $folder = File::Temp->newdir('iap_keeper-XXXXXX', TMPDIR => 1);
    chmod 0777, $folder->dirname;
    return $folder;
}


sub nginx {
    my ($folder, %options) = @_;

    return KeeperNginx->new(binary => $binary, level => 'debug',
                            path => "$folder/ledger.db", %options);
}


# The lock of all writers, as somebody has it who takes his time

sub hold {
    my ($folder) = @_;

    open my $lock, '+<', "$folder/ledger.lock" or die "ledger.lock: $!\n";
    flock $lock, LOCK_EX or die "flock: $!\n";
    return $lock;
}

sub release { return close $_[0] }


# Asks until it is so; the seconds that took, or undef

sub seconds_until {
    my ($seconds, $so) = @_;
    my $start = now();

    until ($so->()) {
        return undef if now() > $start + $seconds;
        select undef, undef, undef, 0.02;
    }

    return now() - $start;
}


sub ends_well {
    my ($nginx, @expected) = @_;
    my @complaints = $nginx->end(@expected);

    ok !@complaints, 'it ends well' or diag(@complaints);
    return;
}


1;
