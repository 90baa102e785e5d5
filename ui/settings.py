"""What the front end is told: one thing, where the search API is."""

import os

API_VARIABLE = "FIRN_UI_API"
API_DEFAULT = "http://127.0.0.1:8282"


def api_uri() -> str:
    """The address of the search API."""
    return os.environ.get(API_VARIABLE, API_DEFAULT)
