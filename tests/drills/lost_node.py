"""A node is killed where there is a standby; then the only one that is left."""

import time
from collections.abc import Mapping

from tests.drills.support.scene import Scene, counted

GAP_MAX_S = 30.0


def play(scene: Scene) -> Mapping[str, object]:
    """The standby has rows again within 30 s; without one records wait until a node is started."""
    scene.start()
    standby = scene.second_node()
    gap_s = _kill_and_wait(scene)
    scene.sees("FirnServiceDown")
    scene.log_says(standby.log_file, "lease.acquired")
    assert gap_s < GAP_MAX_S
    standby.kill()
    scene.sees("FirnNoActiveNode")
    scene.run("systemctl start firn-ingest")
    scene.wait_for_rows()
    scene.all_is_quiet()
    found = scene.account()
    assert "lag" in scene.run("python -m ingest status")
    scene.run("python -m ingest audit")
    return {**counted(scene.flow, found), "gap_s": round(gap_s, 1)}


def _kill_and_wait(scene: Scene) -> float:
    """Seconds from the death of the node to more rows of every tenant."""
    scene.stack.kill("ingest")
    began_s = time.monotonic()
    scene.wait_for_rows()
    return time.monotonic() - began_s
