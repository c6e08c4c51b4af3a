#!/usr/bin/env bash
# Serves a model with vLLM to this machine alone, for several runs to share:
#
#   scripts/serve_vllm.sh MODEL [any option of vLLM's server]
#   kgqa run engine=openai engine.server=vllm engine.base_url=http://127.0.0.1:8000/v1 engine.served_model=MODEL …
#
# MODEL is a transformers folder or a name on the hub. PORT (8000) and PYTHON (python3, one that has vllm) may be set.
# VLLM_API_KEY may hold a key that clients must have.
# On a CPU add: --dtype bfloat16 --enforce-eager --max-model-len 4096 --kv-cache-memory-bytes 4G
set -euo pipefail
model=${1:?"usage: scripts/serve_vllm.sh MODEL [options of vLLM]"}
shift
for word; do
  case $word in --api-key*)
    echo "serve_vllm.sh: everybody here can read --api-key in the list of processes; set VLLM_API_KEY instead" >&2
    exit 2 ;;
  esac
done
export VLLM_NO_USAGE_STATS=${VLLM_NO_USAGE_STATS:-1}
export GOMP_SPINCOUNT=${GOMP_SPINCOUNT:-0} # waiting threads sleep: else a busy neighbour makes a CPU many times slower

# prefix caching: calls of one question begin alike; 128 log-probabilities: the labels of a choice;
# guidance: the library that holds engine=transformers and engine=vllm to a JSON schema, too; details: how many tokens of
# a prompt the prefix cache had
exec "${PYTHON:-python3}" -m vllm.entrypoints.openai.api_server \
  --model "$model" --host 127.0.0.1 --port "${PORT:-8000}" \
  --enable-prefix-caching --max-logprobs 128 --structured-outputs-config.backend guidance \
  --enable-prompt-tokens-details --disable-uvicorn-access-log "$@"
