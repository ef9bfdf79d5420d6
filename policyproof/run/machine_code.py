"""Compiling kernels: Numba's `njit`, with a cache that knows what a kernel is made of.

Numba keeps compiled kernels beside their source, and compiles anew when that file changes.  But a kernel
also holds what it calls from other kernels, and constants from other modules (margins, limits): when
those change, the old machine code would be used, silently.  So the cache's folder carries a hash of all
these sources.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba import config

PACKAGE = Path(__file__).parent.parent
CONSTANTS = ("bounds/margins.py", "bounds/lines.py", "bounds/chain.py", "model/tape.py")
"""Sources, beside the kernels themselves, whose constants are compiled in."""


def njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """`numba.njit` with these options, cached in the folder for the present sources."""

    def compile_later(function: Callable[..., Any]) -> Any:
        before = config.CACHE_DIR
        config.CACHE_DIR = _folder() or before
        try:
            return numba.njit(**options)(function)
        finally:
            config.CACHE_DIR = before

    return compile_later


@cache
def _folder() -> str:
    """Where compiled kernels are kept; nothing, if only Numba knows a place that can be written."""
    folder = PACKAGE / "__pycache__" / f"kernels-{fingerprint()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return ""
    return str(folder) if os.access(folder, os.W_OK) else ""


def fingerprint() -> str:
    """A hash of everything that compiled kernels depend on in this package."""
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted([*PACKAGE.rglob("*kernel.py"), *(PACKAGE / name for name in CONSTANTS)]):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
