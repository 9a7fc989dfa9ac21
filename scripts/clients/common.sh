# Sourced by scripts that need a server: a venv for a client, `serve` with a tiny model, and its end.
#
# Environment:
#   CLIENTS_VENV  a folder that keeps the venvs, one a client; a temporary one by default
#   SERVE_BIN     a built `serve`; `cargo build -p serve` by default
# shellcheck shell=bash disable=SC2034
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
here=$root/scripts/clients
work=$(mktemp -d)
server=
# Whatever the caller's environment has, the clients ask this server only, and without a proxy.
unset LOOPBATCH_API_KEY OPENAI_API_KEY OPENAI_BASE_URL OPENAI_API_BASE
export NO_PROXY=127.0.0.1 no_proxy=127.0.0.1

fail() {
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 1
}

cleanup() {
    local status=$?
    # Only what this script has started itself.
    jobs -p | xargs -r kill 2>/dev/null || true
    wait
    if [ $status -ne 0 ]; then
        tail -n 40 "$work"/*.log >&2 2>/dev/null || true
    fi
    rm -rf "$work"
    exit $status
}
trap cleanup EXIT

# make_venv NAME PACKAGE==VERSION..: sets `venv` to a folder with these packages.
make_venv() {
    venv=${CLIENTS_VENV:-$work/venvs}/$1
    shift
    [ -x "$venv/bin/python" ] || python3 -m venv "$venv" || fail "python3 cannot make a venv: it needs the module venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check "$@" || fail "pip could not install $*"
}

# start_serve: starts `serve` with the tiny model `tiny` on a free port, and waits until it answers. Sets `base`
# to its address, without /v1, and `port`; `server` is its process.
start_serve() {
    if [ -z "${SERVE_BIN:-}" ]; then
        (cd "$root" && cargo build --quiet -p serve) || fail "\`serve\` could not be built"
        SERVE_BIN=${CARGO_TARGET_DIR:-$root/target}/debug/serve
    fi
    [ -x "$SERVE_BIN" ] || fail "SERVE_BIN: $SERVE_BIN is not a program"
    # A context and a pool of KV that suit a tiny model, unless the caller has other ones.
    if [ ! -e "$work/scenario.yaml" ]; then
        printf 'scheduler: { max_context_tokens: 2048 }\nkv: { blocks: 8192 }\n' >"$work/scenario.yaml"
    fi
    "$SERVE_BIN" --model "$tiny_model" --served-model-name tiny --scenario "$work/scenario.yaml" --port 0 \
        >"$work/serve.log" 2>&1 &
    server=$!
    local waited=0
    : >>"$work/serve.log"
    until base=$(sed -n 's|^serving .* at \(http://[^/]*\)/v1$|\1|p' "$work/serve.log") && [ -n "$base" ] &&
        curl --silent --fail --output /dev/null "$base/health"; do
        kill -0 "$server" 2>/dev/null || fail "the server has ended before it was ready"
        [ $((waited += 1)) -le 300 ] || fail "the server was not ready within 60 s"
        sleep 0.2
    done
    port=${base##*:}
}

# stop_serve: ends the server as an operator would; it must finish what runs and exit with 0.
stop_serve() {
    kill -TERM "$server"
    local status=0
    wait "$server" || status=$?
    server=
    [ $status -eq 0 ] || fail "the server exited with $status behind SIGTERM"
}

# A model of 400 ids with random weights, a tokenizer and a chat template.
tiny_model=$root/engine/tests/hf/fixtures/tokenizer
