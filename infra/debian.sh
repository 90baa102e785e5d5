#!/usr/bin/env bash
# Installs what Firn needs from Debian's packages: Java and Maven for the stack, PostgreSQL's server for the tests,
# Chromium and fonts for the browser tests, promtool and Alertmanager for those of alerts; and a compiler for the native
# core, without which Firn runs, too. Does nothing where the programs are there already; asks nothing.
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
has promtool || missing+=(promtool)
has prometheus-alertmanager && has_any /usr/share/prometheus/alertmanager/default.tmpl || missing+=(prometheus-alertmanager)

# What the native core is built with.
rust=()
has cargo || rust+=(cargo)
has cc || rust+=(gcc libc6-dev)

if [ ${#missing[@]} -eq 0 ] && [ ${#rust[@]} -eq 0 ]; then
  echo "debian.sh: everything is installed already"
  exit 0
fi
without_core() { echo "debian.sh: without ${rust[*]} the native core is not built, and Firn does its work in Python"; }
give_up() {
  if [ ${#missing[@]} -eq 0 ]; then
    without_core
    exit 0
  fi
  echo "debian.sh: $1 ${missing[*]/promtool/prometheus}" >&2
  exit 1
}
has apt-get || give_up "this is no Debian system; install by its own means what these Debian packages bring:"
root=()
if [ "$(id -u)" -ne 0 ]; then
  has sudo || give_up "run as root: apt-get update && apt-get install --yes"
  root=(sudo)
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() {
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get --quiet --option Acquire::Retries=3 --option DPkg::Lock::Timeout=300 "$@" >"$log" 2>&1 </dev/null
}
run() {
  if ! apt "$@"; then
    tail -n 20 "$log" >&2
    echo "debian.sh: 'apt-get $*' failed; its last lines are above. Check the network and /etc/apt, then run this script again" >&2
    exit 1
  fi
}
# Files of a package alone, for the tests of alerts: installed, the packages would start servers.
take() {
  local package=$1 program=$2 folder
  folder=$(mktemp -d)
  (cd "$folder" && apt-get --quiet download "$package") >"$log" 2>&1 &&
    dpkg-deb --extract "$folder/$package"_*.deb "$folder" &&
    "${root[@]}" install -m 755 "$folder/usr/bin/$program" "/usr/local/bin/$program" ||
    { tail -n 20 "$log" >&2; echo "debian.sh: $program could not be taken out of the package $package" >&2; exit 1; }
  # Alertmanager reads its texts where the package has them.
  if [ "$package" = prometheus-alertmanager ]; then
    "${root[@]}" install -D -m 644 -t /usr/share/prometheus/alertmanager "$folder"/usr/share/prometheus/alertmanager/*.tmpl
  fi
  rm -rf "$folder"
}
if [ ${#missing[@]} -gt 0 ]; then
  echo "debian.sh: installing ${missing[*]}"
  run update
  packages=("${missing[@]/promtool/}")
  packages=("${packages[@]/prometheus-alertmanager/}")
  # shellcheck disable=SC2068 # one may be empty
  run install --yes --no-install-recommends ${packages[@]}
  has promtool || take prometheus promtool
  case " ${missing[*]} " in *" prometheus-alertmanager "*) take prometheus-alertmanager prometheus-alertmanager ;; esac
else
  apt update || true
fi
if [ ${#rust[@]} -gt 0 ]; then
  # Debian 12's rustc is too old, and its rustc-web is not; later ones have no rustc-web.
  packages=("${rust[@]/#cargo/cargo rustc}")
  if apt-cache show cargo-web >/dev/null 2>&1; then
    packages=("${rust[@]/#cargo/cargo-web rustc-web}")
  fi
  echo "debian.sh: installing ${packages[*]}"
  # shellcheck disable=SC2068 # two names in one
  if ! apt install --yes --no-install-recommends ${packages[@]}; then
    tail -n 5 "$log"
    without_core
  fi
fi
echo "debian.sh: done"
