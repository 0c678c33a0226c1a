#!/usr/bin/env bash
# More of the Chomsky hierarchy than cli_chomsky.sh has time for.
exec bash "$(dirname "$0")/cli_chomsky.sh" "$1" all
