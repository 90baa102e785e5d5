"""Finding 8: exports of a tenant whose engine hangs hold up no other tenant's."""

from dataclasses import replace
from pathlib import Path

import pytest

from query.export.export import ExportJobs, Job
from tests.query.test_export import Rows, finished, job
from tests.stack.support.waiting import wait_for

pytestmark = pytest.mark.finding(8)


@pytest.mark.long
def test_one_tenants_hanging_exports_let_others_go_on(tmp_path: Path) -> None:
    """Twelve of one tenant wait for an engine that does not answer; another tenant's is written meanwhile,
    and those too when it answers again."""
    hanging = Rows(stop_at="0")

    def rows_of(asked: Job) -> Rows:
        return hanging if asked.tenant == "acme" else Rows()

    jobs = ExportJobs(tmp_path, rows_of)
    jobs.start()
    stuck = [jobs.create(job("ndjson")) for _ in range(12)]
    assert hanging.reached.wait(30)
    for tenant in ("globex", "initech"):
        done = finished(jobs, jobs.create(replace(job("ndjson"), tenant=tenant)).id)
        assert (done.state, done.rows) == ("done", 150)
    assert {jobs.get(each.id).state for each in stuck} == {"running"}
    hanging.go_on.set()
    wait_for(lambda: all(jobs.get(each.id).state == "done" for each in stuck), 60.0, "the exports that hung")
    jobs.stop()
