"""How much of a tenant is taken in a second, how many streams it may have, and who tells."""

from dataclasses import dataclass
from typing import Protocol

from lake.limits import UNBOUND, Bound


@dataclass(frozen=True, slots=True)
class TenantRate:
    """Messages, and bytes of their values, a second; one of them at least is limited."""

    records: Bound = UNBOUND
    size_bytes: Bound = UNBOUND


class Rates(Protocol):
    """Who tells."""

    def rate(self, namespace: str) -> TenantRate | None:
        """That of a tenant; None where nothing is limited, or nobody can tell. Never raises."""


class StreamLimits(Protocol):
    """Who tells how many streams tenants may have."""

    def streams(self, namespace: str) -> Bound:
        """How many a tenant may have; unbound where nobody says anything, or nobody can tell. Never
        raises."""
