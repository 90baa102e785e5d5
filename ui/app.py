"""Firn in the browser: the script that Streamlit runs for every page; `python -m ui serve` starts it."""

import streamlit as st

from ui.app_pages import alerts, boards, dead_letters, errors, health, search, sql, tail, tenants
from ui.components.session import sign_in
from ui.components.tailing import leave
from ui.url_state import address_of

st.set_page_config(
    page_title="Firn", page_icon=":material/ac_unit:", layout="wide", initial_sidebar_state="collapsed"
)
# Streamlit leaves a hand's breadth above a page, and sets statements like prose.
STYLE = (
    ".stMainBlockContainer{padding-top:4.5rem;padding-bottom:3rem;max-width:1700px}.stTextArea "
    "textarea{font-family:monospace}"
)
# The tables' own download writes cells that spreadsheets calculate; exports and the SQL page have one that
# does not.
STYLE += '[data-testid="stElementToolbar"] button[aria-label^="Download as CSV"]{display:none}'
# Grey on white, or dark blue on black, is not read by everybody. `light-dark` goes by the scheme of the app.
STYLE += (
    'div[data-testid="stCaptionContainer"]{opacity:.8}button kbd{color:inherit!important;opacity:1!important}'
    '[data-testid="stTab"][aria-selected="true"] p{color:light-dark(#2f6f8f,#8cc4df)}'
    '[data-testid="stButtonGroup"] button p{color:light-dark(#1f2a33,#dfe6ec)}'
    '[data-testid="stCode"] span.token{color:light-dark(#5a3f8f,#c3b5f5)!important}'
    '[data-testid="stCode"] span.token.property{color:light-dark(#1c5f80,#8cc4df)!important}'
    '[data-testid="stCode"] span.token.string{color:light-dark(#216b34,#8fd3a0)!important}'
    '[data-testid="stCode"] span.token.punctuation{color:inherit!important}'
)
st.html(f"<style>{STYLE}</style>")
page = st.navigation(
    [
        st.Page(search.show, title="Search", icon=":material/search:", url_path="search", default=True),
        st.Page(tail.show, title="Live tail", icon=":material/stream:", url_path="tail"),
        st.Page(sql.show, title="SQL", icon=":material/database:", url_path="sql"),
        st.Page(boards.show, title="Boards", icon=":material/dashboard:", url_path="boards"),
        st.Page(tenants.show, title="Tenants and streams", icon=":material/table_rows:", url_path="tenants"),
        st.Page(alerts.show, title="Alerts", icon=":material/notifications:", url_path="alerts"),
        st.Page(errors.show, title="Errors", icon=":material/rule:", url_path="errors"),
        st.Page(dead_letters.show, title="Dead letters", icon=":material/mail_off:", url_path="dead-letters"),
        st.Page(health.show, title="Health", icon=":material/monitor_heart:", url_path="health"),
    ],
    position="top",
)
params = [(name, each) for name in st.query_params for each in st.query_params.get_all(name)]
sign_in(address_of(page.url_path, params))
if page.url_path != "tail":
    leave()
page.run()
