//! CSV text is refused or read; what is read survives being written and read again.
#![no_main]

use std::path::Path;

use corewire_data::{LabelColumn, ReadOptions, parse_csv, write_csv};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    let path = Path::new("fuzz");
    for (label, header) in
        [(LabelColumn::Last, None), (LabelColumn::First, Some(true)), (LabelColumn::At(1), Some(false))]
    {
        let options = ReadOptions { label, header, ..Default::default() };
        let Ok(set) = parse_csv(path, text, &options) else { continue };
        let mut written = Vec::new();
        write_csv(&set, &mut written).unwrap();
        assert_eq!(parse_csv(path, &written, &ReadOptions::default()).unwrap(), set);
    }
});
