#!/usr/bin/env bash
# Format, lints and tests of the native core, as far as this machine has the tools: cargo, rustfmt, clippy.
set -euo pipefail
cd "$(dirname "$0")"
has() { command -v "$1" >/dev/null 2>&1; }
without() { echo "core: no $1 here, so $2"; }

has cargo || { without cargo "the native core is not checked"; exit 0; }
if has rustfmt; then cargo fmt --check; else without rustfmt "its format is not checked"; fi
if has cargo-clippy; then
  cargo clippy --quiet --locked --offline --all-targets -- --deny warnings
else
  without clippy "its lints are not checked"
fi
cargo test --quiet --locked --offline
