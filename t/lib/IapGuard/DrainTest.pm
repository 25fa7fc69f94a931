package IapGuard::DrainTest;

# What the tests of the drain have in common: an nginx with a queue "receipts"
# before IapGuard::DrainPeers, requests put into it, tickets and callbacks
# looked at.
#
#   my $test = IapGuard::DrainTest->new(workers => 2, queue => 'rate=50r/s',
#                                       breaker => 'open=1s');
#   my $ticket = $test->put({ id => 'r1', verify => ['21003'] });
#   my $answer = $test->ended($ticket, 5);      # { status, result }
#   my @hooks  = $test->hooks;                  # of { id, body, ... }, verified
#   $test->nginx, $test->peers, $test->end;
#
# Further options are those of IapGuard::Nginx; `breaker` undef: there is none;
# "PEERS" in `server` is where the peers are; `peers`: those of another one;
# `before` is called with the nginx before that starts, when its folders are
# there.

use strict;
use warnings;

use Digest::SHA qw(hmac_sha256_base64);
use JSON::PP ();
use MIME::Base64 qw(decode_base64);
use Test::More;
use Time::HiRes qw(sleep);

use IapGuard::DrainPeers;
use IapGuard::LoadClient;
use IapGuard::Loop;
use IapGuard::Nginx;

use constant SECRET => 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo=';

my $json = JSON::PP->new->canonical->utf8;


sub new {
    my ($class, %options) = @_;
    my $queue   = delete $options{queue};
    my $ledger  = delete $options{ledger};
    my $breaker = exists $options{breaker} ? delete $options{breaker}
                                           : 'open=1s min=5 window=10s';
    my %paths   = %{ delete $options{paths} };
    my $peers   = delete $options{peers} || IapGuard::DrainPeers->start;
    my $before  = delete $options{before} || sub { };
    my $self    = bless { peers => $peers, ledger => $ledger }, $class;

    my $nginx = $self->{nginx} = IapGuard::Nginx->new(%paths, %options,
                                                      level => 'info');
    $self->{http}   = $options{http} || '';
    $self->{server} = $options{server} || '';

    # the worker's own folder

    mkdir $nginx->file('ledger') or die "ledger: $!\n";
    chmod 0777, $nginx->file('ledger');
    open my $file, '>', $nginx->file('secret') or die "secret: $!\n";
    print {$file} SECRET, "\n";
    close $file;

    $self->configure(queue => $queue, breaker => $breaker);
    $before->($nginx);
    $nginx->start;

    return $self;
}


sub nginx { return $_[0]{nginx} }
sub peers { return $_[0]{peers} }


# for the start, or the next reload

sub configure {
    my ($self, %options) = @_;
    my ($nginx, $peers) = @$self{qw(nginx peers)};

    $self->{$_} = $options{$_} foreach keys %options;

    my $queue = $self->{queue} || '';
    my $cut   = defined $self->{breaker};
    my @parts = ($cut ? 'breaker=apple' : ());

    push @parts, 'target=' . $peers->url('/verify')
        unless $queue =~ /\btarget=/;
    push @parts, 'sandbox=' . $peers->url('/sandbox')
        unless $queue =~ /\bsandbox=/;
    push @parts, 'callback=' . $peers->url('/hook')
        unless $queue =~ /\bcallback=/;
    push @parts, 'secret_file=' . $nginx->file('secret')
        unless $queue =~ /\bsecret_file=/;

    $queue =~ s/\b(?:sandbox|callback|secret_file)=none\b//g;

    $nginx->configure(
        http => join("\n", 'iap_guard_zone iap 4m;',
            'iap_guard_ledger ' . $nginx->file('ledger/ledger.db') . ' '
            . ($self->{ledger} || '') . ';',
            ($cut ? "iap_guard_breaker apple classify=apple $self->{breaker};"
                  : ()),
            "iap_guard_queue receipts classify=apple @parts $queue;",
            $self->{http}),
        server => <<"END");
        location = /accept {
            iap_guard          accept;
            iap_guard_user     \$http_x_user_id;
            iap_guard_accept   receipts;
        }
        location = /live {
            iap_guard          live;
            iap_guard_user     \$http_x_user_id;
            @{[ $cut ? 'iap_guard_breaker apple fallback=receipts;' : '' ]}
            proxy_pass         @{[ $peers->url('/verify') ]};
        }
        location ~ ^/tickets/(?<ticket>\\w+)\$ {
            iap_guard_ticket   receipts \$ticket;
        }
        location = /other { empty_gif; }
        @{[ $self->{server} =~ s/PEERS/$peers->url('')/ger ]}
END
    return $self;
}


# Puts one request; its ticket

sub put {
    my ($self, $body, %headers) = @_;
    my $answer = $self->post('/accept', $body, %headers);

    die "not accepted: " . ($answer->{error} || $answer->{status}) . "\n"
        if ($answer->{status} || 0) != 202;

    return $json->decode($answer->{body})->{ticket};
}


sub post {
    my ($self, $path, $body, %headers) = @_;

    return IapGuard::LoadClient->fetch('POST', $self->{nginx}->url($path),
        body => ref $body ? $json->encode($body) : $body,
        headers => { 'X-User-Id' => 'u1', 'Content-Type' => 'application/json',
                     %headers });
}


# Many at once, each with a body of `body->(number)` and a user of its own
# unless `user` gives one; how many were accepted

sub put_many {
    my ($self, $n, %options) = @_;
    my $loop   = IapGuard::Loop->new;
    my $client = IapGuard::LoadClient->new(loop => $loop, timeout => 30,
        port => $self->{nginx}->port, connections => 64);
    my ($left, $accepted) = ($n, 0);
    my @tickets;

    foreach my $i (1 .. $n) {
        $client->request({
            method => 'POST', path => '/accept',
            body => $json->encode($options{body} ? $options{body}->($i)
                                                 : { id => "r$i" }),
            headers => { 'X-User-Id' => $options{user}
                                        ? $options{user}->($i) : "u$i",
                         'Content-Type' => 'application/json' },
        }, sub {
            my $answer = shift;
            $left--;
            return if ($answer->{status} || 0) != 202;
            $accepted++;
            $tickets[$i - 1] = $json->decode($answer->{body})->{ticket};
        });
    }

    $loop->run_until(sub { !$left });
    $client->shut;

    return wantarray ? @tickets : $accepted;
}


sub ticket {
    my ($self, $ticket) = @_;
    my $answer = $self->{nginx}->get("/tickets/$ticket");

    return { status => $answer->{error} || $answer->{status} }
        if ($answer->{status} || 0) != 200;

    return $json->decode($answer->{body});
}


# Waits until it is not pending any more, or as it is then

sub ended {
    my ($self, $ticket, $seconds) = @_;
    my $answer;

    $self->{nginx}->wait_for($seconds || 10, sub {
        $answer = $self->ticket($ticket);
        return $answer->{status} ne 'pending';
    });

    return $answer;
}


sub queue { return $_[0]{nginx}->api_json('GET', 'queues/receipts') }


# Callbacks so far, each of whose signature has been verified as a receiver
# does it who knows nothing of this module

sub hooks {
    my ($self, $id) = @_;
    my $key = decode_base64(SECRET =~ s/^whsec_//r);

    return map {
        my $fields = $_->{headers};
        my $stamp  = $fields->{'webhook-timestamp'};

        $_->{signed} = 'v1,' . hmac_sha256_base64(
            "$fields->{'webhook-id'}.$stamp.$_->{body}", $key) . '=';
        $_->{good} = $_->{signed} eq ($fields->{'webhook-signature'} || '')
                     && abs($stamp - time) < 300;
        $_->{told} = $json->decode($_->{body});
        $_;
    } grep { !defined $id || $_->{id} eq $id } $self->{peers}->calls('/hook');
}


# The processes that hold the lock, as the kernel has them.  Its list is read
# in several pieces, between which locks are taken and freed, of SQLite many:
# one may be listed twice, or have changed hands.  Two are asked for again.

sub holders {
    my ($self) = @_;
    my @holders;

    for (1 .. 3) {
        @holders = $self->_listed;
        last if @holders <= 1;
    }

    return @holders;
}


sub _listed {
    my ($self) = @_;
    my $inode = (stat $self->{nginx}->file('ledger/ledger.drain'))[1] // 0;

    open my $locks, '<', '/proc/locks' or die "/proc/locks: $!\n";

    my %pids = map { /^\d+: FLOCK +ADVISORY +WRITE (\d+) \w+:\w+:(\d+) /
                     && $2 == $inode ? ($1 => 1) : () } <$locks>;

    return keys %pids;
}


# Ends nginx; what it complained of is a failure

sub end {
    my ($self, @expected) = @_;
    my $nginx = $self->{nginx};

    $nginx->stop;

    my @complaints = $nginx->complaints(@expected);

    is_deeply \@complaints, [], 'nothing in the log that should not be';
    $self->{peers}->stop;

    return;
}


1;
