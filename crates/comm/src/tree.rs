//! A hub without a centre: exchanges over a spanning tree of neighbours, with the words of an exchange through the hub. Which graph the
//! tree spans belongs to others.

use std::sync::Arc;

use crate::collective::{Collective, Combine, CommError, Cost, Reduction, Reply, Roster};
use crate::meter::Traffic;
use crate::neighbours::Neighbours;
use crate::numbers::{push_count, take_bytes, take_count, unzigzag, zigzag};

/// A collective that hears and is heard over tree neighbours only.
///
/// Every machine sends up the messages of its subtree, in an order that all know, each behind its length; machine 0 combines them in rank
/// order, as a hub does, and its reply goes down. 2(n-1) messages in twice the tree's height of hops, and the bits of the centralised run.
pub struct Tree<'a> {
    inner: &'a mut dyn Neighbours,
    parent: Option<usize>,
    children: Vec<usize>,
    depth: usize,
    height: usize,
    /// All ranks, each before its children, and with each how many ranks its subtree has: the order of a message on the way up.
    order: Vec<(usize, usize)>,
    depths: Vec<usize>,
    /// What passed in the last exchange.
    cost: Cost,
    /// What ended the group.
    failure: Option<CommError>,
}

impl<'a> Tree<'a> {
    /// The tree in which machine i's parent is `parents[i]`; machine 0 is the root and has none.
    ///
    /// # Panics
    /// Unless there is one parent a machine, and every way up ends at machine 0.
    pub fn new(inner: &'a mut dyn Neighbours, parents: &[Option<usize>]) -> Self {
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
            cost: Cost::default(),
            failure: None,
        }
    }

    /// One hop: a message to each of `to`, who say nothing or something themselves.
    fn hop(&mut self, to: &[usize], messages: &[Vec<u8>]) -> Result<Vec<Arc<[u8]>>, CommError> {
        let swapped = self.inner.swap_each(to, messages)?;
        let passed = to.iter().zip(messages).zip(swapped.messages.iter().zip(&swapped.frame_bytes));
        for ((&neighbour, sent), (received, &frame_bytes)) in passed {
            let edge = self.cost.edges.entry(neighbour).or_default();
            let (up_bytes, down_bytes) = (sent.len() as u64, received.len() as u64);
            let hop = Traffic { up_bytes, down_bytes, frame_bytes, trips: 1, exchanges: 1, ..Traffic::default() };
            *edge = edge.plus(&hop);
        }
        Ok(swapped.messages)
    }

    /// The messages of this machine's subtree, once those of its children are there.
    fn gather(&mut self, message: &[u8], control: &[i32]) -> Result<Vec<u8>, CommError> {
        let mut bundle = Vec::with_capacity(message.len() + 2 + control.len());
        push_control(control, &mut bundle);
        push_count(message.len() as u64, &mut bundle);
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
    fn answer(&self, bundle: &[u8], words: usize, how: &mut Reduction<'_>) -> Vec<u8> {
        self.combined(bundle, words, how).unwrap_or_else(|error| [vec![FAILED], error.to_bytes()].concat())
    }

    fn combined(&self, bundle: &[u8], words: usize, how: &mut Reduction<'_>) -> Result<Vec<u8>, CommError> {
        let mut messages: Vec<&[u8]> = vec![&[]; self.order.len()];
        let mut control = vec![0i32; words];
        // The end of each message, in the order in which they came.
        let mut ends = Vec::with_capacity(self.order.len());
        let mut rest = bundle;
        for &(rank, _) in &self.order {
            let damaged = || {
                let what = "what came up the tree cannot be taken apart".to_owned();
                CommError::Damaged { rank, exchange: 0, what }
            };
            let theirs = take_control(&mut rest, words).ok_or_else(damaged)?;
            control.iter_mut().zip(theirs).for_each(|(sum, word)| *sum = sum.wrapping_add(word));
            let length = take_count(&mut rest).ok_or_else(damaged)?;
            messages[rank] = take_bytes(&mut rest, length).ok_or_else(damaged)?;
            ends.push(bundle.len() - rest.len());
        }
        // Machines of one depth send at the same time: a hop lasts as long as its longest message.
        let mut hops = vec![0; self.height + 1];
        for (place, &(rank, count)) in self.order.iter().enumerate() {
            let start = if place == 0 { 0 } else { ends[place - 1] };
            let bytes = ends[place + count - 1] - start;
            let hop = &mut hops[self.depths[rank]];
            *hop = bytes.max(*hop);
        }
        let mut answer = vec![DONE];
        push_count(hops[1..].iter().sum::<usize>() as u64, &mut answer);
        push_control(&control, &mut answer);
        answer.extend_from_slice(&how.combine(&messages)?);
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

    fn around(&mut self, message: &[u8], control: &mut [i32], how: &mut Reduction<'_>) -> Result<Reply, CommError> {
        let bundle = self.gather(message, control)?;
        let answer = if self.depth == 0 { self.answer(&bundle, control.len(), how) } else { Vec::new() };
        let answer = self.spread(answer)?;
        let damaged = || CommError::Damaged {
            rank: 0,
            exchange: 0,
            what: "what came down the tree cannot be taken apart".to_owned(),
        };
        let (&kind, mut rest) = answer.split_first().ok_or_else(damaged)?;
        if kind != DONE {
            return Err(CommError::from_bytes(rest).ok_or_else(damaged)?);
        }
        let way_up = take_count(&mut rest).ok_or_else(damaged)?;
        control.copy_from_slice(&take_control(&mut rest, control.len()).ok_or_else(damaged)?);
        let mut cost = std::mem::take(&mut self.cost);
        for edge in cost.edges.values() {
            cost.up_bytes += edge.up_bytes;
            cost.down_bytes += edge.down_bytes;
            cost.frame_bytes += edge.frame_bytes;
        }
        cost.hops = 2 * self.height as u64;
        cost.path_bytes = way_up + (self.height * answer.len()) as u64;
        Ok(Reply { message: Arc::from(rest), roster: Roster::All(self.order.len()), cost })
    }
}

impl Collective for Tree<'_> {
    fn rank(&self) -> usize {
        self.inner.rank()
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn reduce(&mut self, message: &[u8], control: &mut [i32], mut how: Reduction<'_>) -> Result<Reply, CommError> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        self.cost = Cost::default();
        let reply = self.around(message, control, &mut how);
        if let Err(failure) = &reply {
            self.failure = Some(failure.clone());
        }
        reply
    }

    fn beside(&mut self, message: &[u8], combine: &mut Combine<'_>) -> Option<Result<Arc<[u8]>, CommError>> {
        self.inner.beside(message, combine)
    }
}

/// Control words in front of a message: nothing for none, else a byte that says whether they are there.
fn push_control(control: &[i32], out: &mut Vec<u8>) {
    if control.is_empty() {
        return;
    }
    let rides = control.iter().any(|&word| word != 0);
    out.push(u8::from(rides));
    if rides {
        control.iter().for_each(|&word| push_count(zigzag(i64::from(word)), out));
    }
}

fn take_control(rest: &mut &[u8], words: usize) -> Option<Vec<i32>> {
    if words == 0 || take_bytes(rest, 1)? == [0] {
        return Some(vec![0; words]);
    }
    (0..words).map(|_| i32::try_from(unzigzag(take_count(rest)?)).ok()).collect()
}

const DONE: u8 = 0;
const FAILED: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Link, Metered, Phase, Traffic, conformance, group};
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
            tree.exchange(b"here", Reduction::Gather).map_err(|error| error.to_string())?;
            if tree.rank() == 2 {
                return Err("it had enough".to_owned());
            }
            tree.exchange(b"still here", Reduction::Gather).map(drop).map_err(|error| error.to_string())
        });
        for (rank, result) in results.into_iter().enumerate() {
            let error = result.unwrap_err();
            assert!(if rank == 2 { error == "it had enough" } else { error.starts_with("machine 2 left") }, "{error}");
        }
    }

    #[test]
    fn every_edge_carries_its_subtree_up_and_the_reply_down() {
        // A path 0 - 1 - 2: ten bytes of each machine with a length before, and down four with two before.
        let link = Link { mbit_s: 8.0, rtt_ms: 10.0, overhead_bytes: 100.0 };
        let results = group::run(3, |machine| {
            let mut tree = Tree::new(machine, &[None, Some(0), Some(1)]);
            let mut metered = Metered::new(&mut tree, Some(link));
            metered.set_phase(Phase::Rounds);
            metered.exchange(&[7; 10], Reduction::Hub(&mut |_| Ok(vec![1; 4])))?;
            Ok::<_, CommError>((metered.traffic(), metered.edges().clone()))
        });
        let edge = |up_bytes, down_bytes| Traffic {
            up_bytes,
            down_bytes,
            frame_bytes: 4,
            trips: 2,
            exchanges: 2,
            ..Traffic::default()
        };
        let expected = [
            BTreeMap::from([(1, edge(6, 22))]),
            BTreeMap::from([(0, edge(22, 6)), (2, edge(6, 11))]),
            BTreeMap::from([(1, edge(11, 6))]),
        ];
        for (result, expected) in results.into_iter().zip(expected) {
            let (traffic, edges) = result.unwrap();
            assert_eq!(edges, expected);
            let up_bytes: u64 = expected.values().map(|edge| edge.up_bytes).sum();
            assert_eq!((traffic.up_bytes, traffic.trips), (up_bytes, 4));
            // Four hops of 5 ms, with 11 + 22 + 6 + 6 bytes and 100 more each; a byte takes a microsecond.
            assert!((traffic.link_seconds - (0.020 + 445e-6)).abs() < 1e-12, "{}", traffic.link_seconds);
        }
    }
}
