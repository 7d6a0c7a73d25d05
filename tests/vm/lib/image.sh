# shellcheck shell=bash
# The guest's image: kernel, initrd and root, built once for each set of inputs. No loop device, no mount, no root needed.

# image_resolve: sets IMAGE to the folder of the image that fits the inputs, and KERNEL_PACKAGE to the newest kernel.
image_resolve() {
  local packages kernel root
  mapfile -t packages < <(image_packages)
  kernel=$(resolved "$KERNEL_SUITE" linux-image-amd64 | grep -E '^linux-image-[0-9][^_]*-amd64_') ||
    die "apt finds no kernel in $KERNEL_SUITE"
  root=$(resolved "$RELEASE" '?essential' apt "${packages[@]}")
  [ -n "$root" ] || die "apt cannot resolve image/packages in $RELEASE"
  KERNEL_PACKAGE=${kernel%%_*}
  IMAGE=$CACHE/image-$( (image_files && echo "$kernel" && echo "$root") | digest)
}

image_packages() { sed 's/#.*//; /^\s*$/d' "$HERE/image/packages"; }

# Everything of this folder that the image is made from.
image_files() {
  find "$HERE/image" -type f | LC_ALL=C sort | while IFS= read -r file; do echo "${file#"$HERE"}"; cat "$file"; done
  cat "$HERE/lib/image.sh" "$HERE/lib/ext4.sh"
}

# image_build FOLDER: the image, from the kernel's .deb in the folder.
image_build() {
  local mode=root
  [ "$(id -u)" = 0 ] || mode=unshare
  say "building the image: $KERNEL_PACKAGE, $RELEASE"
  mkdir "$1/rig-build" "$1/image"
  cp -r "$HERE/image" "$1/rig-build/image"
  mv "$1"/*.deb "$1/rig-build/kernel.deb"
  apt_transport >"$1/transport.conf"
  # The hook's files go in through mmdebstrap: in unshare mode it runs as a user that may not read the home folder.
  # shellcheck disable=SC2016 # $1 is the hook's.
  # HOME: dpkg complains about one that it may not read.
  (cd "$1" && HOME=/ nice mmdebstrap --quiet --variant=minbase --mode=$mode --include="$(image_packages | paste -sd,)" \
    --skip=output/dev --aptopt=transport.conf --aptopt='APT::Install-Recommends "false"' \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/info/*' \
    --customize-hook='copy-in rig-build /' --customize-hook='chroot "$1" sh /rig-build/image/customize' \
    "$RELEASE" root.tar - <"$APT/sources.list")
  tar -C "$1/image" --strip-components=2 -xf "$1/root.tar" ./boot/vmlinuz ./boot/initrd ./boot/version
  as_owner_of_all bash "$HERE/lib/ext4.sh" "$1"
  mv "$1/image" "$IMAGE"
}

# as_owner_of_all COMMAND...: as root, or as one who is root among the user's own subordinate ids, so that the image's files
# keep their owners.
as_owner_of_all() {
  if [ "$(id -u)" = 0 ]; then "$@"; else unshare --user --map-root-user --map-auto -- "$@"; fi
}
