#!/usr/bin/env bash
# The command line under mpirun: the digests of six configurations are those of the threads engine on 1 to 4 processes, and a run
# whose process is killed in the middle is resumed to the same digest. Needs Open MPI; `make mpi` runs it.
set -euo pipefail
cd "$(dirname "$0")/../../.."
cargo build --quiet -p corewire-cli --features mpi
corewire="${CARGO_TARGET_DIR:-target}/debug/corewire"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# More processes than cores: whoever waits must let the others run.
export OMPI_MCA_mpi_yield_when_idle=1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
digest() { grep -o '"digest":"[0-9a-f]*"' | tail -n 1; }
job=(--json --set machines.count=8 --set stop.rounds=20 --set stop.target=0)

for configuration in "core-newton hadamard q" "core-agd hadamard q" "core-agd gaussian q-sum" "core-cg hadamard q" "core-gd rademacher f32" "core-agd hadamard bf16"; do
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

# A method of one round is at its target when it ends, on every engine, and its rows come from all processes.
settings=(--json --set machines.count=4 --set method.name=ship-rows)
expected=$("$corewire" run "${settings[@]}" | digest)
for processes in 1 2 4; do
    found=$(timeout 120 mpirun --oversubscribe -n "$processes" "$corewire" run --engine mpi "${settings[@]}")
    if [ "$(digest <<<"$found")" != "$expected" ] || ! grep -q '"reached":true' <<<"$found"; then
        echo "failed: ship-rows on $processes processes gives $found, threads $expected"
        exit 1
    fi
done
echo "ok: ship-rows ends at its target on 1, 2 and 4 processes"

# Only process 0 knows that f* took too long, and tells the others when estimates end the run: a round later than where it need not.
settings=(--json --set machines.count=4 --set method.name=core-newton --set limits.optimum_seconds=0)
rounds() { grep -o '"rounds":[0-9]*' | grep -o '[0-9]*'; }
expected=$("$corewire" run "${settings[@]}" | rounds)
found=$(timeout 120 mpirun --oversubscribe -n 2 "$corewire" run --engine mpi "${settings[@]}" | rounds)
if [ "$found" != $((expected + 1)) ]; then echo "failed: without f* a run ends after $found rounds, on threads after $expected"; exit 1; fi
echo "ok: a run without f* is ended by process 0"

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

# Rows at their sites: four shards in four folders, and every process sees its own alone. Where the system allows it the others' folders are hidden from
# a process by a mount namespace of its own.
"$corewire" data shard digits --machines 4 --out "$folder/flat" >/dev/null
mkdir "$folder/empty"
for rank in 0 1 2 3; do mkdir "$folder/site-$rank"; mv "$folder/flat/$rank.libsvm" "$folder/site-$rank/rows.libsvm"; done
cat >"$folder/alone" <<SCRIPT
#!/bin/bash
for rank in 0 1 2 3; do [ "\$rank" = "\$OMPI_COMM_WORLD_RANK" ] || mount --bind "$folder/empty" "$folder/site-\$rank" || exit 9; done
exec "$PWD/$corewire" "\$@"
SCRIPT
case "$corewire" in /*) sed -i "s|$PWD/||" "$folder/alone";; esac
chmod +x "$folder/alone"
sites=(run --json --set "problem.data=$folder/site-{machine}/rows.libsvm" --set problem.classes=parity --set machines.count=4)
expected=$("$corewire" "${sites[@]}" | digest)
if unshare -m true 2>/dev/null; then
    own=(unshare -m --propagation private "$folder/alone")
else
    echo "skipped: no mount namespaces here, every process could read all shards"
    own=("$corewire")
fi
found=$(timeout 120 mpirun --oversubscribe -n 4 "${own[@]}" "${sites[@]}" --engine mpi | digest)
if [ -z "$expected" ] || [ "$found" != "$expected" ]; then echo "failed: sites give $found, threads $expected"; exit 1; fi
echo "ok: four processes that see their own shard alone end with the digest of threads"

# Held-out rows are scored at the end, over all machines.
score() { grep -o '"score":[0-9.]*' | tail -n 1; }
expected=$("$corewire" "${sites[@]}" --set problem.test=0.25 | score)
found=$(timeout 120 mpirun --oversubscribe -n 4 "$corewire" "${sites[@]}" --set problem.test=0.25 --engine mpi | score)
if [ -z "$expected" ] || [ "$found" != "$expected" ]; then echo "failed: the score is $found, on threads $expected"; exit 1; fi
echo "ok: held-out rows have the score of threads"

cp "$folder/site-1/rows.libsvm" "$folder/site-2/rows.libsvm"
status=0
timeout 120 mpirun --oversubscribe -n 4 "$corewire" "${sites[@]}" --engine mpi >"$folder/log" 2>&1 || status=$?
if [ "$status" = 0 ] || ! grep -q "machine 2: its rows are those of machine 1" "$folder/log"; then
    echo "failed: a shard that two machines have was not refused"; cat "$folder/log"; exit 1
fi
echo "ok: a shard that two machines have is refused with their numbers"

# One file with all rows, but not the same on every process: the labels of three of four are inverted.
awk '{ $1 = ($1 % 2); print }' "$folder"/site-0/rows.libsvm >"$folder/rows-0.libsvm"
awk '{ $1 = 1 - ($1 % 2); print }' "$folder"/site-0/rows.libsvm >"$folder/rows-1.libsvm"
cat >"$folder/inverted" <<SCRIPT
#!/bin/bash
exec "$corewire" "\$@" --set "problem.data=$folder/rows-\$((OMPI_COMM_WORLD_RANK > 0)).libsvm"
SCRIPT
chmod +x "$folder/inverted"
status=0
timeout 120 mpirun --oversubscribe -n 4 "$folder/inverted" run --engine mpi --set machines.count=4 --set method.name=core-agd \
    >"$folder/log" 2>&1 || status=$?
if [ "$status" = 0 ] || ! grep -q 'machine 1: `rows` is' "$folder/log"; then
    echo "failed: inverted labels on three of four processes were not refused"; cat "$folder/log"; exit 1
fi
echo "ok: other rows on some processes are refused by machine and field"

# Nobody reads what is printed, or the disk is full.
status=0
timeout 120 mpirun --oversubscribe -n 2 sh -c "exec \"$corewire\" run --engine mpi --json --set machines.count=2 --set method.name=core-agd >/dev/full" \
    >"$folder/log" 2>&1 || status=$?
if [ "$status" != 1 ] || grep -q panicked "$folder/log" || ! grep -q "cannot write to standard output" "$folder/log"; then
    echo "failed: a full disk ended with $status"; cat "$folder/log"; exit 1
fi
timeout 120 mpirun --oversubscribe -n 2 bash -c "exec \"$corewire\" run --engine mpi --json --set machines.count=2 --set method.name=core-agd > >(exec true)" \
    >"$folder/log" 2>&1 || { echo "failed: a closed pipe is no error"; cat "$folder/log"; exit 1; }
echo "ok: an output that is full is told, one that is closed is let be"

# Starts a long run on three processes, stops one of them in its middle and leaves its number in `stopped` and its rank in `rank`.
stop_one() {
    timeout 120 mpirun --oversubscribe -n 3 "$corewire" run --engine mpi --json --set machines.count=6 --set method.name=core-agd \
        --set stop.target=0 --set limits.wait_seconds=3 --out "$folder/$1" "${@:2}" >"$folder/out" 2>"$folder/log" &
    job_id=$!
    # Once a snapshot is there the run is in its middle.
    for _ in $(seq 600); do compgen -G "$folder/$1/snapshot-*.safetensors" >/dev/null && break; sleep 0.1; done
    stopped=$(pgrep -n -f "engine mpi .*$folder/$1")
    rank=$(tr '\0' '\n' <"/proc/$stopped/environ" | sed -n 's/^OMPI_COMM_WORLD_RANK=//p')
    kill -STOP "$stopped"
}

# A process that is stopped is named within the deadline, and the others end.
stop_one stopped --set stop.rounds=10000000
begun=$SECONDS
wait "$job_id" || true
kill -KILL "$stopped" 2>/dev/null || true
if [ $((SECONDS - begun)) -gt 30 ] || ! grep -q "process $rank did not arrive at exchange" "$folder/log"; then
    echo "failed: a stopped process was not named"; cat "$folder/log"; exit 1
fi
echo "ok: a process that is stopped is named"

# Where the job says so it is named and waited for: once it goes on, so does the run, to the same digest.
settings=(--set machines.count=6 --set method.name=core-agd --set stop.target=0 --set stop.rounds=3000)
stop_one waited --set stop.rounds=3000 --set limits.on_late=wait
for _ in $(seq 200); do grep -q "process $rank did not arrive at exchange.*waiting on" "$folder/log" && break; sleep 0.1; done
kill -CONT "$stopped"
wait "$job_id" || { echo "failed: the run did not go on"; cat "$folder/log"; exit 1; }
expected=$("$corewire" run --json "${settings[@]}" | digest)
found=$(digest <"$folder/out")
if ! grep -q "process $rank did not arrive at exchange.*waiting on" "$folder/log" || [ "$found" != "$expected" ]; then
    echo "failed: a late process was not named and waited for: $found, not $expected"; cat "$folder/log"; exit 1
fi
echo "ok: a process that is late is named and waited for"
