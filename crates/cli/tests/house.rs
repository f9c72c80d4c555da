//! The shape of the command line's own code: modules import downwards, never in a circle.

use std::collections::{BTreeMap, BTreeSet};

/// The modules that each file of the command line names.
fn imports() -> BTreeMap<String, BTreeSet<String>> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    let mut open = vec![folder.clone()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { open.push(path) } else { files.push(path) }
        }
    }
    let rust = files.into_iter().filter(|path| path.extension().is_some_and(|ending| ending == "rs"));
    let module = |path: &std::path::Path| {
        let first = path.strip_prefix(&folder).unwrap().components().next().unwrap();
        first.as_os_str().to_string_lossy().trim_end_matches(".rs").to_owned()
    };
    let sources: Vec<(String, String)> =
        rust.map(|path| (module(&path), std::fs::read_to_string(&path).unwrap())).collect();
    let names: BTreeSet<String> = sources.iter().map(|(name, _)| name.clone()).collect();
    let mut imports: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, source) in &sources {
        let code = source.split("#[cfg(test)]").next().unwrap();
        let own = imports.entry(name.clone()).or_default();
        for part in code.split("crate::").skip(1) {
            let list = part.strip_prefix('{').map_or(part, |list| list.split('}').next().unwrap());
            let words =
                if part.starts_with('{') { list } else { list.split([':', ';', ' ', '(', ',']).next().unwrap() };
            let words = words.split(|c: char| !c.is_alphanumeric() && c != '_').map(str::to_owned);
            own.extend(words.filter(|word| names.contains(word) && word != name));
        }
    }
    imports
}

#[test]
fn no_module_imports_one_that_imports_it() {
    let imports = imports();
    assert!(imports["run"].contains("session") && imports["session"].contains("job"), "{imports:?}");
    // Whatever imports nothing that is left can be taken away; a circle cannot.
    let mut left = imports;
    while !left.is_empty() {
        let Some(free) =
            left.iter().find(|(_, uses)| uses.iter().all(|name| name == "main")).map(|(name, _)| name.clone())
        else {
            panic!("a circle among {left:?}");
        };
        left.remove(&free);
        left.values_mut().for_each(|uses| {
            uses.remove(&free);
        });
    }
}
