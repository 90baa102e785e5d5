"""Which streams a name or a pattern means."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake.stream_pattern import PATTERNS_MAX, fits, problem_of, reaches, reaches_table
from lake.tenant import to_identifier

NAMES = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Zl", "Zp")), min_size=1, max_size=20)


@given(NAMES, NAMES)
def test_a_name_without_a_star_means_itself_alone(pattern: str, stream: str) -> None:
    """Whatever else looks like it, or is called so in another case."""
    if "*" not in pattern:
        assert fits(pattern, stream) == (pattern == stream)


@given(NAMES, NAMES, NAMES)
def test_a_star_is_any_text(start: str, middle: str, end: str) -> None:
    """At the beginning, at the end, between."""
    start, end = start.replace("*", "x"), end.replace("*", "x")
    assert fits(f"{start}*{end}", start + middle + end)
    assert fits(f"{start}*{end}", start + end)
    assert not fits(f"{start}*x{end}", start + end[1:])


@pytest.mark.parametrize(
    "twin",
    ["Web-1", "WEB-1", "wеb-1", "ｗｅｂ-1", " web-1", "we", "\u200bweb-1", "_77eb-1"],
)
def test_twins_are_others(twin: str) -> None:
    """Other case, other scripts, other widths, what nobody sees; also as the table's name in the catalog."""
    assert not reaches(("web*",), twin)
    assert not reaches_table(("web*",), to_identifier(twin))


def test_beginning_and_end_are_two_texts() -> None:
    """A name is not both by the same characters; and without a star a name is no beginning."""
    assert fits("ab*ba", "abba")
    assert not fits("ab*ba", "aba")
    assert not reaches(("web", "Logs"), "web-1")
    assert not reaches(("web", "Logs"), "logs")


def test_one_text_in_two_normal_forms_is_two_names() -> None:
    """As for tenants and streams everywhere."""
    composed, apart = (unicodedata.normalize(form, "é") for form in ("NFC", "NFD"))
    assert reaches((f"{composed}*",), f"{composed}1")
    assert not reaches((f"{composed}*",), f"{apart}1")


@given(NAMES, NAMES)
def test_a_table_is_reached_by_its_streams_name(pattern: str, stream: str) -> None:
    """Escapes of the identifier are no part of the name."""
    if pattern.count("*") < 2:
        assert reaches_table((pattern,), to_identifier(stream)) == fits(pattern, stream)


def test_a_table_that_is_no_streams_is_reached_by_keys_of_all_alone() -> None:
    """Its name means nothing that a pattern could be compared with."""
    for foreign in ("Orders", "web_logs", "système", "_"):
        assert reaches_table(None, foreign)
        assert not reaches_table(("*", foreign), foreign)


def test_what_is_no_pattern() -> None:
    """Is refused with a sentence."""
    assert problem_of(["logs", "web*", "*", "*-eu", "a*b"]) is None
    for wrong in ([], ["a**"], ["*a*"], [""], ["x" * 101], ["a\x00"], [7], ["a"] * (PATTERNS_MAX + 1)):
        assert problem_of(wrong), wrong
