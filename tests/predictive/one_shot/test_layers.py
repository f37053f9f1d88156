"""Every rule against Monte Carlo: random weights, random inputs, and tolerances from the standard error."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, vmap

import oracle
from wherefrom.predictive.one_shot import Moments
from wherefrom.predictive.one_shot.graph import Drop, NoRuleError

SAMPLES = 20_000
ROWS = 3


class Function(nn.Module):
    """A function as a module, to be traced."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        return self.function(x) + 0 * self.bias


class Weighted(nn.Module):
    """Rows times a matrix of parameters."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4, 3))

    def forward(self, x):
        return x @ self.weight


CONSTANT = torch.linspace(-1, 2, 12, dtype=torch.float64).reshape(4, 3)


def in_place(x):
    h = x + 1
    same = h
    h *= 2
    h -= 1
    h /= 3
    return same


def grown(x):
    """As dense blocks have it: the list is another one at every use."""
    parts = [x]
    for _ in range(2):
        parts.append(2 * torch.cat(parts, dim=1)[:, -2:])
    return torch.cat(parts, dim=1)


# Layers whose first two moments are exact for independent weights and inputs.
EXACT = {
    "linear": (nn.Linear(5, 4), (5,)),
    "linear without bias": (nn.Linear(5, 4, bias=False), (5,)),
    "conv1d": (nn.Conv1d(2, 3, 3, padding=1), (2, 6)),
    "conv2d": (nn.Conv2d(2, 4, 3, stride=2, padding=1, groups=2), (2, 5, 5)),
    "conv2d reflect": (nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular", dilation=1), (2, 4, 4)),
    "conv3d": (nn.Conv3d(1, 2, 2), (1, 3, 3, 3)),
    "transposed conv1d": (nn.ConvTranspose1d(2, 3, 3, stride=2, output_padding=1), (2, 4)),
    "transposed conv2d": (nn.ConvTranspose2d(2, 2, 2, stride=2), (2, 3, 3)),
    "transposed conv3d": (nn.ConvTranspose3d(1, 1, 2), (1, 2, 2, 2)),
    "relu": (nn.ReLU(), (6,)),
    "leaky relu": (nn.LeakyReLU(0.3), (6,)),
    "elu": (nn.ELU(0.7), (6,)),
    "selu": (nn.SELU(), (6,)),
    "sigmoid": (nn.Sigmoid(), (6,)),
    "tanh": (nn.Tanh(), (6,)),
    "silu": (nn.SiLU(), (6,)),
    "gelu": (nn.GELU(), (6,)),
    "softplus": (nn.Softplus(), (6,)),
    "relu6": (nn.ReLU6(), (6,)),
    "hardtanh": (nn.Hardtanh(-0.3, 0.8), (6,)),
    "hardsigmoid": (nn.Hardsigmoid(), (6,)),
    "hardswish": (nn.Hardswish(), (6,)),
    "clamp": (Function(lambda x: torch.clamp(x[:, :2], -0.5, 0.5) + x[:, 2:].clamp(min=0.2)), (4,)),
    "clamp in place": (Function(lambda x: (2 * x).clamp_max_(0.7)), (4,)),
    "new zeros": (Function(lambda x: x + x.new_zeros(4) + torch.ones_like(x)), (4,)),
    "expand": (Function(lambda x: x.unsqueeze(1).expand(-1, 3, -1).flatten(1)), (4,)),
    "matmul": (Function(lambda x: x @ CONSTANT), (4,)),
    "matmul from the left": (Function(lambda x: torch.matmul(CONSTANT.T, x)), (4, 3)),
    "matmul of weights": (Weighted(), (4,)),
    "einsum": (Function(lambda x: torch.einsum("nct,cd->ntd", x, CONSTANT)), (4, 3)),
    "einsum of one": (Function(lambda x: torch.einsum("nct->ntc", x).sum(1)), (4, 3)),
    "identity": (nn.Identity(), (6,)),
    "batch norm": (nn.BatchNorm1d(4), (4,)),
    "batch norm 2d": (nn.BatchNorm2d(3), (3, 2, 2)),
    "batch norm plain": (nn.BatchNorm2d(3, affine=False), (3, 2, 2)),
    "average pool 1d": (nn.AvgPool1d(3, padding=1, count_include_pad=False), (2, 7)),
    "average pool 2d": (nn.AvgPool2d(2, stride=1, padding=1), (2, 4, 4)),
    "average pool 2d uneven": (
        nn.AvgPool2d(3, stride=2, padding=1, count_include_pad=False, ceil_mode=True),
        (2, 5, 5),
    ),
    "average pool 2d override": (nn.AvgPool2d(2, divisor_override=3), (2, 4, 4)),
    "average pool 3d": (nn.AvgPool3d(2), (1, 4, 4, 4)),
    "adaptive 1d": (nn.AdaptiveAvgPool1d(3), (2, 7)),
    "adaptive 2d": (nn.AdaptiveAvgPool2d((2, None)), (2, 5, 3)),
    "adaptive 3d": (nn.AdaptiveAvgPool3d(1), (2, 3, 2, 2)),
    "flatten": (nn.Flatten(), (2, 3)),
    "unflatten": (nn.Unflatten(1, (2, 3)), (6,)),
    "mean": (Function(lambda x: x.mean((2, 3))), (3, 2, 2)),
    "sum": (Function(lambda x: torch.sum(x, dim=1)), (5,)),
    "reshape": (Function(lambda x: x.view(x.size(0), -1)[:, 1:4]), (2, 3)),
    "permute": (Function(lambda x: x.permute(0, 2, 1).reshape(x.shape[0], -1)), (2, 3)),
    "concatenate": (Function(lambda x: torch.cat([x[:, :2], 2 * x[:, 2:]], dim=1)), (5,)),
    "power": (Function(lambda x: torch.cat([x[:, :3] ** 3, torch.pow(x[:, 3:], 2.0)], 1)), (6,)),
    "unbind": (Function(lambda x: sum(k * part for k, part in enumerate(x.unflatten(1, (3, 2)).unbind(1)))), (6,)),
    "gather": (Function(lambda x: x.gather(1, torch.tensor([[4, 0]]).expand(len(x), 2)).relu()), (6,)),
    "chosen by numbers": (Function(lambda x: x[:, torch.tensor([5, 5, 1])].relu()), (6,)),
    "chunk": (Function(lambda x: x.chunk(2, dim=1)[0] + 3 * x.chunk(2, dim=1)[1]), (6,)),
    "arithmetic": (Function(lambda x: -(2 * x + 1 - x[:, :1] * 0) / 4 - 0.5), (4,)),
    "square": (Function(lambda x: x * x), (4,)),
    "operators the other way round": (Function(lambda x: 3 - (1 + x) * 2), (4,)),
    "operators in place": (Function(in_place), (4,)),
    "rows counted": (
        Function(lambda x: x.reshape(2 * len(x), -1).reshape(len(x), 4) * (torch.ones(len(x), 1) / 2)),
        (4,),
    ),
    "a list that grows": (Function(grown), (4,)),
    "quotient": (Function(lambda x: x / torch.tensor([[1.0, 2.0, 4.0, 8.0]])), (4,)),
    "split": (Function(lambda x: x.split(split_size=2, dim=1)[1] - torch.split(x, [2, 2], 1)[0]), (4,)),
    "constant weight": (Function(lambda x: F.linear(x, torch.arange(8.0, dtype=torch.float64).reshape(2, 4))), (4,)),
    "product": (Function(lambda x: x[:, :2] * x[:, 2:]), (4,)),
    "pad": (Function(lambda x: F.pad(x, (1, 2))), (4,)),
    "functional": (Function(lambda x: F.leaky_relu(x - 0.2, 0.1)), (4,)),
}
# Approximations, with the relative error of the standard deviation that they are allowed beyond sampling.
APPROXIMATE = {
    "layer norm": (nn.LayerNorm(40), (40,), 0.05),
    "layer norm plain": (nn.LayerNorm((4, 10), elementwise_affine=False), (4, 10), 0.05),
    "group norm": (nn.GroupNorm(2, 4), (4, 5, 5), 0.05),
    "attention": (Function(lambda x: F.scaled_dot_product_attention(*(x / 2).chunk(3, -1))), (4, 12), 0.15),
    "max pool 1d": (nn.MaxPool1d(2), (2, 6), 0.02),
    "max pool 2d": (nn.MaxPool2d(2), (2, 4, 4), 0.15),
    "max pool 2d overlapping": (nn.MaxPool2d(3, stride=2, padding=1), (2, 5, 5), 0.2),
    "max pool 3d": (nn.MaxPool3d(2), (1, 2, 2, 2), 0.15),
    "max pool dilated": (nn.MaxPool1d(2, stride=1, dilation=2), (2, 6), 0.02),
}


def uncertain(module, shape, generator):
    """Means and variances of a module's parameters and inputs, in double precision."""
    tensors = {}
    for name, tensor in (dict(module.named_parameters()) | dict(module.named_buffers())).items():
        if not tensor.is_floating_point():
            continue
        mean = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
        if name.endswith("running_var"):
            mean = mean.exp()
        is_buffer = name in dict(module.named_buffers())
        spread = None if is_buffer else 0.3 * torch.rand(tensor.shape, generator=generator, dtype=torch.float64)
        tensors[name] = Moments(mean, spread)
    mean = torch.randn(ROWS, *shape, generator=generator, dtype=torch.float64)
    return Moments(mean, 0.5 * torch.rand(mean.shape, generator=generator, dtype=torch.float64)), tensors


def sampled(module, x, tensors, generator):
    """Mean, variance and their standard errors over many draws of weights and inputs."""

    def draw(part):
        if part.variance is None:
            return part.mean.expand(SAMPLES, *part.mean.shape)
        z = torch.randn(SAMPLES, *part.mean.shape, generator=generator, dtype=torch.float64)
        return part.mean + part.variance.sqrt() * z

    drawn = {name: draw(part) for name, part in tensors.items()}
    module = module.double().eval()
    answers = vmap(lambda t, rows: functional_call(module, t, (rows,)))(drawn, draw(x))
    mean, variance = answers.mean(0), answers.var(0)
    fourth = (answers - mean).pow(4).mean(0)
    return mean, variance, (variance / SAMPLES).sqrt(), ((fourth - variance**2).clamp_min(0) / SAMPLES).sqrt()


@pytest.mark.parametrize("name", EXACT)
def test_exact_rules(name):
    module, shape = EXACT[name]
    generator = torch.Generator().manual_seed(1)
    x, tensors = uncertain(module, shape, generator)
    found = oracle.pushed(module.eval(), x, tensors, [])
    mean, variance, mean_error, variance_error = sampled(module, x, tensors, generator)
    assert found.mean.shape == mean.shape
    # Beyond the standard error: the quadrature's own, and events too rare to be among the samples.
    assert ((found.mean - mean).abs() <= 5 * mean_error + 1e-3 * variance.sqrt() + 1e-4).all()
    assert ((found.total_variance - variance).abs() <= 5 * variance_error + 2e-3 * variance + 1e-4).all()


@pytest.mark.parametrize("name", APPROXIMATE)
def test_approximate_rules_stay_within_what_they_state(name):
    module, shape, error = APPROXIMATE[name]
    generator = torch.Generator().manual_seed(2)
    x, tensors = uncertain(module, shape, generator)
    found = oracle.pushed(module.eval(), x, tensors, [])
    mean, variance, mean_error, variance_error = sampled(module, x, tensors, generator)
    std = variance.sqrt()
    assert ((found.mean - mean).abs() <= 5 * mean_error + error * std).all()
    relative = found.total_variance.sqrt() / std - 1
    assert float((relative.abs() - 5 * variance_error / (2 * variance)).max()) <= error


@pytest.mark.parametrize("layer", [nn.Dropout(0.3), nn.Dropout2d(0.2)])
def test_dropout_has_the_moments_of_its_masks(layer):
    shape = (4,) if isinstance(layer, nn.Dropout) else (4, 2, 2)
    generator = torch.Generator().manual_seed(3)
    x, _ = uncertain(nn.Identity(), shape, generator)
    found = oracle.pushed(layer, x, {}, [Drop(layer.p)])
    z = torch.randn(SAMPLES, *x.mean.shape, generator=generator, dtype=torch.float64)
    cells = (ROWS, *shape) if isinstance(layer, nn.Dropout) else (ROWS, 4, 1, 1)
    kept = (torch.rand(SAMPLES, *cells, generator=generator) >= layer.p).double() / (1 - layer.p)
    answers = (x.mean + x.variance.sqrt() * z) * kept
    mean, variance = answers.mean(0), answers.var(0)
    fourth = (answers - mean).pow(4).mean(0)
    assert ((found.mean - mean).abs() <= 5 * (variance / SAMPLES).sqrt()).all()
    assert ((found.variance - variance).abs() <= 5 * ((fourth - variance**2) / SAMPLES).sqrt()).all()
    assert oracle.pushed(layer, x, {}, [Drop(0.0)]) is x


def test_embedding_takes_rows_of_uncertain_weights():
    layer = nn.Embedding(5, 3)
    weight = Moments(torch.randn(5, 3), torch.rand(5, 3), torch.randn(2, 5, 3))
    index = Moments(torch.tensor([[0, 4], [2, 2]]))
    found = oracle.pushed(layer, index, {"weight": weight}, [])
    torch.testing.assert_close(found.mean, weight.mean[index.mean])
    torch.testing.assert_close(found.variance, weight.variance[index.mean])
    torch.testing.assert_close(found.factors, weight.factors[:, index.mean])


# ---------------------------------------------------------------------- shared factors


def low_rank(module, rank, generator, size=0.3):
    """Parameters with a diagonal and shared factors, as after SWAG."""
    tensors = {}
    for name, tensor in module.named_parameters():
        mean, *factors = torch.randn(1 + rank, *tensor.shape, generator=generator, dtype=torch.float64)
        spread = size**2 * torch.rand(tensor.shape, generator=generator, dtype=torch.float64)
        tensors[name] = Moments(mean, spread, size * torch.stack(factors) / math.sqrt(rank))
    return tensors


def sampled_low_rank(module, x, tensors, rank, generator, samples=40_000):
    z = torch.randn(samples, rank, generator=generator, dtype=torch.float64)

    def draw(part):
        own = torch.randn(samples, *part.mean.shape, generator=generator, dtype=torch.float64)
        return part.mean + part.variance.sqrt() * own + torch.einsum("kr,r...->k...", z, part.factors)

    drawn = {name: draw(part) for name, part in tensors.items()}
    module = module.double().eval()
    answers = vmap(lambda t: functional_call(module, t, (x,)))(drawn)
    mean, variance = answers.mean(0), answers.var(0)
    fourth = (answers - mean).pow(4).mean(0)
    return mean, variance, (variance / samples).sqrt(), ((fourth - variance**2) / samples).sqrt()


@pytest.mark.parametrize("layers", [nn.Linear(4, 3), nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2))])
def test_shared_factors_are_exact_through_linear_layers(layers):
    """Two layers whose weights move together: the mean shifts, and products of factors count."""
    generator = torch.Generator().manual_seed(4)
    tensors = low_rank(layers, 3, generator)
    x = torch.randn(ROWS, 4, generator=generator, dtype=torch.float64)
    found = oracle.pushed(layers, Moments(x), tensors, [])
    mean, variance, mean_error, variance_error = sampled_low_rank(layers, x, tensors, 3, generator)
    assert ((found.mean - mean).abs() <= 5 * mean_error).all()
    assert ((found.total_variance - variance).abs() <= 5 * variance_error).all()


@pytest.mark.parametrize("activation", [nn.ReLU(), nn.Tanh()])
def test_shared_factors_beat_the_diagonal_through_a_network(activation):
    generator = torch.Generator().manual_seed(5)
    net = nn.Sequential(nn.Linear(4, 20), activation, nn.Linear(20, 1))
    tensors = low_rank(net, 4, generator, size=0.2)
    x = torch.randn(20, 4, generator=generator, dtype=torch.float64)
    shared = oracle.pushed(net, Moments(x), tensors, [])
    alone = {name: Moments(part.mean, part.total_variance) for name, part in tensors.items()}
    diagonal = oracle.pushed(net, Moments(x), alone, [])
    _, variance, _, variance_error = sampled_low_rank(net, x, tensors, 4, generator)
    error = float((shared.total_variance.sqrt() / variance.sqrt() - 1).abs().median())
    assert error < 0.02 + float((variance_error / (2 * variance)).median())
    assert float((diagonal.total_variance.sqrt() / variance.sqrt() - 1).abs().median()) > 5 * error


def test_full_covariance_follows_units_through_layers():
    """Uncertain weights in the first of four layers: all later units share them, which the diagonal forgets."""
    generator = torch.Generator().manual_seed(6)
    widths = (3, 15, 15, 15, 1)
    torch.manual_seed(0)
    parts = [part for a, b in itertools.pairwise(widths) for part in (nn.Linear(a, b), nn.ReLU())]
    net = nn.Sequential(*parts[:-1]).double()
    tensors = {name: Moments(parameter.detach()) for name, parameter in net.named_parameters()}
    first = tensors["0.weight"].mean
    tensors["0.weight"] = Moments(first, torch.full_like(first, 0.1))
    x = torch.randn(10, 3, generator=generator, dtype=torch.float64)
    zero = torch.zeros_like(x)
    full = oracle.pushed(net, Moments(x, zero, None, torch.diag_embed(zero)), tensors, [])
    diagonal = oracle.pushed(net, Moments(x), tensors, [])
    drawn = first + math.sqrt(0.1) * torch.randn(40_000, *first.shape, generator=generator, dtype=torch.float64)
    others = {name: part.mean for name, part in tensors.items() if name != "0.weight"}
    std = vmap(lambda weight: functional_call(net, others | {"0.weight": weight}, (x,)))(drawn).std(0)
    errors = [float((found.total_variance.sqrt() / std - 1).abs().median()) for found in (full, diagonal)]
    assert errors[0] < 0.06  # sums of fifteen half-Gaussians are not quite Gaussian
    assert errors[1] > 5 * errors[0]


# ---------------------------------------------------------------------- what has no rule


class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.strange = nn.Softshrink()

    def forward(self, x):
        return self.strange(self.first(x))


def test_a_layer_without_a_rule_is_named():
    with pytest.raises(NoRuleError, match=r"the layer 'strange', Softshrink\(0.5\) \(node 2 of .*predict\(x, samples"):
        oracle.graph(Odd(), Moments(torch.ones(4, 3)), {})


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.steps = kind(3, 4, batch_first=True)

    def forward(self, x):
        return self.steps(x.unsqueeze(1))[0].squeeze(1)


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM, nn.RNN])
def test_recurrent_layers_are_refused_with_the_reason(kind):
    module = Recurrent(kind)
    tensors = {name: Moments(parameter.detach()) for name, parameter in module.named_parameters()}
    with pytest.raises(NoRuleError, match=r"the layer 'steps'.*the same weights at every step.*method=\"linearised\""):
        oracle.graph(module, Moments(torch.ones(4, 3)), tensors)


def test_a_function_without_a_rule_is_named():
    with pytest.raises(NoRuleError, match=r"the function 'cumprod' \(node 1"):
        oracle.graph(Function(lambda x: torch.cumprod(x, 1)), Moments(torch.ones(4, 3)), {})
    with pytest.raises(NoRuleError, match=r"the function 'exp' \(node 1"):
        oracle.graph(Function(lambda x: x.exp()), Moments(torch.ones(4, 3)), {})


def test_positions_of_words_are_followed_and_uncertain_numbers_refused():
    """As RoBERTa counts its words."""
    counting = Function(lambda x: torch.cumsum(x.ne(1).int(), dim=1).long())
    words = torch.tensor([[5, 7, 1], [1, 2, 2]])
    out = oracle.graph(counting, Moments(words), {}).run(Moments(words), {}, [])
    assert out.is_certain
    assert torch.equal(out.mean, counting(words))
    uncertain = Moments(torch.ones(4, 3), torch.ones(4, 3))
    graph = oracle.graph(Function(lambda x: torch.cumsum(x, dim=1)), uncertain, {})
    with pytest.raises(NoRuleError, match=r"the function 'cumsum' \(node 1.*these vary"):
        graph.run(uncertain, {}, [])


def test_a_forward_that_cannot_be_traced_is_said_to_be_one():
    with pytest.raises(ValueError, match="cannot follow the network's forward pass: it looks at its numbers"):
        oracle.graph(Function(lambda x: x if x.sum() > 0 else -x), Moments(torch.ones(4, 3)), {})


def test_a_forward_that_takes_rows_one_by_one_is_said_to_be_one():
    with pytest.raises(NoRuleError, match="does something else for other numbers of rows"):
        oracle.graph(Function(lambda x: torch.stack([2 * row for row in x])), Moments(torch.ones(4, 3)), {})


def test_writing_into_a_tensor_is_said_to_be_what_cannot_be_followed():
    def write(x):
        h = x + 1
        h[:, 0] = 0.0
        return h

    with pytest.raises(NoRuleError, match=r"writes into a tensor \(__setitem__\)"):
        oracle.graph(Function(write), Moments(torch.ones(4, 3)), {})


class Positions(nn.Module):
    """Embeds numbers that it makes itself."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(5, 2)

    def forward(self, x):
        return self.table(torch.arange(x.shape[1])).sum(1) + x


def test_what_a_network_makes_itself_is_certain():
    tensors = {"table.weight": Moments(torch.randn(5, 2), torch.rand(5, 2))}
    x = Moments(torch.randn(3, 4), torch.rand(3, 4))
    found = oracle.pushed(Positions(), x, tensors, [])
    torch.testing.assert_close(found.mean, x.mean + tensors["table.weight"].mean[:4].sum(1))
    torch.testing.assert_close(found.variance, x.variance + tensors["table.weight"].variance[:4].sum(1))


def test_a_subclass_that_overrides_forward_has_no_rule():
    class Doubled(nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    generator = torch.Generator().manual_seed(0)
    layer = Doubled(3, 2).double()
    tensors = {
        name: Moments(p.detach(), torch.rand(p.shape, generator=generator, dtype=torch.float64))
        for name, p in layer.named_parameters()
    }
    x = Moments(torch.randn(2, 3, generator=generator, dtype=torch.float64))
    found, plain = (oracle.pushed(kind, x, tensors, []) for kind in (layer, nn.Linear(3, 2).double()))
    torch.testing.assert_close(found.mean, 2 * plain.mean)
    torch.testing.assert_close(found.variance, 4 * plain.variance)
