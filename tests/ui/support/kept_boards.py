"""A board as somebody has kept it."""

from lake.catalog_client import CatalogClient
from lake.tenant import TenantId
from query.tables.board import board_of
from query.tables.board_store import BoardStore, StoredBoard

NAME = "kept-board"


def keep_board(catalog: CatalogClient, tenant: TenantId, text: str) -> None:
    """Keeps a board that says a text wherever it may, in searches with and without pipes and in a
    statement."""
    tiles = [
        {"title": text, "query": "", "shown": "table"},
        {"title": text, "query": "", "shown": "bars", "size": "large"},
        {"title": text, "query": "| stats count() as n by message", "shown": "bars"},
        {"title": text, "query": "| patterns", "size": "small"},
        {"title": text, "query": f"{text} AND (", "size": "small"},
        {"title": text, "sql": f"SELECT '{text}' AS \"{text}\"", "shown": "figure", "size": "small"},
    ]
    board = board_of({"title": text, "from": "now-1h", "tiles": tiles})
    BoardStore(catalog).keep(StoredBoard(tenant, NAME, board, text, "2026-09-01T09:00:00Z"))
