#!/usr/bin/env bash
#
# Builds, tests and shows iap_guard: ./build.sh help
#
# Everything that it makes is under build/.  The parts are in t/build/:
# packages.sh (what must be installed), nginx.sh (the module and the nginx
# that it is tested with), suites.sh (the tests).

set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$ROOT"

export LC_ALL=C

BUILD=$ROOT/build
MODULE_SO=ngx_http_iap_guard_module.so
JOBS=$(nproc 2>/dev/null || echo 2)

say() { printf '==> %s\n' "$*" >&2; }
die() { printf 'build.sh: %s\n' "$*" >&2; exit 1; }

. t/build/packages.sh
. t/build/nginx.sh
. t/build/suites.sh


# Two commands in one tree wait for each other while they build.

locked() {
    mkdir -p "$BUILD"
    (
        flock 9
        "$@" 9>&-
    ) 9> "$BUILD/.lock"
}


cmd_setup() {                   # installs what build, demo and test need
    need "${NEED_TEST[@]}"
}


cmd_build() {                   # the module, for the installed nginx or for NGINX_SRC=DIR
    if [ -n "${NGINX_SRC:-}" ]; then
        need "${NEED_TREE[@]}"
        locked build_source_tree "$NGINX_SRC"
    else
        need "${NEED_BUILD[@]}"
        locked build_installed
        echo "$BUILD/$MODULE_SO"
    fi
}


cmd_demo() {                    # a site under attack, a campaign, an outage; --once ends by itself
    need "${NEED_DEMO[@]}"
    locked build_installed
    exec perl -It/lib t/demo/demo.pl --module="$BUILD/$MODULE_SO" \
        --nginx="$(command -v nginx)" "$@"
}


cmd_test() {                    # all suites, or SUITES="plain hup"; or only the files named
    need "${NEED_TEST[@]}"
    run_suites "$@"
}


cmd_unit() {                    # the C unit tests, under ASan and UBSan; or the files named
    need "${NEED_UNIT[@]}"
    SUITES=unit run_suites "$@"
}


cmd_lint() {                    # layers, directives against docs, style
    need "${NEED_LINT[@]}"
    SUITES=lint run_suites
}


cmd_asan() {                    # nginx and the module with AddressSanitizer
    need "${NEED_TEST[@]}"
    locked build_asan
    printf '%s\n' "$BUILD/asan/nginx" "$BUILD/asan/$MODULE_SO"
}


cmd_bench() {                   # what the guard costs, next to limit_req, to Lua and to nothing
    need "${NEED_BENCH[@]}"
    locked build_installed
    locked build_ungrouped
    exec perl -It/lib t/bench/bench.pl --module="$BUILD/$MODULE_SO" \
        --ungrouped="$BUILD/ungrouped/$MODULE_SO" \
        --nginx="$(command -v nginx)" "$@"
}


cmd_crash() {                   # kills, cuts and fills whatever the queue needs; --rounds=200
    need "${NEED_TEST[@]}"
    locked build_installed
    exec perl -It/lib t/load/crash_queue.pl --rounds=200 \
        --module="$BUILD/$MODULE_SO" --nginx="$(command -v nginx)" "$@"
}


cmd_clean() {                   # removes what was built, but keeps what was fetched
    find "$BUILD" -mindepth 1 -maxdepth 1 \
        ! -name cache ! -name roots ! -name .lock -exec rm -rf {} + 2> /dev/null \
        || true
}


cmd_help() {                    # this list
    echo "usage: ./build.sh COMMAND"
    echo
    sed -n 's/^cmd_\([a-z]*\)() {  *# \(.*\)/    \1\t\2/p' "$ROOT/build.sh" \
        | expand -t 14
}


main() {
    local command=${1:-help}

    case $command in
        -h|--help) command=help ;;
    esac

    declare -F "cmd_$command" >/dev/null \
        || die "no command \"$command\"; ./build.sh help lists them"

    shift || true
    "cmd_$command" "$@"
}

main "$@"; exit
