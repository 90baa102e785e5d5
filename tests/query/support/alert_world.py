"""Rules evaluated in this process: a catalog in memory for rules and states, tables in a folder, receivers on
loopback, and a clock moved by hand."""

import hashlib
import hmac
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import orjson

from lake.lease import Lease
from lake.limits import Bound, Limit
from lake.settings import QuerySettings
from lake.storage import open_storage
from lake.tenant import TenantId
from query.alerts.delivery import Delivery
from query.alerts.evaluator import Evaluator, EvaluatorParts, EvaluatorTimes
from query.alerts.local_table import LocalTables
from query.alerts.opened import LEASE
from query.alerts.round import Surroundings
from query.alerts.rule import Rule
from query.alerts.rule_state import RuleState
from query.alerts.rule_store import RuleStore, StoredRule, id_of
from query.alerts.senders import Alertmanager, Webhooks, tenant_key
from query.executors.embedded import EmbeddedExecutor
from query.files.file_cache import FileCache
from query.files.file_index import FileIndex
from query.model.search_usage import SearchUsage
from query.model.table_view import TableSource, table_id
from query.search.lag import Lag
from query.search.search import Searcher
from tests.lake.support.fake_catalog import FakeCatalog
from tests.stack.support.waiting import wait_for

START = datetime(2026, 5, 1, 10, 0, tzinfo=UTC)
SECRET = "a secret that signs"
TENANT = TenantId("acme")
WAIT_S = 20.0


class MovedClock:
    """Moved by hand; its monotonic time goes along."""

    def __init__(self, now: datetime = START) -> None:
        self._now = now

    def now(self) -> datetime:
        return self._now

    def monotonic_s(self) -> float:
        return self._now.timestamp()

    def move(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)


@dataclass
class SaidLag:
    """What ingestion says of all tables."""

    complete_until: datetime | None = START
    parked_reason: str | None = None

    def of(self, table: object) -> Lag:
        return Lag(0, self.complete_until, self.parked_reason, is_usual=True)


@dataclass
class Receiver:
    """A receiver on loopback: what it was sent, in order. `status`: what it answers."""

    status: int = 200
    taken: list[tuple[Mapping[str, str], Any]] = field(default_factory=list)
    asked: int = 0
    port: int = 0

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextmanager
    def running(self) -> Iterator[Self]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver._take(self)

            def do_GET(self) -> None:
                receiver._take(self)

            def log_message(self, *_: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.port = server.server_port
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()

    def _take(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length", 0)))
        self.asked += 1
        if self.status == 200:
            self.taken.append(
                ({**dict(request.headers), "path": request.path, "raw": body.decode()}, orjson.loads(body))
            )
        request.send_response(self.status)
        if 300 <= self.status < 400:
            request.send_header("Location", f"{self.uri}/elsewhere")
        request.send_header("Content-Length", "0")
        request.end_headers()

    def bodies(self) -> list[Any]:
        """What was taken, without what told it."""
        return [body for _, body in self.taken]


def is_signed(headers: Mapping[str, str], tenant: TenantId = TENANT) -> bool:
    """Whether a receiver of a tenant's webhooks believes a request."""
    signed = f"{headers['Firn-Message-Id']}.{headers['Firn-Timestamp']}.{headers['raw']}".encode()
    made = hmac.new(tenant_key(SECRET, tenant), signed, hashlib.sha256).hexdigest()
    return hmac.compare_digest(headers["Firn-Signature"], f"v1={made}")


@dataclass
class World:
    """One evaluator at a time over one lake; `again` is the next one after it died."""

    folder: Path
    clock: MovedClock
    lag: SaidLag
    catalog: FakeCatalog
    tables: LocalTables
    times: EvaluatorTimes
    webhook_targets: tuple[str, ...] = ()
    alertmanagers: tuple[str, ...] = ()
    limits: Mapping[Limit, Bound] = field(default_factory=dict)
    lease: str | None = None

    def __post_init__(self) -> None:
        self.store = RuleStore(self.catalog.client())
        self.usage = SearchUsage(self.folder / "usage.db", self.clock)
        self.evaluator = self.again()

    def again(self) -> Evaluator:
        """An evaluator that knows nothing but what is written."""
        settings = QuerySettings(state=str(self.folder / "state"))
        storage = open_storage()
        cache = FileCache(storage, self.folder / "files", 0)
        engine = EmbeddedExecutor(settings, cache.local_paths, lambda: [self.folder])
        index = FileIndex(storage)

        def searcher_of(tables: TableSource) -> Searcher:
            return Searcher(tables, index, (engine,), settings, self.lag, self.clock)

        managers = {uri: Alertmanager(uri, self.clock, 300.0) for uri in self.alertmanagers}
        parts = EvaluatorParts(
            store=self.store,
            around=Surroundings(index, self.clock, groups_max=50, pages_uri="https://firn.example.org"),
            tables_of=lambda _: self.tables,
            searcher_of=searcher_of,
            lag=self.lag,
            delivery=Delivery(managers, Webhooks(self.webhook_targets, SECRET, self.clock), self.clock),
            alertmanagers=self.alertmanagers,
            usage=self.usage,
            limits_of=lambda _: self.limits,
            timeout_s=60.0,
            times=self.times,
            clock=self.clock,
        )
        self.evaluator = Evaluator(parts, lambda: Lease(None, LEASE, None, holder="test"))  # type: ignore[arg-type]
        return self.evaluator

    def keep(self, *rules: Mapping[str, Any], tenant: TenantId = TENANT) -> None:
        """Somebody writes rules."""
        known = {each.rule.name: each.version for each in self.store.rules(tenant)}
        made = [Rule.model_validate(each) for each in rules]
        self.store.keep([StoredRule(tenant, each, "somebody", "", known.get(each.name, 0)) for each in made])

    def rows(self, *rows: Mapping[str, Any], stream: str = "logs", tenant: TenantId = TENANT) -> None:
        """Rows reach the table. `at`: seconds after the start."""
        whole = [
            {**{k: v for k, v in row.items() if k != "at"}, "timestamp": START + timedelta(seconds=row["at"])}
            for row in rows
        ]
        self.tables.append(table_id(tenant.name, stream), whole, self.clock.now())

    def at(self, seconds: float) -> int:
        """It is so many seconds after the start, everything until then is in, and the evaluator takes a
        step."""
        self.clock.move((START + timedelta(seconds=seconds) - self.clock.now()).total_seconds())
        self.lag.complete_until = self.clock.now()
        return self.evaluator.step(self.lease)

    def state(self, name: str, tenant: TenantId = TENANT) -> RuleState:
        """What is written of a rule."""
        found = self.store.state(id_of(tenant, name), tenant)
        assert found is not None, name
        return found.state

    def told(self, count: int, *receivers: Receiver) -> list[Any]:
        """What receivers have taken once that is so much; the evaluator goes on meanwhile, at the same
        time."""

        def enough() -> bool:
            self.evaluator.step(self.lease)
            return sum(len(each.taken) for each in receivers) >= count

        wait_for(enough, WAIT_S, f"{count} messages")
        return [body for each in receivers for body in each.bodies()]

    def settled(self, *names: str) -> None:
        """Waits until nobody waits for a message of these rules."""

        def is_empty() -> bool:
            self.evaluator.step(self.lease)
            return not any(self.state(name).outbox for name in names)

        wait_for(is_empty, WAIT_S, "every message being acknowledged")


@contextmanager
def world(folder: Path, **options: Any) -> Iterator[World]:
    """A world with a table of one row long ago."""
    clock = MovedClock()
    times = EvaluatorTimes(catch_up_s=86_400.0, resend_s=60.0, shown_s=options.pop("shown_s", 0.0))
    made = World(
        folder,
        clock,
        SaidLag(),
        FakeCatalog(clock=clock),
        LocalTables(open_storage(), folder / "warehouse"),
        times,
        **options,
    )
    made.rows({"at": -400 * 86_400})
    try:
        yield made
    finally:
        made.evaluator.parts.delivery.close()
        made.usage.close()


def firing(bodies: Sequence[Any]) -> list[tuple[str, str]]:
    """Kind and alert's id of webhooks' bodies."""
    return [(body["kind"], body["alert"]) for body in bodies]
