//! What every wire client shares: TLS trust, timeouts, redaction. Knows no vendor.
