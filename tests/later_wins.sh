#!/usr/bin/env bash
# Runs $minrnn_command with flags of which a later one replaces an earlier one, so that a test can vary one list of
# flags. The command itself refuses a flag that is given twice.
kept=()
while [ $# -gt 0 ]; do
    item=("$1")
    case $1 in
    --*=*) ;;
    --*) if [ $# -gt 1 ] && [[ $2 != --* ]]; then item+=("$2"); fi ;;
    esac
    again=0
    if [[ $1 == --* ]]; then
        for other in "${@:2}"; do
            if [[ $other == "${1%%=*}" || $other == "${1%%=*}="* ]]; then again=1; fi
        done
    fi
    [ $again = 1 ] || kept+=("${item[@]}")
    shift ${#item[@]}
done
exec "$minrnn_command" "${kept[@]}"
