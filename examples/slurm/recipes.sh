#!/bin/bash
# Run the paper's recipes on several nodes that share a folder: sbatch --nodes=8 examples/slurm/recipes.sh accuracy depth
# Each node trains cells that no other has begun. Submit it again to go on.
#SBATCH --job-name=deeppc-paper
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
#SBATCH --output=deeppc-paper-%j.log
set -euo pipefail

exec srun deeppc paper run "$@" --scale paper --out "${OUT:-paper}" --data-dir "${DATA_DIR:-data}"
