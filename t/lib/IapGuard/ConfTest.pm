package IapGuard::ConfTest;

# What "nginx -t" refuses, with the value, what was expected and where, and what
# it accepts.
#
#   IapGuard::ConfTest->run([
#       [ 'name', http => 'directives', location => 'directives',
#         'what nginx says', qr/or like that/ ],
#   ], [
#       [ 'name', http => 'directives' ],
#   ]);
#
# Places are "zone" (a zone of 1m unless it is given), "all" and "http" before
# the server, "late" behind it, "server" and "location", and "events"; DIR is
# a folder that nginx's workers may write to.  What is accepted with a warning
# has its text as "warned".

use strict;
use warnings;

use File::Temp qw(tempdir);
use Test::More;

my $nginx   = $ENV{TEST_NGINX_BINARY} // 'nginx';
my @modules = split ' ', $ENV{TEST_NGINX_LOAD_MODULES} // '';

my $dir;


# made when it is first asked for

sub folder {

    if (!defined $dir) {
        $dir = tempdir(CLEANUP => 1);
        chmod 0777, $dir;

        # a nginx whose first error log is a file opens it before it reads
        # anything

        mkdir "$dir/logs";
    }

    return $dir;
}


# whether this nginx was built with it, "poll_module" for instance

sub built_with {
    my ($class, $part) = @_;
    return scalar(`$nginx -V 2>&1` =~ /--with-\Q$part\E\b/);
}


sub run {
    my ($class, $refused, $accepted) = @_;

    plan tests => 2 * @$refused + 2 * @$accepted;
    folder();

    refused(@$_) foreach @$refused;
    accepted(@$_) foreach @$accepted;

    return;
}


sub refused {
    my ($name, @rest) = @_;
    my %at;

    while (@rest > 2 && !ref $rest[0]
           && $rest[0] =~ /^(?:zone|all|http|late|server|location|events)$/)
    {
        my ($where, $directives) = splice @rest, 0, 2;
        $at{$where} = $directives;
    }

    my ($exit, $output) = nginx_t(conf(%at));
    my ($line) = grep { /\[emerg\]/ } split /\n/, $output;
    $line //= '';

    # by itself, not by a signal

    is $exit, 1, "$name: refused";

    my @unsaid = grep {
        ref $_ ? $line !~ $_ : index($line, $_) < 0
    } @rest;

    ok !@unsaid, "$name: named"
        or diag join "\n", 'not said:', @unsaid, 'but:', $output;

    return;
}


sub accepted {
    my ($name, %at) = @_;
    my $warned = delete $at{warned};

    my ($exit, $output) = nginx_t(conf(%at));

    is $exit, 0, "$name: accepted" or diag $output;

    if (defined $warned) {
        is join(' ', $output =~ /\[(?!notice)(\w+)\]/g)
           . (index($output, $warned) >= 0 ? " $warned" : ''), "warn $warned",
           "$name: warned of" or diag $output;
        return;
    }

    unlike $output, qr/\[(?!notice)\w+\]/, "$name: nothing is said of it";

    return;
}


sub conf {
    my (%at) = @_;

    my $load = join "\n", map { "load_module $_;" } @modules;

    $at{zone} //= 'iap_guard_zone iap 1m;';
    $at{$_} //= '' foreach qw(all http late server location events);

    my $conf = <<"END";
$load
error_log stderr;
pid nginx.pid;
events { $at{events} }
http {
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    $at{zone}
    $at{all}
    $at{http}
    server {
        listen 127.0.0.1:1;
        $at{server}
        location /t {
            $at{location}
        }
    }
    $at{late}
}
END

    return $conf =~ s/\bDIR\b/$dir/gr;
}


sub nginx_t {
    my ($conf) = @_;

    open my $file, '>', "$dir/nginx.conf" or die "nginx.conf: $!\n";
    print {$file} $conf;
    close $file or die "nginx.conf: $!\n";

    my $output = `$nginx -t -p $dir -c $dir/nginx.conf 2>&1`;

    return ($? & 127 ? "signal " . ($? & 127) : $? >> 8, $output);
}


1;
