package RouteTest;

# What the tests of the routes are made of; see LinkTest for `test`.

use strict;
use warnings;

use File::Basename qw(dirname);
use lib dirname(__FILE__) . '/../link';

use Exporter qw(import);
use File::Basename qw(dirname);
use Test::More;

use lib dirname(__FILE__) . '/../link';

use IapGuard::FakeRedis;
use LinkTest ();
use LinkNginx;
use RouteNginx;

our @EXPORT = qw(test between ends_well nginx fake redis now file
                 $ADMITTED array bulk slots asked name_server waits key_in
                 $ASK master_is sentinel sentinel_nginx);
our $binary;

BEGIN {
    no strict 'refs';
    *{$_} = \&{"LinkTest::$_"}
        foreach qw(test between ends_well now file name_server redis);
}

# what lua/decide.lua answers if there is one check, which admits

our $ADMITTED = array(":1000000", bulk("A"));

# by which a sentinel is asked for the master: the key of a fake's rule

our $ASK = 'get-master-addr-by-name';


sub nginx { return RouteNginx->new(binary => $binary, @_) }


# A server that admits what it is asked

sub fake {
    my $fake = IapGuard::FakeRedis->new(@_)->start;
    $fake->behave('*', raw => $ADMITTED);
    return $fake;
}


# Of the Redis protocol: an array of what is said literally, or within each
# other

sub array {
    my (@elements) = @_;

    return '*' . @elements . "\r\n" . join '', map {
        ref $_ ? array(@$_) : /\r\n\z/ ? $_ : "$_\r\n"
    } @elements;
}

sub bulk {
    my ($text) = @_;
    return defined $text ? '$' . length($text) . "\r\n$text\r\n" : "\$-1\r\n";
}


# CLUSTER SLOTS: [first, last, host, port], ...

sub slots {
    my (@ranges) = @_;

    return array(map {
        my ($first, $last, $host, $port) = @$_;
        array(":$first", ":$last", [bulk($host), ":$port", bulk('0' x 40)])
    } @ranges);
}


# What a sentinel says, one that says so, and an nginx that asks some

sub master_is { return raw => array(map { bulk($_) } split /:(?=\d+$)/, $_[0]) }

sub sentinel {
    my ($node) = @_;

    my $fake = IapGuard::FakeRedis->new(port => 0)->start;
    $fake->behave($ASK, master_is($node)) if defined $node;

    return $fake;
}

sub sentinel_nginx {
    my ($sentinels, %options) = @_;

    return nginx(mode => 'sentinel', master_name => 'mymaster',
                 node => [map { ref $_ ? $_->node : $_ } @$sentinels],
                 %options);
}


# A key of which the bucket is in these slots; others with other names

sub key_in {
    my ($first, $last, $name) = @_;
    $name = 'k' unless defined $name;

    for (my $i = 0; ; $i++) {
        my $slot = crc16("t:b:$name$i") % 16_384;
        return "$name$i" if $slot >= $first && $slot <= $last;
    }
}

sub crc16 {
    my ($bytes) = @_;
    my $crc = 0;

    foreach my $byte (unpack 'C*', $bytes) {
        $crc ^= $byte << 8;
        $crc = ($crc << 1 ^ ($crc & 0x8000 ? 0x1021 : 0)) & 0xffff for 1 .. 8;
    }

    return $crc;
}


# how often one of a fake's keys was asked for

sub asked { return $_[0]->report->{asked}{ $_[1] } || 0 }


sub waits {
    my ($seconds, $condition) = @_;
    my $until = now() + $seconds;

    until ($condition->()) {
        return 0 if now() > $until;
        Time::HiRes::sleep(0.01);
    }

    return 1;
}


1;
