"""Live tail: a tenant's records as they reach Kafka, before any commit."""

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from ui.api_client import ApiError
from ui.components import reader_zone, tail_lines
from ui.components.message import empty, show_error
from ui.components.plain_text import plain
from ui.components.stream_choice import choose_tenant, streams_of
from ui.components.tailing import leave, tailing
from ui.components.wording import count
from ui.tail_reader import TailView

REFRESH_S = 1.0
ALL_STREAMS = "(all streams)"
UNREADABLE = (
    "The search API has sent events that cannot be read; the lines below show where they were, and how they "
    "begin. The tail goes on. Look whether this front end and the search API are of the same version, and "
    "what stands between them."
)
HELP = "Only records that hold all of these words in some value, in any case."
# What a person is asked, by the names of the address; and the tenant whose streams were offered last.
TENANT, STREAM, WORDS = ASKED = ("tenant-of-tail", "tail-stream", "tail-words")
OFFERED = "tail-streams-of"
PARAMETERS = ("tenant", "stream", "words")
ZONE = "zone"  # of the reader, on every page


def show() -> None:
    """The page."""
    st.title("Live tail")
    try:
        if not _choose():
            return
    except ApiError as error:
        show_error(error)
        return
    reader_zone.offer()
    is_running = tailing().is_running
    # While nothing runs, nothing changes.
    st.fragment(_draw, run_every=REFRESH_S if is_running else None)(was_running=is_running)


def _choose() -> bool:
    """The row of inputs. False: there is nobody to look at. Raises ApiError."""
    for name, key in zip((*PARAMETERS, ZONE), (*ASKED, ZONE), strict=True):
        if key not in st.session_state and (said := st.query_params.get(name)):
            st.session_state[key] = said
    places = st.columns([2, 1.6, 4, 2.4], vertical_alignment="bottom")
    tenant = choose_tenant(places[0], "tail")
    if tenant is None:
        return False
    _choose_stream(places[1], tenant)
    places[2].text_input(
        "Words",
        key=WORDS,
        placeholder="words that a record has to hold",
        help=HELP,
        max_chars=1_000,
    )
    _follow()
    with places[3].container(horizontal=True):
        _buttons()
    asked = dict(zip(PARAMETERS, _wanted(), strict=True)) | {ZONE: str(st.session_state.get(ZONE, ""))}
    st.query_params.from_dict({name: value for name, value in asked.items() if value})
    return True


def _choose_stream(place: DeltaGenerator, tenant: str) -> None:
    """Another tenant's streams begin with all of them, though one may have the same name."""
    streams = [ALL_STREAMS, *streams_of(tenant)]
    is_other = st.session_state.get(OFFERED, tenant) != tenant
    if is_other or st.session_state.get(STREAM) not in streams:
        st.session_state[STREAM] = ALL_STREAMS
    st.session_state[OFFERED] = tenant
    place.selectbox("Stream", streams, key=STREAM)


def _follow() -> None:
    """Another question: what runs goes on with it, what has ended is forgotten. By what is asked, and not by
    the event that something has changed: a page that is drawn anew while it is clicked has that fire though
    nothing has."""
    tail = tailing()
    if tail.reader is None or tail.reader.asked == _wanted():
        return
    if tail.is_running:
        _start()
    else:
        leave()


def _buttons() -> None:
    tail = tailing()
    if not tail.is_running:
        st.button("Start", icon=":material/play_arrow:", type="primary", on_click=_start)
        return
    if tail.paused is None:
        st.button("Pause", icon=":material/pause:", on_click=_pause)
    else:
        st.button("Go on", icon=":material/play_arrow:", type="primary", on_click=_go_on)
    st.button("Stop", icon=":material/stop:", on_click=_stop)


def _wanted() -> tuple[str, str, str]:
    """Tenant, stream (empty: all) and words."""
    tenant, stream, words = (str(st.session_state[key]) for key in ASKED)
    return tenant, "" if stream == ALL_STREAMS else stream, words


def _start() -> None:
    tailing().begin(*_wanted())


def _pause() -> None:
    tail = tailing()
    if tail.reader is not None:
        tail.paused = tail.reader.look()


def _go_on() -> None:
    tailing().paused = None


def _stop() -> None:
    tail = tailing()
    tail.end()
    tail.paused = None


def _draw(*, was_running: bool) -> None:
    """How far the tail is, and its lines; again and again while it runs."""
    tail = tailing()
    if tail.reader is None:
        empty(
            "Nothing runs yet.",
            "“Start” shows records from then on, as they reach Kafka; they are searched when they are in "
            "their table.",
        )
        return
    view = tail.reader.look()
    if was_running and view.has_ended:
        st.rerun()  # the buttons are others
    if view.error is not None:
        show_error(view.error)
    if view.unreadable:
        st.warning(UNREADABLE, icon=":material/warning:")
    shown = tail.paused or view
    _say(view, shown)
    if shown.lines:
        tail_lines.show(shown.lines, streams=_wanted()[1] == "")
    elif view.is_open and not view.has_ended:
        wanted = "that holds the words" if st.session_state[WORDS].strip() else "of this tenant"
        empty("No record has come yet.", f"The next one {wanted} is shown here.")


def _say(view: TailView, shown: TailView) -> None:
    """One quiet line: how many came, how fast, how many are seen, how many were left out or unreadable."""
    is_paused = shown is not view
    state = (
        "stopped" if view.has_ended else "paused" if is_paused else "live" if view.is_open else "connecting"
    )
    parts = [f"**{state}**", count(view.records, "record")]
    if not view.has_ended:
        parts += [f"{view.per_s:,.0f} a second"]
    if is_paused:
        parts += [f"{view.records - shown.records:,d} came since"]
    if shown.lines:
        parts += [
            f"the newest {count(len(shown.lines), 'line')} shown, with times in {plain(reader_zone.name())}"
        ]
    if view.left_out:
        parts += [f"**{count(view.left_out, 'record')} left out**"]
    if view.unreadable:
        parts += [f"**{count(view.unreadable, 'event')} could not be read**"]
    st.caption(" · ".join(parts))
