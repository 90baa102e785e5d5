"""How many messages are asked for at once."""

import pytest

from ingest.kafka.batch_size import BATCH_BYTES, MESSAGES_FIRST, MESSAGES_MAX, BatchSize


@pytest.mark.parametrize(
    ("bytes_each", "messages"), [(100, MESSAGES_MAX), (4_096, BATCH_BYTES // 4_096), (3 * BATCH_BYTES, 1)]
)
def test_a_batch_holds_about_so_many_bytes(bytes_each: int, messages: int) -> None:
    size = BatchSize()
    assert size.messages == MESSAGES_FIRST
    size.learn(3, 3 * bytes_each)
    assert size.messages == messages


@pytest.mark.parametrize("messages", [0, 2], ids=["no message", "empty ones"])
def test_what_has_no_size_teaches_nothing(messages: int) -> None:
    size = BatchSize()
    size.learn(messages, 0)
    assert size.messages == MESSAGES_FIRST
