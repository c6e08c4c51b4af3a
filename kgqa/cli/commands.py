"""All commands of `kgqa`, by task in the order of the help.

To add one, add a `Command` here and write the function that it names. An extra declares its commands in its own
`register.py`. Only light modules of kgqa are imported here, so that help is fast.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any

from kgqa.cli.parsing import Command
from kgqa.config.overrides import SCORE_KEYS
from kgqa.errors import ConfigError, nearest
from kgqa.util.registry import list_exports, list_extras

SWEEP = """Keys of a sweep, a run per value of comma lists, choice(…), range(…) and glob(…) (docs/SWEEPS.md):
  sweep.name=      folder name in outputs/sweeps (default: a hash of its cells)
  budget=          maximum cost of the sweep, e.g. 2.50usd or 500000tokens
  repeats=         runs of each cell with other random seeds and few-shot sets, shown as one row (docs/REPEATS.md)
  hydra/launcher=  basic, joblib, submitit_local, submitit_slurm or ray. Its settings are hydra.launcher.KEY=…
  hydra/sweeper=   basic (every combination) or optuna (see docs/SWEEPS.md)

Set a key of a group as group.key=value, e.g. method.beam=3. Run the same command again to continue.
Exit codes: 0 done, 2 invalid input, more failed questions than max_failure_rate allows or a judge without verdicts,
3 the engine crashed, 130 interrupted."""
REPRODUCE = """Additional keys (docs/REPRODUCE.md):
  only=            only these rows and columns: names, parts of names or patterns, e.g. only=TRACE-Triple,MuSiQue
  dry_run=true     show the calls and the cells that cannot run on this machine, without making calls
  protocol=paper   follow the paper: tune on development questions, use its number of questions, average over its sets
                   of few-shot examples. short (default): the table's settings on the questions that limit= selects
  protocol.dev=    number of development questions, if fewer than in the paper
  protocol.test=   number of test questions, if fewer than in the paper
  margin=3         two values agree if they differ by at most this many points
  footing=shared   the same few-shot examples for all rows (knowtrace/table1)
  trained.NAME=    path of a trained model that a cell needs (default: the newest of kgqa train)
  make.KEY=        key for the commands that --make runs, e.g. make.train.base=smollm2_135m make.limit=200
  budget=          maximum cost, e.g. 2.50usd or 500000tokens. Run the same command with a higher one to continue.
  run_name=        folder of the report in outputs/reproduce/ID/ (default: a hash of its cells)
  hydra/launcher=  run several cells at once: joblib, submitit_slurm, … (docs/SWEEPS.md)
All other keys are those of kgqa run. They replace the table's values in every cell: limit=3
model=… ranker=… engine=…"""
TABLES = {
    "html": "tables and trace explorer (default)",
    "md": "the tables as Markdown",
    "csv": "one line per question",
    "latex": "the tables as LaTeX",
}
EXPORTS = {
    "jsonl": "predictions and calls, one row per line",
    "trec": "run.trec and qrels.trec: only ids and ranks",
    **{name: export.meaning for name, export in list_exports().items()},
}
_FORMATS = "\n".join(f"  {name:<5}  {meaning}" for name, meaning in {**TABLES, **EXPORTS}.items())
REPORT = f"""formats:
{_FORMATS}

All exports except trec contain questions, gold answers, passages and prompts. Keep them as private as your documents.
They do not contain API keys, passwords or command lines. docs/SHARING.md lists the programs that read them."""
JUDGES = """judges, judge=NAME (docs/JUDGES.md):
  three_way        a model: correct, incorrect or not attempted
  kgp, safe        a model, with the prompts of these papers
  panel            the majority of several models or forms (judge.members)
  faithful         a model: supported or not by the passages that the method used, without gold answers
  em, containment  these scores, without a model

A model judge needs model= and engine=, or server=URL. Add your own: kgqa new judge NAME"""
KG_IMPORT = """formats:
  hipporag  docs with extracted_triples, plain or gzipped
  openie    Stanford CoreNLP's JSON: sentences with openie and tokens
  jsonl     one passage per line with title, text and triples, or one triple per line with head, relation, tail, title
            and text
  tsv       one triple per line, below a header with head, relation, tail, text and optionally title"""
KG_EXPORT = """formats:
  jsonl    one passage per line with title, text and triples, as kg=imported reads it (default)
  tsv      one triple per line with head, relation, tail, title, text
  graphml  for Gephi, Cytoscape, networkx

jsonl and tsv contain the texts of the passages, graphml their titles: keep the file as private as they are."""
_CATALOG = "Use kgqa run --help, which lists methods, datasets and models"
# commands of other programs
OTHER_WORDS = {
    "version": "Use kgqa --version",
    "cache clear": "Use kgqa cache prune --yes",
    "judge": "Use kgqa evaluate RUN judge=NAME, or judge=NAME with kgqa run",
    "models download": "The first run downloads the weights: model=OWNER/NAME",
    "export …": "To export a run: kgqa report RUN --format csv",
    "sweep": "Use kgqa run -m with lists of values, such as method=trace,ircot",
    "list": _CATALOG,
    "methods": _CATALOG,
    "datasets": _CATALOG,
}
QUESTION_KEYS = ("dataset", "limit", "sample", "ids")
CALIBRATION_KEYS = ("labels", "other")

RUN_COMMANDS = (
    Command(
        "run",
        "run a method on the questions of a dataset, and score its answers",
        """kgqa run method=trace dataset=demo limit=3
        kgqa run -m method=trace,ircot dataset=demo limit=8""",
        "kgqa.cli.run:run",
        """
        key=value …     groups and keys of the experiment, see below
        -m, --multirun  run a sweep: models stay loaded, finished cells are skipped
        --cfg           only print the configuration, as YAML
        --prompts       with dry_run=true: also print the first prompt of each template""",
        ("sweep.name", "sweep.metric", "budget", "hydra/launcher", "hydra/sweeper"),
        explains="run",
        notes=SWEEP,
    ),
    Command(
        "evaluate",
        "score runs or predictions, run a judge, or calibrate a judge",
        """kgqa evaluate last judge=three_way model=smollm2_135m engine=llamacpp
        kgqa evaluate last --sheet 100 labels=labels.csv
        kgqa evaluate last judge=containment labels=labels.csv
        kgqa evaluate --predictions predictions.json dataset=hotpotqa
        kgqa evaluate last --calibrate labels=labels.csv other=second""",
        "kgqa.cli.score:evaluate",
        f"""
        RUN …          runs or sweeps (last: the last finished run or sweep), or with --predictions files of \
            predictions
        [key=value …]  {", ".join(SCORE_KEYS)} (with --predictions also {", ".join(QUESTION_KEYS)}), \
            labels=FILE.csv (question_id, correct, run) that correct the accuracy by the judge
        --predictions  score files of other programs: HotpotQA's, 2Wiki's or MuSiQue's format, or JSON lines
        --sheet N      write a random sample of N answers of each run to labels=FILE.csv, to be labeled
        --checks       also measure the judge's consistency, with two more calls per answer
        --calibrate    compare the saved verdicts of a judged run with EM and containment, with labels=FILE.csv, or \
            with other=FOLDER of another judge's verdicts
        --subset       score only the questions in the file""",
        (*SCORE_KEYS, *QUESTION_KEYS, *CALIBRATION_KEYS),
        only_own=True,
        notes=JUDGES,
    ),
    Command(
        "reproduce",
        "reproduce a paper's table or figure, with its values next to ours",
        """kgqa reproduce trace/table1 limit=5 dry_run=true
        kgqa reproduce ircot/table4 protocol=paper --plan""",
        "kgqa.cli.reproduce:reproduce",
        """
        [ID]           id of a table or figure, e.g. trace/table1 (with --list: a prefix)
        [key=value …]  see below
        --list         list all ids with their titles, and the cells that can run on this machine with these keys
        --plan         show the number of runs, calls and tokens, the hours and the cost, without making calls
        --make         first train the missing models that cells need. Can be resumed""",
        ("only", "budget", "protocol", "hydra/launcher"),
        notes=REPRODUCE,
    ),
)
INSPECT_COMMANDS = (
    Command(
        "runs",
        "list the runs in outputs/, newest first, or those in progress",
        """kgqa runs
        kgqa runs method=trace
        kgqa runs --running
        kgqa runs --json""",
        "kgqa.cli.inspect:runs",
        """
        [NAME]         only runs with this prefix in their name, or in a part of it after a slash
        [key=value …]  filter by dataset=, method= or model=
        --running      show commands in progress, on any machine, that write to this outputs/
        --limit N      maximum number of runs (default: 20; with --json: all)
        --json         print the runs as a JSON list""",
        ("dataset", "method", "model"),
        only_own=True,
    ),
    Command(
        "show",
        "show the questions of a run, or all steps of one question",
        """kgqa show last
        kgqa show last --wrong --limit 10
        kgqa show last 2hop__demo_01 --calls""",
        "kgqa.cli.questions:show",
        """
        RUN         a run: its folder, the start of its name, SWEEP/METHOD, or last (the last finished run)
        [QUESTION]  id of a question: show its passages, triples, chains, prompts and answer
        --wrong     only questions without an exact match
        --failed    only questions that failed
        --limit N   maximum number of questions (default: 50)
        --calls     also show every prompt, result, passage, triple and token count""",
    ),
    Command(
        "report",
        "write a report as HTML, Markdown, CSV or LaTeX, or export a run for other programs",
        """kgqa report last --open
        kgqa report last --format latex
        kgqa report results --table paper --format latex baseline=all_documents
        kgqa report last --format otlp --out spans""",
        "kgqa.cli.inspect:report",
        f"""
        RUN …            a run or a sweep: its folder, the start of its name, SWEEP/METHOD, or last (the last \
            finished run or sweep). Several with --table
        [key=value …]    with --table: baseline=ROW for the tests, metrics=em,f1 (also judge, corrected, tokens and \
            others), rows=ROW:NAME,ROW to choose, order and name rows, intervals=true, alpha=0.05, correction=holm \
            (also bh, none)
        --table {{paper}}  a table for a paper as latex, md or csv: rows are methods, columns datasets and metrics
        --format {{{",".join((*TABLES, *EXPORTS))}}}  the format, see below (default: html, with --table latex)
        --open           only open the HTML report in the browser
        --out PATH       output file (default: report.html, .md, .csv or .tex in RUN). Its ending also chooses the \
            format. An export needs a new or empty folder""",
        ("baseline", "metrics", "rows", "intervals", "alpha", "correction"),
        only_own=True,
        notes=REPORT,
    ),
    Command(
        "explain",
        "show the causes of wrong answers, next to those of a baseline",
        """kgqa explain demo/trace demo/all_documents
        kgqa explain last""",
        "kgqa.cli.score:explain",
        """
        RUN            a run: its folder, the start of its name, SWEEP/METHOD, SWEEP/NUMBER, or last (the last \
            finished run). Of repeats all are explained
        [BASELINE]     another run on the same questions, to compare with. The same as baseline=RUN
        [key=value …]  baseline=RUN, scoring= rules of EM and F1, seed=0 of the permutation test""",
        ("baseline", "scoring", "seed"),
        only_own=True,
    ),
    Command(
        "plan",
        "plan a comparison: the questions that show a difference, and their cost",
        """kgqa plan musique/trace musique/ircot difference=5
        kgqa plan outputs/sweeps/NAME""",
        "kgqa.cli.score:plan",
        """
        RUN …          two or more finished runs as a pilot, of a few questions. A sweep: all its runs. \
            Repeats count by their means
        [key=value …]  difference=2 points to show, power=0.8 of the test, alpha=0.05, scoring= rules of EM \
            and F1, seed=0, baseline=ROW: only pairs with this run, metrics=em,f1: only these""",
        ("difference", "power", "alpha", "scoring", "seed", "baseline", "metrics"),
        only_own=True,
    ),
    Command(
        "compare",
        "compare runs on the same questions: paired tests and flipped questions",
        """kgqa compare musique/trace musique/ircot --common
        kgqa compare outputs/sweeps/NAME correction=bh alpha=0.01
        kgqa compare outputs/sweeps/NAME baseline=golden metrics=em,f1""",
        "kgqa.cli.score:compare",
        """
        RUN …          two or more runs: each a folder, the start of its name, SWEEP/METHOD, SWEEP/NUMBER, or last \
            (the last finished run). A sweep: all its runs. Only last: the last sweep. Of repeats the means are compared
        [key=value …]  scoring= rules of EM and F1, seed=0 of the permutation test, difference=2 relevant points, \
            alpha=0.05, correction=holm (also bh, none), baseline=ROW: only pairs with this run, metrics=em,f1: only \
            these
        --common       compare only the questions that all runs have
        --all          show the flipped questions of every pair (default: 10, if there is one pair)
        --out FILE     also write the comparison, as FILE.md, FILE.tex, FILE.html or FILE.json. For a table with a \
            row per run: kgqa report RUN RUN … --table paper""",
        ("scoring", "seed", "difference", "alpha", "correction", "baseline", "metrics"),
        only_own=True,
    ),
)
DATA_COMMANDS = (
    Command(
        "data",
        "list, download, check or index datasets and corpora",
        "kgqa data download dataset=musique",
    ),
    Command(
        "data list",
        "list all datasets and corpora: source, license, size, checksum, local copy",
        "kgqa data list",
        "kgqa.cli.data:show_datasets",
    ),
    Command(
        "data download",
        "download, check and unpack a dataset or corpus",
        "kgqa data download dataset=musique",
        "kgqa.cli.data:download",
        "key=value …  dataset=NAME (see kgqa data list), from=hub or a FOLDER in Hugging Face's format, to=FOLDER",
        ("dataset", "from", "to"),
        only_own=True,
    ),
    Command(
        "data check",
        "read all files of a dataset: counts, hashes and unusual records",
        "kgqa data check dataset=demo",
        "kgqa.cli.data:check_dataset",
        "key=value …  as for kgqa run",
    ),
    Command(
        "data index",
        "index the corpus of a dataset before a run. Run it again to resume",
        "kgqa data index dataset=demo retriever=bm25",
        "kgqa.cli.data:build_index",
        """
        key=value …    as for kgqa run
        --import FILE  an index of FAISS with the vectors of dataset.corpus, such as FlashRAG's e5_Flat.index""",
    ),
    Command(
        "data check-index",
        "check the hashes of all files of an index",
        "kgqa data check-index dataset=demo retriever=bm25",
        "kgqa.cli.data:check_index",
        "key=value …  as for kgqa run",
    ),
    Command(
        "kg",
        "build, import and export triples of passages, and show their statistics",
        "kgqa kg build dataset=demo limit=3",
    ),
    Command(
        "kg build",
        "extract the triples of the questions' passages, or of the complete corpus",
        """kgqa kg build dataset=demo limit=3
        kgqa kg build dataset=musique --corpus""",
        "kgqa.cli.kg:build",
        """
        key=value …  as for kgqa run
        --corpus     all passages of dataset.corpus, instead of the questions' passages. limit= counts passages""",
    ),
    Command(
        "kg stats",
        "show statistics per question of the existing triples (TRACE, Table 5)",
        "kgqa kg stats dataset=demo limit=3",
        "kgqa.cli.kg:show_statistics",
        "key=value …  as for kgqa run",
    ),
    Command(
        "kg link",
        "build the passage graphs of a dataset's questions before a run",
        "kgqa kg link graph=tfidf dataset=demo",
        "kgqa.cli.kg:link",
        "key=value …  graph=NAME, and others as for kgqa run",
    ),
    Command(
        "kg link-stats",
        "show passages, edges, density and build time of the passage graphs (KGP, Table 3)",
        "kgqa kg link-stats graph=tfidf dataset=demo",
        "kgqa.cli.kg:link",
        "key=value …  graph=NAME, and others as for kgqa run",
    ),
    Command(
        "kg import",
        "convert triples of other programs, to use them with kg=imported kg.path=FILE",
        """kgqa kg import openie.json --format hipporag
        kgqa kg import openie.json --format hipporag --out mine.jsonl dataset=musique""",
        "kgqa.cli.kg:import_triples",
        """
        FILE           the output of another program
        [key=value …]  a dataset, e.g. dataset=musique: count its passages that the file contains
        --format {hipporag,openie,jsonl,tsv}  the format of the file, see below
        --out FILE     output file (default: outputs/kg/imported/NAME.jsonl)""",
        notes=KG_IMPORT,
    ),
    Command(
        "kg export",
        "write existing triples for other programs: JSON lines, TSV, GraphML",
        """kgqa kg export dataset=demo limit=3 --format graphml --out demo.graphml
        kgqa kg export kg=imported kg.path=mine.jsonl dataset=musique --format tsv --out triples.tsv""",
        "kgqa.cli.kg:export_triples",
        """
        key=value …  as for kgqa run
        --out FILE   output file
        --format {jsonl,tsv,graphml}  the format, see below
        --corpus     all passages of dataset.corpus, instead of the questions' passages""",
        notes=KG_EXPORT,
    ),
)
SYSTEM_COMMANDS = (
    Command(
        "models",
        "list model presets and adapters",
        "kgqa models",
        "kgqa.cli.models:models",
    ),
    Command(
        "doctor",
        "check the installation: packages, servers, data, models, and how to get missing ones",
        """kgqa doctor
        kgqa doctor vllm dataset=musique""",
        "kgqa.cli.system:doctor",
        "[NAME …]  check only these: engines, extras, datasets, … (exit code 2 if one is missing)",
    ),
    Command(
        "cache",
        "check, export, import and prune the call cache, and show its statistics",
        "kgqa cache export calls.jsonl.zst --run last",
    ),
    Command(
        "cache check",
        "check the checksums of all calls (exit code 1 if one is damaged)",
        """kgqa cache check
        kgqa cache check --repair""",
        "kgqa.cli.system:check_cache",
        "--repair  delete damaged rows",
    ),
    Command(
        "cache stats",
        "show the number, size and age of calls by engine and model",
        "kgqa cache stats",
        "kgqa.cli.system:show_cache",
        "--json  print JSON",
    ),
    Command(
        "cache export",
        "export calls to a file, to replay runs elsewhere without a model",
        """kgqa cache export calls.jsonl.zst --run last
        kgqa cache export all.jsonl.zst""",
        "kgqa.cli.system:export_cache",
        """
        FILE.jsonl.zst   output file
        --run RUN …      only the calls of this run. Can be repeated
        --engine NAME …  only replies of this engine, ranker or retriever. Can be repeated""",
    ),
    Command(
        "cache import",
        "add the calls of an exported file to this cache, without replacing existing ones",
        "kgqa cache import calls.jsonl.zst",
        "kgqa.cli.system:import_cache",
        "FILE.jsonl.zst  a file of kgqa cache export",
    ),
    Command(
        "cache prune",
        "list old calls, or with --yes delete them",
        """kgqa cache prune --older-than 90
        kgqa cache prune --engine scripted --yes""",
        "kgqa.cli.system:prune_cache",
        """
        --older-than DAYS  only calls older than this
        --engine NAME      only calls of this engine, ranker or retriever
        --yes              delete the calls""",
    ),
    Command(
        "new",
        "create the files of your own method, dataset, retriever, metric, …",
        "kgqa new method my_method",
    ),
    *(
        Command(
            f"new {group}",
            files,
            f"kgqa new {group} my_{group}",
            "kgqa.cli.system:new",
            f"NAME  name of the {group} and its module, e.g. my_{group} (docs/OWN_CODE.md)",
        )
        for group, files in (
            (
                "method",
                "a module, its prompts, its configuration, and a test with scripted replies",
            ),
            (
                "dataset",
                "a reader of a JSONL file, two questions to start with, its configuration, and a test",
            ),
            ("retriever", "a module, its configuration, and a test"),
            ("metric", "a function of a question and its answer, its configuration, and a test"),
            ("judge", "a module, its prompt, its configuration, and a test with scripted verdicts"),
        )
    ),
    Command(
        "new prompt",
        "copy a prompt of a method into prompts/, where yours replaces the original",
        "kgqa new prompt trace/select",
        "kgqa.cli.system:new_prompt",
        "[NAME]  the template, e.g. trace/select (default: list the templates with the runs that use them; "
        "method=trace: those of a method)",
    ),
    Command(
        "new model",
        "create the configuration of a model on the Hugging Face hub, or of your own weights",
        """kgqa new model my_model Qwen/Qwen3-8B
        kgqa new model my_model ~/weights/model.gguf""",
        "kgqa.cli.system:new",
        """
        NAME    name of the model, e.g. my_model
        [FROM]  OWNER/NAME[:FILE.gguf] of the hub, or a file or folder with weights (default: a template to edit)""",
    ),
)

# of the core, by the task that the help lists them under
_CORE: Mapping[str, tuple[Command, ...]] = {
    "run": RUN_COMMANDS,
    "inspect": INSPECT_COMMANDS,
    "data": DATA_COMMANDS,
    "train": (),
    "system": SYSTEM_COMMANDS,
}
COMMANDS: Mapping[str, tuple[Command, ...]] = {
    task: (
        *commands,
        *(command for extra in list_extras().values() for command in extra.commands.get(task, ())),
    )
    for task, commands in _CORE.items()
}
BY_NAME: Mapping[str, Command] = {
    command.name: command for listed in COMMANDS.values() for command in listed
}
PROGRAM = Command(
    "",
    "Run experiments in multi-hop question answering with knowledge graphs and RAG.",
    """kgqa run method=trace dataset=demo limit=3
    kgqa run method=trace --help""",
    arguments="--version  show the version",
)


def subcommands(name: str) -> list[Command]:
    """Return the commands directly inside a group ("" is kgqa itself)."""
    return [each for key, each in BY_NAME.items() if key.rpartition(" ")[0] == name]


def find_command(words: Sequence[str]) -> tuple[Command, list[str]]:
    """Return the command that the first words name, and the other words.

    Raises:
        ConfigError: there is no such command.
    """
    command, left = PROGRAM, list(words)
    while left and not left[0].startswith("-") and (subs := subcommands(command.name)):
        name = f"{command.name} {left[0]}".strip()
        if name not in BY_NAME:
            others = OTHER_WORDS.get(name) or OTHER_WORDS.get(f"{command.name} …")
            hint = others or nearest(left[0], [each.name.split()[-1] for each in subs])
            raise ConfigError(f"{name}: no such command. {hint}")
        command = BY_NAME[name]
        left.pop(0)
    return command, left


def parse(words: Sequence[str]) -> Namespace:
    """Parse a command line without `kgqa`."""
    command, left = find_command(words)
    return command.parse(left)


def help_of(command: Command, words: Sequence[str] = ()) -> str:
    """Return the help of a command or of a group. `words` can narrow it, e.g. to one method."""
    if command.explains:
        from kgqa.cli.key_help import explain

        return command.help_text(explain(command.explains, words))
    if command is PROGRAM:
        tasks = [
            (task, [each for each in commands if " " not in each.name])
            for task, commands in COMMANDS.items()
        ]
        return command.help_text(commands=tasks)
    inner = subcommands(command.name)
    return command.help_text(commands=[("commands", inner)] if inner else [])


def run_command(words: Sequence[str], *given: Any) -> int:
    """Run a command line inside another command."""
    args = parse(words)
    command: Command = args.command
    return command.run(args, *given)
