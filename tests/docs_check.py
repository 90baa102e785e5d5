"""`python -m tests.docs_check`: fails where a page of the documentation names what does not exist.

It reads all pages in Markdown and checks links and their anchors, `FIRN_...` variables, settings (`[room]
name` and examples in TOML), commands, make targets, and files. `--pages FOLDER` then copies the pages, with
what they link to, to a folder of their own, from which MkDocs builds the site (`make docs`).
"""

import re
import shutil
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from lake.settings_docs import document
from tests.documented_commands import ROOMS, targets, wrong_commands

REPOSITORY = Path(__file__).resolve().parents[1]
PAGES = ("*.md", "docs/*.md", "docs/runbooks/*.md", "*/README.md", "tests/benchmarks/*.md")
# Names what was, too.
HISTORY = "CHANGELOG.md"
# Names the settings of a group below a heading with the group's name; a test holds that it is as written.
REFERENCE = "settings.md"

_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"`([^`]+)`")
_HEADING = re.compile(r"#{1,6} (.+)")
_VARIABLE = re.compile(r"\bFIRN_[A-Z0-9_]+\*?")
_NAMED_IN_CODE = re.compile(r'["$]\{?(FIRN_[A-Z0-9_]+)\b')
_SETTING = re.compile(r"\[([a-z]+(?:\.[a-z_0-9]+)*)\] ([a-z][a-z0-9_.]+)")
# In prose only names with a unit or a bound are told from other names, and those of a group.
_WITH_UNIT = re.compile(r"[a-z][a-z0-9_.]*_(?:s|mb|max|min)")
# What begins with `/` is of another machine.
_FILE = re.compile(r"(?<![\w/.-])(?:[\w.-]+/)+[\w-]+\.(?:py|md|toml|sh|xml|txt|java|ya?ml|json|Dockerfile)\b")
_FOLDER = re.compile(rf"(?:{'|'.join(ROOMS)})(?:/[a-z][\w-]*)+/?")
_ROW = re.compile(r"\| `(\w+)` \|(?: `(FIRN_\w+)` \|)?")


class Line(NamedTuple):
    """A line of a page. `language`: of the fenced block that it stands in; None for prose."""

    number: int
    text: str
    language: str | None


@dataclass(frozen=True)
class Page:
    """A page of the documentation; `path` is relative to the repository."""

    path: Path
    text: str

    @cached_property
    def lines(self) -> list[Line]:
        """All lines; those of a block indented by four blanks count as code without a language."""
        lines: list[Line] = []
        language: str | None = None
        for number, text in enumerate(self.text.splitlines(), 1):
            if text.lstrip().startswith("```"):
                language = text.strip().removeprefix("```").strip() if language is None else None
            else:
                lines.append(Line(number, text, "" if language is None and text[:4] == "    " else language))
        return lines

    @property
    def prose(self) -> Iterator[Line]:
        """The lines outside of code blocks."""
        return (line for line in self.lines if line.language is None)

    @property
    def code(self) -> Iterator[tuple[int, str]]:
        """Each line of a code block, and each piece of code within prose, with the number of its line."""
        for line in self.lines:
            if line.language is not None:
                yield line.number, line.text.strip()
            else:
                yield from ((line.number, piece) for piece in _CODE.findall(line.text))

    @cached_property
    def anchors(self) -> set[str]:
        """What a link to a heading of this page can name."""
        return {anchor(found[1]) for line in self.prose if (found := _HEADING.fullmatch(line.text))}

    @property
    def links(self) -> Iterator[tuple[int, str, str]]:
        """The number of the line, path ("": this page) and anchor of every link that leads to no other
        site."""
        for line in self.prose:
            for target in _LINK.findall(_CODE.sub("", line.text)):
                if "://" not in target and not target.startswith("mailto:"):
                    path, _, fragment = target.partition("#")
                    yield line.number, path, fragment


@dataclass(frozen=True)
class Known:
    """What exists. `settings`: `section.name`; `files`: paths relative to the repository."""

    settings: frozenset[str]
    variables: frozenset[str]
    prefixes: frozenset[str]  # of the rooms' variables: below them only settings count
    targets: frozenset[str]
    files: frozenset[str]


def anchor(heading: str) -> str:
    """A heading as links name it: lower case, blanks as hyphens, without other punctuation."""
    plain = re.sub(r"[^\w\s-]", "", heading.replace("`", "")).strip().lower()
    return re.sub(r"\s", "-", plain)


def load_pages(root: Path) -> list[Page]:
    """All pages of a repository; what tools keep in hidden folders is none."""
    paths = sorted({path.relative_to(root) for pattern in PAGES for path in root.glob(pattern)})
    return [Page(path, (root / path).read_text()) for path in paths if not path.parts[0].startswith(".")]


def load_known(root: Path) -> Known:
    """What exists in a repository: its settings as the rooms declare them, its Makefile and its files."""
    settings, variables, prefixes = _settings(document())
    files = frozenset(_files(root))
    sources = (root / name for name in files if name.endswith((".py", ".sh")))
    named = {
        name for source in sources for name in re.findall(r'["$]\{?(FIRN_[A-Z0-9_]+)\b', source.read_text())
    }
    others = {name for name in named if not name.startswith(tuple(prefixes))}
    return Known(settings, variables | others, prefixes, frozenset(targets(root / "Makefile")), files)


def _files(root: Path) -> Iterator[str]:
    folders = [root / name for name in (*ROOMS, "core", "docs", "requirements", ".ci")]
    for path in [*root.iterdir(), *(each for folder in folders for each in folder.rglob("*"))]:
        if path.is_file() and not {"__pycache__", "target"} & set(path.parts):
            yield path.relative_to(root).as_posix()


def _settings(page: str) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """The settings of the page of settings: `section.name`, variables, and the variables' prefixes."""
    section, settings, variables, prefixes = "", set(), set(), set()
    for line in page.splitlines():
        if line.startswith(("## [", "### [")):
            section = line.strip("# []")
        elif found := _ROW.match(line):
            settings.add(f"{section}.{found[1]}")
            if found[2]:
                variables.add(found[2])
                prefixes.add(found[2].removesuffix(found[1].upper()))
    return frozenset(settings), frozenset(variables), frozenset(prefixes)


def problems(pages: Iterable[Page], known: Known) -> list[str]:
    """A sentence for everything that the pages name and that does not exist, with file and line."""
    pages = list(pages)
    by_path = {page.path.as_posix(): page for page in pages}
    wrong = []
    for page in pages:
        found = [
            *_wrong_links(page, by_path, known),
            *_wrong_variables(page, known),
            *_wrong_examples(page, known),
        ]
        if page.path.name != HISTORY:
            found += [*_wrong_names(page, known), *_wrong_program_lines(page, known)]
        wrong += [f"{page.path}:{number}: {sentence}" for number, sentence in sorted(found)]
    return wrong


def _wrong_links(page: Page, by_path: dict[str, Page], known: Known) -> Iterator[tuple[int, str]]:
    for number, path, fragment in page.links:
        name = page.path.as_posix() if not path else _resolved(page.path.parent, path)
        if name not in known.files and name not in by_path:
            yield number, f"the link to {path} leads nowhere"
        elif fragment and name in by_path and fragment not in by_path[name].anchors:
            yield number, f"{name} has no heading #{fragment}"


def _resolved(folder: Path, path: str) -> str:
    """A link's path relative to the repository; one that leads out of it stays as it is."""
    parts: list[str] = []
    for part in (*folder.parts, *Path(path).parts):
        if part == ".." and parts:
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)


def _wrong_variables(page: Page, known: Known) -> Iterator[tuple[int, str]]:
    for line in page.lines:
        for name in _VARIABLE.findall(line.text):
            if name.endswith("*"):
                exists = any(each.startswith(name[:-1]) for each in known.variables)
            else:
                exists = name in known.variables or name in known.prefixes
            if not exists:
                yield line.number, f"there is no variable {name}"


def _wrong_examples(page: Page, known: Known) -> Iterator[tuple[int, str]]:
    """Settings in examples of TOML."""
    block: list[Line] = []
    for line in [*page.lines, Line(0, "", None)]:
        if line.language == "toml":
            block.append(line)
        elif block:
            number = block[0].number
            try:
                given = tomllib.loads("\n".join(each.text for each in block))
            except tomllib.TOMLDecodeError as error:
                yield number, f"this is no TOML: {error}"
                given = {}
            yield from ((number, f"there is no setting {name}") for name in _unknown(given, "", known))
            block = []


def _unknown(given: dict[str, Any], section: str, known: Known) -> Iterator[str]:
    for key, value in given.items():
        name = f"{section}.{key}" if section else key
        if name in known.settings:
            continue
        if isinstance(value, dict):
            yield from _unknown(value, name, known)
        else:
            yield name


def _wrong_names(page: Page, known: Known) -> Iterator[tuple[int, str]]:
    """Settings and files named in prose."""
    # `ingest.flush.interval_s`, or without the room; what a group holds is not named without the group.
    in_prose = known.settings | {name.split(".", 1)[1] for name in known.settings}
    is_checked = page.path.parts[0] == "docs" and page.path.name != REFERENCE
    for number, piece in page.code:
        for section, name in _SETTING.findall(piece):
            if f"{section}.{name}" not in known.settings:
                yield number, f"there is no setting [{section}] {name}"
        for path in _FILE.findall(piece):
            if not _is_file(path, known):
                yield number, f"there is no file {path}"
        if _FOLDER.fullmatch(piece) and not _is_folder_or_module(piece, known):
            yield number, f"there is no folder {piece}"
        if is_checked and _WITH_UNIT.fullmatch(piece) and piece not in in_prose:
            yield number, f"there is no setting {piece}"


def _is_file(path: str, known: Known) -> bool:
    """Whether a file exists, named from the repository's root or, as the pages of a room do, from below."""
    return path in known.files or any(name.endswith(f"/{path}") for name in known.files)


def _is_folder_or_module(path: str, known: Known) -> bool:
    return f"{path}.py" in known.files or any(name.startswith(f"{path.rstrip('/')}/") for name in known.files)


def _wrong_program_lines(page: Page, known: Known) -> Iterator[tuple[int, str]]:
    for number, piece in page.code:
        yield from ((number, sentence) for sentence in wrong_commands(piece, set(known.targets)))


def gather(pages: Iterable[Page], root: Path, folder: Path) -> None:
    """Copies the pages, and the files that they link to, into an empty folder under the same paths."""
    shutil.rmtree(folder, ignore_errors=True)
    for page in pages:
        linked = (_resolved(page.path.parent, path) for _, path, _ in page.links if path)
        for name in (page.path.as_posix(), *linked):
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / name, target)


def main(
    pages: Annotated[Path | None, typer.Option(help="folder that gets the pages of the site")] = None,
) -> None:
    """Checks all pages; exit code 1 where one names what does not exist."""
    found = load_pages(REPOSITORY)
    wrong = problems(found, load_known(REPOSITORY))
    for sentence in wrong:
        sys.stderr.write(f"{sentence}\n")
    if wrong:
        raise typer.Exit(1)
    if pages is not None:
        gather(found, REPOSITORY, pages)


if __name__ == "__main__":
    typer.run(main)
