package IapGuard::SteppedClock;

# A wall clock that somebody sets while a program runs; its monotonic clock
# stays as it is.
#
#   my $clock = IapGuard::SteppedClock->new;
#   $clock->during(sub { $nginx->start });      # what begins here has it
#   $clock->set(3600);                          # an hour ahead, at once
#   $clock->set(0);
#   $clock->time;                               # what it says, in seconds
#
# stepped_clock.c beside this file is compiled, and preloaded.

use strict;
use warnings;

use File::Basename qw(dirname);
use File::Temp ();
use Time::HiRes ();

my $SOURCE = dirname(__FILE__) . '/stepped_clock.c';


sub new {
    my ($class) = @_;
    my $scratch = File::Temp->newdir('iap_guard-clock-XXXXXX', TMPDIR => 1);
    my $self = bless { scratch => $scratch, by => 0 }, $class;

    # nginx's workers run as another user if we are root

    chmod 0755, $scratch->dirname or die "$scratch: $!\n";

    $self->{library} = "$scratch/clock.so";
    $self->{file}    = "$scratch/seconds";

    system('cc', '-O1', '-shared', '-fPIC', '-o', $self->{library}, $SOURCE)
        == 0 or die "the clock does not compile\n";

    open $self->{seconds}, '>', $self->{file} or die "$self->{file}: $!\n";
    $self->set(0);

    return $self;
}


sub during {
    my ($self, $code) = @_;

    local $ENV{LD_PRELOAD} = $self->{library};
    local $ENV{IAP_GUARD_CLOCK} = $self->{file};

    return $code->();
}


# In place: programs have the file mapped, and one write is one step.

sub set {
    my ($self, $seconds) = @_;

    sysseek $self->{seconds}, 0, 0;
    syswrite($self->{seconds}, pack 'q', $seconds) == 8
        or die "$self->{file}: $!\n";
    $self->{by} = $seconds;

    return;
}


sub time {
    my ($self) = @_;
    return Time::HiRes::time() + $self->{by};
}


1;
