"""One registry of formats: no module is left out of it, and everything that reads messages follows it."""

import json
from datetime import tzinfo
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import get_args

import pytest
from typer.testing import CliRunner

from ingest.audit.audit_sources import records_in
from ingest.cli.program import app
from ingest.convert.json_records import read_objects
from ingest.decode import formats
from ingest.decode.decoder import Batch, kind_of
from ingest.decode.formats import registry
from ingest.decode.formats.batch_format import BatchFormat
from ingest.decode.formats.registry import MessageKind
from ingest.decode.formats.text_line import LineFormat, Values
from ingest.route.router import Envelope, Router
from lake.settings import FormatName, TopicSettings
from tests.ingest.support.conversion import converted, fields_of, rows_of, without_core

# What formats are made of. A module that brings a format does not belong here: register its format.
SHARED = {"batch_format", "json_object", "protobuf", "rejected_record", "text_line"}
README = Path(formats.__file__).parents[2] / "README.md"
NOW = "2026-11-20T21:26:40+00:00"


def _modules() -> dict[str, ModuleType]:
    """The modules of the folder by name, but for the registry."""
    names = [module.name for module in iter_modules(formats.__path__) if module.name != "registry"]
    return {name: import_module(f"{formats.__name__}.{name}") for name in names}


def _formats_in(module: ModuleType) -> list[LineFormat | BatchFormat]:
    return [value for value in vars(module).values() if isinstance(value, LineFormat | BatchFormat)]


def _registered() -> list[LineFormat | BatchFormat]:
    return [*registry.LINE_FORMATS, *registry.BATCH_FORMATS]


def test_every_module_of_the_folder_is_registered_or_shared() -> None:
    """A format that nobody registered is found, whether it has a module of its own or not."""
    for name, module in _modules().items():
        found = _formats_in(module)
        assert (name in SHARED) == (not found), f"{name} has no format, or is not shared by several"
        assert [each.title for each in found if each not in _registered()] == [], name
    assert set(_modules()) >= SHARED


def test_titles_are_distinct_and_on_the_page() -> None:
    """`explain-message` tells formats apart by their titles, and a reader finds each of them."""
    titles = [each.title for each in _registered()]
    assert len(set(titles)) == len(titles)
    assert [title for title in titles if title not in README.read_text()] == []


def test_settings_name_the_formats_that_the_registry_reads() -> None:
    """What a topic's settings can say, and nothing else, has a meaning."""
    assert get_args(FormatName) == tuple(registry.TOPIC_FORMATS)


# ---- a format of lines


def _read_toy(line: str, kafka_us: int, local: tzinfo) -> Values | None:
    word, _, rest = line.removeprefix("~").partition("|")
    return (None, rest, word) if line[:1] == "~" and rest else None


TOY = LineFormat("toy line", ("timestamp", "message", "word"), _read_toy, begins="~")
# One that lines of any other format may begin like.
ANY_TOY = LineFormat("toy line", ("timestamp", "message", "word"), _read_toy)


@pytest.fixture(params=[TOY, ANY_TOY], ids=["by its first character", "of any first character"])
def toy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> LineFormat:
    """A format of lines that is one more in the registry."""
    line_format: LineFormat = request.param
    _register_lines(monkeypatch, line_format)
    return line_format


def _register_lines(monkeypatch: pytest.MonkeyPatch, line_format: LineFormat) -> None:
    lines = (*registry.LINE_FORMATS, line_format)
    table = registry.by_first_character(lines)
    monkeypatch.setattr(registry, "LINE_FORMATS", lines)
    monkeypatch.setattr(registry, "_BY_FIRST_CHARACTER", table)
    monkeypatch.setattr(registry, "_OTHERS", table[""])


def _explained(body: bytes) -> str:
    result = CliRunner().invoke(app, ["explain-message", "--json", "--topic", "web"], input=body)
    assert result.exit_code == 0, result.output
    found: str = json.loads(result.output)["read_as"]
    return found


def test_a_line_format_is_recognised_and_converted_by_both_paths(
    toy: LineFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One more name in the registry, and its lines are fields; others stay what they were."""
    body = "~red|hi\n"
    assert fields_of(body) == {"timestamp": NOW, "message": "hi", "word": "red", "_errors": MISSING}
    assert fields_of(body, "text") == fields_of(body)
    plain, known = fields_of("~red"), fields_of("<34>Nov 20 21:00:00 web su: hi")
    without_core(monkeypatch)
    assert fields_of(body) == {"timestamp": NOW, "message": "hi", "word": "red", "_errors": MISSING}
    assert (fields_of("~red"), fields_of("<34>Nov 20 21:00:00 web su: hi")) == (plain, known)
    assert (plain["message"], known["app_name"]) == ("~red", "su")


MISSING = [("timestamp", None, "missing_timestamp")]


def test_a_line_format_is_explained_by_its_title(
    toy: LineFormat, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`explain-message` names it, without a word of its own about it."""
    monkeypatch.setenv("FIRN_CONFIG", "")
    assert [_explained(b"~red|hi"), _explained(b"~red")] == ["toy line", "plain line"]


def test_a_priority_of_syslog_is_left_to_formats_that_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A format of any first character is not tried on `<`; one that names the character is."""

    def read(line: str, kafka_us: int, local: tzinfo) -> Values | None:
        return None, line, "toy"

    for begins, word in (("", None), ("<", "toy")):
        with monkeypatch.context() as patch:
            _register_lines(patch, LineFormat("toy line", TOY.names, read, begins=begins))
            assert fields_of("<no priority").get("word") == word
            assert fields_of("no priority").get("word") == (None if begins else "toy")


# ---- a format of messages with several records


def _read_several(value: bytes, depth_max: int, surely: bool) -> Batch:
    return Batch("toy batch", [b'{"a":"%b"}' % part for part in value[1:].split(b"|")])


def _register_batch(monkeypatch: pytest.MonkeyPatch, batch_format: BatchFormat) -> None:
    batches = (*registry.BATCH_FORMATS, batch_format)
    for name, topic_format in registry.topic_formats(batches).items():
        monkeypatch.setitem(registry.TOPIC_FORMATS, name, topic_format)


def test_a_batch_format_is_taken_apart_wherever_messages_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Converter, router, audit and `explain-message` see the records of one more format."""
    toy = BatchFormat("toy batch", b"~", _read_several, is_json=False, may_be=lambda value: b"|" in value)
    _register_batch(monkeypatch, toy)
    body = b"~red|green"
    assert {at: row["a"] for at, row in rows_of(converted([body, b"~red"])).items() if "a" in row} == {
        (0, 0): "red",
        (0, 1): "green",
    }
    assert [kind_of(each, "auto") for each in (body, b"~red")] == [MessageKind.BATCH, MessageKind.LINE]
    assert [records_in(body, form, 100) for form in ("auto", "text", "json")] == [2, 1, 1]
    routed = Router(TopicSettings(name="web", tenant=("field:a",))).route(
        Envelope("web", None, (), b"~red|red")
    )
    assert str(routed) == "red.logs"
    monkeypatch.setenv("FIRN_CONFIG", "")
    assert _explained(body) == "toy batch: 2 records"


def test_a_format_that_settings_can_name_is_read_whatever_a_message_begins_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It becomes a topic's format, of which the settings have to know: the comparison of both fails."""
    _register_batch(
        monkeypatch,
        BatchFormat("toy batch", b"", _read_several, is_json=False, topic_format="toy"),  # type: ignore[arg-type]
    )
    assert set(registry.TOPIC_FORMATS) - set(get_args(FormatName)) == {"toy"}
    result = converted([b"1red|green", b"{1}"], "toy")  # type: ignore[arg-type]
    assert sorted((at, row["a"]) for at, row in rows_of(result).items()) == [
        ((0, 0), "red"),
        ((0, 1), "green"),
        ((1, 0), "1}"),
    ]
    assert fields_of("1red|green")["message"] == "1red|green"


@pytest.mark.core
def test_an_object_with_the_root_of_a_batch_format_is_not_taken_for_one_record() -> None:
    """The core leaves it to whoever takes messages apart; the keys that say so come from the formats."""
    bodies = [b'{"%b":[],"a":1}' % root.encode() for root in sorted(registry.BATCH_ROOTS)]
    assert bodies
    (decoded,), left = read_objects([*bodies, b'{"a":1}'], 100)
    assert (left, decoded.positions) == ([*range(len(bodies))], [len(bodies)])
