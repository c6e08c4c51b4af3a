"""A-RAG (Du et al., 2026): a model with three tools that search a corpus by words, by meaning, and read passages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from kgqa.calls import Generate, Locate, Rank, Search
from kgqa.methods.steps.examples import NOTHING_FOUND
from kgqa.methods.steps.reader import ReadingLog, pinned_text
from kgqa.methods.steps.search import ScopedMethod
from kgqa.methods.steps.tools import FORM, RESPONSE, Tool, as_text, read_calls, repair_call
from kgqa.prompting import render, to_json
from kgqa.protocols import Need
from kgqa.types import Answer, Completion, Json, Message, Passage, Prompt, Question, ToolCall
from kgqa.util.sentences import sentences
from kgqa.util.settings import AddedLater, Setting
from kgqa.util.validators import Count, NotNegative, Validator

ToolName = Literal["keyword_search", "semantic_search", "read_chunk"]
TOOLS: dict[str, Tool] = {
    tool.name: tool
    for tool in (
        Tool("keyword_search", "keywords", list[str]),
        Tool("semantic_search", "query", str),
        Tool("read_chunk", "chunk_ids", list[int], "chunk_id"),
    )
}
REPEATED = "You have made this call before, see its result above. Try other words or another tool, or answer."
NO_ROOM = "There is no room for these chunks any more."


# of one reply, and unknown chunks of one call
MOST_CALLS = 10
# characters of what the model wrote in a message to it
SHOWN = 60


@dataclass(frozen=True)
class Result:
    """The result of a call: chunks with their numbers, complete or as a sentence, and a text of the tool."""

    call: ToolCall
    text: str = ""
    chunks: tuple[tuple[int, Passage], ...] = ()

    def show(self, context: Sequence[Passage]) -> str:
        """Return the result with only these passages."""
        lines = [
            f"[{number}] {passage.title}: {passage.text}"
            for number, passage in self.chunks
            if passage in context
        ]
        return "\n".join(filter(None, [*lines, self.text])) or NO_ROOM


@dataclass(slots=True)
class Library:
    """The chunks that tools have shown for one question.

    places: their places in the corpus by id, which are their numbers. None: the number of a chunk is its position in
    `found`, from 1.
    """

    found: list[Passage] = field(default_factory=list)
    read: list[Passage] = field(default_factory=list)
    made: list[tuple[str, Any, int]] = field(default_factory=list)  # calls that were carried out
    turns: list[tuple[Completion, list[Result]]] = field(default_factory=list)
    places: dict[str, int] | None = None

    def number(self, passage: Passage) -> int:
        if passage not in self.found:
            self.found.append(passage)
        return self.found.index(passage) + 1 if self.places is None else self.places[passage.id]

    @property
    def chunks(self) -> dict[int, Passage]:
        """Return the chunks by number."""
        return {self.number(passage): passage for passage in self.found}

    @property
    def results(self) -> list[Result]:
        return [result for _, results in self.turns for result in results]


@dataclass(frozen=True)
class ToolAgent(ScopedMethod):
    """The agent.

    Stages: the model calls tools until it answers. With `protocol=functions` it does so by the function calls of a
    server, with `protocol=text` in its reply, see `methods.steps.tools`.
    """

    protocol: Annotated[
        Literal["functions", "text"],
        Setting(
            "How tools are called: functions, by the server (default with engine=openai) | text, as JSON in tags "
            "of the reply (default with other engines).",
            paper="A-RAG: functions",
        ),
    ] = field(kw_only=True)
    tools: Annotated[
        tuple[ToolName, ...],
        Setting(
            "Tools of the model. Without read_chunk, searches show complete passages.",
            paper="A-RAG",
        ),
        Validator("name at least one tool", bool),
    ] = ("keyword_search", "semantic_search", "read_chunk")
    passages: Annotated[
        Count, Setting("Number of passages per search.", code="keyword_search.py:85")
    ] = 5
    max_turns: Annotated[
        Count,
        Setting(
            "Maximum number of turns with calls. Then the answer is requested.",
            code="base.py:21",
            other="example.yaml:23: 15",
        ),
    ] = 10
    max_turn_tokens: Annotated[
        Count,
        Setting(
            "Maximum tokens of a generation.",
            ours="example.yaml:11: 16,384, for models that reason first",
        ),
    ] = 1024
    temperature: Annotated[
        NotNegative, Setting("Sampling temperature.", code="example.yaml:10")
    ] = 0.0
    prompts: Annotated[
        str,
        Setting(
            "Folder of the templates agent, limit, and the descriptions of tools and their arguments.",
            ours="the words are ours",
        ),
    ] = "tool_agent"
    max_passages: Annotated[
        Count | None,
        Setting(
            "Most passages per search if the model can choose their number, as top_k. null: it cannot.",
            ours="keyword_search.py:94: 20",
        ),
    ] = None
    repeated: Annotated[
        Literal["notice", "call"],
        Setting(
            "Effect of a repeated call: notice (it is not carried out) | call.",
            ours="base.py:147 carries it out",
        ),
    ] = "notice"
    reply: Annotated[
        Literal["marked", "complete"],
        Setting(
            'The answer: marked (the text after "Answer:") | complete, the last message, even if it is empty.',
            ours="base.py:125: complete",
        ),
    ] = "marked"
    chunks: Annotated[
        Literal["found", "corpus"],
        Setting(
            "Numbers of chunks: found (from 1, as searches find them, and only these can be read) | corpus (their "
            "places in the corpus from 0, and all can be read, also neighbors).",
            ours="read_chunk.py:109: corpus",
        ),
        AddedLater(),
    ] = "found"

    @property
    def uses(self) -> frozenset[Need]:
        functions: frozenset[Need] = frozenset(
            {"functions"} if self.protocol == "functions" else ()
        )
        return super().uses | functions

    async def answer(self, question: Question) -> Answer:
        """Let the model call tools until it answers.

        An error in a call is its result, so that the model can call again. Evidence: the chunks that were read, then
        those that only searches showed. Notes: the calls with the ids of their passages, and the last reply. Figures:
        tool_calls and chunks_read.

        Flags: those of `ReadingLog`, `invalid_call` (per call of an unknown tool or with wrong arguments),
        `repeated_call` (per call that was made before), `too_many_calls` (per reply with more than 10 calls: the
        others are ignored), `forced_answer` (requested after `max_turns`, or after `no_action`, a turn without a
        call and an answer) and `no_tool_call` (an answer without any).
        """
        log, text = ReadingLog(question, self.scope_of(question)), None
        library = Library(places={} if self.chunks == "corpus" else None)
        for _ in range(self.max_turns):
            reply = await self.write(library, log)
            tool_calls = reply.tool_calls or read_calls(reply.text)[1]
            if not tool_calls:
                is_answer = (
                    bool(reply.text.strip()) or self.reply == "complete"
                ) and reply.finish == "stop"
                log.flags["no_action"] += not is_answer
                text = reply.text if is_answer else None
                break
            log.flags["too_many_calls"] += len(tool_calls) > MOST_CALLS
            library.turns.append(
                (reply, [await self.call(call, library, log) for call in tool_calls[:MOST_CALLS]])
            )
        if text is None:
            log.flags["forced_answer"] += 1
            text = read_calls((await self.write(library, log, force=True)).text)[0]
        log.flags["no_tool_call"] += not library.turns
        chunks = library.chunks
        calls = [
            [
                result.call.name,
                result.call.arguments,
                [chunks[number].id for number, _ in result.chunks],
            ]
            for result in library.results
        ]
        notes = {"calls": calls, "reply": text.strip()}
        figures = {"tool_calls": len(library.results), "chunks_read": len(library.read)}
        answer = text if self.reply == "complete" else log.read_conclusion(text)
        return log.answer(answer, [*library.read, *library.found], notes, figures)

    async def write(self, library: Library, log: ReadingLog, *, force: bool = False) -> Completion:
        """Generate the next turn. `force`: the answer, without tools."""
        has_functions = self.protocol == "functions"
        stop = () if has_functions else (RESPONSE,)
        tools = to_json(self.schemas()) if has_functions and not force else None

        def call(context: tuple[Passage, ...]) -> Generate:
            prompt = self.continue_prompt(log.question, library, context, force=force)
            return Generate(prompt, self.max_turn_tokens, stop, self.temperature, tools=tools)

        chunks = [passage for result in reversed(library.results) for _, passage in result.chunks]
        return await log.send(call, list(dict.fromkeys(chunks)))

    def continue_prompt(
        self,
        question: Question,
        library: Library,
        context: Sequence[Passage],
        *,
        force: bool = False,
    ) -> Prompt:
        """Return the prompt with the conversation so far, and only these passages in it."""
        has_functions = self.protocol == "functions"
        tools = "" if has_functions else "\n".join(map(to_json, self.schemas()))
        pinned = pinned_text(question, context)
        prompt = render(f"{self.prompts}/agent", tools=tools, pinned=pinned, question=question.text)
        messages = list(prompt.messages)
        for reply, results in library.turns:
            if has_functions:
                calls = tuple(repair_call(result.call) for result in results)
                messages.append(Message("assistant", read_calls(reply.text)[0], calls))
            else:
                messages.append(Message("assistant", reply.text))
            messages += (
                Message("tool", result.show(context), answers=result.call.id) for result in results
            )
        if force:
            messages += render(f"{self.prompts}/limit").messages
        return replace(prompt, messages=tuple(messages) if has_functions else as_text(messages))

    def schemas(self) -> list[Json]:
        """Return the tools in the form of OpenAI's `tools`."""
        return [
            TOOLS[name].schema(self.prompts, self.passages, self.max_passages)
            for name in self.tools
        ]

    async def call(self, call: ToolCall, library: Library, log: ReadingLog) -> Result:
        """Return the result of a call, or what is wrong with it."""
        try:
            value, count = self.read_arguments(call)
        except ValueError as error:
            log.flags["invalid_call"] += 1
            return Result(call, f"Error: {error}.")
        is_repeated = (call.name, value, count) in library.made
        log.flags["repeated_call"] += is_repeated
        if is_repeated and self.repeated == "notice":
            return Result(call, REPEATED)
        library.made.append((call.name, value, count))
        if call.name == "read_chunk":
            await self.load_chunks(value, library, log)
            return self.read_chunks(call, value, library, log)
        if call.name == "keyword_search":
            passages = await Search(
                "; ".join(value), count, log.scope.titles, log.scope.pool, tuple(value)
            )
        else:
            passages = await log.scope.search(value, count)
        log.flags["empty_retrieval"] += not passages
        context: Sequence[Passage] = passages
        if "read_chunk" in self.tools:
            context = await find_snippets(passages, value)
        else:
            library.read += passages
        if library.places is not None:
            places = await Locate(tuple(passages), log.scope.pool)
            library.places |= {
                passage.id: place for passage, place in zip(passages, places, strict=True)
            }
        numbers = map(library.number, passages)
        return Result(
            call, "" if passages else NOTHING_FOUND, tuple(zip(numbers, context, strict=True))
        )

    def read_arguments(self, call: ToolCall) -> tuple[Any, int]:
        """Return the argument of a call and its number of results.

        Raise ValueError with the reason, for the model, if the call is invalid.
        """
        if not call.name:
            raise ValueError(f"this is no call: {FORM}")
        if call.name not in self.tools:
            raise ValueError(
                f"there is no tool {call.name[:SHOWN]!r}; the tools are {', '.join(self.tools)}"
            )
        return TOOLS[call.name].read(call.arguments, self.passages, self.max_passages)

    async def load_chunks(self, numbers: Sequence[int], library: Library, log: ReadingLog) -> None:
        """Add the chunks with these places in the corpus to those that the model knows, with chunks=corpus."""
        if library.places is None:
            return
        for number in dict.fromkeys(numbers):
            if number not in library.chunks:
                passages = await Search(
                    f"chunk {number}", 1, pool=log.scope.pool, positions=(number,)
                )
                library.places |= {passage.id: number for passage in passages}
                library.found += passages

    def read_chunks(
        self, call: ToolCall, numbers: Sequence[int], library: Library, log: ReadingLog
    ) -> Result:
        """Return complete chunks. Those that were read before are named only."""
        by_number = library.chunks
        unknown = list(dict.fromkeys(number for number in numbers if number not in by_number))
        chunks = {number: by_number[number] for number in numbers if number in by_number}
        again = [number for number, passage in chunks.items() if passage in library.read]
        fresh = {number: passage for number, passage in chunks.items() if number not in again}
        library.read += fresh.values()
        log.flags["invalid_call"] += bool(unknown)
        texts = [f"Chunk {number} was read before." for number in again]
        texts += [
            f"Error: there is no chunk {str(number)[:SHOWN]}; read chunks that a search has found."
            for number in unknown[:MOST_CALLS]
        ]
        return Result(call, "\n".join(texts), tuple(fresh.items()))


async def find_snippets(passages: Sequence[Passage], query: str | list[str]) -> list[Passage]:
    """Return each passage with only its sentences that contain a keyword, or its sentence nearest to a query.

    A passage without such a sentence has its first one.
    """
    split = [passage.sentences or tuple(sentences(passage.text)) or ("",) for passage in passages]
    if isinstance(query, str):
        every = tuple(sentence for parts in split for sentence in parts)
        scores = iter(await Rank(query, every, "tfidf") if every else ())
        scored = [[(next(scores), sentence) for sentence in parts] for parts in split]
        matches = [[max(pairs, key=lambda pair: pair[0])[1]] for pairs in scored]
    else:
        words = [keyword.casefold() for keyword in query]
        matches = [
            [part for part in parts if any(word in part.casefold() for word in words)]
            for parts in split
        ]
    texts = (
        " ".join(snippet).strip() or parts[0].strip()
        for snippet, parts in zip(matches, split, strict=True)
    )
    return [Passage.of(passage.title, text) for passage, text in zip(passages, texts, strict=True)]
