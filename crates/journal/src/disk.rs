//! Files that appear whole or not at all, and are still there after a power cut.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{JournalError, io_error};

/// How temporary names end. They begin with a dot.
const TEMPORARY: &str = ".tmp";

/// Puts these bytes under this name: whoever reads it, at any time and after any crash, finds what was there before or all of them.
///
/// They go to a name of their own first, which nobody else has and which is no link, are synced and read back; then they are renamed and
/// the folder is synced.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), JournalError> {
    let temporary = temporary(path);
    let written = write_new(&temporary, bytes).and_then(|()| {
        if fs::read(&temporary)? != bytes {
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

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
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
