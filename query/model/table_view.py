"""One table at one moment: everything an answer rests on, read once, so that its parts agree with each
other."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from lake.backfill_mark import CommittedRanges, committed_ranges
from lake.catalog_client import CatalogClient, MetadataMissingError, TableName
from lake.errors import FirnError, NotFoundError, Rejected, UnavailableError
from lake.log_schema import LogSchema
from lake.snapshot import Totals, totals_of
from lake.table_layout import KEY_PROPERTY, STREAM_PROPERTY, TENANT_PROPERTY
from lake.table_loads import load_each
from lake.table_location import NOWHERE, TableLocation
from lake.tenant import TableId, TenantId, from_identifier, parse_stream, parse_tenant
from query.model.point_in_time import PointInTime
from query.model.problem import refuse

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PINNED = "pin: it is of a stream"
_NOT_KEPT = "(its rows cannot be told any more); leave `pin` out, and for an export make it again"


class TableSource(Protocol):
    """Whatever tables are loaded from, as the catalog's client loads them."""

    def load_table(self, table: TableName) -> dict[str, Any]:
        """The table as `{"metadata-location", "metadata", "config"}`. Raises NotFoundError,
        MetadataMissingError."""


@dataclass(frozen=True, slots=True)
class TableView:
    """What one loading of a table's metadata says. `snapshot_id` None: it has no rows yet. `table_location`:
    where its files may lie."""

    id: TableId
    name: TableName
    uuid: str
    schema: LogSchema
    schema_is_of_snapshot: bool
    snapshot_id: int | None
    committed_at: datetime | None
    manifest_list: str | None
    totals: Totals
    committed: CommittedRanges
    properties: Mapping[str, str]
    specs: Mapping[int, Mapping[str, Any]]
    snapshots: int = 0
    table_location: TableLocation = NOWHERE

    @property
    def is_keyed(self) -> bool:
        """Whether changes replace and remove its rows."""
        return KEY_PROPERTY in self.properties

    def pin(self) -> PointInTime:
        """What re-opens exactly these rows."""
        if self.is_keyed:
            return PointInTime(self.uuid, {}, snapshot_id=self.snapshot_id)
        return PointInTime(self.uuid, self.committed)


def table_id(tenant: str, stream: str) -> TableId:
    """The table of a tenant's stream. Raises BadRequestError where a name cannot be one."""
    parsed, parsed_stream = parse_tenant(tenant), parse_stream(stream)
    for what, name in (("tenant", parsed), ("stream", parsed_stream)):
        if isinstance(name, Rejected):
            raise refuse(f"{what}: {name.detail}")
    assert isinstance(parsed, TenantId)
    assert isinstance(parsed_stream, str)
    return TableId(parsed, parsed_stream)


def load_view(catalog: TableSource, table: TableId, pin: PointInTime | None = None) -> TableView:
    """Loads a table as it is now; one whose pin names a snapshot as of that. Raises NotFoundError with a
    sentence for the person who searched, also for a pin that cannot be opened any more."""
    name = TableName(table.tenant.namespace, table.table)
    try:
        metadata = catalog.load_table(name)["metadata"]
    except MetadataMissingError:
        raise
    except NotFoundError as error:
        message = (
            f"tenant {table.tenant.name!r} has no stream {table.stream!r}; its streams are listed "
            "under /v1/streams?tenant=..."
        )
        raise NotFoundError(message) from error
    view = view_of(table, name, metadata)
    if pin is not None and (pin.snapshot_id is not None or view.is_keyed):
        view = _view_of_pin(pin, view, metadata)
    if view.schema.lacks:
        raise refuse(
            f"{name} lacks the columns {', '.join(view.schema.lacks)}, without which it is no log table; add "
            "them again with ALTER TABLE"
        )
    return view


def _view_of_pin(pin: PointInTime, now: TableView, metadata: Mapping[str, Any]) -> TableView:
    """The table as of the snapshot that the pin names, with the columns it had then. Raises NotFoundError."""
    if pin.table_uuid != now.uuid:
        raise NotFoundError(f"{_PINNED} that was dropped and made anew since {_NOT_KEPT}")
    if pin.snapshot_id is None and now.snapshot_id is not None:
        raise NotFoundError(f"{_PINNED} whose rows changes replace, and names no snapshot {_NOT_KEPT}")
    snapshot = next((s for s in metadata.get("snapshots", ()) if s["snapshot-id"] == pin.snapshot_id), None)
    if snapshot is None and pin.snapshot_id is not None:
        raise NotFoundError(f"{_PINNED} whose rows changes replace, and its snapshot has expired {_NOT_KEPT}")
    then = {**metadata, "current-snapshot-id": pin.snapshot_id}
    if snapshot is not None and "schema-id" in snapshot:
        then["current-schema-id"] = snapshot["schema-id"]
    return view_of(now.id, now.name, then)


def view_of(table: TableId, name: TableName, metadata: Mapping[str, Any]) -> TableView:
    """The view that a table's metadata describes."""
    head_id = metadata.get("current-snapshot-id")
    head = next((s for s in metadata.get("snapshots", ()) if s["snapshot-id"] == head_id), None)
    schema = next(s for s in metadata["schemas"] if s["schema-id"] == metadata["current-schema-id"])
    return TableView(
        id=table,
        name=name,
        uuid=metadata["table-uuid"],
        schema=LogSchema(schema),
        # A snapshot that names no schema is read by the table's.
        schema_is_of_snapshot=head is not None
        and head.get("schema-id", schema["schema-id"]) == schema["schema-id"],
        snapshot_id=head["snapshot-id"] if head else None,
        committed_at=EPOCH + timedelta(milliseconds=head["timestamp-ms"]) if head else None,
        manifest_list=head["manifest-list"] if head else None,
        totals=totals_of(head["summary"]) if head else Totals(),
        committed=committed_ranges(metadata.get("properties", {})),
        properties=metadata.get("properties", {}),
        specs={spec["spec-id"]: spec for spec in metadata["partition-specs"]},
        snapshots=len(metadata.get("snapshots", ())),
        table_location=TableLocation.of(metadata),
    )


def tenants(catalog: CatalogClient) -> Iterator[TenantId]:
    """Every tenant of the catalog, by its namespace."""
    for namespace in catalog.namespaces():
        name = from_identifier(namespace)
        parsed = parse_tenant(name) if name is not None else None
        if isinstance(parsed, TenantId):
            yield parsed


@dataclass(frozen=True, slots=True)
class UnreadableTable:
    """A table of a tenant of which the catalog cannot tell more than its name."""

    name: TableName
    problem: str


def every_stream(catalog: CatalogClient, tenant: TenantId) -> Iterator[TableView | UnreadableTable]:
    """Every log table of a tenant. One that is dropped meanwhile is left out, and so are tables of others
    that lie in its namespace."""
    for name, loaded in load_each(catalog, catalog.tables(tenant.namespace)):
        if isinstance(loaded, FirnError):
            is_dropped = isinstance(loaded, NotFoundError) and not isinstance(loaded, MetadataMissingError)
            if not is_dropped:
                yield UnreadableTable(name, str(loaded))
            continue
        metadata = loaded["metadata"]
        properties = metadata.get("properties", {})
        stream = properties.get(STREAM_PROPERTY) or from_identifier(name.name)
        if properties.get(TENANT_PROPERTY, tenant.name) == tenant.name and stream is not None:
            view = view_of(TableId(tenant, stream), name, metadata)
            if TENANT_PROPERTY in properties or not view.schema.lacks:
                yield view


def streams(catalog: CatalogClient, tenant: TenantId) -> Iterator[TableView]:
    """The same for those who need every table whole. Raises UnavailableError where one cannot be read."""
    for stream in every_stream(catalog, tenant):
        if isinstance(stream, UnreadableTable):
            raise UnavailableError(f"{stream.name} cannot be read: {stream.problem}")
        yield stream
