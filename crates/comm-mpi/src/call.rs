//! The calls of MPI that are needed, each with its return code checked; the safe interface of the crate `mpi` drops them.
#![allow(unsafe_code)]

use std::os::raw::{c_char, c_int, c_void};

use corewire_comm::CommError;
use mpi::ffi;

/// A communicator whose failed calls return instead of ending the process.
pub(crate) struct Communicator {
    raw: ffi::MPI_Comm,
    process: usize,
    processes: usize,
}

// SAFETY: the handle is a number or a pointer into the MPI library, which may be used from any thread as long as calls do not overlap
// (MPI_THREAD_SERIALIZED, which `Mpi::initialise` insists on); every call takes `&mut self`, and a group calls its transport under a lock.
unsafe impl Send for Communicator {}

impl Communicator {
    /// All processes of the job. MPI must be initialised, and not finalised while this is in use.
    pub(crate) fn world() -> Result<Self, CommError> {
        // SAFETY: a constant of the library; MPI is initialised.
        let raw = unsafe { ffi::RSMPI_COMM_WORLD };
        let (mut process, mut processes): (c_int, c_int) = (0, 0);
        // SAFETY: the handle is valid, and both results are written to integers that outlive the calls.
        unsafe {
            check(0, "MPI_Comm_set_errhandler", ffi::MPI_Comm_set_errhandler(raw, ffi::RSMPI_ERRORS_RETURN))?;
            check(0, "MPI_Comm_rank", ffi::MPI_Comm_rank(raw, &mut process))?;
            check(0, "MPI_Comm_size", ffi::MPI_Comm_size(raw, &mut processes))?;
        }
        Ok(Self { raw, process: process as usize, processes: processes as usize })
    }

    pub(crate) fn process(&self) -> usize {
        self.process
    }

    pub(crate) fn processes(&self) -> usize {
        self.processes
    }

    /// The same processes under a name of their own: messages of two communicators never meet. Called by all.
    pub(crate) fn duplicate(&mut self) -> Result<Self, CommError> {
        // SAFETY: a constant of the library.
        let mut raw = unsafe { ffi::RSMPI_COMM_NULL };
        // SAFETY: the handle is valid; the new one is written to `raw` and inherits the error handler.
        check(self.process, "MPI_Comm_dup", unsafe { ffi::MPI_Comm_dup(self.raw, &mut raw) })?;
        Ok(Self { raw, ..*self })
    }

    /// Gives the name back. Called by all, on a duplicate only.
    pub(crate) fn free(&mut self) -> Result<(), CommError> {
        // SAFETY: the handle is valid and owned by this value, which is used no more.
        check(self.process, "MPI_Comm_free", unsafe { ffi::MPI_Comm_free(&mut self.raw) })
    }

    /// Everybody's words, on every process, in their order.
    pub(crate) fn all_gather<const W: usize>(&mut self, words: [u64; W]) -> Result<Vec<[u64; W]>, CommError> {
        let mut all = vec![[0u64; W]; self.processes];
        // SAFETY: W words are read and W words for every process are written, which is what the buffers hold.
        let code = unsafe {
            ffi::MPI_Allgather(
                words.as_ptr().cast::<c_void>(),
                W as c_int,
                ffi::RSMPI_UINT64_T,
                all.as_mut_ptr().cast::<c_void>(),
                W as c_int,
                ffi::RSMPI_UINT64_T,
                self.raw,
            )
        };
        check(self.process, "MPI_Allgather", code)?;
        Ok(all)
    }

    /// One word to every process; returns the words of all for this one.
    pub(crate) fn all_to_all(&mut self, words: &[u64]) -> Result<Vec<u64>, CommError> {
        assert_eq!(words.len(), self.processes, "every process gets a word");
        let mut all = vec![0u64; self.processes];
        // SAFETY: one word for every process is read and written, which is what the buffers hold.
        let code = unsafe {
            ffi::MPI_Alltoall(
                words.as_ptr().cast::<c_void>(),
                1,
                ffi::RSMPI_UINT64_T,
                all.as_mut_ptr().cast::<c_void>(),
                1,
                ffi::RSMPI_UINT64_T,
                self.raw,
            )
        };
        check(self.process, "MPI_Alltoall", code)?;
        Ok(all)
    }

    /// Brings `mine` to process 0, where `counts` says how many bytes every process sends; the result is empty elsewhere.
    pub(crate) fn gather(&mut self, mine: &[u8], counts: &[usize]) -> Result<Vec<u8>, CommError> {
        assert_eq!(counts[self.process], mine.len(), "the counts say what every process sends");
        let (counts, starts, total) = layout(counts);
        let mut all = vec![0u8; if self.process == 0 { total } else { 0 }];
        // SAFETY: `mine.len()` bytes are read; process 0 writes `counts[p]` bytes at `starts[p]`, which `layout` fits into `total`.
        let code = unsafe {
            ffi::MPI_Gatherv(
                start(mine),
                counts[self.process],
                ffi::RSMPI_UINT8_T,
                start_mut(&mut all),
                counts.as_ptr(),
                starts.as_ptr(),
                ffi::RSMPI_UINT8_T,
                0,
                self.raw,
            )
        };
        check(self.process, "MPI_Gatherv", code)?;
        Ok(all)
    }

    /// Fills `bytes` with those of `root`, on every process.
    pub(crate) fn broadcast(&mut self, root: usize, bytes: &mut [u8]) -> Result<(), CommError> {
        let count = c_int::try_from(bytes.len()).expect("the caller cuts long messages");
        // SAFETY: `count` bytes are read at the root and written elsewhere, which is what the buffer holds.
        let code = unsafe { ffi::MPI_Bcast(start_mut(bytes), count, ffi::RSMPI_UINT8_T, root as c_int, self.raw) };
        check(self.process, "MPI_Bcast", code)
    }

    /// Sends `sent[p]` to every process p, and returns `received[p]` bytes from each, one after the other.
    pub(crate) fn scatter_and_gather(&mut self, sent: &[&[u8]], received: &[usize]) -> Result<Vec<u8>, CommError> {
        assert!(sent.len() == self.processes && received.len() == self.processes, "every process gets a message");
        let outgoing = sent.concat();
        let lengths: Vec<usize> = sent.iter().map(|bytes| bytes.len()).collect();
        let (send_counts, send_starts, _) = layout(&lengths);
        let (counts, starts, total) = layout(received);
        let mut incoming = vec![0u8; total];
        // SAFETY: `layout` fits what is read into `outgoing` and what is written into `incoming`.
        let code = unsafe {
            ffi::MPI_Alltoallv(
                start(&outgoing),
                send_counts.as_ptr(),
                send_starts.as_ptr(),
                ffi::RSMPI_UINT8_T,
                start_mut(&mut incoming),
                counts.as_ptr(),
                starts.as_ptr(),
                ffi::RSMPI_UINT8_T,
                self.raw,
            )
        };
        check(self.process, "MPI_Alltoallv", code)?;
        Ok(incoming)
    }
}

/// Ends MPI in this process. Called by all, once.
pub(crate) fn finalise(process: usize) -> Result<(), CommError> {
    // SAFETY: called once, from the drop of the only value that says MPI is initialised.
    check(process, "MPI_Finalize", unsafe { ffi::MPI_Finalize() })
}

/// Ends all processes of the job. Whatever happens, it does not return.
pub(crate) fn abort(code: i32) -> ! {
    if mpi::environment::is_initialized() && !mpi::environment::is_finalized() {
        // SAFETY: MPI is initialised and not finalised; no memory is handed over.
        unsafe { ffi::MPI_Abort(ffi::RSMPI_COMM_WORLD, code) };
    }
    std::process::exit(code)
}

/// Where the bytes start. An empty slice may start anywhere, at address 1 say, which is how some libraries spell MPI_IN_PLACE.
fn start(bytes: &[u8]) -> *const c_void {
    if bytes.is_empty() { std::ptr::null() } else { bytes.as_ptr().cast() }
}

fn start_mut(bytes: &mut [u8]) -> *mut c_void {
    if bytes.is_empty() { std::ptr::null_mut() } else { bytes.as_mut_ptr().cast() }
}

/// Counts and starts as MPI wants them, one after the other, and the sum.
fn layout(lengths: &[usize]) -> (Vec<c_int>, Vec<c_int>, usize) {
    let mut total = 0;
    let mut starts = Vec::with_capacity(lengths.len());
    for length in lengths {
        starts.push(c_int::try_from(total).expect("the caller cuts long messages"));
        total += length;
    }
    c_int::try_from(total).expect("the caller cuts long messages");
    (lengths.iter().map(|&length| length as c_int).collect(), starts, total)
}

fn check(process: usize, call: &str, code: c_int) -> Result<(), CommError> {
    if code == ffi::MPI_SUCCESS as c_int {
        return Ok(());
    }
    let mut text = vec![0u8; ffi::MPI_MAX_ERROR_STRING as usize + 1];
    let mut length: c_int = 0;
    // SAFETY: at most MPI_MAX_ERROR_STRING characters are written, and the buffer holds one more.
    let known = unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr().cast::<c_char>(), &mut length) };
    let text = match usize::try_from(length) {
        Ok(length) if known == ffi::MPI_SUCCESS as c_int => String::from_utf8_lossy(&text[..length]).into_owned(),
        _ => "no description".to_owned(),
    };
    Err(CommError::Engine { process, what: format!("{call} failed with code {code}: {text}") })
}
