#!/usr/bin/env bash
#
# build.sh NGINX-SOURCE DIR [ADD-ON]: an nginx without HTTP, with the link and
# its test module (or the add-on's), with AddressSanitizer, and with
# NGX_DEBUG_PALLOC, which makes each allocation from a pool one of its own.

set -euo pipefail

nginx=$1
build=$2
addon=$(cd "${3:-$(dirname "$0")}" && pwd)
root=$(cd "$(dirname "$0")/../../.." && pwd)

if [ ! -e "$build/configure" ]; then
    mkdir -p "$build"
    cp -rp "$nginx/." "$build"
fi

cd "$build"

# folders: files may have come or gone; and the scripts, which configure embeds

stale() {
    local path

    for path in "$addon/config" "$root"/t/frame{,/config*} \
                "$root"/src/{core,event} "$root"/lua{,/*.lua}; do
        [ objs/Makefile -nt "$path" ] || return 0
    done

    return 1
}

if stale; then
    ASAN_OPTIONS=detect_leaks=0 ./configure --builddir=objs \
        --without-http --without-pcre --with-debug --with-threads \
        --with-poll_module --with-select_module \
        --with-cc-opt="-O1 -g -Wall -Wextra -fsanitize=address \
                       -fno-omit-frame-pointer -DNGX_DEBUG_PALLOC=1" \
        --with-ld-opt="-fsanitize=address" --add-module="$addon"
fi

make -s -j "$(nproc 2> /dev/null || echo 2)" -f objs/Makefile
