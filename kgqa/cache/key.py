"""The cache key of a call."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from kgqa.artifacts.call_schema import ROUTING, call_json
from kgqa.calls import Call
from kgqa.types import Json

_CANONICAL = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode


def cache_key(identity: Mapping[str, Json], call: Call[Any]) -> str:
    """Return the SHA-256 of everything that can change the reply, in hexadecimal.

    It contains the messages of the prompt, not the rendered text. The chat template comes with the weights, and
    `identity` contains their hash. So a replay needs no tokenizer and no weights.
    """
    fields = {name: value for name, value in call_json(call).items() if name not in ROUTING}
    if "prompt" in fields:
        fields["prompt"] = {
            name: value for name, value in fields["prompt"].items() if name != "template"
        }
        # such servers were sent no transcript before, so their earlier replies must not be found
        is_hosted = (
            identity.get("server") == "hosted" and identity.get("endpoints") != "completions"
        )
        if is_hosted and call.prompt.has_transcript:  # type: ignore[attr-defined]  # only model calls have a prompt
            fields["prompt"]["transcript"] = "user"
    canonical = _CANONICAL([identity, fields])
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()
