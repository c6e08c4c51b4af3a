#!/usr/bin/env bash
# Serves a model with vLLM to this machine alone, for several runs to share:
#
#   scripts/serve_vllm.sh MODEL [any option of vLLM's server]
#   kgqa run server=http://127.0.0.1:8000/v1 …
#
# Other users of this machine can reach 127.0.0.1, too. vLLM checks its key only below /v1, /v2 and /inference: /tokenize,
# /invocations and others answer everyone on the machine. Do not use it for private data on a shared machine.
# The key is VLLM_API_KEY, or a new one that is printed. If the variable is set but empty, there is none. Runs send the key
# in OPENAI_API_KEY, or in the variable that engine.api_key_env names.
#
# MODEL is a transformers folder or a name on the hub. PORT (8000) and PYTHON (python3, one that has vllm) may be set.
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
# activations stay mapped: given back and asked for again, a tenth of a CPU's time goes to pages (docs/dev/LOG.md)
export MALLOC_MMAP_MAX_=${MALLOC_MMAP_MAX_:-0} MALLOC_TRIM_THRESHOLD_=${MALLOC_TRIM_THRESHOLD_:-17179869184}
if [ -z "${VLLM_API_KEY+set}" ]; then
  VLLM_API_KEY=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
  echo "runs that ask this server need: export OPENAI_API_KEY=$VLLM_API_KEY" >&2
fi
if [ -n "$VLLM_API_KEY" ]; then export VLLM_API_KEY; else unset VLLM_API_KEY; fi # never a word of the command: ps shows those

# prefix caching: calls of one question begin alike; 128 log-probabilities: the labels of a choice;
# guidance: the library that holds engine=transformers and engine=vllm to a JSON schema, too; details: how many tokens of
# a prompt the prefix cache had
exec "${PYTHON:-python3}" -m vllm.entrypoints.openai.api_server \
  --model "$model" --port "${PORT:-8000}" \
  --enable-prefix-caching --max-logprobs 128 --structured-outputs-config.backend guidance \
  --enable-prompt-tokens-details --disable-uvicorn-access-log "$@" --host 127.0.0.1 # last, so that it counts
