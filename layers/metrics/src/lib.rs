//! Measures deliveries and handlers with the names of OpenTelemetry.
