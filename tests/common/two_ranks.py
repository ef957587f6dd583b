"""One of two processes of tests/common/test_ranks.py: `python two_ranks.py WHAT FOLDER ARGUMENTS...`."""

import itertools
import json
import sys
from pathlib import Path

import numpy as np
import torch

from melforge.common.audio.contract import MelContract
from melforge.common.cli.run import run
from melforge.common.training import ranks
from melforge.common.training.loop import GraphedSteps, Recipe, Trainer, adamw

STEPS, BATCH = 12, 8


class Toy(Trainer):
    """Two layers and a bias that only batches of rank 0 have; the loss is a batch's mean."""

    def __init__(self, seed: int, device: torch.device):
        torch.manual_seed(seed)
        model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1)).to(device)
        super().__init__(model, MelContract(), Recipe(0.01, 0.001, 1, 0.9), clip_norm=0.5)
        self.seldom = torch.nn.Linear(1, 1).to(device)
        self.networks = {"model": model, "seldom": self.seldom}
        self.optimisers = {name: adamw(net, 0.01, (0.9, 0.99), 0.01) for name, net in self.networks.items()}

    def batches(self, seed):
        random = np.random.default_rng(seed)
        while True:
            rows = torch.from_numpy(random.standard_normal((BATCH, 7))).float()
            yield ("short", "long")[random.integers(2)], {"rows": rows.to(self.device)}

    def loss(self, rows: torch.Tensor, seldom: bool) -> torch.Tensor:
        made = self.model(rows[:, :6])
        return ((self.seldom(made) if seldom else made) - rows[:, 6:]).square().mean()

    def step(self, key, rows):
        for optimiser in self.optimisers.values():
            optimiser.zero_grad()
        loss = self.loss(rows, ranks.is_first())
        loss.backward()
        self.update()
        return {"loss": loss.detach()}

    def validate(self):
        return {}

    def everything(self) -> torch.Tensor:
        return torch.cat([p.detach().flatten() for net in self.networks.values() for p in net.parameters()])


def toy(folder: Path, device: torch.device) -> None:
    """What each rank found, as JSON in the folder."""
    device = ranks.join(device)
    trainer = Toy(ranks.rank(), device)  # as if ranks began apart
    ranks.take_from_first(trainer.networks.values())
    begun = trainer.everything().tolist()
    whole = torch.randn(2 * BATCH, 7, generator=torch.Generator().manual_seed(5)).to(device)
    halves = whole.chunk(2)
    trainer.loss(halves[ranks.rank()], seldom=False).backward()
    ranks.average_gradients(trainer.optimisers.values())
    averaged = [p.grad.clone() for p in trainer.parameters]
    trainer.optimisers["model"].zero_grad()
    trainer.loss(whole, seldom=False).backward()
    off = max(
        float((p.grad - mean).abs().max()) for p, mean in zip(trainer.parameters, averaged, strict=True)
    )
    ranks.draw_apart(seed=0, step=0)
    drawn = torch.rand(3).tolist()
    keys, firsts, learn = [], [], GraphedSteps(trainer.step)
    for key, inputs in itertools.islice(ranks.own_batches(trainer.batches(0)), STEPS):
        keys.append(key)
        firsts.append(inputs["rows"][0, 0].item())
        learn(key, **inputs)
    told = ranks.of_first(float(ranks.rank() + 3))
    found = {"begun": begun, "off": off, "drawn": drawn, "keys": keys, "firsts": firsts, "told": told}
    found |= {"ended": trainer.everything().tolist(), "graphs": len(learn.graphs)}
    learn.graphs.clear()
    file = folder / f"{ranks.rank()}.json"
    ranks.leave()
    found["threads"] = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    file.write_text(json.dumps(found))


def jasper(folder: Path, words: list[str]) -> None:
    """A run of `melforge.jasper.train`: what each rank has before it leaves goes to the folder too.

    With `--fail` rank 1 fails in its second step.
    """
    from melforge.jasper import train as recipe

    seen: list[list[int]] = []

    class Watched(recipe.JasperTrainer):
        def step(self, key, members, speeds):
            seen.append(members.tolist())
            if fails and len(seen) == 2 and not ranks.is_first():
                raise FileNotFoundError(2, "gone", "recording.wav")
            return super().step(key, members, speeds)

        def forget_graphs(self):
            super().forget_graphs()
            weights = {name: value.tolist() for name, value in self.model.named_parameters()}
            found = {"weights": weights, "seen": seen, "drawn": torch.rand(1).item()}
            (folder / f"{ranks.rank()}.json").write_text(json.dumps(found))

    fails = "--fail" in words
    sys.argv = ["train", *(word for word in words if word != "--fail")]
    recipe.JasperTrainer = Watched
    run(recipe.main)


if __name__ == "__main__":
    what, folder, *words = sys.argv[1:]
    if what == "toy":
        run(lambda: toy(Path(folder), torch.device(words[0])))
    else:
        jasper(Path(folder), words)
