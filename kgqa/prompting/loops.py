"""The part of a prompt that all questions have in common: a template's loop over demonstrations, rendered once.

Templates are left as they are: when one is compiled, each loop of a block is wrapped, with the names it depends on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Any

from jinja2 import Environment, nodes
from jinja2.ext import Extension

from kgqa.prompting.known import Kept, known, told_by
from kgqa.storage import text_digest

KEPT = 64  # loops with their values: a run shows few sets of demonstrations
_STATEMENTS = (nodes.Output, nodes.If, nodes.For)  # what a loop may be made of, beside expressions


class KeptLoops(Extension):
    """Renders a loop, or gives what was rendered of the same values before."""

    identifier = "kgqa.prompting.loops"

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self._texts = Kept[str](KEPT)

    def rendered(self, place: tuple[Any, ...], shown: object, *values: object, caller: Callable[[], str]) -> str:
        """`place`: which loop of which template this is. Only what goes over demonstrations comes again."""
        if not isinstance(shown, tuple) or not shown or told_by(type(shown[0])) != "identity":
            return caller()
        key = known((shown, *values))
        if key is None:
            return caller()
        text = self._texts.get((place, key))
        return self._texts.keep((place, key), caller(), (shown, values)) if text is None else text


class KeepingEnvironment(Environment):
    """Compiles templates with their loops wrapped."""

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        template = super()._parse(source, name, filename)
        for block in template.find_all(nodes.Block):
            macros = {node.name: node for node in block.body if isinstance(node, nodes.Macro)}
            places = ((text_digest(source, 16), block.name, number) for number in count())
            block.body = [self._wrapped(node, place, macros) for node, place in zip(block.body, places, strict=False)]
        return template

    def _wrapped(self, node: nodes.Node, place: tuple[Any, ...], macros: Mapping[str, nodes.Macro]) -> nodes.Node:
        names = _free([node], macros) if isinstance(node, nodes.For) else None
        if names is None or not isinstance(node, nodes.For):
            return node
        shown = [node.iter, *(nodes.Name(name, "load") for name in sorted(names))]
        kept = nodes.ExtensionAttribute(KeptLoops.identifier, "rendered")
        call = nodes.Call(kept, [nodes.Const(place), *shown], [], None, None)
        wrapped = nodes.CallBlock(call, [], [], [node])
        for made in (wrapped, call, kept, *call.args):
            made.set_lineno(node.lineno).set_environment(self)
        return wrapped


def _free(body: Iterable[nodes.Node], macros: Mapping[str, nodes.Macro]) -> set[str] | None:
    """The names whose values decide what is rendered; None where more than values may."""
    names: set[str] = set()
    for node in body:
        if isinstance(node, nodes.Name):
            found = _of_name(node.name, macros)
        elif isinstance(node, nodes.For):
            inner = _free([*node.body, *node.else_, *([node.test] if node.test else [])], macros)
            outer = _free([node.iter], macros)
            own = {"loop", *_named(node.target)}
            found = None if inner is None or outer is None else outer | (inner - own)
        elif isinstance(node, (*_STATEMENTS, nodes.Expr, nodes.TemplateData, nodes.Helper)):
            found = _free(node.iter_child_nodes(), macros)
        else:
            found = None
        if found is None:
            return None
        names |= found
    return names


def _of_name(name: str, macros: Mapping[str, nodes.Macro]) -> set[str] | None:
    """A macro's own names stand for it: it is made anew with every prompt."""
    if name not in macros:
        return {name}
    macro = macros[name]
    others = {key: value for key, value in macros.items() if key != name}  # one that calls itself is left alone
    inner = _free([*macro.body, *macro.defaults], others)
    return None if inner is None else inner - {argument.name for argument in macro.args}


def _named(target: nodes.Node) -> set[str]:
    """What a loop calls its values."""
    return {target.name} if isinstance(target, nodes.Name) else {name.name for name in target.find_all(nodes.Name)}
