"""The parked record of a table: what every node has to know before it routes anything to it. It lives in the
catalog's database.

It changes only by compare-and-set: under the newest token of the lease of whoever changes it, and the version
last read. The catalog itself writes one, with the reason `rolled_back`, in the transaction that moves a table
back.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ingest.model.trouble import FOR_A_PERSON, Cause
from lake.catalog_client import CatalogClient, TableName
from lake.errors import ProtocolError
from lake.extras_client import ExtrasClient, ParkedChange, ParkedEntry
from lake.marks import NO_MARKS, Marks, parse_marks
from lake.tenant import TableId, TenantId, from_identifier

REREAD, ACCEPT = "reread", "accept"
_OURS = frozenset({"id", "topic-id", "start", "sentence", "since", "expected", "resolution", "probes"})


@dataclass(frozen=True, slots=True)
class ParkedRecord:
    """One table's parking. `version` 0: no record is in the catalog.

    `id` names this parking, and every message of it in the parking topic carries it, so that what a paused
    node parks later under an older one is told apart; empty until a node has taken up what the catalog wrote.
    It begins with the partition of the topic that they are in (`parked_topic.py`); `start` is an offset
    there, before which none of them lies, and `topic_id` says of which topic of that name. `expected`: marks
    that a node knew of and the table has lost. `resolution`: what a person decided for a table that was moved
    back. `probes` counts how often a person asked to try it again. `others`: what the catalog put in.
    """

    table: TableId
    cause: Cause
    sentence: str = ""
    version: int = 0
    id: str = ""
    topic_id: str = ""
    start: int = 0
    since: str = ""
    expected: Marks = NO_MARKS
    resolution: str = ""
    probes: int = 0
    others: Mapping[str, Any] = field(default_factory=dict)

    @property
    def awaits_person(self) -> bool:
        """Whether nothing may be written to the table before somebody runs `resolve`."""
        return self.cause in FOR_A_PERSON

    def begun(self, topic_id: str, partition: int, start: int, since: str) -> "ParkedRecord":
        """This parking from its beginning, with an id of its own."""
        return replace(
            self, id=f"{partition}-{uuid.uuid4().hex}", topic_id=topic_id, start=start, since=since
        )

    def to_json(self) -> dict[str, Any]:
        """The JSON document of the record."""
        return {
            **self.others,
            "id": self.id,
            "topic-id": self.topic_id,
            "start": self.start,
            "sentence": self.sentence,
            "since": self.since,
            "expected": self.expected.to_property(),
            "resolution": self.resolution,
            "probes": self.probes,
        }


def parse_parked(entry: ParkedEntry) -> ParkedRecord | None:
    """An entry of the catalog's list; None where it is of a table that is no tenant's. Raises
    ProtocolError."""
    table, document = table_id(entry.table), entry.record
    if table is None:
        return None
    try:
        return ParkedRecord(
            table,
            _cause(entry.reason),
            str(document.get("sentence", "")) or f"parked by the catalog: {entry.reason}",
            entry.version,
            str(document.get("id", "")),
            str(document.get("topic-id", "")),
            int(document.get("start", 0)),
            str(document.get("since", "")),
            parse_marks(document.get("expected")),
            str(document.get("resolution", "")),
            int(document.get("probes", 0)),
            {key: value for key, value in document.items() if key not in _OURS},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ProtocolError(
            f"the parked record of {table} cannot be read ({error!r}); remove it if the table is well: "
            f"{document!r:.300}"
        ) from error


def _cause(reason: str) -> Cause:
    try:
        return Cause(reason)
    except ValueError:
        return Cause.FAILING


def table_id(name: TableName) -> TableId | None:
    """The tenant's stream behind identifiers; None where no names map to them."""
    tenant, stream = from_identifier(name.namespace), from_identifier(name.name)
    return TableId(TenantId(tenant), stream) if tenant and stream else None


class ParkedRecords:
    """The parked records of one catalog, or of the control service beside a foreign one. Thread-safe; every
    call blocks."""

    def __init__(self, client: CatalogClient, *, timeout_s: float, also_in_force: Sequence[str] = ()) -> None:
        """`also_in_force`: other leases of the node, which `confirm` asks for, too."""
        self._extras = ExtrasClient(client)
        self._timeout_s = timeout_s
        self._also_in_force = tuple(also_in_force)

    def all(self) -> dict[TableId, ParkedRecord]:
        """Every record. Raises UnavailableError."""
        records = map(parse_parked, self._extras.parked())
        return {record.table: record for record in records if record is not None}

    def confirm(self, lease: str) -> None:
        """Returns where the lease (name:token) is in force, and the node's others are. Raises RefusedError
        where one is not, UnavailableError."""
        for each in (lease, *self._also_in_force):
            self._extras.change_parked([], lease=each, timeout_s=self._timeout_s)

    def find(self, table: TableId) -> ParkedRecord | None:
        """One table's record."""
        entry = self._extras.find_parked(TableName(table.tenant.namespace, table.table))
        return None if entry is None else parse_parked(entry)

    def write(self, record: ParkedRecord, *, lease: str, key: str, remove: bool = False) -> int | None:
        """Puts a record, or takes it away, over the version it was read at; its new version (0: none), or
        None where somebody changed it since.

        `lease`: name:token. `key`: a UUID, the same one for every repetition after an unknown outcome. Raises
        RefusedError for a token that is not in force, UnavailableError where nobody knows what happened.
        """
        change = ParkedChange(
            TableName(record.table.tenant.namespace, record.table.table),
            record.version,
            record.cause.value,
            None if remove else record.to_json(),
        )
        (version,) = self._extras.change_parked(
            [change], lease=lease, timeout_s=self._timeout_s, idempotency_key=key
        )
        return version
