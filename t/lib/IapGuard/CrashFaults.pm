package IapGuard::CrashFaults;

# What can break under IapGuard::CrashTest, at random, and how it is mended.
#
#   my $faults = IapGuard::CrashFaults->new($test, without => ['disk']);
#   $faults->round;             # at random moments: one of them, or two at once
#   $faults->counts;            # { name => how often }
#   $faults->missing;           # names of those that can't be had here, and why
#
# worker        one worker is killed
# workers       all workers of a machine are
# nginx         all of its processes are, and it starts again
# apple-cut     no connection to Apple: refused, or nothing comes any more
# receiver      the service that is told of results is killed
# disk          the disk that a ledger is on is full
# redis         Redis is killed, and starts again with what it had written
# redis-asleep  it stops, and goes on
# redis-cut     no connection to it, of one machine or of all
# redis-disk    its disk is full (with "appendfsync always" it ends by itself)

use strict;
use warnings;

use Time::HiRes qw(sleep);

use IapGuard::Child;

use constant {
    BEFORE => 0.5,              # seconds, at most, until something breaks
    BROKEN => 1.0,              # for which it is broken
    AFTER  => 0.4,
    TWO    => 0.35,             # rounds with two of them
};

my @FAULTS = qw(worker workers nginx apple-cut receiver disk);
my @REDIS  = qw(redis redis-asleep redis-cut redis-disk);


sub new {
    my ($class, $test, %options) = @_;
    my %left_out = map { $_ => 'left out' } @{ $options{without} || [] };
    my @names    = (@FAULTS, $test->redis ? @REDIS : ());

    if (!$test->disks) {
        $left_out{$_} ||= 'no right to mount a small disk' foreach grep { /disk/ } @names;
    }

    return bless {
        test => $test, counts => { map { $_ => 0 } @names },
        missing => { map { $_ => $left_out{$_} }
                     grep { $left_out{$_} } @names },
        names => [ grep { !$left_out{$_} } @names ],
        bag => [],
    }, $class;
}


sub counts  { return $_[0]{counts} }
sub missing { return $_[0]{missing} }


sub round {
    my ($self) = @_;
    my (%mend, @names, $away);

    push @names, $self->_draw;
    push @names, $self->_draw if rand() < TWO;

    foreach my $name (@names) {
        sleep rand BEFORE / @names;
        next if $mend{$name};

        $self->{test}->away(1) if $name =~ /^redis/ && !$away++;

        my $code = '_' . $name =~ s/-/_/r;
        my $mend = $self->$code or next;

        $self->{counts}{$name}++;
        $mend{$name} = $mend;
    }

    sleep 0.1 + rand BROKEN;

    # nothing starts on a full disk

    $mend{$_}->() foreach sort { ($b =~ /disk/) <=> ($a =~ /disk/) } keys %mend;
    $self->{test}->away(0) if $away;
    sleep rand AFTER;

    return join ' ', @names;
}


# As often as any other, in any order

sub _draw {
    my ($self) = @_;
    my $bag = $self->{bag};

    push @$bag, @{ $self->{names} } if !@$bag;

    return splice @$bag, rand @$bag, 1;
}


sub _machine {
    my ($self) = @_;
    my @machines = $self->{test}->machines;

    return $machines[rand @machines];
}


sub _nothing { }


sub _worker {
    my ($self) = @_;
    my @workers = $self->_machine->{drain}->nginx->all_workers;

    return @workers && kill('KILL', $workers[rand @workers]) ? \&_nothing
                                                              : undef;
}


sub _workers {
    my ($self) = @_;
    my @workers = $self->_machine->{drain}->nginx->all_workers;

    return @workers && kill('KILL', @workers) ? \&_nothing : undef;
}


sub _nginx {
    my ($self) = @_;
    my $nginx = $self->_machine->{drain}->nginx;

    return $nginx->crash ? sub { $nginx->revive } : undef;
}


sub _cut {
    my (@relays) = @_;
    my $state = rand() < 0.5 ? 'refuse' : 'hole';

    $_->state($state) foreach @relays;

    return sub { $_->state('open') foreach @relays };
}


sub _apple_cut {
    my ($self) = @_;
    return _cut($self->_machine->{apple});
}


sub _redis_cut {
    my ($self) = @_;

    return _cut(rand() < 0.5
                ? $self->_machine->{redis}
                : map { $_->{redis} } $self->{test}->machines);
}


sub _receiver {
    my ($self) = @_;
    my $shop = $self->{test}->shop;

    $shop->kill;

    return sub { $shop->start };
}


sub _disk {
    my ($self) = @_;
    my $disk = $self->_machine->{disk};

    return $disk->fill ? sub { $disk->empty } : undef;
}


sub _redis_disk {
    my ($self) = @_;
    my $disk = $self->{test}{redis_disk};

    return if !$disk->fill;

    return sub {
        $disk->empty;
        $self->_redis_again;
    };
}


sub _redis {
    my ($self) = @_;
    my $redis = $self->{test}->redis;

    return if !$redis->running;

    $redis->kill;

    return sub { $self->_redis_again };
}


sub _redis_again {
    my ($self) = @_;
    my $redis = $self->{test}->redis;

    if (!$redis->running) {
        $redis->stop;
        $redis->start;
    }

    return;
}


sub _redis_asleep {
    my ($self) = @_;
    my $redis = $self->{test}->redis;

    return if !$redis->running;

    $redis->freeze;

    return sub { $redis->thaw };
}


1;
