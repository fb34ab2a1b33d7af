//! What is left of the promises of `source::rabbitmq` when broker and network fail.
