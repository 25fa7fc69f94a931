package IapGuard::Clock;

# Clocks of an nginx that a test sets forward, and the wall's also back, for
# what takes minutes or must not depend on what time it is.
#
#   my $clock = IapGuard::Clock->new;
#   $clock->start($nginx);      # an IapGuard::Nginx, which then has these clocks
#   $clock->forward(60);        # seconds of the monotonic clock
#   $clock->set_wall(-3600);    # the wall's clock, from the system's
#
# nginx looks at its clock when something happens, such as a request.  Needs a C
# compiler, and an nginx without AddressSanitizer, which wants to be first.

use strict;
use warnings;

use File::Basename qw(dirname);
use File::Temp ();

my $source = dirname(__FILE__) . '/clock.c';


sub new {
    my ($class) = @_;
    my $folder = File::Temp->newdir('iap_guard-XXXXXX', TMPDIR => 1);

    # nginx's workers run as another user if we are root

    chmod 0755, $folder->dirname or die "$folder: $!\n";

    my $self = bless { folder => $folder, monotonic => 0, wall => 0 }, $class;

    system('cc', '-shared', '-fPIC', '-O1', '-Wall', '-Wextra', '-Werror',
           '-o', "$folder/clock.so", $source) == 0
        or die "can't compile $source\n";

    $self->_write;

    return $self;
}


sub start {
    my ($self, $nginx) = @_;

    local $ENV{LD_PRELOAD} = "$self->{folder}/clock.so";
    local $ENV{IAP_GUARD_CLOCK} = "$self->{folder}/clock";

    return $nginx->start;
}


sub forward {
    my ($self, $seconds) = @_;

    $self->{monotonic} += int $seconds * 1000;

    return $self->_write;
}


sub set_wall {
    my ($self, $seconds) = @_;

    $self->{wall} = $seconds;

    return $self->_write;
}


# in place: nginx has the file mapped

sub _write {
    my ($self) = @_;
    my $path = "$self->{folder}/clock";

    open my $file, -e $path ? '+<' : '>', $path or die "$path: $!\n";
    syswrite $file, pack('q<q<', $self->{monotonic}, $self->{wall})
        or die "$path: $!\n";
    close $file;

    return;
}


1;
