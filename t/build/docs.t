#!/usr/bin/perl

# The configurations that the documentation shows are what nginx accepts.
# Run by build.sh, which says which nginx and which module.

use strict;
use warnings;

use FindBin;
use Test::More tests => 1;

my @command = ($^X, "$FindBin::Bin/docs.pl",
               '--nginx=' . ($ENV{TEST_NGINX_BINARY} // 'nginx'),
               '--module=' . ($ENV{TEST_NGINX_LOAD_MODULES} // ''));

open my $pipe, '-|', 'sh', '-c', 'exec "$@" 2>&1', 'sh', @command
    or die "$command[1]: $!\n";
my $words = do { local $/; <$pipe> } // '';
close $pipe;

is $?, 0, 'nginx accepts what the documentation shows';
($? ? \&diag : \&note)->($words);
