#!/usr/bin/env bash
#
# build.sh NGINX-SOURCE DIR: an nginx without HTTP, with the link and its test
# module, with AddressSanitizer, and with NGX_DEBUG_PALLOC, which makes each
# allocation from a pool one of its own.

set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
nginx=$1
build=$2

if [ ! -e "$build/configure" ]; then
    mkdir -p "$build"
    cp -rp "$nginx/." "$build"
fi

cd "$build"

if [ ! objs/Makefile -nt "$here/config" ]; then
    ASAN_OPTIONS=detect_leaks=0 ./configure --builddir=objs \
        --without-http --without-pcre --with-debug \
        --with-poll_module --with-select_module \
        --with-cc-opt="-O1 -g -Wall -Wextra -fsanitize=address \
                       -fno-omit-frame-pointer -DNGX_DEBUG_PALLOC=1" \
        --with-ld-opt="-fsanitize=address" --add-module="$here"
fi

make -s -f objs/Makefile
