//! Values that stay: what wire q sends for a fixed seed, to the byte. A change here is announced in CHANGELOG.md under Values.

mod tool;

use corewire_journal as journal;
use tool::*;

/// Bytes per machine (up, down, set-up, control, frames, all), and a digest of the integers that came down, in eight rounds of core-agd on
/// the digits. The first reply is left out: it has the floats of the first scale, whose last bits may differ between CPUs. No integer is so
/// near a tie that those bits reach it.
fn replies(wire: &str) -> (String, String) {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let wire = format!("method.wire={wire}");
    let keys = [
        "method.name=core-agd",
        "method.budget=16",
        "method.seed=5",
        "machines.count=4",
        "stop.rounds=8",
        "stop.target=0",
        &wire,
    ];
    let report = object(&[&["run", "--out", text(&run)], &settings(&keys)[..]].concat());
    let bytes: Vec<String> = ["up_bytes", "down_bytes", "setup_bytes", "control_bytes", "frame_bytes", "wire_bytes"]
        .iter()
        .map(|field| report[field].to_string())
        .collect();
    let contents = journal::read(&run.join("journal.bin")).unwrap();
    let mut hasher = blake3::Hasher::new();
    for reply in contents.rounds.iter().flat_map(|round| &round.replies).skip(1) {
        hasher.update(&(reply.len() as u32).to_le_bytes());
        hasher.update(reply);
    }
    (bytes.join(" "), hasher.finalize().to_hex()[..16].to_owned())
}

#[test]
fn wire_q_has_the_pinned_bytes() {
    let (bytes, digest) = replies("q");
    assert_eq!(bytes, "47.75 60.0 325.0 12.0 18.0 462.75");
    assert_eq!(digest, "6381ab77abf38f83");
}

#[test]
fn wire_q_sum_has_the_pinned_bytes() {
    let (bytes, digest) = replies("q-sum");
    assert_eq!(bytes, "73.0 89.0 325.0 12.0 18.0 517.0");
    assert_eq!(digest, "22f24eeab6dd52b8");
}
