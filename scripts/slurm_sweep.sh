#!/usr/bin/env bash
# A sweep on a Slurm node with a GPU: one vLLM server, shared by every cell.
#
#   sbatch scripts/slurm_sweep.sh MODEL [what `kgqa run -m` takes, without model and engine keys of the server]
#   sbatch scripts/slurm_sweep.sh Qwen/Qwen3-8B model=qwen3_8b method=trace,ircot dataset=musique,hotpotqa limit=500
#
# MODEL is what vLLM serves; model= the preset that describes it. Submit from the checkout. A job that is killed or runs
# out of time loses no reply: submit the same line again, and it goes on from there (--requeue does so by itself).
# PYTHON (python3, one that has vllm), KGQA (kgqa) and VLLM_OPTIONS may be set. Several cells at once, all asking the
# one server: add hydra/launcher=joblib hydra.launcher.n_jobs=4
#SBATCH --job-name=kgqa-sweep
#SBATCH --gres=gpu:1
#SBATCH --cpus-per-task=8
#SBATCH --mem=64G
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --output=kgqa-sweep-%j.log
set -euo pipefail
model=${1:?"usage: sbatch scripts/slurm_sweep.sh MODEL [key=value …]"}
shift
cd "${SLURM_SUBMIT_DIR:-.}" # sbatch runs a copy of this file from elsewhere
export PORT=${PORT:-$((20000 + ${SLURM_JOB_ID:-0} % 20000))} # jobs on one node do not meet
export VLLM_API_KEY=${VLLM_API_KEY-$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')} # others are on this node, too
export OPENAI_API_KEY=$VLLM_API_KEY

# shellcheck disable=SC2086 # options are several words
scripts/serve_vllm.sh "$model" ${VLLM_OPTIONS:-} >"vllm-${SLURM_JOB_ID:-here}.log" 2>&1 &
server=$!
trap 'kill "$server" 2>/dev/null || true' EXIT
until curl --fail --silent --output /dev/null "http://127.0.0.1:$PORT/health"; do
  kill -0 "$server" 2>/dev/null || { echo "the server ended; see vllm-${SLURM_JOB_ID:-here}.log" >&2; exit 1; }
  sleep 2
done

# deployment: what the runs call the server, so that another port next time is not another run
"${KGQA:-kgqa}" run -m engine=openai engine.server=vllm "engine.base_url=http://127.0.0.1:$PORT/v1" \
  "engine.served_model='$model'" "engine.deployment='vllm $model'" "$@"
