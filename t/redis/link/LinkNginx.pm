package LinkNginx;

# An nginx whose only work is one link, driven line by line: see
# ngx_iap_link_test.c for what can be said to it.
#
#   my $nginx = LinkNginx->new(binary => $file, node => '127.0.0.1:6379',
#                              timeout => '200ms', use => 'poll');
#   $nginx->tell('send 1 none PING');
#   my ($result, $ms, $reply) = $nginx->done(1);
#   my @complaints = $nginx->end;       # of its log, and of how it ended
#
# Further options are `use` (of events), `connections` of a worker, `level` of
# the log, `master` (process), `shutdown` (how long it may take), and what the
# directives "test_..." take.

use strict;
use warnings;

use Fcntl qw(F_SETFD);
use File::Temp ();
use IO::Select;
use POSIX qw(WNOHANG);
use Socket qw(AF_UNIX SOCK_STREAM PF_UNSPEC);
use Time::HiRes qw(sleep);

use IapGuard::Loop;


sub new {
    my ($class, %options) = @_;

    my $self = bless {
        use => 'epoll', master => 0, connections => 64, shutdown => '1m',
        level => $ENV{TEST_NGINX_LOG_LEVEL} || 'info', %options,
        lines => [], in => '',
        folder => File::Temp->newdir('iap_link-XXXXXX', TMPDIR => 1),
    }, $class;

    chmod 0755, $self->{folder}->dirname;
    $self->_start;

    return $self;
}


sub file { return $_[0]{folder}->dirname . "/$_[1]" }
sub pid  { return $_[0]{pid} }


sub tell {
    my ($self, $line) = @_;
    local $SIG{PIPE} = 'IGNORE';

    syswrite $self->{socket}, "$line\n"
        or die "nginx is gone: $!\n", $self->log_lines(qr/./);

    return;
}


# The first line that matches, which then is forgotten; undef where none
# comes in so many seconds.

sub line {
    my ($self, $pattern, $seconds) = @_;
    my $until = IapGuard::Loop::now() + ($seconds || 10);

    while (1) {
        foreach my $i (0 .. $#{ $self->{lines} }) {
            next unless $self->{lines}[$i] =~ $pattern;
            return splice @{ $self->{lines} }, $i, 1;
        }

        my $left = $until - IapGuard::Loop::now();
        return undef if $left <= 0 || !$self->_read($left);
    }
}


# How an operation fared: result, milliseconds, reply

sub done {
    my ($self, $id, $seconds) = @_;

    my $line = $self->line(qr/^done $id /, $seconds);
    return ('nothing', -1, '') unless defined $line;

    return (split / /, $line, 5)[2 .. 4];
}


# send ID ..., to its end

sub ask {
    my ($self, $id, @words) = @_;

    $self->tell("send $id none @words");
    my $sent = $self->line(qr/^sent $id /);

    return ('nothing', -1, '')  unless defined $sent;
    return ('declined', -1, '') if $sent =~ /declined/;
    return $self->done($id);
}


# Asks until the link works again; how long that took, or undef

sub works_within {
    my ($self, $seconds) = @_;
    my $start = IapGuard::Loop::now();

    until (IapGuard::Loop::now() > $start + $seconds) {
        $self->tell('send 999999 none ECHO again');
        my $line = $self->line(qr/^(?:done|sent) 999999 (?!ok$)/, 5);

        return IapGuard::Loop::now() - $start
            if defined $line && $line =~ /^done 999999 ok/;

        sleep 0.01;
    }

    return undef;
}


sub log_lines {
    my ($self, $pattern) = @_;

    open my $log, '<', $self->file('error.log') or return;
    return grep { $_ =~ $pattern } <$log>;
}


# Ends nginx, and says what was wrong

sub end {
    my ($self, @expected) = @_;

    shutdown $self->{socket}, 1 if $self->{socket};

    my $status = $self->wait_for_end(10);
    my @complaints;

    if (!defined $status) {
        kill 'KILL', $self->{pid};
        waitpid $self->{pid}, 0;
        push @complaints, 'it did not end';

    } elsif ($status != 0) {
        push @complaints, "it ended with $status";
    }

    delete $self->{pid};

    push @complaints, $self->log_lines(
        qr/\[(?:alert|crit|emerg|error)\]|Sanitizer|^\s+#\d|SUMMARY/);

    foreach my $pattern (@expected) {
        @complaints = grep { $_ !~ $pattern } @complaints;
    }

    push @complaints, map { "unread: $_" } grep { /INSIDE|what\?/ }
                      @{ $self->{lines} };

    return @complaints;
}


sub wait_for_end {
    my ($self, $seconds) = @_;
    my $until = IapGuard::Loop::now() + $seconds;

    while (IapGuard::Loop::now() < $until) {
        return $? if waitpid($self->{pid}, WNOHANG) == $self->{pid};
        sleep 0.005;
    }

    return undef;
}


sub DESTROY {
    my ($self) = @_;
    local ($@, $?, $!);

    if ($self->{pid}) {
        kill $self->{master} ? 'TERM' : 'KILL', $self->{pid};
        waitpid $self->{pid}, 0;
    }

    return;
}


sub _read {
    my ($self, $seconds) = @_;

    return 0 unless IO::Select->new($self->{socket})->can_read($seconds);
    return 0 unless sysread $self->{socket}, $self->{in}, 65_536,
                            length $self->{in};

    while ($self->{in} =~ s/^(.*)\n//) {
        push @{ $self->{lines} }, $1;
    }

    return 1;
}


sub _start {
    my ($self) = @_;

    socketpair my $ours, my $its, AF_UNIX, SOCK_STREAM, PF_UNSPEC
        or die "socketpair: $!\n";

    $self->{socket} = $ours;
    $self->_write_conf(fileno $its);

    $self->{pid} = fork;
    die "fork: $!\n" unless defined $self->{pid};

    if ($self->{pid} == 0) {
        fcntl $its, F_SETFD, 0;
        open STDIN, '<', '/dev/null';
        open STDERR, '>>', $self->file('error.log');
        open STDOUT, '>&', \*STDERR;
        exec { $self->{binary} } $self->{binary},
             '-p', $self->{folder}->dirname, '-c', $self->file('nginx.conf'),
             '-e', $self->file('error.log')
            or POSIX::_exit(127);
    }

    return;
}


# The directives of the test module, which one of another kind has others of

sub options {
    return qw(node timeout waiting user password db resolver tls tls_name);
}


sub _write_conf {
    my ($self, $control) = @_;
    my $directives = '';

    foreach my $name ($self->options) {
        my $value = $self->{$name};

        $directives .= "test_$name \"$_\";\n"
            foreach grep { defined } ref $value ? @$value : $value;
    }

    open my $conf, '>', $self->file('nginx.conf') or die "nginx.conf: $!\n";
    print {$conf} <<"END";
daemon          off;
master_process  @{[ $self->{master} ? 'on' : 'off' ]};
worker_shutdown_timeout $self->{shutdown};
pid             @{[ $self->file('nginx.pid') ]};
lock_file       @{[ $self->file('nginx.lock') ]};
error_log       @{[ $self->file('error.log') ]} $self->{level};
test_control $control;
$directives
events {
    use                 $self->{use};
    worker_connections  $self->{connections};
}
END
    close $conf or die "nginx.conf: $!\n";

    return;
}


1;
