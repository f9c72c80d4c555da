//! What a secret seed asks of the process that holds it: files for its owner alone, no core dump, and no seed in an error.

use std::fs::Metadata;
use std::path::Path;

use anyhow::{Result, bail};

/// From now on files and folders are for their owner alone, and the process leaves no core dump. `attachable`: whether others of the same
/// user may still look into it, as the processes of an MPI job do.
#[cfg(unix)]
pub fn guard(attachable: bool) {
    use nix::sys::resource::{Resource, setrlimit};
    use nix::sys::stat::{Mode, umask};
    umask(Mode::from_bits_truncate(0o077));
    // What the system does not allow cannot be had; the seed is no worse off than before.
    let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
    #[cfg(target_os = "linux")]
    if !attachable {
        let _ = nix::sys::prctl::set_dumpable(false);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = attachable;
}

/// Elsewhere permissions are the user's own work.
#[cfg(not(unix))]
pub fn guard(_: bool) {}

/// Makes a folder its owner's alone.
pub fn close(folder: &Path) -> std::io::Result<()> {
    #[cfg(unix)]
    std::fs::set_permissions(folder, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
    let _ = folder;
    Ok(())
}

/// Refuses a seed's file that others can read or write.
pub fn check_file(path: &Path, about: &Metadata) -> Result<()> {
    #[cfg(unix)]
    {
        let mode = std::os::unix::fs::PermissionsExt::mode(&about.permissions()) & 0o777;
        if mode & 0o077 != 0 {
            let path = path.display();
            bail!(
                "{path} has permissions {mode:04o}, which are too open: others can use the seed; `chmod 600 {path}`, or make a new one"
            );
        }
    }
    let _ = (path, about);
    Ok(())
}

/// As many hexadecimal digits in a row are taken for a seed, or for the better part of one. A commitment has 32.
const DIGITS: usize = 33;

/// A text without whatever looks like a seed: it may have been given in a wrong place.
pub fn without_seeds(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_hexdigit()) {
        let length = rest[start..].find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(rest.len() - start);
        shown.push_str(&rest[..start]);
        match length < DIGITS {
            true => shown.push_str(&rest[start..start + length]),
            false => shown.push_str(&format!("({length} hexadecimal digits, not shown)")),
        }
        rest = &rest[start + length..];
    }
    shown + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_looks_like_a_seed_is_not_shown() {
        let (seed, commitment) = ("0123456789abcdef".repeat(4), "0123456789abcdef".repeat(2));
        assert_eq!(without_seeds(&format!("found \"{seed}\"")), "found \"(64 hexadecimal digits, not shown)\"");
        assert_eq!(without_seeds(&format!("é{commitment}, bad")), format!("é{commitment}, bad"));
        assert_eq!(without_seeds(""), "");
    }
}
