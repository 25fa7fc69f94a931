#!/usr/bin/perl

# Runs nginx -t on every configuration that the documentation shows.
#
# A block of code that is marked as nginx's is a whole configuration; where
# it is a part of one, the word after "nginx" says what it stands in:
#
#     ```nginx                  whole
#     ```nginx http             inside http { }
#     ```nginx server           inside server { }
#     ```nginx location         inside location = /v1/redeem { }
#
# A last word "warned" or "refused" says that nginx is to warn of it, or to
# refuse it; anything else must pass without a warning.
#
# What a part refers to and does not define (the zone, the upstream
# redeem_backend) is put around it.  Files of secrets are replaced.

use strict;
use warnings;

use FindBin;

use Cwd qw(abs_path);
use File::Temp ();
use Getopt::Long;

my $USAGE = <<"EOF";
usage: docs.pl [--nginx=FILE] [--module=FILE] [FILE.md ...]

    --nginx=FILE   the nginx binary (nginx)
    --module=FILE  the dynamic module; not given: nginx was built with it

Without files: README.md and docs/*.md.
EOF

my %EXPECTED = (passed => 1, warned => 1, refused => 1);
my %CONTEXT  = (main => 1, http => 1, server => 1, location => 1);

exit main();


sub main {
    my %options = (nginx => 'nginx');

    my $understood = GetOptions(\%options, 'nginx=s', 'module=s', 'help');

    if (!$understood || $options{help}) {
        print { $understood ? *STDOUT : *STDERR } $USAGE;
        return $understood ? 0 : 2;
    }

    if (defined(my $module = $options{module})) {
        die "no module at \"$module\"\n" unless -r $module;
        $options{module} = abs_path($module);
    }

    my $root  = abs_path("$FindBin::Bin/../..");
    my @files = @ARGV ? @ARGV : ("$root/README.md", glob "$root/docs/*.md");
    my ($tried, $wrong) = (0, 0);

    foreach my $file (@files) {
        foreach my $block (blocks($file)) {
            my $words = try($block, %options);

            $tried++;
            next if !defined $words;

            $wrong++;
            print "$file:$block->{line}: $words\n";
        }
    }

    die "no configuration in @files\n" if $tried == 0;
    print "$tried configurations, $wrong of them wrong\n";

    return $wrong ? 1 : 0;
}


# { line, context, expected, text } of each block of nginx's

sub blocks {
    my ($file) = @_;
    my (@blocks, $block);

    open my $in, '<', $file or die "$file: $!\n";

    while (my $line = <$in>) {

        if (!$block && $line =~ /^\s*```nginx\b(.*)$/) {
            my @words    = split ' ', $1;
            my $expected = @words && $EXPECTED{$words[-1]} ? pop @words
                                                           : 'passed';
            my $context  = @words ? shift @words : 'main';

            die "$file:$.: \"```nginx$1\" is not understood\n"
                if @words || !$CONTEXT{$context};

            $block = { line => $., context => $context, text => '',
                       expected => $expected };

        } elsif ($block && $line =~ /^\s*```\s*$/) {
            push @blocks, $block;
            undef $block;

        } elsif ($block) {
            $block->{text} .= $line;
        }
    }

    die "$file:$block->{line}: the block does not end\n" if $block;

    return @blocks;
}


# Returns what is wrong, or undef.

sub try {
    my ($block, %options) = @_;

    my $scratch = File::Temp->newdir('iap_guard-docs-XXXXXX', TMPDIR => 1);
    my $folder  = $scratch->dirname;
    my $conf    = "$folder/nginx.conf";

    # nginx may check the configuration as another user's

    chmod 0755, $folder or die "$folder: $!\n";
    mkdir "$folder/logs" or die "$folder/logs: $!\n";
    mkdir "$folder/ledger" or die "$folder/ledger: $!\n";
    chmod 0777, "$folder/ledger" or die "$folder/ledger: $!\n";

    write_file("$folder/secret", "of-no-use\n");
    write_file("$folder/webhook", 'whsec_' . 'A' x 32 . "\n");
    write_file("$folder/key", '0' x 64 . "\n");
    write_file($conf, whole($block, $folder, $options{module}));

    open my $pipe, '-|', 'sh', '-c', 'exec "$@" 2>&1', 'sh',
         $options{nginx}, '-t', '-p', $folder, '-c', $conf,
         '-e', "$folder/error.log"
        or die "$options{nginx}: $!\n";

    my $words = do { local $/; <$pipe> } // '';
    close $pipe;

    # an nginx that does not know a directive has not judged it

    my $became = $words =~ /unknown directive/ ? 'not understood'
                 : $? != 0 ? 'refused'
                 : $words =~ /\[warn\]/ ? 'warned' : 'passed';

    return if $became eq $block->{expected};

    return "expected to be $block->{expected}, but $became; nginx says:\n"
           . $words;
}


sub whole {
    my ($block, $folder, $module) = @_;
    my $text = $block->{text};

    $text =~ s/((?:token_file|password_file)=|iap_guard_key_secret\s+)
               [^\s;]+/$1$folder\/secret/gx;
    $text =~ s/\btls_(?:ca|cert|key)=[^\s;]+//g;
    $text =~ s/\bsecret_file=[^\s;]+/secret_file=$folder\/webhook/g;
    $text =~ s/(iap_guard_queue_key)\s+[^;]+/$1 $folder\/key/g;
    $text =~ s/(iap_guard_ledger\s+)[^\s;]+/$1$folder\/ledger\/ledger.db/g;

    # names that only the world outside knows

    $text =~ s/(server\s+)[\w.]+\.apple\.com:/$1 127.0.0.1:/g;
    $text =~ s/(auth_basic_user_file\s+)[^\s;]+/$1$folder\/secret/g;

    # the one that is to be tested, if any

    $text =~ s/^\s*load_module\s+\S*ngx_http_iap_guard_module\.so;\s*$//m;

    $text = wrap($block->{context}, $text) if $block->{context} ne 'main';
    $text = "load_module $module;\n$text" if defined $module;
    $text = "pid $folder/nginx.pid;\n$text" unless $text =~ /^\s*pid\s/m;

    my $temp = join '', map { "${_}_temp_path $folder/$_;\n" }
                        qw(client_body proxy fastcgi uwsgi scgi);

    $text =~ s/^http\s*\{/http {\n${temp}access_log off;\n/m;

    return $text;
}


sub wrap {
    my ($context, $text) = @_;
    my $around = '';

    $around .= "iap_guard_zone iap 1m;\n"
        unless $text =~ /\biap_guard_zone\s/;
    $around .= "upstream redeem_backend { server 127.0.0.1:9001; }\n"
        unless $text =~ /\bupstream\s+redeem_backend\s/;

    $text = "location = /v1/redeem {\n$text\n}" if $context eq 'location';
    $text = "server {\nlisten 127.0.0.1:8080;\n$text\n}"
        if $context eq 'location' || $context eq 'server';

    return "events {}\nhttp {\n$around$text\n}\n";
}


sub write_file {
    my ($path, $text) = @_;

    open my $out, '>', $path or die "$path: $!\n";
    print $out $text;
    close $out or die "$path: $!\n";

    return;
}
