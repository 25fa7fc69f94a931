package IapGuard::Quick;

# What Test::Nginx does with the help of fixed times and other programs, done
# by looking.  For IapGuard::Test.
#
#   * Before it reads a log it sleeps, for what nginx writes after the answer.
#     Here it goes on when nginx's processes have nothing more to do: they
#     sleep, and all that a client or another process on this machine has sent
#     has woken them.  That is sooner, and on a busy machine it is later.
#     What nginx does on a timer of its own, a block has to "wait" for.
#
#   * After a reload (HUP mode) it asks twenty times, with curl, which
#     configuration answers.  Here it asks until that is the new one and no
#     other worker takes connections.
#
#   * It looks every 50 ms whether nginx has ended.
#
#   * Its random ports may be those of outgoing connections, and may be given
#     to two files that have other folders for temporary files.
#
#   * What a "tcp_listen" was sent stays in a temporary file.

use strict;
use warnings;

use File::Temp ();
use IO::Socket::INET;
use POSIX qw(WNOHANG);
use Time::HiRes qw(sleep);

use Test::Nginx::Socket ();
use Test::Nginx::Util ();

use IapGuard::Child;
use IapGuard::Loop;
use IapGuard::Port qw(free_port is_free);

use constant {
    LOOK    => 0.002,           # seconds between two looks
    LOOKS   => 2,               # so often nginx has to be found asleep
    PATIENCE => 2,              # seconds; then the log is read as it is
    RELOAD  => 30,              # seconds
    PORTS   => 4,               # in a row, for Test::Nginx's "stream_server"
};

my %original = map { $_ => \&{"Test::Nginx::Util::$_"} }
    qw(error_log_data access_log_data kill_process test_config_version);

my ($scratch, $files);


sub settle {
    my $until = IapGuard::Loop::now() + PATIENCE;
    my $asleep = 0;

    while ($asleep < LOOKS && IapGuard::Loop::now() < $until) {
        sleep LOOK;
        $asleep = (grep { IapGuard::Child->state($_) ne 'S' } processes())
            ? 0 : $asleep + 1;
    }

    return;
}


# nginx's; none, where it has not started

sub processes {
    my $master = master() or return;
    return grep { IapGuard::Child->alive($_) }
                $master, IapGuard::Child->children($master);
}


sub master {
    open my $file, '<', $Test::Nginx::Util::PidFile or return;
    my ($pid) = (<$file> // '') =~ /^(\d+)/;
    return $pid;
}


sub settled {
    my ($name) = @_;

    return sub () {
        local $Test::Nginx::Util::TestNginxSleep = 0;
        settle();
        return $original{$name}->();
    };
}


# The signal that Test::Nginx sends first; what does not follow is left to it.

sub kill_process {
    my ($pid, $wait, $name) = @_;

    if ($wait && defined $pid) {
        my $until = IapGuard::Loop::now() + Test::Nginx::Util::timeout();

        kill $ENV{TEST_NGINX_FAST_SHUTDOWN} ? 'TERM' : 'QUIT', $pid;

        while (IapGuard::Loop::now() < $until) {
            waitpid $pid, WNOHANG;
            return if !IapGuard::Child->alive($pid);
            sleep LOOK;
        }
    }

    return $original{kill_process}->($pid, $wait, $name);
}


# While there are both, the old worker and the new one, either may answer.  In
# this order: the new one has its title before it answers, and is counted.

sub test_config_version {
    my ($name, $block) = @_;

    goto &{ $original{test_config_version} }
        if Test::Nginx::Util::use_http2($block);

    my $until = IapGuard::Loop::now() + RELOAD;
    my $wanted = $Test::Nginx::Util::ConfigVersion;

    while (IapGuard::Loop::now() < $until) {
        return if config_version() eq $wanted
                  && workers() <= configured_workers();
        sleep LOOK;
    }

    Test::More::fail("$name - no new configuration in " . RELOAD . ' seconds');

    return;
}


sub workers {
    my $master = master() or return 0;
    return scalar grep { IapGuard::Child->title($_) eq 'nginx: worker process' }
                       IapGuard::Child->children($master);
}


sub configured_workers {
    open my $file, '<', $Test::Nginx::Util::ConfFile or return 1;
    my ($workers) = join('', <$file>) =~ /^\s*worker_processes\s+(\d+)\s*;/m;
    return $workers // 1;
}


# The body of the answer, without which it is none

sub config_version {
    my $socket = IO::Socket::INET->new(
        PeerAddr => $Test::Nginx::Util::ServerAddr, Timeout => 2,
        PeerPort => $Test::Nginx::Util::ServerPort) or return '';
    my $answer = '';

    print {$socket} "GET /ver HTTP/1.0\r\nHost: Test-Nginx\r\n\r\n";
    $socket->flush;
    1 while sysread $socket, $answer, 65_536, length $answer;

    return $answer =~ /\r\n\r\n(.*)\z/s ? $1 : '';
}


sub gen_rand_port {
    my (undef, $used) = @_;

    while (1) {
        my $port = free_port();
        my @others = $port + 1 .. $port + PORTS - 1;

        return $port if !(grep { $used->{$_} } $port, @others)
                        && !grep { !is_free($_) } @others;
    }
}


# goes with the process that asked first, not with those that it forked

sub tmpnam {
    $scratch ||= File::Temp->newdir('iap_guard-XXXXXX', TMPDIR => 1);
    return "$scratch/" . ++$files;
}


{
    no warnings qw(redefine prototype once);

    foreach my $name (qw(error_log_data access_log_data)) {
        no strict 'refs';
        *{"Test::Nginx::${_}::$name"} = settled($name) foreach qw(Util Socket);
    }

    *Test::Nginx::Util::kill_process = sub ($$$) { kill_process(@_) };
    *Test::Nginx::Util::test_config_version
        = sub ($$) { test_config_version(@_) };
    *Test::Nginx::Util::gen_rand_port = sub (;$$$) { gen_rand_port(@_) };
    *Test::Nginx::Util::tmpnam = sub { tmpnam() };
}

1;
