# Reloads: what changes at once, and what must not be lost.
#
# A nginx of its own with two workers, reloaded with one configuration after
# the other.

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

my $dir = tempdir(CLEANUP => 1);
chmod 0755, $dir;

my $generation = 0;

file('token', "open-sesame\n");
file('secret', "one\n");
file('other_secret', "two\n");

write_conf(user => 'capacity=2 rate=1r/h');

my $server = IapGuard::Child->program(
    { output => "$dir/output", quit => 'QUIT' },
    $nginx, '-p', $dir, '-c', "$dir/nginx.conf", '-g', 'daemon off;');

wait_for_generation() or BAIL_OUT("nginx does not start:\n" . slurp('output'));


subtest 'a raised capacity applies at once, to what has been spent already' => sub {
    is statuses('/user?u=raise', 3), '200 200 429', 'two tokens';
    reload(user => 'capacity=5 rate=1r/h');
    is statuses('/user?u=raise', 4), '200 200 200 429', 'three more';
    is statuses('/user?u=fresh', 6), '200 200 200 200 200 429', 'five';
};


subtest 'so does a lowered one' => sub {
    is statuses('/user?u=lower', 1), '200', 'one of five is spent';
    reload(user => 'capacity=1 rate=1r/h');
    is statuses('/user?u=lower', 1), '429', 'one of one is spent';
    is statuses('/user?u=fresher', 2), '200 429', 'one';

    # the time of a bucket that was far below empty does not lie further
    # ahead than an empty one's

    like header('/user?u=raise', 'Retry-After'), qr/^(?:3600|35[89]\d)$/,
        'an hour, not five';
};


subtest 'a raised rate refills what had been spent' => sub {
    is statuses('/user?u=lower', 1), '429', 'still spent';
    reload(user => 'capacity=2 rate=20r/s');

    # what it had to wait is now longer than from empty to full: it counts
    # as empty from its next request on, and refills at the new rate

    is header('/user?u=lower', 'Retry-After'), 1, 'a short time is left';
    sleep 0.5;
    is statuses('/user?u=lower', 1), '200', 'refilled';
    reload(user => 'capacity=2 rate=1r/h');
};


subtest 'the global window' => sub {
    is statuses('/global', 3), '200 200 429', 'two';
    reload(global => 'rate=5r/d window=1d');
    is statuses('/global', 4), '200 200 200 429', 'three more in this window';
    reload(global => 'rate=2r/d window=1d');
    is statuses('/global', 1), '429', 'lowered';
};


subtest 'users of a segment' => sub {
    is statuses('/segment?ip=10.0.0.1&u=1', 1), '200', 'one user';
    is statuses('/segment?ip=10.0.0.1&u=2', 1), '429', 'no other';
    reload(segment => 'users=2');
    is statuses('/segment?ip=10.0.0.1&u=2', 1), '200', 'one more';
    is statuses('/segment?ip=10.0.0.1&u=3', 1), '429', 'and no other';
    reload(segment => 'users=1');
    is statuses('/segment?ip=10.0.0.1&u=1', 1), '200', 'who is in stays in';
};


subtest 'dry run, status, missing= and layers come and go' => sub {
    is statuses('/user?u=switch', 3), '200 200 429', 'spent';
    reload(user => 'capacity=2 rate=1r/h dry_run=on');
    is statuses('/user?u=switch', 1), '200', 'in dry run';
    reload(guard => 'user status=503');
    is statuses('/user?u=switch', 1), '503', 'another status';
    reload(no_user => 1);
    is statuses('/user?u=switch', 1), '200', 'no layer';
    reload();
    is statuses('/user?u=switch', 1), '429', 'the layer is back, and as spent';
};


subtest 'counters and the kill switch survive' => sub {
    is api('PUT', 'guards/user', '{"mode":"off"}'), 200, 'off';
    my $before = guard('user');
    reload();
    my $after = guard('user');

    is_deeply $after, $before, 'nothing is different';
    cmp_ok $after->{requests}{limited}, '>', 5, 'and it is not nothing';
    is $after->{mode}, 'off', 'still off';
    is statuses('/user?u=switch', 1), '200', 'in force';

    is api('PUT', 'guards/user', '{"mode":"dry_run"}'), 200, 'dry run';
    reload(guard => 'user dry_run=off');
    is guard('user')->{mode}, 'dry_run', 'what the API says precedes';
    is api('PUT', 'guards/user', '{"mode":null}'), 200, 'no more';
    is statuses('/user?u=switch', 1), '429', 'as nginx.conf has it';
    reload(guard => 'user dry_run=on');
    is guard('user')->{mode}, 'dry_run', 'as nginx.conf has it now';
    reload();
};


subtest 'bans survive' => sub {
    is api('POST', 'bans', '{"guard":"segment","layer":"segment",'
        . '"key":"10.9.0.0/16","seconds":3600}'), 201, 'a prefix';
    is api('POST', 'bans', '{"guard":"user","layer":"user","key":"mallory",'
        . '"seconds":3600}'), 201, 'a user';
    my $before = keys_of_bans();
    reload() foreach 1 .. 3;
    is keys_of_bans(), $before, 'the same list';
    is statuses('/segment?ip=10.9.8.7&u=1', 1), '429', 'the prefix';
    is statuses('/user?u=mallory', 1), '429', 'the user';
    is statuses('/segment?ip=10.8.8.7&u=1', 1), '200', 'and no other';
};


subtest 'a reload that fails leaves the old configuration' => sub {
    my $before = guard('user');

    foreach my $broken (
        [ 'an error in the file', more => 'iap_guard_user no-variable;' ],
        [ 'a guard that differs', more => 'location /x { iap_guard user; '
            . 'iap_guard_user $arg_u capacity=9 rate=1r/s; }' ],
        [ 'a zone too small', zone => '31k' ],
        [ 'a zone too small for its guards', zone => '64k', more => join '',
            map { "location /x$_ { iap_guard x$_; }" } 1 .. 20 ])
    {
        my ($name, @conf) = @$broken;
        my $emergencies = log_lines(qr/\[emerg\]/);

        write_conf(@conf);
        kill HUP => pid();
        wait_until(sub { log_lines(qr/\[emerg\]/) > $emergencies });

        is statuses('/user?u=switch', 1), '429', "$name: still spent";
        is generation_served(), $generation - 1, "$name: still the old one";
        $generation--;
    }

    my $after = guard('user');
    is $after->{requests}{limited}, $before->{requests}{limited} + 4,
        'counters go on';
    reload();
    is statuses('/user?u=switch', 1), '429', 'a good one is taken again';
};


subtest 'guards are added, renamed, removed and come back' => sub {
    my $before = guard('user');

    reload(more => 'location /new { iap_guard new; iap_guard_user $arg_u '
        . 'capacity=1 rate=1r/h; empty_gif; }');
    is statuses('/new?u=switch', 2), '200 429', 'a guard of its own';
    is statuses('/user?u=switch', 1), '429', 'the old one goes on';

    reload(guard => 'renamed');
    is statuses('/user?u=switch', 3), '200 200 429', 'a new name, a new guard';
    is guard('renamed')->{requests}{passed}, 2, 'its counters begin at 0';
    is api('GET', 'guards/user'), 404, 'the old name is gone';
    is api('GET', 'guards/new'), 404, 'so is the added one';
    unlike get('/api/metrics'), qr/guard="user"/, 'also from the metrics';

    reload();
    is statuses('/user?u=switch', 1), '429', 'the old name is back';
    is guard('user')->{requests}{limited},
        $before->{requests}{limited} + 2, 'with its counters';
};


subtest 'another key secret is other keys' => sub {
    is statuses('/user?u=secret', 3), '200 200 429', 'spent';
    reload(secret => 'secret');
    is statuses('/user?u=secret', 3), '200 200 429', 'spent anew';
    reload(secret => 'other_secret');
    is statuses('/user?u=secret', 3), '200 200 429', 'and again';
    reload(secret => 'secret');
    is statuses('/user?u=secret', 1), '429', 'the first one\'s are still there';
    reload();
};


subtest 'a guard that is in use has room for more, up to a limit' => sub {
    my $names = join '', map {
        "location /many$_ { iap_guard many$_; iap_guard_user \$arg_u "
        . 'capacity=1 rate=1r/h; empty_gif; }'
    } 1 .. 30;

    # the zone keeps a sixteenth for guards that reloads bring

    reload(more => $names);
    is statuses('/many30?u=1', 2), '200 429', 'thirty more';
    is statuses('/user?u=switch', 1), '429', 'and what there was before';
    reload();
};


subtest 'the zone of another size is a fresh one' => sub {
    cmp_ok guard('user')->{requests}{limited}, '>', 0, 'before: counted';
    my $fresh = qr/\[error\].* zone "iap" is a fresh one/;
    is log_lines($fresh), 0, 'no zone was fresh so far';

    reload(zone => '9m');
    is log_lines($fresh), 1, 'said once';
    is log_lines(qr/its size or layout has changed: counters, bans and modes/),
        1, 'with the reason and what it means';
    is guard('user')->{requests}{limited}, 0, 'counters are empty';
    is keys_of_bans(), '', 'bans are';
    is statuses('/user?u=switch', 3), '200 200 429', 'buckets are';

    reload(zone => '9m');
    is log_lines($fresh), 1, 'the same size again says nothing';
    is statuses('/user?u=switch', 1), '429', 'and keeps all';
};


subtest 'twenty reloads, with requests between' => sub {
    my $passed = guard('user')->{requests}{passed};

    foreach my $round (1 .. 20) {
        reload(zone => '9m', segment => "users=$round");
        get("/user?u=round$round");
        get("/user?u=switch");
    }

    is guard('user')->{requests}{passed} - $passed, 20,
        'each new user, and the old one never';
    is statuses('/user?u=switch', 1), '429', 'spent';
    is scalar(my @workers = workers()), 2, 'no old worker stays';
};


is log_lines(qr/\[(?:alert|crit)\]|Sanitizer/), 0, 'no alert, no crit'
    or diag grep { /\[(?:alert|crit)\]|Sanitizer/ } split /^/, slurp('error.log');

is $server->stop, 0, 'nginx ends in peace';

is log_lines(qr/\[(?:alert|crit)\]|Sanitizer/), 0, 'nor at the end'
    or diag grep { /\[(?:alert|crit)\]|Sanitizer/ } split /^/, slurp('error.log');

done_testing;


# --- the configuration ----------------------------------------------------

sub write_conf {
    my %conf = (
        zone => '8m', guard => 'user', user => 'capacity=2 rate=1r/h',
        segment => 'users=1', global => 'rate=2r/d window=1d', more => '', @_);

    my $load = join "\n", map { "load_module $_;" } @modules;
    my $user = $conf{no_user} ? '' : "iap_guard_user \$arg_u $conf{user};";
    my $secret = $conf{secret} ? "iap_guard_key_secret $conf{secret};" : '';

    $generation++;

    file('nginx.conf', <<"END");
$load
worker_processes 2;
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
    $secret
    server {
        listen 127.0.0.1:$port;
        location = /generation { return 200 "generation $generation"; }
        location /api/ { iap_guard_api write token_file=token; }
        location /user { iap_guard $conf{guard}; $user empty_gif; }
        location /segment {
            iap_guard segment;
            iap_guard_segment address=\$arg_ip window=1h $conf{segment};
            iap_guard_user \$arg_u;
            empty_gif;
        }
        location /global {
            iap_guard global;
            iap_guard_global $conf{global};
            empty_gif;
        }
        $conf{more}
    }
}
END
}


sub reload {
    my @conf = @_;
    my %old = map { $_ => 1 } workers();

    write_conf(@conf);
    kill HUP => pid();
    wait_for_generation()
        or fail("generation $generation does not come"), diag log_tail();

    # for some time old workers take new connections, too

    wait_until(sub { !grep { $old{$_} } workers() })
        or fail('old workers do not go'), diag log_tail();

    return;
}


sub wait_for_generation {
    return wait_until(sub { (generation_served() // '') eq $generation });
}


sub generation_served {
    my $answer = get('/generation') // return;
    return $answer =~ /generation (\d+)$/ ? $1 : undef;
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
        "Authorization: Bearer open-sesame\r\n",
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

sub header {
    my ($path, $name) = @_;
    return get($path) =~ /^\Q$name\E: (.*)\r$/m ? $1 : undef;
}

sub api {
    my ($method, $path, $body) = @_;
    return status(request($method, "/api/$path", $body));
}

sub json {
    my ($path) = @_;
    return decode_json(get("/api/$path") =~ s/^.*?\r\n\r\n//sr);
}

sub guard { return json("guards/$_[0]") }

sub keys_of_bans { return join ' ', sort map { $_->{key} } @{ json('bans') } }


# --- files and processes --------------------------------------------------

sub pid { return slurp('nginx.pid') =~ /^(\d+)/ ? $1 : die "no pid\n" }

sub workers { return IapGuard::Child->children(pid()) }

sub log_lines {
    my ($pattern) = @_;
    return scalar grep { /$pattern/ } split /^/, slurp('error.log');
}

sub log_tail {
    my @lines = split /^/, slurp('error.log');
    return @lines > 10 ? @lines[-10 .. -1] : @lines;
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
