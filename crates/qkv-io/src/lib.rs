//! Arrays from literals and files.
