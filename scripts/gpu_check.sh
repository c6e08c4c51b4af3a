#!/usr/bin/env bash
# Check and measure kgqa on a machine with GPUs. It prints rows of a table for docs/dev/SCALING_MEASURED.md.
#
#   scripts/gpu_check.sh                      all parts
#   scripts/gpu_check.sh search encoders      some parts: search encoders transformers vllm faiss
#   SIZE=tiny scripts/gpu_check.sh            the same steps with tiny models in seconds, also on a CPU
#
# Models have random weights of real shapes, so nothing is downloaded. A part without its library prints "not run".
# PYTHON (python3, one that has the libraries), SIZE (full), PASSAGES (1000000) and WORK (a folder for weights and
# vectors) may be set. With 8B weights the folder needs 25 GB.
set -uo pipefail
cd "$(dirname "$0")/.."
export GOMP_SPINCOUNT=${GOMP_SPINCOUNT:-0} HF_HUB_OFFLINE=1
work=${WORK:-$(mktemp -d)}
[ -n "${WORK:-}" ] || trap 'rm -rf "$work"' EXIT
status=0
echo "| part | what | measured |"
echo "| --- | --- | --- |"
for part in "${@:-search encoders transformers vllm faiss}"; do
  for name in $part; do
    # a process for each part, so that its memory is free for the next one
    "${PYTHON:-python3}" -m scripts.gpu_check "$name" "$work" || {
      echo "| $name | failed | |"
      status=1
    }
  done
done
exit "$status"
