package IapGuard::Redis;

# A redis-server for Test::Nginx files, which goes with the file:
#
#     use IapGuard::Test;
#     use IapGuard::Redis;
#
# Each block then counts in it, under a prefix of its own, unless its
# http_config has an "iap_guard_redis", or it says "no_redis".  A block may
# have more parameters of that directive in "redis".
#
#     redis()             the IapGuard::RedisServer: redis()->cli('GET', ...)
#     store_key($text)    "PREFIX:$text" of the block that is being run
#     calls($command)     how often the server was asked so since cleared()
#     cleared()
#
# For "init" and for filters.  In configurations $TEST_NGINX_REDIS_PORT is the
# server's port, and $TEST_NGINX_REDIS_SOCKET its unix socket.

use strict;
use warnings;

use Exporter qw(import);

use IapGuard::RedisServer;
use Test::Nginx::Util qw(add_block_preprocessor);

our @EXPORT = qw(redis store_key calls cleared);

# A decision may take long where everything does, and is not to be late then.

use constant TIMEOUT => '5s';

my $server = IapGuard::RedisServer->new(options => ['--unixsocket', 'socket']);
my $prefix = 'none';
my $blocks = 0;

$ENV{TEST_NGINX_REDIS_PORT}   = $server->port;
$ENV{TEST_NGINX_REDIS_SOCKET} = $server->folder . '/socket';


add_block_preprocessor(sub {
    my ($block) = @_;
    my $http_config = $block->http_config // '';
    my $more        = $block->redis // '';

    $prefix = 't' . ++$blocks;

    return if defined $block->no_redis
              || $http_config =~ /^\s*iap_guard_redis\b/m;

    $more = 'timeout=' . TIMEOUT . " $more" if $more !~ /\btimeout=/;

    $block->set_value('http_config', "$http_config\n"
        . 'iap_guard_redis redis://127.0.0.1:' . $server->port
        . " prefix=$prefix $more;\n");
});


sub redis     { return $server }
sub store_key { return "$prefix:$_[0]" }


# of commands that scripts call, too

sub calls {
    my ($command) = @_;

    return $server->cli('INFO', 'commandstats')
        =~ /^cmdstat_\Q$command\E:calls=(\d+)/m ? $1 : 0;
}


sub cleared {
    $server->cli('CONFIG', 'RESETSTAT');
    return;
}


1;
