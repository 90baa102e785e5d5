"""Compares the database with the storage."""

from collections.abc import Iterator

from sqlalchemy import text

from catalog.model.error_response import CatalogError
from catalog.model.identifier import dotted
from catalog.store.database import Database
from catalog.store.metadata_store import MetadataStore


def check(database: Database, store: MetadataStore) -> Iterator[str]:
    """Sentences about rows whose metadata file is missing or whose location lies outside what is allowed."""
    with database.read() as connection:
        rows = connection.execute(
            text("SELECT namespace, name, location, metadata_location FROM tables ORDER BY ident")
        ).all()
    for namespace, name, location, metadata_location in rows:
        title = f"{dotted(namespace)}.{name}"
        for what, uri in (("location", location), ("metadata file", metadata_location)):
            try:
                store.check_location(uri, what)
            except CatalogError as error:
                yield f"{title}: {error.message}"
        if not store.exists(metadata_location):
            yield (
                f"{title}: metadata file {metadata_location} is missing; restore it, or run `python -m "
                "catalog rebuild --from-warehouse`"
            )
