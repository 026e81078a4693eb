//! Placeholder until the first real line.
fn main() {}
