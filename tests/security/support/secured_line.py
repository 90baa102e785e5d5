"""What the tests of a Kafka with users have in common: a tenant whose records must all arrive, and what a
node says."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import psutil

from tests.stack.support.ingester import Ingester
from tests.stack.support.kafka_topics import Record
from tests.stack.support.line import Line
from tests.stack.support.tool_line import ToolLine
from tests.stack.support.waiting import fresh

CLEAN = dict[str, int]()
SAID_S = 120.0
Make = Callable[..., ToolLine]


@contextmanager
def tools_of(line: Line) -> Iterator[Make]:
    """Makes tools with an ingester that does not run yet; all of them end with the context."""
    lines: list[ToolLine] = []

    def make(topic: str, within: Line = line, **settings: str) -> ToolLine:
        lines.append(ToolLine(within, topic, **settings))
        return lines[-1]

    try:
        yield make
    finally:
        for each in lines:
            each.ingester.kill()


class Tenant:
    """A tenant whose records go through a topic, and what became of them."""

    def __init__(self, tools: ToolLine, topic: str) -> None:
        self.tools, self.topic, self.name, self.sent = tools, topic, fresh("Secured"), 0

    def send(self, count: int) -> None:
        """So many more records, of which every tenth is one that no table could take."""
        self.tools.line.kafka.produce(self.topic, _records(self.name, range(self.sent, self.sent + count)))
        self.sent += count

    def check(self) -> None:
        """All of it is there, once: rows, and dead letters."""
        ingester, line = self.tools.ingester, self.tools.line
        line.wait_for_rows(ingester, self.name, self.sent * 9 // 10, timeout_s=SAID_S)
        line.wait_for_dead_letters(ingester, self.sent // 10, SAID_S)
        self.tools.wait_until_stored(self.topic, {0: self.sent})
        assert self.tools.audit() == CLEAN
        assert self.tools.audited["consumed"] == self.sent


def _records(tenant: str, numbers: Sequence[int]) -> list[Record]:
    good = (("tenant", tenant.encode()),)
    return [Record(b'{"n":%d}' % n, headers=() if n % 10 == 9 else good) for n in numbers]


def wait_for_words(ingester: Ingester, *words: str, since: int = 0) -> None:
    """Returns when the log has all of them, behind its first `since` characters."""
    ingester.wait_until(
        lambda: all(word in ingester.log()[since:] for word in words), SAID_S, f"a log with {words}"
    )


def check_nothing_shown(tools: ToolLine, *hidden: str) -> None:
    """No secret stands in what a node and its tools have written, nor on a command line."""
    shown = [path.read_text(errors="replace") for path in tools.folder.rglob("*.log")]
    shown += [" ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"])]
    assert any("ingest.running" in text for text in shown)
    assert not [text for text in shown for secret in hidden if secret in text]
