"""Debezium's connector on the stack's Kafka Connect: started, killed, and set back to where it was before."""

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from infra.local.service import host_port
from infra.local.services.connect import offsets_file
from infra.local.services.postgres import USER
from infra.local.supervisor import Stack
from tests.stack.support.kafka_topics import KafkaTopics
from tests.stack.support.plain_http import http
from tests.stack.support.waiting import wait_for

READY_S = 180.0
NAME = "source"
STREAMING = b'"lsn_proc"'
_POSITION = re.compile(rb'"lsn":([0-9]+)')


@dataclass
class Connector:
    """The connector of one source. `tables`: their names, with the partitions of their topics."""

    stack: Stack
    kafka: KafkaTopics
    database: str
    tables: Mapping[str, int]
    folder: Path
    restarts: int = 0
    kept: list[Path] = field(default_factory=list)

    def __post_init__(self) -> None:
        for table, partitions in self.tables.items():
            self.kafka.topic(partitions, name=self.topic(table))

    def topic(self, table: str) -> str:
        """The topic of a table."""
        return f"{self.database}.public.{table}"

    @property
    def topics(self) -> Sequence[str]:
        return [self.topic(table) for table in self.tables]

    def start(self) -> None:
        """Starts the worker where it does not run, and the connector on it; returns when that runs."""
        self.stack.start("connect")
        made = http.post(
            f"{self.stack.address('connect')}/connectors",
            json={"name": NAME, "config": self._config()},
            timeout=READY_S,
        )
        assert made.status_code == httpx.codes.CREATED, made.text
        wait_for(self._runs, READY_S, "the connector running")

    def stop(self) -> None:
        """Ends the connector and its worker."""
        self.stack.stop("connect")

    def keep_offsets(self) -> bool:
        """Keeps a copy of how far it is now, to go back to. False before it has written down a place behind
        its snapshot: one that is set back into it takes another, which tells of no row that is deleted
        meanwhile."""
        offsets = offsets_file(self.stack.folder)
        if not offsets.exists() or STREAMING not in offsets.read_bytes():
            return False
        copy = self.folder / f"offsets-{len(self.kept)}"
        shutil.copyfile(offsets, copy)
        self.kept.append(copy)
        return True

    def has_sent(self, position: int) -> bool:
        """Whether Kafka has every change up to this position (an LSN): the worker writes down how far it is
        once all before that is acknowledged, in whatever topic."""
        offsets = offsets_file(self.stack.folder)
        found = _POSITION.findall(offsets.read_bytes()) if offsets.exists() else []
        return any(int(digits) >= position for digits in found)

    def restart(self, *, back_to: Path | None = None) -> None:
        """SIGKILL of its worker, and a new start, from an earlier place where one is given: what came after
        that is sent again."""
        self.stack.kill("connect")
        if back_to is not None:
            shutil.copyfile(back_to, offsets_file(self.stack.folder))
        self.start()
        self.restarts += 1

    def check(self) -> None:
        """Fails where the connector does not run."""
        assert self._runs(), self._status()

    def _status(self) -> str:
        return http.get(f"{self.stack.address('connect')}/connectors/{NAME}/status", timeout=READY_S).text

    def _runs(self) -> bool:
        answer = http.get(f"{self.stack.address('connect')}/connectors/{NAME}/status", timeout=READY_S)
        if answer.status_code != httpx.codes.OK:
            return False
        status = answer.json()
        failed = [task["trace"] for task in status["tasks"] if task["state"] == "FAILED"]
        assert not failed, failed[0]
        return [task["state"] for task in status["tasks"]] == ["RUNNING"]

    def _config(self) -> dict[str, str]:
        host, port = host_port(self.stack.address("postgres"))
        return {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "tasks.max": "1",
            "database.hostname": host,
            "database.port": str(port),
            "database.user": USER,
            "database.password": "none",
            "database.dbname": self.database,
            "topic.prefix": self.database,
            "plugin.name": "pgoutput",
            "slot.name": self.database.replace("-", "_"),
            "publication.name": self.database.replace("-", "_"),
            "publication.autocreate.mode": "filtered",
            "table.include.list": ",".join(f"public.{table}" for table in self.tables),
            "tombstones.on.delete": "true",
            "skipped.operations": "none",
            # The slot stays where it was made: so its changes can be sent again from anywhere.
            "flush.lsn.source": "false",
            "poll.interval.ms": "100",
        }
