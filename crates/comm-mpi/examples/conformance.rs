//! The laws of an engine over the processes of an MPI job, ways to end badly, and the time of an exchange; `tests/run.sh` starts it.
//!
//! ```sh
//! mpirun -n 3 target/debug/examples/conformance laws 7
//! mpirun -n 4 target/debug/examples/conformance latency 4
//! ```

use std::time::{Duration, Instant};

use corewire_comm::{Collective, CommError, Group, Neighbours, Reduction, conformance, handshake};
use corewire_comm_mpi::Mpi;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize| arguments.get(i).map(|text| text.parse::<usize>().expect("a number"));
    let mut mpi = Mpi::initialise().expect("MPI starts");
    let machines = number(1).unwrap_or(mpi.processes());
    let largest_bytes = number(2).unwrap_or(i32::MAX as usize);
    let outcome =
        match arguments.first().map(String::as_str) {
            Some("laws") => laws(&mut mpi, machines, largest_bytes),
            Some("latency") => latency(&mut mpi, machines),
            Some("forever") => forever(&mut mpi, machines, |_, _| Ok(())),
            Some("fail") => forever(&mut mpi, machines, |process, _| match process {
                1 => Err("the disk of process 1 is full".to_owned()),
                _ => Ok(()),
            }),
            Some("panic") => forever(&mut mpi, machines, |process, machine| {
                assert!(process != 1 || machine % 2 == 0, "machine {machine} lost its mind");
                Ok(())
            }),
            Some("vanish") if mpi.process() == 1 => {
                std::thread::sleep(Duration::from_millis(300));
                drop(mpi);
                return;
            }
            Some("vanish") => forever(&mut mpi, machines, |_, _| Ok(())),
            Some("truncate") => truncate(&mut mpi, machines),
            Some("disagree") => disagree(mpi),
            _ => Err("laws, latency, forever, fail, panic, vanish, truncate or disagree, and the number of machines"
                .to_owned()),
        };
    match outcome {
        Ok(()) => mpi.finish(),
        Err(why) => mpi.abort(3, &why),
    }
}

/// The first error, or all is well.
fn all_well<R>(results: Vec<Result<R, String>>) -> Result<(), String> {
    results.into_iter().try_for_each(|result| result.map(drop))
}

fn say(error: CommError) -> String {
    error.to_string()
}

fn laws(mpi: &mut Mpi, machines: usize, largest_bytes: usize) -> Result<(), String> {
    let mut group = |law: &str| {
        let transport = mpi.transport(machines).map_err(|error| format!("{law}: {error}"))?;
        Ok::<_, String>(Group::new(transport.with_largest_bytes(largest_bytes)))
    };
    all_well(group("the hub")?.run(|machine| conformance::suite(machine)))?;
    all_well(group("neighbours")?.run(|machine| conformance::neighbours_suite(machine)))?;

    let law = "a group that comes to its end leaves room for the next";
    for _ in 0..20 {
        all_well(group(law)?.run(|machine| machine.exchange(b"x", Reduction::Gather).map_err(say)))?;
        all_well(group(law)?.run(|machine| machine.swap(&[], b"x").map_err(say)))?;
        all_well(group(law)?.run(|_| Ok(())))?;
    }

    let law = "machines agree, or all learn who differs";
    let results = group(law)?.run(|machine| {
        let rank = machine.rank();
        let seed = |rank| if rank + 1 == machines { "other" } else { "same" };
        handshake::agree(machine, &[("version", "1".to_owned())]).map_err(say)?;
        match handshake::agree(machine, &[("version", "1".to_owned()), ("seed", seed(rank).to_owned())]) {
            Err(CommError::Refused { rank, what }) if rank + 1 == machines && what.contains("`seed` is `other`") => {
                Ok(())
            }
            Ok(()) if machines == 1 => Ok(()),
            other => Err(format!("{law}: {other:?}")),
        }
    });
    all_well(results)?;

    let law = "who leaves is named by all others, in every process";
    for leaver in [0, machines / 2, machines - 1] {
        let results = group(law)?.run(|machine| {
            machine.exchange(b"here", Reduction::Gather).map_err(say)?;
            if machine.rank() == leaver {
                return Ok(());
            }
            match machine.exchange(b"still here", Reduction::Gather) {
                Err(CommError::Left { rank, exchange: 1 }) if rank == leaver => Ok(()),
                other => Err(format!("{law}: {other:?}")),
            }
        });
        all_well(results)?;
        let results = group(law)?.run(|machine| {
            let others: Vec<usize> = (0..machines).filter(|&other| other != machine.rank()).collect();
            if machine.rank() == leaver {
                return Ok(());
            }
            match machine.swap(&others, b"still here") {
                Err(CommError::Left { rank, exchange: 0 }) if rank == leaver => Ok(()),
                other => Err(format!("{law}: {other:?}")),
            }
        });
        all_well(results)?;
    }

    let law = "processes out of step are refused instead of hanging";
    if mpi.processes() > 1 {
        let process = mpi.process();
        let results = Group::new(mpi.transport(machines).map_err(say)?).run(|machine| {
            let outcome = if process == 0 {
                machine.exchange(b"x", Reduction::Gather).map(drop)
            } else {
                machine.swap(&[], b"x").map(drop)
            };
            match outcome {
                Err(CommError::Engine { process: 1, .. }) => Ok(()),
                other => Err(format!("{law}: {other:?}")),
            }
        });
        all_well(results)?;
        let law = "more processes than machines are refused";
        match mpi.transport(mpi.processes() - 1) {
            Err(CommError::Engine { .. }) => {}
            _ => return Err(law.to_owned()),
        }
        let law = "processes that are asked for different numbers of machines are refused";
        match mpi.transport(machines + process) {
            Err(CommError::Engine { process: 1, .. }) => {}
            _ => return Err(law.to_owned()),
        }
    }
    println!("process {} of {}: {machines} machines keep the laws", mpi.process(), mpi.processes());
    Ok(())
}

/// Sums until something happens to a machine, after a while.
fn forever(mpi: &mut Mpi, machines: usize, happens: fn(usize, usize) -> Result<(), String>) -> Result<(), String> {
    let process = mpi.process();
    println!("process {process} has the id {}", std::process::id());
    let group = Group::new(mpi.transport(machines).map_err(say)?);
    let results = group.run(|machine| {
        for turn in 0u64.. {
            machine.exchange(&1i64.to_le_bytes(), Reduction::SumI64).map_err(say)?;
            if turn == 1000 {
                happens(process, machine.rank())?;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    });
    all_well(results)
}

/// Process 0 makes room for less than the others send, which MPI reports there.
fn truncate(mpi: &mut Mpi, machines: usize) -> Result<(), String> {
    let largest_bytes = if mpi.process() == 0 { 300 } else { i32::MAX as usize };
    let transport = mpi.transport(machines).map_err(say)?.with_largest_bytes(largest_bytes);
    all_well(Group::new(transport).run(|machine| machine.exchange(&[1; 4000], Reduction::Gather).map_err(say)))
}

/// Every process is handed its own seed: nothing may run, and one of them says so.
fn disagree(mut mpi: Mpi) -> ! {
    let (process, processes) = (mpi.process(), mpi.processes());
    let outcome = mpi.transport(processes).and_then(|transport| {
        let results = Group::new(transport).run(|machine| handshake::agree(machine, &[("seed", process.to_string())]));
        results.into_iter().collect::<Result<Vec<()>, CommError>>()
    });
    match outcome {
        Ok(_) => mpi.abort(4, "they agree"),
        Err(error) => mpi.fail(3, &error.to_string(), Some(&error)),
    }
}

/// The median time of an exchange, and of a swap on a ring, at process 0.
/// The median time of MPI's own sum of as many bytes of integers, called by all processes.
fn bare_all_reduce(bytes: usize, turns: usize) -> Duration {
    use mpi::collective::{CommunicatorCollectives, SystemOperation};
    let world = mpi::topology::SimpleCommunicator::world();
    let (mine, mut sums) = (vec![1i32; bytes / 4], vec![0i32; bytes / 4]);
    let mut times = Vec::with_capacity(turns);
    for _ in 0..turns {
        let start = Instant::now();
        world.all_reduce_into(&mine[..], &mut sums[..], SystemOperation::sum());
        times.push(start.elapsed());
    }
    times.sort_unstable();
    times[turns / 2]
}

fn latency(mpi: &mut Mpi, machines: usize) -> Result<(), String> {
    const TURNS: usize = 5000;
    for bytes in [64, 4 * 74, 4096, 1 << 18] {
        let turns = if bytes > 1 << 16 { TURNS / 10 } else { TURNS };
        let results = Group::new(mpi.transport(machines).map_err(say)?).run(|machine| {
            let (rank, size) = (machine.rank(), machine.size());
            let message = vec![rank as u8; bytes];
            let mut ring = vec![(rank + 1) % size, (rank + size - 1) % size];
            ring.sort_unstable();
            ring.dedup();
            ring.retain(|&other| other != rank);
            let median = |turn: &mut dyn FnMut() -> Result<(), CommError>| {
                let mut times = Vec::with_capacity(turns);
                for _ in 0..turns {
                    let start = Instant::now();
                    turn().map_err(say)?;
                    times.push(start.elapsed());
                }
                times.sort_unstable();
                Ok::<_, String>((times[turns / 2], times[turns * 9 / 10]))
            };
            let mut first = |all: &[&[u8]]| Ok(all[0].to_vec());
            let exchange = median(&mut || machine.exchange(&message, Reduction::Hub(&mut first)).map(drop))?;
            let sum = median(&mut || machine.exchange(&message, Reduction::SumI32).map(drop))?;
            let swap = median(&mut || machine.swap(&ring, &message).map(drop))?;
            Ok::<_, String>((exchange, swap, sum))
        });
        let results: Result<Vec<_>, String> = results.into_iter().collect();
        let ((exchange, exchange_tail), (swap, swap_tail), (sum, sum_tail)) = results?[0];
        let bare = bare_all_reduce(bytes, turns);
        if mpi.process() == 0 {
            println!(
                "{} processes, {machines} machines, {bytes} bytes each way: exchange {exchange:?} (9 of 10 within {exchange_tail:?}), \
                 sum of integers {sum:?} ({sum_tail:?}), MPI's own {bare:?}, swap on a ring {swap:?} ({swap_tail:?})",
                mpi.processes()
            );
        }
    }
    Ok(())
}
