"""Two nodes that share the input: both work, each table has every record once, and parking is one node's."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from lake.extras_client import ExtrasClient
from tests.stack.support.ingester import Ingester
from tests.stack.support.line import Line
from tests.stack.support.parked import (
    flowing,
    location,
    numbered,
    numbers,
    table_name,
    unwritable,
)
from tests.stack.support.waiting import fresh, wait_for

pytestmark = pytest.mark.stack
PARTITIONS = 4
MOVED_S = 60.0


def _of_same_group(ingester: Callable[..., Ingester], topic: str, one: Ingester | None = None) -> Ingester:
    more: dict[str, Any] = {}
    if one is not None:
        more = {
            "kafka__group": one.group,
            "internal_topics__dead_letters": one.dead_letter_topic,
            "internal_topics__parked": one.parked_topic,
        }
    return ingester(topic, flush__interval_s=0.3, shares=2, tables__park_after_s=1.0, **more)


def _shares(node: Ingester) -> list[int] | None:
    """None where it does not say."""
    try:
        status = node.status()
    except httpx.HTTPError:
        return None
    return list(status["shares"]) if status["role"] == "active" and status["ready"] else None


def _wait_for_shares(expected: list[list[int]], *nodes: Ingester) -> None:
    wait_for(lambda: sorted(filter(None, map(_shares, nodes))) == expected, MOVED_S, f"shares {expected}")


def test_two_nodes_work_side_by_side_and_take_over_from_each_other(
    line: Line, ingester: Callable[..., Ingester]
) -> None:
    """Both write to one table while records flow, one is stopped and comes back, the other is killed."""
    topic, tenant = line.kafka.topic(PARTITIONS), fresh("shared-")
    one = _of_same_group(ingester, topic)
    _wait_for_shares([[0, 1]], one)
    with flowing(line, topic, tenant, range(1_000)):
        two = _of_same_group(ingester, topic, one)
        _wait_for_shares([[0], [1]], one, two)
        wait_for(lambda: line.rows_written(tenant), MOVED_S, "rows")
        assert one.stop() == 0
        _wait_for_shares([[0, 1]], two)
        one.start()
        _wait_for_shares([[0], [1]], one, two)
        two.kill()
        _wait_for_shares([[0, 1]], one)
    wait_for(lambda: line.rows_written(tenant) >= 1_000, MOVED_S, "all rows")
    assert numbers(line, tenant) == list(range(1_000))
    assert one.status()["second_writers"] == []


def test_a_table_is_parked_by_one_node_that_has_all_shares(
    line: Line, ingester: Callable[..., Ingester]
) -> None:
    """Whichever of two finds that a table takes no rows: one reads all from then on and parks; once it is
    mended both work again, and every record is there once."""
    topic, sick, well = line.kafka.topic(PARTITIONS), fresh("sick-"), fresh("well-")
    one = _of_same_group(ingester, topic)
    two = _of_same_group(ingester, topic, one)
    _wait_for_shares([[0], [1]], one, two)
    line.kafka.produce(topic, numbered(sick, range(20), PARTITIONS))
    wait_for(lambda: line.rows_written(sick) >= 20, MOVED_S, "the first rows")
    name = table_name(sick)
    with unwritable(location(line, sick) / "data"), flowing(line, topic, well, range(300)):
        line.kafka.produce(topic, numbered(sick, range(20, 60), PARTITIONS))
        wait_for(
            lambda: any(node.has_parked(str(name)) for node in (one, two)), MOVED_S, "the table being parked"
        )
        _wait_for_shares([[0, 1]], one, two)
    wait_for(lambda: line.rows_written(sick) >= 60, MOVED_S, "what was parked")
    wait_for(lambda: line.rows_written(well) >= 300, MOVED_S, "the rows of others")
    wait_for(lambda: ExtrasClient(line.catalog).find_parked(name) is None, MOVED_S, "the release")
    _wait_for_shares([[0], [1]], one, two)
    assert numbers(line, sick) == list(range(60))
    assert numbers(line, well) == list(range(300))
