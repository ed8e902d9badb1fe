//! Tiny processes, made by hand, brought back.
