"""The catalog's database on PostgreSQL, as text: its folder would be large, and of one version of it."""

import shutil
import subprocess
from pathlib import Path

from infra.local.service import host_port
from infra.local.services.postgres import DATABASE, USER, program_folder
from infra.local.supervisor import Stack

FILE = "catalog.sql"


def dump(stack: Stack, folder: Path) -> None:
    """Writes the database of a running stack to the folder."""
    _run(stack, "pg_dump", "--no-owner", f"--file={folder / FILE}")


def forget_database(stack: Stack) -> None:
    """Takes the server's own files away from a stack that has ended."""
    shutil.rmtree(stack.folder / "postgres")


def restore(stack: Stack, folder: Path) -> None:
    """Starts the database of a stack, empty, and reads the dump into it."""
    stack.start("postgres")
    _run(stack, "psql", "--quiet", "--set=ON_ERROR_STOP=1", f"--file={folder / FILE}")


def _run(stack: Stack, program: str, *arguments: str) -> None:
    programs = program_folder()
    assert programs is not None, "the stack would not have started"
    host, port = host_port(stack.address("postgres"))
    at = ("--host", host, "--port", str(port), "--username", USER, "--dbname", DATABASE)
    done = subprocess.run([programs / program, *at, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
