"""Boxes per second of the bounds: all 72 differences of the outputs of a 20-64-64-9 network.

    python -m bench.bounds [--out FILE] [--device cuda] [--seconds S]

The fused kernel, beside its NumPy twin and PyTorch (if installed) on the same boxes in the same run.
FLOP/s are those of the back-substitutions that a full bound needs, whatever the kernel skips; beside
them stands the rate of a matrix product on this machine.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from policyproof.bounds.api import bound_rows
from policyproof.bounds.chain import Chain, Rows, difference_rows, make_chain
from policyproof.bounds.linear import Relaxation
from policyproof.policy.network import Activation, Affine, Network
from policyproof.run.threads import jobs

SIZES = (20, 64, 64, 9)
WIDTHS = (0.02, 0.1, 0.5)


def network(sizes: tuple[int, ...] = SIZES, seed: int = 1, *, gain: float = 1.0, bias: float = 1.0) -> Network:
    rng = np.random.default_rng(seed)
    layers: list[Any] = []
    for rows, columns in zip(sizes[1:], sizes[:-1], strict=True):
        weights = gain * rng.normal(size=(rows, columns)) / np.sqrt(columns)
        layers += [Affine(weights, bias * rng.normal(size=rows)), Activation("relu")]
    return Network(tuple(layers[:-1]), sizes[0])


def boxes(count: int, width: float, seed: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    centre = rng.uniform(-1, 1, (count, SIZES[0]))
    half = width * rng.random(centre.shape)
    return centre - half, centre + half


def flop_per_box(sizes: tuple[int, ...] = SIZES) -> int:
    """Of the back-substitutions: both bounds of every component of later stages, and the rows."""
    rows = sizes[-1] * (sizes[-1] - 1)
    total = 0
    for stage in range(1, len(sizes) - 1):
        count = 2 * sizes[stage + 1] if stage < len(sizes) - 2 else rows
        total += sum(2 * count * a * b for a, b in itertools.pairwise(sizes[: stage + 1]))
    return total


def rate(task: Callable[[int], Any], seconds: float, batch: int) -> float:
    """Boxes per second: the median of repetitions over the given time."""
    task(batch)
    rates, ended = list[float](), time.monotonic() + seconds
    while time.monotonic() < ended or len(rates) < 3:
        started = time.perf_counter()
        task(batch)
        rates.append(batch / (time.perf_counter() - started))
    return float(np.median(rates))


def matrix_product(seconds: float) -> float:
    """FLOP/s of a matrix product in float64, as the numerical library does it."""
    a = np.random.default_rng(0).normal(size=(768, 768))
    return rate(lambda _: a @ a, seconds, 1) * 2 * 768**3


def measure(chain: Chain, rows: Rows, width: float, seconds: float, device: str | None) -> dict[str, float]:
    lower, upper = boxes(1 << 13, width)
    found = {
        "kernel": rate(lambda n: bound_rows(chain, rows, lower[:n], upper[:n]), seconds, 1 << 13),
        "kernel, 5 slope iterations": rate(
            lambda n: bound_rows(chain, rows, lower[:n], upper[:n], iterations=5), seconds, 1 << 12
        ),
        "numpy": rate(lambda n: Relaxation(chain, lower[:n], upper[:n]).lower_bounds(rows), seconds, 1 << 8),
    }
    try:
        import torch
    except ImportError:
        return found
    torch.set_num_threads(jobs())
    place = device or "cpu"
    batch = 1 << 8 if device is None else 1 << 15
    if device is not None:
        lower, upper = boxes(batch, width)
    found[f"torch on {place}"] = rate(
        lambda n: Relaxation(chain, lower[:n], upper[:n], xp=torch, place=place).lower_bounds(rows), seconds, batch
    )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/bench-bounds.json"))
    parser.add_argument("--device", help="cuda: PyTorch there, beside the kernel on the processor")
    parser.add_argument("--seconds", type=float, default=2.0)
    arguments = parser.parse_args()
    chain = make_chain(network())
    pairs = [(a, b) for a in range(SIZES[-1]) for b in range(SIZES[-1]) if a != b]
    rows = difference_rows(chain, pairs)
    product = matrix_product(arguments.seconds)
    print(
        f"{'-'.join(map(str, SIZES))}, {len(rows)} rows, {jobs()} threads; matrix product {product / 1e9:.1f} GFLOP/s"
    )
    report: dict[str, Any] = {"matrix_product_flops": product, "flop_per_box": flop_per_box(), "widths": {}}
    for width in WIDTHS:
        found = measure(chain, rows, width, arguments.seconds, arguments.device)
        report["widths"][str(width)] = found
        reference = found["numpy"]
        for name, value in found.items():
            print(
                f"  half-width {width:<5} {name:28} {value:>12,.0f} boxes/s  "
                f"{value * flop_per_box() / 1e9:6.1f} GFLOP/s  {value / reference:6.1f}x the twin"
            )
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
