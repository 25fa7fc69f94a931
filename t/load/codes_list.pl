#!/usr/bin/perl

# Counting all codes anew takes as long as they have units, and nobody waits for
# it: not those who redeem, nor it for those who hold the file.
#
#   --units=N    of the campaign (200000)

use strict;
use warnings;

use File::Temp ();
use Getopt::Long qw(:config pass_through);
use Test::More;
use Time::HiRes ();

use IapGuard::Child;
use IapGuard::CodeTest;
use IapGuard::LoadClient;
use IapGuard::Loop;
use IapGuard::Nginx;

use constant { ROUNDS => 3, SECONDS => 1.5, LISTS => 2, REDEEM => 4,
               HELD => 3 };

my $units = 200_000;
GetOptions('units=i' => \$units);

my %paths = IapGuard::Nginx->options;
my $test  = IapGuard::CodeTest->new(paths => \%paths, workers => 1,
                                    code => 'lease=30s');
my $nginx = $test->nginx;
my $users = 0;

$test->stock('BIG', 1_000_000_000);
$test->stock('SMALL', 1_000_000);
fill('BIG', $units);

held();

is $test->audit('BIG', 1)->{difference}, 0, 'the file has a large campaign';

at_once();

$test->end;
done_testing;


# Units that were sold, as src/event/ngx_iap_file_schema.c has them

sub fill {
    my ($code, $n) = @_;
    my $folder = File::Temp->newdir('iap_guard-XXXXXX', TMPDIR => 1);
    my $now    = int(1000 * Time::HiRes::time());
    my $of     = "(SELECT id FROM codes WHERE code = '$code')";

    open my $source, '>', "$folder/sql.c" or die "$folder: $!\n";
    print {$source} <<'END';
#include <sqlite3.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    sqlite3  *db;
    char     *why = NULL;

    if (argc != 3 || sqlite3_open(argv[1], &db) != SQLITE_OK) {
        return 1;
    }

    sqlite3_busy_timeout(db, 10000);

    if (sqlite3_exec(db, argv[2], NULL, NULL, &why) != SQLITE_OK) {
        fprintf(stderr, "%s\n", why);
        return 1;
    }

    return sqlite3_close(db) != SQLITE_OK;
}
END
    close $source or die "$folder: $!\n";

    system('cc', '-O1', '-Wall', '-Werror', '-o', "$folder/sql",
           "$folder/sql.c", '-lsqlite3') == 0
        or BAIL_OUT('it does not compile');
    system("$folder/sql", $nginx->file('ledger/ledger.db'), <<"END") == 0
        BEGIN;
        WITH RECURSIVE k (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM k
                                 WHERE i < $n)
        INSERT INTO units (code, n, token, user, state, unknown_sold, made,
                           lease, until, status)
            SELECT $of, i, printf('%026d', i), 'user-' || printf('%032d', i), 3,
                   1, $now, 30000, $now + 80000000, 200 FROM k;
        UPDATE codes SET sold = $n, units = $n WHERE code = '$code';
        COMMIT;
END
        or BAIL_OUT('it can\'t be filled');

    return;
}


sub list_request {
    return { method => 'GET', path => '/iap_guard/codes',
             headers => { Authorization => 'Bearer ' . $nginx->token } };
}


# Somebody holds the lock, and a submission of this worker waits for it; not so the
# list, for which the file is opened once more

sub held {
    my $loop   = IapGuard::Loop->new;
    my $client = IapGuard::LoadClient->new(loop => $loop, timeout => 10,
        port => $nginx->port, connections => 4);
    my $pid    = $test->hold_file(HELD);
    my %at;
    my $from = IapGuard::Loop::now();
    my $came = sub {
        my ($what) = @_;
        return sub {
            is $_[0]{status}, 200, "held: $what";
            $at{$what} = IapGuard::Loop::now() - $from;
        };
    };

    $client->request($test->request('SMALL', 'held'), $came->('redeemed'));
    $loop->run_until(sub { IapGuard::Loop::now() > $from + 0.2 });
    $client->request(list_request(), $came->('listed'));
    $loop->run_until(sub { 2 == keys %at });
    waitpid $pid, 0;

    cmp_ok $at{redeemed}, '>=', HELD - 0.5, 'held: one has to wait';
    cmp_ok $at{listed}, '<', HELD - 1, 'held: the list does not';
    $client->shut;

    return;
}


# Milliseconds of all of them, in order: { redeem => [...], list => [...] }

sub measure {
    my (%how_many) = @_;
    my $loop   = IapGuard::Loop->new;
    my $client = IapGuard::LoadClient->new(loop => $loop, timeout => 30,
        port => $nginx->port, connections => 16);
    my $until = IapGuard::Loop::now() + SECONDS;
    my $left  = 0;
    my (%ms, %next, %wrong);

    foreach my $what (keys %how_many) {
        $next{$what} = sub {
            my $from = IapGuard::Loop::now();
            return if $from > $until;

            $left++;
            $client->request($what eq 'list' ? list_request()
                             : $test->request('SMALL', 'u' . ++$users), sub {
                $left--;
                $wrong{ $_[0]{status} || $_[0]{error} }++ if ($_[0]{status} || 0) != 200;
                push @{ $ms{$what} }, 1000 * (IapGuard::Loop::now() - $from);
                $next{$what}->();
            });
        };

        $next{$what}->() foreach 1 .. $how_many{$what};
    }

    $loop->run_until(sub { !$left });
    $client->shut;
    is_deeply \%wrong, {}, 'at once: all is answered';
    %next = ();

    return { map { $_ => [sort { $a <=> $b } @{ $ms{$_} }] } keys %ms };
}


sub median { return $_[0][ @{ $_[0] } / 2 ] }


# A submission takes two looks into the file.  If each had to wait for a list it
# would take longer than one.

sub at_once {
    my @shares;

    foreach (1 .. ROUNDS) {
        my $alone = measure(redeem => REDEEM);
        my $both  = measure(redeem => REDEEM, list => LISTS);

        note sprintf 'at once: %d redeemed, median %.1f ms; with lists %d, median'
            . ' %.1f ms; %d lists, median %.1f ms', scalar @{ $alone->{redeem} },
            median($alone->{redeem}), scalar @{ $both->{redeem} },
            median($both->{redeem}), scalar @{ $both->{list} },
            median($both->{list});

        push @shares, median($both->{redeem}) / median($both->{list});
    }

    my ($least) = sort { $a <=> $b } @shares;
    cmp_ok $least, '<', 0.9, 'at once: who redeems does not wait for a list';

    return;
}
