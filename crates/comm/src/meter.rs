//! Bytes up and down as they pass, and the modelled clock of a link. What the bytes mean is not its business.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::collective::{Carried, Collective, Combine, CommError, Reply};
use crate::frame::FRAME_BYTES;
use crate::neighbours::Neighbours;

/// A machine's link to the hub, for a simulated clock. The hub's own link is taken as wide enough for all.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// Bandwidth each way, in megabits a second.
    pub mbit_s: f64,
    /// Time of a round trip of an empty message, in milliseconds.
    pub rtt_ms: f64,
    /// Bytes that each message costs beside its payload (headers of packets, envelopes).
    pub overhead_bytes: f64,
}

impl Link {
    /// Seconds of one exchange with these bytes up and down.
    pub fn seconds(&self, up_bytes: f64, down_bytes: f64) -> f64 {
        let bytes = up_bytes + down_bytes + 2.0 * self.overhead_bytes;
        self.rtt_ms * 1e-3 + bytes * 8.0 / (self.mbit_s * 1e6)
    }

    /// Seconds of messages one way that wait for each other, with so many bytes in all.
    pub fn hop_seconds(&self, hops: f64, bytes: f64) -> f64 {
        hops * self.rtt_ms * 0.5e-3 + (bytes + hops * self.overhead_bytes) * 8.0 / (self.mbit_s * 1e6)
    }
}

/// What has passed at one machine.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Traffic {
    /// Payload handed to the hub.
    pub up_bytes: u64,
    /// Payload that came back.
    pub down_bytes: u64,
    /// Envelopes, both ways.
    pub frame_bytes: u64,
    /// Exchanges; of messages that pass from neighbour to neighbour, the hops that wait for each other.
    pub trips: u64,
    /// Seconds on the modelled link, waiting for the longest message of each exchange.
    pub link_seconds: f64,
}

impl Traffic {
    /// Both together.
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            up_bytes: self.up_bytes + other.up_bytes,
            down_bytes: self.down_bytes + other.down_bytes,
            frame_bytes: self.frame_bytes + other.frame_bytes,
            trips: self.trips + other.trips,
            link_seconds: self.link_seconds + other.link_seconds,
        }
    }
}

/// A collective that counts: messages to the hub and to neighbours, and where a machine carries the messages of others, those too.
pub struct Metered<C> {
    inner: C,
    link: Option<Link>,
    traffic: Traffic,
    /// By the neighbour's rank; what went to the hub is in none of them.
    edges: BTreeMap<usize, Traffic>,
}

impl<C: Collective> Metered<C> {
    /// Counts from zero, with a modelled link if there is one.
    pub fn new(inner: C, link: Option<Link>) -> Self {
        Self { inner, link, traffic: Traffic::default(), edges: BTreeMap::new() }
    }

    /// What has passed so far.
    pub fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// What has passed between this machine and each neighbour since the meter was made: `up_bytes` were sent to it, `down_bytes` came
    /// from it; a trip is a message each way. No link is modelled on a single edge.
    pub fn edges(&self) -> &BTreeMap<usize, Traffic> {
        &self.edges
    }

    /// Goes on from what had passed before, after a resume.
    pub fn set_traffic(&mut self, traffic: Traffic) {
        self.traffic = traffic;
    }

    /// The way around the meter, for evaluation and checks.
    pub fn unmetered(&mut self) -> &mut C {
        &mut self.inner
    }

    fn count(&mut self, carried: &Carried) {
        for (&neighbour, passed) in &carried.edges {
            let edge = self.edges.entry(neighbour).or_default();
            *edge = edge.plus(passed);
            self.traffic = self.traffic.plus(&Traffic { trips: 0, ..*passed });
        }
        self.traffic.trips += carried.hops;
        if let Some(link) = &self.link {
            self.traffic.link_seconds += link.hop_seconds(carried.hops as f64, carried.path_bytes as f64);
        }
    }

    /// Counts a swap: all edges at the same time, so that the clock waits for the longest message.
    fn count_swap(&mut self, neighbours: &[usize], sent: impl Iterator<Item = usize>, theirs: &[Arc<[u8]>]) {
        let mut carried = Carried { hops: 1, ..Carried::default() };
        for ((&neighbour, sent), received) in neighbours.iter().zip(sent).zip(theirs) {
            let edge = Traffic {
                up_bytes: sent as u64,
                down_bytes: received.len() as u64,
                frame_bytes: 2 * FRAME_BYTES as u64,
                trips: 1,
                link_seconds: 0.0,
            };
            carried.path_bytes = carried.path_bytes.max(edge.up_bytes).max(edge.down_bytes);
            carried.edges.insert(neighbour, edge);
        }
        self.count(&carried);
    }

    fn inner_neighbours(&mut self) -> Result<&mut dyn Neighbours, CommError> {
        let rank = self.inner.rank();
        let what = "its group has no neighbours to talk to, only a hub".to_owned();
        self.inner.neighbours().ok_or(CommError::Refused { rank, what })
    }
}

impl<C: Collective> Collective for Metered<C> {
    fn rank(&self) -> usize {
        self.inner.rank()
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn exchange(&mut self, message: &[u8], combine: &mut Combine<'_>) -> Result<Reply, CommError> {
        let reply = self.inner.exchange(message, combine)?;
        if let Some(carried) = self.inner.carried().cloned() {
            self.count(&carried);
            return Ok(reply);
        }
        let traffic = &mut self.traffic;
        traffic.up_bytes += message.len() as u64;
        traffic.down_bytes += reply.message.len() as u64;
        traffic.frame_bytes += 2 * FRAME_BYTES as u64;
        traffic.trips += 1;
        if let Some(link) = &self.link {
            traffic.link_seconds += link.seconds(reply.longest_up as f64, reply.message.len() as f64);
        }
        Ok(reply)
    }

    fn neighbours(&mut self) -> Option<&mut dyn Neighbours> {
        self.inner.neighbours().is_some().then_some(self as &mut dyn Neighbours)
    }
}

impl<C: Collective> Neighbours for Metered<C> {
    fn swap_each(&mut self, neighbours: &[usize], messages: &[Vec<u8>]) -> Result<Vec<Arc<[u8]>>, CommError> {
        let theirs = self.inner_neighbours()?.swap_each(neighbours, messages)?;
        self.count_swap(neighbours, messages.iter().map(Vec::len), &theirs);
        Ok(theirs)
    }

    fn swap(&mut self, neighbours: &[usize], message: &[u8]) -> Result<Vec<Arc<[u8]>>, CommError> {
        let theirs = self.inner_neighbours()?.swap(neighbours, message)?;
        self.count_swap(neighbours, neighbours.iter().map(|_| message.len()), &theirs);
        Ok(theirs)
    }
}

impl<C: Collective + ?Sized> Collective for &mut C {
    fn rank(&self) -> usize {
        (**self).rank()
    }

    fn size(&self) -> usize {
        (**self).size()
    }

    fn exchange(&mut self, message: &[u8], combine: &mut Combine<'_>) -> Result<Reply, CommError> {
        (**self).exchange(message, combine)
    }

    fn neighbours(&mut self) -> Option<&mut dyn Neighbours> {
        (**self).neighbours()
    }

    fn carried(&self) -> Option<&Carried> {
        (**self).carried()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Neighbours, Numbers, group};

    #[test]
    fn swaps_are_counted_in_all_and_by_edge() {
        let link = Link { mbit_s: 8.0, rtt_ms: 10.0, overhead_bytes: 100.0 };
        let results = group::run(3, |machine| {
            // A path: 0 - 1 - 2.
            let neighbours = [&[1][..], &[0, 2], &[1]][machine.rank()];
            let message = vec![0; 10 * (machine.rank() + 1)];
            let mut metered = Metered::new(machine, Some(link));
            metered.neighbours().expect("threads can talk to each other").swap(neighbours, &message)?;
            metered.unmetered().swap(neighbours, b"around the meter")?;
            Ok::<_, CommError>((metered.traffic(), metered.edges().clone()))
        });
        let results: Vec<_> = results.into_iter().map(Result::unwrap).collect();
        let (traffic, edges) = &results[1];
        assert_eq!((traffic.up_bytes, traffic.down_bytes, traffic.trips, traffic.frame_bytes), (40, 40, 1, 64));
        assert_eq!((edges[&0].down_bytes, edges[&2].down_bytes), (10, 30));
        // One hop, with the longest message, 30 bytes.
        assert!((traffic.link_seconds - (0.005 + 130e-6)).abs() < 1e-12);
    }

    #[test]
    fn bytes_are_counted_where_they_pass_and_evaluation_goes_around() {
        let link = Link { mbit_s: 8.0, rtt_ms: 10.0, overhead_bytes: 100.0 };
        let results = group::run(3, |machine| {
            let rank = machine.rank();
            let mut metered = Metered::new(machine, Some(link));
            metered.exchange(&vec![0; 10 * (rank + 1)], &mut |_| Ok(vec![1; 7]))?;
            metered.unmetered().all_reduce_sum(Numbers::F64(&mut [1.0]))?;
            Ok::<_, CommError>(metered.traffic())
        });
        for (rank, traffic) in results.into_iter().enumerate() {
            let traffic = traffic.unwrap();
            assert_eq!((traffic.up_bytes, traffic.down_bytes), (10 * (rank as u64 + 1), 7));
            assert_eq!((traffic.frame_bytes, traffic.trips), (32, 1));
            // A byte takes a microsecond at 8 Mbit/s; all wait for the longest message, 30 bytes.
            assert!((traffic.link_seconds - (0.010 + 237e-6)).abs() < 1e-12);
        }
    }
}
