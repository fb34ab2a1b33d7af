//! Spans for deliveries, and W3C trace context in and out.
