//! The targets: whatever bytes they are given, they refuse them or read something whole.

use std::path::Path;

use corewire_comm::{frame, handshake};
use corewire_data::{
    ColumnOptions, ColumnRef, Missing, ReadOptions, load, parse_csv, parse_idx, parse_libsvm, write_csv, write_libsvm,
};
use corewire_fuzz::{fuzz, job};
use corewire_journal::{About, MachineState, Stored, Vectors, model_bytes, parse, parse_model, sealed};
use corewire_sketch::code::{Dither, IntegerCoder};
use corewire_sketch::{CommonRandomness, Purpose, Seed};

const PATH: &str = "fuzz";

#[test]
fn libsvm_is_refused_or_survives_being_written_and_read_again() {
    fuzz("libsvm", |text| {
        let mut accepted = false;
        for zero_based in [false, true] {
            let options = ReadOptions { zero_based, ..Default::default() };
            let Ok(set) = parse_libsvm(Path::new(PATH), text, &options) else { continue };
            accepted = true;
            let mut written = Vec::new();
            write_libsvm(&set, &mut written).unwrap();
            let options = ReadOptions { dim: Some(set.dim()), ..Default::default() };
            assert_eq!(parse_libsvm(Path::new(PATH), &written, &options).unwrap(), set);
        }
        accepted
    });
}

#[test]
fn csv_is_refused_or_survives_being_written_and_read_again() {
    fuzz("csv", |text| {
        let mut accepted = false;
        for (label, header, missing) in [
            (None, None, Missing::Error),
            (Some(ColumnRef::Place(1)), Some(true), Missing::Mean),
            (Some(ColumnRef::Place(2)), Some(false), Missing::Indicator),
        ] {
            let columns = ColumnOptions { label, missing, ..Default::default() };
            let options = ReadOptions { columns, header, ..Default::default() };
            let Ok(set) = parse_csv(Path::new(PATH), text, &options) else { continue };
            accepted = true;
            let mut written = Vec::new();
            write_csv(&set, &mut written).unwrap();
            assert_eq!(parse_csv(Path::new(PATH), &written, &ReadOptions::default()).unwrap(), set);
        }
        accepted
    });
}

/// The first byte says where the labels end and the samples begin.
#[test]
fn a_pair_of_idx_files_is_refused_or_read_whole() {
    fuzz("idx", |input| {
        let Some((&length, files)) = input.split_first() else { return false };
        let (labels, samples) = files.split_at(usize::from(length).min(files.len()));
        let path = Path::new(PATH);
        let Ok(set) = parse_idx(path, samples, path, labels, &ReadOptions::default()) else { return false };
        assert_eq!(set.rows(), set.labels.len());
        assert!(set.matrix.nonzeros() <= samples.len());
        true
    });
}

/// Files on a disk are slow: a memory file would not take the same way.
#[test]
fn a_compressed_file_is_refused_or_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file.libsvm");
    let options = ReadOptions { max_bytes: 1 << 20, ..Default::default() };
    fuzz("compressed", |input| {
        std::fs::write(&path, input).unwrap();
        load(&path, &options).is_ok()
    });
}

/// The copy that a run keeps becomes the same job again.
#[test]
fn a_job_is_refused_or_becomes_itself_again() {
    fuzz("job", |text| {
        let Ok(text) = std::str::from_utf8(text) else { return false };
        let Ok(table) = job::parse(text) else { return false };
        let Ok(first) = job::from_table(table, None) else { return false };
        let kept = first.table.to_string();
        let again = job::from_table(job::parse(&kept).unwrap(), None).unwrap();
        assert_eq!(kept, again.table.to_string());
        // Only paths are made whole on the way.
        let same = |job: &job::Job| format!("{:?} {:?} {:?}", job.method.settings, job.stop, job.machines);
        assert_eq!(same(&first), same(&again));
        true
    });
}

/// As they are, and as bodies of records whose checksums are right: the first byte says which.
#[test]
fn a_journal_is_refused_or_read_as_far_as_it_is_whole() {
    fuzz("journal", |input| {
        let Some((&kind, rest)) = input.split_first() else { return false };
        let bytes = if kind & 1 == 0 { rest.to_vec() } else { records(rest) };
        let path = Path::new(PATH);
        let Ok(contents) = parse(path, &bytes) else { return false };
        assert_eq!(contents.whole_bytes + contents.torn_bytes, bytes.len() as u64);
        assert!(contents.rounds.iter().enumerate().all(|(index, entry)| entry.round == index as u64));
        // What is whole stays whole without its torn tail.
        let again = parse(path, &bytes[..contents.whole_bytes as usize]).unwrap();
        assert_eq!((again.torn_bytes, again.chain), (0, contents.chain));
        assert_eq!((again.header, again.rounds), (contents.header, contents.rounds));
        true
    });
}

/// A journal of bodies, each behind its length in a byte.
fn records(mut bodies: &[u8]) -> Vec<u8> {
    let (mut bytes, mut chain) = (b"corewire journal 1\n".to_vec(), [0; 8]);
    while let Some((&length, rest)) = bodies.split_first() {
        let (body, rest) = rest.split_at(usize::from(length).min(rest.len()));
        let (record, link) = sealed(&chain, body);
        bytes.extend(record);
        (chain, bodies) = (link, rest);
    }
    bytes
}

/// Names and words of any kind in a file whose checksum is right.
fn model(mut rest: &[u8]) -> Vec<u8> {
    let (mut vectors, mut about) = (Vectors::new(), About::new());
    let mut text = || {
        let (&length, tail) = rest.split_first()?;
        let (text, tail) = tail.split_at(usize::from(length).min(tail.len()));
        rest = tail;
        Some(String::from_utf8_lossy(text).into_owned())
    };
    while let Some(name) = text() {
        let value = text().unwrap_or_default();
        match value.strip_prefix('=') {
            Some(word) => drop(about.insert(name, word.to_owned())),
            None => drop(vectors.insert(name, value.bytes().map(f64::from).collect())),
        }
    }
    // The one name that the format keeps for itself.
    vectors.remove("__metadata__");
    model_bytes(&(vectors, about))
}

#[test]
fn a_snapshot_is_refused_or_written_again_to_the_same() {
    fuzz("snapshot", |input| {
        let Some((&kind, rest)) = input.split_first() else { return false };
        let bytes = if kind & 1 == 0 { rest.to_vec() } else { model(rest) };
        if kind & 2 != 0
            && let Some(machine) = MachineState::from_bytes(rest)
        {
            assert_eq!(MachineState::from_bytes(&machine.to_bytes()).unwrap().to_bytes(), machine.to_bytes());
        }
        let Ok(stored) = Stored::parse(&bytes) else { return false };
        let written = stored.snapshot.to_bytes(&stored.about, [7; 8]);
        let again = Stored::parse(&written).unwrap();
        assert_eq!(again.snapshot.to_bytes(&again.about, [7; 8]), written);
        true
    });
}

#[test]
fn a_model_is_refused_or_written_again_to_the_same_bytes() {
    fuzz("model", |input| {
        let Some((&kind, rest)) = input.split_first() else { return false };
        let bytes = if kind & 1 == 0 { rest.to_vec() } else { model(rest) };
        let Ok(read) = parse_model(Path::new(PATH), &bytes) else { return false };
        let written = model_bytes(&read);
        let again = parse_model(Path::new(PATH), &written).unwrap();
        assert_eq!(model_bytes(&again), written);
        true
    });
}

/// A count, then the two words of the coder's state, then the message.
#[test]
fn coded_integers_are_refused_or_encoded_again_to_the_same() {
    const MOST: usize = 31;
    let mut all = [Dither::NONE; MOST];
    Dither::fill(&mut CommonRandomness::new(&Seed::reproducible(1)).words(Purpose::Dither, 0, 0), &mut all);
    fuzz("integers", |input| {
        let Some((&[count], rest)) = input.split_first_chunk::<1>() else { return false };
        let Some((energy, rest)) = rest.split_first_chunk::<8>() else { return false };
        let Some((seen, message)) = rest.split_first_chunk::<8>() else { return false };
        let dithers = &all[..usize::from(count) & MOST];
        let coder = IntegerCoder::from_state([u64::from_le_bytes(*energy), u64::from_le_bytes(*seen)]);
        let mut integers = vec![0; dithers.len()];
        let mut reader = coder.clone();
        if reader.decode(message, dithers, &mut integers).is_err() {
            return false;
        }
        let (mut writer, mut bytes) = (coder.clone(), Vec::new());
        writer.encode(&integers, dithers, &mut bytes);
        assert_eq!(writer, reader);
        let (mut again, mut reader) = (vec![0; integers.len()], coder);
        reader.decode(&bytes, dithers, &mut again).unwrap();
        assert_eq!(integers, again);
        true
    });
}

#[test]
fn fields_of_a_handshake_are_refused_or_written_again_to_the_same() {
    fuzz("handshake", |message| {
        let Some(fields) = handshake::decode(message) else { return false };
        let written: Vec<u8> =
            fields.iter().flat_map(|(name, value)| [name, value]).flat_map(|text| handshake::encode(text)).collect();
        assert_eq!(handshake::decode(&written).unwrap(), fields);
        true
    });
}

/// As it is, and with its checksum made right: the first byte says which, and how many control words there are.
#[test]
fn a_frame_is_refused_or_sealed_again_to_the_same() {
    fuzz("frame", |input| {
        let Some((&kind, framed)) = input.split_first() else { return false };
        let (words, sequence) = (usize::from(kind >> 2 & 3), u64::from(kind >> 4));
        let checked = kind & 1 == 1;
        let Ok(opened) = frame::open(sequence, words, framed, checked) else { return false };
        assert_eq!(opened.message.len() as u64 + opened.control_bytes + opened.frame_bytes, framed.len() as u64);
        let sealed = frame::seal(sequence, &opened.control, opened.message, checked);
        let again = frame::open(sequence, words, &sealed, checked).unwrap();
        assert_eq!((again.message, &again.control), (opened.message, &opened.control));
        // A message of this content, whatever it is, comes through.
        let own = frame::seal(sequence, &[i32::from(kind), -1], framed, true);
        assert_eq!(frame::open(sequence, 2, &own, true).unwrap().message, framed);
        true
    });
}
