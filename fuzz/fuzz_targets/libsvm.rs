//! LIBSVM text is refused or read; what is read survives being written and read again.
#![no_main]

use std::path::Path;

use corewire_data::{ReadOptions, parse_libsvm, write_libsvm};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    let path = Path::new("fuzz");
    for zero_based in [false, true] {
        let options = ReadOptions { zero_based, ..Default::default() };
        let Ok(set) = parse_libsvm(path, text, &options) else { continue };
        let mut written = Vec::new();
        write_libsvm(&set, &mut written).unwrap();
        let options = ReadOptions { dim: Some(set.dim()), ..Default::default() };
        assert_eq!(parse_libsvm(path, &written, &options).unwrap(), set);
    }
});
