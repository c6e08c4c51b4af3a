"""Test which names at servers are of one model."""

from __future__ import annotations

from kgqa.engines.openai.names import is_same_model, is_snapshot


def test_names_of_one_model() -> None:
    for requested, answered, expected in [
        ("gpt-4o", "gpt-4o", "same"),
        ("Qwen/Qwen3-8B", "qwen3-8b", "same"),
        ("qwen3:8b", "qwen3:8b:latest", "same"),
        ("/models/tiny.gguf", "tiny.gguf", "same"),
        ("openai/gpt-4o-mini", "gpt-4o-mini-2024-07-18", "snapshot"),
        ("claude-3-5-sonnet-latest", "claude-3-5-sonnet-20241022", "snapshot"),
        ("gpt-3.5-turbo", "gpt-3.5-turbo-0125", "snapshot"),
        ("gpt-4", "gpt-4-1106-preview", "snapshot"),
        ("gpt-4o", "gpt-4o-mini", "other"),
        ("gpt-4o-mini", "gpt-4o", "other"),
        ("gpt-4o", "gpt-4o-mini-2024-07-18", "other"),
        ("gpt-4o-2024-05-13", "gpt-4o-2024-08-06", "other"),
        ("llama-3.1-70b", "llama-3.1-8b", "other"),
        ("gpt-4", "gpt-4.1", "other"),
        ("my-alias", "azure/gpt-4o", "other"),
    ]:
        is_same = is_same_model(requested, answered)
        found = "same" if is_same else "snapshot" if is_snapshot(answered, requested) else "other"
        assert found == expected
