"""The matrix product behind every layer, forward and backward, in tiles that stay in registers.

    z[r, j] = S[r, j] + sum_k A[r, k] B[k, j]
    C[r, j] = scale * max(z[r, j], lowest)                       (or, gated:  scale * z[r, j] where G[r, j] > 0, else 0)

The same product serves x W + b (forward), a^T delta (weight gradient) and delta W^T (input gradient). The ReLU and
dropout's scale come with it at no cost, forward by lowest = 0, backward by the gate; with lowest = -inf and scale = 1
they are not there.

Numba's own loops for such a product take up to twice as long, because the sums travel through memory. So one tile (up
to 6 rows by 4 vectors of C, all sums in registers) is written in LLVM's own terms, with the vectors that the processor
has. The same goes for a few small helpers: products of rows with one row, a copy, and a transpose. In the debug mode
their plain twins take their place, which touch exactly the same numbers, with every index checked.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from wherefrom.training.native.jit import CHECKED, LANES, REGISTERS, inlined, jit, merged

TILE_ROWS = 6
TILE_VECTORS = 4 if REGISTERS == 32 else 2  # 6 x 4 sums of 32 registers, or 6 x 2 of 16
GATED_ROWS = 14 if REGISTERS == 32 else 6  # tall tiles where gates are read: each is then read once
GATED_VECTORS = 2
MASKED_SUMS = LANES == 16  # AVX-512 has masks for every instruction
NO_LOWEST = np.float32(-np.inf)
ZERO, ONE = np.float32(0), np.float32(1)
NOT_GATED = np.bool_(False)


class Matrix(NamedTuple):
    """A stretch of a flat float32 array, read as a matrix: entry (r, j) is data[start + r * row + j * column]."""

    data: Any
    start: np.int64
    row: np.int64
    column: np.int64


@inlined
def rows_of(data, start, width):
    """Consecutive rows of `width` numbers."""
    return Matrix(data, np.int64(start), np.int64(width), np.int64(1))


@inlined
def transposed(matrix):
    return Matrix(matrix.data, matrix.start, matrix.column, matrix.row)


@inlined
def same_row(data, start):
    """One row that stands for every row."""
    return Matrix(data, np.int64(start), np.int64(0), np.int64(1))


@inlined
def same_number(data):
    """The first number, in every place."""
    return Matrix(data, np.int64(0), np.int64(0), np.int64(0))


@inlined
def shares(count, most):
    """Return how many tiles hold `count`, at most `most` each, the least of them, and how many hold one more."""
    tiles = (count + most - 1) // most
    if tiles == 1:  # most often, and a division takes long
        return tiles, count, np.int64(0)
    least = np.int64(np.uint32(count) // np.uint32(tiles))
    return tiles, least, count - least * tiles


@jit
def product(a, b, s, c, rows, depth, width, lowest, scale, gated, gate):
    """C (rows, width) from A (rows, depth), B (depth, width), S (rows, width) and, where gated, G (rows, width).

    A may have any strides; the others have neighbouring columns, and `width` is a whole number of vectors. Rows and
    vectors are divided as evenly as they can be, so that no tile is much thinner than the others.
    """
    vectors = width // LANES
    tiles_across, least_vectors, wider = shares(vectors, TILE_VECTORS)
    tiles_down, least_rows, taller = shares(rows, TILE_ROWS)
    v = 0
    for across in range(tiles_across):
        some_vectors = least_vectors + (across < wider)
        r, j = 0, v * LANES
        for longer in range(1, -1, -1):  # the tiles with one row more, and the others
            tiles, some_rows = (taller, least_rows + 1) if longer else (tiles_down - taller, least_rows)
            if tiles > 0:
                _tile(
                    a.data, a.start + r * a.row, a.row, a.column,
                    b.data, b.start + j, b.row,
                    s.data, s.start + r * s.row + j, s.row,
                    c.data, c.start + r * c.row + j, c.row,
                    gate.data, gate.start + r * gate.row + j, gate.row,
                    tiles, some_rows, depth, some_vectors, lowest, scale, gated,
                )  # fmt: skip
            r += tiles * some_rows
        v += some_vectors


@merged
def plain_product(a, b, c, zeros, rows, depth, width):
    """C = A B"""
    nothing = same_row(zeros, 0)
    product(a, b, nothing, c, np.int64(rows), depth, width, NO_LOWEST, ONE, NOT_GATED, nothing)


@jit
def outer_products(x, w, w0, a, c, g, g0, rows, width, scale):
    """C[r, j] = scale * x_r w_j where A[r, j] > 0, else 0, and g_j = sum_r x_r A[r, j], in one pass over A."""
    vectors = width // LANES
    tiles_across, least_vectors, wider = shares(vectors, TILE_VECTORS)
    v = 0
    for across in range(tiles_across):
        some_vectors = least_vectors + (across < wider)
        j = v * LANES
        _outer(
            x, w, w0 + j, a.data, a.start + j, a.row, c.data, c.start + j, c.row, g, g0 + j, rows, some_vectors, scale
        )
        v += some_vectors


@jit
def gated_sums(a, g, w, h, c, last, one, scale, depth, rows, width):
    """C[k, j] = S[k, j] h_j and last_j = sum_k S[k, j] W[k, j], S[k, j] = scale * sum of A[r, k] with G[r, j] > 0.

    `depth` is the number of rows r. W and C are matrices alike, h and last are rows beside them, and `one` is a one
    that the compiler does not know.
    """
    vectors = width // LANES
    tiles_across = (vectors + GATED_VECTORS - 1) // GATED_VECTORS
    tiles_down, least_rows, taller = shares(rows, GATED_ROWS)
    k = 0
    for down in range(tiles_down):
        some_rows = least_rows + (down < taller)
        for across in range(tiles_across):
            j = across * GATED_VECTORS * LANES
            _gated(
                a.data, a.start + k, a.row, g.data, g.start + j, g.row,
                w.data, w.start + k * w.row + j, h.start + j, w.row,
                c.data, c.start + k * c.row + j, last.start + j, c.row,
                depth, some_rows, min(np.int64(GATED_VECTORS), vectors - across * GATED_VECTORS),
                one, scale, k > 0,
            )  # fmt: skip
        k += some_rows


@jit
def scale_rows(a, x, rows, width):
    """A[r, :] *= x_r; `width` is a whole number of vectors."""
    if width == LANES:  # the compiler knows that there is nothing to repeat
        for r in range(rows):
            _scale(a.data, a.start + r * LANES, x[r], 1)
    else:
        for r in range(rows):
            _scale(a.data, a.start + r * a.row, x[r], width // LANES)


@jit
def products_with_row(a, rows, b, b0, width, c, c0, plus):
    """c_r = plus + sum_j A[r, j] b_j for every row of A; `width` is a whole number of vectors."""
    whole = rows - rows % LANES
    for r in range(0, whole, LANES):
        _many_dots(a.data, a.start + r * a.row, a.row, b, b0, width // LANES, c, c0 + r, plus)
    for r in range(whole, rows):
        c[c0 + r] = plus + _dot(a.data, a.start + r * a.row, b, b0, width // LANES)


@jit
def transpose(source, target, rows, columns):
    """target (columns, rows) = source (rows, columns)^T; `columns` is a whole number of vectors."""
    whole = rows - rows % LANES
    for j in range(0, columns, LANES):
        for r in range(0, whole, LANES):
            _transpose_square(
                source.data, source.start + r * source.row + j, source.row,
                target.data, target.start + j * target.row + r, target.row,
            )  # fmt: skip
    for r in range(whole, rows):
        for j in range(columns):
            target.data[target.start + j * target.row + r] = source.data[source.start + r * source.row + j]


# ---------------------------------------------------------------------- in plain loops, for the debug mode


@jit
def _plain_tile(
    a, a0, a_row, a_column, b, b0, b_row, s, s0, s_row, c, c0, c_row, g, g0, g_row,
    tiles, rows, depth, vectors, lowest, scale, gated,
):  # fmt: skip
    for r in range(tiles * rows):
        for j in range(vectors * LANES):
            total = s[s0 + r * s_row + j]
            for k in range(depth):
                total += a[a0 + r * a_row + k * a_column] * b[b0 + k * b_row + j]
            total = lowest if total < lowest else total
            if gated and not g[g0 + r * g_row + j] > ZERO:
                total = ZERO
            c[c0 + r * c_row + j] = scale * total


@jit
def _plain_outer(x, w, w0, a, a0, a_row, c, c0, c_row, g, g0, rows, vectors, scale):
    for j in range(vectors * LANES):
        total = ZERO
        for r in range(rows):
            total += x[r] * a[a0 + r * a_row + j]
            c[c0 + r * c_row + j] = scale * x[r] * w[w0 + j] if a[a0 + r * a_row + j] > ZERO else ZERO
        g[g0 + j] = total


@jit
def _plain_gated(
    a, a0, a_row, g, g0, g_row, w, w0, h0, w_row, c, c0, last0, c_row, depth, rows, vectors, one, scale, adds
):  # fmt: skip
    for j in range(vectors * LANES):
        last = c[last0 + j] if adds else ZERO
        for k in range(rows):
            total = ZERO
            for r in range(depth):
                if g[g0 + r * g_row + j] > ZERO:
                    total += one * a[a0 + r * a_row + k]
            last += scale * total * w[w0 + k * w_row + j]
            c[c0 + k * c_row + j] = scale * total * w[h0 + j]
        c[last0 + j] = last


@jit
def _plain_dot(a, a0, b, b0, vectors):
    total = ZERO
    for j in range(vectors * LANES):
        total += a[a0 + j] * b[b0 + j]
    return total


@jit
def _plain_many_dots(a, a0, a_row, b, b0, vectors, c, c0, plus):
    for r in range(LANES):
        c[c0 + r] = plus + _plain_dot(a, a0 + r * a_row, b, b0, vectors)


@jit
def _plain_copy(target, t0, source, s0, vectors):
    for j in range(vectors * LANES):
        target[t0 + j] = source[s0 + j]


@jit
def _plain_scale(target, t0, number, vectors):
    for j in range(vectors * LANES):
        target[t0 + j] *= number


@jit
def _plain_transpose_square(source, s0, s_row, target, t0, t_row):
    for r in range(LANES):
        for j in range(LANES):
            target[t0 + j * t_row + r] = source[s0 + r * s_row + j]


# ---------------------------------------------------------------------- in vectors

_FLOAT, _INT, _SHORT = ir.FloatType(), ir.IntType(64), ir.IntType(32)
_VECTOR = ir.VectorType(_FLOAT, LANES)
_place = types.intp


def _number(value: int) -> ir.Value:
    return ir.Constant(_INT, value)


def _lanes(numbers: list[int]) -> ir.Value:
    return ir.Constant(ir.VectorType(_SHORT, len(numbers)), numbers)


class _Writer:
    """Writes vector instructions: the few that are needed here, on numba's arrays."""

    def __init__(self, context: Any, builder: ir.IRBuilder) -> None:
        self.context, self.builder = context, builder

    def data(self, kind: Any, array: ir.Value) -> ir.Value:
        """Return the address of an array's first number."""
        return self.context.make_array(kind)(self.context, self.builder, array).data

    def at(self, start: ir.Value, stride: ir.Value, index: int) -> ir.Value:
        return self.builder.add(start, self.builder.mul(stride, _number(index)))

    def after(self, start: ir.Value, offset: ir.Value) -> ir.Value:
        return self.builder.add(start, offset)

    def load(self, data: ir.Value, place: ir.Value) -> ir.Value:
        return self.builder.load(self._vector(data, place), align=4)

    def store(self, vector: ir.Value, data: ir.Value, place: ir.Value) -> None:
        self.builder.store(vector, self._vector(data, place), align=4)

    def splat(self, number: ir.Value) -> ir.Value:
        """The number in every lane."""
        empty = ir.Constant(_VECTOR, ir.Undefined)
        first = self.builder.insert_element(empty, number, ir.Constant(_SHORT, 0))
        return self.builder.shuffle_vector(first, empty, _lanes([0] * LANES))

    def splat_at(self, data: ir.Value, place: ir.Value) -> ir.Value:
        return self.splat(self.builder.load(self.builder.gep(data, [place]), align=4))

    def pick(self, first: ir.Value, second: ir.Value, lanes: list[int]) -> ir.Value:
        """A vector of some lanes of two others."""
        return self.builder.shuffle_vector(first, second, _lanes(lanes))

    def multiply_add(self, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        return self.builder.fadd(self.builder.fmul(a, b, flags=("contract",)), c, flags=("contract",))

    def fused_multiply_add(self, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        """Write a b + c as one instruction, whatever else uses the product."""
        kind = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
        name = f"llvm.fma.v{LANES}f32"
        return self.builder.call(cgutils.get_or_insert_function(self.builder.module, kind, name), [a, b, c])

    def times(self, count: ir.Value) -> Any:
        return cgutils.for_range(self.builder, count, intp=_INT)

    def variable(self, value: ir.Value) -> ir.Value:
        """A vector that changes, which LLVM keeps in a register."""
        slot = cgutils.alloca_once(self.builder, _VECTOR)
        self.builder.store(value, slot)
        return slot

    def _vector(self, data: ir.Value, place: ir.Value) -> ir.Value:
        return self.builder.bitcast(self.builder.gep(data, [place]), _VECTOR.as_pointer())


def _choose_tile(
    builder: ir.IRBuilder, rows: ir.Value, vectors: ir.Value, most: tuple[int, int], tile: Callable[[int, int], None]
) -> None:
    """Write the tile of every size up to the most rows and vectors, and a jump to that of the size at hand."""
    most_rows, most_vectors = most
    sizes = [(r, v) for v in range(1, most_vectors + 1) for r in range(1, most_rows + 1)]
    number = builder.add(builder.mul(vectors, _number(most_rows + 1)), rows)
    _choose(builder, number, {v * (most_rows + 1) + r: functools.partial(tile, r, v) for r, v in sizes})


def _choose(builder: ir.IRBuilder, number: ir.Value, ways: dict[int, Callable[[], None]]) -> None:
    """Write all ways; the one with the number is gone at run time, or none."""
    done = builder.append_basic_block("done")
    choice = builder.switch(number, done)
    for value, way in ways.items():
        block = builder.append_basic_block(f"way_{value}")
        choice.add_case(_number(value), block)
        builder.position_at_end(block)
        way()
        builder.branch(done)
    builder.position_at_end(done)


@intrinsic
def _vector_tile(
    typing, a, a0, a_row, a_column, b, b0, b_row, s, s0, s_row, c, c0, c_row, g, g0, g_row,
    tiles, rows, depth, vectors, lowest, scale, gated,
):  # fmt: skip
    """Tiles of equal height, one below the other."""
    signature = types.void(
        a, _place, _place, _place, b, _place, _place, s, _place, _place, c, _place, _place, g, _place, _place,
        _place, _place, _place, _place, types.float32, types.float32, types.boolean,
    )  # fmt: skip

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, values: list[ir.Value]) -> ir.Value:
        _, a0, a_row, a_column, _, b0, b_row, _, s0, s_row, _, c0, c_row, _, g0, g_row, *rest = values
        tiles, rows, depth, vectors, lowest, scale, gated = rest
        write, kinds = _Writer(context, builder), signature.args
        a, b, s, c, g = (write.data(kinds[i], values[i]) for i in (0, 4, 7, 10, 13))
        builder.function.attributes.add("noinline")  # one copy of all the tiles serves all products
        lowest, scale, zero = write.splat(lowest), write.splat(scale), ir.Constant(_VECTOR, [0.0] * LANES)
        matrices, strides = (a0, s0, c0, g0), (a_row, s_row, c_row, g_row)

        def tile(row_count: int, vector_count: int) -> None:
            with write.times(tiles) as loop:
                first = builder.mul(loop.index, _number(row_count))
                starts = [
                    write.after(start, builder.mul(first, row)) for start, row in zip(matrices, strides, strict=True)
                ]
                one_tile(row_count, vector_count, *starts)

        def one_tile(row_count: int, vector_count: int, a0: ir.Value, s0: ir.Value, c0: ir.Value, g0: ir.Value) -> None:
            across, down = range(vector_count), range(row_count)
            sums = {
                (r, v): write.variable(write.load(s, write.after(write.at(s0, s_row, r), _number(v * LANES))))
                for r in down
                for v in across
            }
            rows_of_a = [write.at(a0, a_row, r) for r in down]
            with write.times(depth) as loop:
                row_of_b = write.after(b0, builder.mul(loop.index, b_row))
                b_k = [write.load(b, write.after(row_of_b, _number(v * LANES))) for v in across]
                column_of_a = builder.mul(loop.index, a_column)
                for r in down:
                    a_rk = write.splat_at(a, write.after(rows_of_a[r], column_of_a))
                    for v in across:
                        builder.store(write.multiply_add(a_rk, b_k[v], builder.load(sums[r, v])), sums[r, v])
            with builder.if_else(gated) as (if_gated, otherwise):
                with if_gated:
                    for (r, v), z in sums.items():
                        gate = write.load(g, write.after(write.at(g0, g_row, r), _number(v * LANES)))
                        is_open = builder.fcmp_ordered(">", gate, zero)
                        result = builder.select(is_open, builder.fmul(builder.load(z), scale), zero)
                        write.store(result, c, write.after(write.at(c0, c_row, r), _number(v * LANES)))
                with otherwise:
                    for (r, v), z in sums.items():
                        too_low = builder.fcmp_ordered("<", builder.load(z), lowest)  # which NaN is not: it stays
                        result = builder.fmul(builder.select(too_low, lowest, builder.load(z)), scale)
                        write.store(result, c, write.after(write.at(c0, c_row, r), _number(v * LANES)))

        _choose_tile(builder, rows, vectors, (TILE_ROWS, TILE_VECTORS), tile)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def _vector_outer(typing, x, w, w0, a, a0, a_row, c, c0, c_row, g, g0, rows, vectors, scale):
    signature = types.void(
        x, w, _place, a, _place, _place, c, _place, _place, g, _place, _place, _place, types.float32
    )  # fmt: skip

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, values: list[ir.Value]) -> ir.Value:
        _, _, w0, _, a0, a_row, _, c0, c_row, _, g0, rows, vectors, scale = values
        write, kinds = _Writer(context, builder), signature.args
        x, w, a, c, g = (write.data(kinds[i], values[i]) for i in (0, 1, 3, 6, 9))
        builder.function.attributes.add("noinline")
        scale, zero = write.splat(scale), ir.Constant(_VECTOR, [0.0] * LANES)

        def columns(vector_count: int) -> None:
            offsets = [_number(v * LANES) for v in range(vector_count)]
            scaled = [builder.fmul(scale, write.load(w, write.after(w0, offset))) for offset in offsets]
            sums = [write.variable(zero) for _ in offsets]
            with write.times(rows) as loop:
                x_r = write.splat_at(x, loop.index)
                row_of_a = write.after(a0, builder.mul(loop.index, a_row))
                row_of_c = write.after(c0, builder.mul(loop.index, c_row))
                for offset, w_j, total in zip(offsets, scaled, sums, strict=True):
                    a_rj = write.load(a, write.after(row_of_a, offset))
                    builder.store(write.multiply_add(x_r, a_rj, builder.load(total)), total)
                    is_open = builder.fcmp_ordered(">", a_rj, zero)
                    result = builder.select(is_open, builder.fmul(x_r, w_j), zero)
                    write.store(result, c, write.after(row_of_c, offset))
            for offset, total in zip(offsets, sums, strict=True):
                write.store(builder.load(total), g, write.after(g0, offset))

        _choose(builder, vectors, {v: functools.partial(columns, v) for v in range(1, TILE_VECTORS + 1)})
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def _vector_gated(
    typing, a, a0, a_row, g, g0, g_row, w, w0, h0, w_row, c, c0, last0, c_row,
    depth, rows, vectors, one, scale, adds,
):  # fmt: skip
    """Sums of some lanes, by the processor's masks where it has them.

    Every other sum is written as a product with one: processors that add and multiply in different units do both at
    the same time, and to the others it is the same.
    """
    signature = types.void(
        a, _place, _place, g, _place, _place, w, _place, _place, _place, c, _place, _place, _place,
        _place, _place, _place, types.float32, types.float32, types.boolean,
    )  # fmt: skip

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, values: list[ir.Value]) -> ir.Value:
        _, a0, a_row, _, g0, g_row, _, w0, h0, w_row, _, c0, last0, c_row, *rest = values
        depth, rows, vectors, one, scale, adds = rest
        write, kinds = _Writer(context, builder), signature.args
        a, g, w, c = (write.data(kinds[i], values[i]) for i in (0, 3, 6, 10))
        builder.function.attributes.add("noinline")
        zero, one, scale = ir.Constant(_VECTOR, [0.0] * LANES), write.splat(one), write.splat(scale)

        def added(total: ir.Value, a_rk: ir.Value, is_open: ir.Value, by_product: bool) -> ir.Value:
            if not MASKED_SUMS:
                return write.multiply_add(a_rk, builder.select(is_open, one, zero), total)
            more = write.fused_multiply_add(a_rk, one, total) if by_product else builder.fadd(total, a_rk)
            return builder.select(is_open, more, total)

        def tile(row_count: int, vector_count: int) -> None:
            offsets = [_number(v * LANES) for v in range(vector_count)]
            sums = [[write.variable(zero) for _ in offsets] for _ in range(row_count)]
            with write.times(depth) as loop:
                row_of_a = write.after(a0, builder.mul(loop.index, a_row))
                row_of_g = write.after(g0, builder.mul(loop.index, g_row))
                gates = [write.load(g, write.after(row_of_g, offset)) for offset in offsets]
                are_open = [builder.fcmp_ordered(">", gate, zero) for gate in gates]
                for k, row_of_sums in enumerate(sums):
                    a_rk = write.splat_at(a, write.after(row_of_a, _number(k)))
                    for is_open, total in zip(are_open, row_of_sums, strict=True):
                        builder.store(added(builder.load(total), a_rk, is_open, k % 2 == 1), total)
            for v, offset in enumerate(offsets):
                h_j, last_j = write.load(w, write.after(h0, offset)), write.after(last0, offset)
                last = builder.select(adds, write.load(c, last_j), zero)
                for k, row_of_sums in enumerate(sums):
                    total = builder.fmul(builder.load(row_of_sums[v]), scale)
                    last = write.multiply_add(total, write.load(w, write.after(write.at(w0, w_row, k), offset)), last)
                    write.store(builder.fmul(total, h_j), c, write.after(write.at(c0, c_row, k), offset))
                write.store(last, c, last_j)

        _choose_tile(builder, rows, vectors, (GATED_ROWS, GATED_VECTORS), tile)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def _vector_dot(typing, a, a0, b, b0, vectors):
    signature = types.float32(a, _place, b, _place, _place)

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, values: list[ir.Value]) -> ir.Value:
        write = _Writer(context, builder)
        _, a0, _, b0, vectors = values
        a, b = (write.data(signature.args[i], values[i]) for i in (0, 2))
        total = write.variable(ir.Constant(_VECTOR, [0.0] * LANES))
        with write.times(vectors) as loop:
            offset = builder.mul(loop.index, _number(LANES))
            left, right = write.load(a, write.after(a0, offset)), write.load(b, write.after(b0, offset))
            builder.store(write.multiply_add(left, right, builder.load(total)), total)
        folded, lanes = builder.load(total), LANES
        while lanes > 1:  # the upper half onto the lower one
            lanes //= 2
            low, high = (write.pick(folded, folded, list(range(first, first + lanes))) for first in (0, lanes))
            folded = builder.fadd(low, high)
        return builder.extract_element(folded, ir.Constant(_SHORT, 0))

    return signature, generate


@intrinsic
def _vector_many_dots(typing, a, a0, a_row, b, b0, vectors, c, c0, plus):
    """LANES rows at once: their sums are folded together, lane by lane, into one vector."""
    signature = types.void(a, _place, _place, b, _place, _place, c, _place, types.float32)

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, values: list[ir.Value]) -> ir.Value:
        write = _Writer(context, builder)
        _, a0, a_row, _, b0, vectors, _, c0, plus = values
        a, b, c = (write.data(signature.args[i], values[i]) for i in (0, 3, 6))
        sums = [write.variable(ir.Constant(_VECTOR, [0.0] * LANES)) for _ in range(LANES)]
        with write.times(vectors) as loop:
            offset = builder.mul(loop.index, _number(LANES))
            right = write.load(b, write.after(b0, offset))
            for r in range(LANES):
                left = write.load(a, write.after(write.at(a0, a_row, r), offset))
                builder.store(write.multiply_add(left, right, builder.load(sums[r])), sums[r])
        rows = [builder.load(total) for total in sums]
        distance = LANES // 2
        while distance:  # each pair of rows becomes one vector, with half as many lanes for each row
            low = [lane if lane // distance % 2 == 0 else lane + LANES - distance for lane in range(LANES)]
            rows = [
                builder.fadd(write.pick(u, w, low), write.pick(u, w, [lane + distance for lane in low]))
                for u, w in zip(rows[: len(rows) // 2], rows[len(rows) // 2 :], strict=True)
            ]
            distance //= 2
        write.store(builder.fadd(rows[0], write.splat(plus)), c, c0)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def _vector_copy(typing, target, t0, source, s0, vectors):
    signature = types.void(target, _place, source, _place, _place)

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, values: list[ir.Value]) -> ir.Value:
        write = _Writer(context, builder)
        _, t0, _, s0, vectors = values
        target, source = (write.data(signature.args[i], values[i]) for i in (0, 2))
        with write.times(vectors) as loop:
            offset = builder.mul(loop.index, _number(LANES))
            write.store(write.load(source, write.after(s0, offset)), target, write.after(t0, offset))
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def _vector_scale(typing, target, t0, number, vectors):
    signature = types.void(target, _place, types.float32, _place)

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, values: list[ir.Value]) -> ir.Value:
        write = _Writer(context, builder)
        _, t0, number, vectors = values
        target, factor = write.data(signature.args[0], values[0]), write.splat(number)
        with write.times(vectors) as loop:
            here = write.after(t0, builder.mul(loop.index, _number(LANES)))
            write.store(builder.fmul(write.load(target, here), factor), target, here)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def _vector_transpose_square(typing, source, s0, s_row, target, t0, t_row):
    """Interleaving the rows of the upper half with those of the lower one, log2(LANES) times, transposes a square."""
    signature = types.void(source, _place, _place, target, _place, _place)

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, values: list[ir.Value]) -> ir.Value:
        write = _Writer(context, builder)
        _, s0, s_row, _, t0, t_row = values
        source, target = (write.data(signature.args[i], values[i]) for i in (0, 3))
        rows = [write.load(source, write.at(s0, s_row, r)) for r in range(LANES)]
        half = LANES // 2
        interleaved = [lane for i in range(LANES) for lane in (i, i + LANES)]
        for _ in range(LANES.bit_length() - 1):
            rows = [
                write.pick(upper, lower, lanes)
                for upper, lower in zip(rows[:half], rows[half:], strict=True)
                for lanes in (interleaved[:LANES], interleaved[LANES:])
            ]
        for r, row in enumerate(rows):
            write.store(row, target, write.at(t0, t_row, r))
        return context.get_dummy_value()

    return signature, generate


_tile = _plain_tile if CHECKED else _vector_tile
_transpose_square = _plain_transpose_square if CHECKED else _vector_transpose_square
_outer = _plain_outer if CHECKED else _vector_outer
_gated = _plain_gated if CHECKED else _vector_gated
_dot = _plain_dot if CHECKED else _vector_dot
_many_dots = _plain_many_dots if CHECKED else _vector_many_dots
_scale = _plain_scale if CHECKED else _vector_scale
copy = _plain_copy if CHECKED else _vector_copy  # (target, t0, source, s0, vectors)
