"""The best split of a level of an oblivious tree: one column and one threshold for all of its leaves.

    score(column, bin)  =  sum over leaves, sides and slopes of  (sum of slopes)^2 / (sum of weights + penalty)

For each column, a histogram over (leaf, bin) is filled in one pass over the rows, and scanned once.
"""

from __future__ import annotations

from wherefrom.training.native.jit import entry


@entry
def best_split(codes, leaf, slopes, bins, leaves, penalty, table, whole, left, best):
    """Write the best column, its bin, and the score into `best`.

    codes: the bin of each value.  # (columns, rows)
    leaf: the leaf of each row.  # (rows,)
    slopes: what leaves are to sum up, and the weight of the row last.  # (rows, slopes + 1)
    bins: how many each column has.  # (columns,)
    table, whole, left: memory to work in.  # (leaves * most bins, slopes + 1), (leaves, slopes + 1) each
    """
    columns, rows = codes.shape
    count = slopes.shape[1] - 1
    best[0], best[1], best[2] = -1.0, 0.0, -1.0
    for column in range(columns):
        width = bins[column]
        if width < 2:
            continue
        for cell in range(leaves * width):
            for k in range(count + 1):
                table[cell, k] = 0.0
        for row in range(rows):
            cell = leaf[row] * width + codes[column, row]
            for k in range(count + 1):
                table[cell, k] += slopes[row, k]
        for each in range(leaves):
            for k in range(count + 1):
                left[each, k], whole[each, k] = 0.0, 0.0
                for cell in range(each * width, (each + 1) * width):
                    whole[each, k] += table[cell, k]
        for split in range(width - 1):
            score = 0.0
            for each in range(leaves):
                for k in range(count + 1):
                    left[each, k] += table[each * width + split, k]
                below = 1 / (left[each, count] + penalty)
                above = 1 / (whole[each, count] - left[each, count] + penalty)
                for k in range(count):
                    score += left[each, k] ** 2 * below + (whole[each, k] - left[each, k]) ** 2 * above
            if score > best[2]:
                best[0], best[1], best[2] = column, split, score
