"""The protocols of one model at a server, and which of them each call uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kgqa.calls import Generate, ModelCall
from kgqa.engines.openai.chat_protocol import ChatProtocol
from kgqa.engines.openai.connection import Connection
from kgqa.engines.openai.protocol import ServerProtocol
from kgqa.engines.openai.requests import Server
from kgqa.engines.openai.text_protocol import TextProtocol
from kgqa.engines.openai.token_prompts import LlamaPrompts, TokenPrompts, VllmPrompts
from kgqa.engines.openai.token_protocol import TokenProtocol
from kgqa.engines.thinking import Thinking

# they tokenize texts and accept prompts as tokens
TOKEN_SERVERS: dict[Server, type[TokenPrompts]] = {"vllm": VllmPrompts, "llamacpp": LlamaPrompts}
# what a server without tokens has for the model
Endpoints = Literal["both", "chat", "completions"]


@dataclass(frozen=True)
class Client:
    """The protocols that a server has for a model. tokens: None if it accepts no tokens."""

    connection: Connection
    endpoints: Endpoints
    chat: ChatProtocol
    text: TextProtocol
    tokens: TokenProtocol | None

    @classmethod
    def of(cls, connection: Connection, thinking: Thinking, endpoints: Endpoints) -> Client:
        """Return the protocols of a connection."""
        tokens = None
        if prompts := TOKEN_SERVERS.get(connection.server):
            tokens = TokenProtocol(connection, thinking, prompts(connection, thinking))
        chat, text = ChatProtocol(connection, thinking), TextProtocol(connection, thinking)
        return cls(connection, endpoints, chat, text, tokens)

    def find_protocol(self, call: ModelCall) -> ServerProtocol:
        """Return the protocol of a call. Only the chat endpoint has tools."""
        if self.tokens is not None and not (isinstance(call, Generate) and call.tools):
            return self.tokens
        is_plain = call.prompt.form == "completion"
        is_text = self.endpoints != "chat" if is_plain else self.endpoints == "completions"
        return self.text if is_text else self.chat
