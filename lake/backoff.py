"""How long to wait before something that failed is tried again."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays that grow with every failure in a row, for loops that keep their own time and sleep nowhere; a
    call that may sleep is retried by `stamina`. Seconds.

    After the first failure `first_s`, each time `factor` times longer, `max_s` at most.
    """

    first_s: float
    max_s: float
    factor: float = 2.0

    def delay_s(self, failures: int) -> float:
        """The delay after so many failures in a row, 1 and up."""
        delay_s = self.first_s
        for _ in range(failures - 1):
            if delay_s >= self.max_s:
                break
            delay_s *= self.factor
        return min(self.max_s, delay_s)
