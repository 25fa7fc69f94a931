package IapGuard::CrashTest;

# The promise of the queue under whatever breaks: machines that accept requests
# and verify them, what they speak with, their users, and what must be true of
# all that a client was told.
#
#   my $test = IapGuard::CrashTest->new(ledger => 'redis', seed => 7,
#                                       paths => \%paths);
#   $test->machines;    # of { drain (IapGuard::DrainTest), apple and redis
#                       # (IapGuard::Relay), disk }
#   $test->redis, $test->shop, $test->disks;
#   $test->settle;      # waits until all that was accepted has come to its
#                       # end; what is wrong, as texts
#   $test->finish;      # likewise, of all from the beginning
#   $test->totals;
#
# What must be true:
#
#   * a ticket that a client was sent (202) is "verified" in the end, and stays so;
#   * its purchase was told of to the shop at least once, as verified, and always
#     with the same webhook-id;
#   * nothing is told of that nobody has sent.
#
# What a client got no answer for, or another one than 202, may be verified and
# told of all the same: twice is harmless, lost is not.  And a purchase that is
# sent again while Redis can't be asked may get a second ticket, and be told of
# by a second id (docs/redis.md): those are counted apart,
# with how many of them were sent while Redis was there: on a busy machine it may
# not answer in time.

use strict;
use warnings;

use Time::HiRes qw(sleep);

use IapGuard::CrashClient;
use IapGuard::CrashPeers;
use IapGuard::Disk;
use IapGuard::DrainTest;
use IapGuard::Loop;
use IapGuard::RedisServer;
use IapGuard::Relay;

use constant {
    RATE    => 40,              # requests a second, to each machine
    WORKERS => 2,
    PATIENCE => 90,             # seconds, until all has come to its end
    LEARN   => 3,               # seconds, in which it is known that Redis is back
    DISK    => 256,             # MB
    QUEUE   => 'key=$http_x_purchase rate=400r/s concurrency=16 attempts=1000 '
               . 'retry_min=50ms retry_max=1s timeout=1500ms',
};


sub new {
    my ($class, %options) = @_;

    my $self = bless {
        %options, machines => [], disks => [], wrong => [],
        folder => File::Temp->newdir('iap_guard-crash-XXXXXX', TMPDIR => 1),
        sent => {}, accepted => {}, again => {}, due => {}, told => {},
        checked => {}, counts => {}, drained => 0,
    }, $class;

    $self->{$_} = IapGuard::CrashPeers->new($_ => "$self->{folder}/$_")
        foreach qw(apple shop);

    $self->_redis if $self->{ledger} eq 'redis';
    $self->_machine foreach 1 .. ($self->{ledger} eq 'redis' ? 2 : 1);

    $self->{client} = IapGuard::CrashClient->new(
        ports => [map { $_->{drain}->nginx->port } @{ $self->{machines} }],
        rate => RATE, seed => $self->{seed}, file => "$self->{folder}/client");

    return $self;
}


sub machines { return @{ $_[0]{machines} } }
sub disks    { return @{ $_[0]{disks} } }
sub redis    { return $_[0]{redis} }
sub shop     { return $_[0]{shop} }


# "appendfsync always": Redis 7.0 knows no WAITAOF

sub _redis {
    my ($self) = @_;
    my $folder = "$self->{folder}/redis";

    mkdir $folder or die "$folder: $!\n";
    $self->{redis_disk} = $self->_disk($folder);

    $self->{redis} = IapGuard::RedisServer->new(folder => $folder,
        options => ['--appendonly', 'yes', '--appendfsync', 'always']);

    return;
}


sub _disk {
    my ($self, $folder) = @_;
    my $disk = IapGuard::Disk->new($folder, DISK) or return;

    push @{ $self->{disks} }, $disk;

    return $disk;
}


sub _machine {
    my ($self) = @_;
    my $machine = { apple => IapGuard::Relay->new($self->{apple}->port) };
    my $redis   = '';

    if ($self->{redis}) {
        $machine->{redis} = IapGuard::Relay->new($self->{redis}->port);
        $redis = 'iap_guard_redis redis://127.0.0.1:'
                 . $machine->{redis}->port . ' timeout=200ms;';
    }

    $machine->{drain} = IapGuard::DrainTest->new(
        paths => $self->{paths}, workers => WORKERS, http => $redis,
        breaker => 'open=500ms min=10 window=5s', queue => QUEUE,
        before  => sub {
            $machine->{disk} = $self->_disk($_[0]->file('ledger'));
        },
        peers   => bless { apple => $machine->{apple}->port,
                           shop  => $self->{shop}->port },
                         'IapGuard::CrashTest::Peers');

    push @{ $self->{machines} }, $machine;

    return;
}


# --- what is known --------------------------------------------------------

sub _wrong {
    my ($self, $text) = @_;
    push @{ $self->{wrong} }, $text;
    return;
}


sub _read {
    my ($self) = @_;

    foreach ($self->{client}->more) {
        my ($what, $key, $machine, $word) = split / /;

        $self->{counts}{$what}++;
        $self->{sent}{$key} = 1  if $what =~ /^s$/i;
        push @{ $self->{again}{$key} }, $word if $what eq 'S';
        next if $what ne 'a';

        $self->{accepted}{$key}{$word} = $machine;
        $self->{due}{$key} = 1 if !$self->{told}{$key};
    }

    foreach ($self->{shop}->more) {
        my ($id, $type, $key, $ticket) = split / /;

        $self->{counts}{deliveries}++;
        $self->_wrong("$key is told of as $type")
            if $type ne 'receipt.verified';
        $self->_wrong("$key is told of, and nobody has sent it")
            if !$self->{sent}{$key};

        $self->{told}{$key}{$id}++;
        delete $self->{due}{$key};
    }

    $self->{verified}{$_}++ foreach $self->{apple}->more;

    return;
}


# --- what must be true ----------------------------------------------------

# Nothing is broken any more.  The client pauses, and all that it has been
# promised has to be kept.

sub settle {
    my ($self, %options) = @_;
    my $begun = IapGuard::Loop::now();

    $self->{client}->pause;

    IapGuard::Nginx->wait_for(PATIENCE, sub {
        $self->_read;
        sleep 0.05 if %{ $self->{due} };
        return !%{ $self->{due} };
    });

    my $seconds = IapGuard::Loop::now() - $begun;

    $self->{drained} = $seconds if $seconds > $self->{drained};
    $self->_wrong("$_ was accepted as "
                  . join(', ', keys %{ $self->{accepted}{$_} })
                  . ', and never told of')
        foreach sort keys %{ $self->{due} };

    $self->_tickets(grep { !$self->{checked}{$_} }
                    sort keys %{ $self->{accepted} });
    $self->_ids;

    my @wrong = @{ $self->{wrong} };

    $self->{counts}{wrong} += @wrong;
    $self->{wrong} = [];
    $self->{due}   = {};
    $self->{client}->go_on if !$options{last};

    return @wrong;
}


sub finish {
    my ($self) = @_;

    $self->{checked} = {};

    my @wrong = $self->settle(last => 1);

    IapGuard::Nginx->wait_for(PATIENCE, sub {
        my @counts = map { $_->{drain}->queue } $self->machines;
        return !grep { $_->{pending} || $_->{callbacks} || $_->{spooled} }
                     @counts;
    });

    foreach my $machine ($self->machines) {
        my $queue = $machine->{drain}->queue;

        push @wrong, "queue: $queue->{$_} are $_"
            foreach grep { $queue->{$_} }
                    qw(pending parked dead rejected callbacks spooled);
    }

    $self->{counts}{wrong} += @wrong;

    return @wrong;
}


# A ticket is verified, at the machine that gave it; what is said of it may take
# a moment after the callback came, where the answer to that was lost.

sub _tickets {
    my ($self, @keys) = @_;
    my @machines = map { $_->{drain} } $self->machines;
    my @left = map { my $key = $_;
                     map { [$key, $_, $self->{accepted}{$key}{$_}] }
                         sort keys %{ $self->{accepted}{$key} } } @keys;

    $self->{checked}{$_} = 1 foreach @keys;

    IapGuard::Nginx->wait_for(PATIENCE / 3, sub {
        my @still;

        foreach my $m (0 .. $#machines) {
            my @here    = grep { $_->[2] == $m } @left;
            my @answers = $machines[$m]->nginx->ask(
                              map { ["/tickets/$_->[1]"] } @here);

            foreach my $i (0 .. $#here) {
                my $text = ($answers[$i]{body} // $answers[$i]{error})
                           =~ s/\n//r;
                next if $text =~ /"status":"verified"/;
                $here[$i][3] = $text;
                push @still, $here[$i];
            }
        }

        @left = @still;
        sleep 0.2 if @left;

        return !@left;
    });

    $self->_wrong("ticket $_->[1] of $_->[0] is " . $_->[3]) foreach @left;

    return;
}


sub _ids {
    my ($self) = @_;
    my ($two, $there) = (0, 0);

    foreach my $key (keys %{ $self->{told} }) {
        my @ids = sort keys %{ $self->{told}{$key} };
        next if @ids < 2;

        if ($self->{again}{$key} && $self->{redis}) {
            $two++;
            $there++ if !grep { $self->_was_away($_) } @{ $self->{again}{$key} };

        } elsif (!$self->{twice}{$key}++) {
            $self->{counts}{two_ids}++;
            $self->_wrong("$key is told of as @ids");
        }
    }

    @{ $self->{counts} }{qw(two_tickets two_there)} = ($two, $there);

    return;
}


# Redis can't be reached from now on, by a machine at least; or it can

sub away {
    my ($self, $is) = @_;
    my $now = IapGuard::Loop::now();

    if ($is) {
        push @{ $self->{outages} }, [$now, $now + PATIENCE];
    } else {
        $self->{outages}[-1][1] = $now;
    }

    return;
}


sub _was_away {
    my ($self, $when) = @_;

    return grep { $_->[0] <= $when && $when <= $_->[1] + LEARN }
                @{ $self->{outages} || [] };
}


# [name, number] of all that was counted

sub totals {
    my ($self) = @_;
    my $n = $self->{counts};
    my $known = scalar grep { $self->{told}{$_} } keys %{ $self->{accepted} };

    return (
        ['requests',                    ($n->{s} || 0) + ($n->{S} || 0)],
        ['answered by Apple at once',   $n->{o} || 0],
        ['accepted (202)',              $n->{a} || 0],
        ['refused (503 and others)',    $n->{r} || 0],
        ['without an answer',           $n->{e} || 0],
        ['purchases accepted',          scalar keys %{ $self->{accepted} }],
        ['of them activated',           $known],
        ['lost',              keys(%{ $self->{accepted} }) - $known],
        ['activated with two ids',      $n->{two_ids} || 0],
        ['sent again while Redis was away, with two ids, as documented',
                                        $n->{two_tickets} || 0],
        ['of these, while it was there', $n->{two_there} || 0],
        ['activations received',        $n->{deliveries} || 0],
        ['verified more than once',
            scalar grep { $_ > 1 } values %{ $self->{verified} }],
        ['wrong',                       $n->{wrong} || 0],
        ['longest until all was done',
            sprintf '%.1f s', $self->{drained}],
    );
}


# Ends it; what the logs say that they should not

sub stop {
    my ($self, @expected) = @_;
    my @complaints;

    $self->{client}->stop;

    foreach my $machine ($self->machines) {
        $machine->{drain}->nginx->stop;
        push @complaints, $machine->{drain}->nginx->complaints(@expected);
        $machine->{$_}->stop foreach grep { $machine->{$_} } qw(apple redis);
    }

    $self->{redis}->stop if $self->{redis};
    $self->{$_}->stop foreach qw(apple shop);
    $_->gone foreach $self->disks;

    return @complaints;
}


# folders go before what is mounted there, otherwise

sub DESTROY {
    my ($self) = @_;
    local ($@, $?, $!);
    $_->gone foreach $self->disks;
    return;
}


package IapGuard::CrashTest::Peers;

sub url {
    my ($self, $path) = @_;
    return 'http://127.0.0.1:' . ($path eq '/hook' ? $self->{shop}
                                                   : $self->{apple}) . $path;
}


1;
