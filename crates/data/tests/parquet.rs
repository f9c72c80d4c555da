//! Parquet files read as the CSV that they stand for.
#![cfg(feature = "parquet")]

use std::path::Path;
use std::sync::Arc;

use corewire_data::{Cells, ColumnRef, Missing, Raw, ReadOptions, Table, load, read};
use parquet::basic::Compression;
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

const SCHEMA: &str = "message rows {
    optional double height; required int32 age; required boolean member; optional binary town (UTF8);
    required binary zip (UTF8); required int32 born (DATE); required int64 label;
}";

/// Rows of all kinds, `groups` times over.
fn write(path: &Path, compression: Compression, groups: usize) {
    let schema = Arc::new(parse_message_type(SCHEMA).unwrap());
    let properties = Arc::new(WriterProperties::builder().set_compression(compression).build());
    let mut writer = SerializedFileWriter::new(std::fs::File::create(path).unwrap(), schema, properties).unwrap();
    let text = |words: &[&str]| words.iter().map(|word| ByteArray::from(*word)).collect::<Vec<_>>();
    for _ in 0..groups {
        let mut group = writer.next_row_group().unwrap();
        let mut place = 0;
        while let Some(mut column) = group.next_column().unwrap() {
            match (column.untyped(), place) {
                (ColumnWriter::DoubleColumnWriter(column), _) => {
                    column.write_batch(&[1.5, 0.1], Some(&[1, 0, 1]), None)
                }
                (ColumnWriter::Int32ColumnWriter(column), 1) => column.write_batch(&[30, -4, 7], None, None),
                (ColumnWriter::BoolColumnWriter(column), _) => column.write_batch(&[true, false, true], None, None),
                (ColumnWriter::ByteArrayColumnWriter(column), 3) => {
                    column.write_batch(&text(&["a \"b\", c", "d\ne"]), Some(&[1, 1, 0]), None)
                }
                (ColumnWriter::ByteArrayColumnWriter(column), _) => {
                    column.write_batch(&text(&["01234", "5", "01234"]), None, None)
                }
                (ColumnWriter::Int32ColumnWriter(column), _) => column.write_batch(&[19_000, 1, 2], None, None),
                (ColumnWriter::Int64ColumnWriter(column), _) => column.write_batch(&[1, 0, 1], None, None),
                _ => unreachable!("no such column"),
            }
            .unwrap();
            column.close().unwrap();
            place += 1;
        }
        group.close().unwrap();
    }
    writer.close().unwrap();
}

fn options() -> ReadOptions {
    let mut options = ReadOptions::default();
    options.columns.missing = Missing::Mean;
    options.columns.drop = vec![ColumnRef::Name("born".to_owned())];
    options
}

fn table(path: &Path, options: &ReadOptions) -> Table {
    match read(path, options).unwrap() {
        Raw::Table(table) => table,
        Raw::Rows(..) => panic!("columns"),
    }
}

#[test]
fn columns_of_every_type_are_those_of_csv() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.parquet");
    let csv = folder.path().join("rows.csv");
    std::fs::write(&csv, "height,age,member,town,zip,born,label\n1.5,30,1,\"a \"\"b\"\", c\",01234,x,1\n,-4,0,d e,5,x,0\n0.1,7,1,,01234,x,1\n").unwrap();
    let mut as_csv = options();
    as_csv.columns.categorical = vec![ColumnRef::Name("zip".to_owned())];
    let expected = table(&csv, &as_csv);
    for compression in
        [Compression::UNCOMPRESSED, Compression::SNAPPY, Compression::GZIP(Default::default()), Compression::LZ4_RAW]
    {
        write(&path, compression, 1);
        let found = table(&path, &options());
        for (a, b) in found.columns.iter().zip(&expected.columns) {
            match (&a.cells, &b.cells) {
                (Cells::Numbers(a), Cells::Numbers(b)) => {
                    assert!(a.iter().map(|v| v.to_bits()).eq(b.iter().map(|v| v.to_bits())), "{a:?} {b:?}");
                }
                (a, b) => assert_eq!(a, b),
            }
            assert_eq!((&a.name, a.part), (&b.name, b.part));
        }
    }
    // A date is no number; a label may stand anywhere; only the first rows are read.
    let mut whole = options();
    whole.columns.missing = Missing::Error;
    let refused = load(&path, &whole).unwrap_err().to_string();
    assert!(refused.contains("the value in column 1 is missing"), "{refused}");
    let mut dated = options();
    dated.columns.drop.clear();
    let refused = load(&path, &dated).unwrap_err().to_string();
    assert!(refused.contains("`19000 INT32` in column 6") && refused.contains("problem.categorical"), "{refused}");
    write(&path, Compression::SNAPPY, 700);
    let mut other = ReadOptions { rows: Some(1500), ..options() };
    other.columns.label = Some(ColumnRef::Name("town".to_owned()));
    let refused = load(&path, &other).unwrap_err().to_string();
    assert!(refused.contains("the label in column 4 is missing"), "{refused}");
    other.columns.label = Some(ColumnRef::Name("member".to_owned()));
    assert_eq!(load(&path, &other).unwrap().rows(), 1500);
}

#[test]
fn damaged_and_oversized_files_are_refused_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let (path, bad) = (folder.path().join("rows.parquet"), folder.path().join("bad.parquet"));
    write(&path, Compression::SNAPPY, 2);
    let whole = std::fs::read(&path).unwrap();
    let small = ReadOptions { max_bytes: whole.len() as u64, ..options() };
    write(&bad, Compression::SNAPPY, 400);
    assert!(load(&bad, &small).is_err());
    let narrow = ReadOptions { max_dim: 3, ..options() };
    assert!(load(&path, &narrow).unwrap_err().to_string().contains("7 columns are beyond the limit of 3"));
    // Whatever byte is wrong or missing: an error in words, or other numbers, but no panic and no endless work.
    for cut in (4..whole.len()).step_by(7) {
        std::fs::write(&bad, &whole[..cut]).unwrap();
        assert!(load(&bad, &options()).is_err(), "cut at {cut}");
    }
    for place in 4..whole.len() {
        for flip in [0x01, 0x80, 0xff] {
            let mut bytes = whole.clone();
            bytes[place] ^= flip;
            std::fs::write(&bad, &bytes).unwrap();
            let _ = load(&bad, &options());
        }
    }
}
