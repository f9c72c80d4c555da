//! Comma-separated values: one row per line; columns of numbers or of words, one of them the label.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::path::Path;

use crate::error::shown;
use crate::table::{Cells, Column, ColumnRef, MISSING_WORD, Missing, Part, Role, Schema, Survey, Table};
use crate::{DataError, DataSet, ReadOptions, number, text};

/// Reads CSV text into numbers; `path` is only what errors and the data set are named after.
///
/// The separator (tab, comma or semicolon) is the first of these in the first line; a first line without a single
/// number is a header. Fields may stand in double quotes. Blank lines and comments (lines from `#`) are skipped. Words
/// become columns of zeros and ones, a column for each.
pub fn parse_csv(path: &Path, text: &[u8], options: &ReadOptions) -> Result<DataSet, DataError> {
    let table = parse_table(path, text, options)?;
    let schema = Survey::of(&table).schema(options.columns.missing);
    Ok(schema.encode(table)?.0)
}

/// A column with more words than this is refused unless somebody says that they are categories: it is rather a name.
const MOST_WORDS: usize = 1000;

/// Reads CSV text as columns.
pub fn parse_table(path: &Path, text: &[u8], options: &ReadOptions) -> Result<Table, DataError> {
    let mut lines = content_lines(text).peekable();
    let Some(&first) = lines.peek() else {
        return Err(DataError::file(path, "it has no rows"));
    };
    let FirstLine { line: first_line, separator, mut fields, names } = FirstLine::read(path, first, options.header)?;
    let wrong = |what: String| DataError::line(path, first_line, what);
    let (width, header) = (fields.len(), names.is_some());
    if header {
        lines.next();
    }
    let plan = match &options.schema {
        None => Plan::by_options(names, width, options),
        Some(schema) => Plan::by_schema(schema, names, width, options.unlabelled),
    };
    let Plan { mut builders, targets } = plan.map_err(wrong)?;
    let dim = builders.iter().filter(|builder| builder.column.part == Part::Feature).count();
    if let Some(asked) = options.dim.filter(|&asked| asked != dim) {
        return Err(wrong(format!("{dim} columns besides the label, but {asked} were asked for")));
    }
    if dim as u64 > options.column_limit() {
        return Err(wrong(format!("{dim} columns are beyond the limit of {}", options.max_dim)));
    }
    let mut rows = 0;
    for (line, content) in lines {
        if options.rows.is_some_and(|most| rows >= most) {
            break;
        }
        let wrong = |what: String| DataError::line(path, line, what);
        split(content, separator, &mut fields).map_err(|what| wrong(what.to_owned()))?;
        if fields.len() != width {
            return Err(wrong(format!("{} columns, but line {first_line} has {width}", fields.len())));
        }
        for (place, (field, target)) in fields.iter().zip(&targets).enumerate() {
            if let Some(target) = target {
                builders[*target].push(field, place + 1, options).map_err(wrong)?;
            }
        }
        rows += 1;
    }
    if rows == 0 && !options.allow_empty {
        return Err(DataError::file(path, "it has no rows"));
    }
    let columns = builders.into_iter().map(|builder| builder.column).collect();
    Ok(Table { name: crate::read::stem(path), header, rows, columns })
}

/// The first line of CSV text as the readers see it.
struct FirstLine<'a> {
    line: usize,
    separator: u8,
    fields: Vec<Cow<'a, [u8]>>,
    /// The names of the columns, where it has such.
    names: Option<Vec<String>>,
}

impl<'a> FirstLine<'a> {
    fn read(path: &Path, (line, content): (usize, &'a [u8]), header: Option<bool>) -> Result<Self, DataError> {
        let wrong = |what: String| DataError::line(path, line, what);
        let separator = [b'\t', b',', b';'].into_iter().find(|byte| content.contains(byte)).unwrap_or(b',');
        let mut fields = Vec::new();
        split(content, separator, &mut fields).map_err(|what| wrong(what.to_owned()))?;
        let header = header.unwrap_or_else(|| fields.iter().all(|name| number::parse(name).is_err()));
        let names = if header { Some(column_names(&fields).map_err(wrong)?) } else { None };
        Ok(Self { line, separator, fields, names })
    }
}

/// The lines of text that are neither blank nor comments.
fn content_lines(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    text::lines(text).filter(|(_, content)| !matches!(content.trim_ascii(), [] | [b'#', ..]))
}

/// The lines of a CSV file, to be cut into shards as they are.
pub struct CsvLines {
    text: Vec<u8>,
    header: Option<Range<usize>>,
    rows: Vec<Range<usize>>,
    /// A number for each row's label, the same for the same label.
    pub labels: Vec<f64>,
}

impl CsvLines {
    /// Finds the rows of CSV text and their labels.
    pub(crate) fn new(path: &Path, text: Vec<u8>, options: &ReadOptions) -> Result<Self, DataError> {
        let base = text.as_ptr() as usize;
        let range = |line: &[u8]| line.as_ptr() as usize - base..line.as_ptr() as usize - base + line.len();
        let mut lines = content_lines(&text).peekable();
        let Some(&first) = lines.peek() else { return Err(DataError::file(path, "it has no rows")) };
        let FirstLine { line, separator, mut fields, names } = FirstLine::read(path, first, options.header)?;
        let width = fields.len();
        let place = options.columns.label.as_ref().map_or(Ok(width - 1), |label| {
            label.find(names.as_deref(), width, "--label").map_err(|what| DataError::line(path, line, what))
        })?;
        let header = names.and_then(|_| lines.next()).map(|(_, line)| range(line));
        let (mut rows, mut words) = (Vec::new(), Vec::new());
        for (line, content) in lines {
            split(content, separator, &mut fields).map_err(|what| DataError::line(path, line, what))?;
            if fields.len() != width {
                return Err(DataError::line(
                    path,
                    line,
                    format!("{} columns, but the first line has {width}", fields.len()),
                ));
            }
            rows.push(range(content));
            words.push(fields[place].clone());
        }
        let numbers: Option<Vec<f64>> = words.iter().map(|word| number::parse(word).ok()).collect();
        let labels = numbers.unwrap_or_else(|| {
            let known: BTreeSet<&[u8]> = words.iter().map(|word| &word[..]).collect();
            let known: Vec<&[u8]> = known.into_iter().collect();
            words.iter().map(|word| known.binary_search(&&word[..]).unwrap_or(0) as f64).collect()
        });
        drop((words, fields));
        Ok(Self { header, rows, labels, text })
    }

    /// These rows as a file of their own, with the header.
    pub fn select(&self, rows: &[usize]) -> Vec<u8> {
        let lines = self.header.iter().chain(rows.iter().map(|&row| &self.rows[row]));
        lines.flat_map(|line| [&self.text[line.clone()], b"\n"].concat()).collect()
    }
}

fn column_names(fields: &[Cow<'_, [u8]>]) -> Result<Vec<String>, String> {
    let mut names: Vec<String> = Vec::with_capacity(fields.len());
    for field in fields {
        let name = String::from_utf8_lossy(field).into_owned();
        if !name.is_empty() && names.contains(&name) {
            return Err(format!(
                "two columns are called `{}`; rename one, or set `problem.header` to false if this line is a row",
                shown(field)
            ));
        }
        names.push(name);
    }
    Ok(names)
}

/// Where the fields of a line go.
struct Plan {
    builders: Vec<Builder>,
    /// The builder of each field; `None` for one that is not wanted.
    targets: Vec<Option<usize>>,
}

impl Plan {
    /// For rows to train on.
    fn by_options(names: Option<Vec<String>>, width: usize, options: &ReadOptions) -> Result<Self, String> {
        if width < 2 {
            return Err(
                "only one column, but a row needs a label and a value; separate columns by commas, semicolons or tabs"
                    .to_owned(),
            );
        }
        let asked = &options.columns;
        let find = |wanted: &ColumnRef, key: &str| wanted.find(names.as_deref(), width, key);
        let mut parts = vec![Part::Feature; width];
        for wanted in &asked.drop {
            parts[find(wanted, "problem.drop")?] = Part::Dropped;
        }
        if let Some(wanted) = &asked.weights {
            parts[find(wanted, "problem.weights")?] = Part::Weight;
        }
        let label = asked.label.as_ref().map_or(Ok(width - 1), |wanted| find(wanted, "problem.label"))?;
        if parts[label] != Part::Feature {
            let what = if parts[label] == Part::Dropped { "dropped" } else { "the weight of a row" };
            return Err(format!("column {} should be the label, but it is {what}; set `problem.label`", label + 1));
        }
        parts[label] = Part::Label;
        let mut categorical = vec![false; width];
        for wanted in &asked.categorical {
            categorical[find(wanted, "problem.categorical")?] = true;
        }
        if !parts.contains(&Part::Feature) {
            return Err("no column is left beside label, weights and what is dropped".to_owned());
        }
        let names = names.unwrap_or_else(|| (1..=width).map(|place| format!("x{place}")).collect());
        let builder = |((name, part), named): ((String, Part), bool)| Builder::new(name, part, named.then_some(true));
        let builders: Vec<Builder> = names.into_iter().zip(parts).zip(categorical).map(builder).collect();
        let targets = builders.iter().enumerate().map(|(i, b)| (b.column.part != Part::Dropped).then_some(i)).collect();
        Ok(Self { builders, targets })
    }

    /// For rows that a schema knows: by name where both have names, else by place; the label may be missing.
    fn by_schema(schema: &Schema, names: Option<Vec<String>>, width: usize, unlabelled: bool) -> Result<Self, String> {
        let builder = |(name, role): &(String, Role)| {
            let (part, words) = match role {
                Role::Dropped => (Part::Dropped, None),
                Role::Weight => (Part::Weight, Some(false)),
                Role::Label(words) => (Part::Label, Some(words.is_some())),
                Role::Number { .. } => (Part::Feature, Some(false)),
                Role::Category(_) => (Part::Feature, Some(true)),
            };
            Builder::new(name.clone(), part, words)
        };
        let mut builders: Vec<Builder> = schema.columns.iter().map(builder).collect();
        builders.iter_mut().for_each(|builder| builder.known = true);
        let needed = |part: Part| part == Part::Feature || (part == Part::Label && !unlabelled);
        let targets = match names.filter(|_| schema.header) {
            Some(names) => {
                let place = |builder: &Builder| names.iter().position(|name| *name == builder.column.name);
                let mut targets = vec![None; width];
                for (i, builder) in builders.iter().enumerate() {
                    match place(builder) {
                        Some(at) if builder.column.part != Part::Dropped => targets[at] = Some(i),
                        None if needed(builder.column.part) => {
                            return Err(format!("there is no column `{}`, which the model needs", builder.column.name));
                        }
                        _ => {}
                    }
                }
                targets
            }
            None => {
                let wanted = |labelled: bool| {
                    let there = |b: &Builder| labelled || b.column.part != Part::Label;
                    let places = builders.iter().enumerate().filter(|(_, builder)| there(builder));
                    places.map(|(i, b)| (b.column.part != Part::Dropped).then_some(i)).collect::<Vec<_>>()
                };
                let (all, few) = (wanted(true), wanted(false));
                if width == all.len() {
                    all
                } else if unlabelled && width == few.len() {
                    few
                } else {
                    return Err(format!("{width} columns, but the model's rows have {}", all.len()));
                }
            }
        };
        Ok(Self { builders, targets })
    }
}

/// A column that is being read.
struct Builder {
    column: Column,
    /// Whether its cells are words, where that is known from elsewhere.
    words: Option<bool>,
    /// Whether what it may hold is known, as it is to a model.
    known: bool,
    codes: HashMap<String, u32>,
}

impl Builder {
    fn new(name: String, part: Part, words: Option<bool>) -> Self {
        let cells = match words {
            Some(true) => Cells::Words { words: Vec::new(), codes: Vec::new() },
            _ => Cells::Numbers(Vec::new()),
        };
        Self { column: Column { name, part, cells }, words, known: false, codes: HashMap::new() }
    }

    fn push(&mut self, field: &[u8], place: usize, options: &ReadOptions) -> Result<(), String> {
        if is_missing(field) {
            return self.push_missing(place, options);
        }
        let wants_words = match (self.words, &self.column.cells) {
            (Some(words), _) => words,
            (None, Cells::Words { .. }) => true,
            (None, Cells::Numbers(_)) => false,
        };
        let parsed = number::parse(field);
        if wants_words {
            let mixed = self.words.is_none() && parsed.is_ok();
            return if mixed { Err(self.mixed(field, place, "a number")) } else { self.push_word(field, place) };
        }
        match (parsed, &mut self.column.cells) {
            (Ok(value), Cells::Numbers(values)) => {
                if self.column.part == Part::Weight && value < 0.0 {
                    return Err(format!("the weight {value} in column {place} is below 0"));
                }
                values.push(value);
                Ok(())
            }
            (Err(number::NotANumber::Malformed), Cells::Numbers(values))
                if self.words.is_none() && self.column.part != Part::Weight && is_word(field) =>
            {
                if values.iter().any(|value| !value.is_nan()) {
                    return Err(self.mixed(field, place, "a word"));
                }
                let codes = vec![MISSING_WORD; values.len()];
                self.column.cells = Cells::Words { words: Vec::new(), codes };
                self.push_word(field, place)
            }
            (Err(error), _) => {
                let hint = match (error, self.known) {
                    (number::NotANumber::Malformed, false) => {
                        "; name the column in `problem.categorical` if it holds categories"
                    }
                    _ => "",
                };
                Err(format!("`{}` in column {place} {}{hint}", shown(field), error.words()))
            }
            (Ok(_), Cells::Words { .. }) => unreachable!("a column of words was met above"),
        }
    }

    fn mixed(&self, field: &[u8], place: usize, what: &str) -> String {
        let (name, field) = (shown(self.column.name.as_bytes()), shown(field));
        let other = if what == "a word" { "numbers" } else { "words" };
        format!(
            "`{field}` in column {place} (`{name}`) is {what} among {other}; mend it, or name the column in `problem.categorical`"
        )
    }

    fn push_word(&mut self, field: &[u8], place: usize) -> Result<(), String> {
        let word = std::str::from_utf8(field)
            .map_err(|_| format!("`{}` in column {place} is not UTF-8 text", shown(field)))?;
        let Cells::Words { words, codes } = &mut self.column.cells else { unreachable!("this is a column of words") };
        let code = match self.codes.get(word) {
            Some(&code) => code,
            None => {
                let code = words.len() as u32;
                if self.words.is_none() && words.len() >= MOST_WORDS {
                    return Err(format!(
                        "column {place} (`{}`) has more than {MOST_WORDS} different words; leave it out with `problem.drop`, or \
                         name it in `problem.categorical`",
                        shown(self.column.name.as_bytes())
                    ));
                }
                words.push(word.to_owned());
                self.codes.insert(word.to_owned(), code);
                code
            }
        };
        codes.push(code);
        Ok(())
    }

    fn push_missing(&mut self, place: usize, options: &ReadOptions) -> Result<(), String> {
        let missing = options.schema.as_ref().map_or(options.columns.missing, |schema| schema.missing);
        match self.column.part {
            Part::Label if !options.unlabelled => {
                return Err(format!("the label in column {place} is missing; fill it in or remove the row"));
            }
            Part::Weight => return Err(format!("the weight in column {place} is missing; fill it in")),
            Part::Feature if missing == Missing::Error => {
                let hint = if self.known {
                    "the model was trained on rows without such"
                } else {
                    "fill it in, remove the row, or set `problem.missing` to \"mean\" or \"indicator\""
                };
                return Err(format!("the value in column {place} is missing; {hint}"));
            }
            _ => {}
        }
        match &mut self.column.cells {
            Cells::Numbers(values) => values.push(f64::NAN),
            Cells::Words { codes, .. } => codes.push(MISSING_WORD),
        }
        Ok(())
    }
}

/// What stands for a cell without a value.
fn is_missing(field: &[u8]) -> bool {
    matches!(field, b"" | b"?" | b"NA" | b"N/A" | b"n/a" | b"nan" | b"NaN" | b"NAN" | b"null" | b"NULL" | b"None")
}

/// Whether this is a word, and not a number that is written in another way, as `1,5`, `1_000`, `0x1p3` or `2024-01-31`. What is no text
/// is refused as such later.
fn is_word(field: &[u8]) -> bool {
    std::str::from_utf8(field).map_or(true, |text| {
        let number_like = text.starts_with(|first: char| first.is_numeric() || "+-.$".contains(first));
        !number_like && text.contains(char::is_alphabetic)
    })
}

/// The fields of a line, without blanks around them. A field in quotes may contain the separator, and a quote twice.
fn split<'a>(line: &'a [u8], separator: u8, fields: &mut Vec<Cow<'a, [u8]>>) -> Result<(), &'static str> {
    fields.clear();
    if !line.contains(&b'"') {
        fields.extend(line.split(|&byte| byte == separator).map(|field| Cow::Borrowed(field.trim_ascii())));
        return Ok(());
    }
    let mut rest = Some(line);
    while let Some(line) = rest {
        let blank = |byte: &u8| *byte != separator && byte.is_ascii_whitespace();
        let line = &line[line.iter().take_while(|byte| blank(byte)).count()..];
        if let [b'"', inner @ ..] = line {
            let (field, after) = quoted(inner).ok_or("a quote is opened and not closed; a field ends on its line")?;
            let end = after.iter().position(|&byte| byte == separator);
            if !after[..end.unwrap_or(after.len())].trim_ascii().is_empty() {
                return Err("something follows a closing quote; double the quotes within a field");
            }
            fields.push(field);
            rest = end.map(|end| &after[end + 1..]);
        } else {
            let end = line.iter().position(|&byte| byte == separator);
            fields.push(Cow::Borrowed(line[..end.unwrap_or(line.len())].trim_ascii()));
            rest = end.map(|end| &line[end + 1..]);
        }
    }
    Ok(())
}

/// What stands before the closing quote, and what comes after it.
fn quoted(text: &[u8]) -> Option<(Cow<'_, [u8]>, &[u8])> {
    let mut doubled = false;
    let mut at = 0;
    loop {
        at += text[at..].iter().position(|&byte| byte == b'"')?;
        if text.get(at + 1) != Some(&b'"') {
            break;
        }
        doubled = true;
        at += 2;
    }
    let field = text[..at].trim_ascii();
    let after = &text[at + 1..];
    if !doubled {
        return Some((Cow::Borrowed(field), after));
    }
    let mut single = Vec::with_capacity(field.len());
    let mut bytes = field.iter();
    while let Some(&byte) = bytes.next() {
        single.push(byte);
        if byte == b'"' {
            bytes.next();
        }
    }
    Some((Cow::Owned(single), after))
}
