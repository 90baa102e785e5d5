"""Addresses: what a page's state becomes and is read back from."""

import re
from urllib.parse import parse_qsl, urljoin, urlsplit

from hypothesis import given
from hypothesis import strategies as st

from ui.url_state import (
    ADDRESS_CHARACTERS_MAX,
    PARAMETERS_MAX,
    SearchState,
    address_of,
    from_params,
    link,
    page_address,
    parse_row_key,
    row_key,
    to_params,
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@given(
    st.builds(
        SearchState,
        tenant=texts,
        stream=texts,
        query=texts,
        from_=texts.filter(bool),
        to=texts.filter(bool),
        pin=texts,
        row=texts,
    )
)
def test_a_state_survives_its_address(state: SearchState) -> None:
    """Whatever is searched, the address gives exactly it back."""
    address = link("http://127.0.0.1:8501/search?old=1#x", state)
    assert from_params(dict(parse_qsl(urlsplit(address).query))) == state
    assert from_params(to_params(state)) == state


def test_an_address_without_parameters_is_the_last_hour() -> None:
    """Defaults where nothing is said; unknown parameters are left alone."""
    assert from_params({"utm": "x"}) == SearchState(from_="now-1h", to="now")


def test_a_rows_key_holds_its_time_and_identity() -> None:
    """A row in an address becomes the parameters of the question for it; anything else is no row."""
    key = row_key(
        {"topic": "t", "topic_id": "Ab-_9", "partition": 3, "offset": 10**15, "index": 0},
        "2026-11-21T10:00:00.000001Z",
    )
    assert parse_row_key(key) == {
        "timestamp": "2026-11-21T10:00:00.000001Z",
        "topic_id": "Ab-_9",
        "partition": "3",
        "offset": str(10**15),
        "index": "0",
    }
    assert parse_row_key("nonsense") is None


@given(st.text(), st.text())
def test_an_address_to_come_back_to_is_a_page_of_ours_whatever_was_asked_for(start: str, rest: str) -> None:
    """Same scheme, host and port, however a browser reads it; nothing that would be another header."""
    for asked in (start + rest, "/" + start + rest, "//" + start, "/search?" + rest, "/\\" + start):
        address = page_address(asked)
        assert urljoin("https://pages.example/oauth2callback", address).startswith("https://pages.example/")
        assert re.fullmatch(r"/[a-z-]*(\?[!-~]*)?", address)
        assert "\\" not in address
        assert "//" not in address


@given(st.lists(st.tuples(texts.filter(bool), texts), max_size=20))
def test_an_address_of_a_page_comes_back_as_it_was(params: list[tuple[str, str]]) -> None:
    """Every parameter, in its order, several of a name too."""
    asked = address_of("search", params)
    assert page_address(asked) == asked
    assert parse_qsl(urlsplit(asked).query, keep_blank_values=True) == params


def test_an_address_that_is_too_long_leads_to_its_page() -> None:
    """And one of too many parameters, which would be work to read."""
    assert page_address("/sql?q=" + "x" * ADDRESS_CHARACTERS_MAX) == "/sql"
    assert page_address("/sql?" + "&".join("a=b" for _ in range(PARAMETERS_MAX + 1))) == "/sql"
