"""Updates in any order and with any values that their schemas allow: a refusal with a sentence, or metadata
that another reader takes."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.table.metadata import TableMetadataUtil

from catalog.commit.requirements import check_requirements
from catalog.commit.schemas import check_schema
from catalog.commit.table_metadata import finish, new_metadata, normalised
from catalog.commit.updates import Draft, apply_updates
from catalog.http.routes.request_schemas import COMMIT, CREATE
from catalog.model.error_response import CatalogError
from catalog.store.metadata_store import MetadataStore
from lake.storage import open_storage
from tests.catalog.support.table_requests import append, create_body

Json = dict[str, Any]
UUID = "6b1e6b1e-0000-4000-8000-000000000001"
NOW_MS = 1_900_000_000_000
CHECK = MetadataStore(open_storage(), "file:///w", cache_bytes_max=1_000_000).check_location
# Few enough that updates meet each other and what is there, odd enough to be refused now and then.
NUMBERS = st.sampled_from([-1, 0, 1, 2, 3, 4, 5, 1000, 1001, 77, NOW_MS - 1, 2**31 - 1, 2**31, 2**63 - 1])
TEXTS = st.sampled_from(
    [
        "main",
        "b",
        "timestamp",
        "message",
        "errors",
        "hour",
        "identity",
        "bucket[4]",
        "void",
        "string",
        "long",
        "k",
        "1",
        "gzip",
        "file:///w/t/x",
        UUID,
    ]
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
    metadata = new_metadata(
        create_body("t", properties={"format-version": str(version), "k": "v"}),
        uuid=UUID,
        location="file:///w/t",
        now_ms=1,
    )
    updates = append(None, 1, snapshot_id=77, folder="file:///w/t/metadata")
    if version == 3:
        updates[0]["snapshot"] |= {"first-row-id": 0, "added-rows": 5}
    draft = Draft(metadata, NOW_MS, CHECK)
    apply_updates(draft, updates)
    finish(draft, previous_location=None, previous_updated_ms=1)
    return metadata


def refusal_of(work: Callable[[], object]) -> CatalogError | None:
    """The refusal that some work ends with, None where it ends well; any other exception is a defect."""
    try:
        work()
    except CatalogError as error:
        return error
    return None


def read_by_pyiceberg(metadata: Json) -> None:
    """Have PyIceberg parse metadata of any version, and compare what it finds in it."""
    normal = normalised(metadata)
    read = TableMetadataUtil.parse_raw(orjson.dumps(normal).decode())
    assert read.format_version == normal["format-version"]
    assert [schema.schema_id for schema in read.schemas] == [s["schema-id"] for s in normal["schemas"]]
    assert read.schema().highest_field_id <= read.last_column_id
    specs = [spec["spec-id"] for spec in normal["partition-specs"]]
    assert [spec.spec_id for spec in read.partition_specs] == specs
    assert {snapshot.snapshot_id for snapshot in read.snapshots} == {
        snapshot["snapshot-id"] for snapshot in normal["snapshots"]
    }


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.long
def test_updates_are_refused_or_leave_metadata_that_others_read(version: int) -> None:
    """No combination of updates breaks the code; what passes is written, normalised and read by PyIceberg."""
    start = orjson.dumps(starting_metadata(version))
    passed: list[int] = []

    @settings(max_examples=16 * max(25, settings().max_examples))
    @given(st.lists(values(COMMIT["properties"]["updates"]["items"]), min_size=1, max_size=5))
    def run(updates: list[Json]) -> None:
        draft = Draft(orjson.loads(start), NOW_MS, CHECK)

        def apply() -> None:
            apply_updates(draft, updates)
            finish(
                draft,
                previous_location="file:///w/t/metadata/00000-x.metadata.json",
                previous_updated_ms=NOW_MS,
            )

        refusal = refusal_of(apply)
        if refusal is not None:
            assert len(refusal.message) > 10
            return
        passed.append(1)
        read_by_pyiceberg(draft.metadata)

    run()
    assert len(passed) > 40


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.long
def test_creations_are_refused_or_make_metadata_that_others_read(version: int) -> None:
    """Whatever schema, partition spec and sort order a table is to begin with: a refusal, or metadata of the
    version asked for that PyIceberg reads. Neither all nor none are refused."""
    outcomes: Counter[str] = Counter()

    @settings(max_examples=8 * max(25, settings().max_examples))
    @given(values(CREATE))
    def run(request: Json) -> None:
        made: list[Json] = []
        asked = {**request, "properties": {"format-version": str(version)}}
        refusal = refusal_of(
            lambda: made.append(new_metadata(asked, uuid=UUID, location="file:///w/t", now_ms=1))
        )
        if refusal is not None:
            assert len(refusal.message) > 10
            outcomes["refused"] += 1
            return
        assert made[0]["format-version"] == version
        read_by_pyiceberg(made[0])
        outcomes["made"] += 1

    run()
    assert min(outcomes["made"], outcomes["refused"]) > 10, outcomes


@given(
    st.lists(values(COMMIT["properties"]["requirements"]["items"]), max_size=3),
    st.sampled_from([None, 1, 2, 3]),
)
def test_requirements_hold_or_are_refused(requirements: list[Json], version: int | None) -> None:
    """Whatever a requirement says of a table that is or is not there: it holds, or it is a 409, or a 400
    where it makes no sense."""
    refusal = refusal_of(
        lambda: check_requirements(requirements, None if version is None else starting_metadata(version))
    )
    assert refusal is None or refusal.status in (400, 409)


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ({"required": True, "type": "long"}, ""),
        ({"required": False, "type": "long"}, "must be required"),
        ({"type": "long"}, "must be required"),
        ({"required": True, "type": "double"}, "other than float and double"),
        ({"required": True, "type": {"type": "struct", "fields": []}}, "primitive type"),
        ({"required": True, "type": "long", "inside": True}, ""),
        ({"required": True, "type": "long", "inside": False}, "required structs alone"),
    ],
)
def test_identifier_fields_are_such_that_other_clients_read_the_schema(field: Json, wrong: str) -> None:
    """The rule of the Iceberg specification; `inside`: in a struct that is required or not."""
    column = {"id": 1, "name": "c", **{name: value for name, value in field.items() if name != "inside"}}
    if "inside" in field:
        kind = {"type": "struct", "fields": [column]}
        column = {"id": 2, "name": "s", "required": field["inside"], "type": kind}
    schema = {"type": "struct", "fields": [column], "identifier-field-ids": [1]}
    refusal = refusal_of(lambda: check_schema(schema, 2))
    assert (refusal is None) == (not wrong)
    assert refusal is None or (refusal.status == 400 and wrong in refusal.message)
