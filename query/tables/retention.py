"""Retention: how long a stream's rows are kept. Maintenance takes whole hours (UTC) that are past it; here it
is set, and foretold from manifests."""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from lake.catalog_client import CatalogClient, CommitStatus
from lake.clock import epoch_us
from lake.errors import ConflictError, RefusedError
from lake.table_layout import KEY_PROPERTY, US_PER_HOUR
from query.files.file_index import LiveFiles
from query.model.problem import BadRequestError, refuse
from query.model.table_view import EPOCH, TableView
from query.search.file_planner import Effort, effort_of

PROPERTY = "firn.retention"
_FORM = re.compile(r"(\d{1,6})\s*(h|hours?|d|days?)$")


@dataclass(frozen=True, slots=True)
class Foretold:
    """What a retention takes now. `first_kept`: rows from this time on stay."""

    gone: Effort
    kept: Effort
    oldest: datetime | None
    first_kept: datetime | None


def parse_retention(text: str) -> int:
    """Hours of `30d` or `720h`. Raises BadQuestionError."""
    match = _FORM.match(text.strip().lower())
    if match is None or int(match[1]) == 0:
        raise refuse(f"{text[:40]!r} is no retention", suggestion="write days or hours, like 30d or 720h")
    return int(match[1]) * (24 if match[2].startswith("d") else 1)


def retention_of(view: TableView) -> int | None:
    """Hours; None where there is none, or where it cannot be read: what is unclear deletes nothing."""
    text = view.properties.get(PROPERTY, "").strip()
    try:
        return parse_retention(text) if text else None
    except BadRequestError:
        return None


def check_has_hours(view: TableView) -> None:
    """Raises BadRequestError for a table that follows a database: it has no hours that could go."""
    if KEY_PROPERTY in view.properties:
        raise refuse(
            f"{view.name} follows a database and has no retention",
            suggestion="delete the rows at their source",
        )


def keep_rows(catalog: CatalogClient, view: TableView, hours: int | None) -> None:
    """Sets a table's retention, None: for ever. Raises ConflictError, RefusedError."""
    if hours is None:
        update: dict[str, Any] = {"action": "remove-properties", "removals": [PROPERTY]}
    else:
        update = {
            "action": "set-properties",
            "updates": {PROPERTY: f"{hours // 24}d" if hours % 24 == 0 else f"{hours}h"},
        }
    requirements = [{"type": "assert-table-uuid", "uuid": view.uuid}]
    (result,) = catalog.commit_all(
        [{"identifier": view.name.to_json(), "requirements": requirements, "updates": [update]}]
    )
    if result.status is CommitStatus.COMMITTED:
        return
    failure = RefusedError if result.status is CommitStatus.INVALID else ConflictError
    raise failure(
        f"the retention of {view.name} was not set: {result.message or result.status.value}; look at the "
        "stream and set it again"
    )


def foretell(live: LiveFiles, retention_h: int | None, now: datetime) -> Foretold:
    """What would go now; None: nothing ever does. Nothing is opened: a file of a day or month that goes in
    part is counted with those that stay."""
    if retention_h is None:
        return Foretold(Effort(), effort_of(live.files), live.oldest, None)
    first_hour = (epoch_us(now) - retention_h * US_PER_HOUR) // US_PER_HOUR
    gone = [file for file in live.files if file.last_us // US_PER_HOUR < first_hour]
    kept = [file for file in live.files if file.last_us // US_PER_HOUR >= first_hour]
    first_kept = EPOCH + timedelta(hours=first_hour) if first_hour * US_PER_HOUR > -(2**55) else None
    return Foretold(effort_of(gone), effort_of(kept), live.oldest, first_kept)
