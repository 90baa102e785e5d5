"""One bad record of a message that carries several."""

from dataclasses import dataclass

from lake.errors import Rejected


@dataclass(frozen=True, slots=True)
class RejectedRecord(Rejected):
    """A record that cannot be used, while the others of its message can: its position among them, and its own
    bytes."""

    index: int
    value: bytes
