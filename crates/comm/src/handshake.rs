//! What the machines must agree on before they start. Which fields these are belongs to the run.

use crate::collective::{Collective, CommError, Reduction};
use crate::numbers::{push_count, take_bytes, take_count};

/// How many differences an error lists; a run of a thousand machines with a wrong job file needs no thousand lines.
const LISTED: usize = 20;

/// Compares every machine's fields (name, value) with those of machine 0. Where one differs, is missing or too many, every machine gets the
/// same [`CommError::Refused`], which lists machine, field, its value and machine 0's.
///
/// Eight bytes travel where all is well: the sum of all machines' digests is as many times everybody's own. The fields follow only where it
/// is not.
///
/// Values travel and are shown in clear: of a secret, hand in a commitment.
///
/// # Panics
/// If two fields have one name.
pub fn agree(comm: &mut dyn Collective, fields: &[(&str, String)]) -> Result<(), CommError> {
    for (i, (name, _)) in fields.iter().enumerate() {
        assert!(fields[..i].iter().all(|(other, _)| other != name), "the field `{name}` is given twice");
    }
    let message: Vec<u8> = fields.iter().flat_map(|(name, value)| [*name, value]).flat_map(encode).collect();
    let own = digest(&message);
    let reply = comm.exchange(&own.to_le_bytes(), Reduction::SumI64)?;
    if reply.numbers::<i64>().eq([own.wrapping_mul(comm.size() as i64)]) {
        return Ok(());
    }
    let mut compare_all = |messages: &[&[u8]]| {
        let mut differences = Vec::new();
        let (mut first, mut count) = (None, 0);
        for (rank, message) in messages.iter().enumerate() {
            let Some(theirs) = decode(message) else {
                let what = "it does not begin with a list of fields; does it run another version?".to_owned();
                return Err(CommError::Refused { rank, what });
            };
            for (name, value, hub) in compare(&theirs, fields) {
                first = first.or(Some(rank));
                count += 1;
                if count <= LISTED {
                    differences.push(format!("machine {rank}: `{name}` is {value}, machine 0 has {hub}"));
                }
            }
        }
        let Some(rank) = first else {
            return Ok(Vec::new());
        };
        if count > LISTED {
            differences.push(format!("and {} more", count - LISTED));
        }
        let what = format!(
            "the machines do not agree; start all of them with the same job, seed, data and version\n  {}",
            differences.join("\n  ")
        );
        Err(CommError::Refused { rank, what })
    };
    comm.exchange(&message, Reduction::Hub(&mut compare_all)).map(drop)
}

/// FNV-1a in 64 bits: mistakes are to be found here, not attacks.
fn digest(bytes: &[u8]) -> i64 {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix) as i64
}

/// A text as it travels: behind its length.
pub fn encode(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    push_count(text.len() as u64, &mut bytes);
    bytes.extend_from_slice(text.as_bytes());
    bytes
}

/// The fields of a message, names and values in turn; `None` if it is no list of fields.
pub fn decode(mut message: &[u8]) -> Option<Vec<(String, String)>> {
    let mut fields = Vec::new();
    while !message.is_empty() {
        let mut text = || {
            let length = take_count(&mut message)?;
            String::from_utf8(take_bytes(&mut message, length)?.to_vec()).ok()
        };
        fields.push((text()?, text()?));
    }
    Some(fields)
}

/// Name, value there and value at machine 0 of every field that differs, in machine 0's order, then those that only the other has.
fn compare(theirs: &[(String, String)], hub: &[(&str, String)]) -> Vec<(String, String, String)> {
    let absent = || "absent".to_owned();
    let quoted = |value: &String| format!("`{value}`");
    let mut differences = Vec::new();
    for (name, expected) in hub {
        let value = theirs.iter().find(|(other, _)| other == name).map(|(_, value)| value);
        if value != Some(expected) {
            differences.push(((*name).to_owned(), value.map_or_else(absent, quoted), quoted(expected)));
        }
    }
    for (name, value) in theirs {
        if hub.iter().all(|(other, _)| other != name) {
            differences.push((name.clone(), quoted(value), absent()));
        }
    }
    differences
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group;

    fn fields(rank: usize) -> Vec<(&'static str, String)> {
        let mut fields =
            vec![("version", "0.1.0".to_owned()), ("budget", "64".to_owned()), ("seed", "c0ffee".to_owned())];
        match rank {
            2 => fields[1].1 = "65".to_owned(),
            3 => fields.truncate(2),
            4 => fields.push(("link", "10".to_owned())),
            _ => {}
        }
        fields
    }

    #[test]
    fn machines_that_agree_start() {
        let results = group::run(5, |machine| {
            agree(machine, &fields(0))?;
            agree(machine, &[])?;
            machine.exchange(b"the group goes on", Reduction::Gather).map(drop)
        });
        assert!(results.into_iter().all(|result| result.is_ok()));
    }

    #[test]
    fn every_machine_learns_who_differs_in_which_field() {
        let expected = "machine 2: the machines do not agree; start all of them with the same job, seed, data and version\
            \n  machine 2: `budget` is `65`, machine 0 has `64`\
            \n  machine 3: `seed` is absent, machine 0 has `c0ffee`\
            \n  machine 4: `link` is `10`, machine 0 has absent";
        for result in group::run(6, |machine| {
            let fields = fields(machine.rank());
            agree(machine, &fields)
        }) {
            let error = result.unwrap_err();
            assert!(matches!(error, CommError::Refused { rank: 2, .. }));
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn a_long_list_ends_with_its_count() {
        let results = group::run(100, |machine| {
            let rank = machine.rank().to_string();
            agree(machine, &[("rank", rank)])
        });
        for result in results {
            let error = result.unwrap_err().to_string();
            assert!(error.ends_with("\n  and 79 more"), "{error}");
            assert_eq!(error.lines().count(), 1 + LISTED + 1);
        }
    }

    #[test]
    fn what_is_no_list_of_fields_is_refused() {
        let results = group::run(3, |machine| match machine.rank() {
            1 => machine.exchange(b"another version", Reduction::Hub(&mut |_| Ok(Vec::new()))).map(drop),
            _ => agree(machine, &fields(0)),
        });
        assert!(results.into_iter().all(|result| matches!(result, Err(CommError::Refused { rank: 1, .. }))));
    }
}
