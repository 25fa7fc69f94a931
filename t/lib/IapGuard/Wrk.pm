package IapGuard::Wrk;

# A run of wrk with senders.lua beside this file, which says what the `send`
# options mean.
#
#   my $wrk = IapGuard::Wrk->start(
#       url => $nginx->url('/x'), threads => 2, connections => 64,
#       seconds => 10, send => { header => 'X-User-Id:u%d', last => 1000 });
#
#   my $result = $wrk->stop;        # before its time, or:
#   my $result = $wrk->result;      # waits for its end
#
# A result is { requests, seconds, p50, p99, max, connect, read, write,
# status, timeout }: latencies in milliseconds, then wrk's counts of errors,
# of which `status` is that of answers from 400 on.
#
# `cpu` pins it to a processor; `urgent` lets it run before all others there.

use strict;
use warnings;

use File::Basename qw(dirname);
use File::Temp ();
use Time::HiRes qw(sleep);

use IapGuard::Child;

my $SCRIPT = dirname(__FILE__) . '/senders.lua';


sub start {
    my ($class, %options) = @_;
    my $threads = $options{threads} || 1;
    my %send    = (threads => $threads, %{ $options{send} || {} });

    my $output = File::Temp->new(TEMPLATE => 'iap_guard-wrk-XXXXXX',
                                 TMPDIR => 1);

    my @command = (
        'wrk', "-t$threads", "-c$options{connections}",
        "-d$options{seconds}s", '--timeout', '15s', '-s', $SCRIPT,
        $options{url}, '--', map { "$_=$send{$_}" } sort keys %send);

    unshift @command, 'taskset', '-c', $options{cpu} if defined $options{cpu};
    unshift @command, qw(chrt -f 1) if $options{urgent} && _may_be_urgent();

    my $child = IapGuard::Child->program(
        { output => $output->filename, quit => 'INT' },
        'sh', '-c', 'exec "$@"', 'sh', @command);

    return bless { output => $output, child => $child }, $class;
}


sub run {
    my ($class, %options) = @_;
    return $class->start(%options)->result;
}


sub running { return $_[0]{child}->running }


sub stop {
    my ($self) = @_;
    $self->{child}->stop;
    return $self->result;
}


sub result {
    my ($self) = @_;

    sleep 0.02 while $self->{child}->running;

    open my $file, '<', $self->{output}->filename
        or die "wrk's output: $!\n";
    my $text = do { local $/; <$file> };

    $text =~ /^result: (.*)$/m or die "wrk failed: $text\n";

    return { map { split /=/ } split / /, $1 };
}


# Failures that no answer is behind.

sub failures {
    my ($class, $result) = @_;
    my $sum = 0;

    $sum += $result->{$_} foreach qw(connect read write timeout);

    return $sum;
}


my $may_be_urgent;

sub _may_be_urgent {
    $may_be_urgent = system('chrt -f 1 true > /dev/null 2>&1') == 0
        unless defined $may_be_urgent;

    return $may_be_urgent;
}


1;
