"""Trino with users: what `python -m query trino-access` writes; tests/security tries it against a Trino."""

from pathlib import Path

import pytest

from lake.errors import SettingsError
from lake.tenant import SYSTEM_TENANT, TableId, TenantId
from query.access.trino_access import PASSWORDS, RULES, refresh_rules, user_of, write_access
from query.sql.sql_access import asks_as
from query.sql.sql_guard import Statement


@pytest.mark.long
def test_users_keep_their_passwords_until_they_are_renewed(tmp_path: Path) -> None:
    """A second run adds the new tenant's user, removes the one that is gone, and says no password twice."""
    first = write_access(tmp_path, [TenantId("acme"), TenantId("Acme")], "lake", ("firn", None))
    assert [user.name for user in first] == ["firn", "_41cme", "acme"]
    second = write_access(tmp_path, [TenantId("acme"), TenantId("globex")], "lake", ("firn", None), ["acme"])
    assert [user.name for user in second] == ["acme", "globex"]
    lines = dict(line.split(":", 1) for line in (tmp_path / PASSWORDS).read_text().splitlines())
    assert set(lines) == {"firn", "acme", "globex"}
    assert not any(
        user.password in text
        for user in (*first, *second)
        for text in ((tmp_path / PASSWORDS).read_text(), (tmp_path / RULES).read_text())
    )
    assert (tmp_path / PASSWORDS).stat().st_mode & 0o077 == 0
    with pytest.raises(SettingsError, match="no user 'nobody'"):
        write_access(tmp_path, [], "lake", ("firn", None), ["nobody"])


def test_who_did_what_has_no_user(tmp_path: Path) -> None:
    """Nobody can be Firn's own tenant in Trino: the room asks about it as itself, for administrators."""
    new = write_access(tmp_path, [TenantId("acme"), SYSTEM_TENANT], "lake", ("firn", None))
    assert [user.name for user in new] == ["firn", "acme"]
    refresh_rules(tmp_path, [TenantId("acme"), SYSTEM_TENANT], "lake", "firn")
    assert SYSTEM_TENANT.namespace not in (tmp_path / RULES).read_text()
    with pytest.raises(SettingsError, match="no user '_73ystem'"):
        write_access(tmp_path, [SYSTEM_TENANT], "lake", ("firn", None), [SYSTEM_TENANT.namespace])
    both = Statement("", frozenset({TableId(SYSTEM_TENANT, "audit"), TableId(TenantId("acme"), "logs")}))
    alone = Statement("", frozenset({TableId(SYSTEM_TENANT, "audit")}))
    assert [asks_as(each, None, (), "firn") for each in (both, alone)] == ["firn", "firn"]
    assert user_of(TenantId("acme"), "firn") == "acme"
