"""The pipe between a worker and the node's main process."""

import multiprocessing
import threading
from multiprocessing.connection import Connection

import pytest

from ingest.model.link import Opened, OpenTables, Stuck, TableView
from ingest.model.trouble import Cause, Trouble
from ingest.node.worker import PipeLink
from lake.marks import Marks
from lake.tenant import TableId, TenantId

WAIT_S = 120.0  # a process that starts beside other load
# More than any pipe holds.
TABLES = [TableId(TenantId(f"tenant-{number}"), f"logs-{number}" * 500) for number in range(2_000)]
VIEWS = {
    table: TableView(f"uuid-{number}", f"file:///warehouse/{number}", b"%d" % number * 1_000, Marks({}))
    for number, table in enumerate(TABLES)
}


def _worker(pipe: Connection) -> None:
    link = PipeLink(pipe)
    link.open(TABLES)
    (opened,) = link.received(WAIT_S)
    assert isinstance(opened, Opened)
    link.stuck(TABLES[0], Trouble(Cause.FAILING, f"{len(opened.views)} tables opened"))


@pytest.mark.long
def test_both_ends_may_write_more_than_the_pipe_holds_at_the_same_time() -> None:
    """They did wait for each other for ever, with a thousand tables in flight."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    worker = context.Process(target=_worker, args=(theirs,))
    worker.start()
    theirs.close()
    main = threading.Thread(target=ours.send, args=(Opened(VIEWS),), daemon=True)
    main.start()
    try:
        main.join(WAIT_S)
        assert not main.is_alive(), "the main process waits for a worker that waits for it"
        assert ours.recv() == OpenTables(TABLES)
        assert ours.recv() == Stuck(TABLES[0], Trouble(Cause.FAILING, "2000 tables opened"))
        worker.join(WAIT_S)
        assert worker.exitcode == 0
    finally:
        worker.kill()
        worker.join()
