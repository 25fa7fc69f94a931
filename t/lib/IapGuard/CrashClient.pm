package IapGuard::CrashClient;

# The users of machines under IapGuard::CrashTest: a child process that sends
# each machine so many requests a second, and writes what came of each into a
# file.
#
#   my $client = IapGuard::CrashClient->new(ports => [...], rate => 25,
#                                           file => "$folder/client");
#   $client->pause;                     # until all that was sent is answered
#   $client->go_on;
#   foreach my $line ($client->more) { }
#
# Each purchase has a key of its own.  Most are sent once, whatever comes of it;
# some are sent again, to any machine.  Lines are
#
#   s KEY MACHINE WHEN      sent, for the first time
#   S KEY MACHINE WHEN      sent once more
#   a KEY MACHINE TICKET    202
#   o KEY MACHINE           200: Apple's answer came at once
#   r KEY MACHINE STATUS    another answer
#   e KEY MACHINE TEXT      none
#   p                       nothing is under way

use strict;
use warnings;

use JSON::PP ();

use IapGuard::Child;
use IapGuard::CrashPeers;
use IapGuard::LoadClient;
use IapGuard::Loop;

use constant {
    LIVE     => 0.3,            # go to Apple if they can
    AGAIN    => 0.08,
    KNOWN    => 200,            # keys that may be sent again
    USERS    => 40,
    PATIENCE => 40,             # seconds
};

my $json = JSON::PP->new->canonical->utf8;


sub new {
    my ($class, %options) = @_;

    my $self = bless { %options, at => 0, lines => [] }, $class;

    open my $new, '>', $self->{file} or die "$self->{file}: $!\n";
    close $new;

    $self->{child} = IapGuard::Child->start(sub { return $self->_run(@_) });

    return $self;
}


sub stop { return $_[0]{child}->stop }


sub more {
    my ($self) = @_;
    my @lines = (@{ $self->{lines} },
                 IapGuard::CrashPeers::lines($self->{file}, \$self->{at}));

    $self->{lines} = [];

    return @lines;
}


sub pause {
    my ($self) = @_;
    my $until = IapGuard::Loop::now() + PATIENCE;

    kill 'USR1', $self->{child}->pid;

    until (grep { $_ eq 'p' } @{ $self->{lines} }) {
        die "the client does not end\n"
            if IapGuard::Loop::now() > $until || !$self->{child}->running;

        select undef, undef, undef, 0.02;
        push @{ $self->{lines} },
             IapGuard::CrashPeers::lines($self->{file}, \$self->{at});
    }

    @{ $self->{lines} } = grep { $_ ne 'p' } @{ $self->{lines} };

    return;
}


sub go_on { kill 'USR2', $_[0]{child}->pid; return }


# --- the child ------------------------------------------------------------

sub _run {
    my ($self, $gone) = @_;
    my $loop = $self->{loop} = IapGuard::Loop->new;
    my ($done, $paused) = (0, 0);

    srand $self->{seed};
    open $self->{out}, '>>', $self->{file} or die "$self->{file}: $!\n";
    $self->{out}->autoflush;

    local $SIG{USR1} = sub { $paused = 1 };
    local $SIG{USR2} = sub { $paused = 0 };

    @$self{qw(clients number known under_way)} = ([], 0, [], 0);

    push @{ $self->{clients} }, IapGuard::LoadClient->new(
        loop => $loop, port => $_, connections => 64, timeout => 15)
        foreach @{ $self->{ports} };

    my $next = IapGuard::Loop::now();
    my $tick;

    # which has it look

    $tick = sub { $loop->after(0.01, $tick) };
    $tick->();

    $loop->on_read($gone, sub { $done = 1 });
    $loop->run_until(sub {
        my $now = IapGuard::Loop::now();

        if ($paused) {
            if ($paused == 1 && !$self->{under_way}) {
                $paused = 2;
                $self->_say('p');
            }

            $next = $now;
        }

        while ($next <= $now && !$paused) {
            $self->_send($_) foreach 0 .. $#{ $self->{ports} };
            $next += 1 / $self->{rate};
        }

        return $done;
    });

    return 0;
}


sub _send {
    my ($self, $machine) = @_;
    my $known = $self->{known};
    my $again = @$known && rand() < AGAIN;
    my $key   = $again ? $known->[rand @$known] : 'k' . ++$self->{number};

    if (!$again) {
        push @$known, $key if rand() < 2 * AGAIN;
        shift @$known if @$known > KNOWN;
    }

    $self->_say($again ? 'S' : 's', $key, $machine, IapGuard::Loop::now());
    $self->{under_way}++;

    $self->{clients}[$machine]->request({
        method  => 'POST', path => rand() < LIVE ? '/live' : '/accept',
        body    => $json->encode({ id => $key }),
        headers => { 'X-User-Id'    => 'u' . int rand USERS,
                     'X-Purchase'   => $key,
                     'Content-Type' => 'application/json' },
    }, sub {
        my ($answer) = @_;
        my $status = $answer->{status} || 0;

        $self->{under_way}--;

        return $self->_say('e', $key, $machine, $answer->{error}) if !$status;
        return $self->_say('o', $key, $machine) if $status == 200;
        return $self->_say('r', $key, $machine, $status) if $status != 202;
        return $self->_say('a', $key, $machine,
                           $json->decode($answer->{body})->{ticket});
    });

    return;
}


sub _say {
    my ($self, @words) = @_;
    print { $self->{out} } "@words\n";
    return;
}


1;
