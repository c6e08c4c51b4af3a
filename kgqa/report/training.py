"""The sections of trainings, bootstrap rounds, collected examples and verified questions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kgqa.artifacts.examples import Collected
from kgqa.artifacts.metrics import Agreement, Estimate
from kgqa.artifacts.run import MADE_UP, SCRIPTED
from kgqa.artifacts.trained import Round, Rounds, Trained
from kgqa.artifacts.verdicts import VerificationOutcome
from kgqa.report.plots import Plot, Point, Series
from kgqa.report.run_report import agreement_section, figure, figures_section
from kgqa.report.section import Section
from kgqa.report.summary import cost_rows, interval_text
from kgqa.util.text import duration, pluralize

USE = {
    "LoraTraining": "roles.ROLE=+{name}",
    "Seq2SeqTraining": "roles.ROLE={base}:{folder}/model@transformers",
    "BiEncoderTraining": "retriever.encoder={folder}/encoder, ranker.model=, graph.encoder.model=",
}
EXAMPLES = {  # fields by name
    "examples to train on": "count", "questions to train on": "questions", "held-out examples": "held_out_count",
    "skipped: too long": "left_out", "truncated": "cut", "sha256 of the texts": "sha256",
}  # fmt: skip
TRAINING = ("steps", "epochs", "tokens", "device", "processes", "trainable", "parameters", "precision", "seed", "rank")
FILTERS = {"backtracing": "KnowTrace*", "none": "Non-Backtracing"}  # names in KnowTrace's Figure 4
ROUND = ("round", "EM", "F1", "FA", "right answers", "examples", "evaluated in")
ROUND_TEXT = (
    "EM and F1: on the evaluation questions, with 95 % bootstrap intervals. Round 0 is the base model.",
    "FA: percentage of the tokens in right answers of the previous round that backtracing removes.",
)


class Published(NamedTuple):
    """The counts of the same dataset and split in SAFE's Table 2."""

    total: float
    noise: float
    percent: float


def card_sections(trained: Trained) -> list[Section]:
    """Return the sections of the model card, README.md."""
    use = USE[trained.kind].format(name=trained.name, base=trained.base, folder="FOLDER")
    rows = (
        ("base", f"{trained.base} (sha256 {trained.base_sha256[:12]})"),
        ("licence of the base", trained.base_licence or "unknown: see the source"),
        ("licences of the data", ", ".join(trained.examples.licences) or "unknown"),
        ("made of", ", ".join(trained.examples.made_of) or "a file of texts"),
        ("use", f"`{use}`"),
        ("command", f"`{' '.join(trained.command)}`"),
    )
    text = f"A {trained.title} that kgqa has trained. If you pass it on, these licences apply."
    return [Section("", (), rows, (text,)), *training_sections(trained)]


def training_sections(trained: Trained) -> list[Section]:
    """Return the sections of a training, without empty ones."""
    losses = [(name.replace("_", " "), f"{value:.4f}") for name, value in trained.losses if value is not None]
    used = {"time": duration(trained.seconds), "peak memory": f"{trained.peak_memory / 10**9:.1f} GB"}
    text = (
        "Replies to prompts of questions that were not used for training, with the 95 % bootstrap interval.",
        *(f"{name}: {value:.1f}" for name, value in trained.baselines.items()),
    )
    measured = [(name, interval_text(score), f"{score.n:,}") for name, score in trained.measured.items()]
    listed = [
        Section("Held-out examples", ("figure", "percent", "examples"), measured, text),
        Section("Losses", (), losses),
        figures_section("Examples", {name: getattr(trained.examples, key) for name, key in EXAMPLES.items()}),
        figures_section("Training", {**used, **{name: getattr(trained, name) for name in TRAINING}}),
        Section("Prompt templates", ("template", "hash"), list(trained.examples.templates.items())),
        Section(
            "Versions", (), [("kgqa", f"{trained.kgqa.version} {trained.kgqa.commit or ''}"), *trained.versions.items()]
        ),
        Section("Settings", ("key", "value", "source"), trained.settings),
    ]
    return [section for section in listed if section.rows]


def loss_plot(name: str, series: Mapping[str, Sequence[tuple[int, float]]]) -> Plot:
    """Return the loss by step, and the held-out loss if it was measured."""
    lines = [
        Series(title, [Point(step, value) for step, value in series[key]], colour)
        for colour, (key, title) in enumerate((("loss", "loss"), ("held_out_loss", "held-out loss")))
        if series.get(key)
    ]
    return Plot(f"Loss of {name}", "step", "nats", lines)


def rounds_section(rounds: Rounds) -> Section:
    """Return a table of the rounds."""
    return Section(FILTERS[rounds.filter], ROUND, [_round_row(one) for one in rounds.rounds], ROUND_TEXT)


def rounds_plot(rounds: Rounds) -> Plot:
    """Return EM and FA by round, in percent: KnowTrace's Figure 4."""
    name = FILTERS[rounds.filter]
    series = [
        Series(f"EM, {name}", _points((one.number, one.em) for one in rounds.rounds), 0),
        Series(f"FA, {name}", _points((one.number, one.filtered) for one in rounds.rounds[1:]), 0, hollow=True),
    ]
    return Plot(rounds.title, "round", "percent", series)


def _points(estimates: Iterable[tuple[int, Estimate]]) -> list[Point]:
    return [Point(number, score.mean, score.low, score.high) for number, score in estimates if score.mean is not None]


def _round_row(one: Round) -> tuple[str, ...]:
    right = f"{one.right:,} of {one.asked:,}" if one.run else "–"
    kept = ", ".join(f"{role} {count:,}" for role, count in one.kept.items()) or "–"
    return (str(one.number), *map(interval_text, (one.em, one.f1, one.filtered)), right, kept, one.dev)


def example_sections(collected: Collected) -> list[Section]:
    """Return the sections of collected examples (SAFE's Table 7), without empty ones."""
    rows = [(name, f"{row.examples:,}", f"{row.questions:,}") for name, row in collected.datasets.items()]
    total = ("total", f"{collected.examples:,}", f"{collected.questions:,}")
    held_out = f"{pluralize(len(collected.held_out), 'question')} held out, with all their examples."
    reasons = sorted(collected.dropped.items(), key=lambda item: (-item[1], item[0]))
    sections = [
        Section("Examples", ("dataset", "instances", "unique questions"), [*rows, total], (held_out,)),
        Section(
            "Labels",
            ("label", "instances", "percent", "held out"),
            [_label_row(collected, label, count) for label, count in collected.labels.items()],
        ),
        Section("Dropped", ("why", "count"), [(reason, f"{count:,}") for reason, count in reasons]),
        Section("Made by", ("", "instances"), [(who, f"{count:,}") for who, count in collected.made_by.items()]),
        Section("Cost", (), list(cost_rows(collected.cost))),
        Section("Figures", (), [(name, figure(value)) for name, value in collected.figures.items()]),
    ]
    return [section for section in sections if section.rows]


def _label_row(collected: Collected, label: str, count: int) -> tuple[str, ...]:
    share = 100 * count / collected.examples
    return label, f"{count:,}", f"{share:.1f}", f"{collected.held_out_labels.get(label, 0):,}"


def verification_sections(
    outcome: VerificationOutcome, agreements: Mapping[str, Agreement], published: Published | None
) -> list[Section]:
    """Return the sections of `kgqa data verify`: our counts next to SAFE's Table 2, graph figures, agreement."""
    listed = [
        _verified(outcome, published),
        figures_section("Graphs, per question", outcome.figures),
        Section("Oddities", ("flag", "count"), [(name, f"{count:,}") for name, count in outcome.flags.items()]),
        Section("Cost", (), list(cost_rows(outcome.cost))),
        *(agreement_section(f"Agreement with {name}", ("here", "there"), found) for name, found in agreements.items()),
    ]
    return [section for section in listed if section.rows]


def _verified(outcome: VerificationOutcome, published: Published | None) -> Section:
    share = outcome.noise_percent
    interval = "" if share.low is None or share.high is None else f" [{share.low:.2f}, {share.high:.2f}]"
    percent = "–" if share.mean is None else f"{share.mean:.2f} %{interval}"
    counts = (outcome.questions, outcome.noise, outcome.valid, outcome.unverified)
    rows = [(outcome.name, *(f"{count:,}" for count in counts), percent)]
    if published:
        total, noise = f"{published.total:,.0f}", f"{published.noise:,.0f}"
        rows.append(("SAFE, Table 2", total, noise, "–", "–", f"{published.percent:.2f} %"))
    text = ["Ratio: noise among all questions, with its 95 % bootstrap interval in brackets."]
    if outcome.unverified:
        failed = f", {pluralize(outcome.failed, 'question')} among them failed" if outcome.failed else ""
        text.append(f"Unverified: no decision, so neither valid nor noise{failed}.")
    if outcome.swapped:
        text.append("Each question has the answer of another one, so none should be valid.")
    alarm = MADE_UP if outcome.by.endswith(f"@{SCRIPTED}") else ""
    return Section("Questions", ("", "Total", "Noise", "Valid", "Unverified", "Ratio"), rows, text, alarm)
