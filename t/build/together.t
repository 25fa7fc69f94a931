#!/usr/bin/perl

# IapGuard::Together tells of each scenario what it has said, and fails where it
# came to no end.

use strict;
use warnings;

use FindBin;
use File::Temp ();
use Test::More;

my $folder = File::Temp->newdir('iap_guard-XXXXXX', TMPDIR => 1);

open my $out, '>', "$folder/x.pl" or die "$!\n";
print {$out} <<'END';
use strict;
use warnings;
use Test::More;
use IapGuard::Together;

IapGuard::Together->run(2,
    well   => sub { ok 1, 'a'; note 'noted'; ok 1, 'b' },
    skips  => sub { SKIP: { skip 'no g', 1; fail 'g' } ok 1, 'h' },
    bad    => sub { is 1, 2, 'c'; ok 1, 'd' },
    dies   => sub { ok 1, 'e'; die "no more\n" },
    killed => sub { ok 1, 'f'; kill 'KILL', $$ },
    empty  => sub { });
END
close $out;


sub run {
    my (@names) = @_;
    my @command = ($^X, "-I$FindBin::Bin/../lib", "$folder/x.pl", @names);
    my $text = do { local $/; open my $p, '-|', 'sh', '-c', 'exec "$@" 2>&1',
                    'sh', @command or die "$!\n"; my $t = <$p>; close $p; $t };

    return ($? >> 8, $text);
}


my ($rc, $text) = run('well');

is $rc, 0, 'one alone: passes';
like $text, qr/^ok 1 - a\n# noted\nok 2 - b\n1\.\.2\n\z/, 'as it is';

($rc, $text) = run();

is join(' ', sort $text =~ /^ok \d+ - (\w)$/mg), 'a b d e f h',
    'all: what is well';
is join(' ', sort $text =~ /^not ok \d+ - (.*)$/mg),
    'c dies came to its end empty came to its end killed came to its end',
    'all: what is not';
is $rc, 4, 'all: which is counted';
like $text, qr/^ok \d+ # skip no g$/m, 'all: what was left out';
like $text, qr/^# +got: '1'$/m, 'all: why it failed';
like $text, qr/^# no more$/m, 'all: why it died';
like $text, qr/^1\.\.11$/m, 'all: one plan';

($rc, $text) = run('nothing');
isnt $rc, 0, 'none of that name';
like $text, qr/no scenario "nothing" in: well skips bad/, 'which is said';

done_testing;
