"""Boards through the API and from the command line: kept as JSON, changed by compare-and-set, limited, seen
by their tenant alone."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake.catalog_client import CatalogClient
from lake.errors import ConflictError
from lake.extras_client import KEYS_PATH
from lake.tenant import TenantId
from query.model.problem import BadRequestError
from query.tables import board_store
from query.tables.board import BYTES_MAX, TILES_MAX, board_of
from query.tables.board_store import BoardStore, StoredBoard, board_named
from tests.query.support.guarded import Guarded
from tests.query.support.log_table import fresh_tenant
from tests.query.support.processes import run

PATH = "/v1/boards"
AT_ONCE = 8
SEARCH = {
    "title": "Errors",
    "query": "severity:error | stats count() by host",
    "shown": "bars",
    "size": "large",
}
STATEMENT = {"title": "Rows", "sql": "SELECT count(*) FROM logs WHERE timestamp > {from}", "shown": "figure"}
BOARD: dict[str, Any] = {
    "title": "Checkout",
    "from": "now-6h",
    "to": "now",
    "refresh_s": 60,
    "tiles": [SEARCH, {**STATEMENT, "size": "medium"}],
}


# ---- what a board is


def test_a_board_is_written_as_it_was_read() -> None:
    """Nothing is added that nobody said but how a tile is drawn."""
    assert board_of(BOARD).to_json() == BOARD
    assert board_of({"title": "x"}).to_json() == {
        "title": "x",
        "from": "now-24h",
        "to": "now",
        "refresh_s": None,
        "tiles": [],
    }
    (tile,) = board_of({"title": "x", "tiles": [{"title": "all", "query": ""}]}).tiles
    assert (tile.searched_stream, board_of(BOARD).tiles[1].searched_stream) == ("logs", None)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"title": ""}, "title: "),
        ({"title": None}, "title: "),
        ({"refresh_s": 1}, "refresh_s: "),
        ({"more": 1}, "more: "),
        ({"\ud800": 1}, "board: "),
        ({"title": "\ud800"}, "title: "),
        ({"m" * 99: 1}, "m" * 60 + ": "),
        ({"tiles": [{"title": "t"}]}, "tiles.0: a tile has either `query` or `sql`"),
        ({"tiles": [{**SEARCH, **STATEMENT}]}, "tiles.0: a tile has either"),
        ({"tiles": [{**STATEMENT, "stream": "logs"}]}, "a statement names its streams itself"),
        ({"tiles": [SEARCH, {**SEARCH, "shown": "pie"}]}, "tiles.1.shown: "),
        ({"tiles": [SEARCH] * (TILES_MAX + 1)}, "tiles: "),
    ],
)
def test_what_is_no_board_is_told_with_its_place(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(BadRequestError) as refused:
        board_of({**BOARD, **changes})
    assert said in refused.value.problem.message


@pytest.mark.long
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["title", "from", "to", "tiles", "query", "sql", "refresh_s", "size"]), inner
            )
        ),
        max_leaves=12,
    ).filter(lambda made: isinstance(made, dict))
)
def test_any_object_is_a_board_or_refused_with_a_sentence(made: dict[str, Any]) -> None:
    try:
        board = board_of(made)
    except BadRequestError:
        return
    assert board_of(board.to_json()) == board


# ---- the routes


@pytest.fixture
def boards(guarded: Guarded) -> Iterator[Guarded]:
    """Ends without boards."""
    yield guarded
    for whose, key in (("Mine", "mine"), ("Theirs", "theirs")):
        for each in guarded.ask("GET", PATH, key, params={"tenant": whose}).json()["boards"]:
            where = f"{PATH}/{each['name']}"
            guarded.ask("DELETE", where, key, params={"tenant": whose}).raise_for_status()


def kept(guarded: Guarded, name: str = "checkout", key: str = "mine", **body: Any) -> httpx.Response:
    return guarded.ask("PUT", f"{PATH}/{name}", key, json={"tenant": "Mine", "board": BOARD, **body})


def shown(guarded: Guarded, name: str = "checkout", key: str = "reader") -> httpx.Response:
    return guarded.ask("GET", f"{PATH}/{name}", key, params={"tenant": "Mine"})


@pytest.mark.stack
def test_a_board_is_kept_changed_listed_and_deleted(boards: Guarded) -> None:
    """What is the same stays as it is, with its version; who changes another version than there is, is
    refused."""
    assert kept(boards, version=0).json() == {"version": 1, "outcome": "made"}
    found = shown(boards).json()
    assert (found["board"], found["version"], bool(found["by"])) == (BOARD, 1, True)
    assert kept(boards).json() == {"version": 1, "outcome": "unchanged"}
    assert kept(boards, board={**BOARD, "title": "Other"}, version=1).json()["version"] == 2
    late = kept(boards, version=1)
    assert (late.status_code, "load it again" in late.json()["error"]["message"]) == (409, True)
    assert kept(boards, version=0).status_code == 409
    assert kept(boards, "second", version=7).status_code == 409
    (line,) = boards.ask("GET", PATH, "reader", params={"tenant": "Mine"}).json()["boards"]
    assert {name: line[name] for name in ("name", "title", "tiles", "version")} == {
        "name": "checkout",
        "title": "Other",
        "tiles": 2,
        "version": 2,
    }
    gone = [
        boards.ask("DELETE", f"{PATH}/checkout", "mine", params={"tenant": "Mine"}).status_code
        for _ in range(2)
    ]
    assert gone == [204, 404]
    assert shown(boards).status_code == 404


@pytest.mark.stack
def test_a_board_of_another_tenant_is_not_seen_or_changed(boards: Guarded) -> None:
    """Each tenant has its own of a name; a key that may only read changes none."""
    kept(boards).raise_for_status()
    theirs = {"tenant": "Theirs", "board": {"title": "Theirs"}}
    boards.ask("PUT", f"{PATH}/checkout", "theirs", json=theirs).raise_for_status()
    assert shown(boards).json()["board"] == BOARD
    for method, path in (("GET", PATH), ("GET", f"{PATH}/checkout"), ("DELETE", f"{PATH}/checkout")):
        answer = boards.ask(method, path, "theirs", params={"tenant": "Mine"})
        assert answer.status_code == 403, (method, path, answer.text)
    assert kept(boards, key="theirs").status_code == 403
    assert kept(boards, key="reader").status_code == 403
    gone = boards.ask("DELETE", f"{PATH}/checkout", "reader", params={"tenant": "Mine"})
    assert gone.status_code == 403
    assert shown(boards).json()["version"] == 1


@pytest.mark.stack
def test_a_key_of_some_streams_sees_boards_of_these_alone(boards: Guarded) -> None:
    """What a board searches for may say what is in a stream, and a statement may name any."""
    with closing(CatalogClient(boards.catalog.address, token=boards.keys["admin"])) as client:
        body = {"scope": "write", "namespace": [boards.mine.name.namespace], "streams": ["web*"]}
        boards.keys["web"] = str(client.post(KEYS_PATH, body)["key"])
    web = {"title": "Web", "tiles": [{"title": "t", "query": "", "stream": "web-1"}]}
    of_logs = {"title": "Logs", "tiles": [*web["tiles"], {"title": "t", "query": "secret"}]}
    of_sql = {"title": "SQL", "tiles": [{"title": "t", "sql": 'SELECT * FROM "web-1"'}]}
    kept(boards, "web", board=web, key="web").raise_for_status()
    for name, board in (("logs", of_logs), ("sql", of_sql)):
        assert kept(boards, name, board=board, key="web").status_code in (403, 404)
        kept(boards, name, board=board).raise_for_status()
        assert shown(boards, name, key="web").status_code == 404
        assert kept(boards, name, board=web, key="web").status_code in (403, 404)
        assert shown(boards, name, key="mine").json()["version"] == 1
        gone = boards.ask("DELETE", f"{PATH}/{name}", "web", params={"tenant": "Mine"})
        assert gone.status_code == 404
    listed = boards.ask("GET", PATH, "web", params={"tenant": "Mine"}).json()["boards"]
    assert [each["name"] for each in listed] == ["web"]


@pytest.mark.stack
@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("checkout", {"from": "now", "to": "now-1h"}, "time range is empty"),
        ("checkout", {"from": "yesterday"}, "is not a time"),
        ("a b", {}, "name"),
        ("checkout", {"tiles": [{"title": "t", "query": "x" * 4_000}] * 20}, f"at most {BYTES_MAX:,}"),
        ("checkout", {"tiles": [{"title": "t"}]}, "tiles.0"),
    ],
)
def test_a_board_that_cannot_be_kept_is_refused_with_a_sentence(
    boards: Guarded, name: str, changes: dict[str, Any], said: str
) -> None:
    answer = kept(boards, name, board={**BOARD, **changes})
    assert answer.status_code == 400
    assert said in answer.json()["error"]["message"]
    assert boards.ask("GET", PATH, "mine", params={"tenant": "Mine"}).json()["boards"] == []


@pytest.mark.stack
@pytest.mark.parametrize("text", ["\x00", "\ud800", "\u202e![x](//y)", "'; DROP"])
def test_hostile_texts_are_kept_as_they_are_or_refused(boards: Guarded, text: str) -> None:
    """None breaks the list."""
    body = orjson.dumps({"tenant": "Mine", "board": {"title": "?"}}).decode()
    spelled = "".join(f"\\u{ord(each):04x}" for each in text)
    answer = boards.ask(
        "PUT",
        f"{PATH}/checkout",
        "mine",
        content=body.replace("?", spelled),
        headers={"Content-Type": "application/json"},
    )
    assert answer.status_code in (200, 400), answer.text
    listed = boards.ask("GET", PATH, "mine", params={"tenant": "Mine"}).raise_for_status().json()["boards"]
    assert [each["title"] for each in listed] == ([text] if answer.is_success else [])


@pytest.mark.stack
def test_a_tenant_has_as_many_boards_as_the_server_says(boards: Guarded) -> None:
    most = boards.ask("GET", PATH, "mine", params={"tenant": "Mine"}).json()["boards_max"]
    store = BoardStore(boards.mine.catalog)
    for at in range(most):
        board = StoredBoard(boards.mine.id.tenant, f"b{at}", board_of(BOARD), "", "")
        assert store.keep(board) == 1
    answer = kept(boards)
    assert answer.status_code == 400
    assert f"boards.per_tenant allows {most}" in answer.json()["error"]["message"]
    assert kept(boards, "b0", board={"title": "changed"}).json()["outcome"] == "changed"


@pytest.mark.stack
def test_of_many_who_make_the_last_board_at_once_one_does(boards: Guarded) -> None:
    """Each has counted while nobody else made one; the others are told that there are as many as there may
    be."""
    most = boards.ask("GET", PATH, "mine", params={"tenant": "Mine"}).json()["boards_max"]
    store = BoardStore(boards.mine.catalog)
    for at in range(most - 1):
        store.keep(StoredBoard(boards.mine.id.tenant, f"b{at}", board_of({"title": "x"}), "", ""))
    together = threading.Barrier(AT_ONCE)

    def make(at: int) -> int:
        together.wait()
        return kept(boards, f"last-{at}").status_code

    with ThreadPoolExecutor(AT_ONCE) as threads:
        told = sorted(threads.map(make, range(AT_ONCE)))
    assert told == [200, *[400] * (AT_ONCE - 1)]
    listed = boards.ask("GET", PATH, "mine", params={"tenant": "Mine"}).json()["boards"]
    assert len(listed) == most


@pytest.mark.stack
def test_boards_go_to_files_and_back(boards: Guarded, tmp_path: Path) -> None:
    """Which stay the same until a board changes, so that they can be kept in git."""
    environment = {
        **boards.environment,
        "FIRN_QUERY_CLIENT__URI": boards.api.address,
        "FIRN_QUERY_CLIENT__KEY": boards.keys["mine"],
    }

    def said(*arguments: str) -> list[dict[str, Any]]:
        done = run("query", environment, "boards", *arguments)
        assert done.returncode == 0, done.stderr
        return [orjson.loads(line) for line in done.stdout.splitlines()]

    kept(boards).raise_for_status()
    assert [each["board"] for each in said("export", "Mine", str(tmp_path))] == ["checkout"]
    file = tmp_path / "checkout.json"
    written = file.read_bytes()
    assert orjson.loads(written) == BOARD
    assert said("apply", "Mine", str(file)) == [{"board": "checkout", "outcome": "unchanged"}]
    other = tmp_path / "other.json"
    other.write_bytes(written.replace(b"Checkout", b"Other"))
    would = said("apply", "Mine", str(other), "--replace", "--dry-run")
    assert [each["outcome"] for each in would] == ["would be made", "would be deleted"]
    done = said("apply", "Mine", str(other), "--replace")
    assert [each["outcome"] for each in done] == ["made", "deleted"]
    assert [each["title"] for each in said("list", "Mine")] == ["Other"]
    assert said("delete", "Mine", "other") == []
    file.write_text("[]")
    refused = run("query", environment, "boards", "apply", "Mine", str(file))
    assert (refused.returncode != 0, "holds no board" in refused.stderr) == (True, True)


# ---- the store


@pytest.mark.stack
def test_who_has_counted_too_long_ago_makes_no_board(
    catalog_client: CatalogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lease has passed to another; who waits longer than it may is told to send it again."""
    tenant, store = TenantId(fresh_tenant("boards")), BoardStore(catalog_client)
    late = StoredBoard(tenant, "late", board_of(BOARD), "k", "t")
    with store.making() as first:
        monkeypatch.setattr(board_store, "MAKING_WAIT_S", 0.1)
        with pytest.raises(ConflictError, match="at once; send it again"), store.making():
            pass
    monkeypatch.setattr(board_store, "MAKING_WAIT_S", 10.0)
    with store.making() as second:
        with pytest.raises(ConflictError, match="took too long"):
            store.keep(late, first)
        assert list(store.of(tenant)) == []
        assert store.keep(late, second) == 1
    store.drop_all(tenant)


@pytest.mark.stack
def test_of_two_who_change_a_version_one_is_refused(catalog_client: CatalogClient) -> None:
    """And a board that this version cannot read is left out of the list, and stays."""
    tenant, store = TenantId(fresh_tenant("boards")), BoardStore(catalog_client)
    made = StoredBoard(tenant, "one", board_of(BOARD), "k", "t")
    assert store.keep(made) == 1
    with pytest.raises(ConflictError, match="load it again"):
        store.keep(made)
    assert board_named(store.of(tenant), "one", tenant).board == board_of(BOARD)
    other = StoredBoard(tenant, "two", board_of({"title": "x"}), "k", "t")
    task = {"id": other.id, "kind": "query.board", "state": tenant.namespace, "version": 0}
    newer = {"name": "two", "board": {"title": "x", "of": "later"}, "by": "k", "at": "t"}
    catalog_client.post("/firn/v1/tasks", {"tasks": [{**task, "record": newer}]})
    assert [each.name for each in store.of(tenant)] == ["one"]
    with pytest.raises(ConflictError):
        store.keep(other)
    store.drop_all(tenant)
    assert list(store.of(tenant)) == []
    assert store.keep(other) == 1
    store.drop_all(tenant)
