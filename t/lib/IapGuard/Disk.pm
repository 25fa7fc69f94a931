package IapGuard::Disk;

# A small disk of its own for a folder, that can be full.
#
#   IapGuard::Disk->alone;      # first: in a namespace that goes with this
#                               # process, if the system lets us
#   my $disk = IapGuard::Disk->new($folder, 64) or ...;     # MB; undef: it may not
#   $disk->fill;                # there is no room any more
#   $disk->empty;               # as before
#   $disk->gone;

use strict;
use warnings;

use constant ALONE => 'IAP_GUARD_DISK_ALONE';


# Starts the program again where its mounts are nobody else's.

sub alone {
    return if $ENV{ (ALONE) } || $> != 0
              || system('sh', '-c', 'unshare --mount true 2> /dev/null') != 0;

    $ENV{ (ALONE) } = 1;

    exec 'unshare', '--mount', $^X, (map { "-I$_" } grep { !ref } @INC),
         $0, @ARGV or die "unshare: $!\n";
}


sub new {
    my ($class, $folder, $size) = @_;

    return if !$ENV{ (ALONE) };

    my ($mode, $uid, $gid) = (stat $folder)[2, 4, 5];
    my $self = bless { folder => $folder, size => $size, owner => $$ },
                     $class;

    return if !_mount('-t', 'tmpfs', '-o',
                      sprintf('size=%dm,mode=%o,uid=%d,gid=%d',
                              $size, $mode & 07777, $uid, $gid),
                      'tmpfs', $folder);
    return $self;
}


# to what is used, and not a page more

sub fill {
    my ($self) = @_;

    # somebody may take a page in between

    foreach (1 .. 20) {
        my ($used) = qx{df --output=used -B1024 '$self->{folder}'} =~ /(\d+)/
            or die "df: nothing\n";

        return 1 if _mount('-o', "remount,size=${used}k", $self->{folder});
    }

    return 0;
}


sub empty {
    my ($self) = @_;

    _mount('-o', "remount,size=$self->{size}m", $self->{folder})
        or die "can't make room in $self->{folder}\n";

    return;
}


sub gone {
    my ($self) = @_;

    return if $self->{owner} != $$;

    system 'umount', '-l', delete $self->{folder} if $self->{folder};

    return;
}


sub _mount {
    my (@words) = @_;
    return system('sh', '-c', 'exec mount "$@" 2> /dev/null', 'sh', @words) == 0;
}


sub DESTROY {
    my ($self) = @_;
    local ($@, $?, $!);
    $self->gone;
    return;
}


1;
