"""The values of the Helm chart: every setting of the rooms is there with its default, their secrets by
reference, and what is in the tree is what the code makes."""

import json
import re
import tomllib
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from pydantic_core import to_jsonable_python

from infra.helm.__main__ import FOLDER, OF_CHART, ROOMS, schema, values
from infra.local.jvm_parts import REPOSITORY
from lake.settings import RoomSettings
from lake.settings.group import groups_of, settings_of, variable
from lake.settings.secret_files import holds_secrets, secret_names
from tests.infra.support.dockerfile import IMAGES, environment, instructions

VALUES: dict[str, Any] = yaml.safe_load((FOLDER / "values.yaml").read_text())
SCHEMA: dict[str, Any] = json.loads((FOLDER / "values.schema.json").read_text())


def value(room: type[RoomSettings], name: str) -> Any:
    """What values.yaml has for a setting. Raises KeyError."""
    found = VALUES["settings"][room.room]
    for part in name.split("."):
        found = found[part]
    return found


def test_files_are_what_the_code_makes() -> None:
    """Of the settings and the chart's own values as they are now."""
    assert (FOLDER / "values.yaml").read_text() == values(), "python -m infra.helm"
    assert schema() == SCHEMA, "python -m infra.helm"


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.room)
def test_every_setting_has_its_default(room: type[RoomSettings]) -> None:
    """What is the chart's to say is null; a secret has a reference and no value."""
    for name, field in settings_of(room):
        if holds_secrets(field.annotation):
            with pytest.raises(KeyError):
                value(room, name)
        else:
            of_chart = name in OF_CHART.get(room.room, ())
            assert value(room, name) == (None if of_chart else to_jsonable_python(field.default)), name
    assert set(VALUES["secrets"][room.room]) == set(secret_names(room))
    assert set(OF_CHART.get(room.room, ())) <= {name for name, _ in settings_of(room)}


def test_tables_directly_below_a_room_are_groups() -> None:
    """By which the templates tell a group from a setting that is a table."""
    for room in ROOMS:
        tables = {name for name, each in VALUES["settings"][room.room].items() if isinstance(each, dict)}
        assert tables == set(groups_of(room))


def test_the_schema_takes_the_values_and_refuses_others() -> None:
    """A setting that does not exist, one of the wrong kind, a secret in the open, and no reference."""
    check = Draft202012Validator(SCHEMA)
    assert list(check.iter_errors(VALUES)) == []
    wrong: tuple[tuple[str, Any], ...] = (
        ("settings.ingest.flush.intervall_s", 1),
        ("settings.ingest.flush.interval_s", "soon"),
        ("settings.catalog.http.port", 70_000),
        ("settings.query.catalog.token", "firn_secret"),
        ("settings.optimize.http.port", "8585"),
        ("secrets.query", {"catalog.token": "firn_secret"}),
        ("programs.ingest.replicas", -1),
        ("mounts", [{"secret": "tls"}]),
    )
    for path, bad in wrong:
        document = json.loads(json.dumps(VALUES))
        *parts, name = path.split(".")
        inner = document
        for part in parts:
            inner = inner[part]
        inner[name] = bad
        assert list(check.iter_errors(document)), path


def test_variables_of_images_are_what_the_chart_says_itself() -> None:
    """A variable is stronger than the settings file: of no other setting may an image have one."""
    prefixes = {str(room.model_config.get("env_prefix")): room for room in ROOMS}
    of_chart = {
        variable(prefix, name) for prefix, room in prefixes.items() for name in OF_CHART.get(room.room, ())
    }
    # Ingestion on Spark has an image of its own.
    of_chart |= {"FIRN_CORE", "FIRN_INGEST_ENGINE"}
    for file in IMAGES.glob("*.Dockerfile"):
        set_ones = {name for name in environment(instructions(file)) if name.startswith("FIRN_")}
        assert set_ones <= of_chart


def test_versions_are_the_projects() -> None:
    """Of the chart, of what it installs, and of the images."""
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((FOLDER / "Chart.yaml").read_text())
    assert [chart["version"], chart["appVersion"], VALUES["images"]["tag"]] == [version] * 3


def test_templates_name_values_that_exist() -> None:
    """Helm takes a name that nobody has for nothing, and says nothing."""
    text = "".join(file.read_text() for file in sorted((FOLDER / "templates").iterdir()))
    for path in sorted(set(re.findall(r"\.Values\.([a-z_.]+)", text))):
        found: Any = VALUES
        for part in path.strip(".").split("."):
            found = found[part]
    for path in sorted(set(re.findall(r"\$settings\.([a-z_]+\.[a-z_.]+)", text))):
        found = VALUES["settings"]
        for part in path.strip(".").split("."):
            found = found[part]
