"""The pictures in docs/screenshots, taken anew (`make screenshots`) over six hours of the demo's logs.

They are of made-up tenants; no data set is read.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from playwright.sync_api import Page

from infra.demo.load import first_load
from infra.demo.producer import DemoProducer, create_topics
from infra.demo.run import SETTINGS_OF_TOPICS
from lake.tenant import TenantId
from tests.query.support.processes import Child
from tests.stack.support.line import Line
from tests.stack.support.plain_http import http
from tests.stack.support.waiting import wait_for
from tests.ui.support.front_end import start_front_end
from tests.ui.support.kept_alerts import keep_alert
from tests.ui.support.menu import NARROW_PX, entries
from tests.ui.support.pictured import keep_board, records_now
from tests.ui.support.screenshots import HEIGHTS_PX, SCHEMES, TENANT, file_of, take

pytestmark = [pytest.mark.stack, pytest.mark.prove]

RECORDS, HOURS, SEED = 12_000, 6.0, 1
SMALLEST_BYTES, LARGEST_BYTES = 2_000, 200_000


@dataclass(frozen=True, slots=True)
class Demo:
    """Pages over the demo's logs; what `producer` sends comes to them."""

    address: str
    producer: DemoProducer

    def send_now(self) -> int:
        """Sends what a live tail shows; how many these are."""
        records = list(records_now(TENANT, datetime.now(UTC)))
        for record in records:
            self.producer.send(record)
        self.producer.flush()
        return len(records)


@pytest.fixture(scope="module")
def demo(line: Line, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """Pages over the demo's logs with all that goes wrong among them, an alert and a board."""
    folder = Path(tmp_path_factory.mktemp("demo"))
    create_topics(line.kafka.bootstrap_servers)
    producer = DemoProducer(line.kafka.bootstrap_servers)
    for record in first_load(SEED, RECORDS, datetime.now(UTC), HOURS):
        producer.send(record)
    producer.flush()
    of_logs = [each for each in SETTINGS_OF_TOPICS if "changes" not in each]
    ingester = line.ingester(of_logs, flush__interval_s=2)
    serve = Child("ingest", folder, {**ingester.environment, "FIRN_INGEST_NODE__URI": ingester.address})
    variables = {
        **line.stack.environment(),
        "FIRN_QUERY_INGEST__URI": serve.start().address,
        "FIRN_QUERY_STATE": str(folder / "query"),
    }
    api = Child("query", folder, variables).start()
    wait_for(lambda: _lag(api.address) == 0, 120.0, "all of it in the tables")
    keep_alert(line.catalog, TenantId(TENANT), "payment", name="card-declined", query="declined")
    keep_board(line.catalog, TenantId(TENANT))
    ui = start_front_end(api.address, folder)
    yield Demo(ui.address, producer)
    for one in (ui, api, serve, ingester):
        one.kill()


def _lag(api: str) -> object:
    return http.get(f"{api}/v1/health", timeout=30.0).json()["lag_records"]


def test_every_page_has_its_pictures(page: Page, demo: Demo) -> None:
    """Each page of the menu, at both widths, light and dark; a picture shows something, and is small."""
    page.set_viewport_size({"width": NARROW_PX, "height": 800})
    page.goto(demo.address)
    for entry in entries(page):
        for width in HEIGHTS_PX:
            take(page, demo.address, entry, width, demo.send_now)
            for scheme in SCHEMES:
                assert SMALLEST_BYTES < file_of(entry, width, scheme).stat().st_size < LARGEST_BYTES
