"""The recipes' shared parts, and both recipes for a few steps on a corpus of a few seconds."""

from dataclasses import fields, replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile
import torch
from safetensors import safe_open

from melforge.common.audio.contract import MelContract
from melforge.common.audio.sharpness import sharpen
from melforge.common.config.hparams import load_hparams
from melforge.common.engines.torch_engine import TorchEngine
from melforge.common.errors import InputError
from melforge.common.stages import stages_of
from melforge.common.training.corpus import batches
from melforge.common.training.corpus.dataset import Labels, load_labels, save_labels
from melforge.common.training.loop import (
    Ema,
    GraphedSteps,
    Recipe,
    Run,
    RunSettings,
    Schedule,
    Trainer,
    TrainingPlan,
    adamw,
    fetched_ahead,
    run_training,
    save_checkpoint,
)
from melforge.common.training.vocoder import VocoderTrainer, make_discriminators
from melforge.common.weights.published import read_checkpoint
from melforge.common.weights.voices import read_weights
from melforge.fastpitch import predict_mels as fastpitch_predict_mels
from melforge.fastpitch import train as fastpitch_train
from melforge.fastpitch.config import FastPitchConfig
from melforge.fastpitch.train import FastPitchRecipe
from melforge.fastspeech import align_tacotron2
from melforge.fastspeech import train as fastspeech_train
from melforge.hifigan import train as hifigan_train
from melforge.hifigan.config import HifiganConfig
from melforge.hifigan.model import HifiganGenerator
from melforge.tacotron2 import predict_mels as tacotron2_predict_mels
from melforge.tacotron2 import train as tacotron2_train
from melforge.waveglow import train as waveglow_train

ROOT = Path(__file__).resolve().parents[2]
RATE, HOP = 22_050, 256
FRAMES = sum(40 + i for i in range(12))  # of the corpus
TINY_FASTPITCH = (
    "symbols_embedding_dim=16 in_fft_output_size=16 out_fft_output_size=16 in_fft_n_layers=1 "
    "out_fft_n_layers=1 in_fft_d_head=8 out_fft_d_head=8 in_fft_conv1d_filter_size=16 "
    "out_fft_conv1d_filter_size=16 dur_predictor_filter_size=8 pitch_predictor_filter_size=8 "
    "energy_predictor_filter_size=8 frames_per_batch=200"
)
TINY_TACOTRON2 = (
    "symbols_embedding_dim=16 encoder_embedding_dim=16 attention_rnn_dim=16 attention_dim=8 "
    "decoder_rnn_dim=16 prenet_dim=8 postnet_embedding_dim=8 frames_per_batch=200"
)
TINY_FASTSPEECH = (
    "d_model=16 phoneme_side_output_size=16 mel_side_output_size=16 phoneme_side_n_layer=1 "
    "mel_side_n_layer=1 phoneme_side_conv1d_filter_size=16 mel_side_conv1d_filter_size=16 "
    "duration_predictor_filter_size=8 frames_per_batch=200"
)
TINY_WAVEGLOW = (
    "n_flows=4 wn_layers=2 wn_channels=8 cond_channels=4 period_channels=1 resolution_channels=1 "
    "batch_size=2 segment_frames=16 source=false"
)
TINY_HIFIGAN = (
    "upsample_initial_channel=32 period_channels=1 resolution_channels=1 batch_size=2 segment_frames=16"
)


@pytest.fixture
def corpus(tmp_path, monkeypatch) -> Path:
    """Twelve utterances of noise, 40 to 51 frames; the recipes keep fewer of them for validation."""
    folder = tmp_path / "corpus"
    (folder / "wavs").mkdir(parents=True)
    rng = np.random.default_rng(3)
    labels = Labels([], [], [], [], [])
    for i in range(12):
        durations = np.array([0, 10, 10, 10, 10 + i])
        labels.names.append(f"u{i}")
        labels.texts.append("text")
        labels.ids.append(rng.integers(1, 148, 5))
        labels.durations.append(durations)
        labels.pitch.append(np.array([0, 200 + i, 0, 180 + i, 220 + i], np.float32))
        soundfile.write(folder / "wavs" / f"u{i}.wav", 0.1 * rng.standard_normal(durations.sum() * HOP), RATE)
    save_labels(folder, labels)
    monkeypatch.setattr(batches, "VALIDATION_UTTERANCES", 2)
    monkeypatch.setattr(batches, "VALIDATION_FRAMES", 40)
    monkeypatch.chdir(ROOT)
    return folder


RECIPES = {
    fastpitch_train: TINY_FASTPITCH,
    tacotron2_train: TINY_TACOTRON2,
    fastspeech_train: TINY_FASTSPEECH,
    waveglow_train: TINY_WAVEGLOW,
    hifigan_train: TINY_HIFIGAN,
}


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request) -> str:
    return request.param


@pytest.fixture
def train(corpus, device, monkeypatch):
    """Runs a recipe's command with sizes of its own."""

    def train(module, out: Path, *words: object, values: str = "", folder: Path = corpus) -> None:
        pairs = [part for value in f"{RECIPES[module]} {values}".split() for part in ("--set", value)]
        words = "--corpus", folder, "--out", out, "--device", device, *pairs, *words
        monkeypatch.setattr("sys.argv", ["train", *map(str, words)])
        module.main()

    return train


@pytest.fixture
def predict(corpus, device, monkeypatch):
    """What a command predicts of the corpus by the weights of a run."""

    def predict(module, out: Path, *words: str) -> np.ndarray:
        paths = "--weights", out / "weights.safetensors", "--corpus", corpus, "--out", out / "predicted.npy"
        monkeypatch.setattr("sys.argv", ["predict", *map(str, paths), "--device", device, *words])
        module.main()
        made = np.load(out / "predicted.npy")
        assert (made.shape == (80, FRAMES) and np.isfinite(made).all()) or module is align_tacotron2
        return made

    return predict


def losses(out: Path) -> list[str]:
    return (out / "losses.csv").read_text().splitlines()


def test_fastpitch_learns_saves_resumes_and_predicts_mels(corpus, tmp_path, train, predict):
    out = tmp_path / "run"
    train(fastpitch_train, out, "--steps", 10)
    assert len(losses(out)) == 3  # the heading, step 1 and step 10
    source = read_checkpoint(out / "weights.safetensors")
    assert source.model == "fastpitch"
    assert source.settings.pitch_mean == pytest.approx(205.5, abs=1)
    assert not any(name.startswith("attention.") for name in source.state)
    last = "--resume", str(out / "last.pt")
    train(fastpitch_train, out, "--steps", 12, *last)
    state = torch.load(out / "last.pt", weights_only=True)
    assert state["schedule"]["step"] == 12
    own = predict(fastpitch_predict_mels, out)
    freely = predict(fastpitch_predict_mels, out, "--predicted")
    assert np.abs(freely - own).max() > 1e-3
    # Its weights' mean and deviation of the pitch count, not those of the corpus that it predicts mels for.
    labels = load_labels(corpus)
    labels.pitch[6:] = [1.5 * pitch for pitch in labels.pitch[6:]]
    save_labels(corpus, labels)
    other, first = predict(fastpitch_predict_mels, out), labels.frames[:6].sum()
    np.testing.assert_allclose(other[:, :first], own[:, :first], atol=2e-3)
    assert np.abs(other[:, first:] - own[:, first:]).max() > 1e-2


def test_a_run_is_begun_from_python_too(corpus, tmp_path, device):
    classes = FastPitchConfig, MelContract, FastPitchRecipe
    plan = TrainingPlan(
        *load_hparams("hparams/fastpitch/train.yaml", *classes, overrides=TINY_FASTPITCH.split())
    )
    settings = RunSettings(tmp_path / "run", steps=1, device=device)
    run_training(settings, fastpitch_train.make_trainer(plan, corpus, settings))
    assert read_checkpoint(tmp_path / "run" / "weights.safetensors").model == "fastpitch"


@pytest.mark.slow
def test_tacotron2_learns_where_to_look_and_predicts_mels(tmp_path, train, predict):
    out = tmp_path / "run"
    train(tacotron2_train, out, "--steps", 100)
    heading, first, *_, last = (line.split(",") for line in losses(out))
    column = heading.index("alignment")
    assert float(last[column]) < float(first[column])
    assert read_checkpoint(out / "weights.safetensors").model == "tacotron2"
    predict(tacotron2_predict_mels, out)


@pytest.mark.slow
def test_fastspeech_learns_from_another_models_mels_and_attention(corpus, tmp_path, train, predict):
    teacher, out = tmp_path / "teacher", tmp_path / "run"
    np.save(tmp_path / "mels.npy", np.full((80, FRAMES), -3, np.float16))
    mels = ["--mels", str(tmp_path / "mels.npy")]
    train(tacotron2_train, teacher, "--steps", 1, *mels)
    begins_at = read_weights(teacher / "weights.safetensors")["decoder.linear_projection.linear_layer.bias"]
    np.testing.assert_allclose(begins_at, -3, atol=0.01)  # the mean frame of what it is taught
    durations = predict(align_tacotron2, teacher)
    assert durations.sum() == FRAMES and len(durations) == 12 * 5
    np.save(tmp_path / "durations.npy", durations)
    taught = [*mels, "--durations", str(tmp_path / "durations.npy")]
    train(fastspeech_train, out, "--steps", 100, *taught, values="warm_up_steps=1")
    heading, first, *_, last = (line.split(",") for line in losses(out))
    for loss in ("mel", "duration"):
        assert float(last[heading.index(loss)]) < float(first[heading.index(loss)])
    source = read_checkpoint(out / "weights.safetensors")
    assert source.model == "fastspeech" and source.config.d_model == 16
    np.save(tmp_path / "durations.npy", durations[:-1])
    with pytest.raises(ValueError, match=r"durations\.npy does not hold this corpus's durations"):
        out = tmp_path / "other"
        train(fastspeech_train, out, "--steps", 1, *taught)


def test_a_tacotron2_that_ends_with_the_last_step_has_nothing_to_learn(made_run):
    trainer = made_run(tacotron2_train, "--steps", 1).trainer
    key, drawn = next(trainer.batches(seed=0))
    inputs = trainer.inputs(key, drawn)
    step = trainer.config.n_frames_per_step

    def model(symbols, lengths, mel, mel_lengths, prenet_noise):
        steps, last = torch.arange(mel.size(2) // step, device=mel.device), -(-mel_lengths // step) - 1
        return SimpleNamespace(
            mel=mel,
            mel_before_postnet=mel,
            gate=torch.where(steps < last[:, None], -999.0, 999.0),
            alignment=torch.ones(len(mel), len(steps), symbols.size(1), device=mel.device),
        )

    losses, _ = trainer.losses(model, key, **inputs)
    assert {name: loss.item() for name, loss in losses.items()} == {"mel": 0, "gate": 0, "alignment": 0}


def test_a_frame_counts_for_the_symbol_that_was_looked_at_most():
    alignment = torch.tensor([[[0.9, 0.1, 0], [0.2, 0.8, 0], [0, 0.4, 0.6]]]).expand(2, -1, -1)
    found = align_tacotron2.count_frames(alignment, torch.tensor([6, 3]), frames_per_step=2)
    assert found.tolist() == [[2, 2, 2], [2, 1, 0]]


def test_every_step_has_the_symbol_that_it_speaks():
    durations = torch.tensor([[0, 3, 2, 0, 3], [4, 0, 2, 0, 0]])
    spoken = tacotron2_train.spoken_symbols(durations, frames=10, step=2)
    assert spoken.tolist() == [[1, 2, 4, 4, 4], [0, 0, 2, 2, 2]]


@pytest.mark.slow
def test_waveglow_trains_in_either_direction(tmp_path, train):
    likely, adversarial = tmp_path / "likely", tmp_path / "adversarial"
    train(waveglow_train, likely, "--steps", 10)
    column = losses(likely)[0].split(",").index("nll")
    first, last = (float(losses(likely)[row].split(",")[column]) for row in (1, -1))
    assert last < first
    judges = make_discriminators(period_channels=1, resolution_channels=1, complex_spectra=True)
    save_checkpoint(tmp_path / "judges.pt", trainer={"discriminators": judges.state_dict()})
    more = ["--hparam", "hparams/waveglow/train_adversarial.yaml", "--init", str(likely / "last.pt")]
    more += ["--judges", str(tmp_path / "judges.pt")]
    train(waveglow_train, adversarial, "--steps", 2, *more)
    before, after = (
        torch.load(run / "last.pt", weights_only=True)["trainer"]["model"] for run in (likely, adversarial)
    )
    for name in before:
        kept = torch.equal(before[name], after[name])
        assert kept == name.startswith("convinv"), name
    source = read_checkpoint(adversarial / "weights.safetensors")
    assert source.model == "waveglow"
    assert not any("parametrizations" in name for name in source.state)


def test_fastpitch_goes_on_in_its_networks_units_of_pitch(tmp_path, train):
    def pitch_loss(name, *arguments):
        train(fastpitch_train, tmp_path / name, "--steps", 1, *arguments)
        heading, first = (row.split(",") for row in losses(tmp_path / name))
        return float(first[heading.index("pitch")])

    own = pitch_loss("own")
    state = torch.load(tmp_path / "own" / "last.pt", weights_only=True)
    state["trainer"]["model"]["pitch_mean"] += 100  # some six deviations
    save_checkpoint(tmp_path / "other.pt", **state)
    assert pitch_loss("other", "--init", str(tmp_path / "other.pt")) > 5 * own


def test_hifigan_trains_on_true_and_predicted_mels_and_starts_from_networks(corpus, tmp_path, train):
    out = tmp_path / "run"
    mels = tmp_path / "mels.npy"
    np.save(mels, np.full((80, FRAMES), -5, np.float16))
    segments = batches.Segments(corpus, MelContract(), [mels], torch.device("cpu"))
    (true, predicted), _ = segments.cut(torch.tensor([7, 7]), 20, torch.tensor([0, 1]))
    assert (predicted == -5).all() and torch.equal(true, segments.mel[:, 7:27].float())
    train(hifigan_train, out, "--steps", 2, "--mels", str(mels))
    before = torch.load(out / "last.pt", weights_only=True)
    again = tmp_path / "again"
    begun = "--init", str(out / "last.pt")
    train(hifigan_train, again, "--steps", 1, *begun)
    after = torch.load(again / "last.pt", weights_only=True)
    assert (before["schedule"]["step"], after["schedule"]["step"]) == (2, 1)
    source = read_checkpoint(again / "weights.safetensors")
    assert source.model == "hifigan"
    assert source.config.upsample_initial_channel == 32
    assert not any("parametrizations" in name for name in source.state)


def test_hifigan_with_an_inverse_stft_trains_resumes_and_speaks(tmp_path, train):
    out, recipe = tmp_path / "run", ("--hparam", "hparams/hifigan/train_c4c4i.yaml")
    train(hifigan_train, out, "--steps", 1, *recipe)
    last = "--resume", str(out / "last.pt")
    train(hifigan_train, out, "--steps", 2, *recipe, *last)
    source = read_checkpoint(out / "weights.safetensors")
    assert (source.config.istft_n_fft, source.config.istft_hop_length) == (64, 16)
    generator = stages_of("hifigan", source.config)[0]
    audio = TorchEngine(generator, source)(mel=np.full((1, 80, 9), -5, np.float32))["audio"]
    assert audio.shape == (1, 9 * HOP) and np.isfinite(audio).all()


def test_what_is_judged_of_a_segment_is_as_in_the_whole_sentence():
    file = "hparams/hifigan/train_c4c4i.yaml"
    classes = HifiganConfig, MelContract, hifigan_train.RECIPE
    config, _, recipe = load_hparams(file, *classes, overrides=["upsample_initial_channel=32"])
    generator, frames, judged = HifiganGenerator(config), recipe.segment_frames, recipe.judged_frames
    mel, margin = torch.randn(1, 80, 3 * frames), (frames - judged) // 2
    with torch.no_grad():
        whole, segment = generator(mel), generator(mel[:, :, frames : 2 * frames])
    first = margin * HOP
    middle = segment[:, :, first : first + judged * HOP]
    assert torch.allclose(middle, whole[:, :, frames * HOP + first :][:, :, : judged * HOP], atol=1e-5)


@pytest.fixture
def half_done(tmp_path) -> Path:
    """A folder with what a run leaves, of which nothing is read."""
    folder = tmp_path / "half"
    folder.mkdir()
    (folder / "last.pt").write_bytes(b"weights of hours")
    (folder / "losses.csv").write_text("step,seconds\n")
    torch.save({"trainer": {"model": {}}, "schedule": {}}, tmp_path / "other.pt")
    torch.save({"trainer": {"generator": {}, "model": {}}}, tmp_path / "sizes.pt")
    torch.save({"weight": torch.ones(1)}, tmp_path / "state.pt")
    return folder


REFUSED = {
    "anew": (["--steps", 1], "half holds a run: go on with it by --resume .*half/last.pt, or give another"),
    "another's": (["--steps", 1, "--resume", "other.pt"], "half holds a run: go on with it by"),
    "init": (["--steps", 1, "--init", "half/last.pt"], "half holds a run: go on with it by"),
    "save": (["--resume", "half/last.pt", "--save-minutes", "0"], "--save-minutes must be above 0, not 0"),
    "device": (["--resume", "half/last.pt", "--device", "tpu"], "--device 'tpu': give cpu or cuda"),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("module", [fastpitch_train, tacotron2_train, fastspeech_train, hifigan_train])
def test_a_run_is_not_overwritten(module, case, half_done, tmp_path, train):
    words, message = REFUSED[case]
    words = [str(tmp_path / word) if str(word).endswith(".pt") else word for word in words]
    with pytest.raises(InputError, match=message):
        train(module, half_done, *words, folder=tmp_path / "no-corpus")
    assert (half_done / "last.pt").read_bytes() == b"weights of hours"
    assert (half_done / "losses.csv").read_text() == "step,seconds\n"


def test_a_run_that_saved_nothing_is_not_gone_on_with(half_done, tmp_path, train):
    (half_done / "last.pt").unlink()
    with pytest.raises(InputError, match="half holds a run: give another folder"):
        train(hifigan_train, half_done, "--steps", 1, folder=tmp_path / "no-corpus")
    with pytest.raises(FileNotFoundError, match=r"half/last\.pt not found: give the last\.pt in a run's"):
        last = "--resume", str(half_done / "last.pt")
        train(hifigan_train, half_done, *last, folder=tmp_path / "no-corpus")


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (
            "half/last.pt",
            r"last\.pt is no checkpoint of a run, or damaged: give the last\.pt in a run's folder",
        ),
        ("state.pt", r"state\.pt is no checkpoint of a run"),
        ("other.pt", r"other\.pt is of another model or recipe: it holds no 'generator'"),
        ("sizes.pt", r"sizes\.pt is of another model, or of one of other sizes: Missing key"),
    ],
)
@pytest.mark.parametrize("option", ["--init", "--resume"])
def test_what_a_run_cannot_begin_with_is_named(option, file, message, half_done, tmp_path, train):
    words = "--steps", 1, option, str(tmp_path / file)
    with pytest.raises(InputError, match=message):
        train(hifigan_train, tmp_path / "new", *words)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("words", [["--steps", "-5"], ["--steps", 0], ["--seed", "-1", "--steps", 1]])
def test_numbers_that_never_end_or_are_none_are_refused(words, tmp_path, train):
    with pytest.raises(InputError, match="must be a whole number from"):
        train(hifigan_train, tmp_path / "new", *words)


def test_mels_of_another_corpus_are_refused(corpus, tmp_path, train):
    np.save(tmp_path / "mels.npy", np.zeros((80, 7), np.float16))
    words = "--steps", 1, "--mels", str(tmp_path / "mels.npy")
    with pytest.raises(ValueError, match="holds 7 frames, the corpus has 546"):
        train(hifigan_train, tmp_path / "r", *words)


@pytest.mark.parametrize("minutes", [float("nan"), float("inf"), -1.0])
def test_training_that_would_not_end_is_refused(minutes):
    with pytest.raises(InputError, match="give a number above 0"):
        Schedule(peak=1.0, floor=0.1, warm_up_steps=10, max_steps=5, max_minutes=minutes)


def test_the_rate_warms_up_and_falls_to_its_floor():
    schedule = Schedule(peak=1.0, floor=0.1, warm_up_steps=10, max_steps=100, max_minutes=None)
    rates = []
    while (progress := schedule.progress()) < 1:
        rates.append(schedule.rate(progress))
        schedule.step += 1
    assert len(rates) == 100
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == pytest.approx(1.0, abs=0.03)
    assert rates[-1] == pytest.approx(0.1, abs=0.01)
    with pytest.raises(ValueError, match="--steps or --minutes"):
        Schedule(1.0, 0.1, 10, None, None)


def test_the_average_follows_the_weights():
    module = torch.nn.Linear(1, 1, bias=False)
    ema = Ema(module, decay=0.9)
    start = module.weight.item()
    with torch.no_grad():
        module.weight.fill_(start + 1)
    for moved in (0.1, 0.19):
        ema.update()
        assert ema.state_dict()["weight"].item() == pytest.approx(start + moved)


def test_on_the_cpu_a_graphed_step_is_the_step():
    calls = []
    steps = GraphedSteps(lambda key, x: calls.append(key) or {"sum": x.sum()})
    assert steps("bucket", x=torch.ones(3))["sum"].item() == 3
    assert calls == ["bucket"]


def test_a_checkpoint_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "last.pt"
    save_checkpoint(path, step=1)

    class Unpicklable:
        def __reduce__(self):
            raise RuntimeError("disk full")

    with pytest.raises(RuntimeError):
        save_checkpoint(path, step=Unpicklable())
    assert torch.load(path, weights_only=True) == {"step": 1}


# Every setting counts


@pytest.fixture
def made_run(train, tmp_path, monkeypatch):
    """What a recipe's command would train, before its first step."""

    def made_run(module, *words: object, values: str = "") -> Run:
        made = []
        with monkeypatch.context() as patch:
            patch.setattr(module, "run_training", lambda *run, log_every=500: made.append(Run(*run)))
            train(module, tmp_path / "run", *words, values=values)
        return made[0]

    return made_run


def model_of(module) -> str:
    return module.__name__.split(".")[-2]


@pytest.mark.parametrize("module", RECIPES, ids=model_of)
def test_the_settings_of_the_loop_are_the_recipes(module, made_run):
    values = "learning_rate=0.25 final_learning_rate=0.125 warm_up_steps=4 ema_decay=0.75"
    acoustic = module in (fastpitch_train, tacotron2_train, fastspeech_train)
    clipped = acoustic or module is waveglow_train
    values += " clip_norm=0.5" * clipped + " weight_decay=0.0625" * acoustic
    run = made_run(module, "--steps", 8, "--save-minutes", 3, values=values)
    trainer, schedule = run.trainer, run.schedule
    assert trainer.ema.decay == 0.75 and trainer.clip_norm == (0.5 if clipped else None)
    assert (schedule.peak, schedule.floor, schedule.warm_up_steps, schedule.max_steps) == (0.25, 0.125, 4, 8)
    assert run.save_seconds == 180
    groups = [group for optimiser in trainer.optimisers.values() for group in optimiser.param_groups]
    optimised = {id(p) for group in groups for p in group["params"]}
    assert optimised >= {id(p) for p in trainer.parameters}
    assert all(p.is_contiguous() for group in groups for p in group["params"])  # as gradients are
    assert not acoustic or {group["weight_decay"] for group in groups} == {0.0625}
    if module is waveglow_train:  # by likelihood at first: the discriminators do not learn
        return
    steps = run.steps()
    next(steps)
    assert run.rate == 0.25 / 4 and {float(group["lr"] / group["factor"]) for group in groups} == {run.rate}
    next(steps)
    assert not (run.folder / "last.pt").exists()  # three minutes are not over


@pytest.mark.parametrize("device", [pytest.param("cuda", marks=pytest.mark.gpu)], indirect=True)
@pytest.mark.parametrize("module", RECIPES, ids=model_of)
def test_captured_steps_learn_what_steps_without_graphs_do(module, tmp_path, train, monkeypatch):
    last = []
    for warm_up in (3, 10**9):
        monkeypatch.setattr("melforge.common.training.loop.WARM_UP_STEPS", warm_up)
        train(module, tmp_path / str(warm_up), "--steps", 100)
        last.append([float(value) for value in losses(tmp_path / str(warm_up))[-1].split(",")[2:]])
    assert np.allclose(*last, rtol=0.25, atol=0.05), last


def test_gradients_are_clipped_all_together_before_the_update():
    class Stepping(Trainer):
        batches = step = validate = None

    Stepping.__abstractmethods__ = frozenset()
    model = torch.nn.Linear(2, 1)
    recipe = Recipe(1.0, 1.0, 1, 0.5)
    for clip_norm, share in ((1.0, 0.2), (None, 1.0), (10.0, 1.0)):  # of a norm of 5
        trainer = Stepping(model, MelContract(), recipe, clip_norm)
        trainer.optimisers = {"optimiser": torch.optim.SGD(model.parameters(), 1.0)}
        before = torch.cat([model.weight.detach()[0], model.bias.detach()])
        model.weight.grad, model.bias.grad = torch.tensor([[0.0, 3.0]]), torch.tensor([4.0])
        trainer.update()
        moved = before - torch.cat([model.weight.detach()[0], model.bias.detach()])
        torch.testing.assert_close(moved, share * torch.tensor([0.0, 3.0, 4.0]), rtol=1e-4, atol=1e-5)
        averaged = torch.cat([trainer.ema.averages["weight"][0], trainer.ema.averages["bias"]])
        torch.testing.assert_close(averaged, before - 0.5 * moved)


@pytest.mark.parametrize("module", [fastpitch_train, tacotron2_train, fastspeech_train], ids=model_of)
def test_each_of_an_acoustic_models_losses_has_its_weight(module, made_run):
    """What is followed backwards, and what the best weights are chosen by."""
    run = made_run(module, "--steps", 1)
    trainer = run.trainer
    key, drawn = next(trainer.batches(seed=0))
    inputs = trainer.inputs(key, drawn)
    torch.manual_seed(0)
    losses, _ = trainer.losses(trainer.model, key, **inputs)
    weights = {"mel": 1.0} | {name: 2.0 + i for i, name in enumerate(sorted(losses.keys() - {"mel"}))}
    assert set(losses) == {"mel"} | {
        field.name.removesuffix("_loss_weight")
        for field in fields(trainer.recipe)
        if field.name.endswith("_loss_weight")
    }
    given = {f"{name}_loss_weight": weight for name, weight in weights.items() if name != "mel"}
    trainer.recipe = replace(trainer.recipe, **given)
    wanted = sum(weights[name] * loss for name, loss in losses.items())
    torch.testing.assert_close(trainer.weighted(losses), wanted)
    held_out = {f"validation_{name}": loss.item() for name, loss in losses.items()} | {"duration_ms": 1e9}
    assert trainer.score(held_out) == pytest.approx(wanted.item())
    gradients = torch.autograd.grad(wanted, trainer.parameters, allow_unused=True)
    trainer.update = lambda: None
    torch.manual_seed(0)
    trainer.step(key, **inputs)
    largest = max(float(gradient.abs().max()) for gradient in gradients if gradient is not None)
    for parameter, gradient in zip(trainer.parameters, gradients, strict=True):
        assert (parameter.grad is None) == (gradient is None)
        if gradient is not None:
            near = 1e-6
            if gradient.is_cuda:  # adds up in any order; of a bias before a batch norm that is all
                near = max(1e-3 * float(gradient.abs().max()), 1e-5 * largest)
            torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=near)


def test_each_of_a_vocoders_losses_has_its_weight():
    judged = {1.0: (0.5, 3.0), -1.0: (0.25, 7.0)}  # true and generated audio -> a judge's score and feature

    def judge(audio):
        score, feature = judged[audio.item()]
        return [(torch.tensor([score]), [torch.tensor([feature])])] * 2

    recipe = SimpleNamespace(feature_loss_weight=3.0, mel_loss_weight=5.0)
    mel = torch.tensor(0.125)
    trainer = SimpleNamespace(device="cpu", recipe=recipe, _judge=judge, mel_loss=lambda fake, audio: mel)
    losses = VocoderTrainer.losses(trainer, torch.tensor(-1.0), torch.tensor(1.0))
    adversarial, matching = 2 * 0.75**2, 2 * 4.0
    assert {name: loss.item() for name, loss in losses.items()} == {
        "adversarial": adversarial,
        "matching": matching,
        "mel": 0.125,
        "discriminator": 2 * (0.5**2 + 0.25**2),
        "generator": adversarial + 3 * matching + 5 * 0.125,
    }


@pytest.fixture
def no_memory(monkeypatch):
    """Corpora are read as they are needed."""
    return lambda: monkeypatch.setattr(batches, "free_memory", lambda device: 0)


@pytest.mark.parametrize(
    ("module", "predicted"),
    [(module, p) for module in RECIPES for p in (False, True) if not p or module is not fastpitch_train],
)
def test_a_corpus_larger_than_memory_gives_the_same_batches(
    corpus, tmp_path, made_run, no_memory, module, predicted
):
    words = ["--steps", 1]
    if predicted:
        np.save(tmp_path / "mels.npy", np.random.default_rng(0).normal(size=(80, FRAMES)).astype(np.float16))
        words += ["--mels", str(tmp_path / "mels.npy")]
    whole = made_run(module, *words).trainer
    no_memory()
    read = made_run(module, *words).trainer
    held = read.segments if hasattr(read, "segments") else read.corpus
    assert not held.in_memory
    for (key, drawn), (_, same) in zip(islice(whole.batches(5), 8), read.batches(5), strict=False):
        given, found = whole.inputs(key, drawn), read.inputs(key, same)
        assert set(given) == set(found)
        for name in given.keys() - {"mel"}:
            assert torch.equal(given[name], found[name]), name
        # Sums of other widths are rounded otherwise, before they are kept in half precision.
        torch.testing.assert_close(given["mel"], found["mel"], rtol=1e-3, atol=1e-3)
    assert {name: round(value, 2) for name, value in whole.validate().items()} == pytest.approx(
        {name: round(value, 2) for name, value in read.validate().items()}, abs=0.02
    )


def test_batches_are_read_ahead_in_their_order_and_an_error_reaches_the_step():
    drawn, asked = iter([(n, {"n": torch.tensor(n)}) for n in range(9)]), []

    def fetch(key, one):
        asked.append(key)
        if key == 6:
            raise InputError("u6.wav is shorter than its labels")
        return {"n": 2 * one["n"]}

    fetched = fetched_ahead(drawn, fetch)
    assert [(key, int(one["n"])) for key, one in islice(fetched, 6)] == [(n, 2 * n) for n in range(6)]
    with pytest.raises(InputError, match="shorter"):
        next(fetched)
    assert set(asked) >= set(range(7))


def test_fastpitchs_weights_for_inference_answer_with_sharpened_mels(made_run):
    run = made_run(fastpitch_train, "--steps", 1, values="sharpness=0.3")
    trainer = run.trainer
    next(run.steps())
    decoded = torch.randn(2, 7, trainer.config.out_fft_output_size)
    with torch.no_grad():
        plain, ours = (
            model.proj.cpu()(decoded).transpose(1, 2)  # a GPU multiplies in TF32
            for model in (trainer.averaged_model(), trainer.shipped_model())
        )
    wanted = sharpen(plain, np.full(2, 0.3, np.float32))
    torch.testing.assert_close(ours, wanted, atol=1e-5, rtol=0)
    assert (wanted - plain).abs().max() > 1e-3


def test_fastpitchs_losses_are_means_inside_the_utterances(made_run):
    trainer = made_run(fastpitch_train, "--steps", 1).trainer
    key, drawn = next(trainer.batches(seed=0))
    inputs = trainer.inputs(key, drawn)

    def model(symbols, lengths, mel, mel_lengths, pitch, energy, durations, speaker):
        """Everything is off by a half, and by much where there is no utterance."""
        off = torch.where(symbols == trainer.config.padding_idx, 1e3, 0.5)
        mel_mask = torch.arange(mel.size(2), device=mel.device) < mel_lengths[:, None]
        ones = torch.ones(symbols.shape, device=mel.device)
        return SimpleNamespace(
            mel=mel - torch.where(mel_mask[:, None], 0.5, 1e3),
            mel_mask=mel_mask,
            log_duration=torch.log(1 + durations.float()) + off,
            pitch=(ones - off)[:, None],
            pitch_target=ones[:, None],
            energy=ones + off,
            energy_target=ones,
        )

    losses, _ = trainer.losses(model, key, **inputs)
    found = {name: loss.item() for name, loss in losses.items()}
    wanted = {"mel": 0.5, "duration": 0.25, "pitch": 0.25}
    assert found == pytest.approx(wanted | ({"energy": 0.25} if "energy" in found else {}), rel=1e-4)


def test_averages_ship_in_half_precision_and_constants_as_they_are(tmp_path, made_run):
    run = made_run(fastpitch_train, "--steps", 1)
    run.trainer.ema.averages["proj.bias"].fill_(0.75)
    run.trainer.model.pitch_mean.fill_(1000 / 3)
    run.save_weights()
    with safe_open(tmp_path / "run" / "weights.safetensors", "pt") as file:
        parameters = {name for name, _ in run.trainer.model.named_parameters()}
        stored = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    assert {stored[name].dtype for name in stored.keys() & parameters} == {torch.float16}
    assert stored["pitch_mean"].item() == pytest.approx(1000 / 3, rel=1e-6)
    assert (stored["proj.bias"] == 0.75).all()


def test_some_parameters_learn_at_a_rate_of_their_own():
    module = torch.nn.Linear(2, 1)
    groups = adamw(module, 0.5, (0.8, 0.9), 0.25, {"bias": 3.0}).param_groups
    of_name = {
        name: group for group in groups for name, p in module.named_parameters() if p in {*group["params"]}
    }
    recipe = SimpleNamespace(speaker_rate_factor=3.0)
    model = SimpleNamespace(speaker_emb=torch.nn.Embedding(2, 2))
    factors = fastpitch_train.FastPitchTrainer.rate_factors
    assert factors(None, model, recipe) == {"speaker_emb.weight": 3.0}
    assert factors(None, SimpleNamespace(speaker_emb=None), recipe) == {}
    assert {name: group["factor"] for name, group in of_name.items()} == {"weight": 1.0, "bias": 3.0}
    assert all(group["betas"] == (0.8, 0.9) and group["weight_decay"] == 0.25 for group in groups)
