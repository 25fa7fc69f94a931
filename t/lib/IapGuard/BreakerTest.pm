package IapGuard::BreakerTest;

# What the files about the breaker's calls have in common, on top of
# IapGuard::Test.
#
#   use IapGuard::BreakerTest { '/path' => [script], ... };
#
# Each block has a breaker "b" (its parameters, but for the name, are in the
# section "b") that judges as "apple", and one "c" that judges as "http"; an
# upstream "raw" that IapGuard::RawServer serves, with these scripts; the API
# under /api/.  After a block's own requests come
#
#   --- outcomes: success=1 retry=2     of "b": these, and no others
#   --- outcomes_c: success=1           of "c"
#   --- wait: 0.3                       before that is looked at
#
# which ask the API, and find nothing in flight, or as many calls as the section
# "inflight" says.  "share" is b's part of failures ("0.5"), "state" its state
# (closed, if nothing is said), "shows" what else the API is to show of it
# ("calls=1 slow=1 reason=failures").
#
#   --- guard: passed=1 limited_dry_run=2
#   --- rejections: breaker=1
#
# are the requests of a guard "g", and what its layers have rejected; these, and
# no others.
#
# A block with one request says what its answer is in error_code,
# response_body_like and so on, as ever; with several it has lists.

use strict;
use warnings;

use JSON::PP ();
use Test::More;

use IO::Socket::INET ();

use IapGuard::LoadClient;
use IapGuard::RawServer;
use Test::Nginx::Util qw(add_block_preprocessor);

my $raw;

# The API has a port of its own: where the tests speak HTTP/2, so does theirs.

my $api_port = free_port();


sub import {
    my ($class, $scripts) = @_;

    $raw = IapGuard::RawServer->start(%{ $scripts || {} });
    $ENV{TEST_NGINX_RAW_PORT} = $raw->port;

    return;
}


add_block_preprocessor(sub {
    my ($block) = @_;
    my $b = defined $block->b ? $block->b : '';

    chomp $b;

    $block->set_value(http_config => <<"END" . ($block->http_config // ''));
    iap_guard_breaker b classify=apple $b;
    iap_guard_breaker c;
    upstream raw { server 127.0.0.1:$ENV{TEST_NGINX_RAW_PORT}; }
    server {
        listen 127.0.0.1:$api_port;
        location /api/ { iap_guard_api read; }
    }
END
    $block->set_value(config => <<'END' . ($block->config // ''));
    location /api/ { iap_guard_api read; }
END
});


# runs when a block's requests have been made

Test::Nginx::Socket::add_response_body_check(sub {
    my ($block, $body, $index, $repeat) = @_;
    my $requests = $block->request;
    my $last = ref $requests eq 'ARRAY' ? $#$requests : 0;

    return if $index != $last;

    foreach my $name (qw(b c)) {
        my $section = $name eq 'b' ? 'outcomes' : 'outcomes_c';
        next unless defined $block->$section;

        look($block, $name, $block->$section);
    }

    look_at_guard($block) if defined $block->guard;
});


sub look {
    my ($block, $name, $outcomes) = @_;
    my $title = $block->name . " - breaker $name";

    Time::HiRes::sleep($block->wait) if defined $block->wait;

    my $seen = shown("breakers/$name");

    is counted($seen->{outcomes}), in_order($outcomes), "$title: outcomes";
    is $seen->{inflight}, trimmed($block->inflight) // 0, "$title: in flight";

    return if $name ne 'b';

    is $seen->{state}, trimmed($block->state) // 'closed', "$title: state";
    is sprintf('%.2f', $seen->{failures}), sprintf('%.2f', $block->share),
        "$title: failures" if defined $block->share;

    my $shows = trimmed($block->shows) // '';

    is join(' ', map { s/=.*//r . "=" . ($seen->{s/=.*//r} // 'null') }
                 split ' ', $shows), $shows, "$title: shows" if $shows;

    return;
}


sub look_at_guard {
    my ($block) = @_;
    my $seen = shown('guards/g');

    is counted($seen->{requests}), in_order($block->guard),
        $block->name . ' - guard';
    is counted($seen->{rejections}), in_order($block->rejections // ''),
        $block->name . ' - rejections';

    return;
}


sub shown {
    my ($what) = @_;
    my $answer = IapGuard::LoadClient->fetch('GET',
        "http://127.0.0.1:$api_port/api/$what");

    return eval { JSON::PP->new->decode($answer->{body}) } || {};
}


# what is not zero

sub counted {
    my ($counts) = @_;
    return join ' ', map { "$_=$counts->{$_}" }
                     grep { $counts->{$_} } sort keys %{ $counts || {} };
}

sub in_order { return join ' ', sort split ' ', $_[0] }


sub free_port {
    my $socket = IO::Socket::INET->new(Listen => 1, LocalAddr => '127.0.0.1')
        or die "no free port: $@\n";
    return $socket->sockport;
}


sub trimmed {
    my ($text) = @_;
    return defined $text ? $text =~ s/^\s+|\s+$//gr : undef;
}


1;
