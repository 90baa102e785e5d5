"""Requests of every kind to all services with keys of one tenant, while another works: nothing of the other
is told, changed or held up."""

import hashlib
import math
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests

from infra.local.jvm_parts import REPOSITORY
from infra.local.supervisor import Stack
from lake.catalog_client import CatalogClient
from tests.query.support.guarded import Guarded, start_guarded
from tests.query.support.processes import child_environment
from tests.security.support.asking import ANSWER_S, Services, started_ingest, started_services
from tests.security.support.fuzz_requests import Hostile, Shot
from tests.security.support.markers import Markers
from tests.security.support.route_matrix import TOKEN_KIND
from tests.stack.support.line import Line
from tests.stack.support.waiting import wait_for

# The long proof sends 20,000.
REQUESTS = int(os.environ.get("FIRN_SECURITY_REQUESTS", "40"))
SEED = int(os.environ.get("FIRN_TEST_SEED", "1"))
AT_ONCE = 4
CHUNK = 250
ALONE_MIN = 60  # searches of the other tenant in each pause
P99_FROM = 5_000  # fewer requests say nothing about the slowest hundredth
BYTES_MAX = 2_000_000
A, B = "intruder", "bystander"


@pytest.fixture(scope="module")
def fenced(
    stack: Stack, catalog_client: CatalogClient, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Guarded]:
    """Tenants of these tests alone: what they do to their own tables harms no other test."""
    made = start_guarded(stack, catalog_client, tmp_path_factory.mktemp("fuzz"), (A, B))
    yield made
    made.end()


@pytest.fixture(scope="module")
def asked(fenced: Guarded, line: Line, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    with ExitStack() as ends:
        ingest = started_ingest(ends, line)
        yield started_services(ends, fenced, ingest, tmp_path_factory.mktemp("fuzz-services"))


class Working:
    """The other tenant's searches, in a process of its own."""

    def __init__(self, keyed: Guarded, folder: Path) -> None:
        self._file = folder / "searches"
        self._file.touch()
        command = [
            sys.executable,
            "-m",
            "tests.security.support.working_tenant",
            keyed.api.address,
            keyed.theirs.tenant,
            str(self._file),
        ]
        environment = child_environment({"FIRN_QUERY_CLIENT__KEY": keyed.keys["theirs"]})
        self._process = subprocess.Popen(command, cwd=REPOSITORY, env=environment)

    def searches(self) -> list[tuple[float, float, bool]]:
        """(began, took, answered right) of each so far, seconds."""
        lines = self._file.read_text().split("\n")[:-1]
        return [
            (float(began), float(took), right == "1")
            for began, took, right in (line.split() for line in lines)
        ]

    def more(self, count: int) -> None:
        """Returns when there are so many more."""
        wanted = len(self.searches()) + count
        wait_for(lambda: len(self.searches()) >= wanted, 300, f"{count} more searches of the other tenant")

    def end(self) -> None:
        self._process.kill()
        self._process.wait(30)


def p99_s(times: list[float]) -> float:
    """The time that one in a hundred takes longer than."""
    return sorted(times)[math.ceil(0.99 * len(times)) - 1]


def files_of(location: str) -> dict[str, str]:
    """Every file below a table's location -> its hash."""
    folder = Path(urlsplit(location).path)
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.stack
@pytest.mark.timeout(7_200)
def test_whatever_is_asked_the_other_tenant_is_not_touched(
    fenced: Guarded, asked: Services, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """No answer to `a` holds a marker of `b`; no request stays without an answer; `b` is answered right all
    the while, and as fast (its slowest hundredth, measured in turns with and without the requests); what `b`
    has stored is the same, file by file."""
    loaded = fenced.theirs.catalog.load_table(fenced.theirs.name)
    location = str(loaded["metadata"]["location"])
    stored = files_of(location)
    assert len(stored) >= 4
    markers = Markers.of(fenced.theirs, asked.key_id_of_theirs)
    guessed = {
        "namespace": B,
        "tenant": B,
        "table": "logs",
        "location": os.path.dirname(location),
        "stream": "logs",
    }
    own = {
        "namespace": A,
        "tenant": A,
        "table": "logs",
        "location": os.path.dirname(os.path.dirname(location)) + f"/{A}",
        "view": "seen",
        "saved": "mine",
    }
    secret = frozenset(
        marker for marker in markers.texts if not any(marker in each for each in guessed.values())
    )
    assert len(secret) >= len(stored) + 3
    hostile = Hostile(
        asked.addresses,
        [asked.keys[name] for name in ("mine", "mine", "reader")],
        guessed,
        own,
        SEED,
        asked.keys[TOKEN_KIND],
    )
    gun = Gun(secret)
    working = Working(fenced, tmp_path)
    alone: list[tuple[float, float]] = []
    beside: list[tuple[float, float]] = []
    try:
        while gun.sent < REQUESTS:
            shots = hostile.shots(min(CHUNK, max(50, REQUESTS - gun.sent))) if gun.sent else hostile.plain()
            began_s = time.monotonic()
            working.more(ALONE_MIN)
            alone.append((began_s, time.monotonic()))
            began_s = time.monotonic()
            gun.fire(shots)
            working.more(1)
            beside.append((began_s, time.monotonic()))
        searches = working.searches()
    finally:
        working.end()
    undisturbed, disturbed = _within(searches, alone), _within(searches, beside)
    figures = {
        "requests": gun.sent,
        "statuses": dict(sorted(gun.statuses.items())),
        "searches_alone": len(undisturbed),
        "searches_beside": len(disturbed),
    }
    figures |= {
        "p99_alone_ms": round(p99_s(undisturbed) * 1_000, 1),
        "p99_beside_ms": round(p99_s(disturbed) * 1_000, 1),
    }
    for name, value in figures.items():
        record_property(name, value)
    assert gun.leaks == []
    assert gun.hung == []
    assert [search for search in searches if not search[2]] == []
    assert {name: digest for name, digest in files_of(location).items() if name in stored} == stored, (
        "files of the other tenant changed or went"
    )
    assert fenced.theirs.catalog.load_table(fenced.theirs.name) == loaded
    assert {status // 100 for status in gun.statuses} >= {2, 4}, figures
    if REQUESTS >= P99_FROM:
        assert p99_s(disturbed) <= 2 * p99_s(undisturbed), figures


class Gun:
    """Sends, some at once, and looks at every answer."""

    def __init__(self, secret: frozenset[str]) -> None:
        self._secret = [marker.encode() for marker in secret]
        self.sent = 0
        self.statuses: Counter[int] = Counter()
        self.leaks: list[str] = []
        self.hung: list[str] = []

    def fire(self, shots: list[Shot]) -> None:
        """Sends all of them."""
        with ThreadPoolExecutor(AT_ONCE, initializer=_give_way) as pool:
            for outcome in pool.map(self._one, shots):
                if outcome is not None:
                    self.statuses[outcome] += 1
                    self.sent += 1

    def _one(self, shot: Shot) -> int | None:
        """The status; None for what cannot even be sent."""
        with requests.Session() as session:
            session.trust_env = False
            try:
                answer = session.request(**shot.options, timeout=ANSWER_S, stream=True, allow_redirects=False)
            except requests.Timeout:
                self.hung.append(f"{shot.options['method']} {shot.options['url'][:300]}")
                return 0
            except (requests.RequestException, UnicodeError, ValueError):
                return None
            found = [marker.decode() for marker in self._secret if marker in _content(answer)]
            if found:
                self.leaks.append(
                    f"{shot.options['method']} {shot.options['url'][:300]} "
                    f"{str(shot.options.get('json'))[:300]}: {found}"
                )
            return answer.status_code


def _give_way() -> None:
    """Lets every other process go first. An attacker's client runs on a machine of its own: what is measured
    is what its requests cost the services, not what making them costs the two cores here."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)


def _content(answer: requests.Response) -> bytes:
    """The body, or the beginning of one without an end."""
    content = repr(answer.headers).encode()
    endless = answer.headers.get("content-type", "").startswith("text/event-stream")
    with suppress(requests.RequestException):
        for part in answer.iter_content(65_536):
            content += part
            if endless or len(content) > BYTES_MAX:
                break
    return content


def _within(searches: list[tuple[float, float, bool]], windows: list[tuple[float, float]]) -> list[float]:
    """The times of the searches that began and ended in one of these windows."""
    return [
        took
        for began, took, _ in searches
        if any(first <= began and began + took <= last for first, last in windows)
    ]


def test_the_measures_themselves() -> None:
    """The slowest hundredth, and which searches count."""
    assert p99_s([float(n) for n in range(1, 101)]) == 99.0
    assert p99_s([1.0]) == 1.0
    assert _within([(0.0, 1.0, True), (1.5, 1.0, True), (2.0, 0.5, True)], [(0.0, 1.2), (2.0, 3.0)]) == [
        1.0,
        0.5,
    ]


@pytest.mark.long
def test_the_gun_sees_what_it_looks_for(tmp_path: Path) -> None:
    """An answer with a marker is a leak; a request that cannot be sent is none, and not counted."""
    (tmp_path / "page").write_text("x the-marker x")
    with ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    ) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        gun = Gun(frozenset({"the-marker"}))
        urls = (f"http://127.0.0.1:{server.server_port}/page", "http://[nonsense")
        gun.fire([Shot("x", {"method": "GET", "url": url}) for url in urls])
        server.shutdown()
    assert (gun.sent, len(gun.leaks), gun.hung) == (1, 1, [])
