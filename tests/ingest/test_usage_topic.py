"""What tenants used on its way into Kafka, and what becomes of it there."""

import pytest

from ingest.changes.change import Op
from ingest.kafka import service_topic
from ingest.kafka.usage_topic import UsageTopic
from lake.settings import IngestSettings
from lake.usage_row import TABLES, UsageRow
from tests.ingest.support.change_messages import read_change
from tests.ingest.support.fake_kafka import FakeBroker

CAME = UsageRow("2026-11-26", "Acme", "logs", TABLES, records=2**40, bytes_in=5, bytes_stored=7)
SEARCHED = UsageRow("2026-11-26", "Acme", "", "api-1", searches=3, search_seconds=2.0, search_bytes=0)


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> FakeBroker:
    made = FakeBroker()
    made.create_topic("firn.usage", 1)
    made.install(monkeypatch)
    monkeypatch.setattr(service_topic, "ensure_topic", lambda *_, **__: None)
    return made


def test_rows_are_changes_of_a_keyed_table_with_their_types(broker: FakeBroker) -> None:
    """One that is sent again has the same key, so that the table has it once; what a source does not tell is
    NULL."""
    topic = UsageTopic(IngestSettings())
    topic.write([CAME, SEARCHED])
    topic.write([CAME])
    messages = broker.messages("firn.usage")
    changes = [read_change("keyed_json", message.key(), message.value()) for message in messages]
    assert {change.op for change in changes} == {Op.UPDATE}
    keys = [dict(change.key.values) for change in changes]
    assert keys[0] == keys[2] == {"day": "2026-11-26", "tenant": "Acme", "stream": "logs", "source": "tables"}
    came, searched = (dict(change.row.values) for change in changes[:2])
    assert (came["records"], came["bytes_stored"], came["searches"]) == (2**40, 7, None)
    assert (searched["stream"], searched["search_seconds"], searched["records"]) == ("", 2.0, None)
    kinds = {name: str(kind) for name, kind in changes[1].row.types.items()}
    assert (kinds["records"], kinds["search_seconds"], kinds["day"]) == ("long", "double", "string")
    assert not any(change.errors for change in changes)
