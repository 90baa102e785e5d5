"""`python -m lake.settings_docs`: docs/settings.md, every setting of every room in tables. With `--renamed`:
the table of the names that settings had before they stood in groups."""

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from lake import settings
from lake.settings import RoomSettings
from lake.settings.group import DELIMITER, groups_of, variable
from lake.settings.renamed import RENAMED
from lake.settings.room import ROOMS
from lake.settings.secret_files import SUFFIX, holds_secrets


def rooms() -> list[type[RoomSettings]]:
    """Returns the settings classes of all rooms in the order of their sections."""
    return sorted(RoomSettings.__subclasses__(), key=lambda room: ROOMS.index(room.room))


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
    groups = groups_of(room)
    own = {name: field for name, field in room.model_fields.items() if name not in groups}
    yield from _heading(f"## [{room.room}]", room)
    if own:
        yield ""
        yield from _rows(own, prefix)
    if "topics" in own:
        yield ""
        yield "Each of `[[ingest.topics]]` has:"
        yield ""
        yield from _rows(settings.TopicSettings.model_fields, "")
        for heading, model in (("`masking`", settings.TopicMasking), ("`masking.rules`", settings.MaskRule)):
            yield from ("", f"Its {heading}, where there is one ([masking](masking.md)):", "")
            yield from _rows(model.model_fields, "")
    for name, group in groups.items():
        yield from _heading(f"### [{room.room}.{name}]", group)
        yield ""
        yield from _rows(group.model_fields, variable(prefix, name) + DELIMITER)
        if group is settings.OidcSettings:
            yield from ("", "Each of `grants`, by a value of the claim of roles:", "")
            yield from _rows(settings.OidcGrant.model_fields, "")


def _heading(heading: str, model: type[BaseModel]) -> Iterator[str]:
    yield from ("", heading, "", (model.__doc__ or "").split("\n")[0])


def _rows(fields: Mapping[str, FieldInfo], prefix: str) -> Iterator[str]:
    yield "| setting | default | meaning |" if not prefix else "| setting | environment | default | meaning |"
    yield "|---|---|---|" if not prefix else "|---|---|---|---|"
    for name, field in fields.items():
        yield _line(prefix, name, _default(field.default), field.description or "")
        if holds_secrets(field.annotation):
            yield _line(prefix, name + SUFFIX, "", f"file that holds `{name}`")


def _line(prefix: str, name: str, default: str, meaning: str) -> str:
    column = f" `{variable(prefix, name)}` |" if prefix else ""
    return f"| `{name}` |{column} {default} | {meaning} |"


def _default(value: Any) -> str:
    if value is PydanticUndefined:
        return "(required)"
    if isinstance(value, SecretStr):  # a default that everybody can read here is none
        value = value.get_secret_value()
    return "" if value in (None, "", ()) else f"`{value}`"


def renamed() -> str:
    """Returns the flat names of old with those of today as a table in Markdown, for the notes of an
    upgrade."""
    rows = [
        f"| `{room}.{old}` | `{room}.{now}` |"
        for room, names in RENAMED.items()
        for old, now in names.items()
    ]
    return "\n".join(["| before | now |", "|---|---|", *rows]) + "\n"


if __name__ == "__main__":
    sys.stdout.write(renamed() if sys.argv[1:] == ["--renamed"] else document())
