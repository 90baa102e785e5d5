"""The dashboards of infra/grafana: what is in the tree is what the code makes, of metrics that exist."""

import re
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from infra.grafana.__main__ import FOLDER, made
from infra.grafana.panels import PAGES
from tests.infra.support.metric_names import told_wrongly
from tests.infra.support.promtool import promtool

BOARDS: dict[str, dict[str, Any]] = {
    page.name: orjson.loads((FOLDER / f"firn-{page.name}.json").read_bytes()) for page in PAGES
}


def queries() -> list[dict[str, Any]]:
    """All queries of all panels."""
    return [query for board in BOARDS.values() for panel in board["panels"] for query in panel["targets"]]


def test_files_are_what_the_code_makes() -> None:
    """Each dashboard has a file, and no file is left of one that is gone."""
    assert {file.name for file in FOLDER.iterdir()} == {f"firn-{page.name}.json" for page in PAGES}
    for page in PAGES:
        assert (FOLDER / f"firn-{page.name}.json").read_text() == made(page), "python -m infra.grafana"


def test_queries_name_metrics_and_labels_that_exist() -> None:
    """As the rooms define them; and a legend has labels that its query keeps."""
    assert [wrong for query in queries() for wrong in told_wrongly(query["expr"])] == []
    for query in queries():
        kept = {
            label for group in re.findall(r"by \(([^)]*)\)", query["expr"]) for label in group.split(", ")
        }
        assert set(re.findall(r"{{(\w+)}}", query["legendFormat"])) <= kept


def test_prometheus_can_read_every_query(tmp_path: Path) -> None:
    """Each as a rule of its own, with a span in place of the one that Grafana chooses."""
    rules = [
        {"record": f"query_{place}", "expr": query["expr"].replace("$__rate_interval", "5m")}
        for place, query in enumerate(queries())
    ]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    assert f"SUCCESS: {len(rules)} rules found" in promtool("check", "rules", str(file))


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_a_dashboard_is_whole(board: dict[str, Any]) -> None:
    """Any Prometheus may be chosen for it; no panel hides another, none is without a title."""
    assert [variable["type"] for variable in board["templating"]["list"]] == ["datasource"]
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        assert panel["datasource"]["uid"] == "${source}"
        assert panel["title"]
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken
        assert at["x"] + at["w"] <= 24
        taken |= cells
