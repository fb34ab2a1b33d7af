//! What Redis does in one step. Each script may be sent again when its answer was lost: it knows its own token.

use std::sync::LazyLock;

use ::redis::Script;

/// What the server says of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Somebody else runs it.
    Theirs,
    /// We run it, or did until now.
    Ours,
    /// Somebody has finished it.
    Done,
}

impl From<i64> for Answer {
    fn from(answer: i64) -> Self {
        match answer {
            1 => Self::Ours,
            2 => Self::Done,
            _ => Self::Theirs,
        }
    }
}

/// Keys: the id. Arguments: our token, the lease in milliseconds.
pub(super) static BEGIN: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local there = redis.call('GET', KEYS[1])
         if not there or there == ARGV[1] then
           redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
           return 1
         end
         if string.sub(there, 1, 1) == '+' then return 2 end
         return 0",
    )
});

/// Keys: the id. Arguments: our token, how long it is remembered in milliseconds.
///
/// A lease that has ended, and that nobody took, is no obstacle: the message was handled.
pub(super) static FINISH: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local there = redis.call('GET', KEYS[1])
         if not there or there == ARGV[1] then
           redis.call('SET', KEYS[1], '+' .. ARGV[1], 'PX', ARGV[2])
           return 1
         end
         if there == '+' .. ARGV[1] then return 1 end
         return 0",
    )
});

/// Keys: the id. Arguments: our token.
pub(super) static FORGET: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
         return 1",
    )
});

/// Keys: ids. Arguments: the lease in milliseconds, and our token for each id. Answers with the places of those that
/// somebody else has.
pub(super) static RENEW: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local lost = {}
         for place, key in ipairs(KEYS) do
           local there = redis.call('GET', key)
           if not there or there == ARGV[place + 1] then
             redis.call('SET', key, ARGV[place + 1], 'PX', ARGV[1])
           else
             lost[#lost + 1] = place
           end
         end
         return lost",
    )
});
