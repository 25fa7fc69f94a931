# iap_guard_ledger, iap_guard_queue_key, iap_guard_queue, iap_guard_accept and
# iap_guard_ticket: what "nginx -t" accepts, and what it refuses, with the value,
# what was expected and where.

use strict;
use warnings;

use lib 't/lib';

use IapGuard::ConfTest;

my $folder = IapGuard::ConfTest->folder;
my $ledger = 'iap_guard_ledger DIR/ledger.db;';
my $queue  = 'iap_guard_queue q target=http://127.0.0.1:1/x';

write_file('key', '0123456789abcdef' x 4 . "\n");
write_file('key64', 'MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=');
write_file('short', '0123');
write_file('webhook', 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw');
write_file('text', "this is no database, however long it may be\n" x 50);
mkdir "$folder/closed", 0700;
mkdir "$folder/folder.db";

# values of one parameter, each refused with the same words

sub values_of {
    my ($parameter, $expected, @values) = @_;

    return map {
        [ "$parameter=$_", http => "$ledger $queue $parameter=$_;",
          "invalid value \"$_\" of \"$parameter\" in \"iap_guard_queue\", "
          . "expected $expected" ]
    } @values;
}


my @refused = (

    # the ledger

    [ 'a ledger without a path', http => 'iap_guard_ledger;',
      'invalid number of arguments in "iap_guard_ledger" directive' ],
    [ 'two ledgers', http => "$ledger\n$ledger",
      '"iap_guard_ledger" directive is duplicate' ],
    [ 'a ledger that is a folder', http => 'iap_guard_ledger DIR/;',
      qr/invalid path "\S+" in "iap_guard_ledger", expected the name of a file/ ],
    [ 'a ledger that is a folder by another name',
      http => 'iap_guard_ledger DIR/folder.db;', 'folder.db"' ],
    [ 'a ledger in no folder', http => 'iap_guard_ledger DIR/none/ledger.db;',
      qr{its folder "\S+/none" can't be found} ],
    [ 'a ledger that is something else', http => 'iap_guard_ledger DIR/text;',
      qr{iap_guard ledger "\S+/text" can't be used} ],
    [ 'a ledger that workers may not write to',
      http => 'iap_guard_ledger DIR/closed/ledger.db;',
      qr{may not write to the folder "\S+/closed"} ],
    [ 'a queue in Redis, whose keys would be anywhere',
      http => "$ledger $queue;\n"
              . 'iap_guard_redis redis://127.0.0.1:1 "prefix=a{}";',
      qr/invalid value "a\{\}" of "prefix" in "iap_guard_redis" of \S+:\d+, expected no "\{\}"/ ],
    [ 'a wait that is none', http => 'iap_guard_ledger DIR/l.db timeout=0;',
      'invalid value "0" of "timeout" in "iap_guard_ledger", expected a time '
      . 'from 10ms to 60s' ],
    [ 'a wait that is too long', http => 'iap_guard_ledger DIR/l.db timeout=61s;',
      'expected a time from 10ms to 60s' ],
    [ 'no threads', http => 'iap_guard_ledger DIR/l.db threads=;',
      'invalid value "" of "threads"' ],
    [ 'unknown threads', http => "iap_guard_ledger DIR/l.db threads=mine;\n"
      . "$queue;", 'unknown thread pool "mine"' ],
    [ 'an unknown parameter of it', http => 'iap_guard_ledger DIR/l.db sync=no;',
      'invalid parameter "sync=no" in "iap_guard_ledger", expected one of '
      . '"threads=", "timeout="' ],

    # keys

    [ 'a key that is none', http => 'iap_guard_queue_key DIR/short;',
      qr{invalid key in file "\S+/short" of "iap_guard_queue_key", expected 64 hexadecimal digits, or base64 of 32 bytes} ],
    [ 'a key that is not there', http => 'iap_guard_queue_key DIR/nothing;',
      'nothing" failed' ],
    [ 'keys twice', http => "iap_guard_queue_key DIR/key;\n"
      . 'iap_guard_queue_key DIR/key64;',
      '"iap_guard_queue_key" directive is duplicate' ],
    [ 'too many keys', http => 'iap_guard_queue_key ' . 'DIR/key ' x 17 . ';',
      'too many files in "iap_guard_queue_key", expected 16 at most' ],

    # queues

    [ 'a queue without a target', http => "$ledger iap_guard_queue q rate=1r/s;",
      '"iap_guard_queue" has no "target=": queue "q" would have nobody to ask' ],
    [ 'a queue without a ledger', http => "$queue;",
      qr/queue "q" of \S+nginx\.conf:\d+ needs "iap_guard_ledger" in "http"/ ],
    [ 'a queue without a zone', zone => '', http => "$ledger $queue;",
      qr/queue "q" of \S+nginx\.conf:\d+ needs "iap_guard_zone" in "http"/ ],
    [ 'a queue twice', http => "$ledger $queue;\n$queue;",
      qr/queue "q" is defined in \S+nginx\.conf:\d+ already/ ],
    [ 'a queue in a location', location => "$queue;",
      '"iap_guard_queue" directive is not allowed here' ],
    (map {
        [ "the name \"$_\"",
          http => "$ledger iap_guard_queue \"$_\" target=http://x/;",
          "invalid queue name \"$_\" in \"iap_guard_queue\", expected up to 64 "
          . 'letters, digits, "_" and "-"' ]
    } '', 'a.b', 'a/b', 'q' x 65),
    [ 'an unknown parameter', http => "$ledger $queue retries=5;",
      'invalid parameter "retries=5" in "iap_guard_queue", expected one of '
      . '"target="' ],
    [ 'a parameter twice', http => "$ledger $queue rate=1r/s rate=2r/s;",
      'duplicate parameter "rate=2r/s" in "iap_guard_queue"' ],

    (map {
        [ "target=$_", http => "$ledger iap_guard_queue q target=$_;",
          "invalid value \"$_\" of \"target\" in \"iap_guard_queue\", expected" ]
    } '', 'x', '/x', 'ftp://x/', 'http://', 'http:///x', 'https:/x'),
    values_of(sandbox => '', 'x', 'file:///etc/passwd'),
    values_of(callback => '', 'x', ''),
    values_of(rate => '', 0, '0r/s', '5', 'fast', '1r/w'),
    values_of(concurrency => 'a whole number from 1 to 1000', 0, 1001, -1, ''),
    values_of(timeout => 'a time from 10ms to 10m', 0, '9ms', '11m', ''),
    values_of(attempts => 'a whole number from 1 to 1000', 0, 1001, 'x'),
    values_of(retry_min => 'a time from 1ms to 7d', 0, '8d', ''),
    values_of(retry_max => 'a time from 1ms to 7d', 0, '8d', ''),
    values_of(max => 'a whole number from 1 to 100000000', 0, 100000001, ''),
    values_of(keep => 'a time from 1s to a year', 0, '999ms', '2y', ''),
    values_of(key => 'a value with a variable', '', 'key'),
    values_of(user => 'a value with a variable', '', 'user'),
    values_of(headers => '', '', 'a,', ',a', 'x:y', 'a,,b'),
    values_of(headers => 'no header field that belongs to a connection', 'host',
              'x-a,Content-Length', 'Transfer-Encoding', 'range'),
    values_of(breaker => 'the name of an "iap_guard_breaker"', ''),
    values_of(classify => '"http", "apple" or the name of an '
              . '"iap_guard_classify"', ''),
    [ 'too many header fields',
      http => "$ledger $queue headers=" . join(',', 1 .. 32) . ';',
      'expected up to 31 names of header fields, separated by commas' ],

    [ 'a secret that is none',
      http => "$ledger $queue callback=http://x/ secret_file=DIR/short;",
      qr{invalid value "\S+/short" of "secret_file" in "iap_guard_queue", expected} ],
    [ 'a secret that is not there',
      http => "$ledger $queue callback=http://x/ secret_file=DIR/nothing;",
      'nothing" failed' ],
    [ 'a secret for nobody', http => "$ledger $queue secret_file=DIR/webhook;",
      '"secret_file" has no effect in "iap_guard_queue" without "callback"' ],
    [ 'retry_min above retry_max',
      http => "$ledger $queue retry_min=2m retry_max=1m;",
      '"retry_min" is above "retry_max" in "iap_guard_queue"' ],
    [ 'an unknown breaker', http => "$ledger $queue breaker=apple;",
      qr/unknown breaker "apple" of queue "q" in \S+nginx\.conf:\d+, expected "iap_guard_breaker apple" with its definition/ ],
    [ 'a breaker that is used, and defined nowhere',
      http => "$ledger $queue breaker=apple;",
      location => 'iap_guard_breaker apple;', 'unknown breaker "apple"' ],
    [ 'unknown rules', http => "$ledger $queue classify=google;",
      qr/queue "q" of \S+nginx\.conf:\d+ has unknown "classify=google", expected "http", "apple" or the name of an "iap_guard_classify"/ ],
    [ 'a breaker\'s name that leaves no room for the sandbox\'s',
      http => 'iap_guard_breaker ' . 'b' x 57 . ';'
              . "$ledger $queue sandbox=http://x/ breaker=" . 'b' x 57 . ';',
      'of a breaker is too long, expected up to 64 bytes' ],

    # where they are used

    [ 'accept for a queue that there is not', http => $ledger,
      location => 'iap_guard_accept q;',
      qr/unknown queue "q" in \S+nginx\.conf:\d+, expected "iap_guard_queue q" in "http"/ ],
    [ 'accept twice', http => "$ledger $queue;",
      location => 'iap_guard_accept q; iap_guard_accept q;',
      '"iap_guard_accept" directive is duplicate' ],
    [ 'accept in a server', server => 'iap_guard_accept q;',
      '"iap_guard_accept" directive is not allowed here' ],
    [ 'tickets of a queue that there is not', http => $ledger,
      location => 'iap_guard_ticket q $arg_t;', 'unknown queue "q"' ],
    [ 'one ticket', http => "$ledger $queue;",
      location => 'iap_guard_ticket q abc;',
      'invalid value "abc" in "iap_guard_ticket", expected a value with a '
      . 'variable' ],
    [ 'no ticket', http => "$ledger $queue;", location => 'iap_guard_ticket q;',
      'invalid number of arguments in "iap_guard_ticket" directive' ],
    [ 'tickets twice', http => "$ledger $queue;",
      location => 'iap_guard_ticket q $arg_t; iap_guard_ticket q $arg_u;',
      '"iap_guard_ticket" directive is duplicate' ],

    # threads can't tell these that they are done

    (map { [ "events by $_", events => "use $_;", http => "$ledger $queue;",
             qr/"iap_guard_ledger" of \S+:\d+ needs threads, which can't be used with "use $_" in "events", expected/ ]
         } grep { IapGuard::ConfTest->built_with("${_}_module") }
           qw(poll select)),

    # the zone

    [ 'a zone too small for its queues', zone => 'iap_guard_zone iap 64k;',
      http => $ledger . join("\n", map {
          "iap_guard_queue q$_ target=http://x/ callback=http://x/;"
      } 1 .. 9),
      'iap_guard zone "iap" of 65536 bytes is too small for 0 guards, 9 '
      . 'breakers and 9 queues, expected' ],
);

my @accepted = (
    [ 'a ledger alone', http => $ledger ],
    [ 'a queue in Redis, whose prefix has braces', http => "$ledger $queue;\n"
      . 'iap_guard_redis redis://127.0.0.1:1 "prefix=a{b}{}";' ],
    [ 'no queue, and any prefix',
      http => 'iap_guard_redis redis://127.0.0.1:1 "prefix=a{}";' ],
    [ 'a ledger with all parameters', all => '',
      http => 'iap_guard_ledger DIR/ledger.db timeout=10ms threads=default;' ],
    [ 'a ledger of another name', http => 'iap_guard_ledger DIR/other.sqlite;' ],
    [ 'a queue', http => "$ledger $queue;" ],
    [ 'a queue and epoll', events => 'use epoll;', http => "$ledger $queue;" ],
    [ 'no ledger, and any events', events => join '', map { "use $_;" }
          grep { IapGuard::ConfTest->built_with("${_}_module") } 'poll' ],
    [ 'a queue behind its use', late => "$ledger $queue;",
      location => 'iap_guard_accept q;' ],
    [ 'all parameters', http => "iap_guard_breaker apple;\n$ledger "
      . 'iap_guard_queue q target=https://buy.example.com:8443/verify '
      . 'sandbox=http://[::1]:8080/s?x=y callback=http://127.0.0.1/hook '
      . 'secret_file=DIR/webhook rate=100r/m concurrency=1 timeout=10ms '
      . 'attempts=1 retry_min=1ms retry_max=1ms max=1 keep=1s '
      . 'key=$http_x_key user=u$arg_u headers=X-A,cookie,authorization '
      . 'breaker=apple classify=apple;' ],
    [ 'all parameters at their highest', http => $ledger . 'iap_guard_queue '
      . 'q' x 55 . ' target=http://x/ callback=http://x/ rate=100000r/s '
      . 'concurrency=1000 timeout=10m attempts=1000 retry_min=7d retry_max=7d '
      . 'max=100000000 keep=365d;' ],
    [ 'keys of both kinds', http => "$ledger $queue; "
      . 'iap_guard_queue_key DIR/key DIR/key64;' ],
    [ 'fallback, accept and ticket', http => "iap_guard_breaker b; $ledger $queue;",
      location => 'iap_guard_breaker b fallback=q;',
      server => 'location /a { iap_guard_accept q; } '
              . 'location = /b { iap_guard_ticket q $arg_t; } '
              . 'location ~ ^/c/(?<t>\w+)$ { iap_guard_ticket q $t; }' ],
    [ 'limit_except beside accept', http => "$ledger $queue;",
      location => 'iap_guard_accept q; limit_except POST { deny all; }' ],
    [ 'a queue for notifications', http => "$ledger $queue;",
      server => 'location /apple/Notifications { iap_guard_accept q; }',
      warned => 'location "/apple/Notifications" may be answered with 202: ' ],
    [ 'a fallback for notifications', http => "iap_guard_breaker b; $ledger $queue;",
      server => 'location = /notification { iap_guard_breaker b fallback=q; }',
      warned => 'location "/notification" may be answered with 202: ' ],
    [ 'notifications that are not queued', http => "$ledger $queue;",
      server => 'location /notifications { iap_guard g; }',
      location => 'iap_guard_accept q;' ],
    [ 'two queues and one breaker', http => "iap_guard_breaker b; $ledger "
      . "$queue breaker=b sandbox=http://x/; "
      . 'iap_guard_queue r target=http://x/ breaker=b sandbox=http://x/;' ],
);

IapGuard::ConfTest->run(\@refused, \@accepted);


sub write_file {
    my ($name, $text) = @_;

    open my $file, '>', "$folder/$name" or die "$name: $!\n";
    print {$file} $text;
    close $file or die "$name: $!\n";

    return;
}
