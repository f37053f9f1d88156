"""The best split of a level of an oblivious tree: one column and one threshold for all of its leaves.

    score(column, bin)  =  sum over leaves, sides and slopes of  (sum of slopes)^2 / (sum of weights + penalty)

For each column, a histogram over (bin, leaf) is filled in one pass over the rows. It is added up along the bins, and
scored, for all leaves side by side, in vectors.
"""

from __future__ import annotations

import numpy as np

from wherefrom.training.native.jit import entry, inlined

_TABLES = 4  # histograms that are filled side by side: with one, each row would wait for the sum of the row before
_ZERO, _ONE = np.float32(0), np.float32(1)


@inlined
def _fill(table, values, codes, leaf, leaves, cells):
    """Sum up the values of the rows in each cell of a column's histogram."""
    apart = cells if _TABLES * cells <= len(table) else 0  # numbers between one table and the next, if all have room
    for cell in range(max(cells, _TABLES * apart)):
        table[cell] = _ZERO
    rows = len(values)
    whole = rows - rows % _TABLES
    for row in range(0, whole, _TABLES):
        for k in range(_TABLES):
            table[k * apart + codes[row + k] * leaves + leaf[row + k]] += values[row + k]
    for row in range(whole, rows):
        table[codes[row] * leaves + leaf[row]] += values[row]
    for k in range(1, _TABLES if apart else 1):
        for cell in range(cells):
            table[cell] += table[k * apart + cell]


@entry
def best_split(codes, leaf, slopes, bins, leaves, penalty, table, below, above, best):
    """Write the best column, its bin, and the score into `best`. All real numbers are in single precision.

    codes: the bin of each value.  # (columns, rows)
    leaf: the leaf of each row.  # (rows,)
    slopes: what leaves are to sum up, and the weight of the row last.  # (slopes + 1, rows)
    bins: how many each column has.  # (columns,)
    table, below, above: memory to work in.  # (slopes + 1, most bins * leaves), (leaves,) each
    """
    count = slopes.shape[0] - 1
    best[0], best[1], best[2] = -1.0, 0.0, -1.0
    for column in range(len(bins)):
        width = bins[column]
        if width < 2:
            continue
        for k in range(count + 1):
            _fill(table[k], slopes[k], codes[column], leaf, leaves, leaves * width)
            for first in range(leaves, leaves * width, leaves):
                for each in range(leaves):
                    table[k, first + each] += table[k, first - leaves + each]
        last = leaves * (width - 1)
        for split in range(width - 1):
            first = leaves * split
            for each in range(leaves):
                weight = table[count, first + each]
                below[each] = _ONE / (weight + penalty)
                above[each] = _ONE / (table[count, last + each] - weight + penalty)
            score = _ZERO
            for k in range(count):
                for each in range(leaves):
                    left = table[k, first + each]
                    right = table[k, last + each] - left
                    score += left * left * below[each] + right * right * above[each]
            if score > best[2]:
                best[0], best[1], best[2] = column, split, score
