#!/usr/bin/env bash
# Prints the README's table of measurements as Markdown: every method on every problem, 50 machines, to a relative suboptimality of 1e-6.
# COREWIRE_DATA names the folder of MNIST; without it those rows are left out. COREWIRE is the binary, METHODS and SEED what to run.
set -euo pipefail
cd "$(dirname "$0")/.."
corewire=${COREWIRE:-${CARGO_TARGET_DIR:-target}/release/corewire}
read -r -a methods <<<"${METHODS:-core-agd core-cg cg}"
seed=${SEED:-0}

# One row: what to call the problem, the method, and the job's keys.
row() {
    local problem=$1 method=$2 keys=() key report status=0
    shift 2
    for key in "$@" "method.name=$method" "method.seed=$seed"; do keys+=(--set "$key"); done
    # 2 says that the target was missed, which is a row too.
    report=$("$corewire" run --json "${keys[@]}") || status=$?
    if [ "$status" != 0 ] && [ "$status" != 2 ]; then echo "failed: $problem, $method" >&2; exit 1; fi
    python3 - "$problem" "$method" "$report" <<'PYTHON'
import json, sys

problem, method, report = sys.argv[1], sys.argv[2], json.loads(sys.argv[3].splitlines()[-1])
budget = report["budget"] or ""
rounds = f"{report['rounds']:,}" if report["reached"] else f"{report['rounds']:,}, not reached"
payload = round(report["up_bytes"] + report["down_bytes"])
print(f"| {problem} | {method} | {budget} | {rounds} | {report['exchanges']:,} | {payload:,} | {round(report['wire_bytes']):,} |")
PYTHON
}

echo "| problem | method | m | rounds | exchanges | payload, up and down | wire bytes |"
echo "| --- | --- | ---: | ---: | ---: | ---: | ---: |"
for model in logistic ridge; do
    for method in "${methods[@]}"; do row "digits, $model" "$method" "problem.model=$model"; done
done
if [ -n "${COREWIRE_DATA:-}" ]; then
    mnist=("problem.data=$COREWIRE_DATA/train-images-idx3-ubyte.gz" problem.rows=2000 problem.classes=parity problem.normalise=unit problem.intercept=false)
    for model in logistic ridge; do
        for method in "${methods[@]}"; do row "MNIST, $model" "$method" "${mnist[@]}" "problem.model=$model"; done
    done
else
    echo "skipped: MNIST, COREWIRE_DATA is not set" >&2
fi
for method in "${methods[@]}"; do row "power law, quadratic" "$method" problem.data=power-law; done
