"""The page of the live tail: started, paused, filtered, with its gaps, its refusals, and hostile records."""

import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from time import process_time

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamlit.testing.v1 import AppTest
from streamlit.testing.v1.element_tree import Button

from tests.stack.support.waiting import wait_for
from tests.ui.support.tail_server import TailServer, event, record, tail_server
from ui import tail_reader
from ui.components import tail_lines
from ui.event_stream import Event
from ui.settings import API_VARIABLE
from ui.tail_reader import LINES_MAX

RUN_S, WAIT_S = 120.0, 20.0
pytestmark = pytest.mark.long
TENANTS = {"acme": ["logs", "web"], "beta": ["logs"]}
HOSTILE = [
    "<img src=//foreign.example/p.png onerror=alert(1)>",
    "</li></ol><script>alert(1)</script>",
    "![s](//foreign.example/p.png)",
]
TAGS = {"ol", "li", "time", "b", "i"}
# Of a page that is drawn once a second, on a machine that does other things as well.
CPU_S_MAX = 0.25


def _script() -> None:
    from ui.app_pages import tail

    tail.show()


@pytest.fixture
def api() -> Iterator[TailServer]:
    with tail_server(TENANTS) as running:
        yield running


@pytest.fixture
def page(api: TailServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[AppTest]:
    """The page in a session of its own, drawn once. A script is `__main__` while it runs, and stays that, for
    whatever the process spawns, unless it is put back."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    monkeypatch.setenv(API_VARIABLE, api.address)
    monkeypatch.setattr(tail_reader, "ONCE_MORE_AFTER_S", 0.01)
    made = AppTest.from_function(_script, default_timeout=RUN_S)
    yield made.run()
    if button(made, "Stop"):
        click(made, "Stop")


def button(page: AppTest, label: str) -> bool:
    return label in [each.label for each in page.button]


def click(page: AppTest, label: str) -> None:
    """Once it is there: while a tail ends the page is drawn without it."""

    def button() -> Button | None:
        found = next((each for each in page.button if each.label == label), None)
        if found is None:
            page.run()
        return found

    found = wait_for(button, WAIT_S, label)
    assert found is not None
    found.click().run()


def start(page: AppTest, api: TailServer) -> None:
    open_before = len(api.asked)
    click(page, "Start")
    wait_for(lambda: len(api.asked) > open_before and api.tails, WAIT_S, "the tail")


def told(page: AppTest, words: str) -> str:
    """The small line, drawn anew until it holds these words."""

    def line() -> str:
        page.run()
        assert not page.exception
        return next((each.value for each in page.caption if words in each.value), "")

    return str(wait_for(line, WAIT_S, words))


class Lines(HTMLParser):
    """What a browser would make of the lines."""

    def __init__(self, page: AppTest) -> None:
        super().__init__()
        self.tags, self.levels, self.texts = set[str](), list[str](), list[str]()
        for each in page.get("html"):
            if "firn-tail" in each.proto.body and "<ol" in each.proto.body:
                self.feed(each.proto.body)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag == "li":
            self.texts.append("")
            ((_, level),) = attrs
            self.levels.append(level or "")

    def handle_data(self, data: str) -> None:
        self.texts[-1] += data


def test_records_are_shown_from_the_start_on_newest_first_in_the_colours_of_their_severity(
    page: AppTest, api: TailServer
) -> None:
    """Nothing is asked before; the line above them says how many came."""
    assert (api.asked, page.caption.values) == ([], [])
    start(page, api)
    assert api.asked == [{"tenant": "acme"}]
    api.say(record("first", "ERROR"), record("second", '"warn"', "web"), record("third", None))
    assert "**live** · 3 records · " in told(page, "3 records")
    lines = Lines(page)
    assert lines.levels == ["other", "warn", "error"]
    assert [text.endswith(word) for text, word in zip(lines.texts, ("third", "second", "first"), strict=True)]
    assert "web" in lines.texts[1]
    assert lines.tags <= TAGS


def test_a_pause_holds_the_lines_still_while_records_are_counted(page: AppTest, api: TailServer) -> None:
    """Going on shows the newest ones; the tail was open all the time."""
    start(page, api)
    api.say(record("before"))
    told(page, "1 record ")
    click(page, "Pause")
    api.say(record("meanwhile"))
    assert "**paused** · 2 records" in told(page, "1 came since")
    assert [text[-6:] for text in Lines(page).texts] == ["before"]
    click(page, "Go on")
    assert "**live**" in told(page, "2 lines shown")
    assert len(api.asked) == 1
    click(page, "Stop")
    wait_for(lambda: api.tails == 0, WAIT_S, "the hanging up")
    assert "**stopped** · 2 records" in told(page, "stopped")
    assert len(Lines(page).texts) == 2


def test_another_filter_goes_on_with_the_tail_anew(page: AppTest, api: TailServer) -> None:
    """Words, stream or tenant: what was open ends, and its lines are gone."""
    start(page, api)
    api.say(record("before"))
    told(page, "1 record ")
    page.text_input[0].set_value("timeout db").run()
    page.selectbox[1].set_value("web").run()
    assert "0 records" in told(page, "**live**")
    page.selectbox[0].set_value("beta").run()
    assert "0 records" in told(page, "**live**")
    expected = [
        {"tenant": "acme"},
        {"tenant": "acme", "words": "timeout db"},
        {"tenant": "acme", "words": "timeout db", "stream": "web"},
        {"tenant": "beta", "words": "timeout db"},
    ]
    assert api.asked == expected
    wait_for(lambda: api.tails == 1, WAIT_S, "the end of the others")
    assert Lines(page).texts == []
    assert page.query_params == {"tenant": "beta", "words": "timeout db"}


def test_a_tenant_begins_with_all_of_its_streams_and_a_page_drawn_again_begins_nothing(
    page: AppTest, api: TailServer
) -> None:
    """Though another tenant's stream has the same name."""
    page.selectbox[1].set_value("logs").run()
    start(page, api)
    page.run()
    page.run()
    assert api.asked == [{"tenant": "acme", "stream": "logs"}]
    page.selectbox[0].set_value("beta").run()
    assert "0 records" in told(page, "**live**")
    assert api.asked[1:] == [{"tenant": "beta"}]
    assert page.selectbox[1].value == "(all streams)"
    click(page, "Stop")
    assert "**stopped**" in told(page, "stopped")
    page.text_input[0].set_value("other").run()
    assert "Nothing runs yet." in "".join(each.value for each in page.markdown)


def test_gaps_are_shown_where_they_are_and_counted(page: AppTest, api: TailServer) -> None:
    """What the API left out, what it skipped, and what cannot be a row."""
    start(page, api)
    api.say(
        record("before"),
        event("dropped", records=312, total=312),
        event("skipped", message="the tail fell behind"),
        event("rejected", reason="undecodable", detail=HOSTILE[0], stream="logs"),
        record("after"),
    )
    assert "312 records left out" in told(page, "2 records ")
    lines = Lines(page)
    assert lines.levels == ["info", "gap", "gap", "gap", "info"]
    assert lines.texts[3].startswith("312 records left out here")
    assert lines.texts[2] == "the tail fell behind"
    assert HOSTILE[0] in lines.texts[1]


def test_an_event_that_cannot_be_read_is_told_and_the_tail_goes_on(page: AppTest, api: TailServer) -> None:
    """Where it stood, how it begins, and what to look at."""
    start(page, api)
    broken = b"event: record\ndata: <b>not JSON</b>\n\n"
    api.say(record("before"), broken, b"event: dropped\n\n", record("after"))
    assert "**2 events could not be read**" in told(page, "2 records ")
    (warning,) = page.warning
    assert "The tail goes on" in warning.value
    lines = Lines(page)
    assert lines.levels == ["info", "gap", "gap", "info"]
    assert lines.texts[2].endswith("cannot be read stood here; it begins with: <b>not JSON</b>")
    assert lines.texts[1].endswith("cannot be read stood here, and was empty")
    assert lines.tags <= TAGS
    api.say(record("later"))
    assert "**live**" in told(page, "3 records ")


def test_times_are_of_the_zone_that_the_address_names(page: AppTest, api: TailServer) -> None:
    """Which the line above them tells; UTC where it names none."""
    start(page, api)
    api.say(record("of the night"))
    assert "times in UTC" in told(page, "1 record ")
    assert "04:00:00.000" in Lines(page).texts[0]
    page.session_state["zone"] = "Asia/Tokyo"
    assert "times in Asia/Tokyo" in told(page, "times in Asia")
    assert "13:00:00.000" in Lines(page).texts[0]
    assert page.query_params == {"tenant": "acme", "zone": "Asia/Tokyo"}


def test_a_refusal_is_a_sentence_and_a_start_away_from_another_attempt(
    page: AppTest, api: TailServer
) -> None:
    """Where a tenant has as many tails as it may."""
    full = "2 live tails of tenant 'acme' are open already; close one"
    api.refusals = [(429, full)] * 2
    click(page, "Start")
    told(page, "stopped")
    (error,) = page.error
    assert error.value.replace("\\", "") == f"{full}."
    start(page, api)
    told(page, "**live**")
    assert not page.error


def test_hostile_records_are_text(page: AppTest, api: TailServer) -> None:
    """In message, severity and fields: no element but those of a line, and each character is there."""
    start(page, api)
    api.say(*(record(text, text, text) for text in HOSTILE), record("", None, **{HOSTILE[0]: HOSTILE[1]}))
    told(page, "4 records ")
    lines = Lines(page)
    assert lines.tags == TAGS
    assert set(lines.levels) == {"other"}
    fields, *others = lines.texts
    assert f"{HOSTILE[0]}={HOSTILE[1]}" in fields
    for text, line in zip(reversed(HOSTILE), others, strict=True):
        assert line.count(text) == 3


@given(st.text(max_size=60), st.text(max_size=20))
def test_a_line_never_ends_before_its_text(message: str, severity: str) -> None:
    """Directions included: right-to-left text moves nothing around it."""
    data = orjson.loads(record(message, severity).partition(b"data: ")[2])
    line = tail_lines.line_of(Event("record", orjson.dumps(data)), "", streams=False)
    assert "\u202e" not in line.text + line.severity
    assert "\n" not in line.text


def test_the_page_takes_little_of_a_processor_at_a_thousand_records_a_second(
    page: AppTest, api: TailServer
) -> None:
    """A thousand are read and the newest 500 drawn with the CPU time of a fraction of a second; here with
    the API's own, and with what draws the whole page."""
    start(page, api)
    took_s = []
    for second in range(1, 6):
        some = [record(f"request {at} of {second} was served in {at % 97} ms " * 4) for at in range(1_000)]
        began_s = process_time()
        api.say(b"".join(some))
        told(page, f"{1_000 * second:,} records ")
        took_s.append(process_time() - began_s)
    assert len(Lines(page).texts) == LINES_MAX
    assert min(took_s) < CPU_S_MAX
