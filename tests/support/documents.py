"""Running what README and the documentation show.

    python -m tests.support.documents PAGE ...     write what the commands print now into the pages

Blocks are fenced.  What they are is said by their language and by a comment in the line before:

    console     lines `$ policyproof ...` are run; what follows them is what they must print.  A line
                `...` stands for any number of lines, and seconds may differ.  `$ echo $?` shows the exit code.
    python      is run; all blocks of a page share their names.  `output` after it is what it must print.
    <!-- file: NAME -->        the block is written to this file, for the commands that follow
    <!-- not run: REASON -->   the block is left alone

Every page has a folder of its own, with the files of `policyproof demo` in it.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from policyproof.cli import run

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("**/*.md")])
_MARK = re.compile(r"<!-- (file|not run): (.+?) -->\Z")
_SECONDS = re.compile(r"\b\d+\.\d+ s\b|(?<=\"seconds\": )[\d.]+")


@dataclass
class Block:
    """A fenced block: its language, its lines, where its first line stands, and the mark before it."""

    language: str
    lines: list[str]
    first: int
    mark: tuple[str, str] | None = None


@dataclass
class Outcome:
    """What did not go as the page says, and the page as it would be right."""

    problems: list[str] = field(default_factory=list)
    text: str = ""


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page."""
    found: list[Block] = []
    current: Block | None = None
    before = ""
    for number, line in enumerate(text.splitlines()):
        if current is not None and line.strip() == "```":
            found.append(current)
            current = None
        elif current is not None:
            current.lines.append(line)
        elif line.startswith("```"):
            mark = _MARK.match(before.strip())
            current = Block(line[3:].strip(), [], number + 1, (mark[1], mark[2]) if mark else None)
        if line.strip():
            before = line
    return found


def run_page(page: Path, folder: Path) -> Outcome:
    """Run a page's blocks in a folder that holds the files of the demo."""
    text = page.read_text(encoding="utf-8")
    lines = text.splitlines()
    outcome = Outcome()
    names: dict[str, object] = {"__name__": "__main__"}
    printed: str | None = None
    replacements: list[tuple[int, int, list[str]]] = []
    with contextlib.chdir(folder):
        for block in blocks(text):
            where = f"{page.name}:{block.first + 1}"
            expected = [line.rstrip() for line in block.lines]
            shown: list[str] | None = None
            if block.mark is not None:
                kind, what = block.mark
                if kind == "file":
                    Path(what).write_text("\n".join(block.lines) + "\n", encoding="utf-8")
                printed = None
            elif block.language == "python":
                printed = _run_python(block, where, names, outcome)
            elif block.language == "output" and printed is not None:
                shown, printed = [line.rstrip() for line in printed.splitlines()], None
            elif block.language == "console" and block.lines and block.lines[0].startswith("$ "):
                shown, printed = list(_run_console(block, where, outcome)), None
            else:
                outcome.problems.append(f"{where}: not a block that is run; say why with <!-- not run: ... -->")
            if shown is not None and not matches(expected, shown):
                outcome.problems.append(f"{where}: expected\n{_joined(expected)}\nfound\n{_joined(shown)}")
                replacements.append((block.first, block.first + len(block.lines), shown))
    for first, last, new in reversed(replacements):
        lines[first:last] = new
    outcome.text = "\n".join(lines) + "\n"
    return outcome


def _joined(lines: list[str]) -> str:
    return "\n".join(f"    {line}" for line in lines)


def _run_python(block: Block, where: str, names: dict[str, object], outcome: Outcome) -> str:
    stream = io.StringIO()
    try:
        with contextlib.redirect_stdout(stream):
            exec(compile("\n".join(block.lines), where, "exec"), names)
    except Exception as error:  # whatever a page does wrong is a problem of the page
        outcome.problems.append(f"{where}: {type(error).__name__}: {error}")
    return stream.getvalue()


def _run_console(block: Block, where: str, outcome: Outcome) -> Iterator[str]:
    """The block as it would look now."""
    code = 0
    rest = iter(block.lines)
    for line in rest:
        if not line.startswith("$ "):
            continue
        yield line.rstrip()
        command = line[2:]
        while command.endswith("\\"):
            following = next(rest)
            yield following.rstrip()
            command = command[:-1] + following
        words = shlex.split(command)
        if words == ["echo", "$?"]:
            yield str(code)
        elif words[0] == "policyproof":
            stream = io.StringIO()
            with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
                code = run(words[1:])
            printed = [found.rstrip() for found in stream.getvalue().splitlines()]
            if code == 4 or (code == 2 and not any("rror: " in found for found in printed)):
                outcome.problems.append(f"{where}: exit code {code} of {command}")
            yield from printed
        else:
            outcome.problems.append(f"{where}: {words[0]} is not run here")


def matches(expected: list[str], shown: list[str]) -> bool:
    """Is this what was expected?  `...` matches any lines, seconds match all seconds."""
    expected, shown = [[_SECONDS.sub("S s", line) for line in lines if line] for lines in (expected, shown)]
    pattern = "".join(r"(?:.*\n)*?" if line.strip() == "..." else re.escape(line) + r"\n" for line in expected)
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in shown)) is not None


def prepare(folder: Path) -> None:
    """The files of the demo."""
    with contextlib.redirect_stdout(io.StringIO()):
        assert run(["demo", "--out", str(folder)]) == 0
    (folder / "trace.json").unlink()


if __name__ == "__main__":
    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as temporary:
            prepare(Path(temporary))
            result = run_page(Path(name).resolve(), Path(temporary))
        Path(name).write_text(result.text, encoding="utf-8")
        sys.stdout.write(f"{name}: {len(result.problems)} differences\n" + "".join(f"{p}\n" for p in result.problems))
