"""Whole prompts, as the models are given them, compared with texts of `prompts/` and `judge_prompts/`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kgqa.calls import Call, Generate, Program
from kgqa.judge.judges import FORMS
from kgqa.methods.steps.few_shot import FewShot, FewShotReply, Shot
from kgqa.methods.steps.reader import number_contexts, passages_text
from kgqa.methods.trace import Chain, ChainState, Layout, Trace, Unit
from kgqa.prompting import render
from kgqa.prompting.demonstrations import (
    ChainDemonstration,
    DocumentDemonstration,
    Selection,
    ThoughtDemonstration,
)
from kgqa.testing import drive
from kgqa.types import Completion, Passage, Prompt
from tests.golden.texts import check_names, check_text

QUESTION = "In which town was the composer of The Herring Queen born?"
PASSAGES = (
    Passage.of("The Herring Queen", "The Herring Queen is an opera by Asbjarne Lyngholt."),
    Passage.of("Asbjarne Lyngholt", "Asbjarne Lyngholt was born in Fauskenes."),
)
COMPOSER = "<The Herring Queen; composer; Asbjarne Lyngholt>"
BIRTHPLACE = "<Asbjarne Lyngholt; place of birth; Fauskenes>"
DOCUMENT = DocumentDemonstration(
    "Low Tide with Nets",
    "Low Tide with Nets is a painting of 1881 by Oddny Tveråskar.",
    ("<Low Tide with Nets; year; 1881>", "<Low Tide with Nets; painter; Oddny Tveråskar>"),
)
CHAIN = ChainDemonstration(
    "When was the painter of Low Tide with Nets born?",
    (
        Selection(
            ("<Low Tide with Nets; year; 1881>", "<Low Tide with Nets; painter; Oddny Tveråskar>"),
            1,
        ),
        Selection(
            ("<Oddny Tveråskar; date of birth; 17 June 1859>", "<Low Tide with Nets; year; 1881>"),
            0,
        ),
        Selection(
            ("<Oddny Tveråskar; date of death; 1933>", "<Low Tide with Nets; year; 1881>"), None
        ),
    ),
)


def selection_prompt(
    steps: int, may_stop: bool = True, triple: str = COMPOSER, layout: Layout = "figures"
) -> Prompt:
    method = Trace(
        context="triples", units="triples", candidates=2, ranker=True, selector=True, top=None, max_length=4,
        beam=5, branch=5, chains=5, min_probability=0.0, adaptive_termination=may_stop, query_order="question_first",
        query_labels=False, short_demonstrations="last_step", layout=layout, reader_layout=None,
        demonstrations="fixed", demonstration_count=1, few_shot=(CHAIN,), max_answer_tokens=25,
    )  # fmt: skip
    offered = BIRTHPLACE if triple == COMPOSER else COMPOSER
    units = [Unit(text, (text,), "p") for text in (triple, offered)]
    return method.selection_prompt(
        ChainState(QUESTION, tuple(units), (CHAIN,)), Chain(tuple(units[:steps])), units[steps:]
    )


def extraction_prompt(head: str, *demonstrations: DocumentDemonstration) -> Prompt:
    passage = PASSAGES[0]
    return render(
        "trace/extract",
        head=head,
        demonstrations=demonstrations,
        title=passage.title,
        text=passage.text,
    )


EVIDENCE = {
    "question": "When was the painter of Low Tide with Nets born?",
    "evidence": "Low Tide with Nets is a painting of 1881 by Oddny Tveråskar.",
    "next": "Oddny Tveråskar was born on 17 June 1859.",
}
THOUGHT = ThoughtDemonstration(
    "When was the painter of Low Tide with Nets born?",
    "17 June 1859",
    "Low Tide with Nets was painted by Oddny Tveråskar. Oddny Tveråskar was born on 17 June 1859. "
    "So the answer is: 17 June 1859.",
    ((Passage.of("Low Tide with Nets", "It was painted by Oddny Tveråskar."),),),
    pinned=(Passage.of("Oddny Tveråskar", "Oddny Tveråskar painted the coast."),),
    titles=("Low Tide with Nets", 'The "Coast" Gallery'),
)


def few_shot_prompt(ask: Callable[[FewShot], Program[FewShotReply]], **changes: Any) -> Prompt:
    few_shot = FewShot(
        (THOUGHT,), sample=1, sample_size=1, distractors=0, instructed=False, context_limit=8000,
        drop="end", passage_words=None,
    )  # fmt: skip
    asked: list[Prompt] = []

    def reply(call: Call[Any]) -> Any:
        if isinstance(call, Generate):
            asked.append(call.prompt)
        return Completion("") if isinstance(call, Generate) else 0

    drive(ask(replace(few_shot, **changes)), reply)
    return asked[0]


def shot_prompt(shot: Shot, **changes: Any) -> Prompt:
    return few_shot_prompt(lambda few_shot: few_shot.generate(shot, 100, "agent"), **changes)


PROMPTS = {
    "few_shot_thought": shot_prompt(Shot(QUESTION, PASSAGES, "cot", "It is by Asbjarne Lyngholt.")),
    "few_shot_direct": shot_prompt(Shot(QUESTION, PASSAGES, "direct")),
    "few_shot_instructed": shot_prompt(
        Shot(QUESTION, PASSAGES[:1], "cot"), instructed=True, distractors=None
    ),
    "few_shot_titles": few_shot_prompt(
        lambda few_shot: few_shot.titles(QUESTION, PASSAGES[:1], 3, 100)
    ),
    "kgp_evidence": render(
        "kgp/evidence", examples=[EVIDENCE], question=QUESTION, evidence=PASSAGES[0].text
    ),
    "kgp_evidence_t5": render(
        "kgp/evidence_t5",
        instruction="What is missing?",
        question=QUESTION,
        evidence=PASSAGES[0].text,
    ),
    "kgp_evidence_llama": render(
        "kgp/evidence_llama",
        instruction="What is missing?",
        question=QUESTION,
        evidence=PASSAGES[0].text,
    ),
    "kgp_classify": render(
        "kgp/classify", question="What does table 2 on page 3 say of Fauskenes?"
    ),
    "kgp_answer": render(
        "kgp/answer",
        question=QUESTION,
        context=number_contexts(passage.text for passage in PASSAGES),
    ),
    "kgp_answer_no_context": render("kgp/answer", question=QUESTION, context=""),
    "reader_documents": render("reader/answer", question=QUESTION, context=passages_text(PASSAGES)),
    "reader_triples": render(
        "reader/answer", question=QUESTION, context=f"{COMPOSER}\n{BIRTHPLACE}"
    ),
    "reader_no_context": render("reader/answer", question=QUESTION, context=""),
    "trace_extract": extraction_prompt("title", DOCUMENT),
    "trace_extract_any_head": extraction_prompt("any", DOCUMENT),
    "trace_extract_no_demonstrations": extraction_prompt("title"),
    "trace_extract_begun": render(
        "trace/extract_begun",
        head="any",
        demonstrations=[DOCUMENT],
        title="shanty",
        text=PASSAGES[0].text,
    ),
    "trace_select_first": selection_prompt(0),
    "trace_select_second": selection_prompt(1),
    "trace_select_begun": selection_prompt(1, layout="prefixed"),
    "trace_select_fixed_length": selection_prompt(1, may_stop=False),
}


@pytest.mark.parametrize("name", PROMPTS)
def test_a_prompt_is_the_golden_text(name: str) -> None:
    check_text("prompts", name, PROMPTS[name])
    check_names("prompts", PROMPTS)


JUDGED = {
    "question": "Where was Ilse Ravenholt born?",
    "golds": ("Pellery", "the town of Pellery"),
    "answer": "She was born in Pellery.",
    "passages": (Passage.of("Ilse Ravenholt", "Ilse Ravenholt was born in Pellery."),),
}
WAYS = {"": (False, False), "_again": (True, False), "_swapped": (False, True)}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("form", FORMS)
def test_judge_prompt_is_golden_text(form: str, way: str) -> None:
    again, swapped = WAYS[way]
    prompt = render(FORMS[form].template, **JUDGED, again=again, swapped=swapped)
    check_text("judge_prompts", f"{form}{way}", prompt, has_prefill=False)
    check_names("judge_prompts", (f"{form}{way}" for form in FORMS for way in WAYS))


def test_selection_prompts_of_a_step_share_a_prefix() -> None:
    one, other = (selection_prompt(1, triple=triple).messages for triple in (COMPOSER, BIRTHPLACE))
    assert one[0] == other[0]
    stable = {message.content.partition("Chain so far: <")[0] for message in (one[1], other[1])}
    assert stable == {f"Question: {QUESTION}\n"}
