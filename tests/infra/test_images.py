"""The images' Dockerfiles: hadolint finds nothing in them, and each is of its room alone. One more is of
ingestion on Spark."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from infra.local.jvm_parts import REPOSITORY
from lake.settings import CatalogSettings, IngestSettings, QuerySettings
from tests.infra.support.dockerfile import IMAGES, environment, instructions, last

FILES = sorted(IMAGES.glob("*.Dockerfile"))
ROOMS = [file.stem for file in FILES]
PINNED = re.compile(r"[a-z0-9/-]+:\d+\.\d+\.\d+-[a-z-]+")


def test_every_room_has_an_image_and_hadolint_finds_nothing() -> None:
    """One Dockerfile each, that keep all of its rules."""
    assert ROOMS == ["catalog", "ingest-spark", "ingest", "optimize", "query", "ui"]
    hadolint = Path(sys.executable).with_name("hadolint")
    found = subprocess.run([hadolint, *FILES], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout + found.stderr) == (0, "")


@pytest.mark.parametrize("file", FILES, ids=ROOMS)
def test_an_image_is_of_its_room_alone(file: Path) -> None:
    """Its last stage has the packages of one requirement file and the room's modules; it runs as a number
    that is not root's, says how it is, and carries this version."""
    image, steps = file.stem, instructions(file)
    room = image.removesuffix("-spark")
    stages = "\n".join(f"{step.keyword} {step.rest}" for step in steps).split("FROM ")[1:]
    (packages,) = (stage for stage in stages if stage.splitlines()[0].endswith(" AS packages"))
    copied = re.findall(r"COPY (\S+)", packages)
    own = ["ui", ".streamlit"] if room == "ui" else ["lake", room]
    assert copied == [f"requirements/{image}.txt", *own]
    assert "--require-hashes" in packages
    assert all(source.startswith("--from=") for source in re.findall(r"COPY (\S+)", stages[-1]))
    assert last(steps, "USER") == "10001:10001"
    assert last(steps, "VOLUME") == last(steps, "WORKDIR") == "/var/lib/firn"
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    assert f'org.opencontainers.image.version="{version}"' in last(steps, "LABEL")
    assert last(steps, "ENTRYPOINT") == f'["python", "-m", "{room}"]'


@pytest.mark.parametrize("file", FILES, ids=ROOMS)
def test_what_an_image_is_built_on_is_pinned_and_names_no_host(file: Path) -> None:
    """Every base is a name and a whole version."""
    for step in instructions(file):
        if step.keyword == "FROM":
            assert PINNED.fullmatch(step.rest.split()[0])


def test_images_expose_the_ports_that_rooms_listen_on() -> None:
    """The health check asks there, too."""
    ingest = IngestSettings.load()
    ports = {
        "catalog": [CatalogSettings.load().http.port],
        "ingest": [ingest.node.port, ingest.serve.port],
        "ingest-spark": [ingest.node.port],
        "query": [QuerySettings.load().http.port],
    }
    for file in FILES:
        steps = instructions(file)
        exposed = last(steps, "EXPOSE").split()
        told = [str(port) for port in ports.get(file.stem, [])]
        told = told or [environment(steps).get("FIRN_OPTIMIZE_HTTP__PORT", "8501")]
        assert exposed == told
        assert f"127.0.0.1:{exposed[0]}/" in last(steps, "HEALTHCHECK")
