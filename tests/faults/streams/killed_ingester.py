"""An ingester behind a catalog that loses answers, killed again and again."""

import random
import re
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from infra.local.supervisor import Stack
from tests.faults.crash.catalog_proxy import CatalogProxy
from tests.stack.support.forked import started_by
from tests.stack.support.ingester import Ingester
from tests.stack.support.kafka_topics import KafkaTopics
from tests.stack.support.waiting import fresh, pause, wait_for

BACK_S = 300.0
DYING_S = 0.3  # from the signal to the end of the process
COMMITS_MIN = 5
COMMITTED = re.compile(r'^firn_ingest_table_commits_total\{status="committed"\} ([0-9.]+)$', re.MULTILINE)
# Some steps come only where there is enough to do; transactions wait while one is waited for.
REACHED_S = 10.0
HELD_S = 15.0
WORKERS_MAX = 3
LATE_COMMIT, MAIN, WORKER = "late_commit", "main", "worker"
STEPS = (
    "routed_in_batch",
    "rolled_over_in_batch",
    "files_written",
    "files_synced",
    "handed_over",
    "metadata_written",
    "commit_answered",
    "settled",
    "offsets_stored",
)
KINDS = (LATE_COMMIT, MAIN, WORKER, *STEPS)


class KilledIngester:
    """An ingester on topics of changes; it runs whenever nothing is done to it."""

    def __init__(
        self,
        stack: Stack,
        folder: Path,
        topics: Sequence[Mapping[str, Any]],
        proxy: CatalogProxy,
        chance: random.Random,
    ) -> None:
        self._kafka, self._proxy, self._chance = KafkaTopics(stack.address("kafka")), proxy, chance
        self._folder, self._topics, self.steps_reached = folder, topics, 0
        name = fresh("g-")
        settings = {
            "kafka__bootstrap_servers": stack.address("kafka"),
            "kafka__group": name,
            "internal_topics__dead_letters": f"dead-{name}",
            "internal_topics__parked": f"parked-{name}",
            "internal_topics__replay": f"replay-{name}",
            "catalog__uri": proxy.address,
            "flush__interval_s": "0.7",
            "flush__visibility_max_s": "0.7",
            # So little that flushes are cut in the middle of a batch of messages.
            "flush__bytes": "60000",
            "commit__timeout_s": "5",
            # Every snapshot is looked at in the end.
            "commit__snapshots_max": "1000000",
            "shutdown_s": "30",
        }
        self.ingester = Ingester(folder, stack.environment(), topics, settings)
        self.ingester.start(ready=False)

    @staticmethod
    def draw(kills: int, chance: random.Random) -> list[str]:
        """So many kinds of kills; each comes once before one comes again."""
        drawn: list[str] = []
        while len(drawn) < kills:
            drawn += chance.sample(KINDS, len(KINDS))
        return drawn[:kills]

    def kill(self, kind: str) -> None:
        """One kill of an ingester that has been at work; after it another number of workers starts."""
        wait_for(self._has_worked, BACK_S, "the ingester having worked")
        if kind == LATE_COMMIT:
            self._late_commit()
        elif kind == WORKER:
            self._kill_worker()
        elif kind == MAIN:
            pause(self._chance.random())
            self.ingester.kill()
        else:
            self._kill_at(kind)
        if not self.ingester.alive:
            self.ingester.set(workers=str(self._chance.randint(1, WORKERS_MAX)))
            self.ingester.start(ready=False)

    def lose_answer(self) -> None:
        """A commit is made, and its answer does not come back."""
        wait_for(self._is_back, BACK_S, "the ingester")
        self._proxy.hold()
        if self._proxy.held.wait(HELD_S):
            self._proxy.land()
        else:
            self._proxy.let_pass()

    def settle(self, ends: Mapping[str, Mapping[int, int]], timeout_s: float) -> None:
        """Waits until everything up to these ends of the topics is done, and stops the ingester."""

        def done() -> bool:
            return self._is_back() and self.ingester.parked() == {} and self._is_at(ends)

        try:
            wait_for(done, timeout_s, f"group offsets at {ends}")
        except AssertionError as error:
            stored = {topic: self._kafka.group_offsets(self.ingester.group, topic) for topic in ends}
            error.add_note(
                f"stored: {stored}\nparked: {self.ingester.parked()}\n{self.ingester.log()[-6_000:]}"
            )
            raise
        assert self.ingester.stop() == 0

    def dead_letters(self) -> int:
        """How many messages became dead letters."""
        topic = self.ingester.dead_letter_topic
        return len(self._kafka.dead_letters(topic)) if self._kafka.topic_id(topic) else 0

    def end(self) -> None:
        self.ingester.kill()

    def _is_back(self) -> bool:
        if not self.ingester.alive:
            self.ingester.start(ready=False)
        return self.ingester.is_ready()

    def _has_worked(self) -> bool:
        """Whether it has made some commits since it started, or has nothing to do."""
        if not self._is_back():
            return False
        counted = COMMITTED.search(self.ingester.metrics())
        return (counted is not None and float(counted[1]) >= COMMITS_MIN) or self._is_at(self._ends())

    def _ends(self) -> dict[str, dict[int, int]]:
        return {topic["name"]: self._kafka.ends(topic["name"]) for topic in self._topics}

    def _is_at(self, ends: Mapping[str, Mapping[int, int]]) -> bool:
        """Whether everything below these ends of the topics is done."""
        stored = {topic: self._kafka.group_offsets(self.ingester.group, topic) for topic in ends}
        return all(stored[topic].get(p, 0) == end for topic, of in ends.items() for p, end in of.items())

    def _kill_worker(self) -> None:
        workers = wait_for(lambda: started_by(self.ingester.pid), REACHED_S, "a worker to kill")
        self._chance.choice(workers).kill()

    def _kill_at(self, step: str) -> None:
        """It starts anew, to die at a step of the protocol; where it does not come there, it dies anyway."""
        self.ingester.kill()
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        variables = {"FIRN_FAULT_POINT": f"{step}:kill", "FIRN_FAULT_FOLDER": str(folder)}
        self.ingester.start(ready=False, environment=variables)
        reached = folder / f"{step}.reached"
        # Where it did not come there in time it dies all the same, wherever it is.
        with suppress(AssertionError):
            wait_for(lambda: reached.exists() or not self.ingester.alive, REACHED_S, step)
            pause(DYING_S)
        self.steps_reached += reached.exists()
        self.ingester.kill()

    def _late_commit(self) -> None:
        """A commit stays in the air, its sender dies, the next one works, and only then it arrives."""
        self._proxy.hold()
        held = self._proxy.held.wait(HELD_S)
        self.ingester.kill()
        self.ingester.start(ready=False)
        wait_for(self._is_back, BACK_S, "the ingester beside a commit that is late")
        pause(self._chance.random() * 3)
        if held:
            self._proxy.land()
        else:
            self._proxy.let_pass()
