"""README and documentation show what really happens, and leave nothing out that they promise to list."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.documents import PAGES, ROOT, Outcome, blocks, matches, run_page, run_pages

MOST_NOT_RUN = 8
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)(?:#[^)]*)?\)")


@pytest.fixture(scope="module")
def outcomes() -> dict[Path, Outcome]:
    return run_pages(PAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_shows_happens(page: Path, outcomes: dict[Path, Outcome]) -> None:
    problems = outcomes[page].problems
    assert not problems, "\n".join(problems)


def test_few_blocks_are_not_run() -> None:
    found = [
        f"{page.name}:{block.first}: {block.mark[1]}"
        for page in PAGES
        for block in blocks(page.read_text(encoding="utf-8"))
        if block.mark is not None and block.mark[0] == "not run"
    ]
    print(*found, sep="\n")
    assert len(found) <= MOST_NOT_RUN


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_files_lead_somewhere(page: Path) -> None:
    missing = [
        target for target in LINK.findall(page.read_text(encoding="utf-8")) if not (page.parent / target).exists()
    ]
    assert not missing


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = set(re.findall(r"\S+\.md$", navigation, re.MULTILINE))
    assert listed == {str(page.relative_to(ROOT / "docs")) for page in PAGES if ROOT / "docs" in page.parents}


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "index.html").is_file()


def test_the_picture_shows_the_present_answers() -> None:
    command = [sys.executable, "-c", "from docs.make_picture import picture, TARGET; "]
    command[-1] += "import sys; sys.stdout.write(picture())"
    drawn = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert drawn == (ROOT / "docs" / "images" / "warehouse.svg").read_text(encoding="utf-8")


# The runner itself: everything that it is there to notice.


def _run(tmp_path: Path, text: str) -> list[str]:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    folder = tmp_path / "folder"
    folder.mkdir()
    return run_page(page, folder).problems


GOOD = """
Write `word.txt`:

<!-- file: word.txt -->
```text
seven
```

```console
$ cat word.txt
seven
$ (exit 3)
$ echo $?
3
```

```python
number = len(open("word.txt").read().strip())
```

```python
print(number)
print(number + 1)
```

```output
...
6
```
"""


def test_a_page_that_is_right_has_no_problems(tmp_path: Path) -> None:
    assert _run(tmp_path, GOOD) == []


@pytest.mark.parametrize(
    ("right", "wrong", "noticed"),
    [
        ("$ cat word.txt\nseven", "$ cat word.txt\neight", "found"),
        ("$ echo $?\n3", "$ echo $?\n4", "found"),
        ("$ (exit 3)\n", "$ (exit 4)\n", "exit code 4"),
        ("...\n6", "...\n7", "found"),
        ("number + 1", "numbers + 1", "NameError"),
        ("```console", "```shell", "not a block that is run"),
        ("Write `word.txt`", "Write this", "does not name the file"),
    ],
)
def test_what_is_wrong_is_noticed(tmp_path: Path, right: str, wrong: str, noticed: str) -> None:
    assert right in GOOD
    problems = _run(tmp_path, GOOD.replace(right, wrong, 1))
    assert any(noticed in problem for problem in problems), problems


@pytest.mark.parametrize(
    ("expected", "shown", "same"),
    [
        (["a 0.12 s"], ["a 3.40 s"], True),
        (["a 0.12"], ["a 0.13"], False),
        (["states ..."], ["states 12"], True),
        (["states ..."], ["starts 12"], False),
        (["a", "...", "z"], ["a", "b", "c", "z"], True),
        (["a", "...", "z"], ["a", "b", "c"], False),
        (["a", "", "b"], ["a", "b"], True),
        (["a"], ["a", "b"], False),
    ],
)
def test_what_may_be_left_out(expected: list[str], shown: list[str], same: bool) -> None:
    assert matches(expected, shown) is same
