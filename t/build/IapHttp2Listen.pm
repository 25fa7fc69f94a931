package IapHttp2Listen;

# In its HTTP/2 mode Test::Nginx writes "http2 on;", which nginx has since
# 1.25.1.  For an older one this puts the older form into the configuration,
# a parameter of "listen".

use strict;
use warnings;

use Test::Nginx::Util ();

my $write_config_file = \&Test::Nginx::Util::write_config_file;

sub rewrite {
    my $version = $Test::Nginx::Util::NginxVersion;
    my $file = $Test::Nginx::Util::ConfFile;

    return if !defined $version || $version >= 1.025001;

    open my $in, '<', $file or die "$file: $!\n";
    local $/;
    my $conf = <$in>;
    close $in;

    $conf =~ s/^(\s*listen\s+\d+[^;]*);\s*http2 on;/$1 http2;/mg;

    open my $out, '>', $file or die "$file: $!\n";
    print {$out} $conf;
    close $out or die "$file: $!\n";

    return;
}

{
    no warnings qw(redefine prototype);

    *Test::Nginx::Util::write_config_file = sub ($$$) {
        $write_config_file->(@_);
        rewrite();
    };
}

1;
