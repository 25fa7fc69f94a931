package IapGuard::StoreLoad;

# Users who ask at a steady pace, in a process of their own, while something
# happens to the store; and what they were told.
#
#   my $load = IapGuard::StoreLoad->start(port => $nginx->port,
#       path => '/redeem', users => 200, name => 'u', rate => 300);
#   ...
#   my $seen = $load->stop;
#
#   $seen->{errors};            # { text => how often }, of no answer at all
#   $seen->{statuses};          # { 200 => how often, ... }
#   $seen->{stores};            # the same of the field X-Store
#   $seen->away;                # seconds from the first decision that was not
#                               # the store's to the last one
#   $seen->since($moment);      # what was asked from then on
#   $seen->over(10);            # admitted beyond so many each, in all
#   $seen->most;                # admitted of any one user
#
# A moment is one of IapGuard::Loop::now().  A user is the field X-User-Id.

use strict;
use warnings;

use File::Temp ();
use JSON::PP ();
use List::Util qw(max sum0);

use IapGuard::Child;
use IapGuard::LoadClient;
use IapGuard::Loop;

use constant TICK => 0.01;      # seconds


sub start {
    my ($class, %options) = @_;

    my $self = bless {
        path => '/', users => 100, name => 'u', rate => 200,
        connections => 32, timeout => 5, %options,
        file => File::Temp->new(TEMPLATE => 'iap_guard-seen-XXXXXX',
                                TMPDIR => 1),
    }, $class;

    $self->{child} = IapGuard::Child->start(sub { return $self->_run(@_) });

    return $self;
}


sub stop {
    my ($self) = @_;

    $self->{child}->stop == 0 or die "the load failed\n";

    open my $file, '<', $self->{file}->filename or die "what was seen: $!\n";
    my $rows = JSON::PP->new->decode(do { local $/; <$file> });

    return IapGuard::StoreLoad::Seen->new($rows);
}


sub _run {
    my ($self, $gone) = @_;
    my $loop = $self->{loop} = IapGuard::Loop->new;
    my $done = 0;

    $self->{client} = IapGuard::LoadClient->new(
        loop => $loop, port => $self->{port}, timeout => $self->{timeout},
        connections => $self->{connections});

    $self->{rows}  = [];
    $self->{begun} = IapGuard::Loop::now();
    $self->{sent}  = 0;

    $loop->on_read($gone, sub { $done = 1 });
    $self->_tick;
    $loop->run_until(sub { $done });

    $self->{rate} = 0;
    $loop->run_until(sub { !$self->{client}->busy });

    open my $file, '>', $self->{file}->filename or die "what was seen: $!\n";
    print {$file} JSON::PP->new->encode($self->{rows});
    close $file or die "what was seen: $!\n";

    return 0;
}


# As many as should have been sent by now

sub _tick {
    my ($self) = @_;
    my $rate = $self->{rate} or return;
    my $due  = (IapGuard::Loop::now() - $self->{begun}) * $rate;

    $self->_request while $self->{sent} < $due;
    $self->{loop}->after(TICK, sub { $self->_tick });

    return;
}


sub _request {
    my ($self) = @_;
    my $user = $self->{name} . int rand $self->{users};
    my $now  = IapGuard::Loop::now();

    $self->{sent}++;

    $self->{client}->request(
        { method => 'GET', path => $self->{path},
          headers => { 'X-User-Id' => $user } },
        sub {
            my ($answer) = @_;

            push @{ $self->{rows} }, [
                $now, $answer->{status} || 0,
                $answer->{error} || $answer->{headers}{'x-store'} || '',
                $user, $answer->{seconds},
            ];
        });

    return;
}


package IapGuard::StoreLoad::Seen;

use List::Util qw(max sum0);


sub new {
    my ($class, $rows) = @_;
    my $self = bless {
        rows => $rows, errors => {}, statuses => {}, stores => {},
        admitted => {}, slowest => 0,
    }, $class;

    foreach my $row (@$rows) {
        my (undef, $status, $store, $user, $seconds) = @$row;

        $self->{slowest} = max($self->{slowest}, $seconds);

        if (!$status) {
            $self->{errors}{$store}++;
            next;
        }

        $self->{statuses}{$status}++;
        $self->{stores}{$store}++;
        $self->{admitted}{$user}++ if $status == 200;
    }

    return $self;
}


sub since {
    my ($self, $moment) = @_;
    return (ref $self)->new([grep { $_->[0] >= $moment } @{ $self->{rows} }]);
}


# Whether the store has decided all, but for what was late because this machine
# stood still for longer than a decision may take: two in a hundred.  A worker
# that does not find its way is one of four.

sub decided {
    my ($self) = @_;
    return ($self->{stores}{redis} || 0) >= 0.98 * @{ $self->{rows} };
}


sub away {
    my ($self) = @_;
    my @moments = sort { $a <=> $b } map { $_->[0] }
                  grep { $_->[2] eq 'fallback' } @{ $self->{rows} };

    return @moments ? $moments[-1] - $moments[0] : 0;
}


sub over {
    my ($self, $capacity) = @_;
    return sum0 map { max($_ - $capacity, 0) } values %{ $self->{admitted} };
}


sub most { return max(0, values %{ $_[0]{admitted} }) }


1;
