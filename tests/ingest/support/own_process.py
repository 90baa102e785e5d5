"""What runs in a process of its own, since it limits that process's memory."""

import json
import subprocess
import sys
from typing import Any


def in_a_process(module: str, *arguments: str) -> dict[str, Any]:
    """Runs a module of this folder to its end; the JSON that it prints. Fails where it fails."""
    command = [sys.executable, "-m", f"tests.ingest.support.{module}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]
    told: dict[str, Any] = json.loads(done.stdout)
    return told
