# The directive iap_guard_redis: what "nginx -t" accepts, and what it refuses,
# naming the value, what was expected, and where; never a password.

use strict;
use warnings;

use File::Temp qw(tempdir);
use Test::More;

my $nginx   = $ENV{TEST_NGINX_BINARY} // 'nginx';
my @modules = split ' ', $ENV{TEST_NGINX_LOAD_MODULES} // '';

my $dir = tempdir(CLEANUP => 1);
chmod 0755, $dir;
mkdir "$dir/logs";

file("$dir/password", "s3cret\n");
file("$dir/empty", '');
file("$dir/no-ca", "s3cret, not a certificate\n");

# short enough for a socket, and the first that is not

my $path = '/' . 'p' x 106;
my $long = '/' . 'p' x 107;
my $host = join '.', ('h' x 63) x 4;        # 255 bytes

system("openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=ca"
       . " -keyout $dir/ca.key -out $dir/ca.crt 2>/dev/null") == 0
    or die "openssl: $?\n";

# not ca.crt's

system("openssl genrsa -out $dir/other.key 2048 2>/dev/null") == 0
    or die "openssl: $?\n";


# Each is: name, the directive's parameters.

my @accepted = (

    [ 'a server', 'redis://127.0.0.1' ],
    [ 'a port', 'redis://127.0.0.1:1' ],
    [ 'the last port', 'redis://127.0.0.1:65535' ],
    [ 'a slash', 'redis://127.0.0.1:6379/' ],
    [ 'database 0', 'redis://127.0.0.1/0' ],
    [ 'another database', 'redis://127.0.0.1/15' ],
    [ 'a name that is looked up now', 'redis://localhost:6379' ],
    [ 'an IPv6 address', 'redis://[::1]' ],
    [ 'an IPv6 address and a port', 'redis://[2001:db8::1]:6380/2' ],
    [ 'user and password', 'redis://guard:s3cret@127.0.0.1' ],
    [ 'a password alone', 'redis://:s3cret@127.0.0.1' ],
    [ 'an encoded password', 'redis://a%40b:s3cret%2f%3A%25@127.0.0.1' ],
    [ 'a colon in a password', 'redis://a:s3cret:b@127.0.0.1' ],
    [ 'TLS', 'rediss://127.0.0.1' ],
    [ 'TLS with an authority', 'rediss://127.0.0.1 tls_ca=ca.crt' ],
    [ 'TLS with a certificate of ours',
      'rediss://127.0.0.1 tls_cert=ca.crt tls_key=ca.key' ],
    [ 'TLS with a certificate of ours, by its full name',
      "rediss://127.0.0.1 tls_key=$dir/ca.key tls_cert=$dir/ca.crt" ],
    [ 'a unix socket', 'unix:/run/redis.sock' ],
    [ 'a unix socket and a database', 'unix:/run/redis.sock:3' ],
    [ 'the longest unix socket', "unix:$path" ],
    [ 'a unix socket, user and password',
      'unix:/run/redis.sock user=guard password_file=password' ],

    [ 'mode=single', 'redis://127.0.0.1 mode=single' ],
    [ 'mode=sentinel', 'redis://127.0.0.1 mode=sentinel master=m' ],
    [ 'several sentinels, two passwords, a database',
      'redis://:s3cret@127.0.0.1/2 redis://:s3cret@127.0.0.2/2 '
      . 'mode=sentinel master=m user=guard password_file=password' ],
    [ 'mode=cluster', 'redis://127.0.0.1 mode=cluster' ],
    [ 'several nodes of a cluster',
      'redis://127.0.0.1:7000 redis://127.0.0.1:7001/0 redis://[::1]:7000 '
      . 'mode=cluster' ],
    [ 'mode=proxy', 'redis://127.0.0.1:22121 mode=proxy' ],
    [ 'mode=proxy at a unix socket', 'unix:/run/proxy.sock mode=proxy' ],
    [ 'a password in a file', 'redis://127.0.0.1 password_file=password' ],
    [ 'a user, and a password in a file',
      'redis://127.0.0.1 user=guard password_file=password' ],
    (map { [ "timeout=$_", "redis://127.0.0.1 timeout=$_" ] }
        '1ms', '50ms', '1s', '1m'),
    (map { [ "nodes=$_", "redis://127.0.0.1 nodes=$_" ] } 1, 4, 10000),
    [ 'prefix=shop:1', 'redis://127.0.0.1 prefix=shop:1' ],
    [ 'a prefix of 64 bytes', 'redis://127.0.0.1 prefix=' . 'p' x 64 ],
    [ 'a prefix with braces', 'redis://127.0.0.1 "prefix={iap}"' ],
    [ 'a prefix with empty braces', 'redis://127.0.0.1 "prefix=a{}b"' ],
    (map { [ "durability=$_", "redis://127.0.0.1 durability=$_" ] }
        qw(aof replica memory)),
    [ 'all parameters', 'rediss://127.0.0.1:6380/3 mode=single user=guard '
      . 'password_file=password timeout=20ms prefix=x nodes=3 tls_ca=ca.crt '
      . 'tls_cert=ca.crt tls_key=ca.key durability=replica' ],
);


# Each is: name, the directive's parameters, what nginx says.

my $host_expected = 'expected a host: a name, an IPv4 address, or an IPv6 '
                    . 'address in brackets';
my $port_expected = 'expected a port from 1 to 65535';
my $db_expected   = 'expected a database number from 0 to 2147483647 at the '
                    . 'end';
my $user_expected = 'expected "user:password" before the "@", '
                    . 'percent-encoded';
my $path_expected = 'expected the full path of a socket, 107 bytes at most';

my @refused = (

    # URLs

    [ 'nothing', '', 'invalid number of arguments in "iap_guard_redis"' ],
    [ 'no URL', 'mode=single',
      'invalid URL "mode=***" in "iap_guard_redis", expected "redis://", '
      . '"rediss://" or "unix:"' ],
    [ 'another scheme', 'http://127.0.0.1',
      'invalid URL "http://127.0.0.1" in "iap_guard_redis", expected '
      . '"redis://", "rediss://" or "unix:"' ],
    [ 'another scheme with a password', 'http://a:s3cret@127.0.0.1',
      'invalid URL "http://***@127.0.0.1" in "iap_guard_redis"' ],
    [ 'a host alone', '127.0.0.1:6379', 'invalid URL "127.0.0.1:6379"' ],
    [ 'a scheme in capitals', 'REDIS://127.0.0.1',
      'invalid URL "REDIS://127.0.0.1"' ],
    [ 'no host', 'redis://', "invalid URL \"redis://\" in "
      . "\"iap_guard_redis\", $host_expected" ],
    [ 'no host but a port', 'redis://:6379', $host_expected ],
    [ 'no host but a database', 'redis:///1', $host_expected ],
    [ 'a host with a blank', '"redis://a b"', $host_expected ],
    [ 'a host that is too long', "redis://${host}h", $host_expected ],
    [ 'a host with a variable', '"redis://$host"', $host_expected ],
    [ 'no IPv6 address', 'redis://[::g]', $host_expected ],
    [ 'an IPv6 address without brackets', 'redis://::1', $host_expected ],
    [ 'a bracket that is open', 'redis://[::1', $host_expected ],
    [ 'a host that nobody knows', 'redis://no-such-host.invalid:6379',
      'host not found', '"no-such-host.invalid:6379"', 'nginx.conf:' ],
    [ 'port 0', 'redis://127.0.0.1:0',
      "invalid URL \"redis://127.0.0.1:0\" in \"iap_guard_redis\", "
      . $port_expected ],
    [ 'port 65536', 'redis://127.0.0.1:65536', $port_expected ],
    [ 'an empty port', 'redis://127.0.0.1:', $port_expected ],
    [ 'a port of letters', 'redis://127.0.0.1:redis', $port_expected ],
    [ 'a port of an IPv6 address', 'redis://[::1]:x', $port_expected ],
    [ 'a database of letters', 'redis://127.0.0.1/one', $db_expected ],
    [ 'a negative database', 'redis://127.0.0.1/-1', $db_expected ],
    [ 'a database too large', 'redis://127.0.0.1/2147483648', $db_expected ],
    [ 'a path behind the database', 'redis://127.0.0.1/1/x', $db_expected ],
    [ 'a query', 'redis://127.0.0.1/1?x=1', $db_expected ],
    [ 'a user without a password', 'redis://guard@127.0.0.1',
      "invalid URL \"redis://***\@127.0.0.1\" in \"iap_guard_redis\", "
      . $user_expected ],
    [ 'an empty password', 'redis://guard:@127.0.0.1', $user_expected ],
    [ 'nothing before the "@"', 'redis://@127.0.0.1', $user_expected ],
    [ 'a password with a slash', 'redis://a:s3cret/x@127.0.0.1',
      'invalid URL "redis://***@127.0.0.1"' ],
    [ 'a percent that encodes nothing', 'redis://a:s3cret%2@127.0.0.1',
      $user_expected ],
    [ 'a percent without digits', 'redis://a:s3cret%zz@127.0.0.1',
      $user_expected ],
    [ 'a percent in the user', 'redis://a%g0:s3cret@127.0.0.1',
      $user_expected ],
    [ 'a unix socket without a path', 'unix:',
      "invalid URL \"unix:\" in \"iap_guard_redis\", $path_expected" ],
    [ 'a unix socket below nothing', 'unix:redis.sock', $path_expected ],
    [ 'a unix socket that is too long', "unix:$long", $path_expected ],
    [ 'a unix socket with a bad database', 'unix:/run/redis.sock:x',
      $db_expected ],

    # several

    [ 'two servers', 'redis://127.0.0.1 redis://127.0.0.2',
      '2 URLs in "iap_guard_redis", expected one with "mode=single"' ],
    [ 'two proxies', 'redis://127.0.0.1 redis://127.0.0.2 mode=proxy',
      '2 URLs in "iap_guard_redis", expected one with "mode=proxy"' ],
    [ 'one node twice', 'redis://127.0.0.1:6379 redis://127.0.0.1 '
      . 'mode=cluster', 'duplicate server "127.0.0.1:6379"' ],
    [ 'two schemes', 'redis://127.0.0.1 rediss://127.0.0.2 mode=cluster',
      'URL "rediss://127.0.0.2" in "iap_guard_redis" differs from the first, '
      . 'expected the same scheme, database, user and password' ],
    [ 'two databases', 'redis://127.0.0.1/1 redis://127.0.0.2/2 '
      . 'mode=sentinel master=m',
      'URL "redis://127.0.0.2/2" in "iap_guard_redis" differs' ],
    [ 'two users', 'redis://a:s3cret@127.0.0.1 redis://b:s3cret@127.0.0.2 '
      . 'mode=cluster', 'URL "redis://***@127.0.0.2"' ],
    [ 'two passwords', 'redis://a:s3cret@127.0.0.1 '
      . 'redis://a:s3cret2@127.0.0.2 mode=cluster',
      'URL "redis://***@127.0.0.2"' ],
    [ 'a password in one of two', 'redis://127.0.0.1 '
      . 'redis://a:s3cret@127.0.0.2 mode=cluster',
      'URL "redis://***@127.0.0.2"' ],
    [ 'a URL behind a parameter', 'redis://127.0.0.1 mode=cluster '
      . 'redis://127.0.0.2', 'invalid parameter "redis://127.0.0.2"' ],

    # secrets where they do not belong

    [ 'a password for a parameter', 'redis://127.0.0.1 password=s3cret',
      'invalid parameter "password=***" in "iap_guard_redis", expected one' ],
    [ 'a password for a parameter, with an "@"',
      'redis://127.0.0.1 password=s3cret@s3cret',
      'invalid parameter "password=***"' ],
    [ 'a password for a URL', 'password=s3cret mode=single',
      'invalid URL "password=***"' ],
    [ 'a URL behind a parameter, with a password',
      'redis://127.0.0.1 mode=cluster redis://:s3cret@127.0.0.2',
      'invalid parameter "redis://***@127.0.0.2"' ],
    [ 'no URL, with a password', 'redis://127.0.0.1 "redis:/:s3cret@b"',
      'invalid parameter "***@b"' ],
    [ 'no URL, with a password, first', '"redis:/a=:s3cret@b"',
      'invalid URL "***@b"' ],
    [ 'a password in a query', '"redis://127.0.0.1:1/1?password=s3cret"',
      'invalid URL "redis://127.0.0.1:1/1***"' ],
    [ 'a password and a query', '"redis://:s3cret@127.0.0.1/1?password=s3cret"',
      'invalid URL "redis://***@127.0.0.1/1***"' ],
    [ 'a password in a query, with an "@"',
      '"redis://127.0.0.1:1/1?password=s3cret@s3cret"',
      'invalid URL "redis://***"' ],
    [ 'a question mark in a password', '"redis://:s3cret?s3cret@127.0.0.1/x"',
      'invalid URL "redis://***"' ],
    [ 'a password, and no host', 'redis://:s3cret',
      'invalid URL "redis://:***"' ],
    [ 'a password, and no host but a database', 'redis://guard:s3cret/1',
      'invalid URL "redis://guard:***"' ],
    [ 'a password behind an address', 'redis://[::1]:s3cret',
      'invalid URL "redis://[::1]:***"' ],
    [ 'a colon behind the database', 'redis://127.0.0.1/1:2',
      'invalid URL "redis://127.0.0.1/1:2"' ],

    # modes

    [ 'mode=ring', 'redis://127.0.0.1 mode=ring',
      'invalid value "ring" of "mode" in "iap_guard_redis", expected '
      . '"single", "sentinel", "cluster" or "proxy"' ],
    [ 'an empty mode', 'redis://127.0.0.1 mode=', 'invalid value "" of "mode"' ],
    [ 'two modes', 'redis://127.0.0.1 mode=single mode=single',
      'duplicate parameter "mode=single" in "iap_guard_redis"' ],
    [ 'mode=sentinel without a master', 'redis://127.0.0.1 mode=sentinel',
      '"iap_guard_redis" needs "master" with "mode=sentinel"' ],
    [ 'an empty master', 'redis://127.0.0.1 mode=sentinel master=',
      'invalid value "" of "master" in "iap_guard_redis", expected the name '
      . 'that sentinels know it by' ],
    (map { [ "a master with mode=$_", "redis://127.0.0.1 mode=$_ master=m",
             '"master" has no effect in "iap_guard_redis" without '
             . '"mode=sentinel"' ] } qw(single cluster proxy)),
    (map { [ "a unix socket with mode=$_->[0]",
             "unix:/run/redis.sock mode=$_->[0] $_->[1]",
             'invalid URL "unix:/run/redis.sock" in "iap_guard_redis", '
             . "expected no unix socket with \"mode=$_->[0]\"" ] }
        ['sentinel', 'master=m'], ['cluster', '']),
    (map { [ "a database with mode=$_", "redis://127.0.0.1/1 mode=$_",
             'invalid database 1 in "iap_guard_redis", expected 0 with '
             . "\"mode=$_\"" ] } qw(cluster proxy)),

    # users and passwords

    [ 'a user without a file', 'redis://127.0.0.1 user=guard',
      '"user" in "iap_guard_redis" needs "password_file"' ],
    [ 'an empty user', 'redis://127.0.0.1 user= password_file=password',
      'invalid value "" of "user" in "iap_guard_redis", expected the name of '
      . 'a user' ],
    [ 'an empty name of a file', 'redis://127.0.0.1 password_file=',
      'invalid value "" of "password_file" in "iap_guard_redis", expected the '
      . 'name of a file' ],
    [ 'a file that is not there', 'redis://127.0.0.1 password_file=none',
      "open() \"$dir/none\" failed (2: No such file or directory)" ],
    [ 'a file that is empty', 'redis://127.0.0.1 password_file=empty',
      "invalid secret file \"$dir/empty\", expected 1 to 4096 bytes" ],
    (map { [ "a password in two places with mode=$_",
             "redis://:s3cret\@127.0.0.1 mode=$_ password_file=password",
             'duplicate password in "iap_guard_redis", expected it either in '
             . 'the URL or in "password_file"' ] } qw(single cluster proxy)),

    # the others

    (map { [ "timeout=$_", "redis://127.0.0.1 timeout=$_",
             "invalid value \"$_\" of \"timeout\" in \"iap_guard_redis\", "
             . 'expected a time above 0, a year at most' ] }
        '0', '0ms', '-1s', 'soon', '', '366d'),
    (map { [ "nodes=$_", "redis://127.0.0.1 nodes=$_",
             "invalid value \"$_\" of \"nodes\" in \"iap_guard_redis\", "
             . 'expected a whole number from 1 to 10000' ] }
        '0', '10001', '-1', '1.5', 'many', ''),
    (map { [ "prefix=$_", "redis://127.0.0.1 \"prefix=$_\"",
             "invalid value \"$_\" of \"prefix\" in \"iap_guard_redis\", "
             . 'expected 1 to 64 printable ASCII characters' ] }
        '', 'p' x 65),
    (map { [ "prefix=$_->[0]", "redis://127.0.0.1 $_->[1]",
             "invalid value \"$_->[0]\" of \"prefix\" in "
             . '"iap_guard_redis", expected printable ASCII characters, no '
             . 'blanks and quotes' ] }
        ['a b', '"prefix=a b"'], ["a'b", '"prefix=a\'b"'],
        ['a"b', '"prefix=a\\"b"'], ["a\xc3\xa4", "\"prefix=a\xc3\xa4\""],
        ["a\x7f", "\"prefix=a\x7f\""]),
    (map { [ "prefix=$_", "redis://127.0.0.1 \"prefix=$_\"",
             "invalid value \"$_\" of \"prefix\" in \"iap_guard_redis\", "
             . 'expected a "}" behind the "{"' ] } '{iap', 'a}b{c'),
    [ 'tls_ca without TLS', 'redis://127.0.0.1 tls_ca=ca.crt',
      '"tls_ca" has no effect in "iap_guard_redis" without "rediss://"' ],
    [ 'tls_ca of a unix socket', 'unix:/run/redis.sock tls_ca=ca.crt',
      '"tls_ca" has no effect in "iap_guard_redis" without "rediss://"' ],
    [ 'an empty tls_ca', 'rediss://127.0.0.1 tls_ca=',
      'invalid value "" of "tls_ca" in "iap_guard_redis", expected the name '
      . 'of a file' ],
    [ 'a tls_ca that is not there', 'rediss://127.0.0.1 tls_ca=none',
      "SSL_CTX_load_verify_locations(\"$dir/none\") failed", 'nowhere' ],
    [ 'a tls_ca that is none', 'rediss://127.0.0.1 tls_ca=no-ca',
      "SSL_CTX_load_verify_locations(\"$dir/no-ca\") failed", 'nowhere' ],
    (map { [ "$_ without TLS", "redis://127.0.0.1 $_=ca.crt",
             "\"$_\" has no effect in \"iap_guard_redis\" without "
             . '"rediss://"' ] } qw(tls_cert tls_key)),
    [ 'a certificate of ours without TLS', 'redis://127.0.0.1 tls_cert=ca.crt '
      . 'tls_key=ca.key', '"tls_cert" has no effect in "iap_guard_redis"' ],
    [ 'a certificate of ours for a unix socket', 'unix:/run/redis.sock '
      . 'tls_cert=ca.crt tls_key=ca.key',
      '"tls_cert" has no effect in "iap_guard_redis"' ],
    [ 'tls_cert without tls_key', 'rediss://127.0.0.1 tls_cert=ca.crt',
      '"tls_cert" in "iap_guard_redis" needs "tls_key"' ],
    [ 'tls_key without tls_cert', 'rediss://127.0.0.1 tls_key=ca.key',
      '"tls_key" in "iap_guard_redis" needs "tls_cert"' ],
    (map { [ "an empty $_", "rediss://127.0.0.1 $_=",
             "invalid value \"\" of \"$_\" in \"iap_guard_redis\", expected "
             . 'the name of a file' ] } qw(tls_cert tls_key)),
    [ 'a tls_cert that is not there',
      'rediss://127.0.0.1 tls_cert=none tls_key=ca.key',
      "cannot load certificate \"$dir/none\"", 'nowhere' ],
    [ 'a tls_key that is not there',
      'rediss://127.0.0.1 tls_cert=ca.crt tls_key=none',
      "cannot load certificate key \"$dir/none\"", 'nowhere' ],
    [ 'a tls_cert that is none',
      'rediss://127.0.0.1 tls_cert=no-ca tls_key=ca.key',
      "cannot load certificate \"$dir/no-ca\"", 'nowhere' ],
    [ 'a tls_key that is none',
      'rediss://127.0.0.1 tls_cert=ca.crt tls_key=no-ca',
      "cannot load certificate key \"$dir/no-ca\"", 'nowhere' ],
    [ 'a tls_key of another certificate',
      'rediss://127.0.0.1 tls_cert=ca.crt tls_key=other.key',
      "SSL_CTX_use_PrivateKey(\"$dir/other.key\") failed",
      'key values mismatch', 'nowhere' ],
    (map { [ "$_->[0] itself", "rediss://127.0.0.1 $_->[1]",
             'invalid value "data:***" in "iap_guard_redis", expected the name '
             . 'of a file' ] }
        ['a key', 'tls_cert=ca.crt tls_key=data:s3cret'],
        ['a certificate', 'tls_cert=data:s3cret tls_key=ca.key']),
    [ 'durability=paper', 'redis://127.0.0.1 durability=paper',
      'invalid value "paper" of "durability" in "iap_guard_redis", expected '
      . '"aof", "replica" or "memory"' ],
    [ 'a parameter unknown', 'redis://127.0.0.1 colour=red',
      'invalid parameter "colour=***" in "iap_guard_redis", expected one of '
      . '"mode=", "master=", "user=", "password_file=", "timeout=", '
      . '"prefix=", "nodes=", "tls_ca=", "tls_cert=", "tls_key=", '
      . '"durability="' ],
    [ 'a parameter without a value', 'redis://127.0.0.1 mode',
      'invalid parameter "mode" in "iap_guard_redis"' ],
);


# Each is: name, all that stands in "http", what nginx says.

my $guarded = 'server { listen 127.0.0.1:1; location / { iap_guard g; '
              . 'iap_guard_user $arg_u capacity=1 rate=1r/s; } }';

my @placed = (

    [ 'two stores', 'iap_guard_zone iap 1m; iap_guard_redis '
      . 'redis://127.0.0.1; iap_guard_redis redis://127.0.0.1;',
      '"iap_guard_redis" directive is duplicate' ],
    [ 'a store without a zone', 'iap_guard_redis redis://127.0.0.1;',
      "\"iap_guard_redis\" of $dir/nginx.conf:", 'needs "iap_guard_zone" in '
      . '"http"' ],
    [ 'a store in a server', 'iap_guard_zone iap 1m; server { '
      . 'iap_guard_redis redis://127.0.0.1; }',
      '"iap_guard_redis" directive is not allowed here' ],
);

my @placed_well = (

    [ 'before the zone', "iap_guard_redis redis://127.0.0.1; "
      . "iap_guard_zone iap 1m; $guarded" ],
    [ 'after the guards', "iap_guard_zone iap 1m; $guarded "
      . 'iap_guard_redis redis://127.0.0.1;' ],
    [ 'an unknown name, and a resolver before', 'resolver 127.0.0.1; '
      . 'iap_guard_zone iap 1m; iap_guard_redis redis://none.invalid;' ],
    [ 'an unknown name, and a resolver behind', 'iap_guard_zone iap 1m; '
      . 'iap_guard_redis redis://none.invalid; resolver 127.0.0.1;' ],
);

# a resolver of a server's own is not the store's

push @placed, [ 'an unknown name, and a resolver elsewhere',
    'iap_guard_zone iap 1m; iap_guard_redis redis://none.invalid; '
    . 'server { listen 127.0.0.1:1; resolver 127.0.0.1; }',
    'host not found in server "none.invalid:6379" of "iap_guard_redis"' ];


plan tests => 2 * (@accepted + @placed_well) + 3 * (@refused + @placed);

foreach my $row (map({ [ $_->[0], with($_->[1]) ] } @accepted),
                 @placed_well)
{
    my ($name, $http) = @$row;
    my ($exit, $output) = nginx_t($http);

    is $exit, 0, "$name: accepted" or diag $output;
    unlike $output, qr/\[(?!notice)\w+\]/, "$name: and nothing is said of it";
}

foreach my $row (map({ my ($n, $p, @s) = @$_; [ $n, with($p), @s ] }
                     @refused), @placed)
{
    my ($name, $http, @said) = @$row;
    my $nowhere = $said[-1] eq 'nowhere' && pop @said;
    my ($exit, $output) = nginx_t($http);
    my ($line) = grep { /\[emerg\]/ } split /\n/, $output;
    $line //= '';

    is $exit, 1, "$name: refused";

    my @unsaid = grep { index($line, $_) < 0 } @said;
    push @unsaid, 'the place' unless $nowhere || $line =~ /nginx\.conf:\d+/;

    ok !@unsaid, "$name: named"
        or diag join "\n", 'not said:', @unsaid, 'but:', $output;

    unlike $output, qr/s3cret/, "$name: the password is not told";
}


sub with { return "iap_guard_zone iap 1m; iap_guard_redis $_[0]; $guarded" }


sub nginx_t {
    my ($http) = @_;
    my $load = join "\n", map { "load_module $_;" } @modules;

    file("$dir/nginx.conf", <<"END");
$load
error_log stderr;
pid nginx.pid;
events {}
http {
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    $http
}
END

    my $output = `$nginx -t -p $dir -c $dir/nginx.conf 2>&1`;

    return ($? & 127 ? "signal " . ($? & 127) : $? >> 8, $output);
}


sub file {
    my ($name, $text) = @_;

    open my $file, '>', $name or die "$name: $!\n";
    print {$file} $text;
    close $file or die "$name: $!\n";

    return;
}
