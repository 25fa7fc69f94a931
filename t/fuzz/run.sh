#!/usr/bin/env bash
#
# Fuzzing of src/core with libFuzzer, AddressSanitizer and UBSan:
#
#     t/fuzz/run.sh NAME [SECONDS] [LIBFUZZER-OPTION...]
#
# builds t/fuzz/fuzz_NAME.c with all of src/core and lets it run, 60 seconds
# unless told otherwise.  Needs clang (Debian's package of that name).  What it
# has learned stays in build/fuzz/NAME/corpus for the next time; an input that
# fails is left in build/fuzz/NAME, and is repeated by naming its file:
#
#     build/fuzz/NAME/fuzz build/fuzz/NAME/crash-...
#
# A file t/fuzz/fuzz_NAME.dict is a dictionary for it, and t/fuzz/corpus/NAME
# what it begins with.  A line "Libraries: ..." of the source names those that
# it is to be linked with besides OpenSSL's.

set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."

name=${1:-}
seconds=${2:-60}
[ $# -lt 2 ] || shift
[ $# -lt 1 ] || shift

source=t/fuzz/fuzz_$name.c
out=build/fuzz/$name

if [ ! -e "$source" ]; then
    echo "usage: t/fuzz/run.sh NAME [SECONDS] [LIBFUZZER-OPTION...]" >&2
    echo "names:" t/fuzz/fuzz_*.c | sed 's,t/fuzz/fuzz_,,g; s,\.c,,g' >&2
    exit 2
fi

command -v clang > /dev/null || {
    echo "t/fuzz/run.sh: needs clang (Debian's package clang)" >&2
    exit 1
}

mkdir -p "$out/corpus"

libraries=$(sed -n 's/^ \* Libraries: //p' "$source")

# shellcheck disable=SC2086
clang -std=gnu11 -g -O1 -Wall -Wextra -Werror -fno-omit-frame-pointer \
    -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined \
    -Isrc/core -o "$out/fuzz" "$source" src/core/*.c \
    -lcrypto -lm $libraries

options=(-max_total_time="$seconds" -artifact_prefix="$out/" -timeout=5)

if [ -e "t/fuzz/fuzz_$name.dict" ]; then
    options+=(-dict="t/fuzz/fuzz_$name.dict")
fi

# what is new goes into the first folder

folders=("$out/corpus")

if [ -d "t/fuzz/corpus/$name" ]; then
    folders+=("t/fuzz/corpus/$name")
fi

exec "$out/fuzz" "${options[@]}" "$@" "${folders[@]}"
