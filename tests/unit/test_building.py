"""What a configuration builds, and that no value in it ends in a traceback."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import pytest

from kgqa.config.building import check_value
from kgqa.config.files import groups
from kgqa.errors import ConfigError, UsageError
from tests.composed import build_choice, composed_node

BUILT = (
    "method",
    "retriever",
    "ranker",
    "reranker",
    "graph",
    "engine",
    "kg",
    "judge",
    "tracker",
    "collection",
)


# keys of a group that are the run's
RUNS = ("require_existing", "verified", "perturb")


def keys(node: Mapping[str, Any], *above: str) -> Iterator[tuple[str, ...]]:
    for name, value in node.items():
        if name != "_target_":
            yield (*above, name)
        if isinstance(value, Mapping):
            yield from keys(value, *above, name)


def changed(node: Mapping[str, Any], path: tuple[str, ...], value: object) -> dict[str, Any]:
    first, *rest = path
    return {**node, first: changed(node[first], tuple(rest), value) if rest else value}


def refusal(node: Mapping[str, Any], group: str) -> str | None:
    try:
        build_choice(node, group)
    except UsageError as error:
        return str(error)
    return None


@pytest.mark.slow
@pytest.mark.parametrize("value", ["abc", {"a": 1}], ids=["text", "mapping"])
@pytest.mark.parametrize(
    ("group", "name"), [(group, name) for group in BUILT for name in groups()[group]]
)
def test_wrong_value_of_any_key_fits_or_is_rejected(group: str, name: str, value: object) -> None:
    node = composed_node(group, name)
    paths = [*keys(node)] if isinstance(node, Mapping) and "_target_" in node else []
    messages = [refusal(changed(node, path, value), group) or "" for path in paths]
    assert [message for message in messages if "\n" in message] == []


COUNTS = {
    "engine=llamacpp": "max_num_seqs threads max_model_len",
    "engine=openai": "concurrency budget_tokens",
    "engine=scripted": "batch_size",
    "engine=transformers": "batch_size max_model_len",
    "engine=vllm": "max_num_seqs max_model_len tensor_parallel data_parallel",
    "model=smollm2_135m": "context",
    "kg=trace": "max_tokens max_prompt_tokens demonstration_count",
    "judge=three_way": "max_tokens",
    "judge=panel": "max_tokens",
    "collection=kgp": "documents passage_size",
    "dataset=folder": "passage_size",
    "dataset=hotpotqa": "hops.bridge",
    "method=era_cot": "passages relations_per_pair max_list_tokens max_tokens",
    "method=ge_reasoning": "passages max_rounds max_graph_tokens max_question_tokens max_fill_tokens max_tokens",
    "method=ircot": "passages_per_step max_passages max_steps max_thought_tokens max_answer_tokens"
    " few_shot.sample few_shot.context_limit",
    "method=iter_retgen": "iterations passages max_tokens",
    "method=kgp": "seeds branching hops budget max_evidence_tokens max_answer_tokens",
    "method=knowtrace": "passages max_iterations max_pairs max_exploration_tokens max_completion_tokens"
    " max_memory_tokens",
    "method=react": "passages max_steps max_step_tokens",
    "method=retrieve_only": "passages candidates",
    "method=retrieve_read": "passages candidates max_answer_tokens",
    "method=safe": "passages max_steps max_step_tokens max_feedback_tokens max_answer_tokens",
    "method=self_ask": "passages max_follow_ups max_tokens",
    "method=sg_prompt": "passages max_graph_tokens max_tokens",
    "method=trace": "candidates top max_length beam branch chains demonstration_count max_answer_tokens",
    "graph=knn": "k",
    "ranker=minilm": "max_length batch_size",
    "ranker=contriever": "batch_size",
    "reranker=minilm_cross": "max_length batch_size",
    "reranker=monot5": "batch_size",
    "reranker=rankllama": "batch_size",
    "retriever=hybrid": "constant depth",
    "retriever=mdr": "first_hop second_hop",
    "retriever=e5": "lists probes links build_breadth breadth",
}


@pytest.mark.parametrize(
    ("choice", "key", "value", "message"),
    [
        pytest.param("engine=openai", "retries", -1, "must be at least 0", id="retries"),
        pytest.param(
            "engine=openai", "timeout", 0.0, "must be a number of seconds above 0", id="timeout"
        ),
        pytest.param("engine=openai", "budget_usd", 0.0, "must be more than 0", id="budget_usd"),
        pytest.param(
            "engine=scripted", "delay", 3600.0, "must be between 0 and 3600 seconds", id="delay"
        ),
        pytest.param(
            "engine=vllm",
            "gpu_memory_utilization",
            0.0,
            "must be a share above 0, at most 1",
            id="gpu_memory_utilization",
        ),
        pytest.param("engine=vllm", "cache", 0.0, "must be above 0 GiB, or null", id="cache"),
        pytest.param(
            "model=gpt_4o_mini",
            "prices.input",
            math.nan,
            "must be a price in USD, 0 or more",
            id="prices.input",
        ),
        pytest.param(
            "model=smollm2_135m",
            "sha256",
            "ABC",
            "must be 64 lower-case hexadecimal digits, or null",
            id="sha256",
        ),
        pytest.param(
            "model=smollm2_135m",
            "packages",
            ("tiny:1.0",),
            "must be like name==version:path",
            id="packages",
        ),
        pytest.param("method=era_cot", "threshold", 11, "must be from 0 to 10", id="threshold"),
        pytest.param("method=ircot", "titles", -1, "must be at least 0", id="titles"),
        pytest.param(
            "method=ircot",
            "few_shot.distractors",
            -1,
            "must be at least 0",
            id="few_shot.distractors",
        ),
        pytest.param("method=retrieve_read", "titles", -1, "must be at least 0", id="titles"),
        pytest.param("method=safe", "max_retries", -1, "must not be negative", id="max_retries"),
        pytest.param(
            "method=trace", "candidates", 728, "at most 727 can be labeled", id="candidates"
        ),
        pytest.param(
            "method=trace", "min_probability", 1.0, "must be in [0, 1)", id="min_probability"
        ),
        pytest.param("graph=tfidf", "keywords", -1, "must be at least 0", id="keywords"),
        pytest.param("graph=tfidf", "longest", 0, "must be between 1 and 8", id="longest"),
        pytest.param(
            "graph=entities", "most_common", 0.0, "must be above 0 and at most 1", id="most_common"
        ),
        pytest.param(
            "graph=tagme", "url", "ftp://tagme", "expected http://… or https://…", id="url"
        ),
        pytest.param("ranker=contriever", "max_length", 7, "must be at least 8", id="max_length"),
        pytest.param(
            "reranker=rankllama", "max_length", 15, "must be at least 16", id="max_length"
        ),
        pytest.param(
            "retriever=bm25",
            "fields",
            {},
            "set a boost above 0 for title, text or both",
            id="fields",
        ),
        pytest.param(
            "retriever=bm25s",
            "fields",
            {"title": -1.0, "text": 1.0},
            "set a boost above 0 for title, text or both",
            id="fields",
        ),
        pytest.param("retriever=bm25s", "k1", -1.0, "must not be negative", id="k1"),
        pytest.param("retriever=bm25s", "b", -0.1, "must be between 0 and 1", id="b"),
        pytest.param(
            "retriever=elasticsearch",
            "fields",
            {},
            "set a boost above 0 for title, text or both",
            id="fields",
        ),
        pytest.param("retriever=elasticsearch", "k1", -1.0, "must not be negative", id="k1"),
    ],
)
def test_value_out_of_bounds_names_its_key(
    choice: str, key: str, value: object, message: str
) -> None:
    group = choice.partition("=")[0]
    node = changed(composed_node(*choice.split("=")), tuple(key.split(".")), value)
    text = value[0] if isinstance(value, tuple) else value
    assert refusal(node, group) == f"{group}.{key}={text}: {message}"


@pytest.mark.parametrize("choice", COUNTS)
def test_count_of_zero_names_its_key(choice: str) -> None:
    group = choice.partition("=")[0]
    node = {
        key: value for key, value in composed_node(*choice.split("=")).items() if key not in RUNS
    }
    counts = COUNTS[choice].split()
    messages = [refusal(changed(node, tuple(key.split(".")), 0), group) for key in counts]
    assert messages == [f"{group}.{key}=0: must be at least 1" for key in counts]


@pytest.mark.parametrize(
    ("expected", "value"),
    [
        pytest.param(int | float, 5, id="integer first"),
        pytest.param(float | int, 5.0, id="float first"),
        pytest.param(Annotated[int, {"not": "hashable"}], 5, id="metadata without a hash"),
    ],
)
def test_text_becomes_the_first_type_that_fits(expected: Any, value: float) -> None:
    checked = check_value("method.depth", "5", expected)
    assert (type(checked), checked) == (type(value), value)


@pytest.mark.parametrize(
    ("expected", "kind"),
    [(int, "an integer"), (int | None, "an integer"), (float, "a number")],
    ids=["integer", "integer or null", "float"],
)
def test_true_is_no_number(expected: Any, kind: str) -> None:
    with pytest.raises(ConfigError, match=f"^limit=true: must be {kind}$"):
        check_value("limit", True, expected)
    assert check_value("flag", True, bool) is True
