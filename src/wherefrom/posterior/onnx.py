"""One-shot prediction as an ONNX file, for programs without Python: x in its units in; mean, variance, quantiles out.

    x  ->  standardised  ->  each member's moments, one after the other  ->  mixed, with noise, in y's units

It is the code of `posterior.one_shot`, followed by torch's exporter while it runs: one member's pass, which a Scan of
ONNX repeats for all of them, and what stands around it. Before a file is put in place, onnxruntime has to give the
library's own answers with it.
"""

from __future__ import annotations

import copy
import importlib
import itertools
import json
import logging
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from wherefrom.files import atomic
from wherefrom.posterior.groups import groups, refreshing
from wherefrom.posterior.predicting import head_of
from wherefrom.posterior.weighing import is_weighted
from wherefrom.predictive import few_members
from wherefrom.predictive.calibration import VarianceScale
from wherefrom.predictive.one_shot import compiled, member
from wherefrom.predictive.one_shot.member import Covariance, Uncertain
from wherefrom.predictive.one_shot.propagate import Passes
from wherefrom.predictive.shape import Shape
from wherefrom.training.precision import tolerance

if TYPE_CHECKING:
    from wherefrom.posterior.posterior import Posterior

_MOST_BYTES = 2**31 - 2**24  # of one file, less what its graph may take
_CHECKED_ROWS = 8
_DEGREE = 24  # of a polynomial, for errors below 1e-14
_LOGGERS = ("torch.__trace", "torch.onnx", "torch.export", "onnxscript", "onnx_ir")


def export(posterior: Posterior, path: str | Path, covariance: Covariance, quantiles: Sequence[float] = ()) -> None:
    """Write the file, or leave what is there as it was."""
    _require_packages()
    probabilities = _checked(quantiles)
    kept = (VarianceScale, Shape) if probabilities else (VarianceScale,)
    if others := [each.by for each in posterior.calibration if not isinstance(each, kept)]:
        by_quantiles = ', or quantiles=(0.025, 0.5, 0.975) for "shape"' if others == ["shape"] else ""
        raise ValueError(
            f"a file gives a mean, a variance and quantiles, and has no place for a calibration by "
            f"{' and '.join(others)}: write posterior.uncalibrated.export_onnx(path){by_quantiles}"
        )
    if posterior.schema.joined is not None:
        raise ValueError("an ONNX file takes one tensor x, and the model was trained on several inputs")
    path, rows = Path(path), _some_rows(posterior)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} to write {path.name} into")
    if len(groups(posterior)) > 1:
        raise ValueError(
            "one ONNX file holds members of one network: take one family, or one dropout rate, as select(F=0)"
        )
    prediction = posterior.one_shot(rows, covariance=covariance)  # which has words for what cannot be propagated
    prediction.exported(prediction.mixture.mean, prediction.mixture.variance)  # and for what has no place in a file
    model = _Model(posterior, prediction, covariance, probabilities).eval()
    thetas = _thetas(posterior, covariance)
    if (size := sum(theta.nbytes for theta in thetas)) > _MOST_BYTES:
        raise ValueError(
            f"one ONNX file holds 2 GB, these members {size / 2**30:.1f}: export some of them, by select()"
        )
    try:
        with torch.no_grad(), _quiet():
            program = _translated(model, rows, thetas)
    except Exception as error:  # whatever an operation without a translation raises
        raise ValueError(_why(error, covariance)) from error
    _repeat(program.model.graph, thetas, 3 if probabilities else 2)
    program.model.metadata_props.update(_described(posterior, prediction, covariance, probabilities))
    with atomic.writing(path) as temporary:
        program.save(temporary, external_data=False)
        _check(temporary, rows, prediction, tolerance(posterior.device, posterior.dtype), probabilities)


def _checked(quantiles: Sequence[float]) -> tuple[float, ...]:
    probabilities = tuple(map(float, quantiles))
    if wrong := [each for each in probabilities if not 0 < each < 1]:
        raise ValueError(f"quantiles are probabilities between 0 and 1, such as (0.025, 0.5, 0.975); {wrong[0]} is not")
    return probabilities


# ---------------------------------------------------------------------- what is followed


class _Model(nn.Module):
    """The whole of it, but for the repetition: all members' moments are given, and one member's are worked out."""

    def __init__(
        self, posterior: Posterior, prediction: Any, covariance: Covariance, probabilities: Sequence[float] = ()
    ) -> None:
        super().__init__()
        self.network = copy.copy(groups(posterior)[0].whole.private("export")).to(torch.device("cpu"))
        self.graph = member.graph_of(self.network, posterior.mixture[0].trained.last.float().cpu())
        self.scaler, self.likelihood = posterior.scaler, posterior.training.likelihood
        self.what = Uncertain(covariance, posterior.design.dropout is not None, inputs=False, head=head_of(posterior))
        self.rewritten = _Rewritten()
        self.finished = prediction.exported
        self.quantiles = prediction.exported_quantiles(probabilities) if probabilities else None
        self.axes, self.points = few_members.axes_for_few(prediction.mixture), prediction.answers.shape[1]
        self.fitted_noise = posterior.fitted_noise
        factors = [torch.tensor(each.factor, dtype=torch.float64) for each in _scales(posterior)]
        self.factor = math.prod(factors, start=torch.ones((), dtype=torch.float64))
        weights = torch.tensor(posterior.weights, dtype=torch.float64) / prediction.answers.shape[1]
        self.weights = weights.repeat_interleave(prediction.answers.shape[1]) if is_weighted(posterior) else None
        self.is_scaled = self.scaler.scales_x

    def forward(self, x: Tensor, means: Tensor, variances: Tensor, *theta: Tensor) -> tuple[Tensor, ...]:
        return *self.mixed(means, variances), *self.moments(x, *theta)

    def moments(self, x: Tensor, *theta: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of one component's answers.  # (rows, outputs)"""
        rows = self.scaler.scaled(x, torch.float32) if self.is_scaled else x
        with self.rewritten, compiled.spelled_out():
            return member.run(self.graph, self.network, self.what, rows, None, *theta)

    def _average(self, values: Tensor) -> Tensor:
        """Over components, by their weights."""
        return values.mean(0) if self.weights is None else (self.weights[:, None, None] * values).sum(0)

    def mixed(self, means: Tensor, variances: Tensor) -> tuple[Tensor, ...]:
        """Mean, variance and quantiles of y, in double precision.  # from (components, rows, outputs)"""
        moments = self.likelihood.moments(means.double(), variances.double())
        noise = self.likelihood.noise_of(moments, self.scaler, self.fitted_noise)
        centre = self._average(moments.answers)
        spread = variances.double() if moments.spread is None else moments.spread
        variance = self._average(spread) + self._average((moments.answers - centre).square())
        if noise is not None:
            variance = variance + (self._average(noise) if noise.ndim == 3 else noise)
        variance = self.factor * variance
        with self.rewritten:
            finished = self.finished(centre, variance)
        if self.quantiles is None:
            return finished
        by_member = moments.answers.unflatten(0, (-1, self.points)).mean(1)
        arranged = by_member.unflatten(0, [axis.draws for axis in self.axes]) if self.axes else by_member.squeeze(0)
        few = few_members.of_means(arranged, self.axes, variance)
        return *finished, self.quantiles(centre, variance, few)


class _Rewritten(TorchFunctionMode):
    """Functions that ONNX, its runtime or the exporter lack, by those that they have.

    onnxruntime has no erf in double precision, which ELU needs; there, for z >= 0, with t = 2 / (2 + z),

        exp(z^2) erfc(z) = t exp(P(2 t - 1)),        P a polynomial

    and the exporter loses the divisor of an average.
    """

    def __init__(self) -> None:
        super().__init__()

        def exponent(s: Any) -> Any:
            t = torch.from_numpy((s + 1) / 2)
            return (torch.special.erfcx(2 / t - 2) / t).log().numpy()

        series = np.polynomial.chebyshev.chebinterpolate(exponent, _DEGREE)
        self.coefficients = np.polynomial.chebyshev.cheb2poly(series)[::-1].tolist()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        special = torch.special
        ours = {special.ndtr: self._ndtr, special.erfcx: self._erfcx, special.log_ndtr: self._log_ndtr}
        if func in ours and args[0].dtype == torch.float64:
            return ours[func](*args)
        if func in (F.avg_pool2d, F.avg_pool3d) and kwargs.get("divisor_override"):
            return self._average(func, *args, **kwargs)
        return func(*args, **kwargs)

    def _ndtr(self, x: Tensor) -> Tensor:
        z = x.abs() * 0.5**0.5
        tail = 0.5 * self._erfcx(z) * torch.exp(-z * z)
        return torch.where(x < 0, tail, 1 - tail)

    def _log_ndtr(self, x: Tensor) -> Tensor:
        z = x.abs() * 0.5**0.5
        half = 0.5 * self._erfcx(z)
        return torch.where(x < 0, torch.log(half) - z * z, torch.log(1 - half * torch.exp(-z * z)))

    def _erfcx(self, z: Tensor) -> Tensor:
        t = 2 / (2 + z)
        s, power = 2 * t - 1, torch.zeros_like(t)
        for coefficient in self.coefficients:
            power = power * s + coefficient
        return t * torch.exp(power)

    def _average(self, pool: Any, x: Tensor, kernel_size: Any, divisor_override: int, **settings: Any) -> Tensor:
        if settings.pop("ceil_mode", False):
            raise ValueError("an average pooling with ceil_mode cannot be written as ONNX")
        sizes = (kernel_size,) * (2 if pool is F.avg_pool2d else 3) if isinstance(kernel_size, int) else kernel_size
        average = pool(x, kernel_size=kernel_size, **settings | {"count_include_pad": True})
        return average * (math.prod(sizes) / divisor_override)


def _scales(posterior: Posterior) -> list[VarianceScale]:
    return [each for each in posterior.calibration if isinstance(each, VarianceScale)]


def _thetas(posterior: Posterior, covariance: Covariance) -> list[Tensor]:
    """Means, and variances and factors where theta has any, of all components.  # (components, [rank,] size)"""
    nothing = torch.empty(0, device=posterior.device)
    (group,) = groups(posterior, whole=True)
    job = Passes(group.network, group.thetas, nothing, None, covariance, refreshing(posterior, group))
    thetas = job.thetas(posterior.design.iterations is not None)
    return [theta.float().cpu() for theta in thetas if theta is not None]


def _some_rows(posterior: Posterior) -> Tensor:
    """Return rows as the file will take them: training rows where they are at hand, else something like them."""
    schema, scaler = posterior.schema, posterior.scaler
    if posterior.rows is not None:
        rows = posterior.rows.x[torch.arange(_CHECKED_ROWS) % len(posterior.rows)]
    elif schema.x_is_float:
        noise = torch.randn(_CHECKED_ROWS, *schema.x_shape, generator=torch.Generator().manual_seed(0))
        rows = scaler.x_mean + scaler.x_std * noise
    else:
        rows = torch.zeros(_CHECKED_ROWS, *schema.x_shape, dtype=torch.long)
    return rows.float() if schema.x_is_float else rows.long()


# ---------------------------------------------------------------------- as ONNX


def _translated(model: _Model, rows: Tensor, thetas: Sequence[Tensor]) -> Any:
    """The model as an ONNX program, for any number of rows."""
    components, free = len(thetas[0]), torch.export.Dim.DYNAMIC
    means, variances = torch.zeros(2, components, len(rows), model.network.outputs)
    given = (rows, means, variances, *(theta[0] for theta in thetas))
    shapes = ({0: free}, {1: free}, {1: free}, tuple(None for _ in thetas))
    exported = torch.export.export(model, given, dynamic_shapes=shapes, strict=False)
    return torch.onnx.export(exported, (), dynamo=True, verbose=False)


def _why(error: BaseException, covariance: Covariance) -> str:
    """Explain the failure by the first line of what went wrong first."""
    while error.__cause__ is not None and not isinstance(error, ValueError):
        error = error.__cause__
    reason = str(error).strip().partition("\n")[0]
    how = "" if covariance == "diagonal" else f' with covariance={covariance!r}: try covariance="diagonal"'
    return f"torch cannot write this network as ONNX{how} ({type(error).__name__}: {reason})"


def _repeat(graph: Any, thetas: Sequence[Tensor], kept: int) -> None:
    """Do what depends on theta for each of them, by a Scan, and let its results be the moments that were given."""
    import onnx_ir as ir

    moments, weights = graph.inputs[1:3], graph.inputs[3:]
    touched, inside = set(weights), []
    for node in graph:
        if not touched.isdisjoint(node.inputs):
            touched.update(node.outputs)
            inside.append(node)
    results = []
    for value in graph.outputs[kept:]:
        if value not in touched:  # such as no variance at all
            inside.append(ir.Node("", "Identity", [value]))
        results.append(value if value in touched else inside[-1].outputs[0])
    for values, count in ((graph.inputs, 1), (graph.outputs, kept)):
        while len(values) > count:
            values.pop()
    graph.remove([node for node in inside if node.graph is graph])
    body = ir.Graph(weights, results, nodes=inside, name="one_member")
    members = [ir.Value(name="theta", const_value=ir.tensor(theta.numpy())) for theta in thetas]
    attributes = [ir.AttrGraph("body", body), ir.AttrInt64("num_scan_inputs", len(members))]
    scan = ir.Node("", "Scan", members, attributes, num_outputs=len(moments))
    for old, new in zip(moments, scan.outputs, strict=True):
        new.type, new.shape = old.type, old.shape
        old.replace_all_uses_with(new)
    graph.append(scan)
    graph.sort()
    _rename(graph, body, members)


def _rename(graph: Any, body: Any, members: Sequence[Any]) -> None:
    """Names that say something or nothing, all of them different, and no lines of source where a node came from."""
    number = itertools.count()
    for node in graph.all_nodes():
        node.name = f"n{next(number)}"
        node.metadata_props.clear()
        for value in node.outputs:
            value.name = f"v{next(number)}"
            value.metadata_props.clear()
    for value in (*body.inputs, *graph.initializers.values()):
        value.name = f"v{next(number)}"
    for value, name in zip(members, ("theta_means", "theta_variances", "theta_factors"), strict=False):
        value.name = name
        graph.register_initializer(value)
    for value, name in zip((*graph.inputs, *graph.outputs), ("x", "mean", "variance", "quantiles"), strict=False):
        value.name, value.shape[0] = name, "rows"


def _check(path: Path, rows: Tensor, prediction: Any, relative: float, probabilities: Sequence[float] = ()) -> None:
    """Raise unless the file gives the library's answers, to many rows and to one, up to the rounding of its device."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    near: Any = partial(torch.allclose, rtol=relative, atol=relative / 10, equal_nan=True)
    try:
        session = onnxruntime.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])
        for count in (1, len(rows)):
            mean, variance, *others = map(torch.from_numpy, session.run(None, {"x": rows[:count].numpy()}))
            both = [(mean, prediction.mean), (variance.sqrt(), prediction.std)]
            for quantiles in others:
                expected = map(prediction.quantile, probabilities)
                both += zip(quantiles.unbind(-1), expected, strict=True)
            for written, expected in both:
                if not near(written / prediction.unit, expected[:count] / prediction.unit):
                    raise ValueError("its answers are not those of one_shot")
    except Exception as error:
        raise ValueError(f"onnxruntime cannot run this network as it should, so no file is written: {error}") from error


def _described(
    posterior: Posterior, prediction: Any, covariance: Covariance, probabilities: Sequence[float]
) -> dict[str, str]:
    from wherefrom import __version__

    likelihood = posterior.training.likelihood
    noise = getattr(likelihood, "noise", getattr(likelihood, "dispersion", None))
    return {
        "wherefrom_version": __version__,
        "x_names": json.dumps(posterior.schema.x_names),
        "y_names": json.dumps(posterior.schema.y_names),
        "classes": json.dumps(posterior.schema.classes),
        "members": str(len(posterior)),
        "marginalises": ", ".join(posterior.design.names),
        "covariance": covariance,
        "noise": "none" if noise is None else str(noise),
        "variance_includes_noise": "no" if noise is None else "yes",
        "calibration": "; ".join(map(str, posterior.calibration)) or "none",
    } | ({"quantiles": json.dumps(probabilities), "reading": prediction.quantile_reading} if probabilities else {})


def _require_packages() -> None:
    try:
        for name in ("onnx", "onnxscript", "onnxruntime"):
            importlib.import_module(name)
    except ImportError as error:
        message = "writing ONNX files needs onnx, onnxscript and onnxruntime: pip install 'wherefrom[onnx]'"
        raise ImportError(message) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence what the exporter says to its own developers."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
