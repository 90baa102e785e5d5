"""A tenant's retention is set to an hour, and maintenance runs before anybody sees it."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import orjson

from tests.drills.support.scene import PARTITIONS, SOON_S, TOPIC, Scene, counted
from tests.faults.crash.identities import Identity
from tests.faults.crash.record_flow import table_of
from tests.query.support.processes import run
from tests.stack.support.kafka_topics import Record
from tests.stack.support.waiting import wait_for

TENANT = "bravo"
TABLE = table_of(TENANT)
OLD, LATE = 500, 300


def play(scene: Scene) -> Mapping[str, object]:
    """The table goes back to before; what came since is read again, what came late is replayed."""
    scene.start()
    scene.api()
    _produce(scene, OLD, hours_ago=5)
    wait_for(lambda: _rows_before(scene) == OLD, SOON_S, "the old rows")
    _take_too_much(scene)
    late = _produce(scene, LATE, hours_ago=3)
    scene.sees("FirnDeadLettersRise")
    scene.run("python -m query hold set TENANT --reason wrong-retention", TENANT=TENANT)
    scene.run("python -m query retention TENANT --set 30d", TENANT=TENANT)
    return {}
