#!/usr/bin/env bash
# Compiles one hashed requirements file per dependency group of pyproject.toml. `dev` holds the rooms' groups and pins them;
# `audit` and `docs` are environments of their own. No file names an index: each machine uses its own.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v uv >/dev/null || { echo "error: uv is missing; install it with: pip install uv" >&2; exit 1; }
options=(--universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header --quiet)
uv pip compile --group dev "${options[@]}" -o requirements/dev.txt
for tool in audit docs; do
    uv pip compile --group "$tool" "${options[@]}" -o "requirements/$tool.txt"
done
for room in catalog ingest ingest-spark optimize query ui infra; do
    uv pip compile --group "$room" "${options[@]}" --constraints requirements/dev.txt -o "requirements/$room.txt"
done
