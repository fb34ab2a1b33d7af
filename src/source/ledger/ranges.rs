//! AMQP 1.0: one `disposition` for each run of consecutive delivery ids with the same outcome.
//!
//! A disposition names a first and a last id, and nothing ties it to what stands before: a hole splits a run and holds
//! up nothing. Ids are serial numbers of 32 bits and wrap around; deliveries must be taken in their order.

use tower_mq_delivery::Outcome;

use super::Ledger;

/// The next run, in the order taken: its outcome, and its deliveries in `run`, which is emptied first. Send it before
/// the next call: its deliveries have left the ledger.
pub(crate) fn next_range<T>(
    ledger: &mut Ledger<T>,
    id: impl Fn(&T) -> u32,
    run: &mut Vec<T>,
) -> Option<Outcome> {
    run.clear();
    let (first, outcome) = ledger.pop_decided()?;
    let mut next = id(&first).wrapping_add(1);
    run.push(first);
    while let Some((tag, other)) = ledger.first_decided()
        && id(tag) == next
        && *other == outcome
        && let Some((tag, _)) = ledger.pop_decided()
    {
        next = next.wrapping_add(1);
        run.push(tag);
    }
    Some(outcome)
}
