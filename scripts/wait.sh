#!/usr/bin/env bash
# Run a command without output, such as pip. On a terminal, show the elapsed seconds until it ends.
"$@" &
pid=$!
# a command in the background ignores Ctrl-C
trap 'kill "$pid"; wait "$pid"; exit 130' INT TERM
while [ -t 2 ] && kill -0 "$pid" 2>/dev/null; do
  printf '\r  %d s ' "$SECONDS" >&2
  sleep 1
done
[ ! -t 2 ] || printf '\r\033[K' >&2
wait "$pid"
