#!/usr/bin/env bash
# Times the sketch of an earlier revision and of this tree in turns, in one program: a ratio of two runs minutes apart says little on a
# machine that others use too.
#
#   benches/turns/run.sh REVISION FAMILY [DIM [BUDGET [THREADS [TURNS [KERNEL]]]]]
#   benches/turns/run.sh 4c9e950 rademacher 1048576 256 1 20 avx512
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,6s/^# \?//p' "$0"; exit 2; }
revision=$(git -C "$(dirname "$0")" rev-parse --verify "$1^{commit}")
cd "$(dirname "$0")"
shift
if [ "$(cat target/before/revision 2>/dev/null || true)" != "$revision" ]; then
    rm -rf target/before
    mkdir -p target/before
    git -C ../.. archive "$revision" | tar x -C target/before
    # Two packages of one name need two versions, and the earlier one the dependencies of its own workspace.
    sed -i 's/^version.workspace = true/version = "0.0.1"/; s/^\[package\]/&\nworkspace = "..\/.."/' target/before/crates/sketch/Cargo.toml
    echo "$revision" > target/before/revision
fi
cargo run --quiet --release -- "$@"
