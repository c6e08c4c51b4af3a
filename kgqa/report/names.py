"""The names of methods and datasets in tables for papers, as the papers write them."""

from __future__ import annotations

from kgqa.report.columns import SEPARATOR

DATASETS = {
    "hotpotqa": "HotpotQA", "2wiki": "2WikiMultiHopQA", "musique": "MuSiQue", "iirc": "IIRC", "nq": "NQ",
    "popqa": "PopQA", "triviaqa": "TriviaQA", "bamboogle": "Bamboogle", "frames": "FRAMES",
    "musique_full": "MuSiQue-Full", "multihop_rag": "MultiHop-RAG", "hotpotqa_fullwiki": "HotpotQA (full wiki)",
}  # fmt: skip
METHODS = {
    "all_documents": "All documents", "command": "Own program", "corag": "CoRAG", "cot": "Chain of thought",
    "era_cot": "ERA-CoT", "function": "Own function", "ge_reasoning": "GE-Reasoning", "golden": "Gold passages",
    "ircot": "IRCoT", "iter_retgen": "Iter-RetGen", "kgp": "KGP", "knowtrace": "KnowTrace", "mdr": "MDR",
    "neighbourhood": "Neighbors of seeds", "no_context": "No context", "r1_searcher": "R1-Searcher",
    "react": "ReAct", "react_tools": "ReAct with tools", "research": "ReSearch", "retrieve_only": "Retrieval only",
    "retrieve_read": "Retrieve and read", "safe": "SAFE", "safe_teacher": "SAFE's teacher",
    # the model decides whether this is Search-R1
    "search_agent": "Search agent",
    "search_o1": "Search-o1", "self_ask": "Self-Ask", "sg_prompt": "SG-Prompt",
    "simple_deep_searcher": "SimpleDeepSearcher", "step_search": "StepSearch", "tool_agent": "A-RAG",
    "trace": "TRACE", "verify": "Verification", "zero_search": "ZeroSearch",
}  # fmt: skip


def title_row(name: str) -> str:
    """Return the name of a row with its method as papers write it: "TRACE · top 20". Own methods keep their name."""
    method, separator, settings = name.partition(SEPARATOR)
    return f"{METHODS.get(method, method)}{separator}{settings}"


def title_rules(profile: str) -> str:
    """Return the name of the rules of scoring, which are those of a dataset or of a method's paper."""
    return {**METHODS, **DATASETS}.get(profile, profile)
