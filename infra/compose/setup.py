"""Makes what a stack of containers keeps secret: `setup.py secrets FOLDER`, then `setup.py keys FOLDER`.

Runs in the catalog's image. `secrets` makes passwords at random; `keys`, once the database runs, an API key
of the catalog for each room that calls it. What is there already stays.
"""

import json
import secrets
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

# Each room's key, and its scope: what it does at the catalog, no more.
KEYS = {"ingest": "write", "query": "write", "optimize": "maintenance", "trino": "read"}


def make_secrets(folder: Path) -> None:
    """Writes the passwords, each into a file of its own."""
    password = keep(folder / "postgres-password", lambda: secrets.token_hex(32))
    keep(folder / "database-url", lambda: f"postgresql+psycopg://firn:{password}@postgres:5432/firn")
    keep(folder / "s3-secret", lambda: secrets.token_hex(20))
    keep(folder / "ingest-token", lambda: secrets.token_hex(32))
    keep(folder / "topic-signing-keys", lambda: json.dumps([secrets.token_hex(32)]))


def make_keys(folder: Path, create: Callable[[str, str], str]) -> None:
    """Writes the keys. `create` makes one of a room's name and a scope."""
    for room, scope in KEYS.items():
        keep(folder / f"{room}-key", partial(create, room, scope))


def create_key(room: str, scope: str) -> str:
    """Makes a key in the database that the catalog's settings name. Raises CalledProcessError."""
    command = [sys.executable, "-m", "catalog", "key", "create", "--scope", scope, "--note", room]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def keep(file: Path, make: Callable[[], str]) -> str:
    """What a file holds; where there is none it is made first, whole. Others in the container may read it."""
    if not file.exists():
        scratch = file.with_suffix(".new")
        scratch.write_text(make())
        scratch.chmod(0o444)
        scratch.rename(file)
    return file.read_text()


if __name__ == "__main__":
    verb, where = sys.argv[1:]
    if verb == "secrets":
        make_secrets(Path(where))
    else:
        make_keys(Path(where), create_key)
