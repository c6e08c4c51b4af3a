"""SAFE (arXiv 2604.01993) at inference: one atomic step per call, each judged before the next one (Figure 1, §3.3).

A step extracts one fact of one passage, draws one conclusion from earlier steps, or gives the final answer. After an
error, the step is generated again with the diagnosis and guidance of the evaluator. Steps are texts that are compared
with the passages. The paper uses a knowledge graph only to verify its training data.

Roles: `reader` generates the steps (template safe/step). It also judges them (safe/judge) with feedback=self, the role
`feedback` does with feedback=model. The error types are in `steps.safe_verdict`.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal

from kgqa.calls import CountTokens, Generate
from kgqa.methods.steps.reader import passages_text
from kgqa.methods.steps.replies import first_line, plain_answer, strip_answer_label
from kgqa.methods.steps.safe_verdict import (
    CORRECT,
    Labels,
    StepVerdict,
    errors,
    protocol,
    read_verdict,
    verdict_schema,
)
from kgqa.prompting import render
from kgqa.protocols import Need
from kgqa.types import Answer, Completion, Json, Passage, Prompt, Question
from kgqa.util.settings import Setting
from kgqa.util.validators import Count, not_negative

ANSWER_MARK = "####ANSWER:"
KINDS = r"\((Attribution|Logical|Final Answer)\)"
MARKER = re.compile(
    rf"#+\s*ANSWER:[^\S\n]*(.*?)[^\S\n]*(?:{KINDS}.*)?$", flags=re.IGNORECASE | re.MULTILINE
)
TAG = re.compile(rf"{KINDS}\W*$", flags=re.IGNORECASE)
# without an evaluator, the settings of verdicts have no effect
JUDGED = "feedback=self|model"
CITED = re.compile(r"\bPassage\s+(\d+)\b", flags=re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ReasoningStep:
    """The first line of a generated step."""

    text: str
    # "attribution", "logical", "final answer"; "" without a tag
    kind: str
    answer: str | None  # None: not the final answer


@dataclass(frozen=True, slots=True, eq=False)
class Attempt:
    """A try at a step, and the verdict of the evaluator, None without one.

    Attempts are compared by identity, because a step can be repeated word by word.
    """

    number: int  # from 1
    step: ReasoningStep
    verdict: StepVerdict | None


@dataclass(slots=True)
class SafeState:
    """The solution of one question so far. `shared`: the values that all its prompts need."""

    shared: Mapping[str, str]
    attempts: list[Attempt] = field(default_factory=list)
    accepted: list[Attempt] = field(default_factory=list)  # one for each step
    flags: Counter[str] = field(default_factory=Counter)
    prompts: set[Prompt] = field(default_factory=set)  # of steps

    @property
    def steps(self) -> list[str]:
        """Return the accepted steps as prompts show them."""
        return [step_line(attempt.number, attempt.step.text) for attempt in self.accepted]


@dataclass(frozen=True)
class Safe:
    """The method, with the fields of conf/method/safe.yaml."""

    feedback: Annotated[
        Literal["none", "self", "model"],
        Setting(
            "Evaluator of each step: none | self, the reader | model, the role `feedback`.",
            paper="§4.1",
        ),
    ] = "self"
    passages: Annotated[
        Count,
        Setting(
            "Passages per question: the gold ones and sampled distractors, shuffled.",
            paper="§4.1, Appendix A.4",
        ),
    ] = 10
    shuffle_seed: Annotated[
        int, Setting("Random seed of the passages' order.", ours="our choice")
    ] = 0
    repeats: Annotated[
        Literal["stop", "continue"],
        Setting(
            "What to do if a retry would have the prompt of an earlier try: stop correcting the step | "
            "continue (released).",
            ours="our choice",
        ),
    ] = "stop"
    max_steps: Annotated[
        Count, Setting("K: maximum number of steps.", paper="§4.1; 7, 10, 13 in Fig. 2")
    ] = 10
    max_retries: Annotated[
        int,
        Setting("N: maximum number of corrections of a step.", paper="§4.1; 1 to 5 in Fig. 2"),
        not_negative,
    ] = 3
    count_first_try: Annotated[
        bool, Setting("Let N count all tries. Fig. 2 and §A.8 count retries. Released: true.")
    ] = False
    guided_answer: Annotated[
        Literal["step", "conclude"],
        Setting(
            'Next step after guidance with "####ANSWER:": step (Figs. 1, 12) | conclude, the prompt of Fig. 13 '
            "(released)"
        ),
    ] = "step"
    rejected_answer: Annotated[
        Literal["end", "continue"],
        Setting(
            "What to do if the final answer is rejected N times: end (§4.1: N bounds the retries) | continue (released)"
        ),
    ] = "end"
    unparsable: Annotated[
        Literal["accept", "retry", "reject"],
        Setting(
            "What to do if a verdict cannot be parsed twice: accept the step | retry | reject at once (released).",
            ours="our choice",
            only_if=JUDGED,
        ),
    ] = "accept"
    labels: Annotated[
        Labels,
        Setting("Error types: paper, ten | released, with Premature Conclusion.", paper="Table 1"),
    ] = "paper"
    max_step_tokens: Annotated[Count, Setting("Maximum tokens of a step.", ours="our choice")] = 128
    max_feedback_tokens: Annotated[
        Count,
        Setting(
            "Maximum tokens of a verdict. Longer ones are truncated and flagged cut_verdict.",
            ours="our choice",
            only_if=JUDGED,
        ),
    ] = 256
    max_feedback_characters: Annotated[
        Count,
        Setting(
            "Maximum characters of diagnosis and of guidance, if the engine follows a JSON schema.",
            ours="our choice",
            only_if=JUDGED,
        ),
    ] = 400
    max_answer_tokens: Annotated[
        Count, Setting("Maximum tokens of the answer.", ours="our choice")
    ] = 32
    step_few_shot: Annotated[
        tuple[Mapping[str, Json], ...],
        Setting(
            "Few-shot examples of steps. The paper does not show its own (Figs. 11, 12).",
            ours="the examples are ours",
        ),
    ] = field(kw_only=True)
    verdict_few_shot: Annotated[
        tuple[Mapping[str, Json], ...], Setting("", ours="the examples are ours", only_if=JUDGED)
    ] = field(kw_only=True)

    uses: ClassVar[frozenset[Need]] = frozenset({"model"})
    reads_passages: ClassVar[bool] = True

    @property
    def separate_roles(self) -> Mapping[str, str]:
        """Return the roles that need their own model: an evaluator without one is feedback=self."""
        return {"feedback": "method.feedback=model"} if self.feedback == "model" else {}

    async def answer(self, question: Question) -> Answer:
        """Generate and judge steps until one gives the answer.

        Evidence: passages that accepted attribution steps cite, first cited first. Notes: every attempt with its
        verdict, and the cited texts. Figures: steps and retries, with feedback also errors by type (Figure 3) and by
        step (Figure 4).

        Flags: `forced_answer` (no answer within `max_steps`), `guided_answer` (per try that the guidance led to the
        final answer), `unresolved_step` (the last retry was an error and stays), `fixed_point` (the next retry of such
        a step would have the prompt of an earlier try), `unparsable_verdict`, `cut_verdict` (such replies that reached
        `max_feedback_tokens`), `untagged_step`, `no_passage_cited`, `empty_step`, `cut_reply` (of steps and answers),
        `empty_answer`.
        """
        passages, answer = self.sample_passages(question), None
        state = SafeState(self.prompt_values(question, passages))
        for number in range(1, self.max_steps + 1):
            attempt = await self.attempt(number, state, is_first=True)
            assert attempt is not None
            for _ in range(1, self.max_retries + (not self.count_first_try)):
                if not self.is_rejected(attempt.verdict):
                    break
                retried = await self.attempt(number, state)
                if retried is None:
                    state.flags["fixed_point"] += 1
                    break
                attempt = retried
            is_rejected = self.is_rejected(attempt.verdict)
            state.flags["unresolved_step"] += is_rejected
            state.accepted.append(attempt)
            if attempt.step.answer is not None:
                answer = attempt.step.answer
                if self.rejected_answer == "end" or not is_rejected:
                    break
        if answer is None:
            state.flags["forced_answer"] += 1
            answer = await self.conclude(state)
        state.flags["empty_answer"] += not answer
        attributions = [
            attempt.step.text for attempt in state.accepted if attempt.step.kind == "attribution"
        ]
        citations = [
            (strip_marks(text), passages[int(number) - 1].id)
            for text in attributions
            for number in CITED.findall(text)
            if 1 <= int(number) <= len(passages)
        ]
        state.flags["no_passage_cited"] += not citations
        attempts = [
            {
                "step": attempt.number,
                "text": attempt.step.text,
                "accepted": attempt in state.accepted,
                "verdict": attempt.verdict._asdict() if attempt.verdict else None,
            }
            for attempt in state.attempts
        ]
        return Answer(
            answer,
            tuple(dict.fromkeys(id_ for _, id_ in citations)),
            context_tokens=await CountTokens(state.shared["passages"]) if passages else 0,
            flags=state.flags,
            figures=self.figures(state.attempts),
            notes={"attempts": attempts, "cited": citations},
        )

    def sample_passages(self, question: Question) -> list[Passage]:
        """Return the gold passages and sampled distractors, `passages` in total (Appendix A.4).

        Sample and order depend only on the question and the seed.
        """
        chance = random.Random(f"{self.shuffle_seed}/{question.id}")  # noqa: S311
        distinct = list({passage.id: passage for passage in question.passages}.values())
        gold = [passage for passage in distinct if passage.id in question.support]
        others = [passage for passage in distinct if passage.id not in question.support]
        sample = gold + chance.sample(others, max(0, min(len(others), self.passages - len(gold))))
        chance.shuffle(sample)
        return sample

    def prompt_values(self, question: Question, passages: list[Passage]) -> dict[str, str]:
        """Return the values that all prompts of a question share."""
        return {"passages": numbered_text(passages), "question": question.text}

    async def attempt(
        self, number: int, state: SafeState, *, is_first: bool = False
    ) -> Attempt | None:
        """Generate and judge step `number` with the guidance of the latest verdict. None: a retry without a new prompt.

        The prompt shows a rejected attempt with its verdict (not in the paper), or a warning if it stays as a step. It
        also shows an attempt with an unreadable verdict, with the guidance before it.
        """
        unjudged = [
            attempt
            for attempt in state.attempts
            if attempt.verdict is None and attempt not in state.accepted
        ]
        last = next(
            (attempt for attempt in reversed(state.attempts) if attempt not in unjudged), None
        )
        tried = next((attempt for attempt in reversed(unjudged) if attempt.number == number), None)
        if (
            self.guided_answer == "conclude"
            and last
            and last.verdict
            and ANSWER_MARK in last.verdict.guidance
        ):
            state.flags["guided_answer"] += 1
            step = read_step(f"{ANSWER_MARK} {await self.conclude(state)} (Final Answer)")
        else:
            stays = last in state.accepted  # so it is in `steps`
            values = {
                **state.shared,
                "steps": state.steps,
                "last": last,
                "stays": stays,
                "tried": tried,
            }
            prompt = render(
                "safe/step",
                examples=self.step_few_shot,
                judged=self.feedback != "none",
                number=number,
                **values,
            )
            if self.repeats == "stop" and prompt in state.prompts and not is_first:
                return None
            state.prompts.add(prompt)
            step = await self.step(prompt, state.flags)
        verdict = None if self.feedback == "none" else await self.judge(number, step, state)
        state.attempts.append(Attempt(number, step, verdict))
        return state.attempts[-1]

    def judge_prompt(
        self, values: Mapping[str, object], number: int, step: ReasoningStep, *, again: bool = False
    ) -> Prompt:
        """Render the prompt of the evaluator, which is also its training prompt.

        values: those of `prompt_values`, and `steps`, the lines of the accepted steps.
        """
        variables = {
            **values,
            "examples": self.verdict_few_shot,
            "number": number,
            "step": step,
            "again": again,
        }
        return render("safe/judge", protocol=protocol(self.labels), correct=CORRECT, **variables)

    async def step(self, prompt: Prompt, flags: Counter[str]) -> ReasoningStep:
        reply = await Generate(prompt, self.max_step_tokens, stop=("\n",))
        line, cut = first_line(reply)
        step = read_step(line)
        flags.update(
            empty_step=not step.text, untagged_step=bool(step.text) and not step.kind, cut_reply=cut
        )
        return step

    async def judge(self, number: int, step: ReasoningStep, state: SafeState) -> StepVerdict | None:
        """Request the verdict, an unreadable one once more, unless that rejects the step at once."""
        role = "reader" if self.feedback == "self" else "feedback"
        schema = verdict_schema(self.max_feedback_characters, self.labels)
        for again in (False,) if self.unparsable == "reject" else (False, True):
            prompt = self.judge_prompt(
                {**state.shared, "steps": state.steps}, number, step, again=again
            )
            reply = await Generate(prompt, self.max_feedback_tokens, schema=schema, role=role)
            verdict = read_verdict(reply.text, self.labels)
            if verdict is not None:
                return verdict
            state.flags["cut_verdict"] += reply.finish == "length"
        state.flags["unparsable_verdict"] += 1
        return None

    def is_rejected(self, verdict: StepVerdict | None) -> bool:
        if verdict is None:
            return self.feedback != "none" and self.unparsable != "accept"
        return verdict.is_error

    async def conclude(self, state: SafeState) -> str:
        """Generate the final answer from the steps so far (Figure 13)."""
        reply = await Generate(
            render("safe/conclude", **state.shared, steps=state.steps), self.max_answer_tokens
        )
        answer, cut = read_answer(reply)
        state.flags["cut_reply"] += cut
        return answer

    def figures(self, attempts: list[Attempt]) -> dict[str, float]:
        steps = {attempt.number for attempt in attempts}
        figures: dict[str, float] = {"steps": len(steps), "retries": len(attempts) - len(steps)}
        if self.feedback == "none":
            return figures
        wrong = [attempt for attempt in attempts if attempt.verdict and attempt.verdict.is_error]
        types = Counter(attempt.verdict.error_type for attempt in wrong if attempt.verdict)
        errors_by_step = Counter(attempt.number for attempt in wrong)
        figures |= {f"errors, {name.lower()}": types[name] for name in errors(self.labels)}
        return figures | {
            f"errors at step {number}": errors_by_step[number]
            for number in range(1, self.max_steps + 1)
        }


def numbered_text(passages: Iterable[Passage]) -> str:
    """Return passages as all prompts have them, each with the number that steps cite."""
    numbered = (
        Passage(p.id, f"Passage {number}: {p.title}", p.text)
        for number, p in enumerate(passages, start=1)
    )
    return passages_text(numbered)


def read_answer(reply: Completion) -> tuple[str, bool]:
    """Return the answer of the first non-empty line, without tag and marker, and whether it was truncated.

    Models repeat the marker that the prompt started the reply with. Without prefill, all lines are searched for it.
    """
    if "no_prefill" in reply.flags and (marked := MARKER.search(reply.text)):
        reply = replace(reply, text=reply.text[marked.start() :])
    line, cut = first_line(reply)
    answer = read_step(line).answer
    return (strip_answer_label(TAG.sub("", line).strip()) if answer is None else answer), cut


def read_step(line: str) -> ReasoningStep:
    """Parse a step from the line after its number. Any string is accepted."""
    marked, tag = MARKER.search(line), TAG.search(line)
    if marked:
        return ReasoningStep(line, "final answer", plain_answer(marked.group(1)))
    return ReasoningStep(line, tag.group(1).lower() if tag else "", None)


def strip_marks(step: str) -> str:
    """Return the text of a step without its tag and the numbers of passages."""
    return CITED.sub("", TAG.sub("", step)).strip()


def step_line(number: int, text: str) -> str:
    """Return a step as later prompts show it."""
    return f"Step {number}: {text}"
