"""What a person decides about all tables at once."""

from ingest.model.parked_record import REREAD, ParkedRecords
from ingest.model.trouble import Cause
from ingest.parking.resolve import Resolver
from lake.catalog_client import TableName
from lake.clock import SystemClock
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
