"""`python -m tests.audit`: compares the pinned Python packages with the known vulnerabilities, by pip-audit
in an environment of its own.

It asks an advisory service on the network, so it is no part of `make check`. A package that the service does
not tell about is not clean: it fails, as does a service that does not answer.

    exit code 0   every pin was looked up, none has a known vulnerability
              1   some have
              2   nobody knows: the service did not answer, or not for all pins
"""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

REQUIREMENTS = Path(__file__).resolve().parents[1] / "requirements"
PINS = REQUIREMENTS / "dev.txt"  # it pins what all others take
CLEAN, VULNERABLE, UNKNOWN = 0, 1, 2
SHOWN = 5
TIMEOUT_S = 1_800.0


def main(
    auditor: Annotated[Path, typer.Option(help="the program pip-audit")] = Path(".venv-audit/bin/pip-audit"),
    service: Annotated[str, typer.Option(help="which advisories: pypi or osv")] = "pypi",
) -> None:
    """Audits the pins."""
    options = (
        "--disable-pip",
        "--require-hashes",
        "-r",
        str(PINS),
        "--vulnerability-service",
        service,
        "--progress-spinner",
        "off",
        "-f",
        "json",
    )
    done = subprocess.run(
        [str(auditor), *options], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    code, said = verdict(done.stdout, done.stderr)
    print(said, file=sys.stdout if code == CLEAN else sys.stderr)
    raise SystemExit(code)


def verdict(report: str, errors: str) -> tuple[int, str]:
    """Exit code and words for what pip-audit wrote: its JSON report, and what went wrong."""
    try:
        found = orjson.loads(report)["dependencies"]
    except (ValueError, TypeError, KeyError):
        last = next(iter(reversed(errors.strip().splitlines())), "it said nothing")
        return (
            UNKNOWN,
            (
                "error: the advisory service could not be asked, so nothing is known of the pins. pip-audit "
                f"ends with: {last}"
            ),
        )
    vulnerable = [_told(each, hole) for each in found for hole in each.get("vulns", ())]
    skipped = [str(each["name"]) for each in found if "skip_reason" in each]
    lines = [*vulnerable]
    if skipped or not found:
        names = ", ".join(skipped[:SHOWN]) + (
            f" and {len(skipped) - SHOWN} more" if len(skipped) > SHOWN else ""
        )
        lines.append(
            f"error: the advisory service told nothing about {len(skipped)} of {len(found)} pins ({names}): "
            "this is no clean result. Is it reachable?"
        )
    if not lines:
        return CLEAN, f"{len(found)} pins, none with a known vulnerability"
    return VULNERABLE if vulnerable else UNKNOWN, "\n".join(lines)


def _told(package: Mapping[str, Any], hole: Mapping[str, Any]) -> str:
    fixed = ", ".join(hole.get("fix_versions", ())) or "no version yet"
    return (
        f"{package['name']} {package['version']}: {hole['id']} "
        f"({', '.join(hole.get('aliases', ())) or 'no alias'}), fixed in {fixed}"
    )


if __name__ == "__main__":
    typer.run(main)
