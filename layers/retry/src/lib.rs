//! Retries messages in place, parked, or through their broker.
