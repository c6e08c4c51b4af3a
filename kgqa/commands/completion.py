"""`kgqa completion`: TAB in bash, zsh and fish."""

from __future__ import annotations

from argparse import Namespace

from kgqa.commands.parsing import Parser
from kgqa.errors import ConfigError, nearest
from kgqa.inert import inert

NAME = "completion"
SUMMARY = "TAB for commands, names and keys in bash, zsh and fish"
# bash: COMP_WORDBREAKS cuts words at = and :, and what stands before the last of them is not to be given again
SCRIPTS = {
    "bash": """_kgqa() {
    local IFS=$'\\n' line=${COMP_LINE:0:COMP_POINT} given=
    local word=${line##*[[:space:]]}
    [[ $COMP_WORDBREAKS == *=* && $word == *[=:]* ]] && given=${word%"${word##*[=:]}"}
    COMPREPLY=($(kgqa completion --line "$line" 2>/dev/null | cut -f 1))
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
    kgqa completion --line "${(j: :)words[1,CURRENT-1]} $PREFIX" 2>/dev/null |
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
    set -l found (kgqa completion --line (commandline -cp | string collect) 2>/dev/null)
    if set -q found[1]
        printf '%s\\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c kgqa -f -k -a '(__kgqa_complete)'
""",
}


def arguments(parser: Parser) -> None:
    parser.takes_places("SHELL", ", ".join(SCRIPTS), least=0)
    parser.add_argument("--line", metavar="TEXT", help="what can follow it, each with what it is: the scripts ask this")
    parser.notes = """To have it in every shell:
  bash  eval "$(kgqa completion bash)"      in ~/.bashrc
  zsh   eval "$(kgqa completion zsh)"       in ~/.zshrc, below compinit
  fish  kgqa completion fish | source       in ~/.config/fish/config.fish"""
    parser.examples = ("kgqa completion bash",)


def run(given: Namespace) -> int:
    if given.line is not None:
        from kgqa.commands.completing import complete

        for word, meaning in complete(given.tree, given.line):
            print(inert(f"{word}\t{meaning}" if meaning else word))
        return 0
    if not given.places:
        raise given.parser.missing("SHELL")
    if given.places[0] not in SCRIPTS:
        raise ConfigError(f"{given.places[0]}: no such shell; {nearest(given.places[0], SCRIPTS)}")
    print(inert(SCRIPTS[given.places[0]]), end="")
    return 0
