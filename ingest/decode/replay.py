"""A dead letter on its way back: what the headers of a message in the replay topic say.

Its value, key and own headers are those of the message that died; behind them stand, from `firn.attempt` on,
where it was first read (its identity for ever), how it is to be read, and the table it goes to. The replay
topic's own offsets are what marks are made of.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from ingest.decode.formats.registry import REPLAY, TOPIC_FORMATS
from lake.settings import REPLAY_STREAM, REPLAY_TENANT, ChangeSettings, FormatName
from lake.tenant import TableId

Headers = Sequence[tuple[str, bytes | None]]
ATTEMPT = "firn.attempt"
CHANGES = "firn.changes"  # how a change of a row is read, as the settings of its topic were then
_FORMS = frozenset(TOPIC_FORMATS) - {REPLAY}


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a replayed message was first read, and how it is read now. `index`: of the one record of that
    message which died (None: all of it).

    `attempt` numbers the replays of one identity, so that a dead letter which died again is told from one
    that was replayed already. `changes`: of a message that says how a row changed, how it is read.
    """

    topic: str
    topic_id: str
    partition: int
    offset: int
    index: int | None
    form: FormatName
    time_zone: str
    attempt: int
    changes: ChangeSettings | None = None

    @property
    def coordinates(self) -> tuple[str, str, int, int]:
        """Topic, its id, partition, offset."""
        return self.topic, self.topic_id, self.partition, self.offset


def replay_headers(origin: Origin, table: TableId) -> list[tuple[str, bytes]]:
    """What a message of the replay topic has behind its own headers."""
    facts = {
        ATTEMPT: str(origin.attempt),
        "firn.topic": origin.topic,
        "firn.topic_id": origin.topic_id,
        "firn.partition": str(origin.partition),
        "firn.offset": str(origin.offset),
        "firn.format": origin.form,
        "firn.time_zone": origin.time_zone,
        REPLAY_TENANT: table.tenant.name,
        REPLAY_STREAM: table.stream,
    }
    if origin.index is not None:
        facts["firn.index"] = str(origin.index)
    if origin.changes is not None:
        facts[CHANGES] = origin.changes.model_dump_json()
    return [(name, text.encode()) for name, text in facts.items()]


def facts_behind(headers: Headers, first: str) -> tuple[dict[str, str], Headers] | None:
    """What Firn put behind a message's own headers, from the last header called `first` on, and the message's
    own; None where there is none."""
    at = next((at for at in range(len(headers) - 1, -1, -1) if headers[at][0] == first), None)
    if at is None:
        return None
    return {
        name: (value or b"").decode("utf-8", "backslashreplace") for name, value in headers[at:]
    }, headers[:at]


def origin_of(headers: Headers) -> tuple[Origin, Headers] | None:
    """The origin of a message of the replay topic, and its own headers; None where the headers do not
    tell."""
    found = facts_behind(headers, ATTEMPT)
    if found is None:
        return None
    facts, own = found
    try:
        origin = Origin(
            facts["firn.topic"],
            facts["firn.topic_id"],
            int(facts["firn.partition"]),
            int(facts["firn.offset"]),
            int(facts["firn.index"]) if "firn.index" in facts else None,
            cast("FormatName", facts["firn.format"]),
            facts["firn.time_zone"],
            int(facts[ATTEMPT]),
            ChangeSettings.model_validate_json(facts[CHANGES]) if CHANGES in facts else None,
        )
    except (KeyError, ValueError):
        return None
    return (origin, own) if origin.form in _FORMS else None
