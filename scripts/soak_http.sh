#!/usr/bin/env bash
# 64 streams at once for ten minutes against `serve` with a tiny model on the CPU: no request is lost, the memory stays flat,
# and every page of KV comes back.
#
#   scripts/soak_http.sh [SECONDS]    600 by default, at least 120
#
# Flat: after the first minute the resident memory never exceeds that minute's last sample by more than 2% or 8 MiB,
# whichever is more. SERVE_BIN may name a built `serve`. Prints what was measured, and exits with 1 if anything is wrong.
# shellcheck source=scripts/clients/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/clients/common.sh"

seconds=${1:-600}
[[ $seconds =~ ^[0-9]+$ ]] && [ "$seconds" -ge 120 ] || fail "SECONDS must be a whole number from 120, got \`$seconds\`"

# The pool holds two thirds of what 64 sequences need at their ends, so that some are preempted and recomputed.
printf 'scheduler: { max_context_tokens: 2048 }\nkv: { blocks: 1024 }\n' >"$work/scenario.yaml"
start_serve
python3 "$root/scripts/load_http.py" --port "$port" --streams 64 --prompt-tokens 32 --output-tokens 64 \
    --seconds "$seconds" --extra '{"temperature": 1, "exit": {"threshold": 0.5}}' >"$work/load.json" &
load=$!

rss_kib() { sed -n 's/^VmRSS:[^0-9]*\([0-9]*\) kB$/\1/p' "/proc/$server/status"; }

reference=
highest=0
for ((at = 10; at < seconds; at += 10)); do
    sleep 10
    kill -0 "$load" 2>/dev/null || break
    now=$(rss_kib)
    printf '%4d s  %d KiB\n' "$at" "$now" >&2
    [ "$at" -eq 60 ] && reference=$now
    [ -n "$reference" ] && [ "$now" -gt "$highest" ] && highest=$now
done
status=0
wait "$load" || status=$?
cat "$work/load.json"
[ $status -eq 0 ] || fail "requests were lost"
[ -n "$reference" ] || fail "the load ended within a minute"

gauge() { curl --silent --fail "$base/metrics" | sed -n "s/^loopbatch_$1 //p"; }
# The last answer may be a moment ahead of the engine's last word.
for _ in $(seq 50); do
    [ "$(gauge kv_blocks_used)" = 0 ] && break
    sleep 0.1
done
used=$(gauge kv_blocks_used)
[ "$used" = 0 ] || fail "$used blocks of KV are in use though nothing runs"
running=$(gauge requests_running)
[ "$running" = 0 ] || fail "$running requests run though nobody waits for them"

growth=$((highest - reference))
allowed=$((reference / 50 > 8192 ? reference / 50 : 8192))
printf '{"rss_kib_at_60_s": %d, "rss_kib_highest_after": %d, "growth_kib": %d, "allowed_kib": %d, "kv_blocks_used": %d}\n' \
    "$reference" "$highest" "$growth" "$allowed" "$used"
[ "$growth" -le "$allowed" ] || fail "the memory grew by $growth KiB after the first minute, $allowed are allowed"
stop_serve
