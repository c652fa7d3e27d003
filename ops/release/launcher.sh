#!/bin/sh
# Gatehouse for Linux on @MACHINE@. It needs CPython 3.11 to 3.14 and no network: the first start installs the wheels beside this file.
#   ./gatehouse           start the service with an embedded PostgreSQL; Ctrl-C stops both
#   ./gatehouse --help    the commands
#   GATEHOUSE_PYTHON=FILE    use this Python
#   GATEHOUSE_PACKAGES=DIR   install the wheels in this directory; the default is packages/ beside this file
#   GATEHOUSE_ARGON2=wheel   use the generic build of Argon2
set -eu

say() { printf 'gatehouse: %s\n' "$*" >&2; }
die() { say "$@"; exit 1; }

here=$(dirname -- "$(readlink -f -- "$0")")
[ "$(uname -sm)" = 'Linux @MACHINE@' ] || die "this archive is for Linux on @MACHINE@, and this is $(uname -sm). Download the archive for it."

fits='import os, sys
fits = sys.implementation.name == "cpython" and (3, 11) <= sys.version_info[:2] <= (3, 14)
libc = os.confstr("CS_GNU_LIBC_VERSION").split()[-1] if fits else "0"
print("cp%d%d" % sys.version_info[:2] if fits and tuple(map(int, libc.split("."))) >= (2, 28) else "")'
needs='CPython 3.11 to 3.14 and glibc 2.28 or later'
for python in "${GATEHOUSE_PYTHON:-/usr/bin/python3}" python3.14 python3.13 python3.12 python3.11 python3; do
    tag=$("$python" -I -c "$fits" 2>/dev/null) && [ -n "$tag" ] && break
done || tag=''
[ -n "$tag" ] || die "$needs are needed. On Debian, run apt-get install python3 as root."
[ "$python" = "${GATEHOUSE_PYTHON:-$python}" ] || say "GATEHOUSE_PYTHON=$GATEHOUSE_PYTHON cannot be used: $needs are needed. $python is used instead."

# install DIRECTORY - install the wheels by their hashes. Two first starts at once install twice, and the second copy is removed.
install() {
    say "installing the packages for $("$python" -V), once ..."
    folder=$1 mask=$(umask)
    umask 022 # the service can be another user than the one that installs
    find "$folder" -maxdepth 1 -name '.new.*' -mmin +60 -exec rm -rf {} + 2>/dev/null || : # of a start that was killed
    mkdir -p "$folder" 2>/dev/null && new=$(mktemp -d "$folder/.new.XXXXXX" 2>/dev/null) ||
        die "the packages cannot be installed in $folder. Run this command once as root, or set GATEHOUSE_PACKAGES to a directory of yours."
    trap 'rm -rf "$new"' EXIT
    trap 'exit 130' HUP INT TERM
    mkdir "$new/temporary" # pip moves the files from here, and /tmp can be small
    unpacked=$new/temporary/pip # as files, pip starts faster than from its wheel, and it runs twice
    set -- install --quiet --no-index --find-links "$here/wheels" --no-cache-dir --disable-pip-version-check --no-deps \
        --only-binary :all: --require-hashes --root-user-action ignore --no-compile --target "$new"
    pip() { TMPDIR="$new/temporary" "$python" -I "$unpacked/pip" "$@"; }
    if ! errors=$({ "$python" -I -m zipfile -e "$here"/wheels/pip-*.whl "$unpacked" && pip "$@" -r "$here/requirements.txt" &&
        pip "$@" --implementation cp --python-version 3.11 --platform manylinux_2_28_@MACHINE@ -r "$here/postgresql.txt"; } 2>&1); then
        case $errors in
        *'No space left on device'* | *'Disk quota exceeded'*)
            die "no space is left in $folder. The packages need about 250 MB. Set GATEHOUSE_PACKAGES to a directory with space."
            ;;
        esac
        printf '%s\n' "$errors" >&2
        die 'the packages could not be installed. The message above says why.'
    fi
    rm -rf "$new/temporary"
    # On all processors, unlike pip, and with the names that the files get below. As with pip, a file that is only a template may fail.
    "$python" -I -m compileall -qq -j 0 -s "$new" -p "$packages" "$new" || :
    chmod 755 "$new"
    mv -T "$new" "$packages" 2>/dev/null || [ -d "$packages" ] || die "the packages cannot be moved to $packages."
    rm -rf "$new"
    trap - EXIT HUP INT TERM
    umask "$mask"
}

# A service that runs while its files are upgraded keeps its packages, because the hashes in the file differ.
tag=$tag-$(cksum <"$here/requirements.txt" | tr ' ' -)
packages=${GATEHOUSE_PACKAGES:-$here/packages}/$tag
[ -d "$packages" ] || install "${packages%/*}"

# The build for x86-64-v3 is about twice as fast as the wheel, which is for all processors of the architecture.
fast() {
    [ "${GATEHOUSE_ARGON2:-}" != wheel ] && [ -d "$here/argon2-x86-64-v3" ] || return 1
    # The systemd unit hides /proc/cpuinfo. The loader of glibc 2.33 or later knows the same features as a level.
    [ -e /proc/cpuinfo ] || { /lib64/ld-linux-x86-64.so.2 --help 2>/dev/null | grep -qsF "x86-64-v3 (supported" && return; }
    for feature in avx avx2 bmi1 bmi2 f16c fma abm movbe; do
        grep -qsw "$feature" /proc/cpuinfo || return 1
    done
}
PYTHONPATH=$packages
if fast; then PYTHONPATH=$here/argon2-x86-64-v3:$PYTHONPATH; fi
PYTHONSAFEPATH=1 # a module in the present directory is never imported
GATEHOUSE_COMMAND=${GATEHOUSE_COMMAND:-$0}
export PYTHONPATH PYTHONSAFEPATH GATEHOUSE_COMMAND
exec "$python" -s -m gatehouse "$@"
