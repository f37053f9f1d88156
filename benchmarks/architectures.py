"""Real architectures: three members trained here, and one of them in a plain loop with the same numbers.

    python benchmarks/architectures.py --set-up                         once: the packages, in a venv of their own
    .venv-architectures/bin/python benchmarks/architectures.py --page benchmarks/results/architectures.md
    .venv-architectures/bin/python benchmarks/architectures.py --only BERT timm       whose names contain these

Models come from their own packages, with default settings wherever the table does not say otherwise, in sizes that a
CPU trains in seconds. The loop is torch's own: the module, torch.optim.SGD, the same initial weights, batches and
masks. Its difference is the largest one of all weights and statistics after the last step, relative to how far
training has moved any of them. Time is that of a member's training relative to the loop's, both in processor seconds.
Memory is how far the process grew, with three members here and with one network there. Each case runs in a process of
its own. A package that is not installed is left out, with a word.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import re
import resource
import subprocess
import sys
import sysconfig
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import wherefrom as wf
from setting import setting
from wherefrom.table import Table
from wherefrom.training import streams
from wherefrom.training.cohort import orders
from wherefrom.training.dropout import TrainingMasks
from wherefrom.training.probing import Site
from wherefrom.training.stochastic_depth import stand_ins
from wherefrom.training.torch_engine import TorchEngine

ROOT = Path(__file__).resolve().parents[1]
ROWS, BATCH, EPOCHS, MEMBERS, CLASSES, LR = 48, 16, 2, 3, 3, 0.001
SIDE, WORDS, LENGTH = 32, 50, 12
AMPLIFIED = 1e-3  # from which on it is asked whether training amplifies rounding, or something differs

PACKAGES = ("numpy", "pandas", "safetensors", "transformers", "peft", "einops", "pillow", "beartype", "loguru")
WITHOUT_DEPENDENCIES = (  # of which some would bring another build of torch
    *("torchvision", "timm", "monai", "efficientnet_pytorch", "pytorch-tabnet", "vit-pytorch"),
    *("rtdl_revisiting_models", "tab-transformer-pytorch", "hyper-connections", "torch_einops_utils", "x-mlps-pytorch"),
    *("einx", "frozendict", "discrete-continuous-embed-readout"),
)


def set_up(folder: Path) -> None:
    """Make a virtual environment with the packages, and the torch that runs here."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, f"torch=={torch.__version__.split('+')[0]}", *PACKAGES], check=True)
    for package in WITHOUT_DEPENDENCIES:
        if subprocess.run([*pip, "--no-deps", package], check=False).returncode:
            print(f"{package} could not be installed: its models are left out")
    (path,) = (folder / "lib").glob("python*/site-packages")
    (path / "wherefrom.pth").write_text(f"{ROOT / 'src'}\n")


def declare_operators() -> Any:
    """Declare torchvision's compiled operators where they cannot be loaded, so that its Python code can be imported.

    A build of torchvision for another build of torch (CUDA's, beside a torch for CPUs) does not load its library. Only
    detection needs what is in it, but the import registers shapes for each operator, and fails.
    """
    source = Path(sysconfig.get_paths()["purelib"], "torchvision", "_meta_registrations.py")
    if not source.exists() or hasattr(torch.ops.torchvision, "nms"):
        return None
    library = torch.library.Library("torchvision", "FRAGMENT")
    names = re.findall(r'register_(?:meta|fake)\("(?:torchvision::)?(\w+)"', source.read_text(encoding="utf-8"))
    for name in sorted(set(names)):
        library.define(f"{name}(Tensor x) -> Tensor")
    return library


# ---------------------------------------------------------------------- inputs


def images(side: int = SIDE) -> Tensor:
    return torch.rand(ROWS, 3, side, side, generator=torch.Generator().manual_seed(1))


def words() -> Tensor:
    return torch.randint(3, WORDS, (ROWS, LENGTH), generator=torch.Generator().manual_seed(1))


def series() -> Tensor:
    return torch.randn(ROWS, LENGTH, 4, generator=torch.Generator().manual_seed(1))


def numbers() -> Tensor:
    return torch.randn(ROWS, 6, generator=torch.Generator().manual_seed(1))


def mixed() -> dict[str, Tensor]:
    """Numbers and categories of one table."""
    categories = torch.randint(0, 4, (ROWS, 3), generator=torch.Generator().manual_seed(2))
    return {"numbers": numbers(), "categories": categories}


# ---------------------------------------------------------------------- models


class Case(NamedTuple):
    """An architecture: the package that it comes from, its inputs, and how it is made."""

    package: str
    x: Callable[[], Any]
    make: Callable[[], nn.Module]


class Called(nn.Module):
    """A model whose inputs or outputs have other names, as one adapts it in a line or two."""

    def __init__(self, inner: nn.Module, call: Callable[..., Tensor]) -> None:
        super().__init__()
        self.inner, self.call = inner, call

    def forward(self, x: Any) -> Tensor:
        return self.call(self.inner, x)


def torchvision(name: str, **settings: Any) -> Case:
    def make() -> nn.Module:
        import torchvision.models

        return torchvision.models.get_model(name, num_classes=CLASSES, **settings)

    return Case("torchvision", images, make)


def timm(name: str, **settings: Any) -> Case:
    def make() -> nn.Module:
        from timm import create_model

        return create_model(name, num_classes=CLASSES, **settings)

    return Case("timm", images, make)


def of_class(package: str, name: str, x: Callable[[], Any], *arguments: Any, **settings: Any) -> Case:
    """A class of a package, which takes x and returns the outputs."""

    def make() -> nn.Module:
        module, _, kind = name.rpartition(".")
        made: nn.Module = getattr(__import__(module, fromlist=[kind]), kind)(*arguments, **settings)
        return made

    return Case(package, x, make)


def transformers(kind: str, x: Callable[[], Any], takes: str = "input_ids", **settings: Any) -> Case:
    """A model of transformers that classifies, by the name of its configuration's class."""

    def make() -> nn.Module:
        import transformers

        config = getattr(transformers, f"{kind}Config")(num_labels=CLASSES, pad_token_id=0, **settings)
        task = "Image" if takes == "pixel_values" else "Sequence"
        model = getattr(transformers, f"{kind}For{task}Classification")(config)
        return Called(model, lambda inner, x: inner(**{takes: x}).logits)

    return Case("transformers", x, make)


def lora() -> Case:
    """Adapters and a head over a frozen BERT."""
    backbones: list[nn.Module] = []

    def make() -> nn.Module:
        from peft import LoraConfig, get_peft_model
        from transformers import BertConfig, BertModel

        if not backbones:
            with torch.random.fork_rng():
                backbones.append(BertModel(BertConfig(**SMALL)))
        adapted = get_peft_model(backbones[0], LoraConfig(r=4, lora_dropout=0.1))
        head = nn.Linear(SMALL["hidden_size"], CLASSES)
        return Called(
            nn.ModuleDict({"adapted": adapted, "head": head}),
            lambda parts, x: parts["head"](parts["adapted"](x).last_hidden_state[:, 0]),
        )

    return Case("peft", words, make)


def tab_transformer(name: str, **settings: Any) -> Case:
    def make() -> nn.Module:
        import tab_transformer_pytorch as package

        model = getattr(package, name)(
            categories=(4, 4, 4), num_continuous=6, dim=16, depth=2, heads=2, dim_out=CLASSES, **settings
        )
        return Called(model, lambda inner, x: inner(x["categories"], x["numbers"]))

    return Case("tab_transformer_pytorch", mixed, make)


def ft_transformer() -> Case:
    def make() -> nn.Module:
        from rtdl_revisiting_models import FTTransformer

        settings = FTTransformer.get_default_kwargs(n_blocks=1)
        model = FTTransformer(n_cont_features=6, cat_cardinalities=[4, 4, 4], d_out=CLASSES, **settings)
        return Called(model, lambda inner, x: inner(x["numbers"], x["categories"]))

    return Case("rtdl_revisiting_models", mixed, make)


def encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    return nn.Sequential(
        nn.Linear(4, 16), nn.TransformerEncoder(layer, 2), nn.Flatten(), nn.Linear(16 * LENGTH, CLASSES)
    )


def recurrent(kind: str, **settings: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        parts = nn.ModuleDict(
            {"cell": getattr(nn, kind)(4, 12, batch_first=True, **settings), "head": nn.Linear(12, 3)}
        )
        return Called(parts, lambda parts, x: parts["head"](parts["cell"](x)[0][:, -1]))

    return make


def convnext() -> Case:
    def make() -> nn.Module:
        from torchvision.models.convnext import CNBlockConfig, ConvNeXt

        blocks = [CNBlockConfig(16, 32, 2), CNBlockConfig(32, None, 2)]
        network: nn.Module = ConvNeXt(blocks, stochastic_depth_prob=0.1, num_classes=CLASSES)
        return network

    return Case("torchvision", images, make)


SMALL: dict[str, Any] = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 40,
}
VISION = {"image_size": SIDE, "patch_size": 8} | {
    name: SMALL[name] for name in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
}

CASES: dict[str, Case] = {
    "nn.TransformerEncoder, dropout 0.1": Case("torch", series, encoder),
    "nn.GRU": Case("torch", series, recurrent("GRU")),
    "nn.LSTM": Case("torch", series, recurrent("LSTM")),
    "nn.LSTM, two layers, dropout 0.2": Case("torch", series, recurrent("LSTM", num_layers=2, dropout=0.2)),
    **{
        f"torchvision {name}": torchvision(name)
        for name in (
            "resnet18",
            "mobilenet_v2",
            "mobilenet_v3_small",
            "shufflenet_v2_x0_5",
            "squeezenet1_1",
            "mnasnet0_5",
        )
    },
    "torchvision regnet_y_400mf": torchvision("regnet_y_400mf"),
    "torchvision densenet121": torchvision("densenet121"),
    "torchvision googlenet": torchvision("googlenet"),
    "torchvision googlenet, aux_logits=False": torchvision("googlenet", aux_logits=False, init_weights=False),
    "torchvision efficientnet_b0": torchvision("efficientnet_b0"),
    "torchvision efficientnet_b0, stochastic_depth_prob=0": torchvision("efficientnet_b0", stochastic_depth_prob=0.0),
    "torchvision VisionTransformer, dropout 0.1": of_class(
        *("torchvision", "torchvision.models.VisionTransformer", images, SIDE, 8, 2, 2, 32, 64),
        dropout=0.1,
        attention_dropout=0.1,
        num_classes=CLASSES,
    ),
    "torchvision SwinTransformer": of_class(
        *("torchvision", "torchvision.models.SwinTransformer", images, [4, 4], 16, [1, 1], [2, 2], [4, 4]),
        num_classes=CLASSES,
    ),
    "torchvision ConvNeXt, stochastic_depth_prob=0.1": convnext(),
    **{
        f"timm {name}": timm(name)
        for name in ("mobilenetv3_small_050", "lcnet_035", "resnet10t", "ghostnet_050", "regnetx_002", "convnext_atto")
    },
    "timm efficientnet_lite0": timm("efficientnet_lite0"),
    "timm edgenext_xx_small": timm("edgenext_xx_small"),
    "timm vit_tiny_patch16_224": timm("vit_tiny_patch16_224", img_size=SIDE, depth=2),
    "timm vit_tiny_patch16_224, drop_path_rate=0.1": timm(
        "vit_tiny_patch16_224", img_size=SIDE, depth=2, drop_path_rate=0.1
    ),
    "timm deit_tiny_patch16_224": timm("deit_tiny_patch16_224", img_size=SIDE, depth=2),
    "timm MlpMixer": of_class(
        *("timm", "timm.models.MlpMixer", images),
        num_classes=CLASSES,
        img_size=SIDE,
        patch_size=8,
        num_blocks=2,
        embed_dim=32,
    ),
    "transformers BERT": transformers("Bert", words, **SMALL),
    "transformers RoBERTa": transformers("Roberta", words, **SMALL),
    "transformers ELECTRA": transformers("Electra", words, embedding_size=32, **SMALL),
    "transformers ALBERT": transformers("Albert", words, embedding_size=16, **SMALL),
    "transformers DistilBERT": transformers(
        "DistilBert", words, vocab_size=WORDS, dim=32, n_layers=2, n_heads=2, hidden_dim=64
    ),
    "transformers GPT-2": transformers("GPT2", words, vocab_size=WORDS, n_embd=32, n_layer=2, n_head=2, n_positions=40),
    "transformers Llama": transformers("Llama", words, **SMALL),
    "transformers ViT": transformers("ViT", images, "pixel_values", **VISION),
    "transformers Swin": transformers(
        *("Swin", images, "pixel_values"),
        image_size=SIDE,
        patch_size=4,
        embed_dim=16,
        depths=[1, 1],
        num_heads=[2, 2],
        window_size=4,
    ),
    "transformers ConvNeXt V2": transformers(
        *("ConvNextV2", images, "pixel_values"), hidden_sizes=[16, 32], depths=[1, 1], num_stages=2
    ),
    "transformers ResNet": transformers(
        *("ResNet", images, "pixel_values"), embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1]
    ),
    "peft LoRA over BERT": lora(),
    "tab_transformer_pytorch TabTransformer, mlp_act=nn.ReLU()": tab_transformer("TabTransformer", mlp_act=nn.ReLU()),
    "tab_transformer_pytorch TabTransformer, its defaults": tab_transformer("TabTransformer"),
    "tab_transformer_pytorch FTTransformer": tab_transformer("FTTransformer"),
    "rtdl FTTransformer": ft_transformer(),
    "rtdl ResNet": of_class(
        *("rtdl_revisiting_models", "rtdl_revisiting_models.ResNet", numbers),
        d_in=6,
        d_out=CLASSES,
        n_blocks=2,
        d_block=32,
        d_hidden=None,
        d_hidden_multiplier=2.0,
        dropout1=0.15,
        dropout2=0.0,
    ),
    "rtdl MLP": of_class(
        *("rtdl_revisiting_models", "rtdl_revisiting_models.MLP", numbers),
        d_in=6,
        d_out=CLASSES,
        n_blocks=2,
        d_block=32,
        dropout=0.1,
    ),
    "vit_pytorch SimpleViT": of_class(
        *("vit_pytorch", "vit_pytorch.SimpleViT", images),
        image_size=SIDE,
        patch_size=8,
        num_classes=CLASSES,
        dim=32,
        depth=2,
        heads=2,
        mlp_dim=64,
    ),
    "efficientnet_pytorch b0": Case(
        "efficientnet_pytorch",
        images,
        lambda: __import__("efficientnet_pytorch").EfficientNet.from_name("efficientnet-b0", num_classes=CLASSES),
    ),
    "monai DenseNet": of_class(
        *("monai", "monai.networks.nets.DenseNet", images, 2, 3, CLASSES),
        init_features=16,
        growth_rate=8,
        block_config=(2, 2),
    ),
}


# ---------------------------------------------------------------------- trained here


class Member(NamedTuple):
    """The choices of one training, and where it ended."""

    theta0: Tensor
    theta: Tensor
    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]
    order: int
    masks: int
    sites: tuple[Site, ...]


class Here(NamedTuple):
    """Result of three members: differences, time and memory."""

    first: Member
    seconds: float  # of one of them
    memory: float  # by which the process grew
    parameters: int
    together: bool  # whether several can train as one program
    one_shot: str


def as_precise(x: Any, dtype: torch.dtype) -> Any:
    """Return inputs with real numbers in some precision."""
    if isinstance(x, dict):
        return {name: as_precise(part, dtype) for name, part in x.items()}
    return x.to(dtype) if x.is_floating_point() else x


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


def targets() -> Tensor:
    return torch.randint(CLASSES, (ROWS,), generator=torch.Generator().manual_seed(3))


def here(name: str, dtype: torch.dtype) -> Here | str:
    """Train three members; return them, or the words of a refusal."""
    case, seen = CASES[name], []
    x, y = as_precise(case.x(), dtype), targets()
    network = case.make()
    parameters = sum(parameter.numel() for parameter in network.parameters())
    train = TorchEngine.train

    def watched(engine: TorchEngine, members: Any, *rest: Any) -> Any:
        seen.append((engine.cohort, list(members)))
        return train(engine, members, *rest)

    TorchEngine.train = watched  # type: ignore[method-assign]
    training = wf.Training(
        case.make,
        wf.Algorithm("sgd", lr=LR, momentum=0.9, batch_size=BATCH),
        EPOCHS,
        wf.Classification(classes=CLASSES),
        standardise=False,
    )
    compute, before = wf.Compute(engine="torch", workers=1, progress=False, dtype=dtype), peak()
    try:
        posterior = wf.marginalise(training, (x, y), [wf.InitialCondition(MEMBERS)], compute=compute)
    except ValueError as refusal:
        return str(refusal)
    memory, (cohort, members) = peak() - before, seen[0]
    layout, member, last = cohort.network.layout, members[0], posterior.mixture[0].trained
    return Here(
        Member(
            *(member.theta0, last.last.cpu(), layout.names, layout.shapes),
            *(member.order, member.masks, cohort.network.sites),
        ),
        float(np.mean([each.trained.seconds for each in posterior.mixture])),
        memory,
        parameters,
        cohort.network.stackable,
        one_shot(training, (x, y), compute) if dtype == torch.float32 else "",
    )


def one_shot(training: wf.Training, data: Any, compute: wf.Compute) -> str:
    """Return "yes", or why moments cannot be pushed through the network."""
    x = {name: part[:2] for name, part in data[0].items()} if isinstance(data[0], dict) else data[0][:2]
    try:
        posterior = wf.marginalise(training, data, [wf.Iterations(wf.SWAG(2), start=0)], compute=compute)
        posterior.one_shot(x)
    except Exception as error:  # whatever it is, the table says it
        return f"{type(error).__name__}: {error}" if not isinstance(error, ValueError | TypeError) else str(error)
    return "yes"


# ---------------------------------------------------------------------- a plain loop


class There(NamedTuple):
    """Result of a plain loop: its last weights, time and memory."""

    tensors: dict[str, Tensor]
    seconds: float
    memory: float


@contextmanager
def given_masks(masks: Iterator[Tensor], network: nn.Module) -> Iterator[None]:
    """Dropout takes these masks, one after another; so do dropout inside of attention and stochastic depth."""
    names = ("dropout", "dropout1d", "dropout2d", "dropout3d")
    before = {name: getattr(F, name) for name in (*names, "scaled_dot_product_attention")}

    def dropped(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if not training:
            return x
        mask = next(masks)
        return x * (mask.flatten(0, 1) if mask.ndim > x.ndim else mask)  # of heads that are folded into the rows

    def attention(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        if not dropout_p:
            result: Tensor = before["scaled_dot_product_attention"](
                query, key, value, attn_mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa
            )
            return result
        scores = query @ key.transpose(-2, -1) * (scale or query.shape[-1] ** -0.5)
        if is_causal:
            attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        if attn_mask is not None:
            bias = (
                torch.zeros(attn_mask.shape).masked_fill(~attn_mask, -torch.inf)
                if attn_mask.dtype == torch.bool
                else attn_mask
            )
            scores = scores + bias
        return (scores.softmax(-1) * next(masks)) @ value

    row_dropouts = stand_ins(network.modules())
    paths = [part for part in network.modules() if id(part) in row_dropouts]
    for part in paths:
        part.forward = lambda x: x * next(masks).reshape(-1, *(1 for _ in x.shape[1:]))
    for name in names:
        setattr(F, name, dropped)
    F.scaled_dot_product_attention = attention  # type: ignore[assignment]
    try:
        yield
    finally:
        for part in paths:
            del part.forward
        for name, function in before.items():
            setattr(F, name, function)


def there(name: str, member: Member, dtype: torch.dtype) -> There:
    """Train one network as anybody would, from a member's weights, with its batches and masks."""
    case = CASES[name]
    x, y = as_precise(case.x(), dtype), targets()
    network = case.make().to(dtype).train()
    prefix = "inner." if isinstance(x, dict) else ""  # where several inputs were taken apart
    tensors = dict(network.named_parameters()) | dict(network.named_buffers())
    sizes = [shape.numel() for shape in member.shapes]
    with torch.no_grad():
        for called, shape, part in zip(member.names, member.shapes, member.theta0.split(sizes), strict=True):
            tensors[called.removeprefix(prefix)].copy_(part.view(shape))
    optimiser = torch.optim.SGD([p for p in network.parameters() if p.requires_grad], lr=LR, momentum=0.9)
    keys = [np.array([streams.key(member.masks, "site", i)], dtype=np.uint64) for i in range(len(member.sites))]
    drawn = [
        TrainingMasks(site, [site.rate], key, BATCH, torch.device("cpu"), dtype)
        for site, key in zip(member.sites, keys, strict=True)
    ]
    began, before, step = time.process_time(), peak(), 0
    for epoch in range(EPOCHS):
        order = orders(np.array([member.order], dtype=np.uint64), np.array([False]), epoch, ROWS)[0]
        for rows in torch.from_numpy(order).split(BATCH):
            batch = {part: each[rows] for part, each in x.items()} if isinstance(x, dict) else x[rows]
            masks = iter([mask.drop(step)[0, : len(rows)].clone() for mask in drawn])
            optimiser.zero_grad()
            with given_masks(masks, network):
                F.cross_entropy(network(batch), y[rows]).backward()
            optimiser.step()
            for mask in drawn:
                mask.restore()
            step += 1
    return There(
        {called: tensors[called.removeprefix(prefix)].detach() for called in member.names},
        time.process_time() - began,
        peak() - before,
    )


def apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a process of its own, which begins as this one is."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as process:
        return process.submit(function, *arguments).result()


# ---------------------------------------------------------------------- the table


HEADER = (
    "architecture",
    "parameters",
    "difference",
    "time",
    "MB",
    "MB of the loop",
    "as one program",
    "one-shot, or why not",
)


def row(name: str) -> tuple[Any, ...]:
    """Return a row of the table."""
    try:
        ours = apart(here, name, torch.float32)
        if isinstance(ours, str):
            return (name, "", "refused", "", "", "", "", short(ours, 400))
        theirs = apart(there, name, ours.first, torch.float32)
        difference = f"{apart_by(ours, theirs):.0e}"
        if apart_by(ours, theirs) > AMPLIFIED:
            precise = apart(here, name, torch.float64)
            precisely = apart_by(precise, apart(there, name, precise.first, torch.float64))
            difference += f", in double precision {precisely:.0e}"
    except Exception as error:  # of the package, or a defect here: it stands in the table
        return (name, "", "failed", "", "", "", "", short(f"{type(error).__name__}: {error}", 400))
    return (
        name,
        f"{ours.parameters:,}",
        difference,
        f"{ours.seconds / theirs.seconds:.2f}",
        f"{ours.memory / 1e6:.0f}",
        f"{theirs.memory / 1e6:.0f}",
        "yes" if ours.together else "no",
        short(ours.one_shot, 200),
    )


def apart_by(ours: Here, theirs: There) -> float:
    """Return the largest difference, relative to the largest change by training."""
    ended = torch.cat([theirs.tensors[called].reshape(-1) for called in ours.first.names])
    moved = (ended - ours.first.theta0).abs().max()
    return float((ended - ours.first.theta).abs().max() / moved)


def short(words: str, most: int) -> str:
    """Return words in one line, and no more than so many letters of them."""
    line = " ".join(words.split()).replace("|", "/")
    return line if len(line) <= most else f"{line[:most]}..."


def page(rows: Sequence[tuple[Any, ...]], skipped: Sequence[str]) -> str:
    about = setting("torch", "torchvision", "timm", "transformers", "peft", rounds=1).rsplit("\n", 1)[0]
    how = (
        f"{ROWS} rows, {EPOCHS} epochs of batches of {BATCH}, {MEMBERS} members, SGD with momentum; images of {SIDE} x "
        f"{SIDE}, {LENGTH} words or times. Of so few steps, a good part is the recording of the step\n"
        "- rows may be of several runs (`--kept`), beside other work: times are rough"
    )
    without = (
        f"\nLeft out, since the package is not installed, or cannot be imported: {', '.join(skipped)}.\n"
        if skipped
        else ""
    )
    not_run = [name for name in CASES if name not in {*skipped, *(row[0] for row in rows)}]
    without += f"\nNot run this time: {', '.join(not_run)}.\n" if not_run else ""
    table = Table(HEADER, list(rows)).markdown()
    said = " ".join((__doc__ or "").split("\n\n")[2].split())
    return (
        f"# Architectures\n\nWritten by `benchmarks/architectures.py`. {said}\n\n{about}\n- {how}\n{without}\n{table}\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--set-up", action="store_true", help="make the packages' virtual environment, and end")
    parser.add_argument("--packages", type=Path, default=ROOT / ".venv-architectures", help="that virtual environment")
    parser.add_argument("--only", nargs="+", default=[""], help="parts of the names of architectures")
    parser.add_argument("--page", type=Path)
    parser.add_argument("--kept", type=Path, help="a file of rows as JSON lines, by which an interrupted run goes on")
    asked = parser.parse_args()
    if asked.set_up:
        set_up(asked.packages)
        return
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    operators = declare_operators()  # for as long as it is kept
    lines = asked.kept.read_text(encoding="utf-8").splitlines() if asked.kept and asked.kept.exists() else []
    kept = {line[0]: tuple(line) for line in map(json.loads, lines)}
    rows, skipped = [], []
    for name, case in CASES.items():
        if name in kept:
            rows.append(kept[name])
            continue
        if not any(part in name for part in asked.only):
            continue
        if find_spec(case.package) is None:
            skipped.append(name)
            continue
        try:
            __import__(case.package)  # before processes are made of this one
        except ImportError as error:
            print(f"{name}: {error}", file=sys.stderr)
            skipped.append(name)
            continue
        rows.append(row(name))
        print(" | ".join(map(str, rows[-1])), flush=True)
        if asked.kept:
            with asked.kept.open("a", encoding="utf-8") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    del operators
    print("left out, since the package is not installed, or cannot be imported:", ", ".join(skipped) or "none")
    if asked.page:
        asked.page.write_text(page(rows, skipped), encoding="utf-8")


if __name__ == "__main__":
    main()
