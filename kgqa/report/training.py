"""Build the curves, the report and the model card of a training. The card is built from the manifest only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kgqa.artifacts.schema import Number
from kgqa.artifacts.trained import Measured, Trained
from kgqa.report.content import Section, figure
from kgqa.report.markdown import document
from kgqa.report.plots import Plot, Point, Series, svg
from kgqa.util.text import pluralize

GIGABYTE = 1e9
USE = {
    "LoraTraining": "roles.ROLE=+{name}",
    "Seq2SeqTraining": "roles.ROLE={base}:{folder}/model@transformers",
    "BiEncoderTraining": "retriever.encoder={folder}/encoder, ranker.model=, graph.encoder.model=",
}


def card(trained: Trained) -> str:
    """Return README.md of the folder."""
    use = USE[trained.kind].format(name=trained.name, base=trained.base, folder="FOLDER")
    opening = Section(
        "",
        (),
        (
            ("base", f"{trained.base} (sha256 {trained.base_sha256[:12]})"),
            ("licence of the base", trained.base_licence or "not known: see where it is from"),
            ("licences of the data", "; ".join(trained.examples.licences) or "not known"),
            ("made of", ", ".join(trained.examples.made_of) or "a file of texts"),
            ("use", f"`{use}`"),
            ("command", f"`{' '.join(trained.command)}`"),
        ),
        (f"A {trained.title} that kgqa has trained. If you pass it on, these licences apply.",),
    )
    return document(trained.name, [opening, *sections(trained)])


def sections(trained: Trained) -> list[Section]:
    """Return the sections in order of interest; what the training has no figures for is left out."""
    listed = [
        Section(
            "Held-out examples",
            ("figure", "before", "after", "difference", "examples"),
            [_measure(row) for row in trained.measured],
            (
                "Of questions that nothing was trained on; the difference with its 95 % paired bootstrap interval.",
                "Shares in percent, losses in nats.",
                *(f"{name}: {value:.1f}" for name, value in trained.baselines.items()),
            ),
        ),
        Section("Losses", (), [(name, figure_of(value)) for name, value in _losses(trained)]),
        Section("Examples", (), list(_examples(trained))),
        Section("Training", (), list(_training(trained))),
        Section("Prompt templates", ("template", "hash"), list(trained.examples.templates.items())),
        Section("Versions", (), list(trained.versions.items())),
        Section("Settings", ("key", "value", "source"), trained.settings),
    ]
    return [section for section in listed if section.rows]


def grid_section(rows: Sequence[tuple[str, float | None, str | None, str]]) -> Section:
    """Show the outcomes of `kgqa train -m`: values, held-out loss, error, folder; the chosen one first."""
    shown = [(values, f"failed: {error}" if error else figure_of(loss), folder) for values, loss, error, folder in rows]
    text = "The first one is chosen. Its loss is lower than it would be on other questions: measure it on new ones."
    return Section("Trainings by held-out loss", ("values", "held-out loss", "folder"), shown, (text,))


def curves_svg(name: str, series: Mapping[str, Sequence[tuple[int, float]]]) -> str:
    """Return a plot of the loss by step, and of the held-out loss if it was measured."""
    shown = [("loss", "loss", 0), ("held_out_loss", "held-out loss", 1)]
    lines = [
        Series(title, [Point(step, value) for step, value in series[key]], colour)
        for key, title, colour in shown
        if series.get(key)
    ]
    return svg(Plot(f"Loss of {name}", "step", "nats", lines))


def report(trained: Trained, curves: str, confusion: Mapping[str, Mapping[str, int]]) -> str:
    """Return report.html: one file that needs no network."""
    from markupsafe import Markup

    from kgqa.report.page import page

    shown = [*sections(trained)]
    if confusion:
        shown.insert(1, _confusion(confusion))
    return page(
        "curves.html.j2",
        ["report.css", "sweep.css"],
        command=" ".join(trained.command),
        heading="Losses by step",
        title=f"{trained.name}: {trained.title} on {trained.base}",
        curves=Markup(curves),  # noqa: S704 - escaped by svg
        sections=shown,
    )


def _confusion(table: Mapping[str, Mapping[str, int]]) -> Section:
    """Return `table`: meant → said → how often."""
    said = sorted({name for row in table.values() for name in row})
    rows = [(meant, *(figure(row.get(name, 0)) for name in said)) for meant, row in table.items()]
    header = ("meant", *(f"said {name}" if name else "no verdict" for name in said))
    return Section("Labels after the training", header, rows)


def figure_of(value: Number | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def _measure(row: Measured) -> tuple[str, ...]:
    digits = 1 if row.percent else 3
    shown = f"{row.difference:+.{digits}f} [{row.low:+.{digits}f}, {row.high:+.{digits}f}]"
    return row.name, f"{row.before:.{digits}f}", f"{row.after:.{digits}f}", shown, f"{row.n:,}"


def _losses(trained: Trained) -> Iterator[tuple[str, Number | None]]:
    losses = trained.losses
    yield "first step", losses.first
    yield "last tenth of the steps", losses.last
    yield "lowest step", losses.lowest
    yield "held out, before", losses.held_out_before
    yield "held out, after", losses.held_out_after


def _examples(trained: Trained) -> Iterator[tuple[str, str]]:
    told = trained.examples
    yield "to train on", f"{pluralize(told.count, 'example')} of {pluralize(told.questions, 'question')}"
    yield "held out", f"{pluralize(told.held_out_count, 'example')} of {pluralize(len(told.held_out), 'question')}"
    yield "left out of both, too long", figure(told.left_out)
    yield "cut in both", figure(told.cut)
    yield "sha256 of the texts", told.sha256


def _training(trained: Trained) -> Iterator[tuple[str, str]]:
    yield "steps", f"{trained.steps:,} ({trained.epochs:g} epochs)"
    yield "tokens", figure(trained.tokens)
    yield "time", f"{trained.seconds / 3600:.2f} hours, {trained.tokens / max(trained.seconds, 1e-9):,.0f} tokens/s"
    yield "device", trained.device + (f", {trained.processes} processes" if trained.processes > 1 else "")
    yield "peak memory", f"{trained.peak_memory / GIGABYTE:.1f} GB"
    yield "trainable parameters", f"{trained.trainable:,} of {trained.parameters:,}"
    yield "precision", trained.precision
    yield "seed", str(trained.seed)
    if trained.rank is not None:
        yield "rank", str(trained.rank)
    yield "kgqa", " ".join(filter(None, [trained.kgqa.version, trained.kgqa.commit or ""]))
