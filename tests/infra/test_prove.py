"""Kept results of the long proofs: one file a proof, its newest run that passed."""

import re
from pathlib import Path

import orjson

from tests.prove import PROOFS, RESULTS, Proof, keep, passed_on

PROVE = re.compile(r"\bmark\.prove\b|\bON_SQLITE\b")


def test_a_proof_that_passed_is_not_made_again_on_its_commit(tmp_path: Path) -> None:
    """On another commit it is, and there it replaces the older result; each proof has a file of its own."""
    folder = tmp_path / "proofs"
    assert not passed_on("fuzz", "aaa", folder)
    keep("fuzz", {"commit": "aaa", "passed": True}, folder)
    assert passed_on("fuzz", "aaa", folder)
    assert not passed_on("fuzz", "bbb", folder)
    assert not passed_on("line", "aaa", folder)
    keep("fuzz", {"commit": "bbb", "passed": True}, folder)
    assert (passed_on("fuzz", "aaa", folder), passed_on("fuzz", "bbb", folder)) == (False, True)
    assert [file.name for file in folder.iterdir()] == ["fuzz.json"]


def test_a_proof_that_failed_is_made_again_and_hides_none_that_passed(tmp_path: Path) -> None:
    """A first failure is kept to be read, but it never counts as done; a later one leaves what passed."""
    keep("fuzz", {"commit": "aaa", "passed": False}, tmp_path)
    assert not passed_on("fuzz", "aaa", tmp_path)
    keep("fuzz", {"commit": "aaa", "passed": True}, tmp_path)
    keep("fuzz", {"commit": "bbb", "passed": False}, tmp_path)
    assert passed_on("fuzz", "aaa", tmp_path)
    assert not passed_on("fuzz", "bbb", tmp_path)


def test_kept_results_are_of_proofs_that_exist() -> None:
    """Each file in tests/proofs is named as a proof, and says on which commit it ran, with which seed and
    numbers, and whether it passed."""
    for file in RESULTS.iterdir():
        result = orjson.loads(file.read_bytes())
        assert file.stem in {proof.name for proof in PROOFS}
        assert len(result["commit"]) == 40
        assert {"passed", "seed", "numbers", "took_s", "date"} <= result.keys()


def test_what_every_run_leaves_out_some_proof_has() -> None:
    """Each file with a test that is marked `prove` is of a proof that asks for such tests; pictures are taken
    by `make screenshots`."""
    folder = RESULTS.parent
    marked = {
        file.relative_to(folder.parent)
        for file in folder.rglob("test_*.py")
        if PROVE.search(file.read_text()) and file != Path(__file__)
    }
    assert len(marked) > 40
    left = {file for file in marked if not any(_asks_for(proof, file) for proof in PROOFS)}
    assert left == {Path("tests/ui/test_screenshots.py")}


def _asks_for(proof: Proof, file: Path) -> bool:
    named = [Path(each) for each in proof.arguments if each.startswith("tests/")]
    is_ignored = f"--ignore={file}" in proof.arguments
    return (
        "FIRN_PROVE" in proof.environment
        and not is_ignored
        and any(file.is_relative_to(each) for each in named)
    )
