//! Work out of proportion: what needs more memory than is allowed is refused before it is allocated, and nothing is waited for that never comes.

mod tool;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tool::*;

/// Runs it with a gigabyte of address space, and returns its exit code, its complaint and the time it took.
fn limited(arguments: &[&str]) -> (Option<i32>, String, Duration) {
    let begun = Instant::now();
    let output = Command::new("sh")
        .args(["-c", "ulimit -v 1048576; exec timeout 10 \"$0\" \"$@\"", BINARY])
        .args(arguments)
        .env_remove("RUST_BACKTRACE")
        .env("XDG_CACHE_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/cache"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned(), begun.elapsed())
}

/// A file of so many bytes that takes none on the disk.
fn hollow(path: &Path, head: &[u8], bytes: u64) {
    let mut file = File::create(path).unwrap();
    file.write_all(head).unwrap();
    file.set_len(bytes).unwrap();
}

fn repeated(path: &Path, head: &str, piece: &str, times: usize) {
    let mut file = BufWriter::new(File::create(path).unwrap());
    file.write_all(head.as_bytes()).unwrap();
    let pieces = piece.repeat(1000);
    (0..times / 1000).for_each(|_| file.write_all(pieces.as_bytes()).unwrap());
    file.write_all(b"\n").unwrap();
}

#[test]
fn what_needs_more_memory_than_is_allowed_is_refused_within_a_second() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("wide.libsvm"), "1 1:1\n2 67108864:1\n").unwrap();
    std::fs::write(at("broad.libsvm"), "1 1:1\n2 5000000:1\n3 2:1\n").unwrap();
    let classes = |name: &str, count: usize| {
        let mut file = BufWriter::new(File::create(at(name)).unwrap());
        (0..count).for_each(|class| writeln!(file, "{class} 1:1").unwrap());
    };
    classes("million.libsvm", 1_000_000);
    classes("many.libsvm", 100_000);
    repeated(&at("zeros.csv"), "", "0,", 26_000_000);
    hollow(&at("train-images-idx3-ubyte"), &[0, 0, 8, 3, 0, 0, 0, 40, 0, 0, 3, 232, 0, 0, 3, 232], 16 + 40_000_000);
    hollow(&at("train-labels-idx1-ubyte"), &[0, 0, 8, 1, 0, 0, 0, 40], 48);
    for name in ["huge.csv", "huge.libsvm", "huge.toml", "huge.safetensors", "huge.txt"] {
        hollow(&at(name), b"1,2\n", 10 << 30);
    }
    let mut bomb =
        flate2::write::GzEncoder::new(File::create(at("bomb.libsvm.gz")).unwrap(), flate2::Compression::fast());
    let piece = "1 1:1 2:2\n".repeat(100_000);
    (0..200).for_each(|_| bomb.write_all(piece.as_bytes()).unwrap());
    bomb.finish().unwrap();
    object(
        &[
            &["run", "--out", text(&at("run"))],
            &settings(&["machines.count=2", "method.name=core-agd", "stop.rounds=2"])[..],
        ]
        .concat(),
    );
    let model = at("run/model.safetensors");
    let (model, huge) = (text(&model).to_owned(), text(&at("huge.safetensors")).to_owned());
    for rank in 0..2 {
        std::fs::write(at(&format!("site-{rank}.libsvm")), format!("{rank} 1:1\n1 67108864:{}\n", rank + 1)).unwrap();
    }

    let run = |keys: &[&str]| -> Vec<String> {
        let keys = settings(keys).into_iter().map(str::to_owned);
        ["run".to_owned()].into_iter().chain(keys).collect()
    };
    let data = |name: &str| format!("problem.data={}", at(name).display());
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<String>>();
    let inputs: Vec<(Vec<String>, &str)> = vec![
        (run(&[&data("wide.libsvm")]), "d = 67108865 on 50 machines need at least"),
        (run(&[&data("wide.libsvm"), "machines.count=1"]), "d = 67108865 on 1 machines need at least"),
        (run(&[&data("wide.libsvm"), "problem.intercept=false", "problem.normalise=none"]), "limits.memory"),
        (run(&[&data("wide.libsvm"), "problem.model=ridge", "limits.memory=1000000000"]), "1 GB are allowed"),
        (run(&[&data("broad.libsvm"), "problem.model=softmax"]), "3 classes"),
        (run(&[&data("million.libsvm"), "problem.model=softmax"]), "1000000 classes"),
        (run(&[&data("many.libsvm"), "problem.model=softmax"]), "100000 classes"),
        (run(&[&data("many.libsvm"), "problem.model=two-layer"]), "100000 classes"),
        (run(&["problem.model=two-layer", "problem.hidden=1000000"]), "limits.memory"),
        (run(&["problem.model=two-layer", "problem.hidden=8999999999999999"]), "limits.memory"),
        (run(&["problem.data=power-law", "problem.dim=100000000"]), "d = 100000000 on 50 machines"),
        (run(&["problem.data=power-law", "problem.dim=8999999999999999"]), "d = 8999999999999999"),
        (run(&["problem.data=power-law", "problem.dim=10000", "machines.count=16384"]), "on 16384 machines"),
        (
            run(&["problem.data=power-law", "problem.dim=1000000", "method.name=core-newton", "machines.count=4"]),
            "limits.memory",
        ),
        (
            run(&["problem.data=power-law", "problem.dim=10000", "method.name=core-cg", "method.memory=1000"]),
            "limits.memory",
        ),
        (run(&["problem.data=power-law", "problem.dim=1000", "limits.memory=1000000"]), "1 MB are allowed"),
        (run(&["machines.count=1000000"]), "at most 16384"),
        (run(&[&data("zeros.csv")]), "26000001 numbers need"),
        (run(&[&data("train-images-idx3-ubyte")]), "numbers need"),
        (run(&[&data("huge.csv")]), "more than 67108864 bytes"),
        (run(&[&data("huge.libsvm")]), "more than 67108864 bytes"),
        (run(&[&data("bomb.libsvm.gz")]), "bytes when decompressed (gzip)"),
        (run(&[&format!("problem.test={}", at("huge.csv").display())]), "`problem.test`"),
        (run(&[&data("site-{machine}.libsvm"), "machines.count=2"]), "limits.memory"),
        (run(&[&format!("method.seed_file={}", at("huge.txt").display())]), "more than the 1024"),
        (words(&["run", text(&at("huge.toml"))]), "a job is a plain file of at most"),
        (words(&["compare", "--set", "problem.data=power-law", "--set", "problem.dim=100000000"]), "limits.memory"),
        (words(&["inspect", "--set", "problem.data=power-law", "--set", "problem.dim=100000000"]), "limits.memory"),
        (words(&["evaluate", "--model", &huge, "digits"]), "more than the"),
        (words(&["evaluate", "--model", &model, text(&at("huge.csv"))]), "more than 67108864 bytes"),
        (words(&["predict", "--model", &model, text(&at("zeros.csv"))]), "numbers need"),
        (words(&["graph", "complete", "--machines", "100000"]), "edges of 100000 machines need"),
        (words(&["graph", "erdos-renyi", "--machines", "1000000"]), "limits.memory"),
        (words(&["graph", "ring", "--machines", "1000000000000"]), "limits.memory"),
        (words(&["graph", "file", "--file", text(&at("huge.txt"))]), "more than the"),
        (words(&["bench", "--dim", "1000000000000"]), "vectors of 1000000000000 numbers need"),
        (words(&["bench", "--dim", "100000000"]), "limits.memory"),
        (words(&["data", "shard", "digits", "--machines", "1000000000000"]), "from 1 to 16384"),
        (words(&["data", "convert", text(&at("bomb.libsvm.gz")), text(&at("out.csv"))]), "when decompressed"),
    ];
    println!("{} inputs", inputs.len());
    for (arguments, expected) in &inputs {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        // The best of a few: other tests run at the same time.
        let tries: Vec<_> = (0..4).map(|_| limited(&arguments)).collect();
        for (code, found, _) in &tries {
            assert_eq!(*code, Some(1), "{arguments:?}: {found}");
            assert!(
                found.starts_with("corewire: ") && found.contains(expected),
                "{arguments:?}\n  gives {found}\n  not {expected}"
            );
        }
        let least = tries.iter().map(|(_, _, took)| *took).min().unwrap();
        assert!(least < Duration::from_secs(1), "{arguments:?} took {least:?}");
    }
}

#[test]
fn pipes_and_long_keys_cost_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    assert!(Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
    std::fs::write(at("long.toml"), format!("[method]\n{} = 3\n", "k".repeat(4 << 20))).unwrap();
    std::fs::write(at("value.toml"), format!("[method]\nwire = \"{}\"\n", "v".repeat(4 << 20))).unwrap();
    let pipe = at("pipe");
    let pipe = text(&pipe);
    let (data, test) = (format!("problem.data={pipe}"), format!("problem.test={pipe}"));
    let (seed, graph) = (format!("method.seed_file={pipe}"), format!("graph.file={pipe}"));
    let (long, value) = (at("long.toml"), at("value.toml"));
    for (arguments, expected) in [
        (vec!["run", "--set", &data], "no plain file"),
        (vec!["run", "--set", &test], "no plain file"),
        (vec!["run", "--set", &seed], "no plain file"),
        (vec!["run", "--set", &graph, "--set", "graph.shape=file"], "no plain file"),
        (vec!["run", pipe], "a plain file"),
        (vec!["evaluate", "--model", pipe, "digits"], "no plain file"),
        (vec!["graph", "file", "--file", pipe], "no plain file"),
        (vec!["data", "convert", pipe, "out.csv"], "no plain file"),
        (vec!["run", text(&long)], "unknown key `method.kkk"),
        (vec!["run", text(&value)], "`method.wire` has 4194304 bytes"),
    ] {
        let (code, found, took) = limited(&arguments);
        assert!(code == Some(1) && found.contains(expected), "{arguments:?}: {found}");
        assert!(found.len() < 2000, "{arguments:?} says {} bytes", found.len());
        assert!(took < Duration::from_secs(5), "{arguments:?} took {took:?}");
    }
}

#[test]
fn a_system_that_gives_no_more_is_told_in_words() {
    // Two thousand machines have a megabyte of address space each, for their stacks.
    let keys = settings(&["machines.count=2000", "method.name=core-gd", "stop.rounds=2", "stop.target=0"]);
    let (code, found, _) = limited(&[&["run"], &keys[..]].concat());
    assert!(code == Some(1) && found.contains("the stacks of 2000 machines need"), "{code:?} {found}");
    assert!(!found.contains("panicked"), "{found}");
}

#[test]
fn a_limit_on_processes_is_told_in_words() {
    // The superuser has no such limit, and becomes somebody else for the time.
    let limited = |most: usize| {
        let script = format!(
            "ulimit -u {most}; HOME=/nowhere exec timeout 60 \"$0\" run --quiet --set stop.rounds=3 --set method.name=core-agd"
        );
        let somebody = ["--reuid=54321", "--regid=54321", "--clear-groups", "sh", "-c", &script, BINARY];
        Command::new("setpriv").args(somebody).env_remove("XDG_CACHE_HOME").output()
    };
    match limited(1000) {
        Ok(output) if matches!(output.status.code(), Some(0 | 2)) => {}
        _ => return println!("skipped: no other user can be taken on here, or it cannot read the program"),
    }
    for most in 1..8 {
        let output = limited(most).unwrap();
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!words.contains("panicked"), "{most} processes: {words}");
        match output.status.code() {
            Some(0 | 2) => {}
            // The shell itself may not get as far as that.
            Some(1) if words.starts_with("corewire: ") => assert!(words.contains("thread"), "{words}"),
            code => assert!(words.contains("Resource temporarily unavailable"), "{code:?} {words}"),
        }
    }
}
