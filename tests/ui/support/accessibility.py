"""What axe-core finds on a page that somebody who sees, hears or moves little cannot use."""

from functools import cache
from importlib.resources import files
from typing import NamedTuple

from playwright.sync_api import Page

from tests.ui.support.gestures import settle

SEVERE = ("serious", "critical")
LOOKS = 3
# Of one scheme and of the other everything but the colours is the same.
COLOURS = ("color-contrast",)
# Neither frames nor what is no violation is looked at a second time.
RUN = """async ([rules, severe, exclude]) => {
    const chosen = rules.length ? {runOnly: {type: 'rule', values: rules}} : {};
    const found = await axe.run({exclude}, {...chosen, resultTypes: ['violations'], iframes: false});
    return found.violations.filter(each => severe.includes(each.impact)).flatMap(each =>
        each.nodes.map(node => [each.id, node.target.join(' '), node.failureSummary]));
}"""


class OfStreamlit(NamedTuple):
    """What Streamlit draws and these pages cannot: a rule, and where alone it may be broken."""

    rule: str
    selector: str
    why: str


OF_STREAMLIT = (
    OfStreamlit(
        "svg-img-alt", "[class*='_brush']", "Vega draws what is dragged over, and names it to nobody"
    ),
)


class Found(NamedTuple):
    """A rule that is broken, the element by its selector, and what would mend it."""

    rule: str
    element: str
    said: str


def expect_accessible(page: Page, *, dark: bool = True) -> None:
    """Fails where axe-core finds something serious or critical on what the page shows now. `dark`: with its
    colours on a dark ground, too."""
    found = violations(page)
    if dark:
        page.emulate_media(color_scheme="dark")
        found += violations(page, *COLOURS)
        page.emulate_media(color_scheme="light")
        settle(page)
    assert not found, "\n".join(f"{each.rule}: {each.element}: {each.said}" for each in found)


def violations(page: Page, *rules: str) -> list[Found]:
    """What is serious or critical, but for what is Streamlit's own. `rules`: these alone.

    A page that refreshes itself may do so during a look, and is pale then: what counts is found by each look.
    """
    found = _look(page, *rules)
    for _ in range(LOOKS - 1):
        if found:
            seen = {(each.rule, each.element) for each in _look(page, *rules)}
            found = [each for each in found if (each.rule, each.element) in seen]
    return found


def _look(page: Page, *rules: str) -> list[Found]:
    settle(page)
    if not page.evaluate("'axe' in window"):
        page.evaluate(_axe())
    found = [Found(*each) for each in page.evaluate(RUN, [list(rules), list(SEVERE), []])]
    return [each for each in found if not _is_of_streamlit(page, each)]


def _is_of_streamlit(page: Page, found: Found) -> bool:
    selectors = [each.selector for each in OF_STREAMLIT if each.rule == found.rule]
    return any(
        page.evaluate("([at, of]) => document.querySelector(at)?.matches(of)", [found.element, selector])
        for selector in selectors
    )


@cache
def _axe() -> str:
    return files("axe_playwright_python").joinpath("axe.min.js").read_text()
