"""What the log says while tables take no rows."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from structlog.testing import capture_logs

from ingest.model.link import Stuck
from ingest.model.trouble import Cause, Trouble, Where
from lake.tenant import TableId, TenantId
from tests.ingest.support.node_world import NodeWorld

TABLES = [TableId(TenantId(f"t{number}"), "logs") for number in range(3)]


def test_why_tables_fail_is_said_once_and_so_is_the_end(tmp_path: Path) -> None:
    """One line for each cause, however many tables have it and however often they fail; one when all are
    well; the next outage is told anew."""
    with ThreadPoolExecutor(1) as pool, capture_logs() as logs:
        world = NodeWorld(tmp_path, pool)
        for _ in range(2):
            for cause in (Cause.DISK_FULL, Cause.SLOW, Cause.DISK_FULL):
                for table in TABLES:
                    world.node.handle(0, Stuck(table, Trouble(cause, f"why: {cause}")))
                world.node.step(stopping=False)
            for table in TABLES:
                world.node.troubles.passed(table, Where.WRITE)
            world.node.step(stopping=False)
    told = [(line["event"], line.get("reason")) for line in logs if line["event"].startswith("tables.")]
    outage = [("tables.failing", "disk_full"), ("tables.failing", "slow"), ("tables.take_rows", None)]
    assert told == 2 * outage
    assert {line["tables"] for line in logs if line["event"] == "tables.failing"} == {3}
