"""Kept results of the long proofs: one file a proof, its newest run that passed."""

from pathlib import Path

import orjson

from tests.prove import PROOFS, RESULTS, keep, passed_on


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
