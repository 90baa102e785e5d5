"""Files of an archive in tables: every record once, run again as often as one likes, killed wherever it may
be, beside a live ingester."""

import gzip
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from infra.local.jvm_parts import REPOSITORY
from lake.backfill_mark import BACKFILL_PREFIX
from lake.catalog_client import TableName
from lake.extras_client import ExtrasClient
from lake.storage import open_storage
from lake.tenant import to_identifier
from tests.environment import without_settings
from tests.optimize.conftest import Optimizer
from tests.optimize.support.live_files import live_files
from tests.stack.support.forked import run_room
from tests.stack.support.kafka_topics import Record
from tests.stack.support.line import Line
from tests.stack.support.parked import table_name
from tests.stack.support.waiting import fresh, wait_for

pytestmark = pytest.mark.stack

RUN_S = 120.0
KILLED = -9
FAULTS = (
    "files_written",
    "files_synced",
    "dead_letters_acknowledged",
    "handed_over",
    "metadata_written",
    "commit_answered",
    "settled",
)
# Every run of the tests kills at these two; the long proofs at all of them.
FIRST_FAULTS = ("metadata_written", "settled")


class Archive:
    """A folder of files, the records that are to become rows by (path, number), and those that cannot."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows: dict[tuple[str, int], int | None] = {}  # what field `n` says, None where there is none
        self.bad: set[tuple[str, int]] = set()

    def uri(self, name: str) -> str:
        return f"file://{self.folder / name}"

    def put(self, name: str, data: bytes) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def ndjson(self, name: str, first: int, count: int, *, bad_every: int = 0) -> None:
        """JSON lines, an hour's worth each 200, packed as the name says; every so many of them cut off."""
        lines = []
        for at in range(count):
            line = orjson.dumps(
                {
                    "time": _time(at),
                    "level": "info",
                    "message": f"record {first + at}",
                    "n": first + at,
                    f"only_{first % 7}": "x" * (at % 40),
                }
            )
            is_bad = bool(bad_every) and at % bad_every == bad_every - 1
            lines.append(line[:-5] if is_bad else line)
            if is_bad:
                self.bad.add((self.uri(name), at))
            else:
                self.rows[self.uri(name), at] = first + at
        self.put(name, _packed(name, b"\n".join(lines) + b"\n"))

    def text(self, name: str, count: int) -> None:
        """Lines of text, blank ones among them."""
        lines = [
            b"" if at % 10 == 9 else f"2024-03-01T10:00:{at % 60:02}Z app[1]: line {at}".encode()
            for at in range(count)
        ]
        self.rows |= {(self.uri(name), at): None for at, line in enumerate(lines) if line}
        self.put(name, _packed(name, b"\n".join(lines)))

    def parquet(self, name: str, first: int, count: int) -> None:
        """Rows of a table."""
        numbers = range(first, first + count)
        times = pa.array([1_709_290_800_000_000_000 + at for at in range(count)], pa.timestamp("ns", "UTC"))
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(
            pa.table({"time": times, "message": [f"row {n}" for n in numbers], "n": numbers}),
            path,
            row_group_size=100,
        )
        self.rows |= {(self.uri(name), at): n for at, n in enumerate(numbers)}


def _time(at: int) -> str:
    return f"2024-03-{1 + at // 4_800 % 28:02}T{at // 200 % 24:02}:{at // 60 % 60:02}:{at % 60:02}Z"


def _packed(name: str, data: bytes) -> bytes:
    half = len(data) // 2
    if name.endswith(".gz"):
        return gzip.compress(data[:half]) + gzip.compress(data[half:])
    return (
        zstandard.compress(data[:half]) + zstandard.compress(data[half:]) if name.endswith(".zst") else data
    )


class BackfillRun:
    """`python -m ingest backfill files` as a process, into a tenant of its own."""

    def __init__(self, line: Line, folder: Path, **settings: str) -> None:
        self.line, self.folder, self.began_s = line, folder, time.time()
        self.tenant = fresh("old-")
        self.dead_letter_topic = fresh("dead-")
        inherited = without_settings()
        own = {
            "kafka__group": fresh("g-"),
            "internal_topics__dead_letters": self.dead_letter_topic,
            "kafka__bootstrap_servers": line.kafka.bootstrap_servers,
            **settings,
        }
        variables = {f"FIRN_INGEST_{name.upper()}": value for name, value in own.items() if value}
        self.environment = {
            **inherited,
            **line.stack.environment(),
            **variables,
            "FIRN_CONFIG": "",
            "COLUMNS": "200",
        }
        if not own["kafka__bootstrap_servers"]:
            self.environment.pop("FIRN_INGEST_KAFKA__BOOTSTRAP_SERVERS", None)

    def start(self, *arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        tied = (setpriv, "--pdeathsig", "KILL", "--") if (setpriv := shutil.which("setpriv")) else ()
        command = (*tied, sys.executable, "-m", "ingest", "backfill", "files", *arguments, "--json")
        variables = {**self.environment, **(environment or {})}
        return subprocess.Popen(
            command, cwd=REPOSITORY, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def done(
        self,
        *arguments: str,
        code: int = 0,
        environment: Mapping[str, str] | None = None,
        timeout_s: float = RUN_S,
    ) -> dict[str, Any]:
        """The report of a run that has to end with this code; its errors under `stderr`."""
        variables = {**self.environment, **(environment or {})}
        done = run_room(
            "ingest", "backfill", "files", *arguments, "--json", environment=variables, timeout_s=timeout_s
        )
        assert done.returncode == code, f"ended with {done.returncode}:\n{done.stderr}"
        return {**(orjson.loads(done.stdout) if done.stdout else {}), "stderr": done.stderr}

    def into_tenant(self, *patterns: str, **more: Any) -> dict[str, Any]:
        return self.done(*patterns, "--tenant", self.tenant, **more)

    def rows(self) -> list[tuple[str, int, int | None]]:
        """Path, number of the record, and field `n` of every row that comes from a file."""
        columns = "_topic, _offset, TRY_CAST(n AS BIGINT), _topic_partition, _index"
        found = self.line.sql(
            f"SELECT {columns} FROM {self.line.table(self.tenant)} WHERE _topic LIKE 'file:%'"
        )
        assert all(row[3:] == (0, 0) for row in found)
        return [(row[0], row[1], row[2]) for row in found]

    def dead(self) -> list[tuple[str, int]]:
        """Path and number of every letter of the topic, repeated ones too."""
        return [
            (letter.facts["firn.topic"], int(letter.facts["firn.offset"]))
            for letter in self.line.kafka.read(self.dead_letter_topic)
        ]

    def is_exact(self, archive: Archive) -> None:
        """Every record of the archive is a row once."""
        rows = self.rows()
        assert len(rows) == len(archive.rows)
        assert {(path, number): n for path, number, n in rows} == archive.rows

    def properties(self) -> dict[str, str]:
        table = self.line.catalog.load_table(TableName(to_identifier(self.tenant), to_identifier("logs")))
        return dict(table["metadata"]["properties"])


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """Files of every kind."""
    archive = Archive(tmp_path / "archive")
    archive.ndjson("2024/a.ndjson.gz", 0, 3_000, bad_every=500)
    archive.ndjson("2024/b.json.zst", 3_000, 2_000)
    archive.ndjson("2024/deep/er/c.ndjson", 5_000, 1_000, bad_every=100)
    archive.text("2024/d.log", 500)
    archive.parquet("2024/e.parquet", 6_000, 1_500)
    archive.put("2024/empty.log", b"")
    archive.put("2024/beside.txt", b"not asked for\n")
    return archive


PATTERNS = ("**/*.gz", "**/*.zst", "**/*.ndjson", "2024/*.log", "*/e.parquet")


def _patterns(archive: Archive) -> list[str]:
    return [archive.uri(pattern) for pattern in PATTERNS]


def test_archive_is_in_the_table_once_however_often_it_is_read(
    line: Line, tmp_path: Path, archive: Archive
) -> None:
    """Every record of every kind of file is a row under its path and number, or one dead letter; a second run
    adds nothing and says so."""
    run = BackfillRun(line, tmp_path)
    report = run.into_tenant(*_patterns(archive))
    run.is_exact(archive)
    blank = 49  # the last one has no line end, so it is no line
    total = len(archive.rows) + len(archive.bad) + blank
    assert (report["files"], report["records"], report["rows"], report["blank"]) == (
        6,
        total,
        len(archive.rows),
        blank,
    )
    assert (report["dead_letters"], report["skipped"], report["failed"]) == (len(archive.bad), 0, {})
    assert sorted(run.dead()) == sorted(archive.bad)
    assert sum(name.startswith(BACKFILL_PREFIX) for name in run.properties()) == 5
    again = run.into_tenant(*_patterns(archive))
    assert (again["rows"], again["dead_letters"], again["skipped"], again["records"]) == (0, 0, total, total)
    run.is_exact(archive)
    assert len(run.dead()) == len(archive.bad)


@pytest.mark.parametrize(
    "step", [step if step in FIRST_FAULTS else pytest.param(step, marks=pytest.mark.prove) for step in FAULTS]
)
def test_killed_run_is_completed_by_the_next(line: Line, tmp_path: Path, archive: Archive, step: str) -> None:
    """Killed at each step of the protocol while most of the archive is still to come, and run again: every
    record once, every bad one a letter."""
    run = BackfillRun(line, tmp_path, flush__buffer_bytes_max="300000")
    run.into_tenant(
        *_patterns(archive),
        code=KILLED,
        environment={"FIRN_FAULT_POINT": f"{step}:kill", "FIRN_FAULT_FOLDER": str(tmp_path)},
    )
    assert (tmp_path / f"{step}.reached").exists()
    report = run.into_tenant(*_patterns(archive))
    run.is_exact(archive)
    assert (
        report["rows"]
        + report["skipped"]
        + report["dead_letters"]
        + report["dead_letters_before"]
        + report["blank"]
        >= report["records"]
    )
    assert report["commits"] > 3, "the archive is to be more than one flush"
    assert sorted(run.dead()) == sorted(archive.bad)


def test_archive_beside_a_live_ingester(line: Line, tmp_path: Path, archive: Archive) -> None:
    """Old files go into a table that a node writes to: both are complete, and the node notices nothing but
    conflicts."""
    run = BackfillRun(line, tmp_path, flush__buffer_bytes_max="200000")
    topic = line.kafka.topic(2)
    ingester = line.ingester({"name": topic, "tenant": [f"const:{run.tenant}"]}, flush__interval_s=0.1)
    try:
        process, sent = run.start(*_patterns(archive), "--tenant", run.tenant), 0
        while process.poll() is None or sent < 500:
            line.kafka.produce(
                topic,
                [
                    Record(orjson.dumps({"live": n, "message": "now"}), partition=n % 2)
                    for n in range(sent, sent + 50)
                ],
            )
            sent += 50
        stdout, stderr = process.communicate()
        assert process.returncode == 0, stderr
        assert orjson.loads(stdout)["rows"] == len(archive.rows)
        line.wait_for_rows(ingester, run.tenant, sent + len(archive.rows))
        live = line.sql(f"SELECT live FROM {line.table(run.tenant)} WHERE _topic = '{topic}'")
        assert sorted(int(row[0]) for row in live) == list(range(sent))
        run.is_exact(archive)
        assert ingester.parked(table_name(run.tenant)) == {}
        assert ingester.status()["second_writers"] == []
        assert ingester.status()["restarts"] == 0
    finally:
        ingester.stop()


def test_records_name_their_tenants(line: Line, tmp_path: Path) -> None:
    """Tenants come from a field of the records or from the path; a record that names none is a dead letter,
    once."""
    archive, one, other = Archive(tmp_path / "archive"), fresh("one-"), fresh("other-")
    lines = [orjson.dumps({"n": n, "who": (one, other, None)[n % 3]}) for n in range(30)]
    archive.put("x.json", b"\n".join(lines))
    run = BackfillRun(line, tmp_path)
    for expected in ((20, 10, 0), (0, 0, 20)):
        report = run.done(archive.uri("x.json"), "--tenant-field", "who", "--stream", "old")
        assert (report["rows"], report["dead_letters"], report["skipped"]) == expected
        assert [line.rows_written(tenant, "old") for tenant in (one, other)] == [10, 10]
    assert len(run.dead()) == 10
    archive.put(f"{one}/y.log", b"line\n")
    assert run.done(archive.uri("*/y.log"), "--tenant-path", r".*/([^/]+)/[^/]+\.log")["rows"] == 1
    assert line.rows_written(one) == 1


def test_records_past_the_retention_are_counted_and_kept_as_dead_letters(line: Line, tmp_path: Path) -> None:
    """A table that is there already and one that the archive makes, by what their tenant says; those under a
    legal hold are rows, and so are all once rows are kept for ever."""
    archive = Archive(tmp_path / "archive")
    now = datetime.now(UTC)
    times = [now - timedelta(days=days) for days in (40, 20, 1, 0)]
    lines = [orjson.dumps({"time": at.isoformat(), "n": n}) for n, at in enumerate(times)]
    for name in ("a.json", "b.json", "c.json"):
        archive.put(name, b"\n".join(lines))
    run = BackfillRun(line, tmp_path)
    namespace = to_identifier(run.tenant)
    line.catalog.create_namespace(namespace, {"firn.retention": "10d"})
    rejects = str(tmp_path / "rejects.ndjson")
    report = run.into_tenant(archive.uri("a.json"), "--rejects", rejects)
    assert (report["rows"], report["dead_letters"]) == (2, 2)
    made = ExtrasClient(line.catalog).set_hold(
        namespace, stream=None, start=times[0], end=times[0] + timedelta(hours=1), reason="case 7"
    )
    report = run.into_tenant(archive.uri("b.json"), "--rejects", rejects)
    assert (report["rows"], report["dead_letters"]) == (3, 1)
    ExtrasClient(line.catalog).lift_hold(namespace, made.id)
    line.catalog.set_properties(TableName(namespace, "logs"), {"firn.retention": "forever"})
    report = run.into_tenant(archive.uri("c.json"), "--rejects", rejects)
    assert (report["rows"], report["dead_letters"]) == (4, 0)
    letters = [orjson.loads(text) for text in Path(rejects).read_bytes().splitlines()]
    assert [(letter["offset"], letter["reason"]) for letter in letters] == [
        (0, "past_retention"),
        (1, "past_retention"),
        (1, "past_retention"),
    ]
    assert "keeps rows from" in letters[0]["detail"]


def test_changed_file_is_refused(line: Line, tmp_path: Path) -> None:
    """A file with other content than before is left alone, with a sentence that says what to do; the other
    files go on."""
    archive = Archive(tmp_path / "archive")
    archive.ndjson("a.json", 0, 10)
    run = BackfillRun(line, tmp_path)
    run.into_tenant(archive.uri("*.json"))
    archive.ndjson("a.json", 0, 11)
    archive.ndjson("b.json", 100, 5)
    report = run.into_tenant(archive.uri("*.json"), code=1)
    assert (report["rows"], report["files"]) == (5, 1)
    assert list(report["failed"]) == [archive.uri("a.json")]
    assert "has changed since 10 records of it went into table" in report["failed"][archive.uri("a.json")]
    assert len(run.rows()) == 15


def test_damaged_file_is_told_and_what_precedes_is_kept(line: Line, tmp_path: Path) -> None:
    """A compressed file that is cut off gives what can be read, ends with 1 and is named; the next run adds
    nothing."""
    archive = Archive(tmp_path / "archive")
    archive.put(
        "a.gz",
        gzip.compress(
            b"".join(b'{"n":%d,"x":"%s"}\n' % (n, os.urandom(20).hex().encode()) for n in range(5_000))
        )[:-20_000],
    )
    run = BackfillRun(line, tmp_path)
    report = run.into_tenant(archive.uri("a.gz"), code=1)
    assert "damaged or cut off" in report["failed"][archive.uri("a.gz")]
    assert 0 < report["rows"] == len(run.rows()) < 5_000
    assert run.into_tenant(archive.uri("a.gz"), code=1)["rows"] == 0


def test_without_kafka_rejects_go_to_a_file(line: Line, tmp_path: Path, archive: Archive) -> None:
    """Nothing is asked of Kafka: bad records are lines of a file, each once, also after a crash that left
    half a line; without a place there is an error."""
    run, rejects = (
        BackfillRun(line, tmp_path, kafka__bootstrap_servers="", flush__buffer_bytes_max="300000"),
        tmp_path / "rejects.ndjson",
    )
    assert "--rejects FILE" in run.into_tenant(*_patterns(archive), code=2)["stderr"]
    arguments = (*_patterns(archive), "--rejects", str(rejects))
    run.into_tenant(
        *arguments,
        code=KILLED,
        environment={"FIRN_FAULT_POINT": "handed_over:kill", "FIRN_FAULT_FOLDER": str(tmp_path)},
    )
    with rejects.open("ab") as file:
        file.write(b'{"reason":"und')
    run.into_tenant(*arguments)
    run.into_tenant(*arguments)
    run.is_exact(archive)
    letters = [orjson.loads(text) for text in rejects.read_bytes().splitlines()]
    assert sorted((letter["topic"], letter["offset"]) for letter in letters) == sorted(archive.bad)
    assert {letter["reason"] for letter in letters} == {"undecodable"}
    assert all(letter["value"].startswith('{"time":') for letter in letters)


class LargeArchive:
    """An archive of a given number of records by repetition: generated logs and, where they are, the data
    sets, compressed."""

    def __init__(self, folder: Path, records: int) -> None:
        self.folder, self.records, self.blank = folder, 0, 0
        folder.mkdir()
        contents = {"generated.ndjson.gz": gzip.compress(b"".join(_generated(at) for at in range(50_000)), 1)}
        if (datasets := os.environ.get("FIRN_DATASETS")) is not None:
            contents |= {path.name: path.read_bytes() for path in sorted(Path(datasets).glob("*.zst"))}
        lines = {name: _lines(data) for name, data in contents.items()}
        at = 0
        while self.records < records:
            for name, data in contents.items():
                (folder / f"{name}.{at:03}").write_bytes(data)
                self.records += len(lines[name])
                self.blank += sum(not text.strip() for text in lines[name])
            at += 1


def _generated(at: int) -> bytes:
    return b'{"time":"%s","level":"info","message":"request %d","path":"/p/%d","status":"%d"}\n' % (
        _time(at).encode(),
        at,
        at % 97,
        200 + at % 5,
    )


def _lines(data: bytes) -> list[bytes]:
    plain = (
        gzip.decompress(data)
        if data[:2] == b"\x1f\x8b"
        else zstandard.ZstdDecompressor().stream_reader(data).read()
    )
    return plain.removesuffix(b"\n").split(b"\n")


@pytest.mark.prove
@pytest.mark.timeout(3_600)
def test_million_records_with_a_crash_in_the_middle(line: Line, tmp_path: Path) -> None:
    """A large archive is killed in the middle and run again: every record is a row or a dead letter, no
    identity twice, and once more adds nothing.

    After one round of maintenance the table lies as after live ingestion and one round: each hour that is
    over is one file, of the rows of that hour.
    """
    archive = LargeArchive(tmp_path / "archive", int(os.environ.get("FIRN_BACKFILL_RECORDS", "1000000")))
    run = BackfillRun(line, tmp_path)
    pattern = f"{archive.folder}/*"
    process = run.start(pattern, "--tenant", run.tenant)
    wait_for(
        lambda: line.rows_written(run.tenant) > archive.records // 3, 1_800, "a third of the rows", poll_s=0.2
    )
    process.kill()
    process.communicate()
    half = line.rows_written(run.tenant)
    assert half < archive.records, "it was killed too late to show anything"
    report = run.into_tenant(pattern, timeout_s=3_000)
    assert report["skipped"] > 0
    assert report["records"] == archive.records
    assert (report["blank"], report["failed"]) == (archive.blank, {})
    table = line.table(run.tenant)
    ((rows, identities, messages),) = line.sql(
        "SELECT count(*), count(DISTINCT ROW(_topic_id, _offset, _index)), count(DISTINCT ROW(_topic_id, "
        f"_offset)) FROM {table}"
    )
    assert rows == identities == half + report["rows"]
    assert messages + len(set(run.dead())) == archive.records - archive.blank
    again = run.into_tenant(pattern, timeout_s=3_000)
    assert (again["rows"], again["dead_letters"], again["skipped"]) == (0, 0, archive.records)
    before = _files_by_hour(line, run.tenant)
    optimizer = Optimizer(tmp_path, line.stack)
    try:
        assert (
            optimizer.start("run", "--once", "--table", f"{to_identifier(run.tenant)}.logs").wait(1_800) == 0
        ), optimizer.log()[-4_000:]
    finally:
        optimizer.kill()
    after = _files_by_hour(line, run.tenant)
    assert after.keys() == before.keys()
    over = [hour for hour in after if hour < int(run.began_s) // 3_600 - 1]
    assert len(over) > 100, "the archive is to be of many hours"
    assert {after[hour] for hour in over} == {1}
    assert line.sql(f"SELECT count(*), count(DISTINCT ROW(_topic_id, _offset, _index)) FROM {table}") == [
        (rows, rows)
    ]
    print(
        f"{archive.records:,} records, killed at {half:,} rows, {report['commits']} commits and "
        f"{report['seconds']} s later {rows:,} rows"
    )
    print(
        f"{sum(before.values()):,} files of {len(before):,} hours, after one round of maintenance "
        f"{sum(after.values()):,}"
    )


def _files_by_hour(line: Line, tenant: str) -> dict[int, int]:
    return live_files(line.catalog, open_storage(), TableName(to_identifier(tenant), "logs"))
