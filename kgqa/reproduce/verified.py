"""Read the counts of SAFE's Table 2 for a dataset."""

from __future__ import annotations

from kgqa.config.overrides import override_values
from kgqa.experiment.session.experiment import Experiment
from kgqa.report.verification import Published
from kgqa.reproduce.reading import load_table

TABLE = "safe/table2"


def read_published_counts(experiment: Experiment) -> Published | None:
    """Return None where the paper has none of this data set and split."""
    dataset, split = experiment.name("dataset"), experiment.config["dataset"].get("split")
    for cell in load_table(TABLE).cells:
        named = override_values(cell.overrides)
        if (named.get("dataset"), named.get("dataset.split", "dev")) == (dataset, split):
            total, noise, percent = (value.number if value else 0.0 for value in cell.values)
            return Published(total, noise, percent)
    return None
