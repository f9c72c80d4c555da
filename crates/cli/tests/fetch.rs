//! `corewire data fetch`, from a server of the test's own.
#![cfg(feature = "fetch")]

mod tool;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;

use tool::*;

/// Serves these files over HTTP to so many visitors, and says where.
fn serve(files: Vec<(&'static str, Vec<u8>)>, visitors: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/pub/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().take(visitors) {
            let Ok(mut stream) = stream else { return };
            let mut request = String::new();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            while reader.read_line(&mut request).is_ok_and(|read| read > 2) {}
            let wanted = request.split_whitespace().nth(1).unwrap_or("").rsplit('/').next().unwrap_or("").to_owned();
            let answer = match files.iter().find(|(name, _)| *name == wanted) {
                Some((_, content)) => {
                    let head =
                        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", content.len());
                    [head.as_bytes(), content].concat()
                }
                None => b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec(),
            };
            let _ = stream.write_all(&answer);
        }
    });
    address
}

#[test]
fn data_is_fetched_from_a_mirror_and_can_be_used() {
    let folder = tempfile::tempdir().unwrap();
    let rows: String = (0..40)
        .map(|i| format!("{} {}:1 {}:{}\n", if i % 3 == 0 { "+1" } else { "-1" }, 1 + i % 5, 7 + i % 3, 1 + i % 2))
        .collect();
    let from = serve(vec![("a9a", rows.clone().into_bytes()), ("a9a.t", rows.into_bytes())], 20);
    let made = object(&["data", "fetch", "a9a", "--from", &from, "--into", text(folder.path())]);
    has_fields(&made, &["name", "file", "bytes"]);
    let data = format!("problem.data={}", made["file"].as_str().unwrap());
    let report = object(&[&["run"], &settings(&[&data, "machines.count=2", "method.name=core-cg"])[..]].concat());
    // Nine columns and an intercept.
    assert_eq!((&report["dim"], &report["reached"]), (&10.into(), &true.into()));
    // What is there is not fetched again: the mirror may be gone.
    printed(&["data", "fetch", "a9a", "--from", "http://127.0.0.1:9/", "--into", text(folder.path())]);
    let other = tempfile::tempdir().unwrap();
    let missing = complaint(&["data", "fetch", "mushrooms", "--from", &from, "--into", text(other.path())]);
    assert!(missing.contains("404"), "{missing}");
    assert_eq!(std::fs::read_dir(other.path()).unwrap().count(), 0, "nothing half-fetched is left");
    assert!(complaint(&["data", "fetch", "a9b"]).contains("did you mean `a9a`?"));
}
