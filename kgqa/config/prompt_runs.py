"""Map each of kgqa's templates to the runs that use it, for `kgqa new prompt`."""

from __future__ import annotations

from kgqa.config.files import config_files

_AGENTS = ("research", "r1_searcher", "search_o1", "simple_deep_searcher")
_LIGHTRAG = "method=retrieve_read retriever=lightrag"
# the runs of templates that are not of the method with the name of their folder, or need another key
_RUNS: dict[str, tuple[str, ...]] = {
    **{f"judge/{name}": (f"method=golden judge={name}",) for name in ("three_way", "kgp", "safe", "faithful")},
    **{f"search_agent/{name}": (f"method={name}",) for name in _AGENTS},
    **{f"lightrag/{name}": (_LIGHTRAG,) for name in ("extract", "keywords", "merge")},
    "few_shot/answer": ("method=ircot", "method=retrieve_read"),
    "few_shot/titles": ("method=ircot dataset=iirc", "method=retrieve_read dataset=iirc"),
    "hipporag/entities": ("method=retrieve_read retriever=hipporag_1",),
    "hipporag/filter": ("method=retrieve_read retriever=hipporag",),
    "kgp/answer": ("method=kgp", "method=mdr"),
    "kgp/classify": ("method=kgp dataset=folder dataset.path=FOLDER",),
    "kgp/evidence_llama": ("method=kgp method.agent=llama",),
    "kgp/evidence_t5": ("method=kgp method.agent=t5",),
    "knowtrace/rewrite": ("method=knowtrace method.memory=texts",),
    "lightrag/glean": (f"{_LIGHTRAG} retriever.gleanings=1",),
    "openie/entities": ("method=trace kg=openie",),
    "openie/triples": ("method=trace kg=openie",),
    "raptor/summarize": ("method=retrieve_read retriever=raptor",),
    "reader/answer": ("method=no_context", "method=all_documents", "method=golden", "method=trace"),
    "search_agent/read": ("method=search_o1", "method=simple_deep_searcher"),
    "search_agent/search_r1": ("method=search_agent", "method=step_search", "method=zero_search"),
    "tool_agent/agent": ("method=tool_agent", "method=react_tools"),
    "trace/answer_released": ("method=trace method.layout=released",),
    "trace/extract_begun": ("method=trace kg.layout=prefixed",),
    "trace/extract_released": ("method=trace kg=trace_released",),
    "trace/select_begun": ("method=trace method.layout=prefixed",),
    "trace/select_released": ("method=trace method.layout=released",),
}  # fmt: skip
# methods with templates in another folder
_FOLDERS = {"teach": "safe_teacher"}


def list_prompt_runs(template: str) -> tuple[str, ...]:
    """Return the arguments of `kgqa run` with which a run uses one of kgqa's templates, the most common first."""
    folder = template.partition("/")[0]
    method = _FOLDERS.get(folder, folder)
    return _RUNS.get(template) or (
        (f"method={method}",) if method in config_files("method") else ()
    )
