"""Retention: how long rows are kept. Maintenance takes whole hours (UTC) that are past it; here it is set, of
a stream or of all streams of a tenant that say nothing themselves, and foretold from manifests."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import orjson

from lake.catalog_client import CatalogClient, CommitStatus
from lake.clock import epoch_ms
from lake.errors import ConflictError, RefusedError
from lake.holds import NO_HOLDS, TableHolds
from lake.retention import (
    PROPERTY,
    SET_BY_PROPERTY,
    Retention,
    first_hour_kept,
    parse_retention,
    spell_retention,
)
from lake.retention_policies import retention_of_table
from lake.table_layout import KEY_PROPERTY, US_PER_HOUR
from lake.tenant import TenantId
from query.files.file_index import LiveFile, LiveFiles
from query.model.instant import rfc3339
from query.model.problem import refuse
from query.model.table_view import EPOCH, TableView
from query.search.file_planner import Effort, effort_of


@dataclass(frozen=True, slots=True)
class Foretold:
    """What a retention takes now. `first_kept`: rows from this time on stay; `held`: what of `kept` is past
    it and stays because of legal holds."""

    gone: Effort
    kept: Effort
    held: Effort
    oldest: datetime | None
    first_kept: datetime | None


def wanted(text: str) -> int | None:
    """Hours of `30d` or `720h`; None: for ever. Raises BadRequestError."""
    try:
        return parse_retention(text)
    except ValueError:
        raise refuse(
            f"{text[:40]!r} is no retention", suggestion="write days or hours, like 30d or 720h, or forever"
        ) from None


def retention_in_force(
    properties: Mapping[str, str], of_tenant: str | None, of_lake: str | None
) -> Retention:
    """What holds for a table; what cannot be read deletes nothing."""
    try:
        return retention_of_table(properties, lambda: of_tenant, lambda: of_lake)
    except ValueError:
        return Retention()


def check_has_hours(view: TableView) -> None:
    """Raises BadRequestError for a table that follows a database: it has no hours that could go."""
    if KEY_PROPERTY in view.properties:
        raise refuse(
            f"{view.name} follows a database and has no retention",
            suggestion="delete the rows at their source",
        )


def keep_rows(catalog: CatalogClient, view: TableView, text: str | None, who: str, now: datetime) -> None:
    """Sets a stream's retention, None: it says nothing. Raises ConflictError, RefusedError."""
    updates, removals = _properties(text, who, now)
    change: dict[str, Any] = (
        {"action": "set-properties", "updates": updates}
        if updates
        else {"action": "remove-properties", "removals": removals}
    )
    requirements = [{"type": "assert-table-uuid", "uuid": view.uuid}]
    (result,) = catalog.commit_all(
        [{"identifier": view.name.to_json(), "requirements": requirements, "updates": [change]}]
    )
    if result.status is CommitStatus.COMMITTED:
        return
    failure = RefusedError if result.status is CommitStatus.INVALID else ConflictError
    raise failure(
        f"the retention of {view.name} was not set: {result.message or result.status.value}; look at the "
        "stream and set it again"
    )


def keep_rows_of_tenant(
    catalog: CatalogClient, tenant: TenantId, text: str | None, who: str, now: datetime
) -> None:
    """Sets that of all streams of a tenant that say nothing themselves, None: the tenant says nothing. Raises
    NotFoundError, RefusedError."""
    updates, removals = _properties(text, who, now)
    catalog.update_namespace(tenant.namespace, updates, removals)


def _properties(text: str | None, who: str, now: datetime) -> tuple[Mapping[str, str], list[str]]:
    """What is set, and what is removed."""
    if text is None:
        return {}, [PROPERTY, SET_BY_PROPERTY]
    told = orjson.dumps({"by": who, "at": rfc3339(now)}).decode()
    return {PROPERTY: spell_retention(wanted(text)), SET_BY_PROPERTY: told}, []


def set_by(properties: Mapping[str, str]) -> str | None:
    """Who set a retention and when, as a sentence; None where that is not known."""
    try:
        told = orjson.loads(properties.get(SET_BY_PROPERTY, ""))
        return f"{str(told['by'])[:200]}, {str(told['at'])[:40]}"
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None


def foretell(
    live: LiveFiles, retention_h: int | None, now: datetime, holds: TableHolds = NO_HOLDS
) -> Foretold:
    """What would go now; None: nothing ever does. Nothing is opened: a file of a day or month that goes in
    part, or of which other hours are held than those of its rows, is counted with those that stay, or go."""
    if retention_h is None:
        return Foretold(Effort(), effort_of(live.files), Effort(), live.oldest, None)
    first_hour = first_hour_kept(retention_h, epoch_ms(now))
    past = [file for file in live.files if file.last_us // US_PER_HOUR < first_hour]
    kept = [file for file in live.files if file.last_us // US_PER_HOUR >= first_hour]
    held = [file for file in past if holds.on_hours(_hours_of(file)) is not None]
    gone = [file for file in past if holds.on_hours(_hours_of(file)) is None]
    first_kept = EPOCH + timedelta(hours=first_hour) if first_hour * US_PER_HOUR > -(2**55) else None
    return Foretold(effort_of(gone), effort_of([*kept, *held]), effort_of(held), live.oldest, first_kept)


def _hours_of(file: LiveFile) -> range:
    return range(file.first_us // US_PER_HOUR, file.last_us // US_PER_HOUR + 1)
