"""The node's own key is leaked, and a table is dropped with it."""

from collections.abc import Mapping
from contextlib import closing

import httpx

from lake.catalog_client import CatalogClient
from tests.drills.support.scene import SOON_S, Scene, counted
from tests.faults.crash.record_flow import table_of
from tests.query.support.processes import Child, run
from tests.stack.support.waiting import wait_for

VICTIM = "bravo"


def play(scene: Scene) -> Mapping[str, object]:
    """The node gets another secret, the thief is refused, and the table comes back with every row."""
    scene.stack.start("kafka", "catalog")
    environment = scene.stack.environment()
    guarded = Child("catalog", scene.folder, environment)
    key = run("catalog", environment, "key", "create", "--scope", "write", "--note", "ingest").stdout.strip()
    scene.ends.callback(guarded.kill)
    scene.start(catalog__uri=guarded.start().address, catalog__token=key)
    table = table_of(VICTIM)
    with closing(CatalogClient(guarded.address, token=key)) as thief:
        thief.delete(f"/v1/namespaces/{table.namespace}/tables/{table.name}")
    scene.sees("FirnTableParked")
    key_id = key.split("_")[1]
    assert key_id in scene.run("python -m catalog key list")
    rotated = scene.run("python -m catalog key rotate KEY_ID --overlap 1m", KEY_ID=key_id).splitlines()
    other = next(line for line in rotated if line.startswith(f"firn_{key_id}_"))
    scene.set(catalog__token=other)
    scene.run("systemctl restart firn-ingest firn-ingest-tools")
    wait_for(lambda: _is_refused(scene, key, guarded.address), SOON_S, "the leaked secret being refused")
    assert "deleted" in scene.run("python -m ingest parked list")
    scene.run("python -m catalog table undo NAMESPACE.TABLE", NAMESPACE=table.namespace, TABLE=table.name)
    scene.wait_for_rows()
    found = scene.account()
    scene.all_is_quiet()
    scene.run("python -m ingest audit")
    return counted(scene.flow, found)


def _is_refused(scene: Scene, key: str, address: str) -> bool:
    answer = scene.run(
        'curl -s -o /dev/null -w %{http_code} -H "Authorization: Bearer KEY" CATALOG/v1/namespaces',
        KEY=key,
        CATALOG=address,
    )
    return answer == str(httpx.codes.UNAUTHORIZED.value)
