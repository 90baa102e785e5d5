"""Apache Iceberg's own CatalogTests and ViewCatalogTests, through its RESTCatalog, against the live
server."""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.local.jvm_parts import cache_folder
from tests.catalog.conftest import Postgres, Server

pytestmark = pytest.mark.stack

JVM = Path(__file__).parent / "jvm"


@pytest.fixture(scope="session")
def jars() -> Path:
    """Iceberg's tests and what they need, downloaded once per version of the pom."""
    pom = JVM / "pom.xml"
    target = cache_folder() / f"catalog-tests-{hashlib.sha256(pom.read_bytes()).hexdigest()[:12]}"
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix="tmp-catalog-tests-", dir=target.parent))
        command = [
            "mvn",
            "-q",
            "--batch-mode",
            "--no-transfer-progress",
            "-f",
            str(pom),
            f"-DoutputDirectory={scratch}",
            "generate-resources",
        ]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=1_200, check=False)
        assert answer.returncode == 0, (
            f"Maven could not download the conformance tests:\n{answer.stdout[-3000:]}"
        )
        try:
            scratch.rename(target)
        except OSError:  # another run was faster
            shutil.rmtree(scratch)
    return target


@pytest.fixture
def roomy_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    """A live catalog that allows the locations Iceberg's tests choose, below the temporary folder."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/catalog.db"
    else:
        postgres: Postgres = request.getfixturevalue("postgres")
        url = postgres.new_database(f"conformance{os.urandom(4).hex()}")
    allowed = f'["file:///tmp", "file://{tempfile.gettempdir()}"]'
    running = Server(tmp_path, url, environment={"FIRN_CATALOG_ALLOWED_LOCATIONS": allowed})
    try:
        yield running.start()
    finally:
        running.stop()


# A minute of a processor; Trino and Spark, which other tests start, speak through the same client.
@pytest.mark.prove
@pytest.mark.parametrize("roomy_server", ["sqlite", "postgres"], indirect=True)
def test_icebergs_own_tests_pass(roomy_server: Server, jars: Path, tmp_path: Path) -> None:
    """Iceberg's table and view catalog tests run without a failure; those that end early do so by an
    assumption of their own."""
    classes = tmp_path / "classes"
    sources = [str(path) for path in sorted((JVM / "src").glob("*.java"))]
    subprocess.run(["javac", "-cp", f"{jars}/*", "-d", str(classes), *sources], check=True, timeout=300)
    command = [
        "java",
        "-Xmx1g",
        f"-Dfirn.catalog.uri={roomy_server.url}",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
        "-cp",
        f"{classes}:{jars}/*",
    ]
    launcher = [
        "org.junit.platform.console.ConsoleLauncher",
        "execute",
        "-c",
        "LiveTableTests",
        "-c",
        "LiveViewTests",
        "--details=summary",
        "--disable-banner",
    ]
    answer = subprocess.run([*command, *launcher], capture_output=True, text=True, timeout=280, check=False)
    counts = {name: int(count) for count, name in re.findall(r"\[\s*(\d+) tests (\w+)", answer.stdout)}
    assert counts.get("failed") == 0, answer.stdout[-6000:]
    assert counts["found"] >= 157
    assert counts["skipped"] == 0
    assert counts["successful"] >= 152
