"""The names of methods, datasets, retrievers and models in tables for papers, as the papers write them."""

from __future__ import annotations

from kgqa.artifacts.run import SCRIPTED, FinishedRun
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
# a setting without a value in the files of a run
_UNSET = "null"
# the others keep their keys
RETRIEVERS = {
    "all_mpnet_base_v2": "all-mpnet-base-v2", "bm25": "BM25", "bm25s": "BM25 (bm25s)", "contriever": "Contriever",
    "contriever_msmarco": "Contriever (MS MARCO)", "dpr": "DPR", "dragon_plus": "DRAGON+", "e5": "E5",
    "e5_base_v2": "E5-base-v2", "e5_mistral": "E5-Mistral", "elasticsearch": "BM25 (Elasticsearch)",
    "hipporag": "HippoRAG 2", "hipporag_1": "HippoRAG", "lightrag": "LightRAG", "mdr": "MDR",
    "minilm": "all-MiniLM-L6-v2", "nv_embed_v2": "NV-Embed-v2", "qwen3_embedding_0_6b": "Qwen3-Embedding-0.6B",
    "qwen3_embedding_8b": "Qwen3-Embedding-8B", "raptor": "RAPTOR", "text_embedding_3_small": "text-embedding-3-small",
    "tfidf": "TF-IDF",
}  # fmt: skip


def title_retriever(run: FinishedRun) -> str:
    """Return the name of a run's retriever as papers write it, "" if the run has none."""
    name = run.choices.get("retriever", "")
    return RETRIEVERS.get(name, name)


def title_model(run: FinishedRun) -> str:
    """Return the name of a run's model on the hub or at its provider, its key for own files, "" without a model.

    engine=scripted calls no model.
    """
    if "model" not in run.choices or run.choices.get("engine") == SCRIPTED:
        return ""
    values = {key: value.strip("'") for key, value, _ in run.settings if value != _UNSET}
    if "model.hub" in values and "model.path" not in values:
        repository = values["model.hub"].partition(":")[0]
        return repository.rpartition("/")[2].removesuffix("-GGUF")
    return values.get("model.name", run.choices["model"])


def title_row(name: str) -> str:
    """Return the name of a row with its method as papers write it: "TRACE · top 20". Own methods keep their name."""
    method, separator, settings = name.partition(SEPARATOR)
    return f"{METHODS.get(method, method)}{separator}{settings}"


def title_rules(profile: str) -> str:
    """Return the name of the rules of scoring, which are those of a dataset or of a method's paper."""
    return {**METHODS, **DATASETS}.get(profile, profile)
