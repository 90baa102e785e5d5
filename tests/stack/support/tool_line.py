"""The tools of ingest as people use them: `python -m ingest VERB` and `python -m ingest serve` over topics
and a group of a test's own."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson
from typer.testing import CliRunner

from infra.local.ports import LOOPBACK, reserve_free
from ingest.cli.program import app
from tests.environment import without_settings
from tests.stack.support.forked import RoomProcess, run_room, start_room
from tests.stack.support.ingester import Ingester
from tests.stack.support.line import Line
from tests.stack.support.waiting import fresh, wait_for

VERB_S = 90.0
READY_S = 60.0
WRONG = ("missing", "doubled", "in_two_places", "astray", "stale")


class ToolLine:
    """An ingester that may run or not, and the tools with the same settings."""

    def __init__(self, line: Line, topics: str | Sequence[Mapping[str, Any]], **settings: Any) -> None:
        self.line = line
        topics = [{"name": topics}] if isinstance(topics, str) else topics
        own = fresh("tools-")
        names = {
            "kafka__group": own,
            "internal_topics__dead_letters": f"dead-{own}",
            "internal_topics__replay": f"replay-{own}",
            "internal_topics__parked": f"parked-{own}",
        }
        self.audited: dict[str, Any] = {}  # the last audit
        self.settings = {key: str(value) for key, value in {**names, **settings}.items()}
        self.ingester: Ingester = line.ingester(topics, start=False, **self.settings)
        inherited = without_settings()
        ingest = {
            "kafka__bootstrap_servers": line.kafka.bootstrap_servers,
            **self.settings,
            "topics": orjson.dumps(list(topics)).decode(),
        }
        variables = {f"FIRN_INGEST_{name.upper()}": value for name, value in ingest.items()}
        self.environment = {
            **inherited,
            **line.stack.environment(),
            **variables,
            "FIRN_CONFIG": "",
            "COLUMNS": "200",
        }

    @property
    def folder(self) -> Path:
        return self.ingester.folder

    @property
    def group(self) -> str:
        return self.settings["kafka__group"]

    def wait_until_stored(self, topic: str, offsets: Mapping[int, int]) -> None:
        """Returns when the group has stored these offsets."""
        self.ingester.wait_until(
            lambda: self.line.kafka.group_offsets(self.group, topic) == dict(offsets),
            60,
            f"group offsets {dict(offsets)}",
        )

    def run(self, *arguments: str, code: int = 0) -> str:
        """Standard output of a verb that has to end with this code."""
        found, output = self._invoke(*arguments)
        assert found == code, f"{arguments} ended with {found}:\n{output}"
        return output

    def answered(self, *arguments: str, answer: str, code: int) -> str:
        """Standard output of a verb that asks, and is answered."""
        found, output = self._invoke(*arguments, answer=answer)
        assert found == code, f"{arguments} ended with {found}:\n{output}"
        return output

    def _invoke(self, *arguments: str, answer: str | None = None) -> tuple[int, str]:
        """In this process: starting one for each of many verbs costs more than the verbs."""
        uri = self.ingester.address if self.ingester.alive else ""
        ours = {
            name: value for name, value in self.environment.items() if name.startswith(("FIRN_", "COLUMNS"))
        }
        done = CliRunner().invoke(app, arguments, env={**ours, "FIRN_INGEST_NODE__URI": uri}, input=answer)
        return done.exit_code, done.stdout if done.exception is None or isinstance(
            done.exception, SystemExit
        ) else f"{done.output}\n{done.exception!r}"

    def audit(self) -> dict[str, int]:
        """What an audit finds wrong; the whole of it is then `audited`. It ends with 1 where anything is.
        Tables that other tests broke are passed over."""
        code, output = self._invoke("audit", "--json")
        assert output.startswith("{"), output
        assert output.count("\n") == 1, output
        audit = orjson.loads(output)
        wrong = {name: audit[name] for name in WRONG if audit[name]}
        assert (code, audit["clean"]) == ((1, False) if wrong or audit["unreadable_tables"] else (0, True))
        self.audited = audit
        return wrong

    def refusal(self, *arguments: str) -> str:
        """What a verb in a process of its own says that has to end with 2, on one line."""
        environment = {**self.environment, "FIRN_INGEST_NODE__URI": ""}
        done = run_room("ingest", *arguments, environment=environment, timeout_s=VERB_S)
        assert done.returncode == 2, done.stdout + done.stderr
        return " ".join((done.stdout + done.stderr).split())

    def json(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        """The JSON object that a verb prints."""
        return dict(orjson.loads(self.run(*arguments, "--json", code=code)))

    @contextmanager
    def serve(self, **settings: str) -> Iterator[httpx.Client]:
        """A client of `ingest serve` over these settings."""
        port = reserve_free()
        extra = {f"FIRN_INGEST_{name.upper()}": value for name, value in settings.items()}
        environment = {
            **self.environment,
            "FIRN_INGEST_NODE__URI": self.ingester.address if self.ingester.alive else "",
            **extra,
        }
        process = start_room(
            "ingest", "serve", "--port", str(port), environment=environment, log=self.folder / "serve.log"
        )
        try:
            with httpx.Client(base_url=f"http://{LOOPBACK}:{port}", timeout=60.0, trust_env=False) as client:
                wait_for(lambda: _is_ready(client, process), READY_S, "ingest serve")
                yield client
        finally:
            process.terminate()
            try:
                process.wait(15)
            finally:
                process.kill()


def _is_ready(client: httpx.Client, process: RoomProcess) -> bool:
    assert process.poll() is None, "ingest serve ended"
    try:
        return client.get("/readyz").is_success
    except httpx.HTTPError:
        return False
