//! Bytes are refused as a journal or read; what is read is written again to the same bytes, as far as it was whole.
#![no_main]

use std::path::Path;

use corewire_journal::parse;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let path = Path::new("fuzz");
    let Ok(contents) = parse(path, bytes) else { return };
    assert_eq!(contents.whole_bytes + contents.torn_bytes, bytes.len() as u64);
    assert!(contents.rounds.iter().enumerate().all(|(index, entry)| entry.round == index as u64));
    // What is whole stays whole without its torn tail.
    let again = parse(path, &bytes[..contents.whole_bytes as usize]).unwrap();
    assert_eq!((again.torn_bytes, again.chain), (0, contents.chain));
    assert_eq!(
        (again.header, again.preparation, again.rounds),
        (contents.header, contents.preparation, contents.rounds)
    );
});
