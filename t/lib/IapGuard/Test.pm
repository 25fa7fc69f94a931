package IapGuard::Test;

# What all Test::Nginx files of this module have in common.  A file begins:
#
#     use lib 't/lib';
#     use Test::Nginx::Socket 'no_plan';
#     use IapGuard::Test;
#
#     run_tests();
#
#     __DATA__
#
# Each block then
#
#   * fails on any line with [alert], [crit], [emerg] or "Sanitizer" in
#     error.log, from nginx's start to its end.  What a block names in its own
#     "error_log" is expected; so is [emerg] where nginx "must_die" or
#     "reload_fails".
#
#   * is counted in Redis, in the suite "store"; "no_redis" leaves it out of
#     that, where the answers are others.
#
#   * has a zone of its own, so that no block sees another's state, not even
#     in HUP mode, where nginx goes on running: "iap_guard_zone" is put into
#     its http_config, unless that has one or the block says "no_zone".  A
#     block about reloads names its zone itself.
#
# In HTTP/2 mode requests are made by curl, each on a connection of its own,
# and headers come in lower case: write (?i) into patterns of raw headers.
# Blocks that are about HTTP/1 (raw_request, pipelined_requests, http_raw())
# say "no_http2"; so do those that refuse a request with a body: nginx then
# ends the stream before the body has come, be it for this module or for
# limit_req, and Debian 12's curl takes that for an error.  answer_http2.t
# is for these.
#
# "error_log" is looked for after each request of a block, among what is new:
# give a block that has it one request.  That is as soon as nginx has nothing
# more to do (IapGuard::Quick): for what it does on a timer, "wait".

use strict;
use warnings;

use Exporter qw(import);
use IO::Select;
use IO::Socket::INET;
use IO::Socket::UNIX;
use Socket qw(SOL_SOCKET SO_LINGER);
use Time::HiRes ();

use IapGuard::Quick;
use Test::Nginx::Util qw(add_block_preprocessor html_dir log_level
                         no_long_string server_port_for_client);

our @EXPORT = qw(http_begin http_raw);

use constant SEVERE => ('[alert]', '[crit]', '[emerg]', 'Sanitizer');


# for "listen unix:$TEST_NGINX_HTML_DIR/..."

$ENV{TEST_NGINX_HTML_DIR} ||= html_dir();

no_long_string();
log_level($ENV{TEST_NGINX_LOG_LEVEL} || 'info');


my $zones = 0;

add_block_preprocessor(sub {
    my ($block) = @_;

    my @severe = grep { !expects($block, $_) } SEVERE;

    foreach my $section (qw(no_error_log no_shutdown_error_log)) {
        $block->set_value($section,
                          [patterns($block->$section), @severe]);
    }

    my $http_config = $block->http_config // '';

    if (!defined $block->no_zone && $http_config !~ /\biap_guard_zone\b/) {
        $block->set_value('http_config',
            'iap_guard_zone test_' . ++$zones . " 1m;\n$http_config");
    }
});


sub expects {
    my ($block, $severe) = @_;

    return 1
        if $severe eq '[emerg]'
           && (defined $block->must_die || defined $block->reload_fails);

    # in a regular expression it is \[alert\]

    return grep { tr/\\//dr =~ /\Q$severe\E/ } patterns($block->error_log),
                patterns($block->shutdown_error_log);
}


# the patterns of a section, however Test::Nginx lets them be written

sub patterns {
    my ($section) = @_;

    return () if !defined $section;
    return @$section if ref $section eq 'ARRAY';
    return $section if ref $section;
    return grep { /\S/ } split /\n+/, $section;
}


# http_begin(BYTES): sends bytes on a connection of its own, and returns that. An
# array of bytes is sent piece by piece, 50 ms apart.  With unix => FILE it goes
# to that socket in $TEST_NGINX_HTML_DIR.

sub http_begin {
    my ($bytes, %opt) = @_;

    my $socket = $opt{unix}
        ? IO::Socket::UNIX->new(Peer => html_dir() . "/$opt{unix}")
        : IO::Socket::INET->new(PeerAddr => '127.0.0.1', Timeout => 5,
                                PeerPort => server_port_for_client());

    die "can't connect to nginx: $!\n" if !$socket;

    my @pieces = ref $bytes ? @$bytes : ($bytes);
    local $SIG{PIPE} = 'IGNORE';

    while (@pieces) {
        print {$socket} shift @pieces;
        $socket->flush();
        Time::HiRes::sleep(0.05) if @pieces;
    }

    return $socket;
}


# http_raw(BYTES, close_after => SECONDS, reset => 1): the same, and returns what
# came back until the server closed it or nothing came for that long (2 seconds
# if not given; 0: don't read), then closes it, with a reset where asked for.
# For "init", which runs before a block's requests.

sub http_raw {
    my ($bytes, %opt) = @_;

    my $socket = http_begin($bytes, %opt);
    my $answer = '';
    my $patience = $opt{close_after} // 2;
    my $select = IO::Select->new($socket);

    while ($patience && $select->can_read($patience)) {
        last if !sysread $socket, $answer, 65536, length $answer;
    }

    setsockopt $socket, SOL_SOCKET, SO_LINGER, pack('ii', 1, 0)
        if $opt{reset};
    close $socket;

    return $answer;
}


1;
