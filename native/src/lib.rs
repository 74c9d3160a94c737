//! Loops over the bytes of record batches, and the Python module `fencepost_native` that offers them.
//!
//! The loops do not depend on Python: `cargo test --no-default-features` tests them without an interpreter.

pub mod batch;
#[cfg(feature = "python")]
mod buffers;
pub mod fetch;
pub mod hashes;
mod numbers;
#[cfg(feature = "python")]
mod objects;
#[cfg(feature = "python")]
mod open_rows;
pub mod produce;
#[cfg(feature = "python")]
mod python;
pub mod records;
pub mod rows;
#[cfg(all(feature = "python", unix))]
mod streams;

#[cfg(test)]
mod tests;
