"""`python -m infra.helm`: writes the chart's values.yaml and values.schema.json, with every setting of every
room that runs on a cluster."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic.json_schema import models_json_schema
from pydantic_core import to_jsonable_python

from infra.helm.chart import REFERENCE, ChartValues
from lake.settings import (
    CatalogSettings,
    IngestSettings,
    OptimizeSettings,
    QuerySettings,
    RoomSettings,
    StorageSettings,
    TlsSettings,
)
from lake.settings.group import groups_of
from lake.settings.secret_files import holds_secrets, secret_names

FOLDER = Path(__file__).with_name("firn")
ROOMS: tuple[type[RoomSettings], ...] = (
    StorageSettings,
    TlsSettings,
    CatalogSettings,
    IngestSettings,
    OptimizeSettings,
    QuerySettings,
)
# Settings that are the chart's to say: of the pod, or where others are. A value here goes before it.
OF_CHART = {
    "catalog": ("http.host",),
    "ingest": ("catalog.uri", "node.host", "node.uri", "serve.host"),
    "optimize": ("catalog.uri", "http.host", "http.port", "spark.jars"),
    "query": ("catalog.uri", "http.host", "ingest.uri"),
}
# Without these no pod starts, or none that is asked by others: keys of the Secret `firn`, which people make.
SECRETS = {
    "catalog.database_url": "firn/database-url",
    "ingest.catalog.token": "firn/ingest-key",
    "ingest.http.token": "firn/ingest-token",
    "ingest.internal_topics.signing_keys": "firn/topic-signing-keys",
    "optimize.catalog.token": "firn/optimize-key",
    "optimize.lag.ingest_token": "firn/ingest-token",
    "query.catalog.token": "firn/query-key",
    "query.ingest.token": "firn/ingest-token",
}
REFERENCE_TO_SECRET = {"type": "string", "pattern": REFERENCE}
HEAD = """\
# Values of the chart. Written by `python -m infra.helm`; put your own into another file (`helm install -f`).
"""
SETTINGS = """
# All settings of the rooms (docs/settings.md) but their secrets. What is `null` here has no default, or the
# chart says it; to lists of hosts and addresses it adds Firn's own.
settings:
"""
REFERENCES = """
# Secrets of the settings, as the name of a Secret and its key: firn/database-url. Empty: none.
secrets:
"""


def main() -> None:
    """Writes both."""
    (FOLDER / "values.yaml").write_text(values())
    (FOLDER / "values.schema.json").write_text(json.dumps(schema(), indent=1) + "\n")


def values() -> str:
    """The values with what they mean, as YAML."""
    lines, seen = [HEAD.rstrip()], set[type]()
    for name, field in ChartValues.model_fields.items():
        lines += ["", *_chart_lines(name, field.default, field.description, seen)]
    lines += SETTINGS.rstrip().split("\n")
    for room in ROOMS:
        lines += [f"  {room.room}:", *_setting_lines(room)]
    lines += REFERENCES.rstrip().split("\n")
    for room in ROOMS:
        references = {name: SECRETS.get(f"{room.room}.{name}", "") for name in secret_names(room)}
        lines.append(f"  {room.room}:" + ("" if references else " {}"))
        lines += [f"    {name}: {json.dumps(reference)}" for name, reference in references.items()]
    return "\n".join(lines) + "\n"


def _chart_lines(
    name: str, value: Any, meaning: str | None, seen: set[type], indent: str = ""
) -> Iterator[str]:
    """What is of a kind that was there before needs no words."""
    if not isinstance(value, BaseModel):
        if meaning is not None:
            yield f"{indent}# {meaning}"
        yield f"{indent}{name}: {_json(value)}"
        return
    kind, is_new = type(value), type(value) not in seen
    seen.add(kind)
    if is_new:
        yield f"{indent}# {(kind.__doc__ or '').splitlines()[0]}"
    yield f"{indent}{name}:"
    for inner, field in kind.model_fields.items():
        told = field.description if is_new else None
        yield from _chart_lines(inner, getattr(value, inner), told, seen, f"{indent}  ")


def _setting_lines(room: type[RoomSettings]) -> Iterator[str]:
    groups = groups_of(room)
    for name, field in room.model_fields.items():
        if name not in groups and not holds_secrets(field.annotation):
            yield from _setting(room, name, name, field, "    ")
    for group, model in groups.items():
        shown = {
            name: field for name, field in model.model_fields.items() if not holds_secrets(field.annotation)
        }
        yield f"    {group}:" + ("" if shown else " {}")
        for name, field in shown.items():
            yield from _setting(room, f"{group}.{name}", name, field, "      ")


def _setting(room: type[RoomSettings], path: str, name: str, field: FieldInfo, indent: str) -> Iterator[str]:
    is_of_chart = path in OF_CHART.get(room.room, ())
    yield f"{indent}# {field.description}{' (null: the chart says it)' if is_of_chart else ''}"
    yield f"{indent}{name}: {'null' if is_of_chart else _json(field.default)}"


def _json(value: Any) -> str:
    return json.dumps(to_jsonable_python(value), ensure_ascii=False)


def schema() -> dict[str, Any]:
    """What the values may be, as a JSON schema: the rooms' own."""
    models: tuple[type[BaseModel], ...] = (ChartValues, *ROOMS)
    _, made = models_json_schema([(model, "validation") for model in models])
    known: dict[str, Any] = made["$defs"]
    for room in ROOMS:
        _without_secrets(known, room)
        for path in OF_CHART.get(room.room, ()):
            group, _, name = path.rpartition(".")
            owner = known[(groups_of(room)[group] if group else room).__name__]["properties"]
            owner[name] = {"anyOf": [owner[name], {"type": "null"}]}
    chart = known.pop(ChartValues.__name__)
    chart["properties"] |= {
        "settings": _table({room.room: {"$ref": f"#/$defs/{room.__name__}"} for room in ROOMS}),
        "secrets": _table(
            {room.room: _table(dict.fromkeys(secret_names(room), REFERENCE_TO_SECRET)) for room in ROOMS}
        ),
        # Helm puts what is meant for all charts of a family here.
        "global": {"type": "object"},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **_bare(chart),
        "$defs": {name: _bare(model) for name, model in sorted(known.items())},
    }


def _table(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _without_secrets(known: dict[str, Any], room: type[RoomSettings]) -> None:
    for model in (room, *groups_of(room).values()):
        for name, field in model.model_fields.items():
            if holds_secrets(field.annotation):
                known[model.__name__]["properties"].pop(name, None)


def _bare(part: Any) -> Any:
    """The schema without what nobody is refused by, and which values.yaml says."""
    match part:
        case dict():
            told = {"title", "description", "default", "format", "writeOnly"}
            return {
                # Names of settings are none of these words.
                key: {name: _bare(each) for name, each in inner.items()}
                if key == "properties"
                else _bare(inner)
                for key, inner in part.items()
                if key not in told
            }
        case list():
            return [_bare(each) for each in part]
        case _:
            return part


if __name__ == "__main__":
    main()
