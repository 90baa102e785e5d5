"""What the tables of the simulation are like at the end of a week, and the catalog's database with them."""

import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Self

from lake.storage import local_path
from lake.table_files import load_manifest_list
from lake.table_location import TableLocation
from tests.simulation.traffic import FOR_EVER, Tenant
from tests.simulation.world import World

LEVEL, DRIFTING, EVER = "level", "drifting", "for_ever"


def class_of(tenant: Tenant) -> str:
    """Which tables it belongs to: those of which all is level after a fortnight, or others."""
    if tenant.slot == FOR_EVER:
        return EVER
    return DRIFTING if tenant.drifts else LEVEL


@dataclass(frozen=True, slots=True)
class Shape:
    """One table. Bytes of metadata are those that a reader of the newest version needs: the metadata
    file, the manifest list, the manifests. `objects`: all files below its location, of old versions
    too."""

    files: int
    manifests: int
    snapshots: int
    schemas: int
    columns: int
    metadata_file_bytes: int
    metadata_bytes: int
    objects: int
    object_bytes: int
    data_bytes: int


def shape_of(world: World, answer: Mapping[str, Any]) -> Shape:
    """The shape of a table that the catalog has told of."""
    metadata = answer["metadata"]
    location = TableLocation.of(metadata)
    head = next(s for s in metadata["snapshots"] if s["snapshot-id"] == metadata["current-snapshot-id"])
    manifests = load_manifest_list(world.storage, head["manifest-list"], location)
    file_bytes = local_path(answer["metadata-location"]).stat().st_size
    list_bytes = local_path(head["manifest-list"]).stat().st_size
    schema = next(s for s in metadata["schemas"] if s["schema-id"] == metadata["current-schema-id"])
    sizes = list(_sizes(local_path(metadata["location"])))
    return Shape(
        int(head["summary"]["total-data-files"]),
        len(manifests),
        len(metadata["snapshots"]),
        len(metadata["schemas"]),
        len(schema["fields"]),
        file_bytes,
        file_bytes + list_bytes + sum(manifest.length for manifest in manifests),
        len(sizes),
        sum(sizes),
        int(head["summary"]["total-files-size"]),
    )


def _sizes(folder: Path) -> Iterator[int]:
    """Of all files below a folder, bytes."""
    for place, _, names in os.walk(folder):
        yield from (os.stat(os.path.join(place, name)).st_size for name in names)


@dataclass(frozen=True, slots=True)
class Tables:
    """All tables of tenants as they are now. `shapes`: by class; `level`: tenants whose tables are of that
    class; `wrong`: which have too many rows or too few."""

    shapes: dict[str, list[Shape]] = field(default_factory=dict)
    level: list[Tenant] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, world: World) -> Self:
        """Looks at them. Maintenance has to have settled."""
        found = cls()
        for tenant, answer in world.answers():
            if wrong := world.wrong_rows(tenant, answer):
                found.wrong.append(wrong)
            if answer is None or answer["metadata"].get("current-snapshot-id") is None:
                continue
            name = class_of(tenant)
            found.shapes.setdefault(name, []).append(shape_of(world, answer))
            if name == LEVEL:
                found.level.append(tenant)
        return found


def spread(values: Iterable[float]) -> dict[str, float]:
    """Median, p99 and the largest."""
    ordered = sorted(values)
    return {
        "median": median(ordered),
        "p99": ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))],
        "max": ordered[-1],
    }


def spreads(tables: Sequence[Shape]) -> dict[str, dict[str, float]]:
    """Of each figure of a table."""
    return {name: spread(getattr(table, name) for table in tables) for name in Shape.__slots__}


def database_figures(database: Path) -> dict[str, int]:
    """Bytes of the catalog's database, those in use, and rows by table."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:

        def one(statement: str) -> int:
            return int(connection.execute(statement).fetchone()[0])

        page, pages, free = (one(f"PRAGMA {name}") for name in ("page_size", "page_count", "freelist_count"))
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        rows = {f"rows_{name}": one(f'SELECT COUNT(*) FROM "{name}"') for name in sorted(_own(names))}
    wal = database.with_name(database.name + "-wal")
    return {
        "file_bytes": page * pages,
        "used_bytes": page * (pages - free),
        "log_bytes": wal.stat().st_size if wal.exists() else 0,
        **rows,
    }


def _own(names: Iterable[str]) -> Iterator[str]:
    return (name for name in names if not name.startswith("sqlite_"))
