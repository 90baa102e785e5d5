"""What Maven brings: compared with our own list before anything is installed, and without the versions whose
holes are known."""

import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from infra.local import java, jvm_parts, part_hashes
from infra.local.supervisor import Stack
from lake.errors import PrerequisiteError
from lake.spark_session import SparkOptions, open_context
from tests.security.support.fixed_versions import FIXED

JAR = re.compile(r"(?:.*_)?(?P<artifact>[A-Za-z][\w.-]*?)-(?P<version>\d+(?:\.\d+)*)[^/]*\.jar")
NEEDED = {fixed.artifact: fixed for fixed in FIXED}


def _too_old(jars: Iterator[Path]) -> list[str]:
    """Jars below their fixed version, with the reason."""
    named = [
        (jar, found) for jar in jars if (found := JAR.fullmatch(jar.name)) and found["artifact"] in NEEDED
    ]
    return [
        f"{jar}: {NEEDED[found['artifact']].reason}"
        for jar, found in named
        if _version(found["version"]) < NEEDED[found["artifact"]].version
    ]


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


# ---- known holes (35)


@pytest.mark.finding(35)
@pytest.mark.stack
def test_no_installed_part_has_a_known_hole() -> None:
    """Every jar of Kafka, Trino, s3proxy and Spark's own, as they lie in the cache."""
    folders = [folder for service in jvm_parts.ALL if (folder := jvm_parts.folder(service)).is_dir()]
    assert {folder.name.rsplit("-", 1)[0] for folder in folders} >= set(jvm_parts.SERVICES), (
        "python -m infra fetch"
    )
    jars = [jar for folder in folders for jar in folder.rglob("*.jar")]
    assert len(jars) > 500
    assert _artifacts(jars) >= set(NEEDED), (
        "the table names what nobody has, or the names of jars are not understood"
    )
    assert _too_old(iter(jars)) == []


@pytest.mark.finding(35)
@pytest.mark.stack
def test_trino_serves_by_the_newer_jetty(services: Stack) -> None:
    """What the running server says of itself, which is started only once it answers a query."""
    said = re.search(r"jetty-(\d+(?:\.\d+)*)", services.log("trino").read_text(errors="replace"))
    assert said is not None
    assert _version(said[1]) >= NEEDED["jetty-http2-server"].version


@pytest.mark.prove
@pytest.mark.finding(35)
@pytest.mark.stack
def test_spark_takes_the_newer_jars() -> None:
    """What the wheel of PySpark brings too old is in our folder, newer, and a real Spark loads it from
    there."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    ours = jvm_parts.folder("spark")
    old, new = _artifacts(_too_old_in(Path(spec.origin).parent / "jars")), _artifacts(ours.glob("*.jar"))
    assert old <= new
    jdk = java.find(java.CLASSIC)
    assert jdk is not None
    context = open_context(SparkOptions("versions", jars=ours, java_home=jdk.java.parents[1]))
    try:
        load: Callable[[str], Any] = context._jvm.java.lang.Class.forName
        for name in (
            "net.jpountz.lz4.LZ4Factory",
            "org.apache.logging.log4j.core.LoggerContext",
            "org.apache.logging.log4j.LogManager",
        ):
            where = str(load(name).getProtectionDomain().getCodeSource().getLocation().getPath())
            assert Path(where).parent == ours.resolve() or Path(where).parent == ours, (name, where)
        assert (
            context.parallelize(range(1_000), 4).map(lambda n: (n % 7, n)).groupByKey().count() == 7
        )  # its shuffle goes through lz4
    finally:
        context.stop()


def _artifacts(jars: Iterable[Path]) -> set[str]:
    return {found["artifact"] for jar in jars if (found := JAR.fullmatch(jar.name))}


def _too_old_in(folder: Path) -> list[Path]:
    return [jar for jar in folder.glob("*.jar") if _too_old(iter([jar]))]


@pytest.mark.finding(35)
def test_an_old_jar_is_seen() -> None:
    """The comparison itself, on the names that Maven and Trino give."""
    old = (
        "org.eclipse.jetty.http2_jetty-http2-server-12.0.22.jar",
        "lz4-java-1.8.0.jar",
        "log4j-core-2.25.3.jar",
        "io.airlift_aircompressor-v3-3.2.jar",
    )
    assert len(_too_old(Path(name) for name in old)) == len(old)
    new = (
        "org.eclipse.jetty.http2_jetty-http2-server-12.0.39.jar",
        "lz4-java-1.10.2.jar",
        "log4j-core-2.25.4.jar",
        "jetty-http-12.1.11.jar",
    )
    assert _too_old(Path(name) for name in new) == []


@pytest.mark.finding(35)
def test_a_newer_jar_replaces_every_older_one(tmp_path: Path) -> None:
    """In all folders of the server, whatever its version; one that replaces nothing is an error, not a jar
    beside the old one."""
    newer, server = tmp_path / "newer", tmp_path / "server"
    for folder in (newer, server / "lib", server / "plugin/iceberg"):
        folder.mkdir(parents=True)
    for name in (
        "lib/org.x_thing-1.0.jar",
        "lib/org.x_thing-more-1.0.jar",
        "plugin/iceberg/org.x_thing-1.1.Final.jar",
    ):
        (server / name).write_text("old")
    (newer / "thing-2.0.jar").write_text("new")
    jvm_parts._replace_jars(newer, server)
    left = {path.relative_to(server).as_posix(): path.read_text() for path in server.rglob("*.jar")}
    assert left == {
        "lib/org.x_thing-2.0.jar": "new",
        "lib/org.x_thing-more-1.0.jar": "old",
        "plugin/iceberg/org.x_thing-2.0.jar": "new",
    }
    newer.mkdir()
    (newer / "stranger-1.0.jar").write_text("new")
    with pytest.raises(PrerequisiteError, match=r"stranger-1\.0\.jar replaces nothing"):
        jvm_parts._replace_jars(newer, server)


# ---- hashes of ours (28)


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`brings(name=content, ...)`: what Maven copies from now on, in place of Maven. The poms and their lists
    are copies, the cache is empty."""
    shutil.copytree(jvm_parts.POMS, tmp_path / "poms")
    monkeypatch.setattr(jvm_parts, "POMS", tmp_path / "poms")
    monkeypatch.setenv("FIRN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(jvm_parts, "missing", lambda _: [])
    brought: dict[str, bytes] = {}

    def copy(_: str, output: Path) -> None:
        for name, content in brought.items():
            (output / name).parent.mkdir(parents=True, exist_ok=True)
            (output / name).write_bytes(content)

    monkeypatch.setattr(jvm_parts, "_run_maven", copy)

    def brings(files: dict[str, bytes]) -> None:
        brought.clear()
        brought.update(files)

    return brings


GOOD = {"thing-1.0.jar": b"good", "newer/other-1.0.jar": b"good too"}


@pytest.mark.finding(28)
@pytest.mark.parametrize(
    ("brought", "said"),
    [
        (GOOD | {"thing-1.0.jar": b"evil"}, r"thing-1\.0\.jar has SHA-256 [0-9a-f]{64}, not [0-9a-f]{64}"),
        (GOOD | {"newer/other-1.0.jar": b"evil"}, r"newer/other-1\.0\.jar has SHA-256"),
        (GOOD | {"evil-1.0.jar": b"good"}, r"evil-1\.0\.jar is not listed"),
        ({"thing-1.0.jar": b"good"}, r"newer/other-1\.0\.jar is missing"),
        ({}, r"is missing"),
    ],
    ids=["changed", "changed, transitive", "added", "absent", "nothing"],
)
def test_a_file_that_is_not_as_listed_is_refused(
    parts: Callable[..., None], brought: dict[str, bytes], said: str
) -> None:
    """Nothing of a download is installed where one file is another one; the message says which, and what to
    do."""
    parts(GOOD)
    listed = jvm_parts.write_hashes("kafka", lambda _: None)
    shutil.rmtree(listed)
    parts(brought)
    with pytest.raises(PrerequisiteError, match=said) as caught:
        jvm_parts.fetch("kafka", lambda _: None)
    assert "--write-hashes kafka" in str(caught.value)
    assert not jvm_parts.folder("kafka").exists()
    assert [path.name for path in jvm_parts.cache_folder().iterdir()] == ["kafka.lock"]
    parts(GOOD)
    assert (jvm_parts.fetch("kafka", lambda _: None) / "newer/other-1.0.jar").read_bytes() == b"good too"


@pytest.mark.finding(28)
def test_parts_without_a_list_are_refused(parts: Callable[..., None]) -> None:
    """A service that was forgotten is not fetched, rather than fetched unseen; a list that cannot be read
    neither."""
    parts(GOOD)
    listed = part_hashes.list_file(jvm_parts.POMS, "kafka")
    listed.unlink()
    with pytest.raises(PrerequisiteError, match="lists no file"):
        jvm_parts.fetch("kafka", lambda _: None)
    listed.write_text("nonsense\n")
    with pytest.raises(PrerequisiteError, match="line 1 is not"):
        jvm_parts.fetch("kafka", lambda _: None)


@pytest.mark.finding(28)
def test_another_list_is_another_folder(parts: Callable[..., None]) -> None:
    """Parts that were installed by an older list are not taken for those of the new one."""
    parts(GOOD)
    first = jvm_parts.write_hashes("kafka", lambda _: None)
    parts(GOOD | {"thing-1.0.jar": b"another"})
    assert jvm_parts.fetch("kafka", lambda _: None) == first  # listed and installed: nothing is downloaded
    assert jvm_parts.write_hashes("kafka", lambda _: None) != first


@pytest.mark.finding(28)
@pytest.mark.stack
@pytest.mark.parametrize("service", jvm_parts.ALL)
def test_every_part_is_listed_and_installed_as_listed(service: str) -> None:
    """The lists of the repository hold what lies in the cache; archives, which are gone once they are
    unpacked, and the jars put into them aside."""
    folder, poms = jvm_parts.folder(service), jvm_parts.POMS
    listed = part_hashes._listed(part_hashes.list_file(poms, service))
    assert listed
    if service in ("kafka", "s3", "spark"):
        assert part_hashes.hashes(folder) == listed
        part_hashes.check(poms, service, folder)
    elif folder.is_dir():
        installed = set(part_hashes.hashes(folder).values())
        assert {digest for name, digest in listed.items() if name.endswith(".jar")} <= installed
