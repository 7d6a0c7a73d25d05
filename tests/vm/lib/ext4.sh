# shellcheck shell=bash
# ext4.sh FOLDER: makes FOLDER/image/root.ext4 of FOLDER/root.tar. No mount: mke2fs copies a tree into the file system.
set -euo pipefail
mkdir "$1/root"
tar -C "$1/root" --numeric-owner --exclude='./boot/*' --exclude='./dev/*' -xf "$1/root.tar"
# Newer mmdebstraps keep the empty folder.
mkdir -p "$1/root/dev"
size=$(du -sm "$1/root" | cut -f1)
# The image is only read: no journal, no spare blocks.
PATH=$PATH:/usr/sbin:/sbin mke2fs -q -t ext4 -O '^has_journal,^metadata_csum' -m 0 -E root_owner=0:0 -L guest \
  -d "$1/root" "$1/image/root.ext4" "$((size + size / 5 + 64))M" >/dev/null
rm -rf "$1/root" "$1/root.tar"
