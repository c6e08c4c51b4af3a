"""The commands of training, and the function with which `kgqa reproduce` finds a training."""

from kgqa.cli.parsing import Command
from kgqa.util.registry import Extra

TRAIN_NOTES = """train.examples= is a number, a folder of kgqa collect, or a file with one example per line: {"prompt",
"completion"} as the model sees them, or {"anchor", "positive", "negatives"}. dry_run=true shows the number of steps and
tokens. Run the same command again to continue an interrupted training. See docs/TRAINING.md."""
BOOTSTRAP_NOTES = """  train.base=       the base model that is trained (default: model=)
  dry_run=true      show calls, tokens and time of the runs of a round, without calls or training

Each round answers the training questions with the adapters of the previous round, collects the steps that led to
correct answers, trains one adapter per role on the base model, and evaluates the adapters. See docs/TRAINING.md."""

COMMANDS = (
    Command(
        "collect",
        "collect training examples from questions or finished runs",
        """kgqa collect kgp dataset=hotpotqa,musique dataset.split=train
        kgqa collect safe dataset=2wiki collect.teacher=rules limit=200
        kgqa collect safe dataset=demo collect.teacher=model roles.teacher=gpt_oss_120b@vllm limit=3 dry_run=true
        kgqa collect knowtrace --from last""",
        "kgqa.extras.training.command:collect",
        """
        RECIPE         a choice of collect=, see below
        [key=value …]  as for kgqa run, collect.KEY=VALUE, and dataset=A,B for several datasets (default: those of \
            the recipe). limit= and sample= apply to each
        --from RUN …   collect from the replies of this run (recipe safe: from its hard cases). Can be repeated
        --prompts      with dry_run=true: also print the first teacher prompt of each template""",
        explains="collect",
    ),
    Command(
        "train",
        "train an adapter, a model or an encoder on collected examples",
        """kgqa train kgp_llama train.base=smollm2_135m train.examples=64 train.epochs=2 dry_run=true
        kgqa train safe_evaluator train.processes=4""",
        "kgqa.extras.training.command:train",
        """
        RECIPE         a choice of train=, see below
        [key=value …]  train.KEY=VALUE, dry_run=true, tracker=. To collect examples: dataset=, limit=, \
            collect.KEY=VALUE""",
        explains="train",
        notes=TRAIN_NOTES,
    ),
    Command(
        "bootstrap",
        "train a method on its own correct answers in several rounds, and evaluate each",
        """kgqa bootstrap dataset=hotpotqa model=llama3_8b_instruct engine=vllm bootstrap.rounds=4 dry_run=true
        kgqa bootstrap dataset=2wiki bootstrap.filter=none bootstrap.sample=1000 train.epochs=1""",
        "kgqa.extras.training.command:bootstrap",
        "key=value …  as for kgqa run, for the evaluation questions. bootstrap.KEY=VALUE, train.KEY=VALUE and "
        "collect.KEY=VALUE apply to each round",
        explains="bootstrap",
        notes=BOOTSTRAP_NOTES,
    ),
    Command(
        "models trained",
        "list, show and export trained models",
        """kgqa models trained
        kgqa models trained kgp_llama --gguf""",
        "kgqa.extras.training.command:trained",
        """
        [NAME]      show the metrics and examples of a trained model: its name, NAME/HASH or folder
        --gguf      export the adapter NAME in the format of llama.cpp
        --out PATH  output path of the export (default: next to the weights)""",
    ),
)
EXTRA = Extra(
    commands={"train": COMMANDS},
    functions={"training_folder": "kgqa.extras.training.train.request:find_folder"},
)
