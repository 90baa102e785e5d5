"""Secrets: in files of their own, never in a representation, a message, a log or on a command line."""

import os
import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import psutil
import pytest
from pydantic import SecretStr

from catalog.store.database import Database
from infra.local.jvm_parts import REPOSITORY
from lake.errors import SettingsError
from lake.settings import CatalogSettings, IngestSettings, RoomSettings
from lake.settings.group import settings_of, variable
from lake.settings.secret_files import files_of, secret_names
from lake.settings_docs import document, rooms
from tests.query.support.processes import child_environment, run
from tests.stack.support.waiting import wait_for

pytestmark = pytest.mark.finding(27)
SECRET = "correct-horse-battery-staple"
URL = f"postgresql+psycopg://firn:{SECRET}@127.0.0.1:9/firn"
# Of secrets that are of no use alone: what else is set.
BESIDE = {
    "kafka.sasl_password": {
        "kafka.security_protocol": "SASL_SSL",
        "kafka.sasl_mechanism": "PLAIN",
        "kafka.sasl_username": "firn",
    },
    "kafka.oauth_client_secret": {
        "kafka.security_protocol": "SASL_SSL",
        "kafka.sasl_mechanism": "OAUTHBEARER",
        "kafka.oauth_token_endpoint": "https://login.example.org/token",
        "kafka.oauth_client_id": "firn",
    },
    "kafka.ssl_key_password": {
        "kafka.security_protocol": "SSL",
        "kafka.ssl_certificate": "c.pem",
        "kafka.ssl_key": "k.pem",
    },
}
ALL = [(room, name) for room in rooms() for name in secret_names(room)]


@pytest.fixture(autouse=True)
def _no_settings_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRN_CONFIG", "")


def _variable(room: type[RoomSettings], name: str) -> str:
    return variable(str(room.model_config["env_prefix"]), name)


def _written(room: type[RoomSettings], name: str) -> str:
    """What a file holds: the secret, or a list or table of it as JSON."""
    kind = str(dict(settings_of(room))[name].annotation)
    return (
        f'["{SECRET}"]'
        if kind.startswith("tuple")
        else f'{{"ssl.keystore.password": "{SECRET}"}}'
        if kind.startswith("dict")
        else f"\n  {SECRET}\n"
    )


def _secret(value: SecretStr | Sequence[SecretStr] | Mapping[str, SecretStr]) -> str:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    (one,) = value.values() if isinstance(value, Mapping) else value
    return one.get_secret_value()


def _of(settings: RoomSettings, name: str) -> Any:
    """A setting of a room, or `group.name` of a group."""
    return attrgetter(name)(settings)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text(f"\n  {SECRET}\n")
    return path


@pytest.mark.parametrize(("room", "name"), ALL, ids=lambda part: part if isinstance(part, str) else part.room)
def test_every_secret_may_stand_in_a_file(
    room: type[RoomSettings], name: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By variable, by the section of the settings file, and by argument; the page of settings has a row for
    each."""
    file.write_text(_written(room, name))
    for beside, value in BESIDE.get(name, {}).items():
        monkeypatch.setenv(_variable(room, beside), value)
    assert _secret(_of(room.load(**{f"{name}_file".replace(".", "__"): str(file)}), name)) == SECRET
    toml = file.with_name("firn.toml")
    toml.write_text(f'[{room.room}]\n{name}_file = "{file}"\n')
    monkeypatch.setenv("FIRN_CONFIG", str(toml))
    assert _secret(_of(room.load(), name)) == SECRET
    monkeypatch.setenv("FIRN_CONFIG", "")
    monkeypatch.setenv(_variable(room, f"{name}_file"), str(file))
    loaded = room.load()
    assert _secret(_of(loaded, name)) == SECRET
    assert SECRET not in f"{loaded!r} {loaded} {loaded.model_dump()} {loaded.model_dump_json()}"
    assert f"`{_variable(room, f'{name}_file')}`" in document()


def test_there_are_secrets_to_try() -> None:
    """The list above is not empty, and holds the address of the database."""
    assert len(ALL) >= 9
    assert (CatalogSettings, "database_url") in ALL


@pytest.mark.parametrize(("room", "name"), [each for each in ALL if each[0] is not CatalogSettings], ids=str)
def test_a_secret_is_read_from_its_file_again(
    room: type[RoomSettings], name: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One text is what its file holds now, or held last where there is none; a list or a table stays.
    In another process it is what it was when it was sent there."""
    file.write_text(_written(room, name))
    for beside, value in {**BESIDE.get(name, {}), f"{name}_file": str(file)}.items():
        monkeypatch.setenv(_variable(room, beside), value)
    loaded = room.load()
    is_text = isinstance(_of(loaded, name), SecretStr)
    assert files_of(loaded) == ([str(file)] if is_text else [])
    file.write_text(_written(room, name).replace(SECRET, "rotated-and-long-enough"))
    now = "rotated-and-long-enough" if is_text else SECRET
    assert _secret(_of(loaded, name)) == now
    sent = pickle.loads(pickle.dumps(loaded))
    for content in (b"", b"\xff", None):
        file.unlink() if content is None else file.write_bytes(content)
        assert _secret(_of(loaded, name)) == now
    file.write_text("third")
    assert _secret(_of(loaded, name)) == ("third" if is_text else SECRET)
    assert _secret(_of(sent, name)) == now
    assert "third" not in f"{loaded!r} {loaded} {loaded.model_dump()} {loaded.model_dump_json()}"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b" \n", "is empty"),
        (b"x" * 70_000, "is larger"),
        (b"\xff\xfe", "holds no text"),
        (None, "cannot be read"),
    ],
    ids=["empty", "large", "binary", "absent"],
)
def test_a_file_that_is_no_secret_is_told(
    tmp_path: Path, content: bytes | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sentence that names the setting and the file, and nothing of what the file holds."""
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setenv("FIRN_INGEST_HTTP__TOKEN_FILE", str(path))
    with pytest.raises(SettingsError, match=rf"http\.token_file: .*{said}") as caught:
        IngestSettings.load()
    assert str(path) in str(caught.value)
    assert "xxx" not in str(caught.value)


def test_a_secret_and_its_file_are_an_error(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has to guess which of the two counts; the message repeats neither."""
    monkeypatch.setenv("FIRN_INGEST_HTTP__TOKEN", SECRET)
    monkeypatch.setenv("FIRN_INGEST_HTTP__TOKEN_FILE", str(file))
    with pytest.raises(SettingsError, match=r"http\.token and http\.token_file are both given") as caught:
        IngestSettings.load()
    assert SECRET not in f"{caught.value} {caught.value.__cause__}"


def test_a_wrong_value_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error about a setting, and the one that caused it, do not show what was given beside it."""
    monkeypatch.setenv("FIRN_INGEST_HTTP__TOKEN", SECRET)
    with pytest.raises(SettingsError) as caught:
        IngestSettings.load(node__port=-1, http__token=[SECRET])
    assert SECRET not in f"{caught.value} {caught.value.__cause__!r} {caught.value.__cause__}"


def test_the_password_of_the_database_is_shown_nowhere() -> None:
    """Neither by the settings, nor by the database's own objects, nor in what is said about an address that
    cannot be understood."""
    settings = CatalogSettings(database_url=SecretStr(URL))
    database = Database(settings.database_url.get_secret_value())
    assert SECRET not in f"{settings!r} {database.engine!r} {database.engine.url}"
    database.close()
    for wrong in (URL.replace(":9/", ":no-port/"), f"no url {SECRET}", f"mysql://x:{SECRET}@h/d"):
        with pytest.raises(SettingsError) as caught:
            Database(wrong)
        assert SECRET not in f"{caught.value} {caught.value.__cause__}"


@pytest.mark.long
def test_the_catalog_needs_no_address_on_its_command_line(tmp_path: Path) -> None:
    """`python -m catalog` finds its database by a file; one that does not answer is told without its
    password."""
    path = tmp_path / "url"
    path.write_text(f"sqlite:///{tmp_path}/catalog.db\n")
    made = run("catalog", {"FIRN_CATALOG_DATABASE_URL_FILE": str(path)}, "key", "create", "--scope", "admin")
    assert made.returncode == 0, made.stderr
    assert (tmp_path / "catalog.db").exists()
    path.write_text(URL)
    refused = run("catalog", {"FIRN_CATALOG_DATABASE_URL_FILE": str(path)}, "key", "list")
    assert refused.returncode == 2
    assert SECRET not in refused.stdout + refused.stderr


@pytest.mark.long
def test_a_password_on_a_command_line_is_warned_of() -> None:
    """Whoever gives it nevertheless is told where it belongs, without its being repeated."""
    done = run("catalog", {}, "key", "list", "--database-url", URL)
    assert "FIRN_CATALOG_DATABASE_URL_FILE" in done.stdout + done.stderr
    assert SECRET not in done.stdout + done.stderr


def test_a_secret_on_a_command_line_would_be_seen() -> None:
    """The look at command lines itself: a process that carries one is found."""
    command = [sys.executable, "-c", "input()", SECRET]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, cwd=REPOSITORY, env=child_environment({})
    ) as process:
        shown = psutil.Process(process.pid)
        wait_for(lambda: SECRET in " ".join(shown.cmdline()), 60.0, "the command line of a new process")
        assert (
            SECRET
            in subprocess.run(
                ["ps", "-ww", "-o", "args=", "-p", str(process.pid)],
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
        process.communicate(os.linesep.encode())
