"""A front end of a test's own, before an API of its own."""

from pathlib import Path

from tests.query.support.processes import Child


def start_front_end(api: str, folder: Path) -> Child:
    """`python -m ui serve` on the API at this address; the caller kills it."""
    return Child("ui", folder, {"FIRN_UI_API": api}, ready_path="/_stcore/health").start()
