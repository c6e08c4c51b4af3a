"""FlashRAG's own IRCoT pipeline on the race's questions, run by an environment of its own.

One shim: tiktoken fetches its vocabulary from a server, so that words stand for tokens. Its answers are printed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import tiktoken

BEST, STEPS = 4, 8


def _words_for_tokens() -> None:
    words = SimpleNamespace(encode=str.split, decode=" ".join)
    tiktoken.encoding_for_model = lambda _: words


def indexed(corpus: Path, folder: Path) -> tuple[Path, Path]:
    """The corpus in FlashRAG's form, and its bm25s index: as its index builder makes one."""
    import bm25s
    import Stemmer

    passages = [json.loads(line) for line in corpus.read_text(encoding="utf-8").splitlines()]
    own = folder / "corpus.jsonl"
    rows = [{"id": each["id"], "contents": f'"{each["title"]}"\n{each["text"]}', **each} for each in passages]
    own.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    tokenizer = bm25s.tokenization.Tokenizer(stopwords="en", stemmer=Stemmer.Stemmer("english"))
    index = bm25s.BM25(backend="numba")
    index.index(tokenizer.tokenize([row["contents"] for row in rows], return_as="tuple"))
    place = folder / "index"
    index.save(str(place))
    tokenizer.save_vocab(str(place))
    tokenizer.save_stopwords(str(place))
    return own, place


def answered(given: argparse.Namespace, folder: Path) -> list[str]:
    from flashrag.config import Config
    from flashrag.dataset import Dataset
    from flashrag.pipeline import IRCOTPipeline

    corpus, index = indexed(given.corpus, folder)
    rows = [json.loads(line) for line in given.questions.read_text(encoding="utf-8").splitlines()]
    chosen = {
        "framework": "openai",
        "generator_model": "simulated",
        "generator_batch_size": given.places or len(rows),
        "generator_max_input_len": 100_000,
        "openai_setting": {"api_key": "none", "base_url": given.url},
        "generation_params": {"max_tokens": 100, "temperature": 0},
        "retrieval_method": "bm25",
        "bm25_backend": "bm25s",
        "index_path": str(index),
        "corpus_path": str(corpus),
        "retrieval_topk": BEST,
        "save_dir": str(folder),
        "save_intermediate_data": False,
        "metrics": ["em", "f1"],
        "gpu_id": "",
    }
    config = Config(config_dict=chosen)
    items = [{"id": row["id"], "question": row["question"], "golden_answers": ["none"]} for row in rows]
    pipeline = IRCOTPipeline(config, max_iter=STEPS)
    generate = pipeline.generator.generate
    # once all questions are answered it asks for nothing, and its generator for OpenAI's servers fails at that
    pipeline.generator.generate = lambda prompts, **settings: generate(prompts, **settings) if prompts else []
    done = pipeline.run(Dataset(config, data=items), do_eval=True)
    return [str(answer) for answer in done.pred]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--url", required=True)
    parser.add_argument("--questions", type=Path, required=True)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--places", type=int, default=0, help="its generator_batch_size; 0: all questions at once")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    _words_for_tokens()
    with contextlib.redirect_stdout(sys.stderr):  # it prints every prompt
        answers = answered(given, given.folder)
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
