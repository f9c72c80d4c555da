//! Which process holds how many machines. The same on every process, without a message.

use corewire_comm::CommError;

/// How many machines each process holds, in their order: as even as can be, the first ones hold one more.
pub fn share(machines: usize, processes: usize) -> Result<Vec<usize>, CommError> {
    if machines < processes {
        let what = format!(
            "{machines} machines cannot be divided over {processes} processes, each holds at least one; start at most {machines}"
        );
        return Err(CommError::Engine { process: 0, what });
    }
    let (each, more) = (machines / processes, machines % processes);
    Ok((0..processes).map(|process| each + usize::from(process < more)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_process_holds_a_machine_and_none_two_more_than_another() {
        for machines in 1..60 {
            for processes in 1..=machines {
                let shares = share(machines, processes).unwrap();
                assert_eq!((shares.len(), shares.iter().sum::<usize>()), (processes, machines));
                assert!(shares.is_sorted_by(|a, b| a >= b) && shares[0] - shares[processes - 1] <= 1);
                assert!(shares[processes - 1] > 0);
            }
        }
        assert_eq!(share(7, 3).unwrap(), [3, 2, 2]);
    }

    #[test]
    fn more_processes_than_machines_are_refused() {
        let error = share(2, 3).unwrap_err().to_string();
        assert!(error.contains("2 machines cannot be divided over 3 processes"), "{error}");
    }
}
