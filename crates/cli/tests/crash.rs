//! Runs that are killed, interrupted, out of disk, or very long.

mod tool;

use std::io::{BufRead, BufReader};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use tool::*;

/// A generator whose numbers never change.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        // xorshift64* (Vigna 2016).
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }
}

fn undisturbed(rounds: &str) -> Value {
    let job = long_job(rounds);
    object(&[vec!["run"], job.iter().map(String::as_str).collect()].concat())
}

/// The rounds that the table of a run holds.
fn csv_rounds(run: &std::path::Path) -> Vec<u64> {
    let csv = std::fs::read_to_string(run.join("rounds.csv")).unwrap();
    let lines = csv.lines().skip(1);
    lines
        .map(|line| {
            assert_eq!(line.split(',').count(), csv.lines().next().unwrap().split(',').count(), "{line}");
            line.split(',').next().unwrap().parse().unwrap()
        })
        .collect()
}

/// Every method of the table, with every wire that it has.
fn configurations() -> Vec<Vec<String>> {
    let ids = objects(&["methods"]).into_iter().map(|method| method["id"].as_str().unwrap().to_owned());
    ids.flat_map(|id| {
        let wires: &[&str] = match id.as_str() {
            "core-newton" => &["q"],
            _ if id.starts_with("core-") => &["q", "q-sum", "f32", "bf16"],
            _ => &["f32"],
        };
        let gossips = ["extra", "msda"].contains(&id.as_str());
        let graph: &[&str] = if gossips { &["graph.shape=ring", "graph.gossip=chebyshev"] } else { &[] };
        let keys = ["machines.count=4", "problem.rows=200", "stop.target=0", "method.seed=3", "stop.rounds=900"];
        let keys = move |wire: &str| {
            let own = [format!("method.name={id}"), format!("method.wire={wire}")];
            keys.iter().chain(graph).map(|&key| key.to_owned()).chain(own).collect::<Vec<String>>()
        };
        wires.iter().map(|wire| keys(wire)).collect::<Vec<_>>()
    })
    .chain(["core-sgd", "sgd", "powersgd", "dgc"].map(|id| {
        let keys = ["problem.model=mlp", "machines.count=4", "method.seed=3", "stop.rounds=300"];
        keys.iter().map(|&key| key.to_owned()).chain([format!("method.name={id}")]).collect()
    }))
    .collect()
}

/// Runs a job undisturbed, and again with so many kills at any moment, and compares; returns how many kills there were.
fn kill_and_compare(keys: &[&str], most: u64, numbers: &mut Numbers) -> u64 {
    let begun = Instant::now();
    let whole = object(&[&["run"], &settings(keys)[..]].concat());
    let alone = begun.elapsed().as_millis() as u64;
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let path = text(&run).to_owned();
    let fresh: Vec<&str> = [&["run", "--json", "--out", &path], &settings(keys)[..]].concat();
    let (mut arguments, mut kills) = (fresh.clone(), 0);
    loop {
        // From the first milliseconds, in which the folder is made, to the end of the run.
        let wait = if numbers.below(4) == 0 { numbers.below(30) } else { numbers.below(alone) };
        let mut child = start(&arguments);
        let until = Instant::now() + Duration::from_millis(wait);
        while Instant::now() < until && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let killed = kills < most && child.try_wait().unwrap().is_none();
        if killed {
            child.kill().unwrap();
            kills += 1;
        }
        let output = child.wait_with_output().unwrap();
        // A run that was killed before it had a folder is started again, any other is resumed.
        arguments =
            if run.join("journal.bin").exists() { vec!["run", "--json", "--resume", &path] } else { fresh.clone() };
        if !killed {
            let words = String::from_utf8_lossy(&output.stderr);
            assert!(matches!(output.status.code(), Some(0 | 2)), "{keys:?} after {kills} kills: {words}");
            let report: Value = serde_json::from_slice(&output.stdout).unwrap();
            for field in ["digest", "value", "up_bytes", "down_bytes", "trips"] {
                assert_eq!(report[field], whole[field], "{field} of {keys:?} after {kills} kills");
            }
            break;
        }
    }
    let verified = object(&["journal", "verify", &path]);
    if !keys.iter().any(|key| key.starts_with("graph.")) {
        assert_eq!(verified["digest"], whole["digest"], "{keys:?}");
    }
    let rounds = whole["rounds"].as_u64().unwrap();
    assert!(csv_rounds(&run).into_iter().eq(1..=rounds), "every round of {keys:?} stands once in the table");
    kills
}

#[test]
fn runs_of_every_method_and_wire_killed_at_any_moment_end_with_the_bits_of_undisturbed_ones() {
    let mut numbers = Numbers(7);
    let mut left = configurations();
    let all = left.len();
    let (wanted, mut kills, mut runs) = (if soak() { 1000 } else { 60 }, 0, 0);
    while kills < wanted {
        if left.is_empty() {
            left = configurations();
        }
        let keys = left.swap_remove(numbers.below(left.len() as u64) as usize);
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        kills += kill_and_compare(&keys, 2, &mut numbers);
        runs += 1;
    }
    println!("{kills} kills over {runs} runs of {all} pairs of method and wire");
}

/// Rows of curvature that are told once, anew and in addition, classes, a term that is not smooth, and more detail: what the hub remembers of
/// each is in its snapshot.
#[test]
fn core_newton_killed_thirty_times_ends_with_the_bits_of_undisturbed_runs() {
    let mut numbers = Numbers(13);
    // More columns than machines may tell rows of, all alike: the hub allows for what they leave out.
    let folder = tempfile::tempdir().unwrap();
    let wide = folder.path().join("wide.libsvm");
    let row = |numbers: &mut Numbers| {
        let mut columns: Vec<u64> = (0..20).map(|_| 1 + numbers.below(1700)).collect();
        columns.sort_unstable();
        columns.dedup();
        let entries: Vec<String> = columns.iter().map(|column| format!("{column}:{}", 1 + numbers.below(9))).collect();
        format!("{} {}\n", ["-1", "+1"][numbers.below(2) as usize], entries.join(" "))
    };
    std::fs::write(&wide, (0..600).map(|_| row(&mut numbers)).collect::<String>()).unwrap();
    let wide = format!("problem.data={}", wide.display());
    let ways: [&[&str]; 6] = [
        &[&wide, "machines.count=2", "stop.rounds=60"],
        &["problem.model=ridge", "problem.split=label", "machines.count=50"],
        &["machines.count=50"],
        &["problem.model=softmax", "machines.count=8"],
        &["problem.l1=1e-3", "machines.count=8", "problem.split=label"],
        &["method.name=core-newton:detail=10", "machines.count=8"],
    ];
    let mut kills = 0;
    for way in ways {
        let keys = ["method.name=core-newton", "stop.target=0", "stop.rounds=600", "method.seed=5"];
        // Some kills come too late; another run makes up for them.
        let mut here = 0;
        while here < 5 {
            here += kill_and_compare(&[&keys[..], way].concat(), 5 - here, &mut numbers);
        }
        kills += here;
    }
    assert_eq!(kills, 30);
}

#[test]
fn of_two_processes_on_one_folder_one_is_refused_or_comes_after_the_other() {
    let mut numbers = Numbers(11);
    let whole = undisturbed("300");
    let job = long_job("300");
    let job: Vec<&str> = job.iter().map(String::as_str).collect();
    let (pairs, mut refused) = (if soak() { 500 } else { 20 }, 0);
    for pair in 0..pairs {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        let fresh = [&["run", "--json", "--out", text(&run)], &job[..]].concat();
        let resume = ["run", "--json", "--resume", text(&run), "--set", "stop.rounds=300"];
        // Two new runs, or two that go on with one that was killed.
        let arguments = match pair % 2 {
            0 => fresh.clone(),
            _ => {
                let mut child = start(&fresh);
                wait_for("a few rounds", || {
                    std::fs::metadata(run.join("journal.bin")).is_ok_and(|about| about.len() > 3000)
                });
                child.kill().unwrap();
                child.wait().unwrap();
                resume.to_vec()
            }
        };
        let first = start(&arguments);
        std::thread::sleep(Duration::from_millis(numbers.below(20)));
        let second = start(&arguments);
        for child in [first, second] {
            let output = child.wait_with_output().unwrap();
            let words = String::from_utf8_lossy(&output.stderr).into_owned();
            match output.status.code() {
                Some(0) => {
                    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
                    assert_eq!(report["digest"], whole["digest"], "pair {pair}");
                }
                code => {
                    refused += 1;
                    let told =
                        ["is being written by process", "already holds a run", "went on while it was being read"];
                    assert!(code == Some(1) && told.iter().any(|told| words.contains(told)), "pair {pair}: {words}");
                }
            }
        }
        assert_eq!(object(&["journal", "verify", text(&run)])["digest"], whole["digest"], "pair {pair}");
        assert!(csv_rounds(&run).into_iter().eq(1..=300), "pair {pair}");
    }
    println!("{refused} of {} processes were refused", 2 * pairs);
    assert!(refused >= pairs / 4, "they hardly ever met: {refused}");
}

fn signal(process: u32, name: &str) {
    assert!(Command::new("kill").args([name, &process.to_string()]).status().unwrap().success());
}

fn wait_for(what: &str, mut there: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !there() {
        assert!(begun.elapsed() < Duration::from_secs(60), "waited a minute for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_signal_ends_the_round_with_its_code_and_the_run_can_go_on() {
    for (name, code) in [("-INT", 130), ("-TERM", 143)] {
        stopped_and_resumed(name, code);
    }
}

#[test]
fn a_signal_ends_the_set_up_at_once() {
    // f* of softmax on all digits takes a while.
    let keys = settings(&["problem.model=softmax", "problem.alpha=1e-9", "machines.count=2", "method.name=core-agd"]);
    for (name, code) in [("-INT", 130), ("-TERM", 143)] {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        let mut child = start(&[&["run", "--json", "--out", text(&run)], &keys[..]].concat());
        let handled = || {
            let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0").trim().to_owned();
            // SIGTERM is the fifteenth.
            u64::from_str_radix(&caught, 16).unwrap_or(0) & (1 << 14) != 0
        };
        wait_for("the handler of signals", handled);
        std::thread::sleep(Duration::from_millis(100));
        assert!(child.try_wait().unwrap().is_none(), "the set-up is over too soon to be stopped");
        assert!(!run.join("journal.bin").exists(), "it is still being set up");
        signal(child.id(), name);
        let begun = Instant::now();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(begun.elapsed() < Duration::from_secs(5), "it took {:?} to end", begun.elapsed());
    }
}

fn stopped_and_resumed(name: &str, code: i32) {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let job = long_job("1000000");
    let child = start(&[vec!["run", "--json", "--out", text(&run)], job.iter().map(String::as_str).collect()].concat());
    wait_for("a few rounds", || std::fs::metadata(run.join("journal.bin")).is_ok_and(|about| about.len() > 20_000));
    signal(child.id(), name);
    let output = child.wait_with_output().unwrap();
    let words = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{words}");
    assert!(words.contains("stopping after this round"), "{words}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["ended"], &report["reached"]), (&"stopped".into(), &false.into()));
    let done = report["rounds"].as_u64().unwrap();
    let verified = object(&["journal", "verify", text(&run)]);
    assert_eq!(
        (&verified["rounds"], &verified["digest"], &verified["torn_bytes"]),
        (&done.into(), &report["digest"], &0.into())
    );
    assert_eq!(verified["snapshot"], done, "the last state is kept whole");
    let rounds = format!("{}", done + 40);
    let resumed = object(&["run", "--resume", text(&run), "--set", &format!("stop.rounds={rounds}")]);
    assert_eq!(resumed["digest"], undisturbed(&rounds)["digest"]);
}

#[test]
fn a_full_disk_pauses_the_run_until_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=192k", "none", text(&disk)]).output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        println!("skipped: a small disk cannot be mounted here");
        return;
    }
    struct Mounted(std::path::PathBuf);
    impl Drop for Mounted {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        }
    }
    let _mounted = Mounted(disk.clone());
    let run = disk.join("run");
    let job = long_job("2500");
    let mut child =
        start(&[vec!["run", "--json", "--out", text(&run)], job.iter().map(String::as_str).collect()].concat());
    let mut words = BufReader::new(child.stderr.take().unwrap()).lines();
    let told = words.next().unwrap().unwrap();
    assert!(told.contains("the disk is full") && told.contains("make room"), "{told}");
    std::thread::sleep(Duration::from_millis(700));
    assert!(child.try_wait().unwrap().is_none(), "it waits");
    let grown = Command::new("mount").args(["-o", "remount,size=16m", text(&disk)]).status().unwrap();
    assert!(grown.success());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let whole = undisturbed("2500");
    assert_eq!((&report["digest"], &report["rounds"]), (&whole["digest"], &2500.into()));
    assert_eq!(object(&["journal", "verify", text(&run)])["digest"], whole["digest"]);
    assert!(csv_rounds(&run).into_iter().eq(1..=2500), "every round stands once in the table");
}

/// The most memory that a run of so many rounds had, in kilobytes.
fn peak_memory(rounds: &str) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let stop = format!("stop.rounds={rounds}");
    let keys = settings(&[
        "problem.data=power-law",
        "problem.dim=8",
        "machines.count=2",
        "method.name=core-gd",
        "method.budget=2",
        "method.step=0.01",
        "method.wire=q",
        "stop.target=0",
        &stop,
    ]);
    let mut child = start(&[&["run", "--json", "--out", text(&run)], &keys[..]].concat());
    let mut most = 0;
    while child.try_wait().unwrap().is_none() {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse().ok());
        most = most.max(kilobytes.unwrap_or(0));
        std::thread::sleep(Duration::from_millis(3));
    }
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["rounds"].to_string(), rounds);
    most
}

#[test]
fn memory_does_not_grow_with_rounds() {
    if !std::path::Path::new("/proc/self/status").exists() {
        println!("skipped: this system does not tell a process's memory");
        return;
    }
    let (short, long) = (peak_memory("1000"), peak_memory(if soak() { "1000000" } else { "20000" }));
    println!("{short} kB at most in 1000 rounds, {long} kB in many");
    // A byte kept a round would be a megabyte in the long version; buffers and the allocator's slack are less.
    assert!(long < short + 1024, "{short} kB grew to {long} kB");
}

#[cfg(unix)]
#[test]
fn a_comparison_keeps_each_method_as_it_ends_and_shows_them_after_a_signal() {
    let folder = tempfile::tempdir().unwrap();
    // No method is at 1e-13 of f* in so many rounds; cg ends long before that, and core-gd goes on for minutes.
    let keys = settings(&["machines.count=8", "stop.rounds=100000000"]);
    let arguments =
        ["compare", "--no-tune", "--methods", "cg,core-gd", "--target", "1e-13", "--out", text(folder.path())];
    let child = start(&[&arguments[..], &keys[..]].concat());
    let runs = || -> usize {
        let written = std::fs::read_to_string(folder.path().join("results.json")).unwrap_or_default();
        // A file that is being written has no end yet.
        serde_json::from_str::<Value>(&written).map_or(0, |report| report["runs"].as_array().map_or(0, Vec::len))
    };
    wait_for("cg, which ends soon and is kept", || runs() >= 1);
    let page = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(page.contains("cg"), "the report is there before the last method has ended");
    signal(child.id(), "-INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(table.contains("cg") && !table.contains("core-gd "), "{table}");
    assert_eq!(runs(), 1);
}
