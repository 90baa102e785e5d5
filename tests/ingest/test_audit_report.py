"""What an audit shows on a terminal."""

from rich.console import Console

from ingest.audit.audit import Audit, PartitionAudit
from ingest.audit.audit_compare import Verdict
from ingest.audit.audit_report import to_renderable
from ingest.audit.audit_sources import TableScan


def _shown(verdict: Verdict) -> str:
    partition = PartitionAudit(
        "k8s-prod-logs", "id", 3, 0, 1_234_567, gone=False, verdict=verdict, examples=[]
    )
    console = Console(width=80, record=True)
    console.print(to_renderable(Audit([partition], TableScan(), 0, 0)))
    return console.export_text()


def test_eighty_columns_show_every_figure() -> None:
    """No figure is cut off; counts of what is not there take no room."""
    shown = _shown(Verdict(consumed=1_234_567, written=1_234_000, dead_lettered=560, parked=7))
    assert all(
        figure in shown
        for figure in ("0 to 1234567", "1,234,567", "1,234,000", "560", "clean: no gap, no duplicate")
    )
    assert "…" not in shown
    assert "missing" not in shown


def test_what_is_wrong_has_its_column() -> None:
    """A count that is not zero anywhere is shown for every partition."""
    shown = _shown(Verdict(consumed=10, written=8, missing=2))
    assert "missing" in shown.split("NOT CLEAN")[0]
