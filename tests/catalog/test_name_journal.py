"""The journal of names: what it says stays the same however its files are written, repeated, ordered and put
together."""

import random
from pathlib import Path

import orjson
from hypothesis import given
from hypothesis import strategies as st

from catalog.store.database import Database, migrate
from catalog.store.metadata_store import MetadataStore
from catalog.store.name_journal import (
    FOLDER,
    TOMBSTONE_MS,
    Names,
    compact,
    flush,
    note,
    note_namespace,
    note_namespace_dropped,
    note_purged,
    read_names,
    table_event,
)
from lake.settings import StorageSettings
from lake.storage import AnyStorage

NOW_MS = 1_800_000_000_000
UUIDS = [f"uuid-{number}" for number in range(4)]
PATHS = ["a", "b", UUIDS[0]]


def open_store(folder: Path) -> MetadataStore:
    return MetadataStore(
        AnyStorage(StorageSettings()), f"file://{folder}/warehouse", cache_bytes_max=1_000_000
    )


def open_database(folder: Path) -> Database:
    database = Database(f"sqlite:///{folder}/catalog.db")
    migrate(database)
    return database


def names_in(store: MetadataStore) -> Names:
    return read_names(
        (item.uri, store.read_raw(item.uri)) for item in store.list(f"{store.warehouse}/{FOLDER}")
    )


def files_in(folder: Path) -> list[Path]:
    return sorted((folder / "warehouse" / FOLDER).glob("*.jsonl"))


def fill(database: Database, store: MetadataStore, changes: int) -> None:
    """Many changes of a few names, each flushed for itself."""
    chance = random.Random(3)
    for number in range(changes):
        with database.write() as connection:
            uuid, path = chance.choice(UUIDS), chance.choice(PATHS)
            match chance.randrange(5):
                case 0 | 1:
                    note(connection, [table_event(f"a\x1f{number}", "table", uuid, f"file:///w/{uuid}")])
                case 2:
                    note(
                        connection,
                        [
                            {
                                "event": "dropped",
                                "ident": f"a\x1f{number}",
                                "uuid": uuid,
                                "purge": True,
                                "dropped-ms": number,
                            }
                        ],
                    )
                case 3:
                    note_namespace(connection, path, {"n": str(number)})
                case 4:
                    note_namespace_dropped(connection, path)
        assert flush(database, store, NOW_MS) == 1


def test_compaction_keeps_what_the_journal_says(tmp_path: Path) -> None:
    """Many files become one that says the same, also when it is done again with more; few files are left
    alone."""
    database, store = open_database(tmp_path), open_store(tmp_path)
    for _ in range(2):
        fill(database, store, 40)
        before = names_in(store)
        assert compact(store, NOW_MS, files_max=1_000) == 0
        assert compact(store, NOW_MS, files_max=10) >= 40
        assert len(files_in(tmp_path)) == 1
        assert names_in(store) == before
    assert before.living
    assert before.namespaces


def test_a_crash_between_the_new_file_and_the_end_of_the_old_ones_does_no_harm(tmp_path: Path) -> None:
    """Old files that come back beside the one that took their place change nothing."""
    database, store = open_database(tmp_path), open_store(tmp_path)
    fill(database, store, 30)
    old = {file: file.read_bytes() for file in files_in(tmp_path)}
    before = names_in(store)
    compact(store, NOW_MS, files_max=1)
    for file, content in old.items():
        file.write_bytes(content)
    assert names_in(store) == before


def test_ends_are_forgotten_after_a_day(tmp_path: Path) -> None:
    """A purged table and a dropped namespace leave the journal, but not before every late file that could
    bring them back has come."""
    database, store = open_database(tmp_path), open_store(tmp_path)
    with database.write() as connection:
        note(connection, [table_event("a\x1ft", "table", UUIDS[0], "file:///w/x")])
        note_purged(connection, UUIDS[0])
        note_namespace_dropped(connection, "a")
    flush(database, store, NOW_MS)
    late = files_in(tmp_path)[0].read_bytes().splitlines()[0]
    compact(store, 0, files_max=0)
    (kept,) = files_in(tmp_path)
    ends_ms = [orjson.loads(line)["at-ms"] for line in kept.read_bytes().splitlines()]
    assert len(ends_ms) == 2
    (tmp_path / "warehouse" / FOLDER / "late.jsonl").write_bytes(late)
    assert names_in(store) == Names()
    compact(store, min(ends_ms) + TOMBSTONE_MS - 1, files_max=0)
    assert len(files_in(tmp_path)) == 1
    compact(store, max(ends_ms) + TOMBSTONE_MS, files_max=0)
    assert files_in(tmp_path) == []


def test_a_storage_that_refuses_loses_no_event(tmp_path: Path) -> None:
    """Events stay in the database while the warehouse cannot be written, and go when it can."""
    database, store = open_database(tmp_path), open_store(tmp_path)
    with database.write() as connection:
        note_namespace(connection, "a", {})
    (tmp_path / "warehouse").write_text("in the way")
    assert flush(database, store, NOW_MS) == 0
    (tmp_path / "warehouse").unlink()
    assert flush(database, store, NOW_MS) == 1
    assert names_in(store).namespaces == {"a": {}}


EVENTS = [
    orjson.dumps(
        {
            "at-ms": 5 + number // 3,
            "id": number,
            **table_event(f"a\x1f{number}", "table", UUIDS[number % 2], "x"),
        }
    )
    for number in range(9)
]


@given(st.lists(st.lists(st.sampled_from(EVENTS), min_size=1, max_size=5), max_size=6))
def test_order_and_repetition_of_files_do_not_matter(extra: list[list[bytes]]) -> None:
    """Several processes may write the same events into files of any order: the journal says what happened
    last."""
    files = [("whole", b"\n".join(EVENTS)), *((str(at), b"\n".join(lines)) for at, lines in enumerate(extra))]
    expected = {UUIDS[0]: "a\x1f8", UUIDS[1]: "a\x1f7"}
    for order in (files, files[::-1]):
        assert {uuid: event["ident"] for uuid, event in read_names(order).living.items()} == expected
