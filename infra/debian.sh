#!/usr/bin/env bash
# Installs what Firn needs from Debian's packages: Java and Maven for the stack, PostgreSQL's server for the tests, Chromium and fonts for
# the browser tests. Does nothing where the programs are there already; asks nothing.
set -euo pipefail

missing=()
has() { command -v "$1" >/dev/null 2>&1; }
has_any() { for path in "$@"; do [ -e "$path" ] && return 0; done; return 1; }

has java || missing+=(openjdk-17-jre-headless)
has mvn || missing+=(maven)
has initdb || has_any /usr/lib/postgresql/*/bin/initdb || missing+=(postgresql)
has setpriv || missing+=(util-linux)
has chromium-headless-shell || missing+=(chromium-headless-shell)
has_any /usr/share/fonts/truetype/dejavu/*.ttf || missing+=(fonts-dejavu-core)

if [ ${#missing[@]} -eq 0 ]; then
  echo "debian.sh: everything is installed already"
  exit 0
fi
if ! has apt-get; then
  echo "debian.sh: this is no Debian system; install by its own means what these Debian packages bring: ${missing[*]}" >&2
  exit 1
fi
root=()
if [ "$(id -u)" -ne 0 ]; then
  has sudo || { echo "debian.sh: run as root: apt-get update && apt-get install --yes ${missing[*]}" >&2; exit 1; }
  root=(sudo)
fi

echo "debian.sh: installing ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
run() {
  if ! "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get --quiet --option Acquire::Retries=3 --option DPkg::Lock::Timeout=300 "$@" >"$log" 2>&1 </dev/null; then
    tail -n 20 "$log" >&2
    echo "debian.sh: 'apt-get $*' failed; its last lines are above. Check the network and /etc/apt, then run this script again" >&2
    exit 1
  fi
}
run update
run install --yes --no-install-recommends "${missing[@]}"
echo "debian.sh: done"
