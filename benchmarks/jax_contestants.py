"""The same trainings in JAX: as it is usually written, and tuned by hand.

Shapes are fixed in JAX, so that a short last batch of an epoch is filled up with rows from the epoch's beginning.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from contestants import Contestant
from shapes import DROPOUT, LEARNING_RATE, Shape

Tree = Any  # arrays, in lists and tuples
KEPT = 1 - DROPOUT


def usual(shape: Shape) -> Contestant:
    """One member's training as it is usually written, and vmap over members."""
    x, y = (jnp.asarray(t.numpy()) for t in shape.data())

    def loss(weights: Tree, x: jax.Array, y: jax.Array, key: jax.Array) -> jax.Array:
        for i, (w, b) in enumerate(weights[:-1]):
            x = jax.nn.relu(x @ w + b)
            x = x * jax.random.bernoulli(jax.random.fold_in(key, i), KEPT, x.shape) / KEPT
        w, b = weights[-1]
        return jnp.mean((x @ w + b - y) ** 2)

    def step(state: Tree, batch: jax.Array) -> tuple[Tree, None]:
        weights, moments, key = state
        key, mask_key = jax.random.split(key)
        gradient = jax.grad(loss)(weights, x[batch], y[batch], mask_key)
        return (*_update(shape, weights, moments, gradient), key), None

    def epoch(_: int, state: Tree) -> Tree:
        weights, moments, key = state
        key, order_key = jax.random.split(key)
        order = jax.random.permutation(order_key, shape.rows)
        whole = jnp.resize(order, (shape.steps_per_epoch, shape.batch_size))
        return jax.lax.scan(step, (weights, moments, key), whole)[0]

    @jax.jit
    def train(states: Tree, epochs: int) -> Tree:
        return jax.vmap(lambda state: jax.lax.fori_loop(0, epochs, epoch, state))(states)

    keys = jax.random.split(jax.random.key(0), shape.members)
    weights = jax.vmap(partial(_initial, shape))(keys)
    states = (weights, jax.vmap(_no_moments)(weights), keys)

    def run(epochs: int) -> None:
        nonlocal states
        states = jax.block_until_ready(train(states, epochs))

    return Contestant(run, shape.steps_per_epoch)


def tuned(shape: Shape) -> Contestant:
    """All members in one program, whose random numbers numpy draws, and only as many as are needed.

    Orders are shuffled by numpy. A Poisson number of cells of a mask is set to zero, which leaves each at one with
    probability 1 - rate: one random number for each unit dropped, not for each unit. What else was tried brought
    nothing: flat parameters, biases within the weights, transposed layouts, x and y gathered together or by numpy,
    masks made by numpy, a backward pass by hand, smaller groups of members, an unrolled scan.
    """
    x, y = (jnp.asarray(t.numpy()) for t in shape.data())
    random = np.random.default_rng(0)
    epochs = max(1, 400 // shape.steps_per_epoch)  # in one call
    steps = epochs * shape.steps_per_epoch
    cells = [shape.members * shape.batch_size * width for width in shape.widths[1:-1]]
    means = [-math.log(KEPT) * count for count in cells]
    most = [int(mean + 6 * math.sqrt(mean)) + 6 for mean in means]  # more are never drawn, in practice

    def draws() -> Tree:
        order = random.permuted(np.tile(np.arange(shape.rows, dtype=np.int32), (epochs * shape.members, 1)), axis=1)
        whole = np.pad(order, ((0, 0), (0, shape.steps_per_epoch * shape.batch_size - shape.rows)), mode="wrap")
        batches = whole.reshape(epochs, shape.members, shape.steps_per_epoch, shape.batch_size).swapaxes(1, 2)
        dropped = []
        for count, mean, size in zip(cells, means, most, strict=True):
            places = random.integers(count, size=(steps, size), dtype=np.int32)
            places[np.arange(size) >= random.poisson(mean, (steps, 1))] = count  # a spare cell
            dropped.append(places)
        return batches.reshape(steps, shape.members, shape.batch_size), dropped

    def loss(weights: Tree, x: jax.Array, y: jax.Array, dropped: list[jax.Array]) -> jax.Array:
        for (w, b), places, count in zip(weights, dropped, cells, strict=False):
            mask = jnp.full(count + 1, 1 / KEPT).at[places].set(0, mode="promise_in_bounds")[:count]
            z = x @ w + b[:, None]
            x = jax.nn.relu(z) * mask.reshape(z.shape)  # (members, batch, width)
        w, b = weights[-1]
        return shape.members * jnp.mean((x @ w + b[:, None] - y) ** 2)

    def step(state: Tree, draw: Tree) -> tuple[Tree, None]:
        (weights, moments), (batch, dropped) = state, draw
        own_x, own_y = (t.at[batch].get(mode="promise_in_bounds") for t in (x, y))
        return _update(shape, weights, moments, jax.grad(loss)(weights, own_x, own_y, dropped)), None

    @partial(jax.jit, donate_argnums=0)
    def train(state: Tree, draws: Tree) -> Tree:
        return jax.lax.scan(step, state, draws)[0]

    weights = jax.vmap(partial(_initial, shape))(jax.random.split(jax.random.key(0), shape.members))
    state = (weights, _no_moments(weights))

    def run(blocks: int) -> None:
        nonlocal state
        for _ in range(blocks):
            state = train(state, draws())
        jax.block_until_ready(state)

    return Contestant(run, steps)


def _initial(shape: Shape, key: jax.Array) -> Tree:
    keys = jax.random.split(key, len(shape.layers))
    return [
        (jax.random.normal(key, layer) / layer[0] ** 0.5, jnp.zeros(layer[1]))
        for key, layer in zip(keys, shape.layers, strict=True)
    ]


def _no_moments(weights: Tree) -> Tree:
    return jax.tree.map(jnp.zeros_like, weights), jax.tree.map(jnp.zeros_like, weights), jnp.zeros(())


def _update(shape: Shape, weights: Tree, moments: Tree, gradient: Tree) -> tuple[Tree, Tree]:
    """A step of Adam, or of SGD, which leaves the moments alone."""
    if shape.optimiser == "sgd":
        return jax.tree.map(lambda p, g: p - LEARNING_RATE * g, weights, gradient), moments
    first, second, count = moments
    count = count + 1
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradient)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradient)
    rate, correction = LEARNING_RATE / (1 - 0.9**count), 1 / (1 - 0.999**count)
    weights = jax.tree.map(lambda p, m, v: p - rate * m / (jnp.sqrt(v * correction) + 1e-8), weights, first, second)
    return weights, (first, second, count)
