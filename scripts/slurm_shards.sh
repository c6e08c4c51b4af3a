#!/usr/bin/env bash
# One run on several nodes: each job answers a part of the questions with its own engine and index.
#
#   sbatch --array=1-8 scripts/slurm_shards.sh method=trace dataset=musique model=llama3_1_8b_instruct engine=vllm
#   PARTS=8 sbatch --array=3,5 scripts/slurm_shards.sh …the same keys…   # only these parts again
#   KGQA_REPLIES=outputs/replies kgqa run …the same keys…       # joins the parts: all replies are stored
#
# Submit from the checkout, which all nodes share. Replies are appended to files in KGQA_REPLIES (outputs/replies), so a
# job that is killed or requeued loses none. The call cache is on the local disk of each node. No address and no key
# leaves a node. KGQA (kgqa) may be set. Fetch models and data before, on a node with internet.
#SBATCH --job-name=kgqa-shards
#SBATCH --gres=gpu:8
#SBATCH --cpus-per-task=32
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --output=kgqa-shards-%A-%a.log
set -euo pipefail
: "${1:?"usage: sbatch --array=1-8 scripts/slurm_shards.sh key=value …"}"
cd "${SLURM_SUBMIT_DIR:-.}" # sbatch runs a copy of this file from elsewhere
export KGQA_REPLIES=${KGQA_REPLIES:-outputs/replies}
export HF_HUB_OFFLINE=${HF_HUB_OFFLINE:-1} # many nodes have no internet
KGQA_CACHE=$(mktemp -d "${TMPDIR:-/tmp}/kgqa-cache-XXXXXX")
export KGQA_CACHE
trap 'rm -rf "$KGQA_CACHE"' EXIT
"${KGQA:-kgqa}" run "$@" "shard=${SLURM_ARRAY_TASK_ID:-1}/${PARTS:-${SLURM_ARRAY_TASK_COUNT:-1}}"
