//! The downloader against a server on this machine that misbehaves in every way a real one does.
#![cfg(feature = "fetch")]

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

use corewire_data::fetch::{Downloader, Network, Progress};
use corewire_data::{DataError, KnownSet, ReadOptions, RemoteFile, load};
use sha2::{Digest, Sha256};

/// What a request asked for.
#[derive(Clone, Debug, Default, PartialEq)]
struct Request {
    range: Option<u64>,
    if_range: Option<String>,
}

/// A server that answers each connection by `answer`, which is told how many came before.
struct Server {
    url: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    fn start(answer: impl Fn(usize, &Request, &mut TcpStream) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/file", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let log = requests.clone();
        std::thread::spawn(move || {
            for (turn, stream) in listener.incoming().enumerate() {
                let mut stream = stream.unwrap();
                let mut request = Request::default();
                for line in BufReader::new(stream.try_clone().unwrap()).lines() {
                    let line = line.unwrap();
                    if line.is_empty() {
                        break;
                    }
                    let (name, value) = line.split_once(": ").unwrap_or((&line, ""));
                    match name.to_lowercase().as_str() {
                        "range" => {
                            let start = value.strip_prefix("bytes=").unwrap().strip_suffix('-').unwrap();
                            request.range = Some(start.parse().unwrap());
                        }
                        "if-range" => request.if_range = Some(value.to_owned()),
                        _ => {}
                    }
                }
                log.lock().unwrap().push(request.clone());
                answer(turn, &request, &mut stream);
            }
        });
        Self { url, requests }
    }

    fn ranges(&self) -> Vec<Option<u64>> {
        self.requests.lock().unwrap().iter().map(|request| request.range).collect()
    }
}

fn respond(stream: &mut TcpStream, status: &str, headers: &str, announced: usize, body: &[u8]) {
    // The client may have gone; that is its right.
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {announced}\r\nConnection: close\r\n{headers}\r\n");
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
}

/// An honest server's answer, cut after `limit` bytes of the body.
fn serve(stream: &mut TcpStream, request: &Request, contents: &[u8], etag: &str, limit: usize) {
    let fresh = request.if_range.as_ref().is_none_or(|tag| tag == etag);
    let headers = format!("ETag: {etag}\r\n");
    match request.range {
        Some(start) if fresh && start as usize >= contents.len() => {
            respond(stream, "416 Range Not Satisfiable", &headers, 0, b"");
        }
        Some(start) if fresh => {
            let body = &contents[start as usize..];
            let range = format!("{headers}Content-Range: bytes {start}-{}/{}\r\n", contents.len() - 1, contents.len());
            respond(stream, "206 Partial Content", &range, body.len(), &body[..body.len().min(limit)]);
        }
        _ => respond(stream, "200 OK", &headers, contents.len(), &contents[..contents.len().min(limit)]),
    }
}

fn contents() -> Vec<u8> {
    (0..300_000u32).map(|i| (i.wrapping_mul(2654435761) >> 24) as u8).collect()
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn download(server: &Server, sha256: Option<&str>, destination: &Path) -> Result<(), DataError> {
    Downloader::new(&Network::default()).unwrap().download(&server.url, sha256, destination, &mut |_| {})
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_file_is_fetched_once_and_its_progress_told() {
    let folder = tempfile::tempdir().unwrap();
    let destination = folder.path().join("cache/set");
    let server = Server::start(|_, request, stream| serve(stream, request, &contents(), "\"1\"", usize::MAX));
    let sum = sha256(&contents());
    let mut seen = Vec::new();
    let mut progress = |p: Progress<'_>| seen.push((p.file.to_owned(), p.received_bytes, p.total_bytes));
    let downloader = Downloader::new(&Network::default()).unwrap();
    downloader.download(&server.url, Some(&sum), &destination, &mut progress).unwrap();
    downloader.download(&server.url, Some(&sum), &destination, &mut progress).unwrap();
    assert_eq!(std::fs::read(&destination).unwrap(), contents());
    assert_eq!(server.ranges(), [None]);
    assert_eq!(names(destination.parent().unwrap()), ["set"]);
    assert_eq!(seen.first().unwrap(), &("set".to_owned(), 0, Some(300_000)));
    assert_eq!(seen.last().unwrap().1, 300_000);
    assert!(seen.windows(2).all(|pair| pair[0].1 < pair[1].1));
}

#[test]
fn a_broken_transfer_goes_on_where_it_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let destination = folder.path().join("set");
    let server = Server::start(|turn, request, stream| {
        serve(stream, request, &contents(), "\"1\"", if turn < 2 { 100_000 } else { usize::MAX });
    });
    download(&server, Some(&sha256(&contents())), &destination).unwrap();
    assert_eq!(std::fs::read(&destination).unwrap(), contents());
    assert_eq!(server.ranges(), [None, Some(100_000), Some(200_000)]);
}

#[test]
fn a_later_call_goes_on_where_an_earlier_one_gave_up() {
    let folder = tempfile::tempdir().unwrap();
    let destination = folder.path().join("set");
    let server = Server::start(|turn, request, stream| {
        let limit = [100_000, 0, 0, 0].get(turn).copied().unwrap_or(usize::MAX);
        serve(stream, request, &contents(), "\"1\"", limit);
    });
    let message = download(&server, None, &destination).unwrap_err().to_string();
    assert!(message.contains("broke off after 100000 bytes"), "{message}");
    assert!(message.contains("run it again to go on"), "{message}");
    assert!(!destination.exists());
    download(&server, None, &destination).unwrap();
    assert_eq!(std::fs::read(&destination).unwrap(), contents());
    let rest = Some(100_000);
    assert_eq!(server.ranges(), [None, rest, rest, rest, rest]);
}

#[test]
fn halves_of_different_files_are_not_joined() {
    let folder = tempfile::tempdir().unwrap();
    let destination = folder.path().join("set");
    let server = Server::start(|turn, request, stream| match turn {
        0 => serve(stream, request, &contents(), "\"old\"", 100_000),
        _ => serve(stream, request, b"new contents", "\"new\"", usize::MAX),
    });
    download(&server, None, &destination).unwrap();
    assert_eq!(std::fs::read(&destination).unwrap(), b"new contents");
    assert_eq!(server.requests.lock().unwrap()[1].if_range.as_deref(), Some("\"old\""));
}

#[test]
fn a_server_without_ranges_or_versions_sends_the_whole_again() {
    let folder = tempfile::tempdir().unwrap();
    let destination = folder.path().join("set");
    let server = Server::start(|turn, _, stream| {
        let contents = contents();
        let sent = if turn == 0 { &contents[..100_000] } else { &contents[..] };
        respond(stream, "200 OK", "", contents.len(), sent);
    });
    download(&server, None, &destination).unwrap();
    assert_eq!(std::fs::read(&destination).unwrap(), contents());
    assert_eq!(server.ranges(), [None, None]);
}

#[test]
fn leftovers_that_are_too_long_are_thrown_away() {
    let folder = tempfile::tempdir().unwrap();
    let destination = folder.path().join("set");
    std::fs::write(folder.path().join("set.part"), vec![7; 400_000]).unwrap();
    let server = Server::start(|_, request, stream| serve(stream, request, &contents(), "\"1\"", usize::MAX));
    download(&server, Some(&sha256(&contents())), &destination).unwrap();
    assert_eq!(std::fs::read(&destination).unwrap(), contents());
    assert_eq!(server.ranges(), [Some(400_000), None]);
}

#[test]
fn a_wrong_checksum_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let destination = folder.path().join("set");
    let server = Server::start(|_, request, stream| serve(stream, request, b"tampered", "\"1\"", usize::MAX));
    let message = download(&server, Some(&sha256(&contents())), &destination).unwrap_err().to_string();
    assert!(message.contains(&server.url), "{message}");
    assert!(message.contains(&sha256(b"tampered")) && message.contains(&sha256(&contents())), "{message}");
    assert!(names(folder.path()).is_empty());
}

#[test]
fn a_damaged_file_in_the_cache_is_fetched_again() {
    let folder = tempfile::tempdir().unwrap();
    let destination = folder.path().join("set");
    std::fs::write(&destination, b"damaged").unwrap();
    let server = Server::start(|_, request, stream| serve(stream, request, &contents(), "\"1\"", usize::MAX));
    download(&server, Some(&sha256(&contents())), &destination).unwrap();
    assert_eq!(std::fs::read(&destination).unwrap(), contents());
}

#[test]
fn without_a_published_checksum_the_first_download_sets_it() {
    let folder = tempfile::tempdir().unwrap();
    let destination = folder.path().join("set");
    let server = Server::start(|turn, request, stream| {
        serve(stream, request, if turn == 0 { b"first" } else { b"other" }, "\"1\"", usize::MAX);
    });
    download(&server, None, &destination).unwrap();
    let record = std::fs::read_to_string(folder.path().join("set.sha256")).unwrap();
    assert_eq!(record, format!("{}  set\n", sha256(b"first")));
    std::fs::remove_file(&destination).unwrap();
    let message = download(&server, None, &destination).unwrap_err().to_string();
    assert!(message.contains("it changed on the server; remove `"), "{message}");
    assert_eq!(names(folder.path()), ["set.sha256"]);
}

#[test]
fn a_refusal_is_passed_on() {
    let folder = tempfile::tempdir().unwrap();
    let destination = folder.path().join("set");
    let server = Server::start(|_, _, stream| respond(stream, "404 Not Found", "", 4, b"gone"));
    let message = download(&server, None, &destination).unwrap_err().to_string();
    assert_eq!(message, format!("cannot fetch `{}`: the server answered 404 Not Found", server.url));
    assert!(names(folder.path()).is_empty());
    assert_eq!(server.ranges(), [None]);
}

#[test]
fn a_part_that_was_not_asked_for_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let destination = folder.path().join("set");
    std::fs::write(folder.path().join("set.part"), b"0123").unwrap();
    let server = Server::start(|_, _, stream| {
        respond(stream, "206 Partial Content", "Content-Range: bytes 2-9/10\r\n", 8, b"23456789");
    });
    let message = download(&server, Some(&sha256(b"0123456789")), &destination).unwrap_err().to_string();
    assert!(message.contains("the server sent another part than from byte 4 on"), "{message}");
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let folder = tempfile::tempdir().unwrap();
    // Bound and dropped: nobody listens there now.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{address}/set");
    let destination = folder.path().join("set");
    let result = Downloader::new(&Network::default()).unwrap().download(&url, None, &destination, &mut |_| {});
    assert!(result.unwrap_err().to_string().contains(&url));
}

#[test]
fn a_network_that_is_described_wrongly_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.pem");
    std::fs::write(&empty, "no certificate").unwrap();
    for (network, part) in [
        (Network { proxy: Some("not a proxy".into()), ..Default::default() }, "the proxy's address is wrong"),
        (Network { certificates: Some(empty), ..Default::default() }, "there is no certificate in it"),
        (Network { certificates: Some(folder.path().join("absent")), ..Default::default() }, "absent"),
    ] {
        let message = Downloader::new(&network).err().unwrap().to_string();
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn a_second_download_of_the_same_file_waits_for_no_one() {
    let folder = tempfile::tempdir().unwrap();
    let held = std::fs::File::create(folder.path().join("set.part")).unwrap();
    held.lock().unwrap();
    let server = Server::start(|_, request, stream| serve(stream, request, b"", "\"1\"", usize::MAX));
    let message = download(&server, None, &folder.path().join("set")).unwrap_err().to_string();
    assert!(message.contains("another process is downloading it"), "{message}");
}

#[test]
fn a_known_set_is_fetched_and_loaded() {
    let server = Server::start(|_, request, stream| serve(stream, request, b"1 1:2\n-1 1:3\n", "\"1\"", usize::MAX));
    let folder = tempfile::tempdir().unwrap();
    let address: &'static str = server.url.clone().leak();
    let files: &'static [RemoteFile] = vec![
        RemoteFile { name: "small", folder: address, sha256: None },
        RemoteFile { name: "small.t", folder: address, sha256: None },
    ]
    .leak();
    let set = KnownSet { name: "small", rows: 2, dim: 1, classes: 2, files };
    let path = Downloader::new(&Network::default()).unwrap().fetch(&set, folder.path(), &mut |_| {}).unwrap();
    assert_eq!(load(&path, &ReadOptions::default()).unwrap().rows(), set.rows);
    assert_eq!(names(folder.path()), ["small", "small.sha256", "small.t", "small.t.sha256"]);
}
