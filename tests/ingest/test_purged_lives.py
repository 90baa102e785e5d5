"""A node forgets tables whose files are gone, and no others."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from catalog.model.error_response import CatalogError
from ingest.commit.purged_lives import LOOK_EVERY_S
from ingest.commit.table_states import table_name
from ingest.model.link import Forget, GrowTables, Opened, OpenTables
from lake.commit import new_table_state
from lake.purged_tables import PurgedTable, note_purged
from lake.relief import Bounds
from lake.tenant import TableId, TenantId
from tests.ingest.support.node_world import NodeWorld

GONE, KEPT = (TableId(TenantId(name), "logs") for name in ("gone", "kept"))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[NodeWorld]:
    """A node that knows two tables, of which one was purged since."""
    with ThreadPoolExecutor(1) as pool:
        world = NodeWorld(tmp_path, pool)
        for table in (GONE, KEPT):
            state = new_table_state(table_name(table), table.tenant.name, table.stream, world.warehouse)
            world.node_states.lives[table].learn(replace(state, exists=True))
        purged = world.node_states.lives[GONE]
        note_purged(world.client, PurgedTable(table_name(GONE), purged.uuid, 1, 7))
        yield world


def _told(world: NodeWorld) -> list[TableId]:
    """The tables that workers were told to forget."""
    return [table for _, message in world.messages if isinstance(message, Forget) for table in message.tables]


def _a_day_later(world: NodeWorld) -> None:
    world.clock.s += LOOK_EVERY_S
    world.steps()


def test_a_purged_table_is_forgotten_within_a_day(world: NodeWorld) -> None:
    """By the node, and by its workers; others stay, and before that nobody is asked."""
    world.catalog.asked.clear()
    world.steps()
    assert _told(world) == []
    assert "tasks" not in world.catalog.asked
    _a_day_later(world)
    assert _told(world) == [GONE]
    assert GONE not in world.node_states.lives
    assert KEPT in world.node_states.lives


def test_a_table_with_something_under_way_stays(world: NodeWorld) -> None:
    """Somebody waits to hear of it: it is loaded, and found to be a new one."""
    world.node_states.lives[GONE].asked_by.add(1)
    _a_day_later(world)
    assert _told(world) == []
    assert GONE in world.node_states.lives
    world.node_states.lives[GONE].asked_by.clear()
    _a_day_later(world)
    assert _told(world) == [GONE]


def test_another_table_of_the_same_name_stays(world: NodeWorld) -> None:
    """It has another uuid."""
    state = new_table_state(table_name(GONE), GONE.tenant.name, GONE.stream, world.warehouse)
    world.node_states.lives[GONE].learn(replace(state, exists=True))
    _a_day_later(world)
    assert _told(world) == []


def test_nothing_is_forgotten_while_the_catalog_does_not_say(world: NodeWorld) -> None:
    """It is asked again the next day."""
    world.catalog.refuses["tasks"] = CatalogError(403, "ForbiddenException", "no")
    _a_day_later(world)
    assert _told(world) == []
    del world.catalog.refuses["tasks"]
    _a_day_later(world)
    assert _told(world) == [GONE]


def test_a_tenant_that_comes_back_gets_a_table_again(world: NodeWorld) -> None:
    """A worker asks for it like for any table that is met for the first time."""
    before = world.node_states.lives[GONE].uuid
    _a_day_later(world)
    world.node.handle(0, OpenTables([GONE]))
    world.steps()
    views = [message.views for _, message in world.messages if isinstance(message, Opened)]
    (view,) = [found[GONE] for found in views if GONE in found]
    assert view.is_new
    assert view.uuid != before


def test_a_worker_that_needs_columns_of_a_forgotten_table_has_it_loaded(world: NodeWorld) -> None:
    """It did not know yet: its flush is stuck, and comes again when the table is known."""
    _a_day_later(world)
    world.node.handle(0, GrowTables({GONE: {"field": "/field"}}))
    world.steps()
    assert world.node_states.last_known(GONE) is not None


def test_what_relief_knows_of_it_goes_too(world: NodeWorld) -> None:
    """So that nothing of it is left."""
    reliefs = world.node.committer.reliefs
    assert reliefs.bounds == Bounds()
    reliefs._floors |= {GONE: (1, 2), KEPT: (3, 4)}
    _a_day_later(world)
    assert reliefs._floors == {KEPT: (3, 4)}
