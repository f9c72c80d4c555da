//! A job file is refused with a message or becomes a job; the copy that a run keeps becomes the same job again.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code)]
#[path = "../../crates/cli/src/job.rs"]
mod job;

fuzz_target!(|text: &str| {
    let Ok(table) = job::parse(text) else { return };
    let Ok(first) = job::from_table(table, None) else { return };
    let kept = toml::to_string(&first.table).unwrap();
    let again = job::from_table(job::parse(&kept).unwrap(), None).unwrap();
    assert_eq!(kept, toml::to_string(&again.table).unwrap());
    assert_eq!(format!("{:?}", first.method), format!("{:?}", again.method));
    assert_eq!(format!("{:?}", first.stop), format!("{:?}", again.stop));
});
