"""KnowTrace's baselines: the sequence of calls of each, their ways to end, and what they do with odd replies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kgqa.calls import Call, CountTokens, Search
from kgqa.experiment.run import without_tokens
from kgqa.methods.safe import read_answer
from kgqa.methods.steps.knowtrace_graph import read_exploration
from kgqa.methods.steps.reader import read
from kgqa.methods.steps.replies import read_conclusion, read_score
from kgqa.methods.text_baselines import read_action
from kgqa.testing import drive
from kgqa.types import Answer, Completion, Passage, Question
from tests import method_world
from tests.composed import built_method
from tests.thoughts_world import ALDER, BIRCH, CEDAR, CONCLUDED, IRCOT, WROTE
from tests.thoughts_world import World as IrcotWorld

QUESTION = Question("q", "Where was the author of Reed Lake born?", ("Gorm",))
REED = Passage.of("Reed Lake", "Reed Lake is a novel by Ada Holm.")
HOLM = Passage.of("Ada Holm", "Ada Holm was born in Gorm.")
NAMES = ("iter_retgen", "self_ask", "react", "sg_prompt", "ge_reasoning", "era_cot")


class World(method_world.World):
    """Answers searches by title, and keeps the calls as short words, too."""

    def __init__(self, *replies: str) -> None:
        super().__init__(replies, (REED, HOLM))

    def search(self, call: Search) -> tuple[Passage, ...]:
        return tuple(each for each in self.passages if each.title in call.query) or (REED,)

    @property
    def steps(self) -> list[str]:
        calls = [call for call in self.calls if not isinstance(call, CountTokens)]
        return [
            f"search {c.query}" if isinstance(c, Search) else c.prompt.name.rpartition("/")[2]  # type: ignore[attr-defined]
            for c in calls
        ]

    def answer(self, name: str, **changes: Any) -> Answer:
        answer: Answer = drive(replace(built_method(name), **changes).answer(QUESTION), self)
        return answer


def test_sg_prompt_and_iter_retgen_search_and_answer() -> None:
    world = World(" Ada Holm wrote it.\nAnswer: unknown", " She was born in Gorm.\nAnswer: Gorm")
    answer = world.answer("iter_retgen")
    assert world.steps == [
        f"search {QUESTION.text}", "answer", f"search Ada Holm wrote it.\nAnswer: unknown {QUESTION.text}",
        "answer",
    ]  # fmt: skip
    assert (answer.text, answer.flags) == ("Gorm", {})
    assert "Title: Reed Lake" in world.prompts()[0].rpartition("Passages:")[2]
    assert set(answer.evidence) == {REED.id, HOLM.id}
    world = World(
        "<Reed Lake; by; Ada Holm>\n<Ada Holm; born in; Gorm>\n<oops; x>", " So.\nAnswer: Gorm"
    )
    answer = world.answer("sg_prompt")
    assert (world.steps, answer.text) == ([f"search {QUESTION.text}", "extract", "answer"], "Gorm")
    assert answer.flags == {"malformed_triple": 1}
    assert "<Ada Holm; born in; Gorm>" in world.prompts()[1]


def test_self_ask_searches_for_each_follow_up_question() -> None:
    world = World(
        " Who wrote Reed Lake?\n",
        " Ada Holm\nFollow-up: Where was Ada Holm born?\n",
        " Gorm\nFinal answer: Gorm",
    )
    answer = world.answer("self_ask")
    assert world.steps == [
        f"search {QUESTION.text}", "ask", "search Who wrote Reed Lake?", "ask", "search Where was Ada Holm born?",
        "ask",
    ]  # fmt: skip
    assert answer.text == "Gorm"
    assert not answer.flags
    last = world.generations[-1].prompt
    assert last.prefill == (
        "Follow-up: Who wrote Reed Lake?\nIntermediate answer: Ada Holm\n"
        "Follow-up: Where was Ada Holm born?\nIntermediate answer:"
    )
    # all passages stand before the question
    assert "Title: Ada Holm" in last.messages[0].content


@pytest.mark.parametrize(
    ("replies", "flags"),
    [
        pytest.param(
            [" Who?\n", " Ada\nFollow-up: Who?\n", " Gorm"],
            {"repeated_follow_up": 1},
            id="repeated",
        ),
        pytest.param([" \n", " Gorm"], {"unreadable_reply": 1}, id="empty"),
        pytest.param(
            [" 0?\n", *(f" a\nFollow-up: {n}?\n" for n in range(1, 5)), " Gorm"], {}, id="too many"
        ),
    ],
)
def test_self_ask_forces_an_answer(replies: list[str], flags: dict[str, int]) -> None:
    world = World(*replies)
    answer = world.answer("self_ask")
    assert (answer.text, answer.flags) == ("Gorm", {"forced_answer": 1, **flags})
    assert world.generations[-1].prompt.prefill.endswith("\nFinal answer:")


def test_react_alternates_thought_and_action() -> None:
    world = World(
        " I need the author.\nAction 1: Search[Reed Lake author]",
        " Ada Holm. Where was she born?\nAction 2: Search[Ada Holm born]",
        " In Gorm.\nAction 3: Finish[Gorm]",
    )
    answer = world.answer("react")
    assert world.steps == [
        "step",
        "search Reed Lake author",
        "step",
        "search Ada Holm born",
        "step",
    ]
    assert (answer.text, answer.evidence) == ("Gorm", (REED.id, HOLM.id))
    assert world.generations[1].prompt.prefill == (
        "Thought 1: I need the author.\nAction 1: Search[Reed Lake author]\n"
        "Observation 1: Title: Reed Lake\nReed Lake is a novel by Ada Holm.\nThought 2:"
    )
    world = World(
        " Hm.", " look it up", " ok\nAction 2: Search[x]", " no\nAction 3: Search[x]", "\nGorm]"
    )
    answer = world.answer("react", max_steps=3, at_limit="answer")
    assert answer.text == "Gorm"
    flags = {
        "prompted_action": 1,
        "unreadable_action": 1,
        "repeated_search": 1,
        "unfinished": 1,
        "forced_answer": 1,
    }
    assert answer.flags == flags
    assert world.generations[-1].prompt.prefill.endswith("Action 4: Finish[")
    world = World(
        " I need the author.\nAction 3: Finish[Gorm]",
        " Search[Reed Lake]",
        " So.\nAction 2: Finish[Ada Holm]",
    )
    answer = world.answer("react")
    assert world.steps == ["step", "step", "search Reed Lake", "step"]
    assert (answer.text, answer.flags) == ("Ada Holm", {"prompted_action": 1})
    assert world.generations[1].prompt.prefill == "Thought 1: I need the author.\nAction 1:"


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(" So.\nAction 2: Finish[Gorm]", id="plain"),
        pytest.param(" So.\n**Action 2:** Finish[Gorm].", id="bold"),
        pytest.param(
            " So.\naction 2: finish[Gorm]\n\nThought 3: done\nAction 3: Search[x]", id="lower case"
        ),
        pytest.param(" So.\nAction 1: Search[x]\nAction 2: Finish[Gorm]", id="first action"),
    ],
)
def test_action_parses_in_usual_forms(step: str) -> None:
    kind, argument, end = read_action(step, 2)
    assert (kind, argument) == ("finish", "Gorm")
    assert "Thought 3" not in step[:end]


@pytest.mark.parametrize(
    ("text", "score"),
    [
        pytest.param(" 10", 10, id="10"),
        pytest.param("8.", 8, id="8."),
        pytest.param("10.", 10, id="10."),
        pytest.param("7/10", 7, id="7/10"),
        pytest.param("**9**", 9, id="9"),
        pytest.param("Score: 6", 6, id="Score 6"),
        pytest.param("8.5", 8.5, id="8.5"),
        pytest.param("9.0", 9, id="9.0"),
        pytest.param("0", 0, id="0"),
        pytest.param("100", None, id="100"),
        pytest.param("10.5", None, id="10.5"),
        pytest.param("-1", None, id="-1"),
        pytest.param("11/10", None, id="11/10"),
        pytest.param("x", None, id="x"),
        pytest.param("", None, id=""),
        pytest.param("The relation is 8", None, id="The relation is 8"),
    ],
)
def test_confidence_parses_in_usual_forms(text: str, score: float | None) -> None:
    assert read_score(text) == score


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id=""),
        pytest.param("Gorm", id="Gorm"),
        pytest.param("The answer to all questions", id="The answer to all questions"),
        pytest.param("He answered: yes", id="He answered yes"),
        pytest.param("Answerable: no", id="Answerable no"),
    ],
)
def test_text_without_marker_is_no_conclusion(text: str) -> None:
    assert read_conclusion(text) == (text, False)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("I looked.\nAnswer:", id="answer"),
        pytest.param("**Final answer:**", id="final answer"),
        # nothing after the marker
        pytest.param("So the answer is:", id="so the answer is"),
    ],
)
def test_conclusion_after_the_marker_may_be_empty(text: str) -> None:
    assert read_conclusion(text) == ("", True)


ODD = (
    "",
    "\n\n\n",
    "Die Antwort ist Gorm.",
    "la " * 200,
    '{"answer": ',
    "<a;b;c",
    "[](); \x00 ?1 <?1; ?1; ?1>",
)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("reply", ODD, ids=repr)
def test_odd_replies_are_survived_and_flagged(name: str, reply: str) -> None:
    def odd(call: Call[Any]) -> Any:
        if isinstance(call, Search):
            return ()
        return len(call.text) if isinstance(call, CountTokens) else Completion(reply, "length")

    answer = drive(built_method(name).answer(QUESTION), odd)
    assert answer.flags["cut_reply"] >= 1
    assert answer.text in reply or answer.text == ""


# GE-Reasoning: the question's graph, its sub-questions, and how sure an answer has to be

PLAIN: dict[str, Any] = {"rewrite": False, "threshold": 0}
GRAPH = "<Reed Lake; author; ?1>\n<?1; born in; ?2>"


def test_only_confident_triples_continue() -> None:
    world = World(
        GRAPH, " Who wrote Reed Lake?", " Ada Holm\n", " 9", " Where was Ada Holm born?", " Gorm.", " 6.",
        " The author is from Gorm.\nAnswer: Gorm",
    )  # fmt: skip
    answer = world.answer("ge_reasoning")
    assert world.steps == [
        "parse", *("ask", "search Who wrote Reed Lake?", "fill", "confidence"),
        *("ask", "search Where was Ada Holm born?", "fill", "confidence"), "answer",
    ]  # fmt: skip
    assert answer.text == "Gorm"
    assert not answer.flags
    triples = world.prompts()[-1].rpartition("Triples:")[2]
    assert triples == (
        "\n<Reed Lake; author; Ada Holm>\n<Ada Holm; born in; Gorm>\n"
        "Sub-questions:\nWho wrote Reed Lake? Ada Holm\nWhere was Ada Holm born? Gorm"
    )
    assert answer.notes["fills"] == [
        ("Who wrote Reed Lake?", "Ada Holm", 9),
        ("Where was Ada Holm born?", "Gorm", 6),
    ]


@pytest.mark.parametrize(
    ("reply", "flag"), [(" 5", "unsure_fill"), (" surely", "unreadable_score")]
)
def test_unsure_fill_leaves_the_triple_open(reply: str, flag: str) -> None:
    world = World(
        "<Reed Lake; author; ?1>", " Who wrote Reed Lake?", " Ada Holm", reply, "\nAnswer: Gorm"
    )
    assert world.answer("ge_reasoning").flags == {flag: 1, "unfilled": 1}
    final = world.prompts()[-1].rpartition("Question:")[2]
    assert "<Reed Lake; author; ?1>" in final
    assert "Ada Holm" not in final


def test_ge_reasoning_without_questions_or_fills() -> None:
    world = World("<Reed Lake; author; ?1>", " Who wrote it?", "unknown", "\nAnswer: Gorm")
    assert world.answer("ge_reasoning").flags == {"unfilled": 1}
    world = World(
        "<?1; wrote; Reed Lake>\n<?1; born in; Gorm>", "unknown", "Ada Holm", "\nAnswer: Gorm"
    )
    answer = world.answer("ge_reasoning", **PLAIN)
    assert world.steps == [
        "parse",
        "search wrote Reed Lake",
        "fill",
        "search born in Gorm",
        "fill",
        "answer",
    ]
    assert answer.notes["filled_graph"] == [
        ("Ada Holm", "wrote", "Reed Lake"),
        ("Ada Holm", "born in", "Gorm"),
    ]
    assert not answer.flags
    answer = World("<Reed Lake; author; ?1>", " ", "Ada Holm", "9", "\nAnswer: Gorm").answer(
        "ge_reasoning"
    )
    assert answer.flags == {"empty_question": 1}
    answer = World("<?1; author of; ?2>", "\nAnswer: Gorm").answer("ge_reasoning")
    assert answer.flags == {"no_search": 1, "unfilled": 1}


@pytest.mark.parametrize(
    ("graph", "filled"),
    [
        pytest.param(
            "<Reed Lake; author; ?author>\n<?author; born in; ?town>",
            ("Ada Holm", "born in", "Gorm"),
            id="names",
        ),
        pytest.param(
            "<Reed Lake; author; ?>\n<?; born in; ?>", ("Ada Holm", "born in", "Gorm"), id="marks"
        ),
        pytest.param(
            "Reed Lake; author; ?1\n?1; born in; ?2", ("Ada Holm", "born in", "Gorm"), id="numbers"
        ),
        pytest.param(
            "<Reed Lake; author; ?>\n<Who?; author; ?>",
            ("Who?", "author", "Gorm"),
            id="mark in a name",
        ),
    ],
)
def test_ge_reasoning_fills_unknowns(graph: str, filled: tuple[str, str, str]) -> None:
    answer = World(graph, "Ada Holm", "Gorm", "\nAnswer: Gorm").answer("ge_reasoning", **PLAIN)
    assert answer.notes["filled_graph"] == [("Reed Lake", "author", "Ada Holm"), filled]
    assert not answer.flags


def test_independent_unknowns_are_filled_in_parallel() -> None:
    widths: list[int] = []
    world = World(
        "<Reed Lake; author; ?1>\n<Ada Holm; born in; ?2>", "Ada Holm", "Gorm", "\nAnswer: Gorm"
    )
    drive(replace(built_method("ge_reasoning"), **PLAIN).answer(QUESTION), world, widths)
    assert widths == [2]


# ERA-CoT: entities with types, implied relations for each pair, each scored


def test_era_cot_goes_through_its_five_stages() -> None:
    world = World(
        # the prompt ends with the first mark, here
        " Reed Lake\n- Ada Holm\n- Gorm",
        "Reed Lake; by; Ada Holm>\n<Gorm; twinned with; Reed>",  # and here
        "<Reed Lake's author; born in; Gorm>\n<Gorm; capital of; Reed>\n<Reed Lake; by; Ada Holm>",
        " 8",
        " 2",
        " It follows.\nAnswer: Gorm",
    )
    answer = world.answer("era_cot")
    assert world.steps == [
        f"search {QUESTION.text}",
        "entities",
        "explicit",
        "implicit",
        "score",
        "score",
        "answer",
    ]
    final = world.prompts()[-1]
    assert "<Reed Lake's author; born in; Gorm>" in final
    assert "capital of" not in final  # scored below the threshold
    once = len(f"Title: {REED.title} {REED.text}".split())
    assert answer.figures == {
        "entities": 3,
        "explicit": 2,
        "implicit": 1,
        "passage_tokens": 6 * once,
    }
    assert (answer.context_tokens, answer.text) == (once, "Gorm")


@pytest.mark.parametrize(
    ("score", "count", "flags"),
    [
        pytest.param(" 6", 1, {}, id="at the threshold"),
        pytest.param(" 5", 0, {}, id="below the threshold"),
        pytest.param(" surely", 0, {"unreadable_score": 1}, id="unreadable"),
    ],
)
def test_era_cot_drops_unreliable_relations(score: str, count: int, flags: dict[str, int]) -> None:
    explicit, implicit = "Reed Lake; by; Ada Holm>", "<Reed Lake's author; born in; Gorm>"
    world = World(" Reed Lake\n- Gorm", explicit, implicit, score, "\nAnswer: Gorm")
    answer = world.answer("era_cot")
    assert answer.figures["implicit"] == count
    assert answer.flags == flags
    assert (implicit in world.prompts()[-1]) == bool(count)


def test_era_cot_limits_relations_of_a_pair() -> None:
    between = "\n".join(
        f"<A; relation {number}; B>\n<b; relation {number}; a>" for number in range(3)
    )
    others = "\n".join(f"<entity {number}; relation; C>" for number in range(30))
    world = World("A (person)", "", f"{between}\n{others}", *["9"] * 32, "\nAnswer: Gorm")
    answer = world.answer("era_cot", relations_per_pair=2)
    assert "at most 2 for each pair" in world.prompts()[2]
    assert [relation for relation, _ in answer.notes["implicit"]][:3] == [
        "<A; relation 0; B>", "<b; relation 0; a>", "<entity 0; relation; C>",
    ]  # fmt: skip
    assert (answer.figures["implicit"], answer.flags) == (32, {"too_many_relations": 4})


def test_passages_are_counted_unless_estimated() -> None:
    answer = IrcotWorld([WROTE, CONCLUDED, "1901"], {"wrote": (BIRCH,), "": (ALDER, CEDAR)}).answer(
        IRCOT
    )
    alder, birch, cedar = (
        len(f"Title: {each.title} {each.text}".split()) for each in (ALDER, BIRCH, CEDAR)
    )
    assert answer.figures == {"passage_tokens": 3 * (alder + cedar) + 2 * birch}
    assert answer.context_tokens == alder + cedar + birch
    estimated = Answer("Gorm", context_tokens=5, figures={"passage_tokens": 5, "pairs": 2})
    assert without_tokens(estimated) == Answer("Gorm", figures={"pairs": 2})


LABELLED = [
    "Answer: Gorm", "answer: Gorm", "**Answer:** Gorm", "**Answer**: Gorm", "**Answer: Gorm**", "Final answer: Gorm",
    "**Final Answer:** Gorm", "The final answer is: Gorm", "The answer is Gorm", "So the answer is: Gorm",
    "So, the answer is **Gorm**", "### Answer: Gorm", "- Answer: Gorm", "Answer:\nGorm",
]  # fmt: skip
INLINE = ["She was born there, so the answer is: Gorm.", "Thus, the answer is Gorm."]


@pytest.mark.parametrize(
    "start", [" Yes\nThought: Holm wrote it.\n", " Yes. Holm wrote it.\n", "Holm wrote it.\n"]
)
@pytest.mark.parametrize("form", LABELLED + INLINE)
def test_exploration_parses_usual_answer_forms(form: str, start: str) -> None:
    exploration = read_exploration(start + form)
    assert exploration.sufficient
    assert exploration.answer.strip("*") == "Gorm"
    assert exploration.thought.startswith("Holm wrote it.")


@pytest.mark.parametrize("form", LABELLED + INLINE)
def test_every_method_parses_usual_answer_forms(form: str) -> None:
    def reply(call: Any) -> Any:
        return Completion(form)

    answer, is_marked = read_conclusion(f"Ada Holm wrote it.\n{form}\n")
    assert (answer.strip("*"), is_marked) == ("Gorm", True)
    if form in LABELLED and "\n" not in form:
        assert drive(read(QUESTION, "", (), 25), reply).text.strip("*") == "Gorm"
        assert read_answer(Completion(form))[0].strip("*") == "Gorm"
        asked = World(" Who wrote it?\n", f" Ada Holm\n{form}").answer("self_ask")
        assert (asked.text.strip("*"), asked.flags) == ("Gorm", {})
