"""What shows runs while they are bent: `kgqa view`, asked as its pages ask it, and `kgqa status`.

Each answer is a page, JSON, or a refusal in a line; none is an error that nobody foresaw, and none has the planted key.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
import urllib.error
import urllib.parse
import urllib.request

from scripts.attack import bending
from scripts.attack.judging import FINE, SPELLINGS, TOLD, TRACEBACK, Harm
from scripts.attack.on_folders import harmed
from scripts.attack.processes import Running, crowd
from scripts.attack.starting import SWEEP_FOLDER
from scripts.attack.trial import Trial

ADDRESS = re.compile(r"(http://127\.0\.0\.1:\d+)/\?(token=\S+)")
START, ANSWER = 20.0, 30.0  # seconds until it can be asked, and until it answers, where a core is free
FORESEEN = (200, 204, 400, 403, 404, 405)
QUESTION = "2hop__demo_01"
ODD = ("", "x", "../../etc/passwd", "run/..", "%00", "%ff", "a\u202eb", "x" * 3000, "nan", "-1", "1e9", "[[")
ASKED = ("from", "count", "id", "run", "token", "x")


def view(trial: Trial) -> None:
    """One file of a run or sweep harmed, then every address that the pages ask; or odd addresses of sound runs."""
    trial.take("outputs", "run", "run2")
    for name in ("run", "run2"):
        shutil.move(trial.work / name, trial.work / "outputs" / name)
    odd = trial.dice.random() < 0.25
    if not odd:
        harmed(trial, trial.work / "outputs" / trial.dice.choice(("run", "run", SWEEP_FOLDER.partition("/")[2])))
    running = trial.running("view", "--port", "0", "--no-browser")
    if begun := _address(running):
        address, token = begun
        for path in _odd_paths(trial) if odd else _paths(trial.dice.random() < 0.5):
            _ask(trial, f"{address}{path}", token)
        running.signal(signal.SIGINT)
    trial.judged(running, (FINE,) if begun else (TOLD,))


def status(trial: Trial) -> None:
    """Claims of processes that died, bent or damaged."""
    claims = trial.work / "outputs/.running"
    claims.mkdir(parents=True)
    for number in range(trial.dice.choice((1, 3))):
        raw = json.dumps(_claim(trial)).encode()
        way = trial.dice.choice(("bent", "bent", "bent", "bytes", "folder", "dangling", "lock gone"))
        what = way
        if way == "bent":
            raw, what = bending.bent_file(raw, trial.dice, lines=False)
        elif way == "bytes":
            raw, what = bending.damaged(raw, trial.dice)
        file = claims / f"here-{number}-7.json"
        if way == "folder":
            file.mkdir()
        elif way == "dangling":
            file.symlink_to("/nowhere/at/all")
        else:
            file.write_bytes(raw)
        if way != "lock gone":
            file.with_suffix(".lock").touch()
        trial.done.append(what)
    for words in (("status",), ("status", "--json"), ("status", "--forget"), ("status",)):
        ended = trial.kgqa(*words, allowed=(FINE,))
        if "--json" in words and ended.code == FINE:
            try:
                json.loads(ended.out)
            except ValueError as error:
                trial.found(Harm.SILENT, f"what it printed is not JSON: {error}")


def _claim(trial: Trial) -> dict[str, object]:
    return {
        "what": "run", "folder": str(trial.work / "run"), "command": "kgqa run", "host": os.uname().nodename,
        "pid": 7, "started": time.time() - 90, "updated": time.time() - 30, "stage": "questions", "ended": 3,
        "failed": 0, "count": 8, "calls": 5, "tokens": 50, "usd": 0.1, "per_minute": 2.0, "tokens_per_second": 9.5,
        "seconds_left": 150.0, "waits_for": None,
    }  # fmt: skip


def _address(running: Running) -> tuple[str, str] | None:
    """Where it can be asked, and with which token; None where it ended before."""
    until = time.monotonic() + START * crowd()
    while time.monotonic() < until and not running.ended():
        if found := ADDRESS.search(running.printed()):
            return found[1], found[2]
        time.sleep(0.01)
    return None


def _paths(posting: bool) -> list[str]:
    """As the pages ask them; the last of them changes tags."""
    id_ = urllib.parse.quote(json.dumps(QUESTION))
    of_run = [f"/run/{run}" for run in ("run", "run2")]
    questions = [path for run in ("run", "run2") for path in (f"/api/questions/{run}", f"/api/question/{run}?id={id_}")]
    several = ["/api/answers?run=run&run=run2", "/api/figures?run=run&run=run2"]
    return ["/", "/api/runs", *of_run, *questions, *several, *(["/api/tags", "/api/runs"] if posting else [])]


def _odd_paths(trial: Trial) -> list[str]:
    paths = [path.partition("?")[0] for path in _paths(posting=True)]
    chosen = []
    for _ in range(12):
        below = trial.dice.choice(("", "", f"/{urllib.parse.quote(trial.dice.choice(ODD))}"))
        words = [(trial.dice.choice(ASKED), trial.dice.choice(ODD)) for _ in range(trial.dice.choice((0, 1, 2)))]
        chosen.append(f"{trial.dice.choice(paths)}{below}?{urllib.parse.urlencode(words)}")
    trial.done.append(" ".join(chosen)[:400])
    return chosen


def _ask(trial: Trial, address: str, token: str) -> None:
    place = urllib.parse.urlsplit(address)
    asked = urllib.request.Request(f"{address}{'&' if place.query else '?'}{token}")
    if place.path == "/api/tags":
        asked.data = trial.dice.choice((b'{"runs":["run"],"add":["x"],"remove":[]}', b"{", b"[1]", b'{"runs":7}', b""))
        asked.add_header("Origin", f"{place.scheme}://{place.netloc}")
    try:
        with urllib.request.urlopen(asked, timeout=ANSWER * crowd()) as answer:
            code, kind, body = answer.status, answer.headers.get_content_type(), answer.read()
    except urllib.error.HTTPError as refused:
        code, kind, body = refused.code, refused.headers.get_content_type(), refused.read()
    except TimeoutError:
        trial.found(Harm.HANG, f"{place.path}: no answer after {ANSWER:.0f} s")
        return
    except OSError as error:
        trial.found(Harm.EXIT, f"{place.path}: {error}")
        return
    said = body.decode("utf-8", "replace")
    if code not in FORESEEN or TRACEBACK.search(said):
        trial.found(Harm.TRACEBACK, f"{place.path}?{place.query}: {code} {said[:1500]}")
    if SPELLINGS.search(body):
        trial.found(Harm.KEY, f"in the answer to {place.path}")
    if kind == "application/json":
        try:
            json.loads(said, parse_constant=_refused)
        except ValueError as error:
            trial.found(Harm.SILENT, f"{place.path}: an answer that is not JSON: {error}")


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is no number of JSON")
