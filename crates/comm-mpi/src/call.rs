//! The calls of MPI that are needed, each with its return code checked; the safe interface of the crate `mpi` drops them.
#![allow(unsafe_code)]

use std::os::raw::{c_char, c_int, c_void};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use corewire_comm::{CommError, Deadline};
use mpi::ffi;

/// The tag of the words that open every call.
const WORDS: c_int = 1;
/// The first of the tags of the word by which a process says that it waits, too. Every exchange has its own, for a while: what is said
/// too late for one must not be heard in another. MPI promises tags up to 32767.
const HERE: u64 = 2;
const TAGS: u64 = 30_000;
/// It must not move while it travels.
static WAITING: u64 = 1;

/// A communicator whose failed calls return instead of ending the process.
pub(crate) struct Communicator {
    raw: ffi::MPI_Comm,
    process: usize,
    processes: usize,
    deadline: Option<Deadline>,
    /// Words that were exchanged, for the error of a process that waits in vain.
    turns: u64,
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
        Ok(Self { raw, process: process as usize, processes: processes as usize, deadline: None, turns: 0 })
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

    /// How long this process waits for the others' words.
    pub(crate) fn set_deadline(&mut self, deadline: Option<Deadline>) {
        self.deadline = deadline;
    }

    /// Everybody's words, on every process, in their order: through process 0, which so knows who has not come. Every other call follows
    /// one of these, so this is where a process waits for another that is slow, stopped or gone.
    pub(crate) fn all_gather<const W: usize>(&mut self, words: [u64; W]) -> Result<Vec<[u64; W]>, CommError> {
        let mut all = vec![[0u64; W]; self.processes];
        all[self.process] = words;
        let count = self.processes * W;
        if self.process == 0 {
            let mut arriving = Vec::with_capacity(self.processes);
            for (process, theirs) in all.iter_mut().enumerate().skip(1) {
                arriving.push((Some(process), self.receive(theirs, process, WORDS)?));
            }
            self.wait("MPI_Irecv", &mut arriving)?;
            let mut leaving = Vec::with_capacity(self.processes);
            for process in 1..self.processes {
                leaving.push((Some(process), self.send(&all.as_flattened()[..count], process, WORDS)?));
            }
            self.wait("MPI_Isend", &mut leaving)?;
        } else {
            let mut pending = vec![(Some(0), self.send(&words, 0, WORDS)?)];
            pending.push((Some(0), self.receive(&mut all.as_flattened_mut()[..count], 0, WORDS)?));
            self.wait("MPI_Irecv", &mut pending)?;
        }
        self.turns += 1;
        Ok(all)
    }

    /// Begins to send words; they must stay where they are until the request is completed.
    fn send(&mut self, words: &[u64], to: usize, tag: c_int) -> Result<ffi::MPI_Request, CommError> {
        // SAFETY: a constant of the library.
        let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
        let (count, to) = (words.len() as c_int, to as c_int);
        // SAFETY: `count` words are read from a slice that outlives the request, which `all_gather` completes, or the process ends.
        let code = unsafe {
            ffi::MPI_Isend(words.as_ptr().cast(), count, ffi::RSMPI_UINT64_T, to, tag, self.raw, &mut request)
        };
        check(self.process, "MPI_Isend", code)?;
        Ok(request)
    }

    /// Begins to receive words; nobody may touch them until the request is completed.
    fn receive(&mut self, words: &mut [u64], from: usize, tag: c_int) -> Result<ffi::MPI_Request, CommError> {
        // SAFETY: a constant of the library.
        let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
        let (count, from) = (words.len() as c_int, from as c_int);
        // SAFETY: at most `count` words are written to a slice that outlives the request, which `all_gather` completes, or the process
        // ends.
        let code = unsafe {
            ffi::MPI_Irecv(words.as_mut_ptr().cast(), count, ffi::RSMPI_UINT64_T, from, tag, self.raw, &mut request)
        };
        check(self.process, "MPI_Irecv", code)?;
        Ok(request)
    }

    /// Waits for requests of a call, each with the process at its other end if there is one alone, within the deadline: eagerly at first,
    /// then with pauses.
    fn wait(&mut self, call: &str, pending: &mut Vec<(Option<usize>, ffi::MPI_Request)>) -> Result<(), CommError> {
        let (begun, mut said, mut told) = (Instant::now(), false, false);
        loop {
            let mut index = 0;
            while index < pending.len() {
                if !self.test(call, &mut pending[index].1)? {
                    index += 1;
                } else {
                    pending.swap_remove(index);
                }
            }
            if pending.is_empty() {
                return Ok(());
            }
            let waited = begun.elapsed();
            if let Some(Deadline { after, tell }) = self.deadline.filter(|deadline| waited > deadline.after && !told) {
                // Process 0 sees or asks who is missing and speaks first. Where it says nothing, it is the one.
                if self.process != 0 && !said {
                    said = true;
                    self.send(std::slice::from_ref(&WAITING), 0, self.here())?;
                } else if self.process == 0 || waited > 3 * after {
                    let late = self.late(pending, after)?;
                    let what = format!(
                        "{late} did not arrive at exchange {} within {} s; raise `limits.wait_seconds` if it needs longer",
                        self.turns,
                        waited.as_secs()
                    );
                    match tell {
                        Some(tell) => tell(&what),
                        // A request can neither be completed nor taken back, and its buffer must not be touched again: this process
                        // ends here.
                        None => crate::job::abort(self.process, 1, &what),
                    }
                    told = true;
                }
            }
            match waited {
                waited if waited < Duration::from_micros(100) && self.has_its_core() => std::hint::spin_loop(),
                waited if waited < Duration::from_millis(2) => std::thread::yield_now(),
                waited if waited < Duration::from_millis(50) => std::thread::sleep(Duration::from_micros(50)),
                _ => std::thread::sleep(Duration::from_millis(2)),
            }
        }
    }

    /// Whether there is a core for each process, even if all of them are on this computer: then nobody needs the one of a process that
    /// waits.
    fn has_its_core(&self) -> bool {
        static CORES: LazyLock<usize> = LazyLock::new(|| std::thread::available_parallelism().map_or(1, Into::into));
        self.processes <= *CORES
    }

    /// Who is waited for, in words. Within a call of all processes nothing tells, so process 0 hears who waits there, too; who does not
    /// is late.
    fn late(&mut self, pending: &[(Option<usize>, ffi::MPI_Request)], deadline: Duration) -> Result<String, CommError> {
        let mut late: Vec<usize> = pending.iter().filter_map(|(process, _)| *process).collect();
        if self.process != 0 {
            late = vec![0];
        } else if late.is_empty() {
            // What is received after this may go anywhere: nobody looks at it.
            let heard = Box::leak(vec![[0u64; 1]; self.processes].into_boxed_slice());
            let mut silent = Vec::with_capacity(self.processes);
            for (process, word) in heard.iter_mut().enumerate().skip(1) {
                silent.push((process, self.receive(word, process, self.here())?));
            }
            let begun = Instant::now();
            while begun.elapsed() < deadline / 2 && !silent.is_empty() {
                std::thread::sleep(Duration::from_millis(2));
                let mut left = Vec::with_capacity(silent.len());
                for (process, mut request) in silent {
                    if !self.test("MPI_Irecv", &mut request)? {
                        left.push((process, request));
                    }
                }
                silent = left;
            }
            late = silent.into_iter().map(|(process, _)| process).collect();
        }
        late.dedup();
        let late: Vec<String> = late.iter().map(ToString::to_string).collect();
        Ok(if late.is_empty() { "some process".to_owned() } else { format!("process {}", late.join(", ")) })
    }

    /// The tag under which processes say that they wait in this exchange.
    fn here(&self) -> c_int {
        (HERE + self.turns % TAGS) as c_int
    }

    /// Whether a request of a call is completed.
    fn test(&mut self, call: &str, request: &mut ffi::MPI_Request) -> Result<bool, CommError> {
        let mut done: c_int = 0;
        // SAFETY: the request is one of ours, and the flag an integer that outlives the call; no status is asked for.
        let code = unsafe { ffi::MPI_Test(request, &mut done, ffi::RSMPI_STATUS_IGNORE) };
        check(self.process, call, code)?;
        Ok(done != 0)
    }

    /// Checks that a call of all processes has begun, and waits for its end: a process may be stopped inside it, after its words have come.
    /// The caller keeps what the call reads and writes alive until then.
    fn complete(&mut self, call: &str, code: c_int, request: ffi::MPI_Request) -> Result<(), CommError> {
        check(self.process, call, code)?;
        self.wait(call, &mut vec![(None, request)])
    }

    /// Replaces the integers by their sums over all processes.
    pub(crate) fn sum_i32(&mut self, integers: &mut [i32]) -> Result<(), CommError> {
        // SAFETY: a constant of the library, for the type of the slice.
        let datatype = unsafe { ffi::RSMPI_INT32_T };
        self.sum(integers, datatype)
    }

    /// Replaces the integers by their sums over all processes.
    pub(crate) fn sum_i64(&mut self, integers: &mut [i64]) -> Result<(), CommError> {
        // SAFETY: a constant of the library, for the type of the slice.
        let datatype = unsafe { ffi::RSMPI_INT64_T };
        self.sum(integers, datatype)
    }

    fn sum<T: Copy>(&mut self, integers: &mut [T], datatype: ffi::MPI_Datatype) -> Result<(), CommError> {
        if integers.is_empty() {
            return Ok(());
        }
        let count = c_int::try_from(integers.len()).expect("the caller cuts long messages");
        let mine = integers.to_vec();
        // SAFETY: a constant of the library.
        let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
        // SAFETY: `count` integers of the slices' type, which the callers name, are read from one and written to the other.
        let code = unsafe {
            ffi::MPI_Iallreduce(
                mine.as_ptr().cast(),
                integers.as_mut_ptr().cast(),
                count,
                datatype,
                ffi::RSMPI_SUM,
                self.raw,
                &mut request,
            )
        };
        self.complete("MPI_Iallreduce", code, request)
    }

    /// One word to every process; returns the words of all for this one.
    pub(crate) fn all_to_all(&mut self, words: &[u64]) -> Result<Vec<u64>, CommError> {
        assert_eq!(words.len(), self.processes, "every process gets a word");
        let mut all = vec![0u64; self.processes];
        // SAFETY: a constant of the library.
        let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
        // SAFETY: one word for every process is read and written, which is what the buffers hold.
        let code = unsafe {
            ffi::MPI_Ialltoall(
                words.as_ptr().cast::<c_void>(),
                1,
                ffi::RSMPI_UINT64_T,
                all.as_mut_ptr().cast::<c_void>(),
                1,
                ffi::RSMPI_UINT64_T,
                self.raw,
                &mut request,
            )
        };
        self.complete("MPI_Ialltoall", code, request)?;
        Ok(all)
    }

    /// Brings `mine` to process 0, where `counts` says how many bytes every process sends; the result is empty elsewhere.
    pub(crate) fn gather(&mut self, mine: &[u8], counts: &[usize]) -> Result<Vec<u8>, CommError> {
        assert_eq!(counts[self.process], mine.len(), "the counts say what every process sends");
        let (counts, starts, total) = layout(counts);
        let mut all = vec![0u8; if self.process == 0 { total } else { 0 }];
        // SAFETY: a constant of the library.
        let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
        // SAFETY: `mine.len()` bytes are read; process 0 writes `counts[p]` bytes at `starts[p]`, which `layout` fits into `total`.
        let code = unsafe {
            ffi::MPI_Igatherv(
                start(mine),
                counts[self.process],
                ffi::RSMPI_UINT8_T,
                start_mut(&mut all),
                counts.as_ptr(),
                starts.as_ptr(),
                ffi::RSMPI_UINT8_T,
                0,
                self.raw,
                &mut request,
            )
        };
        self.complete("MPI_Igatherv", code, request)?;
        Ok(all)
    }

    /// Fills `bytes` with those of `root`, on every process.
    pub(crate) fn broadcast(&mut self, root: usize, bytes: &mut [u8]) -> Result<(), CommError> {
        let count = c_int::try_from(bytes.len()).expect("the caller cuts long messages");
        // SAFETY: a constant of the library.
        let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
        // SAFETY: `count` bytes are read at the root and written elsewhere, which is what the buffer holds.
        let code = unsafe {
            ffi::MPI_Ibcast(start_mut(bytes), count, ffi::RSMPI_UINT8_T, root as c_int, self.raw, &mut request)
        };
        self.complete("MPI_Ibcast", code, request)
    }

    /// Sends `sent[p]` to every process p, and returns `received[p]` bytes from each, one after the other.
    pub(crate) fn scatter_and_gather(&mut self, sent: &[&[u8]], received: &[usize]) -> Result<Vec<u8>, CommError> {
        assert!(sent.len() == self.processes && received.len() == self.processes, "every process gets a message");
        let outgoing = sent.concat();
        let lengths: Vec<usize> = sent.iter().map(|bytes| bytes.len()).collect();
        let (send_counts, send_starts, _) = layout(&lengths);
        let (counts, starts, total) = layout(received);
        let mut incoming = vec![0u8; total];
        // SAFETY: a constant of the library.
        let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
        // SAFETY: `layout` fits what is read into `outgoing` and what is written into `incoming`.
        let code = unsafe {
            ffi::MPI_Ialltoallv(
                start(&outgoing),
                send_counts.as_ptr(),
                send_starts.as_ptr(),
                ffi::RSMPI_UINT8_T,
                start_mut(&mut incoming),
                counts.as_ptr(),
                starts.as_ptr(),
                ffi::RSMPI_UINT8_T,
                self.raw,
                &mut request,
            )
        };
        self.complete("MPI_Ialltoallv", code, request)?;
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
