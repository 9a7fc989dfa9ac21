#!/usr/bin/env bash
# Tests sweep_array.sbatch for real: a Slurm cluster of one node on loopback, a worker killed on the way, the merged table
# compared with a direct run's, byte by byte. Needs Debian or Ubuntu and root, since it installs slurm-wlm and munge; leaves
# no daemon behind. Usage: scripts/slurm/test_local.sh [path/to/sim]
set -euo pipefail
cd "$(dirname "$0")/../.."

command -v slurmctld sbatch munged >/dev/null || apt-get install -y slurm-wlm munge
if [ $# -gt 0 ]; then sim=$(realpath "$1"); else
    cargo build -p sim
    sim=$(realpath "${CARGO_TARGET_DIR:-target}/debug/sim")
fi

dir=$(mktemp -d)
export SLURM_CONF=$dir/slurm.conf
# By process id, and only those started here.
daemons=()
stop() {
    status=$?
    for pid in "${daemons[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
    if [ $status -ne 0 ]; then
        tail -n 20 "$dir"/*.log "$dir"/*.out 2>/dev/null || true
    fi
    rm -rf "$dir"
    exit $status
}
trap stop EXIT

# Munge signs what the daemons say to each other: a key, a socket and a log of our own. It insists on safe folders above its
# socket, and a folder for everyone under /tmp is safe only if it is sticky.
mkdir -m 755 "$dir/munge"
dd if=/dev/urandom of="$dir/munge/key" bs=128 count=1 status=none
chmod 400 "$dir/munge/key"
chmod 755 "$dir"
munged --foreground --force --key-file="$dir/munge/key" --socket="$dir/munge/socket" --pid-file="$dir/munge/pid" \
    --seed-file="$dir/munge/seed" --log-file="$dir/munged.log" >/dev/null 2>&1 &
daemons+=($!)

cat >"$SLURM_CONF" <<CONF
ClusterName=loopback
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge/socket
CredType=cred/munge
SlurmctldPort=16817
SlurmdPort=16818
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SchedulerType=sched/backfill
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
JobRequeue=1

SchedulerParameters=requeue_delay=1,sched_interval=2
NodeName=$(hostname -s) NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=$(hostname -s) Default=YES MaxTime=INFINITE State=UP
CONF
mkdir "$dir/state" "$dir/spool"
slurmctld -D >/dev/null 2>&1 &
daemons+=($!)
slurmd -D >/dev/null 2>&1 &
daemons+=($!)

wait_for() { # what, seconds, command
    for _ in $(seq $(($2 * 5))); do
        if eval "$3"; then return 0; fi
        sleep 0.2
    done
    echo "gave up waiting for $1" >&2
    return 1
}
wait_for "the node" 60 'sinfo -h -o %t 2>/dev/null | grep -q idle'

cat >"$dir/scenario.yaml" <<YAML
model: ouro-1.4b
profile: h100-paper
workload: { lengths: sharegpt, requests: 6000, arrivals: offline }
exits: { preset: { name: ouro-q0.2 } }
sweep:
  scheduler.max_num_seqs: [8, 16, 32]
  seed: [1, 2, 3, 4, 5, 6, 7, 8]
YAML
shards=3
"$sim" sweep "$dir/scenario.yaml" --out "$dir/direct" >/dev/null

job=$(sbatch --parsable --array=0-$((shards - 1)) --output="$dir/task-%a.out" \
    --export="ALL,SIM=$sim,SCENARIO=$dir/scenario.yaml,OUT=$dir/array" scripts/slurm/sweep_array.sbatch)
echo "array job $job with $shards shards"

# Kill the worker of shard 0 without a word once it has some points but not all, then run its task again.
journal=$dir/array/points/0-of-$shards.jsonl
wait_for "the first points" 120 "[ \"\$(cat $journal 2>/dev/null | wc -l)\" -ge 2 ]"
worker=$(pgrep -f -- "--out $dir/array --shard 0/$shards" | head -n 1)
kill -KILL "$worker"
finished=$(wc -l <"$journal")
echo "killed worker $worker after $finished of 8 points"
wait_for "the killed task to end" 60 "! squeue -h -r -j ${job}_0 -t R,CG 2>/dev/null | grep -q ."
if "$sim" merge "$dir/scenario.yaml" --out "$dir/array" 2>"$dir/merge.log"; then
    echo "a merge with missing points must fail" >&2
    exit 1
fi
grep -q "points have not been run" "$dir/merge.log"
if scontrol requeue "${job}_0" 2>/dev/null; then
    # A requeued task would wait for two minutes.
    scontrol update "JobId=${job}_0" StartTime=now || true
    echo "requeued task 0"
else
    # A task that ended is forgotten soon; submitting the same shards again is as good.
    job=$(sbatch --parsable --array=0-$((shards - 1)) --output="$dir/again-%a.out" \
        --export="ALL,SIM=$sim,SCENARIO=$dir/scenario.yaml,OUT=$dir/array" scripts/slurm/sweep_array.sbatch)
    echo "submitted again as $job"
fi
wait_for "all tasks" 300 '[ -z "$(squeue -h)" ]'
[ "$(head -n "$finished" "$journal" | wc -l)" -eq "$finished" ]

"$sim" merge "$dir/scenario.yaml" --out "$dir/array" >/dev/null
for file in sweep.csv sweep.parquet sweep.svg sweep.png report.html scenario.yaml; do
    cmp "$dir/direct/$file" "$dir/array/$file"
done
echo "the merged sweep has the bytes of the direct one"
