"""Bytes of a message to fields, exactly, or the reason why not."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ingest.decode.decoder import Json, Pairs, decode, json_text
from ingest.decode.formats import json_object
from ingest.decode.formats.json_object import parse_object
from lake.errors import Reason, Rejected

DEPTH = 100
TEXT = st.text(st.characters(exclude_categories=()), max_size=8)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=12,
)


def _decoded(body: bytes, form: Any = "json", depth_max: int = DEPTH) -> Any:
    return decode(body, form, depth_max)


def _reason(body: bytes | None, form: Any = "json", depth_max: int = DEPTH) -> Reason:
    rejected = decode(body, form, depth_max)
    assert isinstance(rejected, Rejected)
    assert rejected.detail
    return rejected.reason


def _plain(value: Any) -> Any:
    """A decoded value as json.loads gives it."""
    if isinstance(value, Pairs):
        return {key: _plain(member) for key, member in value}
    return json.loads(value) if isinstance(value, Json) else value


def _same(one: Any, other: Any) -> bool:
    """Equal as JSON text, where NaN equals NaN and 1 is not 1.0."""
    return json.dumps(one) == json.dumps(other)


@given(st.dictionaries(TEXT, VALUES, max_size=5), st.sampled_from([None, 1]), st.booleans())
def test_any_object_is_read_without_loss(
    document: dict[str, Any], indent: int | None, ascii_only: bool
) -> None:
    """Whatever JSON says, the fields say the same, however it is spaced and escaped."""
    body = json.dumps(document, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    fields = _decoded(body)
    if isinstance(fields, Rejected):
        assert any(0xD800 <= ord(c) <= 0xDFFF for c in body.decode("utf-8", "surrogatepass")), (
            "only a bare surrogate is no UTF-8"
        )
        return
    assert _same(_plain(fields), document)
    assert _same(json.loads(json_text(fields)), document)


@pytest.mark.parametrize(
    "number",
    [
        "0",
        "-0",
        "1.10",
        "1E400",
        "-1e-400",
        "123456789012345678901234567890",
        "0.1000",
        "NaN",
        "Infinity",
        "-Infinity",
    ],
)
def test_number_keeps_its_text(number: str) -> None:
    """A number is not read and written again: every digit stays."""
    fields = _decoded(b'{"n":' + number.encode() + b"}")
    assert fields == [("n", number)]
    assert type(fields[0][1]) is Json


def test_text_and_number_of_the_same_characters_are_told_apart() -> None:
    """`"1"` is text, `1` is a number, though both hold the same characters."""
    (_, text), (_, number) = _decoded(b'{"a":"1","b":1}')
    assert (type(text), type(number)) == (str, Json)


def test_array_keeps_its_text_blanks_included() -> None:
    """What becomes JSON text in a column is the record's own."""
    assert _decoded(b'{"a": [1,  {"x" : null}, "\\u00e9"] }') == [("a", '[1,  {"x" : null}, "\\u00e9"]')]


def test_duplicate_keys_are_all_there_in_order() -> None:
    """Nothing hides that a record says a key twice."""
    assert _decoded(b'{"a":1,"b":{"c":2,"c":3},"a":"x"}') == [
        ("a", "1"),
        ("b", [("c", "2"), ("c", "3")]),
        ("a", "x"),
    ]


HALVES = [b"{", b"}", b'{"a"', b'{"a":', b'{"a":1', b'{"a":1,', b'{"a":[1,2}', b'{"a":"x}', b'{"a":"\\u12"}']
DOUBLES = [
    b'{"a":1}x',
    b'{"a":1}{"b":2}',
    b'{"a":1} {"b":2}',
    b'{"a":1 "b":2}',
    b'{"a":[1 2]}',
    b'{"a":1,}',
    b"{,}",
    b"{:1}",
]
OTHERS = [
    b"{a:1}",
    b"{'a':1}",
    b'{"a":01}',
    b'{"a":+1}',
    b'{"a":tru}',
    b'{"a":"\\x"}',
    b"[1]",
    b'"text"',
    b"5",
    b"null",
]


@pytest.mark.parametrize("body", [*HALVES, *DOUBLES, *OTHERS])
def test_what_is_no_json_object_is_undecodable(body: bytes) -> None:
    """Half an object, two of them, or another kind of value is refused, never repaired."""
    assert _reason(body) is Reason.UNDECODABLE


@pytest.mark.parametrize(
    "body",
    [b"\xff", b'{"a":"\xc3"}', b"\xed\xa0\x80", b'{"\xc0\xaf":1}', b"text \x80", b"\xff\xfe{\x00}\x00"],
)
@pytest.mark.parametrize("form", ["auto", "json", "text"])
def test_what_is_no_utf8_is_undecodable(body: bytes, form: str) -> None:
    """Bytes that are no UTF-8 are kept as bytes, in the dead letter."""
    assert _reason(body, form) is Reason.UNDECODABLE


@pytest.mark.parametrize("body", [None, b""])
def test_message_without_value_is_empty(body: bytes | None) -> None:
    """A tombstone and an empty value hold no record."""
    assert _reason(body) is Reason.EMPTY


@pytest.mark.parametrize("body", [b" ", b"\r\n", b"\t \n"])
def test_blank_line_is_empty(body: bytes) -> None:
    """A line without a character to read holds no record."""
    assert _reason(body, "text") is Reason.EMPTY


def test_byte_order_mark_and_blanks_around_an_object_are_passed_over() -> None:
    """Some shippers put a BOM before and a newline behind."""
    for form in ("auto", "json"):
        assert _decoded(b'\xef\xbb\xbf \r\n{"a":1}\n\n', form) == [("a", "1")]


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (b"plain\r\n", "plain"),
        (b"a\nb\n", "a\nb"),
        (b"  x ", "  x "),
        ("☃\x00".encode(), "☃\x00"),
        (b'"{"', '"{"'),
    ],
)
def test_line_of_text_stays_but_for_its_end(body: bytes, line: str) -> None:
    """Only the newline at the end goes."""
    assert _decoded(body, "text") == _decoded(body, "auto") == line


def test_form_says_what_an_opening_brace_means() -> None:
    """`auto` takes what begins with a brace for JSON; `text` never does; `json` takes nothing else."""
    assert _decoded(b'{"a":1}', "auto") == [("a", "1")]
    assert _decoded(b'{"a":1}', "text") == '{"a":1}'
    assert _reason(b"{ it is text", "auto") is Reason.UNDECODABLE
    assert _reason(b"text", "json") is Reason.UNDECODABLE


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_nesting_is_counted_exactly_and_a_deep_record_does_not_end_the_process(
    opening: bytes, closing: bytes
) -> None:
    """`depth_max` levels are fine, one more is too deep, a hundred thousand are refused as quietly."""

    def nested(levels: int) -> bytes:
        inner = levels - 1
        return b'{"x":' + opening * inner + (b"1" if opening != b"[" else b"") + closing * inner + b"}"

    assert not isinstance(_decoded(nested(10), depth_max=10), Rejected)
    assert _reason(nested(11), depth_max=10) is Reason.TOO_DEEP
    assert not isinstance(_decoded(nested(200), depth_max=200), Rejected)
    for levels in (500, 5_000, 100_000):
        assert _reason(nested(levels)) is Reason.TOO_DEEP


def test_brackets_inside_text_are_no_nesting() -> None:
    """A text full of brackets is flat."""
    body = json.dumps({"a": "[" * 500 + "{" * 500, "b": ["[" * 500]}).encode()
    assert not isinstance(_decoded(body, depth_max=5), Rejected)


def test_ten_thousand_keys_are_read() -> None:
    """A very wide record is read whole."""
    fields = _decoded(json.dumps({f"k{n}": n for n in range(10_000)}).encode())
    assert len(fields) == 10_000
    assert fields[9_999] == ("k9999", "9999")


def test_control_characters_and_lone_surrogates_are_read_as_they_are() -> None:
    """What strict JSON forbids in text, real logs hold: it is read, and judged when it is stored."""
    assert _decoded(b'{"tab":"a\tb","nul":"\\u0000","lone":"\\ud800"}') == [
        ("tab", "a\tb"),
        ("nul", "\x00"),
        ("lone", "\ud800"),
    ]


@given(TEXT)
def test_json_text_of_a_text_can_be_read_and_written(text: str) -> None:
    """The JSON text of any text is valid UTF-8 and leads back to it."""
    written = json_text(text)
    assert json.loads(written.encode().decode()) == text


TOKENS = [
    '{"a":',
    '{"b" : ',
    "1",
    "-0",
    "1.50",
    "1E400",
    "01",
    "true",
    "nul",
    "null",
    "NaN",
    '"x"',
    '"\\ud800"',
    '"\\x"',
    '"\t"',
    "{}",
    "{ }",
    "}",
    "}",
    ",",
    '"a":',
    " ",
    "x",
]


@given(st.lists(st.sampled_from(TOKENS), max_size=12).map(lambda parts: "{" + '"k":' + "".join(parts) + "}"))
@example('{"a":{"b":{"c":1}}}')
@example('{"a":true,"a":false,"n":{},"m":{ }}')
def test_objects_without_arrays_are_parsed_like_all_others(text: str) -> None:
    """Whole by Python's scanner or member by member: the same members and kinds, or the same reason."""
    whole = parse_object(text, 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_object, "_parsed_whole", lambda *_: None)
        assert _told(whole) == _told(parse_object(text, 2))


def _told(found: Any) -> Any:
    if isinstance(found, Pairs):
        return [(key, type(value), _told(value)) for key, value in found]
    return found
