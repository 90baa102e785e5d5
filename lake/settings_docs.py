"""`python -m lake.settings_docs`: docs/settings.md, every setting of every room as a table."""

import sys
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, SecretStr
from pydantic_core import PydanticUndefined

from lake import settings
from lake.settings import RoomSettings
from lake.settings.secret_files import SUFFIX, secret_names


def rooms() -> list[type[RoomSettings]]:
    """The settings classes of all rooms in the order of the module."""
    found = [
        value
        for value in vars(settings).values()
        if isinstance(value, type) and issubclass(value, RoomSettings)
    ]
    return [room for room in found if room is not RoomSettings]


def document() -> str:
    """The page's Markdown."""
    return "\n".join([*_head(), *(line for room in rooms() for line in _section(room))]) + "\n"


def _head() -> Iterator[str]:
    yield "# Settings"
    yield ""
    yield (
        "Each value comes from, the later the stronger: its default, its section in `firn.toml` (or the "
        "file that `FIRN_CONFIG` names; empty: none),"
    )
    yield (
        "its environment variable, its command-line flag. This page is written by `python -m "
        "lake.settings_docs > docs/settings.md`."
    )
    yield ""
    yield (
        "A secret may stand in a file of its own: its `_file` setting names that file, in any of these "
        "places, and the file's content, without"
    )
    yield "white space around it, is the secret. Giving both is an error."


def _section(room: type[RoomSettings]) -> Iterator[str]:
    prefix = str(room.model_config.get("env_prefix", ""))
    yield ""
    yield f"## [{room.room}]"
    yield ""
    yield (room.__doc__ or "").split("\n")[0]
    yield ""
    yield from _rows(room, prefix)
    if "topics" in room.model_fields:
        yield ""
        yield "Each of `[[ingest.topics]]` has:"
        yield ""
        yield from _rows(settings.TopicSettings, "")


def _rows(model: type[BaseModel], prefix: str) -> Iterator[str]:
    yield "| setting | default | meaning |" if not prefix else "| setting | environment | default | meaning |"
    yield "|---|---|---|" if not prefix else "|---|---|---|---|"
    secrets = secret_names(model)
    for name, field in model.model_fields.items():
        yield _line(prefix, name, _default(field.default), field.description or "")
        if name in secrets:
            yield _line(prefix, name + SUFFIX, "", f"file that holds `{name}`")


def _line(prefix: str, name: str, default: str, meaning: str) -> str:
    variable = f" `{prefix}{name.upper()}` |" if prefix else ""
    return f"| `{name}` |{variable} {default} | {meaning} |"


def _default(value: Any) -> str:
    if value is PydanticUndefined:
        return "(required)"
    if isinstance(value, SecretStr):  # a default that everybody can read here is none
        value = value.get_secret_value()
    return "" if value in (None, "", ()) else f"`{value}`"


if __name__ == "__main__":
    sys.stdout.write(document())
