//! The core against a server that is played by the test.
