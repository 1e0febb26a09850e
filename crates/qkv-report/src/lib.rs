//! The worked calculation, shown.
