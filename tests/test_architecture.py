"""Packages import only what stands above them, and the checker runs without the code that makes claims."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "policyproof"

# From the design: a line may import the lines before it.
ORDER = [
    {"run", "version"},
    {"model"},
    {"policy"},
    {"encodings"},
    {"bounds"},
    {"oracle"},
    {"evidence"},
    {"engines"},
    {"zoo", "training"},
    {"api"},
    {"experiments"},
    {"report"},
    {"cli", "__main__", "__init__"},
]
LEVEL = {name: level for level, names in enumerate(ORDER) for name in names}
CHECKERS = ("replay.py", "check.py", "interpreter.py", "plain_values.py", "plain_policy.py", "trace.py")
SHARED_BASE = {"run", "model", "policy", "evidence"}


def _modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def _part(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def _imports(path: Path) -> set[str]:
    """The parts of the package that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "policyproof" and len(parts) > 1:
                found.add(parts[1])
    return found


def test_every_part_has_its_place() -> None:
    assert {_part(path) for path in _modules()} <= set(LEVEL)


@pytest.mark.parametrize("path", _modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_upwards(path: Path) -> None:
    if _part(path) == "__init__":
        return
    allowed = {name for name, level in LEVEL.items() if level <= LEVEL[_part(path)]} | {"__version__"}
    assert _imports(path) <= allowed, f"{path.name} imports something that stands below it"


def test_the_model_knows_no_solver() -> None:
    forbidden = ("z3", "highspy", "maraboupy", "onnx", "torch")
    for path in (PACKAGE / "model").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not any(f"import {name}" in text for name in forbidden), path


@pytest.mark.parametrize("name", [name for name in CHECKERS if (PACKAGE / "evidence" / name).exists()])
def test_checkers_share_only_the_trusted_base(name: str) -> None:
    path = PACKAGE / "evidence" / name
    assert _imports(path) <= SHARED_BASE
    text = path.read_text(encoding="utf-8")
    for module in ("exact", "ranges", "tape", "batch_kernel", "flat", "successors", "enclosures", "decisions"):
        assert f"policyproof.model.{module} " not in text, f"{name} uses the engines' own {module}"
        assert f"policyproof.policy.{module} " not in text, f"{name} uses the engines' own {module}"


def test_replay_runs_with_everything_else_deleted(tmp_path: Path) -> None:
    """A copy of the package without engines, oracle, bounds and encodings still replays a trace."""
    script = """
import sys
sys.path.insert(0, sys.argv[1])
import policyproof
assert policyproof.__file__.startswith(sys.argv[1])
from policyproof.evidence.replay import replay
from policyproof.evidence.trace import Trace, TraceState, TraceStep
from policyproof.model.building import ModelBuilder
builder = ModelBuilder("line")
x = builder.integer("x", 0, 3, initial=0)
builder.edge("go", update={x: x + 1})
model = builder.build(builder.safety("end", unsafe=x.equals(1)))
states = tuple(TraceState({"environment": "ready"}, {"x": value}) for value in (0, 1))
trace = Trace(states, (TraceStep("go", (("environment", 0, 0),)),))
outcome = replay(model.model, trace, model.property("end"))
assert outcome.accepted, outcome
wrong = Trace(states, (TraceStep("go", (("environment", 0, 1),)),))
assert not replay(model.model, wrong, model.property("end")).accepted
loaded = [name for name in sys.modules if name.startswith("policyproof.")]
assert not any(part in name for name in loaded for part in ("engines", "oracle", "bounds", "encodings")), loaded
print("replayed")
"""
    copy = tmp_path / "policyproof"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("engines", "oracle", "bounds", "encodings"):
        shutil.rmtree(copy / name, ignore_errors=True)
    command = [sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "replayed"
