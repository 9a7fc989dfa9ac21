#!/usr/bin/env bash
# lm-evaluation-harness, unchanged, against `serve`: a multiple-choice and a generation task of a few rows, with the
# server's tokenizer. Needs the network for pip only; see common.sh.
# shellcheck source=scripts/clients/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

make_venv lm_eval 'lm-eval[api]==0.4.13'
start_serve
"$venv/bin/python" "$here/lm_eval_client.py" prepare "$base" "$work"

# Nothing of it goes to, or comes from, a hub.
export HF_HOME=$work/hf HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1
"$venv/bin/lm_eval" --model local-completions \
    --model_args "model=tiny,base_url=$base/v1/completions,num_concurrent=1,max_retries=1" \
    --include_path "$work/tasks" --tasks tiny_choice,tiny_text --batch_size 2 \
    --output_path "$work/out" --log_samples >"$work/lm_eval.log" 2>&1 || fail "lm_eval failed"
grep -q "Using remote tokenizer" "$work/lm_eval.log" || fail "lm_eval has not used the server's tokenizer"

"$venv/bin/python" "$here/lm_eval_client.py" check "$base" "$work"
stop_serve
