"""One tenant's week of access logs, and the questions that are asked of it, of Firn's engines and of another
log store beside them.

Every record has a request id of its own, as real ones have; forty of them each have a word that no other
record has. Rows are drawn from 20,000 records of the demo's nginx.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count, cycle
from pathlib import Path
from typing import Any, Protocol

import duckdb
import httpx
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake.catalog_client import CatalogClient
from lake.storage import local_path
from lake.tenant import TableId, TenantId
from query.model.table_view import load_view, table_id
from tests.benchmarks.log_volume import Loaded, load_tenant, rates_of, sample_of

TENANT = "bench-week"
HOURS = 7 * 24
PAGE_ROWS = 100
RARE_WORDS = 40
COMMON_WORD = "products"
WARM_UP = 5
_COLUMNS = """severity, request_id, server, remote_addr, remote_user, method, uri, host, status,
body_bytes_sent, request_length, request_time, upstream_addr, upstream_response_time, referer, user_agent,
http_version"""


@dataclass(frozen=True, slots=True)
class Answered:
    """Rows of a page or buckets, and how many records were counted."""

    rows: int
    count: int = 0


class Store(Protocol):
    """Answers the questions, over `[start, end)`."""

    def newest(self, start: datetime, end: datetime) -> Answered:
        """The newest 100 rows."""

    def word(self, word: str, start: datetime, end: datetime, *, any_case: bool) -> Answered:
        """The newest 100 rows with a word in any field. `any_case`: however it is written."""

    def status(self, status: int, start: datetime, end: datetime) -> Answered:
        """The newest 100 rows with an HTTP status."""

    def histogram(self, start: datetime, end: datetime) -> Answered:
        """Rows by hour and level."""

    def count(self, word: str, start: datetime, end: datetime) -> Answered:
        """How many rows have a word in any field; it is written in one way only."""

    def top(self, field: str, start: datetime, end: datetime) -> Answered:
        """The ten most frequent values of a field."""


@dataclass(frozen=True, slots=True)
class FirnStore:
    """Firn's API, with one of its engines."""

    api: httpx.Client
    engine: str

    def _ask(self, path: str, start: datetime, end: datetime, **body: Any) -> dict[str, Any]:
        times = {"from": start.isoformat(), "to": end.isoformat()}
        answer = self.api.post(f"/v1/{path}", json={"tenant": TENANT, **times, "engine": self.engine, **body})
        answer.raise_for_status()
        return dict(answer.json())

    def _page(self, query: str, start: datetime, end: datetime) -> Answered:
        return Answered(len(self._ask("search", start, end, limit=PAGE_ROWS, query=query)["rows"]))

    def newest(self, start: datetime, end: datetime) -> Answered:
        return self._page("", start, end)

    def word(self, word: str, start: datetime, end: datetime, *, any_case: bool) -> Answered:
        return self._page(word.swapcase() if any_case else word, start, end)

    def status(self, status: int, start: datetime, end: datetime) -> Answered:
        return self._page(f"status:{status}", start, end)

    def histogram(self, start: datetime, end: datetime) -> Answered:
        found = self._ask("histogram", start, end, by="level", width_s=3_600)
        return Answered(len(found["buckets"]), found["rows"])

    def count(self, word: str, start: datetime, end: datetime) -> Answered:
        return Answered(0, self._ask("histogram", start, end, query=word, width_s=86_400)["rows"])

    def top(self, field: str, start: datetime, end: datetime) -> Answered:
        return Answered(len(self._ask("values", start, end, field=field, limit=10)["values"]))


def load_week(catalog: CatalogClient, *, rows: int, start: datetime) -> Loaded:
    """The week from `start` on; one that is there already is taken as it is."""
    if any(namespace == TenantId(TENANT).namespace for namespace in catalog.namespaces()):
        view = load_view(catalog, table_id(TENANT, "logs"))
        return Loaded(
            TableId(TenantId(TENANT), "logs"), view.totals.rows, view.totals.files, view.totals.size_bytes
        )
    counts = np.maximum(1, np.round(rates_of(start, HOURS) * rows)).astype(int)
    hours = count()

    def with_own_words(table: pa.Table, random: np.random.Generator) -> pa.Table:
        ids = [raw.hex() for raw in np.frombuffer(random.bytes(16 * table.num_rows), "S16").tolist()]
        ids = [f"{each:0<32}" for each in ids]
        agents = table.column("user_agent").to_pylist()
        word, odd = divmod(next(hours), HOURS // RARE_WORDS)
        if not odd and word < RARE_WORDS:
            agents[len(agents) // 2] = f"Probe {rare_word(word)}"
        level = pc.if_else(
            pc.starts_with(table.column("status"), "5"),
            "error",
            pc.if_else(pc.starts_with(table.column("status"), "4"), "warn", "info"),
        )
        changed: Mapping[str, Any] = {"request_id": pa.array(ids), "user_agent": pa.array(agents)}
        for name, values in changed.items():
            table = table.set_column(table.column_names.index(name), name, values)
        return table.append_column("severity", level)

    sample = sample_of("nginx_json", start, 1)
    return load_tenant(catalog, TENANT, sample, start, counts, np.random.default_rng(1), with_own_words)


def rare_word(number: int) -> str:
    """A word of one record."""
    return f"quokka{number:02}"


def json_lines(catalog: CatalogClient, scratch: Path) -> Iterator[bytes]:
    """The records of the week as they are in Firn's files, file by file."""
    location = load_view(catalog, table_id(TENANT, "logs")).table_location.location
    time_text = "strftime(timestamp, '%Y-%m-%dT%H:%M:%S.%fZ') AS timestamp"
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for path in sorted(local_path(location).rglob("*.parquet")):
            rows = f"FROM '{path}' SELECT {time_text}, {_COLUMNS}"
            connection.execute(f"COPY ({rows}) TO '{scratch}' (FORMAT json)")
            yield scratch.read_bytes()


def questions(store: Store, start: datetime) -> dict[str, Callable[[], Answered]]:
    """By name; each time the question is asked anew, of rare words another one."""
    end, hour = start + timedelta(hours=HOURS), timedelta(hours=1)
    words = cycle(map(rare_word, range(RARE_WORDS)))
    absent = cycle(f"wombat{at:02}" for at in range(RARE_WORDS))
    return {
        "rare_word_week": lambda: store.word(next(words), start, end, any_case=False),
        "rare_word_any_case_week": lambda: store.word(next(words), start, end, any_case=True),
        "absent_word_week": lambda: store.word(next(absent), start, end, any_case=False),
        "status_404_week": lambda: store.status(404, start, end),
        "newest_hour": lambda: store.newest(end - hour, end),
        "newest_week": lambda: store.newest(start, end),
        "histogram_week": lambda: store.histogram(start, end),
        "count_common_word_week": lambda: store.count(COMMON_WORD, start, end),
        "top_uri_week": lambda: store.top("uri", start, end),
    }


def measure(
    store: Store, start: datetime, times: int, suffix: str, say: Callable[[str], None]
) -> tuple[dict[str, float], dict[str, Answered]]:
    """The median of each question, and what was last answered."""
    medians, answers = dict[str, float](), dict[str, Answered]()
    for name, ask in questions(store, start).items():
        took = list[float]()
        for at in range(WARM_UP + times):
            began_s = time.perf_counter()
            answers[name] = ask()
            took += [time.perf_counter() - began_s] if at >= WARM_UP else []
        medians[f"{name}{suffix}_p50_s"] = statistics.median(took)
        say(f"{name + suffix:34} p50 {medians[f'{name}{suffix}_p50_s']:.4f} s   {answers[name]}")
    return medians, answers


def as_table(columns: Sequence[tuple[str, Mapping[str, float]]]) -> str:
    """Medians of several stores side by side."""
    names = [key for key in columns[0][1] if key.endswith("_p50_s")]
    lines = [
        "| question | " + " | ".join(name for name, _ in columns) + " |",
        "|---" * (len(columns) + 1) + "|",
    ]
    for name in names:
        cells = [f"{medians[name]:.4f}" if name in medians else "" for _, medians in columns]
        lines.append(f"| {name.removesuffix('_p50_s')} | " + " | ".join(cells) + " |")
    return "\n".join(lines)
