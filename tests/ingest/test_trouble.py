"""Which table is parked: one that fails alone, never because of an outage."""

import pytest

from ingest.model.trouble import (
    FEW_TABLES,
    Cause,
    RegistryUnavailableError,
    Trouble,
    Troubles,
    Where,
    trouble_of,
)
from lake.catalog_client import MetadataMissingError, NoAnswerError
from lake.errors import (
    FirnError,
    NotFoundError,
    PrerequisiteError,
    RefusedError,
    UnavailableError,
)
from lake.tenant import TableId, TenantId

AFTER_S = 10.0
WELL = [TableId(TenantId(f"well-{n}"), "logs") for n in range(200)]
SICK = [TableId(TenantId(f"sick-{n}"), "logs") for n in range(200)]


def _troubles(
    sick: int, well: int, *, cause: Cause = Cause.STORAGE, attempts: int = 3, well_at_s: float = 5.0
) -> Troubles:
    """Some tables that fail from second 0 on, and some that took rows at `well_at_s`."""
    troubles = Troubles(AFTER_S)
    for _ in range(attempts):
        for table in SICK[:sick]:
            troubles.failed(table, Where.COMMIT, Trouble(cause, "why"), 0.0)
    for table in WELL[:well]:
        troubles.succeeded(table, well_at_s)
    return troubles


@pytest.mark.parametrize(
    ("what", "troubles", "now_s", "parked"),
    [
        ("one of many", _troubles(1, 199), 10.0, 1),
        ("five of two hundred, each in its way", _troubles(5, 195), 10.0, 5),
        ("a table that is alone on the node", _troubles(1, 0), 10.0, 1),
        ("not yet long enough", _troubles(1, 199), 9.9, 0),
        ("not yet often enough", _troubles(1, 199, attempts=2), 10.0, 0),
        ("many at the same time", _troubles(30, 170), 10.0, 0),
        ("a tenth of many tables", _troubles(20, 180), 10.0, 20),
        ("all of several", _troubles(3, 0), 10.0, 0),
        ("several, and nobody took rows since", _troubles(3, 50, well_at_s=-1.0), 10.0, 0),
        ("the disk is full", _troubles(1, 199, cause=Cause.DISK_FULL), 10.0, 0),
        ("the schema registry is away", _troubles(1, 199, cause=Cause.REGISTRY), 10.0, 0),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_table_is_suspected_only_when_it_fails_alone(
    what: str, troubles: Troubles, now_s: float, parked: int
) -> None:
    """Few tables, lasting, while others take rows: suspected; many at once, or all of several: an outage, and
    nobody is."""
    assert len(troubles.suspects(now_s)) == parked, what


@pytest.mark.parametrize("cause", [Cause.ROLLED_BACK, Cause.DELETED, Cause.COLUMNS])
def test_what_a_working_catalog_says_of_a_table_counts_at_once_however_many_it_says_it_of(
    cause: Cause,
) -> None:
    """A hundred tables dropped at the same time are no outage."""
    troubles = _troubles(100, 0, cause=cause, attempts=1)
    assert len(troubles.verdicts()) == 100
    assert troubles.suspects(1_000.0) == {}


def test_success_takes_a_failure_back_only_where_it_failed() -> None:
    """A table that loads again is well if loading was its trouble, and not if its commits are refused."""
    troubles = Troubles(AFTER_S)
    for _ in range(3):
        troubles.failed(SICK[0], Where.LOAD, Trouble(Cause.SLOW, ""), 0.0)
        troubles.failed(SICK[1], Where.COMMIT, Trouble(Cause.REFUSED, ""), 0.0)
        troubles.passed(SICK[1], Where.LOAD)
    troubles.passed(SICK[0], Where.LOAD)
    troubles.succeeded(WELL[0], 5.0)
    assert set(troubles.suspects(20.0)) == {SICK[1]}
    troubles.succeeded(SICK[1], 21.0)
    assert troubles.now == {}


def test_a_failure_before_a_moment_is_none_after_it() -> None:
    """Whoever has not been tried since the storage came back has not failed since."""
    troubles = Troubles(AFTER_S)
    for at_s in (1.0, 2.0):
        troubles.failed(SICK[0], Where.WRITE, Trouble(Cause.STORAGE, ""), at_s)
    assert troubles.failed_after(SICK[0], 1.5)
    assert not troubles.failed_after(SICK[0], 2.0)
    assert not troubles.failed_after(WELL[0], 0.0)


def test_few_tables_may_fail_whatever_their_share() -> None:
    """On a small node five failing tables beside one that takes rows are five faults, not an outage."""
    assert len(_troubles(FEW_TABLES, 1).suspects(10.0)) == FEW_TABLES
    assert _troubles(FEW_TABLES + 1, 1).suspects(10.0) == {}


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (PrerequisiteError("disk full"), Cause.DISK_FULL),
        (RegistryUnavailableError("no answer"), Cause.REGISTRY),
        (MetadataMissingError("gone"), Cause.METADATA),
        (NoAnswerError("slow"), Cause.SLOW),
        (UnavailableError("503"), Cause.STORAGE),
        (RefusedError("400"), Cause.STORAGE),
        (NotFoundError("404"), Cause.STORAGE),
    ],
)
def test_an_error_says_what_the_trouble_is(error: FirnError, cause: Cause) -> None:
    """The kind of the error decides; what has no kind of its own is what the caller was doing."""
    assert trouble_of(error, Cause.STORAGE).cause is cause
