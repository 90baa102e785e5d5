"""The file of the catalog's database is deleted while records flow."""

from collections.abc import Mapping

import pytest

from lake.errors import UnavailableError
from tests.drills.support.scene import Scene, counted


def play(scene: Scene) -> Mapping[str, object]:
    """The catalog does not serve an empty database; the warehouse says what the old one knew."""
    scene.start()
    scene.stack.kill("catalog")
    for file in scene.stack.folder.glob("catalog.db*"):
        file.unlink()
    with pytest.raises(UnavailableError):  # as systemd would try it
        scene.stack.start("catalog")
    scene.log_says("catalog", "the database knows no table, but")
    scene.sees("FirnServiceDown")
    scene.sees("FirnTablesFailing")
    scene.run("systemctl stop firn-ingest firn-ingest-tools firn-catalog")
    rebuilt = scene.json("python -m catalog rebuild --from-warehouse")
    assert [rebuilt[names] for names in ("missing", "unreadable", "nameless", "parked")] == [[], [], [], []]
    scene.run("python -m catalog check")
    assert "firn_" in scene.run("python -m catalog key create --scope admin --note operator")
    assert "firn_" in scene.run("python -m catalog key create --scope write --note ingest")
    scene.run("systemctl start firn-catalog firn-ingest firn-ingest-tools")
    scene.wait_for_rows()
    scene.all_is_quiet()
    found = scene.account()
    scene.run("python -m ingest parked list")
    scene.run("python -m ingest audit")
    return counted(scene.flow, found)
