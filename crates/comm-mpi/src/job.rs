//! This process's part in the job, from its start to its end, be it clean or not. No process may wait for one that has gone.

use std::io::Write;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use corewire_comm::CommError;
use mpi::Threading;
use mpi::environment::Universe;

use crate::call::{self, Communicator};
use crate::processes::Processes;
use crate::share::share;

/// This process as a member of an MPI job. The main thread holds it from start to end, and ends it by [`Mpi::finish`] or [`Mpi::fail`]:
/// dropped otherwise (an error on the way, a forgotten case) it aborts the job, for the other processes would wait for ever.
pub struct Mpi {
    world: Communicator,
    job: Arc<Job>,
}

/// MPI is initialised as long as this lives. Transports hold it too.
pub(crate) struct Job {
    process: usize,
    finished: AtomicBool,
    /// What the last group ended with, if every process got it and none of them had a reason of its own.
    common: Mutex<Option<CommError>>,
    /// Finalised by hand, because its own drop does not look at the return code.
    _universe: ManuallyDrop<Universe>,
}

impl Mpi {
    /// Initialises MPI, once in the life of a process, on its main thread. From here on a panic on any thread aborts the job, after its
    /// message.
    pub fn initialise() -> Result<Self, CommError> {
        let refused = |what: String| CommError::Engine { process: 0, what };
        // Multiple, if it can be had: then a panicking thread may abort while another one waits in a call.
        let (universe, threading) = mpi::initialize_with_threading(Threading::Multiple)
            .ok_or_else(|| refused("MPI is initialised already, and can be only once".to_owned()))?;
        let universe = ManuallyDrop::new(universe);
        let world = Communicator::world()?;
        let process = world.process();
        if threading < Threading::Serialized {
            let what = format!(
                "process {process}: this MPI library supports calls from one thread only ({threading:?}), \
                 machines need MPI_THREAD_SERIALIZED"
            );
            complain(&what);
            call::abort(1);
        }
        abort_on_panic(process, threading);
        let job =
            Arc::new(Job { process, finished: AtomicBool::new(false), common: Mutex::new(None), _universe: universe });
        Ok(Self { world, job })
    }

    /// This process's number, from 0.
    pub fn process(&self) -> usize {
        self.world.process()
    }

    /// How many processes the job has.
    pub fn processes(&self) -> usize {
        self.world.processes()
    }

    /// The transport of a group of `machines` machines, divided by [`share`](crate::share::share). Called by all processes alike; each call
    /// gives a group of its own, and the one before must have ended.
    pub fn transport(&mut self, machines: usize) -> Result<Processes, CommError> {
        let theirs = self.world.all_gather([machines as u64])?;
        if let Some(process) = theirs.iter().position(|their| *their != theirs[0]) {
            let what = format!("it is asked for {} machines, process 0 for {}", theirs[process][0], theirs[0][0]);
            return Err(self.job.in_common(CommError::Engine { process, what }));
        }
        let machines = share(machines, self.processes()).map_err(|error| self.job.in_common(error))?;
        Ok(Processes::new(self.world.duplicate()?, machines, Arc::clone(&self.job)))
    }

    /// The clean end: waits until every process has come here.
    pub fn finish(self) {
        self.job.finished.store(true, Ordering::Relaxed);
    }

    /// The end of a run that failed because of `cause`. Where that is what every process got, process 0 says why and all of them end with
    /// this code, of their own accord; otherwise it aborts.
    pub fn fail(self, code: i32, why: &str, cause: Option<&CommError>) -> ! {
        let common = self.job.common.lock().unwrap_or_else(PoisonError::into_inner).take();
        if common.is_none() || common.as_ref() != cause {
            self.abort(code, why);
        }
        if self.process() == 0 {
            complain(why);
        }
        self.finish();
        std::process::exit(code)
    }

    /// Says who and why, and ends all processes of the job with this code, whatever they do.
    pub fn abort(&self, code: i32, why: &str) -> ! {
        abort(self.process(), code, why)
    }
}

impl Drop for Mpi {
    fn drop(&mut self) {
        if !self.job.finished.load(Ordering::Relaxed) {
            abort(self.process(), 1, "it ended without finishing its part");
        }
    }
}

impl Job {
    /// Notes that every process of the job gets this error.
    pub(crate) fn in_common(&self, error: CommError) -> CommError {
        *self.common.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.clone());
        error
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if let Err(error) = call::finalise(self.process) {
            abort(self.process, 1, &error.to_string());
        }
    }
}

/// Says who and why, and ends all processes of the job.
pub(crate) fn abort(process: usize, code: i32, why: &str) -> ! {
    complain(&format!("process {process} ends the job: {why}"));
    call::abort(code)
}

/// To standard error, with what was printed before. There is nobody left to hear that a stream is closed.
fn complain(what: &str) {
    let _ = std::io::stdout().flush();
    // In one piece: the lines of several processes meet in one stream.
    let _ = std::io::stderr().write_all(format!("{what}\n").as_bytes());
}

fn abort_on_panic(process: usize, threading: Threading) {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        usual(panic);
        if !mpi::environment::is_initialized() || mpi::environment::is_finalized() {
            return;
        }
        if threading == Threading::Multiple {
            abort(process, 101, "a thread of it panicked");
        }
        // Another thread may be inside a call, and two at once are not allowed; a process that dies by a signal takes the job along.
        complain(&format!("process {process} ends the job: a thread of it panicked"));
        std::process::abort();
    }));
}
