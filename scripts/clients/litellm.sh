#!/usr/bin/env bash
# LiteLLM, unchanged, against `serve`. Needs the network for pip only; see common.sh.
# shellcheck source=scripts/clients/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

make_venv litellm litellm==1.110.2
export LOOPBATCH_API_KEY=key-of-this-run
start_serve
# Otherwise it looks for a list of prices on the web.
export LITELLM_LOCAL_MODEL_COST_MAP=True
"$venv/bin/python" "$here/litellm_client.py" "$base/v1" "$LOOPBATCH_API_KEY"
stop_serve
