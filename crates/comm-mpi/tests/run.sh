#!/bin/sh
# The laws of an engine on 1 to 4 processes, and every way for a process to end badly: nobody may wait for it.
# Needs mpirun (Open MPI), its headers and libclang; installs nothing. Ends non-zero where something does not hold.
set -eu
cd "$(dirname "$0")/../../.."
# Open MPI asks twice before it runs as root, which is who runs in a container.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# More processes than cores: whoever waits must let the others run.
export OMPI_MCA_mpi_yield_when_idle=1

cargo test --quiet -p corewire-comm-mpi --features system
cargo build --quiet -p corewire-comm-mpi --features system --example conformance
program="${CARGO_TARGET_DIR:-target}/debug/examples/conformance"
log=$(mktemp)
trap 'rm -f "$log"' EXIT

fail() {
    echo "FAILED: $1"
    cat "$log"
    exit 1
}

job() {
    processes=$1
    shift
    timeout 120 mpirun --oversubscribe -n "$processes" "$program" "$@" >"$log" 2>&1
}

# Processes, machines and, in the last ones, how many bytes a call may move, so that messages travel in pieces.
for case in "1 1" "1 5" "2 2" "2 7" "3 3" "3 7" "4 4" "4 50" "2 2 999" "3 7 5000" "4 4 65536"; do
    set -- $case
    job "$1" laws "$2" ${3:-} || fail "laws, $case"
    [ "$(grep -c 'keep the laws' "$log")" = "$1" ] || fail "laws, $case: not every process came to the end"
    echo "ok: $2 machines on $1 processes keep the laws${3:+, $3 bytes a call}"
done

# How it ends, what the message must say. Ten seconds is the promise; a job takes about one.
ends() {
    name=$1 code=$2 words=$3
    shift 3
    start=$(date +%s)
    status=0
    job 3 "$@" || status=$?
    [ "$status" = "$code" ] || fail "$name: ended with $status, not $code"
    [ $(($(date +%s) - start)) -le 10 ] || fail "$name: took more than ten seconds"
    grep -q "$words" "$log" || fail "$name: does not say \`$words\`"
    echo "ok: $name"
}
ends "a process that fails names its reason" 3 "process 1 ends the job: the disk of process 1 is full" fail 3
ends "a machine that panics ends the job" 101 "process 1 ends the job: a thread of it panicked" panic 6
ends "a process that goes without a word ends the job" 1 "process 1 ends the job: it ended without finishing" vanish
ends "a call of MPI that fails ends the job" 1 "process 0 ends the job: engine on process 0: MPI_Igatherv failed" truncate
ends "machines that do not agree do not start" 3 'machine 2: `seed` is `2`, machine 0 has `0`' disagree
[ "$(grep -c 'do not agree' "$log")" = 1 ] || fail "what all processes know is said once"

# One of three processes is killed in the middle.
timeout 120 mpirun --oversubscribe -n 3 "$program" forever 6 >"$log" 2>&1 &
job=$!
for _ in $(seq 100); do
    [ "$(grep -c 'has the id' "$log")" = 3 ] && break
    sleep 0.1
done
ids=$(sed -n 's/.*has the id //p' "$log")
[ "$(echo "$ids" | wc -w)" = 3 ] || fail "kill: the job did not start"
sleep 1
for id in $ids; do
    kill -0 "$id" 2>/dev/null || fail "kill: process $id ended by itself"
done
kill -9 "$(sed -n 's/process 1 has the id //p' "$log")"
start=$(date +%s)
status=0
wait "$job" || status=$?
for id in $ids; do
    while kill -0 "$id" 2>/dev/null; do
        [ $(($(date +%s) - start)) -le 10 ] || fail "kill: process $id still runs after ten seconds"
        sleep 0.1
    done
done
[ $(($(date +%s) - start)) -le 10 ] || fail "kill: took more than ten seconds"
[ "$status" != 0 ] || fail "kill: mpirun says that all went well"
grep -q "process rank 1 .* exited on signal 9" "$log" || fail "kill: nobody says who was killed"
echo "ok: when one process is killed all others end, and the message names it"
