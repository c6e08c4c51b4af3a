"""Search agents: models that write queries and answers in tags while they reason."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from kgqa.calls import Generate
from kgqa.errors import ConfigError
from kgqa.methods.steps.boxed import BOX, read_boxed, read_greedy_boxed, read_last_boxed
from kgqa.methods.steps.reader import ReadingLog, merge_rankings, pinned_text
from kgqa.methods.steps.search import Found, PassageForm, ScopedMethod, Transcript, number_steps
from kgqa.prompting import render
from kgqa.protocols import Need
from kgqa.types import Answer, Completion, Passage, Prompt, Question
from kgqa.util.settings import Setting
from kgqa.util.validators import Count, NotNegative, Share, Validator

FINDING = re.compile(r"\*\*Final Information\*\*:?", re.IGNORECASE)
Pair = Annotated[tuple[str, str], Validator("give two texts, [start, end]", all)]
Change = Annotated[
    tuple[str, str],
    Validator("give a text that is not empty and its replacement", lambda pair: pair[0]),
]
Notice = Literal["invalid", "limit", "repeated", "empty", "last"]
LENIENT = "accepts what untrained models write; experiment=NAME_released sets an authors' program"
Action = tuple[Literal["query", "answer", ""], str]  # the last is no action


@dataclass(frozen=True)
class SearchAgent(ScopedMethod):
    """Search-R1 (Jin et al., 2025) and agents of the same kind.

    Stages: the model reasons until it writes a query or an answer in tags → a query is searched for, and the model
    continues after the passages.
    """

    prompt: Annotated[
        str,
        Setting(
            "Template of the first prompt. The transcript is the start of the reply.",
            ours="the words are ours",
        ),
    ] = "search_agent/search_r1"
    read_prompt: Annotated[
        str | None,
        Setting(
            "Template for a model that reads passages for the agent. null: the agent sees the passages.",
            paper="Search-o1",
        ),
    ] = None
    passages: Annotated[Count, Setting("Number of passages per search.", paper="Search-R1")] = 3
    passage: Annotated[PassageForm, Setting("Format of a passage.", code="generation.py:467")] = (
        "Doc {number}(Title: {title}) {text}\n"
    )
    max_passage_characters: Annotated[
        Count | None,
        Setting(
            "Maximum length of a passage.",
            ours="the program cuts a result at 500 tokens, generation.py:89",
        ),
    ] = None
    query: Annotated[Pair, Setting("Tags of a query.", paper="Search-R1")] = (
        "<search>",
        "</search>",
    )
    result: Annotated[
        Pair, Setting("Texts around the result of a search.", code="generation.py:391")
    ] = (
        "\n\n<information>",
        "</information>\n\n",
    )
    answer_tags: Annotated[Pair, Setting("Tags of the answer.", paper="Search-R1")] = (
        "<answer>",
        "</answer>",
    )
    stop: Annotated[tuple[str, ...], Setting("Stop strings of a turn.", paper="Search-R1")] = (
        "</search>",
        "</answer>",
    )
    max_searches: Annotated[
        Count, Setting("Maximum number of searches.", code="evaluate.sh:63")
    ] = 4
    max_turns: Annotated[
        Count,
        Setting("Maximum number of generations: one more than searches.", code="generation.py:278"),
    ] = 5
    at_limit: Annotated[
        Literal["answer", "empty"],
        Setting(
            "What to do if there is no answer: answer (request one) | empty.",
            ours="all released programs: empty",
        ),
    ] = "answer"
    max_turn_tokens: Annotated[
        Count, Setting("Maximum tokens of a generation.", paper="Search-R1")
    ] = 500
    max_read_tokens: Annotated[
        Count,
        Setting(
            "Maximum tokens of a reply to read_prompt.",
            ours="Search-o1: as a turn, run_search_o1.py:307",
        ),
    ] = 1024
    temperature: Annotated[
        NotNegative,
        Setting(
            "Sampling temperature.", ours="App. B and ppo_trainer.yaml:69: 1.0, infer.py:106: 0.7"
        ),
    ] = 0.0
    top_p: Annotated[Share, Setting("Nucleus sampling.", ours="ppo_trainer.yaml:71: 0.95")] = 1.0
    read_temperature: Annotated[
        NotNegative,
        Setting(
            "Sampling temperature of replies to read_prompt.",
            ours="Search-o1: 0.7, run_search_o1.py:308",
        ),
    ] = 0.0
    read_top_p: Annotated[
        Share,
        Setting(
            "Nucleus sampling of replies to read_prompt.",
            ours="Search-o1: 0.8, run_search_o1.py:309",
        ),
    ] = 1.0
    closed_tags: Annotated[
        bool,
        Setting(
            "Count a query or an answer only with its closing tag. true needs an engine that reports stop strings.",
            ours=LENIENT,
        ),
    ] = False
    opening: Annotated[
        Literal["first", "last"],
        Setting(
            "Opening tag that starts a query with closed_tags, if there are several: first | last.",
            ours=LENIENT,
        ),
    ] = "last"
    strip_turn: Annotated[bool, Setting("Strip a turn that ends in a query.", ours=LENIENT)] = False
    strip_result: Annotated[
        bool, Setting("Strip the passages between the texts of result.", ours=LENIENT)
    ] = False
    clean_query: Annotated[
        tuple[Change, ...],
        Setting("Texts that are replaced in queries, as [text, replacement].", ours=LENIENT),
    ] = ()
    strip_query: Annotated[bool, Setting("Strip queries.", ours=LENIENT)] = True
    empty_query: Annotated[
        Literal["show", "search", "end"],
        Setting(
            "Effect of an empty query: show an empty result, or notices.empty | search | end.",
            ours=LENIENT,
        ),
    ] = "show"
    notices: Annotated[
        Mapping[Notice, str | None],
        Setting(
            "Templates of notices, after which the model continues: invalid (no query and answer), limit "
            "(max_searches), repeated (a repeated query), empty (an empty one), last (before the last turn).",
            ours=LENIENT,
        ),
    ] = field(default_factory=dict)
    on_length: Annotated[
        Literal["continue", "end", "empty"],
        Setting(
            "Effect of a truncated reply without query and answer: continue | end | empty (no answer, even if the "
            "transcript has one).",
            ours=LENIENT,
        ),
    ] = "continue"
    last_turn: Annotated[
        Literal["read", "discard"],
        Setting("What happens with the reply of the last turn: read | discard.", ours=LENIENT),
    ] = "read"
    answer_from: Annotated[
        Literal["turn", "transcript"],
        Setting("Where the answer is read: the last turn | transcript.", ours=LENIENT),
    ] = "turn"
    answer_which: Annotated[
        Literal["first", "last"],
        Setting("Answer of the transcript that counts: first | last.", ours=LENIENT),
    ] = "last"
    boxed: Annotated[
        Literal["optional", "never", "required", "greedy"],
        Setting(
            "How \\boxed{…} is read: optional (if there is one) | never | required | greedy (up to the last brace of "
            "the line).",
            ours=LENIENT,
        ),
    ] = "optional"
    finding_marker: Annotated[
        str | None,
        Setting(
            "Text before what a reply to read_prompt found, with joined lines. null: Final Information in any form.",
            ours=LENIENT,
        ),
    ] = None
    unmarked_finding: Annotated[
        str | None,
        Setting(
            "What the agent sees if a reply to read_prompt has no finding_marker. null: the complete reply.",
            ours=LENIENT,
        ),
    ] = None

    def __post_init__(self) -> None:
        if self.closed_tags and self.query[1] not in self.stop:
            raise ConfigError(
                f"method.closed_tags=true: method.stop must contain {self.query[1]!r}"
            )

    @property
    def uses(self) -> frozenset[Need]:
        stops: frozenset[Need] = frozenset({"stops"} if self.closed_tags else ())
        return super().uses | stops

    async def answer(self, question: Question) -> Answer:
        """Let the model search until it answers.

        Evidence: all passages that were found, those of the first search first. Notes: the transcript, and each query
        with its passages. Figures: searches.

        Flags: those of `ReadingLog`, `forced_answer` (no answer within `max_turns` turns and `max_searches` searches,
        or a turn ended without query and answer; requested then with `at_limit=answer`), `no_action` (such a turn),
        `repeated_search` (per query that was searched before), `empty_query`, and `invalid_turn`, `limit_notice` and
        `repeated_notice` (per notice that the model got).
        """
        log, transcript = ReadingLog(question, self.scope_of(question)), Transcript()
        text = await self.act(transcript, log)
        if text is None and self.at_limit == "answer":
            log.flags["forced_answer"] += 1
            transcript.write(f"\n{self.answer_tags[0]}")
            reply = await self.write(transcript, log)
            text = self.read_open(self.answer_tags[0] + reply.text.strip().partition("\n")[0])[
                1
            ].strip()
        searches = [
            [search.query, [passage.id for passage in search.passages]]
            for search in transcript.searches
        ]
        notes = {"transcript": self.show(transcript, transcript.passages), "searches": searches}
        return log.answer(text or "", transcript.passages, notes, {"searches": len(searches)})

    async def act(self, transcript: Transcript, log: ReadingLog) -> str | None:
        """Run turns until one ends the question. Return the answer, or None without one."""
        for turn in range(1, self.max_turns + 1):
            is_last = turn == self.max_turns
            if is_last and (warning := self.notices.get("last")) is not None:
                transcript.write(notice_text(warning))
            reply = await self.write(transcript, log)
            if is_last and self.last_turn == "discard":
                return None
            action = self.read(reply)
            if action[0] == "answer" and self.answer_from == "turn":
                return action[1]
            if not action[0] and reply.finish == "length" and self.on_length == "empty":
                return None
            if not await self.follow(action, reply, transcript, log, is_last=is_last):
                break
        return self.read_transcript(transcript) if self.answer_from == "transcript" else None

    async def follow(
        self,
        action: Action,
        reply: Completion,
        transcript: Transcript,
        log: ReadingLog,
        *,
        is_last: bool,
    ) -> bool:
        """Search for the query of a turn, or write its notice. Return False if the turn ends the question."""
        kind, argument = action
        if kind == "query":
            # without a further turn nothing reads the result
            return not (is_last and self.at_limit == "empty") and await self.follow_query(
                argument, transcript, log
            )
        if kind == "answer" or (reply.finish == "length" and self.on_length != "continue"):
            return False
        if (notice := self.notices.get("invalid")) is not None:
            log.flags["invalid_turn"] += 1
            transcript.write(notice_text(notice) * (not is_last))
            return True
        log.flags["no_action"] += reply.finish == "stop" and self.answer_from == "turn"
        return reply.finish != "stop"

    async def write(self, transcript: Transcript, log: ReadingLog) -> Completion:
        """Generate the continuation of the transcript, and add it with the tag that ends it."""

        def call(context: tuple[Passage, ...]) -> Generate:
            prompt = self.continue_prompt(log.question, self.show(transcript, context), context)
            tokens, settings = self.max_turn_tokens, (self.temperature, self.top_p)
            return Generate(prompt, tokens, self.stop, *settings, thoughts="keep")

        results = merge_rankings(
            search.passages for search in transcript.searches if search.finding is None
        )
        reply = await log.send(call, results)
        kind, _ = self.read(reply)
        if self.closed_tags:
            end = reply.stopped_by or ""
        else:
            tag = {"query": self.query[1], "answer": self.answer_tags[1]}.get(kind, "")
            end = tag * (tag in self.stop and (reply.finish == "stop" or kind == "query"))
        transcript.write(
            (reply.text.strip() if self.strip_turn and kind == "query" else reply.text) + end
        )
        return reply

    async def follow_query(self, query: str, transcript: Transcript, log: ReadingLog) -> bool:
        """Search for a query, or write the notice that it gets instead. Return False if it ends the question."""
        is_repeated = query in transcript.queries
        log.flags["empty_query"] += not query
        if not query and self.empty_query == "end":
            return False
        if len(transcript.searches) >= self.max_searches:
            return self.write_notice("limit", transcript, log)
        if is_repeated and self.write_notice("repeated", transcript, log):
            return True
        log.flags["repeated_search"] += is_repeated
        await self.search(query, transcript, log)
        return True

    def write_notice(
        self, kind: Literal["limit", "repeated"], transcript: Transcript, log: ReadingLog
    ) -> bool:
        """Write a notice to the transcript. Return False if there is none of this kind."""
        name = self.notices.get(kind)
        if name is None:
            return False
        log.flags[f"{kind}_notice"] += 1
        transcript.write(notice_text(name))
        return True

    async def search(self, query: str, transcript: Transcript, log: ReadingLog) -> None:
        """Search, and add what is found to the transcript, or what the model reads from it with `read_prompt`."""
        if not query and self.empty_query == "show":
            empty = self.notices.get("empty")
            log.flags["empty_retrieval"] += 1
            transcript.write(Found(query, (), None if empty is None else notice_text(empty)))
            return
        result = Found(query, await log.scope.search(query, self.passages))
        log.flags["empty_retrieval"] += not result.passages
        if self.read_prompt is not None and result.passages:
            result = replace(result, finding=await self.read_passages(result, transcript, log))
        transcript.write(result)

    async def read_passages(self, result: Found, transcript: Transcript, log: ReadingLog) -> str:
        """Return what the model reads from passages for a query (Search-o1's reason-in-documents)."""

        def show(context: tuple[Passage, ...]) -> dict[str, object]:
            texts = self.show_passages(result.passages, context)
            pages = [
                {"title": page.title, "text": page.text[: self.max_passage_characters]}
                for page in result.passages
                if page in context
            ]
            return {"pinned": pinned_text(log.question, context), "passages": texts, "pages": pages}

        reasoning = self.show(transcript, transcript.passages)
        steps = number_steps(reasoning, keep=(self.query[0], self.result[0].strip()))
        values = {
            "question": log.question.text,
            "query": result.query,
            "reasoning": reasoning,
            "steps": steps,
        }
        template, settings = str(self.read_prompt), (self.read_temperature, self.read_top_p)
        tokens = self.max_read_tokens
        reply = await log.read(
            template, result.passages, tokens, stop=(), show=show, settings=settings, **values
        )
        return self.read_finding(reply)

    def read_finding(self, reply: str) -> str:
        """Return what a model has read: the text after the marker, as one line if `finding_marker` is set."""
        if self.finding_marker is None:
            return FINDING.split(reply)[-1].strip()
        if self.finding_marker not in reply:
            return reply if self.unmarked_finding is None else self.unmarked_finding
        return reply.rpartition(self.finding_marker)[2].replace("\n", "").strip("`").strip()

    def read(self, reply: Completion) -> Action:
        """Return the action of a turn: a query or an answer with its text."""
        if not self.closed_tags:
            kind, argument = self.read_open(reply.text)
            return kind, self.clean(argument) if kind == "query" else argument.strip()
        if reply.stopped_by is None:
            raise ConfigError(
                "method.closed_tags=true: this engine does not report which stop string ended a reply. Use engine=vllm "
                "or transformers, or a vLLM or SGLang server, or set method.closed_tags=false."
            )
        if reply.stopped_by == self.query[1]:
            _, tag, query = reply.text.partition(self.query[0])
            if tag and self.opening == "last":
                query = reply.text.rpartition(self.query[0])[2]
            if tag or self.empty_query == "show":
                return "query", self.clean(query)
        elif reply.stopped_by == self.answer_tags[1] and self.answer_tags[0] in reply.text:
            return "answer", self.unbox(reply.text.rpartition(self.answer_tags[0])[2])
        return "", ""

    def clean(self, query: str) -> str:
        for text, replacement in self.clean_query:
            query = query.replace(text, replacement)
        return query.strip() if self.strip_query else query

    def read_open(self, text: str) -> Action:
        """Return the last action of a text, where closing tags can be missing."""
        query, answer = text.rfind(self.query[0]), text.rfind(self.answer_tags[0])
        if query < 0 and answer < 0:
            return "", ""
        kind: Literal["query", "answer"] = "query" if query > answer else "answer"
        start, end = self.query if kind == "query" else self.answer_tags
        tagged = text.rpartition(start)[2].partition(end)[0]
        if kind == "answer" and self.boxed == "optional":
            boxed = read_boxed(text if start == BOX else text[answer:])
            return kind, tagged if boxed is None else boxed
        return kind, tagged

    def read_transcript(self, transcript: Transcript) -> str | None:
        """Return the answer in the complete transcript, or None without one."""
        text = self.show(transcript, transcript.passages)
        if self.boxed == "greedy":
            return read_greedy_boxed(text)
        start, end = map(re.escape, self.answer_tags)
        answers = re.findall(f"{start}(.*?){end}", text, re.DOTALL)
        return self.unbox(answers[0 if self.answer_which == "first" else -1]) if answers else None

    def unbox(self, answer: str) -> str:
        r"""Return the answer in \boxed{…}, as `boxed` says, or the complete answer."""
        if self.boxed == "required":
            return read_last_boxed(answer) or ""
        boxed = read_boxed(answer) if self.boxed == "optional" else None
        return answer.strip() if boxed is None else boxed

    def show(self, transcript: Transcript, context: Sequence[Passage]) -> str:
        """Return the transcript with only these passages."""

        def show_result(result: Found) -> str:
            texts = (
                self.show_passages(result.passages, context)
                if result.finding is None
                else result.finding
            )
            return (
                f"{self.result[0]}{texts.strip() if self.strip_result else texts}{self.result[1]}"
            )

        return transcript.show(show_result)

    def show_passages(self, passages: Sequence[Passage], context: Sequence[Passage]) -> str:
        """Return passages as the model reads them. Numbers are ranks."""
        return "".join(
            self.passage.format(
                number=number, title=passage.title, text=passage.text[: self.max_passage_characters]
            )
            for number, passage in enumerate(passages, start=1)
            if passage in context
        )

    def continue_prompt(
        self, question: Question, transcript: str, context: Sequence[Passage]
    ) -> Prompt:
        """Return the prompt with the transcript as the start of the reply."""
        pinned = pinned_text(question, context)
        prompt = render(
            self.prompt, pinned=pinned, question=question.text, searches=self.max_searches
        )
        if prompt.form == "chat":
            return replace(prompt, prefill=prompt.prefill + transcript)
        (message,) = prompt.messages
        return replace(prompt, messages=(replace(message, content=message.content + transcript),))


def notice_text(template: str) -> str:
    """Return the text of a notice."""
    return render(template).messages[0].content
