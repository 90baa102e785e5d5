"""The whole line as one object: the services of a stack and what a test asks of them."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import trino

from infra.local.kafka_access import exports
from infra.local.service import host_port
from infra.local.supervisor import Stack
from lake.catalog_client import CatalogClient, TableName
from lake.errors import NotFoundError
from lake.settings import InfraSettings, QuerySettings
from lake.tenant import to_identifier
from tests.stack.support.ingester import Ingester
from tests.stack.support.kafka_topics import KafkaTopics
from tests.stack.support.secured_kafka import grant
from tests.stack.support.shared_services import catalog_on_trino
from tests.stack.support.waiting import fresh, pause, wait_for

Rows = list[tuple[Any, ...]]
Sql = Callable[[str], Rows]
NO_WORKER_S = 60.0
# Of Trino's own, and over in a moment: it loses sight of its only worker, itself, on a busy machine; its
# first task finds a client that is not ready.
PASSING = ("NO_NODES_AVAILABLE", "REMOTE_TASK_ERROR")


def trino_connection(stack: Stack) -> Any:
    """A connection to a stack's Trino, of its own client, with the stack's tables."""
    host, port = host_port(stack.address("trino"))
    return trino.dbapi.Connection(
        host=host, port=port, user="test", catalog=catalog_on_trino(stack), source="firn-tests"
    )


def trino_sql(stack: Stack) -> Sql:
    """A callable that sends one statement to Trino and returns all rows as tuples."""

    def run_once(statement: str) -> Rows:
        connection = trino_connection(stack)
        with closing(connection):
            cursor = connection.cursor()
            cursor.execute(statement)
            return [tuple(row) for row in cursor.fetchall()]

    return lambda statement: patiently(lambda: run_once(statement))


def patiently(ask: Callable[[], Rows]) -> Rows:
    """Asks Trino again what it refused for a reason of its own that passes."""
    deadline_s = time.monotonic() + NO_WORKER_S
    while True:
        try:
            return ask()
        except trino.exceptions.TrinoQueryError as error:
            if error.error_name not in PASSING or time.monotonic() > deadline_s:
                raise
            pause(0.5)


@dataclass
class Line:
    """A stack with catalog and Trino, a broker (its own or a shared one), and the ingesters that tests
    started on it."""

    stack: Stack
    kafka: KafkaTopics
    folder: Path
    grants: bool = True  # a Kafka with access lists lets its ingesters do what they need
    catalog: CatalogClient = field(init=False)

    def __post_init__(self) -> None:
        self.catalog = CatalogClient(self.stack.address("catalog"))

    @cached_property
    def sql(self) -> Sql:
        """One statement of SQL, asked of Trino."""
        return trino_sql(self.stack)

    @property
    def trino_catalog(self) -> str:
        """The name of the stack's tables on Trino."""
        return catalog_on_trino(self.stack)

    def ingester(
        self,
        topics: str | Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        start: bool = True,
        **settings: Any,
    ) -> Ingester:
        """An ingester on one topic (its name), or on topics as the setting `ingest.topics` spells them. The
        caller stops it."""
        if isinstance(topics, str):
            topics = {"name": topics}
        name = fresh("g-")
        own = self.folder / name
        own.mkdir()
        interval_s = settings.get("flush__interval_s", 0.5)
        fast = {
            "flush__interval_s": interval_s,
            "flush__visibility_max_s": interval_s,  # a few records are waited for as many are
            "shutdown_s": 20,
            "kafka__group": name,
            "internal_topics__dead_letters": f"dead-{name}",
            "internal_topics__parked": f"parked-{name}",
        }
        texts = {
            key: str(value)
            for key, value in {
                **fast,
                "kafka__bootstrap_servers": self.kafka.bootstrap_servers,
                **settings,
            }.items()
        }
        access = InfraSettings.load().kafka.access  # the broker may be of another stack, which exports it
        environment = ({} if access is None else exports(access)) | self.stack.environment()
        ingester = Ingester(own, environment, [topics] if isinstance(topics, Mapping) else topics, texts)
        if self.grants:
            grant(self.kafka.bootstrap_servers, ingester.grants())
        return ingester.start() if start else ingester

    def query_settings(self, **named: Any) -> QuerySettings:
        """The settings of a search over these tables, without a process."""
        return QuerySettings.load(
            trino__uri=self.stack.address("trino"), trino__catalog=self.trino_catalog, **named
        )

    def table(self, tenant: str, stream: str = "logs") -> str:
        """The table of a tenant's stream as SQL spells it in the catalog `lake`."""
        return f'"{to_identifier(tenant)}"."{to_identifier(stream)}"'

    def exists(self, tenant: str, stream: str = "logs") -> bool:
        """Whether the catalog has the table."""
        name = TableName(to_identifier(tenant), to_identifier(stream))
        return name.namespace in self.catalog.namespaces() and name in set(
            self.catalog.tables(name.namespace)
        )

    def rows_written(self, tenant: str, stream: str = "logs") -> int:
        """Rows of a table as its newest snapshot counts them; 0 where it does not exist."""
        try:
            loaded = self.catalog.load_table(TableName(to_identifier(tenant), to_identifier(stream)))
        except NotFoundError:
            return 0
        metadata = loaded["metadata"]
        head = next(
            (s for s in metadata["snapshots"] if s["snapshot-id"] == metadata["current-snapshot-id"]), None
        )
        return int(head["summary"]["total-records"]) if head else 0

    def wait_for_rows(
        self, ingester: Ingester, tenant: str, count: int, *, stream: str = "logs", timeout_s: float = 60.0
    ) -> None:
        """Returns when the table has so many rows or more."""
        ingester.wait_until(
            lambda: self.rows_written(tenant, stream) >= count, timeout_s, f"{count} rows of {tenant}"
        )

    def wait_for_dead_letters(self, ingester: Ingester, count: int, timeout_s: float = 60.0) -> None:
        """Returns when so many messages, by identity, are dead letters."""
        wait_for(
            lambda: len(self.kafka.dead_letters(ingester.dead_letter_topic)) >= count,
            timeout_s,
            f"{count} dead letters",
            poll_s=0.3,
        )
