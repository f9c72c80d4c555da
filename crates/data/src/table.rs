//! Columns of a file before they are numbers: cells of numbers or words, some of them missing; what all machines must know of
//! them (a [`Survey`], which can be merged), and how they become the columns of a matrix (a [`Schema`], which a model keeps).

use std::collections::BTreeSet;
use std::io::{Read, Write};

use serde::{Deserialize, Serialize};

use crate::{DataError, DataSet, Matrix};

/// A column of a file.
#[derive(Clone, Debug, PartialEq)]
pub enum ColumnRef {
    /// By the name in the header.
    Name(String),
    /// By its place, counted from 1.
    Place(usize),
}

impl ColumnRef {
    /// Its place, counted from 0; `key` is who asks.
    pub(crate) fn find(&self, names: Option<&[String]>, width: usize, key: &str) -> Result<usize, String> {
        match (self, names) {
            (Self::Place(place), _) if (1..=width).contains(place) => Ok(place - 1),
            (Self::Place(place), _) => Err(format!("`{key}` is column {place}, but there are {width} columns")),
            (Self::Name(name), Some(names)) => names.iter().position(|other| other == name).ok_or_else(|| {
                let names: Vec<&str> = names.iter().take(20).map(String::as_str).collect();
                format!("`{key}` is `{name}`, which no column is called; there is {}", names.join(", "))
            }),
            (Self::Name(name), None) => {
                Err(format!("`{key}` is `{name}`, but the first line has no names; give its place, counted from 1"))
            }
        }
    }
}

/// What becomes of cells without a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Missing {
    /// They are refused.
    #[default]
    Error,
    /// They get the mean of the column; in a column of words they are a word of their own.
    Mean,
    /// The same, and a column of zeros and ones says where.
    Indicator,
}

/// What is asked of the columns of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ColumnOptions {
    /// The label; the last column without a word.
    pub label: Option<ColumnRef>,
    /// How much a row weighs.
    pub weights: Option<ColumnRef>,
    /// Columns that are not read.
    pub drop: Vec<ColumnRef>,
    /// Columns whose cells are words whatever they look like.
    pub categorical: Vec<ColumnRef>,
    /// Cells without a value.
    pub missing: Missing,
}

/// What a column is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// To learn from.
    Feature,
    /// To learn.
    Label,
    /// How much a row counts.
    Weight,
    /// Nothing.
    Dropped,
}

/// The code of a missing word.
pub(crate) const MISSING_WORD: u32 = u32::MAX;

/// The cells of a column, one per row; none of a column that was not read.
#[derive(Clone, Debug, PartialEq)]
pub enum Cells {
    /// Numbers; NaN is missing.
    Numbers(Vec<f64>),
    /// Places in a list of words.
    Words {
        /// The words as they came.
        words: Vec<String>,
        /// Their places.
        codes: Vec<u32>,
    },
}

impl Cells {
    fn select(&self, rows: &[usize]) -> Self {
        match self {
            Self::Numbers(values) if values.is_empty() => Self::Numbers(Vec::new()),
            Self::Numbers(values) => Self::Numbers(rows.iter().map(|&i| values[i]).collect()),
            Self::Words { words, codes } => {
                let codes: Vec<u32> = match codes.is_empty() {
                    true => Vec::new(),
                    false => rows.iter().map(|&i| codes[i]).collect(),
                };
                Self::Words { words: words.clone(), codes }
            }
        }
    }
}

/// A column.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub part: Part,
    /// What is in it.
    pub cells: Cells,
}

/// The rows of a file by columns.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// What it is called in messages.
    pub name: String,
    /// Whether the file names its columns.
    pub header: bool,
    /// How many rows.
    pub rows: usize,
    /// The columns, in the file's order.
    pub columns: Vec<Column>,
}

impl Table {
    /// These rows, in that order.
    pub fn select(&self, rows: &[usize]) -> Self {
        let column = |column: &Column| Column { cells: column.cells.select(rows), ..column.clone() };
        let columns = self.columns.iter().map(column).collect();
        Self { name: self.name.clone(), header: self.header, rows: rows.len(), columns }
    }

    /// How many columns there are to learn from.
    pub fn features(&self) -> usize {
        self.columns.iter().filter(|column| column.part == Part::Feature).count()
    }
}

/// What a machine tells of one column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct ColumnSurvey {
    #[serde(rename = "n")]
    name: String,
    #[serde(rename = "p")]
    part: Part,
    /// How many cells have a value, and the mean of those that are numbers.
    #[serde(rename = "c")]
    present: u64,
    #[serde(rename = "m", default, skip_serializing_if = "Option::is_none")]
    mean: Option<f64>,
    #[serde(rename = "g", default, skip_serializing_if = "is_zero")]
    missing: u64,
    /// The words that occur, where it is a column of words.
    #[serde(rename = "w", default, skip_serializing_if = "Option::is_none")]
    words: Option<BTreeSet<String>>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// What a machine tells of its columns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Survey {
    header: bool,
    columns: Vec<ColumnSurvey>,
}

impl Survey {
    /// Of these rows.
    pub fn of(table: &Table) -> Self {
        let survey = |column: &Column| {
            let (present, missing, mean, words) = match &column.cells {
                Cells::Numbers(values) => {
                    let there: Vec<f64> = values.iter().copied().filter(|value| !value.is_nan()).collect();
                    let missing = values.len() - there.len();
                    // Divided first: a sum of large numbers would leave the range of a float.
                    let mean = there.iter().map(|value| value / there.len() as f64).sum();
                    (there.len(), missing, (column.part == Part::Feature).then_some(mean), None)
                }
                Cells::Words { words, codes } => {
                    let there: BTreeSet<u32> = codes.iter().copied().filter(|&code| code != MISSING_WORD).collect();
                    let missing = codes.iter().filter(|&&code| code == MISSING_WORD).count();
                    let words = there.iter().map(|&code| words[code as usize].clone()).collect();
                    (codes.len() - missing, missing, None, Some(words))
                }
            };
            let (name, part) = (column.name.clone(), column.part);
            ColumnSurvey { name, part, present: present as u64, mean, missing: missing as u64, words }
        };
        Self { header: table.header, columns: table.columns.iter().map(survey).collect() }
    }

    /// Both together; why not, where they do not fit.
    pub fn merge(&mut self, other: &Self) -> Result<(), String> {
        if self.columns.len() != other.columns.len() {
            let (own, there) = (other.columns.len(), self.columns.len());
            return Err(format!("its rows have {own} columns, and there are {there} elsewhere"));
        }
        for (place, (mine, theirs)) in self.columns.iter_mut().zip(&other.columns).enumerate() {
            if mine.name != theirs.name {
                let (own, there) = (&theirs.name, &mine.name);
                return Err(format!("its column {} is called `{own}`, and elsewhere `{there}`", place + 1));
            }
            if mine.present > 0 && theirs.present > 0 && mine.words.is_some() != theirs.words.is_some() {
                let kind = |words: bool| if words { "words" } else { "numbers" };
                let (own, there) = (kind(theirs.words.is_some()), kind(mine.words.is_some()));
                return Err(format!(
                    "its column `{}` has {own} where others have {there}; mend it, or name it in `problem.categorical`",
                    mine.name
                ));
            }
            let (a, b) = (mine.present as f64, theirs.present as f64);
            if let (Some(mean), Some(other)) = (mine.mean, theirs.mean)
                && a + b > 0.0
            {
                mine.mean = Some(mean * (a / (a + b)) + other * (b / (a + b)));
            }
            // Who has no value in the column does not know what it holds.
            match (&mut mine.words, &theirs.words) {
                (Some(words), Some(others)) => words.extend(others.iter().cloned()),
                (words @ None, Some(others)) if mine.present == 0 => {
                    *words = Some(others.clone());
                    mine.mean = None;
                }
                (words @ Some(_), None) if mine.present == 0 && theirs.present > 0 => {
                    *words = None;
                    mine.mean = theirs.mean;
                }
                _ => {}
            }
            mine.present += theirs.present;
            mine.missing += theirs.missing;
        }
        Ok(())
    }

    /// How the columns become numbers.
    pub fn schema(&self, missing: Missing) -> Schema {
        let role = |column: &ColumnSurvey| {
            let words = || -> Option<Vec<String>> {
                let words = column.words.as_ref()?;
                // A missing word is a word, and the first.
                let empty = (column.missing > 0 && column.part == Part::Feature).then(String::new);
                Some(empty.into_iter().chain(words.iter().cloned()).collect())
            };
            let role = match column.part {
                Part::Dropped => Role::Dropped,
                Part::Weight => Role::Weight,
                Part::Label => Role::Label(words()),
                Part::Feature => match words() {
                    Some(words) => Role::Category(words),
                    None => Role::Number {
                        fill: column.mean.filter(|_| missing != Missing::Error),
                        indicator: missing == Missing::Indicator && column.missing > 0,
                    },
                },
            };
            (column.name.clone(), role)
        };
        Schema { header: self.header, missing, columns: self.columns.iter().map(role).collect() }
    }

    /// How many columns there are to learn from, before words become columns.
    pub fn features(&self) -> usize {
        self.columns.iter().filter(|column| column.part == Part::Feature).count()
    }

    /// As bytes that travel.
    pub fn to_bytes(&self) -> Vec<u8> {
        pack(self)
    }

    /// From such bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        unpack(bytes)
    }
}

/// What a column becomes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Nothing.
    Dropped,
    /// The weight of a row.
    Weight,
    /// The label; its words, where it has such.
    Label(Option<Vec<String>>),
    /// A column of numbers.
    Number {
        /// What a missing cell gets.
        fill: Option<f64>,
        /// Whether another column says where cells are missing.
        indicator: bool,
    },
    /// A column of zeros and ones for each of these words.
    Category(Vec<String>),
}

impl Role {
    fn width(&self) -> usize {
        match self {
            Self::Dropped | Self::Weight | Self::Label(_) => 0,
            Self::Number { indicator, .. } => 1 + usize::from(*indicator),
            Self::Category(words) => words.len(),
        }
    }
}

/// How the columns of a file become those of a matrix.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schema {
    /// Whether columns have names.
    pub header: bool,
    /// What becomes of cells without a value.
    pub missing: Missing,
    /// Names and roles, in the file's order.
    pub columns: Vec<(String, Role)>,
}

/// Words that no row of training had: how many cells, and the first of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Unknown {
    /// How many cells.
    pub cells: usize,
    /// Column and word of the first.
    pub first: Option<(String, String)>,
}

/// Up to so many columns a table's columns are stored and centred like dense ones, whatever zeros they have.
const MOST_CENTRED: usize = 4096;

impl Schema {
    /// How many columns the matrix has.
    pub fn dim(&self) -> usize {
        self.columns.iter().map(|(_, role)| role.width()).sum()
    }

    /// Whether columns of words are many, so that zeros should stay zeros.
    pub fn keeps_zeros(&self) -> bool {
        self.dim() > MOST_CENTRED
    }

    /// The names of the matrix's columns.
    pub fn feature_names(&self) -> Vec<String> {
        let names = |(name, role): &(String, Role)| match role {
            Role::Dropped | Role::Weight | Role::Label(_) => Vec::new(),
            Role::Number { indicator: false, .. } => vec![name.clone()],
            Role::Number { indicator: true, .. } => vec![name.clone(), format!("{name} is missing")],
            Role::Category(words) => words.iter().map(|word| format!("{name}={word}")).collect(),
        };
        self.columns.iter().flat_map(names).collect()
    }

    /// The words of the label, where it has such: a label is then a place in this list.
    pub fn label_words(&self) -> Option<&[String]> {
        self.columns.iter().find_map(|(_, role)| match role {
            Role::Label(words) => words.as_deref(),
            _ => None,
        })
    }

    /// The rows as numbers, and the words among them that it does not know.
    ///
    /// # Panics
    /// If the table was not read for this schema.
    pub fn encode(&self, table: Table) -> Result<(DataSet, Unknown), DataError> {
        let (rows, dim) = (table.rows, self.dim());
        let complain = |what: String| DataError::Labels { name: table.name.clone(), what };
        if dim == 0 {
            return Err(complain("no column has a value to learn from".to_owned()));
        }
        let (mut labels, mut weights, mut unknown) = (vec![0.0; rows], Vec::new(), Unknown::default());
        let mut values = vec![0.0; if self.keeps_zeros() { 0 } else { rows * dim }];
        // Sparse rows are filled column by column, so that columns ascend within a row.
        let mut entries: Vec<Vec<(u32, f64)>> = vec![Vec::new(); if self.keeps_zeros() { rows } else { 0 }];
        let mut put = |row: usize, column: usize, value: f64| match entries.get_mut(row) {
            Some(entries) if value != 0.0 => entries.push((column as u32, value)),
            Some(_) => {}
            None => values[row * dim + column] = value,
        };
        let mut at = 0;
        for (column, (name, role)) in table.columns.iter().zip(&self.columns) {
            match (role, &column.cells) {
                (Role::Number { fill, indicator }, Cells::Numbers(cells)) => {
                    for (row, &cell) in cells.iter().enumerate() {
                        put(row, at, if cell.is_nan() { fill.unwrap_or(0.0) } else { cell });
                        if *indicator && cell.is_nan() {
                            put(row, at + 1, 1.0);
                        }
                    }
                }
                (Role::Number { fill, indicator }, Cells::Words { codes, .. }) => {
                    // Only where all of its cells are missing does a machine not know that others have numbers.
                    for row in 0..codes.len() {
                        put(row, at, fill.unwrap_or(0.0));
                        if *indicator {
                            put(row, at + 1, 1.0);
                        }
                    }
                }
                (Role::Category(known), cells) => {
                    let place = |word: &str| known.binary_search_by(|other| other.as_str().cmp(word)).ok();
                    let (words, codes) = match cells {
                        Cells::Words { words, codes } => (&words[..], codes.clone()),
                        Cells::Numbers(cells) => (&[][..], vec![MISSING_WORD; cells.len()]),
                    };
                    let places: Vec<Option<usize>> = words.iter().map(|word| place(word)).collect();
                    for (row, code) in codes.into_iter().enumerate() {
                        let (found, word) = match code {
                            MISSING_WORD => (place(""), ""),
                            code => (places[code as usize], words[code as usize].as_str()),
                        };
                        match found {
                            Some(found) => put(row, at + found, 1.0),
                            None => {
                                unknown.cells += 1;
                                unknown.first.get_or_insert_with(|| (name.clone(), word.to_owned()));
                            }
                        }
                    }
                }
                (Role::Label(None), Cells::Numbers(cells)) if !cells.is_empty() => {
                    labels = cells.iter().map(|cell| if cell.is_nan() { 0.0 } else { *cell }).collect();
                }
                (Role::Label(Some(known)), Cells::Words { words, codes }) if !codes.is_empty() => {
                    let place = |&code: &u32| match words.get(code as usize) {
                        None => Ok(0.0),
                        Some(word) => known.binary_search(word).map(|place| place as f64).map_err(|_| {
                            complain(format!("label `{word}` is not a known class; known is {}", known.join(", ")))
                        }),
                    };
                    labels = codes.iter().map(place).collect::<Result<_, _>>()?;
                }
                (Role::Weight, Cells::Numbers(cells)) => weights.clone_from(cells),
                _ => {}
            }
            at += role.width();
        }
        let matrix = match self.keeps_zeros() {
            true => {
                let mut offsets = vec![0];
                offsets.extend(entries.iter().scan(0, |sum, row| {
                    *sum += row.len();
                    Some(*sum)
                }));
                let (indices, values) = entries.into_iter().flatten().unzip();
                Matrix::sparse(offsets, indices, values, dim)
            }
            false => Matrix::dense(values, dim),
        };
        Ok((DataSet { weights, ..DataSet::new(table.name, matrix.compact(), labels) }, unknown))
    }

    /// What becomes of the columns, in a line.
    pub fn describe(&self) -> String {
        let listed = |wanted: &dyn Fn(&Role) -> Option<String>| -> Vec<String> {
            let found = self.columns.iter().filter_map(|(name, role)| Some(name.clone() + &wanted(role)?));
            found.collect()
        };
        let numbers = listed(&|role| matches!(role, Role::Number { .. }).then(String::new)).len();
        let words = listed(&|role| match role {
            Role::Category(words) => Some(format!(" ({})", words.len())),
            _ => None,
        });
        let marked = listed(&|role| matches!(role, Role::Number { indicator: true, .. }).then(String::new));
        let dropped = listed(&|role| (*role == Role::Dropped).then(String::new));
        let label = listed(&|role| matches!(role, Role::Label(_)).then(String::new));
        let mut parts = vec![format!("{numbers} of numbers")];
        if !words.is_empty() {
            parts.push(format!("{} of words: {}", words.len(), shortened(&words)));
        }
        match self.missing {
            Missing::Error => {}
            Missing::Mean => parts.push("missing cells get the mean".to_owned()),
            Missing::Indicator if marked.is_empty() => parts.push("no cell of a number is missing".to_owned()),
            Missing::Indicator => {
                parts.push(format!("missing cells get the mean and are marked: {}", shortened(&marked)));
            }
        }
        if !dropped.is_empty() {
            parts.push(format!("dropped: {}", shortened(&dropped)));
        }
        format!("columns: {}; label {}", parts.join("; "), label.join(", "))
    }

    /// As bytes that travel.
    pub fn to_bytes(&self) -> Vec<u8> {
        pack(self)
    }

    /// From such bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        unpack(bytes)
    }
}

fn shortened(names: &[String]) -> String {
    const MOST: usize = 6;
    let more = names.len().saturating_sub(MOST);
    let shown = names.iter().take(MOST).map(String::as_str).collect::<Vec<_>>().join(", ");
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}

/// What others send may not unpack to more than this.
const MOST_UNPACKED: u64 = 1 << 28;

fn pack(value: &impl Serialize) -> Vec<u8> {
    let mut packed = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
    let text = serde_json::to_vec(value).expect("names, words and finite numbers are JSON");
    packed.write_all(&text).and_then(|()| packed.finish()).expect("memory does not refuse")
}

fn unpack<T: for<'a> Deserialize<'a>>(bytes: &[u8]) -> Option<T> {
    let mut text = Vec::new();
    flate2::read::DeflateDecoder::new(bytes).take(MOST_UNPACKED).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::ReadOptions;
    use crate::csv::parse_table;

    fn options(missing: Missing) -> ReadOptions {
        ReadOptions { columns: ColumnOptions { missing, ..Default::default() }, ..Default::default() }
    }

    fn table(text: &str, missing: Missing) -> Table {
        parse_table(Path::new("set"), text.as_bytes(), &options(missing)).unwrap()
    }

    fn dense(set: &DataSet) -> Vec<Vec<f64>> {
        set.matrix
            .iter()
            .map(|row| {
                row.entries().fold(vec![0.0; set.dim()], |mut all, (j, v)| {
                    all[j] = v;
                    all
                })
            })
            .collect()
    }

    const CHURN: &str = "age,plan,churn\n30,basic,no\n,gold,yes\n50,?,no\n";

    #[test]
    fn words_become_columns_and_missing_cells_means_and_marks() {
        let table = table(CHURN, Missing::Indicator);
        let schema = Survey::of(&table).schema(Missing::Indicator);
        assert_eq!(schema.feature_names(), ["age", "age is missing", "plan=", "plan=basic", "plan=gold"]);
        assert_eq!(schema.label_words().unwrap(), ["no", "yes"]);
        let (set, unknown) = schema.encode(table).unwrap();
        assert_eq!(dense(&set), [[30.0, 0.0, 0.0, 1.0, 0.0], [40.0, 1.0, 0.0, 0.0, 1.0], [50.0, 0.0, 1.0, 0.0, 0.0]]);
        assert_eq!((set.labels, unknown), (vec![0.0, 1.0, 0.0], Unknown::default()));
    }

    #[test]
    fn surveys_of_parts_merge_to_that_of_the_whole() {
        let whole = Survey::of(&table(CHURN, Missing::Mean)).schema(Missing::Mean);
        let mut merged = Survey::of(&table("age,plan,churn\n,?,no\n", Missing::Mean));
        for part in ["age,plan,churn\n30,basic,no\n", "age,plan,churn\n50,,no\n", "age,plan,churn\n,gold,yes\n"] {
            let survey = Survey::of(&table(part, Missing::Mean));
            merged.merge(&Survey::from_bytes(&survey.to_bytes()).unwrap()).unwrap();
        }
        assert_eq!(merged.schema(Missing::Mean), whole);
        assert_eq!(Schema::from_bytes(&whole.to_bytes()), Some(whole));
        let words = Survey::of(&table("age,plan,churn\nold,basic,no\n", Missing::Mean));
        let refusal = merged.clone().merge(&words).unwrap_err();
        assert!(refusal.starts_with("its column `age` has words where others have numbers"), "{refusal}");
        let other = Survey::of(&table("age,contract,churn\n1,basic,no\n", Missing::Mean));
        assert_eq!(merged.merge(&other).unwrap_err(), "its column 2 is called `contract`, and elsewhere `plan`");
    }

    #[test]
    fn rows_without_labels_in_another_order_and_with_new_words_are_read_by_the_schema() {
        let schema = Survey::of(&table(CHURN, Missing::Mean)).schema(Missing::Mean);
        let options = ReadOptions { schema: Some(schema.clone().into()), unlabelled: true, ..Default::default() };
        let text = "note,plan,age\nhello,silver,7\nthere,gold,\n";
        let rows = parse_table(Path::new("set"), text.as_bytes(), &options).unwrap();
        let (set, unknown) = schema.encode(rows).unwrap();
        assert_eq!(dense(&set), [[7.0, 0.0, 0.0, 0.0], [40.0, 0.0, 0.0, 1.0]]);
        assert_eq!(unknown, Unknown { cells: 1, first: Some(("plan".into(), "silver".into())) });
        // Without names the places count, with the label or without.
        let strict = parse_table(Path::new("set"), b"plan,age,churn\ngold,old,no\n", &options).unwrap_err().to_string();
        assert!(strict.contains("`old` in column 2 is not a number"), "{strict}");
        let absent = parse_table(Path::new("set"), b"plan,churn\ngold,no\n", &options).unwrap_err().to_string();
        assert!(absent.contains("there is no column `age`, which the model needs"), "{absent}");
    }

    #[test]
    fn what_could_be_meant_in_two_ways_is_refused() {
        for (text, part) in [
            ("a,b,y\n1,x,0\n2,3,1\n", "`3` in column 2 (`b`) is a number among words"),
            ("a,b,y\n1,3,0\n2,x,1\n", "`x` in column 2 (`b`) is a word among numbers"),
            ("a;b;y\n1,5;2;3\n", "`1,5` in column 1 is not a number; name the column in `problem.categorical`"),
            ("a,b,y\n2024-01-31,2,3\n", "`2024-01-31` in column 1 is not a number"),
            ("a,b,y\n1,,3\n", "the value in column 2 is missing; fill it in"),
            ("a,b,y\n1,2,?\n", "the label in column 3 is missing"),
            ("a,a,y\n1,2,3\n", "two columns are called `a`"),
            ("a,b,y\n\"1,2,3\n", "a quote is opened and not closed"),
            ("a,b,y\n\"1\"2,2,3\n", "something follows a closing quote"),
        ] {
            let found = parse_table(Path::new("set"), text.as_bytes(), &options(Missing::Error));
            let found = found.map(|_| "accepted".to_owned()).unwrap_or_else(|error| error.to_string());
            assert!(found.contains(part), "{text:?}\n  {found}\n  {part}");
        }
        let names: String = (0..1001).map(|i| format!("n{i}x,1\n")).collect();
        let found = parse_table(Path::new("set"), format!("a,y\n{names}").as_bytes(), &options(Missing::Error));
        assert!(found.unwrap_err().to_string().contains("more than 1000 different words"));
    }

    #[test]
    fn quotes_hold_separators_and_quotes() {
        let table = table("a,b,y\n\"x, y\", 1 ,0\n\"say \"\"x\"\"\",2,1\n", Missing::Error);
        let Cells::Words { words, .. } = &table.columns[0].cells else { panic!("words") };
        assert_eq!(words, &["x, y", "say \"x\""]);
    }

    #[test]
    fn columns_are_named_or_counted_and_a_declared_category_may_look_like_a_number() {
        let by = |columns: ColumnOptions, text: &str| {
            let options = ReadOptions { columns, ..Default::default() };
            parse_table(Path::new("set"), text.as_bytes(), &options)
        };
        let name = |name: &str| ColumnRef::Name(name.to_owned());
        let columns = ColumnOptions {
            label: Some(name("y")),
            weights: Some(ColumnRef::Place(4)),
            drop: vec![name("id")],
            categorical: vec![name("zip")],
            missing: Missing::Error,
        };
        let text = "id,y,zip,w\nq7,1,8001,2\nq8,0,3000,1\n";
        let table = by(columns.clone(), text).unwrap();
        let schema = Survey::of(&table).schema(Missing::Error);
        assert_eq!(schema.feature_names(), ["zip=3000", "zip=8001"]);
        let (set, _) = schema.encode(table).unwrap();
        assert_eq!((set.labels, set.weights), (vec![1.0, 0.0], vec![2.0, 1.0]));
        assert_eq!(schema.describe(), "columns: 0 of numbers; 1 of words: zip (2); dropped: id; label y");
        let absent = by(ColumnOptions { label: Some(name("z")), ..columns.clone() }, text).unwrap_err().to_string();
        assert!(
            absent.contains("`problem.label` is `z`, which no column is called; there is id, y, zip, w"),
            "{absent}"
        );
        let negative = by(columns, "id,y,zip,w\nq7,1,8001,-2\n").unwrap_err().to_string();
        assert!(negative.contains("the weight -2 in column 4 is below 0"), "{negative}");
    }
}
