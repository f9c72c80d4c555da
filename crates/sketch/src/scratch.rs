//! Places to work in that are kept from call to call, one set for each thread. What is in them means nothing to the next user, but for
//! entries of directions and sets of rows that the next user would make again.

use std::cell::Cell;
use std::thread::LocalKey;

use crate::block::Address;
use crate::kernel::Element;
use crate::rows::Rows;

/// Which place. They can be used at the same time, one inside the other; each inside itself is a new allocation.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    /// As large as the whole vector.
    Whole,
    /// As large as one row of it.
    Row,
    /// Entries of directions.
    Entries,
    /// All entries of a round's directions, which stay for the next call.
    Kept,
}

impl Place {
    /// Where in a page of 4096 bytes it begins. A load is held up by a store still on its way whose address has the same last twelve
    /// bits, and large vectors begin at the start of a page: so what is written here lags behind what is read there, by eight lines.
    fn offset(self) -> usize {
        match self {
            Place::Whole => 3584,
            Place::Row => 3072,
            Place::Entries | Place::Kept => 0,
        }
    }
}

/// The places of one thread, by number.
pub type Places<T> = [Cell<Vec<T>>; 4];

/// Calls `work` with `len` numbers that begin at a line of the cache, whatever they are.
pub(crate) fn with_numbers<T: Element, R>(place: Place, len: usize, work: impl FnOnce(&mut [T]) -> R) -> R {
    let places: &LocalKey<Places<T>> = T::places();
    // Taken out while it is used: a thread of a pool may begin other work before this is done.
    let mut store = places.with(|places| places[place as usize].take());
    let page = 4096 / size_of::<T>();
    if store.len() < len + 2 * page {
        store.resize(len + 2 * page, T::default());
    }
    let skip = store.as_ptr().align_offset(4096).min(page) + place.offset() / size_of::<T>();
    let result = work(&mut store[skip..skip + len]);
    places.with(|places| places[place as usize].set(store));
    result
}

/// Calls `work` with `len` numbers, and whether the last call on this thread left the entries of the same address there.
pub(crate) fn with_kept<R>(address: Address, len: usize, work: impl FnOnce(&mut [f32], bool) -> R) -> R {
    thread_local!(static ADDRESS: Cell<Option<Address>> = const { Cell::new(None) });
    // Nothing is there until `work` is done, whatever happens meanwhile.
    let made = ADDRESS.take() == Some(address);
    let result = with_numbers(Place::Kept, len, |numbers| work(numbers, made));
    ADDRESS.set(Some(address));
    result
}

/// Calls `work` with a set of rows, whatever it was.
pub(crate) fn with_rows<R>(work: impl FnOnce(&mut Rows) -> R) -> R {
    thread_local!(static ROWS: Cell<Rows> = const { Cell::new(Rows::new()) });
    let mut rows = ROWS.take();
    let result = work(&mut rows);
    ROWS.set(rows);
    result
}
