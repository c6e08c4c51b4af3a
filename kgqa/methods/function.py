"""A Python function as a method: `answer(question, tools)`, a coroutine, or an object that can be called so."""

from __future__ import annotations

import hashlib
import inspect
import json
import sys
from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from types import CodeType, ModuleType
from typing import Annotated, Any, ClassVar

from kgqa.errors import ConfigError
from kgqa.identity.program_code import find_modules, user_code
from kgqa.methods.outside import OutsideAgent
from kgqa.protocols import Need
from kgqa.types import Answer, Json, JsonObject, Question
from kgqa.util.fs import sha256
from kgqa.util.plugins import import_member
from kgqa.util.settings import Setting


@dataclass(frozen=True)
class Function(OutsideAgent):
    """Run a function for each question, in a thread of its own. `kgqa.run(method=function)` sets all of this.

    An object with `uses` and a coroutine `answer(question)` is a method of kgqa, and runs as such. A module of DSPy and
    a runnable of LangGraph need no function around them.
    """

    function: Annotated[str, Setting("The function or class, as MODULE:NAME of this folder.")] = (
        "agent:answer"
    )
    settings: Annotated[Mapping[str, Json], Setting("Arguments of a class.")] = field(
        default_factory=dict
    )

    # the function itself, from Python. As a field it would be copied
    bound: ClassVar[Any] = None

    @property
    def uses(self) -> frozenset[Need]:
        if self.bound is None and not self.function.rpartition(":")[2][:1].isupper():
            # a function, which need not be imported
            return super().uses
        target = self.target
        return frozenset(target.uses) if is_method(target) else super().uses

    @property
    def name(self) -> str:
        return self.function

    @property
    def target(self) -> Any:
        """Return the function or object. Raises ConfigError: there is none of this name."""
        if self.bound is not None:
            return self.bound
        if ":" not in self.function:
            raise ConfigError(f"method.function={self.function}: write MODULE:NAME")
        try:
            target: Callable[..., Any] = import_member(self.function.replace(":", "."))
        except ConfigError as error:
            raise ConfigError(f"method.function={self.function}: {error}") from error
        return target(**self.settings) if isinstance(target, type) else target

    def bind(self, value: object) -> Function:
        """Return this method with the function itself instead of its name."""
        function = replace(self)
        object.__setattr__(function, "bound", value)
        return function

    async def answer(self, question: Question) -> Answer:
        target = self.target
        if is_method(target):
            answer: Answer = await target.answer(question)
            return answer
        return await super().answer(question)

    def loads(self) -> JsonObject:
        target = self.target
        if is_module(target) or is_runnable(target):
            return {"function": hash_object(target)}
        return {"function": hash_code(target)}


def is_method(target: Any) -> bool:
    return hasattr(target, "uses") and inspect.iscoroutinefunction(getattr(target, "answer", None))


def is_module(target: Any) -> bool:
    """Return whether this is a module of DSPy."""
    return hasattr(target, "named_predictors") and hasattr(target, "acall")


def is_runnable(target: Any) -> bool:
    """Return whether this is a runnable of LangChain or LangGraph."""
    return hasattr(target, "invoke") and hasattr(target, "ainvoke")


def describe_function(target: Any) -> tuple[str, dict[str, Json]]:
    """Return the name of a function or object as MODULE:NAME, and the settings of an object."""
    named = target if inspect.isroutine(target) or isinstance(target, type) else type(target)
    if isinstance(target, type):
        raise ConfigError(
            f"method={target.__name__}: this is a class. Pass an object, such as {target.__name__}()"
        )
    name = f"{named.__module__}:{named.__qualname__}"
    # the attributes of an object of a framework are in its hash
    is_plain = named is target or is_module(target) or is_runnable(target)
    return name, {} if is_plain else read_settings(target)


def read_settings(target: Any) -> dict[str, Json]:
    """Return the values of an object that are plain: its fields, or the attributes that do not start with _."""
    names = (
        [each.name for each in fields(target)]
        if is_dataclass(target)
        else list(getattr(target, "__dict__", ()))
    )
    values = {name: getattr(target, name) for name in names if not name.startswith("_")}
    return {name: value for name, value in values.items() if _is_plain(value)}


def hash_object(target: Any) -> str:
    """Return a hash of an object of a framework: its state, its plain attributes, and the program that made it.

    The program is the main script with the modules of this folder that it imports, or the cells of a notebook.
    """
    state = target.dump_state() if hasattr(target, "dump_state") else None
    attributes = {
        name: value
        for name, value in read_settings(target).items()
        if isinstance(value, str | int | float)
    }
    content = [_hash_source(type(target)), state, attributes, _hash_main()]
    return hashlib.sha256(json.dumps(content, default=str, sort_keys=True).encode()).hexdigest()[
        :16
    ]


def _hash_main() -> Json:
    main = sys.modules["__main__"]
    if file := getattr(main, "__file__", None):
        return [sha256(Path(file)), user_code(Path(file).stem)]
    return list(getattr(main, "In", ()))


def hash_code(target: Any) -> str:
    """Return a hash of the file of a function or object, and of what it reads from outside.

    Of a notebook's cell it is the source of the function instead of the file.
    """
    named = target if inspect.isroutine(target) else type(target)
    program = _hash_source(named)
    functions = (
        [target] if inspect.isroutine(target) else filter(inspect.isfunction, vars(named).values())
    )
    values, codes = dict[str, object](), set[CodeType]()
    for function in functions:
        values |= read_outside(getattr(function, "__func__", function), codes)
    if not values:
        return program
    content = json.dumps([program, _describe(values)])
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def _hash_source(named: Any) -> str:
    try:
        file = Path(inspect.getsourcefile(named) or "")
        if file.is_file():
            return sha256(file)[:16]
        text = inspect.getsource(named)
    except (OSError, TypeError):
        code = getattr(named, "__code__", None)
        text = repr((code.co_code, code.co_consts, code.co_names)) if code else repr(named)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_outside(function: Any, codes: set[CodeType]) -> dict[str, object]:
    """Return the values that a function reads and its source does not show, by name.

    They are its defaults, the variables of the functions around it, and the values of its module. Functions of the
    module that it calls are read, too. codes: the code of functions that are read already.
    """
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType) or code in codes:
        return {}
    codes.add(code)
    values: dict[str, object] = {}
    if function.__defaults__ or function.__kwdefaults__:
        values["defaults"] = [function.__defaults__, function.__kwdefaults__]
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # an empty cell
            values[name] = cell.cell_contents
    outside = function.__globals__
    values |= {name: outside[name] for name in _list_names(code) if name in outside}
    own = {name: _read(value, outside, codes) for name, value in values.items()}
    return {name: value for name, value in own.items() if value is not _NOTHING}


_NOTHING = object()


def _read(value: object, outside: object, codes: set[CodeType]) -> object:
    """Return a value for the hash. Of modules, classes and functions it is the code in the user's folder, if any."""
    if inspect.isfunction(value) and value.__globals__ is outside:
        return read_outside(value, codes) or _NOTHING
    if isinstance(value, ModuleType):
        return _hash_modules(value.__name__)
    if inspect.isroutine(value) or isinstance(value, type):
        return _hash_modules(value.__module__ or "")
    return value


def _hash_modules(name: str) -> object:
    """Return the hash of a module of the user's folder and of those that it imports. `_NOTHING`: it is not there."""
    is_own = name.partition(".")[0] != "kgqa" and any(find_modules(name))
    return user_code(name) if is_own else _NOTHING


def _list_names(code: CodeType) -> set[str]:
    """Return the names that a function and the functions in it look up."""
    inner = [const for const in code.co_consts if isinstance(const, CodeType)]
    return set(code.co_names).union(*map(_list_names, inner))


def _describe(value: object) -> Json:
    """Return a value as JSON. Keys can be of any type, sets have no order, other objects have plain attributes."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case Mapping():
            return sorted(([repr(key), _describe(part)] for key, part in value.items()), key=str)
        case list() | tuple():
            return [_describe(part) for part in value]
        case Set():
            return sorted(map(repr, value))
    return [type(value).__qualname__, read_settings(value)]


def _is_plain(value: object) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True
