"""A front end of a test's own, before an API of its own."""

from collections.abc import Callable, Mapping
from pathlib import Path

from infra.local.ports import LOOPBACK, reserve_free
from tests.query.support.processes import Child


def start_front_end(
    api: str, folder: Path, login: Callable[[str], Mapping[str, str]] = lambda _: {}
) -> Child:
    """`python -m ui serve` on the API at this address; the caller kills it. `login`: variables of logging in,
    by the address that the pages will have."""
    port = reserve_free()
    variables = {"FIRN_UI_API": api, **login(f"http://{LOOPBACK}:{port}")}
    return Child("ui", folder, variables, ready_path="/_stcore/health", port=port).start()
