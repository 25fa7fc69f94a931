# What nginx -t refuses, and that it makes nothing.

use strict;
use warnings;

use File::Temp ();
use Test::More;

use KeeperTest;

my $NOBODY = 65534;


# exit status and what is said

sub check {
    my ($path, $user) = @_;
    my $folder = File::Temp->newdir('iap_check-XXXXXX', TMPDIR => 1);
    my $conf = $folder->dirname . '/nginx.conf';

    open my $out, '>', $conf or die "$conf: $!\n";
    print {$out} 'pid ', $folder->dirname, "/nginx.pid;\nevents {}\n",
                 defined $user ? "test_user $user;\n" : '',
                 "test_path \"$path\";\n";
    close $out;

    my $said = qx{ASAN_OPTIONS=detect_leaks=0 $KeeperTest::binary \\
                  -t -c $conf -e stderr 2>&1};
    return ($? >> 8, $said);
}


sub passes {
    my ($path, $user, $name) = @_;
    my ($exit, $said) = check($path, $user);
    is $exit, 0, $name or diag($said);
    return;
}


sub refused {
    my ($path, $user, $why, $name) = @_;
    my ($exit, $said) = check($path, $user);
    is $exit, 1, $name;
    like $said, qr/\[emerg\].*$why/, "$name: it is said why";
    return;
}


sub write_file {
    my ($path, $bytes) = @_;
    open my $out, '>', $path or die "$path: $!\n";
    print {$out} $bytes;
    close $out;
    return;
}


test check => sub {
    my $folder = folder();
    my $dir = $folder->dirname;

    passes("$dir/ledger.db", undef, 'a folder that is empty');
    passes("$dir/ledger.db", $NOBODY, 'which anybody may write to');
    passes("$dir/ledger", undef, 'any name will do');
    is_deeply [ glob "$dir/*" ], [], 'nothing was made';

    refused('ledger.db', undef, 'invalid path "ledger.db"', 'no whole path');
    refused("$dir/", undef, 'invalid path', 'the path of a folder');
    refused($dir, undef, 'not a regular file', 'a folder');
    refused("$dir/no/ledger.db", undef,
            'its folder "\S+/no" can\'t be found.*No such file', 'no folder');

    write_file("$dir/file", '');
    refused("$dir/file/ledger.db", undef, '"\S+/file" is no folder',
            'a file in place of a folder');

    write_file("$dir/text.db", 'x' x 4096);
    refused("$dir/text.db", undef, 'it is not a database', 'a text');

    my $head = "SQLite format 3\0" . "\0" x 84;
    substr $head, 68, 4, pack 'N', 0x69617067;
    substr $head, 60, 4, pack 'N', 1000;
    write_file("$dir/later.db", $head);
    refused("$dir/later.db", undef, 'it is of version 1000, expected \d+ at most',
            'a file of a later version');

    substr $head, 60, 4, pack 'N', 1;
    write_file("$dir/present.db", $head);
    passes("$dir/present.db", undef, 'one of an earlier version');

    substr $head, 68, 4, pack 'N', 1;
    write_file("$dir/other.db", $head);
    refused("$dir/other.db", undef, 'a database of something else',
            'somebody else\'s');

    mkdir "$dir/locked.lock";
    refused("$dir/locked.db", undef, '"\S+locked.lock" is not a regular file',
            'a lock that can\'t be');
    mkdir "$dir/drained.drain";
    refused("$dir/drained.db", undef, '"\S+drained.drain" is not',
            'nor the drain\'s');
};


# As root, of workers that are not

test check_rights => sub {
    plan skip_all => 'it takes root to look for others' if $> != 0;

    my $folder = folder();
    my $dir = $folder->dirname;

    mkdir "$dir/mine", 0755;
    refused("$dir/mine/ledger.db", $NOBODY,
            "the user of the workers \\($NOBODY\\) may not write to the folder",
            'a folder that workers can\'t write to');
    passes("$dir/mine/ledger.db", 0, 'which root can');
    passes("$dir/mine/ledger.db", undef, 'and which nothing is known of');

    mkdir "$dir/closed", 0700;
    mkdir "$dir/closed/open";
    chmod 0777, "$dir/closed/open";
    refused("$dir/closed/open/ledger.db", $NOBODY, 'may not enter the folder '
            . '"\S+/closed"', 'a folder that they don\'t get to');

    write_file("$dir/ledger.db", '');
    chmod 0600, "$dir/ledger.db";
    refused("$dir/ledger.db", $NOBODY, 'may not write to "\S+/ledger.db"',
            'a file of root\'s');
    chown $NOBODY, -1, "$dir/ledger.db";
    passes("$dir/ledger.db", $NOBODY, 'of theirs');

    write_file("$dir/ledger.db-wal", '');
    refused("$dir/ledger.db", $NOBODY, 'may not write to "\S+/ledger.db-wal"',
            'a log that root has left there');
    unlink "$dir/ledger.db-wal";

    write_file("$dir/ledger.lock", '');
    refused("$dir/ledger.db", $NOBODY, 'may not write to "\S+/ledger.lock"',
            'or a lock');

    my (undef, undef, undef, $group) = getpwuid $NOBODY;
    chown -1, $group, "$dir/ledger.lock";
    chmod 0660, "$dir/ledger.lock";
    passes("$dir/ledger.db", $NOBODY, 'one of their group\'s');
};


1;
