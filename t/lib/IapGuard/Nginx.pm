package IapGuard::Nginx;

# A scratch nginx on loopback, with the module: a daemon, as it is used, so
# that reloads, killed workers and binary upgrades behave as they do there.
#
#   my $nginx = IapGuard::Nginx->new(
#       IapGuard::Nginx->options, workers => 2,
#       http => 'iap_guard_zone iap 16m;', server => 'location / { ... }');
#
#   $nginx->start;
#   my $answer = $nginx->get('/x', 'X-User-Id' => 'u1');
#   $nginx->api('PUT', 'guards/redeem', '{"mode":"off"}');
#   $nginx->change(server => 'location / { ... }');     # and reloads
#   $nginx->crash;  $nginx->revive;     # at the same port
#   $nginx->stop;               # also when the object goes, or the process
#
# Besides what `http` and `server` hold there is /iap_guard/, the API.  Other
# options: `level` of the error log (notice), `listen` for parameters of that
# directive, `connections` of a worker, `cpu` to pin all processes to,
# `others`, names of modules from nginx's own folder that are loaded as well,
# and `main` and `events`, what else stands there.

use strict;
use warnings;

use Cwd qw(abs_path);
use File::Temp ();
use Getopt::Long ();
use JSON::PP ();
use Time::HiRes qw(sleep);

use IapGuard::Child;
use IapGuard::LoadClient;
use IapGuard::Loop;
use IapGuard::Port qw(free_port);

use constant {
    PORTS_TRIED  => 5,
    QUIT_SECONDS => 5,
};


# The paths, from the command line (--module= and --nginx=) or from what
# Test::Nginx is told in the environment.

sub options {
    my %paths = (nginx  => $ENV{TEST_NGINX_BINARY} || '/usr/sbin/nginx',
                 module => $ENV{TEST_NGINX_LOAD_MODULES});

    Getopt::Long::GetOptions(\%paths, 'nginx=s', 'module=s')
        or die "usage: $0 [--module=FILE] [--nginx=FILE]\n";

    return map { $_ => abs_path($paths{$_}) || $paths{$_} }
           grep { defined $paths{$_} && length $paths{$_} } keys %paths;
}


sub new {
    my ($class, %options) = @_;

    my $scratch = File::Temp->newdir('iap_guard-XXXXXX', TMPDIR => 1);

    # nginx's workers run as another user if we are root

    chmod 0755, $scratch->dirname or die "$scratch: $!\n";

    my $self = bless {
        level => 'notice', listen => '', workers => 1, connections => 2048,
        main => '', events => '', http => '', server => '', %options,
        scratch => $scratch,
        token   => join('', map { sprintf '%04x', rand 65_536 } 1 .. 8),
    }, $class;

    $self->_ask;

    return $self;
}


sub port   { return $_[0]{port} }
sub token  { return $_[0]{token} }
sub folder { return $_[0]{scratch}->dirname }
sub file   { return $_[0]->folder . "/$_[1]" }
sub url    { return "http://127.0.0.1:$_[0]{port}$_[1]" }

# whether this nginx was built with AddressSanitizer: all is slower then, and
# freed memory is not given back

sub asan   { return $_[0]{asan} }


sub start {
    my ($self) = @_;

    _write($self->file('api.token'), "$self->{token}\n");

    # between the search for a free port and nginx's start somebody else may
    # take it

    for (1 .. PORTS_TRIED) {
        $self->{port} = free_port();
        _write($self->file('nginx.conf'), $self->_conf);

        my $rc = system 'sh', '-c', 'exec "$@" > "$0" 2>&1 < /dev/null',
                        $self->file('nginx.out'), $self->_command;

        if ($rc == 0) {
            $self->{keeper} = _keeper($self->folder);
            $self->wait_for(10, sub { $self->workers == $self->{workers} })
                or die "nginx did not start its workers\n";
            return $self;
        }

        my $words = _slurp($self->file('nginx.out'));
        die "nginx did not start: $words\n"
            unless $words =~ /Address already in use/;
    }

    die 'nginx found no free port in ' . PORTS_TRIED . " tries\n";
}


# Whether "nginx -t" accepts the configuration

sub accepts {
    my ($self) = @_;

    _write($self->file('api.token'), "$self->{token}\n");
    $self->{port} = free_port();
    _write($self->file('nginx.conf'), $self->_conf);

    return !system 'sh', '-c', 'exec "$@" -t > /dev/null 2>&1 < /dev/null',
                   'sh', $self->_command;
}


# All its processes at once, as a machine that loses its power.  The master is
# stopped first: it must not make a worker that is missed.

sub crash {
    my ($self) = @_;
    my $master = $self->master or return 0;

    kill 'STOP', $master or return 0;
    $self->wait_for(1, sub { IapGuard::Child->state($master) !~ /[RSD]/ });

    my @all = ($master, _workers($master, qr/^nginx: /));

    kill 'KILL', @all;
    _gone(@all) or die "nginx does not die\n";

    return scalar @all;
}


sub revive {
    my ($self) = @_;

    system('sh', '-c', 'exec "$@" > "$0" 2>&1 < /dev/null',
           $self->file('nginx.out'), $self->_command) == 0
        or die 'nginx did not start again: '
               . _slurp($self->file('nginx.out')) . "\n";

    $self->wait_for(10, sub { $self->workers == $self->{workers} })
        or die "nginx did not start its workers again\n";

    return $self;
}


sub stop {
    my ($self) = @_;
    my $keeper = delete $self->{keeper} or return;

    $keeper->stop;

    return;
}


sub DESTROY {
    my ($self) = @_;
    local ($@, $?, $!);
    $self->stop;
    return;
}


# The pid in nginx.pid; 0 where there is none.

sub master {
    my ($self, $suffix) = @_;
    return _pid($self->file('nginx.pid' . ($suffix || '')));
}


# Pids of the workers that take requests: not of those that shut down.

sub workers {
    my ($self, $master) = @_;
    return _workers($master || $self->master, qr/^nginx: worker process$/);
}

sub all_workers {
    my ($self, $master) = @_;
    return _workers($master || $self->master, qr/^nginx: worker process/);
}


# How many connections to a port each of these processes has, as they have them
# open: what they have closed, though the kernel remembers it, is none.

sub connections_to {
    my ($class, $port, @pids) = @_;
    my %sockets;

    foreach my $line (split /\n/, _slurp('/proc/net/tcp')) {
        my ($remote, $inode) = (split ' ', $line)[2, 9];
        $sockets{"socket:[$inode]"} = 1
            if $remote =~ /:([0-9A-F]{4})$/ && hex $1 == $port;
    }

    return map {
        scalar grep { $sockets{ readlink($_) || '' } } glob "/proc/$_/fd/*"
    } @pids;
}


# Waits for a condition; false if it did not come true in time.

sub wait_for {
    my ($class, $seconds, $condition) = @_;
    my $until = IapGuard::Loop::now() + $seconds;

    until ($condition->()) {
        return 0 if IapGuard::Loop::now() > $until;
        sleep 0.01;
    }

    return 1;
}


# Other options, for the start or the next reload.

sub configure {
    my ($self, %options) = @_;

    $self->{$_} = $options{$_} foreach keys %options;
    _write($self->file('nginx.conf'), $self->_conf) if $self->{port};

    return $self;
}


# Sends HUP, and waits until all the workers are new ones.

sub reload {
    my ($self) = @_;

    # right after a start they may not be there yet

    $self->wait_for(10, sub { $self->workers == $self->{workers} });

    my %old = map { $_ => 1 } $self->all_workers;

    kill 'HUP', $self->master;

    return $self->wait_for(10, sub {
        my @new = $self->workers;
        return @new == $self->{workers} && !grep { $old{$_} } @new;
    });
}


# The same with other options

sub change {
    my ($self, %options) = @_;

    $self->{$_} = $options{$_} foreach keys %options;
    _write($self->file('nginx.conf'), $self->_conf);

    return $self->reload;
}


# An answer is as IapGuard::LoadClient gives it.

sub get {
    my ($self, $path, %headers) = @_;

    return IapGuard::LoadClient->fetch('GET', $self->url($path),
                                       headers => \%headers);
}


# The answers to many GETs, each [path, header => value...], in their order;
# up to 32 at a time.

sub ask {
    my ($self, @requests) = @_;
    my $loop = IapGuard::Loop->new;
    my $left = @requests;
    my @answers;

    my $client = IapGuard::LoadClient->new(
        loop => $loop, port => $self->port, connections => 32, timeout => 15);

    foreach my $i (0 .. $#requests) {
        my ($path, %headers) = @{ $requests[$i] };

        $client->request(
            { method => 'GET', path => $path, headers => \%headers },
            sub { $answers[$i] = shift; $left-- });
    }

    $loop->run_until(sub { !$left });
    $client->shut;

    return @answers;
}


# A call of the API; the body of its answer.

sub api {
    my ($self, $method, $path, $body) = @_;

    my $answer = IapGuard::LoadClient->fetch($method,
        $self->url("/iap_guard/$path"), body => $body, timeout => 30,
        headers => { Authorization => "Bearer $self->{token}" });

    die "$method $path: $answer->{error}\n" if $answer->{error};
    die "$method $path: status $answer->{status}, $answer->{body}\n"
        if $answer->{status} >= 300;

    return $answer->{body};
}


sub api_json {
    my ($self, @call) = @_;
    return JSON::PP->new->utf8->decode($self->api(@call));
}


sub ban {
    my ($self, $guard, $layer, $key, $seconds) = @_;

    return $self->api('POST', 'bans', JSON::PP->new->canonical->encode(
        { guard => $guard, layer => $layer, key => $key,
          seconds => $seconds + 0 }));
}


# { 'name{label="value"}' => number }

sub metrics {
    my ($self) = @_;
    return $self->parse_metrics($self->api('GET', 'metrics'));
}


sub parse_metrics {
    my ($class, $text) = @_;
    my %metrics;

    foreach my $line (split /\n/, $text) {
        next if $line =~ /^# (?:HELP|TYPE) iap_guard_\w+ \S/;

        $line =~ /^(iap_guard_\w+(?:\{(?:\w+="[^"\\]*",?)*\})?) ([0-9.e+]+)$/
            or die "not a line of metrics: \"$line\"\n";
        die "twice in the metrics: \"$1\"\n" if exists $metrics{$1};
        $metrics{$1} = $2;
    }

    return \%metrics;
}


# The sum over the labels of all samples of one name that match.

sub metric {
    my ($self, $name, $labels) = @_;
    my $metrics = $self->metrics;
    my $sum     = 0;

    foreach my $sample (grep { /^\Q$name\E\{/ } keys %$metrics) {
        $sum += $metrics->{$sample} if !defined $labels || $sample =~ $labels;
    }

    return $sum;
}


sub log_lines {
    my ($self, $pattern) = @_;
    return grep { $_ =~ $pattern } split /^/, _slurp($self->file('error.log'));
}


# Lines that should never be in an error log, but for the expected ones.

sub complaints {
    my ($self, @expected) = @_;
    my @lines = $self->log_lines(qr/\[(?:alert|crit|emerg)\]|Sanitizer
                                    |process\ \d+\ exited\ (?:on|with\ code\ [1-9])/x);

    foreach my $pattern (@expected) {
        @lines = grep { $_ !~ $pattern } @lines;
    }

    return @lines;
}


sub _ask {
    my ($self) = @_;

    die "no nginx at \"$self->{nginx}\"\n" unless -x $self->{nginx};
    die "no module at \"$self->{module}\"\n"
        if defined $self->{module} && !-r $self->{module};

    open my $pipe, '-|', 'sh', '-c', 'exec "$0" -V 2>&1', $self->{nginx}
        or die "$self->{nginx}: $!\n";
    $self->{about} = do { local $/; <$pipe> };
    close $pipe;

    $self->{asan} = $self->{about} =~ /-fsanitize=address/ ? 1 : 0;

    return;
}


sub _command {
    my ($self) = @_;

    return ((defined $self->{cpu} ? ('taskset', '-c', $self->{cpu}) : ()),
            $self->{nginx}, '-p', $self->folder,
            '-c', $self->file('nginx.conf'), '-e', $self->file('error.log'));
}


sub _conf {
    my ($self) = @_;
    my $load = $self->_load;
    my ($user, $temp) = ('', '');

    # nginx takes the group of the same name, which nobody has on Debian

    if ($> == 0 && (my ($name, $gid) = (getpwnam 'nobody')[0, 3])) {
        $user = "user $name " . getgrgid($gid) . ';';
    }

    foreach my $what (qw(client_body proxy fastcgi uwsgi scgi)) {
        next if $self->{about} =~ /--without-http_${what}_module/;
        $temp .= "    ${what}_temp_path  " . $self->file("temp_$what") . ";\n";
    }

    return <<"END";
$load
$user
worker_processes  $self->{workers};
$self->{main}
pid               @{[ $self->file('nginx.pid') ]};
error_log         @{[ $self->file('error.log') ]} $self->{level};

events {
    worker_connections  $self->{connections};
$self->{events}
}

http {
$temp
    access_log          off;
    keepalive_requests  100000000;
    keepalive_timeout   600;

$self->{http}

    server {
        listen  127.0.0.1:$self->{port} $self->{listen};

$self->{server}

        location /iap_guard/ {
            iap_guard_api  write token_file=@{[ $self->file('api.token') ]};
            iap_guard      off;
        }
    }
}
END
}


# nginx looks for a relative path below -p, where there are no modules

sub _load {
    my ($self) = @_;
    my ($folder) = $self->{about} =~ /--modules-path=(\S+)/;
    my @files = map { ($folder || 'modules') . "/$_.so" }
                @{ $self->{others} || [] };

    push @files, $self->{module} if defined $self->{module};

    return join "\n", map { "load_module $_;" } @files;
}


# A process that ends nginx when its parent says so, or is gone.

sub _keeper {
    my ($folder) = @_;

    return IapGuard::Child->start(sub {
        my ($gone) = @_;

        $SIG{$_} = 'IGNORE' foreach qw(INT TERM HUP);
        sysread $gone, my $byte, 1;

        foreach my $file ("$folder/nginx.pid.oldbin", "$folder/nginx.pid") {
            my $master = _pid($file) or next;
            my @all    = ($master, _workers($master, qr/^nginx: /));

            kill 'QUIT', $master;
            _gone(@all) or do { kill 'TERM', $master; _gone(@all) }
                        or kill 'KILL', @all;
        }

        return 0;
    });
}


sub _gone {
    my (@pids) = @_;

    return IapGuard::Nginx->wait_for(QUIT_SECONDS, sub {
        return !grep { IapGuard::Child->alive($_) } @pids;
    });
}


sub _workers {
    my ($master, $title) = @_;

    my @pids = grep { IapGuard::Child->title($_) =~ $title }
               $master ? IapGuard::Child->children($master) : ();

    return @pids;
}


sub _pid {
    my ($file) = @_;
    return _slurp($file) =~ /^(\d+)/ ? $1 : 0;
}


sub _slurp {
    my ($path) = @_;

    open my $file, '<', $path or return '';
    local $/;
    my $text = <$file>;

    return defined $text ? $text : '';
}


sub _write {
    my ($path, $text) = @_;

    open my $file, '>', $path or die "$path: $!\n";
    print $file $text;
    close $file or die "$path: $!\n";

    return;
}


1;
