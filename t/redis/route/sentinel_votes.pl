# Which of them is believed: sentinels that differ, and masters that are none.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(sleep);

use RouteTest;

my $REPLICA = array(bulk('slave'), bulk('127.0.0.1'), ':6379',
                    bulk('connected'), ':100');
my $MASTER  = array(bulk('master'), ':100', '*0');


# What SENTINEL MASTER says, as far as it is looked at

sub epoch {
    my ($epoch) = @_;
    return raw => array(map { bulk($_) } name => 'mymaster', flags => 'master',
                        'config-epoch' => $epoch, quorum => 2);
}


# Which masters were known in so many seconds, while decisions were made

sub known_during {
    my ($nginx, $seconds) = @_;
    my $until = now() + $seconds;
    my %known;

    while (now() < $until) {
        $nginx->decide('k');
        $known{ $nginx->peers }++;
        sleep 0.02;
    }

    return join '; ', sort keys %known;
}


# One answer is late, and then all is well

sub blip {
    my ($nginx, $master) = @_;

    $master->behave('*', raw => $ADMITTED, delay => 0.3);
    my $outcome = $nginx->decide('k');
    $master->behave('*', raw => $ADMITTED);
    sleep 0.35;

    return $outcome;
}


test votes_blip => sub {
    my ($left, $master) = map { fake() } 1 .. 2;
    my @sentinels = map { sentinel($_->node) } $master, $master, $left;
    my $nginx     = sentinel_nginx(\@sentinels, timeout => '200ms');

    is $nginx->decide('k'), 'A', 'the master decides';

    foreach my $time (1 .. 3) {
        is blip($nginx, $master), 'B', "blip $time: it is late";
        is known_during($nginx, 0.5), $master->node,
           "blip $time: it stays the master";
    }

    ok asked($sentinels[2], $ASK) > 0, 'who differs was asked';
    is known_during($nginx, 4), $master->node, 'whoever is asked';
    is $left->report->{connections}, 0, 'nobody asks the other one anything';

    # not even where it is the only one that knows of another

    is scalar(() = $nginx->log_lines(qr/is now/)), 1, 'nothing has changed';

    ends_well($nginx);
};


# The one that is believed is cut off, and it is with the old master: that is
# noticed without a failure.  Each of the others would do.

test votes_stale_first => sub {
    foreach my $silent (0, 1, 2) {
        my ($left, $master) = map { fake() } 1 .. 2;
        my @sentinels = map { sentinel($_->node) } $left, $master, $master;
        $sentinels[$silent]->behave($ASK, hang => 1) if $silent;

        my $nginx = sentinel_nginx(\@sentinels, timeout => '200ms');
        is $nginx->decide('k'), 'A', "$silent: it decides";
        is $nginx->peers, $left->node, "$silent: the first one is believed";

        # with one on each side the epochs tell

        $sentinels[0]->behave('MASTER', epoch(1));
        $sentinels[$_]->behave('MASTER', epoch(2)) foreach 1, 2;

        ok waits(2, sub { $nginx->peers eq $master->node }),
           "$silent: until others are asked";
        is known_during($nginx, 1), $master->node, "$silent: for good";

        ends_well($nginx);
    }
};


# ... and likewise later: it was right when it was asked first

test votes_cut_off => sub {
    my ($old, $new) = map { fake() } 1 .. 2;
    my @sentinels = map { sentinel($old->node) } 1 .. 3;
    my $nginx     = sentinel_nginx(\@sentinels);

    is $nginx->decide('k'), 'A', 'a master';
    sleep 1.5;
    $_->behave($ASK, master_is($new->node)) foreach @sentinels[1, 2];

    my $start = now();
    ok waits(5, sub { $nginx->decide('k'); $nginx->peers eq $new->node }),
       'a new one is followed';
    cmp_ok now() - $start, '<', 3.5, 'within three seconds';

    # in one row, so that it doesn't come and go

    is known_during($nginx, 3.5), $new->node, 'and no more the old one';

    ends_well($nginx);
};


# Whoever is silent need not be waited for once most of all have said the same

test votes_most => sub {
    my ($old, $new) = map { fake() } 1 .. 2;
    my @sentinels = map { sentinel($old->node) } 1 .. 3;
    my $nginx     = sentinel_nginx(\@sentinels, timeout => '1s');

    is $nginx->decide('k'), 'A', 'a master';

    $sentinels[2]->behave($ASK, hang => 1);
    $_->behave($ASK, master_is($new->node)) foreach @sentinels[0, 1];
    $old->stop;

    my $start = now();
    ok defined $nginx->decides_within(3, 'A', 'k'), 'its successor decides';
    between(int(1000 * (now() - $start)), 0, 600, 'soon');

    ends_well($nginx, qr/redis (?:127\.0\.0\.1:\d+|store) is/);
};


# ... and those that were silent before are asked last

test votes_silent => sub {
    my ($old, $new) = map { fake() } 1 .. 2;
    my @sentinels = map { sentinel($old->node) } 1 .. 3;
    my $nginx     = sentinel_nginx(\@sentinels, timeout => '800ms');

    $sentinels[1]->behave($ASK, hang => 1);
    is $nginx->decide('k'), 'A', 'a master';
    ok waits(3, sub { asked($sentinels[2], $ASK) }), 'one is silent';
    sleep 0.2;

    $_->behave($ASK, master_is($new->node)) foreach @sentinels[0, 2];
    $old->stop;

    my $start = now();
    ok defined $nginx->decides_within(3, 'A', 'k'), 'its successor decides';
    between(int(1000 * (now() - $start)), 0, 500, 'soon');

    ends_well($nginx, qr/redis (?:127\.0\.0\.1:\d+|store) is/);
};


test votes_told => sub {
    my ($left, $master) = map { fake() } 1 .. 2;
    my @sentinels = map { sentinel($_->node) } $master, $master, $left;
    my $nginx     = sentinel_nginx(\@sentinels);

    is $nginx->decide('k'), 'A', 'a master';
    sleep 9;
    is scalar(() = $nginx->log_lines(qr/differ/)), 0,
       'they may differ for a while';

    ok waits(30, sub { $nginx->log_lines(qr/differ/) }), 'not for long';
    like join('', $nginx->log_lines(qr/differ/)),
         qr/\[warn\].*\ iap_guard\ redis:\ sentinels\ differ:
            \ \Q@{[ $sentinels[2]->node ]}\E\ names\ 127\.0\.0\.1,
            \ port\ @{[ $left->port ]},\ as\ master\ mymaster/x,
         'then it is told who says what';
    sleep 7;
    is scalar(() = $nginx->log_lines(qr/differ/)), 1, 'once';

    ends_well($nginx);
};


# One more is silent, and another one comes right, and goes wrong again

test votes_told_again => sub {
    my ($left, $master) = map { fake() } 1 .. 2;
    my @sentinels = map { sentinel($master->node) } 0 .. 4;
    $sentinels[3]->behave($ASK, hang => 1);
    $sentinels[1]->behave($ASK, master_is($left->node));

    my $nginx = sentinel_nginx(\@sentinels, timeout => '200ms');
    is $nginx->decide('k'), 'A', 'a master';

    foreach my $time (1, 2) {
        ok waits(21, sub { $nginx->decide('k'); differ_told($nginx) == $time }),
           "$time: it is told";
        $sentinels[1]->behave($ASK, master_is($master->node));
        sleep 4.5;      # all are asked
        $sentinels[1]->behave($ASK, master_is($left->node));
    }

    is differ_told($nginx), 2, 'not more often';
    ends_well($nginx);
};


sub differ_told {
    my ($nginx) = @_;
    return scalar(() = $nginx->log_lines(qr/differ/));
}


# One against one

test votes_tie => sub {
    my %epochs = (
        higher  => [[epoch(3)], [epoch(12)], 1],
        lower   => [[epoch(12)], [epoch(3)], 0],
        same    => [[epoch(7)], [epoch(7)], 0],
        refused => [[raw => "-NOPERM no\r\n"], [raw => "-NOPERM no\r\n"], 0],
        nothing => [[epoch(3)], [raw => "*0\r\n"], 0],
        odd     => [[epoch(3)], [raw => array(bulk('config-epoch'))], 0],
        text    => [[epoch(3)], [epoch('x12')], 0],
        number  => [[epoch(3)], [raw => array(bulk('config-epoch'), ':9')], 0],
        status  => [[epoch(3)], [raw => "+OK\r\n"], 0],
        silent  => [[epoch(3)], [hang => 1], 0],
        large   => [[epoch('4294967296')], [epoch('4294967297')], 1],
    );

    foreach my $name (sort keys %epochs) {
        my @masters   = map { fake() } 1 .. 2;
        my @sentinels = map { sentinel($_->node) } @masters;

        foreach my $i (0, 1) {
            $sentinels[$i]->behave('MASTER', @{ $epochs{$name}[$i] });
        }

        my $nginx = sentinel_nginx(\@sentinels, timeout => '200ms');
        is $nginx->decide('k'), 'A', "$name: a master";
        is asked($sentinels[0], 'MASTER'), 0, "$name: no epoch is needed yet";

        ok waits(2, sub { asked($sentinels[1], 'MASTER') }),
           "$name: where they differ, it is";
        sleep 0.3;
        is $nginx->peers, $masters[ $epochs{$name}[2] ]->node,
           "$name: who is believed";

        ends_well($nginx);
    }
};


# One changes its mind, on the same connection: that is news if its epoch is
# higher, or if they don't tell.  A name that was given anew has the epoch 0.

test votes_turncoat => sub {
    my %epochs = (
        'anew'             => [[epoch(0)], [epoch(0)], 0],
        'anew, after some' => [[epoch(0)], [epoch(7)], 0],
        'as old'           => [[epoch(7)], [epoch(7)], 0],
        'a failover'       => [[epoch(8)], [epoch(7)], 1],
        'the first one'    => [[epoch(1)], [epoch(0)], 1],
        'refused'          => [([raw => "-NOPERM no\r\n"]) x 2, 1],
        'only one tells'   => [[epoch(0)], [raw => "-NOPERM no\r\n"], 1],
    );

    foreach my $name (sort keys %epochs) {
        my ($turned, $others, $moves) = @{ $epochs{$name} };
        my @masters   = map { fake() } 1 .. 2;
        my @sentinels = map { sentinel($masters[0]->node) } 1 .. 3;

        my $nginx = sentinel_nginx(\@sentinels, timeout => '500ms');
        is $nginx->decide('k'), 'A', "$name: a master";
        sleep 0.5;

        $sentinels[0]->behave('MASTER', @$turned);
        $_->behave('MASTER', @$others) foreach @sentinels[1, 2];
        $sentinels[0]->behave($ASK, master_is($masters[1]->node));

        ok waits(2, sub { asked($sentinels[2], 'MASTER') }),
           "$name: epochs are asked for";
        known_during($nginx, 2.5);
        is $nginx->peers, $masters[$moves]->node, "$name: who is believed";
        is scalar(() = $nginx->log_lines(qr/is now/)), 1 + $moves,
           "$name: from the beginning";

        ends_well($nginx);
    }
};


# Such news is looked at again soon: the others may have been about to learn it

test votes_again => sub {
    my @masters   = map { fake() } 1 .. 2;
    my @sentinels = map { sentinel($masters[0]->node) } 1 .. 3;
    $_->behave('MASTER', epoch(2)) foreach @sentinels;

    my $nginx = sentinel_nginx(\@sentinels, timeout => '500ms');
    is $nginx->decide('k'), 'A', 'a master';
    sleep 0.5;
    $sentinels[0]->behave($ASK, master_is($masters[1]->node));

    ok waits(2, sub { asked($sentinels[2], 'MASTER') }), 'all are asked';
    my $start = now();
    ok waits(2, sub { asked($sentinels[2], 'MASTER') == 2 }), 'and again';
    between(int(1000 * (now() - $start)), 0, 600, 'soon');
    sleep 0.6;
    is asked($sentinels[2], 'MASTER'), 2, 'once';

    $sentinels[1]->behave($ASK, master_is($masters[1]->node));
    ok waits(5, sub { $nginx->peers eq $masters[1]->node }),
       'what most name is followed';

    ends_well($nginx);
};


# A sentinel that was started anew with what it had been told at first, says
# something else, too; but that is no news

test votes_restarted => sub {
    my ($left, $master) = map { fake() } 1 .. 2;
    my @sentinels = map { sentinel($master->node) } 1 .. 3;
    my $nginx     = sentinel_nginx(\@sentinels);

    is $nginx->decide('k'), 'A', 'a master';
    sleep 1.2;

    $sentinels[0]->restart;
    $sentinels[0]->behave($ASK, master_is($left->node));
    is known_during($nginx, 3), $master->node, 'it is not believed';
    ok asked($sentinels[0], $ASK) > 0, 'though it was asked';

    ends_well($nginx);
};


# Most of them name a replica, and that is not followed: not after a failure,
# nor at first

test votes_replica => sub {
    my ($replica, $master) = map { fake() } 1 .. 2;
    $replica->behave('ROLE', raw => $REPLICA);
    $master->behave('ROLE', raw => $MASTER);

    my @sentinels = map { sentinel($_->node) } $master, $replica, $replica;
    my $nginx     = sentinel_nginx(\@sentinels, timeout => '200ms');

    is $nginx->decide('k'), 'A', 'a master';
    is blip($nginx, $master), 'B', 'a blip';
    is known_during($nginx, 4), $master->node, 'a replica is not followed';
    ok asked($replica, 'ROLE') > 0, 'it was asked whether it is one';
    is $replica->report->{commands}, asked($replica, 'ROLE'),
       'and nothing else';
    is scalar(() = $nginx->log_lines(
           qr/\[notice\].*is not \Q@{[ $replica->node ]}\E: that is a replica/)),
       1, 'which is told';
    ends_well($nginx);

    @sentinels = map { sentinel($_->node) } $replica, $replica, $master;
    $nginx     = sentinel_nginx(\@sentinels, timeout => '500ms');
    is $nginx->decide('k'), 'A', 'the first decision waits for a master';
    is $nginx->peers, $master->node, 'which is found';
    ends_well($nginx);
};


# All of them move to a replica at once, or one after the other: it is asked ten
# times a second, for five seconds, then once; and told once

test votes_replica_agreed => sub {
    foreach my $moved ([0 .. 2], [1, 2]) {
        my ($master, $replica) = map { fake() } 1 .. 2;
        $replica->behave('ROLE', raw => $REPLICA);

        my @sentinels = map { sentinel($master->node) } 1 .. 3;
        my $nginx     = sentinel_nginx(\@sentinels, timeout => '200ms');
        my $name      = @$moved . ' of 3';

        is $nginx->decide('k'), 'A', "$name: a master";
        sleep 1.2;
        $_->behave($ASK, master_is($replica->node))
            foreach @sentinels[@$moved];

        ok waits(5, sub { asked($replica, 'ROLE') }), "$name: it is looked at";
        known_during($nginx, 2);
        my $asked = asked($replica, 'ROLE');
        is $replica->report->{commands}, $asked, "$name: but not followed";
        cmp_ok $asked, '<=', 23, "$name: asked at a limited pace";
        cmp_ok $asked, '>=', 12, "$name: which is quick" if @$moved == 3;
        is replicas_told($nginx), 1, "$name: told once";

        ends_well($nginx);
    }
};


# ... and once more when they had all been back meanwhile

test votes_replica_again => sub {
    my ($master, $replica) = map { fake() } 1 .. 2;
    $replica->behave('ROLE', raw => $REPLICA);

    my @sentinels = map { sentinel($master->node) } 1 .. 3;
    my $nginx     = sentinel_nginx(\@sentinels, timeout => '200ms');
    is $nginx->decide('k'), 'A', 'a master';

    foreach my $time (1, 2) {
        sleep 1.2;
        $_->behave($ASK, master_is($replica->node)) foreach @sentinels;
        ok waits(5, sub { replicas_told($nginx) == $time }), "$time: told";
        $_->behave($ASK, master_is($master->node)) foreach @sentinels;
        sleep 4;        # all are asked
    }

    is replicas_told($nginx), 2, 'not more often';
    ends_well($nginx);
};


sub replicas_told {
    my ($nginx) = @_;
    return scalar(() = $nginx->log_lines(qr/that is a replica/));
}


# The moment of a failover

test votes_promoted => sub {
    my ($old, $new) = map { fake() } 1 .. 2;
    $new->behave('ROLE', raw => $REPLICA);

    my @sentinels = map { sentinel($old->node) } 1 .. 3;
    my $nginx     = sentinel_nginx(\@sentinels, timeout => '200ms');
    is $nginx->decide('k'), 'A', 'before';

    $old->stop;
    $_->behave($ASK, master_is($new->node)) foreach @sentinels;
    is $nginx->decide('k'), 'B', 'it is gone';
    ok waits(1, sub { asked($new, 'ROLE') > 1 }), 'the new one is looked at';
    is $nginx->decide('k'), 'B', 'and is none yet';

    $new->behave('ROLE', raw => $MASTER);
    my $start = now();
    ok defined $nginx->decides_within(2, 'A', 'k'), 'promoted, it decides';
    between(int(1000 * (now() - $start)), 0, 300, 'soon');
    is $nginx->peers, $new->node, 'the old one is gone';
    ends_well($nginx, qr/redis (?:127\.0\.0\.1:\d+|store) is/);

    # nothing else is known

    $new->behave('ROLE', raw => $REPLICA);
    $nginx = sentinel_nginx([$sentinels[0]], timeout => '200ms');
    is $nginx->decide('k'), 'B', 'nobody but a replica: no decision';
    like join('', $nginx->log_lines(qr/\[error\]/)),
         qr/down: the server that sentinels name is a replica/, 'as is told';
    $new->behave('ROLE', raw => $MASTER);
    $start = now();
    ok defined $nginx->decides_within(2, 'A', 'k'), 'promoted, it decides';
    between(int(1000 * (now() - $start)), 0, 300, 'soon');
    ends_well($nginx, qr/redis store is/);
};


# That somebody is a replica is asked quickly at first, for a failover, and then
# no more

test votes_never_promoted => sub {
    my $replica  = fake();
    my $sentinel = sentinel($replica->node);
    $replica->behave('ROLE', raw => $REPLICA);

    my $nginx = sentinel_nginx([$sentinel], timeout => '200ms');
    is $nginx->decide('k'), 'B', 'no decision';
    sleep 6;
    my $asked = asked($replica, 'ROLE');
    between($asked, 20, 52, 'asked often');
    sleep 2.5;
    between(asked($replica, 'ROLE') - $asked, 1, 3, 'then once a second');
    is $replica->report->{clients}, 0, 'over connections that are closed';

    ends_well($nginx, qr/redis store is/);
};


# Who does not tell its role is followed, as without that question

test votes_role => sub {
    my %roles = (
        master   => [raw => $MASTER],
        refused  => [raw => "-NOPERM this user has no permissions\r\n"],
        nothing  => [raw => "*0\r\n"],
        nil      => [raw => "*-1\r\n"],
        text     => [raw => bulk('slave')],
        status   => [raw => array('+slave')],
        number   => [raw => array(':1')],
        longer   => [raw => array(bulk('slaves'))],
        silent   => [delay => 0.25, raw => $MASTER],
        cut      => [raw => $MASTER, cut => 5],
    );

    foreach my $name (sort keys %roles) {
        my $master   = fake();
        my $sentinel = sentinel($master->node);
        $master->behave('ROLE', @{ $roles{$name} });

        my $nginx = sentinel_nginx([$sentinel], timeout => '150ms');
        ok defined $nginx->decides_within(2, 'A', 'k'), "$name: it decides";
        is asked($master, 'ROLE'), 1, "$name: it was asked once";
        ends_well($nginx);
    }
};


# What is not decided, but only read, does not show that a master is well; yet
# that it is the master they have said

test votes_doubt_ends => sub {
    my $master    = fake();
    my @sentinels = map { sentinel($master->node) } 1 .. 3;
    my $nginx     = sentinel_nginx(\@sentinels, timeout => '200ms');

    is $nginx->decide('k'), 'A', 'a master';
    sleep 1.2;      # until two were asked
    my @asked = map { asked($_, $ASK) } @sentinels;

    is blip($nginx, $master), 'B', 'a blip';
    ok waits(1, sub { asked($sentinels[2], $ASK) > $asked[2] }),
       'all are asked';
    @asked = map { asked($_, $ASK) } @sentinels;
    sleep 2.2;
    is_deeply [map { asked($sentinels[$_], $ASK) - $asked[$_] } 1, 2], [0, 0],
              'once';
    ok asked($sentinels[0], $ASK) > $asked[0], 'then one';

    ends_well($nginx);
};


# Doubt that comes up while one is asked, which takes long, is not forgotten

test votes_doubt_meanwhile => sub {
    my ($old, $new) = map { fake() } 1 .. 2;
    my @sentinels = map { sentinel($old->node) } 1 .. 3;
    my $nginx     = sentinel_nginx(\@sentinels, timeout => '800ms');

    is $nginx->decide('k'), 'A', 'a master';
    sleep 1.5;      # until two were asked
    $sentinels[0]->behave($ASK, master_is($old->node), delay => 0.4);
    ok waits(1.5, sub { asked($sentinels[0], $ASK) == 3 }), 'one is asked';

    $_->behave($ASK, master_is($new->node)) foreach @sentinels[1, 2];
    $old->stop;
    my $start = now();
    is $nginx->decide('k'), 'B', 'the master is gone';
    ok defined $nginx->decides_within(2, 'A', 'k'), 'its successor decides';
    between(int(1000 * (now() - $start)), 0, 700, 'in the same round');

    ends_well($nginx, qr/redis (?:127\.0\.0\.1:\d+|store) is/);
};


1;
