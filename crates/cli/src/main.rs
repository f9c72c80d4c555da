//! The binary `corewire`.
fn main() {}
