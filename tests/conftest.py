"""What holds for every test: Ctrl-C, what was left out and why, and what another environment has tested already."""

from __future__ import annotations

import gc
import logging
import os
import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

# `make test &` in a script would have SIGINT ignored here and in every process that a test starts and interrupts
signal.signal(signal.SIGINT, signal.default_int_handler)
# Python's readline sets it for the workers of pytest-xdist, and tables would have this width
os.environ.pop("COLUMNS", None)
# no test can see a power cut
os.fsync = lambda fd: None
with suppress(ImportError):  # vLLM's environment has no hypothesis
    from hypothesis import HealthCheck, settings

    # a busy machine is no failure
    settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("tests")


LONG = (
    "test_shown_commands",
    "test_published_tables",
    "test_server_runs",
    "test_sweeps",
    "test_run",
)


@pytest.fixture(autouse=True)
def _reset_loggers() -> None:
    """Undo what programs that ran within an earlier test did to kgqa's loggers, such as Hydra's launchers."""
    logging.disable(logging.NOTSET)
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if name.partition(".")[0] == "kgqa" and isinstance(logger, logging.Logger):
            logger.disabled = False
            logger.propagate = name != "kgqa.events"


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder, and with no folder of an environment variable."""
    monkeypatch.chdir(tmp_path)
    for name in ("KGQA_TRAINED", "KGQA_CONF"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--passed-to",
        type=Path,
        metavar="FILE",
        help="add the names of the tests that pass to FILE",
    )
    parser.addoption("--but", type=Path, metavar="FILE", help="leave out the tests that FILE names")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(FailedAtOnce(config))
    file = config.getoption("passed_to")
    # workers of pytest-xdist report to the process that started them
    if file and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Passed(file))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    file = config.getoption("but")
    if file and file.exists():
        passed = set(file.read_text(encoding="utf-8").splitlines())
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in passed])
        items[:] = [item for item in items if item.nodeid not in passed]
    # two workers end together if the short ones come last
    items.sort(key=lambda item: item.path.stem not in LONG)


def pytest_collection_finish() -> None:
    """Leave what was imported and collected out of garbage collection."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many tests were skipped for each reason, the most first."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in skipped)
    if reasons:
        terminalreporter.section("skipped")
    for reason, count in reasons.most_common():
        terminalreporter.line(f"{count:>5}  {reason}")


class FailedAtOnce:
    """Names a test that failed when it fails, and not only in the summary."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self.config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:  # workers of pytest-xdist have none
            reason = str(report.longrepr).strip().splitlines()[-1:]
            terminal.write(f"\nFAILED {report.nodeid} {' '.join(reason)}\n", red=True)


class Passed:
    """Writes the names of tests that passed, a line each."""

    def __init__(self, file: Path) -> None:
        self.file = file.resolve()  # tests go elsewhere

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            with self.file.open("a", encoding="utf-8") as lines:
                lines.write(f"{report.nodeid}\n")
