//! Ctrl-C and its kin: the first ends a run after its round, the second at once.

use std::sync::atomic::{AtomicUsize, Ordering};

/// How often Ctrl-C was pressed.
static INTERRUPTS: AtomicUsize = AtomicUsize::new(0);

/// From now on the first Ctrl-C ends the run after its round, the second at once.
pub fn watch_interrupts() {
    let pressed = || {
        if INTERRUPTS.fetch_add(1, Ordering::SeqCst) > 0 {
            std::process::exit(130);
        }
        eprintln!("\ncorewire: stopping after this round; press Ctrl-C again to stop at once");
    };
    // A second handler in one process is only tried by tests.
    let _ = ctrlc::set_handler(pressed);
}

/// Whether Ctrl-C was pressed.
pub fn interrupted() -> bool {
    INTERRUPTS.load(Ordering::SeqCst) > 0
}
