"""Speed comparisons for ourselves: each prints ratios against a reference in the same run, and writes JSON."""
