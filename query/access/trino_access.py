"""Who may see what in Trino, for people who go there directly: the rules of the API as Trino's own files.

`rules.json` is Trino's file-based access control, `password.db` its password file (Trino's documentation,
"File-based access control" and "Password file authentication"). A tenant's user is called like the tenant's
schema, sees that schema and no other, and may only read. Firn's own tenant (`system`) has no user: the room
asks about it as itself, for administrators. The room's own user asks as the tenant's user
wherever a question is about one tenant; itself it reads every tenant, for keys that do. Nobody may write,
call procedures or table functions, or lend a right to a view: what a view reads, its reader must be allowed
to read.

Trino 476 has no rules for `ALTER TABLE ... EXECUTE`, so its catalog is read-only as well (docs/search.md,
"Trino for analysts").
"""

import hashlib
import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from lake.catalog_client import CatalogClient
from lake.errors import PrerequisiteError, SettingsError
from lake.settings import QuerySettings
from lake.tenant import SYSTEM_TENANT, TenantId
from query.model.table_view import tenants

RULES, PASSWORDS = "rules.json", "password.db"
ITERATIONS = 210_000
SALT_BYTES, HASH_BYTES = 16, 20
NOBODY = "(?!)"  # a pattern that no name matches


@dataclass(frozen=True, slots=True)
class NewUser:
    """A user and the password that is shown this once."""

    name: str
    password: str


def write_access_of(settings: QuerySettings, folder: Path, renew: Sequence[str] = ()) -> list[NewUser]:
    """Writes the files for the tenants of the catalog; see `write_access`."""
    token = settings.catalog.token.get_secret_value() if settings.catalog.token else None
    password = settings.trino.password.get_secret_value() if settings.trino.password else None
    with closing(CatalogClient(settings.catalog.uri, token=token)) as catalog:
        return write_access(
            folder, tenants(catalog), settings.trino.catalog, (settings.trino.user, password), renew
        )


def write_access(
    folder: Path,
    known: Iterable[TenantId],
    catalog: str,
    service: tuple[str, str | None],
    renew: Sequence[str] = (),
) -> list[NewUser]:
    """Writes both files for these tenants; users that were there keep their passwords, but for those in
    `renew`.

    `service`: the room's own user and its password (None: kept, or made). Gives the users whose passwords are
    new. Trino takes the files up by itself within its refresh periods. Raises SettingsError,
    PrerequisiteError.
    """
    name, password = service
    users = _users(known)
    unknown = set(renew) - {name, *users}
    if unknown:
        raise SettingsError(
            f"there is no user {min(unknown)!r} in Trino; users are called like the tenants' schemas"
        )
    if name in users:
        raise SettingsError(
            f"trino.user {name!r} is a tenant's schema as well; choose another name for the room's own user"
        )
    kept = {
        user: line
        for user, line in _read(folder / PASSWORDS).items()
        if user in {name, *users} and user not in renew
    }
    new = [
        NewUser(user, secrets.token_urlsafe(18))
        for user in (name, *users)
        if user not in kept and (user != name or password is None)
    ]
    lines = {**kept, **{user.name: hashed(user.password) for user in new}}
    if password is not None:
        lines[name] = hashed(password)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write(
            folder / PASSWORDS, "".join(f"{user}:{line}\n" for user, line in sorted(lines.items())).encode()
        )
        _write(folder / RULES, orjson.dumps(rules(users, catalog, name), option=orjson.OPT_INDENT_2))
    except OSError as error:
        raise PrerequisiteError(
            f"{folder} cannot be written ({error.strerror}); choose a folder that belongs to you"
        ) from error
    return new


def refresh_rules(folder: Path, known: Iterable[TenantId], catalog: str, service_user: str) -> None:
    """Writes the rules anew, for the tenants there are now; passwords stay as they are. Raises OSError."""
    _write(
        folder / RULES,
        orjson.dumps(
            rules(_users(known), catalog, service_user),
            option=orjson.OPT_INDENT_2,
        ),
    )


def user_of(tenant: TenantId, room: str) -> str:
    """As whom Trino is asked about a tenant. `room`: the room's own user."""
    return room if tenant == SYSTEM_TENANT else tenant.namespace


def _users(known: Iterable[TenantId]) -> list[str]:
    """The users of all tenants that have one, in order."""
    return sorted(tenant.namespace for tenant in known if tenant != SYSTEM_TENANT)


def ruled_users(folder: Path) -> frozenset[str]:
    """The tenants' users that the rules know. Raises OSError."""
    impersonation = orjson.loads((folder / RULES).read_bytes())["impersonation"]
    return frozenset(name for rule in impersonation for name in rule["new_user"].split("|"))


def rules(users: Sequence[str], catalog: str, service_user: str) -> dict[str, Any]:
    """Trino's access control. The first rule that fits decides; where none fits nothing is allowed. Names are
    `[a-z0-9_]`: patterns of themselves."""
    everybody = "|".join(users) or NOBODY
    # Without GRANT_SELECT, which the owner of a view needs: a view that claims to be another user's reads
    # nothing.
    tables: list[Mapping[str, Any]] = [{"user": service_user, "catalog": catalog, "privileges": ["SELECT"]}]
    tables += [{"user": user, "catalog": catalog, "schema": user, "privileges": ["SELECT"]} for user in users]
    tables += [
        {"catalog": "system", "schema": "jdbc", "privileges": ["SELECT"]},
        {"schema": "information_schema", "privileges": ["SELECT"]},
        {"privileges": []},
    ]
    return {
        "catalogs": [
            {"user": f"{service_user}|{everybody}", "catalog": f"{catalog}|system", "allow": "read-only"},
            {"allow": "none"},
        ],
        "schemas": [{"owner": False}],
        "tables": tables,
        "queries": [{"user": service_user, "allow": ["execute", "kill", "view"]}, {"allow": ["execute"]}],
        "impersonation": [{"original_user": service_user, "new_user": everybody, "allow": True}],
        "functions": [{"privileges": []}],
        "procedures": [{"privileges": []}],
        "system_information": [{"user": service_user, "allow": ["read"]}],
    }


def hashed(password: str) -> str:
    """A line of the password file: PBKDF2, with the HMAC that Trino's plugin computes it by, as iterations,
    salt and hash."""
    salt = os.urandom(SALT_BYTES)
    digest = hashlib.pbkdf2_hmac("sha1", password.encode(), salt, ITERATIONS, HASH_BYTES)
    return f"{ITERATIONS}:{salt.hex()}:{digest.hex()}"


def _read(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    return dict(line.split(":", 1) for line in path.read_text().splitlines() if ":" in line)


def _write(path: Path, data: bytes) -> None:
    """Whole or not at all, and for its owner only."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
