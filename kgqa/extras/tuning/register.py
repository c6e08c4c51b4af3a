"""The command that tunes, and the function with which `kgqa reproduce` follows the protocol of a paper."""

from kgqa.cli.parsing import Command
from kgqa.util.registry import Extra

KEYS = ("metric", "dev", "test", "dev_path", "dev_split", "seed", "sets", "name")
NOTES = """Additional keys (docs/SWEEPS.md):
  tune.metric=    a score of metrics.json (em, f1, support_recall, …), judge or recall@K
  tune.dev=N      number of dev questions, sampled with tune.seed=0. Or set tune.dev_path=FILE or tune.dev_split=train
  tune.test=N     number of test questions to evaluate the choice on (default: all others)
  tune.sets=1,2   sets of few-shot examples, with one test run each
  tune.name=      folder name in outputs/sweeps (default: a hash of its cells)
  budget=         maximum cost, e.g. 2.50usd or 500000tokens"""

EXTRA = Extra(
    commands={
        "run": (
            Command(
                "tune",
                "tune values on dev questions, and evaluate the best ones on test questions",
                "kgqa tune method=ircot dataset=musique method.passages_per_step=2,4,6,8 tune.metric=f1 tune.dev=100",
                "kgqa.extras.tuning.command:tune",
                "key=value …  as for kgqa run -m. At least one key needs several values",
                (*(f"tune.{key}" for key in KEYS), "budget"),
                notes=NOTES,
            ),
        )
    },
    functions={"tuning": "kgqa.extras.tuning.tuning:Tuning.of"},
)
