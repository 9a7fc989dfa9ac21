#!/usr/bin/env bash
# Two `serve` processes on the CPU behind nginx or HAProxy on loopback. One is killed under load: the requests of the other
# all finish, and errors are those of the requests that the dead one had.
#
#   scripts/replicas/test.sh nginx|haproxy
#
# Needs the load balancer (Debian: apt-get install nginx-light haproxy), curl and Python. SERVE_BIN and SIM_BIN may name
# built programs. Prints what was counted, and exits with 1 if anything is wrong.
set -euo pipefail
balancer=${1:-}
case $balancer in
nginx | haproxy) ;;
*) echo "usage: scripts/replicas/test.sh nginx|haproxy" >&2 && exit 2 ;;
esac
# Debian keeps both where only root looks.
PATH=$PATH:/usr/sbin
command -v "$balancer" >/dev/null || { echo "test.sh: there is no $balancer: install it first" >&2 && exit 2; }
# The name of this script is in its errors; SERVE_BIN and the tiny model come from there.
# shellcheck source=scripts/clients/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/../clients/common.sh"
if [ -z "${SIM_BIN:-}" ]; then
    (cd "$root" && cargo build --quiet -p sim) || fail "\`sim\` could not be built"
    SIM_BIN=${CARGO_TARGET_DIR:-$root/target}/debug/sim
fi

cat >"$work/scenario.yaml" <<YAML
model: { folder: $tiny_model }
profile: { roofline: { gpu: h200 } }
workload:
  lengths: { fixed: { prompt_tokens: 32, output_tokens: 200 } }
  arrivals: { poisson: { rate_per_s: 5, duration_s: 12 } }
exits: full_depth
scheduler: { max_context_tokens: 1024, overlap: asynchronous }
kv: { blocks: 4096, layout: last_exited }
compare: [{ mode: refill }]
output: { plots: false, steps: false, timeline: false }
YAML

# Two replicas, each with one thread.
ports=() pids=()
for replica in 1 2; do
    start_serve
    ports+=("$port") pids+=("$server")
    mv "$work/serve.log" "$work/serve_$replica.log"
done

# The balancer, at a port that was free a moment ago.
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
servers=
for replica in 0 1; do
    case $balancer in
    nginx) servers+="        server 127.0.0.1:${ports[$replica]} max_fails=1 fail_timeout=10s;\n" ;;
    haproxy) servers+="    server replica$replica 127.0.0.1:${ports[$replica]}\n" ;;
    esac
done
file=$root/scripts/replicas/$balancer.$([ "$balancer" = nginx ] && echo conf || echo cfg)
sed -e "s|@SERVERS@|${servers%\\n}|" -e "s|@PORT@|$port|" -e "s|@WORK@|$work|" "$file" >"$work/balancer"
case $balancer in
nginx) nginx -e "$work/nginx_error.log" -c "$work/balancer" -g 'daemon off;' >"$work/balancer.log" 2>&1 & ;;
haproxy) haproxy -db -f "$work/balancer" >"$work/balancer.log" 2>&1 & ;;
esac
balancer_pid=$!
for _ in $(seq 100); do
    curl --silent --fail --output /dev/null "http://127.0.0.1:$port/health" && break
    kill -0 "$balancer_pid" 2>/dev/null || fail "$balancer has ended"
    sleep 0.1
done

# Load for 12 s; one replica dies in the middle of it.
"$SIM_BIN" observe "http://127.0.0.1:$port" "$work/scenario.yaml" --repeats 1 --out "$work/out" >"$work/observe.log" 2>&1 &
load=$!
sleep 6
series() { curl --silent --fail "http://127.0.0.1:$1/metrics" | sed -n "s/^loopbatch_$2 //p"; }
running=$(($(series "${ports[0]}" requests_running) + $(series "${ports[0]}" requests_waiting)))
kill -KILL "${pids[0]}"
status=0
wait "$load" || status=$?
[ $status -eq 0 ] || { cat "$work/observe.log" >&2 && fail "the load ended with $status"; }

survivor=${ports[1]}
finished=$(series "$survivor" 'requests_total{outcome="length"}')
cancelled=$(series "$survivor" 'requests_total{outcome="cancelled"}')
python3 - "$work/out/client.json" "$running" "$finished" "$cancelled" "$balancer" <<'PYTHON'
import json
import sys

file, running, finished, cancelled, balancer = sys.argv[1:]
run = json.load(open(file))["runs"][0]
failed = {kind: failures["count"] for kind, failures in run["failures"].items()}
counted = {
    "balancer": balancer,
    "sent": run["sent"],
    "answered": run["answered"],
    "failed": failed,
    "on_the_dead_replica": int(running),
    "finished_by_the_other": int(finished),
    "cancelled_on_the_other": int(cancelled),
    "late": run["client"]["late"],
}
print(json.dumps(counted, indent=2))
wrong = []
if run["sent"] != run["answered"] + sum(failed.values()):
    wrong.append("a request is neither answered nor failed")
if not 0 < int(running):
    wrong.append("the replica had nothing to do when it was killed")
# A request may have come or gone between the count and the kill.
if abs(sum(failed.values()) - int(running)) > 2:
    wrong.append(f"{sum(failed.values())} failed, and the dead replica had {running}")
if int(cancelled) != 0:
    wrong.append("the other replica lost requests")
if wrong:
    sys.exit("; ".join(wrong))
PYTHON
kill -TERM "$balancer_pid" 2>/dev/null || true
wait "$balancer_pid" || true
server=${pids[1]}
stop_serve
