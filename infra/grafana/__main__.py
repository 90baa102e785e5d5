"""`python -m infra.grafana`: writes the dashboards that Grafana reads, one JSON file each."""

from pathlib import Path

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import DataSourceRef

from infra.grafana.panels import PAGES, Page, Panel

FOLDER = Path(__file__).with_name("dashboards")
SOURCE = DataSourceRef(type_val="prometheus", uid="${source}")
# Single figures share one line. Heights are in Grafana's own rows, of 30 pixels.
COLUMNS, WIDTH, HEIGHT, HEIGHT_SINGLE = 24, 12, 8, 4


def main() -> None:
    """Writes all of them anew."""
    FOLDER.mkdir(exist_ok=True)
    for page in PAGES:
        (FOLDER / f"firn-{page.name}.json").write_text(made(page))


def made(page: Page) -> str:
    """A dashboard as JSON."""
    board = (
        dashboard.Dashboard(page.title)
        .uid(f"firn-{page.name}")
        .tags(["firn"])
        .time("now-6h", "now")
        .refresh("30s")
        .with_variable(dashboard.DatasourceVariable("source").label("Prometheus").type("prometheus"))
    )
    singles = sum(panel.single for panel in page.panels)
    for panel in page.panels:
        board.with_panel(_single(panel, COLUMNS // singles) if panel.single else _over_time(panel))
    return JSONEncoder(sort_keys=True, indent=2).encode(board.build()) + "\n"


def _single(panel: Panel, width: int) -> stat.Panel:
    drawn = stat.Panel().title(panel.title).unit(panel.unit).datasource(SOURCE)
    drawn = drawn.span(width).height(HEIGHT_SINGLE)
    drawn = drawn.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    for query in _queries(panel):
        drawn = drawn.with_target(query.instant())
    return drawn


def _over_time(panel: Panel) -> timeseries.Panel:
    drawn = timeseries.Panel().title(panel.title).unit(panel.unit).datasource(SOURCE)
    drawn = drawn.span(WIDTH).height(HEIGHT).min(0)
    drawn = drawn.legend(common.VizLegendOptions().show_legend(True))
    for query in _queries(panel):
        drawn = drawn.with_target(query)
    return drawn


def _queries(panel: Panel) -> list[prometheus.Dataquery]:
    return [
        prometheus.Dataquery().expr(expression).legend_format(legend).ref_id(chr(ord("A") + place))
        for place, (expression, legend) in enumerate(panel.expressions)
    ]


if __name__ == "__main__":
    main()
