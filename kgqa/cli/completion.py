"""Complete command lines: `kgqa --completion SHELL` prints the script for bash, zsh or fish.

bash  eval "$(kgqa --completion bash)"      in ~/.bashrc
zsh   eval "$(kgqa --completion zsh)"       in ~/.zshrc, below compinit
fish  kgqa --completion fish | source       in ~/.config/fish/config.fish
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import suppress

from kgqa.cli.commands import PROGRAM, find_command, subcommands
from kgqa.cli.parsing import Command
from kgqa.errors import ConfigError, nearest
from kgqa.util.text import escape_control

MAX_MEANING = 70  # characters
MAX_RUNS = 50  # that are proposed
# bash: COMP_WORDBREAKS splits words at = and :, so only the part behind the last of them is completed
SCRIPTS = {
    "bash": """_kgqa() {
    local IFS=$'\\n' line=${COMP_LINE:0:COMP_POINT} given=
    local word=${line##*[[:space:]]}
    [[ $COMP_WORDBREAKS == *=* && $word == *[=:]* ]] && given=${word%"${word##*[=:]}"}
    COMPREPLY=($(kgqa --complete "$line" 2>/dev/null | cut -f 1))
    COMPREPLY=("${COMPREPLY[@]#"$given"}")
    [[ ${COMPREPLY[0]-} == *[=.] ]] && compopt -o nospace 2>/dev/null
    return 0
}
complete -o bashdefault -o default -o nosort -F _kgqa kgqa 2>/dev/null ||
    complete -o bashdefault -o default -F _kgqa kgqa
""",
    "zsh": """_kgqa() {
    local -a given shown open
    local word meaning
    kgqa --complete "${(j: :)words[1,CURRENT-1]} $PREFIX" 2>/dev/null |
        while IFS=$'\\t' read -r word meaning; do
            given+=("$word")
            shown+=("$word${meaning:+  -- $meaning}")
        done
    (( $#given )) || { _files; return }
    [[ $given[1] == *[=.] ]] && open=(-S '')
    compadd -V kgqa -Q -l -d shown "${open[@]}" -- $given
}
compdef _kgqa kgqa
""",
    "fish": """function __kgqa_complete
    set -l found (kgqa --complete (commandline -cp | string collect) 2>/dev/null)
    if set -q found[1]
        printf '%s\\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c kgqa -f -k -a '(__kgqa_complete)'
""",
}


def print_script(shell: str) -> int:
    """Print the script that completes kgqa's commands in a shell."""
    if shell not in SCRIPTS:
        raise ConfigError(f"--completion {shell}: no such shell. {nearest(shell, SCRIPTS)}")
    print(SCRIPTS[shell], end="")
    return 0


def print_candidates(line: str) -> int:
    """Print the completions of a command line, each with its meaning after a tab: the scripts call this."""
    for word, meaning in complete(line):
        print(escape_control(f"{word}\t{meaning}" if meaning else word))
    return 0


def complete(line: str) -> list[tuple[str, str]]:
    """Return the completions of the last word and their meanings. The shell completes files."""
    words, start = _split(line)
    command = PROGRAM
    with suppress(ConfigError):
        command, words = find_command(words)
    return [
        (word, textwrap.shorten(meaning, MAX_MEANING, placeholder=" …"))
        for word, meaning in _candidates(command, words, start)
        if word.startswith(start) and word != start
    ]


def _expects_run(command: Command, words: Sequence[str]) -> bool:
    """Return whether the next word is the name of a run."""
    given = sum(not word.startswith("-") and "=" not in word for word in words)
    positionals = [positional for positional in command.positionals for _ in range(max(positional.least, 1))]
    return given < len(positionals) and positionals[given].name.partition("|")[0] == "RUN"


def _list_runs() -> Iterator[tuple[str, str]]:
    """Yield `last` and the newest finished runs."""
    from kgqa.artifacts.metrics import METRICS
    from kgqa.util.fs import outputs

    yield "last", "the newest run"
    files = sorted(outputs().glob(f"*/*/*/*/{METRICS}"), key=lambda file: file.stat().st_mtime, reverse=True)
    yield from ((str(file.parent), "") for file in files[:MAX_RUNS])


def _split(line: str) -> tuple[list[str], str]:
    """Return the complete words after the program's name, and the incomplete one. An open quote ends with the line."""
    for quote in ("", '"', "'"):
        with suppress(ValueError):
            words = shlex.split(line + quote)[1:]
            return (words, "") if line[-1:].isspace() or not words else (words[:-1], words[-1])
    return [], ""


def _candidates(command: Command, words: Sequence[str], start: str) -> Iterator[tuple[str, str]]:
    options = {name: option for option in command.options for name in option.names}
    if words and (option := options.get(words[-1])) and option.metavar:
        yield from ((value, "") for value in option.choices)
    elif start.startswith("-"):
        yield from ((name, option.meaning) for name, option in options.items() if name.startswith("--"))
    elif not words and not command.function:
        yield from ((each.name.split()[-1], each.summary) for each in subcommands(command.name))
    elif _expects_run(command, words):
        yield from _list_runs()
    elif command.has_keys:
        from kgqa.cli.key_help import complete_key

        yield from ((f"{key}=", "") for key in command.own_keys if "=" not in start)
        if not command.only_own or start.partition("=")[0].partition(".")[0] in command.own_keys:
            yield from complete_key(start, words)
