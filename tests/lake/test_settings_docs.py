"""The page of settings."""

from pathlib import Path

from lake.settings_docs import document, renamed

HISTORY = Path(__file__).parents[2] / "CHANGELOG.md"
PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def test_the_page_lists_every_setting_as_it_is() -> None:
    """docs/settings.md is what `python -m lake.settings_docs` writes today."""
    assert PAGE.read_text() == document()


def test_the_history_lists_the_flat_names_of_old() -> None:
    """With those of today, as a room says them that refuses one."""
    assert f"\n\n{renamed()}" in HISTORY.read_text()
