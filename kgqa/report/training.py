"""The sections of trainings, bootstrap rounds, collected examples and verified questions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from kgqa.artifacts.examples import Collected
from kgqa.artifacts.metrics import Agreement, Costs, Estimate
from kgqa.artifacts.run import MADE_UP, SCRIPTED
from kgqa.artifacts.trained import Measured, Round, Rounds, Trained
from kgqa.artifacts.verdicts import VerificationOutcome
from kgqa.report.plots import Plot, Point, Series
from kgqa.report.run_report import agreement_section, dollars_text, figure, figures_section
from kgqa.report.section import Section
from kgqa.report.summary import calls_text, interval_text, tokens_text
from kgqa.util.text import pluralize

USE = {
    "LoraTraining": "roles.ROLE=+{name}",
    "Seq2SeqTraining": "roles.ROLE={base}:{folder}/model@transformers",
    "BiEncoderTraining": "retriever.encoder={folder}/encoder, ranker.model=, graph.encoder.model=",
}
FILTERS = {"backtracing": "KnowTrace*", "none": "Non-Backtracing"}  # names in KnowTrace's Figure 4
ROUND = ("round", "EM", "F1", "FA", "right answers", "examples", "evaluated in")
ROUND_TEXT = (
    "EM and F1: of the questions that are evaluated on, with 95 % bootstrap intervals; round 0 is the base model.",
    "FA: of the tokens of right answers, which the round before wrote, the percent that backtracing filters.",
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
        ("licences of the data", "; ".join(trained.examples.licences) or "not known"),
        ("made of", ", ".join(trained.examples.made_of) or "a file of texts"),
        ("use", f"`{use}`"),
        ("command", f"`{' '.join(trained.command)}`"),
    )
    text = f"A {trained.title} that kgqa has trained. If you pass it on, these licences apply."
    return [Section("", (), rows, (text,)), *training_sections(trained)]


def training_sections(trained: Trained) -> list[Section]:
    """Return the sections of a training in order of interest, without empty ones."""
    losses = {
        "first step": trained.losses.first,
        "last tenth of the steps": trained.losses.last,
        "lowest step": trained.losses.lowest,
        "held out, before": trained.losses.held_out_before,
        "held out, after": trained.losses.held_out_after,
    }
    text = (
        "On questions that were not used for training, with the 95 % paired bootstrap interval of the difference.",
        "Shares in percent, losses in nats.",
        *(f"{name}: {value:.1f}" for name, value in trained.baselines.items()),
    )
    header = ("figure", "before", "after", "difference", "examples")
    listed = [
        Section("Held-out examples", header, [_measured_row(row) for row in trained.measured], text),
        Section("Losses", (), [(name, loss_text(value)) for name, value in losses.items()]),
        Section("Examples", (), list(_examples(trained))),
        Section("Training", (), list(_training(trained))),
        Section("Prompt templates", ("template", "hash"), list(trained.examples.templates.items())),
        Section("Versions", (), list(trained.versions.items())),
        Section("Settings", ("key", "value", "source"), trained.settings),
    ]
    return [section for section in listed if section.rows]


def grid_section(rows: Sequence[tuple[str, float | None, str | None, str]]) -> Section:
    """Return the outcomes of `kgqa train -m`: values, held-out loss, error, folder; the chosen one first."""
    shown = [(values, f"failed: {error}" if error else loss_text(loss), folder) for values, loss, error, folder in rows]
    text = "The first one is chosen. Its loss is lower than it would be on other questions: measure it on new ones."
    return Section("Trainings by held-out loss", ("values", "held-out loss", "folder"), shown, (text,))


def loss_plot(name: str, series: Mapping[str, Sequence[tuple[int, float]]]) -> Plot:
    """Return the loss by step, and the held-out loss if it was measured."""
    lines = [
        Series(title, [Point(step, value) for step, value in series[key]], colour)
        for colour, (key, title) in enumerate((("loss", "loss"), ("held_out_loss", "held-out loss")))
        if series.get(key)
    ]
    return Plot(f"Loss of {name}", "step", "nats", lines)


def loss_text(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def _measured_row(row: Measured) -> tuple[str, ...]:
    digits = 1 if row.percent else 3
    difference = f"{row.difference:+.{digits}f} [{row.low:+.{digits}f}, {row.high:+.{digits}f}]"
    return row.name, f"{row.before:.{digits}f}", f"{row.after:.{digits}f}", difference, f"{row.n:,}"


def _examples(trained: Trained) -> Iterator[tuple[str, str]]:
    examples = trained.examples
    yield "to train on", f"{pluralize(examples.count, 'example')} of {pluralize(examples.questions, 'question')}"
    held_out = pluralize(len(examples.held_out), "question")
    yield "held out", f"{pluralize(examples.held_out_count, 'example')} of {held_out}"
    yield "left out of both, too long", figure(examples.left_out)
    yield "cut in both", figure(examples.cut)
    yield "sha256 of the texts", examples.sha256


def _training(trained: Trained) -> Iterator[tuple[str, str]]:
    yield "steps", f"{trained.steps:,} ({trained.epochs:g} epochs)"
    yield "tokens", figure(trained.tokens)
    yield "time", f"{trained.seconds / 3600:.2f} hours, {trained.tokens / max(trained.seconds, 1e-9):,.0f} tokens/s"
    yield "device", trained.device + (f", {trained.processes} processes" if trained.processes > 1 else "")
    yield "peak memory", f"{trained.peak_memory / 1e9:.1f} GB"
    yield "trainable parameters", f"{trained.trainable:,} of {trained.parameters:,}"
    yield "precision", trained.precision
    yield "seed", str(trained.seed)
    if trained.rank is not None:
        yield "rank", str(trained.rank)
    yield "kgqa", " ".join(filter(None, [trained.kgqa.version, trained.kgqa.commit or ""]))


def rounds_sections(rounds: Rounds) -> list[Section]:
    """Return a table of the rounds for each filter."""
    first, others = rounds.rounds[0], rounds.rounds[1:]
    sections = []
    for filter_ in dict.fromkeys(one.filter for one in others) or ("",):
        rows = [_round_row(one) for one in (first, *others) if one.filter in ("", filter_)]
        sections.append(Section(FILTERS.get(filter_, filter_) or "Rounds", ROUND, rows, ROUND_TEXT))
    return sections


def rounds_plot(rounds: Rounds) -> Plot:
    """Return EM and FA by round, in percent: KnowTrace's Figure 4."""
    first, others = rounds.rounds[0], rounds.rounds[1:]
    series = []
    for colour, filter_ in enumerate(dict.fromkeys(one.filter for one in others) or [""]):
        chosen = [one for one in others if one.filter == filter_]
        label = f", {FILTERS.get(filter_, filter_)}" if filter_ else ""
        series.append(Series(f"EM{label}", _points((one.number, one.em) for one in (first, *chosen)), colour))
        filtered = _points((one.number, one.filtered) for one in chosen)
        series.append(Series(f"FA{label}", filtered, colour, hollow=True))
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
        _labels(collected),
        Section("Dropped", ("why", "count"), [(reason, f"{count:,}") for reason, count in reasons]),
        Section("Made by", ("", "instances"), [(who, f"{count:,}") for who, count in collected.made_by.items()]),
        cost_section(collected.cost),
        Section("Figures", (), [(name, figure(value)) for name, value in collected.figures.items()]),
    ]
    return [section for section in sections if section.rows]


def _labels(collected: Collected) -> Section:
    """Return the number of examples of each label by step."""
    numbers = sorted({number for counts in collected.labels.values() for number in counts})
    header = ("label", "instances", "percent", "held out", *(f"place {number}" for number in numbers))
    rows = []
    for label, counts in collected.labels.items():
        count = sum(counts.values())
        share = 100 * count / max(collected.examples, 1)
        cells = (f"{counts.get(number, 0):,}" for number in numbers)
        rows.append((label, f"{count:,}", f"{share:.1f}", f"{collected.held_out_labels.get(label, 0):,}", *cells))
    return Section("Labels and places", header, rows)


def verification_sections(
    outcome: VerificationOutcome, agreements: Mapping[str, Agreement], published: Published | None
) -> list[Section]:
    """Return the sections of `kgqa data verify`: our counts next to SAFE's Table 2, graph figures, agreement."""
    listed = [
        _verified(outcome, published),
        _matched_lines(outcome),
        figures_section("Graphs, per question", outcome.figures),
        Section("Oddities", ("flag", "count"), [(name, f"{count:,}") for name, count in outcome.flags.items()]),
        cost_section(outcome.cost),
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
    text = ["Ratio: of noise among all questions; brackets: a 95 % bootstrap interval."]
    if outcome.unverified:
        failed = f", {pluralize(outcome.failed, 'question')} among them failed" if outcome.failed else ""
        text.append(f"Unverified: no decision, so neither valid nor noise{failed}.")
    if outcome.swapped:
        text.append("Each question was given another one's answer: whatever is valid here should not be.")
    alarm = MADE_UP if outcome.by.endswith(f"@{SCRIPTED}") else ""
    return Section("Questions", ("", "Total", "Noise", "Valid", "Unverified", "Ratio"), rows, text, alarm)


def _matched_lines(outcome: VerificationOutcome) -> Section:
    listed, rows = outcome.listed, list[tuple[str, str]]()
    if listed is not None:
        rows = [
            ("lines", figure(listed.lines)),
            ("distinct questions", figure(listed.distinct)),
            ("matched", figure(listed.matched)),
            ("unmatched", figure(listed.unmatched)),
            *(("unmatched, e.g.", text) for text in listed.examples),
        ]
    return Section("The list", (), rows)


def cost_section(cost: Costs | None) -> Section:
    if cost is None:
        return Section("Cost", (), ())
    method, paid = cost.method, cost.paid
    rows = [
        ("model calls", calls_text(method, paid)),
        ("tokens", tokens_text(method)),
        ("model seconds", f"{method.seconds:,.1f}, {paid.seconds:,.1f} paid"),
        ("USD", dollars_text(method.usd)),
    ]
    return Section("Cost", (), rows)
