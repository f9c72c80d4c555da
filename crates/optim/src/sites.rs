//! What machines agree on whose rows stay where they are: the number of columns and rows, the words in them, the classes and their order,
//! the scaling of the features. Every machine tells of its own rows, machine 0 decides, and whoever does not fit is named before the
//! first round.

use corewire_comm::numbers::{self, Number, push_count, take_bytes, take_count};
use corewire_comm::{Collective, CommError, Reduction};
use corewire_data::{Missing, Moments, Scaling, Schema, Survey};

/// What a machine tells of its rows.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteFacts {
    /// How many.
    pub rows: u64,
    /// Columns; of a format that stores no zeros, the largest that was seen.
    pub columns: u64,
    /// Whether the number of columns is certain, as in CSV, and must be that of all others.
    pub fixed_columns: bool,
    /// Whether zeros are not stored.
    pub sparse: bool,
    /// The distinct labels, ascending, where they are classes.
    pub classes: Vec<f64>,
    /// A digest of the rows.
    pub digest: String,
    /// What is in the columns, where they have names or words.
    pub survey: Option<Survey>,
}

/// What all machines know afterwards.
#[derive(Clone, Debug, PartialEq)]
pub struct Agreed {
    /// Columns of every row.
    pub columns: usize,
    /// Rows on all machines.
    pub rows: usize,
    /// Whether zeros are not stored on any machine.
    pub sparse: bool,
    /// The classes of all machines, ascending.
    pub classes: Vec<f64>,
    /// How columns become numbers, where they have names or words.
    pub schema: Option<Schema>,
}

/// What the labels must be.
#[derive(Clone, Debug, PartialEq)]
pub enum ClassRule {
    /// Numbers: no classes are counted.
    Numbers,
    /// Two classes over all machines.
    Two,
    /// Any.
    Any,
}

/// More classes than this are refused: a target was taken for a class.
const MOST_CLASSES: usize = 10_000;

/// Agrees on what is common. A machine that could not read its rows says why, and all machines learn it.
///
/// Machine 0 also gets the digest of every machine's rows, in rank order; the others get none.
pub fn agree(
    comm: &mut dyn Collective,
    mine: Result<SiteFacts, String>,
    rule: &ClassRule,
    missing: Missing,
) -> Result<(Agreed, Vec<String>), CommError> {
    let mut digests = Vec::new();
    let message = match &mine {
        Ok(facts) => encode(facts),
        Err(why) => [&[0u8], why.as_bytes()].concat(),
    };
    let mut decide = |messages: &[&[u8]]| {
        let mut all = Vec::with_capacity(messages.len());
        for (rank, message) in messages.iter().enumerate() {
            if let [0, why @ ..] = message {
                return Err(CommError::refused(rank, String::from_utf8_lossy(why)));
            }
            let facts =
                decode(message).ok_or_else(|| CommError::refused(rank, "what it tells of its rows is not understood"));
            all.push(facts?);
        }
        digests = all.iter().map(|facts: &SiteFacts| facts.digest.clone()).collect();
        decide(&all, rule, missing).map(|agreed| encode_agreed(&agreed))
    };
    let reply = comm.exchange(&message, Reduction::Hub(&mut decide))?;
    let agreed = decode_agreed(&reply.message);
    let agreed = agreed.ok_or_else(|| CommError::refused(0, "its decision about the rows is not understood"))?;
    Ok((agreed, digests))
}

fn decide(all: &[SiteFacts], rule: &ClassRule, missing: Missing) -> Result<Agreed, CommError> {
    let fixed = all.iter().position(|facts| facts.fixed_columns && facts.rows > 0);
    let columns =
        fixed.map_or_else(|| all.iter().map(|facts| facts.columns).max().unwrap_or(0), |rank| all[rank].columns);
    for (rank, facts) in all.iter().enumerate().filter(|(_, facts)| facts.rows > 0) {
        if facts.columns > columns || (facts.fixed_columns && facts.columns != columns) {
            let other = fixed.unwrap_or(0);
            let what = format!("its rows have {} columns, those of machine {other} have {columns}", facts.columns);
            return Err(CommError::refused(rank, what));
        }
        let twin = all[..rank].iter().position(|other| other.rows > 0 && other.digest == facts.digest);
        if let Some(twin) = twin {
            let what = format!("its rows are those of machine {twin}: give every machine its own file");
            return Err(CommError::refused(rank, what));
        }
    }
    let rows: u64 = all.iter().map(|facts| facts.rows).sum();
    if rows == 0 {
        return Err(CommError::refused(0, "no machine has a row"));
    }
    if columns == 0 {
        return Err(CommError::refused(0, "no machine has a column"));
    }
    let schema = merge(all)?.map(|survey| survey.schema(missing));
    let mut classes: Vec<f64> = Vec::new();
    if let Some(words) = schema.as_ref().and_then(Schema::label_words) {
        if *rule == ClassRule::Two && words.len() > 2 {
            let what = format!("there are the classes {}: name two sides with `problem.classes`", words.join(", "));
            return Err(CommError::refused(0, what));
        }
        classes = (0..words.len()).map(|place| place as f64).collect();
    }
    for (rank, facts) in all.iter().enumerate() {
        for &class in &facts.classes {
            if classes.contains(&class) {
                continue;
            }
            let unknown = |what: String| Err(CommError::refused(rank, what));
            match rule {
                ClassRule::Two if classes.len() == 2 => {
                    let [a, b] = [classes[0], classes[1]];
                    return unknown(format!(
                        "its label {class} is a third class beside {a} and {b}: name two sides with `problem.classes`"
                    ));
                }
                _ => classes.push(class),
            }
            if classes.len() > MOST_CLASSES {
                return unknown(format!(
                    "with its labels there are more than {MOST_CLASSES} classes: is this a regression?"
                ));
            }
        }
    }
    if *rule == ClassRule::Two && classes.len() < 2 {
        return Err(CommError::refused(0, "all rows of all machines have one label, and the model needs two classes"));
    }
    classes.sort_by(f64::total_cmp);
    let sparse = match &schema {
        Some(schema) => schema.keeps_zeros(),
        None => all.iter().all(|facts| facts.sparse || facts.rows == 0),
    };
    let columns = schema.as_ref().map_or(columns as usize, Schema::dim);
    Ok(Agreed { columns, rows: rows as usize, sparse, classes, schema })
}

/// What is in the columns of all machines that have rows; `None` where no column has a name or a word.
fn merge(all: &[SiteFacts]) -> Result<Option<Survey>, CommError> {
    let mut merged: Option<Survey> = None;
    let mut without = None;
    for (rank, facts) in all.iter().enumerate().filter(|(_, facts)| facts.rows > 0) {
        match (&facts.survey, &mut merged) {
            (None, _) => without = Some(rank),
            (Some(survey), None) => merged = Some(survey.clone()),
            (Some(survey), Some(merged)) => merged.merge(survey).map_err(|what| CommError::refused(rank, what))?,
        }
    }
    match (merged.is_some(), without) {
        (true, Some(rank)) => Err(CommError::refused(rank, "its file is not CSV, and those of others are")),
        _ => Ok(merged),
    }
}

/// Adds up numbers over all machines.
pub fn add_up(comm: &mut dyn Collective, mine: &[f64]) -> Result<Vec<f64>, CommError> {
    let mut add = |messages: &[&[u8]]| {
        let mut sums = vec![0.0; mine.len()];
        for (rank, message) in messages.iter().enumerate() {
            if message.len() != 8 * sums.len() {
                return Err(CommError::refused(
                    rank,
                    format!("it sent {} bytes for {} sums", message.len(), sums.len()),
                ));
            }
            sums.iter_mut().zip(numbers::read::<f64>(message)).for_each(|(sum, value)| *sum += value);
        }
        Ok(numbers::to_bytes(&sums))
    };
    let reply = comm.exchange(&numbers::to_bytes(mine), Reduction::Hub(&mut add))?;
    let sums: Vec<f64> = numbers::read(&reply.message).collect();
    match sums.len() == mine.len() && sums.iter().all(|sum| sum.is_finite()) {
        true => Ok(sums),
        false => Err(CommError::refused(0, "its sums over the rows are not understood")),
    }
}

/// Agrees on means and deviations of all columns: 32-bit floats both ways.
pub fn agree_on_scaling(comm: &mut dyn Collective, mine: &Moments, sparse: bool) -> Result<Scaling, CommError> {
    let dim = mine.means.len();
    let mut message = Vec::with_capacity(8 + 8 * dim);
    mine.rows.push(&mut message);
    // Deviations and not sums of squares: those of large columns leave the range of 32 bits.
    let deviations: Vec<f64> = mine.squares.iter().map(|square| (square / mine.rows.max(1.0)).sqrt()).collect();
    numbers::push_floats(&mine.means, false, &mut message);
    numbers::push_floats(&deviations, false, &mut message);
    let mut merge = |messages: &[&[u8]]| {
        let mut all = Moments { rows: 0.0, means: vec![0.0; dim], squares: vec![0.0; dim] };
        for (rank, message) in messages.iter().enumerate() {
            if message.len() != 8 + 8 * dim {
                return Err(CommError::refused(rank, format!("it sent {} bytes for {dim} columns", message.len())));
            }
            let rows = f64::read(&message[..8]);
            let mut floats = numbers::read::<f32>(&message[8..]).map(f64::from);
            let means = floats.by_ref().take(dim).collect();
            let squares = floats.map(|deviation| deviation * deviation * rows).collect();
            all.merge(&Moments { rows, means, squares });
        }
        let Scaling { shifts, scales } = all.scaling(sparse);
        let mut reply = Vec::with_capacity(8 * dim);
        numbers::push_floats(&shifts, false, &mut reply);
        numbers::push_floats(&scales, false, &mut reply);
        Ok(reply)
    };
    let reply = comm.exchange(&message, Reduction::Hub(&mut merge))?;
    let mut numbers = vec![0.0; 2 * dim];
    if !numbers::read_floats(&reply.message, false, &mut numbers) || numbers[dim..].iter().any(|&scale| scale <= 0.0) {
        return Err(CommError::refused(0, "its scaling of the columns is not understood"));
    }
    let scales = numbers.split_off(dim);
    Ok(Scaling { shifts: numbers, scales })
}

fn encode(facts: &SiteFacts) -> Vec<u8> {
    let mut message = vec![1 + u8::from(facts.fixed_columns) + 2 * u8::from(facts.sparse)];
    push_count(facts.rows, &mut message);
    push_count(facts.columns, &mut message);
    push_count(facts.digest.len() as u64, &mut message);
    message.extend_from_slice(facts.digest.as_bytes());
    push_packed(facts.survey.as_ref().map(Survey::to_bytes), &mut message);
    numbers::push(&facts.classes, &mut message);
    message
}

/// Bytes after their length; none are a length of 0.
fn push_packed(bytes: Option<Vec<u8>>, message: &mut Vec<u8>) {
    let bytes = bytes.unwrap_or_default();
    push_count(bytes.len() as u64, message);
    message.extend_from_slice(&bytes);
}

/// What stands there, if anything does; `None` where it is not understood.
fn take_packed<T>(rest: &mut &[u8], read: impl FnOnce(&[u8]) -> Option<T>) -> Option<Option<T>> {
    let length = take_count(rest)?;
    let bytes = take_bytes(rest, length)?;
    if bytes.is_empty() { Some(None) } else { read(bytes).map(Some) }
}

fn decode(message: &[u8]) -> Option<SiteFacts> {
    let (&flags, mut rest) = message.split_first()?;
    let flags = flags.checked_sub(1)?;
    let (rows, columns, length) = (take_count(&mut rest)?, take_count(&mut rest)?, take_count(&mut rest)?);
    let digest = String::from_utf8(take_bytes(&mut rest, length)?.to_vec()).ok()?;
    let survey = take_packed(&mut rest, Survey::from_bytes)?;
    let classes = (rest.len() % 8 == 0).then(|| numbers::read(rest).collect())?;
    Some(SiteFacts { rows, columns, fixed_columns: flags & 1 == 1, sparse: flags & 2 == 2, classes, digest, survey })
}

fn encode_agreed(agreed: &Agreed) -> Vec<u8> {
    let mut message = vec![u8::from(agreed.sparse)];
    push_count(agreed.columns as u64, &mut message);
    push_count(agreed.rows as u64, &mut message);
    push_packed(agreed.schema.as_ref().map(Schema::to_bytes), &mut message);
    numbers::push(&agreed.classes, &mut message);
    message
}

fn decode_agreed(message: &[u8]) -> Option<Agreed> {
    let (&sparse, mut rest) = message.split_first()?;
    let mut count = || usize::try_from(take_count(&mut rest)?).ok();
    let (columns, rows) = (count()?, count()?);
    let schema = take_packed(&mut rest, Schema::from_bytes)?;
    let classes = (rest.len() % 8 == 0).then(|| numbers::read(rest).collect())?;
    Some(Agreed { columns, rows, sparse: sparse == 1, classes, schema })
}

#[cfg(test)]
mod tests {
    use super::*;
    use corewire_comm::group;
    use corewire_data::Matrix;

    fn facts(rank: usize) -> SiteFacts {
        SiteFacts {
            rows: 10 + rank as u64,
            columns: 4,
            fixed_columns: true,
            sparse: false,
            classes: vec![-1.0, 1.0],
            digest: format!("rows of {rank}"),
            survey: None,
        }
    }

    fn refusal(rule: &ClassRule, change: impl Fn(usize, &mut SiteFacts) -> Option<String> + Sync) -> String {
        let results = group::run(4, |machine| {
            let mut mine = facts(machine.rank());
            let failed = change(machine.rank(), &mut mine);
            agree(machine, failed.map_or(Ok(mine), Err), rule, Missing::Error)
        });
        let errors: Vec<String> = results.into_iter().map(|result| result.unwrap_err().to_string()).collect();
        assert!(errors.iter().all(|error| *error == errors[0]), "all machines learn the same");
        errors[0].clone()
    }

    #[test]
    fn machines_agree_on_columns_rows_and_classes() {
        for result in group::run(4, |machine| {
            let mut mine = facts(machine.rank());
            mine.fixed_columns = false;
            mine.columns = 3 + machine.rank() as u64 % 2;
            mine.classes = vec![[2.0, 1.0, 2.0, 1.0][machine.rank()]];
            agree(machine, Ok(mine), &ClassRule::Two, Missing::Error)
        }) {
            assert_eq!(
                result.unwrap().0,
                Agreed { columns: 4, rows: 46, sparse: false, classes: vec![1.0, 2.0], schema: None }
            );
        }
    }

    #[test]
    fn whoever_does_not_fit_is_named() {
        let two = ClassRule::Two;
        let missing = refusal(&two, |rank, _| (rank == 2).then(|| "cannot read shards/2.csv: no such file".to_owned()));
        assert_eq!(missing, "machine 2: cannot read shards/2.csv: no such file");
        let doubled = refusal(&two, |rank, facts| {
            if rank == 3 {
                facts.digest = "rows of 1".to_owned();
            }
            None
        });
        assert_eq!(doubled, "machine 3: its rows are those of machine 1: give every machine its own file");
        let wider = refusal(&two, |rank, facts| {
            facts.columns += u64::from(rank == 1);
            None
        });
        assert_eq!(wider, "machine 1: its rows have 5 columns, those of machine 0 have 4");
        let third = refusal(&two, |rank, facts| {
            facts.classes.extend((rank == 2).then_some(3.0));
            None
        });
        assert!(third.starts_with("machine 2: its label 3 is a third class beside -1 and 1"), "{third}");
        let empty = refusal(&two, |_, facts| {
            facts.rows = 0;
            None
        });
        assert_eq!(empty, "machine 0: no machine has a row");
    }

    #[test]
    fn words_means_and_classes_are_those_of_all_machines() {
        let table = |rank: usize| {
            let rows = ["30,basic,no", ",gold,yes", "50,,no", "40,basic,yes"][rank];
            let columns = corewire_data::ColumnOptions { missing: Missing::Indicator, ..Default::default() };
            let options = corewire_data::ReadOptions { columns, ..Default::default() };
            let text = format!("age,plan,churn\n{rows}\n");
            corewire_data::parse_table(std::path::Path::new("set"), text.as_bytes(), &options).unwrap()
        };
        let agreed = |rule: ClassRule| {
            group::run(4, |machine| {
                let mut mine = SiteFacts { columns: 2, classes: Vec::new(), ..facts(machine.rank()) };
                mine.survey = Some(Survey::of(&table(machine.rank())));
                agree(machine, Ok(mine), &rule, Missing::Indicator)
            })
        };
        for result in agreed(ClassRule::Two) {
            let agreed = result.unwrap().0;
            let schema = agreed.schema.unwrap();
            assert_eq!(schema.feature_names(), ["age", "age is missing", "plan=", "plan=basic", "plan=gold"]);
            assert_eq!((agreed.columns, agreed.classes), (5, vec![0.0, 1.0]));
            let (set, _) = schema.encode(table(1)).unwrap();
            assert_eq!(
                set.matrix.row(0).entries().map(|entry| entry.1).collect::<Vec<_>>(),
                [40.0, 1.0, 0.0, 0.0, 1.0]
            );
        }
    }

    #[test]
    fn sums_are_those_of_all_machines() {
        for result in group::run(3, |machine| {
            let mine = [1.0, machine.rank() as f64];
            add_up(machine, &mine)
        }) {
            assert_eq!(result.unwrap(), [3.0, 3.0]);
        }
    }

    #[test]
    fn the_agreed_scaling_is_that_of_all_rows() {
        let rows = |rank: usize| Matrix::dense((0..12).map(|i| (i * (rank + 2) % 7) as f64 + 1e4).collect(), 3);
        let mut whole = Moments::of(&rows(0));
        (1..4).for_each(|rank| whole.merge(&Moments::of(&rows(rank))));
        let expected = whole.scaling(false);
        for result in group::run(4, |machine| {
            let mine = Moments::of(&rows(machine.rank()));
            agree_on_scaling(machine, &mine, false)
        }) {
            let found = result.unwrap();
            // 32-bit floats: seven digits of a mean of ten thousand, and of a deviation of two.
            assert!(found.shifts.iter().zip(&expected.shifts).all(|(a, b)| (a - b).abs() < 2e-3));
            assert!(found.scales.iter().zip(&expected.scales).all(|(a, b)| (a / b - 1.0).abs() < 1e-2));
        }
    }
}
