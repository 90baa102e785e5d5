"""Random commits by PyIceberg, Firn's own commit code, Spark and Trino, and the truth about them from the
manifests."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFileContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform

from catalog.commit.dirty_partitions import normal_path
from ingest.write.writer import write_files
from lake.catalog_client import CatalogClient, CommitStatus, TableName
from lake.commit import (
    Prepared,
    TableState,
    load_state,
    new_table_state,
    prepare_append,
    prepare_delete,
    prepare_replace,
)
from lake.data_file import DATA, DataFile
from lake.manifest import ManifestEntry, Status, read_manifest
from lake.manifest_list import ManifestFile
from lake.storage import open_storage
from tests.catalog.support.engines import Rows
from tests.catalog.support.log_tables import log_rows

HOURS = [datetime(2026, 11, 20, 5, tzinfo=UTC) + timedelta(hours=at) for at in range(5)]
SEVERITIES = ["info", "err or", "a/b", "ünï~*"]
COLUMNS = (
    "timestamp",
    "observed_timestamp",
    "severity",
    "_topic",
    "_topic_id",
    "_topic_partition",
    "_offset",
    "_index",
)
Counts = dict[str, tuple[int, int, int, int]]
STORAGE = open_storage()


def truth(table: Table) -> Counts:
    """(data files, delete files, bytes, rows of the data files) of each partition, as the manifests of the
    head say."""
    found: dict[str, list[int]] = {}
    snapshot = table.current_snapshot()
    for manifest in snapshot.manifests(table.io) if snapshot is not None else []:
        spec = table.specs()[manifest.partition_spec_id]
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            file = entry.data_file
            is_data = file.content == DataFileContent.DATA
            counts = found.setdefault(
                normal_path(spec.partition_to_path(file.partition, table.schema())), [0, 0, 0, 0]
            )
            for at, amount in enumerate(
                (is_data, not is_data, file.file_size_in_bytes, file.record_count if is_data else 0)
            ):
                counts[at] += amount
    return {path: (c[0], c[1], c[2], c[3]) for path, c in found.items()}


class RandomCommits:
    """One random sequence of commits to two tables; each loads its table as the commit before left it.

    `logs` is a log table as Firn makes it, `plain` has its columns and lies by severity: PyIceberg alone
    cannot write hours.
    """

    def __init__(
        self,
        catalog: Catalog,
        client: CatalogClient,
        spark: Any,
        trino: Callable[[str], Rows],
        namespace: str,
        seed: int,
    ) -> None:
        self._catalog = catalog
        self._client = client
        self._spark = spark
        self._trino = trino
        self.logs = TableName(namespace, "logs")
        self.plain = TableName(namespace, "plain")
        self._name = self.logs
        self._chance = random.Random(seed)

    def table(self, name: TableName) -> Table:
        return self._catalog.load_table(tuple(name))

    def create(self) -> None:
        """The tables, one with its first rows."""
        warehouse = self._client.warehouse
        assert warehouse is not None
        self._append(new_table_state(self.logs, self.logs.namespace, self.logs.name, warehouse))
        schema = self.table(self.logs).schema()
        spec = PartitionSpec(
            PartitionField(schema.find_field("severity").field_id, 1000, IdentityTransform(), "severity")
        )
        self._catalog.create_table(
            tuple(self.plain),
            schema=schema,
            partition_spec=spec,
            properties={"write.summary.partition-limit": "1000"},
        )

    def one(self) -> str:
        """One commit; returns whose and which it was."""
        self._name = self._chance.choice([self.logs, self.plain])
        kinds = [
            self.spark_append, self.spark_overwrite, self.spark_delete, self.spark_replace,
            self.trino_append, self.trino_append, self.trino_delete, self.trino_replace,
        ]  # fmt: skip
        if self._name == self.logs:
            kinds += [
                self.own_append,
                self.own_append,
                self.own_replace,
                self.own_delete,
                self.pyiceberg_add,
                self.pyiceberg_delete_hour,
            ]
        else:
            kinds += [
                self.pyiceberg_append,
                self.pyiceberg_append,
                self.pyiceberg_overwrite,
                self.pyiceberg_delete,
            ]
        kind = self._chance.choice(kinds)
        kind()
        return kind.__name__

    # ---- Firn's own commits

    def _state(self) -> TableState:
        state = load_state(self._client, STORAGE, self.logs)
        assert state is not None
        return state

    def _commit(self, prepared: Prepared) -> None:
        STORAGE.write_all(prepared.files)
        (result,) = self._client.commit_all([prepared.request], timeout_s=30)
        assert result.status is CommitStatus.COMMITTED, result

    def _files(self, state: TableState, hours: Sequence[datetime], rows: int) -> list[DataFile]:
        """One file an hour, each with so many rows."""
        times = [hour for hour in hours for _ in range(rows)]
        return write_files(
            STORAGE, state.location, log_rows(times, [self._severity() for _ in times]), state.schema
        )

    def _append(self, state: TableState) -> None:
        files = self._files(state, self._hours(), self._chance.randrange(1, 30))
        self._commit(prepare_append(state, files, state.schema, state.marks, 1))

    def own_append(self) -> None:
        self._append(self._state())

    def own_replace(self) -> None:
        """Files of one hour become one with as many rows, as after a merge."""
        state = self._state()
        entries, kept = self._live(state)
        with_deletes = {
            entry.file.hour
            for manifest in kept
            for entry in read_manifest(STORAGE.read(manifest.uri), manifest)
        }
        hours = sorted({entry.file.hour for entry in entries if entry.file.hour is not None} - with_deletes)
        if not hours:
            self._append(state)
            return
        hour = self._chance.choice(hours)
        removed = [entry.file for entry in entries if entry.file.hour == hour]
        added = self._files(
            state, [datetime.fromtimestamp(hour * 3_600, UTC)], sum(file.rows for file in removed)
        )
        STORAGE.sync([file.uri for file in added])
        self._commit(prepare_replace(state, self._entries(entries, removed, added), added, removed, kept, 1))

    def own_delete(self) -> None:
        """Some files go with their rows, as by retention."""
        state = self._state()
        entries, kept = self._live(state)
        if not entries:
            self._append(state)
            return
        removed = [entry.file for entry in self._chance.sample(entries, min(len(entries), 2))]
        self._commit(prepare_delete(state, self._entries(entries, removed, []), removed, kept, 1))

    def _live(self, state: TableState) -> tuple[list[ManifestEntry], list[ManifestFile]]:
        """Live entries of the manifests of data, and the manifests of delete files."""
        data = [manifest for manifest in state.manifests if manifest.content == DATA]
        entries = [
            entry
            for manifest in data
            for entry in read_manifest(STORAGE.read(manifest.uri), manifest)
            if entry.status is not Status.DELETED
        ]
        return entries, [manifest for manifest in state.manifests if manifest.content != DATA]

    def _entries(
        self, live: Sequence[ManifestEntry], removed: Sequence[DataFile], added: Sequence[DataFile]
    ) -> list[ManifestEntry]:
        gone = {file.uri for file in removed}
        stay = [
            replace(entry, status=Status.DELETED if entry.file.uri in gone else Status.EXISTING)
            for entry in live
        ]
        return sorted(
            [*(ManifestEntry(Status.ADDED, file) for file in added), *stay],
            key=lambda entry: (entry.file.hour or 0, entry.status),
        )

    # ---- PyIceberg

    def _rows(self) -> pa.Table:
        times = [hour for hour in self._hours() for _ in range(self._chance.randrange(1, 20))]
        rows = log_rows(times, [self._severity() for _ in times]).select(COLUMNS)
        return rows.cast(self.table(self.plain).schema().select(*COLUMNS).as_arrow())

    def pyiceberg_append(self) -> None:
        self.table(self.plain).append(self._rows())

    def pyiceberg_overwrite(self) -> None:
        self.table(self.plain).overwrite(self._rows(), f"severity == '{self._severity()}'")

    def pyiceberg_delete(self) -> None:
        self.table(self.plain).delete(f"_offset > {self._chance.randrange(20)}")

    def pyiceberg_add(self) -> None:
        """Files that lie in the warehouse already."""
        files = self._files(self._state(), self._hours(), 3)
        self.table(self.logs).add_files([file.uri for file in files])

    def pyiceberg_delete_hour(self) -> None:
        """Whole files, by what their bounds say."""
        hour = self._chance.choice(HOURS)
        self.table(self.logs).delete(
            f"timestamp >= '{hour.isoformat()}' and timestamp < '{(hour + timedelta(hours=1)).isoformat()}'"
        )

    # ---- Spark and Trino

    def _values(self) -> str:
        """Columns and rows as both spell them."""
        times = [f"TIMESTAMP '{hour:%Y-%m-%d %H:%M:%S} UTC'" for hour in self._hours() for _ in range(3)]
        return f"({', '.join(COLUMNS)}) VALUES " + ", ".join(
            f"({time}, {time}, '{self._severity()}', 't', 'id', 0, 0, 0)" for time in times
        )

    def spark_append(self) -> None:
        self._spark.sql(f"INSERT INTO live.{self._name} {self._values()}")

    def spark_overwrite(self) -> None:
        hour = self._chance.choice(HOURS)
        rows = (
            self._spark.table(f"live.{self._name}")
            .where(f"date_trunc('hour', timestamp) = TIMESTAMP '{hour:%Y-%m-%d %H:%M:%S} UTC'")
            .limit(7)
        )
        rows.writeTo(f"live.{self._name}").overwritePartitions()

    def spark_delete(self) -> None:
        self._spark.sql(f"DELETE FROM live.{self._name} WHERE severity = '{self._severity()}'")

    def spark_replace(self) -> None:
        self._spark.sql(
            f"CALL live.system.rewrite_data_files(table => '{self._name}', options => map('min-input-files', "
            "'2'))"
        )

    def trino_append(self) -> None:
        self._trino(f"INSERT INTO {self._name} {self._values()}")

    def trino_delete(self) -> None:
        self._trino(f"DELETE FROM {self._name} WHERE severity = '{self._severity()}'")

    def trino_replace(self) -> None:
        self._trino(f"ALTER TABLE {self._name} EXECUTE optimize")

    def _severity(self) -> str:
        return self._chance.choice(SEVERITIES)

    def _hours(self) -> list[datetime]:
        return self._chance.sample(HOURS, self._chance.randrange(1, 4))
