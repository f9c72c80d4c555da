//! Ctrl-C and its kin: the first ends a run after its round, or at once where no round has begun; the second at once.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// The signal that came first; 0 for none.
static SIGNAL: AtomicI32 = AtomicI32::new(0);
/// Whether a round has begun, so that there is something to end well.
static ROUNDS: AtomicBool = AtomicBool::new(false);

/// From now on SIGINT, SIGTERM and SIGHUP are watched.
#[cfg(unix)]
pub fn watch_interrupts() {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let watch = |mut signals: signal_hook::iterator::Signals| {
        for signal in signals.forever() {
            let first = SIGNAL.swap(signal, Ordering::SeqCst) == 0;
            if !first || !ROUNDS.load(Ordering::SeqCst) {
                std::process::exit(code(signal));
            }
            eprintln!("\ncorewire: stopping after this round; press Ctrl-C again to stop at once");
        }
    };
    // Without a handler a signal still ends the process, only less well.
    if let Ok(signals) = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP]) {
        let _ = std::thread::Builder::new().name("signals".to_owned()).spawn(move || watch(signals));
    }
}

/// Elsewhere signals do what the system makes of them.
#[cfg(not(unix))]
pub fn watch_interrupts() {}

/// From now on the first signal ends the run after its round.
pub fn rounds_begin() {
    ROUNDS.store(true, Ordering::SeqCst);
}

/// Whether a signal came.
pub fn interrupted() -> bool {
    SIGNAL.load(Ordering::SeqCst) != 0
}

/// The exit code of a run that was stopped: 130 by Ctrl-C, 143 by SIGTERM.
pub fn exit_code() -> u8 {
    code(SIGNAL.load(Ordering::SeqCst).max(2)) as u8
}

/// What shells make of a process that a signal ended.
fn code(signal: i32) -> i32 {
    128 + signal
}
