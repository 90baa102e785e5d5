"""What of a topic is over its tenants' limits, known before it is masked: masking a message costs more than
all else that is done with a dead letter."""

from collections import defaultdict
from collections.abc import Sequence, Set
from itertools import takewhile

import numpy as np
from confluent_kafka import Message

from ingest.model.tenant_rate import Rates
from ingest.route.router import Router
from ingest.route.tenant_meter import TenantMeter
from lake.clock import Clock, epoch_ms
from lake.errors import Rejected
from lake.settings import TopicSettings
from lake.settings.topics import needs_value
from lake.tenant import TableId, TenantId


class Surplus:
    """Finds the messages of one topic that their tenants' limits leave no room for. `meter`: of messages as
    they come, of all such topics of the worker; the one of flushes counts those that have come through.

    Only messages whose tenant stands beside their value are asked about.
    """

    def __init__(self, topic: TopicSettings, rates: Rates, meter: TenantMeter, clock: Clock) -> None:
        beside = tuple(takewhile(lambda rule: not needs_value(rule), topic.tenant))
        self._router = Router(topic.model_copy(update={"tenant": beside}))
        self._rates, self._meter, self._clock = rates, meter, clock

    def target(self, message: Message) -> TableId | Rejected:
        """The table of a message, told without its value; Rejected where that takes its value, too."""
        return self._router.target(message.key(), message.headers() or (), None)

    def places(self, messages: Sequence[Message]) -> Set[int]:
        """Places of those that are over a limit; all are counted with that."""
        places_of, now_ms = defaultdict[TenantId, list[int]](list), epoch_ms(self._clock.now())
        for at, message in enumerate(messages):
            if message.value() and isinstance(table := self.target(message), TableId):
                places_of[table.tenant].append(at)
        found = set[int]()
        for tenant, places in places_of.items():
            if (rate := self._rates.rate(tenant.namespace)) is not None:
                times = np.array([messages[at].timestamp()[1] for at in places], np.int64)
                sizes = np.array([len(messages[at].value() or b"") for at in places], np.int64)
                over = self._meter.over(tenant.name, rate, times, sizes, now_ms)
                found.update(np.array(places)[over].tolist())
        return found
