package IapLint;

# What `./build.sh lint` holds the tree to.  Each check is a name and a
# function that takes the project's folder and returns its complaints, one
# text each, best with "file:line: " in front.  lint.t runs all of them on
# this project, lint_self.t each of them on a tree that it must refuse.

use strict;
use warnings;

use File::Find qw(find);
use File::Temp qw(tempdir);

use constant {
    COLUMNS         => 80,
    FILE_LINES      => 900,
    FUNCTION_LINES  => 120,
    FUNCTION_WISHED => 60,
    AT_ONCE         => 4,       # programs that are only looked at
};

my $MODULE = 'ngx_http_iap_guard_module.c';

# what the plain part may include

my $CORE_HEADERS = qr{^(?:
    assert | ctype | errno | inttypes | limits | math | stdalign | stdarg
    | stdbool | stddef | stdint | stdio | stdlib | string | strings
    | arpa/inet | netinet/in | sys/socket
    | emmintrin                                 # the compiler's own
)\.h$ | ^openssl/\w+\.h$}x;

my @CHECKS = (
    ['file names show the layer',               \&file_names],
    ['includes keep to the layers',             \&includes],
    ['identifiers keep to the layers',          \&identifiers],
    ['src/core compiles alone, conversions are explicit', \&core_alone],
    ['src/core has no state, memory or clock of its own', \&core_pure],
    ['directives are documented, and no others', \&directives],
    ['contexts are documented as they are',     \&contexts],
    ['metrics are documented, and no others',   \&metrics],
    ['what the scripts call is documented as a right', \&rights],
    ['nothing can leave or wait inside a lock', \&locks],
    ['no function that C or nginx makes dangerous', \&banned],
    ['C text: columns, blanks, comments',       \&c_text],
    ['files and functions have a length',       \&lengths],
    ['no unfinished work is marked',            \&unfinished],
    ['Perl compiles',                           \&perl_compiles],
    ['shell scripts parse',                     \&shell_parses],
);


sub checks { return map { { name => $_->[0], run => $_->[1] } } @CHECKS }


# --- files ----------------------------------------------------------------

# Paths below the project's folder, sorted; what is built or git's own is
# not looked at.

sub files {
    my ($root, $pattern) = @_;
    my @found;

    find({ no_chdir => 1, wanted => sub {
        return if $File::Find::name eq $root;

        my $path = substr $File::Find::name, length($root) + 1;

        if ($path eq 'build' || $path eq '.git') {
            $File::Find::prune = 1;

        } elsif (-f $File::Find::name && $path =~ $pattern) {
            push @found, $path;
        }
    } }, $root) if -d $root;

    @found = sort @found;
    return @found;
}


sub sources { return files($_[0], qr{^src/[^/]+/[^/]+\.[ch]$}) }

sub c_files { return files($_[0], qr{^src/.*\.[ch]$|^\Q$MODULE\E$}) }

sub layer { return $_[0] =~ m{^src/([^/]+)/} ? $1 : 'http' }


sub slurp {
    my ($root, $path) = @_;

    open my $in, '<', "$root/$path" or die "$path: $!\n";
    local $/;
    my $text = <$in>;

    return defined $text ? $text : '';
}


# The text with the inside of comments and strings blanked out, so that every
# line and column is where it was.

sub code {
    my ($text) = @_;

    my $blank = sub {
        my ($open, $inside, $close) = @_;
        $inside =~ s/[^\n]/ /g;
        return $open . $inside . $close;
    };

    $text =~ s{
        (/\*) (.*?) (\*/)
        | (") ((?: \\. | [^"\\] )*) (")
        | (') ((?: \\. | [^'\\] )*) (')
    }{
        defined $1 ? $blank->('  ', $2, '  ')
        : defined $4 ? $blank->($4, $5, $6) : $blank->($7, $8, $9)
    }gsex;

    return $text;
}


# Complaints about every place where the pattern matches; %s in the words is
# what matched.

sub matches {
    my ($path, $text, $pattern, $words) = @_;
    my @complaints;
    my $number = 0;

    foreach my $line (split /\n/, $text) {
        $number++;

        while ($line =~ /($pattern)/g) {
            my $matched = $1;
            push @complaints, "$path:$number: " . $words =~ s/%s/$matched/r;
        }
    }

    return @complaints;
}


# The functions of a C file: { name, line, lines, body }.  As everywhere in
# nginx, a function's braces, and only those, stand in the first column.

sub functions {
    my ($text) = @_;
    my @lines = split /\n/, code($text);
    my (@functions, $name, $start);

    foreach my $i (0 .. $#lines) {
        if ($lines[$i] =~ /^(\w+)\(/) {
            $name = $1;

        } elsif ($lines[$i] eq '{' && defined $name) {
            $start = $i;

        } elsif ($lines[$i] eq '}' && defined $start) {
            push @functions, {
                name  => $name,
                line  => $start + 1,
                lines => $i - $start - 1,
                body  => join("\n", @lines[$start .. $i]),
            };
            ($name, $start) = ();
        }
    }

    return @functions;
}


# --- layers ---------------------------------------------------------------

sub file_names {
    my ($root) = @_;
    my @complaints;
    my %prefix = (core => 'iap_', event => 'ngx_iap_',
                  http => 'ngx_http_iap_guard');

    foreach my $path (files($root, qr{^src/})) {
        my ($layer, $name) = $path =~ m{^src/([^/]+)/(.+)$};

        if (!defined $layer || !$prefix{$layer}) {
            push @complaints, "$path: not in src/core, src/event or src/http";

        } elsif ($name !~ /^$prefix{$layer}\w*\.[ch]$/) {
            push @complaints, "$path: expected a name like "
                              . "src/$layer/$prefix{$layer}*.[ch]";
        }
    }

    return @complaints;
}


sub includes {
    my ($root) = @_;
    my @complaints;

    foreach my $path (sources($root)) {
        my $layer = layer($path);
        my $number = 0;

        foreach my $line (split /\n/, slurp($root, $path)) {
            $number++;
            next unless $line =~ /^\s*#\s*include\s*([<"])([^">]+)[">]/;

            push @complaints, "$path:$number: src/$layer includes $2"
                unless may_include($layer, $1 eq '<', $2);
        }
    }

    return @complaints;
}


sub may_include {
    my ($layer, $is_system, $name) = @_;

    return 1 if $layer eq 'http';

    if ($layer eq 'core') {
        return $name =~ ($is_system ? $CORE_HEADERS : qr/^iap_\w+\.h$/);
    }

    return 0 if $name =~ /^ngx_(?:http|stream|mail)/;
    return $is_system || $name =~ /^(?:ngx_)?iap_\w+\.h$/;
}


sub identifiers {
    my ($root) = @_;
    my %above = (core  => qr/\b(?:ngx|NGX)_\w+/,
                 event => qr/\b(?:ngx|NGX)_(?:http|HTTP|stream|STREAM)_\w+/);

    return map {
        my $above = $above{layer($_)};
        $above ? matches($_, code(slurp($root, $_)), $above,
                         '"%s" is of a layer above') : ();
    } sources($root);
}


# --- src/core by itself ---------------------------------------------------

# { complaints, objects } of a compiler; also every header alone, for each
# must include what it needs

sub compile_core {
    my ($root, $cc) = @_;
    my $out = tempdir(CLEANUP => 1);
    my (@complaints, @objects);

    foreach my $path (grep { layer($_) eq 'core' } sources($root)) {
        my ($name) = $path =~ m{([^/]+)$};

        # position-dependent, for tables of pointers to be really constant

        my $words = qx{$cc -std=gnu11 -O2 -fno-pic -fno-pie -Wall -Wextra \\
            -Wconversion -Wsign-conversion -Werror -I$root/src/core -x c \\
            -c -o $out/$name.o -include $root/$path /dev/null 2>&1};

        push @complaints, "$path: $cc says:\n$words" if $? != 0;
        push @objects, "$out/$name.o" if $name =~ /\.c$/;
    }

    return (\@complaints, grep { -e } @objects);
}


sub core_alone {
    my ($root) = @_;
    my @complaints;

    foreach my $cc (grep { have($_) } qw(cc clang)) {
        my ($words) = compile_core($root, $cc);
        push @complaints, @$words;
    }

    return @complaints;
}


# What an object file refers to tells what its source does, however written.

sub core_pure {
    my ($root) = @_;
    my @complaints;

    my $foreign = qr/^(?:
        malloc | calloc | realloc | free | strdup | aligned_alloc
        | time | clock | clock_gettime | gettimeofday | localtime\w*
        | rand | random | getrandom | getenv | open\w* | fopen | socket
        | printf | fprintf | puts | abort | exit
    )$/x;

    my (undef, @objects) = compile_core($root, 'cc');

    foreach my $object (@objects) {
        my ($name) = $object =~ m{([^/]+)\.o$};

        foreach my $line (split /\n/, qx{nm $object}) {
            my ($kind, $symbol) = $line =~ /([A-Za-z]) (\S+)$/ or next;

            push @complaints, "src/core/$name: \"$symbol\" can be written to"
                if $kind =~ /^[BbDdCGgSs]$/ && $symbol !~ /^\.L/;

            push @complaints, "src/core/$name: calls $symbol()"
                if $kind eq 'U' && $symbol =~ $foreign;
        }
    }

    return @complaints;
}


sub have {
    my ($tool) = @_;
    return grep { -x "$_/$tool" } split /:/, $ENV{PATH};
}


# --- directives and metrics -----------------------------------------------

# { name => { contexts, line } } from the table of commands

sub commands {
    my ($root) = @_;
    my %commands;

    my %context = (NGX_HTTP_MAIN_CONF => 'http', NGX_HTTP_SRV_CONF => 'server',
                   NGX_HTTP_LOC_CONF => 'location',
                   NGX_HTTP_LIF_CONF => 'if in location',
                   NGX_HTTP_SIF_CONF => 'if in server',
                   NGX_HTTP_LMT_CONF => 'limit_except',
                   NGX_MAIN_CONF => 'main');

    return {} unless -e "$root/$MODULE";

    my ($table) = slurp($root, $MODULE)
        =~ /^static\s+ngx_command_t\s+\w+\[\]\s*=\s*\{(.*?)ngx_null_command/ms
        or return {};

    while ($table =~ /ngx_string\("(\w+)"\)\s*,\s*([^,]+),/g) {
        my ($name, $flags) = ($1, $2);
        my %flags = map { $_ => 1 } $flags =~ /\w+/g;

        $commands{$name} = join ', ', sort map { $context{$_} }
                                      grep { $context{$_} } keys %flags;
    }

    return \%commands;
}


# { name => { Syntax, Default, Context } } from docs/directives.md, where a
# directive is a heading and these are lines below it

sub documented {
    my ($root) = @_;
    my (%directives, $current);

    return {} unless -e "$root/docs/directives.md";

    foreach my $line (split /\n/, slurp($root, 'docs/directives.md')) {
        if ($line =~ /^#+\s+`?(iap_guard\w*)`?\s*$/) {
            $current = $directives{$1} = {};

        } elsif ($line =~ /^#/) {
            undef $current;

        } elsif ($current
                 && $line =~ /^\W*(Syntax|Default|Context)\b[*:| ]*(.*)$/)
        {
            $current->{$1} = $2 unless defined $current->{$1};
        }
    }

    return \%directives;
}


sub directives {
    my ($root) = @_;
    my ($commands, $documented) = (commands($root), documented($root));
    my @complaints;

    push @complaints, "$MODULE: no table of commands" unless %$commands;

    foreach my $name (sort keys %$commands) {
        my $entry = $documented->{$name};

        if (!$entry) {
            push @complaints, "docs/directives.md: no heading for $name";
            next;
        }

        foreach my $part (qw(Syntax Default Context)) {
            push @complaints, "docs/directives.md: $name has no $part"
                if !defined $entry->{$part} || $entry->{$part} !~ /\S/;
        }

        push @complaints,
             "docs/directives.md: the syntax of $name does not begin with it"
            if ($entry->{Syntax} // $name) !~ /\b$name\b/;
    }

    push @complaints, map { "docs/directives.md: $_ is no directive" }
                      grep { !exists $commands->{$_} } sort keys %$documented;

    return @complaints;
}


sub contexts {
    my ($root) = @_;
    my ($commands, $documented) = (commands($root), documented($root));
    my @complaints;

    foreach my $name (sort keys %$commands) {
        my $words = ($documented->{$name} // {})->{Context};
        next unless defined $words;

        $words =~ s/[^\w, ]//g;
        $words = join ', ', sort grep { length }
                 map { s/^\s+|\s+$//gr } split /,/, $words;

        push @complaints, "docs/directives.md: $name is documented for "
                          . "\"$words\", and allowed in \"$commands->{$name}\""
            if $words ne $commands->{$name};
    }

    return @complaints;
}


sub metrics {
    my ($root) = @_;
    my $header = 'src/core/iap_metrics.h';
    my @complaints;

    return "$header is not there" unless -e "$root/$header";

    my $source = slurp($root, $header);
    my @names = $source =~ /\bX\(\s*\w+\s*,\s*"(\w+)"/g;
    my $docs = join "\n", map { slurp($root, $_) }
                          files($root, qr{^docs/.*\.md$});

    push @complaints, "$header: no X(ID, \"name\", ...)" unless @names;

    push @complaints, map { "docs: no word of the metric $_" }
                      grep { $docs !~ /\b$_\b/ } @names;

    my %known = map { $_ => 1 } @names;
    my %unknown = map { $_ => 1 } grep { !$known{$_} }
                  $docs =~ /\b(iap_guard_\w+_(?:total|bytes|seconds))\b/g;

    push @complaints, map { "docs: $_ is no metric" } sort keys %unknown;

    return @complaints;
}


# The "+command" of docs/redis.md, and what lua/ calls; besides, what the module
# itself sends.

sub rights {
    my ($root) = @_;
    my $file = 'docs/redis.md';
    my (%called, @complaints);

    return "$file is not there" unless -e "$root/$file";

    my ($text) = slurp($root, $file) =~ /^## Rights\n(.*?)(?=^## |\z)/ms;
    my %named  = map { $_ => 1 } ($text // '') =~ /\+([a-z]+(?:\|[a-z]+)?)/g;

    foreach my $script (files($root, qr{^lua/\w+\.lua$})) {
        $called{lc $_} = $script
            foreach slurp($root, $script) =~ /\bp?call\('([A-Z]+)'/g;
    }

    push @complaints, "$file: no right to call $_, as $called{$_} does"
        foreach grep { !$named{$_} } sort keys %called;

    delete @named{qw(eval evalsha wait waitaof config|get select asking
                     cluster|slots role sentinel|get sentinel|master)};

    push @complaints, "$file: a right to call $_, which no script does"
        foreach grep { !$called{$_} } sort keys %named;

    return @complaints;
}


# --- C --------------------------------------------------------------------

# Between the calls that lock and unlock.  A block that unlocks by itself, to
# leave the function, does not unlock what follows it.

my $LOCK   = qr/\b(?:ngx_shmtx_lock|ngx_rwlock_[rw]lock|ngx_spinlock)\s*\(/;
my $UNLOCK = qr/\b(?:ngx_shmtx_unlock|ngx_rwlock_unlock|ngx_unlock)\s*\(/;
my $NEVER  = qr/\b(?:
    return\b
    | goto\b
    | ngx_slab_(?:alloc|calloc|free)\s*\(
    | ngx_(?:alloc|calloc|free|palloc|pnalloc|pcalloc)\s*\(
    | ngx_(?:log|conf_log)_(?:error|abort|debug\w*)\s*\(
    | ngx_add_timer\s*\( | ngx_shmtx_lock\s*\(
)/x;

sub locks {
    my ($root) = @_;
    return map { my $path = $_;
                 map { locks_in($path, $_) } functions(slurp($root, $path))
           } grep { /\.c$/ } c_files($root);
}


sub locks_in {
    my ($path, $function) = @_;
    my ($depth, $locked, $left, $line) = (0, undef, undef, $function->{line});
    my @complaints;

    while ($function->{body} =~ /(\n)|([{}])|($LOCK)|($UNLOCK)|($NEVER)/g) {
        my ($newline, $brace, $lock, $unlock, $never) = ($1, $2, $3, $4, $5);

        if (defined $newline) {
            $line++;

        } elsif (defined $brace) {
            $depth += $brace eq '{' ? 1 : -1;
            undef $left if defined $left && $depth < $left;

        } elsif (defined $unlock) {
            if (defined $locked && $depth > $locked) {
                $left = $depth;
            } else {
                undef $locked;
            }

        } elsif (defined $locked && !defined $left) {
            my $what = ($lock // $never) =~ s/\s*\($//r;
            push @complaints, "$path:$line: $what inside a lock";

        } elsif (defined $lock) {
            $locked = $depth;
            undef $left;
        }
    }

    push @complaints, "$path:$function->{line}: $function->{name}() ends locked"
        if defined $locked;

    return @complaints;
}


sub banned {
    my ($root) = @_;

    my $unbounded = qr/\b(?:strcpy|strcat|sprintf|vsprintf|gets|strtok|alloca
                       |atoi|atol|asctime|ctime)\s*\(/x;
    my $process = qr/\b(?:pthread_\w+|signal\s*\(|sigaction\s*\(|system\s*\(
                     |popen\s*\(|fork\s*\(|sleep\s*\(|usleep\s*\()/x;

    return map {
        my $code = code(slurp($root, $_));
        (matches($_, $code, $unbounded, '%s) knows no length'),
         matches($_, $code, $process, '%s is nginx\'s own to do'))
    } c_files($root);
}


sub c_text {
    my ($root) = @_;
    my @complaints;

    foreach my $path (c_files($root)) {
        my $text = slurp($root, $path);

        push @complaints,
            matches($path, $text, qr/\t/, 'a tab'),
            matches($path, $text, qr/[ \r]+$/, 'blanks at the end'),
            matches($path, code($text), qr{//}, 'a // comment');

        my $number = 0;
        foreach my $line (split /\n/, $text) {
            $number++;
            push @complaints, "$path:$number: " . length($line) . ' columns'
                if length $line > COLUMNS;
        }

        push @complaints, "$path: no newline at the end" if $text !~ /\n\z/;
    }

    return @complaints;
}


sub lengths {
    my ($root) = @_;
    my @complaints;

    foreach my $path (c_files($root)) {
        my $text = slurp($root, $path);
        my $lines = () = $text =~ /\n/g;

        push @complaints, "$path: $lines lines, more than " . FILE_LINES
            if $lines > FILE_LINES;

        push @complaints, map {
            "$path:$_->{line}: $_->{name}() has $_->{lines} lines, more than "
            . FUNCTION_LINES
        } grep { $_->{lines} > FUNCTION_LINES } functions($text);
    }

    return @complaints;
}


# Not complained about, but told: "a hard look".

sub long_functions {
    my ($root) = @_;

    return map { my $path = $_;
                 map { "$path:$_->{line}: $_->{name}() has $_->{lines} lines" }
                 grep { $_->{lines} > FUNCTION_WISHED }
                 functions(slurp($root, $path))
           } grep { /\.c$/ } c_files($root);
}


# --- everything else ------------------------------------------------------

sub unfinished {
    my ($root) = @_;
    my $mark = join '|', 'TO' . 'DO', 'FIX' . 'ME';

    return map { matches($_, slurp($root, $_), qr/\b(?:$mark)\b/, '%s') }
           grep { -T "$root/$_" } files($root, qr/./);
}


# a few at a time

sub perl_compiles {
    my ($root) = @_;
    my @paths = files($root, qr/\.(?:pl|pm|t)$/);
    my @complaints;

    while (my @batch = splice @paths, 0, AT_ONCE) {
        my @pipes = map {
            my ($folder) = m{^(.*)/};
            open my $pipe, '-|',
                "cd $root && perl -It/lib -I$folder -c $_ 2>&1"
                or die "can't run perl: $!\n";
            $pipe;
        } @batch;

        foreach my $path (@batch) {
            my $pipe = shift @pipes;
            my $words = join '', <$pipe>;
            push @complaints, "$path: $words" if !close $pipe;
        }
    }

    return @complaints;
}


sub shell_parses {
    my ($root) = @_;
    my @complaints;

    my @scripts = grep { /\.sh$/ || slurp($root, $_) =~ m{^#!\S+[/ ](?:ba)?sh\b} }
                  grep { -T "$root/$_" } files($root, qr/./);

    foreach my $path (@scripts) {
        my $words = qx{bash -n $root/$path 2>&1};
        push @complaints, "$path: $words" if $? != 0;
    }

    # where it is installed: it finds what bash lets pass

    if (@scripts && have('shellcheck')) {
        # the parts of build.sh use each other's variables

        my $words = qx{cd $root && shellcheck -s bash -S warning -e SC2034 \\
                       @scripts 2>&1};
        push @complaints, $words if $? != 0;
    }

    return @complaints;
}

1;
