"""Tools that a model calls: schemas, the check of arguments, and calls as text for engines without function calls.

The text form is the one of Hermes and Qwen models: a call is {"name": …, "arguments": {…}} in <tool_call> tags, and its
result is a message of the user in <tool_response> tags. Several calls in one reply are parallel calls. Qwen2.5-Coder
writes <tools> tags and "type" for "name", or no tags: an object that starts with "name" and has "arguments" is a call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from kgqa.prompting import render
from kgqa.types import Json, Message, ToolCall
from kgqa.util.jsonio import JsonError, decode_first

RESPONSE = "<tool_response>"
# in a passage, which could end the result
TAG = re.compile(r"<(?=/?tool(?:s|_call|_response)>)", re.IGNORECASE)
WRITTEN_CALL = re.compile(
    r"<tool(?:s|_call)>\s*(.*?)\s*(?:</tool(?:s|_call)>|(?=<tool(?:s|_call)>)|\Z)", re.DOTALL
)
BARE_CALL = re.compile(r"""\{\s*"name"\s*:""")
FENCE = re.compile(r"```(?:json)?\s*(.*?)\s*```", re.DOTALL)
FORM = 'write {"name": TOOL, "arguments": {…}} as JSON between <tool_call> and </tool_call>'
# the argument of a search with its number of results
NUMBER = "top_k"
SCHEMAS: dict[Any, Json] = {
    str: {"type": "string"},
    list[str]: {"type": "array", "items": {"type": "string"}},
    list[int]: {"type": "array", "items": {"type": "integer"}},
}
NOUNS: dict[Any, str] = {
    str: "a text",
    list[str]: "a list of texts",
    list[int]: "a list of whole numbers",
}


@dataclass(frozen=True)
class Tool:
    """A function with one argument. `kind` is the type of the argument. Templates contain the descriptions.

    single: another name of the argument, with one value instead of a list, or "".
    """

    name: str
    argument: str
    kind: Any
    single: str = ""

    def schema(self, prompts: str, passages: int, most: int | None) -> Json:
        """Return the tool in the form of OpenAI's `tools`.

        Args:
            prompts: the folder of templates with its description and those of its arguments.
            passages: the number of results.
            most: the limit of a number that the model chooses. None: it cannot.
        """
        properties = {
            self.argument: {
                **SCHEMAS[self.kind],
                "description": _text(f"{prompts}/{self.name}_argument"),
            }
        }
        if most is not None and self.is_search:
            number = _text(f"{prompts}/{self.name}_{NUMBER}", most=most)
            properties[NUMBER] = {"type": "integer", "description": number, "default": passages}
        parameters = {"type": "object", "properties": properties, "required": [self.argument]}
        description = _text(f"{prompts}/{self.name}")
        return {
            "type": "function",
            "function": {"name": self.name, "description": description, "parameters": parameters},
        }

    @property
    def is_search(self) -> bool:
        return bool(self.kind != list[int])

    def read(self, arguments: str, passages: int, most: int | None) -> tuple[Any, int]:
        """Return the argument, and the number of results: `passages` if the model has not chosen up to `most`.

        Raise ValueError with the reason, for the model, if an argument is missing or of another type.
        """
        try:
            values = from_json(arguments.strip() or "{}")
        except ValueError as error:
            raise ValueError(f"the arguments of {self.name} are not valid JSON ({error})") from None
        if isinstance(values, dict) and self.single in values:
            values.setdefault(self.argument, [values[self.single]])
        if not isinstance(values, dict) or self.argument not in values:
            raise ValueError(
                f'{self.name} needs the argument "{self.argument}", {NOUNS[self.kind]}'
            )
        try:
            value = TypeAdapter(self.kind).validate_python(values[self.argument])
        except ValidationError:
            raise ValueError(
                f'"{self.argument}" of {self.name} must be {NOUNS[self.kind]}'
            ) from None
        if not value or (not isinstance(value, str) and "" in value):
            raise ValueError(f'"{self.argument}" of {self.name} is empty')
        number = values.get(NUMBER) if most is not None else None
        return value, min(number, most or number) if isinstance(
            number, int
        ) and number > 0 else passages


def _text(template: str, **values: object) -> str:
    return render(template, **values).messages[0].content


def read_calls(text: str) -> tuple[str, tuple[ToolCall, ...]]:
    """Return the text before the calls in a reply, and the calls.

    A call that is not JSON has no name, and its text as arguments.
    """
    matches = [
        (match.start(), match[1]) for match in WRITTEN_CALL.finditer(text)
    ] or _find_bare_calls(text)
    calls = (
        _read_call(call_text, f"call_{number}")
        for number, (_, call_text) in enumerate(matches, start=1)
    )
    return text[: matches[0][0]].rstrip() if matches else text, tuple(calls)


def _find_bare_calls(text: str) -> list[tuple[int, str]]:
    """Return the calls without tags and where they start. The last one can be damaged JSON."""
    objects: list[tuple[int, str]] = []
    end = 0
    for match in BARE_CALL.finditer(text):
        start = match.start()
        if start < end:  # inside a call
            continue
        try:
            value, end = decode_first(text, start)
        except JsonError:
            return [*objects, (start, text[start:])]
        if "arguments" in value:
            objects.append((start, text[start:end]))
    return objects


def _read_call(text: str, number: str) -> ToolCall:
    fenced = FENCE.fullmatch(text)
    try:
        fields = from_json(fenced[1] if fenced else text)
        name, arguments = str(fields.get("name") or fields["type"]), fields.get("arguments", {})
    except (ValueError, KeyError, TypeError, AttributeError):
        return ToolCall(number, "", text)
    return ToolCall(
        number,
        name,
        arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False),
    )


def repair_call(call: ToolCall) -> ToolCall:
    """Return a call that every server accepts in a conversation: some reject arguments that are not JSON."""
    try:
        is_object = isinstance(from_json(call.arguments), dict)
    except ValueError:
        is_object = False
    return replace(
        call, name=call.name or "unknown", arguments=call.arguments if is_object else "{}"
    )


def as_text(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return a conversation for a model without function calls. Neighboring messages of the user become one."""
    texts: list[Message] = []
    for message in messages:
        content = message.content
        if message.role == "tool":
            content = f"{RESPONSE}\n{TAG.sub('< ', content)}\n</tool_response>"
        role = "user" if message.role == "tool" else message.role
        if texts and texts[-1].role == role == "user":
            content = f"{texts.pop().content}\n{content}"
        texts.append(Message(role, content))
    return tuple(texts)
