"""What was delivered to Kafka and what must become of it, per tenant: the left side of the demo's sum."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import orjson

from infra.demo.atomic_file import write_atomically
from infra.demo.record import NO_TENANT, DemoRecord
from lake.clock import SYSTEM_CLOCK

State = Literal["loading", "trickling", "finished", "failed"]


@dataclass(slots=True)
class TenantTally:
    """One tenant's delivered records; `produced = expected_rows + expected_dead`, and `expected_errors` of
    the rows carry `_errors`."""

    produced: int = 0
    expected_rows: int = 0
    expected_dead: int = 0
    expected_errors: int = 0

    def add(self, record: DemoRecord) -> None:
        """Counts one delivered record."""
        self.produced += 1
        if record.expected == "row":
            self.expected_rows += 1
        else:
            self.expected_dead += 1
        self.expected_errors += record.errors_expected


class Tally:
    """Counts by tenant; records that name no usable tenant are counted under `(no tenant)`."""

    def __init__(self) -> None:
        self.tenants: dict[str, TenantTally] = {}
        self.failed = 0
        self.first_failure: str | None = None

    def delivered(self, record: DemoRecord) -> None:
        """The broker has acknowledged the record."""
        self.tenants.setdefault(NO_TENANT if record.tenant is None else record.tenant, TenantTally()).add(
            record
        )

    def not_delivered(self, reason: str) -> None:
        """The broker has not acknowledged a record, and no further attempt is made."""
        self.failed += 1
        self.first_failure = self.first_failure or reason

    def __add__(self, other: "Tally") -> "Tally":
        """The records of both, by tenant."""
        both = Tally()
        both.failed = self.failed + other.failed
        both.first_failure = self.first_failure or other.first_failure
        for tenant in {**self.tenants, **other.tenants}:
            counts = [asdict(tally.tenants.get(tenant, TenantTally())) for tally in (self, other)]
            both.tenants[tenant] = TenantTally(**{name: sum(c[name] for c in counts) for name in counts[0]})
        return both

    @property
    def total(self) -> TenantTally:
        """The sum over all tenants."""
        counts = [asdict(tally) for tally in self.tenants.values()]
        return TenantTally(**{name: sum(count[name] for count in counts) for name in asdict(TenantTally())})

    def write(self, path: Path, state: State) -> None:
        """Writes the counts as one JSON object (tenants by size, total, failed, state, `updated_at` in UTC),
        atomically."""
        ordered = sorted(self.tenants.items(), key=lambda item: (-item[1].produced, item[0]))
        document = {
            "state": state,
            "updated_at": SYSTEM_CLOCK.now().isoformat(),
            "failed": self.failed,
            "first_failure": self.first_failure,
            "total": asdict(self.total),
            "tenants": {tenant: asdict(tally) for tenant, tally in ordered},
        }
        write_atomically(path, orjson.dumps(document, option=orjson.OPT_INDENT_2))


def read_tally(path: Path) -> tuple[State, Tally]:
    """What `Tally.write` wrote: the state, and the counts."""
    document = orjson.loads(path.read_bytes())
    tally = Tally()
    tally.failed, tally.first_failure = document["failed"], document["first_failure"]
    tally.tenants = {tenant: TenantTally(**counts) for tenant, counts in document["tenants"].items()}
    return document["state"], tally
