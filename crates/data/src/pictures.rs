//! Pictures: the binary files of CIFAR-10 and CIFAR-100, and folders of them or of PNG and JPEG files, one folder for each class.

use std::path::{Path, PathBuf};

use crate::{DataError, DataSet, Matrix, Raw, ReadOptions, read};

/// Numbers of a picture of CIFAR: three planes of 32 by 32.
const PIXELS: usize = 3072;

/// How many bytes of labels stand before each picture: one in CIFAR-10, a coarse and a fine one in CIFAR-100. `None` where it is neither.
pub(crate) fn cifar_labels(path: &Path, bytes: &[u8]) -> Option<usize> {
    let ending = path.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    let named = read::without_compression(&ending).ends_with(".bin");
    (1..=2).find(|labels| named && !bytes.is_empty() && bytes.len().is_multiple_of(PIXELS + labels))
}

/// Reads the pictures of one file; the label is the last of those that stand before a picture.
pub(crate) fn parse_cifar(path: &Path, bytes: &[u8], options: &ReadOptions) -> Result<DataSet, DataError> {
    let Some(labels) = cifar_labels(path, bytes) else {
        let what = format!("{} bytes are no whole number of CIFAR's pictures, of 3073 or 3074 each", bytes.len());
        return Err(DataError::file(path, what));
    };
    let rows = bytes.chunks_exact(PIXELS + labels).take(options.rows.unwrap_or(usize::MAX));
    let (mut values, mut classes) = (Vec::with_capacity(bytes.len()), Vec::new());
    for row in rows {
        classes.push(f64::from(row[labels - 1]));
        values.extend(row[labels..].iter().map(|&pixel| f64::from(pixel)));
    }
    check_columns(path, PIXELS, options)?;
    Ok(DataSet::new(read::stem(path), Matrix::dense(values, PIXELS), classes))
}

fn check_columns(path: &Path, columns: usize, options: &ReadOptions) -> Result<(), DataError> {
    match options.dim {
        Some(asked) if asked != columns => {
            Err(DataError::file(path, format!("its pictures have {columns} numbers, but {asked} were asked for")))
        }
        _ => Ok(()),
    }
}

/// Reads a folder: CIFAR's training files within it, or its test files where they are asked for, or a folder of pictures for each class.
pub(crate) fn read_folder(folder: &Path, options: &ReadOptions) -> Result<Raw, DataError> {
    let entries = listed(folder)?;
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let kinds: &[&str] = if options.held_out { &["test"] } else { &["data_batch", "train"] };
    let batches: Vec<&PathBuf> = entries
        .iter()
        .filter(|path| name(path).ends_with(".bin") && kinds.iter().any(|kind| name(path).starts_with(kind)))
        .collect();
    if !batches.is_empty() {
        let (mut values, mut labels) = (Vec::new(), Vec::new());
        for path in batches {
            let left = options.rows.map(|rows| rows.saturating_sub(labels.len()));
            if left == Some(0) {
                break;
            }
            let part =
                parse_cifar(path, &read::read_file(path, options)?, &ReadOptions { rows: left, ..options.clone() })?;
            part.matrix.iter().for_each(|row| values.extend_from_slice(row.values()));
            labels.extend(part.labels);
        }
        return Ok(Raw::Rows(DataSet::new(read::stem(folder), Matrix::dense(values, PIXELS), labels), true));
    }
    let classes: Vec<PathBuf> = entries.into_iter().filter(|path| path.is_dir()).collect();
    if classes.is_empty() {
        let what = "a folder has to hold a folder of pictures for each class, or the .bin files of CIFAR";
        return Err(DataError::file(folder, what));
    }
    // As many of each class, where not all are wanted.
    let most = options.rows.map_or(usize::MAX, |rows| rows.div_ceil(classes.len()));
    let (mut values, mut labels, mut columns) = (Vec::new(), Vec::new(), None);
    for (class, folder) in classes.iter().enumerate() {
        for path in listed(folder)?.into_iter().filter(|path| path.is_file()).take(most) {
            let pixels = decode(&path)?;
            let expected = *columns.get_or_insert(pixels.len());
            if pixels.len() != expected {
                let what =
                    format!("it has {} numbers and those before it {expected}: all must be of one size", pixels.len());
                return Err(DataError::file(&path, what));
            }
            values.extend(pixels);
            labels.push(class as f64);
            let (needed, allowed) = (24 * values.len() as u64, options.max_memory);
            if needed > allowed {
                let what =
                    format!("its pictures need more than the {allowed} bytes that are allowed; raise `limits.memory`");
                return Err(DataError::file(folder, what));
            }
        }
    }
    let columns = columns.ok_or_else(|| DataError::file(folder, "its folders hold no picture"))?;
    check_columns(folder, columns, options)?;
    Ok(Raw::Rows(DataSet::new(read::stem(folder), Matrix::dense(values, columns), labels), true))
}

/// What is in a folder, by name.
fn listed(folder: &Path) -> Result<Vec<PathBuf>, DataError> {
    let io = |error| DataError::io(folder, error);
    let entries = std::fs::read_dir(folder).map_err(io)?;
    let mut paths = entries.map(|entry| Ok(entry.map_err(io)?.path())).collect::<Result<Vec<_>, DataError>>()?;
    paths.sort();
    Ok(paths)
}

/// The pixels of a PNG or JPEG file, one plane after the other: one for shades of grey, else three.
#[cfg(feature = "pictures")]
fn decode(path: &Path) -> Result<Vec<f64>, DataError> {
    let wrong = |error: image::ImageError| DataError::file(path, format!("no picture that can be read: {error}"));
    let reader = image::ImageReader::open(path).map_err(|error| DataError::io(path, error))?;
    let picture = reader.with_guessed_format().map_err(|error| DataError::io(path, error))?.decode().map_err(wrong)?;
    if !picture.color().has_color() {
        return Ok(picture.into_luma8().into_raw().into_iter().map(f64::from).collect());
    }
    let colours = picture.into_rgb8().into_raw();
    Ok((0..3).flat_map(|channel| colours.iter().skip(channel).step_by(3).map(|&pixel| f64::from(pixel))).collect())
}

#[cfg(not(feature = "pictures"))]
fn decode(path: &Path) -> Result<Vec<f64>, DataError> {
    let what = "to read PNG and JPEG, build corewire with `--features pictures`, or take the binary version of CIFAR";
    Err(DataError::file(path, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(label: &[u8], shade: u8) -> Vec<u8> {
        let mut bytes = label.to_vec();
        bytes.extend((0..PIXELS).map(|at| shade.wrapping_add(at as u8)));
        bytes
    }

    #[test]
    fn the_files_of_a_folder_are_read_in_order_and_the_fine_label_counts() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
        write("data_batch_1.bin", &[picture(&[3], 10), picture(&[7], 20)].concat());
        write("data_batch_2.bin", &picture(&[1], 30));
        write("test_batch.bin", &picture(&[9], 40));
        let Raw::Rows(set, true) = read::read(folder.path(), &ReadOptions::default()).unwrap() else { panic!("rows") };
        assert_eq!((set.labels.as_slice(), set.dim()), (&[3.0, 7.0, 1.0][..], PIXELS));
        assert_eq!(set.matrix.row(2).values()[..2], [30.0, 31.0]);
        let two = ReadOptions { rows: Some(2), ..ReadOptions::default() };
        assert_eq!(read::read(folder.path(), &two).unwrap().rows(), 2);
        write("fine.bin", &picture(&[4, 77], 0));
        let fine = read::load(&folder.path().join("fine.bin"), &ReadOptions::default()).unwrap();
        assert_eq!(fine.labels, [77.0]);
    }

    #[test]
    fn what_is_no_picture_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |path: &Path| read::read(path, &ReadOptions::default()).unwrap_err().to_string();
        assert!(refused(folder.path()).contains("a folder of pictures for each class"));
        std::fs::create_dir(folder.path().join("cats")).unwrap();
        assert!(refused(folder.path()).contains("hold no picture"));
        std::fs::write(folder.path().join("cats/one.png"), b"no picture").unwrap();
        let what = refused(folder.path());
        assert!(
            what.contains("one.png") && (what.contains("--features pictures") || what.contains("no picture that")),
            "{what}"
        );
        std::fs::write(folder.path().join("cut.bin"), vec![0; 4000]).unwrap();
        assert!(
            refused(&folder.path().join("cut.bin")).contains("binary file"),
            "{}",
            refused(&folder.path().join("cut.bin"))
        );
    }

    /// A PNG of two by two pixels in colours and one in grey, written by the library itself.
    #[cfg(feature = "pictures")]
    #[test]
    fn a_folder_for_each_class_becomes_planes_and_labels() {
        let folder = tempfile::tempdir().unwrap();
        for (class, shade) in [("ants", 10u8), ("bees", 200)] {
            std::fs::create_dir(folder.path().join(class)).unwrap();
            let pixels: Vec<u8> = (0..12).map(|at| shade + at).collect();
            let path = folder.path().join(class).join("a.png");
            image::save_buffer(path, &pixels, 2, 2, image::ExtendedColorType::Rgb8).unwrap();
        }
        let Raw::Rows(set, true) = read::read(folder.path(), &ReadOptions::default()).unwrap() else { panic!("rows") };
        assert_eq!((set.labels.as_slice(), set.dim()), (&[0.0, 1.0][..], 12));
        assert_eq!(
            set.matrix.row(0).values(),
            [10.0, 13.0, 16.0, 19.0, 11.0, 14.0, 17.0, 20.0, 12.0, 15.0, 18.0, 21.0]
        );
        let grey = folder.path().join("bees/b.png");
        image::save_buffer(grey, &[1, 2, 3, 4], 2, 2, image::ExtendedColorType::L8).unwrap();
        let what = read::read(folder.path(), &ReadOptions::default()).unwrap_err().to_string();
        assert!(what.contains("all must be of one size"), "{what}");
    }
}
