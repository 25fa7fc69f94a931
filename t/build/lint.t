#!/usr/bin/perl

# The project's own rules, each a test.

use strict;
use warnings;

use FindBin;
use lib $FindBin::Bin;

use Test::More;

use IapLint;

my $root = "$FindBin::Bin/../..";

ok IapLint::c_files($root) > 10, 'there is C to look at';

foreach my $check (IapLint::checks()) {
    my @complaints = $check->{run}->($root);

    ok !@complaints, $check->{name};
    diag $_ foreach @complaints;
}

foreach my $told (IapLint::long_functions($root)) {
    note "worth a look: $told";
}

done_testing;
