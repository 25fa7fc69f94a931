package IapGuard::Loop;

# A small event loop on select(2): handles that became readable or writable,
# and timers.  Both the stand-in servers and the load client run on it, so
# neither needs threads or a process per connection.
#
#   my $loop = IapGuard::Loop->new;
#   $loop->on_read($fh, sub { ... });      # undef in place of the sub: no more
#   $loop->on_write($fh, sub { ... });
#   my $timer = $loop->after(0.5, sub { ... });
#   $loop->cancel($timer);
#   $loop->run_until(sub { $done });       # asked after each round
#
# Handles have to be non-blocking: a callback may come without anything to
# read, where a handle closed in the same round left its number to a new one.

use strict;
use warnings;

use Errno qw(EINTR);
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);


sub new {
    my ($class) = @_;

    return bless {
        read   => {}, write   => {},    # callbacks by file descriptor
        rbits  => '', wbits   => '',    # the same as bits, for select
        timers => [],                   # [when, callback], earliest first
    }, $class;
}


sub now { return clock_gettime(CLOCK_MONOTONIC) }


sub on_read {
    my ($self, $fh, $callback) = @_;
    return _watch($self->{read}, \$self->{rbits}, $fh, $callback);
}


sub on_write {
    my ($self, $fh, $callback) = @_;
    return _watch($self->{write}, \$self->{wbits}, $fh, $callback);
}


sub _watch {
    my ($callbacks, $bits, $fh, $callback) = @_;
    my $fd = fileno $fh;

    return unless defined $fd;

    if ($callback) {
        $callbacks->{$fd} = $callback;
        vec($$bits, $fd, 1) = 1;

    } elsif (delete $callbacks->{$fd}) {
        vec($$bits, $fd, 1) = 0;
    }

    return;
}


# To be called before close: afterwards the handle has no number any more.

sub forget {
    my ($self, $fh) = @_;

    $self->on_read($fh, undef);
    $self->on_write($fh, undef);

    return;
}


sub after {
    my ($self, $seconds, $callback) = @_;
    my $timer  = [now() + $seconds, $callback];
    my $timers = $self->{timers};

    # most timers are set later than those that wait already

    my $at = @$timers;
    $at-- while $at > 0 && $timers->[$at - 1][0] > $timer->[0];
    splice @$timers, $at, 0, $timer;

    return $timer;
}


sub cancel {
    my ($self, $timer) = @_;
    $timer->[1] = undef if $timer;
    return;
}


sub run_until {
    my ($self, $condition) = @_;

    local $SIG{PIPE} = 'IGNORE';        # a peer that left is an error of write

    $self->_round until $condition->();

    return;
}


sub _round {
    my ($self) = @_;
    my ($timers, $wait) = ($self->{timers}, 1);

    shift @$timers while @$timers && !$timers->[0][1];

    if (@$timers) {
        my $left = $timers->[0][0] - now();
        $wait = $left < 0 ? 0 : $left < $wait ? $left : $wait;
    }

    my $ready = select(my $rbits = $self->{rbits}, my $wbits = $self->{wbits},
                       undef, $wait);

    if ($ready > 0) {
        _call($self->{write}, $wbits);
        _call($self->{read}, $rbits);

    } elsif ($ready < 0 && $! != EINTR) {
        die "select: $!\n";
    }

    my $now = now();

    while (@$timers && $timers->[0][0] <= $now) {
        my $callback = (shift @$timers)->[1];
        $callback->() if $callback;
    }

    return;
}


sub _call {
    my ($callbacks, $bits) = @_;
    my $text = unpack 'b*', $bits;
    my $fd   = -1;

    while (($fd = index $text, '1', $fd + 1) >= 0) {
        my $callback = $callbacks->{$fd};
        $callback->() if $callback;
    }

    return;
}


1;
