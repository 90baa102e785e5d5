"""All programs of Firn on one machine, asked by a real Prometheus, and what tests do to them."""

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import yaml

from infra.local.supervisor import Stack
from tests.infra.support.prometheus import EVERY_S, Prometheus, prometheus
from tests.infra.support.promtool import FOLDER
from tests.stack.support.kafka_topics import KafkaTopics, Record
from tests.stack.support.waiting import pause, wait_for

JOBS = {
    "firn-catalog": "catalog",
    "firn-ingest": "ingest",
    "firn-ingest-tools": "ingest-serve",
    "firn-optimize": "optimize",
    "firn-query": "query",
}
RULES: Mapping[str, Mapping[str, Any]] = {
    rule["alert"]: rule for rule in yaml.safe_load((FOLDER / "rules.yaml").read_text())["groups"][0]["rules"]
}
SEEN_S = 120.0
TOPIC = "logs"
# Who takes the token of ingestion, and who sends it.
TOKENS = ("INGEST_HTTP__TOKEN", "OPTIMIZE_LAG__INGEST_TOKEN", "QUERY_INGEST__TOKEN")
FLOW_EVERY_S = 0.5
ROUND_ENDED = "max(firn_catalog_maintenance_last_round_timestamp_seconds)"
_DURATION = re.compile(r"\b(\d+)([smhd])\b")
_UNIT_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


class Scraped:
    """`stack`: with everything in it; `asked`: the Prometheus; `settings`: the services' variables."""

    def __init__(self, stack: Stack, asked: Prometheus, settings: Mapping[str, str]) -> None:
        self.stack, self.asked, self.settings = stack, asked, settings
        self.kafka = KafkaTopics(stack.address("kafka"))

    def send(self, tenant: str, value: bytes = b'{"message": "hello"}') -> None:
        """Sends a record of a tenant."""
        self.kafka.produce(TOPIC, [Record(value, headers=(("tenant", tenant.encode()),))])

    @contextmanager
    def flow(self, tenant: str, value: bytes = b'{"message": "hello"}') -> Iterator[None]:
        """Two records of a tenant come a second."""
        with again_and_again(lambda: self.send(tenant, value), FLOW_EVERY_S):
            yield

    def start(self, *services: str, **settings: str) -> None:
        """Starts services with their settings, and with others of `ingest` where these are given."""
        more = {f"FIRN_INGEST_{name.upper()}": value for name, value in settings.items()}
        self.stack.start(*services, environment={**self.settings, **more})

    def is_well(self) -> bool:
        """Whether no alert fires, nor is about to; until the first round of maintenance has ended one is."""
        return bool(self.asked.value(ROUND_ENDED)) and not self.asked.every_alert()


@contextmanager
def scraped(
    folder: Path, *, rules: Path = FOLDER / "rules.yaml", every_s: int = EVERY_S, **settings: str
) -> Iterator[Scraped]:
    """All programs, a record through them, and a Prometheus that asks them. `settings`: variables besides."""
    token = folder / "ingest-token"
    token.write_text("a-token-of-the-line")
    variables = {
        "FIRN_INGEST_TOPICS": orjson.dumps([{"name": TOPIC, "tenant": ["header:tenant"]}]).decode(),
        "FIRN_INGEST_FLUSH__INTERVAL_S": "2",
        "FIRN_INGEST_FLUSH__VISIBILITY_MAX_S": "2",
        "FIRN_OPTIMIZE_INTERVAL_S": "10",
        **{f"FIRN_{name}_FILE": str(token) for name in TOKENS},
        **settings,
    }
    with Stack(folder / "stack", tied=True) as stack:
        stack.start("kafka")
        KafkaTopics(stack.address("kafka")).topic(name=TOPIC)
        stack.start(*JOBS.values(), environment=variables)
        jobs = {job: stack.address(service).removeprefix("http://") for job, service in JOBS.items()}
        with prometheus(jobs, token, folder, rules=rules, every_s=every_s) as asked:
            wait_for(lambda: asked.jobs_up() == set(JOBS), SEEN_S, "answers of all jobs")
            running = Scraped(stack, asked, variables)
            running.send("acme")
            yield running


def seconds(duration: str) -> int:
    """Seconds of a duration as Prometheus spells it, of one unit."""
    found = _DURATION.fullmatch(duration)
    assert found is not None
    return int(found[1]) * _UNIT_S[found[2]]


def quicker_rules(target: Path, times: int, figures: Mapping[str, str]) -> None:
    """Writes the rules with every duration so many times shorter, and with other figures where they depend on
    settings, as docs/alerts.md has operators do."""
    file = yaml.safe_load((FOLDER / "rules.yaml").read_text())
    used = set[str]()
    for rule in file["groups"][0]["rules"]:
        for figure, other in figures.items():
            if figure in rule["expr"]:
                used.add(figure)
                rule["expr"] = rule["expr"].replace(figure, other)
        rule["expr"] = _shorter(rule["expr"], times)
        if "for" in rule:
            rule["for"] = _shorter(rule["for"], times)
    assert used == set(figures)
    target.write_text(yaml.safe_dump(file))


def _shorter(text: str, times: int) -> str:
    return _DURATION.sub(lambda found: f"{max(1, seconds(found[0]) // times)}s", text)


def wait_for_alerts(running: Scraped, wanted: set[str], within_s: float, but_for: set[str]) -> dict[str, int]:
    """Returns when each of the alerts has fired, with the seconds that it took; fails where another does but
    those of `but_for`."""
    began_s, took_s = time.monotonic(), dict[str, int]()

    def have_fired() -> bool:
        for name in running.asked.alerts("firing"):
            took_s.setdefault(name, round(time.monotonic() - began_s))
        assert took_s.keys() <= wanted | but_for, f"others fire: {took_s.keys() - wanted - but_for}"
        return wanted <= took_s.keys()

    wait_for(have_fired, within_s, f"{wanted} firing", poll_s=1.0)
    return {name: took_s[name] for name in wanted}


@contextmanager
def again_and_again(work: Callable[[], object], every_s: float) -> Iterator[None]:
    """Does something meanwhile, with so much time between."""
    is_over = threading.Event()

    def do() -> None:
        while not is_over.is_set():
            work()
            pause(every_s)

    thread = threading.Thread(target=do, name="again and again")
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
