"""The stack that a drill takes place on: records flow into it, it is broken, and a page's commands mend it.

Services are those of the supervisor (infra/local). What a page does by `systemctl`, a drill does by the
supervisor; all other commands run as they stand, in a shell of the repository's root.
"""

import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest import mock

import httpx
import orjson

from infra.local.jvm_parts import REPOSITORY
from infra.local.supervisor import Stack
from lake.catalog_client import CatalogClient
from lake.errors import NotFoundError
from lake.settings import IngestKafka, InternalTopics
from tests.drills.support import alerts
from tests.drills.support.runbook import Runbook, filled_in
from tests.environment import without_settings
from tests.faults.crash.identities import Found, Identity, compare, dead, rows_of_topics
from tests.faults.crash.record_flow import RecordFlow
from tests.query.support.processes import Child
from tests.stack.support.ingester import Ingester
from tests.stack.support.kafka_topics import KafkaTopics
from tests.stack.support.line import Line
from tests.stack.support.plain_http import http
from tests.stack.support.waiting import wait_for

TOPIC, PARTITIONS = "logs", 4
GROUP, DEAD_LETTERS = IngestKafka().group, InternalTopics().dead_letters
TENANTS = ("Acme-Shop", "bravo", "charlie")
SOON_S, REST_S, COMMAND_S = 60.0, 180.0, 180.0
UNITS = {
    "firn-catalog": "catalog",
    "firn-ingest": "ingest",
    "firn-ingest-tools": "ingest-serve",
    "kafka": "kafka",
}
# Small waits, so that a drill takes a minute; what is promised does not depend on them.
QUICK = {
    "FIRN_INGEST_FLUSH__INTERVAL_S": "0.5",
    "FIRN_INGEST_FLUSH__VISIBILITY_MAX_S": "0.5",
    "FIRN_INGEST_TABLES__PARK_AFTER_S": "2",
    "FIRN_INGEST_COMMIT__TIMEOUT_S": "5",
    "FIRN_INGEST_SHUTDOWN_S": "20",
}


@dataclass
class Scene:
    """One drill's services, records, and what it has run and seen. `topics`: as the setting spells them."""

    stack: Stack
    folder: Path
    page: Runbook
    draws: random.Random
    settings: dict[str, str] = field(default_factory=lambda: dict(QUICK))
    ran: list[str] = field(default_factory=list)
    fired: list[str] = field(default_factory=list)
    ends: ExitStack = field(default_factory=ExitStack)
    _before: alerts.Series = field(default_factory=dict)

    def __enter__(self) -> "Scene":
        return self

    def __exit__(self, *_: object) -> None:
        self.ends.close()

    # ---- the line

    def start(self, **settings: str) -> None:
        """Starts Kafka, catalog, node and tools with settings of `ingest`, and lets records flow; returns
        when every tenant has rows."""
        self.stack.start("kafka", "catalog")
        # What looks for the records reads the warehouse by itself.
        self.ends.enter_context(mock.patch.dict(os.environ, self.stack.environment()))
        self.kafka.topic(PARTITIONS, name=TOPIC, retention_ms="-1")
        self.set(topics=orjson.dumps([{"name": TOPIC}]).decode(), **settings)
        self.stack.start("ingest", "ingest-serve", environment=self.settings)
        self.flow = self.new_flow()
        self.wait_for_rows()
        self._before = self.metrics()

    def set(self, **settings: str) -> None:
        """Changes settings of `ingest`, from the next start on."""
        self.settings |= {f"FIRN_INGEST_{name.upper()}": value for name, value in settings.items()}

    def api(self) -> Child:
        """The search API over this catalog, which commands ask from now on; without Trino, which no command
        of a page needs."""
        self.settings["FIRN_QUERY_STATE"] = str(self.stack.folder / "query")
        api = Child("query", self.folder, self.environment).start()
        self.ends.callback(api.kill)
        self.settings["FIRN_QUERY_CLIENT__URI"] = api.address
        return api

    def second_node(self) -> Ingester:
        """A node of the same group beside the first, as on another machine; it waits for the lease."""
        own = {"kafka__group": GROUP, **_names(InternalTopics())}
        node = Ingester(self.folder, self.environment, [{"name": TOPIC}], own).start()
        self.ends.callback(node.kill)
        assert node.status()["role"] == "standby"
        return node

    def new_flow(self) -> RecordFlow:
        """Lets records of all tenants flow, and a few that no table can take; until the drill's end, or until
        the flow is ended."""
        flow = RecordFlow(self.kafka, TOPIC, list(TENANTS), PARTITIONS, self.draws)
        flow.__enter__()
        self.ends.callback(flow.end)
        return flow

    def wait_for_rows(self, timeout_s: float = SOON_S) -> None:
        """Returns when every tenant has more rows than now."""
        now = self.counts()
        wait_for(
            lambda: all(count > now[name] for name, count in self.counts().items()),
            timeout_s,
            "more rows of all tenants",
        )

    def counts(self) -> dict[str, int]:
        """Rows of each tenant as the newest snapshots count them."""
        return {tenant: self.line.rows_written(tenant) for tenant in TENANTS}

    @cached_property
    def kafka(self) -> KafkaTopics:
        """The broker."""
        return KafkaTopics(self.stack.address("kafka"))

    def forget_kafka(self) -> None:
        """Its clients know the cluster that was there before."""
        del self.kafka

    @cached_property
    def line(self) -> Line:
        """The catalog's tables."""
        return Line(self.stack, self.kafka, self.folder)

    @property
    def catalog(self) -> CatalogClient:
        """A client of the catalog."""
        return self.line.catalog

    @property
    def environment(self) -> dict[str, str]:
        """The variables of a command: where the page has /etc/firn/firn.toml, a drill has these."""
        node: dict[str, str] = {}
        with suppress(NotFoundError):
            node = {"FIRN_INGEST_NODE__URI": self.stack.address("ingest")}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return {
            **without_settings(),
            **self.stack.environment(),
            **self.settings,
            **node,
            "FIRN_CONFIG": "",
            "COLUMNS": "200",
            "PATH": path,
        }

    # ---- the page

    def run(self, command: str, **values: str) -> str:
        """Runs a command of the page, with values for its words in capitals; returns what it prints, and
        fails where it does not end with 0."""
        return _printed(self._ran(command, values))

    def run_once_free(self, command: str, *, busy: str, **values: str) -> str:
        """The same of a command that is refused, with the words `busy`, as long as something else is at
        it."""

        def not_busy() -> subprocess.CompletedProcess[str] | None:
            done = self._ran(command, values)
            return None if done.returncode and busy in done.stderr else done

        done = wait_for(not_busy, SOON_S, f"`{command}` being taken")
        assert done is not None
        return _printed(done)

    def _ran(self, command: str, values: dict[str, str]) -> subprocess.CompletedProcess[str]:
        assert command in self.page.commands, f"the page {self.page.name} has no command `{command}`"
        self.ran.append(command)
        filled = filled_in(command, values)
        print(f"  $ {filled}", file=sys.stderr, flush=True)
        program, *words = filled.split()
        if program == "systemctl":
            self._systemctl(*words)
            return subprocess.CompletedProcess(filled, 0, "", "")
        return subprocess.run(
            ["bash", "-c", filled],
            cwd=REPOSITORY,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )

    def json(self, command: str, **values: str) -> Any:
        """The same for a command that prints one JSON object among other lines; returns the first."""
        lines = self.run(command, **values).splitlines()
        return orjson.loads(next(line for line in lines if line.startswith("{")))

    def _systemctl(self, verb: str, *units: str) -> None:
        services = [UNITS[unit] for unit in units]
        if verb in ("stop", "restart"):
            self.stack.stop(*services)
        if verb in ("start", "restart"):
            self.stack.start(*services, environment=self.settings)

    def check_page(self) -> None:
        """Fails where a command of the page was not run, or an alert of it not seen."""
        assert sorted(set(self.page.commands) - set(self.ran)) == []
        assert self.page.alerts == {alert.lower() for alert in self.fired}

    # ---- what an operator sees

    def metrics(self) -> alerts.Series:
        """What Prometheus would have of all services now."""
        return self._of("firn-catalog", "catalog") | self._of("firn-ingest", "ingest") | self._tools()

    def _tools(self) -> alerts.Series:
        return self._of("firn-ingest-tools", "ingest-serve")

    def _of(self, job: str, service: str) -> alerts.Series:
        try:
            return alerts.series(job, http.get(f"{self.stack.address(service)}/metrics", timeout=10.0).text)
        except httpx.HTTPError:
            return alerts.up(job, 0)

    def sees(self, alert: str) -> None:
        """Fails where an alert that the page names would not fire if the services went on as they are."""
        assert alert.lower() in self.page.alerts, f"the page {self.page.name} does not name {alert}"
        wait_for(
            lambda: alerts.fires(alert, self._before, self.metrics()), SOON_S, f"{alert} firing", poll_s=1.0
        )
        self.fired.append(alert)

    def all_is_quiet(self) -> None:
        """Fails where an alert that has fired would still fire if the services went on as they are now."""
        now = self.metrics()
        assert [alert for alert in self.fired if alerts.fires(alert, now, now)] == []

    def log_says(self, log: Path | str, words: str) -> None:
        """Returns when a log has these words, which the page quotes. `log`: its file, or its service."""
        assert words in self.page.quoted, f"the page {self.page.name} does not quote `{words}`"
        file = self.stack.log(log) if isinstance(log, str) else log
        wait_for(lambda: words in file.read_text(errors="replace"), SOON_S, f"{words!r} in the log of {log}")

    # ---- the end

    def account(
        self, flow: RecordFlow | None = None, *, replayed: Collection[Identity] = (), node: str = ""
    ) -> Found:
        """Ends the flow, waits until everything is at rest, and looks for each of its records by identity.
        `replayed`: those that were dead letters and have been sent again; `node`: the address of the active
        node, where it is another than the first."""
        flow = flow or self.flow
        flow.end()
        ends = self.kafka.ends(TOPIC)
        wait_for(lambda: self.kafka.group_offsets(GROUP, TOPIC) == ends, REST_S, f"group offsets at {ends}")
        node = node or self.stack.address("ingest")
        wait_for(lambda: _nothing_parked(node), REST_S, "nothing being parked")
        topic_id = self.kafka.topic_id(TOPIC)
        every = {name: rows_of_topics(self.catalog, name) for name in flow.good}
        found = {name: of_topics.get(topic_id, Counter()) for name, of_topics in every.items()}
        return compare(flow.good, flow.bad, found, dead(self.kafka, DEAD_LETTERS) - set(replayed))


def _printed(done: subprocess.CompletedProcess[str]) -> str:
    command = done.args[-1] if isinstance(done.args, list) else done.args
    assert done.returncode == 0, f"`{command}` ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def counted(flow: RecordFlow, found: Found) -> dict[str, object]:
    """The figures of a drill: how many records came, and what became of them."""
    records = sum(map(len, flow.good.values())) + len(flow.bad)
    details = {"details": found.details} if found.details else {}
    return {"records": records, "lost": found.lost, "doubled": found.doubled, **details}


def _nothing_parked(node: str) -> bool:
    try:
        status = http.get(f"{node}/v1/status", timeout=10.0).json()
    except httpx.HTTPError:
        return False
    return status["role"] == "active" and not status["parked"]


def _names(topics: InternalTopics) -> dict[str, str]:
    return {
        f"internal_topics__{which}": getattr(topics, which) for which in ("dead_letters", "parked", "replay")
    }


Play = Callable[[Scene], Mapping[str, object]]
