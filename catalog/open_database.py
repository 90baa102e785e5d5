"""The database of a command: the option that says where it is, and opening it."""

import re
from typing import Annotated

import structlog
import typer

from catalog.store.database import Database, migrate
from lake.settings import CatalogSettings

log = structlog.get_logger()
PASSWORD = re.compile(r"://[^/@]*:[^/@]+@|[?&]password=")


def _warn_of_password(url: str | None) -> str | None:
    """Says that everybody on the machine can read a password on a command line."""
    if url is not None and PASSWORD.search(url):
        log.warning(
            "catalog.password_on_command_line",
            advice="set FIRN_CATALOG_DATABASE_URL, or name a file in FIRN_CATALOG_DATABASE_URL_FILE",
        )
    return url


DatabaseUrl = Annotated[
    str | None,
    typer.Option(
        help=(
            "SQLAlchemy URL: sqlite:///path or postgresql+psycopg://user@host/name; one with a password "
            "belongs into FIRN_CATALOG_DATABASE_URL_FILE"
        ),
        callback=_warn_of_password,
    ),
]


def open_database(database_url: str | None, warehouse: str | None = None) -> tuple[Database, CatalogSettings]:
    """The database of this version's schema, and the settings; either URL None: as the settings say. Raises
    SettingsError."""
    settings = CatalogSettings.load(database_url=database_url, warehouse=warehouse)
    database = Database(settings.database_url.get_secret_value())
    migrate(database)
    return database, settings
