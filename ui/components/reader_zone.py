"""The zone in which pages show the times of records: UTC, or the one of the reader's browser."""

from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import streamlit as st

NAME_UTC = "UTC"
# What browsers call a clock that is no other than UTC.
SAME_AS_UTC = frozenset({"UTC", "Etc/UTC", "Etc/GMT", "GMT", "Etc/UCT", "UCT", "Universal", "Zulu"})


def offer() -> None:
    """The choice, where there is one: the browser's zone is another than UTC, or the address names one."""
    chosen = name()
    names = [NAME_UTC, *(each for each in dict.fromkeys((_of_browser(), chosen)) if each != NAME_UTC)]
    if len(names) > 1:
        st.session_state["zone_chosen"] = chosen
        st.selectbox(
            "Times in",
            names,
            key="zone_chosen",
            on_change=_keep,
            label_visibility="collapsed",
            width=190,
            help="The zone of the times on this page; it stands in the address",
        )


def name() -> str:
    """What the zone is called; one that nobody knows is UTC."""
    wanted = str(st.session_state.get("zone", "")) or NAME_UTC
    return wanted if _known(wanted) else NAME_UTC


def zone() -> tzinfo:
    """The zone of the times on the page."""
    return _zone(name())


def wall(moment: datetime) -> datetime:
    """What clocks of the zone show at a moment, as if it was UTC: charts know no zone but that one."""
    return moment.astimezone(zone()).replace(tzinfo=UTC)


def moment_of(shown: datetime) -> datetime:
    """The moment, in UTC, at which clocks of the zone show this; the reverse of `wall`."""
    return shown.replace(tzinfo=zone()).astimezone(UTC)


def with_zone(typed: str) -> str:
    """A time as somebody typed it, with the zone that is meant; what names its own, or is no plain time, as
    it is."""
    if name() == NAME_UTC:
        return typed
    try:
        moment = datetime.fromisoformat(typed.strip())
    except ValueError:
        return typed
    if moment.tzinfo is not None or len(typed.strip()) <= len("2026-01-01"):
        return typed  # a whole day or month is a period, which the API knows in UTC alone
    return moment.replace(tzinfo=zone()).isoformat()


def _keep() -> None:
    chosen = str(st.session_state["zone_chosen"])
    st.session_state["zone"] = "" if chosen == NAME_UTC else chosen


def _of_browser() -> str:
    told = st.context.timezone or NAME_UTC
    return NAME_UTC if told in SAME_AS_UTC or not _known(told) else told


def _known(wanted: str) -> bool:
    try:
        _zone(wanted)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # a folder's name, too, comes from an address
        return False
    return True


def _zone(wanted: str) -> tzinfo:
    return UTC if wanted == NAME_UTC else ZoneInfo(wanted)
