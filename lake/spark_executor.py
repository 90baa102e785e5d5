"""`python -m lake.spark_executor`: becomes an executor of Spark, in a pod that Spark has made on Kubernetes.

Spark says in variables what it would have the start script of its own images do (entrypoint.sh in
resource-managers/kubernetes/docker); this starts the same from the jars of its Python package.
"""

import os
import shutil
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from lake.errors import PrerequisiteError

BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
# Options of the backend, and the variables in which Spark says their values.
OPTIONS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
MEMORY = "SPARK_EXECUTOR_MEMORY"
JAVA_OPTION = "SPARK_JAVA_OPT_"
# Newer jars than Spark's own come first (docs/optimize-on-a-cluster.md).
JARS = "FIRN_OPTIMIZE_SPARK__JARS"


def command(variables: Mapping[str, str], java: str, jars: Path) -> list[str]:
    """Return what is started. `jars`: Spark's own. Raises PrerequisiteError where Spark has not said what
    it has to."""
    if absent := [name for name in (MEMORY, *OPTIONS.values()) if not variables.get(name)]:
        raise PrerequisiteError(
            f"{', '.join(absent)} not set: this starts in a pod that Spark makes, as its executor"
        )
    places = [name.removeprefix(JAVA_OPTION) for name in variables if name.startswith(JAVA_OPTION)]
    options = [variables[JAVA_OPTION + place] for place in sorted(places, key=int)]
    memory = variables[MEMORY]
    folders = [f"{folder}/*" for folder in (variables.get(JARS), jars) if folder]
    of_spark = [variables[name] for name in ("SPARK_CONF_DIR", "SPARK_CLASSPATH") if variables.get(name)]
    told = [word for option, name in OPTIONS.items() for word in (option, variables[name])]
    options += [f"-Xms{memory}", f"-Xmx{memory}", "-cp", ":".join([*of_spark, *folders])]
    return [java, *options, BACKEND, *told]


def main() -> None:
    """Becomes the executor; an expected problem is one sentence and exit code 2."""
    try:
        words = command(os.environ, _java(), _jars())
    except PrerequisiteError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(2) from error
    os.execv(words[0], words)  # noqa: S606 - the pod's one process


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    if java := f"{home}/bin/java" if home else shutil.which("java"):
        return java
    raise PrerequisiteError("an executor needs a Java 17 or 21: none is on PATH, and JAVA_HOME is not set")


def _jars() -> Path:
    package = find_spec("pyspark")
    if package is None or package.origin is None:
        raise PrerequisiteError("an executor needs the package pyspark; use an image that has it")
    return Path(package.origin).with_name("jars")


if __name__ == "__main__":
    main()
