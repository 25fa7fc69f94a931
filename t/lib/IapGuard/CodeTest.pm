package IapGuard::CodeTest;

# What the tests of promo codes have in common: an nginx that redeems them at
# /redeem, before IapGuard::CodeBackend, where each request says what is to
# become of it.
#
#   my $test = IapGuard::CodeTest->new(paths => \%paths, workers => 4,
#                                      code => 'lease=2s');
#   $test->stock('SPRING', 1000);                   # what the API answers
#   my $answer = $test->redeem('SPRING', 'u1', outcome => '500');
#   my @answers = $test->redeem_all(['SPRING', 'u1'], ['SPRING', 'u2'], ...);
#   $test->code('SPRING')->{free};
#   $test->audit('SPRING')->{units};
#   $test->is_balanced('SPRING', 'in the end', sold => 10, reserved => 0);
#   $test->end;
#
# `redis`, an IapGuard::RedisServer or RedisCluster, is where the stock is
# then, `redis_words` what else is said of it; `backend` another one's;
# `guard` more layers.  Further options are those of IapGuard::Nginx.
#
# Times are short, so that leases run out while one waits: but as the keeper of
# the stock sees them.  `timeout` is the ledger's, `store_timeout` that of
# `iap_guard_redis` (1s).

use strict;
use warnings;

use Fcntl qw(LOCK_EX);
use JSON::PP ();
use POSIX ();
use Test::More;
use Time::HiRes qw(sleep);

use IapGuard::CodeBackend;
use IapGuard::LoadClient;
use IapGuard::Loop;
use IapGuard::Nginx;

my $json = JSON::PP->new->canonical->utf8;


sub new {
    my ($class, %options) = @_;
    my %paths = %{ delete $options{paths} };
    my $self  = bless {
        code => '', guard => '', redis_words => '', timeout => '10s',
        store_timeout => '1s',
        (map { $_ => delete $options{$_} }
             grep { exists $options{$_} }
                  qw(backend redis redis_words code guard timeout
                     store_timeout)),
        http => $options{http} || '', server => $options{server} || '',
    }, $class;

    $self->{backend} ||= IapGuard::CodeBackend->new->start->asked;

    my $nginx = $self->{nginx} = IapGuard::Nginx->new(%paths, %options,
                                                      level => 'info');

    # the worker's own folder

    mkdir $nginx->file('ledger') or die "ledger: $!\n";
    chmod 0777, $nginx->file('ledger');

    $self->configure;
    $nginx->start;

    return $self;
}


sub nginx   { return $_[0]{nginx} }
sub backend { return $_[0]{backend} }


# for the start, or the next reload

sub configure {
    my ($self, %options) = @_;
    my ($nginx, $redis) = @$self{qw(nginx redis)};

    $self->{$_} = $options{$_} foreach keys %options;

    my $store = !$redis             ? ''
        : $redis->can('urls')       ? $redis->urls . ' mode=cluster'
        :                             'redis://' . $redis->node;

    $store = "iap_guard_redis $store timeout=$self->{store_timeout}"
           . " $self->{redis_words};"
        if $store;

    $nginx->configure(
        http => <<"HTTP", server => <<"SERVER");
    iap_guard_zone    iap 8m;
    iap_guard_ledger  @{[ $nginx->file('ledger/ledger.db') ]} timeout=$self->{timeout};
    $store
    $self->{http}
HTTP
        add_header  X-Verdict \$iap_guard_verdict always;
        add_header  X-Layer \$iap_guard_layer always;

        location = /redeem {
            iap_guard            redeem;
            iap_guard_user       \$http_x_user_id;
            iap_guard_code       \$http_x_code $self->{code};
            $self->{guard}
            proxy_read_timeout   2s;
            proxy_pass           @{[ $self->{backend}->url('/redeem') ]};
        }
        $self->{server}
SERVER

    return $self;
}


sub stock {
    my ($self, $code, $units, %more) = @_;

    return $self->{nginx}->api_json('PUT', "codes/$code",
                     $json->encode({ stock => $units + 0, %more }));
}


sub code  { return $_[0]{nginx}->api_json('GET', "codes/$_[1]") }

sub audit {
    my ($self, $code, $count) = @_;
    return $self->{nginx}->api_json('GET', "codes/$code/audit?count="
                                           . ($count || 1000));
}


# For LoadClient: a user's submission

sub request {
    my ($self, $code, $user, %more) = @_;

    return {
        method => 'POST', path => $more{path} || '/redeem', body => '{}',
        headers => {
            'X-Code' => $code, 'X-User-Id' => $user,
            map { $_->[0] => $more{ $_->[1] } }
            grep { defined $more{ $_->[1] } }
                 ['X-Outcome', 'outcome'], ['X-Device-Id', 'device'],
                 ['X-Address', 'address'],
        },
    };
}


# As IapGuard::LoadClient gives it

sub redeem { return ($_[0]->redeem_all([@_[1 .. $#_]]))[0] }


# Each [code, user, more...], as many at once as there are `connections`; the
# answers in their order

sub redeem_all {
    my ($self, @submissions) = @_;
    my $loop = IapGuard::Loop->new;
    my $left = @submissions;
    my @answers;

    my $client = IapGuard::LoadClient->new(
        loop => $loop, port => $self->{nginx}->port, timeout => 30,
        connections => $self->{connections} || 64);

    foreach my $i (0 .. $#submissions) {
        $client->request($self->request(@{ $submissions[$i] }),
                         sub { $answers[$i] = shift; $left-- });
    }

    $loop->run_until(sub { !$left });
    $client->shut;

    return @answers;
}


# Nobody can write into the file, from `after` seconds on for so many seconds: what
# is submitted meanwhile is asked for all at once.  Returns at once or, without
# `after`, when that is so.

sub hold_file {
    my ($self, $seconds, $after) = @_;

    pipe my $told, my $tell or die "pipe: $!\n";

    my $pid = fork // die "fork: $!\n";

    if (!$pid) {
        sleep $after if $after;

        open my $lock, '+<', $self->{nginx}->file('ledger/ledger.lock')
            or die "lock: $!\n";
        flock $lock, LOCK_EX or die "flock: $!\n";

        syswrite $tell, 'x';
        sleep $seconds;
        POSIX::_exit(0);
    }

    sysread $told, my $byte, 1 unless $after;

    return $pid;
}


# How often each status was answered: { 200 => 1, 409 => 49 }

sub statuses {
    my ($class, @answers) = @_;
    my %seen;

    $seen{ $_->{status} || $_->{error} }++ foreach @answers;

    return \%seen;
}


# Why an audit is not right; nothing if it is

sub unbalanced {
    my ($class, $code) = @_;
    my $sum = $code->{sold} + $code->{reserved} + $code->{free};

    return "sold $code->{sold} + reserved $code->{reserved} + free "
           . "$code->{free} is not $code->{initial}"
        if $sum != $code->{initial};
    return "difference $code->{difference}" if $code->{difference};
    return "oversold $code->{oversold}" if $code->{oversold};

    return;
}


# That an audit is right, and has these numbers

sub is_balanced {
    my ($self, $code, $name, %numbers) = @_;
    my $audit = $self->audit($code);
    my %found = map { $_ => $audit->{$_} } keys %numbers;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    is $self->unbalanced($audit), undef, "$name: balanced";
    is_deeply \%found, \%numbers, "$name: as expected"
        or diag explain $audit;

    return $audit;
}


# Waits until no unit is reserved; how long it took, or undef

sub nothing_reserved {
    my ($self, $code, $seconds) = @_;
    my $from = IapGuard::Loop::now();

    return $self->{nginx}->wait_for($seconds, sub {
        return $self->code($code)->{reserved} == 0;
    }) ? IapGuard::Loop::now() - $from : undef;
}


# Ends nginx; what it complained of is a failure

sub end {
    my ($self, @expected) = @_;
    my $nginx = $self->{nginx};

    $nginx->stop;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    is_deeply [$nginx->complaints(@expected)], [],
        'nothing in the log that should not be';

    return;
}


1;
