//! The usual data sets that can be asked for by name, and where they lie.

/// A data set that can be fetched by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownSet {
    /// What it is called.
    pub name: &'static str,
    /// Rows of the training file.
    pub rows: usize,
    /// Columns.
    pub dim: usize,
    /// Classes.
    pub classes: usize,
    /// The files: the first is the one to load, the others are found from it or are held-out sets.
    pub files: &'static [RemoteFile],
}

/// One file of a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteFile {
    /// Its name, on the server and in the cache.
    pub name: &'static str,
    /// Where its folder is.
    pub folder: &'static str,
    /// The SHA-256 of its contents, where one is published; otherwise that of the first download is recorded and kept.
    pub sha256: Option<&'static str>,
}

impl RemoteFile {
    /// The address to fetch it from.
    pub fn url(&self) -> String {
        format!("{}/{}", self.folder, self.name)
    }
}

/// All sets that can be fetched, by name.
pub fn known_sets() -> &'static [KnownSet] {
    KNOWN
}

/// The set of this name.
pub fn known_set(name: &str) -> Option<&'static KnownSet> {
    KNOWN.iter().find(|set| set.name == name)
}

/// <https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary.html>
const BINARY: &str = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary";
/// <https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass.html>
const MULTICLASS: &str = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass";
/// The mirror that torchvision uses.
const MNIST: &str = "https://ossci-datasets.s3.amazonaws.com/mnist";

/// The LIBSVM site publishes no checksums.
const fn libsvm(folder: &'static str, name: &'static str) -> RemoteFile {
    RemoteFile { name, folder, sha256: None }
}

const fn mnist(name: &'static str, sha256: &'static str) -> RemoteFile {
    RemoteFile { name, folder: MNIST, sha256: Some(sha256) }
}

const KNOWN: &[KnownSet] = &[
    KnownSet {
        name: "a9a",
        rows: 32561,
        dim: 123,
        classes: 2,
        files: &[libsvm(BINARY, "a9a"), libsvm(BINARY, "a9a.t")],
    },
    KnownSet {
        name: "cifar10",
        rows: 50000,
        dim: 3072,
        classes: 10,
        files: &[libsvm(MULTICLASS, "cifar10.bz2"), libsvm(MULTICLASS, "cifar10.t.bz2")],
    },
    KnownSet {
        name: "covtype.binary",
        rows: 581012,
        dim: 54,
        classes: 2,
        files: &[libsvm(BINARY, "covtype.libsvm.binary.scale.bz2")],
    },
    KnownSet {
        name: "gisette",
        rows: 6000,
        dim: 5000,
        classes: 2,
        files: &[libsvm(BINARY, "gisette_scale.bz2"), libsvm(BINARY, "gisette_scale.t.bz2")],
    },
    KnownSet {
        name: "ijcnn1",
        rows: 49990,
        dim: 22,
        classes: 2,
        files: &[libsvm(BINARY, "ijcnn1.bz2"), libsvm(BINARY, "ijcnn1.t.bz2")],
    },
    KnownSet {
        name: "mnist",
        rows: 60000,
        dim: 784,
        classes: 10,
        files: &[
            mnist("train-images-idx3-ubyte.gz", "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
            mnist("train-labels-idx1-ubyte.gz", "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
            mnist("t10k-images-idx3-ubyte.gz", "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
            mnist("t10k-labels-idx1-ubyte.gz", "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
        ],
    },
    KnownSet { name: "mushrooms", rows: 8124, dim: 112, classes: 2, files: &[libsvm(BINARY, "mushrooms")] },
    KnownSet { name: "phishing", rows: 11055, dim: 68, classes: 2, files: &[libsvm(BINARY, "phishing")] },
    KnownSet {
        name: "rcv1.binary",
        rows: 20242,
        dim: 47236,
        classes: 2,
        files: &[libsvm(BINARY, "rcv1_train.binary.bz2"), libsvm(BINARY, "rcv1_test.binary.bz2")],
    },
    KnownSet { name: "real-sim", rows: 72309, dim: 20958, classes: 2, files: &[libsvm(BINARY, "real-sim.bz2")] },
    KnownSet {
        name: "w8a",
        rows: 49749,
        dim: 300,
        classes: 2,
        files: &[libsvm(BINARY, "w8a"), libsvm(BINARY, "w8a.t")],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_ascend_and_file_names_are_plain() {
        assert!(KNOWN.windows(2).all(|pair| pair[0].name < pair[1].name));
        for set in KNOWN {
            assert_eq!(known_set(set.name), Some(set));
            assert!(!set.files.is_empty());
            for file in set.files {
                // A name becomes a file in the cache folder, and nowhere else.
                assert!(file.name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b)), "{}", file.name);
                assert!(!file.name.starts_with('.'));
                assert!(file.url().starts_with("https://"));
                assert!(file.sha256.is_none_or(|sum| sum.len() == 64));
            }
        }
        assert_eq!(known_set("digits"), None);
    }
}
