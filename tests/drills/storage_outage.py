"""The object storage dies while records flow, and comes back."""

from collections.abc import Mapping

from infra.local.service import BUCKET
from tests.drills.support.scene import Scene, counted
from tests.stack.support.waiting import pause

WAREHOUSE = f"s3://{BUCKET}/drill"
OUTAGE_S = 10.0


def play(scene: Scene) -> Mapping[str, object]:
    """The node waits and says why; then it goes on by itself."""
    scene.start()
    scene.stack.kill("s3")
    scene.sees("FirnTablesFailing")
    scene.log_says("ingest", "tables.failing")
    pause(OUTAGE_S)
    assert "tables failing" in scene.run("python -m ingest status")
    scene.stack.start("s3")
    scene.wait_for_rows()
    scene.log_says("ingest", "tables.take_rows")
    scene.all_is_quiet()
    found = scene.account()
    assert "no table is parked" in scene.run("python -m ingest parked list")
    scene.run("python -m ingest audit")
    return {**counted(scene.flow, found), "outage_s": round(OUTAGE_S)}
