//! Files that appear whole or not at all, and are still there after a power cut.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{JournalError, io_error};

/// How temporary names end. They begin with a dot.
const TEMPORARY: &str = ".tmp";

/// Puts these bytes under this name: whoever reads it, at any time and after any crash, finds what was there before or all of them.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), JournalError> {
    write_whole_with(path, |out| out.write_all(bytes))
}

/// The same, for what `write` writes, which may be too large to have it in memory once more.
///
/// It goes to a name of its own first, which nobody else has and which is no link, is synced and read back; then it is renamed and the
/// folder is synced.
pub fn write_whole_with(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), JournalError> {
    let temporary = temporary(path);
    let written = write_new(&temporary, write).and_then(|told| {
        if blake3::Hasher::new().update_reader(File::open(&temporary)?)?.finalize() != told {
            return Err(io::Error::other("what was read back is not what was written"));
        }
        fs::rename(&temporary, path)
    });
    if let Err(error) = written {
        let _ = fs::remove_file(&temporary);
        return Err(io_error(path)(error));
    }
    sync_folder(path.parent().unwrap_or(Path::new(".")))
}

/// Writes a new file, and tells the hash of what was to be in it.
fn write_new(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<blake3::Hash> {
    let file = OpenOptions::new().write(true).create_new(true).open(path)?;
    let mut hashed = Hashed { inner: BufWriter::with_capacity(1 << 16, file), hash: blake3::Hasher::new() };
    write(&mut hashed)?;
    hashed.inner.into_inner()?.sync_all()?;
    Ok(hashed.hash.finalize())
}

/// Hashes whatever passes.
struct Hashed<W> {
    inner: W,
    hash: blake3::Hasher,
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// A name beside this one that nobody has.
fn temporary(path: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let (process, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    path.with_file_name(format!(".{name}.{process}.{count}{TEMPORARY}"))
}

/// Removes what writers left that were killed. Nobody else may be writing to the folder.
pub fn remove_leftovers(folder: &Path) -> Result<(), JournalError> {
    for entry in fs::read_dir(folder).map_err(io_error(folder))? {
        let path = entry.map_err(io_error(folder))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with('.') && name.ends_with(TEMPORARY) {
            fs::remove_file(&path).map_err(io_error(&path))?;
        }
    }
    Ok(())
}

/// Waits until the names in a folder are on the disk.
pub fn sync_folder(folder: &Path) -> Result<(), JournalError> {
    // "" is what a bare file name has for a parent.
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    match cfg!(unix) {
        true => File::open(folder).and_then(|folder| folder.sync_all()).map_err(io_error(folder)),
        false => Ok(()),
    }
}
