# Wrong configurations: "nginx -t" refuses each, names the value, and says
# what was expected and where.

use strict;
use warnings;

use File::Temp qw(tempdir);
use Test::More;

my $nginx   = $ENV{TEST_NGINX_BINARY} // 'nginx';
my @modules = split ' ', $ENV{TEST_NGINX_LOAD_MODULES} // '';

my $dir = tempdir(CLEANUP => 1);
chmod 0755, $dir;

# a nginx whose first error log is a file opens it before it reads anything

mkdir "$dir/logs";

my $long_name = 'g' x 65;
my $too_many  = join "\n",
    map { "iap_guard_bucket b$_ \$arg_b capacity=1 rate=1r/s;" } 1 .. 25;
my $guards = join "\n",
    map { "location /g$_ { iap_guard g$_; iap_guard_user \$arg_u; }" } 1 .. 9;

file("$dir/secret", "a-secret\n");
file("$dir/words", "two words\n");
file("$dir/empty", '');
file("$dir/blanks", " \t\r\n \n");
file("$dir/long", 'x' x 4097);
mkdir "$dir/folder";


# Each is: name, where the directives stand, the directives, what nginx says.
# In "location" they stand beside "iap_guard g" unless they have one.

my @refused = (

    # the zone

    [ 'zone without parameters', 'no zone', 'iap_guard_zone;',
      'invalid number of arguments in "iap_guard_zone" directive' ],
    [ 'zone without a size', 'no zone', 'iap_guard_zone iap;',
      'invalid number of arguments in "iap_guard_zone" directive' ],
    [ 'zone with too many parameters', 'no zone',
      'iap_guard_zone iap 1m more;',
      'invalid number of arguments in "iap_guard_zone" directive' ],
    [ 'two zones', 'http', 'iap_guard_zone other 1m;',
      '"iap_guard_zone" directive is duplicate' ],
    [ 'zone name with a slash', 'no zone', 'iap_guard_zone i/p 1m;',
      'invalid zone name "i/p", expected up to 64 letters, digits, "_" and '
      . '"-"' ],
    [ 'zone name that is empty', 'no zone', 'iap_guard_zone "" 1m;',
      'invalid zone name "", expected up to 64 letters' ],
    [ 'zone name of 65 letters', 'no zone', "iap_guard_zone $long_name 1m;",
      "invalid zone name \"$long_name\", expected up to 64 letters" ],
    [ 'zone size that is none', 'no zone', 'iap_guard_zone iap 16x;',
      'invalid zone size "16x", expected a size like "16m"' ],
    [ 'zone size that is negative', 'no zone', 'iap_guard_zone iap -1m;',
      'invalid zone size "-1m", expected a size like "16m"' ],
    [ 'zone size beyond any', 'no zone', 'iap_guard_zone iap 99999999999999g;',
      'invalid zone size "99999999999999g", expected a size like "16m"' ],
    [ 'zone size of 0', 'no zone', 'iap_guard_zone iap 0;',
      'zone "iap" of size "0" is too small, expected 32768 bytes at least' ],
    [ 'zone size of 31k', 'no zone', 'iap_guard_zone iap 31k;',
      'zone "iap" of size "31k" is too small, expected 32768 bytes at least' ],
    [ 'zone in a server', 'server', 'iap_guard_zone iap 1m;',
      '"iap_guard_zone" directive is not allowed here' ],
    [ 'zone too small for its guards', 'no zone',
      "iap_guard_zone iap 32k; server { listen 1; $guards }",
      'iap_guard zone "iap" of 32768 bytes is too small for 9 guards',
      'nowhere' ],
    [ 'guard without a zone', 'no zone',
      'server { listen 1; location / { iap_guard g; } }',
      'guard "g" of ' . "$dir/nginx.conf",
      'needs "iap_guard_zone" in "http"' ],
    [ 'API without a zone', 'no zone',
      'server { listen 1; location / { iap_guard_api read; } }',
      '"iap_guard_api" of ' . "$dir/nginx.conf",
      'needs "iap_guard_zone" in "http"' ],

    # secrets

    [ 'key secret without a file', 'http', 'iap_guard_key_secret;',
      'invalid number of arguments in "iap_guard_key_secret" directive' ],
    [ 'key secret that is not there', 'http', "iap_guard_key_secret none;",
      "open() \"$dir/none\" failed (2: No such file or directory)" ],
    [ 'key secret that is a folder', 'http', "iap_guard_key_secret folder;",
      "read() \"$dir/folder\" failed (21: Is a directory)" ],
    [ 'key secret that is empty', 'http', "iap_guard_key_secret empty;",
      "invalid secret file \"$dir/empty\", expected 1 to 4096 bytes besides "
      . 'blanks' ],
    [ 'key secret of blanks', 'http', "iap_guard_key_secret blanks;",
      "invalid secret file \"$dir/blanks\", expected 1 to 4096 bytes" ],
    [ 'key secret of 4097 bytes', 'http', "iap_guard_key_secret long;",
      "invalid secret file \"$dir/long\", expected 1 to 4096 bytes" ],
    [ 'two key secrets', 'http',
      "iap_guard_key_secret secret; iap_guard_key_secret secret;",
      '"iap_guard_key_secret" directive is duplicate' ],
    [ 'key secret in a location', 'location', "iap_guard_key_secret secret;",
      '"iap_guard_key_secret" directive is not allowed here' ],

    # the guard

    [ 'guard without a name', 'location', 'iap_guard;',
      'invalid number of arguments in "iap_guard" directive' ],
    [ 'guard name with a dot', 'location', 'iap_guard a.b;',
      'invalid guard name "a.b", expected up to 64 letters, digits, "_" and '
      . '"-", or "off"' ],
    [ 'guard name that is empty', 'location', 'iap_guard "";',
      'invalid guard name "", expected up to 64 letters' ],
    [ 'guard name of 65 letters', 'location', "iap_guard $long_name;",
      "invalid guard name \"$long_name\", expected up to 64 letters" ],
    [ 'guard name that is a variable', 'location', 'iap_guard $host;',
      'invalid guard name "$host", expected up to 64 letters' ],
    [ 'two guards in one location', 'location', 'iap_guard g; iap_guard h;',
      '"iap_guard" directive is duplicate' ],
    [ 'guard that is off and more', 'location', 'iap_guard off dry_run=on;',
      'invalid parameter "dry_run=on", expected none after "off"' ],
    [ 'guard with a parameter unknown', 'location', 'iap_guard g rate=1r/s;',
      'invalid parameter "rate=1r/s", expected "dry_run=on", "dry_run=off" '
      . 'or "status=", each once' ],
    [ 'guard with a dry run of its own', 'location', 'iap_guard g dry_run=yes;',
      'invalid parameter "dry_run=yes", expected "dry_run=on"' ],
    [ 'guard with two dry runs', 'location',
      'iap_guard g dry_run=on dry_run=off;',
      'invalid parameter "dry_run=off", expected', 'each once' ],
    [ 'guard with two status', 'location',
      'iap_guard g status=429 status=503;',
      'invalid parameter "status=503", expected', 'each once' ],
    (map {
        [ "guard with status \"$_\"", 'location', "iap_guard g status=$_;",
          "invalid value \"$_\" of \"status\", expected a number from 400 to "
          . '599, but not 401, 403 or 494 to 499' ]
    } '', 'x', '-1', '200', '399', '600', '401', '403', '494', '499',
      '99999999999999999999'),
    [ 'guard in an "if"', 'location', 'if ($arg_x) { iap_guard h; }',
      '"iap_guard" directive is not allowed here' ],
    [ 'guard in the main context', 'main', 'iap_guard g;',
      '"iap_guard" directive is not allowed here' ],
    [ 'guard with another status elsewhere', 'server',
      'location /a { iap_guard g; } location /b { iap_guard g status=503; }',
      'guard "g" has other parameters in ', 'is the same wherever it is used' ],
    [ 'guard with another dry run elsewhere', 'server',
      'location /a { iap_guard g; } location /b { iap_guard g dry_run=on; }',
      'guard "g" has other parameters in ', 'is the same wherever it is used' ],
    [ 'guard of more layers than any', 'location', $too_many,
      'guard "g" of ', 'has 25 layers, expected 24 at most' ],

    # user: what stands for device and bucket too

    [ 'user without parameters', 'location', 'iap_guard_user;',
      'invalid number of arguments in "iap_guard_user" directive' ],
    [ 'user without a variable', 'location', 'iap_guard_user alice;',
      'invalid identity "alice" in "iap_guard_user", expected a value with a '
      . 'variable, or "off"' ],
    [ 'user that is empty', 'location', 'iap_guard_user "";',
      'invalid identity "" in "iap_guard_user", expected a value with a' ],
    [ 'user of an unknown variable', 'location', 'iap_guard_user $nobody;',
      'unknown "nobody" variable', 'nowhere' ],
    [ 'user of an unfinished variable', 'location', 'iap_guard_user "$";',
      'invalid variable name' ],
    [ 'user that is off and more', 'location',
      'iap_guard_user off capacity=1 rate=1r/s;',
      'invalid identity "off" in "iap_guard_user", expected' ],
    [ 'two users', 'location',
      'iap_guard_user $arg_u; iap_guard_user $arg_v;',
      '"iap_guard_user" directive is duplicate' ],
    [ 'user that is on and off', 'location',
      'iap_guard_user $arg_u; iap_guard_user off;',
      '"iap_guard_user" directive is duplicate' ],
    [ 'user with capacity alone', 'location',
      'iap_guard_user $arg_u capacity=1;',
      '"iap_guard_user" needs both "capacity" and "rate", or neither' ],
    [ 'user with rate alone', 'location', 'iap_guard_user $arg_u rate=1r/s;',
      '"iap_guard_user" needs both "capacity" and "rate", or neither' ],
    (map {
        [ "user with capacity \"$_\"", 'location',
          "iap_guard_user \$arg_u capacity=$_ rate=1r/s;",
          "invalid value \"$_\" of \"capacity\" in \"iap_guard_user\", "
          . 'expected a whole number from 1 to 1000000' ]
    } '', '0', '-1', '1.5', '3x', '1000001', '99999999999999999999'),
    (map {
        [ "user with rate \"$_->[0]\"", 'location',
          "iap_guard_user \$arg_u capacity=1 rate=$_->[0];",
          "invalid value \"$_->[0]\" of \"rate\" in \"iap_guard_user\", "
          . "expected $_->[1]" ]
    } [ '', 'a rate such as 500r/s' ], [ '5', 'a rate such as 500r/s' ],
      [ 'r/s', 'a rate such as' ], [ '5r/', 'a rate such as' ],
      [ '5r/x', 'a rate such as 500r/s, 3r/m, 10r/h or 1r/d' ],
      [ '1.5r/s', 'a rate such as' ], [ '-5r/s', 'a rate such as' ],
      [ '5r/S', 'a rate such as' ], [ '0r/s', 'a rate above 0' ],
      [ '100001r/s', 'a rate of at most 100000 a second' ],
      [ '6000001r/m', 'a rate of at most 100000 a second' ],
      [ '99999999999999999999r/d', 'a rate of at most 100000 a second' ]),
    [ 'user whose bucket takes ages to fill', 'location',
      'iap_guard_user $arg_u capacity=1000000 rate=1r/d;',
      'invalid "capacity" and "rate" in "iap_guard_user", expected a capacity '
      . 'that the rate refills within 3.5 years' ],
    (map {
        [ "user with $_->[0]", 'location',
          "iap_guard_user \$arg_u capacity=1 rate=1r/s $_->[0];",
          "invalid value \"$_->[2]\" of \"$_->[1]\" in \"iap_guard_user\", "
          . "expected $_->[3]" ]
    } [ 'missing=', 'missing', '', '"address", "skip" or "reject"' ],
      [ 'missing=pass', 'missing', 'pass', '"address", "skip" or "reject"' ],
      [ 'on_error=', 'on_error', '', '"local", "pass" or "reject"' ],
      [ 'on_error=skip', 'on_error', 'skip', '"local", "pass" or "reject"' ],
      [ 'dry_run=', 'dry_run', '', '"on" or "off"' ],
      [ 'dry_run=1', 'dry_run', '1', '"on" or "off"' ],
      [ 'exempt=', 'exempt', '', 'a value with a variable' ],
      [ 'exempt=1', 'exempt', '1', 'a value with a variable' ]),
    (map {
        [ "user without limits, but $_->[0]", 'location',
          "iap_guard_user \$arg_u $_->[0];",
          "\"$_->[1]\" has no effect in \"iap_guard_user\" without "
          . '"capacity" and "rate"' ]
    } [ 'on_error=pass', 'on_error' ], [ 'dry_run=on', 'dry_run' ],
      [ 'exempt=$arg_e', 'exempt' ]),
    (map {
        [ "user with $_", 'location',
          "iap_guard_user \$arg_u capacity=1 rate=1r/s $_;",
          "invalid parameter \"$_\" in \"iap_guard_user\"" ]
    } 'window=1s', 'capacity', 'users=3', '$arg_v', '=1', 'off'),
    (map {
        [ "user with two $_", 'location',
          "iap_guard_user \$arg_u capacity=1 rate=1r/s missing=skip "
          . "on_error=pass dry_run=on exempt=\$arg_e $_;",
          "duplicate parameter \"$_\" in \"iap_guard_user\"" ]
    } 'capacity=1', 'rate=1r/m', 'missing=skip', 'on_error=local',
      'dry_run=off', 'exempt=$arg_f'),
    [ 'user in an "if"', 'location', 'if ($arg_x) { iap_guard_user off; }',
      '"iap_guard_user" directive is not allowed here' ],
    (map {
        [ "user with another $_->[0] elsewhere", 'server',
          'location /a { iap_guard g; iap_guard_user $arg_u capacity=3 '
          . 'rate=1r/s; }'
          . "location /b { iap_guard g; iap_guard_user $_->[1]; }",
          'layer "user" of guard "g" has other parameters in ',
          'a guard is the same wherever it is used' ]
    } [ 'capacity', '$arg_u capacity=4 rate=1r/s' ],
      [ 'rate', '$arg_u capacity=3 rate=2r/s' ],
      [ 'unit of its rate', '$arg_u capacity=3 rate=1r/m' ],
      [ 'identity', '$arg_v capacity=3 rate=1r/s' ],
      [ 'limit, none', '$arg_u' ],
      [ 'missing', '$arg_u capacity=3 rate=1r/s missing=skip' ],
      [ 'on_error', '$arg_u capacity=3 rate=1r/s on_error=pass' ],
      [ 'dry run', '$arg_u capacity=3 rate=1r/s dry_run=on' ],
      [ 'exempt', '$arg_u capacity=3 rate=1r/s exempt=$arg_e' ]),

    # device

    [ 'device without a variable', 'location', 'iap_guard_device phone;',
      'invalid identity "phone" in "iap_guard_device", expected a value with' ],
    [ 'device with capacity alone', 'location',
      'iap_guard_device $arg_d capacity=1;',
      '"iap_guard_device" needs both "capacity" and "rate", or neither' ],
    [ 'device with a wrong rate', 'location',
      'iap_guard_device $arg_d capacity=1 rate=1/s;',
      'invalid value "1/s" of "rate" in "iap_guard_device", expected a rate' ],
    [ 'two devices', 'location',
      'iap_guard_device $arg_d; iap_guard_device $arg_d;',
      '"iap_guard_device" directive is duplicate' ],

    # buckets

    [ 'bucket without an identity', 'location', 'iap_guard_bucket b;',
      'invalid number of arguments in "iap_guard_bucket" directive' ],
    (map {
        [ "bucket with the name of layer $_", 'location',
          "iap_guard_bucket $_ \$arg_b capacity=1 rate=1r/s;",
          "invalid bucket name \"$_\", expected one that is not a layer's of "
          . 'its own' ]
    } qw(ban segment user device signal code global)),
    [ 'bucket name with a blank', 'location', 'iap_guard_bucket "a b" $arg_b;',
      'invalid bucket name "a b", expected up to 32 letters, digits, "_" and '
      . '"-"' ],
    [ 'bucket name of 33 letters', 'location',
      'iap_guard_bucket ' . 'b' x 33 . ' $arg_b;',
      'invalid bucket name "' . 'b' x 33 . '", expected up to 32 letters' ],
    [ 'bucket without a variable', 'location', 'iap_guard_bucket b app;',
      'invalid identity "app" in "iap_guard_bucket", expected a value with' ],
    [ 'bucket with rate alone', 'location',
      'iap_guard_bucket b $arg_b rate=1r/s;',
      '"iap_guard_bucket" needs both "capacity" and "rate", or neither' ],
    [ 'bucket that is off and more', 'location',
      'iap_guard_bucket b off dry_run=on;',
      'invalid identity "off" in "iap_guard_bucket", expected' ],
    [ 'two buckets of one name', 'location',
      'iap_guard_bucket b $arg_b; iap_guard_bucket b $arg_c;',
      '"iap_guard_bucket" directive is duplicate' ],
    [ 'bucket that differs elsewhere', 'server',
      'location /a { iap_guard g; iap_guard_bucket b $arg_b capacity=1 '
      . 'rate=1r/s; } location /b { iap_guard g; iap_guard_bucket b $arg_b '
      . 'capacity=2 rate=1r/s; }',
      'layer "b" of guard "g" has other parameters in ' ],

    # segments

    [ 'segment without a user', 'location', 'iap_guard_segment users=3;',
      'guard "g" of ', 'has "iap_guard_segment" without "iap_guard_user": it '
      . 'would have no users to count' ],
    [ 'segment whose user is off', 'server',
      'iap_guard g; iap_guard_user $arg_u; iap_guard_segment; '
      . 'location / { iap_guard_user off; }',
      'has "iap_guard_segment" without "iap_guard_user"' ],
    [ 'segment without a user in a nested location', 'server',
      'location / { iap_guard g; iap_guard_user $arg_u; iap_guard_segment; '
      . 'location /a { iap_guard_user off; } }',
      'has "iap_guard_segment" without "iap_guard_user"' ],
    (map {
        [ "segment with $_->[0]", 'location',
          "iap_guard_user \$arg_u; iap_guard_segment $_->[0];",
          "invalid value \"$_->[2]\" of \"$_->[1]\" in "
          . "\"iap_guard_segment\", expected $_->[3]" ]
    } [ 'ipv4=', 'ipv4', '', 'a prefix length from 1 to 32' ],
      [ 'ipv4=0', 'ipv4', '0', 'a prefix length from 1 to 32' ],
      [ 'ipv4=33', 'ipv4', '33', 'a prefix length from 1 to 32' ],
      [ 'ipv4=/24', 'ipv4', '/24', 'a prefix length from 1 to 32' ],
      [ 'ipv6=', 'ipv6', '', 'a prefix length from 1 to 128' ],
      [ 'ipv6=0', 'ipv6', '0', 'a prefix length from 1 to 128' ],
      [ 'ipv6=129', 'ipv6', '129', 'a prefix length from 1 to 128' ],
      [ 'users=', 'users', '', 'a whole number from 1 to 1000000, or a '
        . 'variable' ],
      [ 'users=0', 'users', '0', 'a whole number from 1 to 1000000' ],
      [ 'users=-5', 'users', '-5', 'a whole number from 1 to 1000000' ],
      [ 'users=1000001', 'users', '1000001', 'a whole number from 1 to' ],
      [ 'window=', 'window', '', 'a time above 0, a year at most' ],
      [ 'window=0', 'window', '0', 'a time above 0, a year at most' ],
      [ 'window=0ms', 'window', '0ms', 'a time above 0, a year at most' ],
      [ 'window=5x', 'window', '5x', 'a time above 0, a year at most' ],
      [ 'window=-5s', 'window', '-5s', 'a time above 0, a year at most' ],
      [ 'window=366d', 'window', '366d', 'a time above 0, a year at most' ],
      [ 'ban=', 'ban', '', 'a time, a year at most, or 0 for no ban' ],
      [ 'ban=off', 'ban', 'off', 'a time, a year at most, or 0 for no ban' ],
      [ 'ban=366d', 'ban', '366d', 'a time, a year at most, or 0' ],
      [ 'address=', 'address', '', 'a value with a variable' ],
      [ 'address=10.0.0.1', 'address', '10.0.0.1', 'a value with a variable' ],
      [ 'exempt=1', 'exempt', '1', 'a value with a variable' ],
      [ 'on_error=', 'on_error', '', '"local", "pass" or "reject"' ],
      [ 'dry_run=true', 'dry_run', 'true', '"on" or "off"' ]),
    (map {
        [ "segment with $_", 'location',
          "iap_guard_user \$arg_u; iap_guard_segment $_;",
          "invalid parameter \"$_\" in \"iap_guard_segment\"" ]
    } 'capacity=3', 'rate=1r/s', 'missing=skip', '24', 'users'),
    (map {
        [ "segment with two $_", 'location',
          'iap_guard_user $arg_u; iap_guard_segment ipv4=24 ipv6=48 users=9 '
          . 'window=1m ban=1s address=$arg_a exempt=$arg_e on_error=pass '
          . "dry_run=on $_;",
          "duplicate parameter \"$_\" in \"iap_guard_segment\"" ]
    } 'ipv4=32', 'ipv6=64', 'users=$arg_n', 'window=1s', 'ban=0',
      'address=$arg_b', 'exempt=$arg_f', 'on_error=local', 'dry_run=off'),
    [ 'segment that is off and more', 'location',
      'iap_guard_user $arg_u; iap_guard_segment off users=3;',
      'invalid parameter "off" in "iap_guard_segment"' ],
    [ 'segment that is on and off', 'location',
      'iap_guard_user $arg_u; iap_guard_segment; iap_guard_segment off;',
      '"iap_guard_segment" directive is duplicate' ],
    [ 'two segments of one level', 'location',
      'iap_guard_user $arg_u; iap_guard_segment ipv4=24 users=1; '
      . 'iap_guard_segment ipv4=24 users=2;',
      '"iap_guard_segment" directive is duplicate' ],
    [ 'segments of five levels', 'location',
      'iap_guard_user $arg_u;'
      . join('', map { "iap_guard_segment ipv4=$_;" } 32, 24, 20, 16, 8),
      'too many "iap_guard_segment" levels, expected 4 at most' ],
    (map {
        [ "segment with another $_ elsewhere", 'server',
          'iap_guard_user $arg_u; '
          . 'location /a { iap_guard g; iap_guard_segment ipv4=24; }'
          . "location /b { iap_guard g; iap_guard_segment ipv4=24 $_; }",
          'layer "segment" of guard "g" has other parameters in ' ]
    } 'ipv6=56', 'users=11', 'users=$arg_n', 'window=61s', 'ban=1s',
      'address=$arg_a', 'exempt=$arg_e', 'on_error=reject', 'dry_run=on'),

    # global

    [ 'global without parameters', 'location', 'iap_guard_global;',
      'invalid number of arguments in "iap_guard_global" directive' ],
    [ 'global without a rate', 'location', 'iap_guard_global window=1s;',
      '"iap_guard_global" needs "rate"' ],
    [ 'global with a wrong rate', 'location', 'iap_guard_global rate=500;',
      'invalid value "500" of "rate" in "iap_guard_global", expected a rate '
      . 'such as 500r/s' ],
    (map {
        [ "global with rate $_->[0] and window $_->[1], below 1", 'location',
          "iap_guard_global rate=$_->[0] window=$_->[1];",
          'invalid "rate" and "window" in "iap_guard_global", expected ' ]
    } [ '1r/m', '1s' ], [ '59r/m', '1s' ], [ '1r/d', '23h' ],
      [ '9r/s', '100ms' ]),
    (map {
        [ "global with $_->[0]", 'location',
          "iap_guard_global rate=1r/s $_->[0];",
          "invalid value \"$_->[2]\" of \"$_->[1]\" in "
          . "\"iap_guard_global\", expected $_->[3]" ]
    } [ 'window=', 'window', '', 'a time above 0' ],
      [ 'window=0', 'window', '0', 'a time above 0' ],
      [ 'on_error=drop', 'on_error', 'drop', '"local", "pass" or "reject"' ],
      [ 'dry_run=', 'dry_run', '', '"on" or "off"' ]),
    (map {
        [ "global with $_", 'location', "iap_guard_global rate=1r/s $_;",
          "invalid parameter \"$_\" in \"iap_guard_global\"" ]
    } 'capacity=3', 'exempt=$arg_e', 'missing=skip', '$arg_x', 'off'),
    (map {
        [ "global with two $_", 'location',
          "iap_guard_global rate=1r/s window=1s on_error=pass dry_run=on $_;",
          "duplicate parameter \"$_\" in \"iap_guard_global\"" ]
    } 'rate=2r/s', 'window=2s', 'on_error=local', 'dry_run=off'),
    [ 'two globals', 'location',
      'iap_guard_global rate=1r/s; iap_guard_global off;',
      '"iap_guard_global" directive is duplicate' ],
    (map {
        [ "global with another $_ elsewhere", 'server',
          'location /a { iap_guard g; iap_guard_global rate=1r/s; }'
          . "location /b { iap_guard g; iap_guard_global $_; }",
          'layer "global" of guard "g" has other parameters in ' ]
    } 'rate=2r/s', 'rate=1r/s window=2s', 'rate=1r/s dry_run=on'),

    # answers

    [ 'answer without a body', 'location', 'iap_guard_answer limited 429;',
      'invalid number of arguments in "iap_guard_answer" directive' ],
    [ 'answer of an unknown kind', 'location',
      'iap_guard_answer refused 429 body;',
      'invalid kind "refused" of answer, expected "accepted", "limited", '
      . '"banned", "unavailable", "code_unavailable" or "in_progress"' ],
    [ 'answer of no kind', 'location', 'iap_guard_answer "" 429 body;',
      'invalid kind "" of answer, expected "accepted"' ],
    (map {
        [ "answer with status \"$_\"", 'location',
          "iap_guard_answer limited \"$_\" body;",
          "invalid status \"$_\" of an answer, expected a number from 200 to "
          . '599, but not 401, 403, 444 or 494 to 499' ]
    } '', 'x', '-1', '199', '600', '401', '403', '444', '495', '499'),
    [ 'answer with an unknown variable', 'location',
      'iap_guard_answer limited 429 $nothing;',
      'unknown "nothing" variable', 'nowhere' ],
    [ 'two answers of one kind', 'location',
      'iap_guard_answer limited 429 a; iap_guard_answer limited 429 b;',
      '"iap_guard_answer" directive is duplicate' ],

    # the API

    [ 'API without a mode', 'location', 'iap_guard_api;',
      'invalid number of arguments in "iap_guard_api" directive' ],
    [ 'API with a mode unknown', 'location', 'iap_guard_api on;',
      'invalid parameter "on", expected "read" or "write"' ],
    [ 'API that writes without a token', 'location', 'iap_guard_api write;',
      '"iap_guard_api" directive needs "token_file=" for "write"' ],
    [ 'API that reads with a token', 'location',
      "iap_guard_api read token_file=secret;",
      'invalid parameter "token_file=***", expected "token_file=" after '
      . '"write", and none after "read"' ],
    [ 'API with a parameter unknown', 'location',
      "iap_guard_api write token=secret;",
      'invalid parameter "token=***", expected "token_file=" after' ],
    [ 'API whose token file has no name', 'location',
      'iap_guard_api write token_file=;',
      'invalid parameter "token_file=", expected "token_file=" after' ],
    [ 'API whose token file is not there', 'location',
      "iap_guard_api write token_file=none;",
      "open() \"$dir/none\" failed (2: No such file or directory)" ],
    [ 'API whose token file is empty', 'location',
      "iap_guard_api write token_file=empty;",
      "invalid secret file \"$dir/empty\", expected 1 to 4096 bytes" ],
    [ 'API whose token file is blank', 'location',
      "iap_guard_api write token_file=blanks;",
      "invalid secret file \"$dir/blanks\", expected 1 to 4096 bytes" ],
    [ 'API whose token has a blank', 'location',
      "iap_guard_api write token_file=words;",
      'invalid token in "words", expected printable ASCII without blanks' ],
    [ 'API in a regex location', 'server',
      'location ~ ^/api { iap_guard_api read; }',
      '"iap_guard_api" directive needs a location given by a prefix, not by a '
      . 'regular expression' ],
    (map {
        [ "API in location $_", 'server', "location $_ { iap_guard_api read; }",
          '"iap_guard_api" directive needs a location given by a prefix, not a '
          . 'named or an empty one' ]
    } '@api', '""'),
    [ 'API twice', 'location', 'iap_guard_api read; iap_guard_api read;',
      '"iap_guard_api" directive is duplicate' ],
    [ 'API in a server', 'server', 'iap_guard_api read;',
      '"iap_guard_api" directive is not allowed here' ],
    [ 'API in an "if"', 'location', 'if ($arg_x) { iap_guard_api read; }',
      '"iap_guard_api" directive is not allowed here' ],
);

plan tests => 2 * @refused + 2;

foreach my $row (@refused) {
    my ($name, $where, $directives, @said) = @$row;
    my $nowhere = $said[-1] eq 'nowhere' && pop @said;

    my ($exit, $output) = nginx_t(conf($where, $directives));
    my ($line) = grep { /\[emerg\]/ } split /\n/, $output;
    $line //= '';

    # by itself, not by a signal

    is $exit, 1, "$name: refused";

    my @unsaid = grep { index($line, $_) < 0 } @said;
    push @unsaid, "the place" unless $nowhere || $line =~ /nginx\.conf:\d+/;

    ok !@unsaid, "$name: named"
        or diag join "\n", 'not said:', @unsaid, 'but:', $output;
}

# what all of the above would be without its mistake

my ($exit, $output) = nginx_t(conf('location', 'iap_guard_user $arg_u;'));

is $exit, 0, 'a right configuration is accepted' or diag $output;
unlike $output, qr/\[(?!notice)\w+\]/, 'and nothing is said of it';


sub conf {
    my ($where, $directives) = @_;

    my %at = (
        'no zone' => '', main => '', http => '', server => '', location => '',
        zone => 'iap_guard_zone iap 1m;', guard => 'iap_guard g;');

    $at{zone} = '' if $where eq 'no zone';
    $at{guard} = ''
        if $where eq 'no zone' || $directives =~ /^iap_guard(?:_api)?[ ;]/;
    $at{$where} = $directives;

    my $load = join "\n", map { "load_module $_;" } @modules;

    return <<"END";
$load
error_log stderr;
pid nginx.pid;
$at{main}
events {}
http {
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    $at{zone}
    $at{'no zone'}
    $at{http}
    server {
        listen 127.0.0.1:1;
        $at{server}
        location /t {
            $at{guard}
            $at{location}
        }
    }
}
END
}


sub nginx_t {
    my ($conf) = @_;

    file("$dir/nginx.conf", $conf);
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
