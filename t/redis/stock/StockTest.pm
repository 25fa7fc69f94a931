package StockTest;

# What the tests of promo codes in the shared ledger are made of; see LinkTest
# for `test`.

use strict;
use warnings;

use File::Basename qw(dirname);
use lib dirname(__FILE__) . '/../link';

use Exporter qw(import);
use File::Temp ();
use Test::More;
use Time::HiRes ();

use IapGuard::RedisServer;
use LinkTest ();
use LinkNginx;
use StockNginx;

our @EXPORT = qw(test between now folder nginx redis until_so ends_well);
our $binary;

BEGIN {
    no strict 'refs';
    *{$_} = \&{"LinkTest::$_"} foreach qw(test between now);
}


sub folder {
    my $folder = File::Temp->newdir('iap_stock-XXXXXX', TMPDIR => 1);
    chmod 0777, $folder->dirname;
    return $folder;
}


sub nginx {
    my ($folder, @options) = @_;

    my $nginx = StockNginx->new(binary => $binary, mode => 'single',
                                path => "$folder/ledger.db", @options);

    # until it has looked into its journal, all is noted

    until_so(10, sub { $nginx->knows });

    return $nginx;
}


# A server that may have stock

sub redis {
    my (@options) = @_;

    return IapGuard::RedisServer->new(options => [
        '--appendonly', 'yes', '--appendfsync', 'everysec', @options ]);
}


# Asks until it is so; the seconds that took, or undef

sub until_so {
    my ($seconds, $so) = @_;
    my $start = now();

    until ($so->()) {
        return undef if now() > $start + $seconds;
        Time::HiRes::sleep(0.02);
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
