"""Records that keep coming in a thread of their own, and where each of them went."""

import random
import threading
from dataclasses import dataclass, field

import orjson

from lake.catalog_client import TableName
from lake.tenant import to_identifier
from tests.faults.crash.identities import Identity
from tests.stack.support.kafka_topics import KafkaTopics, Record
from tests.stack.support.waiting import pause

BAD_SHARE = 0.03
CHUNK_RECORDS = 60


@dataclass
class RecordFlow:
    """As a context manager it produces until its end. `good`: identities by table; `bad`: those that can only
    become dead letters."""

    kafka: KafkaTopics
    topic: str
    tenants: list[str]
    partitions: int
    draws: random.Random
    pause_s: float = 0.15
    good: dict[TableName, set[Identity]] = field(default_factory=dict)
    bad: set[Identity] = field(default_factory=set)
    failure: BaseException | None = None
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> "RecordFlow":
        self.good = {table_of(tenant): set() for tenant in self.tenants}
        self._thread = threading.Thread(target=self._run, name="producing")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Produces no more; raises what went wrong while it did."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                self._chunk()
                pause(self.draws.uniform(0, 2 * self.pause_s))
        except BaseException as error:  # shown by the thread that ends it
            self.failure = error
            raise

    def _chunk(self) -> None:
        records, kinds = list[Record](), list[tuple[str, bool]]()
        for _ in range(CHUNK_RECORDS):
            tenant, bad = self.draws.choice(self.tenants), self.draws.random() < BAD_SHARE
            number = self.draws.randrange(10**9)
            body = (
                b'{"n":' if bad else orjson.dumps({"n": number, f"field_{number % 7}": "x" * (number % 50)})
            )
            records.append(
                Record(
                    body,
                    headers=(("tenant", tenant.encode()),),
                    partition=self.draws.randrange(self.partitions),
                )
            )
            kinds.append((tenant, bad))
        for (tenant, bad), place in zip(kinds, self.kafka.produce(self.topic, records), strict=True):
            (self.bad if bad else self.good[table_of(tenant)]).add((place.partition, place.offset))


def table_of(tenant: str) -> TableName:
    """The table of a tenant's logs."""
    return TableName(to_identifier(tenant), "logs")
