# More wrong configurations, as in conf_refused.t: statuses that no client is
# to see, answers that say nothing, locations and tokens that cannot work.
# And what lies right beside them, and is accepted.

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

my %tokens = (blank => 'open sesame', tab => "open\tsesame",
              newline => "open\nsesame", control => "open\x01sesame",
              escape => "open\esesame", delete => "open\x7fsesame",
              umlaut => "\xc3\xb6ffne", byte => "open\xffsesame");

file("$dir/$_", $tokens{$_}) foreach keys %tokens;
file("$dir/nul", "open\0sesame");
file("$dir/right", join('', map { chr } 0x21 .. 0x7e));
file("$dir/around", "\r\n \tsesame\t \r\n\n");


# Each is: name, where the directives stand, the directives, what nginx says.
# In "location" they stand beside "iap_guard g" unless they have one.

my @refused = (

    # statuses

    (map {
        [ "guard with status $_", 'location', "iap_guard g status=$_;",
          "invalid value \"$_\" of \"status\", expected a number from 400 to "
          . '599, but not 401, 403 or 494 to 499' ]
    } 494 .. 499, 401, 403, 399, 600, 200, 302),
    (map {
        my $kind = $_;
        map {
            [ "answer $kind with status $_", 'location',
              "iap_guard_answer $kind $_ body;",
              "invalid status \"$_\" of an answer, expected a number from 200 "
              . 'to 599, but not 401, 403, 444 or 494 to 499' ]
        } 401, 403, 444, 494, 495, 496, 497, 498, 499, 199, 600
    } 'limited', 'banned', 'unavailable'),

    # redirects to nowhere

    (map {
        [ "answer of $_ without a location", 'location',
          "iap_guard_answer limited $_ \"\";",
          '"iap_guard_answer" directive needs a location to redirect to' ]
    } 300, 301, 302, 303, 304, 307, 308, 399),

    # where the API cannot stand

    [ 'API in an empty location', 'server',
      'location "" { iap_guard_api read; }',
      '"iap_guard_api" directive needs a location given by a prefix, not a '
      . 'named or an empty one' ],
    [ 'API in a named location', 'server',
      'location @api { iap_guard_api read; }',
      '"iap_guard_api" directive needs a location given by a prefix, not a '
      . 'named or an empty one' ],
    [ 'API in a caseless regex location', 'server',
      'location ~* ^/api { iap_guard_api read; }',
      '"iap_guard_api" directive needs a location given by a prefix, not by a '
      . 'regular expression' ],
    [ 'API in a limit_except', 'server',
      'location /api { limit_except GET { iap_guard_api read; } }',
      '"iap_guard_api" directive is not allowed here' ],

    # tokens that no header field can carry as they are

    (map {
        [ "token with a $_ inside", 'server',
          "location /api/ { iap_guard_api write token_file=$_; }",
          "invalid token in \"$_\", expected printable ASCII without blanks" ]
    } sort(keys %tokens), 'nul'),
);

my @accepted = (
    (map {
        [ "guard with status $_", 'location', "iap_guard g status=$_;" ]
    } 400, 402, 404, 418, 429, 444, 493, 500, 503, 599),
    (map {
        [ "answer with status $_", 'location',
          "iap_guard_answer limited $_ body;" ]
    } 200, 299, 400, 402, 404, 429, 443, 445, 493, 500, 599),
    [ 'answers without a body', 'location',
      'iap_guard_answer limited 429 ""; iap_guard_answer banned 200 "";' ],
    (map {
        [ "answer of $_ with a location", 'location',
          "iap_guard_answer limited $_ https://example.org/;" ]
    } 301, 302, 303, 307, 308),
    [ 'API in an exact location', 'server',
      'location = /api { iap_guard_api read; }' ],
    [ 'API in a location that comes before regexes', 'server',
      'location ^~ /api/ { iap_guard_api read; }' ],
    [ 'API in a nested location', 'server',
      'location /a { location /a/api/ { iap_guard_api read; } }' ],
    [ 'a token of all that is printable', 'server',
      'location /api/ { iap_guard_api write token_file=right; }' ],
    [ 'a token with blanks around', 'server',
      'location /api/ { iap_guard_api write token_file=around; }' ],
    [ 'a key secret may hold anything', 'http',
      'iap_guard_key_secret byte;' ],
);

plan tests => 2 * @refused + 2 * @accepted;

foreach my $row (@refused) {
    my ($name, $where, $directives, @said) = @$row;

    my ($exit, $output) = nginx_t(conf($where, $directives));
    my ($line) = grep { /\[emerg\]/ } split /\n/, $output;
    $line //= '';

    # by itself, not by a signal

    is $exit, 1, "$name: refused";

    my @unsaid = grep { index($line, $_) < 0 } @said;
    push @unsaid, "the place" unless $line =~ /nginx\.conf:\d+/;

    ok !@unsaid, "$name: named"
        or diag join "\n", 'not said:', @unsaid, 'but:', $output;
}

foreach my $row (@accepted) {
    my ($name, $where, $directives) = @$row;

    my ($exit, $output) = nginx_t(conf($where, $directives));

    is $exit, 0, "$name: accepted" or diag $output;
    unlike $output, qr/\[(?!notice)\w+\]/, "$name: nothing is said of it";
}


sub conf {
    my ($where, $directives) = @_;

    my %at = (http => '', server => '', location => '',
              guard => 'iap_guard g;');

    $at{guard} = '' if $directives =~ /^iap_guard /;
    $at{$where} = $directives;

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
    iap_guard_zone iap 1m;
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
