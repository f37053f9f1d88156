"""Low-rank adapters of peft over one frozen BERT: processor time, memory and files of many against one.

    .venv-architectures/bin/python benchmarks/adapters.py [--members 1 10 50] [--page PATH]

Run it where peft and transformers are, as in the environment that benchmarks/architectures.py sets up. Each case runs
in a process of its own. The weights are random: what they cost does not depend on them.
"""

from __future__ import annotations

import argparse
import copy
import tempfile
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

import wherefrom as wf
from architectures import apart, declare_operators, peak
from setting import setting
from wherefrom.table import Table

ROWS, LENGTH, BATCH, EPOCHS, WORDS, WIDTH = 64, 16, 16, 2, 5000, 256


class Adapted(nn.Module):
    """A backbone with adapters, and a head."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        from peft import LoraConfig, get_peft_model

        sharing = copy.deepcopy(backbone, {id(p): p for p in backbone.parameters()})
        self.body, self.head = get_peft_model(sharing, LoraConfig(r=8, lora_dropout=0.1)), nn.Linear(WIDTH, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.body(x).last_hidden_state[:, 0])
        return out


class Measured(NamedTuple):
    """Time, memory and bytes on disk of some adapters."""

    frozen: int
    trained: int
    seconds: float
    memory: float
    files: float


def measured(members: int) -> Measured:
    """Train so many adapters, and write them to files."""
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    size = {"vocab_size": WORDS, "hidden_size": WIDTH, "intermediate_size": 2 * WIDTH}
    backbone = BertModel(BertConfig(num_hidden_layers=4, num_attention_heads=4, **size))
    x, y = torch.randint(1, WORDS, (ROWS, LENGTH)), torch.randint(3, (ROWS,))
    training = wf.Training(
        lambda: Adapted(backbone),
        wf.Algorithm("adamw", lr=1e-3, batch_size=BATCH),
        EPOCHS,
        wf.Classification(classes=3),
        standardise=False,
    )
    before, began = peak(), time.process_time()
    posterior = wf.marginalise(training, (x, y), [wf.InitialCondition(members)] if members > 1 else [], progress=False)
    seconds, memory = time.process_time() - began, peak() - before
    with tempfile.TemporaryDirectory() as folder:
        posterior.save(Path(folder) / "run")
        files = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
    network = posterior.networks[""]
    frozen = sum(tensor.numel() for tensor in network.shared.values())
    return Measured(frozen, network.layout.trained_size, seconds, memory, float(files))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--members", type=int, nargs="+", default=[1, 10, 50])
    parser.add_argument("--page", type=Path)
    asked = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    operators = declare_operators()  # for as long as it is kept
    import peft  # noqa: F401  before processes are made of this one

    results = {members: apart(measured, members) for members in asked.members}
    one = results[asked.members[0]]
    rows = [
        (
            members,
            round(each.seconds, 1),
            round(each.seconds / one.seconds, 2),
            round(each.memory / 1e6),
            round(each.memory / one.memory, 2),
            round(each.files / 1e6, 1),
        )
        for members, each in results.items()
    ]
    del operators
    table = Table(("adapters", "seconds", "time / first", "MB", "memory / first", "MB of files"), rows)
    print(table)
    if asked.page:
        about = setting("torch", "transformers", "peft", rounds=1).rsplit("\n", 1)[0]
        parameters = f"{one.frozen:,} frozen parameters, {one.trained:,} trained by each"
        how = f"{parameters}; {ROWS} texts of {LENGTH} words, {EPOCHS} epochs"
        said = "Written by `benchmarks/adapters.py`. MB is how far the process grew while it trained."
        asked.page.write_text(f"# Adapters over one frozen BERT\n\n{said}\n\n{about}\n- {how}\n\n{table.markdown()}\n")


if __name__ == "__main__":
    main()
