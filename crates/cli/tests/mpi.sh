#!/usr/bin/env bash
# The command line under mpirun: the digests of five configurations are those of the threads engine on 1 to 4 processes, and a run
# whose process is killed in the middle is resumed to the same digest. Needs Open MPI; `make mpi` runs it.
set -euo pipefail
cd "$(dirname "$0")/../../.."
cargo build --quiet -p corewire-cli --features mpi
corewire="${CARGO_TARGET_DIR:-target}/debug/corewire"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
digest() { grep -o '"digest":"[0-9a-f]*"' | tail -n 1; }
job=(--json --set machines.count=8 --set stop.rounds=60 --set stop.target=0)

for configuration in "core-agd hadamard q" "core-agd gaussian q-sum" "core-cg hadamard q" "core-gd rademacher f32" "core-agd hadamard bf16"; do
    read -r method family wire <<<"$configuration"
    settings=("${job[@]}" --set "method.name=$method" --set "method.family=$family" --set "method.wire=$wire")
    expected=$("$corewire" run "${settings[@]}" | digest)
    for processes in 1 2 3 4; do
        found=$(timeout 120 mpirun --oversubscribe -n "$processes" "$corewire" run --engine mpi "${settings[@]}" | digest)
        if [ "$found" != "$expected" ]; then
            echo "failed: $configuration on $processes processes gives $found, threads $expected"
            exit 1
        fi
    done
    echo "ok: $configuration has the digest of threads on 1 to 4 processes"
done

settings=(--json --set machines.count=6 --set method.name=core-agd --set stop.target=0 --set stop.rounds=3000)
expected=$("$corewire" run "${settings[@]}" | digest)
timeout 120 mpirun --oversubscribe -n 3 "$corewire" run --engine mpi "${settings[@]}" --out "$folder/run" >"$folder/log" 2>&1 &
job_id=$!
# Once a snapshot is there the run is in its middle.
for _ in $(seq 200); do compgen -G "$folder/run/snapshot-*.safetensors" >/dev/null && break; sleep 0.05; done
begun=$SECONDS
pkill -KILL -n -f "engine mpi .*$folder/run" || true
wait "$job_id" && { echo "failed: the run ended before it could be killed"; exit 1; }
if [ $((SECONDS - begun)) -gt 10 ]; then echo "failed: the others took more than 10 s to end"; exit 1; fi
found=$(timeout 120 mpirun --oversubscribe -n 2 "$corewire" run --engine mpi --json --resume "$folder/run" | digest)
if [ "$found" != "$expected" ]; then echo "failed: the resumed run gives $found, an undisturbed one $expected"; exit 1; fi
echo "ok: a run whose process was killed ends with the digest of an undisturbed one"
