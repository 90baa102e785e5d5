"""How much of a tenant is taken in a second, how many streams and columns it may have, which part of the
memory, and who tells."""

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

    def columns(self, namespace: str) -> Bound:
        """How many columns each of its tables may have; unbound where nobody says anything. Never raises."""

    def memory_percent(self, namespace: str) -> Bound:
        """How much of what a worker may hold may wait for its tables; unbound where nobody says anything.
        Never raises."""


class StreamLimits(Protocol):
    """Who tells how many streams tenants may have."""

    def streams(self, namespace: str) -> Bound:
        """How many a tenant may have; unbound where nobody says anything, or nobody can tell. Never
        raises."""
