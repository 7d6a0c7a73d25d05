# shellcheck shell=bash
# What every script of the rig starts from: where things are, and how it speaks.
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/numa-run/vm
HOST_RELEASE=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
# The release of the guest; another than the host's to see whether the rig works there.
RELEASE=${VM_RELEASE:-$HOST_RELEASE}

say() { echo "vm: $*" >&2; }
die() { say "$*"; exit 1; }
digest() { sha256sum | cut -c1-16; }
last_words() { tail -n 3 "$1" 2>/dev/null | tr -d '\r' | tr '\n' ' ' | cut -c1-160; }

# shellcheck disable=SC1090 # Each of them is checked by itself.
for part in apt tools image shape tests capture; do source "$HERE/lib/$part.sh"; done
