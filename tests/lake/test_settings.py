"""Settings: where they come from, and what is said about wrong ones."""

from pathlib import Path
from typing import Any

import pytest

from lake.errors import SettingsError
from lake.settings import (
    CatalogSettings,
    InfraSettings,
    IngestSettings,
    OptimizeSettings,
    QuerySettings,
    RoomSettings,
    StorageSettings,
    TlsSettings,
    TopicSettings,
)

ROOMS: list[type[RoomSettings]] = [
    StorageSettings,
    TlsSettings,
    CatalogSettings,
    IngestSettings,
    OptimizeSettings,
    QuerySettings,
    InfraSettings,
]


@pytest.fixture(autouse=True)
def toml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An own settings file, empty at first."""
    path = tmp_path / "firn.toml"
    path.touch()
    monkeypatch.setenv("FIRN_CONFIG", str(path))
    for name in ("FIRN_INGEST_KAFKA__GROUP", "FIRN_INGEST_TOPICS", "FIRN_INGEST_NODE__PORT"):
        monkeypatch.delenv(name, raising=False)
    return path


def test_every_room_has_its_settings() -> None:
    """No class of settings is left out of these tests."""
    assert set(RoomSettings.__subclasses__()) == set(ROOMS)


@pytest.mark.parametrize("settings", [*ROOMS, TopicSettings], ids=lambda s: s.__name__)
def test_every_setting_has_a_description(settings: type[RoomSettings | TopicSettings]) -> None:
    """One row per setting, with help that a person can read."""
    for name, field in settings.model_fields.items():
        assert field.description, f"{settings.__name__}.{name}"
        assert len(field.description) > 5


@pytest.mark.parametrize("settings", ROOMS, ids=lambda s: s.__name__)
def test_settings_stand_on_their_defaults(settings: type[RoomSettings]) -> None:
    """Without file and environment every room loads."""
    assert settings.load() is not None


def test_environment_goes_before_file_and_file_before_default(
    toml: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Default, file, environment, flag: the later the stronger; a flag that is not given does not count."""
    assert IngestSettings.load().kafka.group == "firn"
    toml.write_text('[ingest]\ngroup = "of-file"\nport = 1000\n[catalog]\nport = 2000\n')
    assert IngestSettings.load().kafka.group == "of-file"
    monkeypatch.setenv("FIRN_INGEST_KAFKA__GROUP", "of-environment")
    loaded = IngestSettings.load(node__port=None)
    assert (loaded.group, loaded.port) == ("of-environment", 1000)
    assert IngestSettings.load(kafka__group="of-flag").group == "of-flag"


def test_topics_come_from_file_and_from_environment_alike(
    toml: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list of tables in TOML, or the same as JSON in the environment."""
    toml.write_text(
        '[[ingest.topics]]\nname = "a"\nformat = "text"\ntenant = ["key"]\n[[ingest.topics]]\nname = "b"\n'
    )
    first, second = IngestSettings.load().topics
    assert (first.name, first.format, first.tenant) == ("a", "text", ("key",))
    assert second.tenant == ("header:tenant", "field:tenant")
    monkeypatch.setenv("FIRN_INGEST_TOPICS", '[{"name":"c"}]')
    assert [topic.name for topic in IngestSettings.load().topics] == ["c"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[ingest]\nport = 70000\n", "port"),
        ("[ingest]\nflush_interval_s = 0\n", "flush_interval_s"),
        ('[ingest]\nlate_limit = "never"\n', "late_limit"),
        ("[ingest]\nflush_interval_s = inf\n", "flush_interval_s"),
        ("[ingest]\nlate_limit = nan\n", "late_limit"),
        ("[ingest]\nlate_limit = -1\n", "late_limit"),
        ('[[ingest.topics]]\nname = "a"\nformat = "xml"\n', "topics.0.format"),
        ('[[ingest.topics]]\nnome = "a"\n', "topics.0.name"),
    ],
)
def test_wrong_value_names_the_setting_and_where_to_set_it(toml: Path, text: str, said: str) -> None:
    """One sentence: which setting, what is wrong, the variable, the section and the file."""
    toml.write_text(text)
    with pytest.raises(SettingsError) as raised:
        IngestSettings.load()
    for part in (said, "FIRN_INGEST_", "[ingest]", str(toml)):
        assert part in str(raised.value)


@pytest.mark.parametrize("settings", ROOMS, ids=lambda s: s.__name__)
def test_no_room_takes_seconds_without_end(settings: type[RoomSettings]) -> None:
    """TOML knows inf and nan; nothing can wait so long."""
    for name in (name for name, field in settings.model_fields.items() if field.annotation is float):
        for value in ("inf", "nan"):
            with pytest.raises(SettingsError, match=name):
                settings.load(**{name: value})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[ingest]\nflush_intervall_s = 5\n",
            "there is no setting flush_intervall_s, perhaps `flush_interval_s` is meant",
        ),
        ("[ingest]\nentirely = 5\n", "there is no setting entirely"),
        (
            '[[ingest.topics]]\nname = "a"\nfromat = "text"\n',
            "there is no setting topics.0.fromat, perhaps `format` is meant",
        ),
    ],
)
def test_unknown_setting_is_told_and_where_to_look(toml: Path, text: str, said: str) -> None:
    """Nobody is advised to set what does not exist."""
    toml.write_text(text)
    with pytest.raises(SettingsError) as raised:
        IngestSettings.load()
    assert str(raised.value) == f"settings of ingest: {said}. docs/settings.md has all settings"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"topics": [{"name": ""}]}, "topics: one of them has an empty name"),
        ({"topics": [{"name": "a"}, {"name": "b"}, {"name": "a"}]}, "topics: a stands there more than once"),
        ({"topics": [{"name": "firn.dead-letters"}]}, "topics: firn.dead-letters is the dead_letter_topic"),
        ({"topics": [{"name": "p"}], "parked_topic": "p"}, "topics: p is the parked_topic"),
        ({"parked_topic": "firn.replay"}, "name one topic twice"),
        ({"dead_letter_topic": "firn.parked"}, "name one topic twice"),
    ],
)
def test_topics_that_get_in_each_others_way_are_told(settings: dict[str, Any], said: str) -> None:
    """Firn never reads what it writes itself, but for the replays. The sentence begins with what is wrong."""
    with pytest.raises(SettingsError) as raised:
        IngestSettings.load(**settings)
    message = str(raised.value)
    assert message.startswith("settings of ingest: ")
    assert said in message
    assert "Value error" not in message
    assert ": :" not in message


def test_the_replay_topic_may_stand_among_the_input_topics() -> None:
    """Firn adds it itself."""
    assert [
        topic.name for topic in IngestSettings.load(topics=[{"name": "a"}, {"name": "firn.replay"}]).topics
    ] == ["a", "firn.replay"]


def test_wrong_value_in_the_environment_is_told_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same sentence for a variable."""
    monkeypatch.setenv("FIRN_INGEST_NODE__PORT", "many")
    with pytest.raises(SettingsError, match="port"):
        IngestSettings.load()


@pytest.mark.parametrize("value", ["[{", '"a"', '[{"name":5}]'])
def test_topics_that_are_no_json_list_are_told_as_well(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """Broken JSON in a variable names the setting too."""
    monkeypatch.setenv("FIRN_INGEST_TOPICS", value)
    with pytest.raises(SettingsError, match="topics"):
        IngestSettings.load()


def test_file_that_is_no_toml_is_named(toml: Path) -> None:
    """A broken file is one error with its name, not a trace."""
    toml.write_text("[ingest\n")
    with pytest.raises(SettingsError, match="not valid TOML"):
        IngestSettings.load()


@pytest.mark.parametrize("text", ["ingest = 3\n", "[[ingest]]\nport = 1\n"])
def test_section_that_is_no_table_is_told(toml: Path, text: str) -> None:
    """With the line that begins one."""
    toml.write_text(text)
    with pytest.raises(
        SettingsError, match=r"`ingest` is no table; write its settings below a line \[ingest\]"
    ):
        IngestSettings.load()


@pytest.mark.parametrize("text", ["[ingst]\nport = 1\n", "port = 1\n[ingest]\n"])
def test_section_of_no_room_is_told(toml: Path, text: str) -> None:
    """A slip in its name would else leave all of it unread; the sentence lists the rooms."""
    toml.write_text(text)
    with pytest.raises(
        SettingsError,
        match=r"belongs to no room; its sections are \[storage\], \[tls\], \[catalog\], \[ingest\]",
    ):
        CatalogSettings.load()


def test_file_that_the_variable_names_has_to_be_readable(
    toml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Absent or a folder: the sentence names the variable and the path. Empty means no file, not even the one
    in the working directory."""
    for path in (tmp_path / "absent.toml", tmp_path):
        monkeypatch.setenv("FIRN_CONFIG", str(path))
        with pytest.raises(SettingsError) as raised:
            IngestSettings.load()
        assert str(path) in str(raised.value)
        assert "FIRN_CONFIG" in str(raised.value)
    toml.write_text('[ingest]\ngroup = "of-file"\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FIRN_CONFIG", "")
    assert IngestSettings.load().kafka.group == "firn"
    with pytest.raises(SettingsError, match=r"Set it as FIRN_INGEST_<NAME> or by its flag"):
        IngestSettings.load(node__port=-1)


def test_file_of_the_working_directory_need_not_exist(
    toml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the variable is not set, there may be one or not."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FIRN_CONFIG")
    toml.write_text('[ingest]\ngroup = "of-file"\n')
    assert IngestSettings.load().kafka.group == "of-file"
    toml.unlink()
    assert IngestSettings.load().kafka.group == "firn"


def test_secrets_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys do not appear where settings are printed."""
    monkeypatch.setenv("FIRN_STORAGE_S3__SECRET_ACCESS_KEY", "hush-hush")
    monkeypatch.setenv("FIRN_INGEST_CATALOG__TOKEN", "hush-hush")
    assert "hush" not in repr(StorageSettings.load()) + repr(IngestSettings.load())
