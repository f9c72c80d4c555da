//! A message is refused as a code of dithered integers or read; what is read is encoded again and read to the same integers.
#![no_main]

use corewire_sketch::code::{Dither, IntegerCoder};
use corewire_sketch::{CommonRandomness, Purpose, Seed};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, u64, u64, &[u8])| {
    let (count, energy, seen, message) = input;
    let mut dithers = vec![Dither::NONE; usize::from(count)];
    Dither::fill(&mut CommonRandomness::new(&Seed::reproducible(1)).words(Purpose::Dither, 0, 0), &mut dithers);
    let model = IntegerCoder::from_state([energy, seen]);
    let mut integers = vec![0; dithers.len()];
    let mut reader = model.clone();
    if reader.decode(message, &dithers, &mut integers).is_err() {
        return;
    }
    let (mut writer, mut bytes) = (model.clone(), Vec::new());
    writer.encode(&integers, &dithers, &mut bytes);
    assert_eq!(writer, reader);
    let (mut again, mut reader) = (vec![0; integers.len()], model);
    reader.decode(&bytes, &dithers, &mut again).unwrap();
    assert_eq!(integers, again);
});
