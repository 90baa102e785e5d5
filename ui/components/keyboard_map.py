"""Which keys do what on the search page."""

import streamlit as st

MORE, NARROW = "M", "N"
KEYS = f"""
| key | what it does |
|---|---|
| `Tab`, `Shift+Tab` | goes to the next part of the page, or to the one before |
| `Enter` in the search | searches |
| `↓` in a list, then a few letters, `Enter` | chooses a tenant, a stream, a time range |
| `↑` `↓` `Page Up` `Page Down` in the table | goes through the rows |
| `Shift+Space` in the table | opens the row, or closes it |
| `Ctrl+F` in the table | searches in what the table shows |
| `{MORE}` | shows more rows |
| `{NARROW}` | narrows the time range to what is chosen in the chart |
| `Esc` | closes what was opened last |
| `R` | draws the page anew |
"""


def show() -> None:
    """The table of keys behind a button."""
    with st.popover("Keys", icon=":material/keyboard:"):
        st.markdown(KEYS)
