"""Hours that backfill leaves with a single file: they are found, written anew as maintenance writes files,
once, and not looked for again."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from ingest.write.writer import write_files
from lake.catalog_client import CatalogClient
from lake.commit import prepare_append
from lake.data_file import DataFile
from lake.storage import open_storage
from optimize.inventory import Candidate, DirtyPartitions
from optimize.lone_files import OVERLAP_MS
from optimize.merged_file import is_as_ingested, merged_at_ms
from optimize.table_view import load_view
from tests.optimize.support.maintained import maintenance
from tests.optimize.support.small_files import SmallFiles, rows_of, this_hour
from tests.stack.support.line import Line
from tests.stack.support.waiting import fresh

pytestmark = [pytest.mark.stack, pytest.mark.finding(14)]

ROWS = 100_000


def _backfilled(catalog: CatalogClient, hour: int) -> SmallFiles:
    """A table with one hour, in one file as ingestion writes it: the paths and users of a web server's
    log."""
    table, storage = SmallFiles(catalog, open_storage(), fresh("lone-")), open_storage()
    columns: dict[str, Any] = rows_of(hour, 0, ROWS)
    columns["message"] = pa.array(
        [
            f"GET /api/v1/items/{at * 7919 % 5_000} 200 user-{at * 104_729 % 900} {at * 31 % 977} ms"
            for at in range(ROWS)
        ]
    )
    arrow = table.state.schema.arrow
    rows = pa.table([columns[name].cast(arrow.field(name).type) for name in arrow.names], schema=arrow)
    files = write_files(storage, table.state.location, rows, table.state.schema)
    prepared = prepare_append(
        table.state, files, table.state.schema, table.state.marks, int(datetime.now(UTC).timestamp() * 1000)
    )
    storage.sync([file.uri for file in files])
    storage.write_all(prepared.files)
    (result,) = catalog.commit_all([prepared.request])
    assert result.status == "committed"
    table.reload()
    return table


def _files(catalog: CatalogClient, table: SmallFiles) -> list[DataFile]:
    view = load_view(catalog, table.storage, table.name)
    assert view is not None
    return [file for partition in view.partitions().values() for file in partition.files]


def _found(catalog: CatalogClient, table: SmallFiles, **settings: Any) -> list[Candidate]:
    """By a maintenance that has just begun to lead."""
    return [c for c in maintenance(catalog, **settings).inventory.candidates() if c.table == table.name]


def test_a_lone_file_is_written_anew_once_and_takes_less_space(
    line: Line, catalog_client: CatalogClient
) -> None:
    """Its rows stay; a second round has nothing to do, and the next leader does not look at the hour
    again."""
    hour = this_hour() - 30
    table = _backfilled(catalog_client, hour)
    (before,) = _files(catalog_client, table)
    assert is_as_ingested(before.uri)
    (candidate,) = _found(catalog_client, table)
    assert candidate.partitions == frozenset({hour})
    report = maintenance(catalog_client, [table.name]).run()
    assert (report.files_before, report.files_after, report.failures) == (1, 1, {})
    (after,) = _files(catalog_client, table)
    assert merged_at_ms(after.uri) is not None
    assert after.size_bytes < before.size_bytes * 0.8
    assert line.sql(
        f'SELECT count(*), count(DISTINCT _offset) FROM "{table.name.namespace}"."{table.name.name}"'
    ) == [(ROWS, ROWS)]
    assert maintenance(catalog_client, [table.name]).run().merged_tables == 0


def test_what_waits_or_is_still_open_is_looked_for_again(catalog_client: CatalogClient) -> None:
    """And what was done is not, by whoever leads: the mark is in the catalog. Hours are open here until they
    are 40 hours old."""
    table = _backfilled(catalog_client, this_hour() - 30)
    young: dict[str, Any] = {"merge__closed_after_s": 40 * 3_600.0}
    looking = maintenance(catalog_client, **young).inventory
    assert table.name not in {c.table for c in looking.candidates()}
    looking.settle(set(), {})
    waiting = maintenance(catalog_client).inventory
    assert table.name in {c.table for c in waiting.candidates()}
    waiting.settle({str(table.name)}, {})
    assert len(_found(catalog_client, table)) == 1
    done = maintenance(catalog_client).inventory
    assert isinstance(done, DirtyPartitions)
    assert table.name in {c.table for c in done.candidates()}
    done.settle({str(table.name)}, {})
    assert len(_found(catalog_client, table)) == 1
    # The mark stays a minute behind, for changes whose transactions had not ended: so the hour is made to be
    # older than that.
    done.now_ms = lambda: int(datetime.now(UTC).timestamp() * 1000) + 2 * OVERLAP_MS
    assert table.name in {c.table for c in done.candidates()}
    done.settle(set(), {})
    assert _found(catalog_client, table) == []
