# shellcheck shell=bash
# An apt of the rig's own: its sources, lists, state and downloads lie in the cache, and the user's are only read, to learn
# which mirror to ask. Nothing that is fetched here is installed on the host.

# The suite that holds a new enough QEMU (8 or later, for SR-IOV) and kernel (6.12), where the release itself does not.
declare -A NEWER_SUITE=([bookworm]=bookworm-backports)

# apt_setup: writes the configuration for $RELEASE and fetches the lists when there are none or they are a day old.
apt_setup() {
  APT=$CACHE/apt-$RELEASE
  NEWER=${NEWER_SUITE[$RELEASE]:-$RELEASE}
  # Another kernel than the newest, to see what the release's own does.
  KERNEL_SUITE=${VM_KERNEL:-$NEWER}
  mkdir -p "$APT"/{lists,cache}/partial "$APT/empty"
  : >"$APT/status"
  apt_configuration >"$APT/apt.conf"
  apt_sources >"$APT/sources.list"
  if [ ! -e "$APT/updated" ]; then
    apt_update || die "apt could not fetch the package lists"
  elif [ -n "$(find "$APT/updated" -mmin +1440)" ]; then
    apt_update || say "the package lists are more than a day old and could not be fetched anew: going on with them"
  fi
}

apt_update() {
  own_apt -qq update && touch "$APT/updated"
}

own_apt() {
  apt-get -c "$APT/apt.conf" "$@"
}

# The user's own apt.conf is read first (proxies, certificates); this is read last.
apt_configuration() {
  cat <<END
Dir::State "$APT/"; Dir::State::Lists "$APT/lists/"; Dir::State::status "$APT/status";
Dir::Cache "$APT/cache/"; Dir::Cache::archives "$APT/cache/"; Dir::Cache::pkgcache "pkgcache.bin"; Dir::Cache::srcpkgcache "srcpkgcache.bin";
Dir::Etc::sourcelist "$APT/sources.list"; Dir::Etc::sourceparts "$APT/empty";
Dir::Etc::preferences "/dev/null"; Dir::Etc::preferencesparts "$APT/empty";
APT::Architecture "amd64"; APT::Architectures "amd64"; APT::Default-Release "";
APT::Install-Recommends "false"; APT::Install-Suggests "false"; APT::Keep-Downloaded-Packages "true";
APT::Sandbox::User "root"; Acquire::Languages "none"; Acquire::Retries "3";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
END
}

# The settings that reach the mirror, for mmdebstrap, which reads none of the user's configuration.
apt_transport() {
  apt-config dump | grep -E '^Acquire::(https?::|Check-Valid-Until|Check-Date|Retries)' || true
}

apt_sources() {
  local archive security options="arch=amd64 target=Packages"
  [ ! -e $KEYRING ] || options+=" signed-by=$KEYRING"
  archive=$(mirror "$HOST_RELEASE-updates") || archive=$(mirror "$HOST_RELEASE") ||
    die "apt has no source for $HOST_RELEASE: the rig uses the mirror that apt uses"
  echo "deb [$options] $archive $RELEASE main"
  echo "deb [$options] $archive $RELEASE-updates main"
  security=$(mirror "$HOST_RELEASE-security") && echo "deb [$options] $security $RELEASE-security main"
  [ "$NEWER" = "$RELEASE" ] || echo "deb [$options] $archive $NEWER main"
}

KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg

# mirror SUITE: the address that the user's apt has for a suite; this reads its sources in whatever format they are.
mirror() {
  apt-get update --print-uris 2>/dev/null | sed -n "s,^'\(.*\)/dists/$1/InRelease'.*,\1,p" | grep -m1 .
}

# resolved SUITE PACKAGE...: the files that a bare system would install, one "name_version_arch.deb size hash" a line.
resolved() {
  own_apt -qq -y -t "$1" --print-uris install "${@:2}" | sed -n "s/^'[^']*' //p" | sort
}

# fetch SUITE FOLDER PACKAGE...: the packages and all that they need, as .debs in the folder.
fetch() {
  mkdir -p "$2/partial"
  own_apt -qq -y -t "$1" -o Dir::Cache::archives="$2/" --download-only install "${@:3}"
}

# fetch_only FOLDER PACKAGE: one package, without what it needs.
fetch_only() {
  mkdir -p "$1"
  (cd "$1" && own_apt -qq download "$2")
}
