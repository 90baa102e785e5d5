"""What settings are made of: rooms hold settings and groups of settings by topic, groups hold settings."""

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic.fields import FieldInfo

# Between a group and its setting, in environment variables and in keyword arguments.
DELIMITER = "__"
MIB = 1024 * 1024


class SettingsGroup(BaseModel):
    """Base of the settings of one topic, `[room.topic]` in TOML."""

    # Errors never repeat what was given: it may be a secret.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, hide_input_in_errors=True)


def groups_of(model: type[BaseModel]) -> dict[str, type[SettingsGroup]]:
    """Returns the groups of a room by name."""
    return {
        name: field.annotation
        for name, field in model.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, SettingsGroup)
    }


def settings_of(model: type[BaseModel]) -> Iterator[tuple[str, FieldInfo]]:
    """Yields each setting with its name: `state`, and `flush.interval_s` where a group holds it."""
    groups = groups_of(model)
    for name, field in model.model_fields.items():
        if name in groups:
            yield from ((f"{name}.{inner}", each) for inner, each in groups[name].model_fields.items())
        else:
            yield name, field


def variable(prefix: str, name: str) -> str:
    """Returns the environment variable of a setting: FIRN_INGEST_FLUSH__INTERVAL_S of `flush.interval_s`."""
    return prefix + name.replace(".", DELIMITER).upper()


def nested(values: dict[str, Any]) -> dict[str, Any]:
    """Returns `{"flush": {"interval_s": 5}}` for `{"flush__interval_s": 5}`; other names stay as they are."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        group, _, inner = name.rpartition(DELIMITER)
        if group:
            found.setdefault(group, {})[inner] = value
        else:
            found[name] = value
    return found
