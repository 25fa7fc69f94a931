# The module, and the nginx that it is tested with.  Read by build.sh.

DEBIAN_NGINX_SRC=/usr/share/nginx/src

# nginx's own flags are -W -Wall -Wpointer-arith -Wno-unused-parameter
# -Werror.  -Werror must not be among the flags given to configure: they go
# into its feature tests, too, which would then find nothing.

MODULE_CFLAGS="-O2 -g -Wall -Wextra -fstack-protector-strong"
ASAN_CFLAGS="-O1 -g -Wall -Wextra -fsanitize=address -fno-omit-frame-pointer"

# what the suites need

SOURCE_FLAGS=(--with-compat --with-debug --with-threads
    --with-http_ssl_module --with-http_v2_module --with-http_realip_module
    --with-http_auth_request_module --with-http_stub_status_module
    --with-http_sub_module --with-http_gunzip_module
    --with-poll_module --with-select_module)


# What makes a configuration stale: another nginx, other flags, a changed
# `config`, a source file more or less, a script, which configure embeds.

configuration_of() {
    local src=$1
    shift

    {
        printf '%s\n' "$src" "$@"
        cat "$src/src/core/nginx.h" config lua/*.lua
        cc --version
        ls ngx_http_iap_guard_module.c src/*/*.[ch] lua/*.lua
    } | cksum
}


nginx_version_of() {
    sed -n 's/^#define NGINX_VERSION *"\(.*\)"/\1/p' "$1/src/core/nginx.h"
}


# configure_in TREE OBJS FLAG...: runs TREE's configure for TREE/OBJS unless
# that has been done with the same flags.

configure_in() {
    local tree=$1 objs=$2 configure=./configure stamp log
    shift 2

    stamp=$(configuration_of "$tree" "$objs" "$@")
    log=$tree/$objs.log

    if [ "$(cat "$tree/$objs.stamp" 2>/dev/null)" = "$stamp" ]; then
        return
    fi

    [ -e "$tree/configure" ] || configure=auto/configure

    say "configuring nginx $(nginx_version_of "$tree") in ${tree#"$ROOT/"}"
    rm -rf "${tree:?}/$objs" "$tree/$objs.stamp"

    # LeakSanitizer would make configure's test programs fail, where it has
    # no /proc to look into

    (cd "$tree" && ASAN_OPTIONS=detect_leaks=0 \
        $configure --builddir="$objs" "$@") > "$log" 2>&1 || {
        tail -n 15 "$log" >&2
        die "nginx's configure failed; all its words are in $log"
    }

    printf '%s\n' "$stamp" > "$tree/$objs.stamp"
}


# make_in TREE OBJS TARGET: silent when it works

make_in() {
    make -s -C "$1" -j "$JOBS" -f "$2/Makefile" "$3" \
        || die "the build of $1/$2 failed"
}


# A running nginx has the old file mapped: it is replaced, never rewritten.

place() {
    cmp -s "$1" "$2" && return
    mkdir -p "$(dirname "$2")"
    cp "$1" "$2.new"
    mv "$2.new" "$2"
}


# check_loads NGINX MODULE: a function that is declared, used and nowhere
# defined is found only when nginx loads the module.

check_loads() {
    local conf=$BUILD/loads.conf

    printf '%s\n' "load_module $2;" "pid $BUILD/loads.pid;" "events {}" \
        > "$conf"

    "$1" -t -q -p "$BUILD/" -e stderr -c "$conf" \
        || die "$1 can't load $2"
    rm -f "$conf" "$BUILD/loads.pid"
}


# copy_tree FROM TO: modification times stay, so make knows what is new

copy_tree() {
    mkdir -p "$2"
    tar -C "$1" --exclude=.git --exclude=./objs -cf - . | tar -C "$2" -xf -
}


# For the nginx that is installed: Debian's nginx-dev has the headers, the
# configure script, and in conf_flags the flags its nginx was built with.

build_installed() {
    build_for_installed objs "$BUILD/$MODULE_SO"
}


# The same, but that each request is a commit of its own: what the bench
# compares with.

build_ungrouped() {
    build_for_installed objs-ungrouped "$BUILD/ungrouped/$MODULE_SO" \
        -DNGX_IAP_FILE_BATCH=1
}


# build_for_installed OBJS FILE CFLAG...

build_for_installed() {
    local tree=$BUILD/dynamic objs=$1 so=$2
    shift 2

    [ -e $DEBIAN_NGINX_SRC/conf_flags ] \
        || die "no $DEBIAN_NGINX_SRC/conf_flags (Debian: apt-get install" \
               "nginx-dev); elsewhere use NGINX_SRC=/path/to/nginx"

    mkdir -p "$tree"
    if ! cmp -s $DEBIAN_NGINX_SRC/src/core/nginx.h "$tree/src/core/nginx.h"
    then
        rm -rf "$tree"
        copy_tree $DEBIAN_NGINX_SRC "$tree"
    fi

    # conf_flags is bash, and sets this array

    local NGX_CONF_FLAGS=()
    . "$DEBIAN_NGINX_SRC/conf_flags"

    configure_in "$tree" "$objs" "${NGX_CONF_FLAGS[@]}" \
        --with-cc-opt="$MODULE_CFLAGS${*:+ $*}" --add-dynamic-module="$ROOT"
    make_in "$tree" "$objs" modules
    place "$tree/$objs/$MODULE_SO" "$so"
    check_loads nginx "$so"
}


# For a source tree: nginx and the dynamic module, and nginx with the module
# in it.

build_source_tree() {
    local src version out tree

    src=$(cd "$1" && pwd) || die "NGINX_SRC=$1 is no folder"
    [ -e "$src/src/core/nginx.h" ] || die "NGINX_SRC=$1 has no nginx source"

    version=$(nginx_version_of "$src")
    out=$BUILD/src-$version
    tree=$out/tree

    copy_tree "$src" "$tree"

    configure_in "$tree" objs-dynamic "${SOURCE_FLAGS[@]}" \
        --with-cc-opt="$MODULE_CFLAGS" --add-dynamic-module="$ROOT"
    make_in "$tree" objs-dynamic build

    configure_in "$tree" objs-static "${SOURCE_FLAGS[@]}" \
        --with-cc-opt="$MODULE_CFLAGS" --add-module="$ROOT"
    make_in "$tree" objs-static build

    place "$tree/objs-dynamic/nginx" "$out/nginx"
    place "$tree/objs-dynamic/$MODULE_SO" "$out/$MODULE_SO"
    place "$tree/objs-static/nginx" "$out/nginx-static"
    check_loads "$out/nginx" "$out/$MODULE_SO"

    printf '%s\n' "$out/nginx" "$out/$MODULE_SO" "$out/nginx-static"
}


# The source of the nginx that is installed, in TREE

installed_source() {
    local version

    version=$(nginx -v 2>&1 | sed 's|.*nginx/\([0-9.]*\).*|\1|')

    [ "$(nginx_version_of "$1" 2> /dev/null)" = "$version" ] && return
    rm -rf "$1"
    fetch_nginx_source "$version" "$1"
}


build_static() {
    local tree=$BUILD/static/tree

    mkdir -p "$BUILD/static"
    installed_source "$tree"
    configure_in "$tree" objs "${SOURCE_FLAGS[@]}" \
        --with-cc-opt="$MODULE_CFLAGS" --add-module="$ROOT"
    make_in "$tree" objs build
    place "$tree/objs/nginx" "$BUILD/static/nginx"
}


# The version of nginx that is installed, as vanilla source with
# AddressSanitizer, and with NGX_DEBUG_PALLOC, which makes each allocation
# from a pool one of its own that AddressSanitizer can watch.

ASAN_REPORTS=$BUILD/asan/reports

build_asan() {
    local tree=$BUILD/asan/tree

    mkdir -p "$ASAN_REPORTS"
    chmod 1777 "$ASAN_REPORTS"

    installed_source "$tree"
    asan_options

    # nginx's Makefile does not know that options.o goes into the binary

    [ ! "$BUILD/asan/options.o" -nt "$tree/objs/nginx" ] \
        || rm -f "$tree/objs/nginx"

    configure_in "$tree" objs "${SOURCE_FLAGS[@]}" \
        --with-cc-opt="$ASAN_CFLAGS -DNGX_DEBUG_PALLOC=1" \
        --with-ld-opt="-fsanitize=address $BUILD/asan/options.o" \
        --add-dynamic-module="$ROOT"
    make_in "$tree" objs build

    place "$tree/objs/nginx" "$BUILD/asan/nginx"
    place "$tree/objs/$MODULE_SO" "$BUILD/asan/$MODULE_SO"
    check_loads "$BUILD/asan/nginx" "$BUILD/asan/$MODULE_SO"
}


# The options are built in: nginx does not hand its environment on to the
# binary that replaces it in an upgrade, and tests need not know them.
# Reports go into files, for the error log of a test is gone with the test.
# A process that failed aborts, which the master calls an alert.
#
# Leaks are looked for when a server ends that was told to: nginx -t and the
# like leave what they had to the system.  All that nginx itself leaves are
# its arrays of connections and events, and PCRE's context of compilation.

asan_options() {
    local source=$BUILD/asan/options.c leaks=1

    if ! can_find_leaks; then
        leaks=0
        say "LeakSanitizer does not work here: leaks will not be found"
    fi

    cat > "$source.tmp" << END
#include <signal.h>
#include <stddef.h>
#include <stdint.h>

int __lsan_is_turned_off(void);
const char *__asan_default_options(void);
const char *__lsan_default_options(void);
const char *__lsan_default_suppressions(void);

const char *
__asan_default_options(void)
{
    return "abort_on_error=1:disable_coredump=1:detect_leaks=$leaks"
           ":detect_stack_use_after_return=1:strict_string_checks=1"
           ":log_path=$ASAN_REPORTS/asan";
}

/* LeakSanitizer crashes when it looks for pointers in the thread-local
   storage of libraries that a reload has unloaded with the module.  What ld.so
   alone has a pointer to there is suppressed below; it may have no symbols. */

const char *
__lsan_default_options(void)
{
    return "print_suppressions=0:use_tls=0";
}

const char *
__lsan_default_suppressions(void)
{
    return "leak:ngx_event_process_init\nleak:ngx_regex_malloc\n"
           "leak:add_to_global_resize\nleak:_dl_map_object_deps\n"
           "leak:dl_open_worker\nleak:ld-linux\n";
}

/* weak: configure links its test programs with this file, too */

extern volatile sig_atomic_t  ngx_quit __attribute__((weak));
extern volatile sig_atomic_t  ngx_terminate __attribute__((weak));
extern uintptr_t              ngx_exiting __attribute__((weak));

int
__lsan_is_turned_off(void)
{
    return &ngx_quit == NULL || !(ngx_quit || ngx_terminate || ngx_exiting);
}
END

    place "$source.tmp" "$source"
    rm -f "$source.tmp"

    [ "$BUILD/asan/options.o" -nt "$source" ] \
        || cc -O1 -c -o "$BUILD/asan/options.o" "$source"
}


# It looks into /proc, and needs a system call that some containers forbid.

can_find_leaks() {
    local probe=$BUILD/asan/probe

    mkdir -p "$BUILD/asan"
    [ -e "$probe" ] || echo 'int main(void) { return 0; }' \
        | cc -fsanitize=address -x c -o "$probe" -
    ASAN_OPTIONS=detect_leaks=1 "$probe" > /dev/null 2>&1
}
