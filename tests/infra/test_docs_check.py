"""The documentation names what exists, and its check finds what does not."""

from pathlib import Path

import pytest

from tests.docs_check import REPOSITORY, Known, Page, anchor, gather, load_known, load_pages, problems


@pytest.fixture(scope="module")
def known() -> Known:
    """What exists in this repository."""
    return load_known(REPOSITORY)


@pytest.mark.long
def test_no_page_names_what_does_not_exist(known: Known) -> None:
    """Links, variables, settings, commands, make targets and files of all pages are there."""
    pages = load_pages(REPOSITORY)
    assert {"README.md", "docs/ingest.md", "ingest/README.md"} <= {page.path.as_posix() for page in pages}
    assert problems(pages, known) == []


def test_every_page_has_its_place_in_the_navigation() -> None:
    """MkDocs, which `make docs` runs, refuses one that has none."""
    navigation = (REPOSITORY / "mkdocs.yml").read_text()
    absent = [
        page.path.as_posix()
        for page in load_pages(REPOSITORY)
        if f": {page.path.as_posix()}\n" not in navigation
    ]
    assert absent == []


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("see [this](gone.md)", "the link to gone.md leads nowhere"),
        ("see [this](search.md#no-such-part)", "docs/search.md has no heading #no-such-part"),
        ("see [above](#nowhere)", "docs/page.md has no heading #nowhere"),
        ("set `FIRN_INGEST_FLUSH_INTERVAL`", "there is no variable FIRN_INGEST_FLUSH_INTERVAL"),
        ("set `FIRN_NOTHING_*`", "there is no variable FIRN_NOTHING_*"),
        ("set FIRN_UI_ADDRESS", "there is no variable FIRN_UI_ADDRESS"),
        ("`flush_every_s` is long", "there is no setting flush_every_s"),
        ("`batch_bytes_max` is short", "there is no setting batch_bytes_max"),
        ("`flush.interval_min` is short", "there is no setting flush.interval_min"),
        ("set `FIRN_INGEST_FLUSH__EVERY_S`", "there is no variable FIRN_INGEST_FLUSH__EVERY_S"),
        ("`[catalog] flush.interval_s`", "there is no setting [catalog] flush.interval_s"),
        ("`[ingest.flush] every`", "there is no setting [ingest.flush] every"),
        ("```toml\n[ingest.flush]\nevery_s = 3\n```", "there is no setting ingest.flush.every_s"),
        ("```toml\n[ingest\n```", "this is no TOML"),
        ("`python -m ingest walk`", "`python -m ingest` has no verb `walk`"),
        ("`python -m catalog key lend`", "`python -m catalog key` has no verb `lend`"),
        ("    python -m ingest run --motor spark", "`python -m ingest run` has no option `--motor`"),
        ("```\npython -m tests.prove --solely line\n```", "`python -m tests.prove` has no option `--solely`"),
        ("`python -m ui paint`", "`python -m ui` has no verb `paint`"),
        ("`python -m infra.demos run`", "there is no module `infra.demos`"),
        ("```\nmake coffee   # hot\n```", "the Makefile has no target `coffee`"),
        ("read `ingest/kafka/gone.py`", "there is no file ingest/kafka/gone.py"),
        ("`-f infra/images/gone.Dockerfile`", "there is no file infra/images/gone.Dockerfile"),
        ("see `tests/gone`", "there is no folder tests/gone"),
    ],
)
def test_what_does_not_exist_is_found(text: str, sentence: str, known: Known) -> None:
    """Each kind of mistake is told with its page and line."""
    page = Page(Path("docs/page.md"), f"# A page\n\n{text}\n")
    search = Page(Path("docs/search.md"), "# Search\n")
    found = problems([page, search], known)
    assert len(found) == 1
    assert found[0].startswith("docs/page.md:")
    assert sentence in found[0]


@pytest.mark.parametrize(
    "text",
    [
        "see [this](search.md#the-language), [that](../LICENSE) and [them](https://example.org/x)",
        "`FIRN_CATALOG_*`, `FIRN_UI_API`, `FIRN_INGEST_INTERNAL_TOPICS__SIGNING_KEYS_FILE`, `FIRN_CACHE`",
        '```toml\n[optimize]\nmerge.zstd_level = 3\n[optimize.spark.options]\n"spark.cores.max" = "2"\n```',
        "`flush.interval_s`, `ingest.flush.interval_s`, `undo_window_s`, `[ingest.flush] bytes`",
        "`python -m ingest dead-letters replay --reason too_late --tenant acme`",
        "`python -m ui serve` and `python -m infra up --port kafka=9092`; `python -m venv .venv`",
        "make it so: `make test-fast`; see `tests/stack`, `ingest/kafka/` and `lake/commit`",
        "`/etc/firn/firn.toml`",
    ],
)
def test_what_exists_is_let_pass(text: str, known: Known) -> None:
    """Nothing is said of what is there, or of what is not ours."""
    search = Page(Path("docs/search.md"), "## The language\n")
    assert problems([Page(Path("docs/page.md"), text), search], known) == []


def test_anchors_are_those_of_markdown() -> None:
    """Lower case, hyphens for blanks, no punctuation."""
    assert anchor("Names, pages and patience") == "names-pages-and-patience"
    assert anchor("Old files: `backfill files`") == "old-files-backfill-files"
    assert anchor("[catalog]") == "catalog"


def test_the_changelog_may_name_what_was(known: Known) -> None:
    """Its old names are history; its links still have to lead somewhere."""
    old = Page(Path("CHANGELOG.md"), "`ingest/canary.py` was; [see](gone.md)\n")
    assert problems([old], known) == ["CHANGELOG.md:1: the link to gone.md leads nowhere"]


def test_pages_are_gathered_with_what_they_link_to(tmp_path: Path) -> None:
    """The site's folder holds every page and every linked file under its own path."""
    pages = [Page(Path("README.md"), "[licence](LICENSE) and [text](docs/search.md#the-language)\n")]
    gather(pages, REPOSITORY, tmp_path / "pages")
    found = {path.relative_to(tmp_path / "pages").as_posix() for path in (tmp_path / "pages").rglob("*.*")}
    assert found == {"README.md", "docs/search.md"}
    assert (tmp_path / "pages" / "LICENSE").is_file()
