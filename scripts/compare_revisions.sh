#!/usr/bin/env bash
# Builds two revisions and compares what every scenario gives: the same seed must give the same bytes.
#
#   scripts/compare_revisions.sh OLD [NEW] [--quick]
#
# NEW is the working tree unless given. Prints a line for each file that differs, and exits with 1 if any does.
# `revision` fields are left out of the comparison, since they name the program.
set -euo pipefail

old=${1:?which revision to compare with, for example HEAD~1}
new=
quick=
shift
for argument in "$@"; do
    case $argument in
        --quick) quick=--quick ;;
        *) new=$argument ;;
    esac
done

cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'git worktree remove --force "$work/old" 2>/dev/null || true
      git worktree remove --force "$work/new" 2>/dev/null || true
      rm -rf "$work"' EXIT
target=${CARGO_TARGET_DIR:-$PWD/target}

# Both share one target folder, so that packages from the registry are built once.
build() {
    local name=$1 source=$2
    printf 'building %s\n' "$name" >&2
    (cd "$source" && CARGO_TARGET_DIR=$target cargo build --quiet --release -p sim)
    cp "$target/release/sim" "$work/sim_$name"
}

git worktree add --quiet --detach "$work/old" "$old"
build old "$work/old"
if [ -n "$new" ]; then
    git worktree add --quiet --detach "$work/new" "$new"
    build new "$work/new"
    scenarios=$work/new
else
    build new "$PWD"
    scenarios=$PWD
fi

# Runs a scenario and leaves nothing in its folder that names the program.
run() {
    local name=$1 scenario=$2 out=$3
    (cd "$scenarios" && "$work/sim_$name" "$scenario" $quick --out "$out" >/dev/null 2>"$out.log") || {
        printf '%s: %s fails: %s\n' "$scenario" "$name" "$(tail -n 1 "$out.log")"
        return 1
    }
    find "$out" -name '*.json' -exec sed -i -E 's/"revision": ?"[^"]*"//' {} +
}

status=0
compared=0
while IFS= read -r scenario; do
    stem=$(basename "$scenario" .yaml)
    run old "$scenario" "$work/$stem.old" || status=1
    run new "$scenario" "$work/$stem.new" || status=1
    for file in summary.json requests.parquet sweep.csv; do
        [ -e "$work/$stem.old/$file" ] || [ -e "$work/$stem.new/$file" ] || continue
        compared=$((compared + 1))
        cmp --silent "$work/$stem.old/$file" "$work/$stem.new/$file" || {
            printf '%s: %s differs\n' "$scenario" "$file"
            status=1
        }
    done
    rm -rf "$work/$stem.old" "$work/$stem.new"
done < <(cd "$scenarios" && find scenarios -name '*.yaml' ! -name architectures.yaml ! -path 'scenarios/validate/*' | sort)
printf '%d files compared\n' "$compared" >&2
exit "$status"
