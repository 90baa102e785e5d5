"""Prometheus' own tool, which infra/debian.sh brings."""

import shutil
import subprocess

from infra.local.jvm_parts import REPOSITORY

FOLDER = REPOSITORY / "infra/prometheus"


def promtool(*arguments: str) -> str:
    """Returns what promtool prints, run where the rules are, and fails with it where something is wrong."""
    program = shutil.which("promtool")
    assert program is not None, "promtool is missing: `make setup` installs it"
    done = subprocess.run([program, *arguments], cwd=FOLDER, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
