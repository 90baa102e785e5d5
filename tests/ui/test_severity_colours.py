"""Severities on the pages are those of the histogram."""

from hypothesis import given
from hypothesis import strategies as st

from lake.severity import SPELLINGS, Level
from lake.severity import level_of as lakes_level_of
from ui.components.severity import COLOURS, LEVELS, OTHER, level_of


def test_every_level_has_its_spellings_and_a_colour_of_its_own() -> None:
    """The front end imports no room, so it says them once more."""
    assert {level.value: spelled for level, spelled in SPELLINGS.items()} == LEVELS
    assert list(COLOURS) == [level.value for level in Level]
    assert len(set(COLOURS.values())) == len(COLOURS)
    assert Level.OTHER.value == OTHER


@given(
    st.none()
    | st.text(max_size=8)
    | st.sampled_from([*" ".join(SPELLINGS.values()).split(), '"INFO "', "Warn", "\u0130nfo"])
)
def test_a_severity_has_the_level_that_the_histogram_counts_it_for(severity: str | None) -> None:
    """However it is spelled."""
    assert level_of(severity) == lakes_level_of(severity).value
