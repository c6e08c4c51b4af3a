"""Test that the runs which `kgqa new prompt` names use the template."""

from __future__ import annotations

import pytest

from kgqa.config.prompt_runs import list_prompt_runs
from kgqa.config.scaffolding import shipped_templates
from kgqa.experiment.composing import compose_experiment
from kgqa.experiment.dry_run import Shared, plan_calls
from kgqa.experiment.session import Session

# not in a plan of demo: they need an index that a model writes, other data or a wrong solution, or are texts in the
# prompt tool_agent/agent
_NOT_PLANNED = {
    "few_shot/titles", "kgp/classify", "lightrag/extract", "lightrag/glean", "lightrag/merge", "teach/first_error",
    "tool_agent/limit",
    *(
        f"tool_agent/{tool}{part}"
        for tool in ("keyword_search", "read_chunk", "semantic_search")
        for part in ("", "_argument", "_top_k")
    ),
}  # fmt: skip
RUNS = sorted(
    {
        words
        for template in shipped_templates()
        if template not in _NOT_PLANNED
        for words in list_prompt_runs(template)
    }
)


def test_every_template_has_a_run() -> None:
    assert [name for name in shipped_templates() if not list_prompt_runs(name)] == []


@pytest.mark.slow
@pytest.mark.parametrize("words", RUNS)
def test_run_uses_its_templates(words: str) -> None:
    named = {name for name in shipped_templates() if words in list_prompt_runs(name)}
    fixed = ("dataset=demo", "limit=1", "engine=scripted", "ranker=lexical")
    with Session(compose_experiment([*words.split(), *fixed])) as session:
        roles = plan_calls(session, Shared()).values()
    planned = {template for role in roles for template in role.first}
    assert named - _NOT_PLANNED <= planned
