//! Faults that people really met, each with its right value as a numbered test.
//!
//! The numbers are those of the collected cases. Those without a test here concern what other
//! parts show:
//!
//! | case | what it needs |
//! |---|---|
//! | B005, B027, B099, B101 | the check that names a cause (both values of B005 are in B001's test) |
//! | B028, B075, B088 | models and their traces |
//! | B034, B084, B086 | `kernel_memory.rs` |
//! | B077, B079, B081 | time, which no test decides |
//! | numerics and masks on the fast path | `kernel_faults/`, `kernel_same_bits/` (B070, B097) |
//! | B054 | `positions/`, with further tests of B050, B053, B056 and B063 |
//! | B089, B090, B107 | pages and sentences |
//! | B109, B111, B113, B114, B117, B118, B121 | readers of files |

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;

mod causal;
mod heads;
mod layouts;
mod learners;
mod masks;
mod numerics;
mod positions;
mod scale;
