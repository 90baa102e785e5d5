"""Whether an answer can be taken as the whole truth, and if not, why: in sentences, never a silent empty
page."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from query.model.instant import rfc3339
from query.model.point_in_time import PointInTime
from query.model.table_view import TableView
from query.search.lag import Lag


@dataclass(frozen=True, slots=True)
class Freshness:
    """How new a table is. `lag` None: there is nobody to ask how far behind ingestion is."""

    newest_row: datetime | None
    oldest_row: datetime | None
    committed_at: datetime | None
    lag: Lag | None


@dataclass(frozen=True, slots=True)
class Completeness:
    """`complete` False: `reasons` say what is or may be missing. `as_usual`: nothing is wrong, and what is
    missing can only be the newest records, which wait for their flush. `notes` are true and worth knowing,
    and take nothing from the answer."""

    complete: bool
    as_usual: bool
    reasons: tuple[str, ...]
    notes: tuple[str, ...]


def assess(
    end: datetime,
    now: datetime,
    freshness: Freshness,
    *,
    stopped: str | None,
    view: TableView,
    pin: PointInTime | None,
    rows: int | None,
) -> Completeness:
    """`end`: of the time range. `stopped`: why the engine ended early. `rows`: how many rows matched, where
    they were counted."""
    reasons: list[str] = []
    notes: list[str] = []
    if stopped is not None:
        reasons.append(f"stopped early: {stopped}")
    if pin is not None:
        reasons += _of_pin(pin, view, rows)
    elif end > now + timedelta(seconds=1):
        notes.append("the time range reaches into the future")
    wrong = list(reasons)
    if pin is None and freshness.lag is not None:
        behind = _of_lag(freshness.lag, end)
        reasons += behind
        wrong += [] if freshness.lag.is_usual and freshness.lag.parked_reason is None else behind
    if freshness.lag is None and pin is None:
        notes.append(
            "how far ingestion is behind is not known: set ingest.uri to where `python -m ingest serve` "
            "listens"
        )
    if view.snapshot_id is None:
        notes.append("this stream has no rows yet")
    return Completeness(not reasons, not wrong, tuple(reasons), tuple(notes))


def _of_lag(lag: Lag, end: datetime) -> list[str]:
    if lag.parked_reason is not None:
        return [
            (
                f"this stream is parked ({lag.parked_reason}): its newer records wait outside the table "
                "until it "
                "is healed"
            )
        ]
    if lag.records == 0 or (lag.complete_until is not None and end <= lag.complete_until):
        return []
    until = (
        f" (everything up to {rfc3339(lag.complete_until.replace(microsecond=0))} is in)"
        if lag.complete_until is not None
        else ""
    )
    if lag.records is None:
        return [
            f"ingest does not answer, so how far it is behind is not known{until}: newer rows may be missing"
        ]
    if not lag.is_told:
        return [f"ingestion is behind{until}: newer rows may be missing"]
    return [
        (
            f"ingestion is {lag.records:,} record{'' if lag.records == 1 else 's'} behind{until}: newer rows "
            "may "
            "be missing"
        )
    ]


def _of_pin(pin: PointInTime, view: TableView, rows: int | None) -> list[str]:
    if pin.table_uuid != view.uuid:
        return ["the table was dropped and made anew since this link was made: its rows are gone"]
    if pin.rows is None or rows is None or rows == pin.rows:
        return []
    if rows < pin.rows:
        return [
            (
                f"{pin.rows - rows:,} of the {pin.rows:,} rows this link was made of are gone: retention or "
                "erasure removed them"
            )
        ]
    return [
        (
            f"{rows - pin.rows:,} rows came in since this link was made: dead letters that were sent again "
            "keep "
            "the identity of their first reading"
        )
    ]
