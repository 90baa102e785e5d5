"""A search of several streams of a tenant: each is asked for itself, the rows come together by their time.

Of every stream as many rows are at hand as a page has, so that the next page has the newest of all; what a
page does not show of them waits for the pages after it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import streamlit as st

from ui.components.plain_text import plain
from ui.components.severity import OTHER

STREAMS_MAX = 10
SEPARATOR = ","
Ask = Callable[[dict[str, Any]], dict[str, Any]]
Row = dict[str, Any]


def offer(stream: str, streams: Iterable[str], on_change: Callable[[], None]) -> None:
    """The list of a tenant's other streams behind a button; keeps session_state `also`."""
    others = [each for each in streams if each != stream and SEPARATOR not in each]
    if not others:
        return
    chosen = chosen_of(st.session_state["also"], others)
    st.session_state["also_chosen"] = chosen

    def keep() -> None:
        st.session_state["also"] = SEPARATOR.join(st.session_state["also_chosen"])
        on_change()

    with st.popover("Streams", icon=":material/stacks:"):
        st.multiselect(
            f"Also in, besides {plain(stream)}",
            others,
            key="also_chosen",
            on_change=keep,
            max_selections=STREAMS_MAX - 1,
            placeholder="other streams",
        )


def chosen_of(also: str, others: Iterable[str]) -> list[str]:
    """The streams that an address names besides the first one, as far as there are such."""
    known = set(others)
    return [each for each in dict.fromkeys(also.split(SEPARATOR)) if each in known][: STREAMS_MAX - 1]


@dataclass
class _Source:
    """A stream: rows at hand that no page has shown, the newest first; where it goes on, None: nowhere."""

    stream: str
    rows: list[Row] = field(default_factory=list)
    cursor: str | None = ""
    pin: str = ""


@dataclass
class Together:
    """The pages of one question to these streams."""

    streams: Sequence[str]
    sources: list[_Source] = field(init=False)

    def __post_init__(self) -> None:
        self.sources = [_Source(each) for each in self.streams]

    def page(self, body: dict[str, Any], ask: Ask) -> dict[str, Any]:
        """The next page, as the API answers one of a single stream, each row with its `stream`. `body`: the
        question with its `limit`. Raises what `ask` raises; asked again it goes on where it was."""
        wanted, answers = int(body["limit"]), list[dict[str, Any]]()
        for source in self.sources:
            if len(source.rows) >= wanted or source.cursor is None:
                continue
            more = {"cursor": source.cursor} if source.cursor else {}
            answer = ask({**body, "stream": source.stream, "pin": source.pin, **more})
            source.rows += [{**row, "stream": source.stream} for row in answer["rows"]]
            source.cursor, source.pin = answer["next"], answer["pin"]
            body = {**body, "from": answer["from"], "to": answer["to"]}  # `now` is the same for all
            answers.append(answer)
        rows = sorted(
            (row for source in self.sources for row in source.rows),
            key=_moment,
            reverse=True,
        )[:wanted]
        shown = {id(row) for row in rows}
        for source in self.sources:
            source.rows = [row for row in source.rows if id(row) not in shown]
        goes_on = any(source.rows or source.cursor for source in self.sources)
        return {**together(answers), "rows": rows, "next": "more" if goes_on else None, "pin": ""}

    def counts(self, body: dict[str, Any], ask: Ask) -> dict[str, Any]:
        """The histogram of all streams, as the API answers one of a single one."""
        answers = [ask({**body, "stream": source.stream, "pin": source.pin}) for source in self.sources]
        buckets = dict[str, dict[str, Any]]()
        for bucket in (each for answer in answers for each in answer["buckets"]):
            known = buckets.setdefault(bucket["start"], {"start": bucket["start"], "rows": 0, "levels": {}})
            known["rows"] += bucket["rows"]
            # Rows of a stream without severities stand beside those of one that has some.
            for level, rows in (bucket["levels"] or {OTHER: bucket["rows"]}).items():
                known["levels"][level] = known["levels"].get(level, 0) + rows
        return {
            **together(answers),
            "buckets": [buckets[start] for start in sorted(buckets)],
            "rows": sum(answer["rows"] for answer in answers),
            "pin": "",
        }


def together(answers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What several answers rest on: as good as the worst of them."""
    if not answers:
        return {}
    freshness = [answer["freshness"] for answer in answers]
    common = [warning for warning in answers[0]["warnings"] if all(warning in a["warnings"] for a in answers)]
    return {
        **answers[0],
        "complete": all(answer["complete"] for answer in answers),
        "as_usual": all(answer["as_usual"] for answer in answers),
        "pinned": all(answer["pinned"] for answer in answers),
        "pin_expires": any(answer["pin_expires"] for answer in answers),
        "reasons": list(dict.fromkeys(reason for answer in answers for reason in answer["reasons"])),
        # A field that one of the streams lacks is no fault of the question.
        "warnings": common,
        "scanned": _summed([answer["scanned"] for answer in answers]),
        "planned": _summed([answer["planned"] for answer in answers]),
        "took_ms": sum(answer["took_ms"] for answer in answers),
        "engine": ", ".join(dict.fromkeys(answer["engine"] for answer in answers)),
        "freshness": {
            **freshness[0],
            "newest_row": max((each["newest_row"] for each in freshness if each["newest_row"]), default=None),
            "complete_until": min(
                (each["complete_until"] for each in freshness if each["complete_until"]), default=None
            ),
        },
    }


def _summed(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {name: sum(part[name] for part in parts) for name in parts[0]}


def _moment(row: Row) -> str:
    """RFC 3339 in UTC, in which a shorter fraction comes first of what is equal up to there."""
    return str(row["timestamp"]).removesuffix("Z")
