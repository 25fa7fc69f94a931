# What must be installed, and how it gets there.  Read by build.sh.
#
# A command says need GROUP first.  That looks for what the group needs, and
# as long as all is there it calls no apt and takes no time.  Only what is
# missing is installed, on Debian, as root or through sudo; elsewhere it is
# named, and nothing is done.

APT_LOG=$BUILD/setup.log
CACHE=$BUILD/cache

# Debian's users do not have these in PATH; nginx is there.

PATH=$PATH:/usr/sbin:/sbin


# What is looked for, Debian's package for it, and the groups that need it.
# A package that is not in every release of Debian is marked with the one it
# comes from (see install_from).

NEEDS="
command:cc                              gcc                 c
header:stdlib.h                         libc6-dev           c
command:make                            make                c
header:openssl/evp.h                    libssl-dev          c
header:jansson.h                        libjansson-dev      nginx tree
header:hiredis/hiredis.h                libhiredis-dev      nginx tree
header:sqlite3.h                        libsqlite3-dev      nginx tree
header:curl/curl.h                      libcurl4-openssl-dev nginx tree
header:pcre2.h                          libpcre2-dev        tree
header:zlib.h                           zlib1g-dev          tree
command:nginx                           nginx               nginx
file:/usr/share/nginx/src/conf_flags    nginx-dev           nginx
perl:Test/Harness.pm                    perl                perl
command:curl                            curl                http
command:wrk                             wrk                 wrk
command:promtool                        prometheus          tests
command:ip                              iproute2            net
command:python3                         python3             tests
command:redis-server                    redis-server        redis
command:redis-cli                       redis-tools         redis
file:/usr/lib/nginx/modules/ngx_http_lua_module.so libnginx-mod-http-lua lua
file:/usr/share/lua/5.1/nginx/redis.lua lua-nginx-redis     lua
perl:Test/Nginx/Socket.pm               libtest-nginx-perl@sid  testnginx
"

# The groups of each command.

NEED_BUILD=(c nginx)
NEED_TREE=(c tree)
NEED_UNIT=(c perl)
NEED_LINT=(c perl testnginx)
NEED_DEMO=(c nginx perl http)
NEED_BENCH=(c nginx perl wrk redis lua)
NEED_TEST=(c nginx tree perl http wrk tests redis net testnginx)


is_there() {
    local what=${1#*:}

    case $1 in
        command:*) command -v "$what" > /dev/null ;;
        file:*)    [ -e "$what" ] ;;
        header:*)  echo "#include <$what>" \
                       | cc -E -DPCRE2_CODE_UNIT_WIDTH=8 -x c - \
                       > /dev/null 2>&1 ;;
        perl:*)    perl -e 'exit !grep { -e "$_/$ARGV[0]" } @INC' "$what" ;;
    esac
}


# missing GROUP...: lines "WHAT PACKAGE", of what is not there

missing() {
    local what package groups group

    while read -r what package groups; do
        for group in $groups; do
            case " $* " in
                *" $group "*)
                    is_there "$what" || echo "$what $package"
                    break ;;
            esac
        done
    done <<< "${NEEDS#?}"
}


need() {
    local lines packages

    lines=$(missing "$@")
    [ -z "$lines" ] && return

    name_missing "$lines"

    command -v apt-get > /dev/null && [ -e /etc/debian_version ] \
        || die "install that and try again"

    packages=$(cut -d' ' -f2 <<< "$lines" | sort -u)
    locked install_packages "$packages"

    lines=$(missing "$@")
    if [ -n "$lines" ]; then
        name_missing "$lines"
        die "it is still missing"
    fi
}


name_missing() {
    local what package

    while read -r what package; do
        say "missing: ${what#*:} (Debian's package ${package%@*})"
    done <<< "$1"
}


as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo > /dev/null; then
        sudo "$@"
    else
        die "needs root (or sudo) for: $*"
    fi
}


# apt_get OPTION... ACTION...: apt's words go into a file, and are shown only
# when it fails.

apt_get() {
    mkdir -p "$BUILD"
    printf '\n# apt-get %s\n' "$*" >> "$APT_LOG"

    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get -q -y -o Dpkg::Use-Pty=0 "$@" < /dev/null >> "$APT_LOG" 2>&1 \
    || {
        tail -n 20 "$APT_LOG" >&2
        die "apt-get failed; all its words are in $APT_LOG"
    }
}


# install_packages "PACKAGE PACKAGE@RELEASE ...": with the services that
# packages would start held back, as long as it takes

install_packages() {
    local package own=() foreign=()

    for package in $1; do
        case $package in
            *@*) foreign+=("$package") ;;
            *)   own+=("$package") ;;
        esac
    done

    say "fetching Debian's package lists"
    apt_get update

    hold_services
    trap release_services EXIT

    if [ ${#own[@]} -gt 0 ]; then
        say "installing ${own[*]} (apt's words: ${APT_LOG#"$ROOT/"})"
        apt_get --no-install-recommends install "${own[@]}"
    fi

    for package in ${foreign[@]+"${foreign[@]}"}; do
        install_from "${package#*@}" "${package%@*}"
    done
}


# Debian asks this program before it starts a service.  One that is there
# already is somebody's decision, and stays.

POLICY=/usr/sbin/policy-rc.d

hold_services() {
    [ -e $POLICY ] && return
    HELD=1
    printf '#!/bin/sh\nexit 101\n' | as_root tee $POLICY > /dev/null
    as_root chmod 755 $POLICY
}

release_services() {
    [ -z "${HELD:-}" ] || as_root rm -f $POLICY
}


# The archives of the running release, as apt has been told of them, be it in
# lines or in deb822 stanzas: "URI RELEASE COMPONENT".  The first is of the
# archive called "Debian", not "Debian-Security" or the like.

debian_archives() {
    local archives

    archives=$(list_archives)
    if [ -z "$archives" ]; then
        apt_get update
        archives=$(list_archives)
    fi

    [ -n "$archives" ] || die "apt knows no archive of Debian's"
    echo "$archives"
}

list_archives() {
    apt-get indextargets \
            --format '$(ORIGIN)|$(LABEL)|$(REPO_URI) $(RELEASE) $(COMPONENT)' \
            'Created-By: Packages' \
        | sed -n 's/^Debian|//p' | sort -u -t'|' -k1,1 -k2 | cut -d'|' -f2
}


# apt_aside NAME ACTION...: apt-get with the sources in CACHE/NAME.list and
# lists of its own, so that the system's stay as they are.  Needs no root.
# The lists may be old: a mirror that is a snapshot, and says so with its
# dates, has what is wanted here, too.

apt_aside() {
    local list=$CACHE/$1.list lists=$CACHE/$1.lists
    shift

    mkdir -p "$lists/partial"
    printf '\n# apt-get %s\n' "$*" >> "$APT_LOG"

    apt-get -q -y \
        -o Dir::Etc::sourcelist="$list" -o Dir::Etc::sourceparts=/dev/null \
        -o Dir::State::lists="$lists" \
        -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= \
        -o Acquire::Languages=none -o Acquire::Check-Valid-Until=false \
        -o APT::Sandbox::User=root "$@" < /dev/null >> "$APT_LOG" 2>&1 \
    || {
        tail -n 20 "$APT_LOG" >&2
        die "apt-get $* failed; all its words are in $APT_LOG"
    }
}

# source_line TYPE URI RELEASE COMPONENT: sid's key is in Debian's keyring,
# but a system may trust less than that

source_line() {
    local keyring=/usr/share/keyrings/debian-archive-keyring.gpg options=

    [ -e $keyring ] && options="[signed-by=$keyring] "
    echo "$1 $options$2 $3 $4"
}


# install_from RELEASE PACKAGE: that one package from another release; what
# it depends on comes from the running one.

install_from() {
    local release=$1 package=$2 uri

    say "installing $package: only Debian's $release has it"
    mkdir -p "$CACHE"

    if ! compgen -G "$CACHE/${package}_*.deb" > /dev/null; then
        uri=$(debian_archives | sed -n '1{s/ .*//;p}')
        source_line deb "$uri" "$release" main > "$CACHE/$release.list"

        apt_aside "$release" update
        (cd "$CACHE" && apt_aside "$release" download "$package")
        rm -rf "$CACHE/$release.lists"
    fi

    apt_get --no-install-recommends -o APT::Sandbox::User=root \
        install "$CACHE/${package}"_*.deb
}


# fetch_nginx_source VERSION TREE: the source of the nginx that is installed,
# without Debian's patches

fetch_nginx_source() {
    local version=$1 tree=$2 archives archive

    if [ -z "$(nginx_tarball "$version")" ]; then
        say "fetching the source of nginx $version"
        mkdir -p "$CACHE"

        archives=$(debian_archives)
        while read -r archive; do
            # shellcheck disable=SC2086
            source_line deb-src $archive
        done <<< "$archives" > "$CACHE/source.list"

        apt_aside source update
        (cd "$CACHE" && apt_aside source source --download-only --tar-only \
            "nginx=$(dpkg-query -W -f '${source:Version}' nginx)")
        rm -rf "$CACHE/source.lists"
    fi

    [ -n "$(nginx_tarball "$version")" ] \
        || die "Debian's source of nginx is not of version $version"

    rm -rf "$tree.new"
    mkdir -p "$tree.new"
    tar -C "$tree.new" --strip-components=1 -xf "$(nginx_tarball "$version")"
    mv "$tree.new" "$tree"
}

# beside it lies its signature, .asc

nginx_tarball() {
    compgen -G "$CACHE/nginx_$1.orig.tar.[gx]z" || true
}
