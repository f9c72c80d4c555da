//! The laws that any engine must keep: every machine of a fresh group calls [`suite`] and must get `Ok`, and so with [`neighbours_suite`].

use crate::collective::{Collective, CommError, Reduction};
use crate::neighbours::Neighbours;
use crate::numbers;

fn failed(law: &str) -> impl Fn(CommError) -> String {
    move |error| format!("{law}: {error}")
}

/// Runs all laws on this machine; the others must run it at the same time. The last law breaks the group on purpose.
pub fn suite(machine: &mut dyn Collective) -> Result<(), String> {
    let (rank, size) = (machine.rank(), machine.size());
    let check = |law: &str, holds: bool| {
        if holds { Ok(()) } else { Err(format!("{law}: does not hold on machine {rank}")) }
    };

    let law = "messages are gathered in rank order, empty and long ones too";
    let mine = |rank: usize| vec![rank as u8; (rank * 7919) % 100_000];
    let reply = machine.exchange(&mine(rank), Reduction::Gather).map_err(failed(law))?;
    let all = reply.messages().ok_or(law)?;
    check(law, all.len() == size && all.iter().enumerate().all(|(rank, message)| *message == mine(rank)))?;
    check(law, reply.roster.ranks().eq(0..size) && reply.divisor() == size as f64)?;

    let law = "floats are summed in rank order, to the bit";
    // Values whose sum depends on the order of addition.
    let value = |rank: usize, i: usize| (1.0 + rank as f64 * 0.37).powi(i as i32 * 9 % 41 - 20) * [1.0, -1.0][rank % 2];
    let mine: Vec<f64> = (0..33).map(|i| value(rank, i)).collect();
    let reply = machine.exchange(&numbers::to_bytes(&mine), Reduction::SumF64).map_err(failed(law))?;
    let expected = |i| (1..size).fold(value(0, i), |sum, rank| sum + value(rank, i));
    check(law, reply.numbers::<f64>().enumerate().all(|(i, sum)| sum.to_bits() == expected(i).to_bits()))?;
    let mine: Vec<f32> = (0..33).map(|i| value(rank, i) as f32).collect();
    let reply = machine.exchange(&numbers::to_bytes(&mine), Reduction::SumF32).map_err(failed(law))?;
    let expected = |i| (1..size).fold(value(0, i) as f32, |sum, rank| sum + value(rank, i) as f32);
    check(law, reply.numbers::<f32>().enumerate().all(|(i, sum)| sum.to_bits() == expected(i).to_bits()))?;

    let law = "integers are summed exactly, and wrap alike";
    let mine: Vec<i64> = (0..1000).map(|i| (rank as i64 - 1) << (i % 50)).collect();
    let reply = machine.exchange(&numbers::to_bytes(&mine), Reduction::SumI64).map_err(failed(law))?;
    let total = (0..size as i64).map(|rank| rank - 1).sum::<i64>();
    check(law, reply.numbers::<i64>().len() == 1000)?;
    check(law, reply.numbers::<i64>().enumerate().all(|(i, sum)| sum == total << (i % 50)))?;
    let mine = [rank as i32 - 3, i32::MAX, i32::MIN];
    let reply = machine.exchange(&numbers::to_bytes(&mine), Reduction::SumI32).map_err(failed(law))?;
    let theirs = |rank: usize| [rank as i32 - 3, i32::MAX, i32::MIN];
    let expected = (0..3).map(|i| (0..size).fold(0i32, |sum, rank| sum.wrapping_add(theirs(rank)[i])));
    check(law, reply.numbers::<i32>().eq(expected))?;

    let law = "sums of nothing are nothing";
    let reply = machine.exchange(&[], Reduction::SumF64).map_err(failed(law))?;
    check(law, reply.message.is_empty())?;

    let law = "control words ride on every reduction and come back as their sums";
    for (kind, how) in [Reduction::SumI32, Reduction::SumF64, Reduction::Gather].into_iter().enumerate() {
        let mut control = [rank as i32 - 7, 0, i32::MAX];
        let reply = machine.reduce(&[0; 8], &mut control, how).map_err(failed(law))?;
        let sum = (0..size).fold(0i32, |sum, rank| sum.wrapping_add(rank as i32 - 7));
        let last = (0..size).fold(0i32, |sum, _| sum.wrapping_add(i32::MAX));
        check(law, control == [sum, 0, last])?;
        check(law, kind == 2 || reply.message[..] == [0; 8])?;
    }

    let law = "only machine 0 combines, it sees every message once, and all get its words";
    let mut calls = 0;
    let reply = machine
        .exchange(
            &[rank as u8, 1],
            Reduction::Hub(&mut |messages| {
                calls += 1;
                Ok(messages.iter().flat_map(|message| message.iter().copied().rev()).collect())
            }),
        )
        .map_err(failed(law))?;
    check(law, calls == usize::from(rank == 0))?;
    check(law, *reply.message == (0..size).flat_map(|rank| [1, rank as u8]).collect::<Vec<u8>>()[..])?;

    let law = "a megabyte survives both ways";
    let big: Vec<u8> = (0..1 << 20).map(|i| (i * 31 + rank) as u8).collect();
    let mut last = |messages: &[&[u8]]| Ok(messages[messages.len() - 1].to_vec());
    let reply = machine.exchange(&big, Reduction::Hub(&mut last)).map_err(failed(law))?;
    check(law, reply.message.iter().enumerate().all(|(i, &byte)| byte == (i * 31 + size - 1) as u8))?;

    let law = "many small exchanges stay in step";
    for turn in 0..500u64 {
        let mine = (turn * rank as u64) as i64;
        let reply = machine.exchange(&mine.to_le_bytes(), Reduction::SumI64).map_err(failed(law))?;
        check(law, reply.numbers::<i64>().eq([(turn * (size * (size - 1) / 2) as u64) as i64]))?;
    }

    let law = "what the hub refuses is refused on every machine, and the group stays broken";
    let refusal = CommError::Refused { rank: size - 1, what: "it sent what nobody wants".to_owned() };
    let error = machine.exchange(b"bad", Reduction::Hub(&mut |_| Err(refusal.clone()))).err();
    check(law, error.as_ref() == Some(&refusal))?;
    check(law, machine.exchange(b"more", Reduction::Gather).is_err())
}

/// Runs all laws of neighbours on this machine; the others must run it at the same time. The last law breaks the group on purpose.
pub fn neighbours_suite(machine: &mut dyn Neighbours) -> Result<(), String> {
    let (rank, size) = (machine.rank(), machine.size());
    let check = |law: &str, holds: bool| {
        if holds { Ok(()) } else { Err(format!("{law}: does not hold on machine {rank}")) }
    };
    let ascending = |mut neighbours: Vec<usize>| {
        neighbours.sort_unstable();
        neighbours.dedup();
        neighbours.retain(|&other| other != rank);
        neighbours
    };
    let ring = ascending(vec![(rank + 1) % size, (rank + size - 1) % size]);
    let complete = ascending((0..size).collect());
    let star = if rank == 0 { complete.clone() } else { vec![0] };
    // The last machine stands alone; before it a path.
    let path = match rank {
        _ if rank + 1 >= size => Vec::new(),
        _ => ascending([rank.saturating_sub(1), rank + 1].into_iter().filter(|other| other + 1 < size).collect()),
    };
    let graphs = [
        ("a ring", ring),
        ("a complete graph", complete.clone()),
        ("a star", star),
        ("a path and a machine alone", path),
    ];

    let mine = |rank: usize| vec![rank as u8; (rank * 7919) % 100_000];
    let letter = |from: usize, to: usize| vec![(from * 31 + to) as u8; (from * 131 + to * 17) % 2000];
    for (name, neighbours) in &graphs {
        let law = &format!("neighbours on {name} get each other's messages in their order, empty and long ones too");
        let theirs = machine.swap(neighbours, &mine(rank)).map_err(failed(law))?.messages;
        check(law, theirs.len() == neighbours.len())?;
        check(law, neighbours.iter().zip(&theirs).all(|(&other, message)| **message == mine(other)[..]))?;

        let law = &format!("every neighbour on {name} gets the message that is meant for it");
        let letters: Vec<Vec<u8>> = neighbours.iter().map(|&to| letter(rank, to)).collect();
        let theirs = machine.swap_each(neighbours, &letters).map_err(failed(law))?.messages;
        check(law, theirs.len() == neighbours.len())?;
        check(law, neighbours.iter().zip(&theirs).all(|(&from, message)| **message == letter(from, rank)[..]))?;
    }

    let law = "a megabyte survives on every edge";
    let big = |rank: usize| (0..1 << 20).map(move |i: usize| (i * 31 + rank) as u8);
    let (_, ring) = &graphs[0];
    let theirs = machine.swap(ring, &big(rank).collect::<Vec<u8>>()).map_err(failed(law))?.messages;
    check(law, ring.iter().zip(&theirs).all(|(&other, message)| message.iter().copied().eq(big(other))))?;

    let law = "many small swaps stay in step, with the hub between them";
    for turn in 0..300usize {
        let (_, neighbours) = &graphs[turn % graphs.len()];
        let word = |rank: usize| ((turn * 1009 + rank) as u64).to_le_bytes();
        let theirs = machine.swap(neighbours, &word(rank)).map_err(failed(law))?.messages;
        check(law, neighbours.iter().zip(&theirs).all(|(&other, message)| **message == word(other)))?;
        if turn % 7 == 0 {
            let mine = (turn * rank) as i64;
            let reply = machine.exchange(&mine.to_le_bytes(), Reduction::SumI64).map_err(failed(law))?;
            check(law, reply.numbers::<i64>().eq([(turn * (size * (size - 1) / 2)) as i64]))?;
        }
    }

    if size == 1 {
        return Ok(());
    }
    let law = "a relation that is not symmetric is refused, and the group stays broken";
    // Machine 1 does not know machine 0. A process that holds neither may learn it at its next call only.
    let one_sided = if rank == 1 { complete[1..].to_vec() } else { complete };
    let error = machine.swap(&one_sided, b"bad").err();
    check(law, error.is_some() || rank > 1)?;
    let error = machine.swap(&[], b"more").err().or(error);
    check(law, matches!(error, Some(CommError::Refused { rank: 0 | 1, .. })))
}

#[cfg(test)]
mod tests {
    use crate::group;

    #[test]
    fn threads_keep_the_laws() {
        for size in [1, 2, 3, 4, 50] {
            for result in group::run(size, |machine| super::suite(machine)) {
                result.unwrap();
            }
        }
    }
}
