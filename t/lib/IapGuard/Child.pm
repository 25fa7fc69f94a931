package IapGuard::Child;

# Child processes that never outlive the process that started them, however
# that one ends: each child holds the reading end of a pipe whose writing end
# only the parent has, and goes when that closes.
#
#   my $child = IapGuard::Child->start(sub { my ($gone) = @_; ... });
#   my $child = IapGuard::Child->program({ output => $file, quit => 'QUIT' },
#                                        '/usr/sbin/nginx', ...);
#   $child->running;
#   my $status = $child->stop;       # as in $?
#
# And of any process, by its number:
#
#   IapGuard::Child->alive($pid);       # one that nobody waited for is not
#   IapGuard::Child->state($pid);       # "S" and so on, as in proc(5)
#   IapGuard::Child->title($pid);       # what it calls itself
#   IapGuard::Child->children($pid);    # their numbers
#
# The code given to start() has to end when $gone becomes readable; its
# return value is the exit code.  A program gets the `quit` signal, later
# TERM, last KILL.
#
# A child has a process group of its own: Ctrl-C reaches the parent only,
# which then stops its children in the order it wants.

use strict;
use warnings;

use POSIX qw(WNOHANG);
use Time::HiRes qw(sleep);

use IapGuard::Loop;

my %writing_ends;       # by pid, of all children of this process


sub start {
    my ($class, $code) = @_;

    pipe my $gone, my $alive or die "pipe: $!\n";

    my $pid = fork;
    die "fork: $!\n" unless defined $pid;

    if ($pid == 0) {
        setpgrp;
        $SIG{$_} = 'DEFAULT' foreach qw(INT TERM HUP QUIT);

        # a sibling's pipe kept open here would keep that sibling alive

        close $_ foreach $alive, values %writing_ends;
        %writing_ends = ();

        my $rc = eval { $code->($gone) };
        print STDERR $@ if $@;

        # no END blocks and destructors: they belong to the parent

        POSIX::_exit($@ ? 255 : $rc || 0);
    }

    close $gone;
    $writing_ends{$pid} = $alive;

    return bless { pid => $pid, owner => $$ }, $class;
}


sub program {
    my ($class, $options, @command) = @_;
    return $class->start(sub { return _keep($options, $_[0], @command) });
}


sub pid { return $_[0]{pid} }


sub running {
    my ($self) = @_;

    return 0 if defined $self->{status};

    my $pid = waitpid $self->{pid}, WNOHANG;
    return 1 if $pid == 0;

    $self->{status} = $pid == $self->{pid} ? $? : -1;
    delete $writing_ends{$self->{pid}};

    return 0;
}


sub stop {
    my ($self) = @_;

    return $self->{status} if $self->{owner} != $$;

    delete $writing_ends{$self->{pid}};

    foreach my $signal (undef, 'TERM', 'KILL') {
        kill $signal, $self->{pid} if $signal && $self->running;
        last if $self->_ends_within($signal ? 3 : 10);
    }

    return $self->{status};
}


# A process that has ended, but nobody has asked how, is gone: for one without
# a parent that would be the system's first process, which may take its time.

sub alive { return $_[0]->state($_[1]) =~ /[^ZX]/ }

# "pid (comm) state ppid"

sub state {
    my ($class, $pid) = @_;
    return _slurp("/proc/$pid/stat") =~ /.*\) (\S) /s ? $1 : '';
}


sub title {
    my ($class, $pid) = @_;
    return _slurp("/proc/$pid/cmdline") =~ s/[\0 ]+$//r;
}


sub children {
    my ($class, $parent) = @_;
    my $known = "/proc/$parent/task/$parent/children";

    return split ' ', _slurp($known) if -e $known;

    # a kernel built without that

    return grep { _slurp("/proc/$_/stat") =~ /.*\) \S (\d+) /s && $1 == $parent }
           map { m{(\d+)$} } glob '/proc/[0-9]*';
}


sub DESTROY {
    my ($self) = @_;
    local ($@, $?, $!);
    $self->stop if $self->{owner} == $$ && !defined $self->{status};
    return;
}


sub _ends_within {
    my ($self, $seconds) = @_;
    my $until = IapGuard::Loop::now() + $seconds;

    while ($self->running) {
        return 0 if IapGuard::Loop::now() > $until;
        sleep 0.01;
    }

    return 1;
}


# The process between us and a program, which can't watch a pipe itself.

sub _keep {
    my ($options, $gone, @command) = @_;
    my $stop = 0;

    local $SIG{TERM} = sub { $stop = 1 };
    local $SIG{INT}  = $SIG{TERM};

    my $pid = fork;
    die "fork: $!\n" unless defined $pid;

    if ($pid == 0) {
        $SIG{$_} = 'DEFAULT' foreach qw(INT TERM);
        _redirect($options->{output});
        exec { $command[0] } @command
            or print STDERR "can't run \"$command[0]\": $!\n";
        POSIX::_exit(127);
    }

    until ($stop) {
        return _exit_code($?) if waitpid($pid, WNOHANG) == $pid;

        vec(my $bits = '', fileno $gone, 1) = 1;
        $stop = 1 if select($bits, undef, undef, 0.1) > 0;
    }

    foreach my $signal ($options->{quit} || 'TERM', 'TERM', 'KILL') {
        kill $signal, $pid;

        for (1 .. 60) {
            return _exit_code($?) if waitpid($pid, WNOHANG) == $pid;
            sleep 0.05;
        }
    }

    return 255;
}


sub _redirect {
    my ($file) = @_;

    open STDIN, '<', '/dev/null' or die "/dev/null: $!\n";
    return unless defined $file;

    open STDOUT, '>>', $file or die "$file: $!\n";
    open STDERR, '>&', \*STDOUT or die "$file: $!\n";

    return;
}


sub _slurp {
    my ($path) = @_;

    open my $file, '<', $path or return '';
    local $/;
    return <$file> // '';
}


sub _exit_code {
    my ($status) = @_;
    return $status & 127 ? 128 + ($status & 127) : $status >> 8;
}


1;
