"""What an answer rests on, in one quiet line, and loudly where something is wrong."""

from typing import Any

import streamlit as st

from ui.components.plain_text import plain
from ui.components.wording import age, count, size


def warn(answer: dict[str, Any]) -> None:
    """A warning where more is or may be missing than the newest records, which are always on their way."""
    if not answer["as_usual"]:
        reasons = [plain(reason[:1].upper() + reason[1:].rstrip(".") + ".") for reason in answer["reasons"]]
        st.warning(f"**Not complete.** {' '.join(reasons)}", icon=":material/hourglass_top:")


def show(answer: dict[str, Any], rows: int | None) -> None:
    """Rows found (None: they were not counted), effort, freshness."""
    scanned, planned = answer["scanned"], answer["planned"]
    parts = [
        "not counted" if rows is None else f"**{count(rows, 'row')}**",
        f"{scanned['files']:,} of {count(planned['files'], 'file')} read, {size(scanned['bytes'])}",
        f"newest row {age(answer['freshness']['newest_row'])}",
        f"{answer['took_ms']:,.0f} ms on {plain(answer['engine'])}",
    ]
    if answer["complete"]:
        parts.insert(1, "complete")
    elif answer["as_usual"]:
        parts.insert(1, f"everything until {age(answer['freshness']['complete_until'])}")
    if answer["pinned"]:
        parts.insert(1, "pinned: the rows this link was made of")
    st.caption(" · ".join(parts))
