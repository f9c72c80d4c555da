//! The bytes of every codec for one vector, pinned: machines of different builds must understand each other. A change here is a
//! change of the wire format and is announced as such.

use corewire_compress::{Address, catalogue};
use corewire_sketch::{CommonRandomness, Purpose, Seed};

/// Fowler, Noll and Vo's hash, 64 bits, variant 1a.
fn hash(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[test]
fn messages_and_decoded_vectors_have_the_pinned_bits() {
    let randomness = CommonRandomness::new(&Seed::reproducible(7));
    let mut words = randomness.words(Purpose::Synthetic, 0, 0);
    let vector: Vec<f64> = (0..100).map(|_| words.next_dither()).collect();
    let mut found = Vec::new();
    for mut entry in catalogue(100, &randomness) {
        let (mut messages, mut decoded) = (Vec::new(), Vec::new());
        let (mut message, mut out) = (Vec::new(), vec![0.0; 100]);
        // Two rounds, so that a state shows.
        for round in 0..2 {
            let address = Address::new(round, 3).with_stream(1);
            entry.codec.encode(address, &vector, &mut message);
            entry.codec.decode(address, &message, &mut out).unwrap();
            messages.extend_from_slice(&message);
            decoded.extend(out.iter().flat_map(|x| x.to_bits().to_le_bytes()));
        }
        found.push((format!("{}: {}", entry.codec.name(), entry.parameters), hash(messages), hash(decoded)));
    }
    let found: Vec<(&str, u64, u64)> = found.iter().map(|(name, a, b)| (name.as_str(), *a, *b)).collect();
    assert_eq!(found, PINNED);
}

const PINNED: &[(&str, u64, u64)] = &[
    ("dense: ", 0xda5c7bc2beec5dc1, 0x7b29c698f9e7fadd),
    ("dense-f64: ", 0x3d47ee32139090cd, 0x3d47ee32139090cd),
    ("bf16: ", 0x399737032386a8f5, 0xdff667f5d90a04bd),
    ("int8: ", 0x2220163e0ea57949, 0x135d85e7c6f32341),
    ("topk: k = 2", 0xb3082bcf26c9243d, 0x429b5ca4d1ba0bb5),
    ("randk: k = 2", 0xbb01a35fba25e73c, 0x810060c21cc0636e),
    ("randk-common: k = 2", 0x816cdae3e0cc9cc7, 0x6de1f37f76ccc01c),
    ("randk: k = 2, scaled", 0xbb01a35fba25e73c, 0xd016e7be413e2bb3),
    ("dropping: drop = 0.98", 0x483a90be425ab825, 0xba43e1f2ddcdb6b5),
    ("dropping: drop = 0.98, sample = 64", 0x002b31cea9ce257b, 0x03671c45e7088357),
    ("qsgd: levels = 1, bucket = d", 0x8dbea2a3dafacd64, 0x13a6d3b7f2d9b198),
    ("qsgd: levels = sqrt(d), bucket = d", 0x42edaf88ea4c5e6c, 0xb88291829b19e495),
    ("qsgd-max: levels = 7, bucket = 512", 0xbe2b72249c2f3ede, 0x32a00f6fbfc72675),
    ("qsgd-max: levels = 7, bucket = 512, feedback, gain = 0.2, decay = 0.9", 0x0c57ea781ee6564c, 0xe7b404c59248ebfd),
    ("terngrad: clip = 2.5", 0x9426732dc367b22a, 0x5676c31f3d0a7e0e),
    ("terngrad-unclipped: ", 0x9426732dc367b22a, 0x5676c31f3d0a7e0e),
    ("signsgd: ", 0x39e77423837ee015, 0xcaf83849514b96a5),
    ("sign-mean: ", 0xa5b6faa537763f55, 0xd37bb63f7bfdcf25),
    ("sign-mean: feedback", 0x136090f4bb1ece68, 0x0b231769be255665),
    ("onebit: column = 512", 0x6724be861bb535b3, 0x4d2a96e39e4552a5),
    ("natural: ", 0x198f846ae54abfec, 0x1cb8b68ff89bb2c5),
    ("drive: unbiased", 0x2a21c2dcbbe1675e, 0xf479d2dcb570dfdc),
    ("drive: least error", 0x9bb8bf8514abfca5, 0x3a5b3c098da141f1),
    ("eden: bits = 0.25", 0x03b2a98ecab7e732, 0x4e408eb69928f964),
    ("eden: bits = 0.25, least error", 0xcbfe88ecef8a6753, 0x0cf636523bf87be8),
    ("eden: bits = 2", 0x803f0e658707ec1c, 0x1ec44ed70bdf6ecd),
    ("eden: bits = 2.5, least error", 0x73264ce0b3d08484, 0x2c2cebff14249d25),
    ("eden: bits = 4", 0x7f1c834b23c72bc6, 0x835220951db5373d),
    ("atomo: atoms = 2", 0x830d65462e75ea50, 0x772de8427fa43328),
    ("sketchml: buckets = 256", 0x95a5e6ade6d8341d, 0x7b29c698f9e7fadd),
    ("alq: bits = 3, bucket = 512", 0x1ca54229bd6348a0, 0xa76d3db2a78de285),
];
