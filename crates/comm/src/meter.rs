//! Bytes up and down as they pass, and the modelled clock of a link. What the bytes mean is not its business.

use crate::collective::{Collective, Combine, CommError, Reply};
use crate::frame::FRAME_BYTES;

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
    /// Exchanges.
    pub trips: u64,
    /// Seconds on the modelled link, waiting for the longest message of each exchange.
    pub link_seconds: f64,
}

/// A collective that counts.
pub struct Metered<C> {
    inner: C,
    link: Option<Link>,
    traffic: Traffic,
}

impl<C: Collective> Metered<C> {
    /// Counts from zero, with a modelled link if there is one.
    pub fn new(inner: C, link: Option<Link>) -> Self {
        Self { inner, link, traffic: Traffic::default() }
    }

    /// What has passed so far.
    pub fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// Goes on from what had passed before, after a resume.
    pub fn set_traffic(&mut self, traffic: Traffic) {
        self.traffic = traffic;
    }

    /// The way around the meter, for evaluation and checks.
    pub fn unmetered(&mut self) -> &mut C {
        &mut self.inner
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Numbers, group};

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
