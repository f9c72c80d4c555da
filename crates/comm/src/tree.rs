//! A hub without a centre: exchanges over a spanning tree of neighbours, with the words of an exchange through the hub. Which graph the tree
//! spans belongs to others.

use std::sync::Arc;

use crate::collective::{Carried, Collective, Combine, CommError, Reply};
use crate::frame::FRAME_BYTES;
use crate::neighbours::Neighbours;

/// A collective that hears and is heard over tree neighbours only.
///
/// Every machine sends up the messages of its subtree, in an order that all know, each behind its length; machine 0 combines them in rank
/// order, as a hub does, and its reply goes down. 2(n-1) messages in twice the tree's height of hops, and the bits of the centralised run.
pub struct Tree<N> {
    inner: N,
    parent: Option<usize>,
    children: Vec<usize>,
    depth: usize,
    height: usize,
    /// All ranks, each before its children, and with each how many ranks its subtree has: the order of a message on the way up.
    order: Vec<(usize, usize)>,
    depths: Vec<usize>,
    /// What passed in the last exchange.
    carried: Carried,
    /// What ended the group.
    failure: Option<CommError>,
}

impl<N: Neighbours> Tree<N> {
    /// The tree in which machine i's parent is `parents[i]`; machine 0 is the root and has none.
    ///
    /// # Panics
    /// Unless there is one parent a machine, and every way up ends at machine 0.
    pub fn new(inner: N, parents: &[Option<usize>]) -> Self {
        let (rank, size) = (inner.rank(), inner.size());
        assert_eq!(parents.len(), size, "every machine has its place in the tree");
        let mut children = vec![Vec::new(); size];
        for (machine, parent) in parents.iter().enumerate() {
            assert_eq!(parent.is_none(), machine == 0, "machine 0 is the root, and the only one");
            if let Some(parent) = *parent {
                assert!(parent < size, "parents are machines of the group");
                children[parent].push(machine);
            }
        }
        let mut depths = vec![0; size];
        let mut order = Vec::with_capacity(size);
        let mut open = vec![0];
        while let Some(machine) = open.pop() {
            order.push((machine, 1));
            for &child in children[machine].iter().rev() {
                depths[child] = depths[machine] + 1;
                open.push(child);
            }
        }
        assert_eq!(order.len(), size, "every way up ends at machine 0");
        // From the last to the first: a subtree is whole before its parent counts it.
        let mut sizes = vec![1; size];
        for place in order.iter_mut().rev() {
            place.1 = sizes[place.0];
            if let Some(parent) = parents[place.0] {
                sizes[parent] += sizes[place.0];
            }
        }
        Self {
            inner,
            parent: parents[rank],
            children: std::mem::take(&mut children[rank]),
            depth: depths[rank],
            height: depths.iter().copied().max().unwrap_or(0),
            order,
            depths,
            carried: Carried::default(),
            failure: None,
        }
    }

    /// How many hops the farthest machine is from machine 0.
    pub fn height(&self) -> usize {
        self.height
    }

    /// The machine among its neighbours.
    pub fn inner(&mut self) -> &mut N {
        &mut self.inner
    }

    /// One hop: a message to each of `to`, who say nothing or something themselves.
    fn hop(&mut self, to: &[usize], messages: &[Vec<u8>]) -> Result<Vec<Arc<[u8]>>, CommError> {
        let theirs = self.inner.swap_each(to, messages)?;
        for ((&neighbour, sent), received) in to.iter().zip(messages).zip(&theirs) {
            let edge = self.carried.edges.entry(neighbour).or_default();
            edge.up_bytes += sent.len() as u64;
            edge.down_bytes += received.len() as u64;
            edge.frame_bytes += 2 * FRAME_BYTES as u64;
            edge.trips += 1;
        }
        Ok(theirs)
    }

    /// The messages of this machine's subtree, once those of its children are there.
    fn gather(&mut self, message: &[u8]) -> Result<Vec<u8>, CommError> {
        let mut bundle = Vec::with_capacity(message.len() + 2);
        push_number(message.len() as u64, &mut bundle);
        bundle.extend_from_slice(message);
        for depth in (1..=self.height).rev() {
            if depth == self.depth {
                let parent = self.parent.expect("only machine 0 has no parent, and it is at depth 0");
                self.hop(&[parent], &[std::mem::take(&mut bundle)])?;
            } else if depth == self.depth + 1 {
                let children = std::mem::take(&mut self.children);
                let theirs = self.hop(&children, &vec![Vec::new(); children.len()]);
                self.children = children;
                theirs?.iter().for_each(|theirs| bundle.extend_from_slice(theirs));
            } else {
                self.hop(&[], &[])?;
            }
        }
        Ok(bundle)
    }

    /// Machine 0's words to all.
    fn answer(&self, bundle: &[u8], combine: &mut Combine<'_>) -> Vec<u8> {
        match self.combined(bundle, combine) {
            Ok(answer) => answer,
            Err(error) => {
                let mut answer = vec![FAILED];
                push_error(&error, &mut answer);
                answer
            }
        }
    }

    fn combined(&self, bundle: &[u8], combine: &mut Combine<'_>) -> Result<Vec<u8>, CommError> {
        let mut messages: Vec<&[u8]> = vec![&[]; self.order.len()];
        // The end of each message, in the order in which they came.
        let mut ends = Vec::with_capacity(self.order.len());
        let mut rest = bundle;
        for &(rank, _) in &self.order {
            let damaged = || {
                let what = "what came up the tree cannot be taken apart".to_owned();
                CommError::Damaged { rank, exchange: 0, what }
            };
            let length = take_number(&mut rest).ok_or_else(damaged)?;
            let (message, tail) = rest.split_at_checked(length as usize).ok_or_else(damaged)?;
            messages[rank] = message;
            rest = tail;
            ends.push(bundle.len() - rest.len());
        }
        let longest = messages.iter().map(|message| message.len()).max().unwrap_or(0);
        // Machines of one depth send at the same time: a hop lasts as long as its longest message.
        let mut hops = vec![0; self.height + 1];
        for (place, &(rank, count)) in self.order.iter().enumerate() {
            let start = if place == 0 { 0 } else { ends[place - 1] };
            let bytes = ends[place + count - 1] - start;
            let hop = &mut hops[self.depths[rank]];
            *hop = bytes.max(*hop);
        }
        let mut answer = vec![DONE];
        push_number(longest as u64, &mut answer);
        push_number(hops[1..].iter().sum::<usize>() as u64, &mut answer);
        answer.extend_from_slice(&combine(&messages)?);
        Ok(answer)
    }

    /// Brings machine 0's answer to this machine and on to its children.
    fn spread(&mut self, mut answer: Vec<u8>) -> Result<Vec<u8>, CommError> {
        for depth in 1..=self.height {
            if depth == self.depth {
                let parent = self.parent.expect("only machine 0 has no parent, and it is at depth 0");
                let theirs = self.hop(&[parent], &[Vec::new()])?;
                answer = theirs[0].to_vec();
            } else if depth == self.depth + 1 {
                let children = std::mem::take(&mut self.children);
                let done = self.hop(&children, &vec![answer.clone(); children.len()]);
                self.children = children;
                done?;
            } else {
                self.hop(&[], &[])?;
            }
        }
        Ok(answer)
    }

    fn around(&mut self, message: &[u8], combine: &mut Combine<'_>) -> Result<Reply, CommError> {
        let bundle = self.gather(message)?;
        let answer = if self.depth == 0 { self.answer(&bundle, combine) } else { Vec::new() };
        let answer = self.spread(answer)?;
        let damaged = || CommError::Damaged {
            rank: 0,
            exchange: 0,
            what: "what came down the tree cannot be taken apart".to_owned(),
        };
        let (&kind, mut rest) = answer.split_first().ok_or_else(damaged)?;
        if kind != DONE {
            return Err(take_error(rest).ok_or_else(damaged)?);
        }
        let longest_up = take_number(&mut rest).ok_or_else(damaged)? as usize;
        let way_up = take_number(&mut rest).ok_or_else(damaged)?;
        self.carried.hops = 2 * self.height as u64;
        self.carried.path_bytes = way_up + (self.height * answer.len()) as u64;
        Ok(Reply { message: Arc::from(rest), longest_up })
    }
}

impl<N: Neighbours> Collective for Tree<N> {
    fn rank(&self) -> usize {
        self.inner.rank()
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn exchange(&mut self, message: &[u8], combine: &mut Combine<'_>) -> Result<Reply, CommError> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        self.carried = Carried::default();
        let reply = self.around(message, combine);
        if let Err(failure) = &reply {
            self.failure = Some(failure.clone());
        }
        reply
    }

    fn carried(&self) -> Option<&Carried> {
        Some(&self.carried)
    }
}

const DONE: u8 = 0;
const FAILED: u8 = 1;

/// Seven bits a byte, the lowest first; the top bit says that more follow.
fn push_number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn take_number(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, tail) = rest.split_first()?;
        *rest = tail;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn push_error(error: &CommError, out: &mut Vec<u8>) {
    let (kind, rank, exchange, what) = match error {
        CommError::Left { rank, exchange } => (0, *rank, *exchange, ""),
        CommError::Damaged { rank, exchange, what } => (1, *rank, *exchange, what.as_str()),
        CommError::Refused { rank, what } => (2, *rank, 0, what.as_str()),
        CommError::Engine { process, what } => (3, *process, 0, what.as_str()),
    };
    out.push(kind);
    push_number(rank as u64, out);
    push_number(exchange, out);
    out.extend_from_slice(what.as_bytes());
}

fn take_error(bytes: &[u8]) -> Option<CommError> {
    let (kind, mut rest) = bytes.split_first()?;
    let rank = take_number(&mut rest)? as usize;
    let exchange = take_number(&mut rest)?;
    let what = String::from_utf8_lossy(rest).into_owned();
    match kind {
        0 => Some(CommError::Left { rank, exchange }),
        1 => Some(CommError::Damaged { rank, exchange, what }),
        2 => Some(CommError::Refused { rank, what }),
        3 => Some(CommError::Engine { process: rank, what }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Link, Metered, MeteredNeighbours, Traffic, conformance, group};
    use std::collections::BTreeMap;

    /// Parents of a ring (both ways round from machine 0), a path, a star and a grid with 3 columns.
    fn trees(size: usize) -> Vec<(&'static str, Vec<Option<usize>>)> {
        let parents = |parent: &dyn Fn(usize) -> usize| -> Vec<Option<usize>> {
            (0..size).map(|machine| (machine > 0).then(|| parent(machine))).collect()
        };
        vec![
            ("ring", parents(&|i| if i <= size / 2 { i - 1 } else { (i + 1) % size })),
            ("path", parents(&|i| i - 1)),
            ("star", parents(&|_| 0)),
            ("grid", parents(&|i| if i % 3 == 0 { i - 3 } else { i - 1 })),
        ]
    }

    #[test]
    fn a_tree_keeps_the_laws_of_a_hub() {
        for size in [1, 2, 3, 9] {
            for (name, parents) in trees(size) {
                for result in group::run(size, |machine| conformance::suite(&mut Tree::new(machine, &parents))) {
                    result.unwrap_or_else(|error| panic!("{name} of {size}: {error}"));
                }
            }
        }
    }

    #[test]
    fn a_machine_that_leaves_a_tree_is_named_by_all() {
        let (_, parents) = trees(6).remove(1);
        let results = group::run(6, |machine| {
            let mut tree = Tree::new(machine, &parents);
            tree.all_gather(b"here").map_err(|error| error.to_string())?;
            if tree.rank() == 2 {
                return Err("it had enough".to_owned());
            }
            tree.all_gather(b"still here").map(drop).map_err(|error| error.to_string())
        });
        for (rank, result) in results.into_iter().enumerate() {
            let error = result.unwrap_err();
            assert!(if rank == 2 { error == "it had enough" } else { error.starts_with("machine 2 left") }, "{error}");
        }
    }

    #[test]
    fn every_edge_carries_its_subtree_up_and_the_reply_down() {
        // A path 0 - 1 - 2: ten bytes of each machine with a length before, and down four with three before.
        let link = Link { mbit_s: 8.0, rtt_ms: 10.0, overhead_bytes: 100.0 };
        let results = group::run(3, |machine| {
            let tree = Tree::new(MeteredNeighbours::new(machine), &[None, Some(0), Some(1)]);
            let mut metered = Metered::new(tree, Some(link));
            metered.exchange(&[7; 10], &mut |_| Ok(vec![1; 4]))?;
            let below = metered.unmetered().inner().edges().clone();
            metered.unmetered().exchange(b"around the meter", &mut |_| Ok(Vec::new()))?;
            Ok::<_, CommError>((metered.traffic(), metered.edges().clone(), below))
        });
        let edge =
            |up_bytes, down_bytes| Traffic { up_bytes, down_bytes, frame_bytes: 64, trips: 2, link_seconds: 0.0 };
        let expected = [
            BTreeMap::from([(1, edge(7, 22))]),
            BTreeMap::from([(0, edge(22, 7)), (2, edge(7, 11))]),
            BTreeMap::from([(1, edge(11, 7))]),
        ];
        for (result, expected) in results.into_iter().zip(expected) {
            let (traffic, edges, below) = result.unwrap();
            assert_eq!(edges, expected);
            assert_eq!(below, expected);
            let up_bytes: u64 = expected.values().map(|edge| edge.up_bytes).sum();
            assert_eq!((traffic.up_bytes, traffic.trips), (up_bytes, 4));
            // Four hops of 5 ms, with 11 + 22 + 7 + 7 bytes and 100 more each; a byte takes a microsecond.
            assert!((traffic.link_seconds - (0.020 + 447e-6)).abs() < 1e-12, "{}", traffic.link_seconds);
        }
    }
}
