"""An executor of Spark on Kubernetes: what Spark says in variables becomes its command."""

import subprocess
import sys
from pathlib import Path

import pytest

from lake.errors import PrerequisiteError
from lake.spark_executor import BACKEND, OPTIONS, command

# As Spark's driver sets them for a pod.
VARIABLES = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.0.0.7:7078",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "2048m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_CONF_DIR": "/opt/spark/conf",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.9",
    "SPARK_EXECUTOR_POD_NAME": "firn-exec-3",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    **{f"SPARK_JAVA_OPT_{place}": f"-Dplace={place}" for place in (10, 9, 0)},
}


def test_what_spark_says_is_what_is_started() -> None:
    """Options of Java in Spark's order, the heap, newer jars before Spark's own, and every option of the
    backend with its value."""
    words = command(
        VARIABLES | {"FIRN_OPTIMIZE_SPARK__JARS": "/opt/jars"}, "/usr/bin/java", Path("/spark/jars")
    )
    java = words[: words.index(BACKEND)]
    assert java == [
        "/usr/bin/java",
        *(f"-Dplace={place}" for place in (0, 9, 10)),
        "-Xms2048m",
        "-Xmx2048m",
        "-cp",
        "/opt/spark/conf:/opt/jars/*:/spark/jars/*",
    ]
    told = words[len(java) + 1 :]
    assert dict(zip(told[::2], told[1::2], strict=True)) == {
        option: VARIABLES[name] for option, name in OPTIONS.items()
    }


def test_outside_of_such_a_pod_it_says_what_is_missing() -> None:
    """By the variables' names, in the process one line and exit code 2."""
    variables = {name: value for name, value in VARIABLES.items() if name != "SPARK_DRIVER_URL"}
    with pytest.raises(PrerequisiteError, match="SPARK_DRIVER_URL not set"):
        command(variables, "java", Path())
    done = subprocess.run(
        [sys.executable, "-m", "lake.spark_executor"], env={}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
