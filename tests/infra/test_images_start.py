"""Every room starts with what its image holds, no more: its requirement file alone in a fresh environment,
the folders that are copied, the variables that are set. The steps of the Dockerfiles are taken on this
machine, without a container engine and without the packages of Debian that they install."""

import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from infra.local.java import CLASSIC, find
from infra.local.jvm_parts import REPOSITORY
from infra.local.ports import LOOPBACK, reserve_free
from infra.local.supervisor import Stack
from tests.infra.support.dockerfile import IMAGES, Image, instructions
from tests.stack.support.waiting import wait_for

pytestmark = [pytest.mark.stack, pytest.mark.prove, pytest.mark.timeout(1800)]

EVERYWHERE = "0.0.0.0"
READY_S, END_S = 90.0, 60.0
TOPICS = '[{"name": "logs"}]'
# A root without its powers: what nobody may write to, it may not either.
POWERLESS = ("setpriv", "--inh-caps=-all", "--bounding-set=-all", "--") if os.geteuid() == 0 else ()


@pytest.mark.parametrize("room", ["catalog", "ingest", "ingest-spark", "optimize", "query", "ui"])
def test_a_room_starts_with_what_its_image_holds(room: str, stack: Stack, tmp_path: Path) -> None:
    """It becomes healthy by the image's own check over files that nobody may write to, and ends by SIGTERM;
    where the image has the native core it is used, and where it has a Java Spark starts."""
    image = Image(tmp_path, instructions(IMAGES / f"{room}.Dockerfile"))
    subprocess.run(["chmod", "-R", "a-w", tmp_path / "opt"], check=True)
    port = reserve_free()
    check = [re.sub(rf"{LOOPBACK}:\d+", f"{LOOPBACK}:{port}", word) for word in image.health_check()]
    variables = image.variables(given(room, stack, port, image.folder))
    if room == "catalog":
        make_keys(tmp_path, variables)
    log = tmp_path / "log"
    try:
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*POWERLESS, *command(image, room, port)],
                cwd=image.folder,
                env=variables,
                stdout=output,
                stderr=output,
            )
        try:
            wait_for(lambda: process.poll() is not None or is_well(check, variables), READY_S, room)
            assert process.poll() is None, log.read_text()
            look_inside(room, image, variables)
        finally:
            process.send_signal(signal.SIGTERM)
            code = process.wait(END_S)
        assert code in (0, -signal.SIGTERM), log.read_text()
    finally:
        subprocess.run(["chmod", "-R", "u+w", tmp_path / "opt"], check=True)
        shutil.rmtree(tmp_path / "opt")


def given(room: str, stack: Stack, port: int, folder: Path) -> dict[str, str]:
    """What an operator sets: where the others are, and here a port of its own on loopback."""
    match room:
        case "catalog":
            return {
                "FIRN_CATALOG_HTTP__HOST": LOOPBACK,
                "FIRN_CATALOG_HTTP__PORT": str(port),
                "FIRN_CATALOG_WAREHOUSE": f"file://{folder}/warehouse",
            }
        case "ingest" | "ingest-spark":
            node = {"FIRN_INGEST_NODE__HOST": LOOPBACK, "FIRN_INGEST_NODE__PORT": str(port)}
            return {**stack.environment(), "FIRN_INGEST_TOPICS": TOPICS, **node}
        case "optimize" | "query":
            prefix = f"FIRN_{room.upper()}_HTTP__"
            return {**stack.environment(), f"{prefix}HOST": LOOPBACK, f"{prefix}PORT": str(port)}
        case _:
            return {"FIRN_UI_API": "http://127.0.0.1:9"}


def command(image: Image, room: str, port: int) -> list[str]:
    """The image's command, on loopback."""
    words = [LOOPBACK if word == EVERYWHERE else word for word in image.command()]
    return [*words, *(["--port", str(port)] if room == "ui" else [])]


def make_keys(folder: Path, variables: dict[str, str]) -> None:
    """Makes the keys of all rooms, as the containers do: without one no catalog starts."""
    setup = [*POWERLESS, "python", str(REPOSITORY / "infra/compose/setup.py"), "keys", str(folder)]
    subprocess.run(setup, cwd=folder / "var/lib/firn", env=variables, check=True)
    keys = [file.read_text() for file in folder.glob("*-key")]
    assert len(set(keys)) == 4
    assert all(key.startswith("firn_") for key in keys)


def is_well(check: list[str], variables: dict[str, str]) -> bool:
    """Whether the image's health check passes."""
    return subprocess.run(check, env=variables, capture_output=True, check=False).returncode == 0


def look_inside(room: str, image: Image, variables: dict[str, str]) -> None:
    """Asks the image's own Python for the core, and has it start Spark."""

    def python(*arguments: str) -> str:
        done = subprocess.run(
            [*POWERLESS, "python", *arguments],
            cwd=image.folder,
            env=variables,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    if room in ("ingest", "ingest-spark", "optimize"):
        told = python("-c", "from lake import native_core; print(native_core.told())")
        assert told.strip() == f"used: {image.root}/opt/libfirn_core.so"
    if room == "optimize":
        jdk = find(CLASSIC)
        assert jdk is not None
        python("-m", "lake.short_spark", "", str(jdk.java.parents[1]), str(image.root / "opt/jars"))
        assert list((image.root / "opt/jars").glob("iceberg-spark-runtime*.jar"))
