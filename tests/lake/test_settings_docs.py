"""The page of settings."""

from pathlib import Path

from lake.settings_docs import document

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def test_the_page_lists_every_setting_as_it_is() -> None:
    """docs/settings.md is what `python -m lake.settings_docs` writes today."""
    assert PAGE.read_text() == document()
