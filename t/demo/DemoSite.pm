package DemoSite;

# The demo's site: nginx with the module, and what stands behind it, all on
# loopback, all files in one scratch folder.
#
#   my $site = DemoSite->new(module => $so, nginx => $binary);
#   $site->start;
#   $site->api('GET', '/iap_guard/metrics');
#   $site->stop;                # also when the object goes
#
# `module` is left out where nginx was built with it; `keep` leaves the
# scratch folder.

use strict;
use warnings;

use File::Temp ();
use JSON::PP ();
use Time::HiRes qw(sleep);

use IapGuard::Child;
use IapGuard::CodeBackend;
use IapGuard::LoadClient;
use IapGuard::Loop;
use IapGuard::Port qw(free_port);
use IapGuard::StandInApple;
use IapGuard::StandInBackend;
use IapGuard::StandInReceiver;

use constant {
    # the thresholds, which the senders' expectations know too
    ADDRESS_USERS   => 10,      # of one address
    NEIGHBOUR_USERS => 60,      # of its neighbourhood: /24, /48
    BUCKET_CAPACITY => 3,       # of a user and of a device
    REFILL_SECONDS  => 20,      # of their buckets, for one token
    GLOBAL_RATE     => 200,     # requests a second, all together

    CARRIER         => '100.64.0.0/24',
    CARRIER_USERS   => 500,

    QUEUE_RATE      => 20,      # calls a second, of what was accepted

    CAMPAIGN_CAPACITY => 10,    # of a user and of a device, of submissions
    ATTEMPTS          => 5,     # of a user, with codes that are not there

    READY_SECONDS   => 15,
    PORTS_TRIED     => 5,
};


sub new {
    my ($class, %options) = @_;

    my $scratch = File::Temp->newdir('iap_guard-demo-XXXXXX', TMPDIR => 1,
                                     CLEANUP => !$options{keep});

    # nginx's workers run as another user if we are root

    chmod 0755, $scratch->dirname or die "$scratch: $!\n";

    return bless {
        binary  => $options{nginx},
        module  => $options{module},
        scratch => $scratch,
        parts   => {},          # nginx, backend...: what runs
    }, $class;
}


sub backend { return $_[0]{parts}{backend} }
sub apple   { return $_[0]{parts}{apple} }
sub token   { return $_[0]{token} }
sub version { return $_[0]{version} }
sub folder  { return $_[0]{scratch}->dirname }
sub file    { return $_[0]->folder . "/$_[1]" }
sub port    { return $_[0]{port} }
sub url     { return "http://127.0.0.1:$_[0]{port}$_[1]" }

# the service that unlocks what the queue has had verified

sub receiver { return $_[0]{parts}{receiver} }

# the service that redeems promo codes

sub promoter { return $_[0]{parts}{promoter} }


sub start {
    my ($self) = @_;

    $self->_ask_nginx;

    $self->{parts}{backend} = IapGuard::StandInBackend->new->start;
    $self->{parts}{apple}   = IapGuard::StandInApple->new->start;

    $self->{parts}{promoter} = IapGuard::CodeBackend->new->start->asked;

    my $secret = IapGuard::StandInReceiver->new_secret;
    $self->{parts}{receiver}
        = IapGuard::StandInReceiver->new(secret => $secret)->start;

    $self->{token} = _random_token();
    _write_file($self->file('api.token'), "$self->{token}\n", 0600);
    _write_file($self->file('webhook.secret'), "$secret\n", 0600);
    $self->_make_ledger;

    # between the search for a free port and nginx's start somebody else may
    # take it

    foreach (1 .. PORTS_TRIED) {
        $self->{port} = free_port();
        return if $self->_start_nginx;
    }

    die "nginx found no free port in " . PORTS_TRIED . " tries\n";
}


sub stop {
    my ($self) = @_;

    # nginx first: it would log errors if what it calls went before it

    foreach my $name (qw(nginx backend apple promoter receiver)) {
        my $part = delete $self->{parts}{$name} or next;
        $part->stop;
    }

    return;
}


sub DESTROY {
    my ($self) = @_;
    local ($@, $?, $!);
    $self->stop;
    return;
}


# Dies, with the reason, if a part of the site has ended.

sub check {
    my ($self) = @_;

    foreach my $name (sort keys %{ $self->{parts} }) {
        die "$name ended by itself" . $self->_last_words . "\n"
            unless $self->{parts}{$name}->running;
    }

    return;
}


# A call of the module's API; changes carry the token.

sub api {
    my ($self, $method, $path, $body) = @_;
    my %headers = $method eq 'GET'
        ? () : (Authorization => "Bearer $self->{token}");

    my $answer = IapGuard::LoadClient->fetch($method, $self->url($path),
        headers => \%headers, body => $body);

    die "$method $path: $answer->{error}\n" if $answer->{error};
    die "$method $path: status $answer->{status}, $answer->{body}\n"
        if $answer->{status} >= 300;

    return $answer->{body};
}


# The module's metrics as { 'name{label="value"}' => number }.

sub metrics {
    my ($self) = @_;
    my %metrics;

    foreach my $line (split /\n/, $self->api('GET', '/iap_guard/metrics')) {
        next if $line =~ /^(?:#|$)/;
        $line =~ /^(\w+(?:\{.*\})?) ([-+0-9.eE]+)$/
            or die "not a line of metrics: \"$line\"\n";
        $metrics{$1} = $2;
    }

    return \%metrics;
}


sub bans {
    my ($self) = @_;
    return JSON::PP->new->utf8->decode($self->api('GET', '/iap_guard/bans'));
}


# Lines of the error log that should never be there.

sub complaints {
    my ($self) = @_;

    open my $log, '<', $self->file('error.log') or return "error.log: $!";
    return grep { /\[(?:alert|crit|emerg)\]|Sanitizer/ } <$log>;
}


sub _ask_nginx {
    my ($self) = @_;

    die "no nginx at \"$self->{binary}\"\n" unless -x $self->{binary};
    die "no module at \"$self->{module}\"\n"
        if defined $self->{module} && !-r $self->{module};

    open my $pipe, '-|', 'sh', '-c', 'exec "$0" -V 2>&1', $self->{binary}
        or die "$self->{binary}: $!\n";
    $self->{about} = do { local $/; <$pipe> };
    close $pipe;

    foreach my $part (qw(http_realip_module threads)) {
        die "the demo needs an nginx that was built --with-$part, and "
            . "\"$self->{binary}\" was not\n"
            unless $self->{about} =~ /--with-$part\b/;
    }

    ($self->{version}) = $self->{about} =~ m{nginx version: (\S+)};

    return;
}


sub _random_token {
    open my $random, '<:raw', '/dev/urandom' or die "/dev/urandom: $!\n";
    read $random, my $bytes, 16 or die "/dev/urandom: $!\n";
    return unpack 'H*', $bytes;
}


sub _write_file {
    my ($path, $text, $mode) = @_;

    open my $file, '>', $path or die "$path: $!\n";
    chmod $mode, $file or die "$path: $!\n" if $mode;
    print $file $text;
    close $file or die "$path: $!\n";

    return;
}


# The folder belongs to those who keep the ledger: nginx's workers, which are
# nobody's if we are root

sub _make_ledger {
    my ($self) = @_;
    my $folder = $self->file('ledger');

    mkdir $folder, 0700 or die "$folder: $!\n";

    if ($> == 0 && (my ($uid, $gid) = (getpwnam 'nobody')[2, 3])) {
        chown $uid, $gid, $folder or die "$folder: $!\n";
    }

    return;
}


# Returns false if the port was taken; dies for any other reason.

sub _start_nginx {
    my ($self) = @_;

    unlink map { $self->file($_) } qw(nginx.pid nginx.out error.log);
    _write_file($self->file('nginx.conf'), $self->_conf);

    my $nginx = IapGuard::Child->program(
        { output => $self->file('nginx.out'), quit => 'QUIT' },
        $self->{binary}, '-p', $self->folder, '-c', $self->file('nginx.conf'),
        '-e', $self->file('error.log'));

    my $until = IapGuard::Loop::now() + READY_SECONDS;

    # nginx writes its pid when all its sockets listen

    until (-s $self->file('nginx.pid')) {
        if (!$nginx->running) {
            return 0 if $self->_last_words =~ /Address already in use/;
            die 'nginx did not start' . $self->_last_words . "\n";
        }

        die 'nginx was not ready in ' . READY_SECONDS . " s\n"
            if IapGuard::Loop::now() > $until;
        sleep 0.02;
    }

    $self->{parts}{nginx} = $nginx;

    return 1;
}


sub _last_words {
    my ($self) = @_;
    my @lines;

    # nginx writes to the one until it has opened the other

    foreach my $name (qw(nginx.out error.log)) {
        open my $log, '<', $self->file($name) or next;
        push @lines, grep { !/\[notice\]/ } <$log>;
    }

    splice @lines, 0, -12 if @lines > 12;
    chomp @lines;

    return @lines ? join "\n    ", ':', @lines : '';
}


sub _conf {
    my ($self) = @_;

    return $self->_conf_top
        . "http {\n"
        . $self->_conf_files
        . $self->_conf_senders
        . $self->_conf_queue
        . $self->_conf_guard
        . "}\n";
}


sub _conf_top {
    my ($self) = @_;
    my $load = defined $self->{module} ? "load_module $self->{module};" : '';
    my $user = '';

    # nginx takes the group of the same name, which nobody has on Debian

    if ($> == 0 && (my ($name, $gid) = (getpwnam 'nobody')[0, 3])) {
        $user = "user $name " . getgrgid($gid) . ';';
    }

    return <<"EOF";
$load
$user
daemon            off;
worker_processes  2;
pid               @{[ $self->file('nginx.pid') ]};
error_log         @{[ $self->file('error.log') ]} notice;

events {
    worker_connections  2048;
}

EOF
}


sub _conf_files {
    my ($self) = @_;
    my $temp = '';

    foreach my $what (qw(client_body proxy fastcgi uwsgi scgi)) {
        next if $self->{about} =~ /--without-http_${what}_module/;
        $temp .= "    ${what}_temp_path  " . $self->file("temp_$what") . ";\n";
    }

    return $temp . <<"EOF";

    log_format  guard  '\$remote_addr "\$request" \$status '
                       'verdict=\$iap_guard_verdict layer=\$iap_guard_layer '
                       'user=\$http_x_user_id device=\$http_x_device_id';
    access_log  @{[ $self->file('access.log') ]} guard;

EOF
}


# Who a request comes from is what the senders say: each has an address.

sub _conf_senders {
    return <<"EOF";
    set_real_ip_from  127.0.0.1;
    real_ip_header    X-Forwarded-For;

    # a carrier puts many subscribers behind few addresses

    geo \$address_users {
        default  @{[ ADDRESS_USERS ]};
        @{[ CARRIER ]}  @{[ CARRIER_USERS ]};
    }

    geo \$neighbour_users {
        default  @{[ NEIGHBOUR_USERS ]};
        @{[ CARRIER ]}  @{[ CARRIER_USERS ]};
    }

EOF
}


# Where purchases go that Apple can't verify at the moment

sub _conf_queue {
    my ($self) = @_;

    return <<"EOF";
    iap_guard_zone     iap 16m;
    iap_guard_ledger   @{[ $self->file('ledger/ledger.db') ]};
    iap_guard_json     \$promo_code code;

    iap_guard_breaker  apple failures=50% min=20 consecutive=5 window=10s
                       open=2s probes=3 classify=apple;

    iap_guard_queue    receipts
                       target=@{[ $self->apple->url('/verifyReceipt') ]}
                       breaker=apple rate=@{[ QUEUE_RATE ]}r/s
                       retry_min=1s retry_max=5s
                       callback=@{[ $self->receiver->url('/activated') ]}
                       secret_file=@{[ $self->file('webhook.secret') ]};

EOF
}


sub _conf_campaign {
    my ($self) = @_;
    my $bucket = 'capacity=' . CAMPAIGN_CAPACITY
                 . ' rate=' . CAMPAIGN_CAPACITY . 'r/m';

    return <<"EOF";
        location = /v1/campaign {
            iap_guard          campaign;
            iap_guard_segment  users=\$address_users window=60s;
            iap_guard_user     \$http_x_user_id   $bucket;
            iap_guard_device   \$http_x_device_id $bucket;
            iap_guard_code     \$promo_code lease=10s
                               attempts=@{[ ATTEMPTS ]}r/m;
            add_header         X-Verdict \$iap_guard_verdict always;
            proxy_pass         @{[ $self->promoter->url('/redeem') ]};
        }
EOF
}


sub _conf_guard {
    my ($self) = @_;
    my ($backend, $apple) = ($self->backend->port, $self->apple->port);

    my $bucket = 'capacity=' . BUCKET_CAPACITY
                 . ' rate=' . 60 / REFILL_SECONDS . 'r/m';
    my $global = GLOBAL_RATE . 'r/s';

    return <<"EOF";
    upstream redeem_backend { server 127.0.0.1:$backend; keepalive 32; }
    upstream apple          { server 127.0.0.1:$apple; keepalive 32; }

    server {
        listen              127.0.0.1:$self->{port};
        proxy_http_version  1.1;
        proxy_set_header    Connection "";

        location = /v1/redeem {
            iap_guard          redeem;
            iap_guard_segment  users=\$address_users window=60s;
            iap_guard_segment  ipv4=24 ipv6=48 users=\$neighbour_users
                               window=60s ban=5m;
            iap_guard_user     \$http_x_user_id   $bucket;
            iap_guard_device   \$http_x_device_id $bucket;
            iap_guard_global   rate=$global;
            proxy_pass         http://redeem_backend;
        }

        location = /v1/verify {
            iap_guard          verify;
            iap_guard_user     \$http_x_user_id capacity=30 rate=30r/m;
            iap_guard_breaker  apple fallback=receipts;
            proxy_set_header   Connection "";
            proxy_set_header   Accept-Encoding "";
            proxy_pass         http://apple/verifyReceipt;
        }

        location ~ ^/v1/tickets/(?<ticket>\\w+)\$ {
            iap_guard_ticket  receipts \$ticket;
        }

@{[ $self->_conf_campaign ]}
        location /iap_guard/ {
            iap_guard_api  write token_file=@{[ $self->file('api.token') ]};
            access_log     off;
            allow          127.0.0.1;
            deny           all;
        }
    }
EOF
}


1;
