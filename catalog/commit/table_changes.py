"""One table's step from its current metadata to the next: requirements checked, updates applied, the new
file's bytes made. Nothing is written here."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from catalog.access.access import EVERYBODY, Principal
from catalog.access.locations import check_own_location, check_registered, is_administrator, table_location_of
from catalog.access.verbs import Need
from catalog.commit.requirements import check_requirements, is_creation
from catalog.commit.table_metadata import (
    empty_metadata,
    finish,
    metadata_file,
    new_metadata,
    normalised,
    requested_version,
    version_of,
)
from catalog.commit.updates import Draft, apply_updates, check_given_properties
from catalog.model.error_response import CatalogError, bad_request, invalid
from catalog.model.head_movement import Movement, movement_between
from catalog.model.identifier import Identifier
from catalog.model.json_fields import check_uuid, optional_string
from catalog.store.metadata_store import MetadataFile, MetadataStore, parse_metadata
from catalog.store.tables import TABLE, Head, missing, taken
from lake.errors import NotFoundError
from lake.marks import MARKS_PROPERTY
from lake.table_files import METADATA_BYTES_MAX
from lake.table_location import GRANTS_PROPERTY

Json = dict[str, Any]
# Updates that may leave everything as it was; any other makes a new version for certain.
_MAYBE_NOTHING = frozenset(
    {
        "assign-uuid",
        "upgrade-format-version",
        "add-schema",
        "set-current-schema",
        "add-spec",
        "set-default-spec",
        "add-sort-order",
        "set-default-sort-order",
        "set-snapshot-ref",
        "remove-snapshots",
        "remove-snapshot-ref",
        "set-location",
        "set-properties",
        "remove-properties",
        "remove-statistics",
        "remove-partition-statistics",
        "remove-partition-specs",
        "remove-schemas",
    }
)


# What of a table's rows a snapshot leaves out, only its manifests tell; one that no ref names is nobody's.
_ABOUT_ROWS = frozenset({"set-snapshot-ref", "remove-snapshot-ref", "remove-snapshots"})


@dataclass(frozen=True, slots=True)
class TableChange:
    """What a request wants of one table. `create` is the body of createTable where the change begins the
    table; `by`: who asks."""

    identifier: Identifier
    requirements: Sequence[Json] = ()
    updates: Sequence[Json] = ()
    create: Json | None = None
    register: str | None = None
    create_namespace: dict[str, str] | None = None
    may_recreate: bool = True
    may_overwrite: bool = False
    kind: str = TABLE
    by: Principal = EVERYBODY

    @property
    def is_bound(self) -> bool:
        """Whether who asks commits to some namespaces only."""
        return self.by.bound_to(Need.COMMIT, self.identifier.namespace) is not None

    @property
    def by_there(self) -> Principal:
        """Who asks, with the rights that they have in the table's namespace."""
        return self.by.at(self.identifier.namespace)


@dataclass(frozen=True, slots=True)
class NextVersion:
    """The outcome of a change before it is written: the new file, or none where nothing changed.

    `alone`: its location was chosen by who is bound, so no other table may lie at, above or below it.
    `may_lose`: of who is bound, and might take away rows or columns.
    """

    change: TableChange
    head: Head | None
    file: MetadataFile | None
    data: bytes
    location: str
    uuid: str
    table_location: str
    unneeded: Sequence[str] = ()
    movement: Movement | None = None
    alone: bool = False
    may_lose: bool = False

    @classmethod
    def unchanged(cls, change: TableChange, head: Head, data: bytes) -> "NextVersion":
        """The version that there is."""
        return cls(change, head, None, data, head.metadata_location, head.uuid, head.location)

    @property
    def swaps(self) -> bool:
        """Whether the row changes: a new file, or one that is registered."""
        return self.head is None or self.location != self.head.metadata_location

    @property
    def takes_a_place(self) -> bool:
        """Whether it puts another table in the place of the one of this name."""
        return self.head is not None and self.head.kind == TABLE and self.head.uuid != self.uuid


def default_location(store: MetadataStore, table_uuid: str) -> str:
    """Where a table goes when nobody chose: two hexadecimal digits spread the folders, the uuid makes it
    unique for ever."""
    return f"{store.warehouse}/{table_uuid[:2]}/{table_uuid}"


def namespace_location(store: MetadataStore, path: str) -> str:
    """Where engines that choose a table's location themselves put the tables of a namespace, each below a
    folder of its own."""
    return default_location(store, str(uuid.uuid5(uuid.NAMESPACE_URL, path)))


def next_version(change: TableChange, head: Head | None, store: MetadataStore, now_ms: int) -> NextVersion:
    """Checks and applies one table change. Raises CatalogError; nothing has happened then."""
    if head is not None and head.kind != change.kind:
        raise _other_kind(change, head)
    if change.register is not None:
        return _registered(change, head, store)
    if change.create is not None or is_creation(change.requirements):
        return _created(change, head, store, now_ms)
    if head is None:
        raise missing(change.identifier, change.kind)
    return _updated(change, head, store, now_ms)


def _updated(change: TableChange, head: Head, store: MetadataStore, now_ms: int) -> NextVersion:
    """The next version of a table that is there; where nothing changes it is the one that is."""
    base = read_metadata(store, head.metadata_location)
    metadata = normalised(parse_metadata(base))
    check_requirements(change.requirements, metadata)
    if not change.updates:
        return NextVersion.unchanged(change, head, base)
    may_be_nothing = all(update.get("action") in _MAYBE_NOTHING for update in change.updates)
    before = orjson.dumps(metadata) if may_be_nothing else None
    old_head, old_snapshots = metadata.get("current-snapshot-id"), metadata["snapshots"][:]
    had_marks, is_bound = MARKS_PROPERTY in metadata["properties"], change.is_bound
    columns = _column_ids(metadata) if is_bound else frozenset()
    draft = Draft(metadata, now_ms, store.check_location, change.by_there, store.allowed)
    apply_updates(draft, change.updates)
    if before is not None and orjson.dumps(draft.metadata) == before:
        return NextVersion.unchanged(change, head, base)
    unneeded = finish(
        draft,
        previous_location=head.metadata_location,
        previous_updated_ms=metadata.get("last-updated-ms", now_ms),
    )
    may_lose = is_bound and (
        any(update.get("action") in _ABOUT_ROWS for update in change.updates)
        or not columns <= _column_ids(draft.metadata)
    )
    return written(
        change,
        head,
        draft.metadata,
        store,
        unneeded=unneeded,
        movement=movement_between(old_head, old_snapshots, had_marks, draft.metadata),
        may_lose=may_lose,
    )


def _column_ids(metadata: Json) -> frozenset[int]:
    """The field ids of the current schema's columns."""
    current = metadata["current-schema-id"]
    schema = next(schema for schema in metadata["schemas"] if schema["schema-id"] == current)
    return frozenset(field["id"] for field in schema["fields"])


def _created(change: TableChange, head: Head | None, store: MetadataStore, now_ms: int) -> NextVersion:
    if head is not None:
        if change.create is not None:
            raise taken(change.identifier, head.kind, change.kind)
        check_requirements(change.requirements, {})
    if change.create is not None:
        table_uuid, location = chosen_place(change.create, store)
        metadata = new_metadata(change.create, uuid=table_uuid, location=location, now_ms=now_ms)
    else:
        metadata = empty_metadata(requested_version(list(change.updates)), now_ms)
    draft = Draft(metadata, now_ms, store.check_location, change.by_there, store.allowed)
    given, metadata["properties"] = metadata["properties"], {}
    check_given_properties(draft, given)
    metadata["properties"].update(given)
    apply_updates(draft, change.updates)
    if metadata["table-uuid"] is None:
        metadata["table-uuid"] = str(uuid.uuid4())
    if metadata["location"] is None:
        metadata["location"] = default_location(store, metadata["table-uuid"])
    _default_parts(metadata)
    alone = lies_apart(change.by, change.identifier, metadata["location"], metadata["table-uuid"], store)
    finish(draft, previous_location=None, previous_updated_ms=now_ms)
    movement = movement_between(None, [], False, metadata)
    return written(change, None, metadata, store, movement=movement, alone=alone)


def lies_apart(
    by: Principal, identifier: Identifier, location: str, table_uuid: str, store: MetadataStore
) -> bool:
    """Whether a new table's location has to be compared with those of others. Raises CatalogError 403 where a
    bound key may not choose it."""
    root = by.bound_to(Need.WRITE, identifier.namespace)
    if root is None:
        return False
    # A uuid of version 5 is made of a name: the one of a namespace's folder would be another's place.
    chosen = default_location(store, table_uuid) if uuid.UUID(table_uuid).version != 5 else ""
    folder = namespace_location(store, identifier.namespace)
    may_choose = by.streams is None  # what is refused below the namespace's folder tells what lies there
    return check_own_location(location, chosen, root if may_choose else None, folder, store.warehouse)


def _other_kind(change: TableChange, head: Head) -> CatalogError:
    creates = change.create is not None or change.register is not None or is_creation(change.requirements)
    return (
        taken(change.identifier, head.kind, change.kind)
        if creates
        else missing(change.identifier, change.kind)
    )


def _registered(change: TableChange, head: Head | None, store: MetadataStore) -> NextVersion:
    """A table or view that begins with a metadata file which lies in the storage already."""
    if head is not None and not change.may_overwrite:
        raise taken(change.identifier, head.kind, change.kind)
    location = store.check_location(change.register, "metadata-location")
    data = read_metadata(store, location)
    try:
        metadata = parse_metadata(data)
    except orjson.JSONDecodeError as error:
        raise bad_request(f"{location} holds no JSON ({error}); name a metadata file") from error
    if change.kind == TABLE:
        normalised(metadata)
    own_uuid = metadata.get("table-uuid" if change.kind == TABLE else "view-uuid")
    if not isinstance(own_uuid, str) or not isinstance(metadata.get("location"), str):
        raise bad_request(f"{location} holds no metadata of a {change.kind}: uuid or location is missing")
    check_uuid(own_uuid)
    own_location = store.check_location(metadata["location"])
    granted = (metadata.get("properties") or {}).get(GRANTS_PROPERTY)
    check_registered(
        metadata,
        location,
        table_location_of(own_location, granted, store.allowed if is_administrator(change.by) else ()),
    )
    movement = (
        None
        if head is None or head.uuid != own_uuid or change.kind != TABLE
        else _registered_movement(head, store, metadata)
    )
    return NextVersion(change, head, None, data, location, own_uuid, own_location, movement=movement)


def _registered_movement(head: Head, store: MetadataStore, metadata: Json) -> Movement | None:
    """How the head moves when other metadata of the same table is registered in its place."""
    before = normalised(parse_metadata(read_metadata(store, head.metadata_location)))
    return movement_between(
        before.get("current-snapshot-id"),
        before["snapshots"],
        MARKS_PROPERTY in before["properties"],
        metadata,
    )


def _default_parts(metadata: Json) -> None:
    """A creating commit may leave out what most tables do not have."""
    if not metadata["partition-specs"]:
        metadata.update({"partition-specs": [{"spec-id": 0, "fields": []}], "default-spec-id": 0})
    if not metadata["sort-orders"]:
        metadata.update({"sort-orders": [{"order-id": 0, "fields": []}], "default-sort-order-id": 0})


def chosen_place(create: Json, store: MetadataStore) -> tuple[str, str]:
    """The uuid and location of a new table: the caller's, where given, else fresh ones. Raises CatalogError
    400 or 403."""
    given = optional_string(create, "table-uuid")
    try:
        table_uuid = str(uuid.UUID(given)) if given is not None else str(uuid.uuid4())
    except ValueError as error:
        raise bad_request(f"'table-uuid' {given!r} is not a UUID") from error
    location = create.get("location")
    if location is None:
        return table_uuid, default_location(store, table_uuid)
    own_location = store.check_location(location).rstrip("/")
    if given is not None and table_uuid not in own_location:
        raise invalid(
            f"location {own_location} must contain the table-uuid {table_uuid}, so that no two tables ever "
            "share files"
        )
    return table_uuid, own_location


def written(
    change: TableChange,
    head: Head | None,
    metadata: Json,
    store: MetadataStore,
    *,
    unneeded: Sequence[str] = (),
    movement: Movement | None = None,
    alone: bool = False,
    may_lose: bool = False,
) -> NextVersion:
    """The next version of changed metadata, with its bytes and the file they go to. Raises CatalogError 400
    or 403."""
    data = orjson.dumps(metadata)
    if len(data) > METADATA_BYTES_MAX:
        raise invalid(
            f"the metadata would take {len(data):,} bytes, more than the {METADATA_BYTES_MAX:,} that are "
            "read again; expire snapshots first"
        )
    version = 0 if head is None else version_of(head.metadata_location) + 1
    location = store.check_location(metadata_file(metadata, version, str(uuid.uuid4())), "metadata file")
    return NextVersion(
        change,
        head,
        MetadataFile(location, data),
        data,
        location,
        metadata.get("table-uuid") or metadata["view-uuid"],
        metadata["location"],
        unneeded,
        movement,
        alone,
        may_lose,
    )


def read_metadata(store: MetadataStore, location: str) -> bytes:
    """The bytes of current metadata. Raises CatalogError 404 where the file is missing, UnavailableError
    where the storage does not answer."""
    try:
        return store.read(location)
    except NotFoundError as error:
        message = (
            f"Failed to open input stream for file: {location}; restore the file or run `python -m "
            "catalog check`"
        )
        raise CatalogError(404, "NotFoundException", message) from error
