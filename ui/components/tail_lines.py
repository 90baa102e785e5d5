"""The newest records of a live tail as lines, each with the colour of its severity before it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from html import escape
from typing import Any

import orjson
import streamlit as st

from ui.components import reader_zone, result_table
from ui.components.plain_text import isolated
from ui.components.severity import COLOURS, OTHER
from ui.components.wording import count, short_time
from ui.event_stream import Event
from ui.tail_event import UNREADABLE

FASTER = "left out here: they came faster than they could be read"
CANNOT_BE_READ = "an event of the search API that cannot be read stood here"
STYLE = """
.firn-tail{list-style:none;margin:0!important;padding:0!important;font-family:monospace;font-size:.8rem;line-height:1.45}
.firn-tail li{margin:0;padding:1px 0 1px .6rem;border-left:4px solid transparent;overflow-wrap:anywhere}
.firn-tail li:nth-child(even){background:rgba(128,128,128,.07)}
.firn-tail time{opacity:.75;margin-right:.8ch}
.firn-tail b{display:inline-block;min-width:6ch;margin-right:.8ch;font-weight:600}
.firn-tail i{margin-right:.8ch;opacity:.75}
.firn-tail .gap{border-left:4px dashed currentColor;font-style:italic;padding-top:.4rem;padding-bottom:.4rem}
.firn-tail .gap :is(time,b,i),.firn-tail i:empty{display:none}
"""
STYLE += "".join(f".firn-tail .{level}{{border-left-color:{colour}}}" for level, colour in COLOURS.items())


@dataclass(frozen=True, slots=True)
class TailLine:
    """One line, as text. `level`: a level of severity, or `gap` where there is no record."""

    level: str
    time: str
    severity: str
    stream: str
    text: str


def show(events: Sequence[Event], *, streams: bool) -> None:
    """Draws them, in the order that they have, with times in the reader's zone. `streams`: each with its
    stream."""
    zone = reader_zone.zone()
    today = f"{datetime.now(zone):%Y-%m-%d} "
    lines = "".join(
        f'<li class="{escape(line.level)}"><time>{escape(line.time)}</time>'
        f"<b>{escape(line.severity)}</b><i>{escape(line.stream)}</i>{escape(line.text)}</li>"
        for line in (line_of(event, today, zone, streams=streams) for event in events)
    )
    st.html(f"<style>{STYLE}</style>")
    st.html(f'<ol class="firn-tail">{lines}</ol>')


def line_of(event: Event, today: str, zone: tzinfo = UTC, *, streams: bool) -> TailLine:
    """An event in words. `today`: what times of today begin with in the zone; it is left out of them."""
    if event.kind == UNREADABLE:
        return TailLine("gap", "", "", "", isolated(_unreadable(event.data)))
    data = orjson.loads(event.data)
    if event.kind == "record":
        return TailLine(
            data.get("level", OTHER),  # ingestion of a version before tells none
            short_time(data["timestamp"], zone).removeprefix(today),
            isolated(data["severity"] or ""),
            isolated(data["stream"]) if streams else "",
            isolated(result_table.summary(data)),
        )
    return TailLine("gap", "", "", "", isolated(_gap(event.kind, data)))


def _unreadable(data: bytes) -> str:
    """What is known of it."""
    text = " ".join(data.decode(errors="replace").split())
    return f"{CANNOT_BE_READ}; it begins with: {text}" if text else f"{CANNOT_BE_READ}, and was empty"


def _gap(kind: str, data: dict[str, Any]) -> str:
    """Why there is no record here."""
    if kind == "dropped":
        return f"{count(data['records'], 'record')} {FASTER}"
    if kind == "rejected":
        return f"{data['stream']}: a record that cannot be a row ({data['reason']}): {data['detail']}"
    return str(data.get("message", kind))
