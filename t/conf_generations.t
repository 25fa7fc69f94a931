# What many reloads leave behind, and what a zone has room for: names that are
# gone make room for others, what is there goes on.
#
# A nginx of its own, reloaded with one configuration after the other.

use strict;
use warnings;

use File::Temp qw(tempdir);
use IO::Socket::INET;
use JSON::PP qw(decode_json);
use Test::More;
use Time::HiRes qw(sleep time);

use lib 't/lib';
use IapGuard::Child;

my $nginx   = $ENV{TEST_NGINX_BINARY} // 'nginx';
my @modules = split ' ', $ENV{TEST_NGINX_LOAD_MODULES} // '';
my $port    = $ENV{TEST_NGINX_SERVER_PORT} // 1984;

# nothing is given back that is freed

my $asan = `$nginx -V 2>&1` =~ /-fsanitize=address/;

my $dir = tempdir(CLEANUP => 1);
chmod 0755, $dir;
mkdir "$dir/logs";

my ($generation, $server) = (0);

file('token', "sesame\n");


subtest 'a bucket that is renamed at each of 40 reloads' => sub {
    start(bucket => 'b0');
    is statuses('/bucket?u=kept&b=x', 1), '200', 'a request';
    is ban('bucket', 'user', 'mallory'), 201, 'a ban of what is not renamed';

    my $banned = 0;

    foreach my $n (1 .. 40) {
        $banned += ban('bucket', 'b' . ($n - 1), 'former') == 201;
        reload(bucket => "b$n") or return;

        is statuses("/bucket?u=u$n&b=former", 2), '200 429', "b$n: limits"
            if $n % 8 == 0;
    }

    is $banned, 40, 'each name had a ban';
    is statuses('/bucket?u=kept&b=y', 2), '429 429', 'the user is still spent';
    is guard('bucket')->{requests}{passed}, 6, 'counters are what they were';
    is guard('bucket')->{rejections}{b40}, 0, 'the new name is counted for';
    is scalar(keys %{ guard('bucket')->{rejections} }), 33,
        'former names keep what room there is';

    # whatever takes the row of a former name does not take its bans

    my @bans = split /, /, bans();
    is scalar(@bans), 30, 'bans of names that have given up their rows are gone'
        or diag @bans;
    is scalar(grep { $_ eq 'bucket user mallory' } @bans), 1,
        'the other one is not';
    is statuses('/bucket?u=mallory&b=z', 1), '429', 'and holds';

    is log_lines(qr/has no room/), 0, 'there was room';
    stop();
};


subtest 'a guard that is renamed at each of 60 reloads, in a small zone' => sub {
    start(guard => 'g0');
    is statuses('/bucket?u=a&b=x', 2), '200 429', 'the other guard limits';
    is ban('bucket', 'user', 'mallory'), 201, 'a ban of what is not renamed';

    foreach my $n (0 .. 59) {
        is_deeply [ban("g$n", 'user', 'mallory'),
                   api('PUT', "guards/g$n", '{"mode":"dry_run"}'),
                   status(get('/guard?u=a'))],
            [201, 200, 200], "g$n: a ban and a mode"
            if $n % 3 == 0;

        reload(guard => 'g' . ($n + 1)) or return;

        is statuses('/guard?u=a', 2), '200 429', "g$n: limits, on its own"
            if $n % 10 == 0;
        is statuses('/guard?u=mallory', 1), '200', 'and nobody is banned there'
            if $n % 10 == 3;
    }

    is guard('g60')->{mode}, 'on', 'no mode is inherited';
    is guard('g60')->{requests}{passed}, 0, 'nor are counters';
    is guard('g60')->{bans_total}, 0, 'nor bans';
    is statuses('/guard?u=mallory', 1), '200', 'nobody is banned there';
    is guard('bucket')->{requests}{passed}, 1, 'the other guard goes on';
    is statuses('/bucket?u=a&b=x', 1), '429', 'and is as spent';
    is statuses('/bucket?u=mallory&b=x', 1), '429', 'and its ban holds';
    is api('GET', 'guards/g0'), 404, 'a former name is none';
    unlike get('/api/metrics'), qr/guard="g[0-5]?\d"/, 'nor in the metrics';

    is log_lines(qr/has no room/), 0, 'there was room';
    stop();
};


subtest 'names that are gone for a few reloads only are as they were' => sub {
    start(guard => 'kept');
    is ban('kept', 'user', 'mallory'), 201, 'a ban';
    is api('PUT', 'guards/kept', '{"mode":"dry_run"}'), 200, 'a mode';
    reload(guard => "g$_") foreach 1 .. 6;
    reload(guard => 'kept');
    is guard('kept')->{mode}, 'dry_run', 'the mode is back';
    is api('PUT', 'guards/kept', '{"mode":null}'), 200, 'no more';
    is statuses('/guard?u=mallory', 1), '429', 'so is the ban';
    stop();
};


subtest 'where there is no room for names, the old ones go on' => sub {
    start(guard => 'g0', zone => '64k');
    is ban('g0', 'user', 'mallory'), 201, 'a ban';
    is api('PUT', 'guards/g0', '{"mode":"on"}'), 200, 'a mode';

    # the guards that are in force have been configured 20 reloads ago, but in
    # the latest that was accepted: nobody takes their slots

    my $more = join '', map { "location /x$_ { iap_guard x$_; }" } 1 .. 20;

    foreach my $n (1 .. 20) {
        refused_reload(guard => 'other', zone => '64k', more => $more) or last;
    }

    my $why = qr/zone "iap" has no room for guard "x\d+" and its layers/;
    is log_lines(qr/\[emerg\].* $why.*expected a larger zone$/), 20,
        'each is told why';
    is guard('g0')->{mode}, 'on', 'a mode goes on';
    is guard('g0')->{source}, 'api', 'as the API has set it';
    is statuses('/guard?u=mallory', 1), '429', 'and a ban';
    is bans(), 'g0 user mallory', 'as the list has it';
    is statuses('/guard?u=a', 2), '200 429', 'and limits';
    is guard('g0')->{requests}{limited}, 1, 'and counters';
    stop($why);
};


subtest 'a ban that a reload comes into ends when it would have' => sub {
    start(guard => 'timed');
    is ban('timed', 'user', 'mallory', 3), 201, 'for three seconds';
    my $made = time;
    sleep 1.5 - (time - $made);
    reload(guard => 'timed', more => 'location /more { iap_guard more; }');
    is statuses('/guard?u=mallory', 1), '429', 'at half time'
        if time < $made + 2.8;
    sleep 0.05 while time < $made + 3.3;
    is statuses('/guard?u=mallory', 1), '200', 'over';
    is bans(), '', 'and not in the list';
    stop();
};


subtest '60 reloads leave the master as it was' => sub {
    my $locations = join '', map {
        "location /l$_ { iap_guard l$_; iap_guard_user \$arg_u capacity=9 "
        . 'rate=1r/s; iap_guard_segment; iap_guard_answer limited 429 '
        . '$request_id; empty_gif; }'
    } 1 .. 50;

    start(more => $locations);
    reload(more => $locations) foreach 1 .. 10;
    my $before = rss();
    reload(more => $locations) foreach 1 .. 60;
    my $grown = rss() - $before;

    # the configuration is some 500k: to keep it, or a tenth of it, shows

    cmp_ok $grown, '<', 60 * 20, "$grown kB more, and less than 20 a reload"
        if !$asan;
    is log_lines(qr/has no room|is full|is a fresh one/), 0, 'nothing is said';
    stop();
};


subtest 'a guard of more layers than a slot counts for' => sub {
    my $layers = sub {
        my ($n) = @_;
        return join '', map {
            "location /b$_ { iap_guard many; iap_guard_bucket b$_ \$arg_b "
            . 'capacity=1 rate=1r/h; empty_gif; }' } 1 .. $n;
    };

    my ($exit, $said) = nginx_t(more => $layers->(30));
    is $exit, 0, '30 are accepted' or diag $said;

    foreach my $n (31, 32, 33, 100) {
        ($exit, $said) = nginx_t(more => $layers->($n));
        is $exit, 1, "$n are refused";
        like $said, qr/\[emerg\] .*layer "b31" of \S+nginx\.conf:\d+ is one /,
            "$n: the place is named";
        like $said, qr/too many for guard "many", expected 30 at most$/m,
            "$n: and how many there may be";
    }

    start(more => $layers->(30));
    is statuses('/b30?b=1', 2), '200 429', 'the last of 30 limits'
        or diag log_tail();
    is scalar(keys %{ guard('many')->{rejections} }), 32,
        'all are counted, with segments and bans';
    stop();
};


subtest 'the smallest zone has room for one guard' => sub {
    start(zone => '32k', only => 1);
    is statuses('/guard?u=a', 2), '200 429', 'it limits';
    is ban('only', 'user', 'mallory'), 201, 'it bans';
    is statuses('/guard?u=mallory', 1), '429', 'and that holds';
    reload(zone => '32k', only => 1);
    is statuses('/guard?u=a', 1), '429', 'also after a reload';
    stop();
};


subtest 'a zone that is too small names a size that is not' => sub {
    foreach my $n (2, 3, 5, 9, 20, 50, 200) {
        my $guards = join '', map { "location /g$_ { iap_guard g$_; }" } 1 .. $n;

        my ($exit, $said) = nginx_t(zone => '32k', only => 1, more => $guards);
        is $exit, 1, $n + 1 . ' guards in 32k are refused';

        my $why = qr/zone "iap" of 32768 bytes is too small for \d+ guards, 0 breakers and 0 queues/;
        my ($size) = $said =~ /\[emerg\].* $why, expected (\d+) at least$/m;

        ok $size, 'it is said what would do' or diag($said), next;

        ($exit, $said) = nginx_t(zone => $size, only => 1, more => $guards);
        is $exit, 0, 'they do' or diag $said;

        cmp_ok $size, '<', 32_768 + 3 * 4096 * ($n + 2), 'and not by far';
    }
};


subtest '500 locations share 5 guards' => sub {
    my $locations = join '', map {
        my $guard = $_ % 5;
        "location /l$_/ { iap_guard shared$guard; iap_guard_user \$arg_u "
        . 'capacity=3 rate=1r/h; empty_gif; }'
    } 1 .. 500;

    start(zone => '64k', more => $locations, only => 1);
    is join(' ', map { statuses("/l$_/?u=a", 1) } 5, 250, 500, 495),
        '200 200 200 429', 'from anywhere one bucket';
    is statuses('/l1/?u=a', 1), '200', 'and another one of another guard';
    is scalar(keys %{ json('guards') }), 6, 'six guards in all';
    stop();
};


subtest 'levels that have a segment, and no user of their own' => sub {
    my %accepted = (
        'an "if" of the server' => 'server { listen 127.0.0.1:1; iap_guard s;
            iap_guard_segment; if ($arg_x) { return 403; }
            location / { iap_guard_user $arg_u; } }',
        'an "if" of the server that only sets' => 'server { listen 127.0.0.1:1;
            iap_guard s; iap_guard_segment; if ($arg_x) { set $y 1; }
            location / { iap_guard_user $arg_u; } }',
        'a server without locations' => 'server { listen 127.0.0.1:1;
            iap_guard s; iap_guard_segment; return 404; }',
    );

    foreach my $name (sort keys %accepted) {
        my ($exit, $said) = nginx_t(only => 1, off => 1, http => $accepted{$name});
        is $exit, 0, "$name: accepted" or diag $said;
        unlike $said, qr/without "iap_guard_user"/, "$name: nothing is said";
    }

    my ($exit, $said) = nginx_t(http => 'server { listen 127.0.0.1:1;
        iap_guard s; location / { iap_guard_segment; } }');
    is $exit, 1, 'a location: refused';
    like $said, qr/"iap_guard_segment" without "iap_guard_user"/, 'for that';
};


subtest 'address=$remote_addr is the default, written out' => sub {
    my ($exit, $said) = nginx_t(more =>
        'location /a { iap_guard s; iap_guard_user $arg_u; iap_guard_segment; }
         location /b { iap_guard s; iap_guard_user $arg_u;
                       iap_guard_segment address=$remote_addr; }');
    is $exit, 0, 'one guard has both' or diag $said;

    ($exit, $said) = nginx_t(more =>
        'location /a { iap_guard s; iap_guard_user $arg_u; iap_guard_segment; }
         location /b { iap_guard s; iap_guard_user $arg_u;
                       iap_guard_segment address=$arg_ip; }');
    is $exit, 1, 'another address is another parameter';
    like $said, qr/layer "segment" of guard "s" has other parameters/, 'as said';
};


subtest 'a rewrite that redirects some, and one that redirects all' => sub {
    my %redirects = (
        'rewrite ^/old$ /new permanent;'           => 0,
        'rewrite ^/a/old /new redirect;'           => 0,
        'rewrite ^/a/(\d+)$ https://e.org/$1;'     => 0,
        'rewrite \.php$ /gone permanent;'          => 0,
        'rewrite ^/a/old$ /new last;'              => 0,
        'rewrite ^ /new last;'                     => 0,
        'rewrite ^ /new permanent;'                => 1,
        'rewrite ^ https://e.org$request_uri;'     => 1,
        'rewrite ^(.*)$ https://e.org$1 permanent;' => 1,
        'rewrite ^/(.*)$ https://e.org/$1;'        => 1,
        'rewrite .* /new redirect;'                => 1,
        'rewrite ^/old$ /new permanent; rewrite ^ /new permanent;' => 1,
        'if ($arg_x) { rewrite ^ /new permanent; }' => 0,
    );

    foreach my $rewrite (sort keys %redirects) {
        my ($exit, $said)
            = nginx_t(more => "location /a { iap_guard a; $rewrite }");
        my $warned = () = $said
            =~ /\[warn\].*"rewrite" in location "\/a" answers/g;

        is "$exit $warned", "0 $redirects{$rewrite}", $rewrite or diag $said;
    }
};


done_testing;


# --- the configuration ----------------------------------------------------

sub conf {
    my %conf = (zone => '1m', guard => 'g', bucket => 'b', more => '',
                http => '', @_);

    my $load = join "\n", map { "load_module $_;" } @modules;
    my $guard = $conf{only} ? 'only' : $conf{guard};

    my $locations = $conf{off} ? '' : <<"END";
        location /guard {
            iap_guard $guard;
            iap_guard_user \$arg_u capacity=1 rate=1r/h;
            empty_gif;
        }
END

    $locations .= <<"END" if !$conf{only};
        location /bucket {
            iap_guard bucket;
            iap_guard_user \$arg_u capacity=1 rate=1r/h;
            iap_guard_bucket $conf{bucket} \$arg_b capacity=100 rate=1r/h;
            empty_gif;
        }
END

    return <<"END";
$load
worker_processes 1;
error_log $dir/error.log info;
pid $dir/nginx.pid;
events {}
http {
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    iap_guard_zone iap $conf{zone};
    server {
        listen 127.0.0.1:$port;
        location = /generation { return 200 "generation $generation"; }
        location /api/ { iap_guard_api write token_file=token; }
$locations
        $conf{more}
    }
    $conf{http}
}
END
}


sub nginx_t {
    my @conf = @_;

    file('test.conf', conf(@conf) =~ s/\berror_log \S+ info/error_log stderr/r
                                  =~ s/nginx\.pid/test.pid/r
                                  =~ s/listen 127.0.0.1:$port/listen 127.0.0.1:1/r);

    my $output = `$nginx -t -p $dir -c $dir/test.conf 2>&1`;

    return ($? & 127 ? 'signal ' . ($? & 127) : $? >> 8,
            $output =~ s/test\.conf/nginx.conf/gr);
}


sub start {
    my @conf = @_;

    $generation++;
    file('nginx.conf', conf(@conf));
    file('error.log', '');

    $server = IapGuard::Child->program(
        { output => "$dir/output", quit => 'QUIT' },
        $nginx, '-p', $dir, '-c', "$dir/nginx.conf", '-g', 'daemon off;');

    wait_for_generation()
        or BAIL_OUT("nginx does not start:\n" . slurp('output') . log_tail());

    return;
}


sub stop {
    my ($expected) = @_;

    is $server->stop, 0, 'nginx ends in peace';

    my @severe = grep { /\[(?:alert|crit|emerg)\]|Sanitizer/
                        && !(defined $expected && /$expected/) }
                      split /^/, slurp('error.log');

    ok !@severe, 'nothing is wrong' or diag @severe;

    return;
}


sub reload {
    my @conf = @_;
    my %old = map { $_ => 1 } workers();

    $generation++;
    file('nginx.conf', conf(@conf));
    kill HUP => pid();

    if (!wait_for_generation()
        || !wait_until(sub { !grep { $old{$_} } workers() }))
    {
        fail("generation $generation does not come");
        diag log_tail();
        return 0;
    }

    return 1;
}


sub refused_reload {
    my @conf = @_;
    my $emergencies = log_lines(qr/\[emerg\]/);

    file('nginx.conf', conf(@conf));
    kill HUP => pid();

    return wait_until(sub { log_lines(qr/\[emerg\]/) > $emergencies })
           || !fail('a reload that is to be refused is not');
}


sub wait_for_generation {
    return wait_until(sub {
        (get('/generation') // '') =~ /generation $generation$/;
    });
}


sub wait_until {
    my ($condition) = @_;
    my $until = time + 20;

    until ($condition->()) {
        return 0 if time > $until;
        sleep 0.005;
    }

    return 1;
}


# --- requests -------------------------------------------------------------

sub request {
    my ($method, $path, $body) = @_;

    my $socket = IO::Socket::INET->new(
        PeerAddr => '127.0.0.1', PeerPort => $port, Timeout => 5) or return;

    print {$socket} "$method $path HTTP/1.0\r\n",
        "Authorization: Bearer sesame\r\n",
        defined $body ? 'Content-Length: ' . length($body) . "\r\n" : (),
        "\r\n", $body // '';

    local $/;
    return scalar readline $socket;
}

sub get { return request('GET', @_) }

sub status { return (shift // '') =~ m{^HTTP/1\.1 (\d+) } ? $1 : 'none' }

sub statuses {
    my ($path, $n) = @_;
    return join ' ', map { status(get($path)) } 1 .. $n;
}

sub api {
    my ($method, $path, $body) = @_;
    return status(request($method, "/api/$path", $body));
}

sub ban {
    my ($guard, $layer, $key, $seconds) = @_;

    return api('POST', 'bans', sprintf
        '{"guard":"%s","layer":"%s","key":"%s","seconds":%d}',
        $guard, $layer, $key, $seconds // 3600);
}

sub json {
    my ($path) = @_;
    return decode_json(get("/api/$path") =~ s/^.*?\r\n\r\n//sr);
}

sub guard { return json("guards/$_[0]") }

sub bans {
    return join ', ', sort map { "$_->{guard} $_->{layer} $_->{key}" }
                               @{ json('bans') };
}


# --- files and processes --------------------------------------------------

sub pid { return slurp('nginx.pid') =~ /^(\d+)/ ? $1 : die "no pid\n" }

sub workers { return IapGuard::Child->children(pid()) }


# of the master, what is not shared memory, kB

sub rss {
    open my $file, '<', '/proc/' . pid() . '/status' or die "no status: $!\n";
    my ($line) = grep { /^RssAnon:/ } readline $file;

    return $line =~ /(\d+)/ ? $1 : die "no RssAnon\n";
}

sub log_lines {
    my ($pattern) = @_;
    return scalar grep { /$pattern/ } split /^/, slurp('error.log');
}

sub log_tail {
    my @lines = split /^/, slurp('error.log');
    return join '', @lines > 10 ? @lines[-10 .. -1] : @lines;
}

sub slurp {
    my ($name) = @_;

    open my $file, '<', "$dir/$name" or return '';
    local $/;

    return readline($file) // '';
}

sub file {
    my ($name, $text) = @_;

    open my $file, '>', "$dir/$name" or die "$dir/$name: $!\n";
    print {$file} $text;
    close $file or die "$dir/$name: $!\n";

    return;
}
