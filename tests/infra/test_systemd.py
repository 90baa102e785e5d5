"""The units of infra/systemd: each starts what an image starts, and may do as little."""

from configparser import ConfigParser
from pathlib import Path

import orjson
import pytest

from infra.local.jvm_parts import REPOSITORY
from tests.infra.support.dockerfile import IMAGES, instructions, last

UNITS = sorted((REPOSITORY / "infra/systemd").glob("firn-*.service"))


def read(file: Path) -> ConfigParser:
    """A unit's sections; names are as they are written."""
    unit = ConfigParser(interpolation=None, strict=True)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(file.read_text())
    return unit


def test_every_program_of_the_images_has_a_unit() -> None:
    """The same rooms and verbs; the tools of ingestion are a second program of its image."""
    started = {unit["Service"]["ExecStart"].split(" -m ")[1] for unit in map(read, UNITS)}
    of_images = {"ingest serve"}
    for file in IMAGES.glob("*.Dockerfile"):
        verb = orjson.loads(last(instructions(file), "CMD"))[0]
        of_images.add(f"{file.stem.removesuffix('-spark')} {verb}")
    assert started == of_images


@pytest.mark.parametrize("file", UNITS, ids=lambda file: file.stem)
def test_a_unit_has_no_powers_and_writes_to_its_state_alone(file: Path) -> None:
    """Not root, all but the state folder read-only; what it comes after is a unit, too."""
    unit = read(file)
    service = unit["Service"]
    assert service["User"] == service["StateDirectory"] == "firn"
    assert service["WorkingDirectory"] == "/var/lib/firn"
    assert service["ProtectSystem"] == "strict"
    assert (service["NoNewPrivileges"], service["CapabilityBoundingSet"]) == ("yes", "")
    after = set(unit["Unit"]["After"].split()) - {"network-online.target"}
    assert after <= {other.name for other in UNITS}
