"""The best split of a level of an oblivious tree: one column and one threshold for all of its leaves.

    score(column, bin)  =  sum over leaves, sides and slopes of  (sum of slopes)^2 / (sum of weights + penalty)

For each column, a histogram over (leaf, bin) is filled in one pass over the rows, and added up along the bins. The
scores of all bins are computed side by side, in vectors.
"""

from __future__ import annotations

from wherefrom.training.native.jit import entry


@entry
def best_split(codes, leaf, slopes, bins, leaves, penalty, table, below, above, scores, best):
    """Write the best column, its bin, and the score into `best`.

    codes: the bin of each value.  # (columns, rows)
    leaf: the leaf of each row.  # (rows,)
    slopes: what leaves are to sum up, and the weight of the row last.  # (slopes + 1, rows)
    bins: how many each column has.  # (columns,)
    table, below, above, scores: memory to work in.  # (slopes + 1, leaves * most bins), (most bins,) each
    """
    columns, rows = codes.shape
    count = slopes.shape[0] - 1
    best[0], best[1], best[2] = -1.0, 0.0, -1.0
    for column in range(columns):
        width = bins[column]
        if width < 2:
            continue
        for k in range(count + 1):
            for cell in range(leaves * width):
                table[k, cell] = 0.0
            for row in range(rows):
                table[k, leaf[row] * width + codes[column, row]] += slopes[k, row]
        for split in range(width - 1):
            scores[split] = 0.0
        for each in range(leaves):
            first, last = each * width, (each + 1) * width - 1
            for k in range(count + 1):
                for cell in range(first, last):
                    table[k, cell + 1] += table[k, cell]
            for split in range(width - 1):
                below[split] = 1 / (table[count, first + split] + penalty)
                above[split] = 1 / (table[count, last] - table[count, first + split] + penalty)
            for k in range(count):
                whole = table[k, last]
                for split in range(width - 1):
                    left = table[k, first + split]
                    scores[split] += left * left * below[split] + (whole - left) * (whole - left) * above[split]
        for split in range(width - 1):
            if scores[split] > best[2]:
                best[0], best[1], best[2] = column, split, scores[split]
