"""The sections of trainings, bootstrap rounds and collected examples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kgqa.artifacts.examples import Collected
from kgqa.artifacts.metrics import Estimate
from kgqa.artifacts.trained import Round, Rounds, Trained
from kgqa.report.plots import Plot, Point, Series
from kgqa.report.run_report import figures_section
from kgqa.report.section import Section, Value
from kgqa.util.text import duration, pluralize, score_text

USE = {
    "LoraTraining": "roles.ROLE=+{name}",
    "Seq2SeqTraining": "roles.ROLE={base}:{folder}/model@transformers",
    "BiEncoderTraining": "retriever.encoder={folder}/encoder, ranker.model=, graph.encoder.model=",
}
EXAMPLES = {  # fields by name
    "examples to train on": "count", "questions to train on": "questions", "held-out examples": "held_out_count",
    "skipped: too long": "left_out", "truncated": "cut", "sha256 of the texts": "sha256",
}  # fmt: skip
TRAINING = (
    "steps",
    "epochs",
    "tokens",
    "device",
    "processes",
    "trainable",
    "parameters",
    "precision",
    "seed",
    "rank",
)
FILTERS = {"backtracing": "KnowTrace*", "none": "Non-Backtracing"}  # names in KnowTrace's Figure 4
ROUND = ("round", "EM", "F1", "FA", "right answers", "examples", "evaluated in")
ROUND_TEXT = (
    "EM and F1: on the evaluation questions, with 95 % intervals. Round 0 is the base model.",
    "FA: percentage of the tokens in right answers of the previous round that backtracing removes.",
)


def card_sections(trained: Trained) -> list[Section]:
    """Return the sections of the model card, README.md."""
    use = USE[trained.kind].format(name=trained.name, base=trained.base, folder="FOLDER")
    rows = (
        ("base", f"{trained.base} (sha256 {trained.base_sha256[:12]})"),
        ("license of the base", trained.base_licence or "unknown: see the source"),
        ("licenses of the data", ", ".join(trained.examples.licences) or "unknown"),
        ("made of", ", ".join(trained.examples.made_of) or "a file of texts"),
        ("use", f"`{use}`"),
        ("command", f"`{' '.join(trained.command)}`"),
    )
    text = f"A {trained.title} that kgqa has trained. If you pass it on, these licenses apply."
    return [Section("", (), rows, (text,)), *training_sections(trained)]


def training_sections(trained: Trained) -> list[Section]:
    """Return the sections of a training, without empty ones."""
    losses = {
        name.replace("_", " "): f"{value:.4f}"
        for name, value in trained.losses
        if value is not None
    }
    used = {
        "time": duration(trained.seconds),
        "peak memory": f"{trained.peak_memory / 10**9:.1f} GB",
    }
    text = (
        "Replies to prompts of questions that were not used for training, with the 95 % interval.",
        *(f"{name}: {score_text(value)}" for name, value in trained.baselines.items()),
    )
    measured = [(name, score, score.n) for name, score in trained.measured.items()]
    listed = [
        Section("Held-out examples", ("figure", "percent", "examples"), measured, text),
        Section("Losses", (), losses),
        figures_section(
            "Examples", {name: getattr(trained.examples, key) for name, key in EXAMPLES.items()}
        ),
        figures_section(
            "Training", {**used, **{name: getattr(trained, name) for name in TRAINING}}
        ),
        Section("Prompt templates", ("template", "hash"), trained.examples.templates),
        Section(
            "Versions",
            (),
            {"kgqa": f"{trained.kgqa.version} {trained.kgqa.commit or ''}", **trained.versions},
        ),
        Section("Settings", ("key", "value", "source"), trained.settings),
    ]
    return [section for section in listed if section.rows]


def loss_plot(name: str, series: Mapping[str, Sequence[tuple[int, float]]]) -> Plot:
    """Return the loss by step, and the held-out loss if it was measured."""
    lines = [
        Series(title, [Point(step, value) for step, value in series[key]], colour)
        for colour, (key, title) in enumerate(
            (("loss", "loss"), ("held_out_loss", "held-out loss"))
        )
        if series.get(key)
    ]
    return Plot(f"Loss of {name}", "step", "nats", lines)


def rounds_section(rounds: Rounds) -> Section:
    """Return a table of the rounds."""
    return Section(
        FILTERS[rounds.filter], ROUND, [_round_row(one) for one in rounds.rounds], ROUND_TEXT
    )


def rounds_plot(rounds: Rounds) -> Plot:
    """Return EM and FA by round, in percent: KnowTrace's Figure 4."""
    name = FILTERS[rounds.filter]
    series = [
        Series(f"EM, {name}", _points((one.number, one.em) for one in rounds.rounds), 0),
        Series(
            f"FA, {name}",
            _points((one.number, one.filtered) for one in rounds.rounds[1:]),
            0,
            hollow=True,
        ),
    ]
    return Plot(rounds.title, "round", "percent", series)


def _points(estimates: Iterable[tuple[int, Estimate]]) -> list[Point]:
    return [
        Point(number, score.mean, score.low, score.high)
        for number, score in estimates
        if score.mean is not None
    ]


def _round_row(one: Round) -> tuple[Value, ...]:
    right = f"{one.right:,} of {one.asked:,}" if one.run else "–"
    counts = ", ".join(f"{role} {count:,}" for role, count in one.kept.items()) or "–"
    return one.number, one.em, one.f1, one.filtered, right, counts, one.dev


def example_sections(collected: Collected) -> list[Section]:
    """Return the sections of collected examples (SAFE's Table 7), without empty ones."""
    rows = [(name, row.examples, row.questions) for name, row in collected.datasets.items()]
    total = ("total", collected.examples, collected.questions)
    held_out = (
        f"{pluralize(len(collected.held_out), 'question')} held out, with all their examples."
    )
    labels = [
        (
            label,
            count,
            score_text(100 * count / collected.examples),
            collected.held_out_labels.get(label, 0),
        )
        for label, count in collected.labels.items()
    ]
    reasons = sorted(collected.dropped.items(), key=lambda item: (-item[1], item[0]))
    sections = [
        Section(
            "Examples", ("dataset", "instances", "unique questions"), [*rows, total], (held_out,)
        ),
        Section("Labels", ("label", "instances", "percent", "held out"), labels),
        Section("Dropped", ("why", "count"), reasons),
        Section("Made by", ("", "instances"), collected.made_by),
        Section("Runs of the teacher", ("run",), [(run,) for run in collected.teacher]),
        Section("Figures", (), collected.figures),
    ]
    return [section for section in sections if section.rows]
