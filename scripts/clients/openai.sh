#!/usr/bin/env bash
# The openai client for Python, unchanged, against `serve`. Needs the network for pip only; see common.sh.
# shellcheck source=scripts/clients/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

make_venv openai openai==3.57.0
export LOOPBATCH_API_KEY=key-of-this-run
start_serve
OPENAI_API_KEY=$LOOPBATCH_API_KEY OPENAI_BASE_URL=$base/v1 "$venv/bin/python" "$here/openai_client.py"
stop_serve
