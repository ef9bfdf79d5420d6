"""The margins that make float64 bounds rigorous, and why they suffice.

Let u = 2**-53 and g(k) = k u / (1 - k u).  A sum of n products computed in any order, with or without
fused multiply-add, is off by at most g(n) times the sum of the absolute values of its terms (Higham,
*Accuracy and Stability of Numerical Algorithms*, section 3.1), plus n times the smallest subnormal.

**What is claimed at every moment of back-substitution.**  For a row R and all x in the box,

    R(x) >= B · a_s(x) + d - E

with floats B, d and an error bound E.  One step through a stage changes the right-hand side twice.

1. *Through the function.*  For every component, a line that is valid on the whole range of z bounds
   a from below (where B_i >= 0) or above; the lines themselves are sound as floats (`lines`).  The
   new coefficient B_i σ_i is rounded once: an error of at most u |B_i σ_i| |z_i|.  The intercepts
   B_i τ_i are summed into d.
2. *Through the affine map.*  Each entry of B W is a sum of n products: an error of at most
   g(n) (|B| |W|)_j, times |a_j|.  Summed over j this is g(n) |B| (|W| m), where m >= |a| on the box.
   B · b is summed into d.

With M = |W| m + |b| >= |z|, all these errors together are at most g(k) (|B σ| · M + |B| · |τ|),
where k counts the operations that an entry has gone through: the longest sum, two roundings of the
weights and of the row (`chain`), and a few per stage for adding up d.  The last step, the minimum of
B · x + d over the box, is a sum of products again, with |x| <= m_0.  So

    E = g(k) (|d_row| + Σ_s (|B σ| · M + |B| · |τ|)_s + |B| · m_0) * SLACK + FLOOR-terms,
    k = widest + 4 stages + 16.

E itself is computed in floats, each of its terms relatively exact up to g(2 k); `SLACK` is far more
than that.  Subnormal products lose at most 2**-1075 each, times a magnitude; `FLOOR` times the sum of
all magnitudes, and one for each operation, is far more than that too.

Interval propagation has the same shape with a single stage: |computed - true| <= g(k) M + floor.

A NaN compares false with everything: it never tightens a bound, and a row bound that is NaN proves
nothing.
"""

from __future__ import annotations

UNIT_ROUNDOFF = 2.0**-53
SLACK = 1.0 + 2.0**-20
FLOOR = 2.0**-1040
TANH_MARGIN = 2.0**-44
"""For the lines of tanh: see `lines`."""


def rounding_factor(widest: int, stages: int) -> float:
    """g(k) of the text above, times the slack."""
    k = widest + 4 * stages + 16
    return k * UNIT_ROUNDOFF / (1 - k * UNIT_ROUNDOFF) * SLACK
