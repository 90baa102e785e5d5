"""How much of a tenant is taken in a second, and who tells."""

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
