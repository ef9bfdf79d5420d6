"""Lines that bound a function from below and above on an interval, sound as floats.

For z in [l, u]:   λ z + κ <= f(z) <= μ z + ν.   The slopes λ, μ are chosen for tightness; any choice is
sound, because the intercepts are computed from the slope: κ is at most the least value of f(z) - λ z
on the interval, ν at least the greatest of f(z) - μ z.

- *Piecewise linear* f: the extreme values are at the ends and at the kinks.
- *tanh*: they are at the ends and where tanh' equals the slope, z = ±atanh(sqrt(1 - slope)).  There
  the function is flat to first order, so the rounding of z costs only its square; slopes below
  2**-40 are replaced by 0, which has no such point.  `TANH_MARGIN` (2**-44, times 1 + |slope z|)
  covers that, the library's tanh (8 units in the last place assumed, 1 or 2 documented), and the
  rounding of f(z) - slope z.
- *sigmoid*(z) = 1/2 + tanh(z/2)/2, so its lines are those of tanh on the halved interval.

The lower slope of an undecided ReLU may be anything in [0, 1]: the adaptive choice takes 1 where
u > -l (DeepPoly), and optimisation may move it.

`xp` is NumPy or PyTorch: this text is the naive twin of the fused kernel, and the GPU's code.
"""

from __future__ import annotations

from typing import Any

from policyproof.bounds.chain import CLIP, IDENTITY, LEAKY, SIGMOID, TANH
from policyproof.bounds.margins import TANH_MARGIN

Array = Any
Lines = tuple[Array, Array, Array, Array]

CLOSE = 1.0 + 2.0**-48
"""More than the few roundings of an intercept."""
TINY = 2.0**-1000
LEAST_SLOPE = 2.0**-40
BISECTIONS = 12


def lines(xp: Any, function: int, lower: Array, upper: Array, first: Array, second: Array) -> Lines:
    """(lower slope, lower intercept, upper slope, upper intercept), shaped like `lower` and `upper`."""
    if function == IDENTITY:
        one, zero = xp.ones_like(lower), xp.zeros_like(lower)
        return one, zero, one, zero
    if function == LEAKY:
        return _leaky(xp, lower, upper, first + xp.zeros_like(lower))
    if function == TANH:
        return _tanh(xp, lower, upper)
    if function == SIGMOID:
        a, b, c, d = _tanh(xp, lower * 0.5, upper * 0.5)
        return a * 0.25, b * 0.5 + 0.5 - TANH_MARGIN, c * 0.25, d * 0.5 + 0.5 + TANH_MARGIN
    if function == CLIP:
        return _clip(xp, lower, upper, first + xp.zeros_like(lower), second + xp.zeros_like(lower))
    raise ValueError(f"unknown function {function}")


def undecided(xp: Any, function: int, lower: Array, upper: Array, first: Array, second: Array) -> Array:
    """Where the lines are not exact, so that tighter bounds of z pay."""
    if function == IDENTITY:
        return xp.zeros_like(lower) > 1
    if function == LEAKY:
        return (lower < 0) & (upper > 0) & (first < 1)
    if function == CLIP:
        return ((lower < first) & (first < upper)) | ((lower < second) & (second < upper))
    return lower < upper


def image(xp: Any, function: int, lower: Array, upper: Array, first: Array, second: Array) -> tuple[Array, Array]:
    """The range of f on [lower, upper], rounded outward (all functions here are monotone)."""
    if function == IDENTITY:
        return lower, upper
    if function == LEAKY:
        low = xp.where(lower > 0, lower, lower * first * CLOSE - TINY)
        high = xp.where(upper > 0, upper, upper * first / CLOSE)
        return xp.where(first == 0, _positive(xp, lower), low), xp.where(first == 0, _positive(xp, upper), high)
    if function == CLIP:
        first, second = first + xp.zeros_like(lower), second + xp.zeros_like(lower)
        return _between(xp, lower, first, second), _between(xp, upper, first, second)
    if function == TANH:
        low, high, least = xp.tanh(lower), xp.tanh(upper), -1.0
    else:
        low, high, least = 0.5 + 0.5 * xp.tanh(lower * 0.5), 0.5 + 0.5 * xp.tanh(upper * 0.5), 0.0
    one = xp.ones_like(low)
    return xp.maximum(low - TANH_MARGIN, least * one), xp.minimum(high + TANH_MARGIN, one)


def _positive(xp: Any, value: Array) -> Array:
    return xp.where(value > 0, value, xp.zeros_like(value))


def _between(xp: Any, value: Array, low: Array, high: Array) -> Array:
    return xp.minimum(xp.maximum(value, low), high)


def _leaky(xp: Any, lower: Array, upper: Array, slope: Array) -> Lines:
    zero, one = xp.zeros_like(lower), xp.ones_like(lower)
    active, inactive = lower >= 0, upper <= 0
    # The chord; f - chord is convex, so its greatest value is at an end.
    chord = (upper - slope * lower) / (upper - lower)
    intercept = xp.maximum((slope - chord) * lower, (one - chord) * upper) * CLOSE + TINY
    decided = active | inactive
    flat = xp.where(active, one, slope)
    adaptive = xp.where(upper > -lower, one, slope)
    return (
        xp.where(decided, flat, adaptive),
        zero,
        xp.where(decided, flat, chord),
        xp.where(decided, zero, intercept),
    )


def _clip(xp: Any, lower: Array, upper: Array, low: Array, high: Array) -> Lines:
    zero, one = xp.zeros_like(lower), xp.ones_like(lower)
    below, above = (lower < low) & (low < upper), (lower < high) & (high < upper)
    outside = (upper <= low) | (lower >= high)
    # The right end of the rising part, the left end of it, and the chords to the far ends.
    f_lower, f_upper = _between(xp, lower, low, high), _between(xp, upper, low, high)
    rise = f_upper - f_lower
    upper_chord = rise / (xp.where(above, high, upper) - lower)
    lower_chord = rise / (upper - xp.where(below, low, lower))
    upper_slope = xp.where(below, upper_chord, xp.where(above, xp.where(high - lower > upper - high, one, zero), one))
    lower_slope = xp.where(above, lower_chord, xp.where(below, xp.where(upper - low > low - lower, one, zero), one))
    upper_slope, lower_slope = xp.where(outside, zero, upper_slope), xp.where(outside, zero, lower_slope)
    ends = [
        (lower, f_lower),
        (upper, f_upper),
        (xp.where(below, low, lower), f_lower),
        (xp.where(above, high, upper), f_upper),
    ]
    lower_intercept, upper_intercept = _extremes(xp, ends, lower_slope, upper_slope, 2.0**-48)
    return lower_slope, lower_intercept, upper_slope, upper_intercept


def _extremes(
    xp: Any, points: list[tuple[Array, Array]], lower_slope: Array, upper_slope: Array, margin: float
) -> tuple[Array, Array]:
    """Intercepts from the points (z, f(z)) where f(z) - slope z can be extreme."""
    least = greatest = None
    for z, value in points:
        low = value - lower_slope * z - margin * (xp.abs(value) + xp.abs(lower_slope * z)) - TINY
        high = value - upper_slope * z + margin * (xp.abs(value) + xp.abs(upper_slope * z)) + TINY
        least = low if least is None else xp.minimum(least, low)
        greatest = high if greatest is None else xp.maximum(greatest, high)
    return least, greatest


def _tanh(xp: Any, lower: Array, upper: Array) -> Lines:
    f_lower, f_upper = xp.tanh(lower), xp.tanh(upper)
    width = upper - lower
    middle = 0.5 * (lower + upper)
    narrow = width < 1e-9
    tangent = 1 - xp.tanh(middle) ** 2
    chord = xp.where(narrow, tangent, (f_upper - f_lower) / xp.where(narrow, xp.ones_like(width), width))
    # Tangents from one end to the other side's bend (where the interval contains zero).
    from_right = _tangent_from(xp, upper, f_upper, lower)
    from_left = _tangent_from(xp, -lower, -f_lower, -upper)
    right, left = lower >= 0, upper <= 0
    lower_slope = xp.where(right, chord, xp.where(left, tangent, from_right))
    upper_slope = xp.where(right, tangent, xp.where(left, chord, from_left))
    lower_slope, upper_slope = (xp.where(s > LEAST_SLOPE, s, xp.zeros_like(s)) for s in (lower_slope, upper_slope))
    least, _ = _tanh_extremes(xp, lower, upper, f_lower, f_upper, lower_slope)
    _, greatest = _tanh_extremes(xp, lower, upper, f_lower, f_upper, upper_slope)
    return lower_slope, least, upper_slope, greatest


def _tangent_from(xp: Any, end: Array, value: Array, far: Array) -> Array:
    """The slope of the line through (end, value), end > 0, that touches tanh at some d in [far, 0]."""
    left, right = xp.minimum(far, xp.zeros_like(far)), xp.zeros_like(far)
    for _ in range(BISECTIONS):
        d = 0.5 * (left + right)
        t = xp.tanh(d)
        # Steeper than the line to the end: the touching point lies further to the left.
        steeper = (1 - t * t) * (end - d) > value - t
        left, right = xp.where(steeper, left, d), xp.where(steeper, d, right)
    t = xp.tanh(left)
    slope = (value - t) / (end - left)
    return xp.where(slope > 0, slope, xp.zeros_like(slope))


def _tanh_extremes(
    xp: Any, lower: Array, upper: Array, f_lower: Array, f_upper: Array, slope: Array
) -> tuple[Array, Array]:
    """Bounds of tanh(z) - slope z on [lower, upper] (see the module's text)."""
    root = xp.sqrt(xp.maximum(1 - slope, xp.zeros_like(slope)))
    place = xp.arctanh(xp.minimum(root, (1 - 2.0**-53) * xp.ones_like(root)))
    candidates = []
    for z, value in ((lower, f_lower), (upper, f_upper), (place, root), (-place, -root)):
        inside = (z >= lower) & (z <= upper) & ((slope > 0) | (z == lower) | (z == upper))
        candidates.append((inside, value - slope * z))
    size = 1 + slope * xp.maximum(xp.abs(lower), xp.abs(upper))
    margin = TANH_MARGIN * size
    least = greatest = candidates[0][1]
    for inside, value in candidates[1:]:
        least = xp.where(inside & (value < least), value, least)
        greatest = xp.where(inside & (value > greatest), value, greatest)
    return least - margin, greatest + margin
