"""Class archives: the classes that Kafka and Spark load, kept as they are after loading and checking, so that
their next start takes half of the CPU (class-data sharing, JEP 350).

Java uses an archive only where its own build and the jars are those that it was made with, and else loads
classes as ever; the name carries all of that, so another version gets another file. Firn runs without them.
"""

import hashlib
from importlib.util import find_spec
from pathlib import Path

from infra.local import jvm_parts
from infra.local.java import Jdk


def kafka(jdk: Jdk) -> Path:
    """Where Kafka's archive is or would be."""
    return _file("kafka", jdk, jvm_parts.folder("kafka"))


def spark(jdk: Jdk) -> Path:
    """Where the archive of Spark with Iceberg's jars is or would be."""
    pyspark = find_spec("pyspark")
    assert pyspark is not None
    assert pyspark.origin is not None
    return _file("spark", jdk, jvm_parts.folder("spark"), Path(pyspark.origin).parent / "jars")


def options(archive: Path) -> tuple[str, ...]:
    """The options of a JVM that make use of an archive; none where there is none."""
    return (f"-XX:SharedArchiveFile={archive}",) if archive.is_file() else ()


def _file(part: str, jdk: Jdk, *jars: Path) -> Path:
    release = jdk.java.resolve().parents[1] / "release"
    made_of = [
        release.read_text() if release.exists() else str(jdk),
        *(f"{folder} {folder.stat().st_mtime_ns if folder.is_dir() else 0}" for folder in jars),
    ]
    digest = hashlib.sha256("\n".join(made_of).encode()).hexdigest()[:12]
    return jvm_parts.cache_folder() / f"classes-{part}-{digest}.jsa"
