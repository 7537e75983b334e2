#!/bin/bash
# Train one network on several nodes: sbatch examples/slurm/train.sh --dataset cifar10 --model resnet18 --width 1
# All words after the script are flags of deeppc train. Another outcome than on one node is not to be expected: the
# batch, its order and its augmentation are the same whatever the number of workers.
#SBATCH --job-name=deeppc
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=16
#SBATCH --time=04:00:00
#SBATCH --requeue
#SBATCH --signal=TERM@120
#SBATCH --output=deeppc-%j.log
set -euo pipefail

# One folder for the whole job, on a disk that the nodes share: torchrun chooses the one that writes. A job that is put
# into the queue again, or that is submitted again with RUN_DIR set, goes on where it stopped.
run_dir=${RUN_DIR:-runs/slurm-$SLURM_JOB_ID}
resume=()
if [[ -e $run_dir/manifest.json ]]; then
    resume=(--resume)
fi

head_node=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
workers=${SLURM_GPUS_ON_NODE:-1}

# torchrun starts the workers of each node. A worker that dies is noticed by the others within a minute; all are started
# again, three times at most, and resume from the last checkpoint.
exec srun --kill-on-bad-exit=1 torchrun \
    --nnodes "$SLURM_JOB_NUM_NODES" \
    --nproc-per-node "$workers" \
    --rdzv-id "$SLURM_JOB_ID" \
    --rdzv-backend c10d \
    --rdzv-endpoint "$head_node:29500" \
    --max-restarts 3 \
    -m deeppc train --run-dir "$run_dir" --checkpoint-every 10 "${resume[@]}" "$@"
