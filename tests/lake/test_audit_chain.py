"""A chain that somebody has touched: whatever was removed, changed or moved is named."""

import copy
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest

from lake.audit.chain import Verification
from lake.audit.event import Head, make_event

START = datetime(2026, 11, 25, 23, 0, tzinfo=UTC)
Row = dict[str, Any]


def rows_of(writer: str = "one", number: int = 10) -> list[Row]:
    """A chain as the API gives its rows."""
    rows, head = list[Row](), Head()
    for at in range(number):
        fields: dict[str, str | int | None] = {
            "event.action": "search",
            "user.id": f"key{at}",
            "firn.rows": at,
            "message": f"search {at}",
        }
        event = make_event(fields, writer, head, START + timedelta(minutes=20 * at))
        rows.append(as_row(orjson.loads(event.line), at))
        head = event.head
    return rows


def as_row(said: dict[str, Any], offset: int) -> Row:
    """An event as its row: dots are underscores in names of columns."""
    fields = {name.replace(".", "_"): value for name, value in said.items()}
    return {
        "timestamp": fields.pop("@timestamp"),
        "message": fields.pop("message", None),
        "fields": fields,
        "coordinates": {"topic": "firn.audit", "offset": offset},
    }


def faults(rows: list[Row], writer: str = "one") -> list[str]:
    """What is wrong with a writer's chain. Rows come in any order."""
    verification = Verification()
    for row in random.Random(7).sample(rows, len(rows)):
        verification.add(row)
    verification.check()
    return verification.chains[writer].faults


def test_a_chain_that_nobody_touched_is_whole() -> None:
    """Over midnight, beside another writer's, and where an event came twice."""
    rows = rows_of()
    assert faults([*rows, *rows_of("two"), rows[3]]) == []
    verification = Verification()
    for row in (*rows, rows[3]):
        verification.add(row)
    verification.check()
    (chain,) = verification.chains.values()
    assert "twice" in chain.notes[0]
    assert (chain.first.sequence, chain.head.sequence, len(chain.links)) == (1, 10, 11)


@pytest.mark.parametrize(
    ("gone", "said"), [((4,), "event 5 is missing"), ((4, 5), "events 5 to 6 are missing")]
)
def test_a_removed_event_is_named(gone: tuple[int, ...], said: str) -> None:
    """One, or several in a row."""
    assert faults([row for at, row in enumerate(rows_of()) if at not in gone]) == [said]


def test_a_chain_without_its_beginning_says_so() -> None:
    """Retention takes it, and an attacker may have: the events left cannot tell, so it is no fault."""
    verification = Verification()
    for row in rows_of()[4:]:
        verification.add(row)
    verification.check()
    (chain,) = verification.chains.values()
    assert (chain.faults, len(chain.notes)) == ([], 1)
    assert "begins with event 5" in chain.notes[0]


@pytest.mark.parametrize(
    ("column", "value"),
    [("user_id", "somebody"), ("firn_rows", 99), ("event_action", None), ("organization_name", "acme")],
)
def test_a_changed_column_is_named(column: str, value: object) -> None:
    """Whatever a column says now, and where it says something that was never said."""
    rows = rows_of()
    rows[6]["fields"][column] = value
    (fault,) = faults(rows)
    assert fault.startswith(f"event 7 was changed: {column} is ")


def test_a_changed_time_and_message_are_named() -> None:
    """They are columns of their own."""
    rows = rows_of()
    rows[2]["timestamp"] = "2026-11-25T23:40:01Z"
    rows[5]["message"] = "nothing happened"
    assert sorted(faults(rows)) == [
        "event 3 was changed: its time is 2026-11-25T23:40:01Z, and was 2026-11-25T23:40:00.000000Z",
        "event 6 was changed: its message is another",
    ]


def test_an_event_that_was_written_anew_breaks_the_chain() -> None:
    """With a hash that fits its new text: then the next one does not follow it."""
    rows = rows_of()
    said = orjson.loads(rows[4]["fields"]["event_original"])
    forged = make_event(
        {"event.action": "search", "user.id": "innocent", "firn.rows": 4, "message": "search 4"},
        "one",
        Head(4, said["firn.previous"], said["@timestamp"]),
        START,
    )
    rows[4] = as_row(orjson.loads(forged.line), 4)
    assert faults(rows) == ["event 6 does not follow event 5 as it stands there"]


def test_a_text_that_does_not_fit_its_hash_is_named() -> None:
    """The text was changed, the hash was not."""
    rows = rows_of()
    fields = rows[4]["fields"]
    fields["event_original"] = fields["event_original"].replace("key4", "key9")
    fields["user_id"] = "key9"
    found = faults(rows)
    assert found[0] == "event 5 was changed: its hash is not that of its text (event.original)"


def test_events_that_changed_places_are_named() -> None:
    """Two events with each other's numbers and times: what the columns say is not what was hashed."""
    rows = rows_of()
    one, other = rows[3], rows[7]
    for name in ("event_sequence", "event_id"):
        one["fields"][name], other["fields"][name] = other["fields"][name], one["fields"][name]
    one["timestamp"], other["timestamp"] = other["timestamp"], one["timestamp"]
    assert [fault.split(":")[0] for fault in sorted(faults(rows))] == [
        "event 4 was changed",
        "event 8 was changed",
    ]


def test_two_events_with_one_number_are_named() -> None:
    """Somebody added one: which of them was written here the chain behind it tells."""
    rows = rows_of()
    added = copy.deepcopy(rows_of("one", 5)[4])
    said = orjson.loads(added["fields"]["event_original"])
    event = make_event({"event.action": "other"}, "one", Head(4, said["firn.previous"], ""), START)
    found = faults([*rows, as_row(orjson.loads(event.line), 99)])
    assert "two different events are event 5" in found


def test_what_is_no_event_is_told() -> None:
    """A row that somebody wrote without knowing the trail."""
    verification = Verification()
    verification.add({**rows_of()[0], "fields": {"event_action": "x"}})
    assert "offset 0) is no event" in verification.strangers[0]
