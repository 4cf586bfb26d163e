# A fleet on a real Slurm on one machine: munge, slurmctld and slurmd of Debian's slurm-wlm. Run it as root in the
# repository: bash docs/evidence/slurm.sh
set -u
here=$PWD; work=$(mktemp -d /tmp/lockstep-slurm.XXXXXX); node=$(hostname -s)
export SLURM_CONF=$work/slurm.conf PYTHONPATH=$here HOME=$work/home PATH=$here/.venv/bin:$PATH
mkdir -p $work/spool $work/state $work/home
[ -f /etc/munge/munge.key ] || mungekey --create
munge=; pgrep -x munged >/dev/null || { mkdir -p /run/munge; chown munge /run/munge; su -s /bin/sh munge -c munged; munge=yes; }
cat > $SLURM_CONF <<C
ClusterName=one
SlurmctldHost=$node(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/builtin
MpiDefault=none
ReturnToService=2
NodeName=$node NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes=$node Default=YES MaxTime=INFINITE State=UP
C
slurmctld -c; slurmd -c
trap 'kill $(cat $work/slurmd.pid) $(cat $work/slurmctld.pid); [ -z "$munge" ] || kill $(cat /run/munge/munged.pid)' EXIT
until [ "$(sinfo -h -o %t 2>/dev/null)" = idle ]; do sleep 1; done
echo "## $(slurmctld -V)"; sinfo
python3 - $work <<'P'
import sys
from pathlib import Path
sys.path.insert(0, "tests")
from project import make_project
project = make_project(Path(sys.argv[1]) / "project")
project.write("toy/other.py", "")
project.commit("Add another module")
P
cd $work/project
lockstep() { python3 -m lockstep "$@"; }
shown() { sed -E "s#$work#WORK#g; s/[0-9.]+ s\b/… s/g"; }
echo "## lockstep run HEAD~1..HEAD --shards 2 --launcher slurm"
lockstep run HEAD~1..HEAD --shards 2 --launcher slurm 2>&1 | shown; echo "status ${PIPESTATUS[0]}"
echo "## the array that was submitted"; cat results-shards/slurm.sh; cut -c1-60 results-shards/slurm-commands.sh
scontrol show job 2>/dev/null | grep -E "JobId|JobState|ExitCode" | sed 's/^ *//'
echo "## results"; (cd results && find . -name "*.json*" | sort | sed -E 's/[0-9a-f]{8}-/COMMIT-/')
echo "## the scheduler is killed while tasks run, and started again; the same command goes on and merges"
rm -rf results results-shards; touch again.txt
lockstep run HEAD~1..HEAD --shards 2 --launcher slurm > again.txt 2>&1 &
fleet=$!
until grep -q "shard 1:" again.txt || ! kill -0 $fleet 2>/dev/null; do sleep 0.2; done
kill -9 $(cat $work/slurmctld.pid); echo "killed slurmctld"; squeue 2>&1 | head -1 | cut -c1-100
sleep 3; slurmctld; wait $fleet; status=$?
shown < again.txt; echo "status $status"
echo "## a task is killed while it runs; the same command goes on"
rm -rf results results-shards; touch again.txt
lockstep run HEAD~1..HEAD --shards 2 --launcher slurm > killed.txt 2>&1 &
fleet=$!
until log=$(grep -ls Shard results-shards/?-of-2.log | head -1) && [ "$log" ] || ! kill -0 $fleet 2>/dev/null; do sleep 0.1; done
task=$(basename "$log" -of-2.log); scancel --signal=KILL --full "$(squeue -h -o %F | head -1)_$task"; echo "killed task $task"
wait $fleet; status=$?; shown < killed.txt; echo "status $status"
lockstep run HEAD~1..HEAD --shards 2 --launcher slurm 2>&1 | shown; echo "status ${PIPESTATUS[0]}"
echo "## merged again"
lockstep merge results-shards 2>&1 | shown
