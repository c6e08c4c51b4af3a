"""Agents that are no programs of kgqa: they run next to it, and their model calls and searches are calls of kgqa."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from kgqa.calls import RunAgent
from kgqa.errors import EngineError
from kgqa.methods.steps.reader import evidence_of
from kgqa.methods.steps.search import ScopedMethod
from kgqa.protocols import Need
from kgqa.types import AgentReply, Answer, Json, Passage, Question
from kgqa.util.jsonio import decode_json
from kgqa.util.settings import NotIdentity, Setting
from kgqa.util.validators import Count, NotNegative, Positive

ENDS_QUESTION = NotIdentity("a question that exceeds it fails", reported=False)
OURS = "our choice"


@dataclass(frozen=True)
class OutsideAgent(ScopedMethod):
    """The settings that all agents from outside share."""

    needs: Annotated[
        tuple[Literal["model", "search"], ...],
        Setting("What the agent can call: model, search, or both.", ours=OURS),
    ] = ("model", "search")
    passages: Annotated[Count, Setting("Passages of a search that names no number.", ours=OURS)] = 5
    temperature: Annotated[
        NotNegative,
        Setting("Temperature of requests that name none.", other="the default of OpenAI's API"),
    ] = 1.0
    max_tokens: Annotated[
        Count, Setting("Maximum tokens of a reply if a request names no number.", ours=OURS)
    ] = 1024
    max_question_tokens: Annotated[
        Count | None,
        Setting("Maximum tokens of all prompts and replies of a question. null: no limit."),
        ENDS_QUESTION,
    ] = None
    timeout: Annotated[Positive, Setting("Maximum seconds for a question."), ENDS_QUESTION] = 600.0

    parallel: Annotated[
        Count,
        Setting("Maximum number of agents at once."),
        NotIdentity("the order of the work only", reported=False),
    ] = 8

    # also without a model of kgqa
    answers_questions: ClassVar[bool] = True

    @property
    def uses(self) -> frozenset[Need]:
        needs: Mapping[str, Need] = {
            "model": "model",
            "search": "search" if self.scope == "corpus" else "pool",
        }
        return frozenset(needs[need] for need in self.needs)

    @property
    def name(self) -> str:
        """Return the agent's name for the trace."""
        return type(self).__name__

    async def answer(self, question: Question) -> Answer:
        """Run the agent, and read its answer.

        Evidence: the passages that the agent names, else all that its searches found, those of the first search first.
        Notes: each query with its passages. Figures: searches.

        Flags: those that the agent sets, `empty_answer`, `unknown_evidence` (per passage that no search found), and
        `left_processes` (the agent ended before its children did).

        Raises EngineError: the agent failed, or reached a limit.
        """
        reply = await RunAgent(self, question, self.name)
        if reply.problem:
            raise EngineError(reply.problem)
        return read_answer(reply, question)


def read_answer(reply: AgentReply, question: Question) -> Answer:
    """Return the answer in what an agent printed: the last line, or `answer`, `evidence` and `flags` of its JSON."""
    lines = [line.strip() for line in reply.output.splitlines() if line.strip()]
    last = lines[-1] if lines else ""
    fields = _read_object(last)
    text = last if fields is None else _text(fields["answer"])
    passages_searched = [passage for _, passages in reply.searches for passage in passages]
    flags = dict.fromkeys(reply.flags, 1) | {"empty_answer": int(not text)}
    evidence = evidence_of(passages_searched)
    if fields is not None:
        flags |= _read_flags(fields.get("flags"))
        if isinstance(named := fields.get("evidence"), list):
            evidence, flags["unknown_evidence"] = _find_evidence(
                named, [*passages_searched, *question.passages]
            )
    searches = [[query, [passage.id for passage in passages]] for query, passages in reply.searches]
    notes: dict[str, Json] = {"searches": searches}
    return Answer(text, evidence, flags=flags, figures={"searches": len(searches)}, notes=notes)


def _read_object(line: str) -> Mapping[str, Json] | None:
    """Return the JSON object of a line if it has an answer."""
    try:
        value = decode_json(line) if line.startswith("{") else None
    except ValueError:
        return None
    return value if isinstance(value, dict) and "answer" in value else None


def _text(value: Json) -> str:
    return "" if value is None else str(value).strip()


def _read_flags(value: Json) -> dict[str, int]:
    """Return the flags of an agent: names with counts, or a list of names."""
    if isinstance(value, dict):
        return {
            str(name): count
            for name, count in value.items()
            if isinstance(count, int) and count >= 0
        }
    return dict.fromkeys(map(str, value), 1) if isinstance(value, list) else {}


def _find_evidence(named: list[Json], passages: list[Passage]) -> tuple[tuple[str, ...], int]:
    """Return the ids of passages that are named by id or title, and how many names no passage has."""
    ids = {passage.title: passage.id for passage in reversed(passages)} | {
        passage.id: passage.id for passage in passages
    }
    ids_of_names = [ids[str(name)] for name in named if str(name) in ids]
    return tuple(dict.fromkeys(ids_of_names)), len(named) - len(ids_of_names)
