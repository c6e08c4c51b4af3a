"""Complete command lines: `kgqa --completion SHELL` prints the script for bash, zsh or fish.

bash  eval "$(kgqa --completion bash)"      in ~/.bashrc
zsh   eval "$(kgqa --completion zsh)"       in ~/.zshrc, below compinit
fish  kgqa --completion fish | source       in ~/.config/fish/config.fish
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator, Sequence

from kgqa.cli.parsing import Parser
from kgqa.errors import ConfigError, nearest
from kgqa.util.terminal_text import escape_control

SHOWN = 70  # characters of a meaning
Candidate = tuple[str, str]  # a complete word and its meaning
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
        raise ConfigError(f"--completion {shell}: no such shell; {nearest(shell, SCRIPTS)}")
    print(escape_control(SCRIPTS[shell]), end="")
    return 0


def print_candidates(tree: Parser, line: str) -> int:
    """Print what can follow a line, with its meaning behind a tab: the scripts call this."""
    for word, meaning in complete(tree, line):
        print(escape_control(f"{word}\t{meaning}" if meaning else word))
    return 0


def split(line: str) -> tuple[list[str], str]:
    """Return the complete words after the program's name, and the incomplete one; an open quote ends with the line."""
    ending = line[-1:].isspace()
    for quote in ("", '"', "'"):
        try:
            words = shlex.split(line + quote)[1:]
        except ValueError:
            continue
        return (words, "") if ending or not words else (words[:-1], words[-1])
    return [], ""


def complete(tree: Parser, line: str) -> list[Candidate]:
    """Return what can follow, in the order of the help; nothing for files, which the shell completes."""
    words, begun = split(line)
    parser = tree
    while words and words[0] in parser.commands:
        parser = parser.commands[words.pop(0)]
    return [
        (word, textwrap.shorten(meaning, SHOWN, placeholder=" …"))
        for word, meaning in _candidates(parser, words, begun)
        if word.startswith(begun) and word != begun
    ]


def _candidates(parser: Parser, words: Sequence[str], begun: str) -> Iterator[Candidate]:
    options = {name: action for action in parser._actions for name in action.option_strings}
    if words and (before := options.get(words[-1])) and before.nargs != 0:
        yield from ((str(value), "") for value in before.choices or ())
    elif begun.startswith("-"):
        yield from ((name, action.help or "") for name, action in options.items() if name.startswith("--"))
    elif not words and parser.commands:
        yield from ((name, command.summary) for name, command in parser.commands.items())
    elif parser.keys:
        from kgqa.cli.configuration import completions

        yield from ((f"{key}=", "") for key in parser.own_keys if "=" not in begun)
        if parser.runs_keys or begun.partition("=")[0].partition(".")[0] in parser.own_keys:
            yield from completions(begun, words)
