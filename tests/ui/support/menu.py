"""The pages that there are, by the menu of the app itself: whoever goes through all of them finds a new one,
too."""

from pathlib import PurePosixPath
from typing import NamedTuple
from urllib.parse import urlsplit

from playwright.sync_api import Locator, Page, expect

from tests.ui.support.gestures import settle

NARROW_PX = 400


class Entry(NamedTuple):
    """A page's name in the menu, and its path; of the first one that is empty."""

    name: str
    path: str

    @property
    def called(self) -> str:
        """What files about the page are called."""
        return self.path or self.name.lower()


def entries(page: Page) -> list[Entry]:
    """All pages. The page is one of them, on a narrow screen: on a wide one the menu may not show all."""
    settle(page)
    links = _opened(page).get_by_test_id("stSidebarNavLink")
    expect(links.first).to_be_visible()
    told = links.evaluate_all("links => links.map(link => [link.innerText.trim(), link.href])")
    found = [Entry(name.splitlines()[-1].strip(), PurePosixPath(urlsplit(to).path).name) for name, to in told]
    assert len(found) > 1, "the menu has no pages"
    if (close := page.get_by_test_id("stSidebarCollapseButton").get_by_role("button")).is_visible():
        close.click()  # it lies over the page
    return found


def go_to(page: Page, entry: Entry) -> None:
    """Goes to a page by the menu of a narrow screen."""
    _opened(page).get_by_role("link", name=entry.name, exact=True).click()
    page.wait_for_function("path => location.pathname.slice(1) === path", arg=entry.path)


def _opened(page: Page) -> Locator:
    if (menu := page.get_by_test_id("stExpandSidebarButton")).is_visible():
        menu.click()
    return page.get_by_test_id("stSidebar")
