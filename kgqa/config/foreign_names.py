"""Names and keys that papers and other programs use, with kgqa's own."""

from __future__ import annotations

import re
from collections.abc import Iterable

# by group and folded name: kgqa's name
NAMES: dict[tuple[str, str], str] = {
    ("method", "arag"): "tool_agent",
    ("method", "bm25"): "retrieve_read",
    ("method", "closedbook"): "no_context",
    ("method", "naiverag"): "retrieve_read",
    ("method", "oracle"): "golden",
    ("method", "rag"): "retrieve_read",
    ("method", "searchr1"): "search_agent",
    ("method", "zeroshot"): "no_context",
    ("dataset", "2wikimqa"): "2wiki",
    ("dataset", "2wikimultihop"): "2wiki",
    ("dataset", "2wikimultihopqa"): "2wiki",
    ("dataset", "naturalquestions"): "nq",
    ("engine", "hf"): "transformers",
    ("engine", "huggingface"): "transformers",
    ("retriever", "hipporag2"): "hipporag",
    ("retriever", "openai"): "text_embedding_3_small",
}
# by group and folded name: what to write instead
REMEDIES: dict[tuple[str, str], str] = {
    (
        "method",
        "hipporag",
    ): "HippoRAG is a retriever. Use it with a method: method=retrieve_read retriever=hipporag",
    (
        "method",
        "hipporag2",
    ): "HippoRAG 2 is a retriever. Use it with a method: method=retrieve_read retriever=hipporag",
    (
        "method",
        "raptor",
    ): "RAPTOR is a retriever. Use it with a method: method=retrieve_read retriever=raptor",
    (
        "method",
        "lightrag",
    ): "LightRAG is a retriever. Use it with a method: method=retrieve_read retriever=lightrag",
    ("method", "tracetriple"): "Use method=trace",
    ("method", "tracedoc"): "Use method=trace method.context=documents",
    (
        "retriever",
        "faiss",
    ): "FAISS searches the vectors of an encoder: retriever=dense retriever.backend=hnsw",
    ("engine", "litellm"): "Use the address of the proxy: server=http://127.0.0.1:4000",
    ("engine", "lmstudio"): "Use the address of the server: server=http://127.0.0.1:1234/v1",
    ("engine", "ollama"): "Use the address of the server: server=http://127.0.0.1:11434 model=NAME",
    ("engine", "sglang"): "Use the address of the server: server=http://127.0.0.1:30000/v1",
}
_SERVER = "For a running server, use server=URL, e.g. server=http://127.0.0.1:8000/v1"
_GREEDY = (
    "kgqa generates greedily, as the papers do. Some methods, such as search_agent, have method.temperature: "
    "kgqa run method=NAME --help"
)
_PASSAGES = "The number of passages is a key of the method: kgqa run method=NAME --help"
_GPU = "Engines use the GPUs that they see. Choose them with the environment variable CUDA_VISIBLE_DEVICES"
_REPLY = "The length of a reply is a key of the method: kgqa run method=NAME --help"
_NAME = "run_name=NAME names the folder of a run"
_METRIC = "All metrics are measured and compared, also those of conf/metric/. Remove this key"
_RESUME = "Every run resumes: run the same command again. Remove this key"
_AGAIN = "A finished run is not run again. For new replies use an empty cache: KGQA_CACHE=FOLDER kgqa run …"
_SEEDS = "repeats=N runs N times with other seeds. seed=0,1,2 with -m also samples other questions"
_SYSTEM = "Add a block system to a copy of the prompt: kgqa new prompt METHOD/NAME"
_LOG = "A run writes its log to log.jsonl in its folder. kgqa show RUN QUESTION --calls shows every call"
_PRESET = "To save settings in a file, write conf/experiment/NAME.yaml and use experiment=NAME (docs/OWN_CODE.md)"
_SWEEP = "sweep.name= names a sweep: kgqa run -m. To name one run: run_name=NAME"
_BUDGET = "budget= limits a sweep: kgqa run -m. For one run at a server: engine.budget_usd=2 or engine.budget_tokens=N"
_SHOTS = "The few-shot examples are keys of the method: kgqa run method=NAME --help"
# the keys of methods that each of these hints means
METHOD_KEYS: dict[str, str] = {
    _GREEDY: r"temperature|top_p",
    _PASSAGES: r"passages$|passages_|^(candidates|chains|budget)$",
    _REPLY: r"^max_\w+_tokens$",
    _SHOTS: r"^(few_shot|demonstration)",
}
KEYS: dict[str, str] = {
    **dict.fromkeys(("exp_name", "name", "run_id", "tag", "tags"), _NAME),
    "continue": _RESUME, "resume": _RESUME,
    **dict.fromkeys(("cache", "force", "no_cache", "overwrite", "use_cache"), _AGAIN),
    "num_seeds": _SEEDS, "seeds": _SEEDS,
    **dict.fromkeys(("debug", "log", "log_level", "quiet", "verbose"), _LOG),
    **dict.fromkeys(("config", "config_file", "preset"), _PRESET),
    **dict.fromkeys(("sweep", "sweep_name", "name", "exp_name", "experiment_name"), _SWEEP), "budget": _BUDGET,
    "system": _SYSTEM, "system_prompt": _SYSTEM,
    "few_shot": _SHOTS, "fewshot": _SHOTS, "n_shot": _SHOTS, "num_fewshot": _SHOTS, "shots": _SHOTS,
    "metric": _METRIC, "metrics": _METRIC,
    "profile": "The scoring rules (profile) are set by scoring=NAME, e.g. scoring=hotpotqa",
    "prompt": "To change a prompt, copy it: kgqa new prompt METHOD/NAME, e.g. kgqa new prompt trace/select. "
    "To compare prompts: kgqa run -m prompts=shipped,FOLDER",
    "api_base": _SERVER, "base_url": _SERVER, "host": _SERVER, "url": _SERVER,
    "api_key": "Put the key into the environment variable OPENAI_API_KEY, or name another one: engine.api_key_env=NAME",
    "temperature": _GREEDY, "top_p": _GREEDY,
    "max_new_tokens": _REPLY, "max_tokens": _REPLY,
    "k": _PASSAGES, "n_docs": _PASSAGES, "top_k": _PASSAGES, "topk": _PASSAGES,
    "cuda": _GPU, "device": _GPU, "gpu": _GPU, "gpu_id": _GPU, "gpus": _GPU,
    "batch_size": "Set engine.max_num_seqs (vLLM) or max_parallel_questions",
    "max_samples": "Use limit=N for the first N questions, or sample=N for N random ones",
    "n": "Use limit=N for the first N questions, or sample=N for N random ones",
    "num_samples": "Use limit=N for the first N questions, or sample=N for N random ones",
    "workers": "Set max_parallel_questions",
}  # fmt: skip


def name_method_keys(message: str, method: str, keys: Iterable[str]) -> str:
    """Return a message with the chosen method and its keys, if it contains a hint at keys that this method has."""
    for hint, pattern in METHOD_KEYS.items():
        if hint in message:
            near = [f"method.{key}" for key in keys if re.search(pattern, key)]
            # the unknown key itself is among them
            near = [key for key in near if not message.startswith(f"{key}=")]
            if not near:
                return message
            help_ = f"{hint.replace('method=NAME', f'method={method}')} ({', '.join(near)})"
            return message.replace(hint, help_)
    return message


def fold(name: str) -> str:
    """Return a name without capitals and punctuation: IRCoT and ir_cot are ircot."""
    return re.sub(r"[\W_]+", "", name.casefold())


def find_name(group: str, name: str, names: Iterable[str]) -> str | None:
    """Return kgqa's name for a name of a paper, or None if it is not understood."""
    folded = {fold(each): each for each in names}
    return folded.get(fold(name)) or NAMES.get((group, fold(name)))
