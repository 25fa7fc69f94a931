package BenchInstructions;

# How many instructions of its own nginx takes for a request, as valgrind
# counts them: a number that is the same however busy the machine is, but that
# says nothing of the kernel, caches or branches.
#
#   my $instructions = BenchInstructions->new(%site);
#   my $n = $instructions->of($site, '/path');      # $site is not started
#
# What is not a request's is left out by taking two runs, of which one has more
# of them.

use strict;
use warnings;

use Time::HiRes qw(sleep);

use IapGuard::Child;
use IapGuard::LoadClient;
use IapGuard::Loop;
use IapGuard::Nginx;

use constant {
    FEWER => 100,
    MORE  => 600,
};


sub possible { return system('valgrind --version > /dev/null 2>&1') == 0 }


sub of {
    my ($class, $site, $path) = @_;

    return ($class->_run($site, $path, MORE)
            - $class->_run($site, $path, FEWER)) / (MORE - FEWER);
}


# One process, which valgrind can see.

sub _run {
    my ($class, $site, $path, $n) = @_;

    $site->configure(main => 'daemon off; master_process off;');
    $site->accepts or die "nginx does not accept the configuration\n";

    my $out = $site->file("instructions.$n");
    my $child = IapGuard::Child->program(
        { output => $site->file('valgrind.out'), quit => 'QUIT' },
        'valgrind', '--tool=callgrind', "--callgrind-out-file=$out",
        $site->{nginx}, '-p', $site->folder, '-c', $site->file('nginx.conf'),
        '-e', $site->file('error.log'));

    _requests($site, $path, $n);
    $child->stop;

    open my $file, '<', $out or die "valgrind has counted nothing\n";
    my ($count) = do { local $/; <$file> } =~ /^(?:summary|totals): (\d+)/m;

    return $count;
}


# One after the other, on one connection

sub _requests {
    my ($site, $path, $n) = @_;
    my $loop   = IapGuard::Loop->new;
    my $client = IapGuard::LoadClient->new(loop => $loop, port => $site->port,
                                           connections => 1);
    my $left = $n;

    $site->wait_for(20, sub {
        my $answer = IapGuard::LoadClient->fetch('GET', $site->url('/none'));
        return !$answer->{error};
    }) or die "nginx does not start under valgrind\n";

    foreach (1 .. $n) {
        $client->request({ method => 'GET', path => $path }, sub {
            my ($answer) = @_;
            die "$path: " . ($answer->{error} || $answer->{status}) . "\n"
                if $answer->{error} || $answer->{status} != 200;
            $left--;
        });
    }

    $loop->run_until(sub { !$left });
    $client->shut;

    return;
}


1;
