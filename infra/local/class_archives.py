"""Class archives: the classes that Kafka, s3proxy, Spark and Trino load, kept as they are after loading and
checking, so that their next start takes a quarter to a half less CPU (class-data sharing, JEP 350).

Java uses an archive only where its own build and the jars are those that it was made with, and else loads
classes as ever; the name carries all of that, so another version gets another file. Firn runs without them.
"""

import hashlib
from importlib.util import find_spec
from pathlib import Path

from infra.local import java, jvm_parts
from infra.local.java import CLASSIC, MODERN, Jdk

SPARK = "spark"
# On which Java each part runs that has an archive.
NEEDS = {"kafka": CLASSIC, "s3": CLASSIC, SPARK: CLASSIC, "trino": MODERN}


def archive(part: str, jdk: Jdk) -> Path:
    """Where the archive of a part is or would be."""
    return _file(part, jdk, jvm_parts.folder(part), *((_sparks_own(),) if part == SPARK else ()))


def keeps_classes(jdk: Jdk) -> bool:
    """Whether a Java has an archive of its own classes, which those of a program are added to."""
    return (jdk.java.resolve().parents[1] / "lib/server/classes.jsa").is_file()


def options(part: str) -> tuple[str, ...]:
    """The options of a JVM that make use of a part's archive; none where there is none."""
    jdk = java.find(NEEDS[part])
    if jdk is None or not (made := archive(part, jdk)).is_file():
        return ()
    return (f"-XX:SharedArchiveFile={made}",)


def _sparks_own() -> Path:
    """The jars that come with Spark; those of its part are Iceberg's."""
    pyspark = find_spec("pyspark")
    assert pyspark is not None
    assert pyspark.origin is not None
    return Path(pyspark.origin).parent / "jars"


def _file(part: str, jdk: Jdk, *jars: Path) -> Path:
    release = jdk.java.resolve().parents[1] / "release"
    made_of = [
        release.read_text() if release.exists() else str(jdk),
        *(f"{folder} {folder.stat().st_mtime_ns if folder.is_dir() else 0}" for folder in jars),
    ]
    digest = hashlib.sha256("\n".join(made_of).encode()).hexdigest()[:12]
    return jvm_parts.cache_folder() / f"classes-{part}-{digest}.jsa"
