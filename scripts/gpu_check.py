"""Measure one part of `scripts/gpu_check.sh` and print the rows of its table.

python -m scripts.gpu_check PART FOLDER    FOLDER: of weights and vectors, which parts share
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

# what was measured, and the value
Row = tuple[str, str]
TEMPLATE = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
VLLM_TESTS = (
    "tests/engines/test_exactness.py",
    "tests/engines/test_vllm.py",
    "tests/e2e/test_vllm_runs.py",
)
REPEATS = 5
# vectors written at once
BLOCK = 50_000


@dataclass(frozen=True)
class Size:
    """The sizes of models, vectors and runs. reader and judge: layers, width, heads, heads of keys and values."""

    reader: tuple[int, int, int, int]
    judge: tuple[int, int, int, int]
    encoder: tuple[int, int, int]
    passages: int
    texts: int
    questions: int
    tokens: int


SIZES = {
    # Llama-3.1-8B, Llama-3.2-3B and E5-base
    "full": Size((32, 4096, 32, 8), (28, 3072, 24, 8), (12, 768, 12), 1_000_000, 20_000, 200, 128),
    "tiny": Size((2, 64, 2, 1), (2, 64, 2, 1), (2, 32, 2), 3_000, 64, 3, 8),
}


def measure_search(size: Size, folder: Path, backend: str = "torch") -> Iterator[Row]:
    """Yield the time of exact and approximate searches in half precision, for few and many passages."""
    from kgqa.retrieval.dense import FAISS, import_faiss

    vectors, queries = write_vectors(size, folder)
    label = f"{len(vectors):,} × {vectors.shape[1]}"
    for kind in ("torch",) if backend == "torch" else ("flat", "ivf"):
        retriever = make_dense(kind)
        if kind == "ivf":
            start = time.monotonic()
            import_faiss().write_index(retriever._make_faiss(vectors), str(folder / FAISS))
            yield f"{label}, ivf: build on the CPU", f"{time.monotonic() - start:.1f} s"
        start = time.monotonic()
        nearest = retriever.search(vectors, folder)
        _ = nearest(queries[:1], 10)
        yield f"{label}, {kind}: load and first search", f"{time.monotonic() - start:.1f} s"
        yield f"{label}, {kind}: memory of the GPUs", show_memory()
        for count, k in ((1, 10), (32, 10), (256, 10), (1, min(3_000, len(vectors)))):
            start = time.monotonic()
            shapes = [nearest(queries[:count], k).shape for _ in range(REPEATS)]
            spent = 1000 * (time.monotonic() - start) / REPEATS
            if shapes != REPEATS * [(count, k)]:
                raise SystemExit(f"{kind}: {shapes[0]} positions instead of {count} × {k}")
            yield f"{label}, {kind}: {count} queries, k={k}", f"{spent:.1f} ms"


def measure_encoders(size: Size, folder: Path) -> Iterator[Row]:
    """Yield texts per second of an encoder, and the memory before, during and after."""
    from kgqa.retrieval.encoders import PlainEncoder
    from kgqa.util.loaders import free_loaded

    weights = write_encoder(size, folder)
    generator = np.random.default_rng(0)
    texts = ["".join(generator.choice(list("abcdefgh "), 500)) for _ in range(size.texts)]
    for dtype in ("float32", "float16"):
        encoder = PlainEncoder(str(weights), pooling="mean", batch_size=256, dtype=dtype)
        _ = encoder.encode("passage", texts[:8])
        start = time.monotonic()
        _ = encoder.encode("passage", texts)
        rate = len(texts) / (time.monotonic() - start)
        yield f"encoder of E5-base's shape, {dtype}: texts of 500 characters", f"{rate:,.0f} per s"
        yield f"encoder, {dtype}: memory", show_memory()
        free_loaded()
        yield f"encoder, {dtype}: memory after it is freed", show_memory()


def measure_transformers(size: Size, folder: Path) -> Iterator[Row]:
    """Yield the speed of a run with engine=transformers."""
    model = write_model(size.reader, folder / "reader")
    keys = [f"model={model}", "engine=transformers", "engine.batch_size=16"]
    yield from measure_run("engine=transformers", size, folder, keys)


def measure_vllm(size: Size, folder: Path) -> Iterator[Row]:
    """Yield the results of vLLM's tests, the speed of a run with all components, and that of vLLM's own benchmark."""
    if find_spec("pytest"):
        command = [sys.executable, "-m", "pytest", "-q", *VLLM_TESTS, "-k", "vllm"]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = ended.stdout.strip().splitlines()
        yield "tests: Choose, adapters, two servers, kill and resume", lines[-1] if lines else ""
    reader = write_model(size.reader, folder / "reader")
    judge = write_model(size.judge, folder / "judge")
    encoder = write_encoder(size, folder)
    vllm = [f"model={reader}", "engine=vllm"]
    # vLLM for CPUs would take 4 GiB for each model
    vllm += [] if has_gpu() else ["engine.cache=0.5", "engine.max_model_len=2048"]
    yield from measure_run("engine=vllm, the reader", size, folder, vllm)
    everything = [
        *vllm, "method=retrieve_read", "judge=three_way", f"roles.judge={judge}@vllm",
        "ranker@retriever.encoder=e5_base_v2", f"retriever.encoder.model={encoder}",
        "retriever=dense", "retriever.backend=torch", "retriever.storage=float16",
    ]  # fmt: skip
    yield from measure_run(
        "reader, judge, encoder and index in one command", size, folder, everything
    )
    command = [
        "bench", "throughput", "--model", str(reader), "--random-input-len", "600",
        "--random-output-len", str(size.tokens), "--num-prompts", str(size.questions),
        "--dataset-name", "random",
    ]  # fmt: skip
    program = Path(sys.executable).with_name("vllm")
    if not program.is_file():
        yield "vllm bench throughput", "not run: no command vllm"
        return
    ended = subprocess.run([program, *command], capture_output=True, text=True, check=False)
    (line,) = [line for line in ended.stdout.splitlines() if line.startswith("Throughput")] or [
        "failed"
    ]
    yield "vllm bench throughput, for comparison", line


def measure_run(label: str, size: Size, folder: Path, keys: Sequence[str]) -> Iterator[Row]:
    """Yield time and speed of one kgqa command."""
    output = folder / f"run-{time.time()}"
    command = [
        sys.executable, "-m", "kgqa", "run", "dataset=demo", "method=no_context", *keys,
        f"limit={size.questions}", f"method.max_answer_tokens={size.tokens}",
        f"output_dir={output}",
    ]  # fmt: skip
    environment = {**os.environ, "KGQA_CACHE": str(folder / f"cache-{time.time()}")}
    start = time.monotonic()
    ended = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=folder,
        env={**environment, "PYTHONPATH": str(Path(__file__).parents[1])},
    )  # fmt: skip
    if ended.returncode:
        yield label, f"failed: {' '.join(ended.stderr.split())[-300:]}"
        return
    rates = json.loads((output / "metrics.json").read_text())["throughput"]["tokens_per_second"]
    yield (
        label,
        f"{time.monotonic() - start:.0f} s, {rates['prompt']} prompt and {rates['output']} output tokens/s",
    )


def make_dense(backend: str) -> Any:
    from kgqa.config.building import build
    from kgqa.config.composing import compose

    keys = ["retriever=dense", f"retriever.backend={backend}", "retriever.storage=float16"]
    return build(compose(keys)["retriever"], "retriever")


def write_vectors(size: Size, folder: Path) -> tuple[Any, Any]:
    """Return random vectors of length 1 in half precision from a mapped file, and 256 queries."""
    count, width = int(os.environ.get("PASSAGES", size.passages)), size.encoder[1]
    file = folder / f"vectors-{count}-{width}.npy"
    generator = np.random.default_rng(0)
    if not file.is_file():
        rows = np.lib.format.open_memmap(file, "w+", np.float16, (count, width))
        for start in range(0, count, BLOCK):
            block = generator.standard_normal((min(BLOCK, count - start), width), dtype=np.float32)
            rows[start : start + len(block)] = block / np.linalg.norm(block, axis=1, keepdims=True)
        rows.flush()
    return np.load(file, mmap_mode="r"), generator.standard_normal((256, width), dtype=np.float32)


def write_tokenizer(folder: Path) -> None:
    """Write a tokenizer with a token for each byte, so that no vocabulary is needed."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = ["<s>", "</s>", "<pad>"]
    vocabulary = {token: number for number, token in enumerate([*special, *letters])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    written = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    )
    written.chat_template = TEMPLATE
    written.save_pretrained(folder)


def write_model(shape: tuple[int, int, int, int], folder: Path) -> Path:
    """Write a Llama with random weights, and return its folder."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    if (folder / "config.json").is_file():
        return folder
    layers, width, heads, kv_heads = shape
    config = LlamaConfig(
        vocab_size=128_256 if width > 1_000 else 512, hidden_size=width, intermediate_size=7 * width // 2,
        num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv_heads,
        max_position_embeddings=8_192, bos_token_id=0, eos_token_id=1,
    )  # fmt: skip
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda" if has_gpu() else "cpu"):
        LlamaForCausalLM(config).save_pretrained(folder)
    torch.set_default_dtype(torch.float32)
    write_tokenizer(folder)
    return folder


def write_encoder(size: Size, folder: Path) -> Path:
    """Write a BERT with random weights, and return its folder."""
    from transformers import BertConfig, BertModel

    layers, width, heads = size.encoder
    place = folder / "encoder"
    if not place.is_dir():
        config = BertConfig(
            num_hidden_layers=layers, hidden_size=width, num_attention_heads=heads, intermediate_size=4 * width
        )  # fmt: skip
        BertModel(config).save_pretrained(place)
        write_tokenizer(place)
    return place


def has_gpu() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def show_memory() -> str:
    """Return the memory of all GPUs that are in use, as nvidia-smi shows it."""
    from kgqa.system import hardware

    hardware.gpus.cache_clear()
    used = [f"{gpu.used / 1e9:.1f} GB" for gpu in hardware.gpus()]
    return ", ".join(used) or "no GPU"


PARTS: dict[str, tuple[tuple[str, ...], Callable[[Size, Path], Iterator[Row]]]] = {
    "search": (("torch",), measure_search),
    "encoders": (("torch", "transformers"), measure_encoders),
    "transformers": (("torch", "transformers"), measure_transformers),
    "vllm": (("vllm",), measure_vllm),
    "faiss": (("faiss",), lambda size, folder: measure_search(size, folder, "faiss")),
}


def main() -> None:
    """Print the rows of a part."""
    part, folder = sys.argv[1], Path(sys.argv[2]).resolve()
    libraries, measure = PARTS[part]
    if missing := [library for library in libraries if find_spec(library) is None]:
        print(f"| {part} | not run: {missing[0]} is not installed | |", flush=True)
        return
    for what, value in measure(SIZES[os.environ.get("SIZE", "full")], folder):
        print(f"| {part} | {what} | {value} |", flush=True)


if __name__ == "__main__":
    main()
