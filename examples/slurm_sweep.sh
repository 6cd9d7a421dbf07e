#!/bin/bash
# The controller of a sweep as a job of its own. It needs little: one core. Its workers are further jobs.
# Submit it again to resume: sbatch slurm_sweep.sh
#SBATCH --job-name=cartpole-sweep
#SBATCH --cpus-per-task=1
#SBATCH --time=12:00:00
#SBATCH --signal=B:TERM@120
#SBATCH --open-mode=append
#SBATCH --output=cartpole-sweep.log

# The job is told two minutes before its end (SIGTERM), and the sweep then stops in order.
exec protein sweep --env cartpole --max-cost 4h --max-trial-cost 10m \
  --backend slurm --workers "${WORKERS:-8}" --slurm-options=--time=2:00:00 --artifacts runs "$@"
