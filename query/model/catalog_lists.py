"""Lists of our catalog's extras, page by page."""

from collections.abc import Iterator
from typing import Any

from lake.catalog_client import CatalogClient

PAGE_SIZE = 1_000


def entries(catalog: CatalogClient, path: str, key: str, **query: Any) -> Iterator[dict[str, Any]]:
    """Every entry of a list under /firn/v1, `key` being its name in the answer. Raises NotFoundError beside a
    catalog without extras."""
    token = None
    while True:
        page = catalog.get(path, pageSize=PAGE_SIZE, pageToken=token, **query)
        yield from page[key]
        token = page.get("next-page-token")
        if not token:
            return
