#!/usr/bin/env bash
# aiperf, unchanged, against `serve`: streamed chat, with the server's own count of tokens. Needs the network for pip only;
# see common.sh.
# shellcheck source=scripts/clients/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

make_venv aiperf aiperf==0.13.0
start_serve

# The tokenizer alone: with the model's config beside it, its loader would ask the hub for that model's code.
mkdir "$work/tokenizer"
cp "$tiny_model/tokenizer.json" "$tiny_model/tokenizer_config.json" "$work/tokenizer/"
requests=12
tokens=8
(cd "$work" && HF_HOME=$work/hf "$venv/bin/aiperf" profile -m tiny --url "$base" --endpoint-type chat --streaming \
    --tokenizer "$work/tokenizer" --request-count $requests --concurrency 4 --synthetic-input-tokens-mean 32 \
    --output-tokens-mean $tokens --extra-inputs ignore_eos:true --use-server-token-count --ui none \
    --output-artifact-dir "$work/out") >"$work/aiperf.log" 2>&1 || fail "aiperf failed"

"$venv/bin/python" "$here/aiperf_client.py" "$base" "$work/out" $requests $tokens
stop_serve
