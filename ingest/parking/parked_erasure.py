"""Messages of the parking topic that no table waits for any more, deleted for good, with what they have in
the warehouse.

Each partition is cut off at the first offset that a parked table may need (its parking's start), and never
above what was there an hour ago: a parking that begins right now starts at an end that was read moments ago.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, cast

from ingest.decode.replay import facts_behind
from ingest.kafka.aside import Aside
from ingest.kafka.claim_check import BODY, ENVELOPE
from ingest.kafka.kafka_reader import KafkaReader
from ingest.kafka.topic_mac import TopicMac
from ingest.model.parked_record import ParkedRecord
from ingest.parking.parked_topic import PARKED, partition_of
from lake.clock import epoch_ms
from lake.errors import RefusedError
from lake.settings import IngestSettings

SETTLED_AFTER = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class ErasedParked:
    """Messages below the cuts, and objects deleted from the warehouse."""

    messages: int
    bodies: int


def erase_parked(
    settings: IngestSettings,
    reader: KafkaReader,
    aside: Aside,
    parked: Iterable[ParkedRecord],
    now: datetime,
    *,
    dry_run: bool = False,
) -> ErasedParked:
    """`parked`: the tables that are parked now. `aside`: where bodies of parked messages lie. Raises
    RefusedError where a table waits for a person, whose parked records may be needed from the beginning;
    UnavailableError, nothing being lost then."""
    mac = TopicMac(settings)
    records = list(parked)
    if undecided := next((record for record in records if record.awaits_person or not record.id), None):
        raise RefusedError(
            f"table {undecided.table} waits for `python -m ingest resolve`, which may need what was parked "
            "before; resolve it first"
        )
    partitions = reader.partitions([settings.internal_topics.parked])
    ends, settled = reader.ends(partitions), reader.from_time(partitions, epoch_ms(now - SETTLED_AFTER))
    starts = {
        p: [
            record.start
            for record in records
            if partition_of(record.id) == p.partition and record.topic_id == p.topic_id
        ]
        for p in partitions
    }
    cuts = {p: max(ends[p].start, min([settled[p], ends[p].end, *starts[p]])) for p in partitions}
    messages, uris = 0, set[str]()
    for message in reader.read({p: (ends[p].start, cut) for p, cut in cuts.items()}):
        messages += 1
        found = facts_behind(cast("Any", message.headers()) or (), PARKED) if mac.is_own(message) else None
        uris |= {found[0][name] for name in (BODY, ENVELOPE) if name in found[0]} if found else set()
    if dry_run:
        return ErasedParked(messages, 0)
    bodies = aside.delete(uris)
    reader.delete_below({p: cut for p, cut in cuts.items() if cut > ends[p].start})
    return ErasedParked(messages, bodies)
