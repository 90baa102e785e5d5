"""What `make` sets up: all that the tests want, and for the demo what that wants."""

import subprocess

from infra.local import class_recording, core_build, jvm_parts
from infra.local.jvm_parts import REPOSITORY


def _fetched(target: str) -> list[list[str]]:
    """The parts of each call of `python -m infra fetch`."""
    told = subprocess.run(
        ["make", "--dry-run", target], cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=True
    ).stdout
    return [
        line.partition(" infra fetch ")[2].split() for line in told.splitlines() if " infra fetch " in line
    ]


def test_the_set_up_fetches_every_part_and_then_records_their_classes() -> None:
    """Those of Spark are recorded by its Python package, which comes beside the parts."""
    parts, classes = _fetched("setup")
    assert sorted(parts) == sorted([*jvm_parts.SERVICES, core_build.NAME])
    assert classes == [class_recording.NAME]


def test_the_demo_does_without_the_s3_of_the_tests() -> None:
    for target in ("demo", "demo-check"):
        parts, classes = _fetched(target)
        assert {*parts, "s3"} == {*jvm_parts.SERVICES, core_build.NAME}
        assert "s3" not in parts
        assert classes == [class_recording.NAME]
