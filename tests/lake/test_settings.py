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
from lake.settings.group import groups_of, settings_of, variable
from lake.settings.renamed import RENAMED
from lake.settings.room import ROOMS as SECTIONS
from lake.settings.secret_files import secret_names

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
    assert [room.room for room in ROOMS] == list(SECTIONS)


@pytest.mark.parametrize("settings", [*ROOMS, TopicSettings], ids=lambda s: s.__name__)
def test_every_setting_has_a_description(settings: type[RoomSettings | TopicSettings]) -> None:
    """One row per setting, with help that a person can read."""
    for name, field in settings_of(settings):
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
    toml.write_text('[ingest]\nnode.port = 1000\nkafka.group = "of-file"\n[catalog.http]\nport = 2000\n')
    assert IngestSettings.load().kafka.group == "of-file"
    monkeypatch.setenv("FIRN_INGEST_KAFKA__GROUP", "of-environment")
    loaded = IngestSettings.load(node__port=None)
    assert (loaded.kafka.group, loaded.node.port) == ("of-environment", 1000)
    assert IngestSettings.load(kafka__group="of-flag").kafka.group == "of-flag"


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
        ("[ingest.node]\nport = 70000\n", "node.port"),
        ("[ingest.flush]\ninterval_s = 0\n", "flush.interval_s"),
        ('[ingest.limits]\nlate = "never"\n', "limits.late"),
        ("[ingest.flush]\ninterval_s = inf\n", "flush.interval_s"),
        ("[ingest.limits]\nlate = nan\n", "limits.late"),
        ("[ingest]\nlimits.late = -1\n", "limits.late"),
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
    for name in (name for name, field in settings_of(settings) if field.annotation is float):
        for value in ("inf", "nan"):
            with pytest.raises(SettingsError, match=name):
                settings.load(**{name.replace(".", "__"): value})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[ingest]\nflush_intervall_s = 5\n",
            "there is no setting flush_intervall_s, perhaps `flush.interval_s` is meant",
        ),
        (
            "[ingest.flush]\nintervall_s = 5\n",
            "there is no setting flush.intervall_s, perhaps `flush.interval_s` is meant",
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


FLAT = [(room, old, now) for room in ROOMS for old, now in RENAMED.get(room.room, {}).items()]


def test_every_flat_name_leads_to_a_setting_that_exists() -> None:
    """And is none itself any more: it could not be told from the new one."""
    for room, old, now in FLAT:
        known = dict(settings_of(room))
        assert now in known, (room.room, old)
        assert old not in known.keys() | groups_of(room).keys(), (room.room, old)


@pytest.mark.parametrize("place", ["file", "variable"])
@pytest.mark.parametrize(("room", "old", "now"), FLAT, ids=lambda part: getattr(part, "room", part))
def test_a_flat_name_is_refused_with_the_name_it_has_now(
    room: type[RoomSettings], old: str, now: str, place: str, toml: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the file and in the environment, and the file of a secret as well."""
    prefix = str(room.model_config["env_prefix"])
    for suffix in ("", "_file") if now in secret_names(room) else ("",):
        if place == "file":
            toml.write_text(f'[{room.room}]\n{old}{suffix} = "x"\n')
        else:
            monkeypatch.setenv(variable(prefix, old + suffix), "x")
        with pytest.raises(SettingsError) as raised:
            room.load()
        assert (
            f"{room.room}.{old}{suffix} is now {room.room}.{now}{suffix}, "
            f"{variable(prefix, now + suffix)} in the environment"
        ) in str(raised.value)


def test_a_table_under_a_flat_name_is_refused_too(toml: Path) -> None:
    """As `[ingest.spark_options]` was."""
    toml.write_text('[ingest.spark_options]\n"spark.executor.cores" = "2"\n')
    with pytest.raises(SettingsError, match=r"ingest\.spark_options is now ingest\.spark\.options"):
        IngestSettings.load()


def test_a_variable_of_a_group_that_names_no_setting_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slip behind the group's name would else be passed over."""
    monkeypatch.setenv("FIRN_INGEST_FLUSH__INTERVALL_S", "5")
    with pytest.raises(SettingsError, match=r"no setting flush\.intervall_s, perhaps `flush\.interval_s`"):
        IngestSettings.load()


def test_a_group_comes_from_several_places(toml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One setting of it in the environment leaves the others as the file has them."""
    toml.write_text("[ingest.flush]\ninterval_s = 5\nbytes = 7\nhours_max = 9\n")
    monkeypatch.setenv("FIRN_INGEST_FLUSH__BYTES", "8")
    flush = IngestSettings.load(flush__hours_max=10).flush
    assert (flush.interval_s, flush.bytes, flush.hours_max, flush.file_bytes) == (5, 8, 10, 128 * 2**20)


def test_a_group_that_is_no_table_is_told(toml: Path) -> None:
    """With the line that begins one."""
    toml.write_text("[ingest]\nflush = 5\n")
    with pytest.raises(SettingsError, match=r"flush: .* below a line \[ingest\.flush\]"):
        IngestSettings.load()


def test_changed_settings_keep_the_rest() -> None:
    """Of the group as well, and the settings that were changed stay as they were."""
    before = IngestSettings.load(flush__interval_s=5, flush__bytes=7)
    after = before.changed(flush__interval_s=6, workers=2)
    assert (after.flush.interval_s, after.flush.bytes, after.workers) == (6, 7, 2)
    assert (before.flush.interval_s, before.workers) == (5, 1)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"topics": [{"name": ""}]}, "topics: one of them has an empty name"),
        ({"topics": [{"name": "a"}, {"name": "b"}, {"name": "a"}]}, "topics: a stands there more than once"),
        (
            {"topics": [{"name": "firn.dead-letters"}]},
            "topics: firn.dead-letters is the internal_topics.dead_letters",
        ),
        (
            {"topics": [{"name": "p"}], "internal_topics": {"parked": "p"}},
            "topics: p is the internal_topics.parked",
        ),
        ({"internal_topics__parked": "firn.replay"}, "name one topic twice"),
        ({"internal_topics__dead_letters": "firn.parked"}, "name one topic twice"),
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
    toml.write_text('[ingest.kafka]\ngroup = "of-file"\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FIRN_CONFIG", "")
    assert IngestSettings.load().kafka.group == "firn"
    with pytest.raises(SettingsError, match=r"Set it as FIRN_INGEST_NODE__PORT or by its flag"):
        IngestSettings.load(node__port=-1)


def test_file_of_the_working_directory_need_not_exist(
    toml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the variable is not set, there may be one or not."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FIRN_CONFIG")
    toml.write_text('[ingest.kafka]\ngroup = "of-file"\n')
    assert IngestSettings.load().kafka.group == "of-file"
    toml.unlink()
    assert IngestSettings.load().kafka.group == "firn"


def test_secrets_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys do not appear where settings are printed."""
    monkeypatch.setenv("FIRN_STORAGE_S3__SECRET_ACCESS_KEY", "hush-hush")
    monkeypatch.setenv("FIRN_INGEST_CATALOG__TOKEN", "hush-hush")
    assert "hush" not in repr(StorageSettings.load()) + repr(IngestSettings.load())
