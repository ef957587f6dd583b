"""What the training recipes share: their loop, CUDA-graph steps, EMA, checkpoints."""

import contextlib
import itertools
import json
import math
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar, cast

import torch

from melforge.common.audio.contract import MelContract
from melforge.common.config.typed import require_shares
from melforge.common.engines.cuda_graphs import capture
from melforge.common.errors import InputError, counted
from melforge.common.files import written_whole
from melforge.common.training import ranks
from melforge.common.training.corpus.batches import Drawn
from melforge.common.training.log import Log
from melforge.common.training.run_folder import LAST, require_checkpoint, require_free
from melforge.common.weights.voices import WEIGHTS, save_weights

Config = TypeVar("Config")
Network = TypeVar("Network", bound=torch.nn.Module)
RecipeType = TypeVar("RecipeType", bound="Recipe")
AHEAD = 4  # batches that are read while one is learnt from
WARM_UP_STEPS = 3  # eager steps of a shape before its capture: cuDNN and lazy optimiser state settle in them


class GraphedSteps:
    """Runs a training step as one CUDA graph per input shape; on a CPU it simply calls the step.

    A compact network's step is hundreds of small kernels: launching them costs more than running them.
    The step must have static shapes, no host synchronisation and capturable optimisers. It takes the key
    of its graph (a bucket, say) and named tensors, and returns a dict of scalar tensors.
    """

    def __init__(self, step: Callable[..., dict[str, torch.Tensor]]):
        self.step = step
        self.calls: dict[object, int] = {}
        self.graphs: dict[object, tuple[torch.cuda.CUDAGraph, dict, dict]] = {}

    def __call__(self, key: object, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        if next(iter(inputs.values())).device.type != "cuda":
            return self.step(key, **inputs)
        if key in self.graphs:
            graph, static, outputs = self.graphs[key]
            for name, value in inputs.items():
                static[name].copy_(value, non_blocking=True)
            graph.replay()
            return outputs
        self.calls[key] = self.calls.get(key, 0) + 1
        if self.calls[key] <= WARM_UP_STEPS:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                outputs = self.step(key, **inputs)
            torch.cuda.current_stream().wait_stream(side)
            return outputs
        static = {name: value.clone() for name, value in inputs.items()}
        first = next((graph for graph, *_ in self.graphs.values()), None)
        # Threads that read batches, and NCCL's watchdog, do not end a capture.
        graph, outputs = capture(lambda: self.step(key, **static), pool=first and first.pool())
        self.graphs[key] = (graph, static, outputs)
        graph.replay()
        return outputs


class Ema:
    """Exponential moving average of a module's parameters; `update` may run inside a CUDA graph."""

    def __init__(self, module: torch.nn.Module, decay: float):
        self.decay = decay
        self.parameters = {name: p.detach() for name, p in module.named_parameters()}
        self.averages = {name: p.clone() for name, p in self.parameters.items()}

    def update(self) -> None:
        averages, parameters = [*self.averages.values()], [*self.parameters.values()]
        cast(Any, torch)._foreach_lerp_(averages, parameters, 1.0 - self.decay)

    def state_dict(self) -> dict[str, torch.Tensor]:
        return dict(self.averages)

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        for name, average in self.averages.items():
            average.copy_(state[name])


class Schedule:
    """Learning rate over a run limited by wall time or steps: linear warm-up, then cosine decay to `floor`.

    `progress()` is the larger of the two shares done, so that a run with a time limit ends at its lowest
    rate on any machine. The state (steps and seconds done) is saved with checkpoints.
    """

    def __init__(
        self, peak: float, floor: float, warm_up_steps: int, max_steps: int | None, max_minutes: float | None
    ):
        if not max_steps and not max_minutes:
            raise InputError("training needs an end: give --steps or --minutes")
        if max_minutes is not None and not 0 < max_minutes < math.inf:
            raise InputError(f"--minutes {max_minutes:g}: give a number above 0")
        self.peak, self.floor, self.warm_up_steps = peak, floor, warm_up_steps
        self.max_steps, self.max_seconds = max_steps or math.inf, (max_minutes or math.inf) * 60
        self.step, self.seconds_before, self.started = 0, 0.0, time.monotonic()

    @property
    def seconds(self) -> float:
        return self.seconds_before + time.monotonic() - self.started

    def progress(self) -> float:
        return max(self.step / self.max_steps, self.seconds / self.max_seconds)

    def rate(self, progress: float) -> float:
        warm = min(1.0, (self.step + 1) / max(1, self.warm_up_steps))
        cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
        return warm * (self.floor + (self.peak - self.floor) * cosine)

    def state_dict(self) -> dict:
        return {"step": self.step, "seconds": self.seconds}

    def load_state_dict(self, state: dict) -> None:
        self.step, self.seconds_before, self.started = state["step"], state["seconds"], time.monotonic()


def adamw(
    module: torch.nn.Module,
    rate: float,
    betas: tuple[float, float],
    weight_decay: float,
    factors: Mapping[str, float] | None = None,
):
    """AdamW whose learning rate is a tensor on the GPU, so that captured steps follow the schedule.

    Parameters by these names have the rate times a factor.
    """
    factors = factors or {}
    named = {name: p for name, p in module.named_parameters() if p.requires_grad}
    device = next(iter(named.values())).device
    cuda = device.type == "cuda"
    parts = [([p for name, p in named.items() if name not in factors], 1.0)]
    parts += [([named[name]], factor) for name, factor in factors.items()]
    groups = [
        {"params": part, "factor": factor, "lr": torch.tensor(rate, device=device) if cuda else rate}
        for part, factor in parts
    ]
    return torch.optim.AdamW(groups, betas=betas, weight_decay=weight_decay, capturable=cuda, fused=cuda)


def autocast(device: torch.device):
    """bfloat16 mixed precision on a GPU, plain float32 on a CPU."""
    if device.type == "cuda":
        # The cache of cast weights must be off: it would outlive a captured graph's memory.
        return torch.autocast("cuda", torch.bfloat16, cache_enabled=False)
    return contextlib.nullcontext()


def save_checkpoint(path: Path, **state) -> None:
    """Everything that a resumed run needs; written whole or not at all."""
    with written_whole(path) as file:
        torch.save(state, file)


def load_checkpoint(path: Path, device: torch.device) -> dict:
    """What `save_checkpoint` wrote; an InputError where it is no checkpoint of a run."""
    require_checkpoint(path)
    try:
        state = torch.load(path, map_location=device, weights_only=True)
    except Exception:  # a damaged file can fail anywhere inside the unpickler
        state = None
    if not isinstance(state, dict) or "trainer" not in state:
        raise InputError(f"{path} is no checkpoint of a run, or damaged: give the {LAST} in a run's folder")
    return state


@contextlib.contextmanager
def fitting(path: Path) -> Iterator[None]:
    """What is loaded of a checkpoint's networks must be there and have their sizes."""
    try:
        yield
    except KeyError as error:
        raise InputError(f"{path} is of another model or recipe: it holds no {error}") from None
    except (RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[:2][-1].strip()  # PyTorch's first line names the class
        raise InputError(f"{path} is of another model, or of one of other sizes: {reason}") from None


@dataclass(frozen=True)
class Recipe:
    """The settings of every recipe; hparams/<model>/train.yaml has their values."""

    learning_rate: float
    final_learning_rate: float
    warm_up_steps: int
    ema_decay: float

    def __post_init__(self) -> None:
        require_shares(self)


class TrainingPlan(NamedTuple, Generic[Config, RecipeType]):
    """What is trained, and how: what a recipe's YAML file says."""

    config: Config  # of the network
    contract: MelContract
    recipe: RecipeType


@dataclass(frozen=True)
class RunSettings:
    """Where a run is written, what it begins with, and when it ends: by `steps`, `minutes` or both."""

    out: Path
    steps: int | None = None
    minutes: float | None = None
    resume: Path | None = None  # checkpoint to continue, its schedule too
    init: Path | None = None  # checkpoint whose networks start a new run
    save_minutes: float = 2.0  # between checkpoints
    seed: int = 0  # of the weights and of the batches
    device: str = "auto"  # cpu, cuda, or a GPU if there is one


class Trainer(ABC, Generic[Network, RecipeType]):
    """A recipe's networks and optimisers on one device. What ships is the moving average of `model`.

    A recipe sets `networks`, the model among them, and `optimisers`, under their names in checkpoints.
    One whose step cannot be captured whole names in `captured` the parts that are.
    """

    networks: dict[str, torch.nn.Module]
    optimisers: dict[str, torch.optim.Optimizer]
    captured: tuple[GraphedSteps, ...] = ()
    leave_out: tuple[str, ...] = ()  # names of weights that begin so are used in training only
    info: Mapping[str, object] = {}  # what stands beside the weights, for what reads them

    def __init__(
        self, model: Network, contract: MelContract, recipe: RecipeType, clip_norm: float | None = None
    ):
        self.model, self.contract, self.recipe, self.clip_norm = model, contract, recipe, clip_norm
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.device = self.parameters[0].device
        self.ema = Ema(model, recipe.ema_decay)

    @abstractmethod
    def batches(self, seed: int) -> Iterator[tuple[object, Drawn]]:
        """Endless batches, as they are drawn: a step's key, and what `fetch` takes."""

    def fetch(self, key: Any, drawn: Drawn) -> Drawn:
        """What is read of a batch beforehand, on the host, by a thread of its own."""
        return drawn

    def place(self, key: Any, fetched: Drawn) -> Drawn:
        """A step's tensors, where it wants them."""
        return fetched

    def inputs(self, key: Any, drawn: Drawn) -> Drawn:
        """A step's tensors of a batch as it is drawn."""
        return self.place(key, self.fetch(key, drawn))

    @abstractmethod
    def step(self, key: object, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        """One update, see `GraphedSteps`; the losses."""

    @abstractmethod
    def validate(self) -> dict[str, float]:
        """What is logged of the averaged model."""

    def update(self) -> None:
        """Updates weights, by the mean of all ranks' gradients, and the moving average."""
        ranks.average_gradients(self.optimisers.values())
        if self.clip_norm:
            torch.nn.utils.clip_grad_norm_(self.parameters, self.clip_norm)
        for optimiser in self.optimisers.values():
            optimiser.step()
        self.ema.update()

    def forget_graphs(self) -> None:
        """Of the captured parts: those of whole steps go with the run."""
        for part in self.captured:
            part.graphs.clear()

    def state_dict(self) -> dict:
        parts = self.networks | self.optimisers | {"ema": self.ema}
        return {name: part.state_dict() for name, part in parts.items()}

    def load_networks(self, state: dict) -> None:
        for name, network in self.networks.items():
            network.load_state_dict(state[name])
        self.ema.load_state_dict(state["ema"])

    def load_state_dict(self, state: dict) -> None:
        self.load_networks(state)
        for name, optimiser in self.optimisers.items():
            optimiser.load_state_dict(state[name])

    def model_state(self) -> dict[str, torch.Tensor]:
        return self.model.state_dict()

    def averaged_model(self) -> Network:
        """A copy with the moving average's weights."""
        # Building it consumes random numbers: saving must not change what a run draws.
        with torch.random.fork_rng(devices=[]):
            copy = type(self.model)(self.model.config).to(self.device)
        copy.load_state_dict(self.model_state() | self.ema.state_dict())
        return copy.eval()

    def shipped_model(self) -> Network:
        return self.averaged_model()

    def save_weights(self, path: Path, info: dict) -> None:
        """Weights for inference as safetensors: parameters in fp16, stored buffers (constants) in fp32.

        The network's configuration, and the mel contract with `info`, stand as JSON in the file's metadata.
        """
        model = self.shipped_model()
        parameters = dict(model.named_parameters())
        tensors = {n: x.half() if n in parameters else x.float() for n, x in model.state_dict().items()}
        arrays = {n: v.cpu().numpy() for n, v in tensors.items() if not n.startswith(self.leave_out)}
        info = {"mel": asdict(self.contract), **info}
        config = asdict(cast(Any, model.config))
        metadata = {"config": json.dumps(config), "info": json.dumps(info)}
        save_weights(path, arrays, metadata)


def start(settings: RunSettings) -> torch.device:
    """Before anything is read: whether the run may begin; seed and precision. The device of the run."""
    device = ranks.join(pick_device(settings.device))
    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)  # streams and graphs are the current one's
    if ranks.is_first():
        require_free(settings.out, settings.resume)
    for path in (settings.resume, settings.init):
        if path is not None:
            require_checkpoint(path)
    if not settings.save_minutes > 0:
        raise InputError(f"--save-minutes must be above 0, not {settings.save_minutes:g}")
    torch.manual_seed(settings.seed)
    torch.set_float32_matmul_precision("high")
    return device


def pick_device(name: str) -> torch.device:
    """The device of that name; "auto" is a GPU if there is one. InputError where it is none, or not there."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(f"--device {name!r}: give cpu or cuda") from None
    if device.type not in ("cpu", "cuda") or (device.type == "cuda" and not torch.cuda.is_available()):
        raise InputError(f"--device {name}: this machine has no such device for PyTorch; give cpu or cuda")
    return device


def fetched_ahead(
    drawn: Iterator[tuple[object, Drawn]], fetch: Callable[[object, Drawn], Drawn]
) -> Iterator[tuple[object, Drawn]]:
    """The batches in their order; a few further ones are fetched while one is learnt from."""
    with ThreadPoolExecutor(AHEAD) as pool:
        waiting = deque((key, pool.submit(fetch, key, one)) for key, one in itertools.islice(drawn, AHEAD))
        while waiting:
            key, fetched = waiting.popleft()
            yield key, fetched.result()
            waiting += ((key, pool.submit(fetch, key, one)) for key, one in itertools.islice(drawn, 1))


class Run:
    """A training run in its folder: networks that begin or go on, and all that a resumed run needs."""

    def __init__(self, settings: RunSettings, trainer: Trainer):
        self.folder, self.trainer, self.seed = settings.out, trainer, settings.seed
        self.save_seconds, self.stopped, self.rate = settings.save_minutes * 60, False, 0.0
        if settings.init:
            state = load_checkpoint(settings.init, trainer.device)
            with fitting(settings.init):
                trainer.load_networks(state["trainer"])
        recipe = trainer.recipe
        rates = recipe.learning_rate, recipe.final_learning_rate, recipe.warm_up_steps
        self.schedule = Schedule(*rates, settings.steps, settings.minutes)
        if settings.resume:
            state = load_checkpoint(settings.resume, trainer.device)
            with fitting(settings.resume):
                self.load_state_dict(state)
        if ranks.is_first():
            self.folder.mkdir(parents=True, exist_ok=True)
        self.log = Log(self.folder)
        ranks.take_from_first(trainer.networks.values())
        ranks.draw_apart(self.seed, self.schedule.step)

    def steps(self) -> Iterator[dict[str, torch.Tensor]]:
        """Trains to the schedule's end or until `stopped`; the losses of each step."""
        trainer, schedule, steps = self.trainer, self.schedule, GraphedSteps(self.trainer.step)
        # A resumed run goes on with the batches that it had not seen.
        drawn = itertools.islice(ranks.own_batches(trainer.batches(self.seed)), schedule.step, None)
        batches = fetched_ahead(drawn, trainer.fetch)
        saved = schedule.seconds
        # Rank 0's clock and will are those of all.
        while (progress := ranks.of_first(self.stopped or schedule.progress())) < 1.0:
            key, fetched = next(batches)
            inputs = trainer.place(key, fetched)
            self.rate = schedule.rate(progress)
            for group in (group for o in trainer.optimisers.values() for group in o.param_groups):
                rate = self.rate * group.get("factor", 1.0)
                if isinstance(group["lr"], torch.Tensor):
                    group["lr"].fill_(rate)
                else:
                    group["lr"] = rate
            losses = steps(key, **inputs)
            schedule.step += 1
            yield losses
            if ranks.is_first() and schedule.seconds - saved > self.save_seconds:
                saved = schedule.seconds
                self.save()
        if ranks.is_first():
            self.save()

    def stop(self) -> None:
        """Ends the steps, and saves, as soon as this one is done."""
        self.stopped = True

    def save(self) -> None:
        save_checkpoint(self.folder / LAST, **self.state_dict())
        self.save_weights()

    def save_weights(self, **info: object) -> None:
        schedule = self.schedule
        minutes = round(schedule.seconds / 60, 1)
        info = {"steps": schedule.step, "minutes": minutes, **self.trainer.info, **info}
        self.trainer.save_weights(self.folder / WEIGHTS, info)

    def state_dict(self) -> dict:
        parts = {"trainer": self.trainer, "schedule": self.schedule}
        return {name: part.state_dict() for name, part in parts.items()} | {"random": random_state()}

    def load_state_dict(self, state: dict) -> None:
        self.trainer.load_state_dict(state["trainer"])
        self.schedule.load_state_dict(state["schedule"])
        set_random_state(state.get("random", {}))


@contextlib.contextmanager
def stopped_by_signals(stop: Callable[[], object]) -> Iterator[list[int]]:
    """SIGINT and SIGTERM, in the main thread, call `stop` and take effect behind this: those that came.

    A second Ctrl-C does so at once.
    """
    came: list[int] = []

    def note(number: int, frame: object) -> None:
        came.append(number)
        stop()
        signal.signal(signal.SIGINT, before[signal.SIGINT] or signal.SIG_DFL)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    ours = threading.current_thread() is threading.main_thread()
    held = [number for number, answer in before.items() if ours and answer not in (signal.SIG_IGN, None)]
    for number in held:
        signal.signal(number, note)
    try:
        yield came
    finally:
        for number in held:
            signal.signal(number, before[number])
    if came:
        signal.raise_signal(came[0])


def random_state() -> dict[str, torch.Tensor]:
    """Of the generators that dropout draws from, by device."""
    found = {"cpu": torch.get_rng_state()}
    return found | ({"cuda": torch.cuda.get_rng_state()} if torch.cuda.is_initialized() else {})


def set_random_state(state: Mapping[str, torch.Tensor]) -> None:
    if "cpu" in state:
        torch.set_rng_state(state["cpu"].cpu())
    if "cuda" in state and torch.cuda.is_initialized():
        torch.cuda.set_rng_state(state["cuda"].cpu())


def run_training(settings: RunSettings, trainer: Trainer, log_every: int = 500) -> None:
    """Trains to the schedule's end, with logs and checkpoints."""
    run = Run(settings, trainer)
    with stopped_by_signals(run.stop):
        for losses in run.steps():
            step = run.schedule.step
            if ranks.is_first() and (step % log_every == 0 or step in (1, 10, 100)):
                values = {name: loss.item() for name, loss in losses.items()}
                run.log.write(step, {**values, **trainer.validate(), "rate": run.rate})
    if ranks.is_first():
        if run.log.path.exists():
            run.log.plot()
        print(f"{run.folder / WEIGHTS}: the weights after {counted(run.schedule.step, 'step')}", flush=True)
    trainer.forget_graphs()
    ranks.leave()
