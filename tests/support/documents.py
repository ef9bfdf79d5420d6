"""Running what README and the documentation show.

    python -m tests.support.documents PAGE ...     write what the commands print now into the pages

Blocks are fenced.  What they are is said by their language and by a comment in the line before:

    console     lines `$ COMMAND` are run by a shell; what follows them is what they must print
    python      is run; all blocks of a page share their names.  `output` after it is what it must print.
    <!-- file: NAME -->        the block is written to this file; the text before must name it, too
    <!-- not run: REASON -->   the block is left alone

What is printed is compared line by line, without empty lines.  A line `...` stands for any number of
lines, `...` within a line for anything in it, and seconds may differ.  `$ echo $?` shows the exit code.

Every page has a folder of its own, with the files of `policyproof demo` in it, and with those of the
pages that it names in a comment `<!-- files of: PAGE -->`.  Commands are processes of the environment
in which the tests run; the Python blocks of a page are one more.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("**/*.md")])
TIME_LIMIT = 120

_MARK = re.compile(r"<!-- (file|not run): (.+?) -->\Z")
_FILES_OF = re.compile(r"^<!-- files of: (.+?) -->$", re.MULTILINE)
_SECONDS = re.compile(r"\b\d+\.\d+ s\b|(?<=\"seconds\": )[\d.]+")
_INTERPRETER = """
import contextlib, io, json, sys
names = {"__name__": "__main__"}
for line in sys.stdin:
    block = json.loads(line)
    printed, error = io.StringIO(), None
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(block["code"], block["where"], "exec"), names)
    except Exception as problem:
        error = f"{type(problem).__name__}: {problem}"
    print(json.dumps({"printed": printed.getvalue(), "error": error}), flush=True)
"""


@dataclass
class Block:
    """A fenced block: its language, its lines, where its first line stands, and what stands before it."""

    language: str
    lines: list[str]
    first: int
    mark: tuple[str, str] | None = None
    before: str = ""


@dataclass
class Outcome:
    """What did not go as the page says, and the page as it would be right."""

    problems: list[str] = field(default_factory=list)
    text: str = ""


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page."""
    found: list[Block] = []
    current: Block | None = None
    before = ["", ""]
    for number, line in enumerate(text.splitlines()):
        if current is not None and line.strip() == "```":
            found.append(current)
            current = None
            before = ["", ""]
        elif current is not None:
            current.lines.append(line)
        elif line.startswith("```"):
            mark = _MARK.match(before[-1].strip())
            current = Block(line[3:].strip(), [], number + 1, (mark[1], mark[2]) if mark else None, before[-2])
        elif line.strip():
            before.append(line)
    return found


class Interpreter:
    """A Python process that runs one block after the other."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _INTERPRETER],
            cwd=folder,
            env=_environment(),
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __enter__(self) -> Interpreter:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, traceback: TracebackType | None) -> None:
        self._process.communicate(timeout=TIME_LIMIT)

    def run(self, code: str, where: str) -> tuple[str, str | None]:
        """What a block printed, and the error that ended it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"code": code, "where": where}) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        return answer["printed"], answer["error"]


def run_page(page: Path, folder: Path) -> Outcome:
    """Run a page's blocks in a folder that holds the files of the demo."""
    text = page.read_text(encoding="utf-8")
    lines = text.splitlines()
    outcome = Outcome()
    for name in _FILES_OF.findall(text):
        for block in blocks((page.parent / name).read_text(encoding="utf-8")):
            if block.mark is not None and block.mark[0] == "file":
                _write(block, block.mark[1], folder)
    printed: str | None = None
    replacements: list[tuple[int, int, list[str]]] = []
    with Interpreter(folder) as interpreter:
        for block in blocks(text):
            where = f"{page.name}:{block.first + 1}"
            expected = [line.rstrip() for line in block.lines]
            shown: list[str] | None = None
            if block.mark is not None:
                kind, what = block.mark
                if kind == "file":
                    _write(block, what, folder)
                    if f"`{what}`" not in block.before:
                        outcome.problems.append(f"{where}: the text before the block does not name the file {what}")
                printed = None
            elif block.language == "python":
                printed, error = interpreter.run("\n".join(block.lines), where)
                if error is not None:
                    outcome.problems.append(f"{where}: {error}")
            elif block.language == "output" and printed is not None:
                shown, printed = [line.rstrip() for line in printed.splitlines()], None
            elif block.language == "console" and block.lines and block.lines[0].startswith("$ "):
                shown, printed = list(_run_console(block, where, folder, outcome)), None
            else:
                outcome.problems.append(f"{where}: not a block that is run; say why with <!-- not run: ... -->")
            if shown is not None and not matches(expected, shown):
                outcome.problems.append(f"{where}: expected\n{_joined(expected)}\nfound\n{_joined(shown)}")
                replacements.append((block.first, block.first + len(block.lines), shown))
    for first, last, new in reversed(replacements):
        lines[first:last] = new
    outcome.text = "\n".join(lines) + "\n"
    return outcome


def _write(block: Block, name: str, folder: Path) -> None:
    (folder / name).write_text("\n".join(block.lines) + "\n", encoding="utf-8")


def _joined(lines: list[str]) -> str:
    return "\n".join(f"    {line}" for line in lines)


def _environment() -> dict[str, str]:
    """The programs of the environment in which the tests run come first; nothing depends on a terminal."""
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "FORCE_COLOR")}
    return {**kept, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', '')}"}


def _run_console(block: Block, where: str, folder: Path, outcome: Outcome) -> Iterator[str]:
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
            command += f"\n{following}"
        done = subprocess.run(
            ["bash", "-c", f"(exit {code})\n{command}"],
            cwd=folder,
            env=_environment(),
            text=True,
            check=False,
            timeout=TIME_LIMIT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        code = done.returncode
        if code in (4, 126, 127):
            outcome.problems.append(f"{where}: exit code {code} of {command}")
        yield from (found.rstrip() for found in done.stdout.splitlines())


def matches(expected: list[str], shown: list[str]) -> bool:
    """Is this what was expected, as far as it is not left out?"""
    expected, shown = [[_SECONDS.sub("S s", line) for line in lines if line] for lines in (expected, shown)]
    pattern = "".join(r"(?:.*\n)*?" if line.strip() == "..." else _line_pattern(line) for line in expected)
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in shown)) is not None


def _line_pattern(line: str) -> str:
    return ".*".join(re.escape(part) for part in line.split("...")) + r"\n"


def prepare(folder: Path) -> None:
    """The files of the demo, without the trace."""
    command = [str(Path(sys.executable).parent / "policyproof"), "demo", "--out", str(folder)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=_environment(), timeout=TIME_LIMIT)
    (folder / "trace.json").unlink()


def run_pages(pages: list[Path]) -> dict[Path, Outcome]:
    """Run pages, two at a time, each in a folder of its own."""

    def run(page: Path) -> Outcome:
        with tempfile.TemporaryDirectory() as folder:
            prepare(Path(folder))
            return run_page(page, Path(folder))

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(pages, pool.map(run, pages), strict=True))


if __name__ == "__main__":
    for path, result in run_pages([Path(name).resolve() for name in sys.argv[1:]]).items():
        path.write_text(result.text, encoding="utf-8")
        sys.stdout.write(
            f"{path.name}: {len(result.problems)} differences\n" + "".join(f"{p}\n" for p in result.problems)
        )
