package LinkTest;

# What the tests of the link are made of.  A file of tests says
#
#   test name => sub { ... };
#
# and is read by `run`, which then runs them.

use strict;
use warnings;

use Exporter qw(import);
use File::Temp ();
use Test::More;

use IapGuard::FakeRedis;
use IapGuard::Loop;
use IapGuard::RedisServer;
use LinkDns;
use LinkNginx;

our @EXPORT = qw(test between cpu ends_well fake file name_server nginx now
                 ready redis rss stat_of @METHODS);

our @METHODS = qw(epoll poll select);
our @tests;
our $binary;

my $scratch = File::Temp->newdir('iap_link-XXXXXX', TMPDIR => 1);

chmod 0755, $scratch->dirname;


sub test { push @tests, [@_]; return }


# Below the folder that goes with the test

sub file { return $scratch->dirname . "/$_[0]" }

sub fake { return IapGuard::FakeRedis->new(@_)->start }

sub redis {
    my ($name, @options) = @_;
    return IapGuard::RedisServer->new(folder => file($name), @options);
}

sub name_server { return LinkDns->new(@_)->start }


sub nginx {
    my ($node, %options) = @_;

    return LinkNginx->new(
        binary => $binary, node => ref $node ? $node->node : $node, %options);
}


sub ends_well {
    my ($nginx, @expected) = @_;
    my @complaints = $nginx->end(@expected);

    ok !@complaints, 'no alert, no error, nothing leaked';
    diag $_ foreach @complaints;

    return;
}


sub between {
    my ($ms, $low, $high, $name) = @_;

    ok $ms >= $low && $ms <= $high, "$name ($ms ms)"
        or diag "not between $low and $high";

    return;
}


sub stat_of {
    my ($nginx) = @_;

    $nginx->tell('stat');
    my $line = $nginx->line(qr/^stat/);

    return (split / /, $line)[1, 2];
}


sub ready {
    my ($nginx) = @_;

    $nginx->tell('ready');

    return $nginx->line(qr/^ready/) eq 'ready 1';
}


sub now { return IapGuard::Loop::now() }


# kB of resident memory

sub rss {
    my ($nginx) = @_;
    open my $status, '<', '/proc/' . $nginx->pid . '/status' or return 0;
    return (map { /^VmRSS:\s+(\d+)/ ? $1 : () } <$status>)[0];
}


# seconds of processor time

sub cpu {
    my ($nginx) = @_;

    open my $stat, '<', '/proc/' . $nginx->pid . '/stat' or return 0;
    my @words = split / /, <$stat> =~ s/.*\) //r;

    return ($words[11] + $words[12]) / 100;
}


1;
