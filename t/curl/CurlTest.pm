package CurlTest;

# What the tests of the calls through libcurl are made of.  A file of tests
# says
#
#   test name => sub { ... };
#
# and is read by `run`, which then runs them.

use strict;
use warnings;

use Exporter qw(import);
use File::Basename qw(dirname);
use Test::More;

use lib dirname(__FILE__) . '/../redis/link';

use IapGuard::RawServer;
use LinkTest qw(test between ends_well file now);
use CurlNginx;

our @EXPORT = qw(test between ends_well file now nginx server answer
                 lag_is_small lag_is_tiny);

our $binary;


sub nginx { return CurlNginx->new(binary => $binary, @_) }

sub server { return IapGuard::RawServer->start(@_) }


# A whole answer, as bytes

sub answer {
    my ($status, $body, @fields) = @_;

    return join "\r\n", "HTTP/1.1 $status Some Reason",
                'Content-Length: ' . length $body, @fields, '', $body;
}


# Whoever else is served by this worker does not wait for what took seconds;
# with AddressSanitizer, on a machine with other work, that is not measured
# closely

sub lag_is_small {
    my ($nginx, $name) = @_;
    my $lag = $nginx->lag;

    cmp_ok $lag, '<', 250, "$name: nobody else waits ($lag ms)";

    return;
}


# The same of what takes milliseconds: other work is not there each time

sub lag_is_tiny {
    my ($nginx, $name, $code) = @_;
    my @lags;

    foreach (1 .. 8) {
        $nginx->lag;
        $code->();
        push @lags, $nginx->lag;
        last if $lags[-1] < 25;
    }

    cmp_ok $lags[-1], '<', 25, "$name: nobody else waits (@lags ms)";

    return;
}

1;
