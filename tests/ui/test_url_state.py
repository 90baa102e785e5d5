"""Addresses: what a page's state becomes and is read back from."""

from urllib.parse import parse_qsl, urlsplit

from hypothesis import given
from hypothesis import strategies as st

from ui.url_state import SearchState, from_params, link, parse_row_key, row_key, to_params

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
