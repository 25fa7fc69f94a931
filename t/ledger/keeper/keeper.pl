# Operations, from being submitted to being told of, and what becomes of those
# that take too long.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(sleep);

use KeeperTest;


my $LATE = qr/ledger takes longer than its timeout/;
my $DOWN = qr/ledger "\S+" can't be used, nothing is queued/;
my $WELL = qr/ledger "\S+" can be used again/;


test operations => sub {
    my $folder = folder();
    my $nginx = nginx($folder);

    is_deeply [ $nginx->ask('put', 'ann', 1) ], ['ok'], 'put';
    is_deeply [ $nginx->ask('put', 'ann', 1) ], ['duplicate'], 'twice';
    is_deeply [ $nginx->ask('find', 1) ], [qw(ok pending)], 'find';
    is_deeply [ $nginx->ask('find', 2) ], ['none'], 'find none';
    is_deeply [ $nginx->ask('take', 1, 9) ], [qw(ok 1 1:1)], 'take';
    is_deeply [ $nginx->ask('settle', 1, 1, 1) ], ['ok'], 'settle';
    is_deeply [ $nginx->ask('settle', 1, 1, 1) ], ['none'], 'once';
    is_deeply [ $nginx->ask('find', 1) ], [qw(ok verified)], 'it is verified';
    is_deeply [ $nginx->ask('count') ], [qw(ok 0 1 0 0 0)], 'count';

    is scalar $nginx->log_lines(qr/\[notice\].*ledger.db" was made/), 1,
       'it is said that there was no file';
    ends_well($nginx);
};


# What comes together is committed together, in order

test groups => sub {
    my $folder = folder();
    my $nginx = nginx($folder);
    my $n = 2000;

    $nginx->ask('find', 1);
    my $before = $nginx->log_lines(qr/ledger group of/);

    $nginx->tell("burst $n 64");
    is $nginx->line(qr/^burst/, 30), "burst $n 0 0", 'all are put';

    my $groups = $nginx->log_lines(qr/ledger group of/) - $before;
    cmp_ok $groups, '<', $n / 8, "$n puts, 64 at once, are $groups commits";

    my @ids = ($nginx->start('find', 7), $nginx->start('put', 'ann', 7),
               $nginx->start('find', 7));
    is_deeply [ map { ($nginx->result($_))[0] } @ids ], [qw(none ok ok)],
              'in the order in which they were submitted';

    ends_well($nginx);
};


# While somebody has the lock: a put that is in its thread, and one that waits

test late => sub {
    my $folder = folder();
    my $nginx = nginx($folder, timeout => '300ms');

    is_deeply [ $nginx->ask('put', 'ann', 1) ], ['ok'], 'put';
    is_deeply [ $nginx->ask('take', 1, 9) ], [qw(ok 1 1:1)], 'take';

    my $lock = hold($folder);
    my $start = now();
    my $first = $nginx->start('put', 'bob', 2);
    sleep 0.1;
    my $second = $nginx->start('put', 'bob', 3);
    my $settle = $nginx->start('settle', 1, 1, 1);
    my $find = $nginx->start('find', 1);

    is_deeply [ $nginx->result($first) ], ['late'], 'late';
    my $took = now() - $start;
    cmp_ok $took, '>=', 0.29, 'not before its time';
    cmp_ok $took, '<', 1, 'nor long after it';
    is_deeply [ $nginx->result($second) ], ['late'], 'one that waits';
    is_deeply [ $nginx->result($settle) ], ['late'], 'a settlement';
    is_deeply [ $nginx->result($find) ], ['late'], 'a look';

    release($lock);
    is_deeply [ $nginx->ask('find', 2) ], [qw(ok pending)],
              'what was begun is done all the same';
    is_deeply [ $nginx->ask('find', 3) ], ['none'], 'what was not is dropped';
    is_deeply [ $nginx->ask('find', 1) ], [qw(ok verified)],
              'but for what nobody would say again';

    is scalar $nginx->log_lines($LATE), 1, 'the log says it, once';
    ends_well($nginx, $LATE);
};


# What it has leased would be nobody's

test late_take => sub {
    my $folder = folder();
    my $nginx = nginx($folder, timeout => '300ms');

    $nginx->ask('put', 'ann', $_) foreach 1 .. 3;

    my $lock = hold($folder);
    my $take = $nginx->start('take', 1, 9);
    is_deeply [ $nginx->result($take) ], ['late'], 'late';
    release($lock);

    my @words;
    ok seconds_until(5, sub {
        @words = $nginx->ask('take', 1, 9);
        return $words[1] && $words[1] > 0;
    }), 'the same session can take it';
    is_deeply \@words, [qw(ok 3 1:1 2:1 3:1)], 'all of it, as if it had not';

    ends_well($nginx, $LATE);
};


# Nobody waits for the unit any more: it would be sold when its lease is over

test late_reserve => sub {
    my $folder = folder();
    my $nginx = nginx($folder, timeout => '300ms');

    is_deeply [ $nginx->ask('stock', 'C', 3) ], ['ok'], 'a code';
    is_deeply [ $nginx->ask('reserve', 'C', 1) ], [qw(ok 0)], 'a unit';
    is_deeply [ $nginx->ask('reserve', 'C', 2) ], [qw(ok 0)], 'another';

    my $lock = hold($folder);
    my $reserve = $nginx->start('reserve', 'C', 3);
    sleep 0.1;
    my @rest = ($nginx->start('reserve', 'C', 4),
                $nginx->start('unit', 'C', 1, 0),
                $nginx->start('unit', 'C', 2, 3));
    is_deeply [ $nginx->result($_) ], ['late'], 'late'
        foreach $reserve, @rest;
    release($lock);

    my @words;
    ok seconds_until(5, sub {
        @words = $nginx->ask('code', 'C');
        return $words[1] && $words[1] == 1 && $words[2] == 1;
    }), 'what was reserved too late is released, what was sold is sold'
        or diag "@words";
    is_deeply [ $nginx->ask('reserve', 'C', 3) ], ['failed'],
              'by its own token';
    is_deeply [ $nginx->ask('reserve', 'C', 4) ], [qw(ok 0)],
              'what was not begun is not known';

    ends_well($nginx, $LATE);
};


# A file that can't be used: each fails at once, and the log says it once

test down => sub {
    my $folder = folder();
    my $nginx = nginx($folder);
    my @results;

    is_deeply [ $nginx->ask('put', 'ann', 1) ], ['ok'], 'put';

    rename "$folder/ledger.db", "$folder/elsewhere.db";
    mkdir "$folder/ledger.db";
    push @results, $nginx->ask('put', 'ann', $_) foreach 100 .. 400;
    is_deeply [ grep { $_ ne 'failed' } @results ], [], 'all fail';
    sleep 1.1;
    push @results, $nginx->ask('put', 'ann', $_) foreach 500 .. 600;
    is_deeply [ grep { $_ ne 'failed' } @results ], [], 'and go on failing';

    my @said = $nginx->log_lines($DOWN);
    is @said, 2, 'said once for each reason' or diag @said;
    like $said[0], qr/removed or replaced while in use/, 'it is gone';
    like $said[1], qr/not a regular file/, 'and something else is there';

    rmdir "$folder/ledger.db";
    rename "$folder/elsewhere.db", "$folder/ledger.db";
    ok seconds_until(5, sub { ($nginx->ask('put', 'ann', 700))[0] ne 'failed' }),
       'it is back';
    ok seconds_until(5, sub {
        $nginx->ask('put', 'ann', 700 + int rand 1e6);
        return scalar $nginx->log_lines($WELL);
    }), 'which is said, too';
    is_deeply [ $nginx->ask('find', 1) ], [qw(ok pending)], 'nothing is lost';

    is scalar $nginx->log_lines($WELL), 1, 'once';
    ends_well($nginx, $DOWN, $WELL);
};


# RETRY of more than is done at once: others are served in between

test rounds => sub {
    my $folder = folder();
    my $nginx = nginx($folder, level => 'info');

    $nginx->tell('burst 1500 200');
    is $nginx->line(qr/^burst/, 30), 'burst 1500 0 0', 'many';
    is_deeply [ $nginx->ask('judge', 1, 4) ], [qw(ok 1500)], 'all are dead';

    my $retry = $nginx->start('retry');
    my $find = $nginx->start('nothing');
    $nginx->result($find);
    my $put = $nginx->start('put', 'ann', 1);
    my $first = $nginx->line(qr/^done (?:$retry|$put) /);
    like $first, qr/^done $put /, 'a put need not wait for all of them';
    is_deeply [ $nginx->result($retry) ], [qw(ok 1500)], 'all are told at once';
    is_deeply [ $nginx->ask('count') ], [qw(ok 1501 0 0 0 0)], 'all pend';

    ends_well($nginx);
};


test quit => sub {
    my $folder = folder();
    my $nginx = nginx($folder, master => 1);

    $nginx->ask('put', 'ann', $_) foreach 1 .. 5;
    is_deeply [ $nginx->ask('take', 7, 3) ], [qw(ok 3 1:1 2:1 3:1)], 'leases';
    $nginx->tell('leave 7');
    $nginx->ask('nothing');

    # what is under way is waited for

    my $lock = hold($folder);
    my $put = $nginx->start('put', 'bob', 6);
    sleep 0.1;
    kill 'QUIT', $nginx->pid;
    sleep 0.3;
    release($lock);
    is_deeply [ $nginx->result($put) ], ['ok'], 'it is still told';

    is $nginx->wait_for_end(5), 0, 'QUIT ends it';
    delete $nginx->{pid};
    is_deeply [ $nginx->log_lines(qr/\[(?:alert|error)\]|Sanitizer/) ], [],
              'without a complaint';

    $nginx = nginx($folder);
    is_deeply [ $nginx->ask('take', 7, 9) ],
              [qw(ok 6 1:1 6:1 2:1 3:1 4:1 5:1)],
              'what was leased was handed back';
    ends_well($nginx);
};


# In a hurry: what has begun ends, the rest is done as far as it must be

test term => sub {
    my $folder = folder();
    my $nginx = nginx($folder, master => 1);

    $nginx->ask('put', 'ann', $_) foreach 1 .. 2;
    $nginx->ask('take', 7, 9);
    $nginx->ask('stock', 'C', 3);
    $nginx->ask('reserve', 'C', 1);
    $nginx->tell('leave 7');

    my $lock = hold($folder);
    $nginx->start('put', 'bob', 3);
    sleep 0.1;
    $nginx->start('settle', 7, 1, 1);
    $nginx->start('unit', 'C', 1, 0);
    $nginx->start('reserve', 'C', 2);
    $nginx->start('put', 'bob', 4);
    $nginx->start('take', 7, 9);
    $nginx->start('find', 1);
    $nginx->start('nothing');
    sleep 0.1;
    kill 'TERM', $nginx->pid;
    sleep 0.3;
    release($lock);

    is $nginx->wait_for_end(5), 0, 'TERM ends it';
    delete $nginx->{pid};
    is_deeply [ $nginx->log_lines(qr/\[(?:alert|error)\]|Sanitizer/) ], [],
              'without a complaint';

    $nginx = nginx($folder);
    is_deeply [ $nginx->ask('count') ], [qw(ok 3 1 0 0 0)],
              'what was asked for is there';
    is_deeply [ $nginx->ask('code', 'C') ], [qw(ok 1 0)],
              'a unit is sold, and none is reserved for nobody';
    is_deeply [ sort map { s/:1$//r } grep { /:/ } $nginx->ask('take', 7, 9) ],
              [2, 3, 4], 'and nothing is leased';
    ends_well($nginx);
};


# Workers come and go over one file

test generations => sub {
    my $folder = folder();
    my @nginx = map { nginx($folder, level => 'info') } 1 .. 3;
    my $n = 0;

    foreach my $round (1 .. 3) {
        $_->tell('burst 300 32') foreach @nginx;
        my @burst = map { $_->line(qr/^burst/, 60) } @nginx;
        is scalar(grep { (split / /)[2] == 0 } @burst), 3, 'none is late';

        my $old = shift @nginx;
        ends_well($old);
        push @nginx, nginx($folder, level => 'info');
    }

    my (undef, $pending) = $nginx[0]->ask('count');
    is $pending, 300, 'each key is there once, whoever came first';
    ends_well($_) foreach @nginx;
};


1;
