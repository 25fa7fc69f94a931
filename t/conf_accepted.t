# Right configurations: "nginx -t" accepts each, and says nothing of it but
# the warnings that belong to it.

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

my $long_name = 'g' x 64;

file("$dir/secret", "a-secret\n");
file("$dir/longest", 'x' x 4096);


# Each is: name, what stands in "http", and the warnings, if any.

my @accepted = (

    # nothing of the module's, or hardly anything

    [ 'a module that is not used', '' ],
    [ 'a zone alone', 'iap_guard_zone iap 1m;' ],
    [ 'a guard without layers', 'iap_guard_zone iap 1m; server { iap_guard g; }' ],
    [ 'guards that are off need no zone',
      'iap_guard off; server { iap_guard off; location /a { iap_guard off; } }' ],
    [ 'the zone after what uses it',
      'server { location / { iap_guard g; } } iap_guard_zone iap 1m;' ],
    [ 'the smallest zone that the refusal of smaller ones names',
      'iap_guard_zone iap 40960; '
      . 'server { location / { iap_guard g; iap_guard_user $arg_u; } }' ],
    (map { [ "a zone of $_", "iap_guard_zone iap $_;" ] }
        '64k', '1m', '16M', '1048576'),

    # the design's example, without what is not embedded

    [ 'the example', '
        upstream redeem_backend { server 127.0.0.1:9001; }
        upstream apple          { server 127.0.0.1:9002; keepalive 32; }
        iap_guard_zone iap 16m;
        iap_guard_key_secret secret;
        server {
            location = /v1/redeem {
                iap_guard         redeem;
                iap_guard_segment users=10 window=60s;
                iap_guard_segment ipv4=24 ipv6=48 users=200 window=60s ban=5m;
                iap_guard_user    $http_x_user_id   capacity=3 rate=3r/m;
                iap_guard_device  $http_x_device_id capacity=3 rate=3r/m;
                iap_guard_global  rate=500r/s;
                proxy_pass        http://redeem_backend;
            }
            location = /v1/verify {
                iap_guard         verify;
                iap_guard_user    $http_x_user_id capacity=30 rate=30r/m;
                proxy_pass        http://apple/verifyReceipt;
            }
            location /iap_guard/ {
                iap_guard_api read; allow 127.0.0.1; deny all;
            }
        }' ],

    # every form of every parameter

    map({ [ "guard $_", "iap_guard_zone iap 1m; server { iap_guard $_; }" ] }
        'g', $long_name, 'Redeem_2-b', 'on', 'g dry_run=on', 'g dry_run=off',
        'g status=400', 'g status=599', 'g status=402', 'g status=404',
        'g status=503 dry_run=on'),
    map({ [ "user $_", layer("iap_guard_user $_;") ] }
        'off', '$arg_u', '$arg_u missing=address', '$arg_u missing=skip',
        '$arg_u missing=reject', '"$arg_a:$arg_b"', '${arg_u}x',
        '$arg_u capacity=1 rate=1r/s', '$arg_u rate=1r/s capacity=1',
        '$arg_u capacity=1000000 rate=100000r/s',
        '$arg_u capacity=1000 rate=1r/d', '$arg_u capacity=3 rate=10r/h',
        '$arg_u capacity=3 rate=6000000r/m', '$arg_u capacity=03 rate=03r/m',
        '$arg_u capacity=1 rate=1r/s missing=reject on_error=local '
        . 'dry_run=off exempt=$arg_e',
        '$arg_u capacity=1 rate=1r/s on_error=pass dry_run=on',
        '$arg_u capacity=1 rate=1r/s on_error=reject exempt="$arg_e$arg_f"'),
    map({ [ "device $_", layer("iap_guard_device $_;") ] }
        'off', '$arg_d', '$arg_d capacity=1 rate=1r/s missing=address'),
    map({ [ "bucket $_", layer("iap_guard_bucket $_;") ] }
        'app off', 'app $arg_a', ('b' x 32) . ' $arg_a capacity=1 rate=1r/s',
        'users $arg_a capacity=1 rate=1r/s missing=skip', 'off $arg_a',
        'off off'),
    map({ [ "segment $_", layer("iap_guard_user \$arg_u; iap_guard_segment $_;") ] }
        '', 'off', 'ipv4=1 ipv6=1 users=1 window=1ms ban=1ms',
        'ipv4=32 ipv6=128 users=1000000 window=365d ban=365d', 'ban=0',
        'users=$arg_n', 'users="1$arg_n"', 'address=$http_x_real_ip',
        'window=1m30s', 'window=60', 'exempt=$arg_e on_error=reject dry_run=on'),
    map({ [ "global $_", layer("iap_guard_global $_;") ] }
        'off', 'rate=500r/s', 'rate=1r/m window=1m', 'rate=60r/m window=1s',
        'rate=1r/d window=1d', 'window=100ms rate=10r/s',
        'rate=1r/s on_error=pass dry_run=on'),
    [ 'four levels of segments',
      layer('iap_guard_user $arg_u;'
            . join '', map { "iap_guard_segment ipv4=$_ ipv6=64;" }
                           32, 24, 16, 8) ],
    [ '24 layers', layer(join '', map {
          "iap_guard_bucket b$_ \$arg_b capacity=1 rate=1r/s;" } 1 .. 24) ],
    map({ [ "answer $_", layer("iap_guard_answer $_;") ] }
        'limited 429 body', 'limited 200 ""', 'banned 599 "$request_id" text/html',
        q(unavailable 503 '{"a":1}'), 'accepted 202 ok', 'code_unavailable 409 no',
        'in_progress 404 $iap_guard_layer "text/plain; charset=utf-8"'),
    [ 'an answer of each kind on each level',
      'iap_guard_zone iap 1m; iap_guard_answer limited 429 http;
       server { iap_guard_answer limited 429 server; iap_guard_answer banned 429 b;
       location / { iap_guard g; iap_guard_answer limited 429 location; } }' ],
    [ 'a key secret as long as may be',
      'iap_guard_zone iap 1m; iap_guard_key_secret longest;' ],
    [ 'a key secret with an absolute name',
      "iap_guard_zone iap 1m; iap_guard_key_secret $dir/secret;" ],
    [ 'a key secret without a zone', 'iap_guard_key_secret secret;' ],
    map({ [ "API $_", "iap_guard_zone iap 1m; server { location /api/ {"
                      . " iap_guard_api $_; } }" ] }
        'read', 'write token_file=secret', "write token_file=$dir/secret"),
    [ 'two APIs', 'iap_guard_zone iap 1m; server {
        location /read/ { iap_guard_api read; }
        location = /exact { iap_guard_api read; }
        location ^~ /write { iap_guard_api write token_file=secret; } }' ],

    # one guard in many places

    [ 'one guard in two locations, the same', 'iap_guard_zone iap 1m; server {
        location /a { iap_guard g; iap_guard_user $arg_u capacity=1 rate=1r/s; }
        location /b { iap_guard g; iap_guard_user $arg_u rate=1r/s capacity=1; }
      }' ],
    [ 'defaults written out are the same', 'iap_guard_zone iap 1m; server {
        location /a { iap_guard g; iap_guard_user $arg_u capacity=1 rate=1r/s;
                      iap_guard_segment; iap_guard_global rate=1r/s; }
        location /b { iap_guard g dry_run=off status=429;
                      iap_guard_user $arg_u capacity=1 rate=1r/s
                          missing=address on_error=local dry_run=off;
                      iap_guard_segment ipv4=32 ipv6=64 users=10 window=60s
                          ban=0 on_error=local dry_run=off;
                      iap_guard_global rate=1r/s window=1s; } }' ],
    [ 'one guard with other layers in two locations', 'iap_guard_zone iap 1m;
      server {
        location /a { iap_guard g; iap_guard_user $arg_u; iap_guard_segment; }
        location /b { iap_guard g; iap_guard_global rate=1r/s; }
        location /c { iap_guard g; iap_guard_bucket a $arg_a; }
        location /d { iap_guard g; } }' ],
    [ 'two guards that differ', 'iap_guard_zone iap 1m; server {
        location /a { iap_guard a; iap_guard_user $arg_u; }
        location /b { iap_guard b status=503; iap_guard_user $arg_v
                          capacity=1 rate=1r/s; } }' ],
    [ 'layers of http for guards below', 'iap_guard_zone iap 1m;
      iap_guard_user $arg_u; iap_guard_segment; iap_guard_global rate=1r/s;
      server { location /a { iap_guard a; } location /b { iap_guard b; }
               location /c { } }' ],
    [ 'a guard of http for layers below', 'iap_guard_zone iap 1m; iap_guard g;
      server { location /a { iap_guard_user $arg_u; }
               location /b { iap_guard_global rate=1r/s; } }' ],
    [ 'a segment above, its user below', 'iap_guard_zone iap 1m;
      server { iap_guard g; iap_guard_segment;
               location / { iap_guard_user $arg_u; } }' ],
    [ 'a segment that is off needs no user', 'iap_guard_zone iap 1m;
      server { iap_guard g; iap_guard_user $arg_u; iap_guard_segment;
               location / { iap_guard_user off; iap_guard_segment off; } }' ],
    [ 'nested locations, limit_except, "if"', 'iap_guard_zone iap 1m;
      server { iap_guard g; iap_guard_user $arg_u;
               location /a { location /a/b { iap_guard_user off; }
                             if ($arg_x) { set $x 1; }
                             limit_except GET { deny all; } }
               location @named { iap_guard_device $arg_d; }
               location ~ regex$ { iap_guard off; } }' ],

    # what is warned of

    [ 'layers without a guard', 'iap_guard_zone iap 1m;
      server { location /a { iap_guard_user $arg_u; } }',
      'layers in location "/a" have no effect there, because no "iap_guard" is '
      . 'in force' ],
    [ 'layers where the guard is off: that is said on purpose',
      'iap_guard_zone iap 1m;
      server { iap_guard g;
               location /a { iap_guard off; iap_guard_user $arg_u; } }' ],
    [ 'a return beside a guard', 'iap_guard_zone iap 1m;
      server { location /a { iap_guard g; return 200 ok; } }',
      '"return" in location "/a" answers before guard "g" of ' ],
    [ 'a redirecting rewrite beside a guard', 'iap_guard_zone iap 1m;
      server { location /a { iap_guard g; rewrite ^ https://example.org; } }',
      '"rewrite" in location "/a" answers before guard "g" of ' ],
    [ 'a return above a guard', 'iap_guard_zone iap 1m;
      server { return 301 https://$host$request_uri;
               location /a { iap_guard g; } }',
      '"return" in ', 'answers before guard "g" of ' ],
    [ 'a return under an "if" may be meant', 'iap_guard_zone iap 1m;
      server { location /a { iap_guard g; if ($arg_x) { return 403; }
                             iap_guard_user $arg_u; } }' ],
    [ 'a rewrite that does not answer', 'iap_guard_zone iap 1m;
      server { location /a { iap_guard g; rewrite ^/a/(.*) /b/$1 break; } }' ],
    [ 'a return beside a guard that is off', 'iap_guard_zone iap 1m;
      server { iap_guard g; location /a { iap_guard off; return 200 ok; } }' ],
    [ 'a return where there is no guard', 'iap_guard_zone iap 1m;
      server { location /a { return 200 ok; } location /b { iap_guard g; } }' ],
);

plan tests => 2 * @accepted;

foreach my $row (@accepted) {
    my ($name, $http, @warnings) = @$row;
    my ($exit, $output) = nginx_t(conf($http));

    is $exit, 0, "$name: accepted" or diag $output;

    my @said = grep { /\[\w+\]/ } split /\n/, $output;
    my $as_expected = @warnings ? @said == 1 && $said[0] =~ /\[warn\]/
                                : @said == 0;

    foreach my $warning (@warnings) {
        $as_expected &&= index($said[0], $warning) >= 0;
    }

    ok $as_expected, "$name: " . (@warnings ? 'warned of' : 'nothing said')
        or diag @warnings ? "expected: @warnings\n" : '', $output;
}


sub layer {
    my ($directives) = @_;

    return "iap_guard_zone iap 1m; "
        . "server { location / { iap_guard g; $directives } }";
}


sub conf {
    my ($http) = @_;

    my $load = join "\n", map { "load_module $_;" } @modules;

    return <<"END";
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
    server { listen 127.0.0.1:1; }
}
END
}


sub nginx_t {
    my ($conf) = @_;

    # where "server" says nothing it would listen on port 80

    $conf =~ s/\bserver \{ (?!listen)/server { listen 127.0.0.1:1; /g;
    $conf =~ s/\bserver \{\s*\n/server { listen 127.0.0.1:1;\n/g;

    file("$dir/nginx.conf", $conf);
    my $output = `$nginx -t -p $dir -c $dir/nginx.conf 2>&1`;

    # that several servers share an address and a name is nginx's concern

    $output =~ s/^.*conflicting server name.*\n//mg;

    return ($? & 127 ? "signal " . ($? & 127) : $? >> 8, $output);
}


sub file {
    my ($name, $text) = @_;

    open my $file, '>', $name or die "$name: $!\n";
    print {$file} $text;
    close $file or die "$name: $!\n";

    return;
}
