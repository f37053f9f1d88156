"""An oblivious tree: the best split of each level, one column and one threshold for all leaves, and Newton's steps.

    score(column, bin)  =  sum over leaves, sides and slopes of  (sum of slopes)^2 / (sum of weights + penalty)

For each column, a histogram over (bin, leaf) is filled in one pass over the rows. It is added up along the bins, and
scored, for all leaves side by side, in vectors. A column of two values, such as one level of a text, is a list of the
rows that have its rarer value: the pass goes over these alone, and the others are the rest of each leaf.
"""

from __future__ import annotations

import numpy as np

from wherefrom.training.native.jit import entry, inlined, jit

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


@inlined
def _fill_two(table, values, rows, code, leaf, leaves, total):
    """Sum up the values in each cell of a column with two bins; `rows` are those that have one of its codes."""
    for each in range(leaves):
        table[each], table[leaves + each] = _ZERO, total[each]
    for k in range(len(rows)):
        table[leaf[rows[k]]] += values[rows[k]]
    if code == 1:
        for each in range(leaves):
            table[each] = total[each] - table[each]


@jit
def _best_split(codes, starts, rare, rare_code, leaf, slopes, bins, leaves, penalty, table, total, below, above, best):
    """Write the best column, its bin, and the score into `best`."""
    count = slopes.shape[0] - 1
    for k in range(count + 1):
        for each in range(leaves):
            total[k, each] = _ZERO
        for row in range(len(leaf)):
            total[k, leaf[row]] += slopes[k, row]
    best[0], best[1], best[2] = -1.0, 0.0, -1.0
    for column in range(len(bins)):
        width = bins[column]
        if width < 2:
            continue
        rows = rare[starts[column] : starts[column + 1]]
        for k in range(count + 1):
            if len(rows):
                _fill_two(table[k], slopes[k], rows, rare_code[column], leaf, leaves, total[k])
                continue
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


@inlined
def _descend(codes, column, split, leaf):
    """Move every row to one of the two leaves below its own."""
    for row in range(len(leaf)):
        leaf[row] = 2 * leaf[row] + (codes[column, row] > split)


@entry
def grow(
    codes, starts, rare, rare_code, leaf, slopes, bins, penalty, table, total, below, above, best, columns, splits
):
    """Write the column and the bin of each level's split; a column of -1 says that some slope is not a number.

    All real numbers are in single precision.

    codes: the bin of each value.  # (columns, rows)
    starts, rare: where each column's rows begin in a list of rows that have its rarer code; columns that have none
        there are filled by all rows.  # (columns + 1,), (entries,)
    rare_code: that code.  # (columns,)
    slopes: what leaves are to sum up, and the weight of the row last.  # (slopes + 1, rows)
    bins: how many each column has.  # (columns,)
    leaf, table, total, below, above, best: memory to work in.  # (rows,), (slopes + 1, most bins * leaves),
        (slopes + 1, leaves), (leaves,) each, (3,)
    columns, splits: to write to.  # (depth,) each
    """
    for row in range(len(leaf)):
        leaf[row] = 0
    leaves = 1
    for level in range(len(columns)):
        _best_split(
            *(codes, starts, rare, rare_code, leaf, slopes, bins, leaves, penalty, table, total, below, above, best)
        )
        columns[level], splits[level] = int(best[0]), int(best[1])
        if columns[level] < 0:
            return
        _descend(codes, columns[level], splits[level], leaf)
        leaves *= 2


@entry
def add(codes, columns, splits, leaves, leaf, answers):
    """Add a tree to the answers.

    codes: the bin of each value.  # (columns, rows)
    columns, splits: of each level.  # (depth,) each
    leaves: what each adds.  # (leaves, outputs)
    leaf: memory, into which the leaf of each row is written.  # (rows,)
    answers: to add to.  # (rows, outputs)
    """
    _find(codes, columns, splits, leaf)
    for row in range(len(leaf)):
        for output in range(leaves.shape[1]):
            answers[row, output] += leaves[leaf[row], output]


@entry
def step(codes, columns, splits, slope, curvature, pace, penalty, most, sums, leaves, leaf, answers):
    """Write a part of Newton's step into each leaf, none larger than the most, and add it to the answers of its rows.

    slope, curvature: of each row's loss by its outputs.  # (rows, outputs) each
    pace: the part that is taken.  # (outputs,)
    penalty: curvature that is added to each leaf.  # (outputs,)
    sums: memory.  # (leaves, outputs)
    The others are those of `add`.
    """
    _find(codes, columns, splits, leaf)
    for each in range(len(leaves)):
        for output in range(len(pace)):
            leaves[each, output], sums[each, output] = 0.0, penalty[output]
    for row in range(len(leaf)):
        for output in range(len(pace)):
            leaves[leaf[row], output] += slope[row, output]
            sums[leaf[row], output] += curvature[row, output]
    for each in range(len(leaves)):
        for output in range(len(pace)):
            size = -pace[output] * leaves[each, output] / sums[each, output]
            leaves[each, output] = min(max(size, -most), most)
    for row in range(len(leaf)):
        for output in range(len(pace)):
            answers[row, output] += leaves[leaf[row], output]


@inlined
def _find(codes, columns, splits, leaf):
    """Write the leaf of each row."""
    for row in range(len(leaf)):
        leaf[row] = 0
    for level in range(len(columns)):
        _descend(codes, columns[level], splits[level], leaf)
