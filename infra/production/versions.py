"""Whether the programs are those that Firn is tested with."""

import platform
import re
import sys
from collections.abc import Iterator
from functools import cache

import confluent_kafka
import httpx

from infra.local.doctor import PYTHON_MIN
from infra.local.jvm_parts import POMS
from infra.production.finding import Finding, ok, unsafe, warning
from infra.production.rooms import Rooms
from lake.tls import tls_context

NAME = "versions"
ANSWER_S = 10.0


def look(rooms: Rooms) -> Iterator[Finding]:
    """This Python's, its client of Kafka, and Trino's."""
    yield judge_python(
        sys.version_info[:2], f"{platform.python_version()}, {confluent_kafka.libversion()[0]}"
    )
    settings = rooms.query.trino
    verify = httpx.create_ssl_context(verify=settings.ca) if settings.ca else tls_context()
    answer = httpx.get(f"{settings.uri.rstrip('/')}/v1/info", timeout=ANSWER_S, verify=verify)
    yield judge_trino(answer.json()["nodeVersion"]["version"])


def judge_python(version: tuple[int, ...], told: str) -> Finding:
    """`told`: the versions of Python and of librdkafka."""
    if version < PYTHON_MIN:
        return unsafe(NAME, f"Python and Kafka's client are {told}; install Python 3.11 or newer")
    return ok(NAME, f"Python and Kafka's client are {told}")


def judge_trino(version: str) -> Finding:
    """`version`: as Trino tells it."""
    if version == tested_trino():
        return ok(NAME, f"Trino {version} is the one that is tested")
    return warning(
        NAME,
        f"Trino is {version}, and {tested_trino()} is tested; try searches, SQL and its rules",
        "before people do",
    )


@cache
def tested_trino() -> str:
    """Returns the version of the stack's own Trino."""
    found = re.search(r"<trino\.version>([^<]+)<", (POMS / "trino.xml").read_text())
    assert found is not None
    return found[1]
