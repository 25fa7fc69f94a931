# iap_guard_code: what "nginx -t" accepts, and what it refuses, with the value,
# what was expected and where.

use strict;
use warnings;

use lib 't/lib';

use IapGuard::ConfTest;

my $ledger = 'iap_guard_ledger DIR/ledger.db;';
my $guard  = 'iap_guard g; iap_guard_user $http_x_user;';

# a parameter that is refused

sub wrong {
    my ($name, $value, $expected) = @_;

    return [ "$name=$value", http => $ledger,
             location => "$guard iap_guard_code \$http_x_code '$name=$value';",
             "invalid value \"$value\" of \"$name\" in \"iap_guard_code\", "
             . "expected $expected" ];
}

sub right {
    my ($parameters) = @_;

    return [ "with \"$parameters\"", http => $ledger,
             location => "$guard iap_guard_code \$http_x_code $parameters;" ];
}

my $lease   = 'a time from 100ms to 1d';
my $success = 'statuses such as 2xx, 200|201 or 200-204';
my $rules   = '"http", "apple" or the name of an "iap_guard_classify"';

my @refused = (
    [ 'no variable', http => $ledger, location => "$guard iap_guard_code;",
      'invalid number of arguments in "iap_guard_code" directive' ],
    [ 'a code of its own', http => $ledger,
      location => "$guard iap_guard_code SPRING;",
      'invalid code "SPRING" in "iap_guard_code", expected a value with a '
      . 'variable, or "off"' ],
    [ 'off and more', http => $ledger,
      location => "$guard iap_guard_code off lease=1s;",
      'invalid code "off" in "iap_guard_code"' ],
    [ 'in http', http => "$ledger iap_guard_code \$http_x_code;",
      '"iap_guard_code" directive is not allowed here' ],
    [ 'in a server', http => $ledger, server => 'iap_guard_code $http_x_code;',
      '"iap_guard_code" directive is not allowed here' ],
    [ 'twice', http => $ledger,
      location => "$guard iap_guard_code \$http_x_code; "
                  . 'iap_guard_code $arg_code;',
      '"iap_guard_code" directive is duplicate' ],
    [ 'without a user', http => $ledger,
      location => 'iap_guard g; iap_guard_code $http_x_code;',
      qr/guard "g" of \S+ has "iap_guard_code" without "iap_guard_user": /,
      'there would be nobody to reserve a unit for' ],
    [ 'without a ledger', location => "$guard iap_guard_code \$http_x_code;",
      qr/"iap_guard_code" of \S+ needs "iap_guard_ledger" in "http"/ ],
    [ 'in Redis, where its keys would be anywhere',
      http => "$ledger\niap_guard_redis redis://127.0.0.1:1 'prefix=a{}';",
      location => "$guard iap_guard_code \$http_x_code;",
      qr/invalid value "a\{\}" of "prefix" in "iap_guard_redis" of \S+:\d+, expected no "\{\}"/ ],
    [ 'an unknown parameter', http => $ledger,
      location => "$guard iap_guard_code \$http_x_code on_error=pass;",
      'invalid parameter "on_error=pass" in "iap_guard_code", expected one of '
      . '"lease=", "unknown=", "success=", "classify=", "normalize=", '
      . '"attempts=", "dry_run="' ],
    [ 'a parameter twice', http => $ledger,
      location => "$guard iap_guard_code \$http_x_code lease=1s lease=2s;",
      'duplicate parameter "lease=2s" in "iap_guard_code"' ],
    [ 'unknown rules', http => $ledger,
      location => "$guard iap_guard_code \$http_x_code classify=none;",
      qr/"iap_guard_code" of \S+ has unknown "classify=none", expected \Q$rules/ ],

    wrong('lease', '0', $lease),
    wrong('lease', '99ms', $lease),
    wrong('lease', '25h', $lease),
    wrong('lease', 'soon', $lease),
    wrong('unknown', 'lost', '"sold" or "release"'),
    wrong('success', '', $success),
    wrong('success', '20', $success),
    wrong('success', '200,201', $success),
    wrong('success', '2xx+timeout', $success),
    wrong('success', '6xx', $success),
    wrong('classify', '', $rules),
    wrong('normalize', 'yes', '"on" or "off"'),
    wrong('dry_run', '1', '"on" or "off"'),
    wrong('attempts', '5', 'a rate such as'),
    wrong('attempts', '0r/m', ''),

    [ 'another lease elsewhere', http => $ledger, location =>
        "$guard iap_guard_code \$http_x_code lease=10s; } location /b { "
        . "$guard iap_guard_code \$http_x_code lease=20s;",
      qr/layer "code" of guard "g" has other parameters in/ ],
    [ 'another variable elsewhere', http => $ledger, location =>
        "$guard iap_guard_code \$http_x_code; } location /b { "
        . "$guard iap_guard_code \$arg_code;",
      qr/layer "code" of guard "g" has other parameters in/ ],
    [ 'another success elsewhere', http => $ledger, location =>
        "$guard iap_guard_code \$http_x_code; } location /b { "
        . "$guard iap_guard_code \$http_x_code success=200;",
      qr/layer "code" of guard "g" has other parameters in/ ],
    [ 'other attempts elsewhere', http => $ledger, location =>
        "$guard iap_guard_code \$http_x_code; } location /b { "
        . "$guard iap_guard_code \$http_x_code attempts=6r/m;",
      qr/layer "code" of guard "g" has other parameters in/ ],
);

my @accepted = (
    right(''),
    right('lease=100ms unknown=release success=200|202-204|3xx '
          . 'classify=apple normalize=off attempts=1r/d dry_run=on'),
    right('lease=1d unknown=sold normalize=on dry_run=off classify=http'),
    [ 'rules that come later', http => $ledger,
      location => "$guard iap_guard_code \$http_x_code classify=mine;",
      late => 'iap_guard_classify mine success json:ok=true;' ],
    [ 'the same elsewhere', http => $ledger, location =>
        "$guard iap_guard_code \$http_x_code lease=10s; } location /b { "
        . "$guard iap_guard_code \$http_x_code lease=10s;" ],
    [ 'off in a nested location', http => $ledger, location =>
        "$guard iap_guard_code \$http_x_code; location /t/b { "
        . 'iap_guard_code off; }' ],
    [ 'only in one of two locations', http => $ledger, location =>
        "$guard iap_guard_code \$http_x_code; } location /b { $guard" ],
    [ 'several variables', http => $ledger,
      location => "$guard iap_guard_code '\$arg_a-\$arg_b';" ],
);

IapGuard::ConfTest->run(\@refused, \@accepted);
