"""The pages of the documentation about the browser: every page of the app is on them, with its pictures."""

import re
from pathlib import Path

from tests.ui.support.menu import Entry
from tests.ui.support.screenshots import FOLDER, HEIGHTS_PX, SCHEMES, file_of

ROOT = Path(__file__).parents[2]
MEGABYTES_MAX = 4.0


def _entries() -> list[Entry]:
    """The pages of the app, as `ui/app.py` names them; a test in the browser goes by its menu."""
    found = re.findall(r'title="([^"]+)",.*?url_path="([^"]+)"', (ROOT / "ui/app.py").read_text(), re.DOTALL)
    return [Entry(name, path) for name, path in found]


def test_every_page_is_shown_in_the_documentation() -> None:
    """At both widths, light and dark; a page without pictures is told to take them (`make screenshots`)."""
    text = (ROOT / "docs/pages.md").read_text()
    assert len(_entries()) > 5
    wanted = {
        file_of(entry, width, scheme) for entry in _entries() for width in HEIGHTS_PX for scheme in SCHEMES
    }
    absent = sorted(
        each.name for each in wanted if not each.exists() or f"screenshots/{each.name}" not in text
    )
    assert absent == [], "run `make screenshots`, and name them in docs/pages.md"
    assert sorted(each.name for each in set(FOLDER.iterdir()) - wanted) == [], "of pages that are gone"


def test_the_pictures_are_small() -> None:
    """Everybody who clones the repository gets all of them."""
    assert sum(each.stat().st_size for each in FOLDER.iterdir()) < MEGABYTES_MAX * 1e6
