//! Downloads of known data sets into a cache folder, checked and resumed.
//!
//! A file is received under a temporary name, synced, checked against its SHA-256 and only then renamed: a file with its
//! final name is whole. A broken transfer leaves the temporary file, and the next one goes on where it stopped. The
//! folder and the proxy are handed in; nothing here reads the environment.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};

use crate::{DataError, KnownSet};

/// How far a download is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress<'a> {
    /// The file's name.
    pub file: &'a str,
    /// Bytes on this side, those of earlier attempts included.
    pub received_bytes: u64,
    /// Bytes in all, where the server says so.
    pub total_bytes: Option<u64>,
}

/// Fetches files over HTTP and HTTPS.
pub struct Downloader {
    agent: ureq::Agent,
}

/// A server that sends more than this is not sending a data set.
const MAX_BYTES: u64 = 64 << 30;
/// Attempts in a row that bring nothing new before it is given up.
const FRUITLESS_ATTEMPTS: usize = 3;
/// A connection that is silent for so long is broken.
const SILENCE: Duration = Duration::from_secs(60);

/// How the network is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// A proxy, `http://host:port`; `None` goes directly.
    pub proxy: Option<String>,
    /// Certificates in PEM to trust instead of Mozilla's: for networks whose proxy opens HTTPS.
    pub certificates: Option<PathBuf>,
}

impl Downloader {
    /// A downloader on this network.
    pub fn new(network: &Network) -> Result<Self, DataError> {
        let wrong_proxy = |e: ureq::Error| DataError::Fetch {
            url: network.proxy.clone().unwrap_or_default(),
            what: format!("the proxy's address is wrong: {e}"),
        };
        let proxy = network.proxy.as_deref().map(ureq::Proxy::new).transpose().map_err(wrong_proxy)?;
        let roots = network.certificates.as_deref().map_or(Ok(RootCerts::WebPki), certificates)?;
        let agent = ureq::Agent::config_builder()
            .proxy(proxy)
            .tls_config(tls_config(roots))
            .http_status_as_error(false)
            // The bytes as they are: a checksum is one of the stored file.
            .accept_encoding("identity")
            .timeout_connect(Some(SILENCE))
            .timeout_recv_response(Some(SILENCE))
            .timeout_per_read(Some(SILENCE))
            .build()
            .new_agent();
        Ok(Self { agent })
    }

    /// Makes sure that all files of a set lie whole in `cache`, and returns the one to load.
    pub fn fetch(
        &self,
        set: &KnownSet,
        cache: &Path,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<PathBuf, DataError> {
        for file in set.files {
            self.download(&file.url(), file.sha256, &cache.join(file.name), progress)?;
        }
        Ok(cache.join(set.files[0].name))
    }

    /// Makes sure that `destination` holds the contents of `url`.
    ///
    /// Where no SHA-256 is given, that of the first download is written beside it as `destination.sha256`, and every
    /// later one is held to it.
    pub fn download(
        &self,
        url: &str,
        sha256: Option<&str>,
        destination: &Path,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<(), DataError> {
        let record = with_ending(destination, ".sha256");
        let wanted = sha256.map(str::to_owned).or_else(|| recorded(&record));
        if destination.is_file() {
            match &wanted {
                None => return Ok(()),
                Some(wanted) if *wanted == digest(destination)? => return Ok(()),
                // Damaged since: it is replaced once the new one is whole.
                Some(_) => {}
            }
        }
        if let Some(folder) = destination.parent() {
            fs::create_dir_all(folder).map_err(|e| DataError::io(folder, e))?;
        }
        if url.starts_with("https:") && !https_works() {
            let what =
                format!("this CPU is not supported for HTTPS; fetch it by other means as `{}`", destination.display());
            return Err(DataError::Fetch { url: url.into(), what });
        }
        let mut part = Part::open(destination)?;
        if let Err(e) = self.complete(url, &mut part, wanted.is_some(), progress) {
            if part.len()? == 0 {
                part.discard();
            }
            return Err(e);
        }
        part.file.sync_all().map_err(|e| DataError::io(&part.path, e))?;
        let found = digest(&part.path)?;
        if let Some(wanted) = wanted.filter(|wanted| *wanted != found) {
            part.discard();
            let advice = match sha256 {
                Some(_) => "try again, or fetch the file by other means".into(),
                None => format!("it changed on the server; remove `{}` to accept the new one", record.display()),
            };
            let what = format!("the SHA-256 is {found}, but {wanted} was expected; {advice}");
            return Err(DataError::Fetch { url: url.into(), what });
        }
        if sha256.is_none() {
            let name = destination.file_name().unwrap_or_default().to_string_lossy().into_owned();
            // The form that `sha256sum --check` reads.
            fs::write(&record, format!("{found}  {name}\n")).map_err(|e| DataError::io(&record, e))?;
        }
        part.keep_as(destination)
    }

    /// Attempts the transfer until the file is whole or nothing new comes any more.
    fn complete(
        &self,
        url: &str,
        part: &mut Part,
        checked: bool,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<(), DataError> {
        let mut fruitless = 0;
        loop {
            let before = part.len()?;
            match self.transfer(url, part, checked, progress) {
                Ok(()) => return Ok(()),
                Err(Trouble::Final(e)) => return Err(e),
                Err(Trouble::Broken(what)) => {
                    let received = part.len()?;
                    fruitless = if received > before { 0 } else { fruitless + 1 };
                    if fruitless == FRUITLESS_ATTEMPTS {
                        let what =
                            format!("the transfer broke off after {received} bytes ({what}); run it again to go on");
                        return Err(DataError::Fetch { url: url.into(), what });
                    }
                }
            }
        }
    }

    /// One request for what is still missing.
    fn transfer(
        &self,
        url: &str,
        part: &mut Part,
        checked: bool,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<(), Trouble> {
        let have = part.len()?;
        let version = part.version();
        let mut request = self.agent.get(url);
        // Without a checksum or a version to compare, two halves of different files could be joined.
        if have > 0 && (checked || version.is_some()) {
            request = request.header("Range", format!("bytes={have}-"));
            if let Some(version) = version {
                request = request.header("If-Range", version);
            }
        }
        let refused = |what: String| Trouble::Final(DataError::Fetch { url: url.into(), what });
        let response = request.call().map_err(|e| match e {
            // How rustls reports a certificate that it does not trust.
            ureq::Error::Io(e) if e.kind() == io::ErrorKind::InvalidData => refused(e.to_string()),
            ureq::Error::BadUri(_) | ureq::Error::TooManyRedirects => refused(e.to_string()),
            e => Trouble::Broken(e.to_string()),
        })?;
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        let mut received = match response.status().as_u16() {
            200 => 0,
            206 => {
                let start = header("content-range").and_then(first_byte);
                if start != Some(have) {
                    return Err(refused(format!("the server sent another part than from byte {have} on")));
                }
                have
            }
            // What is here is not the beginning of what is there.
            416 => {
                part.empty()?;
                return Err(Trouble::Broken("the server has no more than that".into()));
            }
            status => {
                let reason = response.status().canonical_reason().unwrap_or_default();
                return Err(refused(format!("the server answered {status} {reason}")));
            }
        };
        if received == 0 {
            part.empty()?;
            let strong = |tag: &&str| !tag.starts_with("W/");
            part.set_version(header("etag").filter(strong).or_else(|| header("last-modified")))?;
        }
        let total_bytes =
            header("content-length").and_then(|length| length.parse::<u64>().ok()).map(|length| received + length);
        let name = part.name.clone();
        let mut report = |received_bytes| progress(Progress { file: &name, received_bytes, total_bytes });
        report(received);
        part.file.seek(SeekFrom::Start(received)).map_err(|e| DataError::io(&part.path, e))?;
        let mut body = response.into_body().into_reader();
        let mut buffer = vec![0; 1 << 16];
        loop {
            let count = match body.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(Trouble::Broken(e.to_string())),
            };
            received += count as u64;
            if received > MAX_BYTES {
                part.empty()?;
                return Err(refused(format!("the server sends more than {MAX_BYTES} bytes")));
            }
            part.file.write_all(&buffer[..count]).map_err(|e| DataError::io(&part.path, e))?;
            report(received);
        }
        match total_bytes {
            Some(total) if received < total => Err(Trouble::Broken(format!("{total} bytes were announced"))),
            _ => Ok(()),
        }
    }
}

/// HTTPS by rustls over graviola, which builds without a C compiler.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn tls_config(roots: RootCerts) -> TlsConfig {
    let provider = std::sync::Arc::new(rustls_graviola::default_provider());
    TlsConfig::builder().root_certs(roots).unversioned_rustls_crypto_provider(provider).build()
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn tls_config(roots: RootCerts) -> TlsConfig {
    TlsConfig::builder().root_certs(roots).build()
}

/// The certificates of a PEM file.
fn certificates(path: &Path) -> Result<RootCerts, DataError> {
    let pem = fs::read(path).map_err(|e| DataError::io(path, e))?;
    let mut certificates = Vec::new();
    for item in parse_pem(&pem) {
        let item = item.map_err(|e| DataError::file(path, format!("not a PEM file: {e}")))?;
        if let PemItem::Certificate(certificate) = item {
            certificates.push(certificate);
        }
    }
    if certificates.is_empty() {
        return Err(DataError::file(path, "there is no certificate in it; PEM is expected"));
    }
    Ok(RootCerts::from(certificates))
}

/// Whether this CPU has the instructions that graviola cannot do without: those of 2014 and later.
fn https_works() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("aes")
        && is_x86_feature_detected!("pclmulqdq")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("adx")
        && is_x86_feature_detected!("avx2");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes")
        && std::arch::is_aarch64_feature_detected!("sha2")
        && std::arch::is_aarch64_feature_detected!("pmull")
        && std::arch::is_aarch64_feature_detected!("neon");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return false;
}

/// Why one attempt did not succeed.
enum Trouble {
    /// The network; another attempt may go on.
    Broken(String),
    /// Anything that would happen again.
    Final(DataError),
}

impl From<DataError> for Trouble {
    fn from(e: DataError) -> Self {
        Trouble::Final(e)
    }
}

/// What has been received so far, locked against a second download of the same file.
struct Part {
    file: File,
    /// The final name, for messages.
    name: String,
    path: PathBuf,
    /// Holds what the server said that identifies the version of the file.
    version_path: PathBuf,
}

impl Part {
    fn open(destination: &Path) -> Result<Self, DataError> {
        let path = with_ending(destination, ".part");
        let name = destination.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(|e| DataError::io(&path, e))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(DataError::file(&path, "another process is downloading it; wait for that one"));
            }
            Err(TryLockError::Error(e)) => return Err(DataError::io(&path, e)),
        }
        Ok(Self { file, name, path, version_path: with_ending(destination, ".version") })
    }

    fn len(&self) -> Result<u64, DataError> {
        Ok(self.file.metadata().map_err(|e| DataError::io(&self.path, e))?.len())
    }

    fn empty(&mut self) -> Result<(), DataError> {
        self.set_version(None)?;
        self.file.set_len(0).map_err(|e| DataError::io(&self.path, e))
    }

    fn version(&self) -> Option<String> {
        fs::read_to_string(&self.version_path).ok()
    }

    fn set_version(&self, version: Option<&str>) -> Result<(), DataError> {
        let result = match version {
            Some(version) => fs::write(&self.version_path, version),
            None if self.version_path.exists() => fs::remove_file(&self.version_path),
            None => Ok(()),
        };
        result.map_err(|e| DataError::io(&self.version_path, e))
    }

    /// Removes what was received; that it may fail is of no consequence, since the checksum guards the next attempt.
    fn discard(self) {
        let _ = fs::remove_file(&self.version_path);
        let _ = fs::remove_file(&self.path);
    }

    fn keep_as(self, destination: &Path) -> Result<(), DataError> {
        self.set_version(None)?;
        fs::rename(&self.path, destination).map_err(|e| DataError::io(destination, e))?;
        // The name is safe once the folder is; not every system can sync one.
        if let Some(folder) = destination.parent().and_then(|folder| File::open(folder).ok()) {
            let _ = folder.sync_all();
        }
        Ok(())
    }
}

/// The first byte of `bytes 100-199/200`.
fn first_byte(range: &str) -> Option<u64> {
    range.strip_prefix("bytes ")?.split_once('-')?.0.parse().ok()
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(ending);
    path.with_file_name(name)
}

fn recorded(record: &Path) -> Option<String> {
    let text = fs::read_to_string(record).ok()?;
    let digest = text.split_whitespace().next()?;
    (digest.len() == 64).then(|| digest.to_owned())
}

/// The SHA-256 of a file in hexadecimal.
fn digest(path: &Path) -> Result<String, DataError> {
    let fail = |e| DataError::io(path, e);
    let mut file = File::open(path).map_err(fail)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer).map_err(fail)? {
            0 => break,
            count => hasher.update(&buffer[..count]),
        }
    }
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}
