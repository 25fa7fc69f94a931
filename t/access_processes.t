# Processes that are no workers, a single process, and phases behind the
# answer: nothing of the guard runs where it does not belong, nor twice.
#
# A nginx of its own for each.  Without a master nginx itself does not survive
# a reload.

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
mkdir "$dir/logs";
file('token', "sesame\n");

my $guard = 'iap_guard g; iap_guard_user $arg_u capacity=2 rate=1r/h;';
my $server;


subtest 'with a cache, that has processes of its own' => sub {
    start(http => "proxy_cache_path $dir/cache keys_zone=c:1m loader_files=10
                   manager_sleep=50ms loader_sleep=50ms;",
          server => "location /cached { $guard proxy_cache c;
                         proxy_cache_valid 200 1h; proxy_cache_key \$uri;
                         proxy_pass http://127.0.0.1:$port/up; }
                     location = /up { expires 1h; empty_gif; }");

    ok wait_until(sub { titles() =~ /cache manager/ }), 'a cache manager runs'
        or diag titles();
    is statuses('/cached?u=a', 3), '200 200 429', 'what is cached is guarded';
    is statuses('/cached?u=b', 2), '200 200', 'for each user';
    is guard()->{requests}{passed}, 4, 'and counted';

    my $before = titles();

    kill HUP => pid();
    ok wait_until(sub { titles() ne $before && titles() !~ /shutting down/
                        && titles() =~ /cache manager/ }),
        'after a reload there is a new one' or diag titles();

    is statuses('/cached?u=a', 1), '429', 'and the guard goes on';
    stop();
};


subtest 'a worker beside them that is killed' => sub {
    start(http => "proxy_cache_path $dir/cache keys_zone=c:1m;",
          server => "location /t { $guard empty_gif; }");

    is statuses('/t?u=a', 2), '200 200', 'two requests';

    my ($worker) = grep { title($_) =~ /worker process/ } children();

    kill KILL => $worker;
    ok wait_until(sub { grep { title($_) =~ /worker process/ && $_ != $worker }
                             children() }), 'another one is started';
    is statuses('/t?u=a', 1), '429', 'and knows what the first one has counted';
    stop(qr/worker process \d+ exited on signal 9/);
};


subtest 'without a master' => sub {
    start(main => 'master_process off;',
          server => "location /t { $guard iap_guard_segment users=1 ban=1h
                         window=1h address=\$arg_ip; empty_gif; }");

    is scalar(my @children = children()), 0, 'one process';
    is statuses('/t?u=a&ip=10.0.0.1', 3), '200 200 429', 'it limits';
    is statuses('/t?u=b&ip=10.0.0.1', 1), '429', 'it bans';
    is api('GET', 'bans'), 200, 'its API answers';
    is api('PUT', 'guards/g', '{"mode":"off"}'), 200, 'and changes';
    is statuses('/t?u=a&ip=10.0.0.1', 1), '200', 'what then holds';
    is guard()->{requests}{limited}, 2, 'it counts';
    stop();
};


subtest 'post_action is of the same request' => sub {
    start(server => "location /t { $guard post_action /after; empty_gif; }
                     location /after { $guard proxy_pass
                         http://127.0.0.1:$port/up; }
                     location /named { $guard post_action \@after; empty_gif; }
                     location \@after { $guard rewrite ^ /up break;
                         proxy_pass http://127.0.0.1:$port; }
                     location = /up { access_log $dir/up.log;
                                      return 204; }");

    is statuses('/t?u=a', 3), '200 200 429', 'charged once for each request';
    ok wait_until(sub { guard()->{requests}{limited} == 1 }), 'counted';
    sleep 0.1;
    is guard()->{requests}{passed}, 2, 'two passed';
    is guard()->{requests}{limited}, 1, 'one refused, and that once';
    is statuses('/named?u=b', 3), '200 200 429', 'the same with a name';
    sleep 0.1;
    is guard()->{requests}{passed}, 4, 'two more';
    is guard()->{requests}{limited}, 2, 'and one more';
    is scalar(() = slurp('up.log') =~ /\n/g), 6, 'the actions have run';
    stop();
};


done_testing;


# --- the configuration ----------------------------------------------------

sub start {
    my %conf = (main => '', http => '', server => '', @_);

    my $load = join "\n", map { "load_module $_;" } @modules;

    file('nginx.conf', <<"END");
$load
$conf{main}
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
    iap_guard_zone iap 1m;
    $conf{http}
    server {
        listen 127.0.0.1:$port;
        location = /ready { return 204; }
        location /api/ { iap_guard_api write token_file=token; }
        $conf{server}
    }
}
END
    file('error.log', '');

    $server = IapGuard::Child->program(
        { output => "$dir/output", quit => 'QUIT' },
        $nginx, '-p', $dir, '-c', "$dir/nginx.conf", '-g', 'daemon off;');

    wait_until(sub { status(get('/ready')) eq '204' })
        or BAIL_OUT("nginx does not start:\n" . slurp('output')
                    . slurp('error.log'));

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


sub wait_until {
    my ($condition) = @_;
    my $until = time + 20;

    until ($condition->()) {
        return 0 if time > $until;
        sleep 0.01;
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

sub guard { return decode_json(get('/api/guards/g') =~ s/^.*?\r\n\r\n//sr) }


# --- files and processes --------------------------------------------------

sub pid { return slurp('nginx.pid') =~ /^(\d+)/ ? $1 : die "no pid\n" }

sub children {
    my $master = pid();
    my @children;

    foreach my $stat (glob '/proc/[0-9]*/stat') {
        open my $file, '<', $stat or next;
        my $line = readline($file) // next;
        push @children, $1 if $line =~ /^(\d+) .*\) \S (\d+) / && $2 == $master;
    }

    return @children;
}

sub title {
    my ($pid) = @_;

    open my $file, '<', "/proc/$pid/cmdline" or return '';
    return (readline($file) // '') =~ tr/\0/ /r;
}

# sorted, with their numbers, so that others are seen to be others

sub titles { return join "\n", sort map { "$_ " . title($_) } children() }

sub log_lines {
    my ($pattern) = @_;
    return scalar grep { /$pattern/ } split /^/, slurp('error.log');
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
