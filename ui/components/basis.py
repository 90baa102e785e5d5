"""What an answer rests on, in one quiet line, and loudly where it is not complete."""

from typing import Any

import streamlit as st

from ui.components.plain_text import plain
from ui.components.wording import age, count, size


def warn(answer: dict[str, Any]) -> None:
    """A warning where something is or may be missing."""
    if not answer["complete"]:
        reasons = [plain(reason[:1].upper() + reason[1:].rstrip(".") + ".") for reason in answer["reasons"]]
        st.warning(f"**Not complete.** {' '.join(reasons)}", icon=":material/hourglass_top:")


def show(answer: dict[str, Any], rows: int) -> None:
    """Rows found, effort, freshness."""
    scanned, planned = answer["scanned"], answer["planned"]
    parts = [
        f"**{count(rows, 'row')}**",
        f"{scanned['files']:,} of {count(planned['files'], 'file')} read, {size(scanned['bytes'])}",
        f"newest row {age(answer['freshness']['newest_row'])}",
        f"{answer['took_ms']:,.0f} ms on {plain(answer['engine'])}",
    ]
    if answer["complete"]:
        parts.insert(1, "complete")
    if answer["pinned"]:
        parts.insert(1, "pinned: the rows this link was made of")
    st.caption(" · ".join(parts))
