"""What a person decides about all tables at once."""

from contextlib import nullcontext

import pytest

from ingest.model.parked_record import REREAD, ParkedRecord, ParkedRecords
from ingest.model.trouble import Cause
from ingest.parking.resolve import ATTEMPTS, Resolver
from lake.catalog_client import TableName
from lake.clock import SystemClock
from lake.errors import ConflictError
from lake.settings import IngestSettings
from lake.storage import open_storage
from lake.tenant import to_identifier
from tests.lake.support.fake_catalog import FakeCatalog


def test_what_is_parked_is_read_again_with_all_topics() -> None:
    """After the catalog went back a parked table reads its input before what is parked: the drain would pass
    over what comes behind. One that was moved back waits for its own word."""
    catalog, clock = FakeCatalog(), SystemClock()
    parked = {"id": "0-a", "topic-id": "t", "start": 3}
    catalog.park(TableName(to_identifier("failing"), "logs"), "failing", parked)
    catalog.park(TableName(to_identifier("back"), "logs"), "rolled_back", parked)
    client = catalog.client()
    assert Resolver(IngestSettings(), client, client, open_storage(), clock).reread_parked() == 1
    found = {
        record.table.tenant.name: record for record in ParkedRecords(client, timeout_s=1.0).all().values()
    }
    assert (found["failing"].cause, found["failing"].resolution) == (Cause.RESOLVED, REREAD)
    assert (found["failing"].id, found["failing"].topic_id, found["failing"].start) == ("0-a", "t", 3)
    assert (found["back"].cause, found["back"].resolution) == (Cause.ROLLED_BACK, "")


@pytest.mark.parametrize("times", [1, ATTEMPTS])
def test_a_record_that_its_node_changes_at_the_same_time_is_decided_anew(
    monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """By what it says then; where it changes all the time, the error says so."""
    catalog, table = FakeCatalog(), TableName(to_identifier("failing"), "logs")
    catalog.park(table, "failing", {"id": "0-a", "topic-id": "t", "start": 3})
    changes = iter(range(4, 4 + times))
    write = ParkedRecords.write

    def late(records: ParkedRecords, record: ParkedRecord, *, lease: str, key: str) -> int | None:
        if (start := next(changes, None)) is not None:
            told = {"id": "0-a", "topic-id": "t", "start": start}
            catalog.park(table, "failing", told, version=start)
        return write(records, record, lease=lease, key=key)

    monkeypatch.setattr(ParkedRecords, "write", late)
    client = catalog.client()
    resolver = Resolver(IngestSettings(), client, client, open_storage(), SystemClock())
    with nullcontext() if times < ATTEMPTS else pytest.raises(ConflictError, match="changes all the time"):
        assert resolver.reread_parked() == 1
    (found,) = ParkedRecords(client, timeout_s=1.0).all().values()
    assert (found.cause is Cause.RESOLVED, found.start) == (times < ATTEMPTS, 3 + times)
