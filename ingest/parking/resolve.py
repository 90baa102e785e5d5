"""What a person decides about a parked table: how a table that was moved back goes on, or that one is tried
again at once.

    reread    the marks are set to those of the head, in a commit with a snapshot of its own; what was taken
              away is read from the input topics
    accept    the marks stay, or are set to what a node had written, likewise in a commit; what was taken away
              stays away

Both then change the parked record, and the node goes on: now, if it runs, or when it starts. Doing it twice
does no harm."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from uuid import uuid4

from ingest.commit.table_states import table_name
from ingest.kafka.kafka_reader import KafkaReader
from ingest.model.parked_record import ACCEPT, REREAD, ParkedRecord, ParkedRecords
from ingest.model.trouble import FOR_A_PERSON, Cause
from ingest.parking.parked_topic import parking_partition
from lake.catalog_client import CatalogClient, CommitStatus
from lake.clock import Clock, epoch_ms
from lake.commit import Prepared, TableState, load_state, prepare_append
from lake.errors import (
    ConflictError,
    FatalError,
    NotFoundError,
    OutcomeUnknownError,
    RefusedError,
    UnavailableError,
)
from lake.lease import Lease, held_lease, lease_name
from lake.marks import NO_MARKS, Marks
from lake.settings import IngestSettings
from lake.storage import AnyStorage
from lake.tenant import TableId

ATTEMPTS = 5
TIMEOUT_S = 30.0
WRITER = "resolve"


@dataclass(frozen=True)
class Resolver:
    """Works beside a running node as well as without one."""

    settings: IngestSettings
    catalog: CatalogClient
    control: CatalogClient
    storage: AnyStorage
    clock: Clock

    @property
    def _records(self) -> ParkedRecords:
        return ParkedRecords(self.control, timeout_s=TIMEOUT_S)

    def parked(self) -> Sequence[ParkedRecord]:
        """All parked tables. Raises UnavailableError."""
        return sorted(self._records.all().values(), key=lambda record: str(record.table))

    def resolve(self, table: TableId, how: str) -> Marks:
        """Decides about a table that waits for a person, `how` being reread or accept; its marks from here
        on.

        Raises NotFoundError, RefusedError where nothing is to be decided, ConflictError where somebody else
        was at it, UnavailableError.
        """
        marks = NO_MARKS

        def decided(record: ParkedRecord) -> ParkedRecord:
            nonlocal marks
            if record.cause not in (*FOR_A_PERSON, Cause.RESOLVED):
                raise RefusedError(
                    f"table {table} is parked because of {record.cause.value} and comes back by itself when "
                    f"that is mended: {record.sentence}"
                )
            marks = self._commit(record, how)
            sentence = f"a person decided: {how}"
            return replace(self._at_topic(record), cause=Cause.RESOLVED, resolution=how, sentence=sentence)

        self._change(table, decided)
        return marks

    def replay(self, table: TableId) -> ParkedRecord:
        """Has a parked table tried again at once. Raises NotFoundError, RefusedError where it waits for a
        person, ConflictError, UnavailableError."""

        def probed(record: ParkedRecord) -> ParkedRecord:
            if record.awaits_person:
                raise RefusedError(
                    f"table {table} waits for `python -m ingest resolve {table} --reread` or `--accept`: "
                    f"{record.sentence}"
                )
            return replace(record, probes=record.probes + 1)

        return self._change(table, probed)

    def reread_parked(self) -> int:
        """Has all parked tables read the input topics from their marks on, before what is parked; how many.
        Those that wait for a person go on waiting. Raises ConflictError, RefusedError, UnavailableError.

        For a catalog that went back: a node that did not know it has parked a table from where the table
        stood before, and a drain passes over what is read again and parked behind that.
        """
        tables = [record.table for record in self.parked() if not record.awaits_person]
        sentence = "the catalog went back, and the input topics are read again"
        resolved = partial(replace, cause=Cause.RESOLVED, resolution=REREAD, sentence=sentence)
        for table in tables:
            self._change(table, resolved)
        return len(tables)

    # ---- the table

    def _commit(self, record: ParkedRecord, how: str) -> Marks:
        for _ in range(ATTEMPTS):
            state = load_state(self.catalog, self.storage, table_name(record.table))
            if state is None:
                return NO_MARKS  # there is no table to say anything of: its records go to a new one
            marks = _marks(state, record, how)
            # A commit even where the marks stay: its snapshot says them, so that the table no longer looks
            # moved back.
            prepared = prepare_append(
                state, [], state.schema, marks, epoch_ms(self.clock.now()), writer=WRITER
            )
            if self._sent(prepared):
                return marks
        raise ConflictError(
            f"table {record.table} is changed by others all the time; stop its maintenance and try again"
        )

    def _sent(self, prepared: Prepared) -> bool:
        """Whether the commit landed; False: somebody was faster."""
        self.storage.write_all(prepared.files)
        (result,) = self.catalog.commit_all([prepared.request], timeout_s=TIMEOUT_S)
        if result.status in (CommitStatus.COMMITTED, CommitStatus.CONFLICT):
            return result.status is CommitStatus.COMMITTED
        if result.status is CommitStatus.UNKNOWN:
            raise OutcomeUnknownError(
                f"nobody knows whether the commit happened ({result.message}); run it again"
            )
        if result.status in (CommitStatus.FAILED, CommitStatus.TIMEOUT):
            raise UnavailableError(f"the catalog did not commit: {result.message}; run it again")
        raise FatalError(f"the catalog refuses the commit ({result.status.value}): {result.message}")

    # ---- the record

    def _record(self, table: TableId) -> ParkedRecord:
        record = self._records.find(table)
        if record is None:
            raise NotFoundError(
                f"table {table} is not parked; `python -m ingest parked list` shows those that are"
            )
        return record

    def _at_topic(self, record: ParkedRecord) -> ParkedRecord:
        """The record with the parking topic as it is: what is gone from there, or from the topic that it was,
        is not looked for any more."""
        if not record.id:
            return record  # no node has taken it up yet
        reader = KafkaReader(self.settings)
        partition = parking_partition(reader, self.settings.internal_topics.parked, record.id)
        first = reader.ends([partition])[partition].start
        return replace(
            record,
            topic_id=partition.topic_id,
            start=max(first, record.start) if partition.topic_id == record.topic_id else first,
        )

    def _change(self, table: TableId, change: Callable[[ParkedRecord], ParkedRecord]) -> ParkedRecord:
        """Changes the record of a table, anew where the node has changed it meanwhile; the one before."""
        with self._lease(table) as lease:
            for _ in range(ATTEMPTS):
                record = self._record(table)
                token, key = lease.fencing_token or "", str(uuid4())
                if self._records.write(change(record), lease=token, key=key) is not None:
                    return record
        raise ConflictError(f"the parked record of {table} changes all the time; run it again")

    def _lease(self, table: TableId) -> AbstractContextManager[Lease]:
        """A lease of its own: the record's version tells the node that somebody was there."""
        name = f"{lease_name(self.settings)}.{table}"
        return held_lease(self.control, name, f"somebody else decides about {table} at this moment")


def _marks(state: TableState, record: ParkedRecord, how: str) -> Marks:
    if how == ACCEPT:
        return state.marks.joined(record.expected)
    if how != REREAD:
        raise FatalError(f"{how!r} is no way to resolve; say reread or accept")
    if state.head_marks is None:
        raise FatalError(
            f"no snapshot of {record.table} that is kept says how far its rows go, so nobody knows what to "
            "read again; "
            f"use --accept, or set the property firn.offsets yourself and use --reread"
        )
    return state.head_marks
