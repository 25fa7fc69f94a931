# iap_guard_breaker and iap_guard_classify: what "nginx -t" accepts, and what it
# refuses, with the value, what was expected and where.

use strict;
use warnings;

use lib 't/lib';

use IapGuard::ConfTest;

my $long_name = 'b' x 65;
my $share     = 'expected a share above 0% and up to 100%, such as "50%" or "12.5%"';
my $calls     = 'expected a whole number from 1 to 1000000';
my $time      = 'expected a time from 1ms to 1h';


# values of one parameter, each refused with the same words

sub values_of {
    my ($parameter, $expected, @values) = @_;

    return map {
        [ "$parameter=$_", http => "iap_guard_breaker b $parameter=$_;",
          "invalid value \"$_\" of \"$parameter\" in \"iap_guard_breaker\", "
          . $expected ]
    } @values;
}


# Each is: name, where the directives stand, the directives, what nginx says.
# "http" is before the server, "late" behind it.

my @refused = (

    # ranges

    values_of(failures => $share, '0%', '0.00%', '0.001%', '100.01%', '101%',
              '50', '0.5', '%', '', '-1%', '50%%', '1.234%', 'half%'),
    values_of(slow_ratio => $share, '0%', '101%', '80'),
    values_of(min => $calls, 0, -1, 1000001, '1.5', '', 'many'),
    values_of(consecutive => $calls, 0, 1000001),
    values_of(inflight => $calls, 0, 1000001),
    values_of(probes => 'expected a whole number from 1 to 100', 0, 101, -1,
              '', '1x'),
    values_of(window => 'expected a time from 1s to 1h', '0', '999ms', '0s',
              '3601s', '2h', '-1s', '', 'soon'),
    values_of(open => $time, '0', '0ms', '3600001ms', '2h', '', '1ns'),
    values_of(slow => $time, '0', '0s', '2h'),
    values_of(mode => 'expected "auto", "observe", "forced-open" or '
              . '"forced-closed"', 'on', 'forced', '', 'AUTO'),
    values_of(classify => 'expected "http", "apple" or the name of an '
              . '"iap_guard_classify"', ''),

    # parameters

    [ 'no name', http => 'iap_guard_breaker;',
      'invalid number of arguments in "iap_guard_breaker" directive' ],
    [ 'an unknown parameter', http => 'iap_guard_breaker b errors=5;',
      'invalid parameter "errors=5" in "iap_guard_breaker", expected one of '
      . '"failures=", "min=", "window=", "open=", "probes=", "slow=", '
      . '"slow_ratio=", "consecutive=", "inflight=", "classify=", "mode="' ],
    [ 'an unknown parameter in a location',
      location => 'iap_guard_breaker b errors=5;',
      '"classify=", "mode=", "fallback="' ],
    [ 'a parameter twice', http => 'iap_guard_breaker b min=5 min=5;',
      'duplicate parameter "min=5" in "iap_guard_breaker"' ],
    [ 'slow_ratio without slow',
      http => 'iap_guard_breaker b slow_ratio=50%;',
      '"slow_ratio" has no effect in "iap_guard_breaker" without "slow"' ],
    [ 'fallback in http', http => 'iap_guard_breaker b fallback=q;',
      'invalid parameter "fallback=q" in "iap_guard_breaker"' ],
    [ 'fallback to what there is not',
      location => 'iap_guard_breaker b min=5 fallback=receipts;',
      qr/unknown queue "receipts" in \S+nginx\.conf:\d+, expected "iap_guard_queue receipts" in "http"/ ],
    [ 'fallback beside a name alone', all => 'iap_guard_breaker b;',
      location => 'iap_guard_breaker b fallback=q;',
      qr/unknown queue "q" in \S+nginx\.conf:\d+/ ],
    [ 'fallback to no name', location => 'iap_guard_breaker b min=5 fallback=a/b;',
      'invalid value "a/b" of "fallback" in "iap_guard_breaker", expected the '
      . 'name of an "iap_guard_queue"' ],

    # names

    (map {
        [ "the name \"$_\"", http => "iap_guard_breaker \"$_\";",
          "invalid breaker name \"$_\", expected up to 64 letters, digits, "
          . '"_" and "-", but not "off": no location inherits a breaker' ]
    } '', 'a.b', 'a/b', 'a b', $long_name, 'off'),
    [ 'off in a location', location => 'iap_guard_breaker off;',
      'invalid breaker name "off"', 'no location inherits a breaker' ],
    [ 'two in one location', all => 'iap_guard_breaker b;',
      location => 'iap_guard_breaker b; iap_guard_breaker b;',
      '"iap_guard_breaker" directive is duplicate' ],
    [ 'in a server', server => 'iap_guard_breaker b;',
      '"iap_guard_breaker" directive is not allowed here' ],
    [ 'in an if', location => 'if ($arg_x) { iap_guard_breaker b; }',
      '"iap_guard_breaker" directive is not allowed here' ],

    # definitions

    [ 'defined nowhere', location => 'iap_guard_breaker b;',
      qr/breaker "b" of \S+nginx\.conf:\d+ is defined nowhere, expected "iap_guard_breaker b" in "http", or parameters here/ ],
    [ 'defined under another name', late => 'iap_guard_breaker c;',
      location => 'iap_guard_breaker b;',
      qr/breaker "b" of \S+ is defined nowhere/ ],
    [ 'two definitions in http',
      http => "iap_guard_breaker b min=5;\niap_guard_breaker b min=6;",
      qr/breaker "b" has other parameters in (\S+nginx\.conf):(\d+) than in \1:(?!\2)\d+: a breaker is the same wherever it is used/ ],
    (map {
        [ "a definition that differs in $_",
          all => 'iap_guard_breaker b slow=2s;',
          location => "iap_guard_breaker b slow=2s $_;",
          qr/breaker "b" has other parameters in \S+:\d+ than in \S+:\d+/ ]
    } 'failures=51%', 'min=21', 'window=11s', 'open=11s', 'probes=6',
      'slow_ratio=5%', 'consecutive=5', 'inflight=5', 'classify=apple',
      'mode=observe'),
    [ 'a definition that differs in slow', all => 'iap_guard_breaker b slow=2s;',
      location => 'iap_guard_breaker b slow=3s;',
      qr/breaker "b" has other parameters/ ],
    [ 'a definition behind the server that differs',
      late => 'iap_guard_breaker b min=6;',
      location => 'iap_guard_breaker b min=5;',
      qr/breaker "b" has other parameters/ ],
    [ 'two locations that differ',
      server => 'location /x { iap_guard_breaker b min=6; }',
      location => 'iap_guard_breaker b min=5;',
      qr/breaker "b" has other parameters/ ],

    # the zone

    [ 'no zone', zone => '', http => 'iap_guard_breaker b;',
      qr/breaker "b" of \S+nginx\.conf:\d+ needs "iap_guard_zone" in "http"/ ],
    [ 'a zone too small for its breakers', zone => 'iap_guard_zone iap 64k;',
      http => join("\n", map { "iap_guard_breaker b$_;" } 1 .. 9),
      'iap_guard zone "iap" of 65536 bytes is too small for 0 guards, 9 '
      . 'breakers and 0 queues, expected' ],

    # rules

    [ 'classify without a rule', http => 'iap_guard_classify c retry;',
      'invalid number of arguments in "iap_guard_classify" directive' ],
    [ 'classify with two rules',
      http => 'iap_guard_classify c retry http:500 http:501;',
      'invalid number of arguments in "iap_guard_classify" directive' ],
    [ 'classify in a location',
      location => 'iap_guard_classify c retry http:500;',
      '"iap_guard_classify" directive is not allowed here' ],
    [ 'a name of rules', http => 'iap_guard_classify a/b retry http:500;',
      'invalid name "a/b" of rules in "iap_guard_classify", expected up to 64 '
      . 'letters, digits, "_" and "-"' ],
    [ 'a class that is none', http => 'iap_guard_classify c bad http:500;',
      'invalid class "bad" in "iap_guard_classify", expected "success", '
      . '"final", "redirect", "retry", "hold", "config" or "neutral"' ],
    [ 'a rule that is none', http => 'iap_guard_classify c retry http5xx;',
      'invalid rule "http5xx" in "iap_guard_classify", expected a condition' ],
    [ 'a rule with a wrong status',
      http => 'iap_guard_classify c retry http:600;',
      'invalid rule "http:600" in "iap_guard_classify", expected a status '
      . 'such as 503' ],
    [ 'a rule with an empty path',
      http => 'iap_guard_classify c retry json:a..b;',
      'invalid rule "json:a..b" in "iap_guard_classify", expected' ],
    [ 'a rule with a path that is too deep',
      http => 'iap_guard_classify c retry json:a.b.c.d.e.f.g.h.i;',
      'invalid rule "json:a.b.c.d.e.f.g.h.i" in "iap_guard_classify", '
      . 'expected at most 8 names or indexes' ],
    [ 'a rule with a name that is too long',
      http => 'iap_guard_classify c retry json:' . ('n' x 129) . ';',
      'in "iap_guard_classify", expected names of at most 128 bytes' ],
    [ 'too many paths', http => classify('c', 1 .. 25),
      qr/rules "c" of "iap_guard_classify", the latest of them in \S+nginx\.conf:\d+, ask for more than 24 paths of JSON, those of the preset included/ ],
    [ 'too many paths for one rule more',
      http => classify('c', 1 .. 23) . "\n"
              . 'iap_guard_classify c retry json:x+json:y;',
      'rules "c" of "iap_guard_classify"' ],
    [ 'too many paths before a preset\'s', http => classify('apple', 1 .. 24),
      'rules "apple" of "iap_guard_classify"' ],
    [ 'unknown rules', location => 'iap_guard_breaker b classify=google;',
      qr/breaker "b" of \S+nginx\.conf:\d+ has unknown "classify=google", expected "http", "apple" or the name of an "iap_guard_classify"/ ],

    # a bucket may not take the name under which a breaker's refusals count

    [ 'a bucket named breaker',
      location => 'iap_guard g; iap_guard_bucket breaker $arg_b capacity=1 '
                  . 'rate=1r/s;',
      'invalid bucket name "breaker", expected one that is not a layer\'s of '
      . 'its own' ],
);

my @accepted = (
    [ 'defined in http before the server', http => 'iap_guard_breaker b;',
      location => 'iap_guard_breaker b;' ],
    [ 'defined in http behind the server', late => 'iap_guard_breaker b;',
      location => 'iap_guard_breaker b;' ],
    [ 'defined where it is used', location => 'iap_guard_breaker b min=5;' ],
    [ 'defined in another location',
      server => 'location /x { iap_guard_breaker b min=5; }',
      location => 'iap_guard_breaker b;' ],
    [ 'defined and not used', http => 'iap_guard_breaker b; iap_guard_breaker c;' ],
    [ 'defined alike, in other words',
      http => 'iap_guard_breaker b open=60s failures=50%;',
      late => 'iap_guard_breaker b failures=50.00% open=1m mode=auto min=20;',
      location => 'iap_guard_breaker b open=1m classify=http;' ],
    [ 'all parameters', http => 'iap_guard_breaker apple failures=12.25% min=1 '
      . 'window=1s open=1ms probes=1 slow=1ms slow_ratio=0.01% consecutive=1 '
      . 'inflight=1 classify=apple mode=observe;',
      location => 'iap_guard_breaker apple;' ],
    [ 'all parameters at their highest', http => 'iap_guard_breaker '
      . ('b' x 64) . ' failures=100% min=1000000 window=1h open=1h '
      . 'probes=100 slow=60m slow_ratio=100% consecutive=1000000 '
      . 'inflight=1000000 mode=forced-closed;' ],
    [ 'slow alone', http => 'iap_guard_breaker b slow=3s;' ],
    [ 'a breaker and a guard', http => 'iap_guard_breaker b;',
      location => 'iap_guard g; iap_guard_user $arg_u; iap_guard_breaker b;' ],
    [ 'a location within one has its own', http => 'iap_guard_breaker b; '
      . 'iap_guard_breaker c;',
      location => 'iap_guard_breaker b; location /t/u { iap_guard_breaker c; }' ],
    [ 'if and limit_except beside one', http => 'iap_guard_breaker b;',
      location => 'iap_guard_breaker b; if ($arg_x) { set $y 1; } '
                  . 'limit_except GET { deny all; }' ],
    [ 'rules before and behind', http => 'iap_guard_classify c retry http:5xx;',
      late => 'iap_guard_classify c final http:404;',
      location => 'iap_guard_breaker b classify=c;' ],
    [ 'every kind of rule', http => join("\n", map {
          "iap_guard_classify c retry \"$_\";"
      } qw(http:5xx http:429 http:500|502-504 timeout connect reset local cut
           json:status=21005|21009|21100-21199 json:a.b.0.c json:!a json
           notjson unread any http:404+notjson json:done=true)) ],
    [ 'every class', http => join("\n", map {
          "iap_guard_classify c $_ http:5xx;"
      } qw(success final redirect retry hold config neutral)) ],
    [ 'rules before those of presets',
      http => 'iap_guard_classify apple final http:418; '
              . 'iap_guard_classify http retry http:418;',
      location => 'iap_guard_breaker b classify=apple;' ],
    [ 'rules that nobody uses', http => 'iap_guard_classify c retry http:5xx;',
      zone => '' ],
    [ 'as many paths as there may be',
      http => classify('c', 1 .. 24) . "\n" . classify('c', 1 .. 24),
      location => 'iap_guard_breaker b classify=c;' ],
    [ 'as many paths as there may be before a preset\'s',
      http => classify('apple', 1 .. 7),
      location => 'iap_guard_breaker b classify=apple;' ],
    [ 'a zone that is just large enough', zone => 'iap_guard_zone iap 128k;',
      http => join("\n", map { "iap_guard_breaker b$_;" } 1 .. 7) ],
);

IapGuard::ConfTest->run(\@refused, \@accepted);


# one rule for each path

sub classify {
    my ($name, @paths) = @_;
    return join "\n", map { "iap_guard_classify $name retry json:p$_;" } @paths;
}
