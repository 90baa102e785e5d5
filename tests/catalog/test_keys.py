"""Keys in the database: two secrets while a rotation overlaps, when they were last used, how they are
listed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from sqlalchemy import event
from typer.testing import CliRunner

from catalog.access import key_lifetime
from catalog.access.access import find_by_bearer, issue_token
from catalog.access.key_lifetime import State, end_of, expires_within, overlap_of, state_of, unused_for
from catalog.access.key_uses import PRECISION_MS, KeyUses
from catalog.access.keys import Narrowing, create_key, list_keys, note_uses, revoke_key, rotate_key
from catalog.access.verbs import Scope, Verb
from catalog.key_commands import cli
from catalog.model.error_response import CatalogError
from catalog.store.database import Database, migrate

NOW_MS = 1_790_000_000_000
HOUR_MS, DAY_MS = 3_600_000, 86_400_000


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """An empty one of this version."""
    made = Database(f"sqlite:///{tmp_path}/catalog.db")
    migrate(made)
    yield made
    made.close()


def one(database: Database) -> dict[str, Any]:
    """The one key there is, as it is listed."""
    with database.read() as connection:
        (found,) = list_keys(connection)
    return found


def test_both_secrets_are_the_key_until_the_overlap_ends(database: Database) -> None:
    """The same id, bounds and verbs; then the former one is told that it has ended, and whoever has a wrong
    one is told nothing."""
    narrowing = Narrowing(("acme", "other"), ("web*",), frozenset({Verb.READ}))
    with database.write() as connection:
        first = create_key(connection, Scope.WRITE, None, "n", NOW_MS, NOW_MS + DAY_MS, narrowing=narrowing)
        key_id = first.split("_")[1]
        second = rotate_key(connection, key_id, NOW_MS, HOUR_MS)
        old, new = (find_by_bearer(connection, key, NOW_MS) for key in (first, second))
        wrong = find_by_bearer(connection, f"firn_{key_id}_{'x' * 43}", NOW_MS)
    assert first.split("_")[1] == second.split("_")[1]
    assert (first != second, wrong) == (True, None)
    assert old is not None
    assert new is not None
    for found in (old, new):
        assert (found.key_id, found.namespaces, found.streams) == (key_id, ("acme", "other"), ("web*",))
        assert (found.scope, found.verbs) == (Scope.WRITE, frozenset({Verb.READ}))
    assert [each.has_expired(NOW_MS + HOUR_MS - 1) for each in (old, new)] == [False, False]
    assert [each.has_expired(NOW_MS + HOUR_MS) for each in (old, new)] == [True, False]
    assert "the former secret of key" in key_lifetime.expired(old)
    assert "expired on 2026-09-21" in key_lifetime.expired(old)
    assert one(database)["former-secret-until-ms"] == NOW_MS + HOUR_MS
    assert new.has_expired(NOW_MS + DAY_MS)
    assert key_lifetime.expired(new).startswith(f"key {key_id} expired on")


def test_a_token_ends_with_the_secret_that_bought_it(database: Database) -> None:
    """Also one that was bought before the rotation, and one that was exchanged for such a token, for ever."""
    with database.write() as connection:
        first = create_key(connection, Scope.WRITE, None, "", NOW_MS)

        def holder(bearer: str) -> Any:
            return find_by_bearer(connection, bearer, NOW_MS)

        before = issue_token(connection, holder(first), NOW_MS)
        second = rotate_key(connection, first.split("_")[1], NOW_MS, HOUR_MS // 2)
        after = issue_token(connection, holder(first), NOW_MS)
        exchanged = issue_token(connection, holder(after), NOW_MS)
        of_new = issue_token(connection, holder(second), NOW_MS)
        ends = [holder(each).expires_ms for each in (before, after, exchanged, of_new)]
        third = rotate_key(connection, first.split("_")[1], NOW_MS, HOUR_MS)
        left = [holder(each) for each in (first, before, after, exchanged)]
        assert (holder(of_new).expires_ms, holder(third).expires_ms) == (NOW_MS + HOUR_MS, None)
        revoke_key(connection, first.split("_")[1], NOW_MS)
        assert [holder(each) for each in (second, third, of_new)] == [None, None, None]
    assert ends == [NOW_MS + HOUR_MS // 2] * 3 + [None]
    assert left == [None] * 4


def test_what_is_not_in_force_is_not_rotated(database: Database) -> None:
    """Nor one that there never was: each could only be one that somebody has made up, or that has ended."""
    with database.write() as connection:
        ended = create_key(connection, Scope.READ, None, "", NOW_MS, NOW_MS + 1).split("_")[1]
        revoked = create_key(connection, Scope.READ, None, "", NOW_MS).split("_")[1]
        kept = create_key(connection, Scope.READ, None, "", NOW_MS, NOW_MS + DAY_MS).split("_")[1]
        revoke_key(connection, revoked, NOW_MS)
        for key_id in (ended, revoked, "none"):
            with pytest.raises(CatalogError, match="in force"):
                rotate_key(connection, key_id, NOW_MS + 1, 0)
        rotate_key(connection, kept, NOW_MS, 0)
        ends = [{each["id"]: each for each in list_keys(connection)}[kept]["expires-ms"]]
        rotate_key(connection, kept, NOW_MS, 0, (NOW_MS + 9,))
        rotate_key(connection, kept, NOW_MS, 0, (None,))
        ends.append({each["id"]: each for each in list_keys(connection)}[kept]["expires-ms"])
    assert ends == [NOW_MS + DAY_MS, None]


def test_uses_are_written_together_and_seldom(database: Database) -> None:
    """A thousand requests of two keys are one statement; what could not be written is written later, and no
    older use takes the place of a newer one."""
    with database.write() as connection:
        ids = [create_key(connection, Scope.READ, None, "", NOW_MS).split("_")[1] for _ in range(2)]
    uses, statements = KeyUses(), list[str]()
    event.listen(database.engine, "before_cursor_execute", lambda *args: statements.append(args[2]))

    def write(taken: list[tuple[str, int]]) -> None:
        with database.write() as connection:
            note_uses(connection, database, taken)

    for at in range(500):
        for key_id in ids:
            uses.note(key_id, NOW_MS + at)
    write(uses.take())
    assert [each for each in statements if "UPDATE" in each] == statements[-1:]
    assert uses.take() == []
    uses.note(ids[0], NOW_MS + PRECISION_MS - 1)
    assert uses.take() == []
    uses.note(ids[0], NOW_MS + PRECISION_MS)
    lost = uses.take()
    uses.note(ids[0], NOW_MS + 2 * PRECISION_MS)
    uses.put_back(lost)
    write(uses.take())
    write([(ids[0], NOW_MS), ("none", NOW_MS)])
    with database.read() as connection:
        used = {key["id"]: key["last-used-ms"] for key in list_keys(connection)}
    assert used == {ids[0]: NOW_MS + 2 * PRECISION_MS, ids[1]: NOW_MS}


def test_how_keys_stand(database: Database) -> None:
    """In force, with two secrets, expired, revoked; unused and expiring ones are among those in force."""

    def listed(**fields: Any) -> dict[str, Any]:
        plain = {"created-ms": NOW_MS, "revoked-ms": None, "expires-ms": None, "last-used-ms": None}
        return {**plain, "former-secret-until-ms": None, **fields}

    later = NOW_MS + 10 * DAY_MS
    soon, used = {"expires-ms": later + DAY_MS}, {"last-used-ms": later - HOUR_MS}
    for fields, state, unused, expiring in (
        ({}, State.IN_FORCE, True, False),
        (used, State.IN_FORCE, False, False),
        (soon, State.IN_FORCE, True, True),
        ({"former-secret-until-ms": later + 1}, State.OVERLAP, True, False),
        ({"former-secret-until-ms": later}, State.IN_FORCE, True, False),
        ({"expires-ms": later}, State.EXPIRED, False, False),
        ({**soon, "revoked-ms": NOW_MS}, State.REVOKED, False, False),
    ):
        key = listed(**fields)
        assert state_of(key, later) is state, fields
        assert unused_for(key, later, 10 * DAY_MS) is unused, fields
        assert expires_within(key, later, DAY_MS) is expiring, fields


def test_when_a_key_or_a_secret_ends() -> None:
    """A time from now, an instant to come, and nothing else."""
    day = NOW_MS // DAY_MS * DAY_MS
    assert key_lifetime.day(day) == "2026-09-21 00:00 UTC"
    for text, end_ms in (
        ("2026-09-22", day + DAY_MS),
        ("2026-09-22T12:00Z", day + DAY_MS + DAY_MS // 2),
        ("2026-09-22 12:00:00+02:00", day + DAY_MS + 10 * HOUR_MS),
    ):
        assert end_of(text, NOW_MS, default_s=0) == end_ms
    for wrong in ("2026-09-20", "2026-13-01", "20270101", "2026-W50-1", "9999-01-01", "2026-09-22T"):
        with pytest.raises(CatalogError, match="2027-01-31"):
            end_of(wrong, NOW_MS, default_s=0)
    assert [overlap_of(each) for each in ("0", "24h", "30d")] == [0, DAY_MS, 30 * DAY_MS]
    for wrong in ("", "31d", "never", "-1h", "1"):
        with pytest.raises(CatalogError, match="24h"):
            overlap_of(wrong)


def test_the_commands(tmp_path: Path) -> None:
    """Made, listed as a table and as JSON, filtered, rotated, revoked; a secret is shown once, and bounds are
    told."""
    url = f"sqlite:///{tmp_path}/catalog.db"

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(cli, [*arguments, "--database-url", url])
        assert done.exit_code == 0, done.output
        return done.stdout

    bounds = ("--namespace", "acme", "--namespace", "b.c", "--stream", "web*", "--verb", "read")
    made = run("create", "--scope", "write", *bounds, "--note", "ann\u202e", "--expires", "10d").splitlines()[
        0
    ]
    key_id, secret = made.split("_", 2)[1:]
    other = run("create", "--scope", "admin").split("_")[1]
    table = run("list").splitlines()
    assert [line.split()[0] for line in table] == ["ID", key_id, other]
    assert all(text in table[1] for text in ("acme, b.c", "web*", "read", "never", "in force"))
    assert "\u202e" not in table[1]  # it would turn the rest of the line round
    listed = [orjson.loads(line) for line in run("list", "--json", "--expiring-within", "11d").splitlines()]
    assert [(key["id"], key["namespaces"], key["state"]) for key in listed if "id" in key] == [
        (key_id, [["acme"], ["b", "c"]], "in force")
    ]
    assert other not in run("list", "--unused-for", "1d")
    rotated = run("rotate", key_id, "--overlap", "12h").splitlines()[0]
    assert (rotated.split("_")[1], rotated == made) == (key_id, False)
    assert "in force with two secrets, the former until" in run("list")
    run("revoke", key_id)
    assert "revoked" in run("list")
    assert secret not in run("list", "--json")
