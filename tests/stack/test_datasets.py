"""The real data sets, each record one message: as many rows and dead letters as stated here for each file."""

import base64
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import orjson
import pytest
import zstandard

from tests.conftest import PROVE_VARIABLE
from tests.stack.support.kafka_topics import Record
from tests.stack.support.line import Line
from tests.stack.support.tool_line import ToolLine
from tests.stack.support.waiting import fresh

pytestmark = [pytest.mark.stack, pytest.mark.datasets]

PARTITIONS = 2
# Each line of a log is a row, so that the first ones of a long file are as many. The long proof takes all.
LINES_MAX = None if os.environ.get(PROVE_VARIABLE) else 3_000
VISIBLE_S = 120.0


class Stated(NamedTuple):
    """What becomes of a file: its rows and its dead letters."""

    rows: int
    dead: int = 0
    form: str = "auto"
    messages: int | None = None  # where a message carries several records


WHOLE = {
    "access-combined.log.zst": Stated(10_000, form="text"),
    "access-weblogs.jsonl.zst": Stated(14_074),
    "access-nginx.jsonl.zst": Stated(9_999),
    "access-caddy.jsonl.zst": Stated(9_999),
    "cloudtrail.jsonl.zst": Stated(2_900),
    "windows-events.jsonl.zst": Stated(36_741),
    "zeek.jsonl.zst": Stated(7_804),
    "syslog-rfc3164.log.zst": Stated(7_121, form="text"),
    "syslog-rfc5424.log.zst": Stated(12_324, form="text"),
    "shippers/rsyslog-omkafka.jsonl": Stated(30),
    "shippers/rsyslog-omkafka-json.jsonl": Stated(30),
    "shippers/syslog-ng-kafka-c.jsonl": Stated(30),
    "shippers/syslog-ng-kafka-c-json.jsonl": Stated(30),
    "shippers/pino.jsonl": Stated(30),
    "shippers/winston.jsonl": Stated(30),
    "shippers/structlog.jsonl": Stated(30),
    "shippers/log4j2-ecs.jsonl": Stated(31),
    "shippers/logstash-logback-encoder.jsonl": Stated(31),
    "shippers/otlp-json.jsonl": Stated(30, messages=4),
    "shippers/otlp-json-collector.jsonl": Stated(30, messages=4),
    "shippers/otlp-proto.jsonl": Stated(30, messages=4),
    "shippers/fluent-bit-out_kafka.jsonl": Stated(30),
    "shippers/vector.jsonl": Stated(30),
    "shippers/filebeat.jsonl": Stated(30),
    "shippers/docker-json-file.jsonl": Stated(36),
}
FILES = {
    name: stated._replace(rows=min(stated.rows, LINES_MAX or stated.rows)) for name, stated in WHOLE.items()
}


def _records(path: Path) -> Iterator[Record]:
    """One message per line of a log, or per captured message of a shipper."""
    if path.suffix == ".zst":
        for at, text in enumerate(
            zstandard.decompress(path.read_bytes(), max_output_size=2**30).splitlines()[:LINES_MAX]
        ):
            yield Record(text, partition=at % PARTITIONS)
        return
    for at, captured in enumerate(path.read_bytes().splitlines()):
        message = orjson.loads(captured)
        body = (
            base64.b64decode(message["value_base64"])
            if "value_base64" in message
            else message["value"].encode()
        )
        yield Record(body, partition=at % PARTITIONS)


def test_each_file_gives_its_stated_rows_and_dead_letters(line: Line, datasets: Path) -> None:
    """All files go through one ingester at once; counts by Trino, identities once, dead letters by identity;
    and the audit, which counts in the files."""
    tenants = {name: fresh(f"{Path(name).name.split('.')[0]}-") for name in FILES}
    topics = {name: line.kafka.topic(PARTITIONS) for name in FILES}
    produced = {name: len(line.kafka.produce(topics[name], _records(datasets / name))) for name in FILES}
    settings = [
        {"name": topics[name], "format": FILES[name].form, "tenant": [f"const:{tenants[name]}"]}
        for name in FILES
    ]
    ours = ToolLine(line, settings, limits__late="accept", flush__interval_s=12)
    ingester = ours.ingester.start()
    try:
        for name, stated in FILES.items():
            line.wait_for_rows(ingester, tenants[name], stated.rows, timeout_s=VISIBLE_S)
        assert ingester.stop() == 0
    finally:
        ingester.kill()
    dead = Counter(
        letter.facts["firn.topic"] for letter in line.kafka.dead_letters(ingester.dead_letter_topic).values()
    )
    rows = _rows(line, list(tenants.values()))
    found = {name: (rows[tenants[name]], dead[topics[name]]) for name in FILES}
    assert found == {name: (stated.rows, stated.dead) for name, stated in FILES.items()}
    assert ours.audit() == {}
    assert [ours.audited[name] for name in ("written", "dead_lettered")] == [
        sum(count) for count in zip(*found.values(), strict=True)
    ]
    assert produced == {name: stated.messages or stated.rows + stated.dead for name, stated in FILES.items()}


def _rows(line: Line, tenants: Sequence[str]) -> dict[str, int]:
    """The rows of each tenant's table, of which none is doubled."""
    identity = "ROW(_topic_id, _topic_partition, _offset, _index)"
    counted = line.sql(
        " UNION ALL ".join(
            f"SELECT '{tenant}', count(*), count(DISTINCT {identity}) FROM {line.table(tenant)}"
            for tenant in tenants
        )
    )
    assert {tenant: rows - identities for tenant, rows, identities in counted} == dict.fromkeys(tenants, 0)
    return {tenant: int(rows) for tenant, rows, _ in counted}
