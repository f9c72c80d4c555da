//! What real files look like, and every one of them is accepted.

use std::path::Path;

use corewire_data::{ColumnOptions, ColumnRef, DataSet, Matrix, ReadOptions, load, parse_csv, parse_idx, parse_libsvm};

fn libsvm(text: &str) -> DataSet {
    parse_libsvm(Path::new("set"), text.as_bytes(), &ReadOptions::default()).unwrap()
}

fn csv(text: &str) -> DataSet {
    parse_csv(Path::new("set"), text.as_bytes(), &ReadOptions::default()).unwrap()
}

fn set(values: &[f64], dim: usize, labels: &[f64]) -> DataSet {
    DataSet::new("set", Matrix::dense(values.to_vec(), dim).compact(), labels.to_vec())
}

#[test]
fn libsvm_is_accepted_with_any_labels_line_ends_blanks_and_comments() {
    let expected = set(&[1.0, 2.0, 3.0, 0.0], 2, &[1.0, -1.0]);
    for text in [
        "1 1:1 2:2\n-1 1:3\n",
        "1 1:1 2:2\n-1 1:3",
        "+1 1:1 2:2 \r\n-1 1:3 \r\n",
        "\n\n1\t1:1.0\t2:2e0\n\n-1   1:+3   # last\n\n",
        "# by hand\n1 1:1 2:2 # 3:4\n-1.0 1:3 2:0\n",
        "\u{feff}1 1:1 2:2\n-1 1:3\n",
        "1 01:1 +2:2\n-1 1:3\n",
    ] {
        assert_eq!(libsvm(text), expected, "{text:?}");
    }
    assert_eq!(libsvm("0 1:1\n1 1:1\n").classes(), [0.0, 1.0]);
    assert_eq!(libsvm("1 1:1\n2 1:1\n").classes(), [1.0, 2.0]);
    // Rows of zeros are a label alone.
    assert_eq!(libsvm("1\n2 3:1\n").rows(), 2);
}

#[test]
fn libsvm_that_counts_from_zero_is_accepted_when_told() {
    let options = ReadOptions { zero_based: true, ..Default::default() };
    let found = parse_libsvm(Path::new("set"), b"1 0:1 1:2\n-1 0:3\n", &options).unwrap();
    assert_eq!(found, libsvm("1 1:1 2:2\n-1 1:3\n"));
}

#[test]
fn csv_is_accepted_with_or_without_header_and_with_any_separator() {
    let expected = set(&[1.0, 2.0, 3.0, 4.0], 2, &[5.0, 6.0]);
    for text in [
        "1,2,5\n3,4,6\n",
        "1;2;5\r\n3;4;6\r\n",
        "1\t2\t5\n3\t4\t6",
        "a,b,y\n1,2,5\n3,4,6\n",
        "\"a\",\"b, with a comma\",\"y\"\n\"1\", 2 ,5\n3,4,\"6\"\n",
        "\u{feff}a,b,y\n\n1,2,5\n# note\n3,4,6\n\n",
    ] {
        assert_eq!(csv(text), expected, "{text:?}");
    }
}

#[test]
fn the_label_of_csv_may_stand_anywhere_and_a_header_of_numbers_be_announced() {
    let read = |text: &str, options| parse_csv(Path::new("set"), text.as_bytes(), &options).unwrap();
    let expected = set(&[1.0, 2.0, 3.0, 4.0], 2, &[5.0, 6.0]);
    let at = |place| {
        let columns = ColumnOptions { label: Some(ColumnRef::Place(place)), ..Default::default() };
        ReadOptions { columns, ..Default::default() }
    };
    assert_eq!(read("5,1,2\n6,3,4\n", at(1)), expected);
    assert_eq!(read("1,5,2\n3,6,4\n", at(2)), expected);
    let header = ReadOptions { header: Some(true), ..Default::default() };
    assert_eq!(read("0,1,y\n1,2,5\n3,4,6\n", header), expected);
}

#[test]
fn words_are_classes_and_columns_of_zeros_and_ones() {
    assert_eq!(csv("a,b,y\n1,2,setosa\n3,4,rosa\n"), set(&[1.0, 2.0, 3.0, 4.0], 2, &[1.0, 0.0]));
    assert_eq!(csv("1,\"x, y\",0\n3,z,1\n"), set(&[1.0, 1.0, 0.0, 3.0, 0.0, 1.0], 3, &[0.0, 1.0]));
}

#[test]
fn rows_without_labels_are_accepted_when_told() {
    let folder = tempfile::tempdir().unwrap();
    let options = ReadOptions { unlabelled: true, ..Default::default() };
    let images = folder.path().join("t-images-idx3-ubyte");
    let libsvm = folder.path().join("t.libsvm");
    std::fs::write(&libsvm, "1:2 2:3\n1 2:5\n").unwrap();
    std::fs::write(&images, [0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 2, 3, 0, 5]).unwrap();
    for (path, labels) in [(&libsvm, [0.0, 1.0]), (&images, [0.0, 0.0])] {
        let found = load(path, &options).unwrap();
        assert_eq!((found.matrix, found.labels), (set(&[2.0, 3.0, 0.0, 5.0], 2, &labels).matrix, labels.to_vec()));
        assert!(load(path, &ReadOptions::default()).is_err());
    }
}

#[test]
fn every_type_of_idx_is_accepted() {
    let labels = [0, 0, 8, 1, 0, 0, 0, 2, 5, 6];
    let header = |kind: u8| vec![0, 0, kind, 2, 0, 0, 0, 2, 0, 0, 0, 1];
    let values: [(u8, Vec<u8>); 6] = [
        (0x08, vec![1, 2]),
        (0x09, vec![1, 2]),
        (0x0b, [1i16, 2].iter().flat_map(|v| v.to_be_bytes()).collect()),
        (0x0c, [1i32, 2].iter().flat_map(|v| v.to_be_bytes()).collect()),
        (0x0d, [1f32, 2.0].iter().flat_map(|v| v.to_be_bytes()).collect()),
        (0x0e, [1f64, 2.0].iter().flat_map(|v| v.to_be_bytes()).collect()),
    ];
    for (kind, values) in values {
        let samples = [header(kind), values].concat();
        let path = Path::new("set");
        let found = parse_idx(path, &samples, path, &labels, &ReadOptions::default()).unwrap();
        assert_eq!(found, set(&[1.0, 2.0], 1, &[5.0, 6.0]), "type {kind:#x}");
    }
}

#[test]
fn the_first_rows_can_be_read_alone_and_the_dimension_be_required() {
    let options = ReadOptions { rows: Some(1), ..Default::default() };
    let path = Path::new("set");
    assert_eq!(parse_libsvm(path, b"1 1:1\nbroken\n", &options).unwrap().rows(), 1);
    assert_eq!(parse_csv(path, b"1,2\nbroken\n", &options).unwrap().rows(), 1);
    let options = ReadOptions { dim: Some(3), ..Default::default() };
    assert_eq!(parse_libsvm(path, b"1 1:1\n", &options).unwrap().dim(), 3);
    let message = parse_libsvm(path, b"1 4:1\n", &options).unwrap_err().to_string();
    assert!(message.contains("index 4 is beyond the 3 columns that were asked for"), "{message}");
    let message = parse_csv(path, b"1,2,3\n", &options).unwrap_err().to_string();
    assert!(message.contains("2 columns besides the label, but 3 were asked for"), "{message}");
}

#[test]
fn an_empty_shard_is_accepted_when_told() {
    let folder = tempfile::tempdir().unwrap();
    let options = ReadOptions { dim: Some(3), allow_empty: true, ..Default::default() };
    for (name, text) in [("a.libsvm", ""), ("b", "\n"), ("c.csv", "x1,x2,x3,label\n")] {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        let shard = load(&path, &options).unwrap();
        assert_eq!((shard.rows(), shard.dim()), (0, 3), "{text:?}");
        assert!(load(&path, &ReadOptions::default()).is_err(), "{text:?}");
    }
}

#[test]
fn a_small_compressed_file_cannot_grow_to_gigabytes() {
    use std::io::Write;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bomb.csv");
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let chunk = b"0,0\n".repeat(1 << 18);
    (0..80).for_each(|_| gzip.write_all(&chunk).unwrap());
    let bomb = gzip.finish().unwrap();
    // 80 MiB in less than one.
    assert!(bomb.len() < 1 << 20, "{}", bomb.len());
    std::fs::write(&path, bomb).unwrap();
    let options = ReadOptions { max_expansion: 64, ..Default::default() };
    let message = load(&path, &options).unwrap_err().to_string();
    assert!(
        message.contains("more than 67108864 bytes when decompressed (gzip); decompress it first if that is right"),
        "{message}"
    );
}

#[test]
fn the_contents_decide_the_format_where_the_name_does_not() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [("a", "1 1:2\n"), ("b", "2,1\n"), ("c.dat", "1\n1 1:2\n"), ("d.t", "a;y\n2;1\n")] {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        assert_eq!(load(&path, &ReadOptions::default()).unwrap().dim(), 1, "{text:?}");
    }
    let message = load(&folder.path().join("absent"), &ReadOptions::default()).unwrap_err().to_string();
    assert!(message.contains("absent"), "{message}");
}

#[test]
fn a_few_bytes_that_name_a_far_column_cost_a_few_bytes() {
    // One entry in one of 2^26 columns; stored sparse, whatever the dimension.
    let far = libsvm("1 67108864:1\n");
    assert_eq!((far.dim(), far.matrix.nonzeros()), (1 << 26, 1));
    assert!(matches!(far.matrix.storage(), corewire_data::Rows::Sparse { .. }));
}

#[test]
fn labels_become_classes_signs_and_parities() {
    let digits = set(&[1.0, 2.0, 3.0, 4.0], 1, &[3.0, 0.0, 2.0, 3.0]);
    assert_eq!(digits.classes(), [0.0, 2.0, 3.0]);
    assert_eq!(digits.class_indices(&digits.classes()).unwrap(), [2, 0, 1, 2]);
    assert_eq!(digits.clone().parity().unwrap().labels, [-1.0, 1.0, 1.0, -1.0]);
    let two = digits.select_classes(&[0.0], &[3.0]).unwrap();
    assert_eq!(two, set(&[1.0, 2.0, 4.0], 1, &[1.0, -1.0, 1.0]));
    assert_eq!(digits.keep_classes(&[7.0], &[3.0]), set(&[1.0, 4.0], 1, &[1.0, 1.0]));
    assert_eq!(digits.clone().first_rows(2), set(&[1.0, 2.0], 1, &[3.0, 0.0]));
    for message in [
        digits.clone().binary().unwrap_err().to_string(),
        digits.select_classes(&[1.0], &[3.0]).unwrap_err().to_string(),
        digits.select_classes(&[3.0], &[3.0]).unwrap_err().to_string(),
        digits.class_indices(&[0.0, 2.0]).unwrap_err().to_string(),
        set(&[1.0], 1, &[0.5]).parity().unwrap_err().to_string(),
    ] {
        assert!(message.starts_with("data set `set`: "), "{message}");
    }
}
