"""Updates in any order and with any values that their schemas allow: a refusal with a sentence, or metadata that another reader takes."""

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.table.metadata import TableMetadataUtil

from catalog.error_response import CatalogError
from catalog.requirements import check_requirements
from catalog.routes.request_schemas import COMMIT
from catalog.table_metadata import finish, new_metadata, normalised
from catalog.updates import Draft, apply_updates
from tests.catalog.table_requests import append, create_body

Json = dict[str, Any]
UUID = "6b1e6b1e-0000-4000-8000-000000000001"
NOW_MS = 1_900_000_000_000
# Few enough that updates meet each other and what is there, odd enough to be refused now and then.
NUMBERS = st.sampled_from([-1, 0, 1, 2, 3, 4, 5, 1000, 1001, 77, NOW_MS - 1, 2**31 - 1, 2**31, 2**63 - 1])
TEXTS = st.sampled_from(
    ["main", "b", "timestamp", "message", "errors", "hour", "identity", "bucket[4]", "void", "string", "long", "k", "1", "gzip", "file:///w/x", UUID]
)


def values(schema: Json) -> st.SearchStrategy[Any]:
    """Values of a JSON schema as this catalog's document writes them."""
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "anyOf" in schema:
        return st.one_of([values(one) for one in schema["anyOf"]])
    if "examples" in schema:
        return st.sampled_from(schema["examples"])
    match schema["type"]:
        case "integer":
            return NUMBERS
        case "boolean":
            return st.booleans()
        case "null":
            return st.none()
        case "array":
            return st.lists(values(schema["items"]), max_size=3)
        case "object" if "properties" in schema:
            required = {name: values(schema["properties"][name]) for name in schema["required"]}
            rest = {name: values(one) for name, one in schema["properties"].items() if name not in required}
            return st.fixed_dictionaries(required, optional=rest)
        case "object":
            return st.dictionaries(TEXTS, TEXTS, max_size=2)
    return TEXTS


def starting_metadata(version: int) -> Json:
    """A table with a snapshot and a property."""
    metadata = new_metadata(create_body("t", properties={"format-version": str(version), "k": "v"}), uuid=UUID, location="file:///w/t", now_ms=1)
    updates = append(None, 1, snapshot_id=77)
    if version == 3:
        updates[0]["snapshot"] |= {"first-row-id": 0, "added-rows": 5}
    draft = Draft(metadata, NOW_MS, lambda location, _: str(location))
    apply_updates(draft, updates)
    finish(draft, previous_location=None, previous_updated_ms=1)
    return metadata


@pytest.mark.parametrize("version", [1, 2, 3])
def test_updates_are_refused_or_leave_metadata_that_others_read(version: int) -> None:
    """No combination of updates breaks the code; what passes is written, normalised and read by PyIceberg."""
    start = orjson.dumps(starting_metadata(version))
    passed: list[int] = []

    @settings(max_examples=8 * settings().max_examples)
    @given(st.lists(values(COMMIT["properties"]["updates"]["items"]), min_size=1, max_size=5))
    def run(updates: list[Json]) -> None:
        draft = Draft(orjson.loads(start), NOW_MS, lambda location, _: str(location))
        try:
            apply_updates(draft, updates)
            finish(draft, previous_location="file:///w/t/metadata/00000-x.metadata.json", previous_updated_ms=NOW_MS)
        except CatalogError as error:
            assert len(error.message) > 10
            return
        passed.append(1)
        written = orjson.dumps(normalised(draft.metadata))
        if draft.metadata["format-version"] < 3:
            TableMetadataUtil.parse_raw(written.decode())

    run()
    assert len(passed) > 40


@given(st.lists(values(COMMIT["properties"]["requirements"]["items"]), max_size=3), st.sampled_from([None, 1, 2, 3]))
def test_requirements_hold_or_are_refused(requirements: list[Json], version: int | None) -> None:
    """Whatever a requirement says of a table that is or is not there: it holds, or it is a 409, or a 400 where it makes no sense."""
    try:
        check_requirements(requirements, None if version is None else starting_metadata(version))
    except CatalogError as error:
        assert error.status in (400, 409)
