"""Names and keys of papers and other programs: kgqa understands them, or names what to write instead."""

from __future__ import annotations

import pytest

from kgqa.config.composing import compose
from kgqa.config.files import groups
from kgqa.config.foreign_names import NAMES, find_name
from kgqa.errors import ConfigError


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("method=TRACE", "trace"),
        ("method=IRCoT", "ircot"),
        ("method=search-r1", "search_agent"),
        ("method=Self-Ask", "self_ask"),
        ("dataset=HotpotQA", "hotpotqa"),
        ("dataset=2WikiMultiHopQA", "2wiki"),
        ("retriever=BM25", "bm25"),
    ],
)
def test_spelling_of_a_paper_is_understood(word: str, name: str) -> None:
    group = word.partition("=")[0]
    config = compose(["method=retrieve_read", word] if group != "method" else [word])
    assert config["choices"][group] == name


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "method=hipporag",
            "HippoRAG is a retriever. Use it with a method: method=retrieve_read retriever=hipporag",
        ),
        ("method=RAPTOR", "method=retrieve_read retriever=raptor"),
        ("method=LightRAG", "method=retrieve_read retriever=lightrag"),
        ("engine=ollama", "server=http://127.0.0.1:11434 model=NAME"),
        (
            "engine=vllm engine.base_url=http://a/v1",
            "engine=vllm loads a model itself. For a running server",
        ),
        (
            "engine.base_url=http://a/v1",
            "engine=llamacpp loads a model itself. For a running server, use server=URL",
        ),
        ("base_url=http://a/v1", "For a running server, use server=URL"),
        ("api_key=EMPTY", "environment variable OPENAI_API_KEY"),
        ("temperature=0.5", "kgqa generates greedily"),
        ("method=search_o1 temperature=0.5", "Did you mean method.temperature?"),
        ("method=trace beam=3", "Did you mean method.beam?"),
        ("method=retrieve_read method.temperature=1", "kgqa run method=NAME --help"),
        ("split=train", "Did you mean dataset.split?"),
        ("max_samples=5", "Use limit=N"),
        ("sweep_name=first", "sweep.name= names a sweep"),
        ("name=first", "To name one run: run_name=NAME"),
        ("method=tarce", "Did you mean trace"),
        ("METHOD=trace", "Did you mean method"),
        ("retriever=faiss", "retriever=dense retriever.backend=hnsw"),
        ("prompt=short", "kgqa new prompt METHOD/NAME"),
        ("model.temperature=0.2", "kgqa generates greedily"),
        ("method__beam=3", "Write method.beam=VALUE, in Python **{'method.beam': VALUE}"),
        ("dataset=msmarco", "no such dataset. Choose from: "),
        ("resume=true", "Every run resumes"),
        ("overwrite=true", "KGQA_CACHE=FOLDER kgqa run"),
        ("seeds=3", "repeats=N runs N times with other seeds"),
        ("system_prompt=x", "kgqa new prompt METHOD/NAME"),
        (
            "method=retrieve_read num_fewshot=5",
            "kgqa run method=retrieve_read --help (method.few_shot_path, method.demonstration_set",
        ),
        (
            "method=trace method.k=5",
            "kgqa run method=trace --help (method.candidates, method.chains)",
        ),
        ("method=[golden,trace]", "without brackets: kgqa run -m method=golden,trace"),
        ("method=./walk_back.py", "without its suffix: method=walk_back"),
        ("tags=x", "run_name=NAME names the folder of a run"),
        ("profile=hotpotqa", "set by scoring=NAME, e.g. scoring=hotpotqa"),
        ("metric=em", "All metrics are measured and compared"),
        ("method=trace method.beam_size=3", "Did you mean method.beam?"),
        ("model=gpt-4o", "Did you mean gpt_4o_mini?"),
        ("model=llama3", "Did you mean llama3_"),
        (
            "dataset=tests/__init__.py",
            "Convert the file to .jsonl with question and answer per line",
        ),
        ("dataset=tests", "For your own documents: dataset=folder dataset.path=tests"),
        ("sweep.name=x", "sweep: unknown key. sweep.name= names a sweep: kgqa run -m"),
        ("budget=2usd", "budget=2usd: unknown key. budget= limits a sweep: kgqa run -m"),
        ("verbose=true", "A run writes its log to log.jsonl"),
        ("config=my.yaml", "write conf/experiment/NAME.yaml and use experiment=NAME"),
        ("judge=none", "judge=none: no such judge. To choose none: judge=null"),
        ("reranker=False", "To choose none: reranker=null"),
        ("dataset=q.csv", "There is no such file. Name a file of questions: dataset=FILE.jsonl"),
        ("api_key=abcdef", "api_key=…: unknown key. Put the key into the environment variable"),
        ("engine.api_key=abcdef", "engine.api_key=…: unknown key. Put the key into the"),
        ("OPENAI_API_KEY=abcdef", "OPENAI_API_KEY=…: unknown key. Put the key into the"),
        ("dataset.limit=3", "dataset.limit=3: unknown key. Did you mean limit=3?"),
        ("engine.model=qwen3_8b", "Did you mean model=qwen3_8b?"),
        ("dataset.beam=3", "Did you mean method.beam=3?"),
        ("method.beam_size=3", "Did you mean method.beam?"),
        ("experiment=s1", "To name a sweep: sweep.name=s1. To name a run: run_name=s1"),
        (
            "judge=gpt4",
            "For a model as the judge: judge=three_way roles.judge=NAME (see kgqa models)",
        ),
        ("method=zzz_new", "To add it: kgqa new method zzz_new"),
    ],
    ids=lambda text: text if "=" in text else "",
)
def test_foreign_word_is_answered_with_the_right_one(words: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        compose(words.split())
    assert message in str(raised.value)


@pytest.mark.parametrize(("group", "name"), NAMES)
def test_every_foreign_name_leads_to_a_choice(group: str, name: str) -> None:
    assert find_name(group, name, groups()[group]) in groups()[group]
