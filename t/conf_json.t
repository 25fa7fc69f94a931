# iap_guard_json and iap_guard_json_limit: what "nginx -t" accepts, and what it
# refuses, with the value, what was expected and where.

use strict;
use warnings;

use lib 't/lib';

use IapGuard::ConfTest;

my $json = 'iap_guard_json $code code;';

# a variable, or a path, that is refused with the same words

sub variable {
    my ($name, $variable) = @_;

    return [ $name, http => "iap_guard_json '$variable' code;",
             "invalid variable \"$variable\" in \"iap_guard_json\", expected "
             . '"$" and letters, digits and "_"' ];
}

sub taken {
    my ($name, $variable, @before) = @_;

    return [ $name, @before, http => "iap_guard_json $variable code;",
             "invalid variable \"$variable\" in \"iap_guard_json\", expected "
             . 'one that is not defined yet' ];
}

sub path {
    my ($name, $path, $expected) = @_;

    return [ $name, http => "iap_guard_json \$code '$path';",
             "invalid path \"$path\" in \"iap_guard_json\", expected $expected" ];
}

sub limit {
    my ($size) = @_;

    return [ "a limit of \"$size\"", http => "iap_guard_json_limit '$size';",
             "invalid size \"$size\" in \"iap_guard_json_limit\", expected a "
             . 'size from "1" to "16m"' ];
}


my @refused = (
    [ 'no path', http => 'iap_guard_json $code;',
      'invalid number of arguments in "iap_guard_json" directive' ],
    [ 'a third word', http => 'iap_guard_json $code code 256k;',
      'invalid number of arguments in "iap_guard_json" directive' ],

    variable('no dollar', 'code'),
    variable('no name', '$'),
    variable('nothing', ''),
    variable('braces', '${code}'),
    variable('a hyphen', '$promo-code'),

    path('an empty path', '', 'names or indexes, joined by single dots'),
    path('a path that begins with a dot', '.code',
         'names or indexes, joined by single dots'),
    path('a path that ends with one', 'order.',
         'names or indexes, joined by single dots'),
    path('two dots', 'order..code', 'names or indexes, joined by single dots'),
    path('a path that is too deep', 'a.b.c.d.e.f.g.h.i',
         'at most 8 names or indexes'),
    path('a name that is too long', 'x' x 129, 'names of at most 128 bytes'),

    [ 'the same variable twice', http => "$json\niap_guard_json \$code other;",
      'the duplicate "code" variable' ],
    [ 'in another case', http => "$json\niap_guard_json \$CODE other;",
      'the duplicate "CODE" variable' ],
    [ 'a variable of nginx', http => 'iap_guard_json $request_body code;',
      'the duplicate "request_body" variable' ],
    [ 'a variable of this module', http => 'iap_guard_json $iap_guard_layer x;',
      'the duplicate "iap_guard_layer" variable' ],
    taken('a family of nginx', '$arg_code'),
    taken('another family, in another case', '$Http_x'),
    taken('a map', '$mine', all => 'map $arg_x $mine { default 1; }'),
    taken('a geo', '$mine', all => 'geo $mine { default 1; }'),

    [ 'a "set" before it', server => 'set $mine x;',
      late => 'iap_guard_json $mine code;',
      'invalid variable "$mine" in "iap_guard_json", expected one that is not '
      . 'defined yet' ],
    [ 'a map that comes later', http => "$json\nmap \$arg_x \$code { a 1; }",
      'the duplicate "code" variable' ],
    [ 'a "set" of it', http => $json, server => 'set $code x;',
      'the duplicate "code" variable' ],

    [ 'too many', http => join("\n", map { "iap_guard_json \$v$_ x;" } 1 .. 25),
      'too many "iap_guard_json", expected at most 24' ],
    [ 'in a server', server => $json,
      '"iap_guard_json" directive is not allowed here' ],
    [ 'in a location', location => $json,
      '"iap_guard_json" directive is not allowed here' ],

    limit(''), limit('0'), limit('0k'), limit('-1'), limit('17m'),
    limit('16777217'), limit('1g'), limit('256x'), limit('k'), limit('1.5k'),
    [ 'two limits',
      http => "iap_guard_json_limit 1k;\niap_guard_json_limit 1k;",
      '"iap_guard_json_limit" directive is duplicate' ],
    [ 'a limit in a location', location => 'iap_guard_json_limit 1k;',
      '"iap_guard_json_limit" directive is not allowed here' ],
);


my @accepted = (
    [ 'one', http => $json ],
    [ 'none that uses it, and no zone', zone => '', http => $json ],
    [ 'behind its use', late => $json,
      location => 'iap_guard g; iap_guard_user $code capacity=1 rate=1r/s; '
                  . 'empty_gif;' ],
    [ 'in a map, a log and a header', http => "$json\n"
      . 'map $code $kind { default 0; ABC 1; } log_format x "$code $kind";',
      location => 'add_header X-Kind $kind; empty_gif;' ],
    [ 'a path as deep as can be',
      http => 'iap_guard_json $code order.items.0.a.b.c.d.e;' ],
    [ 'names of any letters', http => 'iap_guard_json $code "Größe.a b.$x";' ],
    [ 'two of one path', http => "$json iap_guard_json \$again code;" ],
    [ 'as many as there may be',
      http => join("\n", map { "iap_guard_json \$v$_ x$_;" } 1 .. 24) ],
    [ 'the lowest limit', http => "$json iap_guard_json_limit 1;" ],
    [ 'the highest limit', http => "$json iap_guard_json_limit 16m;" ],
    [ 'a limit before it, and alone', http => 'iap_guard_json_limit 256k;' ],
);

IapGuard::ConfTest->run(\@refused, \@accepted);
