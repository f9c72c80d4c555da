//! What has passed at a machine, and the modelled clock of a link. What the bytes mean is not its business.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::collective::{Collective, Combine, CommError, Cost, Reduction, Reply};
use crate::neighbours::{Neighbours, Swapped};

/// A machine's link to the hub, for a simulated clock. The hub's own link is taken as wide enough for all.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// Bandwidth each way, in megabits per second.
    pub mbit_s: f64,
    /// Time of a round trip of an empty message, in milliseconds.
    pub rtt_ms: f64,
    /// Bytes that each message costs beside what is counted (headers of packets).
    pub overhead_bytes: f64,
}

impl Link {
    /// Seconds of messages one way that wait for each other, with so many bytes in all.
    pub fn seconds(&self, hops: f64, bytes: f64) -> f64 {
        hops * self.rtt_ms * 0.5e-3 + (bytes + hops * self.overhead_bytes) * 8.0 / (self.mbit_s * 1e6)
    }
}

/// What has passed at one machine.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Traffic {
    /// Payload handed in by the rounds of the method.
    pub up_bytes: u64,
    /// Payload that came back to them.
    pub down_bytes: u64,
    /// Control words, evaluations and snapshots, both ways.
    pub control_bytes: u64,
    /// Envelopes, both ways.
    pub frame_bytes: u64,
    /// Everything before the first round, both ways, envelopes included.
    pub setup_bytes: u64,
    /// Exchanges without those of set-up; of messages that pass from neighbour to neighbour, the hops that wait for each other.
    pub trips: u64,
    /// All exchanges.
    pub exchanges: u64,
    /// Seconds on the modelled link, waiting for the longest message of each exchange.
    pub link_seconds: f64,
}

impl Traffic {
    /// Both together.
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            up_bytes: self.up_bytes + other.up_bytes,
            down_bytes: self.down_bytes + other.down_bytes,
            control_bytes: self.control_bytes + other.control_bytes,
            frame_bytes: self.frame_bytes + other.frame_bytes,
            setup_bytes: self.setup_bytes + other.setup_bytes,
            trips: self.trips + other.trips,
            exchanges: self.exchanges + other.exchanges,
            link_seconds: self.link_seconds + other.link_seconds,
        }
    }

    /// Everything that passed, both ways.
    pub fn wire_bytes(&self) -> u64 {
        self.up_bytes + self.down_bytes + self.control_bytes + self.frame_bytes + self.setup_bytes
    }

    /// The counts and the bits of the clock, for whoever stores them.
    pub fn to_words(&self) -> [u64; 8] {
        let Self { up_bytes, down_bytes, control_bytes, frame_bytes, setup_bytes, trips, exchanges, link_seconds } =
            *self;
        [up_bytes, down_bytes, control_bytes, frame_bytes, setup_bytes, trips, exchanges, link_seconds.to_bits()]
    }

    /// Undoes [`Traffic::to_words`].
    pub fn from_words(words: [u64; 8]) -> Self {
        let [up_bytes, down_bytes, control_bytes, frame_bytes, setup_bytes, trips, exchanges, link_seconds] = words;
        let link_seconds = f64::from_bits(link_seconds);
        Self { up_bytes, down_bytes, control_bytes, frame_bytes, setup_bytes, trips, exchanges, link_seconds }
    }
}

/// What an exchange is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Before the first round: everything counts as set-up.
    Setup,
    /// A round of the method: payload, control and envelopes are counted apart.
    Rounds,
    /// An evaluation or a snapshot between rounds: everything but the envelope counts as control.
    Control,
}

/// A collective that counts what its engine says has passed.
pub struct Metered<'a> {
    inner: &'a mut dyn Collective,
    link: Option<Link>,
    phase: Phase,
    traffic: Traffic,
    /// By the neighbour's rank; what went to the hub is in none of them.
    edges: BTreeMap<usize, Traffic>,
}

impl<'a> Metered<'a> {
    /// Counts from zero, with a modelled link if there is one; set-up first.
    pub fn new(inner: &'a mut dyn Collective, link: Option<Link>) -> Self {
        Self { inner, link, phase: Phase::Setup, traffic: Traffic::default(), edges: BTreeMap::new() }
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

    /// What the next exchanges are for.
    pub fn set_phase(&mut self, phase: Phase) {
        self.phase = phase;
    }

    fn count(&mut self, cost: &Cost) {
        for (&neighbour, passed) in &cost.edges {
            let edge = self.edges.entry(neighbour).or_default();
            *edge = edge.plus(passed);
        }
        let traffic = &mut self.traffic;
        let payload = cost.up_bytes + cost.down_bytes;
        // A swap over edges counts its hops; an exchange with the hub is one trip.
        let trips = if cost.edges.is_empty() { 1 } else { cost.hops };
        traffic.exchanges += trips;
        match self.phase {
            Phase::Setup => traffic.setup_bytes += payload + cost.control_bytes + cost.frame_bytes,
            Phase::Rounds => {
                traffic.up_bytes += cost.up_bytes;
                traffic.down_bytes += cost.down_bytes;
                traffic.control_bytes += cost.control_bytes;
                traffic.frame_bytes += cost.frame_bytes;
                traffic.trips += trips;
            }
            Phase::Control => {
                traffic.control_bytes += payload + cost.control_bytes;
                traffic.frame_bytes += cost.frame_bytes;
                traffic.trips += trips;
            }
        }
        if let Some(link) = &self.link {
            traffic.link_seconds += link.seconds(cost.hops as f64, cost.path_bytes as f64);
        }
    }

    /// Counts a swap: all edges at the same time, so that the clock waits for the longest message.
    fn count_swap(&mut self, neighbours: &[usize], sent: impl Iterator<Item = usize>, swapped: &Swapped) {
        let mut cost = Cost { hops: 1, ..Cost::default() };
        for (((&neighbour, sent), received), &frame_bytes) in
            neighbours.iter().zip(sent).zip(&swapped.messages).zip(&swapped.frame_bytes)
        {
            let edge = Traffic {
                up_bytes: sent as u64,
                down_bytes: received.len() as u64,
                frame_bytes,
                trips: 1,
                exchanges: 1,
                ..Traffic::default()
            };
            cost.up_bytes += edge.up_bytes;
            cost.down_bytes += edge.down_bytes;
            cost.frame_bytes += edge.frame_bytes;
            cost.path_bytes = cost.path_bytes.max(edge.up_bytes).max(edge.down_bytes);
            cost.edges.insert(neighbour, edge);
        }
        self.count(&cost);
    }

    fn inner_neighbours(&mut self) -> Result<&mut dyn Neighbours, CommError> {
        let rank = self.inner.rank();
        let what = "its group has no neighbours to talk to, only a hub";
        self.inner.neighbours().ok_or_else(|| CommError::refused(rank, what))
    }
}

impl Collective for Metered<'_> {
    fn rank(&self) -> usize {
        self.inner.rank()
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn reduce(&mut self, message: &[u8], control: &mut [i32], how: Reduction<'_>) -> Result<Reply, CommError> {
        let reply = self.inner.reduce(message, control, how)?;
        self.count(&reply.cost);
        Ok(reply)
    }

    fn beside(&mut self, message: &[u8], combine: &mut Combine<'_>) -> Option<Result<Arc<[u8]>, CommError>> {
        self.inner.beside(message, combine)
    }

    fn neighbours(&mut self) -> Option<&mut dyn Neighbours> {
        self.inner.neighbours().is_some().then_some(self as &mut dyn Neighbours)
    }
}

impl Neighbours for Metered<'_> {
    fn swap_each(&mut self, neighbours: &[usize], messages: &[Vec<u8>]) -> Result<Swapped, CommError> {
        let swapped = self.inner_neighbours()?.swap_each(neighbours, messages)?;
        self.count_swap(neighbours, messages.iter().map(Vec::len), &swapped);
        Ok(swapped)
    }

    fn swap(&mut self, neighbours: &[usize], message: &[u8]) -> Result<Swapped, CommError> {
        let swapped = self.inner_neighbours()?.swap(neighbours, message)?;
        self.count_swap(neighbours, neighbours.iter().map(|_| message.len()), &swapped);
        Ok(swapped)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::group::{self, Group, Solo, Transport};

    const LINK: Link = Link { mbit_s: 8.0, rtt_ms: 10.0, overhead_bytes: 100.0 };

    #[test]
    fn swaps_are_counted_in_all_and_by_edge() {
        let results = group::run(3, |machine| {
            // A path: 0 - 1 - 2.
            let neighbours = [&[1][..], &[0, 2], &[1]][machine.rank()];
            let message = vec![0; 10 * (machine.rank() + 1)];
            let mut metered = Metered::new(machine, Some(LINK));
            metered.set_phase(Phase::Rounds);
            metered.neighbours().expect("threads can talk to each other").swap(neighbours, &message)?;
            Ok::<_, CommError>((metered.traffic(), metered.edges().clone()))
        });
        let results: Vec<_> = results.into_iter().map(Result::unwrap).collect();
        let (traffic, edges) = &results[1];
        // An envelope is one byte; two edges, both ways.
        assert_eq!((traffic.up_bytes, traffic.down_bytes, traffic.trips, traffic.frame_bytes), (40, 40, 1, 4));
        assert_eq!((edges[&0].down_bytes, edges[&2].down_bytes), (10, 30));
        // One hop, with the longest message, 30 bytes.
        assert!((traffic.link_seconds - (0.005 + 130e-6)).abs() < 1e-12);
    }

    #[test]
    fn bytes_are_counted_where_they_pass_and_by_what_they_are_for() {
        let results = group::run(3, |machine| {
            let rank = machine.rank();
            let mut metered = Metered::new(machine, Some(LINK));
            metered.exchange(b"set-up", Reduction::Hub(&mut |_| Ok(vec![0; 3])))?;
            metered.set_phase(Phase::Rounds);
            let mut control = [0, if rank == 0 { 5 } else { 0 }];
            metered.reduce(&vec![0; 10 * (rank + 1)], &mut control, Reduction::Hub(&mut |_| Ok(vec![1; 7])))?;
            assert_eq!(control, [0, 5]);
            metered.set_phase(Phase::Control);
            metered.exchange(&[0; 8], Reduction::SumF64)?;
            assert!(metered.beside(b"never billed", &mut |_| Ok(Vec::new())).is_some());
            Ok::<_, CommError>(metered.traffic())
        });
        for (rank, traffic) in results.into_iter().enumerate() {
            let traffic = traffic.unwrap();
            assert_eq!((traffic.up_bytes, traffic.down_bytes), (10 * (rank as u64 + 1), 7));
            // Two words came down, and went up from machine 0 alone, where one of them was not zero.
            assert_eq!(traffic.control_bytes, 16 + 2 + if rank == 0 { 2 } else { 0 });
            assert_eq!((traffic.setup_bytes, traffic.frame_bytes), (6 + 3 + 2, 4));
            assert_eq!((traffic.exchanges, traffic.trips), (3, 2));
            assert_eq!(traffic.wire_bytes(), traffic.up_bytes + 7 + traffic.control_bytes + 15);
            assert_eq!(Traffic::from_words(traffic.to_words()), traffic);
            // A byte takes a microsecond at 8 Mbit/s; all wait for the longest message: 7 + 4, 31 + 10, 9 + 9 with envelopes.
            assert!((traffic.link_seconds - (0.030 + 600e-6 + 70e-6)).abs() < 1e-12, "{}", traffic.link_seconds);
        }
    }

    /// A transport that counts what passes through it.
    struct Counting(Solo, Arc<AtomicU64>);

    impl Transport for Counting {
        fn process(&self) -> usize {
            0
        }
        fn machines(&self) -> &[usize] {
            self.0.machines()
        }
        fn exchange(&mut self, mine: Vec<Vec<u8>>, combine: &mut Combine<'_>) -> Result<Arc<[u8]>, CommError> {
            let up: usize = mine.iter().map(Vec::len).sum();
            let count = mine.len();
            let reply = self.0.exchange(mine, combine)?;
            self.1.fetch_add((up + count * reply.len()) as u64, Ordering::Relaxed);
            Ok(reply)
        }
    }

    #[test]
    fn what_is_billed_is_what_the_transport_saw() {
        let seen = Arc::new(AtomicU64::new(0));
        let results = Group::new(Counting(Solo::new(5), Arc::clone(&seen))).run(|machine| {
            let rank = machine.rank();
            let mut metered = Metered::new(machine, None);
            for turn in 0..40usize {
                metered.set_phase([Phase::Setup, Phase::Rounds, Phase::Control][turn % 3]);
                let mut control = vec![(turn * rank) as i32; turn % 3];
                let integers: Vec<i32> = (0..turn).map(|i| (i * rank) as i32 - 4).collect();
                metered.reduce(&crate::numbers::to_bytes(&integers), &mut control, Reduction::SumI32)?;
                metered.exchange(&vec![1; turn * (rank + 1)], Reduction::Gather)?;
            }
            Ok::<_, CommError>(metered.traffic())
        });
        let billed: u64 = results.into_iter().map(|traffic| traffic.unwrap().wire_bytes()).sum();
        assert_eq!(billed, seen.load(Ordering::Relaxed));
    }
}
