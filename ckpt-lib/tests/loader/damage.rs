//! Damaged images.
