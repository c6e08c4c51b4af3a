"""Keys of a server's own that go with every request for a reply: `engine.extra`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from kgqa.engines.openai.payloads import EXTRAS, Server
from kgqa.engines.thinking import Thinking
from kgqa.errors import ConfigError
from kgqa.types import Json

OURS = frozenset(
    {
        *("model", "messages", "prompt", "max_tokens", "max_completion_tokens", "temperature", "top_p", "seed", "stop"),
        *("stop_token_ids", "response_format", "json_schema", "logit_bias", "logprobs", "top_logprobs", "echo"),
        *("logprob_token_ids", "prompt_logprobs", "post_sampling_probs", "return_tokens_as_token_ids"),
        *("continue_final_message", "add_generation_prompt", "skip_special_tokens", "preserved_tokens"),
        *("n", "best_of", "stream"),  # with these the reply comes in a form that is not read
    }
)
SECRET = re.compile(r"api_?key|secret|password|authorization|access_token", re.IGNORECASE)


def check(extra: Mapping[str, Json], server: Server, thinking: Thinking) -> None:
    """Raise ConfigError: what JSON cannot say, a key that kgqa sets, or a secret, which would be written down."""
    try:
        json.dumps(dict(extra), allow_nan=False)
    except ValueError:
        raise ConfigError("engine.extra: holds nan or inf, which JSON cannot say; give a number") from None
    effort = {"reasoning_effort"} if thinking.effort else set()
    template = set() if server == "hosted" else {"chat_template_kwargs"}
    for key in extra:
        if SECRET.search(key):
            raise ConfigError(f"engine.extra.{key}: would stand in the run's files; engine.api_key_env names a key")
        if key in OURS | EXTRAS[server].keys() | effort | template:
            raise ConfigError(f"engine.extra.{key}: kgqa sets {key} itself; leave it out")
