"""`kubectl fluxqueue completion`: the scripts that complete ``kubectl-fluxqueue`` in a shell.

``kubectl fluxqueue`` needs none of them: kubectl's own completion runs `kubectl_complete-fluxqueue`, which is
installed with the plugin.
"""

from __future__ import annotations

import argparse
import sys

from fluxqueue.cli.usage_errors import UsageParser

__all__ = ["add_options", "run"]

_BASH = r"""# kubectl fluxqueue: completion of kubectl-fluxqueue in bash.
# kubectl itself completes `kubectl fluxqueue`:  source <(kubectl completion bash)
_kubectl_fluxqueue() {
    local -a words=()
    local each line word directive=4 colon= joined= head=
    # bash divides words at colons, which the names of contexts have; what is typed may begin with a quote.
    for each in "${COMP_WORDS[@]:1:COMP_CWORD}"; do
        if [ ${#words[@]} -gt 0 ] && { [ "$each" = ":" ] || [ -n "$colon" ]; }; then
            words[${#words[@]}-1]+=$each
            joined=1
        else
            words+=("$each")
            joined=
        fi
        if [ "$each" = ":" ]; then colon=1; else colon=; fi
    done
    word=${words[${#words[@]}-1]#[\"\']}
    words[${#words[@]}-1]=$word
    [ "$word" = "=" ] && word=
    [ -n "$joined" ] && head=${word%"${word##*:}"}
    COMPREPLY=()
    while IFS= read -r line; do
        case $line in
            :*) directive=${line#:} ;;
            "$word"*)
                line=${line%%$'\t'*}
                COMPREPLY+=("${line#"$head"}")
                ;;
        esac
    done < <(kubectl_complete-fluxqueue "${words[@]}" 2>/dev/null)
    if [ ${#COMPREPLY[@]} -eq 0 ] && [ "$directive" = 0 ]; then
        compopt -o default
    fi
}
complete -F _kubectl_fluxqueue kubectl-fluxqueue
"""

_ZSH = r"""#compdef kubectl-fluxqueue
# kubectl fluxqueue: completion of kubectl-fluxqueue in zsh.
# kubectl itself completes `kubectl fluxqueue`:  source <(kubectl completion zsh)
_kubectl_fluxqueue() {
    local -a lines
    local directive
    lines=("${(@f)$(kubectl_complete-fluxqueue "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    directive=${lines[-1]#:}
    lines=("${(@)lines[1,-2]}")
    lines=("${(@)lines//:/\\:}")
    lines=("${(@)lines/$'\t'/:}")
    if (( ${#lines} )); then
        _describe 'kubectl fluxqueue' lines
    elif [[ $directive == 0 ]]; then
        _files
    fi
}
compdef _kubectl_fluxqueue kubectl-fluxqueue
"""

_FISH = r"""# kubectl fluxqueue: completion of kubectl-fluxqueue in fish.
# kubectl itself completes `kubectl fluxqueue`:  kubectl completion fish | source
function __kubectl_fluxqueue_complete
    set -l words (commandline -opc)
    set -a words "$(commandline -ct)"
    kubectl_complete-fluxqueue $words[2..-1] 2>/dev/null | string match -v ':*'
end
complete -c kubectl-fluxqueue -f -a '(__kubectl_fluxqueue_complete)'
"""

_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def add_options(verb: str, command: UsageParser) -> None:
    """Add the options of the command."""
    command.description = (
        "Print what a shell needs to complete kubectl-fluxqueue. `kubectl fluxqueue` is completed by "
        "kubectl's own completion, where kubectl_complete-fluxqueue is on the PATH."
    )
    command.example = f"kubectl fluxqueue {verb} bash"
    command.add_argument("shell", metavar="SHELL", choices=sorted(_SCRIPTS), help=", ".join(sorted(_SCRIPTS)))


def run(arguments: argparse.Namespace) -> int:
    """Print a script."""
    sys.stdout.write(_SCRIPTS[arguments.shell])
    return 0
