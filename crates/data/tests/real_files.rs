//! The real files that the readers were written for, where `COREWIRE_DATA` says they are.

use std::path::PathBuf;

use corewire_data::{DataSet, ReadOptions, Rows, digits, load};

fn real(name: &str, options: ReadOptions) -> Option<DataSet> {
    let Some(folder) = std::env::var_os("COREWIRE_DATA") else {
        println!("skipped: COREWIRE_DATA does not say where `{name}` is");
        return None;
    };
    // Where the folder is named, a file that is not in it is a failure.
    let set = load(&PathBuf::from(folder).join(name), &options);
    Some(set.unwrap_or_else(|error| panic!("COREWIRE_DATA is set, and {error}")))
}

fn counts(set: &DataSet) -> Vec<usize> {
    set.classes().iter().map(|class| set.labels.iter().filter(|label| *label == class).count()).collect()
}

#[test]
fn digits_are_bundled() {
    let set = digits();
    assert_eq!((set.rows(), set.dim()), (1797, 64));
    // The counts that scikit-learn's documentation and UCI give for this set.
    assert_eq!(counts(&set), [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]);
    assert_eq!(set.matrix.row(0).entries().map(|(_, v)| v).sum::<f64>(), 294.0);
}

#[test]
fn mnist_is_read_with_the_labels_beside_it() {
    let Some(train) = real("train-images-idx3-ubyte.gz", ReadOptions::default()) else { return };
    assert_eq!((train.rows(), train.dim()), (60000, 784));
    assert_eq!(train.labels[..5], [5.0, 0.0, 4.0, 1.0, 9.0]);
    assert!(matches!(train.matrix.storage(), Rows::Sparse { .. }));
    // 19.1 % of the pixels are not zero.
    assert_eq!(train.matrix.nonzeros(), 8994156);
    let options = ReadOptions { rows: Some(2000), ..Default::default() };
    let first = real("train-images-idx3-ubyte.gz", options).unwrap();
    assert_eq!(first, train.first_rows(2000));
    let test = real("t10k-images-idx3-ubyte.gz", ReadOptions::default()).unwrap();
    assert_eq!((test.rows(), test.dim(), counts(&test)[0]), (10000, 784, 980));
}

#[test]
fn covertype_is_read_from_xz_csv_with_a_header() {
    let Some(set) = real("covtype.csv.xz", ReadOptions::default()) else { return };
    assert_eq!((set.rows(), set.dim()), (581012, 54));
    // The counts of the UCI page.
    assert_eq!(counts(&set), [211840, 283301, 35754, 2747, 9493, 17367, 20510]);
}

#[test]
fn libsvm_files_are_read_whatever_their_labels_and_line_ends() {
    let Some(set) = real("a9a.gz", ReadOptions::default()) else { return };
    assert_eq!((set.rows(), set.dim(), counts(&set)), (32561, 123, vec![24720, 7841]));
    // The held-out file never uses the last column; the training set's dimension gives it one.
    let test = real("a9a.t.gz", ReadOptions { dim: Some(set.dim()), ..Default::default() }).unwrap();
    assert_eq!((test.rows(), test.dim()), (16281, 123));
    let mushrooms = real("mushrooms.gz", ReadOptions::default()).unwrap();
    assert_eq!((mushrooms.rows(), mushrooms.dim(), mushrooms.classes()), (8124, 112, vec![1.0, 2.0]));
    assert_eq!(mushrooms.binary().unwrap().classes(), [-1.0, 1.0]);
}
