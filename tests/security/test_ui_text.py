"""Names and values on the pages are text: no image is fetched, no link appears, whatever tenants, streams,
fields and values are called."""

import ast
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from playwright.sync_api import Page, expect

from lake.catalog_client import CatalogClient
from tests.query.support.log_table import LogTable
from tests.ui.support.gestures import (
    cell,
    choose,
    choose_row,
    choose_value,
    expect_once,
    open_list,
    settle,
)
from tests.ui.support.kept_alerts import keep_alert
from tests.ui.support.kept_boards import keep_board
from ui.components.plain_text import code, isolated, plain, sentence

pytestmark = pytest.mark.finding(24)
UI = Path(__file__).parents[2] / "ui"
HOST = "foreign.example"
IMAGE = f"![s](//{HOST}/p.png)"

# ---- every text that Streamlit may take for Markdown

# Methods whose first argument is rendered as Markdown, and keywords that are, wherever they stand.
_RENDERED = frozenset(
    {
        "markdown",
        "caption",
        "write",
        "title",
        "header",
        "subheader",
        "text",
        "error",
        "warning",
        "info",
        "success",
        "toast",
        "exception",
        "badge",
        "metric",
    }
    | {
        "button",
        "download_button",
        "form_submit_button",
        "link_button",
        "toggle",
        "checkbox",
        "radio",
        "selectbox",
        "multiselect",
        "slider",
        "pills",
    }
    | {
        "text_input",
        "text_area",
        "number_input",
        "date_input",
        "time_input",
        "file_uploader",
        "expander",
        "popover",
        "spinner",
        "status",
        "feedback",
    }
    | {"html", "latex", "dialog", "page_link", "segmented_control", "color_picker", "chat_message", "echo"}
)
_KEYWORDS = frozenset({"help", "label", "body", "text", "caption"})
# Of our own: what they are given is rendered, or what they give is safe.
_OURS_RENDER = frozenset({"empty"})
_SAFE_CALLS = frozenset(
    {
        "plain",
        "code",
        "sentence",
        "count",
        "size",
        "age",
        "period",
        "_sentence",
        "_minute",
        "_fate",
        "what_follows",
    }
)
# In HTML another mark is text than in Markdown.
_SAFE_IN_HTML = frozenset({"escape"})
_SAFE_PARAMETERS = {
    "message.py": frozenset({"title", "what_to_do"}),
    "stream_choice.py": frozenset({"help_text"}),
    "tenants.py": frozenset({"said"}),
}


class Texts(ast.NodeVisitor):
    """Finds arguments that are rendered and hold something that did not go through `plain` or `code`."""

    def __init__(self, path: Path) -> None:
        self.path, self.found, self._safe_calls = path, list[str](), _SAFE_CALLS
        self._scopes: list[dict[str, list[ast.expr]]] = []
        self.visit(ast.parse(path.read_text()))

    def visit_Module(self, node: ast.Module) -> None:
        self._inside(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._inside(node)

    def _inside(self, node: ast.Module | ast.FunctionDef) -> None:
        assigned: dict[str, list[ast.expr]] = {}
        for each in ast.walk(node):
            if not isinstance(each, ast.Assign | ast.AugAssign):
                continue
            for target in each.targets if isinstance(each, ast.Assign) else [each.target]:
                both = isinstance(target, ast.Tuple) and isinstance(each.value, ast.Tuple)
                pairs = zip(target.elts, each.value.elts, strict=True) if both else [(target, each.value)]  # type: ignore[attr-defined]
                for name, value in pairs:
                    if isinstance(name, ast.Name):
                        assigned.setdefault(name.id, []).append(value)
        self._scopes.append(assigned)
        self.generic_visit(node)
        self._scopes.pop()

    def visit_Assign(self, node: ast.Assign) -> None:
        """What one run of a page leaves for the next one to say."""
        self._safe_calls = _SAFE_CALLS
        if any(
            isinstance(target, ast.Subscript) and ast.unparse(target).endswith("['said']")
            for target in node.targets
        ):
            self._check(node, [node.value])
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = (
            node.func.attr
            if isinstance(node.func, ast.Attribute)
            else node.func.id
            if isinstance(node.func, ast.Name)
            else ""
        )
        self._safe_calls = _SAFE_IN_HTML if name == "html" else _SAFE_CALLS
        if isinstance(node.func, ast.Attribute) and name in _RENDERED | {"progress", "tabs"}:
            self._check(
                node,
                [
                    *(node.args[:1] if name != "progress" else []),
                    *(word.value for word in node.keywords if word.arg in _KEYWORDS),
                ],
            )
        elif name in _OURS_RENDER:
            self._check(node, node.args)
        self.generic_visit(node)

    def _check(self, call: ast.Call | ast.Assign, texts: list[ast.expr]) -> None:
        self.found += [
            f"{self.path.name}:{call.lineno}: {ast.unparse(text)}" for text in texts if not self._safe(text)
        ]

    def _safe(self, text: ast.expr) -> bool:
        match text:
            case ast.Constant():
                return True
            case ast.JoinedStr():
                return all(self._safe(part) for part in text.values)
            case ast.FormattedValue():
                return self._safe(text.value) or _is_number(text.format_spec)
            case ast.BinOp(op=ast.Add()):
                return self._safe(text.left) and self._safe(text.right)
            case ast.IfExp():
                return self._safe(text.body) and self._safe(text.orelse)
            case ast.List() | ast.Tuple():
                return all(map(self._safe, text.elts))
            case ast.ListComp() | ast.GeneratorExp():
                return self._safe(text.elt)
            case ast.Call(func=ast.Name(id=name)):
                return name in self._safe_calls
            case ast.Call(func=ast.Attribute(value=ast.Constant(), attr="join"), args=[joined]):
                return self._safe(joined)
            case ast.Name(id=name):
                return self._is_safe_name(name)
        return False

    def _is_safe_name(self, name: str) -> bool:
        if name.isupper() or name in _SAFE_PARAMETERS.get(self.path.name, ()):
            return True
        values = next((scope[name] for scope in reversed(self._scopes) if name in scope), [])
        return bool(values) and all(map(self._safe, values))


def _is_number(spec: ast.expr | None) -> bool:
    """A format that only numbers take."""
    text = (
        "".join(str(part.value) for part in spec.values if isinstance(part, ast.Constant))
        if isinstance(spec, ast.JoinedStr)
        else ""
    )
    return text.startswith((",", ".")) and text[-1] in ",f%d"


def test_no_page_renders_text_from_outside_as_markdown() -> None:
    """Every text, label and help of every page is a constant, a number, or went through `plain` or `code`."""
    assert [
        found
        for path in sorted(UI.rglob("*.py"))
        if path.name != "__main__.py"
        for found in Texts(path).found
    ] == []


@pytest.mark.parametrize(
    "line",
    [
        'st.caption(f"of {tenant}")',
        "st.button(name)",
        'st.markdown("x", help=told)',
        'st.error("a" + words)',
        "said = row['x']; st.success(said)",
    ],
)
def test_the_check_finds_what_is_not_escaped(tmp_path: Path, line: str) -> None:
    """It would see a page that forgets it."""
    (tmp_path / "page.py").write_text(
        f"import streamlit as st\n\ndef show(tenant, name, told, words, row):\n    {line}\n"
    )
    assert len(Texts(tmp_path / "page.py").found) == 1


# ---- what escaping leaves


@given(st.text(max_size=60))
def test_code_is_one_code_span_whatever_it_holds(text: str) -> None:
    """No run of backticks in it is as long as its fence, and it is one line."""
    shown = code(text)
    fence = shown[: len(shown) - len(shown.lstrip("`"))]
    assert shown.endswith(fence)
    assert fence not in shown[len(fence) : -len(fence)].replace(fence + "`", "")
    assert "\n" not in shown


@given(st.text(alphabet=st.sampled_from("a*_`[]()!<>:$#|~\\@&. \n"), max_size=40))
def test_every_character_with_a_meaning_is_escaped(text: str) -> None:
    """What is left without the escapes is the text, on one line."""
    shown = plain(text)
    if "`" in shown[:1]:
        return  # code: the test above
    bare = shown.replace("\\\\", "")
    assert not [
        at for at, character in enumerate(bare) if character in r"`*_{}[]()!<>$" and bare[at - 1 : at] != "\\"
    ]


@given(st.text(alphabet=st.sampled_from("ab*_``[]()!<>:$#|~\\@&. \n/w"), max_size=40))
@example("behind: start `python -m optimize run`.")
@example("![x](y) `a``b` ![x](y)")
@example("www.a `b` ![x](y)")
def test_a_sentence_has_text_and_code_and_nothing_else(text: str) -> None:
    """Whatever it holds, as CommonMark reads it."""
    (line,) = MarkdownIt().parseInline(sentence(text))
    assert {each.type for each in line.children or ()} <= {"text", "text_special", "code_inline"}


def test_what_stands_in_backticks_is_code() -> None:
    """And no backtick is seen."""
    assert sentence("start `optimize run` now") == "start ` optimize run ` now"


def test_text_that_goes_from_right_to_left_is_kept_to_itself() -> None:
    """Controls of direction are spelled out; Hebrew and Arabic names are isolated."""
    assert isolated("a\u202ebc") == "a<U+202E>bc"
    assert isolated("שלום") == "\u2068שלום\u2069"
    assert isolated("plain") == "plain"


# ---- in the browser


@pytest.fixture(scope="module")
def hostile(catalog_client: CatalogClient) -> LogTable:
    """A tenant, a stream, fields and values that are images, links and HTML."""
    tenant = f"{IMAGE} <img src=//{HOST}/t.png> {datetime.now(UTC):%H%M%S%f}"
    start = datetime.now(UTC) - timedelta(minutes=10)
    values = [
        IMAGE,
        f"[click](https://{HOST}/)",
        f"https://{HOST}/auto www.{HOST} a@{HOST}",
        f"<img src=https://{HOST}/v.png onerror=alert(1)>",
        f"`{IMAGE}`",
    ]
    tables = [LogTable(catalog_client, tenant, stream) for stream in (f"{IMAGE}", f"` {IMAGE} `")]
    for table in tables:
        table.append(
            [
                {
                    "timestamp": start + timedelta(seconds=at),
                    "severity": IMAGE,
                    "message": value,
                    f"field {IMAGE}": value,
                    "host": value,
                    "trace_id": IMAGE,
                    "_errors": [{"field": IMAGE, "value": value, "reason": "wrong_type"}],
                }
                for at, value in enumerate(values)
            ]
        )
    return tables[0]


class Watched:
    """A page, and what it asked other hosts for."""

    def __init__(self, page: Page, uri: str) -> None:
        self.page, self.host = page, urlsplit(uri).netloc
        self.foreign: list[str] = []
        page.on("request", self._note)
        page.on("websocket", self._note)

    def _note(self, request: Any) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in ("data", "blob", "about") and parts.netloc != self.host:
            self.foreign.append(request.url)

    def check(self) -> None:
        """Nothing was asked of another host, and nothing on the page leads there."""
        settle(self.page)
        assert self.foreign == []
        expect(self.page.get_by_test_id("stException")).to_have_count(0)
        for kind, attribute in (
            ("img", "src"),
            ("a", "href"),
            ("iframe", "src"),
            ("link", "href"),
            ("script", "src"),
            ("object", "data"),
        ):
            leads = self.page.locator(kind).evaluate_all(
                f"all => all.map(each => each.getAttribute('{attribute}') || '')"
            )
            assert [each for each in leads if HOST in each] == [], (kind, self.page.url)


@pytest.fixture
def watched(page: Page, ui_uri: str) -> Watched:
    return Watched(page, ui_uri)


@pytest.mark.stack
def test_the_search_page_fetches_nothing_that_a_name_or_value_says(
    watched: Watched, ui_uri: str, hostile: LogTable
) -> None:
    """Tenant, stream, field list with its top values, a row in full with a value that was chosen and the rows
    around it, a saved search, an export, a link to a tenant that is not there."""
    page = watched.page
    where = {
        "tenant": hostile.tenant,
        "stream": hostile.stream,
        "from": "now-1h",
        "columns": f"field_{IMAGE}",
    }
    page.goto(f"{ui_uri}/?{urlencode(where)}")
    expect(page.get_by_text("5 rows", exact=True)).to_be_visible()
    watched.check()
    choose_row(page, 0)
    expect(page.get_by_role("tab", name="JSON")).to_be_visible()
    watched.check()
    choose_value(page, 2)
    expect(page.get_by_role("button", name="Only these")).to_be_visible()
    watched.check()
    for label, title in (("in its host", "Before and after"), ("Whole trace", "Whole trace")):
        page.get_by_role("button", name=label).click()
        expect(page.get_by_role("dialog").get_by_test_id("stDataFrame")).to_be_visible()
        expect(page.get_by_role("dialog")).to_contain_text(title)
        watched.check()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_text("Fields", exact=True).first.click()
    choose(page, "Top values of", "field", exact=False)
    expect(
        page.get_by_role("button", name="add").or_(page.get_by_test_id("stTooltipHoverTarget")).first
    ).to_be_visible()
    watched.check()
    page.get_by_role("button", name="Saved").click()
    name = page.get_by_label("Name", exact=True)
    name.fill(IMAGE)
    name.press("Enter")
    page.get_by_role("button", name="Save this search").click()
    settle(page)
    page.keyboard.press("Escape")  # what is open may lie over the next button
    expect(page.get_by_role("button", name="Save this search")).to_have_count(0)
    page.get_by_role("button", name="Export").click()
    page.get_by_role("button", name="Export all rows").click()
    watched.check()
    page.goto(f"{ui_uri}/?{urlencode({**where, 'query': f'{IMAGE}:5 AND (', 'q': f'{IMAGE}:5 AND ('})}")
    watched.check()
    page.goto(f"{ui_uri}/?{urlencode({'tenant': f'nobody {IMAGE} https://{HOST}'})}")
    expect(page.get_by_test_id("stAlert").first).to_contain_text("There is no tenant")
    watched.check()


@pytest.mark.prove
@pytest.mark.stack
def test_the_other_pages_fetch_nothing_that_a_name_or_value_says(
    watched: Watched, ui_uri: str, hostile: LogTable
) -> None:
    """Tenants and streams with its details and a retention that nobody understands, SQL, alerts, boards,
    errors, dead letters, health; deleted and brought back."""
    page = watched.page
    hostile.catalog.set_properties(hostile.name, {"firn.retention": IMAGE})
    keep_alert(hostile.catalog, hostile.id.tenant, IMAGE)
    keep_board(hostile.catalog, hostile.id.tenant, IMAGE)
    page.goto(f"{ui_uri}/tenants")
    box = page.get_by_placeholder("part of a tenant's name")
    box.fill(hostile.tenant)
    box.press("Enter")
    expect_once(page.get_by_text(re.compile(r"^2 streams\.")))
    watched.check()
    choose_row(page, 0)
    expect(page.get_by_role("heading", name="p.png").last).to_be_visible()
    for tab in ("Retention", "Delete", "Columns"):
        page.get_by_role("tab", name=tab).click()
        watched.check()
    for path, label in (
        ("sql", "Tenant"),
        ("alerts", "Tenant"),
        ("boards", "Tenant"),
        ("errors", "Tenant"),
        ("dead-letters", "Tenant"),
        ("health", None),
    ):
        page.goto(f"{ui_uri}/{path}")
        settle(page)
        if label is not None:
            choice = page.get_by_role("combobox", name=label).first
            open_list(page, choice)
            page.get_by_role("option").filter(has_text="p.png").first.click()
        watched.check()
    page.goto(f"{ui_uri}/sql")
    statement = page.get_by_role("textbox", name="Statement")
    statement.fill(f"SELECT '{IMAGE}' AS \"{IMAGE}\", 'https://{HOST}/x' AS \"https://{HOST}\"")
    statement.press("Control+Enter")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_text("1 row", exact=True)).to_be_visible()
    expect(cell(page, 0, 0)).to_have_text(IMAGE)
    watched.check()
