# shellcheck shell=bash
# What runs on the host: a few packages of the release, installed, and QEMU, unpacked in the cache with the libraries it needs.

declare -A PACKAGE_OF=([mmdebstrap]=mmdebstrap [mke2fs]=e2fsprogs [setpriv]=util-linux [newuidmap]=uidmap [tar]=tar)

# need COMMAND...: root installs what is missing, anyone else is told what to install.
need() {
  local command packages=()
  for command in "$@"; do
    PATH=$PATH:/usr/sbin:/sbin command -v "$command" >/dev/null || packages+=("${PACKAGE_OF[$command]}")
  done
  [ ${#packages[@]} -gt 0 ] || return 0
  [ "$(id -u)" = 0 ] || die "not installed: ${packages[*]}. Type: sudo apt-get install --no-install-recommends ${packages[*]}"
  say "installing ${packages[*]}"
  apt-get -qq update
  DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o DPkg::Lock::Timeout=300 --no-install-recommends install "${packages[@]}" >/dev/null
}

# An ordinary user's image is made by ids that are the user's own too; mmdebstrap reads these files.
need_subordinate_ids() {
  local file user ids=100000-165535
  user=$(id -un)
  for file in /etc/subuid /etc/subgid; do
    grep -qsE "^($user|$(id -u)):" "$file" || die "$file has no line of $user: the image needs subordinate ids. Type:" \
      "sudo usermod --add-subuids $ids --add-subgids $ids $user (other ids where somebody has these)"
  done
}

# qemu_resolve: sets QEMU to the folder of the unpacked QEMU that the lists offer now.
qemu_resolve() {
  local files
  files=$(resolved "$NEWER" qemu-system-x86)
  [ -n "$files" ] || die "apt finds no qemu-system-x86 in $NEWER"
  QEMU=$CACHE/qemu-$(digest <<<"$files")
}

# qemu_unpack FOLDER: from the .debs in the folder; not installed, so that neither root nor the host's version matters.
qemu_unpack() {
  local deb debs=("$1"/*.deb)
  say "unpacking QEMU and its libraries in the cache, ${#debs[@]} packages of $NEWER"
  mkdir "$1/root"
  for deb in "${debs[@]}"; do dpkg-deb -x "$deb" "$1/root"; done
  rm -rf "$1"/root/usr/share/{doc,man,locale,info}
  mv "$1/root" "$QEMU"
}

# qemu_command: sets COMMAND to what starts it. Its own loader and libraries: the host's may be older or newer.
qemu_command() {
  local loader libraries
  loader=$(find "$QEMU" -name ld-linux-x86-64.so.2 -type f | head -1)
  libraries=$(find "$QEMU" -name '*.so.*' -printf '%h\n' | sort -u | paste -sd:)
  COMMAND=("$loader" --library-path "$libraries" "$QEMU/usr/bin/qemu-system-x86_64"
    -L "$QEMU/usr/share/seabios" -L "$QEMU/usr/share/qemu")
  export QEMU_MODULE_DIR=$QEMU/usr/lib/x86_64-linux-gnu/qemu
}
