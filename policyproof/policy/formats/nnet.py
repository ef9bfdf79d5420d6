"""Networks in Stanford's text format `.nnet`.

    // any number of comment lines
    layers, inputs, outputs, widest,
    inputs, size of layer 1, ..., outputs,
    0,                                    (1 in old files: symmetric networks, not supported)
    least value of each input,
    greatest value of each input,
    mean of each input, and perhaps of the outputs,
    range of each input, and perhaps of the outputs,
    ... then for each layer one line of weights per neuron, and one bias per line

ReLU follows every layer but the last.  Inputs are normalised, (x - mean) / range, and outputs are
scaled back, y * range + mean.  The scaling of the outputs is multiplied into the last layer, whose
weights are then the products as rounded to float64.

The format's original evaluator clips inputs to their least and greatest values.  PlaJA, whose
policies come in this format, does not, and neither does this reader: the two lines are read, to find
damaged files, and left unused.

Invariant: a decimal is rounded once, to float64, when it is read.  Trailing commas, blank entries
and blank lines mean nothing; wrong counts are errors.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np

from policyproof.policy.formats.container import read_bytes
from policyproof.policy.formats.layers import floats
from policyproof.policy.network import Activation, Affine, Floats, Layer, Network, Normalise
from policyproof.run.errors import Feature, InvalidInput, UnsupportedFeature

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def read_nnet(path: str | Path) -> Network:
    """The network of a `.nnet` file."""
    lines = _Lines(path)
    count, inputs, outputs, _ = lines.integers(4, "layers, inputs, outputs and the widest layer")
    if count < 1:
        raise lines.invalid("a network without layers")
    sizes = lines.integers(count + 1, "the sizes of the inputs and of every layer")
    if sizes[0] != inputs or sizes[-1] != outputs or min(sizes) < 1:
        raise lines.invalid(f"expected positive sizes from {inputs} (inputs) to {outputs} (outputs), found {sizes}")
    if any(flag != 0 for flag in lines.numbers()):
        raise UnsupportedFeature([Feature(lines.where, "a symmetric network (the flag is not 0)")])
    for _ in ("least", "greatest"):
        lines.numbers()
    means, output_mean = lines.inputs_and_outputs(inputs, "means", 0.0)
    ranges, output_range = lines.inputs_and_outputs(inputs, "ranges", 1.0)
    if (ranges <= 0).any() or output_range <= 0:
        raise lines.invalid("a range that is not positive")

    layers: list[Layer] = []
    if means.any() or (ranges != 1).any():
        layers.append(Normalise(means, ranges))
    for number in range(count):
        source, target = sizes[number], sizes[number + 1]
        weights = [lines.exactly(source, f"weights of layer {number + 1}") for _ in range(target)]
        bias = [lines.exactly(1, f"bias of layer {number + 1}")[0] for _ in range(target)]
        layers += [Affine(floats(weights), floats(bias)), Activation("relu")]
    lines.finish()
    last = layers[-2]
    # The last activation goes; the scaling of the outputs joins the last layer.
    if isinstance(last, Affine) and (output_range != 1 or output_mean != 0):
        last = Affine(last.weights * output_range, last.bias * output_range + output_mean)
    return Network((*layers[:-2], last), inputs, "float64", str(path))


class _Lines:
    """The lines that carry numbers, one after the other, and where we are for errors."""

    def __init__(self, path: str | Path) -> None:
        self._path = str(path)
        try:
            text = read_bytes(path).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise InvalidInput(f"not a text file: {error}", where=self._path) from None
        numbered = enumerate(text.splitlines(), start=1)
        kept = [
            (number, line) for number, line in numbered if line.strip(" \t,") and not line.lstrip().startswith("//")
        ]
        self._rest = iter(kept)
        self._number = 0

    @property
    def where(self) -> str:
        return f"{self._path}, line {self._number}"

    def invalid(self, message: str) -> InvalidInput:
        return InvalidInput(message, where=self.where)

    def numbers(self) -> list[float]:
        """All numbers of the next line."""
        try:
            self._number, line = next(self._rest)
        except StopIteration:
            raise self.invalid("the file ends too early (is it truncated?)") from None
        result = []
        for entry in line.replace(",", " ").split():
            value = float(entry) if _NUMBER.fullmatch(entry) else math.nan
            if not math.isfinite(value):
                raise self.invalid(f"expected a number, found {entry[:40]!r}")
            result.append(value)
        return result

    def exactly(self, count: int, what: str) -> list[float]:
        values = self.numbers()
        if len(values) != count:
            raise self.invalid(f"expected {count} values ({what}), found {len(values)}")
        return values

    def integers(self, count: int, what: str) -> list[int]:
        values = self.exactly(count, what)
        if any(value != int(value) for value in values):
            raise self.invalid(f"expected integers ({what}), found {values}")
        return [int(value) for value in values]

    def inputs_and_outputs(self, inputs: int, what: str, default: float) -> tuple[Floats, float]:
        """One value per input, and the value for the outputs, which many files leave out."""
        values = self.numbers()
        if len(values) not in (inputs, inputs + 1):
            raise self.invalid(f"expected {inputs} or {inputs + 1} values ({what}), found {len(values)}")
        return np.array(values[:inputs]), values[inputs] if len(values) > inputs else default

    def finish(self) -> None:
        extra = next(self._rest, None)
        if extra is not None:
            self._number = extra[0]
            raise self.invalid("the network is complete, but here is one more line")
