"""The end of a service's log, for error messages and for `python -m infra logs`."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

TAIL_LINES = 15
TELLING_FROM_LINES = 400
STACK_FRAME = re.compile(r"\s+at [\w$.]+\(?|\s+\.\.\. \d+ more")
TAIL_BYTES_MAX = 256 * 1024
LINE_CHARACTERS_MAX = 400
DISK_LOW_BYTES = 512 * 1024 * 1024

# What a log says when the machine, not the service, is at fault; and what to do about it.
HINTS = (
    (
        "No space left on device",
        "The disk is full: free space, or put the state folder on another disk with --state.",
    ),
    (
        "Address already in use",
        "Another process took the port: run the command again, it takes another free one.",
    ),
    (
        "OutOfMemoryError",
        "The Java heap is too small: raise FIRN_INFRA_KAFKA__HEAP_MB or FIRN_INFRA_TRINO__HEAP_MB.",
    ),
    (
        "Cannot allocate memory",
        "The machine has too little free memory: stop other programs, or start fewer services.",
    ),
    (
        "Permission denied",
        "A file cannot be opened: the state folder must be writable for the user who starts the stack.",
    ),
    ("Too many open files", "The limit of open files is too low: raise it with `ulimit -n 65536`."),
    ("No module named", "A Python package is missing: run `make setup`."),
)


def last_lines(log: Path, *, lines: int = TAIL_LINES, start: int = 0) -> list[str]:
    """The last lines written at or after byte `start`; empty where there is no log. Very long lines are
    cut."""
    try:
        with log.open("rb") as file:
            end = file.seek(0, 2)
            # A log that was cut short since `start` was noted is shown from its beginning.
            begin = start if start <= end else 0
            file.seek(max(begin, end - TAIL_BYTES_MAX))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return []
    return [line[:LINE_CHARACTERS_MAX] for line in text.splitlines()[-lines:]]


def follow(log: Path) -> Iterator[str]:
    """New text appended to a log, as it comes; yields the empty string when there is nothing new at the
    moment."""
    with log.open("rb") as file:
        file.seek(0, 2)
        while True:
            yield file.read().decode(errors="replace")


def telling_lines(log: Path, *, start: int = 0) -> list[str]:
    """The last lines without empty ones and Java's stack frames, which would push the cause out of sight."""
    lines = last_lines(log, lines=TELLING_FROM_LINES, start=start)
    return [line for line in lines if line.strip() and not STACK_FRAME.match(line)][-TAIL_LINES:]


def failure(service: str, what: str, log: Path, *, start: int = 0) -> str:
    """One message: what happened to a service, the last lines of its log, and what to do."""
    lines = telling_lines(log, start=start)
    text = "\n".join(last_lines(log, lines=TELLING_FROM_LINES, start=start))
    advice = [hint for sign, hint in HINTS if sign in text]
    free = shutil.disk_usage(log.parent if log.parent.exists() else Path.cwd()).free
    if free < DISK_LOW_BYTES and HINTS[0][1] not in advice:
        advice.append(f"The disk of {log.parent} has only {free // 2**20} MB left: free some space.")
    if not advice:
        advice = [
            (
                "Correct what the log names and start again; `python -m infra doctor` shows what the machine "
                "offers."
            )
        ]
    shown = (
        [f"Last lines of {log}:", *(f"  | {line}" for line in lines)]
        if lines
        else [f"Its log {log} is empty."]
    )
    return "\n".join([f"{service} {what}.", *shown, *advice])
