//! The page of codecs shows what the example prints.

#[allow(dead_code)]
#[path = "../examples/table.rs"]
mod table;

#[test]
fn the_page_shows_the_table_that_the_example_prints() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/codecs.md");
    let page = std::fs::read_to_string(page).expect("docs/codecs.md is read");
    let printed = table::table();
    assert!(page.contains(&printed), "docs/codecs.md should have this table:\n{printed}");
}
