"""Compiled kernels are kept for the sources they were made of, and for no others."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from policyproof.run import machine_code

ROOT = Path(__file__).parent.parent
ASK = """
import numpy as np
from policyproof.bounds import margins
from policyproof.bounds.api import bound_rows
from policyproof.bounds.chain import make_chain, make_rows
from policyproof.policy.network import Activation, Affine, Network
network = Network((Affine(np.eye(1), np.zeros(1)), Activation("tanh"), Affine(np.eye(1), np.zeros(1))), 1)
chain = make_chain(network)
print(bound_rows(chain, make_rows(chain, np.eye(1)), np.full((1, 1), 0.5), np.full((1, 1), 0.5)).lower[0, 0])
"""


def _ask(folder: Path) -> float:
    done = subprocess.run([sys.executable, "-c", ASK], cwd=folder, capture_output=True, text=True, check=True)
    return float(done.stdout)


def test_a_changed_constant_is_compiled_anew(tmp_path: Path) -> None:
    """The margin of tanh stands in another file than the kernel that holds it."""
    ignored = shutil.ignore_patterns("__pycache__", "policies")
    shutil.copytree(ROOT / "policyproof", tmp_path / "policyproof", ignore=ignored)
    first = _ask(tmp_path)
    caches = list((tmp_path / "policyproof" / "__pycache__").glob("kernels-*"))
    assert len(caches) == 1
    assert any(caches[0].rglob("*.nbc"))
    margins = tmp_path / "policyproof" / "bounds" / "margins.py"
    text = margins.read_text(encoding="utf-8")
    assert "TANH_MARGIN = 2.0**-44" in text
    margins.write_text(text.replace("TANH_MARGIN = 2.0**-44", "TANH_MARGIN = 2.0**-10"), encoding="utf-8")
    assert _ask(tmp_path) < first - 2.0**-11
    assert len(list((tmp_path / "policyproof" / "__pycache__").glob("kernels-*"))) == 2


def test_every_kernel_compiles_by_this_door() -> None:
    kernels = list(machine_code.PACKAGE.rglob("*.py"))
    direct = [path.name for path in kernels if "from numba import njit" in path.read_text(encoding="utf-8")]
    assert direct == []
    users = [path for path in kernels if "machine_code import njit" in path.read_text(encoding="utf-8")]
    # The hash covers files of this name.
    assert len(users) > 5
    assert all(path.name.endswith("kernel.py") for path in users)
