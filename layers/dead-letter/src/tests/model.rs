//! Any target, compared with a model of a few lines.

use proptest::prelude::*;

use super::*;

fn act() -> impl Strategy<Value = Act> {
    let stored = any::<bool>();
    prop_oneof![
        4 => Just(Refuse),
        2 => stored.prop_map(|stored| Lose { stored }),
        1 => stored.prop_map(|stored| Hang { stored }),
        1 => stored.prop_map(|stored| PanicInPoll { stored }),
        1 => Just(Confirm),
        1 => Just(NeverReady),
        1 => Just(NotReady),
        1 => Just(PanicInReady),
        1 => Just(PanicInCall),
        1 => Just(PanicInDrop),
        1 => Just(PanicInEnd),
    ]
}

/// Whether the copy is stored, and whether that is known.
fn result(act: Act) -> (bool, Option<bool>) {
    match act {
        Confirm | PanicInDrop | PanicInEnd => (true, Some(true)),
        Refuse | NeverReady | NotReady | PanicInReady => (false, Some(false)),
        PanicInCall => (false, None),
        Lose { stored } | Hang { stored } | PanicInPoll { stored } => (stored, None),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_message_is_acked_exactly_if_a_copy_is_confirmed_and_has_no_more_than_it_may(
        script in prop::collection::vec(act(), 0..12),
        attempts in 1u32..10,
        duplicates in 0u32..4,
    ) {
        let (mut copies, mut open, mut tries, mut expected) = (0usize, 0, 0, Outcome::Release);
        for act in script.iter().copied().chain(std::iter::repeat(Confirm)).take(attempts as usize) {
            let (stored, known) = result(act);
            tries += 1;
            copies += usize::from(stored);
            open += u32::from(known.is_none());
            if known == Some(true) {
                expected = Outcome::Ack;
                break;
            }
            if open > duplicates {
                break;
            }
        }
        let (target, source) = (Target::new(script.iter().copied()), Source::new());
        let layer = layer(&target).attempts(attempts).duplicates(duplicates);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
        let outcome = runtime.block_on(rejected(layer, &source));
        prop_assert_eq!((&outcome, target.copies(), target.tries()), (&expected, copies, tries));
        prop_assert_eq!(target.open(), 0);
        // What is promised, whatever the model says.
        prop_assert!(outcome != Outcome::Ack || target.copies() > 0);
        prop_assert!(target.copies() <= duplicates as usize + 1);
    }
}
