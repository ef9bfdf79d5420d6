"""Machine code of the bounds: everything about one box in one go, so that nothing leaves the cache.

The mathematics is that of `linear` and `lines`, which are its naive twin.  What is different:

- back-substitution of a stage's components only where their function is undecided;
- components with coefficient zero (dead ones, mostly) are skipped;
- rows are bounded only where they are wanted;
- what is decided on a box is decided on its parts, and is not asked again there (`phases`);
- the lower slopes of undecided ReLUs can be *optimised* for a row that is not settled yet
  (alpha-CROWN): the bound is differentiable in them, its gradient is the coefficient of a component
  times the value that the component's line has at the corner where the bound is attained, and any
  slope in [slope of the leaky part, 1] is sound, so the best bound seen is kept.

Sums may be reordered and fused by the compiler: the margins hold for every order.
"""

from __future__ import annotations

import math

import numpy as np

from policyproof.bounds.chain import CLIP, IDENTITY, LEAKY, TANH
from policyproof.bounds.lines import BISECTIONS, CLOSE, LEAST_SLOPE, TINY
from policyproof.bounds.margins import FLOOR, SLACK, TANH_MARGIN
from policyproof.run.machine_code import njit

# Columns of the table of stages.
SIZE, INPUTS, WEIGHTS, FIRST, FUNCTION = 0, 1, 2, 3, 4
# Rows of the work space, per component.
LOWER, UPPER, MAGNITUDE, LOWER_SLOPE, LOWER_INTERCEPT, UPPER_SLOPE, UPPER_INTERCEPT, IMAGE_LOWER, IMAGE_UPPER, GAP = (
    range(10)
)
FIELDS = 10
# Rows of the parameters, per component.
BIAS, PARAMETER, SECOND = 0, 1, 2
ROWS_AT_ONCE = 16
STEP, DECAY = 0.4, 0.85

_jit = njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
_strict = njit(cache=True, nogil=True, error_model="numpy")


@_strict
def is_undecided(function, low, high, first, second):
    """Are the lines inexact here, so that tighter bounds pay?"""
    if function == LEAKY:
        return low < 0.0 < high and first < 1.0
    if function == CLIP:
        return low < first < high or low < second < high
    return function != IDENTITY and low < high


@_strict
def image_of(function, low, high, first, second):
    if function == IDENTITY:
        return low, high
    if function == LEAKY:
        if first == 0.0:
            return max(low, 0.0), max(high, 0.0)
        return (
            low if low > 0.0 else low * first * CLOSE - TINY,
            high if high > 0.0 else high * first / CLOSE,
        )
    if function == CLIP:
        return min(max(low, first), second), min(max(high, first), second)
    if function == TANH:
        return max(math.tanh(low) - TANH_MARGIN, -1.0), min(math.tanh(high) + TANH_MARGIN, 1.0)
    low, high = 0.5 + 0.5 * math.tanh(0.5 * low), 0.5 + 0.5 * math.tanh(0.5 * high)
    return max(low - TANH_MARGIN, 0.0), min(high + TANH_MARGIN, 1.0)


@_strict
def lines_of(function, low, high, first, second):
    """(lower slope, lower intercept, upper slope, upper intercept) on [low, high]."""
    if function == LEAKY:
        if low >= 0.0:
            return 1.0, 0.0, 1.0, 0.0
        if high <= 0.0:
            return first, 0.0, first, 0.0
        chord = (high - first * low) / (high - low)
        intercept = max((first - chord) * low, (1.0 - chord) * high) * CLOSE + TINY
        return (1.0 if high > -low else first), 0.0, chord, intercept
    if function == IDENTITY:
        return 1.0, 0.0, 1.0, 0.0
    if function == CLIP:
        return _clip_lines(low, high, first, second)
    if function == TANH:
        return _tanh_lines(low, high)
    a, b, c, d = _tanh_lines(0.5 * low, 0.5 * high)
    return a * 0.25, b * 0.5 + 0.5 - TANH_MARGIN, c * 0.25, d * 0.5 + 0.5 + TANH_MARGIN


@_strict
def _clip_lines(low, high, first, second):
    below, above = low < first < high, low < second < high
    at_low, at_high = min(max(low, first), second), min(max(high, first), second)
    lower_slope = upper_slope = 1.0
    if high <= first or low >= second:
        lower_slope = upper_slope = 0.0
    elif below or above:
        rise = at_high - at_low
        if below:
            upper_slope = rise / ((second if above else high) - low)
            lower_slope = 1.0 if high - first > first - low else 0.0
        else:
            upper_slope = 1.0 if second - low > high - second else 0.0
        if above:
            lower_slope = rise / (high - (first if below else low))
    least, greatest = np.inf, -np.inf
    for point in range(4):
        z = low if point == 0 else high if point == 1 else first if point == 2 else second
        if (point == 2 and not below) or (point == 3 and not above):
            continue
        value = min(max(z, first), second)
        a, b = lower_slope * z, upper_slope * z
        below_here = value - a - 2.0**-48 * (abs(value) + abs(a)) - TINY
        above_here = value - b + 2.0**-48 * (abs(value) + abs(b)) + TINY
        least = below_here if not below_here >= least else least
        greatest = above_here if not above_here <= greatest else greatest
    return lower_slope, least, upper_slope, greatest


@_strict
def _tangent_from(end, value, far):
    left, right = min(far, 0.0), 0.0
    for _ in range(BISECTIONS):
        d = 0.5 * (left + right)
        t = math.tanh(d)
        if (1.0 - t * t) * (end - d) > value - t:
            right = d
        else:
            left = d
    slope = (value - math.tanh(left)) / (end - left)
    return slope if slope > 0.0 else 0.0


@_strict
def _tanh_lines(low, high):
    at_low, at_high = math.tanh(low), math.tanh(high)
    if low >= 0.0 or high <= 0.0:
        middle = math.tanh(0.5 * (low + high))
        tangent = 1.0 - middle * middle
        chord = tangent if high - low < 1e-9 else (at_high - at_low) / (high - low)
        lower_slope, upper_slope = (chord, tangent) if low >= 0.0 else (tangent, chord)
    else:
        lower_slope = _tangent_from(high, at_high, low)
        upper_slope = _tangent_from(-low, -at_low, -high)
    lower_slope = lower_slope if lower_slope > LEAST_SLOPE else 0.0
    upper_slope = upper_slope if upper_slope > LEAST_SLOPE else 0.0
    size = max(abs(low), abs(high))
    least, _ = _tanh_extremes(low, high, at_low, at_high, lower_slope)
    _, greatest = _tanh_extremes(low, high, at_low, at_high, upper_slope)
    return (
        lower_slope,
        least - TANH_MARGIN * (1.0 + lower_slope * size),
        upper_slope,
        greatest + TANH_MARGIN * (1.0 + upper_slope * size),
    )


@_strict
def _tanh_extremes(low, high, at_low, at_high, slope):
    a, b = at_low - slope * low, at_high - slope * high
    least, greatest = min(a, b), max(a, b)
    if slope > 0.0:
        root = math.sqrt(max(1.0 - slope, 0.0))
        place = math.atanh(min(root, 1.0 - 2.0**-53))
        value = root - slope * place
        if low <= place <= high:
            least, greatest = min(least, value), max(greatest, value)
        if low <= -place <= high:
            least, greatest = min(least, -value), max(greatest, -value)
    return least, greatest


@_jit
def multiply(block, rows, weights, out, indices):
    """out[r] = block[r] @ weights, skipping zero coefficients."""
    size, columns = weights.shape
    for r in range(rows):
        count = 0
        for i in range(size):
            if block[r, i] != 0.0:
                indices[count] = i
                count += 1
        target = out[r]
        for j in range(columns):
            target[j] = 0.0
        position = 0
        while position + 4 <= count:
            a, b, c, d = indices[position], indices[position + 1], indices[position + 2], indices[position + 3]
            fa, fb, fc, fd = block[r, a], block[r, b], block[r, c], block[r, d]
            wa, wb, wc, wd = weights[a], weights[b], weights[c], weights[d]
            for j in range(columns):
                target[j] += fa * wa[j] + fb * wb[j] + fc * wc[j] + fd * wd[j]
            position += 4
        while position < count:
            a = indices[position]
            fa = block[r, a]
            wa = weights[a]
            for j in range(columns):
                target[j] += fa * wa[j]
            position += 1


@_jit
def relax(block, rows, work, vectors, start, size, totals, errors, rounded, shares, parts):
    """Replace the components of a stage by their lines, in the first `rows` rows of the block.

    With `shares`, `parts[row, input]` collects what the gaps between the lines may cost the row.
    """
    for r in range(rows):
        total, error, touched = 0.0, 0.0, False
        for i in range(size):
            c = block[r, i]
            if c == 0.0:
                continue
            k = start + i
            if len(shares) and work[GAP, k] > 0.0:
                gap = abs(c) * work[GAP, k]
                for j in range(shares.shape[1]):
                    parts[r, j] += gap * shares[k, j]
            if c > 0.0:
                slope, intercept = work[LOWER_SLOPE, k], work[LOWER_INTERCEPT, k]
            else:
                slope, intercept = work[UPPER_SLOPE, k], work[UPPER_INTERCEPT, k]
            if slope == 0.0 and intercept == 0.0:
                block[r, i] = 0.0
                continue
            touched = True
            offset = c * intercept
            c = c * slope
            block[r, i] = c
            total += offset + c * vectors[BIAS, k]
            error += abs(offset) + abs(c) * work[MAGNITUDE, k]
        totals[r] += total
        errors[r] += error
        if touched:
            rounded[r] = 1.0


@_jit
def finish(block, r, inputs, low, high, magnitude, total, error, rounded, factor, floor):
    """The least value on the box of a row that has reached the inputs, with its margin."""
    value, spread = 0.0, 0.0
    for j in range(inputs):
        c = block[r, j]
        if c != 0.0:
            rounded = 1.0
        value += c * (low[j] if c > 0.0 else high[j])
        spread += abs(c) * magnitude[j]
    bound = value + total - (error + spread) * factor
    if rounded > 0.0:
        bound -= floor * SLACK
    return bound


@_jit
def back_substitute(
    block, other, rows, stages, matrices, vectors, table, work, low, high, magnitude,
    totals, errors, rounded, factor, floor, indices, shares, parts, out,
):  # fmt: skip
    """Lower bounds `out[r]` of rows on stage `stages - 1`; the coefficients on the inputs end in the returned block."""
    if len(shares):
        parts[:rows] = 0.0
    for s in range(stages - 1, -1, -1):
        size, inputs, place = table[s, SIZE], table[s, INPUTS], table[s, WEIGHTS]
        relax(block, rows, work, vectors, table[s, FIRST], size, totals, errors, rounded, shares, parts)
        weights = matrices[place : place + size * inputs].reshape((size, inputs))
        multiply(block, rows, weights, other, indices)
        block, other = other, block
    inputs = len(low)
    for r in range(rows):
        out[r] = finish(block, r, inputs, low, high, magnitude, totals[r], errors[r], rounded[r], factor, floor)
    return block


@_jit
def interval_stage(weights, low, high, magnitude, bias, out_low, out_high, out_magnitude):
    """Interval bounds of `weights a + bias`, and of its magnitude, without margins."""
    rows, columns = weights.shape
    for i in range(rows):
        w = weights[i]
        a, b, reach = 0.0, 0.0, 0.0
        for j in range(columns):
            # Not (|w| + w) / 2, which overflows where the magnitude does not.
            positive, negative = max(w[j], 0.0), min(w[j], 0.0)
            a += positive * low[j] + negative * high[j]
            b += positive * high[j] + negative * low[j]
            reach += abs(w[j]) * magnitude[j]
        out_low[i] = a + bias[i]
        out_high[i] = b + bias[i]
        out_magnitude[i] = reach + abs(bias[i])


@_strict
def bound_kernel(
    matrices, vectors, table, lower, upper, row_weights, row_constant, wanted,
    tighten, iterations, factor, attribute, phases, out, effect,
):  # fmt: skip
    """Lower bounds `out[n, k]` of the rows `wanted[n, k]` (-1: none) on the boxes lower[n] .. upper[n].

    `phases[n, component]` says which (leaky) ReLUs are known to be decided on the box, 1 active, -1
    inactive, from a box around it; it is left behind with what has been found in addition.

    `effect[n, input]` collects how much each input matters: |coefficient| times width, summed over
    the wanted rows that are not positive.  With `attribute` the gaps of the relaxation count too: what
    a row may lose at each undecided component, shared among the inputs as they spread its argument.
    """
    stages, components = table.shape[0], vectors.shape[1]
    inputs, last = lower.shape[1], row_weights.shape[1]
    widest = max(inputs, last)
    for s in range(stages):
        widest = max(widest, table[s, SIZE])
    work = np.zeros((FIELDS, max(1, components)))
    block, other = np.zeros((ROWS_AT_ONCE, widest)), np.zeros((ROWS_AT_ONCE, widest))
    totals, errors, rounded = np.zeros(ROWS_AT_ONCE), np.zeros(ROWS_AT_ONCE), np.zeros(ROWS_AT_ONCE)
    found = np.zeros(ROWS_AT_ONCE)
    indices = np.zeros(widest, dtype=np.int64)
    chosen = np.zeros(max(widest, ROWS_AT_ONCE), dtype=np.int64)
    magnitude = np.zeros(inputs)
    signs = np.zeros((3, max(1, components)))
    saved = np.zeros((3, max(1, components)))
    point, value = np.zeros(widest), np.zeros(widest)
    shares, parts = np.zeros((components if attribute else 0, inputs)), np.zeros((ROWS_AT_ONCE, inputs))
    for n in range(lower.shape[0]):
        low, high = lower[n], upper[n]
        floor = FLOOR
        for j in range(inputs):
            magnitude[j] = max(abs(low[j]), abs(high[j]))
            floor += FLOOR * magnitude[j]
        floor = propagate(
            matrices, vectors, table, low, high, magnitude, tighten, factor, floor, phases[n], shares, parts, work,
            block, other, totals, errors, rounded, found, indices, chosen,
        )  # fmt: skip
        for j in range(inputs):
            effect[n, j] = 0.0
        first = 0
        while first < wanted.shape[1]:
            count = 0
            while first < wanted.shape[1] and count < ROWS_AT_ONCE:
                if wanted[n, first] >= 0:
                    chosen[count] = first
                    count += 1
                else:
                    out[n, first] = np.nan
                first += 1
            for r in range(count):
                row = wanted[n, chosen[r]]
                for i in range(last):
                    block[r, i] = row_weights[row, i]
                totals[r] = row_constant[row]
                errors[r] = abs(row_constant[row])
                rounded[r] = 0.0
            reached = back_substitute(
                block, other, count, stages, matrices, vectors, table, work, low, high, magnitude,
                totals, errors, rounded, factor, floor, indices, shares, parts, found,
            )  # fmt: skip
            for r in range(count):
                out[n, chosen[r]] = found[r]
                if not found[r] > 0.0:
                    for j in range(inputs):
                        effect[n, j] += abs(reached[r, j]) * (high[j] - low[j])
                        if attribute:
                            effect[n, j] += parts[r, j]
        if iterations > 0:
            for k in range(wanted.shape[1]):
                # What is positive is settled, what is far below zero is hopeless or needs a split.
                if wanted[n, k] >= 0 and not out[n, k] > 0.0:
                    out[n, k] = optimise(
                        matrices, vectors, table, low, high, magnitude, row_weights[wanted[n, k]],
                        row_constant[wanted[n, k]], iterations, factor, floor, work, block, other, totals, errors,
                        rounded, found, indices, signs, saved, point, value, out[n, k],
                    )  # fmt: skip


@_jit
def share_out(first, second, shares):
    """How much of the spread of a component is due to each input, from what its two bounds owe to each."""
    total = 0.0
    for j in range(len(shares)):
        shares[j] = first[j] + second[j]
        total += shares[j]
    scale = 1.0 / total if 0.0 < total < np.inf else 0.0
    for j in range(len(shares)):
        shares[j] *= scale


@_strict
def gap_of(low, high, lower_slope, lower_intercept, upper_slope, upper_intercept):
    """The greatest distance of the two lines on [low, high]; 0 where it is not known."""
    slope = upper_slope - lower_slope
    gap = max(slope * low, slope * high) + upper_intercept - lower_intercept
    return gap if 0.0 < gap < np.inf else 0.0


@_strict
def propagate(
    matrices, vectors, table, low, high, magnitude, tighten, factor, floor, phases, shares, parts, work,
    block, other, totals, errors, rounded, found, indices, chosen,
):  # fmt: skip
    """Bounds, magnitudes and lines of all stages, in `work`; returns the floor of the box."""
    image_low, image_high, reach = low, high, magnitude
    for s in range(table.shape[0]):
        size, inputs, place, start = table[s, SIZE], table[s, INPUTS], table[s, WEIGHTS], table[s, FIRST]
        function = table[s, FUNCTION]
        weights = matrices[place : place + size * inputs].reshape((size, inputs))
        end = start + size
        interval_stage(
            weights, image_low, image_high, reach, vectors[BIAS, start:end],
            work[LOWER, start:end], work[UPPER, start:end], work[MAGNITUDE, start:end],
        )  # fmt: skip
        for j in range(inputs):
            floor += FLOOR * reach[j]
        for i in range(start, end):
            floor += FLOOR * work[MAGNITUDE, i]
        if len(shares):
            for i in range(start, end):
                for j in range(len(low)):
                    parts[0, j] = abs(weights[i - start, j]) * (high[j] - low[j]) if s == 0 else 0.0
                share_out(parts[0], parts[0], shares[i])
        count = 0
        for i in range(start, end):
            error = work[MAGNITUDE, i] * factor + floor
            work[LOWER, i] -= error
            work[UPPER, i] += error
            if math.isnan(work[LOWER, i]):
                work[LOWER, i] = -np.inf
            if math.isnan(work[UPPER, i]):
                work[UPPER, i] = np.inf
            if function == LEAKY:
                # What was known of a box around this one holds here; it spares the back-substitution.
                if phases[i] > 0 and work[LOWER, i] < 0.0:
                    work[LOWER, i] = 0.0
                elif phases[i] < 0 and work[UPPER, i] > 0.0:
                    work[UPPER, i] = 0.0
            if tighten and s > 0:
                first, second = vectors[PARAMETER, i], vectors[SECOND, i]
                if is_undecided(function, work[LOWER, i], work[UPPER, i], first, second):
                    chosen[count] = i - start
                    count += 1
        done = 0
        while done < count:
            pairs = min(count - done, ROWS_AT_ONCE // 2)
            for p in range(pairs):
                i = chosen[done + p]
                for j in range(inputs):
                    block[2 * p, j] = weights[i, j]
                    block[2 * p + 1, j] = -weights[i, j]
                bias = vectors[BIAS, start + i]
                totals[2 * p], totals[2 * p + 1] = bias, -bias
                for r in (2 * p, 2 * p + 1):
                    errors[r] = abs(bias)
                    rounded[r] = 0.0
            reached = back_substitute(
                block, other, 2 * pairs, s, matrices, vectors, table, work, low, high, magnitude,
                totals, errors, rounded, factor, floor, indices, shares, parts, found,
            )  # fmt: skip
            for p in range(pairs):
                i = start + chosen[done + p]
                # A comparison with NaN is false, so an undefined bound tightens nothing.
                if found[2 * p] > work[LOWER, i]:
                    work[LOWER, i] = found[2 * p]
                if -found[2 * p + 1] < work[UPPER, i]:
                    work[UPPER, i] = -found[2 * p + 1]
                if len(shares):
                    for r in (2 * p, 2 * p + 1):
                        for j in range(len(low)):
                            parts[r, j] += abs(reached[r, j]) * (high[j] - low[j])
                    share_out(parts[2 * p], parts[2 * p + 1], shares[i])
            done += pairs
        for i in range(start, end):
            if function == LEAKY:
                phases[i] = 1 if work[LOWER, i] >= 0.0 else -1 if work[UPPER, i] <= 0.0 else 0
            first, second = vectors[PARAMETER, i], vectors[SECOND, i]
            a, b, c, d = lines_of(function, work[LOWER, i], work[UPPER, i], first, second)
            work[LOWER_SLOPE, i], work[LOWER_INTERCEPT, i] = a, b
            work[UPPER_SLOPE, i], work[UPPER_INTERCEPT, i] = c, d
            work[GAP, i] = gap_of(work[LOWER, i], work[UPPER, i], a, b, c, d)
            a, b = image_of(function, work[LOWER, i], work[UPPER, i], first, second)
            work[IMAGE_LOWER, i], work[IMAGE_UPPER, i] = a, b
        image_low, image_high = work[IMAGE_LOWER, start:end], work[IMAGE_UPPER, start:end]
        reach = np.maximum(np.abs(image_low), np.abs(image_high))
    return floor


@_strict
def optimise(
    matrices, vectors, table, low, high, magnitude, row, constant, iterations, factor, floor, work,
    block, other, totals, errors, rounded, found, indices, signs, saved, point, value, best,
):  # fmt: skip
    """The best lower bound of one row over some choices of the undecided ReLUs' lower slopes."""
    stages, inputs, last = table.shape[0], len(low), len(row)
    slopes = work[LOWER_SLOPE]
    no_shares = np.zeros((0, 0))
    components = 0
    for s in range(stages):
        components = max(components, table[s, FIRST] + table[s, SIZE])
    for i in range(components):
        saved[0, i] = slopes[i]
        saved[1, i] = 0.0
        saved[2, i] = 0.0
    step = STEP
    for iteration in range(iterations + 1):
        for i in range(last):
            block[0, i] = row[i]
        totals[0], errors[0], rounded[0] = constant, abs(constant), 0.0
        current, following = block, other
        for s in range(stages - 1, -1, -1):
            size, columns, place, start = table[s, SIZE], table[s, INPUTS], table[s, WEIGHTS], table[s, FIRST]
            for i in range(size):
                signs[0, start + i] = current[0, i]
            relax(current, 1, work, vectors, start, size, totals, errors, rounded, no_shares, no_shares)
            weights = matrices[place : place + size * columns].reshape((size, columns))
            multiply(current, 1, weights, following, indices)
            current, following = following, current
        bound = finish(current, 0, inputs, low, high, magnitude, totals[0], errors[0], rounded[0], factor, floor)
        if bound > best:
            best = bound
            if best > 0.0:
                break
        if iteration == iterations or not math.isfinite(bound):
            break
        # Forward through the chosen lines, from the corner at which the bound is attained.
        for j in range(inputs):
            point[j] = low[j] if current[0, j] > 0.0 else high[j]
        moved = False
        for s in range(stages):
            size, columns, place, start = table[s, SIZE], table[s, INPUTS], table[s, WEIGHTS], table[s, FIRST]
            weights = matrices[place : place + size * columns].reshape((size, columns))
            for i in range(size):
                z = vectors[BIAS, start + i]
                for j in range(columns):
                    z += weights[i, j] * point[j]
                k = start + i
                if signs[0, k] > 0.0:
                    value[i] = work[LOWER_SLOPE, k] * z + work[LOWER_INTERCEPT, k]
                else:
                    value[i] = work[UPPER_SLOPE, k] * z + work[UPPER_INTERCEPT, k]
                signs[1, k] = 0.0
                if table[s, FUNCTION] == LEAKY and signs[0, k] > 0.0 and work[LOWER, k] < 0.0 < work[UPPER, k]:
                    signs[1, k] = signs[0, k] * z
            for i in range(size):
                point[i] = value[i]
        for k in range(components):
            g = signs[1, k]
            # Steps of about equal length for all slopes, with momentum (Adam).
            saved[1, k] = 0.6 * saved[1, k] + 0.4 * g
            saved[2, k] = 0.6 * saved[2, k] + 0.4 * g * g
            if saved[2, k] > 0.0:
                new = slopes[k] + step * saved[1, k] / math.sqrt(saved[2, k])
                new = min(max(new, vectors[PARAMETER, k]), 1.0)
                if work[LOWER, k] < 0.0 < work[UPPER, k] and new != slopes[k]:
                    slopes[k] = new
                    moved = True
        step *= DECAY
        if not moved:
            break
    for i in range(components):
        slopes[i] = saved[0, i]
    return best
