#!/usr/bin/env bash
#
# Runs a command on this project in a bare Debian root, made fresh:
#
#     t/build/debian-root.sh bookworm ./build.sh demo --once
#     t/build/debian-root.sh trixie   ./build.sh test
#
# The root is debootstrap's minbase, kept as build/roots/SUITE.tar.  The
# files are those of the work tree, as git would list them, or with REF=HEAD
# those of that commit.  KEEP=1 keeps the root when the command has ended.
#
# Needs root, debootstrap and git.

set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
BUILD=$ROOT/build
PROJECT=/srv/iap_guard

say() { printf '==> %s\n' "$*" >&2; }
die() { printf 'debian-root.sh: %s\n' "$*" >&2; exit 1; }
locked() { "$@"; }

. "$ROOT/t/build/packages.sh"


# the mirror is the one that this machine's own apt uses

make_pristine() {
    local suite=$1 tar=$2 dir=$2.dir mirror

    mirror=$(debian_archives | sed -n '1{s/ .*//;p}')

    say "making a bare $suite"
    rm -rf "$dir"
    debootstrap --variant=minbase "$suite" "$dir" "$mirror" > "$tar.log" \
        || die "debootstrap failed; its words are in $tar.log"
    tar -C "$dir" -cf "$tar.new" .
    mv "$tar.new" "$tar"
    rm -rf "$dir"
}


copy_project() {
    mkdir -p "$1"
    cd "$ROOT"

    if [ -n "${REF:-}" ]; then
        git archive "$REF" | tar -C "$1" -xf -
    else
        git ls-files -z --cached --others --exclude-standard \
            | existing | tar -cf - --null -T - | tar -C "$1" -xf -
    fi
}


# git also lists files that have been removed

existing() {
    local file

    while IFS= read -r -d '' file; do
        if [ -e "$file" ]; then
            printf '%s\0' "$file"
        fi
    done
}


# In a mount and a process namespace of its own: when the command ends, what
# it left running ends too, and no mount is left that a later rm could
# follow.

run_inside() {
    local dir=$1
    shift

    # shellcheck disable=SC2016
    unshare --mount --pid --fork --kill-child bash -euc '
        dir=$1; project=$2; shift 2
        mount -t proc proc "$dir/proc"
        mount -t tmpfs -o mode=755 tmpfs "$dir/dev"
        for node in null zero full random urandom tty; do
            touch "$dir/dev/$node"
            mount --bind "/dev/$node" "$dir/dev/$node"
        done
        ln -s /proc/self/fd "$dir/dev/fd"
        ln -s fd/0 "$dir/dev/stdin"
        ln -s fd/1 "$dir/dev/stdout"
        ln -s fd/2 "$dir/dev/stderr"
        mkdir -m 1777 "$dir/dev/shm"

        exec chroot "$dir" /usr/bin/env -i \
            HOME=/root TERM=dumb CI="${CI:-}" \
            PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
            sh -c "cd $project && exec \"\$@\"" sh "$@"
    ' bash "$dir" $PROJECT "$@" <&0 &

    INSIDE=$!
    wait $INSIDE
}


# unshare does not listen to signals while it waits, but takes all inside
# with it when it is killed

INSIDE=

clean_up() {
    if [ -n "$INSIDE" ]; then
        kill -KILL "$INSIDE" || true
        wait "$INSIDE" || true
    fi 2> /dev/null

    [ -n "${KEEP:-}" ] || rm -rf --one-file-system "$1"
}


main() {
    local suite=${1:-} tar dir rc=0 start

    [ $# -ge 2 ] || die "usage: debian-root.sh SUITE COMMAND..."
    [ "$(id -u)" = 0 ] || die "needs root"
    shift

    for tool in debootstrap git unshare; do
        command -v $tool > /dev/null || die "needs $tool"
    done

    mkdir -p "$BUILD/roots"
    tar=$BUILD/roots/$suite.tar
    [ -e "$tar" ] || make_pristine "$suite" "$tar"

    dir=$(mktemp -d "$BUILD/roots/$suite.XXXXXX")
    chmod 755 "$dir"
    # shellcheck disable=SC2064
    trap "clean_up '$dir'" EXIT
    trap 'exit 130' INT TERM HUP
    [ -z "${KEEP:-}" ] || say "keeping $dir"

    tar -C "$dir" -xf "$tar"
    copy_project "$dir$PROJECT"

    say "$suite: $*"
    start=$SECONDS
    run_inside "$dir" "$@" || rc=$?
    say "$suite: $* ended with $rc after $((SECONDS - start)) s"

    return $rc
}

main "$@"; exit
