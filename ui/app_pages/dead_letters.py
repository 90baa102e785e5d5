"""Messages that could not be stored, streams whose records wait, and sending them again."""

from collections.abc import Sequence
from typing import Any

import orjson
import pandas as pd
import streamlit as st

from ui.api_client import ApiError, api
from ui.components.message import empty, show_error
from ui.components.plain_text import plain
from ui.components.stream_choice import tenant_names
from ui.components.wording import count

PAGE = 100
FORBIDDEN = 403
EVERYBODY = "(all tenants)"
RANGES = {"Any time": "", "Last hour": "now-1h", "Last 24 hours": "now-24h", "Last 7 days": "now-7d"}


def show() -> None:
    """The page."""
    st.title("Dead letters")
    whose = ""
    try:
        whose, since, reason = _filters(tenant_names())
        found = api().get(
            "/dead-letters",
            tenant=whose,
            since=since,
            reason=reason,
            limit=PAGE,
            before=st.session_state.get("letters_before", ""),
        )
        parked = api().get("/parked", tenant=whose)["parked"]
    except ApiError as error:
        if error.status == FORBIDDEN and not whose and not st.session_state.get("one_tenant"):
            st.session_state["one_tenant"] = (
                True  # the key does not reach all, so the list does not offer all
            )
            st.rerun()
        show_error(error)
        return
    letters = found["dead_letters"]
    if letters:
        _list(letters, found["next"], whose)
    elif st.session_state.get("letters_before"):
        st.caption("There are no older ones.")
    else:
        empty(
            "No message is dead here.",
            "What cannot be decoded, routed or stored is kept in the dead-letter topic and would be listed "
            "here, with its reason.",
        )
    _offer_replay(letters, whose, since, reason)
    st.subheader("Parked streams", anchor=False)
    if parked:
        st.dataframe(
            pd.DataFrame(parked)[["tenant", "stream", "reason", "since"]], hide_index=True, width="stretch"
        )
        st.caption(
            "Their records wait in Kafka. They are written by themselves once the table can be; one that was "
            "moved back waits for `python -m ingest resolve`."
        )
    else:
        st.caption("No stream is parked: every record that was read is on its way to its table.")


def _filters(tenants: Sequence[str]) -> tuple[str, str, str]:
    one, two, three = st.columns(3)
    everybody = [] if st.session_state.get("one_tenant") else [EVERYBODY]
    whose = one.selectbox("Tenant", [*everybody, *tenants], on_change=_from_the_top)
    label = two.selectbox("Died within", list(RANGES), on_change=_from_the_top)
    reason = three.text_input("Reason", placeholder="all reasons", on_change=_from_the_top).strip()
    return "" if whose == EVERYBODY else whose, RANGES[label], reason


def _from_the_top() -> None:
    st.session_state.pop("letters_before", None)


def _list(letters: list[dict[str, Any]], following: str | None, whose: str) -> None:
    frame = pd.DataFrame(
        {
            "died (UTC)": [letter["died"][:19].replace("T", " ") for letter in letters],
            "reason": [letter["reason"] for letter in letters],
            "why": [letter["detail"] for letter in letters],
            "table": [letter["table"] or "" for letter in letters],
            "from": [f"{letter['topic']}/{letter['partition']} @ {letter['offset']}" for letter in letters],
            "begins": [letter["begins"] or "" for letter in letters],
        }
    )
    event = st.dataframe(
        frame,
        hide_index=True,
        width="stretch",
        height=min(38 + 35 * len(letters), 460),
        on_select="rerun",
        selection_mode="single-row",
        key="letters",
    )
    st.caption(
        f"{count(len(letters), 'letter')} shown, newest first; "
        f"{count(len({letter['reason'] for letter in letters}), 'reason')}."
    )
    if following and st.button("Older ones", icon=":material/expand_more:"):
        st.session_state["letters_before"] = following
        st.rerun()
    picked = event["selection"]["rows"]
    if picked and picked[0] < len(letters):
        _one(letters[picked[0]]["id"], whose)


def _one(letter_id: str, whose: str) -> None:
    try:
        letter = api().get(f"/dead-letters/{letter_id}", tenant=whose)
    except ApiError as error:
        show_error(error)
        return
    st.code(orjson.dumps(letter, option=orjson.OPT_INDENT_2).decode(), language="json", wrap_lines=True)


def _offer_replay(letters: list[dict[str, Any]], whose: str, since: str, reason: str) -> None:
    """Sends what the filters show again, after having said what that does."""
    if not letters:
        return
    with st.expander("Send them again", icon=":material/replay:"):
        st.markdown(
            "All dead letters that the filters above choose go to the replay topic, each once, but for those "
            "that are rows already; they become rows with the next flush, under their first coordinates."
        )
        target = st.text_input(
            "To tenant",
            placeholder="where the rules say",
            help="For dead letters that named no tenant, or a wrong one",
        ).strip()
        body = {
            "tenant": whose,
            "since": since,
            "reason": reason,
            "to_tenant": target,
            "all": not (since or reason),
        }
        look, send = st.columns(2)
        if look.button("What would happen?", width="stretch", icon=":material/visibility:"):
            _replay({**body, "dry_run": True})
        if send.button("Send again", width="stretch", type="primary"):
            _replay(body)


def _replay(body: dict[str, Any]) -> None:
    try:
        with st.spinner("Sending …", show_time=True):
            done = api().post("/dead-letters/replay", body)
    except ApiError as error:
        show_error(error)
        return
    tables = ", ".join(f"{rows:,} to {plain(table)}" for table, rows in done["tables"].items())
    verb = "would be sent" if done["dry_run"] else "sent"
    st.info(f"**{count(done['replayed'], 'letter')}** {verb}{': ' + tables if tables else ''}.")
    for why, number in done["left"].items():
        st.warning(f"{count(number, 'letter')} left alone: {plain(why)}")
