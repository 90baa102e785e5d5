"""A catalog and a node of an older version are followed by those of today, while records flow."""

import os
import time
from collections.abc import Mapping
from pathlib import Path

from infra.local.jvm_parts import REPOSITORY
from tests.drills.support.scene import Scene, counted
from tests.stack.support.ingester import Ingester

# A checkout of the older version, like one that `git worktree add` makes of a tag; without it, today's.
OLD = "FIRN_DRILL_OLD_VERSION"
GAP_MAX_S = 30.0


def play(scene: Scene) -> Mapping[str, object]:
    """The new node has rows within 30 s of the old one's stop; no record is lost or doubled by the change."""
    old = Path(os.environ.get(OLD, REPOSITORY))
    scene.settings |= _of_version(old)
    scene.stack.start("kafka", "catalog", environment=_of_version(old))
    scene.start()
    scene.settings |= _of_version(REPOSITORY)
    scene.run("systemctl restart firn-catalog")
    scene.wait_for_rows()
    standby = scene.second_node()
    assert '"role":"standby"' in scene.run("curl -s STANDBY/v1/status", STANDBY=standby.address)
    gap_s = _change_over(scene)
    assert gap_s < GAP_MAX_S
    _is_active(scene, standby)
    scene.run("systemctl restart firn-ingest-tools")
    found = scene.account(node=standby.address)
    scene.run("python -m ingest audit")
    return {**counted(scene.flow, found), "gap_s": round(gap_s, 1)}


def _of_version(tree: Path) -> dict[str, str]:
    """Variables with which `python -m` takes the modules of a checkout, wherever it runs."""
    return {"PYTHONSAFEPATH": "1", "PYTHONPATH": str(tree)}


def _change_over(scene: Scene) -> float:
    """Seconds from the stop of the old node to more rows of every tenant than it left."""
    began_s = time.monotonic()
    scene.run("systemctl stop firn-ingest")
    scene.wait_for_rows()
    return time.monotonic() - began_s


def _is_active(scene: Scene, node: Ingester) -> None:
    assert node.status()["role"] == "active"
    assert "lag" in scene.run("python -m ingest status")
