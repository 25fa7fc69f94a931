# The tests.  Read by build.sh.
#
# A suite is run by prove, so that what it prints ends in prove's own words;
# then what has failed is said again, and one table tells of all suites.  A
# suite that ran no test has failed, and so has one that left a temporary file.
#
# What a file of tests has said is in build/test/SUITE/FILE.log.

ALL_SUITES="unit ledger lint perl redis curl plain store asan hup http2 waits load
    ends"

TEST_OUT=$BUILD/test

# Test::Nginx mostly waits, for nginx to start and to end; with
# AddressSanitizer less so.

TEST_JOBS=${TEST_JOBS:-$((JOBS * 3))}
ASAN_JOBS=$(((TEST_JOBS * 2 + 2) / 3))

UNIT_CFLAGS="-std=gnu11 -g -O1 -Wall -Wextra -Werror -fno-omit-frame-pointer"
UNIT_CFLAGS+=" -fsanitize=address,undefined -fno-sanitize-recover=undefined"
UNIT_LIBS="-lcrypto -lm"

RESULTS=()
FAILURES=()
SUITE_ENV=()
SUITE_TMP=


# run_suite NAME JOBS "COMMAND" FILE...: runs COMMAND FILE for each file, so
# many at a time, shows what they print, and notes the result.

run_suite() {
    local name=$1 jobs=$2 command=$3 start=$SECONDS rc=0 options=() folder
    shift 3

    mkdir -p "$TEST_OUT"
    folder=$(mktemp -d "$TEST_OUT/$name.XXXXXX")
    SUITE_TMP=$(mktemp -d "${TMPDIR:-/tmp}/iap_guard.XXXXXX")
    trap remove_suite_tmp EXIT

    # nginx's workers run as another user if we are root

    chmod 755 "$SUITE_TMP"

    # what one file tells of itself can be followed, what many tell cannot

    [ "$jobs" -gt 1 ] || options=(--comments)

    say "suite $name"
    env "${SUITE_ENV[@]}" TMPDIR="$SUITE_TMP" \
        prove --failures --timer "${options[@]}" -j "$jobs" \
              --exec "perl t/build/watch.pl $folder $command --" "$@" \
              2>&1 < /dev/null \
        | tee "$folder.log" || rc=1

    rm -rf "${TEST_OUT:?}/$name"
    mv "$folder" "$TEST_OUT/$name"
    mv "$folder.log" "$TEST_OUT/$name.log"

    note_suite "$name" "$((SECONDS - start))" $rc || rc=1
    nothing_left "$name" || rc=1

    return $rc
}


# note_suite NAME SECONDS RC: a line of the table, with what took longest

note_suite() {
    local name=$1 seconds=$2 rc=$3 log=$TEST_OUT/$1.log files tests result=pass

    # "Files=2, Tests=17, ..."

    read -r files tests < <(
        sed -n 's/^Files=\([0-9]*\), Tests=\([0-9]*\),.*/\1 \2/p' "$log" \
            | tail -n 1
        echo "0 0")

    if [ "$rc" != 0 ]; then
        result=FAIL
        note_failures "$name" "$(
            cd "$TEST_OUT" && perl "$ROOT/t/build/failed.pl" "$name.log" "$name")"
    elif [ "$tests" = 0 ]; then
        result="FAIL: ran no test"
        rc=1
    fi

    note_result "$name" "$files" "$tests" "$seconds" "$result" \
        "$(sort -rn "${log%.log}/times" | sed -n 1p)"
    return "$rc"
}


note_result() {
    RESULTS+=("$(printf '%-8s %6s %7s %6s   %-18s %s' "$@" | sed 's/ *$//')")
}

# of the suite that ran last

replace_result() {
    RESULTS[-1]="${RESULTS[-1]:0:33}$1"
}


# note_failures SUITE TEXT: said once more at the end, where it is seen

note_failures() {
    FAILURES+=("--- suite $1"$'\n'"$2")
}


# Whoever made a temporary file has to remove it.

nothing_left() {
    local left

    left=$(cd "$SUITE_TMP" && find . -mindepth 1 | sort | sed -n 1,12p)
    remove_suite_tmp
    [ -n "$left" ] || return 0

    note_failures "$1" "temporary files that were left: $left"
    replace_result "FAIL: left files"
    return 1
}

remove_suite_tmp() {
    [ -z "$SUITE_TMP" ] || rm -rf "$SUITE_TMP"
    SUITE_TMP=
}


print_results() {
    [ ${#FAILURES[@]} = 0 ] || printf '\n%s\n' "${FAILURES[@]}"
    printf '\n%-8s %6s %7s %6s   %-18s %s\n' suite files tests sec result \
        "longest, sec"
    printf '%s\n' "${RESULTS[@]}"
}


# What a suite runs is built before any suite runs, for bash's `set -e` does
# not hold in a function whose result is looked at.

prepare() {
    local suite=$1
    shift

    case $suite in
        unit)
            locked build_unit "$@" ;;
        ledger)
            locked build_installed
            locked build_ledger "$@" ;;
        asan | ends)
            locked build_asan ;;
        http2)
            curl -V | grep HTTP2 > /dev/null || die "this curl does not speak HTTP/2"
            locked build_installed ;;
        perl | plain | store | hup | waits | load)
            locked build_installed ;;
        static)
            locked build_static ;;
        curl)
            locked build_curl ;;
        link | route | keeper | stock)
            locked installed_source "$BUILD/link/tree" ;;
    esac
}


# src/core is compiled once, into objects that all test programs share

build_unit() {
    local programs
    mapfile -t programs < <(unit_programs "$@")

    mkdir -p "$BUILD/unit"
    CFLAGS=$UNIT_CFLAGS LIBS=$UNIT_LIBS \
        make -s -j "$JOBS" -f t/build/unit.mk OUT="$BUILD/unit" "${programs[@]}" \
        || die "the unit tests do not compile"
}

# the ledger's file by itself, with the headers of the installed nginx

build_ledger() {
    local programs
    mapfile -t programs < <(ledger_programs "$@")

    mkdir -p "$BUILD/ledger"
    CFLAGS=-O2 ASAN_CFLAGS="-O1 -fsanitize=address,undefined \
        -fno-sanitize-recover=undefined -fno-omit-frame-pointer" \
        make -s -j "$JOBS" -f t/build/ledger.mk OUT="$BUILD/ledger" \
             NGX="$BUILD/dynamic" "${programs[@]}" \
        || die "the tests of the ledger do not compile"
}

# an nginx without HTTP, with the calls through libcurl

build_curl() {
    local log=$BUILD/curl/build.log

    installed_source "$BUILD/link/tree"
    mkdir -p "$BUILD/curl"

    bash t/redis/link/build.sh "$BUILD/link/tree" "$BUILD/curl/out" t/curl \
         > "$log" 2>&1 || {
        tail -n 15 "$log" >&2
        die "the nginx of t/curl does not compile"
    }
}


ledger_programs() {
    local file

    for file in "$@"; do
        echo "$BUILD/ledger/$(basename "$file" .c)"
    done
}


unit_programs() {
    local file

    for file in "$@"; do
        echo "$BUILD/unit/$(basename "$file" .c)"
    done
}


suite_unit() {
    local programs
    mapfile -t programs < <(unit_programs "$@")

    run_suite unit "$JOBS" '' "${programs[@]}"
}


suite_ledger() {
    local programs
    mapfile -t programs < <(ledger_programs "$@")

    run_suite ledger 1 '' "${programs[@]}"
}


suite_lint() {
    run_suite lint "$JOBS" perl "$@"
}


# what the tests are made of, and what the documentation shows

suite_perl() {
    use_installed
    nginx_in_environment
    run_suite perl "$JOBS" "perl -It/lib" "$@"
}


# The scripts of lua/ against the core, with a redis-server of their own

suite_redis() {
    SUITE_ENV=()
    run_suite redis "$JOBS" "perl -It/lib" "$@"
}


# The link to Redis by itself, in an nginx that has nothing else.  Not one of
# all suites, for it takes another build of nginx.

suite_link() {
    SUITE_ENV=()
    run_suite link 1 perl "$@" :: --source="$BUILD/link/tree" \
        --build="$BUILD/link/out"
}


# Where nodes are, likewise: an nginx with nothing but the store

suite_route() {
    SUITE_ENV=()
    run_suite route 1 perl "$@" :: --source="$BUILD/link/tree" \
        --build="$BUILD/route/out"
}


# Calls through libcurl, likewise, but small enough to be one of all suites:
# its files mostly wait, and run beside each other

suite_curl() {
    local files nginx=$BUILD/curl/out/objs/nginx

    # what takes longest is first

    mapfile -t files < <(printf '%s\n' "$@" | sort -r)

    SUITE_ENV=()
    can_find_leaks || SUITE_ENV=(ASAN_OPTIONS=detect_leaks=0)
    run_suite curl 3 "perl t/curl/run --binary=$nginx --file" "${files[@]}"
}


# The keeper of the ledger's file, likewise

suite_keeper() {
    SUITE_ENV=()
    run_suite keeper 1 perl "$@" :: --source="$BUILD/link/tree" \
        --build="$BUILD/keeper/out"
}


# Promo codes in the ledger in Redis, likewise

suite_stock() {
    SUITE_ENV=()
    run_suite stock 1 perl "$@" :: --source="$BUILD/link/tree" \
        --build="$BUILD/stock/out"
}


# test_nginx NAME FILE...: the same files each time; what differs is in the
# environment

test_nginx() {
    local name=$1 jobs=$TEST_JOBS files
    shift

    [ "$name" != asan ] || jobs=$ASAN_JOBS
    nginx_in_environment
    mapfile -t files < <(longest_first "$@")
    run_suite "$name" "$jobs" "perl t/build/slot.pl $TEST_OUT" "${files[@]}"
}


# So that none is left at the end that all wait for: whole machines take
# longest, then what starts servers of its own, then what has many blocks

longest_first() {
    local file own

    for file in "$@"; do
        own=1
        ! grep -q '^run_tests' "$file" || own=0
        [ "$file" = "${file#t/load/}" ] || own=2
        echo "$own $(wc -c < "$file") $file"
    done | sort -k1,1nr -k2,2nr | cut -d' ' -f3
}


suite_plain() {
    use_installed
    test_nginx plain "$@"
}


# Layers, access and bans again, counted in Redis: the answers are the same

suite_store() {
    use_installed
    SUITE_ENV=(SLOT_PERL=-MIapGuard::Redis)
    test_nginx store "$@"
}


# The module in nginx, not loaded: the order of handlers and filters could
# differ.  Not one of all suites, for it takes another build of nginx.

suite_static() {
    SUITE_ENV=()
    NGINX=$BUILD/static/nginx
    MODULE=
    test_nginx static "$@"
}


suite_hup() {
    use_installed
    SUITE_ENV=(TEST_NGINX_USE_HUP=1)
    test_nginx hup "$@"
}


suite_http2() {
    use_installed
    SUITE_ENV=(TEST_NGINX_USE_HTTP2=1 SLOT_PERL=-MIapHttp2Listen)
    test_nginx http2 "$@"
}


# Everything takes longer here.  A report of AddressSanitizer fails the suite
# also where no test looked: it may come when nginx ends.

suite_asan() {
    local rc=0

    use_asan
    rm -f "$ASAN_REPORTS"/*
    SUITE_ENV=(TEST_NGINX_TIMEOUT=10)
    test_nginx asan "$@" || rc=1
    no_asan_reports asan || rc=1

    return $rc
}


no_asan_reports() {
    local report n=0

    for report in "$ASAN_REPORTS"/*; do
        [ -e "$report" ] || return 0

        n=$((n + 1))
        [ $n -gt 3 ] || sed '/^SUMMARY/q' "$report"
        [ $n -gt 2 ] || note_failures "$1" "$(
            grep -m 12 -E '^=+[0-9]|^ +#[0-9]+ |^SUMMARY' "$report")"
    done

    replace_result "FAIL: $n reports in ${ASAN_REPORTS#"$ROOT/"}"
    return 1
}


# Whole machines of servers and clients.  Those that measure have this one for
# themselves, one after the other; the others say so, and belong to "plain" or,
# if they mostly wait but are timed, to "waits".

BESIDE='^# Runs beside others\.'
BESIDE_WAITING='^# Runs beside others that wait\.'

suite_waits() {
    local files

    # those of the drain take longest, and are first of all

    mapfile -t files < <(printf '%s\n' "$@" | sort -r)

    use_installed
    nginx_in_environment
    run_suite waits 3 "perl -It/lib" "${files[@]}"
}


suite_load() {
    use_installed
    nginx_in_environment
    run_suite load 1 "perl -It/lib" "$@"
}


# What ends while the store is asked, once more with AddressSanitizer

suite_ends() {
    local rc=0

    use_asan
    rm -f "$ASAN_REPORTS"/*
    nginx_in_environment
    run_suite ends 1 "perl -It/lib" "$@" || rc=1
    no_asan_reports ends || rc=1

    return $rc
}


use_installed() {
    NGINX=$(command -v nginx)
    MODULE=$BUILD/$MODULE_SO
    SUITE_ENV=()
}


nginx_in_environment() {
    SUITE_ENV+=(TEST_NGINX_BINARY="$NGINX" TEST_NGINX_LOAD_MODULES="$MODULE")
}


use_asan() {
    NGINX=$BUILD/asan/nginx
    MODULE=$BUILD/asan/$MODULE_SO
    SUITE_ENV=()
}


# files_of SUITE FILE...: those of the files that belong to the suite.  A
# pattern that matched no file is none.

files_of() {
    local suite=$1 file
    shift

    for file in "$@"; do
        [ -e "$file" ] || continue

        case $suite:$file in
            unit:t/unit/ut_*.c)     echo "$file" ;;
            plain:t/load/*.pl)
                ! grep -q "$BESIDE" "$file" || echo "$file" ;;
            waits:t/load/*.pl)
                ! grep -q "$BESIDE_WAITING" "$file" || echo "$file" ;;
            load:t/load/*.pl)
                grep -q -e "$BESIDE" -e "$BESIDE_WAITING" "$file" \
                    || echo "$file" ;;
            ledger:t/ledger/ledger_*.c) echo "$file" ;;
            ends:t/load/*_ends.pl)  echo "$file" ;;
            redis:t/redis/*/*)      ;;
            redis:t/redis/*.pl)     echo "$file" ;;
            link:t/redis/link/run)  echo "$file" ;;
            route:t/redis/route/run) echo "$file" ;;
            stock:t/redis/stock/run) echo "$file" ;;
            curl:t/curl/*.pl)       echo "$file" ;;
            keeper:t/ledger/keeper/run) echo "$file" ;;
            lint:t/build/lint*.t)   echo "$file" ;;
            *:t/build/lint*.t)      ;;
            perl:t/*/*.t)           echo "$file" ;;
            *:t/*/*.t)              ;;
            store:t/layer_zone_full.t) ;;
            store:t/layer_*.t | store:t/access_*.t | store:t/api_bans.t)
                                    echo "$file" ;;
            hup:t/*.t | http2:t/*.t)

                # what starts an nginx of its own would do the same again

                ! grep -q '^run_tests' "$file" || echo "$file" ;;
            plain:t/*.t | static:t/*.t | asan:t/*.t)
                                    echo "$file" ;;
        esac
    done
}


# run_suites [FILE...]: those in SUITES, else all; with files, those that the
# files belong to.  A suite without files has failed, or it would be missed.

run_suites() {
    local suite files named=$# failed=0

    [ $# -gt 0 ] || set -- t/unit/ut_*.c t/ledger/ledger_*.c t/*.t t/*/*.t \
                              t/load/*.pl t/redis/*.pl t/redis/link/run \
                              t/redis/route/run t/redis/stock/run t/curl/*.pl \
                              t/ledger/keeper/run

    for suite in ${SUITES:-$ALL_SUITES}; do
        declare -F "suite_$suite" > /dev/null || die "no suite \"$suite\""
        mapfile -t files < <(files_of "$suite" "$@")

        if [ ${#files[@]} -gt 0 ]; then
            prepare "$suite" "${files[@]}"
        fi
    done

    for suite in ${SUITES:-$ALL_SUITES}; do
        mapfile -t files < <(files_of "$suite" "$@")

        if [ ${#files[@]} -gt 0 ]; then
            "suite_$suite" "${files[@]}" || failed=1

        elif [ "$named" = 0 ]; then
            note_result "$suite" 0 0 0 "FAIL: no files"
            failed=1
        fi
    done

    [ ${#RESULTS[@]} -gt 0 ] || die "no suite has these files: $*"
    print_results
    return $failed
}
