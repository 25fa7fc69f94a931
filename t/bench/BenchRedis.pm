package BenchRedis;

# The bench's rows with a Redis: the usual limiter in Lua (peer/), and the
# guard, both with one redis-server of their own, on wrk's processor.
#
#   my $redis = BenchRedis->new(site => \%site, cpu => $wrk_cpu,
#                               senders => 100_000, refused => 500);
#   my @rows = ($redis->lua_rows, $redis->guard_rows);
#   ...
#   my @targets = $redis->targets;      # as BenchRun->print_targets takes them

use strict;
use warnings;

use Cwd qw(abs_path);
use File::Basename qw(dirname);

use BenchRun;
use IapGuard::Nginx;
use IapGuard::RedisServer;

my $PEER = abs_path(dirname(__FILE__)) . '/peer';

use constant {
    # a bucket that is not full again before the bench ends, so that no row
    # pays for keys that another one left to expire

    CAPACITY   => 10_000,
    AN_HOUR    => 3600,

    # what all senders share

    MANY       => 1_000_000,
    PER_SECOND => 100_000,
    WINDOW     => 60,
};


sub new {
    my ($class, %options) = @_;
    my $self = bless { %options }, $class;

    $self->{server} = $self->_server;
    $self->{send}   = { header => 'X-User-Id:user%d',
                        header2 => 'X-Device-Id:device%d',
                        last => $self->{senders}, prepare => 1 };
    return $self;
}


sub _server {
    my ($self) = @_;
    return IapGuard::RedisServer->new(cpu => $self->{cpu});
}


# --- rows -----------------------------------------------------------------

# The code is in blocks, for a worker may not read files in our folder.

sub lua_rows {
    my ($self) = @_;
    my $common  = 'port = ' . $self->{server}->port
                  . qq{, script = "$PEER/bucket.lua"};
    my $lasting = rule(CAPACITY, 1 / AN_HOUR);
    my $shared  = rule(MANY, PER_SECOND);
    my $single  = rule(1, 1 / 86_400);
    my $all     = '{ limit = ' . PER_SECOND * WINDOW . ', window = ' . WINDOW
                  . ' }';

    my $site = IapGuard::Nginx->new(%{ $self->{site} },
        others => [qw(ndk_http_module ngx_http_lua_module)],
        http => <<"END", server => <<'END')->start;
    iap_guard_zone         iap 1m;

    lua_package_path       '$PEER/?.lua;;';
    lua_code_cache         on;
    lua_socket_log_errors  off;

    init_by_lua_block {
        local new = require("limiter").new

        layers = new({ $common, prefix = "layers:",
                       user = $lasting, device = $lasting,
                       address = $shared, all = $all })
        bucket = new({ $common, prefix = "bucket:", user = $lasting })
        refusing = new({ $common, prefix = "refusing:", user = $single })
    }
END
        location = /layers {
            access_by_lua_block { layers:layers() }
            empty_gif;
        }

        location = /bucket {
            access_by_lua_block { bucket:one() }
            empty_gif;
        }

        location = /refusing {
            access_by_lua_block { refusing:one() }
            empty_gif;
        }
END

    return $self->_rows($site,
        { id => 'lua_bucket', name => 'Lua and Redis, one bucket',
          path => '/bucket' },
        { id => 'lua_layers', name => 'Lua and Redis, four layers',
          path => '/layers' },
        { id => 'lua_refused', name => 'Lua and Redis, one bucket, refusing',
          path => '/refusing', refused => 1, send => $self->_few },
    );
}


sub guard_rows {
    my ($self) = @_;

    $self->{guard} = $self->_guard_site;

    return $self->_rows($self->{guard},
        { id => 'redis_bucket', name => 'the guard and Redis, one bucket',
          path => '/bucket', must => ['scripts'] },
        { id => 'redis_layers', name => 'the guard and Redis, four layers',
          path => '/layers', must => ['scripts'] },
        { id => 'deny', name => 'refused by deny cache', path => '/refusing',
          refused => 1, send => { %{ $self->{send} }, last => 1 } },
    );
}


sub _guard_site {
    my ($self, %options) = @_;
    my $lasting = "capacity=${\CAPACITY} rate=1r/h";

    return IapGuard::Nginx->new(%{ $self->{site} }, %options,
        http => guard_http($self->{server}),
        server => <<"END")->start;
        location = /layers {
            iap_guard          layers;
            iap_guard_segment  users=${\MANY} window=${\WINDOW}s;
            iap_guard_user     \$http_x_user_id   $lasting;
            iap_guard_device   \$http_x_device_id $lasting;
            iap_guard_global   rate=${\PER_SECOND}r/s window=${\WINDOW}s;
            empty_gif;
        }

        location = /bucket {
            iap_guard       bucket;
            iap_guard_user  \$http_x_user_id $lasting;
            empty_gif;
        }

        location = /refusing {
            iap_guard       refusing;
            iap_guard_user  \$http_x_user_id capacity=1 rate=1r/d;
            empty_gif;
        }
END
}


sub guard_http {
    my ($server) = @_;

    return <<"END";
    iap_guard_zone   iap 64m;
    iap_guard_redis  redis://127.0.0.1:${\$server->port}/0 timeout=50ms
                     prefix=iap;
END
}


sub rule {
    my ($capacity, $rate) = @_;
    return sprintf '{ capacity = "%d", rate = "%.9f" }', $capacity, $rate;
}


sub _few {
    my ($self) = @_;
    return { %{ $self->{send} }, last => $self->{refused} };
}


sub _rows {
    my ($self, $site, @rows) = @_;
    my $server = $self->{server};

    return map { {
        site => $site, send => $self->{send},
        processes => { nginx => $site->workers, redis => $server->pid },
        counts => { scripts => sub { scripts($server) } }, %$_,
    } } @rows;
}


# How many scripts were called

sub scripts {
    my ($server) = @_;
    my $stats = $server->info('commandstats');
    my $sum   = 0;

    foreach my $command (qw(eval evalsha)) {
        $sum += $1 if ($stats->{"cmdstat_$command"} || '') =~ /calls=(\d+)/;
    }

    return $sum;
}


# How many of the guard's decisions were the zone's, in Redis's place.

sub fallbacks {
    my ($self) = @_;
    return $self->{guard}->metric('iap_guard_store_fallbacks_total');
}


# --- the log, and memory --------------------------------------------------

# Lines in the log of requests that the deny cache refused.

sub logged {
    my ($self) = @_;
    my $site = $self->_guard_site(level => 'info');

    # what one user may have is spent by the first request

    $site->ask(map { ['/refusing', 'X-User-Id' => 'logged'] }
               0 .. $self->{refused});

    return $site->log_lines(qr{request: "GET /refusing });
}


# What a user's bucket takes in a Redis that has nothing else.  $fill sends
# a request of each of so many users.

sub memory {
    my ($self, $fill) = @_;
    my $server = $self->_server;

    my $site = IapGuard::Nginx->new(%{ $self->{site} },
        http => guard_http($server), server => <<'END')->start;
        location = /redeem {
            iap_guard       redeem;
            iap_guard_user  $http_x_user_id capacity=1 rate=1r/d;
            empty_gif;
        }
END

    # the link, its buffers and the script are there from now on

    my $first  = $site->get('/redeem', 'X-User-Id' => 'first');
    my $before = used($server);

    $fill->($site, '/redeem', { header => 'X-User-Id:user%d' },
            $self->{senders});

    my $after   = used($server);
    my $buckets = $after->{keys} - $before->{keys};

    die "memory: status $first->{status}, $buckets buckets in Redis\n"
        if $buckets < 0.99 * $self->{senders};

    return { buckets => $buckets,
             each => ($after->{bytes} - $before->{bytes}) / $buckets };
}


sub used {
    my ($server) = @_;

    return { bytes => $server->info('memory')->{used_memory},
             keys  => $server->cli('DBSIZE') };
}


# --- targets --------------------------------------------------------------

sub targets {
    my $above = sub {
        my ($ours, $lua, $none) = map { $_->{nginx} } @_;
        return ($ours - $none) / ($lua - $none);
    };

    return (
        { name => 'Redis, four layers / Lua: CPU above "no limits"',
          at_most => 1 / 10, rows => [qw(redis_layers lua_layers none)],
          of => $above },
        { name => 'Redis, one bucket / Lua: CPU above "no limits"',
          rows => [qw(redis_bucket lua_bucket none)], of => $above },
        { name => 'Redis, four layers / Lua: CPU of Redis',
          at_most => 1 / 3, rows => [qw(redis_layers lua_layers)],
          of => sub { $_[0]{redis} / $_[1]{redis} } },
        { name => 'Redis, four layers / Lua: requests per second',
          at_least => 2.5, rows => [qw(redis_layers lua_layers)],
          of => sub { $_[0]{rate} / $_[1]{rate} } },
        { name => 'Redis, four layers / Lua: p99',
          at_most => 1 / 2, rows => [qw(redis_layers lua_layers)],
          of => sub { $_[0]{p99} / $_[1]{p99} } },
        { name => 'refused by deny cache / a location that returns 429: CPU',
          at_most => 1.15, rows => [qw(deny return)],
          of => sub { $_[0]{nginx} / $_[1]{nginx} } },
        { name => 'refused by deny cache: scripts called per request',
          at_most => 0.001, places => 4, rows => [qw(deny)],
          of => sub { $_[0]{scripts} } },
    );
}


1;
