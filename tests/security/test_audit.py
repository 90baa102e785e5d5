"""The audit of the Python pins: what it says, above all where nobody knows."""

import sys
from pathlib import Path

import orjson
import pytest

from tests.audit import CLEAN, PINS, UNKNOWN, VULNERABLE, main, verdict

pytestmark = pytest.mark.finding(35)
SOUND = {"name": "one", "version": "1.0", "vulns": []}
HOLE = {"id": "PYSEC-1", "fix_versions": ["1.1"], "aliases": ["CVE-1"], "description": "bad"}
VULNERABLE_ONE = {"name": "two", "version": "1.0", "vulns": [HOLE]}
SKIPPED = {"name": "three", "skip_reason": "not found"}


def report(*packages: object) -> str:
    return orjson.dumps({"dependencies": packages, "fixes": []}).decode()


@pytest.mark.parametrize(
    ("printed", "code", "said"),
    [
        (report(SOUND), CLEAN, "1 pins, none"),
        (report(SOUND, VULNERABLE_ONE), VULNERABLE, "two 1.0: PYSEC-1 (CVE-1), fixed in 1.1"),
        (report(SOUND, SKIPPED), UNKNOWN, "told nothing about 1 of 2 pins (three)"),
        (report(VULNERABLE_ONE, SKIPPED), VULNERABLE, "this is no clean result"),
        (report(), UNKNOWN, "this is no clean result"),
        ("", UNKNOWN, "could not be asked"),
        ("[]", UNKNOWN, "could not be asked"),
    ],
    ids=["clean", "vulnerable", "skipped", "both", "nothing", "no report", "no object"],
)
def test_only_a_whole_answer_is_clean(printed: str, code: int, said: str) -> None:
    """What the service did not tell is not taken for clean."""
    found, words = verdict(printed, "Traceback\nConnectionError: no route")
    assert (found, said in words) == (code, True), words


def test_the_auditor_is_run_on_all_pins(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The program is asked about the file of all pins; where it fails without a report, its last words are
    told and the code is not 0."""
    auditor = tmp_path / "pip-audit"
    auditor.write_text(
        f"#!{sys.executable}\nimport sys\nprint('no route to', *sys.argv[1:], file=sys.stderr)\nsys.exit(1)\n"
    )
    auditor.chmod(0o700)
    with pytest.raises(SystemExit) as ended:
        main(auditor, "osv")
    assert ended.value.code == UNKNOWN
    told = capfd.readouterr().err
    assert f"-r {PINS}" in told
    assert "--vulnerability-service osv" in told


def test_the_auditor_itself_is_pinned_by_hashes() -> None:
    """As everything else, in a file of its own that names no index."""
    text = (PINS.parent / "audit.txt").read_text()
    assert "pip-audit==" in text
    pins = [line for line in text.splitlines() if "==" in line]
    assert text.count("--hash=sha256:") >= len(pins)
    assert "://" not in text
