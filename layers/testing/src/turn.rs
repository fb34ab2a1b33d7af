//! Whether a layer passes the turn.

use std::sync::Arc;

use tower_mq_delivery::{Turn, Turns};

/// A turn, and what tells whether it was passed: for unit tests of layers.
///
/// ```
/// use tower_mq_delivery::Message;
///
/// let (turn, probe) = tower_mq_testing::turn();
/// let mut message = Message::new("two teas");
/// let _before = message.set_turn(turn);
/// message.turn().pass();
/// assert!(probe.is_passed());
/// ```
pub fn turn() -> (Turn, TurnProbe) {
    let turns = Turns::new();
    (turns.turn(1), TurnProbe(turns))
}

/// Tells what was done with a [`turn()`].
#[derive(Debug)]
pub struct TurnProbe(Arc<Turns>);

impl TurnProbe {
    /// It was passed: the driver would take the next delivery.
    pub fn is_passed(&self) -> bool {
        self.0.is_passed(1)
    }

    /// It is parked: a lane would serve other keys.
    pub fn is_parked(&self) -> bool {
        self.0.parked() > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_tells_passed_from_parked() {
        let (turn, probe) = turn();
        assert!(!probe.is_passed() && !probe.is_parked());
        let parked = turn.park();
        assert!(probe.is_parked());
        drop(parked);
        turn.pass();
        assert!(probe.is_passed() && !probe.is_parked());
    }
}
