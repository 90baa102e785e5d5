"""The findings as people, or programs, read them."""

import json
import sys
from dataclasses import asdict

from rich.text import Text

from infra.production.examination import examine
from infra.production.finding import Verdict
from infra.production.rooms import Rooms
from lake.terminal import TerminalConsole

# What is worst comes first.
COLOURS = {
    Verdict.UNSAFE: "red",
    Verdict.WARNING: "yellow",
    Verdict.UNKNOWN: "magenta",
    Verdict.OK: "green",
}


def show(console: TerminalConsole, *, as_json: bool) -> int:
    """Prints them, and returns the exit code: 1 where anything is unsafe. Raises SettingsError."""
    findings = sorted(examine(Rooms.load()), key=lambda each: list(COLOURS).index(each.verdict))
    if as_json:
        sys.stdout.write(json.dumps([asdict(each) for each in findings], indent=2) + "\n")
    else:
        for each in findings:
            verdict = Text(f"{each.verdict:8}", COLOURS[each.verdict])
            console.print(verdict + Text(f" {each.check}: {each.sentence}"), soft_wrap=True)
    return int(any(each.verdict is Verdict.UNSAFE for each in findings))
