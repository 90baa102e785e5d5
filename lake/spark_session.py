"""The Spark session of a room: its settings, its Java, and the room's own packages shipped to the
executors."""

import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lake.errors import PrerequisiteError, UnavailableError

# What Firn has Spark do happens in Python or in long jobs: compiling Java well would cost a small machine
# more than it brings.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_REPOSITORY = Path(__file__).resolve().parents[1]
_LOOPBACK = "127.0.0.1"
_JAVA_MAJORS = (17, 21)
_VERSION = re.compile(r'version "(\d+)')


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """What a session is made of. `jars`: a folder of jars for driver and executors. `packages`: our own, by
    name, importable on executors. `files`: what executors find by `SparkFiles.get` of its name."""

    app: str
    master: str = "local[2]"
    driver_memory_mb: int = 1_024
    jars: Path | None = None
    java_home: Path | None = None
    java_options: str = JAVA_OPTIONS
    packages: Sequence[str] = ("lake",)
    files: Sequence[Path] = ()
    more: dict[str, str] = field(default_factory=dict)

    @property
    def is_local(self) -> bool:
        """Whether driver and executors are one JVM on this machine."""
        return self.master.startswith("local")


def open_context(options: SparkOptions) -> Any:
    """Starts (or finds) the SparkContext of this process: enough for RDDs, in half the time of a session.

    Raises PrerequisiteError without a suitable Java, UnavailableError where Spark does not start.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException

    if SparkContext._active_spark_context is not None:
        return SparkContext._active_spark_context
    os.environ["JAVA_HOME"] = str(_java_home(options.java_home))
    # What executors run: PySpark asks the environment alone, whatever spark.pyspark.python says.
    os.environ["PYSPARK_PYTHON"] = (
        options.more.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON") or sys.executable
    )
    if options.is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    conf = (
        SparkConf()
        .setAppName(options.app)
        .setMaster(options.master)
        .setAll(list((_defaults(options) | options.more).items()))
    )
    try:
        context = SparkContext.getOrCreate(conf)
    except (PySparkException, OSError, RuntimeError) as error:
        raise UnavailableError(
            f"Spark does not start at {options.master}: {error}. Check the master's address and Java's memory"
        ) from error
    for package in zip_packages(options.packages):
        context.addPyFile(str(package))
    for path in options.files:
        context.addFile(str(path))
    return context


def open_session(options: SparkOptions) -> Any:
    """The SparkSession over the context of this process, for SQL and data frames. Raises as
    `open_context`."""
    from pyspark.sql import SparkSession

    return SparkSession(open_context(options))


def _defaults(options: SparkOptions) -> dict[str, str]:
    settings = {
        "spark.driver.memory": f"{options.driver_memory_mb}m",
        "spark.driver.extraJavaOptions": options.java_options,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.adaptive.enabled": "false",
        "spark.log.level": "ERROR",
    }
    if options.is_local:
        # On a cluster the executors are elsewhere and must reach the driver: there its own settings decide.
        settings |= {"spark.driver.host": _LOOPBACK, "spark.driver.bindAddress": _LOOPBACK}
    if options.jars is not None:
        jars = sorted(str(path) for path in options.jars.glob("*.jar"))
        if not jars:
            raise PrerequisiteError(
                f"{options.jars} holds no jars; `python -m infra fetch` brings Iceberg's, or leave the "
                "setting spark.jars out"
            )
        if options.is_local:
            # One JVM on this machine: it reads the jars where they lie; `spark.jars` would copy half a
            # gigabyte at every start.
            settings["spark.driver.extraClassPath"] = f"{options.jars}/*"
        else:
            settings["spark.jars"] = ",".join(jars)
        # A sort order in a procedure's arguments is read by Iceberg's own parser.
        settings["spark.sql.extensions"] = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
    return settings


def zip_packages(packages: Sequence[str]) -> list[Path]:
    """Our packages as one zip in a temporary folder that goes with the process; functions of ours are pickled
    by reference, so executors need it."""
    folder = Path(tempfile.mkdtemp(prefix="firn-spark-"))
    target = folder / f"{'-'.join(packages)}.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in packages:
            for path in sorted((_REPOSITORY / package).rglob("*.py")):
                archive.write(path, path.relative_to(_REPOSITORY))
    return [target]


def _java_home(wanted: Path | None) -> Path:
    """The first Java that Spark runs on: the setting's, JAVA_HOME, the one on PATH, those under
    /usr/lib/jvm."""
    given = [wanted] if wanted else [Path(p) for p in (os.environ.get("JAVA_HOME"),) if p]
    homes = [*given, *_on_path(), *sorted(Path("/usr/lib/jvm").glob("*"))]
    for home in homes:
        if _major(home / "bin/java") in _JAVA_MAJORS:
            return home
    raise PrerequisiteError(
        "Spark needs Java 17 or 21 and none was found; install openjdk-17-jre-headless, or name one in the "
        "room's setting spark.java_home"
    )


def _on_path() -> list[Path]:
    from shutil import which

    java = which("java")
    return [Path(java).resolve().parents[1]] if java else []


def _major(java: Path) -> int:
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = _VERSION.search(answer.stderr + answer.stdout)
    return int(match[1]) if match else 0
