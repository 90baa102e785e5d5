"""`python -m infra.demo.produce`: the first load, then a trickle with current times, and a tally of what was
delivered."""

import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import structlog
import typer

from infra.demo.collector import Collector
from infra.demo.load import Mixture, records_of
from infra.demo.producer import PARTITIONS_DEFAULT, DemoProducer, create_topics
from infra.demo.tally import State, Tally
from lake.clock import Clock, SystemClock, epoch_ms
from lake.errors import FirnError
from lake.logs import configure_logs

RECORDS_DEFAULT = 120_000
HOURS_DEFAULT = 6.0
_TICK_S = 0.1
_REPORT_INTERVAL_S = 2.0
_COLLECT_INTERVAL_S = 1.0
_PROGRESS_RECORDS = 20_000

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Job:
    """What to produce: `records` in the `hours` before `end`, then `trickle_per_s` records a second (0: none)
    until told to stop."""

    seed: int
    records: int
    hours: float
    end: datetime
    trickle_per_s: float
    tally_file: Path | None


def produce(
    job: Job, producer: DemoProducer, collector: Collector, clock: Clock, stop: threading.Event
) -> Tally:
    """Runs the job to its end or until `stop` is set; every queued record is delivered before it returns, or
    `UnavailableError` is raised."""
    report = _report_to(job.tally_file, producer.tally)
    mixture = Mixture(job.seed)
    state: State = "failed"
    try:
        report("loading")
        _load(job, mixture, producer, stop, report)
        _collect(collector, producer)
        producer.flush()
        collector.commit()
        if job.trickle_per_s > 0:
            report("trickling")
            _trickle(job.trickle_per_s, mixture, producer, collector, clock, stop, report)
            _collect(collector, producer, at_end=True)
            producer.flush()
            collector.commit()
        state = "finished"
    finally:
        report(state)
    return producer.tally


def _load(
    job: Job, mixture: Mixture, producer: DemoProducer, stop: threading.Event, report: Callable[[State], None]
) -> None:
    for number, record in enumerate(records_of(mixture, job.seed, job.records, job.end, job.hours), start=1):
        producer.send(record)
        if number % _PROGRESS_RECORDS == 0:
            producer.poll()
            report("loading")
            log.info(
                "load goes on", queued=number, delivered=producer.tally.total.produced, records=job.records
            )
        if stop.is_set():
            break


def _trickle(
    rate_per_s: float,
    mixture: Mixture,
    producer: DemoProducer,
    collector: Collector,
    clock: Clock,
    stop: threading.Event,
    report: Callable[[State], None],
) -> None:
    """Sends what is due at each tick; where the machine slept or Kafka made it wait, the missed records are
    not caught up."""
    due, last_s = 0.0, clock.monotonic_s()
    collect_at_s = report_at_s = last_s
    while not stop.wait(_TICK_S):
        now_s = clock.monotonic_s()
        due += min(now_s - last_s, 1.0) * rate_per_s
        last_s = now_s
        shipped_ms = epoch_ms(clock.now())
        for _ in range(int(due)):
            producer.send(mixture.record_at(shipped_ms))
        due -= int(due)
        producer.poll()
        if now_s >= collect_at_s:
            collect_at_s = now_s + _COLLECT_INTERVAL_S
            if _collect(collector, producer):
                producer.flush()
                collector.commit()
        if now_s >= report_at_s:
            report_at_s = now_s + _REPORT_INTERVAL_S
            report("trickling")


def _collect(collector: Collector, producer: DemoProducer, *, at_end: bool = False) -> int:
    records = collector.poll(at_end=at_end)
    for record in records:
        producer.send(record)
    return len(records)


def _report_to(tally_file: Path | None, tally: Tally) -> Callable[[State], None]:
    def report(state: State) -> None:
        if tally_file is not None:
            tally.write(tally_file, state)

    return report


def parse_log_files(options: list[str]) -> dict[str, Path]:
    """`["kafka=/path/to/kafka.log", ...]` as a mapping from service to file; `typer.BadParameter` for
    anything else."""
    files: dict[str, Path] = {}
    for option in options:
        service, equals, path = option.partition("=")
        if not (service and equals and path):
            raise typer.BadParameter(
                f"'{option}' is not SERVICE=FILE, for instance kafka=state/logs/kafka.log"
            )
        if service in files:
            raise typer.BadParameter(f"'{service}' is given twice; one log file a service")
        files[service] = Path(path)
    return files


def main(
    bootstrap: Annotated[str, typer.Option(help="Kafka brokers, host:port separated by commas")],
    records: Annotated[int, typer.Option(help="records of the first load", min=0)] = RECORDS_DEFAULT,
    seed: Annotated[int, typer.Option(help="the same seed and end give the same load")] = 1,
    hours: Annotated[
        float, typer.Option(help="hours before the end over which the load is spread", min=0.01)
    ] = HOURS_DEFAULT,
    end: Annotated[datetime | None, typer.Option(help="end of the load, UTC; without it the present")] = None,
    trickle: Annotated[
        float,
        typer.Option(help="records per second to go on with after the load, until SIGTERM or Ctrl-C", min=0),
    ] = 0.0,
    tally: Annotated[
        Path | None, typer.Option(help="JSON file for what was delivered, kept up to date")
    ] = None,
    partitions: Annotated[
        int, typer.Option(help="partitions of topics that do not exist yet", min=1)
    ] = PARTITIONS_DEFAULT,
    collect: Annotated[
        list[str] | None, typer.Option(help="SERVICE=FILE, repeatable: a live log to ship as tenant firn")
    ] = None,
    positions: Annotated[
        Path | None, typer.Option(help="file that keeps how far the live logs were read")
    ] = None,
) -> None:
    """Produces the demo's logs to the topics demo.json and demo.text."""
    configure_logs("infra")
    clock, stop = SystemClock(), threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    until = clock.now() if end is None else end.replace(tzinfo=UTC)
    job = Job(seed=seed, records=records, hours=hours, end=until, trickle_per_s=trickle, tally_file=tally)
    try:
        create_topics(bootstrap, partitions)
        collector = Collector(parse_log_files(collect or []), clock, positions)
        done = produce(job, DemoProducer(bootstrap), collector, clock, stop)
    except FirnError as error:
        typer.echo(f"the demo's load failed: {error}", err=True)
        raise typer.Exit(1) from error
    log.info(
        "load ended",
        **{
            name: getattr(done.total, name)
            for name in ("produced", "expected_rows", "expected_dead", "expected_errors")
        },
    )


if __name__ == "__main__":
    typer.run(main)
