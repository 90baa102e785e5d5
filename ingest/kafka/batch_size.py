"""How many messages to ask the client for at once. Messages of one table and partition cost less together, so
of a thousand tables a batch should have some messages each; but it must not go past the memory budget."""

MESSAGES_FIRST, MESSAGES_MAX = 500, 20_000
BATCH_BYTES = 8 * 1024 * 1024


class BatchSize:
    """About as many messages as BATCH_BYTES hold; how large they are is known from those before."""

    def __init__(self) -> None:
        self.messages = MESSAGES_FIRST

    def learn(self, messages: int, size_bytes: int) -> None:
        """From how many were delivered last, and the size of all their values."""
        if size_bytes:
            self.messages = max(1, min(MESSAGES_MAX, BATCH_BYTES * messages // size_bytes))
