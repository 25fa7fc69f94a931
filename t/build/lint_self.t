#!/usr/bin/perl

# Each check of lint.t must be able to fail: a small tree that all of them
# accept, and for each check what makes it refuse that tree.

use strict;
use warnings;

use FindBin;
use lib $FindBin::Bin;

use File::Basename qw(dirname);
use File::Path qw(make_path);
use File::Temp qw(tempdir);
use Test::More;

use IapLint;

my $TABLE = <<'END';
static ngx_command_t  ngx_http_iap_guard_commands[] = {

    { ngx_string("iap_guard_zone"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE2,
      ngx_http_iap_guard_zone, 0, 0, NULL },

    { ngx_string("iap_guard"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_1MORE,
      ngx_http_iap_guard, NGX_HTTP_LOC_CONF_OFFSET, 0, NULL },

    ngx_null_command
};
END

my $DOCS = <<'END';
### iap_guard_zone

| Syntax:  | `iap_guard_zone name size;` |
| Default: | none |
| Context: | http |

### iap_guard

**Syntax:** `iap_guard name;`
**Default:** `iap_guard off;`
**Context:** http, server, location

The metric `iap_guard_requests_total` counts.
END

my $METRICS = <<'END';
#define IAP_METRICS(X)  X(REQUESTS, "iap_guard_requests_total", "counter")
END

my $CORE = <<'END';
#include "iap_x.h"


/* ngx_http_core_module and "return" are words in a comment // here */

int
iap_x(int a)
{
    return a + 1;
}
END

my $EVENT = <<'END';
#include <ngx_config.h>
#include <ngx_core.h>
#include <jansson.h>
#include "iap_x.h"


ngx_int_t
ngx_iap_x(ngx_slab_pool_t *pool)
{
    ngx_shmtx_lock(&pool->mutex);

    if (iap_x(0) == 0) {
        ngx_shmtx_unlock(&pool->mutex);
        return NGX_ERROR;
    }

    iap_x(1);
    ngx_shmtx_unlock(&pool->mutex);

    return NGX_OK;
}
END

my %TREE = (
    'ngx_http_iap_guard_module.c'   => $TABLE,
    'docs/directives.md'            => $DOCS,
    'docs/redis.md'                 => "## Rights\n\n+eval +get\n",
    'lua/x.lua'                     => "return redis.call('GET', KEYS[1])\n",
    'src/core/iap_metrics.h'        => $METRICS,
    'src/core/iap_x.h'              => "int iap_x(int a);\n",
    'src/core/iap_x.c'              => $CORE,
    'src/event/ngx_iap_x.c'         => $EVENT,
    'src/http/ngx_http_iap_guard.h' => "#include <ngx_http.h>\n",
    't/x.pl'                        => "use strict; print 1;\n",
    'x.sh'                          => "#!/bin/sh\necho x\n",
);

my ($X, $E, $H, $M, $D) = qw(src/core/iap_x.c src/event/ngx_iap_x.c
    src/http/ngx_http_iap_guard.h ngx_http_iap_guard_module.c
    docs/directives.md);

# what the check is called, in part; the file; what is put in the place of
# what, or at the end if there is nothing to replace

my @REFUSED = (
    [qr/file names/,     'src/core/ngx_iap_y.c', undef, "\n"],
    [qr/file names/,     'src/other/iap_y.c', undef, "\n"],
    [qr/file names/,     'src/http/iap_y.c', undef, "\n"],
    [qr/includes/,       $X, undef, "#include <ngx_core.h>\n"],
    [qr/includes/,       $X, undef, "#include \"ngx_iap_x.h\"\n"],
    [qr/includes/,       $X, undef, "#include <jansson.h>\n"],
    [qr/includes/,       $E, undef, "#include <ngx_http.h>\n"],
    [qr/includes/,       $E, undef, "#include \"ngx_http_iap_guard.h\"\n"],
    [qr/identifiers/,    $X, undef, "extern int ngx_pid;\n"],
    [qr/identifiers/,    $E, undef, "ngx_http_request_t *x;\n"],
    [qr/compiles alone/, $X, 'a + 1', 'a + sizeof(a)'],
    [qr/compiles alone/, $X, 'int a', 'long a'],
    [qr/compiles alone/, $X, '"iap_x.h"', '<ngx_core.h>'],
    [qr/state, memory/,  $X, undef, "int iap_y;\n"],
    [qr/state, memory/,  $X, undef, "int iap_y = 1;\n"],
    [qr/state, memory/,  $X, undef, "#include <stdlib.h>\n"
                                    . "void *iap_y(void);\n"
                                    . "void *iap_y(void) {return malloc(9);}"],
    [qr/state, memory/,  $X, undef, "#include <time.h>\n"
                                    . "time_t iap_y(void);\n"
                                    . "time_t iap_y(void) {return time(0);}"],
    [qr/directives are/, $D, '### iap_guard_zone', ''],
    [qr/directives are/, $D, undef, "### iap_guard_more\n"],
    [qr/directives are/, $D, '| Default: | none |', ''],
    [qr/directives are/, $D, '| Syntax:  | `iap_guard_zone',
                             '| Syntax: | `iap_guard_zones'],
    [qr/directives are/, $M, 'static ngx_command_t', 'int'],
    [qr/contexts/,       $D, '| Context: | http |', '| Context: | server |'],
    [qr/contexts/,       $M, '|NGX_HTTP_SRV_CONF', ''],
    [qr/metrics/,        $D, 'iap_guard_requests_total', ''],
    [qr/metrics/,        $D, undef, "iap_guard_other_total\n"],
    [qr/metrics/,        'src/core/iap_metrics.h', 'X(', 'Y('],
    [qr/a right/,        'docs/redis.md', ' +get', ''],
    [qr/a right/,        'docs/redis.md', '## Rights', '## Keys'],
    [qr/a right/,        'lua/x.lua', 'GET', 'SET'],
    [qr/a lock/,         $E, 'iap_x(1);', 'return NGX_OK;'],
    [qr/a lock/,         $E, 'iap_x(1);', 'ngx_slab_alloc(pool, 1);'],
    [qr/a lock/,         $E, 'iap_x(1);', 'ngx_log_error(NGX_LOG_INFO, l, 0);'],
    [qr/a lock/,         $E, 'iap_x(1);', 'ngx_log_debug0(1, l, 0, "x");'],
    [qr/a lock/,         $E, "iap_x(1);\n    ngx_shmtx_unlock",
                             "iap_x(1);\n    ngx_shmtx_force_unlock"],
    [qr/dangerous/,      $X, 'a + 1', 'sprintf(0, "")'],
    [qr/dangerous/,      $H, undef, "char *x = strcpy(a, b);\n"],
    [qr/dangerous/,      $E, 'iap_x(1)', 'pthread_create(1)'],
    [qr/dangerous/,      $M, undef, "x = signal(1, 2);\n"],
    [qr/C text/,         $X, '    return', "\treturn"],
    [qr/C text/,         $X, 'return a + 1;', 'return a + 1; '],
    [qr/C text/,         $X, 'return a + 1;', 'return a + 1;  // one'],
    [qr/C text/,         $X, undef, '/* ' . 'x' x 80 . " */\n"],
    [qr/C text/,         $H, undef, 'int x;'],
    [qr/length/,         $H, undef, "\n" x 900],
    [qr/length/,         $X, 'return a', "\n" x 120 . 'return a'],
    [qr/unfinished/,     $H, undef, '/* TO' . "DO */\n"],
    [qr/unfinished/,     'README.md', undef, 'FIX' . "ME\n"],
    [qr/Perl/,           't/x.pl', 'print 1', 'print $y'],
    [qr/shell/,          'x.sh', 'echo x', 'if'],
);


sub make_tree {
    my (%tree) = @_;
    my $root = tempdir(CLEANUP => 1);

    foreach my $path (keys %tree) {
        make_path(dirname("$root/$path"));
        open my $out, '>', "$root/$path" or die "$path: $!\n";
        print {$out} $tree{$path};
        close $out or die "$path: $!\n";
    }

    return $root;
}


my @checks = IapLint::checks();
my $good = make_tree(%TREE);
my %able;

foreach my $check (@checks) {
    is_deeply [$check->{run}->($good)], [], "$check->{name}: accepts";
}

foreach my $case (@REFUSED) {
    my ($which, $path, $old, $new) = @$case;
    my %tree = %TREE;

    if (defined $old) {
        $tree{$path} =~ s/\Q$old\E/$new/ or die "no \"$old\" in $path\n";
    } else {
        $tree{$path} .= $new;
    }

    my ($check) = grep { $_->{name} =~ $which } @checks;
    $able{$check->{name}} = 1;

    my $what = (defined $old ? "\"$old\" -> " : '') . "\"$new\"";
    $what =~ s/\s+/ /g;

    ok scalar($check->{run}->(make_tree(%tree))),
       "$check->{name}: refuses $path, " . substr $what, 0, 60;
}

is_deeply [grep { !$able{$_->{name}} } @checks], [],
          'every check has refused something';

done_testing;
