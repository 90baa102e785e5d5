"""What a consumer group has stored, asked by a consumer of that group that never joins it.

Not by an AdminClient: librdkafka ends the process with a segmentation fault where a coordinator that has just
moved answers it (it looks for the group of a client that has none), as every coordinator does for a while
after a broker's first start.
"""

from collections.abc import Sequence
from typing import Any

import stamina
from confluent_kafka import Consumer, KafkaError, KafkaException

REQUEST_TIMEOUT_S = 30.0
# A group that is new, or whose coordinator moves to another broker, has no coordinator for some seconds.
COORDINATOR_WAIT_S = 30.0
MESSAGES_MAX = 10
_COORDINATOR_MOVES = frozenset(
    {
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    }
)


def group_forbidden(consumer: Consumer) -> KafkaException | None:
    """Why a consumer that has nothing assigned finds no coordinator: it may not know the group. A request
    only waits in vain meanwhile."""
    if consumer.assignment():
        return None
    errors = (message.error() for message in consumer.consume(MESSAGES_MAX, 0))
    return next(
        (
            KafkaException(error)
            for error in errors
            if error is not None and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
        ),
        None,
    )


def _coordinator_moves(error: Exception) -> bool:
    return isinstance(error, KafkaException) and error.args[0].code() in _COORDINATOR_MOVES


@stamina.retry(on=_coordinator_moves, attempts=None, timeout=COORDINATOR_WAIT_S, wait_max=2.0)
def committed_offsets(consumer: Consumer, partitions: Sequence[Any]) -> list[Any]:
    """The partitions with the offsets and metadata that the consumer's group has stored, an invalid offset
    where it has none.

    Raises KafkaException, also where the answer for a single partition is an error.
    """
    try:
        answers = consumer.committed(list(partitions), timeout=REQUEST_TIMEOUT_S)
    except KafkaException as error:
        raise group_forbidden(consumer) or error from error
    for answer in answers:
        if answer.error is not None:
            raise KafkaException(answer.error)
    return list(answers)
