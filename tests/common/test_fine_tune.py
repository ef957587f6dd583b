"""`melforge voice train` and `make`: from a voice's weights and a small corpus to a voice of two speakers."""

import re
import shutil
import signal
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile
import torch

from melforge.common.audio.contract import MelContract
from melforge.common.audio.sound_files import read_audio, resample
from melforge.common.cli import voice_make, voice_train
from melforge.common.config.hparams import load_hparams
from melforge.common.errors import InputError
from melforge.common.runner import TextToSpeech
from melforge.common.speech import Controls
from melforge.common.synthesis.loading import make_driver
from melforge.common.text.frontends import get_frontend
from melforge.common.training import fine_tune
from melforge.common.training.card import scores
from melforge.common.training.corpus.batches import Utterances, held_out_utterances
from melforge.common.training.corpus.dataset import Labels, load_labels, save_labels
from melforge.common.training.loop import RunSettings, TrainingPlan
from melforge.common.training.tuning import Tuning, TuningSettings
from melforge.common.weights.ears import find_ear
from melforge.common.weights.published import read_checkpoint
from melforge.common.weights.voices import list_voices, load_voice, read_weights
from melforge.fastpitch.align import learn
from melforge.fastpitch.train import FastPitchTrainer, continued
from melforge.hifigan.config import HifiganConfig
from melforge.hifigan.train import LESSONS, HifiganRecipe, make_trainer
from tests.conftest import check_at_small_sizes

RATE, HOP = 22_050, 256
SPEAKERS = ["ann", "ben"]


def write_corpus(folder: Path, utterances: int = 14, speakers: tuple[str, ...] = ("ann", "ben")) -> Path:
    """Five seconds of noise each; the speakers take turns, and the second one is lower."""
    (folder / "wavs").mkdir(parents=True)
    rng = np.random.default_rng(3)
    labels = Labels([], [], [], [], [])
    for i in range(utterances):
        durations = rng.integers(15, 35, 20)
        labels.names.append(f"u{i}")
        labels.texts.append("Glue the sheet.")
        labels.ids.append(rng.integers(1, 148, len(durations)))
        labels.durations.append(durations)
        labels.pitch.append(rng.normal(220 - 80 * (i % 2), 10, len(durations)).astype(np.float32))
        soundfile.write(folder / "wavs" / f"u{i}.wav", 0.1 * rng.standard_normal(durations.sum() * HOP), RATE)
    if speakers:
        labels.speakers = list(speakers)
        labels.speaker = np.arange(utterances) % len(speakers)
    save_labels(folder, labels)
    return folder


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpora") / "two")


def train(corpus: Path, out: Path, voice: Path, *words: str) -> None:
    voice_train.main([str(corpus), "-o", str(out), "--from", str(voice), "--device", "cpu", *words])


@pytest.fixture(scope="module")
def trained_run(corpus, tiny_voice, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "two"
    train(corpus, out, tiny_voice, "--steps", "4", "--learning-rate", "0.01")
    return out


def test_a_run_leaves_weights_numbers_and_samples(trained_run):
    run = trained_run / "fastpitch"
    source = read_checkpoint(run / "weights.safetensors")
    assert source.config.n_speakers == 2 and source.speakers == ("ann", "ben")
    assert source.settings.pitch_mean == 200.0  # the start's: its network knows no other
    heading, *rows = (run / "losses.csv").read_text().splitlines()
    assert len(rows) == 4 and {"validation_mel", "duration_ms", "pitch_hz"} <= set(heading.split(","))
    for step in ("000000", "000004"):
        for name in ("u12", "u13"):  # held out, one of each speaker
            sound, rate = soundfile.read(run / "samples" / f"{step}-{name}.wav")
            assert rate == RATE and len(sound) and (run / "samples" / f"{step}-{name}.png").is_file()


def test_tensorboard_is_given_numbers_sounds_and_pictures(corpus, tiny_voice, tmp_path, monkeypatch):
    seen: dict[str, list] = {"add_scalar": [], "add_audio": [], "add_image": [], "flush": [], "close": []}
    board = SimpleNamespace(
        **{
            name: lambda *words, calls=calls, **how: calls.append((*words, how))
            for name, calls in seen.items()
        }
    )
    monkeypatch.setattr("melforge.common.training.tuning.summary_writer", lambda folder: board)
    train(corpus, tmp_path / "run", tiny_voice, "--steps", "1")
    assert {"validation_mel", "mel", "pitch_hz"} <= {name for name, *_ in seen["add_scalar"]}
    names = ["u12", "u12", "u13", "u13"]  # at the start and at the end
    assert sorted(one[0] for one in seen["add_audio"]) == sorted(one[0] for one in seen["add_image"]) == names
    for _, picture, _, how in seen["add_image"]:
        assert picture.shape[0] == 80 and how == {"dataformats": "HW"}
        assert 0 <= picture.min() < picture.max() <= 1
    assert seen["flush"] and len(seen["close"]) == 1


def test_a_finished_run_that_is_made_longer_is_looked_at_again(corpus, tiny_voice, tmp_path):
    for words in (("2",), ("4", "--resume")):
        train(corpus, tmp_path, tiny_voice, "--learning-rate", "0.01", "--steps", *words)
    lines = (tmp_path / "fastpitch" / "losses.csv").read_text().splitlines()
    assert [line.partition(",")[0] for line in lines] == ["step", "1", "2", "3", "4"]


def test_a_resumed_run_ends_as_one_that_was_never_interrupted(corpus, tiny_voice, tmp_path, monkeypatch):
    words = "--steps", "4", "--learning-rate", "0.001", "--save-minutes", "1e-9"
    step, seen = FastPitchTrainer.step, []

    def noted(self, key, members, mel):
        seen.append(members.tolist())
        return step(self, key, members, mel)

    def killed(self, losses):
        if self.schedule.step == 3:
            raise KeyboardInterrupt
        look(self, losses)

    monkeypatch.setattr(FastPitchTrainer, "step", noted)
    train(corpus, tmp_path / "whole", tiny_voice, *words)
    whole, look = list(seen), Tuning.look
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Tuning, "look", killed)
        train(corpus, tmp_path / "twice", tiny_voice, *words)
    train(corpus, tmp_path / "twice", tiny_voice, *words, "--resume")
    assert seen[4:] == whole[:3] + whole[2:]  # the third was not saved
    runs = [tmp_path / name / "fastpitch" for name in ("whole", "twice")]
    wanted, ours = (torch.load(run / "last.pt", weights_only=True) for run in runs)
    assert ours["schedule"]["step"] == wanted["schedule"]["step"] == 4
    assert torch.equal(ours["random"]["cpu"], wanted["random"]["cpu"])
    assert ours["tuning"]["best"] == pytest.approx(wanted["tuning"]["best"], rel=1e-3)
    before, again = (read_weights(run / "weights.safetensors") for run in runs)
    assert all(np.allclose(again[name], before[name], atol=5e-3) for name in before)


def train_until_ctrl_c(corpus: Path, settings: TuningSettings, voice: Path) -> int:
    """The steps that are saved, of a run where it was pressed during the first one."""
    pressed: list[float] = []

    def press(share: float) -> None:
        if not pressed:
            signal.raise_signal(signal.SIGINT)
        pressed.append(share)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a shell's background
    with pytest.raises(KeyboardInterrupt):
        fine_tune.fine_tune(corpus, settings, str(voice), learning_rate=0.001, progress=press)
    signal.signal(signal.SIGINT, before)
    return torch.load(settings.out / "fastpitch" / "last.pt", weights_only=True)["schedule"]["step"]


def test_ctrl_c_saves_the_step_that_is_going_on(corpus, tiny_voice, tmp_path):
    settings = TuningSettings(tmp_path / "run", steps=4, device="cpu")
    assert train_until_ctrl_c(corpus, settings, tiny_voice) == 1


@pytest.mark.slow
def test_two_processes_train_as_one_command(corpus, tiny_voice, trained_run, tmp_path, melforge, capsys):
    settings = TuningSettings(tmp_path / "run", steps=40, device="cpu,cpu")
    begun = train_until_ctrl_c(corpus, settings, tiny_voice)
    assert 0 < begun < 40 and capsys.readouterr().out.startswith("fastpitch on 2 x cpu: ")
    words = "--from", tiny_voice, "--device", "cpu,cpu", "-o", tmp_path / "run"
    status, out, errors = melforge("voice", "train", corpus, *words, "--steps", begun + 3, "--resume")
    assert (status, errors) == (0, "")
    assert out.count("12 utterances train") == out.count("held-out numbers from") == 1
    files, alone = (
        {path.name for path in run.glob("fastpitch/*")} for run in (tmp_path / "run", trained_run)
    )
    assert files == alone
    source = read_checkpoint(tmp_path / "run" / "fastpitch" / "weights.safetensors")
    assert source.speakers == ("ann", "ben") and f"step {begun + 3} " in out

    lacking = shutil.copytree(corpus, tmp_path / "lacking")
    (lacking / "wavs" / "u3.wav").unlink()
    status, _, errors = melforge("voice", "train", lacking, *words, "--steps", begun + 4, "--resume")
    assert status == 2 and errors.count("error: ") == errors.count("\n") == 1 and "u3.wav" in errors


def begun_with(source, speakers, means):
    """The driver of a run's start."""
    config, state = continued(source, speakers, means)
    weights = {name: value.numpy() for name, value in state.items()}
    settings = replace(source.settings, speakers=tuple(speakers), pitch_means=(), pitch_deviations=())
    begun = replace(source, config=config, settings=settings, given_state=weights, graphs={}, networks={})
    return make_driver(begun, "torch", "cpu")


def test_at_the_start_each_speaker_is_the_voice(tiny_voice):
    source = load_voice(tiny_voice).source("fastpitch")
    ids = [np.arange(1, 12)]
    wanted = make_driver(source, "torch", "cpu").synthesise(ids).mel
    driver = begun_with(source, SPEAKERS, [220.0, 140.0])
    for speaker in (0, 1):
        np.testing.assert_array_equal(driver.synthesise(ids, Controls(speaker=speaker)).mel, wanted)
    np.testing.assert_array_equal(begun_with(source, [], [220.0]).synthesise(ids).mel, wanted)


@pytest.mark.slow
def test_a_british_corpus_is_learnt_from_an_american_voice(tiny_voice, tmp_path):
    folder = write_corpus(tmp_path / "corpus", speakers=())
    labels = load_labels(folder)
    labels.frontend, symbols = "english-gb", get_frontend("english-gb").symbols
    save_labels(folder, labels)
    source = load_voice(tiny_voice).source("fastpitch")
    config, state = continued(source, [], [200.0], symbols)
    table = state["encoder.word_emb.weight"]
    assert config.n_symbols == len(table) == len(symbols)
    assert torch.equal(table[symbols.index("@OU1")], table[symbols.index("@OW1")])
    np.testing.assert_array_equal(table[: source.config.n_symbols], source.state["encoder.word_emb.weight"])

    train(folder, tmp_path / "run", tiny_voice, "--steps", "1")
    voice_make.main([str(tmp_path / "ann"), "--run", str(tmp_path / "run"), "--ear", "none"])
    made = load_voice(tmp_path / "ann")
    assert (made.source("fastpitch").frontend.name, made.language) == ("english-gb", "en-GB")
    assert TextToSpeech.load(voice=tmp_path / "ann", device="cpu").speak("A bath far away.").seconds > 0.1
    american = write_corpus(tmp_path / "american", speakers=())
    train(american, tmp_path / "back", tmp_path / "ann", "--steps", "1")
    weights = read_checkpoint(tmp_path / "back" / "fastpitch" / "weights.safetensors")
    with warnings.catch_warnings(action="error"):
        assert weights.config.n_symbols == len(weights.build_frontend().symbols)


@pytest.fixture
def two_speakers(tiny_voice):
    """Of ann with 220 Hz and ben with 110."""
    source = load_voice(tiny_voice).source("fastpitch")
    config, state = continued(source, SPEAKERS, [220.0, 110.0])
    rows = np.random.default_rng(0).standard_normal(state["speaker_emb.weight"].shape).astype(np.float32)
    weights = {name: value.numpy() for name, value in state.items()} | {"speaker_emb.weight": rows}
    units = {"pitch_means": (220.0, 110.0), "pitch_deviations": (50.0, 25.0)}
    settings = replace(source.settings, speakers=SPEAKERS, **units)
    return replace(source, config=config, settings=settings, given_state=weights, graphs={}, networks={})


@pytest.mark.parametrize(
    ("speakers", "means", "wanted"),
    [
        (["ben", "cy"], [200.0, 190.0], [1, 0]),  # one that is there keeps its row, whatever its pitch
        (["cy", "di"], [100.0, 900.0], [1, 0]),
        ([], [130.0], [1]),
        (["cy"], [170.0], [0]),
    ],
)
def test_new_speakers_begin_as_that_of_the_nearest_pitch(two_speakers, speakers, means, wanted):
    ids = [np.arange(1, 12)]
    driver, start = begun_with(two_speakers, speakers, means), make_driver(two_speakers, "torch", "cpu")
    for speaker, row in enumerate(wanted):
        ours, theirs = (d.synthesise(ids, Controls(speaker=n)) for d, n in ((driver, speaker), (start, row)))
        np.testing.assert_allclose(ours.mel, theirs.mel, atol=1e-5)


def test_a_new_speaker_begins_as_the_mean_where_none_has_a_pitch_of_its_own(two_speakers):
    bare = replace(two_speakers.settings, pitch_means=(), pitch_deviations=())
    _, state = continued(replace(two_speakers, settings=bare), ["ann", "cy"], [1.0, 1.0])
    rows = two_speakers.state["speaker_emb.weight"]
    np.testing.assert_allclose(state["speaker_emb.weight"], [rows[0], rows.mean(0)], rtol=1e-6)


def test_a_corpus_takes_the_models_numbers_and_units_of_pitch(corpus):
    loaded = Utterances(corpus, MelContract(), torch.device("cpu"))
    means, deviations = loaded.pitch_units
    assert means.tolist() == pytest.approx([220, 140], abs=5) and deviations.tolist() == pytest.approx(
        [10] * 2, abs=2
    )
    hertz = loaded.pitch * deviations[loaded.speaker, None] + means[loaded.speaker, None]
    inside = loaded.pitch != 0
    loaded.measure_pitch_by([200.0], [50.0])
    torch.testing.assert_close((loaded.pitch * 50 + 200)[inside], hertz[inside])
    loaded.number_speakers(("ben", "cy", "ann"))
    assert loaded.speaker.tolist() == [2, 0] * 7
    loaded.measure_pitch_by([100.0, 1.0, 200.0], [10.0, 1.0, 20.0])
    again = (
        loaded.pitch * loaded.pitch_units[1, loaded.speaker, None]
        + loaded.pitch_units[0, loaded.speaker, None]
    )
    torch.testing.assert_close(again[inside], hertz[inside])
    with pytest.raises(InputError, match="speaker 'ben' is none of the model's: ann"):
        loaded.number_speakers(("ann",))


def test_each_speaker_has_lines_that_are_held_out():
    assert np.flatnonzero(held_out_utterances(np.zeros(40, int))).tolist() == [38, 39]
    assert np.flatnonzero(held_out_utterances(np.repeat([0, 1], (30, 50)))).tolist() == [29, 78, 79]


@pytest.mark.slow
def test_a_run_becomes_a_voice_that_speaks_as_both(trained_run, tiny_voice, tmp_path, monkeypatch, small_ear):
    check_at_small_sizes(monkeypatch)
    monkeypatch.setenv("MELFORGE_EARS", str(small_ear.parent))
    folder = tmp_path / "pair"
    voice_make.main([str(folder), "--run", str(trained_run), "--licence", "CC0", "--description", "Noise."])
    shutil.copytree(tiny_voice, tmp_path / "a")
    monkeypatch.setenv("MELFORGE_VOICES", str(tmp_path))
    assert list_voices() == ["a", "pair"] and fine_tune.widest_voice() == "pair"
    voice = load_voice(folder)
    assert voice.licence == "CC0" and list(voice.models) == ["fastpitch", "hifigan"]
    tts = TextToSpeech.load(voice=folder, device="cpu")
    ann, ben = (tts.speak("Glue the sheet.", Controls(speaker=name)) for name in SPEAKERS)
    assert not np.array_equal(ann.mels[0], ben.mels[0])
    card = (folder / "README.md").read_text()
    for part in (
        "Licence: CC0.",
        "Speakers: ann, ben",
        "- ann: ",
        "the voice tiny, whose licence is test",
        "heard by the ear small:",
        "| ann | 2 | 6 | 100.0 % |",  # an ear of random weights
        "| ben | 2 | 6 | ",
    ):
        assert part in card
    assert "Not measured" in scores(folder, ["Glue the sheet."], find_ear("none"))
    monkeypatch.setenv("MELFORGE_EARS", str(tmp_path / "none"))
    assert find_ear(None) is None
    assert "heard by the ear small" in scores(folder, ["Glue the sheet."], find_ear(str(small_ear)))
    assert "| fastpitch | " in card and "| mel L1 | " in card


def test_a_folder_without_a_run_and_a_voice_of_nothing_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"holds no weights\.safetensors: give the folder"):
        voice_make.main([str(tmp_path / "v"), "--run", str(tmp_path)])
    with pytest.raises(InputError, match="--checkpoint or --run is missing"):
        voice_make.main([str(tmp_path / "v")])


def test_an_ear_that_is_not_there_is_refused_before_the_work(trained_run, tmp_path):
    with pytest.raises(InputError, match="unknown ear 'nobody'"):
        voice_make.main([str(tmp_path / "v"), "--run", str(trained_run), "--ear", "nobody"])
    with pytest.raises(InputError, match="--ear is for the model card of --run"):
        voice_make.main([str(tmp_path / "v"), "--checkpoint", "x", "--ear", "nobody"])
    assert not (tmp_path / "v").exists()


def test_what_cannot_be_trained_is_refused(corpus, tiny_voice, trained_run, tmp_path):
    out = tmp_path / "run"
    with pytest.raises(FileNotFoundError, match=r"labels\.npz not found"):
        train(tmp_path / "nowhere", out, tiny_voice)
    short = write_corpus(tmp_path / "short", 5)
    with pytest.raises(InputError, match=r"short has 2\d s of speech: training needs 60 s at least"):
        train(short, out, tiny_voice)
    with pytest.raises(InputError, match=r"fastpitch holds a run: add --resume"):
        train(corpus, trained_run, tiny_voice)
    with pytest.raises(InputError, match="holds no run to go on with: leave --resume out"):
        train(corpus, out, tiny_voice, "--resume")
    (tmp_path / "begun" / "fastpitch").mkdir(parents=True)  # and saved nothing
    with pytest.raises(InputError, match="fastpitch is there: remove it, or give another folder"):
        train(corpus, tmp_path / "begun", tiny_voice)
    with pytest.raises(InputError, match="leave --resume out and give another folder"):
        train(corpus, tmp_path / "begun", tiny_voice, "--resume")
    with pytest.raises(InputError, match="unknown model to train 'tacotron2': available: fastpi"):
        train(corpus, out, tiny_voice, "--model", "tacotron2")
    for wrong, message in (
        ("-1", "a number above 0, not -1"),
        ("nan", "a number, not"),
        ("inf", "a number, not"),
    ):
        with pytest.raises(InputError, match=f"--minutes must be {message}"):
            train(corpus, out, tiny_voice, "--minutes", wrong)
    source = load_voice(tiny_voice).source("fastpitch")
    other = replace(source, mel=MelContract(sampling_rate=44_100, hop_length=512))
    with pytest.raises(InputError, match="is for 44100 Hz and a hop of 512 samples, but"):
        fine_tune.require_fitting(other, corpus, "english")
    other = replace(source, frontend=replace(source.frontend, name="fastpitch"))
    with pytest.raises(InputError, match="trained with the text frontend 'fastpitch', but"):
        fine_tune.require_fitting(other, corpus, "english")
    assert not out.exists()


def test_a_run_without_gain_ends_early(corpus, tiny_voice, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(FastPitchTrainer, "score", lambda self, values: 1.0)
    train(corpus, tmp_path, tiny_voice, "--steps", "30")
    state = torch.load(tmp_path / "fastpitch" / "last.pt", weights_only=True)
    assert state["schedule"]["step"] < 30 and "no gain in 6 looks" in capsys.readouterr().out
    kept = read_checkpoint(tmp_path / "fastpitch" / "weights.safetensors").state
    start = load_voice(tiny_voice).source("fastpitch").state
    assert all(np.array_equal(kept[name], start[name]) for name in start)


def test_durations_that_were_learned_are_kept_for_a_resumed_run(corpus, tiny_voice, tmp_path, monkeypatch):
    calls = []

    def briefly(model, corpus, seed):
        calls.append(seed)
        learn(model, corpus, 2, seed)

    monkeypatch.setattr("melforge.fastpitch.train.learn", briefly)
    words = "--align", "learned", "--seed", "5", "--steps"
    train(corpus, tmp_path, tiny_voice, *words, "1")
    durations = np.load(tmp_path / "fastpitch" / "durations.npy")
    own = load_labels(corpus)
    assert durations.sum() == own.frames.sum() and not np.array_equal(
        durations, np.concatenate(own.durations)
    )
    train(corpus, tmp_path, tiny_voice, *words, "2", "--resume")
    assert calls == [5]


@pytest.mark.slow
def test_a_vocoder_goes_on_from_its_folded_weights(corpus, tiny_voice, tmp_path):
    train(corpus, tmp_path, tiny_voice, "--model", "hifigan", "--steps", "1")
    folded, begun = (
        source.state["conv_pre.weight"]
        for source in (
            read_checkpoint(tmp_path / "hifigan" / "weights.safetensors"),
            load_voice(tiny_voice).source("hifigan"),
        )
    )
    np.testing.assert_allclose(folded, begun, atol=2e-3)
    assert len(list((tmp_path / "hifigan" / "samples").glob("*.wav"))) == 2


@pytest.mark.align
def test_a_vocoder_that_does_not_speak_a_pitch_is_told_beforehand(tmp_path, capsys):
    """The shipped one knows a woman's: of a recording played at half the pitch its copies are hoarse."""
    sound, rate = read_audio(Path(__file__).parents[1] / "data" / "heard" / "teacher.ogg")
    source = load_voice("hazel").source("fastpitch")
    (tmp_path / "wavs").mkdir()
    told = []
    for factor in (1.0, 2.0):
        soundfile.write(tmp_path / "wavs" / "a.wav", resample(sound, rate, round(RATE * factor)), RATE)
        labels = Labels(
            ["a"], ["a"], [np.ones(1, int)], [np.ones(1, int)], [np.ones(1, np.float32)], [], np.zeros(1, int)
        )
        fine_tune.tell_copies(tmp_path, labels, fine_tune.vocoder_beside("hazel", source))
        told.append(capsys.readouterr().out)
    assert "hifigan copies 1 held-out line with " in told[0] and "add --model" not in told[0]
    assert "does not speak this pitch well: add --model hifigan" in told[1]


@pytest.mark.align
def test_the_pitch_network_learns_that_of_recordings_first(tmp_path, capsys, monkeypatch):
    sound, rate = read_audio(Path(__file__).parents[1] / "data" / "heard" / "teacher.ogg")
    low = np.tile(resample(sound, rate, 2 * RATE), 3)
    frames = len(low) // HOP
    (tmp_path / "wavs").mkdir()
    soundfile.write(tmp_path / "wavs" / "a.wav", low, RATE)
    each = [np.ones(1, int)]
    labels = Labels(["a"], ["a"], each, [np.array([frames])], [np.ones(1, np.float32)], [], np.zeros(1, int))
    save_labels(tmp_path, labels)
    source = load_voice("hazel").source("hifigan")
    classes = HifiganConfig, MelContract, HifiganRecipe
    *_, recipe = load_hparams("hparams/hifigan/train_finetune.yaml", *classes, model="hifigan")
    monkeypatch.setitem(LESSONS, "cpu", 40)
    plan = TrainingPlan(source.config, source.mel, recipe)
    trainer = make_trainer(plan, tmp_path, RunSettings(tmp_path / "run", steps=1, device="cpu"), source)
    before, after = map(float, re.findall(r"[0-9.]+", capsys.readouterr().out.splitlines()[-1]))
    assert before > 4 and after < before / 4
    taught = trainer.averaged_model().pitch.state_dict()
    own = {
        name.removeprefix("pitch."): value
        for name, value in source.state.items()
        if name.startswith("pitch.")
    }
    assert all(not np.array_equal(taught[name], own[name]) for name in own)
    assert not any(value.requires_grad for value in trainer.model.pitch.parameters())

    def spoil(network, lessons, steps):
        for value in network.parameters() if steps else ():
            value.data.zero_()

    monkeypatch.setattr("melforge.hifigan.train.teach_pitch", spoil)
    trainer = make_trainer(plan, tmp_path, RunSettings(tmp_path / "run", steps=1, device="cpu"), source)
    kept = trainer.averaged_model().pitch.state_dict()
    assert "stays as it was" in capsys.readouterr().out
    assert all(np.array_equal(kept[name], own[name]) for name in own)
